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
	for come := 1; come <= 4; come++ { // a stream that is taken back after so many frames, and at last one that is not
		x := &trickle{b: make([]byte, 2000), come: 1}
		var d engine.OutDelivery
		l.SendStream(&d, settled, 0, []byte("head"), x)
		for ; x.come < min(come*500, 2000); x.come = min(x.come+500, 2000) {
			l.Continue(&d)
			tap()
		}
		if come < 4 {
			d.Abort()
		}
		l.Continue(&d)
		tap()
	}
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
		f.Add(said, uint16(0), []byte{})
		f.Add(said, uint16(7), []byte{0, 1, 2, 3, 4, 5, 6, 7})
		f.Add(said, uint16(50), []byte{0, 4, 8, 1, 3, 0, 2, 6, 7, 5, 9, 13})
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
		f.Add(said, uint16(0), []byte{})
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint16(1), []byte{})
	f.Fuzz(func(t *testing.T, in []byte, chunk uint16, script []byte) { converse(t, in, chunk, script, false) })
}

// The same of what a peer answers that we dialled.
func FuzzAnswers(f *testing.F) {
	for _, settled := range []bool{true, false} {
		_, answered := conversation(f, settled)
		f.Add(answered, uint16(0))
		f.Add(answered, uint16(7))
	}
	f.Fuzz(func(t *testing.T, in []byte, chunk uint16) { converse(t, in, chunk, nil, true) })
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

// acts is what an end does of its own: each byte is one step, taken after a piece of input.
type acts struct {
	e      *end
	out    [4]engine.OutDelivery
	source [4]trickle
	begun  []*engine.InDelivery
}

func (a *acts) do(what byte) {
	i := int(what>>3) % len(a.out)
	d, x := &a.out[i], &a.source[i]
	switch what & 7 {
	case 0, 1:
		x.come = min(x.come+int(what)*30, len(x.b))
		if l := d.Link(); l != nil {
			l.Continue(d)
		}
	case 2:
		d.Abort()
	case 3:
		d.Settle()
	case 4, 5:
		for l := range a.e.partial {
			if !l.Gone() {
				l.Session().SetWindow(uint32(what >> 3))
			}
		}
	case 6:
		for _, d := range a.begun {
			if d.Link() != nil {
				d.SettleAs(wire.Released)
				break
			}
		}
	default:
		for l := range a.e.partial {
			l.Detach(nil)
			break
		}
	}
}

func converse(t *testing.T, in []byte, chunk uint16, script []byte, dials bool) {
	e := &end{t: t, partial: map[*engine.Link][]byte{}, quiet: true}
	e.conn = engine.NewConn(engine.Config{Client: dials, ContainerID: "carol", MaxFrameSize: 4096, MaxMessageSize: 1 << 20, Mechanisms: nil}, e)
	a := &acts{e: e}
	sent := &a.out
	e.onPart = func(d *engine.InDelivery) {
		e.partial[d.Link()] = nil
		if !d.Settled && len(a.begun) == 0 {
			a.begun = append(a.begun, d)
		}
	}
	e.onLink = acceptAll(3)
	e.onMsg = func(d *engine.InDelivery, _ []byte) {
		if !d.Settled {
			d.SettleAs(wire.Released)
		}
	}
	e.onFlow = func(l *engine.Link) {
		for i := range sent {
			if !l.IsSender() || sent[i].Link() != nil {
				continue
			}
			var r engine.SendResult
			if i < 2 {
				r = l.Send(&sent[i], i%2 == 0, 0, []byte("h"), make([]byte, 5000))
			} else {
				a.source[i] = trickle{b: make([]byte, 5000), come: 1 + i*500}
				r = l.SendStream(&sent[i], i%2 == 0, 0, []byte("h"), &a.source[i])
			}
			if r == engine.Refused {
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
		if len(script) > 0 {
			a.do(script[0])
			script = script[1:]
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
