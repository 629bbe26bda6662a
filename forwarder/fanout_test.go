package forwarder_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/routetable"
)

// row is one row of a table with its columns.
type row struct {
	pattern, address string
	columns          []routetable.Column
}

func (r *router) rows(rows ...row) {
	r.t.Helper()
	for _, x := range rows {
		if _, err := r.table.Add(x.pattern, x.address, x.columns...); err != nil {
			r.t.Fatal(err)
		}
	}
}

// taker receives on a name until the test ends, answers each message with act (nil: accept), and counts.
func (r *router) taker(name string, act func(*amqp.Receiver, *amqp.Message)) *atomic.Int64 {
	rcv := r.receiver(name, nil)
	n := &atomic.Int64{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			m, err := rcv.Receive(ctx, nil)
			if err != nil {
				return
			}
			n.Add(1)
			if act != nil {
				act(rcv, m)
			} else {
				rcv.AcceptMessage(ctx, m)
			}
		}
	}()
	r.t.Cleanup(func() { cancel(); wg.Wait() })
	return n
}

func release(rcv *amqp.Receiver, m *amqp.Message) { rcv.ReleaseMessage(context.Background(), m) }

func pick(p routetable.Pick) []routetable.Column { return []routetable.Column{routetable.WithPick(p)} }

var optional = []routetable.Column{routetable.WithOptional(true)}

// One copy for each distinct hop, however the rows that lead there are grouped, and none less than the rows ask for.
func TestOneCopyForEachHop(t *testing.T) {
	for _, c := range []struct {
		name    string
		rows    []row
		release string // this receiver releases
		want    map[string]int64
		outcome string
	}{
		{"any is satisfied by all", []row{{"A", "route:H1", pick(routetable.PickAny)}, {"A*", "route:H1", nil}}, "", map[string]int64{"H1": 10}, "Accepted"},
		{"all beneath any does not stand in for all", []row{
			{"A", "route:B", append(pick(routetable.PickAny), routetable.WithBalance(routetable.RoundRobin))},
			{"A", "route:C", append(pick(routetable.PickAny), routetable.WithBalance(routetable.RoundRobin))},
			{"B", "route:H1", nil}, {"C", "route:H2", nil}, {"A*", "route:H1", nil},
		}, "", map[string]int64{"H1": 10, "H2": 5}, "Accepted"},
		{"a second choice that has a copy gets no other", []row{
			{"A", "link:H1", pick(routetable.PickFirst)}, {"A", "link:H2", pick(routetable.PickFirst)}, {"A*", "link:H2", nil},
		}, "H1", map[string]int64{"H1": 10, "H2": 10}, "Accepted"},
		{"groups try their rows apart", []row{
			{"A", "link:H1", pick(routetable.PickFirst)}, {"A", "link:H2", pick(routetable.PickFirst)},
			{"A*", "link:H1b", pick(routetable.PickFirst)}, {"A*", "link:H3", pick(routetable.PickFirst)},
		}, "H1", map[string]int64{"H2": 10, "H3": 10}, "Accepted"},
		{"null and a tap", []row{{"A", "null", nil}, {"A", "route:H1", optional}}, "", map[string]int64{"H1": 10}, "Accepted"},
		{"a tap alone", []row{{"A", "route:H1", optional}}, "", map[string]int64{"H1": 10}, "Rejected"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, forwarder.Options{})
			counts := map[string]*atomic.Int64{}
			links := map[string]string{}
			for _, name := range []string{"H1", "H1b", "H2", "H3"} {
				var act func(*amqp.Receiver, *amqp.Message)
				if c.release != "" && name[:2] == c.release {
					act = release
				}
				counts[name] = r.taker(name, act)
				for x := range r.table.Snapshot().Routes() {
					if x.Pattern == name {
						links["link:"+name] = x.Address
					}
				}
			}
			for i := range c.rows {
				if at := links[c.rows[i].address]; at != "" {
					c.rows[i].address = at
				}
			}
			r.rows(c.rows...)
			s := r.sender("")
			for range 10 {
				if got := r.outcome(s, message("A", "x")); got != c.outcome {
					t.Fatalf("outcome %s, want %s", got, c.outcome)
				}
			}
			for name, want := range c.want {
				r.until(fmt.Sprintf("%s has %d copies", name, want), func() bool { return counts[name].Load() >= want }) // the sender does not wait for taps
				if got := counts[name].Load(); got != want {
					t.Errorf("%s got %d copies, want %d", name, got, want)
				}
			}
		})
	}
}

// A message follows as many names as explain does.
func TestNamesAsDeepAsTheTableSays(t *testing.T) {
	r := start(t, forwarder.Options{})
	for i := range routetable.MaxDepth + 1 {
		r.rows(row{fmt.Sprintf("n%d", i), fmt.Sprintf("route:n%d", i+1), nil})
	}
	r.rows(row{fmt.Sprintf("n%d", routetable.MaxDepth+1), "null", nil})
	s := r.sender("")
	for name, want := range map[string]string{"n1": "", "n0": "fingerpost:loop"} {
		c := r.table.Snapshot().Resolve(nil, r.table.Snapshot().LookupInto(nil, name, nil), nil, nil)
		if ends := c[len(c)-1].End == routetable.EndHop; ends != (want == "") {
			t.Errorf("%s: by the table it ends at a hop: %t", name, ends)
		}
		if got := condition(s.Send(within(t), message(name, "x"), nil)); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// A table of names that fans out at each step is bounded, and the sender is told.
func TestNamesWithoutEnd(t *testing.T) {
	r := start(t, forwarder.Options{})
	for depth := range 6 {
		for i := range 6 {
			for j := range 6 {
				r.rows(row{fmt.Sprintf("n%d-%d", depth, i), fmt.Sprintf("route:n%d-%d", depth+1, j), nil})
			}
		}
	}
	if got := condition(r.sender("").Send(within(t), message("n0-0", "x"), nil)); got != "fingerpost:loop" {
		t.Errorf("got %q", got)
	}
}

// When the rows of a target vanish under load, what was sent with credit given before waits, in order, and nothing is lost.
func TestRowsVanishUnderLoad(t *testing.T) {
	r := start(t, forwarder.Options{})
	var got []uint64
	var mu sync.Mutex
	r.taker("H", func(rcv *amqp.Receiver, m *amqp.Message) {
		mu.Lock()
		got = append(got, m.Value.(uint64))
		mu.Unlock()
		rcv.AcceptMessage(context.Background(), m)
	})
	r.rows(row{"A", "route:H", nil})
	s := r.sender("A")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			select {
			case <-stop:
				return
			default:
			}
			r.table.Delete("A", "route:H")
			time.Sleep(2 * time.Millisecond)
			r.table.Add("A", "route:H")
			time.Sleep(2 * time.Millisecond)
		}
	}()
	const n = 2000
	receipts := make([]amqp.SendReceipt, 0, n)
	for i := range uint64(n) {
		receipt, err := s.SendWithReceipt(within(t), &amqp.Message{Value: i}, nil)
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		receipts = append(receipts, receipt)
	}
	for i, receipt := range receipts {
		state, err := receipt.Wait(within(t))
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if _, ok := state.(*amqp.StateAccepted); !ok {
			t.Fatalf("message %d: %T", i, state)
		}
	}
	close(stop)
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	for i, v := range got {
		if v != uint64(i) {
			t.Fatalf("message %d came at place %d", v, i)
		}
	}
	if len(got) != n {
		t.Errorf("%d messages arrived, want %d", len(got), n)
	}
}
