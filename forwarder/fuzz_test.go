package forwarder_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// pipeEnd is a connection in memory of a client elsewhere: it has no role at the door.
type pipeEnd struct{ net.Conn }

func (pipeEnd) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

// inMemory is a node that clients reach without a socket.
type inMemory struct {
	node  *forwarder.Node
	table *routetable.Table
	conns sync.WaitGroup
}

func (m *inMemory) dial() net.Conn {
	near, far := net.Pipe()
	m.conns.Go(func() { m.node.ServeConn(pipeEnd{far}) })
	return near
}

// fuzzedRows are what messages of fuzzed conversations may find.
var fuzzedRows = []struct {
	pattern, address string
	column           routetable.Column
}{
	{"COLOSSUS", "null", nil}, {"q", "route:witness", nil}, {"q", "route:own", nil}, {"any/*", "route:$1", routetable.WithPick(routetable.PickAny)},
	{"any/*", "route:witness", routetable.WithPick(routetable.PickAny)}, {"first", "route:own", routetable.WithPick(routetable.PickFirst)},
	{"first", "route:witness", routetable.WithPick(routetable.PickFirst)}, {"tap", "null", routetable.WithOptional(true)},
}

func newInMemory(t testing.TB) *inMemory {
	m := &inMemory{table: routetable.New()}
	for _, r := range fuzzedRows {
		var columns []routetable.Column
		if r.column != nil {
			columns = append(columns, r.column)
		}
		if _, err := m.table.Add(r.pattern, r.address, columns...); err != nil {
			t.Fatal(err)
		}
	}
	o := forwarder.Options{ID: "0123456789abcdef", MaxFrame: 4096, MaxMessage: 1 << 20, LinkCredit: 20, SoftQueue: 10, HardQueue: 30}
	m.node = forwarder.New(admin.New(m.table, admin.Options{}), o)
	return m
}

// stop ends the node and recounts it.
func (m *inMemory) stop(t testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // nobody is there any more for whom anything could wait
	m.node.Stop(ctx)
	m.conns.Wait()
	if err := m.node.ConsistencyCheck(); err != nil {
		t.Error(err)
	}
}

// witness is a client that others must not disturb: a sender and a receiver on one connection.
func (m *inMemory) witness(t testing.TB) (out, in *hand) {
	return m.hand(t, engine.RoleSender, "witness"), m.hand(t, engine.RoleReceiver, "witness")
}

func (m *inMemory) hand(t testing.TB, role wire.Role, address string) *hand {
	at, none := wire.Source{Address: address, HasAddress: true}, wire.Source{}
	o := engine.AttachOptions{Name: "hand", Role: role, SenderMode: engine.SenderMixed, Source: &at, Target: &wire.Target{}}
	if role == engine.RoleSender {
		o.Source, o.Target = &none, &wire.Target{Address: address, HasAddress: true}
	}
	h := &hand{t: t, o: o, lax: true, changed: make(chan struct{})}
	h.auto = func(a *arrival) {
		if a.d != nil {
			a.d.SettleAs(wire.Accepted)
		}
	}
	h.conn = amqp.NewConn(m.dial(), engine.Config{ContainerID: "hand", Client: true}, nil, func(c *amqp.Conn) amqp.Owner {
		h.conn = c
		return h
	})
	m.conns.Go(func() { h.conn.Serve() })
	h.until("the link", func() bool { return h.up })
	return h
}

var witnessed = &wire.Message{Data: [][]byte{[]byte("I was there.")}}

// Whatever a client says, the node goes on: another client's message arrives and is accepted, nothing of the client is left when it has gone,
// and the node's counts agree.
func FuzzServe(f *testing.F) {
	for _, seed := range conversations(f) {
		f.Add(seed, uint16(0))
		f.Add(seed, uint16(13))
	}
	f.Fuzz(func(t *testing.T, said []byte, step uint16) {
		if len(said) > 256<<10 {
			return
		}
		before := runtime.NumGoroutine()
		m := newInMemory(t)
		out, in := m.witness(t)
		in.credit(1000)
		m.hear(said, int(step))
		if got := out.outcome(out.put(witnessed, false)); got != "accepted" && got != "modified failed" { // others may have answered for their copies
			t.Errorf("the witness's message was %s", got)
		}
		in.until("the message", func() bool {
			return slices.ContainsFunc(in.came, func(a *arrival) bool {
				return len(a.message.Data) == 1 && bytes.Equal(a.message.Data[0], witnessed.Data[0])
			})
		})
		m.leave(out, in)
		m.stop(t)
		for deadline := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
			if time.Now().After(deadline) {
				buf := make([]byte, 64<<10)
				t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
			}
		}
	})
}

// hear has a client say something, step bytes at a time, and hang up.
func (m *inMemory) hear(said []byte, step int) {
	c := m.dial()
	var reader sync.WaitGroup
	reader.Go(func() { io.Copy(io.Discard, c) })
	if step == 0 {
		step = max(len(said), 1)
	}
	c.SetWriteDeadline(time.Now().Add(20 * time.Second))
	for ; len(said) > 0; said = said[min(step, len(said)):] {
		if _, err := c.Write(said[:min(step, len(said))]); err != nil {
			break
		}
	}
	c.Close()
	reader.Wait()
}

func (m *inMemory) leave(hands ...*hand) {
	for _, h := range hands {
		h.close()
	}
}

// conversations are what clients may say: recorded ones, and made ones.
func conversations(t testing.TB) (all [][]byte) {
	files, err := filepath.Glob(filepath.Join("..", "testdata", "conversations", "*.bytes"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no conversations: %v", err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	for _, address := range []string{"q", "any/own", "first", "tap", "nobody", "$management", ""} {
		all = append(all, chat(t, address, false), chat(t, address, true))
	}
	return all
}

// chat is a client that receives from own and sends to an address, in one session.
func chat(t testing.TB, address string, second bool) []byte {
	var b []byte
	say := func(p interface{ Append([]byte) []byte }, payload ...byte) {
		out, start := wire.BeginFrame(b, wire.FrameAMQP, 0)
		b = wire.EndFrame(append(p.Append(out), payload...), start)
	}
	mode := uint8(0)
	if second {
		mode = 1
	}
	b = append(b, "AMQP\x00\x01\x00\x00"...)
	say(&wire.Open{ContainerID: "chat", MaxFrameSize: 4096})
	say(&wire.Begin{NextOutgoingID: 0, IncomingWindow: 100, OutgoingWindow: 100, HandleMax: 10})
	say(&wire.Attach{Name: "in", Handle: 0, Role: wire.RoleReceiver, RcvSettleMode: mode, Source: &wire.Source{Address: "own", HasAddress: true}, Target: &wire.Target{}})
	say(&wire.Flow{HasNextIncomingID: true, IncomingWindow: 100, OutgoingWindow: 100, HasHandle: true, HasLinkCredit: true, LinkCredit: 50})
	say(&wire.Attach{Name: "out", Handle: 1, Role: wire.RoleSender, RcvSettleMode: mode, Source: &wire.Source{}, Target: &wire.Target{Address: address, HasAddress: address != ""}, HasInitialDeliveryCount: true})
	for i := range uint32(4) {
		message, err := body("q", 300).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		half := len(message)
		if i == 3 {
			half /= 2
		}
		say(&wire.Transfer{Handle: 1, HasDeliveryID: true, DeliveryID: i, Tag: []byte{byte(i)}, HasTag: true, HasSettled: true, Settled: i == 2, More: i == 3}, message[:half]...)
		if i == 3 {
			say(&wire.Transfer{Handle: 1}, message[half:]...)
		}
	}
	accepted := wire.State{Kind: wire.Accepted}
	say(&wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: 1, Settled: !second, State: accepted.Append(nil)})
	say(&wire.Disposition{Role: wire.RoleSender, First: 0, Last: 3, Settled: true})
	say(&wire.Flow{HasNextIncomingID: true, IncomingWindow: 100, OutgoingWindow: 100, HasHandle: true, HasLinkCredit: true, LinkCredit: 50, Drain: true})
	say(&wire.Detach{Handle: 0, Closed: true})
	say(&wire.Detach{Handle: 1, Closed: true})
	say(&wire.End{})
	say(&wire.Close{})
	return bytes.Clone(b)
}
