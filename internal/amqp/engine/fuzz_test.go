package engine_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// conversation is what a client says, and what it is answered: the seeds of the fuzzers.
func conversation(t testing.TB, settled bool) (all, answered []byte) {
	p := newPair(t, engine.Config{}, engine.Config{MaxFrameSize: 512})
	tap := func() {
		out := p.client.conn.Output(nil)
		all = append(all, out...)
		p.server.conn.Input(out)
		p.client.conn.Wrote(len(out))
		out = p.server.conn.Output(nil)
		answered = append(answered, out...)
		p.client.conn.Input(out)
		p.server.conn.Wrote(len(out))
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
	return all, answered
}

// Whatever a peer sends, the engine neither panics nor says more than its limits allow, and ends in a state that can be left.
func FuzzConversation(f *testing.F) {
	for _, settled := range []bool{true, false} {
		said, _ := conversation(f, settled)
		f.Add(said, uint16(0))
		f.Add(said, uint16(7))
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "testdata", "conversations", "*.bytes")) // of real clients
	if err != nil || len(files) == 0 {
		f.Fatalf("no conversations: %v", err)
	}
	for _, name := range files {
		said, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(said, uint16(0))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint16(1))
	f.Fuzz(func(t *testing.T, in []byte, chunk uint16) { converse(t, in, chunk, false) })
}

// The same of what a peer answers that we dialled.
func FuzzAnswers(f *testing.F) {
	for _, settled := range []bool{true, false} {
		_, answered := conversation(f, settled)
		f.Add(answered, uint16(0))
		f.Add(answered, uint16(7))
	}
	f.Fuzz(func(t *testing.T, in []byte, chunk uint16) { converse(t, in, chunk, true) })
}

// begins has an end do what who dialled does once the peer has opened: a session, a link each way.
func (e *end) begins() {
	s, err := e.conn.Begin()
	if err != nil {
		e.t.Fatal(err)
	}
	s.Attach(engine.AttachOptions{Name: "l", Role: engine.RoleSender, SenderMode: engine.SenderMixed, Source: &wire.Source{}, Target: &wire.Target{}})
	s.Attach(engine.AttachOptions{Name: "l", Role: engine.RoleReceiver, Source: &wire.Source{Address: "q", HasAddress: true}, Target: &wire.Target{}, Credit: 5})
}

func converse(t *testing.T, in []byte, chunk uint16, dials bool) {
	e := &end{t: t, partial: map[*engine.Link][]byte{}, quiet: true}
	e.conn = engine.NewConn(engine.Config{Client: dials, ContainerID: "carol", MaxFrameSize: 4096, MaxMessageSize: 1 << 20, Mechanisms: nil}, e)
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
	if dials {
		e.onOpen = e.begins
		e.conn.Start()
		e.conn.Wrote(len(e.conn.Output(nil)))
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
