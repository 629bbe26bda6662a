package forwarder_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/routetable"
)

// find gives the row of the table.
func (r *router) find(pattern, address string) *routetable.Route {
	r.t.Helper()
	for x := range r.table.Snapshot().Routes() {
		if x.Pattern == pattern && x.Address == address {
			return x
		}
	}
	r.t.Fatalf("there is no row %s --> %s", pattern, address)
	return nil
}

// link gives the address of the receiver on a name.
func (r *router) link(name string) string {
	r.t.Helper()
	for x := range r.table.Snapshot().Routes() {
		if x.Pattern == name && x.Address == x.Origin {
			return x.Address
		}
	}
	r.t.Fatalf("nobody receives on %s", name)
	return ""
}

// counts waits until the counters of a row are as they should be: the sender may have its answer before they are added.
func (r *router) counts(pattern, address, want string) {
	r.t.Helper()
	row := r.find(pattern, address)
	got := ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		c := r.node.RowCounters(row)
		got = fmt.Sprintf("matched %d copied %d delivered %d released %d dropped %d", c.Matched, c.Copied, c.Delivered, c.Released, c.Dropped)
		if got == want {
			return
		}
	}
	r.t.Errorf("%s --> %s: got %s, want %s", pattern, address, got, want)
}

func TestRowCounters(t *testing.T) {
	type count struct{ pattern, address, want string }
	for _, c := range []struct {
		name    string
		rows    []row
		settled bool // the sender asks for no outcome
		want    []count
	}{
		{"accepted", []row{{"A", "link:TAKES", nil}}, false, []count{{"A", "link:TAKES", "matched 10 copied 10 delivered 10 released 0 dropped 0"}}},
		{"released", []row{{"A", "link:RELEASES", nil}}, false, []count{{"A", "link:RELEASES", "matched 10 copied 10 delivered 0 released 10 dropped 0"}}},
		{"rejected", []row{{"A", "link:REJECTS", nil}}, false, []count{{"A", "link:REJECTS", "matched 10 copied 10 delivered 0 released 0 dropped 10"}}},
		{"pre-settled", []row{{"A", "link:TAKES", nil}}, true, []count{{"A", "link:TAKES", "matched 10 copied 10 delivered 10 released 0 dropped 0"}}},
		{"pre-settled, and nobody is there", []row{{"A", "amqp://127.0.0.1:1", nil}}, true,
			[]count{{"A", "amqp://127.0.0.1:1", "matched 10 copied 10 delivered 0 released 0 dropped 10"}}},
		{"not sent in time", []row{{"A", "amqp://127.0.0.1:1", nil}}, false, []count{{"A", "amqp://127.0.0.1:1", "matched 10 copied 10 delivered 0 released 0 dropped 10"}}},
		{"fan-out and a tap", []row{{"A", "link:TAKES", nil}, {"A*", "link:REJECTS", nil}, {"A", "link:RELEASES", optional}}, false, []count{
			{"A", "link:TAKES", "matched 10 copied 10 delivered 10 released 0 dropped 0"},
			{"A*", "link:REJECTS", "matched 10 copied 10 delivered 0 released 0 dropped 10"},
			{"A", "link:RELEASES", "matched 10 copied 10 delivered 0 released 10 dropped 0"},
		}},
		{"two rows, one hop", []row{{"A", "link:TAKES", nil}, {"A*", "link:TAKES", nil}}, false, []count{
			{"A", "link:TAKES", "matched 10 copied 10 delivered 10 released 0 dropped 0"},
			{"A*", "link:TAKES", "matched 10 copied 0 delivered 0 released 0 dropped 0"},
		}},
		{"fallback", []row{{"*", "link:TAKES", []routetable.Column{routetable.WithFallback(true)}}, {"B", "null", nil}}, false, []count{
			{"*", "link:TAKES", "matched 10 copied 10 delivered 10 released 0 dropped 0"},
			{"B", "null", "matched 0 copied 0 delivered 0 released 0 dropped 0"},
		}},
		{"null", []row{{"A", "null", nil}}, false, []count{{"A", "null", "matched 10 copied 0 delivered 10 released 0 dropped 0"}}},
		{"null beside a hop", []row{{"A", "null", nil}, {"A", "link:TAKES", nil}}, false, []count{
			{"A", "null", "matched 10 copied 0 delivered 10 released 0 dropped 0"},
			{"A", "link:TAKES", "matched 10 copied 10 delivered 10 released 0 dropped 0"},
		}},
		{"null as first", []row{{"A", "null", pick(routetable.PickFirst)}, {"A", "link:TAKES", pick(routetable.PickFirst)}}, false, []count{
			{"A", "null", "matched 10 copied 0 delivered 10 released 0 dropped 0"},
			{"A", "link:TAKES", "matched 10 copied 0 delivered 0 released 0 dropped 0"},
		}},
		{"second choice", []row{{"A", "link:RELEASES", pick(routetable.PickFirst)}, {"A", "link:TAKES", pick(routetable.PickFirst)}}, false, []count{
			{"A", "link:RELEASES", "matched 10 copied 10 delivered 0 released 10 dropped 0"},
			{"A", "link:TAKES", "matched 10 copied 10 delivered 10 released 0 dropped 0"},
		}},
		{"names on the way, one of them met twice", []row{{"A", "route:B", nil}, {"A", "route:C", nil}, {"B", "route:D", nil}, {"C", "route:D", nil}, {"D", "link:TAKES", nil}}, false, []count{
			{"A", "route:B", "matched 10 copied 0 delivered 0 released 0 dropped 0"},
			{"C", "route:D", "matched 10 copied 0 delivered 0 released 0 dropped 0"},
			{"D", "link:TAKES", "matched 10 copied 10 delivered 10 released 0 dropped 0"},
		}},
		{"names that are picked", []row{
			{"A", "route:B", append(pick(routetable.PickAny), routetable.WithBalance(routetable.RoundRobin))},
			{"A", "route:C", append(pick(routetable.PickAny), routetable.WithBalance(routetable.RoundRobin))},
			{"B", "link:TAKES", nil}, {"C", "link:TAKES", nil},
		}, false, []count{
			{"A", "route:B", "matched 10 copied 0 delivered 0 released 0 dropped 0"},
			{"B", "link:TAKES", "matched 5 copied 5 delivered 5 released 0 dropped 0"},
			{"C", "link:TAKES", "matched 5 copied 5 delivered 5 released 0 dropped 0"},
		}},
		{"a predicate", []row{{"A", "link:TAKES", []routetable.Column{routetable.WithWhen("Property(`k`, `v`)")}}, {"A", "null", nil}}, false, []count{
			{"A", "link:TAKES", "matched 0 copied 0 delivered 0 released 0 dropped 0"},
			{"A", "null", "matched 10 copied 0 delivered 10 released 0 dropped 0"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, forwarder.Options{DeliveryTimeout: time.Second})
			r.taker("TAKES", nil)
			r.taker("RELEASES", release)
			r.taker("REJECTS", func(rcv *amqp.Receiver, m *amqp.Message) { rcv.RejectMessage(t.Context(), m, nil) })
			at := func(address string) string {
				if len(address) > 5 && address[:5] == "link:" {
					return r.link(address[5:])
				}
				return address
			}
			for i := range c.rows {
				c.rows[i].address = at(c.rows[i].address)
			}
			r.rows(c.rows...)
			s := r.sender("")
			if c.settled {
				var err error
				if s, err = r.session().NewSender(within(t), "", &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeSettled.Ptr()}); err != nil {
					t.Fatal(err)
				}
			}
			before := time.Now()
			var receipts []amqp.SendReceipt
			for range 10 {
				m := message("A", "x")
				if c.settled {
					if err := s.Send(within(t), m, nil); err != nil {
						t.Fatal(err)
					}
					continue
				}
				receipt, err := s.SendWithReceipt(within(t), m, nil)
				if err != nil {
					t.Fatal(err)
				}
				receipts = append(receipts, receipt)
			}
			for _, receipt := range receipts {
				receipt.Wait(within(t))
			}
			for _, w := range c.want {
				address := at(w.address)
				r.counts(w.pattern, address, w.want)
				used := r.node.RowCounters(r.find(w.pattern, address)).LastUsed
				if matched := w.want[:len("matched 0")] != "matched 0"; matched != used.After(before) {
					t.Errorf("%s --> %s: %s, and last used %v", w.pattern, address, w.want, used)
				}
			}
		})
	}
}

// The counters of a row go with it: one that comes again starts at zero. What a plan that is still in use counts for it is nobody's.
func TestCountersGoWithTheRow(t *testing.T) {
	r := start(t, forwarder.Options{})
	s := r.sender("")
	for range 3 {
		r.rows(row{"A", "null", nil})
		r.counts("A", "null", "matched 0 copied 0 delivered 0 released 0 dropped 0")
		for range 5 {
			if err := s.Send(within(t), message("A", "x"), nil); err != nil {
				t.Fatal(err)
			}
		}
		r.counts("A", "null", "matched 5 copied 0 delivered 5 released 0 dropped 0")
		if _, err := r.table.Delete("A", "null"); err != nil {
			t.Fatal(err)
		}
		if n := r.node.CountedRows(); n != 0 {
			t.Errorf("%d rows have counters, and there is none", n)
		}
	}
	// A change of other columns leaves them.
	r.rows(row{"A", "null", nil})
	s.Send(within(t), message("A", "x"), nil)
	if _, err := r.table.Set("A", "null", routetable.WithNote("n")); err != nil {
		t.Fatal(err)
	}
	s.Send(within(t), message("A", "x"), nil)
	r.counts("A", "null", "matched 2 copied 0 delivered 2 released 0 dropped 0")
}
