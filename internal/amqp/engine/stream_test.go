package engine_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// trickle is a source of which as much is there as a test says.
type trickle struct {
	b        []byte
	at, come int
}

func (x *trickle) Ready(n int) (int, bool) {
	k := min(n, x.come-x.at)
	return k, x.at+k < len(x.b)
}

func (x *trickle) Append(dst []byte, k int) []byte {
	x.at += k
	return append(dst, x.b[x.at-k:x.at]...)
}

func TestAStreamIsSentAsFarAsItHasCome(t *testing.T) {
	for _, settled := range []bool{true, false} {
		p := newPair(t, engine.Config{}, engine.Config{MaxFrameSize: 512, Window: 3})
		l := p.sender(t, 100)
		x := &trickle{b: bytes.Repeat([]byte("0123456789"), 1000), come: 1}
		d := engine.OutDelivery{Context: "long"}
		if got := l.SendStream(&d, settled, 0, []byte("head"), x); got != engine.Partial {
			t.Fatalf("got %v", got)
		}
		p.mustRun(t)
		var in *engine.Link
		for k := range p.server.partial {
			in = k
		}
		if got := string(p.server.partial[in]); got != "head0" {
			t.Fatalf("got %q", got)
		}
		for ; x.come < len(x.b); x.come = min(x.come+777, len(x.b)) {
			l.Continue(&d)
			l.Continue(&d) // has nothing to do
			p.mustRun(t)
			if got := len(p.server.partial[in]); got != 4+x.come {
				t.Fatalf("%d bytes came, want %d", got, 4+x.come)
			}
		}
		if len(p.server.got) > 0 || l.Whole(&d) {
			t.Fatal("it is whole already")
		}
		l.Continue(&d)
		p.mustRun(t)
		if len(p.server.got) != 1 || string(p.server.got[0]) != "head"+string(x.b) || !l.Whole(&d) {
			t.Fatalf("settled %v: %d messages", settled, len(p.server.got))
		}
		var next engine.OutDelivery
		if got := l.Send(&next, true, 0, nil, []byte("next")); got != engine.Complete {
			t.Errorf("the next one: %v", got)
		}
	}
}

// What is taken back while the peer's window is closed is told when it opens.
func TestAnAbortWaitsForTheWindow(t *testing.T) {
	p := newPair(t, engine.Config{}, engine.Config{MaxFrameSize: 512, Window: 4})
	l := p.sender(t, 100)
	var in *engine.Link
	for range p.server.partial {
		t.Fatal("something came already")
	}
	x := &trickle{b: make([]byte, 10_000), come: 10_000}
	var d engine.OutDelivery
	l.SendStream(&d, false, 0, nil, x)
	move(p.client.conn, p.server.conn)
	for k := range p.server.partial {
		in = k
	}
	in.Session().SetWindow(0)
	for range 4 { // what was told before may still be used
		move(p.server.conn, p.client.conn)
		move(p.client.conn, p.server.conn)
	}
	sent := x.at
	d.Abort()
	p.mustRun(t)
	if slices.Contains(p.server.log, "aborted 0") || l.CanSend() {
		t.Fatalf("the abort went beyond the window: %q", p.server.log)
	}
	in.Session().SetWindow(4)
	p.mustRun(t)
	if !slices.Contains(p.server.log, "aborted 0") || !l.CanSend() {
		t.Errorf("no abort came: %q", p.server.log)
	}
	if x.at != sent || !p.client.conn.IsOpen() || l.Gone() {
		t.Error("it was sent on")
	}
}

// A window that is narrowed is told at once, and holds when what was on its way has come.
func TestANarrowedWindow(t *testing.T) {
	p := newPair(t, engine.Config{}, engine.Config{MaxFrameSize: 512, Window: 100})
	l := p.sender(t, 100)
	x := &trickle{b: make([]byte, 1<<20), come: 1000}
	var d engine.OutDelivery
	l.SendStream(&d, true, 0, nil, x)
	p.mustRun(t)
	var in *engine.Link
	for k := range p.server.partial {
		in = k
	}
	s := in.Session()
	x.come = len(x.b)
	l.Continue(&d) // 100 frames are on their way
	s.SetWindow(0)
	p.mustRun(t)
	const frame = 512 - 64
	before := x.at
	if before < 95*frame || before > 101*frame {
		t.Fatalf("%d bytes came", before)
	}
	room := uint32(7)
	p.server.onPart = func(*engine.InDelivery) {
		room--
		s.SetWindow(room)
	}
	s.SetWindow(room)
	p.mustRun(t)
	if got := (x.at - before) / frame; got != 7 || room != 0 {
		t.Errorf("%d frames came where there was room for 7", got)
	}
	p.server.onPart = nil
	s.SetWindow(1000)
	p.mustRun(t)
	if len(p.server.got) != 1 {
		t.Error("the message did not come")
	}
}

// What is answered before it is whole comes to nobody any more, whether its sender goes on, settles or takes it back.
func TestTheRestOfAnAnsweredDeliveryIsThrownAway(t *testing.T) {
	for _, mode := range []uint8{engine.ReceiverFirst, engine.ReceiverSecond} {
		for _, end := range []string{"is sent", "is aborted", "goes with its link"} {
			t.Run(fmt.Sprint(mode, " ", end), func(t *testing.T) {
				p := newPair(t, engine.Config{}, engine.Config{MaxFrameSize: 512})
				p.server.onLink = acceptAll(10)
				p.mustRun(t)
				s, _ := p.client.conn.Begin()
				l, err := s.Attach(engine.AttachOptions{Name: "l", Role: engine.RoleSender, ReceiverMode: mode, SenderMode: engine.SenderMixed, Source: &wire.Source{}, Target: &wire.Target{}})
				if err != nil {
					t.Fatal(err)
				}
				p.mustRun(t)
				p.server.onPart = func(d *engine.InDelivery) { d.SettleAs(wire.Released) }
				x := &trickle{b: make([]byte, 10_000), come: 600}
				d := engine.OutDelivery{Context: "long"}
				l.SendStream(&d, false, 0, nil, x)
				out := p.client.conn.Output(nil)
				if _, err := p.server.conn.Input(out); err != nil { // the client has not heard of it
					t.Fatal(err)
				}
				p.client.conn.Wrote(len(out))
				switch end {
				case "is sent":
					x.come = len(x.b)
					l.Continue(&d)
				case "is aborted":
					d.Abort()
				default:
					l.Detach(nil)
				}
				p.mustRun(t)
				p.server.onPart = nil
				if end != "goes with its link" {
					var next engine.OutDelivery
					l.Send(&next, true, 0, nil, []byte("next"))
					p.mustRun(t)
					if len(p.server.got) != 1 || string(p.server.got[0]) != "next" {
						t.Errorf("got %d messages", len(p.server.got))
					}
				}
				told := slices.ContainsFunc(p.server.log, func(s string) bool {
					return strings.HasPrefix(s, "remote settled 0") || s == "in dropped 0"
				})
				if mode == engine.ReceiverSecond && !told {
					t.Errorf("nobody was told that it is settled: %q", p.server.log)
				}
				if !p.server.conn.IsOpen() {
					t.Error("the connection did not survive")
				}
			})
		}
	}
}
