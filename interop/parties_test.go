package interop

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// openRaw connects, opens and begins a session, without a test that it could end.
func openRaw(addr, container string) (*rawConn, error) {
	s, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	c := newRawConn(s)
	c.mine = 32 << 10
	if err = c.greet(container); err == nil {
		err = c.session(0)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return c, nil
}

// attempt is one message that a shipper sent.
type attempt struct {
	sent, ended time.Time
	outcome     string // "" none came
	cut         bool   // the connection was lost before it came
	settled     bool   // sent so: no outcome comes
}

// shipper sends messages that are numbered, and connects again as often as it is cut off. A message whose outcome it did not hear it does not send
// again.
type shipper struct {
	addr, to string
	second   bool // receiver mode of its link
	total    int
	window   int
	message  func(n int) (body []byte, settled bool)
	pace     func(n int)
	enough   chan struct{} // closed: no more are sent; may be nil

	attempts []attempt
	cuts     int
	stalls   int // the connection lived, and what was waited for did not come
}

// ship sends them all.
func (x *shipper) ship(ctx context.Context) error {
	var last error
	for len(x.attempts) < x.total && !isDone(x.enough) {
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d messages to %s: %w", len(x.attempts), x.total, x.to, errors.Join(ctx.Err(), last))
		}
		c, err := openRaw(x.addr, "shipper")
		if err == nil {
			stop := context.AfterFunc(ctx, func() { c.Close() })
			err = x.shipBy(c)
			stop()
			c.Close()
			x.cuts++
		}
		if last = err; err != nil {
			if n := net.Error(nil); errors.As(err, &n) && n.Timeout() {
				x.stalls++
			}
			pause(ctx, 20*time.Millisecond)
		}
	}
	x.cuts--
	return nil
}

// pause waits before something is tried again.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// shipBy sends what is left by one connection. What has no outcome at its end was cut.
func (x *shipper) shipBy(c *rawConn) error {
	mode := byte(0)
	if x.second {
		mode = 1
	}
	s, err := tryAttach(c, 0, 0, []byte(x.to), mode)
	if err != nil {
		return err
	}
	base, open := len(x.attempts), 0
	s.onOutcome = func(id uint32, o outcome) {
		if o.state == "received" {
			return
		}
		if a := &x.attempts[base+int(id)]; a.outcome == "" {
			a.outcome, a.ended = o.String(), time.Now()
			open--
		}
		if !o.settled {
			c.write(0, composite(disposition, boolean(false), uint32v(id), null, boolean(true)))
		}
	}
	defer func() {
		for i := base; i < len(x.attempts); i++ {
			a := &x.attempts[i]
			a.cut = !a.settled && a.outcome == ""
		}
	}()
	for len(x.attempts) < x.total && !isDone(x.enough) {
		if err := s.pumpUntil("outcomes", func() bool { return open < x.window }); err != nil {
			return err
		}
		n := len(x.attempts)
		if x.pace != nil {
			x.pace(n)
		}
		message, settled := x.message(n)
		x.attempts = append(x.attempts, attempt{sent: time.Now(), settled: settled})
		if !settled {
			open++
		}
		if _, err := s.send(message, settled); err != nil {
			return err
		}
	}
	return s.pumpUntil("the last outcomes", func() bool { return open == 0 })
}

// numbered is message number n: at least size bytes, of which the last eight are the number.
func numbered(n, size int) []byte {
	return described(dataSection, binaryv(binary.BigEndian.AppendUint64(make([]byte, max(size-8, 0)), uint64(n))))
}

// taker is a receiver that attaches, takes what it gets, and attaches again as often as it is cut off.
type taker struct {
	addr, from string
	second     bool // receiver mode of its link
	queue      bool // it competes with others
	credit     uint32
	work       func(n int) // done before a message is accepted, if not nil

	mu    sync.Mutex // guards what follows
	taken []taken
	there []span
	up    chan struct{} // closed when it has attached for the first time
}

// span is a time in which a receiver was attached; to is zero where it still is.
type span struct{ from, to time.Time }

// taken is one message at a receiver.
type taken struct {
	n       int
	again   bool // its header says that it may have been sent before
	settled bool
	at      time.Time
}

func newTaker(addr, from string) *taker {
	return &taker{addr: addr, from: from, credit: 20, up: make(chan struct{})}
}

// take takes messages until ctx ends.
func (x *taker) take(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		c, err := openRaw(x.addr, "taker")
		if err == nil {
			stop := context.AfterFunc(ctx, func() { c.Close() })
			x.takeBy(ctx, c, n)
			stop()
			c.Close()
		}
		if ctx.Err() == nil {
			pause(ctx, 20*time.Millisecond)
		}
	}
}

// takeBy takes messages by one connection.
func (x *taker) takeBy(ctx context.Context, c *rawConn, times int) error {
	mode := byte(0)
	if x.second {
		mode = 1
	}
	src := [][]byte{str(x.from)}
	if x.queue {
		src = append(src, null, null, null, null, null, null, null, null, null, sym("queue"))
	}
	name := fmt.Sprintf("taker-%d", times)
	c.write(0, composite(attach, str(name), uint32v(0), boolean(true), ubyte(2), ubyte(mode), composite(source, src...), composite(target, str("raw"))))
	if _, err := c.await(attach); err != nil {
		return err
	}
	x.attached()
	defer x.gone()
	r := &rawReceiver{c: c}
	transfers, count := uint32(0), uint32(0)
	grant := func() {
		c.write(0, composite(flow, uint32v(transfers), uint32v(1<<31-1), uint32v(0), uint32v(1<<31-1), uint32v(0), uint32v(count), uint32v(x.credit)))
	}
	grant()
	for {
		f, err := c.read(time.Hour)
		if err != nil {
			return err
		}
		switch f.code {
		case transfer:
			transfers++
			d := r.collect(f)
			if d == nil {
				continue
			}
			count++
			x.keep(d)
			if x.work != nil {
				x.work(numberOf(d))
			}
			if !d.settled {
				c.write(0, composite(disposition, boolean(true), uint32v(uint32(d.id)), uint32v(uint32(d.id)), boolean(!x.second), composite(accepted)))
			}
			if count%(x.credit/2) == 0 {
				grant()
			}
		case detach, end, closing:
			return fmt.Errorf("the peer ended it: %v", f)
		}
	}
}

func (x *taker) attached() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.there = append(x.there, span{from: time.Now()}); len(x.there) == 1 {
		close(x.up)
	}
}

// gone: the link may have ended before, but was there the last time that something came by it.
func (x *taker) gone() {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := &x.there[len(x.there)-1]
	if at.to = at.from; len(x.taken) > 0 && x.taken[len(x.taken)-1].at.After(at.from) {
		at.to = x.taken[len(x.taken)-1].at
	}
}

// owes tells whether the receiver was attached for as long as a message was under way.
func (x *taker) owes(a *attempt) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.there {
		if a.sent.After(s.from) && (s.to.IsZero() || a.ended.Before(s.to)) {
			return true
		}
	}
	return false
}

func (x *taker) keep(d *rawDelivery) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.taken = append(x.taken, takenOf(d))
}

func (x *taker) all() []taken {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.taken[:len(x.taken):len(x.taken)]
}

func takenOf(d *rawDelivery) taken {
	return taken{n: numberOf(d), again: mayBeAgain(d.payload), settled: d.settled, at: d.at}
}

// mayBeAgain tells whether a message says that it may have been sent before: by its delivery-count, or as one that it is not the first to get.
func mayBeAgain(payload []byte) bool {
	if len(payload) < 3 || codeOf(payload) != headerSection {
		return false
	}
	v, _, err := decode(payload)
	if err != nil {
		return false
	}
	fields, _ := v.(tagged).value.([]any)
	f := &frame{fields: fields}
	return f.number(4) > 0
}

// takenBy gives what a listening receiver has.
func takenBy(s *rawServer) []taken {
	var all []taken
	for _, d := range s.all() {
		all = append(all, takenOf(d))
	}
	return all
}

// daemon is a router that is killed and started again in the same place.
type daemon struct {
	program string
	args    []string
	addr    string
	log     tail
	cmd     *exec.Cmd
}

// startDaemon runs a router; it ends with the test.
func startDaemon(t testing.TB, program, name, file string, more ...string) *daemon {
	t.Helper()
	d := &daemon{program: program, args: append([]string{"--name", name, "--table", file}, more...), addr: "127.0.0.1:0"}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.kill()
		if text := d.log.String(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") || strings.Contains(text, "fatal error:") {
			t.Errorf("router %s broke:\n%s", name, text)
		} else if t.Failed() {
			t.Logf("standard error of %s:\n%s", name, text)
		}
	})
	return d
}

// start runs the program and waits until it is ready: on the port that it had before.
func (d *daemon) start() error {
	d.cmd = exec.Command(d.program, append([]string{"--listen", "amqp://" + d.addr}, d.args...)...)
	d.cmd.Stderr = &d.log
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	in := bufio.NewScanner(out)
	if !in.Scan() {
		return fmt.Errorf("router %v ended: %v\n%s", d.args, d.cmd.Wait(), d.log.String())
	}
	addr, ok := strings.CutPrefix(in.Text(), "ready amqp://")
	if !ok {
		return fmt.Errorf("router %v printed %q", d.args, in.Text())
	}
	d.addr = addr
	return nil
}

func (d *daemon) kill() {
	d.cmd.Process.Kill()
	d.cmd.Wait()
}
