package forwarder_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// shares attaches receivers that accept everything, makes rows of group A to them, and tells who gets what.
type shares struct {
	r    *router
	s    *hand
	got  chan string
	rows map[string]string // address by receiver
}

func (r *router) share(balance routetable.Balance, names []string, columns func(i int) []routetable.Column) *shares {
	x := &shares{r: r, got: make(chan string, 100), rows: map[string]string{}}
	for i, name := range names {
		h := r.recv(name)
		h.conn.Do(func() {
			h.auto = func(a *arrival) {
				a.d.Settle(isAccepted)
				x.got <- name
			}
			h.link.Grant(10_000)
		})
		x.rows[name] = r.link(name)
		r.rows(row{"A", x.rows[name], append(columns(i), routetable.WithPick(routetable.PickAny), routetable.WithBalance(balance))})
	}
	x.s = r.send("A")
	return x
}

// who sends a message and tells who got it.
func (x *shares) who(m *wire.Message) string {
	x.r.t.Helper()
	if got := x.s.outcome(x.s.put(m, false)); got != "accepted" {
		x.r.t.Fatal(got)
	}
	return <-x.got
}

func none(int) []routetable.Column { return nil }

func TestWeights(t *testing.T) {
	weights := []int{5, 1, 1}
	r := start(t, forwarder.Options{})
	x := r.share(routetable.Weighted, []string{"a", "b", "c"}, func(i int) []routetable.Column {
		return []routetable.Column{routetable.WithWeight(weights[i])}
	})
	var order strings.Builder
	for range 70 {
		order.WriteString(x.who(body("", 1)))
	}
	for i := 0; i+7 <= order.Len(); i++ { // every seven in a row
		seven := order.String()[i : i+7]
		if strings.Count(seven, "a") != 5 || strings.Count(seven, "b") != 1 {
			t.Fatalf("messages %d to %d went to %s", i, i+6, seven)
		}
	}
	if s := order.String(); strings.Contains(s, "bc") || strings.Contains(s, "cb") || strings.Contains(s, "aaaaa") {
		t.Errorf("not spread: %s", s)
	}
}

// Where a row is away, the others share what is its by their weights.
func TestWeightsWithoutOne(t *testing.T) {
	r := start(t, forwarder.Options{})
	r.rows(row{"A", "amqp://127.0.0.1:1", []routetable.Column{routetable.WithWeight(8), routetable.WithPick(routetable.PickAny), routetable.WithBalance(routetable.Weighted)}})
	weights := []int{3, 1}
	x := r.share(routetable.Weighted, []string{"a", "b"}, func(i int) []routetable.Column {
		return []routetable.Column{routetable.WithWeight(weights[i])}
	})
	count := map[string]int{}
	for range 400 {
		count[x.who(body("", 1))]++
	}
	if count["b"] < 60 || count["b"] > 140 {
		t.Errorf("got %v, want one of four for b", count)
	}
}

func TestRoundRobin(t *testing.T) {
	r := start(t, forwarder.Options{})
	x := r.share(routetable.RoundRobin, []string{"a", "b", "c"}, none)
	first := x.who(body("", 1)) + x.who(body("", 1)) + x.who(body("", 1))
	if len(first) != 3 || !strings.Contains("abcab", first) {
		t.Errorf("got %s", first)
	}
	for range 5 {
		if got := x.who(body("", 1)) + x.who(body("", 1)) + x.who(body("", 1)); got != first {
			t.Errorf("got %s after %s", got, first)
		}
	}
}

// The least busy is the one with the fewest that wait or have no outcome.
func TestLeastBusy(t *testing.T) {
	r := start(t, forwarder.Options{})
	a, b := r.recv("Q", asQueue), r.recv("Q", asQueue)
	a.credit(100)
	s := r.send("Q")
	for range 10 {
		s.put(body("", 1), false)
	}
	r.until("they are shared", func() bool { return r.counter("received") == 10 })
	b.credit(100)
	b.message(4)
	a.message(4)
	for i := range 5 {
		a.accept(a.message(i))
	}
	r.until("the first has none left", func() bool { return r.counter("accepted") == 5 })
	a.conn.Do(func() { a.auto = func(x *arrival) { x.d.Settle(isAccepted) } })
	for i := range 20 { // one at a time: never to the one with five
		if got := s.outcome(s.put(body("", 1), false)); got != "accepted" {
			t.Fatalf("message %d: %s", i, got)
		}
	}
	if b.arrived() != 5 {
		t.Errorf("the busy one has %d", b.arrived())
	}
}

// Messages of one key go to one receiver, and a receiver that goes or comes moves its own keys alone.
func TestHash(t *testing.T) {
	for _, c := range []struct {
		name    string
		column  []routetable.Column
		message func(key string) *wire.Message
	}{
		{"group-id", nil, func(key string) *wire.Message {
			m := body("", 1)
			m.Properties = &wire.Properties{GroupID: key, HasGroupID: true}
			return m
		}},
		{"an application property", []routetable.Column{routetable.WithHashKey("customer")}, func(key string) *wire.Message {
			m := body("", 1)
			m.ApplicationProperties = wire.Map{{Key: "customer", Value: key}}
			return m
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, forwarder.Options{})
			x := r.share(routetable.Hash, []string{"a", "b", "c", "d"}, func(int) []routetable.Column { return c.column })
			const keys = 80
			all := func() (to map[string]string) {
				to = map[string]string{}
				for i := range keys {
					key := fmt.Sprint("k", i)
					to[key] = x.who(c.message(key))
				}
				return to
			}
			before := all()
			share := map[string]int{}
			for _, who := range before {
				share[who]++
			}
			for _, who := range []string{"a", "b", "c", "d"} {
				if share[who] < keys/10 {
					t.Errorf("shares %v", share)
				}
			}
			r.table.Delete("A", x.rows["b"])
			for key, who := range all() {
				if was := before[key]; who != was && was != "b" {
					t.Errorf("%s went from %s to %s when b went", key, was, who)
				}
			}
			r.rows(row{"A", x.rows["b"], append(c.column, routetable.WithPick(routetable.PickAny), routetable.WithBalance(routetable.Hash))})
			for key, who := range all() {
				if who != before[key] {
					t.Errorf("%s is with %s and was with %s", key, who, before[key])
				}
			}
		})
	}
}

// A link whose target has taps alone waits for a row; its message is a tap's and then another's, or is rejected when it waited too long.
func TestTapsAloneAreNoRoute(t *testing.T) {
	r := start(t, forwarder.Options{DeliveryTimeout: 400 * 1e6})
	tap := r.recv("TAP")
	tap.credit(10)
	r.rows(row{"A", "route:TAP", optional})
	s := r.send("A")
	x := s.put(body("", 1), false)
	if got := s.outcome(x); got != "rejected amqp:not-found" {
		t.Errorf("got %s", got)
	}
	tap.message(0)
	x = s.put(body("", 1), false)
	h := r.recv("A")
	h.credit(10)
	h.accept(h.message(0))
	tap.message(1)
	if got := s.outcome(x); got != "accepted" {
		t.Errorf("got %s", got)
	}
}
