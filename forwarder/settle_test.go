package forwarder_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// One outcome is made of those of the copies that count, and tells of each where they differ.
func TestTheOutcomeOfSeveralCopies(t *testing.T) {
	a, re, ro, m := isAccepted, isReleased, isRejected, isModified
	for _, c := range []struct {
		name    string
		answers []*wire.State
		taps    []*wire.State // of optional rows; nil says nothing
		want    string
		copies  []string
	}{
		{"one, accepted", []*wire.State{a}, nil, "accepted", nil},
		{"one, released", []*wire.State{re}, nil, "released", nil},
		{"one, rejected: its own words", []*wire.State{ro}, nil, "rejected x:no", nil},
		{"one, modified: its own words", []*wire.State{m}, nil, "modified failed", nil},
		{"all accepted", []*wire.State{a, a, a}, nil, "accepted", nil},
		{"all released", []*wire.State{re, re}, nil, "released", nil},
		{"any rejected", []*wire.State{a, ro, re}, nil, "rejected x:no", []string{"accepted", "rejected", "released"}},
		{"accepted and released", []*wire.State{a, re}, nil, "modified failed", []string{"accepted", "released"}},
		{"accepted and modified", []*wire.State{a, m}, nil, "modified failed", []string{"accepted", "modified"}},
		{"all modified", []*wire.State{m, m}, nil, "modified failed", []string{"modified", "modified"}},
		{"a tap that rejects", []*wire.State{a}, []*wire.State{ro}, "accepted", nil},
		{"a tap that says nothing", []*wire.State{a, a}, []*wire.State{nil}, "accepted", nil},
		{"taps that say nothing, and one rejects", []*wire.State{ro, a}, []*wire.State{nil, nil}, "rejected x:no", []string{"accepted", "rejected"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, forwarder.Options{})
			all := append(slices.Clone(c.answers), c.taps...)
			var hands []*hand
			for i := range all {
				name := fmt.Sprintf("H%d", i)
				h := r.recv(name)
				h.credit(10)
				hands = append(hands, h)
				columns := []routetable.Column{routetable.WithRetry(0)}
				if i >= len(c.answers) {
					columns = append(columns, routetable.WithOptional(true))
				}
				r.rows(row{"A", "route:" + name, columns})
			}
			s := r.send("")
			x := s.put(body("A", 10), false)
			for i, h := range hands {
				if msg := h.message(0); all[i] != nil {
					h.answer(msg, all[i])
				}
			}
			if got := s.outcome(x); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			got := x.copies()
			slices.Sort(got)
			if !reflect.DeepEqual(got, c.copies) {
				t.Errorf("copies: got %v, want %v", got, c.copies)
			}
		})
	}
}

// A tap whose hop is away, or takes nothing, holds nobody up.
func TestATapThatIsAwayDelaysNobody(t *testing.T) {
	r := start(t, forwarder.Options{HardQueue: 20})
	h := r.recv("H")
	h.auto = func(a *arrival) { a.d.Settle(isAccepted) }
	h.credit(10000)
	silent := r.recv("SILENT")
	r.rows(row{"A", "route:H", nil}, row{"A", "amqp://127.0.0.1:1", optional}, row{"A", "route:SILENT", optional})
	s := r.send("A")
	for range 3000 {
		s.put(body("", 10), false)
	}
	s.until("all have outcomes", func() bool {
		return !slices.ContainsFunc(s.sent, func(x *dispatch) bool { return x.kind != wire.Accepted })
	})
	silent.credit(1)
	silent.message(0)
	if got := r.node.Counters()["droppedBusy"]; got < 2*2900 {
		t.Errorf("%d copies were dropped by name, want nearly all", got)
	}
}

// What a receiver released is tried again, behind later ones; at most as often as the row says, and until the timeout.
func TestReleasedCopiesAreTriedAgain(t *testing.T) {
	t.Run("behind later ones", func(t *testing.T) {
		r := start(t, forwarder.Options{})
		h := r.recv("A")
		h.credit(100)
		s := r.send("A")
		first, second := s.put(body("", 1), false), s.put(body("", 2), false)
		size := h.message(0).size
		h.answer(h.message(0), isReleased)
		h.accept(h.message(1))
		again := h.message(2)
		if again.size != size {
			t.Errorf("the third is not the first again")
		}
		h.accept(again)
		if a, b := s.outcome(first), s.outcome(second); a != "accepted" || b != "accepted" {
			t.Errorf("got %s and %s", a, b)
		}
	})
	t.Run("as often as the row says", func(t *testing.T) {
		r := start(t, forwarder.Options{})
		h := r.recv("H")
		h.auto = func(a *arrival) { a.d.Settle(isReleased) }
		h.credit(100)
		r.rows(row{"A", "route:H", []routetable.Column{routetable.WithRetry(2)}})
		s := r.send("")
		if got := s.outcome(s.put(body("A", 1), false)); got != "released" || h.arrived() != 3 {
			t.Errorf("got %s after %d times, want released after 3", got, h.arrived())
		}
	})
	t.Run("until the row's timeout", func(t *testing.T) {
		r := start(t, forwarder.Options{})
		h := r.recv("H")
		h.auto = func(a *arrival) { a.d.Settle(isReleased) }
		h.credit(100)
		r.rows(row{"A", "route:H", []routetable.Column{routetable.WithTimeout(2 * time.Second)}})
		s := r.send("")
		if got := s.outcome(s.put(body("A", 1), false)); got != "released" || h.arrived() < 2 {
			t.Errorf("got %s after %d times", got, h.arrived())
		}
	})
	t.Run("the first to have it, once", func(t *testing.T) {
		r := start(t, forwarder.Options{})
		h := r.recv("A")
		h.credit(10)
		s := r.send("A")
		m := body("", 1)
		m.Header = &wire.Header{FirstAcquirer: true, Durable: true, HasDurable: true, Priority: 7, HasPriority: true}
		s.put(m, false)
		if got := h.message(0).message.Header; !got.FirstAcquirer || !got.Durable || got.Priority != 7 {
			t.Errorf("first: %+v", got)
		}
		h.answer(h.message(0), isReleased)
		if got := h.message(1).message.Header; got.FirstAcquirer || got.DeliveryCount != 0 || !got.Durable || got.Priority != 7 {
			t.Errorf("again: %+v", got)
		}
	})
}

// In an any or first group, what a receiver released goes to the next row, and back to the sender when no row is left.
func TestReleasedCopiesGoToTheNextRow(t *testing.T) {
	for _, p := range []routetable.Pick{routetable.PickAny, routetable.PickFirst} {
		t.Run(p.String(), func(t *testing.T) {
			r := start(t, forwarder.Options{})
			var seen []*hand
			for i := range 3 {
				name := fmt.Sprintf("H%d", i)
				h := r.recv(name)
				h.auto = func(a *arrival) { a.d.Settle(isReleased) }
				h.credit(10)
				r.rows(row{"A", r.link(name), pick(p)})
				seen = append(seen, h)
			}
			s := r.send("")
			if got := s.outcome(s.put(body("A", 1), false)); got != "released" {
				t.Errorf("got %s", got)
			}
			for i, h := range seen {
				if h.arrived() != 1 {
					t.Errorf("row %d had it %d times", i, h.arrived())
				}
			}
		})
	}
}

// The next row may be a name: the copy goes to what it leads to, to all of it, and the sender hears of all.
func TestACopyGoesOnToANameAsTheNextRow(t *testing.T) {
	for _, p := range []routetable.Pick{routetable.PickAny, routetable.PickFirst} {
		for _, c := range []struct {
			name, first string
			settled     bool
		}{
			{"a receiver releases it", "", false}, {"the hop cannot be reached", "amqp://127.0.0.1:1", false}, {"pre-settled", "amqp://127.0.0.1:1", true},
		} {
			t.Run(p.String()+", "+c.name, func(t *testing.T) {
				r := start(t, forwarder.Options{})
				first := c.first
				if first == "" {
					h := r.recv("H")
					h.auto = func(a *arrival) { a.d.Settle(isReleased) }
					h.credit(10)
					first = r.link("H")
				}
				b, c1, c2 := r.recv("B"), r.recv("C"), r.recv("C")
				for _, h := range []*hand{b, c1, c2} {
					h.credit(10)
				}
				r.rows(row{"A", first, pick(p)}, row{"A", "route:BOTH", pick(p)}, row{"BOTH", "route:B", nil}, row{"BOTH", "route:C", nil})
				s := r.send("")
				x := s.put(body("A", 1), c.settled)
				if c.settled {
					for _, h := range []*hand{b, c1, c2} {
						h.message(0)
					}
				} else {
					b.accept(b.message(0))
					c1.accept(c1.message(0))
					c2.answer(c2.message(0), isReleased)
					c2.cut() // or it would be tried again there
					if got := s.outcome(x); got != "modified failed" {
						t.Errorf("two have it, and one released it: got %s", got)
					}
				}
				for i, h := range []*hand{b, c1, c2} {
					if h.arrived() != 1 {
						t.Errorf("receiver %d had it %d times", i, h.arrived())
					}
				}
			})
		}
	}
}

// A copy that a name's hop does not take goes on to the next row of the group that the name is a row of.
func TestACopyGoesOnFromAName(t *testing.T) {
	for _, p := range []routetable.Pick{routetable.PickAny, routetable.PickFirst} {
		for _, name := range []string{"a receiver releases it", "the hop cannot be reached", "deeper", "all release it", "a hop comes after it"} {
			t.Run(p.String()+", "+name, func(t *testing.T) {
				r := start(t, forwarder.Options{})
				h, b := r.recv("REL"), r.recv("B")
				want := "accepted"
				h.auto = func(a *arrival) { a.d.Settle(isReleased) }
				b.auto = func(a *arrival) { a.d.Settle(isAccepted) }
				rows := []row{{"A", "route:REL", pick(p)}, {"A", "route:B", pick(p)}}
				switch name {
				case "the hop cannot be reached":
					rows[0].address = "route:DEAD"
					rows = append(rows, row{"DEAD", "amqp://127.0.0.1:1", nil})
				case "deeper":
					rows[0].address = "route:DEEP"
					rows = append(rows, row{"DEEP", "route:DEEPER", nil}, row{"DEEPER", "route:REL", nil})
				case "all release it":
					b.auto, want = h.auto, "released"
				case "a hop comes after it":
					rows[1].address = r.link("B")
				}
				h.credit(10)
				b.credit(10)
				r.rows(rows...)
				s := r.send("")
				began := time.Now()
				for range 4 { // round robin begins with either
					if got := s.outcome(s.put(body("A", 1), false)); got != want {
						t.Fatalf("got %s", got)
					}
				}
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("it took %v: the delivery timeout", took)
				}
			})
		}
	}
}

// A receiver that goes before it had a message gives it to the next of its group; after, nobody can tell, and the sender hears that.
func TestReceiverLost(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		r := start(t, forwarder.Options{})
		a := r.recv("Q", asQueue)
		s := r.send("")
		x := s.put(body("Q", 1), false)
		r.until("it waits", func() bool { return r.node.Counters()["received"] == 1 })
		b := r.recv("Q", asQueue)
		b.credit(1)
		a.cut()
		// The plan was made when b was not there: the message is released to a sender without a target.
		if got := s.outcome(x); got != "released" {
			t.Errorf("got %s", got)
		}
		y := s.put(body("Q", 1), false)
		b.accept(b.message(0))
		if got := s.outcome(y); got != "accepted" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("before, and another is there", func(t *testing.T) {
		r := start(t, forwarder.Options{})
		a, b := r.recv("Q", asQueue), r.recv("Q", asQueue)
		s := r.send("")
		var xs []*dispatch
		for range 10 {
			xs = append(xs, s.put(body("Q", 1), false))
		}
		r.until("they wait", func() bool { return r.node.Counters()["received"] == 10 })
		a.cut()
		b.auto = func(a *arrival) { a.d.Settle(isAccepted) }
		b.credit(100)
		for i, x := range xs {
			if got := s.outcome(x); got != "accepted" {
				t.Errorf("message %d: %s", i, got)
			}
		}
	})
	t.Run("after", func(t *testing.T) {
		r := start(t, forwarder.Options{})
		a := r.recv("Q")
		a.credit(1)
		s := r.send("")
		x := s.put(body("Q", 1), false)
		a.message(0)
		a.cut()
		if got := s.outcome(x); got != "modified failed" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("before, on a link with a target", func(t *testing.T) {
		r := start(t, forwarder.Options{})
		a := r.recv("Q")
		s := r.send("Q")
		for i := range 10 {
			s.put(body("", i), false)
		}
		r.until("they wait", func() bool { return r.node.Counters()["received"] == 10 })
		a.cut()
		b := r.recv("Q")
		b.credit(100)
		for i := range 10 {
			m := b.message(i)
			if got := len(m.message.Data[0]); got != i {
				t.Fatalf("message %d came at place %d", got, i)
			}
			b.accept(m)
		}
		for i, x := range s.sent {
			if got := s.outcome(x); got != "accepted" {
				t.Errorf("message %d: %s", i, got)
			}
		}
	})
}

// A sender that goes leaves what it sent on its way.
func TestSenderLost(t *testing.T) {
	r := start(t, forwarder.Options{})
	h := r.recv("Q")
	s := r.send("")
	for range 10 {
		s.put(body("Q", 1), false)
	}
	r.until("they wait", func() bool { return r.node.Counters()["received"] == 10 })
	s.cut()
	h.credit(100)
	for i := range 10 {
		h.accept(h.message(i))
	}
}

// In a fan-out a receiver has a message for so long and no longer; alone it has all the time.
func TestAReceiverThatNeverAnswers(t *testing.T) {
	t.Parallel()
	r := start(t, forwarder.Options{FanOutTimeout: 2 * time.Second}) // a has to accept within it
	a, b := r.recv("A"), r.recv("A")
	a.credit(1)
	b.credit(1)
	s := r.send("")
	x := s.put(body("A", 1), false)
	a.accept(a.message(0))
	b.message(0)
	if got := s.outcome(x); got != "modified failed" {
		t.Errorf("got %s", got)
	}
	if got := x.copies(); !slices.Contains(got, "accepted") || !slices.Contains(got, "modified") {
		t.Errorf("copies: %v", got)
	}
	b.until("it is settled", func() bool { return b.settled == 1 })

	alone := r.recv("ALONE")
	alone.credit(1)
	y := s.put(body("ALONE", 1), false)
	z := s.put(body("A", 1), false) // its copies have no credit, and then go beyond their time
	a.credit(1)
	b.credit(1)
	if got := s.outcome(z); got != "modified failed" {
		t.Errorf("got %s", got)
	}
	alone.accept(alone.message(0))
	if got := s.outcome(y); got != "accepted" {
		t.Errorf("alone: got %s", got)
	}
}

// Mode second, at either end: the outcome comes first, and then it is settled.
func TestModeSecond(t *testing.T) {
	r := start(t, forwarder.Options{LinkCredit: 8})
	h := r.recv("A", modeSecond)
	h.credit(1000)
	h.auto = func(a *arrival) { a.d.Settle(isAccepted) }
	s := r.send("A", modeSecond)
	for range 100 { // more than there is credit without being settled
		s.put(body("", 1), false)
	}
	for i, x := range s.sent {
		if got := s.outcome(x); got != "accepted" {
			t.Fatalf("message %d: %s", i, got)
		}
	}
	h.until("all are settled", func() bool { return h.settled == 100 })
	for _, x := range []struct {
		h    *hand
		mode uint8
	}{{h, engine.ReceiverSecond}, {s, engine.ReceiverSecond}} {
		if got := x.h.link.ReceiverMode(); got != x.mode {
			t.Errorf("receiver mode %d, want %d", got, x.mode)
		}
	}
}
