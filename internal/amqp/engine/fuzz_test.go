package engine_test

import (
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// conversation is what a client sends: the seeds of the fuzzer.
func conversation(t testing.TB, settled bool) []byte {
	var all []byte
	p := newPair(t, engine.Config{}, engine.Config{MaxFrameSize: 512})
	tap := func() {
		out := p.client.conn.Output(nil)
		all = append(all, out...)
		p.server.conn.Input(out)
		p.client.conn.Wrote(len(out))
		move(p.server.conn, p.client.conn)
	}
	p.server.onLink = acceptAll(10)
	tap()
	s, err := p.client.conn.Begin()
	if err != nil {
		t.Fatal(err)
	}
	l, _ := s.Attach(engine.AttachOptions{Name: "l", Role: engine.RoleSender, SenderMode: engine.SenderMixed, Source: &wire.Source{}, Target: &wire.Target{}})
	r, _ := s.Attach(engine.AttachOptions{Name: "l", Role: engine.RoleReceiver, Source: &wire.Source{Address: "q", HasAddress: true}, Target: &wire.Target{}, Credit: 5})
	tap()
	tap()
	var d [3]engine.OutDelivery
	for i := range d {
		l.Send(&d[i], settled, 0, nil, make([]byte, 700))
	}
	tap()
	r.Drain()
	tap()
	r.Detach(nil)
	l.Detach(nil)
	tap()
	s.End(nil)
	p.client.conn.Close(nil)
	tap()
	return all
}

// Whatever a peer sends, the engine neither panics nor says more than its limits allow, and ends in a state that can be left.
func FuzzConversation(f *testing.F) {
	f.Add(conversation(f, true), uint16(0))
	f.Add(conversation(f, false), uint16(7))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint16(1))
	f.Fuzz(func(t *testing.T, in []byte, chunk uint16) { converse(t, in, chunk) })
}

func converse(t *testing.T, in []byte, chunk uint16) {
	e := &end{t: t, partial: map[*engine.Link][]byte{}, quiet: true}
	e.conn = engine.NewConn(engine.Config{MaxFrameSize: 4096, MaxMessageSize: 1 << 20, Mechanisms: nil}, e)
	var sent [4]engine.OutDelivery
	e.onLink = acceptAll(3)
	e.onMsg = func(d *engine.InDelivery, _ []byte) {
		if !d.Settled {
			d.SettleAs(wire.Released)
		}
	}
	e.onFlow = func(l *engine.Link) {
		for i := range sent {
			if l.IsSender() && sent[i].Link() == nil && l.Send(&sent[i], i%2 == 0, 0, []byte("h"), make([]byte, 5000)) == engine.Refused {
				break
			}
		}
	}
	step := int(chunk)
	if step == 0 {
		step = len(in)
	}
	var kept []byte
	for len(in) > 0 {
		n := min(step, len(in))
		kept = append(kept, in[:n]...)
		in = in[n:]
		used, err := e.conn.Input(kept)
		out := e.conn.Output(nil)
		if len(out) > 4<<20 {
			t.Fatalf("%d bytes of output", len(out))
		}
		e.conn.Wrote(len(out))
		if err != nil {
			break
		}
		kept = kept[used:]
		if len(kept) > 4096 {
			t.Fatalf("%d bytes kept of frames of at most 4096", len(kept))
		}
	}
	e.conn.Tick(time.Unix(1, 0))
	e.conn.Terminate(nil)
	for i := range sent {
		if sent[i].Link() != nil {
			t.Fatal("a delivery outlived the connection")
		}
	}
}
