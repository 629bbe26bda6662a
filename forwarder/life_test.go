package forwarder_test

import (
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

func withTTL(to string, ms uint32) *wire.Message {
	m := body(to, 10)
	m.Header = &wire.Header{TTL: ms, HasTTL: true, Priority: 9, HasPriority: true, Durable: true, HasDurable: true}
	return m
}

func expiringAt(to string, at time.Time) *wire.Message {
	m := body(to, 10)
	if m.Properties == nil {
		m.Properties = &wire.Properties{}
	}
	m.Properties.AbsoluteExpiryTime, m.Properties.HasAbsoluteExpiryTime = wire.Timestamp(at.UnixMilli()), true
	return m
}

// A message whose time is over is rejected by name, wherever it waits.
func TestExpiredMessages(t *testing.T) {
	for _, c := range []struct {
		name   string
		target string
		credit uint32
		m      *wire.Message
	}{
		{"ttl, in line", "", 0, withTTL("A", 100)},
		{"ttl, in line of two hops", "", 0, withTTL("B", 100)},
		{"ttl, at a hop that is away", "", 0, withTTL("AWAY", 100)},
		{"ttl, waiting for a row", "LATER", 0, withTTL("", 100)},
		{"absolute expiry, gone by when it comes", "", 100, expiringAt("A", time.Now().Add(-time.Second))},
		{"absolute expiry, in line", "", 0, expiringAt("A", time.Now().Add(2*time.Second))},
		{"absolute expiry before 1970", "", 100, expiringAt("A", time.Unix(-5, 0))},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, forwarder.Options{}, "AWAY --> amqp://127.0.0.1:1", "B --> route:A", "B --> amqp://127.0.0.1:1")
			h := r.recv("A")
			h.auto = func(a *arrival) { a.d.Settle(isReleased) }
			h.credit(c.credit)
			s := r.send(c.target)
			if got := s.outcome(s.put(c.m, false)); got != "rejected fingerpost:expired" {
				t.Errorf("got %s", got)
			}
			if r.counter("expired") == 0 {
				t.Error("it is not counted")
			}
			if got, want := len(r.node.Unrouted()), int(r.counter("unrouted")); got != want {
				t.Errorf("%d addresses are told as unrouted, and %d messages were counted", got, want)
			}
		})
	}
}

// The ttl that a receiver sees is what is left of it; the rest of the header is as it came.
func TestTTLGoesDown(t *testing.T) {
	r := start(t, forwarder.Options{})
	last := start(t, forwarder.Options{})
	r.rows(row{"A", "amqp://" + last.hop, nil})
	h := last.recv("A")
	s := r.send("")
	s.put(withTTL("A", 60_000), false)
	s.put(body("A", 10), false)
	last.until("both wait at the second node", func() bool { return last.counter("received") == 2 })
	began := time.Now()
	last.until("some time is over", func() bool { return time.Since(began) > 20*time.Millisecond })
	h.credit(10)
	got := h.message(0).message.Header
	if got.TTL > 59_980 || got.TTL < 40_000 || got.Priority != 9 || !got.Durable || got.DeliveryCount != 0 {
		t.Errorf("got %+v", got)
	}
	if h.message(1).message.Header != nil {
		t.Error("a message without a header got one")
	}
	far := expiringAt("A", time.Now().Add(time.Hour))
	s.put(far, false)
	h.accept(h.message(2))
	if p := h.message(2).message.Properties; p.AbsoluteExpiryTime != far.Properties.AbsoluteExpiryTime {
		t.Error("the absolute expiry time is another")
	}
}

// A peer that goes away after it was sent a message is sent it again, with a higher delivery-count; as often as the row says.
func TestSentAgainToAPeerThatCameBack(t *testing.T) {
	last := start(t, forwarder.Options{DeliveryTimeout: time.Minute})
	r := start(t, forwarder.Options{DeliveryTimeout: time.Minute})
	r.rows(row{"A", "amqp://" + last.hop, []routetable.Column{routetable.WithRetry(1)}})
	h := last.recv("A")
	h.credit(10)
	s := r.send("")
	m := withTTL("A", 60_000)
	m.Header.FirstAcquirer = true
	x := s.put(m, false)
	if got := h.message(0).message.Header; !got.FirstAcquirer || got.DeliveryCount != 0 {
		t.Errorf("first: %+v", got)
	}
	r.node.CutPeers()
	if got := h.message(1).message.Header; got.FirstAcquirer || got.DeliveryCount != 1 {
		t.Errorf("again: %+v", got)
	}
	r.node.CutPeers()
	if got := s.outcome(x); got != "modified failed" {
		t.Errorf("got %s", got)
	}
}

// A message that its hop breaks of is sent again until its time is over, and no longer; others of the hop get through afterwards.
func TestAMessageThatBreaksItsHop(t *testing.T) {
	last := start(t, forwarder.Options{})
	r := start(t, forwarder.Options{DeliveryTimeout: time.Second}, "A --> amqp://"+last.hop)
	h := last.recv("A")
	h.auto = func(a *arrival) {
		if a.size > 100 {
			go r.node.CutPeers()
			return
		}
		a.d.SettleAs(wire.Accepted)
	}
	h.credit(1000)
	s := r.send("")
	began := time.Now()
	poison := s.put(body("A", 200), false)
	if got := s.outcome(poison); got != "modified failed" || time.Since(began) < time.Second {
		t.Errorf("got %s after %v", got, time.Since(began))
	}
	got := "released" // while the hop, which was cut often, waits longer than a delivery may before it is tried again
	for try := 0; got == "released" && try < 20; try++ {
		got = s.outcome(s.put(body("A", 10), false))
	}
	if got != "accepted" {
		t.Errorf("another: got %s", got)
	}
}

// A sender hears how far its message has come where one receiver counts.
func TestProgressIsPassedOn(t *testing.T) {
	r := start(t, forwarder.Options{})
	h := r.recv("A")
	r.recv("TAP")
	r.rows(row{"A", "route:TAP", optional})
	h.credit(10)
	s := r.send("")
	x := s.put(body("A", 10), false)
	a := h.message(0)
	h.conn.Do(func() {
		a.d.Progress((&wire.State{Kind: wire.Received, SectionNumber: 2, SectionOffset: 7}).Append(nil))
	})
	s.until("progress", func() bool { return len(x.progress) == 1 })
	s.conn.Do(func() {
		if p := x.progress[0]; p.SectionNumber != 2 || p.SectionOffset != 7 || x.answers != 0 {
			t.Errorf("got %+v, %d outcomes", p, x.answers)
		}
	})
	h.accept(a)
	if got := s.outcome(x); got != "accepted" {
		t.Errorf("got %s", got)
	}

	other := r.recv("A") // now there are two: nobody speaks for both
	other.credit(10)
	y := s.put(body("A", 10), false)
	a, b := h.message(1), other.message(0)
	h.conn.Do(func() {
		a.d.Progress((&wire.State{Kind: wire.Received, SectionNumber: 2, SectionOffset: 7}).Append(nil))
	})
	h.accept(a)
	other.accept(b)
	if got := s.outcome(y); got != "accepted" || len(y.progress) != 0 {
		t.Errorf("got %s, progress %v", got, y.progress)
	}
}

// A sender that settles first wants no answer: its receivers are told, and the link has its place again.
func TestASenderThatSettlesFirst(t *testing.T) {
	r := start(t, forwarder.Options{LinkCredit: 4})
	a, b := r.recv("A"), r.recv("A")
	a.credit(100)
	b.credit(100)
	s := r.send("")
	for i := range 20 {
		x := s.put(body("A", 10), false)
		a.message(i)
		b.message(i)
		s.conn.Do(func() { x.out.Settle() })
	}
	for _, h := range []*hand{a, b} {
		h.until("all are settled", func() bool { return h.settled == 20 })
	}
}
