package forwarder_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// pens are the outlets of a scheme: each keeps what it gets until it is told to settle it.
type pens struct{ of map[string]*pen }

func (p *pens) Outlet(hop *routetable.Hop, _ *routetable.Route, _ string) forwarder.Outlet {
	if x := p.of[hop.Name]; x != nil {
		return x
	}
	return nil
}

// pen is one hop of another protocol.
type pen struct {
	mu      sync.Mutex
	away    bool
	full    error // what Deliver says
	kept    []*forwarder.Copy
	accepts bool // at once
	got     int
}

func (p *pen) Present() bool { p.mu.Lock(); defer p.mu.Unlock(); return !p.away }
func (p *pen) Busy() int     { p.mu.Lock(); defer p.mu.Unlock(); return len(p.kept) }
func (p *pen) Deliver(batch []*forwarder.Copy) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full != nil {
		return 0, p.full
	}
	p.got += len(batch)
	for _, c := range batch {
		if !p.accepts {
			c.Keep()
			p.kept = append(p.kept, c)
		}
	}
	if p.accepts {
		list := slices.Clone(batch)
		p.mu.Unlock()
		for _, c := range list {
			c.Settle(forwarder.Outcome{Kind: wire.Accepted})
		}
		p.mu.Lock()
	}
	return len(batch), nil
}

// take gives the nth copy that came, from 0.
func (p *pen) take(t *testing.T, n int) *forwarder.Copy {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		p.mu.Lock()
		if len(p.kept) > n {
			defer p.mu.Unlock()
			return p.kept[n]
		}
		p.mu.Unlock()
	}
	t.Fatalf("copy %d did not come", n)
	return nil
}

// penned is a router with the hops peer:a and peer:b.
func penned(t *testing.T, o forwarder.Options, rows ...string) (r *router, a, b *pen) {
	a, b = &pen{}, &pen{}
	r = start(t, o, rows...)
	r.node.Handle("peer", &pens{map[string]*pen{"a": a, "b": b}})
	return r, a, b
}

// outcomes collects what an inlet is told.
type outcomes struct {
	mu  sync.Mutex
	got []string
}

func (o *outcomes) told(x forwarder.Outcome) {
	text := fmt.Sprint(x.Kind)
	if x.State != nil && x.State.Error != nil {
		text += " " + string(x.State.Error.Condition)
	}
	o.mu.Lock()
	o.got = append(o.got, text)
	o.mu.Unlock()
}

func (o *outcomes) list() []string { o.mu.Lock(); defer o.mu.Unlock(); return slices.Clone(o.got) }

func encoded(t testing.TB, m *wire.Message) []byte {
	t.Helper()
	b, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A message of an AMQP client goes to a hop of another protocol, as it was; the hop's outcome is the sender's.
func TestOutletOfAnotherProtocol(t *testing.T) {
	r, a, _ := penned(t, forwarder.Options{}, "A --> peer:a")
	s := r.send("A")
	m := body("A", 10)
	m.Properties.ContentType = "application/json"
	m.ApplicationProperties = wire.Map{{Key: "k", Value: "v"}}
	x := s.put(m, false)
	c := a.take(t, 0)
	data, kind, ok := c.Message().Data()
	if !ok || kind != "application/json" || len(data) != 10 || c.Hop().Text != "peer:a" || c.Message().Source() != nil {
		t.Errorf("got %q, %q, %v, %s, %v", data, kind, ok, c.Hop().Text, c.Message().Source())
	}
	if v, ok := c.Message().Property("k"); !ok || v != "v" {
		t.Errorf("property k: got %q, %v", v, ok)
	}
	c.Settle(forwarder.Rejected(wire.CondNotAllowed, "not here"))
	if got := s.outcome(x); got != "rejected amqp:not-allowed" {
		t.Errorf("got %s", got)
	}
}

// The rows of a first group are hops of other protocols: an absent one is passed over, and one that is gone or full is too.
func TestOutletsStandIn(t *testing.T) {
	for name, set := range map[string]func(*pen){
		"away": func(p *pen) { p.away = true },
		"gone": func(p *pen) { p.full = forwarder.ErrGone },
		"busy": func(p *pen) { p.full = forwarder.ErrBusy },
	} {
		t.Run(name, func(t *testing.T) {
			r, a, b := penned(t, forwarder.Options{})
			first := routetable.WithPick(routetable.PickFirst)
			r.rows(row{"A", "peer:a", []routetable.Column{first}}, row{"A", "peer:b", []routetable.Column{first}})
			set(a)
			s := r.send("A")
			x := s.put(body("A", 10), false)
			b.take(t, 0).Settle(forwarder.Outcome{Kind: wire.Accepted})
			if got := s.outcome(x); got != "accepted" {
				t.Errorf("got %s", got)
			}
		})
	}
}

// What comes by an inlet goes wherever its address leads, and the outcome is told when all hops have theirs.
func TestInlet(t *testing.T) {
	r, a, _ := penned(t, forwarder.Options{}, "A --> peer:a")
	h := r.recv("A")
	h.credit(10)
	in := r.node.NewInlet(forwarder.InletOptions{Source: "there"})
	var told outcomes
	payload := encoded(t, body("A", 10))
	if err := in.Send(payload, told.told); err != nil {
		t.Fatal(err)
	}
	in.Flush()
	clear(payload) // the reader's buffer is used again
	c := a.take(t, 0)
	if data, _, ok := c.Message().Data(); !ok || len(data) != 10 || c.Message().Source() != any("there") {
		t.Errorf("got %q, %v, %v", data, ok, c.Message().Source())
	}
	c.Settle(forwarder.Outcome{Kind: wire.Accepted})
	got := h.message(0)
	if list := told.list(); len(list) != 0 {
		t.Errorf("told %v before the receiver had it", list)
	}
	h.accept(got)
	r.until("the outcome", func() bool { return len(told.list()) == 1 })
	if list := told.list(); list[0] != "accepted" {
		t.Errorf("told %v", list)
	}
}

// What an inlet sends that cannot go is answered at once.
func TestInletRefuses(t *testing.T) {
	r, a, _ := penned(t, forwarder.Options{}, "A --> peer:a", "topic:t --> peer:a")
	in := r.node.NewInlet(forwarder.InletOptions{})
	topics := r.node.NewInlet(forwarder.InletOptions{Account: &admin.Account{Send: admin.GrantsOfSchemes("topic")}})
	var told outcomes
	send := func(in *forwarder.Inlet, m *wire.Message) {
		t.Helper()
		if err := in.Send(encoded(t, m), told.told); err != nil {
			t.Fatal(err)
		}
		in.Flush()
	}
	send(in, body("nowhere", 10))
	send(in, body("topic:t", 10))
	late := body("A", 10)
	late.Properties.AbsoluteExpiryTime, late.Properties.HasAbsoluteExpiryTime = wire.Timestamp(time.Now().Add(-time.Second).UnixMilli()), true
	send(in, late)
	if got, want := told.list(), []string{"rejected amqp:not-found", "rejected amqp:unauthorized-access", "rejected fingerpost:expired"}; !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
	if err := in.Send([]byte("no message"), told.told); err == nil {
		t.Error("took what is no message")
	}
	if err := in.Send(encoded(t, body("A", 1<<20)), told.told); !errors.Is(err, forwarder.ErrTooLarge) {
		t.Errorf("a large one: got %v", err)
	}
	send(topics, body("topic:t", 10))
	a.take(t, 0).Settle(forwarder.Outcome{Kind: wire.Accepted})
	if got := len(told.list()); got != 4 {
		t.Errorf("told %d outcomes, want 4", got)
	}
}

// What an inlet says by the way goes to who wants it, and is not told among what is unrouted where nobody does.
func TestInletOfAsides(t *testing.T) {
	r, a, _ := penned(t, forwarder.Options{}, "A --> peer:a")
	in := r.node.NewInlet(forwarder.InletOptions{Asides: true})
	for _, to := range []string{"nowhere", "A"} {
		if err := in.Send(encoded(t, body(to, 10)), nil); err != nil {
			t.Fatal(err)
		}
		in.Flush()
	}
	a.take(t, 0).Settle(forwarder.Outcome{Kind: wire.Accepted})
	if c, all := r.node.Counters(), r.node.Unrouted(); len(all) != 0 || c["unrouted"]+c["notWired"]+c["droppedRefused"] != 0 {
		t.Errorf("got %v, %v", all, c)
	}
}

// Nothing holds back who sends by an inlet without wanting outcomes: a hop that takes nothing drops at its hard limit.
func TestInletIsDroppedAtTheHardLimit(t *testing.T) {
	r := start(t, forwarder.Options{HardQueue: 5})
	h := r.recv("A")
	in := r.node.NewInlet(forwarder.InletOptions{})
	payload := encoded(t, body("A", 10))
	for range 20 {
		if err := in.Send(payload, nil); err != nil {
			t.Fatal(err)
		}
		in.Flush()
	}
	h.credit(100)
	h.message(4)
	if got := r.node.Counters()["droppedBusy"]; got != 15 {
		t.Errorf("%d were dropped, want 15; counters %v", got, r.node.Counters())
	}
}

// Sending costs no memory once all has been sent once.
func TestInletAllocatesNothing(t *testing.T) {
	r := start(t, forwarder.Options{}, "A --> null")
	in := r.node.NewInlet(forwarder.InletOptions{})
	payload := encoded(t, body("A", 100))
	told := func(forwarder.Outcome) {}
	if n := testing.AllocsPerRun(1000, func() {
		in.Send(payload, nil)
		in.Send(payload, told)
		in.Flush()
	}); n > allocationsAllowed {
		t.Errorf("%v allocations", n)
	}
}

// rowPens are a pen for each pattern.
type rowPens struct {
	made map[string]*pen
}

func (p *rowPens) Outlet(hop *routetable.Hop, row *routetable.Route, name string) forwarder.Outlet {
	name = row.Pattern + " " + name + " " + hop.Name
	if p.made[name] == nil {
		p.made[name] = &pen{accepts: true}
	}
	return p.made[name]
}

// A hop of such a scheme gets a copy for each pattern of it that fits, and one for each pattern however many rows say it.
func TestOutletForEachPattern(t *testing.T) {
	r := start(t, forwarder.Options{})
	s := &rowPens{made: map[string]*pen{}}
	r.node.Handle("peer", s)
	var rows []row
	for _, pattern := range []string{"topic:a/b", "topic:a/*", "topic:**"} {
		for _, origin := range []string{"peer:a/1", "peer:a/2"} {
			rows = append(rows, row{pattern, "peer:a", []routetable.Column{routetable.WithOrigin(origin)}})
		}
	}
	r.rows(rows...)
	r.rows(row{"news", "topic:a/b", nil})
	in := r.node.NewInlet(forwarder.InletOptions{Account: &admin.Account{Send: admin.GrantsOfSchemes("topic")}})
	for _, to := range []string{"topic:a/b", "news"} {
		if err := in.Send(encoded(t, body(to, 10)), nil); err != nil {
			t.Fatal(err)
		}
	}
	in.Flush()
	for _, pattern := range []string{"topic:a/b", "topic:a/*", "topic:**"} {
		if p := s.made[pattern+" topic:a/b a"]; p == nil || p.got != 2 {
			t.Errorf("%s: got %+v", pattern, p)
		}
	}
}
