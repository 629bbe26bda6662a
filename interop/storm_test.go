//go:build heavy

package interop

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
)

// strait is a way to an address that can be cut.
type strait struct {
	ln net.Listener
	to string

	mu    sync.Mutex // guards what follows
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

func newStrait(t *testing.T, to string) *strait {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &strait{ln: ln, to: to, conns: map[net.Conn]bool{}}
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.carry(c) })
		}
	})
	t.Cleanup(func() { ln.Close(); s.cut(); s.wg.Wait() })
	return s
}

func (s *strait) carry(c net.Conn) {
	defer c.Close()
	far, err := net.Dial("tcp", s.to)
	if err != nil {
		return
	}
	defer far.Close()
	s.hold(c, far)
	defer s.letGo(c, far)
	s.wg.Go(func() {
		io.Copy(far, c)
		far.Close()
	})
	io.Copy(c, far)
}

func (s *strait) hold(conns ...net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range conns {
		s.conns[c] = true
	}
}

func (s *strait) letGo(conns ...net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range conns {
		delete(s.conns, c)
	}
}

// cut closes all that goes through.
func (s *strait) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

// gophers are clients on go-amqp that come back, as storm.js has them.
type gophers struct {
	count                           int
	connects, accepted, lost, fresh atomic.Int64
}

// live is the life of one client.
func (g *gophers) live(ctx context.Context, url, address string) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; {
		g.connected(ctx, url, address, &n, tick)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (g *gophers) connected(ctx context.Context, url, address string, n *int, tick *time.Ticker) {
	try, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := amqp.Dial(try, url, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		return
	}
	defer conn.Close()
	g.connects.Add(1)
	session, err := conn.NewSession(try, nil)
	if err != nil {
		return
	}
	receiver, err := session.NewReceiver(try, address, nil)
	if err != nil {
		return
	}
	sender, err := session.NewSender(try, address, nil)
	if err != nil {
		return
	}
	fresh := false
	defer func() {
		if fresh {
			g.fresh.Add(-1)
		}
	}()
	for ; ; *n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		accepted, received, err := g.exchange(ctx, sender, receiver, strconv.Itoa(*n))
		if err != nil {
			return
		}
		if accepted {
			g.accepted.Add(1)
			if !received {
				g.lost.Add(1)
			}
			if !fresh {
				fresh = true
				g.fresh.Add(1)
			}
		}
	}
}

// exchange sends a message and takes it.
func (g *gophers) exchange(ctx context.Context, sender *amqp.Sender, receiver *amqp.Receiver, body string) (accepted, received bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	receipt, err := sender.SendWithReceipt(ctx, amqp.NewMessage([]byte(body)), nil)
	if err != nil {
		return false, false, err
	}
	for !received {
		m, err := receiver.Receive(ctx, nil)
		if err != nil {
			return false, false, err
		}
		if err := receiver.AcceptMessage(ctx, m); err != nil {
			return false, false, err
		}
		received = string(m.GetData()) == body
	}
	state, err := receipt.Wait(ctx)
	return err == nil && stateInWords(state) == "accepted", received, err
}

// stateOf gives what the clients of a process told last, and waits for the next word.
func stateOf(p *process) event {
	for {
		e := p.expect("state")
		if len(p.lines) == 0 {
			return e
		}
	}
}

// Clients that come back by themselves do so, all of them, however often their router restarts or the network is cut; what was accepted was
// received, and the router does not grow.
func TestReconnectStorm(t *testing.T) {
	const restarts, cuts, ofRhea, ofProton, ofGo = 4, 10, 80, 60, 60
	dir, addr := t.TempDir(), freeAddr(t)
	config := filepath.Join(dir, "router.yaml")
	if err := os.WriteFile(config, []byte("listeners: [{url: \"amqp://"+addr+"\"}]\nhttp: {listen: \"127.0.0.1:0\"}\nshutdownGrace: 1s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var metrics string
	resident := func() int { return scrape(t, metrics, "process_resident_memory_bytes ") >> 10 }
	run := func() *router {
		p := start(t, "router", routerProgram, "--config", config)
		p.line()
		metrics = strings.TrimPrefix(p.line(), "ready ") + "/metrics"
		return &router{process: p, addr: addr}
	}
	r := run()
	way := newStrait(t, addr)
	url := "amqp://" + way.ln.Addr().String()
	foreign := map[*process]int{
		client(t, rhea, "storm", "--url", url, "--name", "rhea", "--count", fmt.Sprint(ofRhea)):       ofRhea,
		client(t, proton, "storm", "--url", url, "--name", "proton", "--count", fmt.Sprint(ofProton)): ofProton,
	}
	g := &gophers{count: ofGo}
	ctx, stop := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	defer wait.Wait()
	defer stop()
	for i := range ofGo {
		wait.Go(func() { g.live(ctx, url, fmt.Sprint("go/", i)) })
	}

	times := 0
	back := func() {
		t.Helper()
		times++
		for p, count := range foreign {
			eventually(t, p.name+": all are back", func() bool {
				e := stateOf(p)
				if lost := e.number("lost"); lost > 0 {
					t.Fatalf("%s: %d were lost: %v", p.name, lost, e)
				}
				return e.number("fresh") == count && e.number("connects") >= times*count
			})
		}
		eventually(t, "go-amqp: all are back", func() bool {
			return g.fresh.Load() == ofGo && g.connects.Load() >= int64(times*ofGo)
		})
	}
	back()
	for i := range restarts {
		if i%2 == 0 {
			r.kill()
		} else {
			r.stop()
		}
		r = run()
		back()
	}
	early := 0
	for i := range cuts {
		way.cut()
		back()
		if i == 1 {
			early = resident()
		}
	}
	if late := resident(); late > early+early/4+20<<10 {
		t.Errorf("the router grew from %d to %d KiB in %d storms", early, late, cuts-2)
	} else {
		t.Logf("%d storms of %d clients; go-amqp had %d messages accepted; %d KiB after 2 storms, %d KiB after all",
			times, ofRhea+ofProton+ofGo, g.accepted.Load(), early, late)
	}
	if lost := g.lost.Load(); lost > 0 {
		t.Errorf("go-amqp: %d were lost", lost)
	}
}
