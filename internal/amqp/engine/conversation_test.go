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

func TestMessagesArriveAndAreSettled(t *testing.T) {
	p := newPair(t, engine.Config{}, engine.Config{})
	l := p.sender(t, 100)
	p.server.onMsg = func(d *engine.InDelivery, b []byte) {
		p.server.got = append(p.server.got, bytes.Clone(b))
		if !d.Settled {
			d.SettleAs(wire.Accepted)
		}
	}
	var ds [10]engine.OutDelivery
	for i := range ds {
		ds[i].Context = i
		if r := l.Send(&ds[i], i%2 == 0, 0, []byte("he"), []byte("llo")); r != engine.Complete {
			t.Fatalf("send %d: %v", i, r)
		}
	}
	p.mustRun(t)
	if len(p.server.got) != 10 || string(p.server.got[9]) != "hello" {
		t.Fatalf("got %q", p.server.got)
	}
	var settled []string
	for _, s := range p.client.log {
		if strings.HasPrefix(s, "settled") {
			settled = append(settled, s)
		}
	}
	want := []string{"settled 1 2", "settled 3 2", "settled 5 2", "settled 7 2", "settled 9 2"}
	if !slices.Equal(settled, want) {
		t.Fatalf("got %v, want %v", settled, want)
	}
}

func TestReceiverModeSecondIsThreeWay(t *testing.T) {
	p := newPair(t, engine.Config{}, engine.Config{})
	p.server.onLink = acceptAll(10)
	p.mustRun(t)
	s, _ := p.client.conn.Begin()
	l, err := s.Attach(engine.AttachOptions{Name: "l", Role: engine.RoleSender, ReceiverMode: engine.ReceiverSecond, Source: &wire.Source{}, Target: &wire.Target{}})
	if err != nil {
		t.Fatal(err)
	}
	p.mustRun(t)
	if l.ReceiverMode() != engine.ReceiverSecond {
		t.Fatalf("receiver mode %d was not echoed", l.ReceiverMode())
	}
	p.server.onMsg = func(d *engine.InDelivery, _ []byte) { d.SettleAs(wire.Accepted) }
	d := engine.OutDelivery{Context: "m"}
	l.Send(&d, false, 0, nil, []byte("x"))
	p.mustRun(t)
	if got := p.client.log[len(p.client.log)-1]; got != "settled m 2" {
		t.Fatalf("client heard %q", got)
	}
	if got := p.server.log[len(p.server.log)-1]; got != "remote settled 0 2" {
		t.Fatalf("server heard %q", got)
	}
}

// A message far larger than frame, window and output limit arrives whole, and others go on after it.
func TestLargeMessageThroughSmallWindows(t *testing.T) {
	p := newPair(t, engine.Config{OutLimit: 3000}, engine.Config{MaxFrameSize: 512, Window: 2})
	l := p.sender(t, 100)
	body := bytes.Repeat([]byte("0123456789"), 100_000)
	big, small := engine.OutDelivery{Context: "big"}, engine.OutDelivery{Context: "small"}
	if r := l.Send(&big, true, 0, nil, body); r != engine.Partial {
		t.Fatalf("got %v, want Partial", r)
	}
	p.client.onFlow = func(l *engine.Link) {
		if small.Link() == nil {
			l.Send(&small, true, 0, nil, []byte("after"))
		}
	}
	p.mustRun(t)
	if len(p.server.got) < 2 || !bytes.Equal(p.server.got[0], body) || string(p.server.got[1]) != "after" {
		t.Fatalf("got %d messages", len(p.server.got))
	}
}

func TestDrainGivesCreditBack(t *testing.T) {
	p := newPair(t, engine.Config{}, engine.Config{})
	var server, client *engine.Link
	p.server.onLink = func(l *engine.Link) { server = l; acceptAll(0)(l) }
	p.mustRun(t)
	s, _ := p.client.conn.Begin()
	client, err := s.Attach(engine.AttachOptions{Name: "r", Role: engine.RoleReceiver, Source: &wire.Source{}, Target: &wire.Target{}, Credit: 10})
	if err != nil {
		t.Fatal(err)
	}
	p.mustRun(t)
	drained := false
	p.client.onFlow = func(l *engine.Link) { drained = l.Credit() == 0 }
	var d engine.OutDelivery
	server.Send(&d, true, 0, nil, []byte("one"))
	client.Drain()
	p.mustRun(t)
	if !drained || len(p.client.got) != 1 || server.Credit() != 0 {
		t.Fatalf("drained %v, %d messages, credit left %d", drained, len(p.client.got), server.Credit())
	}
	client.Grant(3)
	p.mustRun(t)
	if server.Credit() != 3 {
		t.Fatalf("credit after the drain: %d", server.Credit())
	}
}

func TestLinkErrorsEndTheLinkAlone(t *testing.T) {
	p := newPair(t, engine.Config{}, engine.Config{})
	l := p.sender(t, 1)
	var d1, d2 engine.OutDelivery
	l.Send(&d1, true, 0, nil, []byte("a"))
	if r := l.Send(&d2, true, 0, nil, []byte("b")); r != engine.Refused {
		t.Fatalf("send beyond credit: %v", r)
	}
	l.Detach(nil)
	p.mustRun(t)
	if !p.client.conn.IsOpen() || !p.server.conn.IsOpen() {
		t.Fatal("the connection did not survive")
	}
	if _, err := l.Session().Attach(engine.AttachOptions{Name: "l", Role: engine.RoleSender, Source: &wire.Source{}, Target: &wire.Target{}}); err != nil {
		t.Fatal(err)
	}
	p.mustRun(t)
}

func TestCoordinatorIsRefused(t *testing.T) {
	p := newPair(t, engine.Config{}, engine.Config{})
	p.server.onLink = acceptAll(1)
	p.mustRun(t)
	a := wire.Attach{Name: "tx", Handle: 0, Role: wire.RoleSender, Source: &wire.Source{}, Coordinator: true}
	b := wire.Begin{IncomingWindow: 10, OutgoingWindow: 10, HandleMax: 10}
	out := frame(3, b.Append)
	out = append(out, frame(3, a.Append)...)
	if _, err := p.server.conn.Input(out); err != nil {
		t.Fatal(err)
	}
	got := p.server.conn.Output(nil)
	if !bytes.Contains(got, []byte("amqp:not-implemented")) {
		t.Fatalf("got %q", got)
	}
}

func frame(ch uint16, f func([]byte) []byte) []byte {
	b, start := wire.BeginFrame(nil, wire.FrameAMQP, ch)
	return wire.EndFrame(f(b), start)
}

// attached gives a server end with a link that the peer attached on channel 3, handle 0, by the name given, and what the server said.
func attached(t *testing.T, name string, maxFrame uint32) (*end, []byte) {
	t.Helper()
	p := newPair(t, engine.Config{}, engine.Config{})
	p.server.onLink = acceptAll(2)
	c := engine.NewConn(engine.Config{}, p.server)
	p.server.conn = c
	var in []byte
	for _, f := range []func([]byte) []byte{
		(&wire.Open{ContainerID: "x", MaxFrameSize: maxFrame, ChannelMax: 9}).Append,
		(&wire.Begin{IncomingWindow: 10, OutgoingWindow: 10, HandleMax: 10}).Append,
		(&wire.Attach{Name: name, Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{}}).Append,
	} {
		in = append(in, frame(3, f)...)
	}
	if _, err := c.Input(append([]byte("AMQP\x00\x01\x00\x00"), in...)); err != nil {
		t.Fatal(err)
	}
	return p.server, c.Output(nil)
}

// Deliveries that a peer resumes are not known here: they are ignored, and use up no credit.
func TestResumedDeliveriesAreIgnored(t *testing.T) {
	e, _ := attached(t, "l", 512)
	var got [][]byte
	e.onMsg = func(d *engine.InDelivery, p []byte) { got = append(got, bytes.Clone(p)); d.SettleAs(wire.Accepted) }
	var in []byte
	for id := range uint32(20) {
		first := wire.Transfer{DeliveryID: id, HasDeliveryID: true, Tag: []byte{1}, HasTag: true, Resume: id < 19, More: id%2 == 0 && id < 19}
		in = append(in, frame(3, func(b []byte) []byte { return append(first.Append(b), byte(id)) })...)
		if first.More {
			rest := wire.Transfer{Resume: true, Aborted: id%4 == 0, More: id%4 == 0}
			in = append(in, frame(3, func(b []byte) []byte { return append(rest.Append(b), byte(id)) })...)
		}
	}
	if used, err := e.conn.Input(in); err != nil || used != len(in) {
		t.Fatalf("%d bytes of %d, %v", used, len(in), err)
	}
	if len(got) != 1 || got[0][0] != 19 || !e.conn.IsOpen() {
		t.Errorf("got %v, want the one that is new; %q", got, e.log)
	}
}

// An attach whose answer cannot be said in the peer's frames ends its session.
func TestANameTooLongForThePeersFrames(t *testing.T) {
	for _, c := range []struct {
		length   int
		maxFrame uint32
		refused  bool
	}{{300, 512, false}, {600, 512, true}, {600, 1024, false}, {60_000, 60_000, true}} {
		e, said := attached(t, strings.Repeat("n", c.length), c.maxFrame)
		if refused := bytes.Contains(said, []byte("amqp:frame-size-too-small")); refused != c.refused || !e.conn.IsOpen() {
			t.Errorf("a name of %d bytes, frames of %d: refused %v", c.length, c.maxFrame, refused)
		}
	}
}

// An open that asks for what cannot be kept up is answered by one, and by a close that tells what.
func TestOpensThatCannotBeKeptUp(t *testing.T) {
	for _, c := range []struct {
		name string
		open wire.Open
		want string // nothing: it stays open
	}{
		{"the smallest frames", wire.Open{ContainerID: "x", MaxFrameSize: 512}, ""},
		{"smaller frames", wire.Open{ContainerID: "x", MaxFrameSize: 511}, "amqp:invalid-field: open: max-frame-size 511 is below 512"},
		{"a heartbeat often", wire.Open{ContainerID: "x", IdleTimeout: 100}, ""},
		{"a heartbeat too often", wire.Open{ContainerID: "x", IdleTimeout: 99}, "amqp:resource-limit-exceeded: open: idle-time-out 99 ms is below 100 ms"},
	} {
		e := &end{t: t}
		e.conn = engine.NewConn(engine.Config{ContainerID: "bob"}, e)
		_, err := e.conn.Input(append([]byte("AMQP\x00\x01\x00\x00"), frame(0, c.open.Append)...))
		said := e.conn.Output(nil)
		if c.want == "" {
			if err != nil || !e.conn.IsOpen() {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		condition, text, _ := strings.Cut(c.want, ": ")
		if err == nil || !bytes.Contains(said, []byte(condition)) || !bytes.Contains(said, []byte(text)) || !bytes.Contains(said, []byte("bob")) {
			t.Errorf("%s: %v; said %q", c.name, err, said)
		}
	}
}

// What does not parse is named once, however deep it is.
func TestABadPerformativeIsNamedOnce(t *testing.T) {
	e, _ := attached(t, "l", 512)
	bad := func(b []byte) []byte { // an attach whose source has a durability of 9
		return append(b, 0, 0x53, 0x12, 0xc0, 14, 6, 0xa1, 1, 'r', 0x43, 0x41, 0x40, 0x40, 0, 0x53, 0x28, 0xc0, 0)
	}
	_, err := e.conn.Input(frame(3, bad))
	if said := e.conn.Output(nil); err == nil || !bytes.Contains(said, []byte("attach: ")) || bytes.Contains(said, []byte("attach: attach")) {
		t.Errorf("%v; said %q", err, said)
	}
}

// A drain that wants an echo is answered once: a flow without drain behind the one with it would take the word back.
func TestADrainWithAnEchoIsAnsweredOnce(t *testing.T) {
	e, _ := attached(t, "l", 512)
	flow := wire.Flow{IncomingWindow: 9, OutgoingWindow: 9, Handle: 1, HasHandle: true, HasDeliveryCount: true, LinkCredit: 5, HasLinkCredit: true}
	for _, c := range []struct {
		name        string
		credit      uint32
		drain, echo bool
		want        []string
	}{
		{"a drain", 5, true, false, []string{"count 5, credit 0, drain true"}},
		{"a drain with an echo", 5, true, true, []string{"count 10, credit 0, drain true"}},
		{"an echo", 5, false, true, []string{"count 10, credit 5, drain false"}},
		{"neither", 5, false, false, nil},
		{"a drain of nothing, with an echo", 0, true, true, []string{"count 10, credit 0, drain true"}},
	} {
		in := frame(3, (&wire.Attach{Name: "r", Handle: 1, Role: wire.RoleReceiver, Source: &wire.Source{}, Target: &wire.Target{}}).Append)
		if flow.DeliveryCount > 0 {
			in = nil
		}
		flow.LinkCredit, flow.Drain, flow.Echo = c.credit, c.drain, c.echo
		if _, err := e.conn.Input(append(in, frame(3, flow.Append)...)); err != nil {
			t.Fatal(err)
		}
		out := e.conn.Output(nil)
		e.conn.Wrote(len(out))
		if got := flowsOf(t, out); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if c.drain {
			flow.DeliveryCount += c.credit
		}
	}
}

// flowsOf tells what the flows among some frames say of their links.
func flowsOf(t *testing.T, b []byte) (flows []string) {
	t.Helper()
	for len(b) > 0 {
		h, err := wire.ParseFrameHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		var f wire.Flow
		if _, err := f.Parse(b[8:h.Size]); err == nil && f.HasHandle {
			flows = append(flows, fmt.Sprintf("count %d, credit %d, drain %v", f.DeliveryCount, f.LinkCredit, f.Drain))
		}
		b = b[h.Size:]
	}
	return flows
}

// A link has no handle above what the peer says that it takes: where none is left the session is over.
func TestHandlesStayBelowThePeersLimit(t *testing.T) {
	e, _ := attached(t, "l", 512) // the peer takes handles up to 10
	var in []byte
	for n := uint32(1); n <= 10; n++ {
		in = append(in, frame(3, (&wire.Attach{Name: fmt.Sprint("r", n), Handle: n, Role: wire.RoleReceiver, Source: &wire.Source{}, Target: &wire.Target{}}).Append)...)
	}
	if _, err := e.conn.Input(in); err != nil || len(e.log) != 12 {
		t.Fatalf("%v; %q", err, e.log)
	}
	more := &wire.Attach{Name: "more", Handle: 11, Role: wire.RoleReceiver, Source: &wire.Source{}, Target: &wire.Target{}}
	if _, err := e.conn.Input(frame(3, more.Append)); err != nil {
		t.Fatal(err)
	}
	if got := e.conn.Output(nil); !bytes.Contains(got, []byte("more links than handle-max 10 allows")) || bytes.Contains(got, []byte("more\x52")) || !e.conn.IsOpen() {
		t.Errorf("got %q, want the session ended", got)
	}
}

// A range of dispositions is bounded by what is unsettled, not by what it claims.
func TestDispositionOfEverything(t *testing.T) {
	p := newPair(t, engine.Config{}, engine.Config{})
	l := p.sender(t, 100)
	p.server.onMsg = func(d *engine.InDelivery, _ []byte) {}
	var ds [3]engine.OutDelivery
	for i := range ds {
		ds[i].Context = i
		l.Send(&ds[i], false, 0, nil, []byte("x"))
	}
	p.mustRun(t)
	d := wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: 1<<31 - 1, Settled: true, State: []byte{0, 0x53, 0x24, 0x45}}
	if _, err := p.client.conn.Input(frame(0, d.Append)); err != nil {
		t.Fatal(err)
	}
	if got := p.client.log[len(p.client.log)-1]; got != "settled 2 2" {
		t.Fatalf("got %q", p.client.log)
	}
	d.Last = 1<<32 - 1
	if _, err := p.client.conn.Input(frame(0, d.Append)); err != nil {
		t.Fatal(err)
	}
	if got := p.client.conn.Output(nil); !bytes.Contains(got, []byte("amqp:invalid-field")) || !p.client.conn.IsOpen() {
		t.Fatalf("got %q, want the session ended", got)
	}
}

func TestNoAllocationPerMessage(t *testing.T) {
	for _, settled := range []bool{true, false} {
		step := exchange(t, settled)
		step()
		if n := testing.AllocsPerRun(20, func() { step() }); n > 0 {
			t.Errorf("settled %v: %v allocations for 500 messages", settled, n)
		}
	}
}

func BenchmarkEngineSettled(b *testing.B) { benchmarkEngine(b, true) }

func BenchmarkEngineUnsettled(b *testing.B) { benchmarkEngine(b, false) }

func benchmarkEngine(b *testing.B, settled bool) {
	step := exchange(b, settled)
	b.ReportAllocs()
	b.ResetTimer()
	for sent := 0; sent < b.N; {
		sent += step()
	}
}

// exchange joins two ends; step sends up to 500 messages of 100 bytes, has them settled where they are not, and says how many it sent.
func exchange(t testing.TB, settled bool) (step func() int) {
	p := newPair(t, engine.Config{OutLimit: 1 << 20}, engine.Config{})
	p.client.quiet, p.server.quiet = true, true
	l := p.sender(t, 1000)
	var server *engine.Link
	p.server.onMsg = func(d *engine.InDelivery, _ []byte) {
		server = d.Link()
		if !d.Settled {
			d.SettleAs(wire.Accepted)
		}
	}
	ds := make([]engine.OutDelivery, 500)
	body := make([]byte, 100)
	var bufs [2][]byte
	swap := func(from, to *engine.Conn, i int) {
		out := from.Output(bufs[i])
		if out == nil {
			return
		}
		to.Input(out)
		from.Wrote(len(out))
		bufs[i] = out
	}
	return func() (sent int) {
		for sent < len(ds) && l.Send(&ds[sent], settled, 0, nil, body) == engine.Complete {
			sent++
		}
		swap(p.client.conn, p.server.conn, 0)
		server.Grant(1000)
		swap(p.server.conn, p.client.conn, 1)
		return sent
	}
}

func TestInputStopsWhereSomeIsEnough(t *testing.T) {
	p := newPair(t, engine.Config{}, engine.Config{})
	p.mustRun(t)
	beats := bytes.Repeat([]byte("\x00\x00\x00\x08\x02\x00\x00\x00"), 10)
	for _, c := range []struct{ have, some, used int }{{80, 20, 24}, {80, 24, 24}, {80, 1000, 80}, {80, 0, 0}, {77, 1000, 72}} {
		if used, err := p.server.conn.InputSome(beats[:c.have], c.some); used != c.used || err != nil {
			t.Errorf("%d of %d: used %d, %v, want %d", c.some, c.have, used, err, c.used)
		}
	}
}
