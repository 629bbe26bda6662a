package interop

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// hostile is a client that means harm, for as long as ctx lives. What becomes of it is its own affair: others must not notice.
type hostile struct {
	name   string
	many   int // clients at once
	do     func(ctx context.Context, addr string)
	growth int // MiB by which the router may grow under all of them
}

var hostiles = []hostile{
	{"a header that dribbles", 50, dribbling(nil, saslHeader), 40},
	{"a SASL frame that dribbles", 50, dribbling(nil, join(saslHeader, bytesOf(1, 0, composite(saslInit, sym("ANONYMOUS"), binaryv(make([]byte, 400)))))), 40},
	{"an open that dribbles", 50, dribbling(nil, join(amqpHeader, bytesOf(0, 0, composite(open, str(string(make([]byte, 400))))))), 40},
	{"a transfer that dribbles", 50, dribbling(sendingTo("QUIET"), oneTransfer(0, described(dataSection, binaryv(make([]byte, 400))))), 60},
	{"halves of frames", 200, halves, 100},
	{"all the credit there is, again and again", 4, storm(receivingFrom("QUIET"), flowOf(0, 1<<32-1, false)), 60},
	{"flows that want an answer", 4, storm(receivingFrom("QUIET"), flowOf(0, 10, true)), 60},
	{"flows that want an answer, and nobody reads it", 4, deaf(receivingFrom("QUIET"), flowOf(0, 10, true)), 100},
	{"messages, and nobody reads their outcomes", 4, deaf(sendingTo("QUIET"), oneTransfer(0, described(dataSection, binaryv(make([]byte, 100))))), 100},
	{"a receiver with all the credit that never reads", 4, neverReads, 350},
	{"dispositions of everything", 4, storm(sendingTo("HELD"), join(
		bytesOf(0, 0, composite(disposition, boolean(true), uint32v(0), uint32v(1<<32-1), boolean(true), composite(accepted))),
		bytesOf(0, 0, composite(disposition, boolean(false), uint32v(0), uint32v(1<<31), boolean(true), composite(released))),
		bytesOf(0, 0, composite(disposition, boolean(false), uint32v(1<<31), uint32v(1<<32-1), boolean(false), composite(modified))))), 60},
	// A connection has 65,536 links before it is closed, and the collector lets as many lie about that are gone.
	{"links without end", 2, eachTime(func(n int) []byte { return attachOf(fmt.Sprint("link-", n), uint32(n), "QUIET") }), 1200},
	{"links on names without end", 2, eachTime(func(n int) []byte { return attachOf(fmt.Sprint("link-", n), uint32(n), fmt.Sprint("NAME-", n)) }), 1200},
	{"receivers without end", 1, eachTime(func(n int) []byte { return receiverOf(fmt.Sprint("link-", n), uint32(n), fmt.Sprint("NAME-", n)) }), 1200},
	{"sessions without end", 4, eachTime(func(n int) []byte {
		return bytesOf(0, uint16(n+1), composite(begin, null, uint32v(0), uint32v(1<<31-1), uint32v(1<<31-1)))
	}), 150},
	{"sessions that begin and end", 4, eachTime(func(int) []byte {
		return join(bytesOf(0, 7, composite(begin, null, uint32v(0), uint32v(100), uint32v(100))), bytesOf(0, 7, composite(end)))
	}), 60},
	{"links that come and go by new names", 4, eachTime(func(n int) []byte {
		return join(attachOf(fmt.Sprint("link-", n), 5, fmt.Sprint("NAME-", n)), bytesOf(0, 0, composite(detach, uint32v(5), boolean(true))))
	}), 80},
	{"receivers that come and go by new names", 2, eachTime(func(n int) []byte {
		return join(receiverOf(fmt.Sprint("link-", n), 5, fmt.Sprint("NAME-", n)), bytesOf(0, 0, composite(detach, uint32v(5), boolean(true))))
	}), 150},
	{"unsettled maps that are full", 4, eachTime(func(n int) []byte {
		return join(bytesOf(0, 0, composite(attach, str(fmt.Sprint("bomb-", n)), uint32v(5), boolean(false), null, null, composite(source), composite(target, str("QUIET")), unsettledBomb, null, uint32v(0))),
			bytesOf(0, 0, composite(detach, uint32v(5), boolean(true))))
	}), 100},
	{"giant symbols", 4, eachTime(func(int) []byte {
		return bytesOf(0, 0, composite(attach, str("giant"), uint32v(5), boolean(false), null, null, composite(source, null, null, null, null, null, sym(string(make([]byte, 30_000)))), composite(target, str("QUIET")), null, null, uint32v(0), null, sym(string(make([]byte, 30_000)))))
	}), 100},
	{"connections that come and go", 8, func(ctx context.Context, addr string) {
		for ctx.Err() == nil {
			if c, err := openRaw(addr, "visitor"); err == nil {
				c.Close()
			}
		}
	}, 100},
	{"messages of a thousand frames that never end", 4, endless, 150},
}

// unsettledBomb is a map of as many deliveries as a frame holds.
var unsettledBomb = func() []byte {
	var entries [][]byte
	for i := range 4000 {
		entries = append(entries, binaryv([]byte{byte(i), byte(i >> 8), 1, 2}), composite(accepted))
	}
	return mapv(entries...)
}()

func attachOf(name string, handle uint32, to string) []byte {
	return bytesOf(0, 0, composite(attach, str(name), uint32v(handle), boolean(false), null, null, composite(source), composite(target, str(to)), null, null, uint32v(0)))
}

func receiverOf(name string, handle uint32, from string) []byte {
	return bytesOf(0, 0, composite(attach, str(name), uint32v(handle), boolean(true), null, null, composite(source, str(from)), composite(target)))
}

func flowOf(handle, credit uint32, echo bool) []byte {
	return bytesOf(0, 0, composite(flow, uint32v(0), uint32v(1<<31-1), uint32v(0), uint32v(1<<31-1), uint32v(handle), uint32v(0), uint32v(credit), null, boolean(false), boolean(echo)))
}

// opener connects a hostile client, and brings it to where it begins.
type opener func(addr string) (net.Conn, error)

func sendingTo(name string) opener { return attaching(attachOf("hostile", 0, name)) }

func receivingFrom(name string) opener { return attaching(receiverOf("hostile", 0, name)) }

func attaching(first []byte) opener {
	return func(addr string) (net.Conn, error) {
		c, err := openRaw(addr, "hostile")
		if err != nil {
			return nil, err
		}
		c.bytes(first)
		_, err = c.await(attach)
		return c, err
	}
}

// connect connects by an opener, nil for the socket alone. The connection ends with ctx.
func (o opener) connect(ctx context.Context, addr string) net.Conn {
	var c net.Conn
	var err error
	if o != nil {
		c, err = o(addr)
	}
	if c == nil && err == nil {
		c, err = net.DialTimeout("tcp", addr, patience)
	}
	if err != nil {
		pause(ctx, 20*time.Millisecond)
		return nil
	}
	context.AfterFunc(ctx, func() { c.Close() })
	return c
}

// reading takes what a connection says, and throws it away.
func reading(c net.Conn) { go io.Copy(io.Discard, c) }

// dribbling says something a byte at a time.
func dribbling(o opener, what []byte) func(context.Context, string) {
	return func(ctx context.Context, addr string) {
		c := o.connect(ctx, addr)
		if c == nil {
			return
		}
		reading(c)
		every := time.NewTicker(10 * time.Millisecond)
		defer every.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			<-every.C
			if _, err := c.Write(what[i%len(what) : i%len(what)+1]); err != nil {
				return
			}
		}
	}
}

// halves says half a frame and no more.
func halves(ctx context.Context, addr string) {
	if c := sendingTo("QUIET").connect(ctx, addr); c != nil {
		c.Write(frameHeader(60_000, 2, 0, 0))
		c.Write(make([]byte, 30_000))
		<-ctx.Done()
	}
}

// storm says the same as often as it can, and reads what it is told.
func storm(o opener, what []byte) func(context.Context, string) {
	return shouting(o, what, true)
}

// deaf is a storm that reads nothing.
func deaf(o opener, what []byte) func(context.Context, string) { return shouting(o, what, false) }

func shouting(o opener, what []byte, reads bool) func(context.Context, string) {
	what = bytes.Repeat(what, 1+8192/len(what))
	return func(ctx context.Context, addr string) {
		for ctx.Err() == nil {
			c := o.connect(ctx, addr)
			if c == nil {
				continue
			}
			if reads {
				reading(c)
			}
			for {
				if _, err := c.Write(what); err != nil {
					break
				}
			}
			c.Close()
		}
	}
}

// eachTime says something that differs each time, and reads what it is told.
func eachTime(say func(n int) []byte) func(context.Context, string) {
	return func(ctx context.Context, addr string) {
		for n := 10; ctx.Err() == nil; {
			c := sendingTo("QUIET").connect(ctx, addr)
			if c == nil {
				continue
			}
			reading(c)
			for ; ; n++ {
				if _, err := c.Write(say(n)); err != nil {
					break
				}
			}
			c.Close()
		}
	}
}

// neverReads is sent messages that it asked for, and takes none.
func neverReads(ctx context.Context, addr string) {
	c := receivingFrom("DEAF").connect(ctx, addr)
	if c == nil {
		return
	}
	c.Write(flowOf(0, 1<<32-1, false))
	x := &shipper{addr: addr, to: "DEAF", total: 1 << 30, window: 1 << 30, message: func(n int) ([]byte, bool) { return numbered(n, 20_000), n%2 == 0 }}
	x.ship(ctx)
}

// endless sends a message that has no end, on and on.
func endless(ctx context.Context, addr string) {
	part := make([]byte, 16)
	more := bytesOf(0, 0, composite(transfer, uint32v(0), null, null, null, null, boolean(true)), part)
	first := bytesOf(0, 0, composite(transfer, uint32v(0), uint32v(0), binaryv([]byte{1}), uint32v(0), null, boolean(true)), part)
	c := sendingTo("QUIET").connect(ctx, addr)
	if c == nil {
		return
	}
	reading(c)
	c.Write(first)
	for more = bytes.Repeat(more, 100); ctx.Err() == nil; {
		if _, err := c.Write(more); err != nil {
			return
		}
	}
}

// Whatever hostile clients do, another client is served as before, and the router stays small.
func TestHostileClients(t *testing.T) {
	place := listenRaw(t, nil)
	place.forgets = true
	r := startRouter(t, "sturdy", rows("QUIET", "null", "HELD", "null", "WITNESS", place.url("")))
	w := startWitness(r.addr)
	defer w.stop(t)
	for _, h := range hostiles {
		t.Run(h.name, func(t *testing.T) {
			before := residentKiB(t, r.cmd.Process.Pid)
			w.lap()
			ctx, cancel := context.WithTimeout(context.Background(), hostility)
			defer cancel()
			var wg sync.WaitGroup
			for range h.many {
				wg.Go(func() { h.do(ctx, r.addr) })
			}
			<-ctx.Done()
			during := residentKiB(t, r.cmd.Process.Pid)
			wg.Wait()
			times := w.lap()
			if len(times) == 0 {
				times = append(times, hostility) // and no more: else stop says so
			}
			slices.Sort(times)
			median, worst := times[len(times)/2], times[len(times)-1]
			t.Logf("%d answers for the witness, after %v, at most %v; the router grew by %d MiB", len(times), median.Round(10*time.Microsecond), worst.Round(time.Millisecond), (during-before)>>10)
			if median > 5*time.Second || worst > patience/2 {
				t.Errorf("the witness waited %v, at most %v", median, worst)
			}
			if grown := (during - before) >> 10; grown > h.growth {
				t.Errorf("the router grew by %d MiB, want no more than %d", grown, h.growth)
			}
			select {
			case <-r.ended:
				t.Fatal("the router ended")
			default:
			}
		})
	}
}

// What comes and goes leaves nothing behind.
func TestWhatComesAndGoesLeavesNothing(t *testing.T) {
	r := startRouter(t, "sturdy", rows("QUIET", "null"))
	for _, h := range hostiles {
		if !strings.Contains(h.name, "come and go") && h.name != "sessions that begin and end" {
			continue
		}
		t.Run(h.name, func(t *testing.T) {
			var after [3]int
			for i := range after {
				ctx, cancel := context.WithTimeout(context.Background(), hostility)
				h.do(ctx, r.addr)
				cancel()
				after[i] = residentKiB(t, r.cmd.Process.Pid)
			}
			t.Logf("%v KiB resident", after)
			if after[2]-after[1] > 24<<10 {
				t.Errorf("the router grew: %v KiB", after)
			}
		})
	}
	eventually(t, "no row is left", func() bool { return !strings.Contains(r.ctl(t, "list"), "link:") })
}

// witness sends one message after another, and takes the time of each.
type witness struct {
	cancel context.CancelFunc
	done   chan error
	ship   *shipper

	mu    sync.Mutex // guards what follows
	times []time.Duration
}

func startWitness(addr string) *witness {
	ctx, cancel := context.WithCancel(context.Background())
	w := &witness{cancel: cancel, done: make(chan error, 1)}
	var sent time.Time
	every := time.NewTicker(5 * time.Millisecond)
	w.ship = &shipper{addr: addr, to: "WITNESS", total: 1 << 30, window: 1, enough: make(chan struct{}), message: func(n int) ([]byte, bool) { return numbered(n, 100), false }}
	w.ship.pace = func(n int) {
		if n > 0 {
			w.mu.Lock()
			w.times = append(w.times, w.ship.attempts[n-1].ended.Sub(sent))
			w.mu.Unlock()
		}
		<-every.C
		sent = time.Now()
	}
	go func() {
		defer every.Stop()
		w.done <- w.ship.ship(ctx)
	}()
	return w
}

// lap gives the times since the last lap.
func (w *witness) lap() []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	times := w.times
	w.times = nil
	return times
}

// stop ends the witness, of whose messages every one was accepted, on one connection.
func (w *witness) stop(t *testing.T) {
	close(w.ship.enough)
	if err := <-w.done; err != nil || w.ship.cuts != 0 {
		t.Errorf("the witness was cut off %d times: %v", w.ship.cuts, err)
	}
	w.cancel()
	for n, a := range w.ship.attempts {
		if a.outcome != "accepted" {
			t.Errorf("message %d of the witness: %q", n, a.outcome)
		}
	}
}
