package forwarder_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// hand is a client with one link that does what a test says and nothing by itself: no credit, no outcome.
type hand struct {
	t    testing.TB
	conn *amqp.Conn
	link *engine.Link
	o    engine.AttachOptions
	lax  bool // takes what is no message

	// Under the connection's lock.
	changed  chan struct{}
	up       bool
	detached error
	parts    []byte
	came     []*arrival
	sent     []*dispatch
	settled  int // arrivals that the sender settled
	aborted  int
	auto     func(*arrival) // answers in place of the test
	early    *wire.State    // the answer to a message that is not whole
	hasty    int            // parts that had it
	beside   int            // messages that came by other links
}

// arrival is a message that came to a hand.
type arrival struct {
	d       *engine.InDelivery
	message wire.Message
	size    int
	settled bool
}

// dispatch is a message that a hand sent.
type dispatch struct {
	out      engine.OutDelivery
	answers  int // outcomes that came
	kind     wire.StateKind
	state    wire.State
	progress []wire.State // states that are no outcomes
	dropped  bool
}

func (h *hand) Opened() {
	s, err := h.conn.Engine.Begin()
	if err != nil {
		panic(err)
	}
	h.link, err = s.Attach(h.o)
	if err != nil {
		panic(err)
	}
}
func (h *hand) Attached(*engine.Link) { h.up = true; h.note() }
func (h *hand) Detached(_ *engine.Link, err error) {
	h.detached = fmt.Errorf("detached: %v", err)
	h.note()
}
func (h *hand) Transfer(d *engine.InDelivery, p []byte, last bool) {
	if d.Link() != h.link {
		h.beside++
		h.note()
		return
	}
	if h.early != nil && !last {
		d.Settle(h.early)
		h.hasty++
		h.note()
		return
	}
	if d.First {
		h.parts = nil
	}
	h.parts = append(h.parts, p...)
	if !last {
		h.note()
		return
	}
	a := &arrival{d: d, settled: d.Settled, size: len(h.parts)}
	if err := a.message.Parse(h.parts); err != nil && !h.lax {
		h.t.Error(err)
	}
	h.parts = nil
	d.Context = a
	if d.Settled {
		a.d = nil
	}
	h.came = append(h.came, a)
	if h.auto != nil {
		h.auto(a)
	}
	h.note()
}
func (h *hand) Aborted(*engine.InDelivery) { h.parts = nil; h.aborted++; h.note() }
func (h *hand) RemoteSettled(d *engine.InDelivery, _ []byte) {
	d.Context.(*arrival).d = nil
	h.settled++
	h.note()
}
func (h *hand) Sent(*engine.OutDelivery) { h.note() }
func (h *hand) Settled(d *engine.OutDelivery, k wire.StateKind, raw []byte) {
	x := d.Context.(*dispatch)
	x.answers++
	x.kind = k
	if raw != nil {
		x.state.Parse(bytes.Clone(raw))
	}
	h.note()
}
func (h *hand) Received(d *engine.OutDelivery, raw []byte) {
	x := d.Context.(*dispatch)
	var s wire.State
	s.Parse(bytes.Clone(raw))
	x.progress = append(x.progress, s)
	h.note()
}
func (h *hand) Flow(*engine.Link)            { h.note() }
func (h *hand) InDropped(*engine.InDelivery) { h.note() }
func (h *hand) OutDropped(d *engine.OutDelivery, _ bool) {
	d.Context.(*dispatch).dropped = true
	h.note()
}
func (h *hand) Closed(error)        { h.note() }
func (h *hand) AfterInput(bool)     {}
func (h *hand) BeforeFlush()        {}
func (h *hand) TakeWork() amqp.Work { return nil }

func (h *hand) note() { close(h.changed); h.changed = make(chan struct{}) }

// connect attaches a hand's link and waits until it is there.
func (r *router) connect(o engine.AttachOptions, cfg engine.Config) *hand {
	r.t.Helper()
	if o.Name == "" {
		o.Name = "hand"
	}
	cfg.ContainerID = "hand"
	h := &hand{t: r.t, o: o, changed: make(chan struct{})}
	_, err := amqp.Dial(within(r.t), amqp.DialOptions{Address: r.hop, Engine: cfg}, func(c *amqp.Conn) amqp.Owner {
		h.conn = c
		return h
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(h.close)
	h.until("the link", func() bool { return h.up })
	return h
}

func (h *hand) close() { h.conn.Close(nil); <-h.conn.Done() }

// cut breaks the connection without a word.
func (h *hand) cut() { h.conn.Abort(fmt.Errorf("cut")); <-h.conn.Done() }

// recv attaches a receiver without credit; adjust may change how.
func (r *router) recv(address string, adjust ...func(*engine.AttachOptions)) *hand {
	r.t.Helper()
	o := engine.AttachOptions{Role: engine.RoleReceiver, SenderMode: engine.SenderMixed,
		Source: &wire.Source{Address: address, HasAddress: true}, Target: &wire.Target{}}
	for _, f := range adjust {
		f(&o)
	}
	return r.connect(o, engine.Config{})
}

// send attaches a sender; adjust may change how.
func (r *router) send(address string, adjust ...func(*engine.AttachOptions)) *hand {
	r.t.Helper()
	o := engine.AttachOptions{Role: engine.RoleSender, SenderMode: engine.SenderMixed,
		Source: &wire.Source{}, Target: &wire.Target{Address: address, HasAddress: address != ""}}
	for _, f := range adjust {
		f(&o)
	}
	return r.connect(o, engine.Config{})
}

func asQueue(o *engine.AttachOptions)    { o.Source.Capabilities = []wire.Symbol{"queue"} }
func modeSecond(o *engine.AttachOptions) { o.ReceiverMode = engine.ReceiverSecond }

// until waits for what comes to be true under the connection's lock.
func (h *hand) until(what string, ok func() bool) {
	h.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		h.conn.Lock()
		done, changed := ok(), h.changed
		h.conn.Release()
		if done {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			h.t.Fatalf("not yet: %s", what)
		}
	}
}

func (h *hand) credit(n uint32) { h.conn.Do(func() { h.link.Grant(n) }) }

// message gives the nth message that came, from 0.
func (h *hand) message(n int) *arrival {
	h.t.Helper()
	h.until(fmt.Sprintf("message %d", n), func() bool { return len(h.came) > n })
	var a *arrival
	h.conn.Do(func() { a = h.came[n] })
	return a
}

func (h *hand) arrived() (n int) { h.conn.Do(func() { n = len(h.came) }); return n }

func (h *hand) answer(a *arrival, s *wire.State) { h.conn.Do(func() { a.d.Settle(s) }) }
func (h *hand) accept(a *arrival)                { h.answer(a, &wire.State{Kind: wire.Accepted}) }

// try sends a message if there is credit for it now.
func (h *hand) try(m *wire.Message, settled bool) (x *dispatch) {
	payload, err := m.Append(nil)
	if err != nil {
		h.t.Fatal(err)
	}
	h.conn.Do(func() {
		if h.link.Gone() {
			return
		}
		d := &dispatch{}
		d.out.Context = d
		if h.link.Send(&d.out, settled, 0, nil, payload) != engine.Refused {
			h.sent = append(h.sent, d)
			x = d
		}
	})
	return x
}

// put sends a message, when there is credit.
func (h *hand) put(m *wire.Message, settled bool) *dispatch {
	h.t.Helper()
	var x *dispatch
	deadline := time.After(20 * time.Second)
	for {
		h.conn.Lock()
		changed := h.changed
		h.conn.Release()
		if x = h.try(m, settled); x != nil {
			return x
		}
		select {
		case <-changed:
		case <-deadline:
			h.t.Fatal("no credit")
		}
	}
}

// credits is what the sender may send now.
func (h *hand) credits() (n int) { h.conn.Do(func() { n = int(h.link.Credit()) }); return n }

// outcome waits for the outcome of a message and names it.
func (h *hand) outcome(x *dispatch) string {
	h.t.Helper()
	h.until("an outcome", func() bool { return x.answers > 0 || x.dropped })
	var text string
	h.conn.Do(func() { text = x.String() })
	return text
}

func (x *dispatch) String() string {
	switch {
	case x.dropped:
		return "dropped"
	case x.kind == wire.Rejected && x.state.Error != nil:
		return "rejected " + string(x.state.Error.Condition)
	case x.kind == wire.Modified:
		text := "modified"
		if x.state.DeliveryFailed {
			text += " failed"
		}
		return text
	}
	return map[wire.StateKind]string{wire.Accepted: "accepted", wire.Rejected: "rejected", wire.Released: "released", wire.StateNone: "none"}[x.kind]
}

// copies is what an outcome tells of each copy.
func (x *dispatch) copies() []string {
	var list any
	if x.state.Error != nil {
		list, _ = x.state.Error.Info.Get("copies")
	} else {
		list, _ = x.state.Annotations.Get("x-opt-fingerpost-copies")
	}
	var out []string
	entries, _ := list.(wire.List)
	for _, e := range entries {
		m := e.(wire.Map)
		outcome, _ := m.Get("outcome")
		out = append(out, outcome.(string))
	}
	return out
}

func body(to string, size int) *wire.Message {
	m := &wire.Message{Data: [][]byte{bytes.Repeat([]byte("x"), size)}}
	if to != "" {
		m.Properties = &wire.Properties{To: to, HasTo: true}
	}
	return m
}

var (
	isAccepted = &wire.State{Kind: wire.Accepted}
	isReleased = &wire.State{Kind: wire.Released}
	isRejected = &wire.State{Kind: wire.Rejected, Error: &wire.Error{Condition: "x:no", Description: "not me"}}
	isModified = &wire.State{Kind: wire.Modified, DeliveryFailed: true}
)
