package forwarder_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// flood sends pre-settled or unsettled messages as fast as credit allows, until the test ends or n are sent; it counts them.
func (r *router) flood(to, target string, settled bool, n int64) *atomic.Int64 {
	r.t.Helper()
	return r.floodBy(r.send(target), body(to, 100), settled, n)
}

// floodOf sends n messages of a size.
func (r *router) floodOf(to string, size int, settled bool, n int) *atomic.Int64 {
	r.t.Helper()
	return r.floodBy(r.send(""), body(to, size), settled, int64(n))
}

func (r *router) floodBy(s *hand, m *wire.Message, settled bool, n int64) *atomic.Int64 {
	payload, _ := m.Append(nil)
	sent := &atomic.Int64{}
	free := []*dispatch{}
	pump := func() {
		for sent.Load() < n && !s.link.Gone() {
			if len(free) == 0 {
				x := &dispatch{}
				x.out.Context = x
				free = append(free, x)
			}
			x := free[len(free)-1]
			if s.link.Send(&x.out, settled, 0, nil, payload) == engine.Refused {
				return
			}
			sent.Add(1)
			if !settled {
				free = free[:len(free)-1]
			}
		}
	}
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			s.conn.Lock()
			pump()
			changed := s.changed
			s.conn.Release()
			select {
			case <-changed:
			case <-done:
				return
			}
		}
	}()
	r.t.Cleanup(func() { close(done); <-stopped })
	return sent
}

// quick takes everything at once.
func (r *router) quick(address string, adjust ...func(*engine.AttachOptions)) *atomic.Int64 {
	r.t.Helper()
	n := &atomic.Int64{}
	h := r.recv(address, adjust...)
	used := 0
	h.conn.Do(func() {
		h.auto = func(a *arrival) {
			h.came = h.came[:0]
			if a.d != nil {
				a.d.Settle(isAccepted)
			}
			if used++; used == 100 {
				used = 0
				h.link.Grant(200)
			}
			n.Add(1)
		}
	})
	h.credit(200)
	return n
}

// waiting is the copies that receivers have in their lines.
func (r *router) waiting() (n int) {
	for _, l := range r.node.Links() {
		if l.Class == "receiver" {
			n += l.InFlight
		}
	}
	return n
}

func (r *router) counter(name string) uint64 { return r.node.Counters()[name] }

// What is pre-settled is held back by credit, and not lost, where the receivers take it as fast as they can.
func TestPreSettledIsNotLost(t *testing.T) {
	for _, c := range []struct {
		name               string
		to, target         string
		senders, receivers int
	}{
		{"one to one, by target", "", "A", 1, 1},
		{"one to one, by to", "A", "", 1, 1},
		{"four to one, by target", "", "A", 4, 1},
		{"eight to one, by to", "A", "", 8, 1},
		{"one to four", "", "A", 1, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			const each = 1_500
			r := start(t, forwarder.Options{SoftQueue: 100, HardQueue: 300, LinkCredit: 200})
			var got []*atomic.Int64
			for range c.receivers {
				got = append(got, r.quick("A"))
			}
			for range c.senders {
				r.flood(c.to, c.target, true, each)
			}
			for i, n := range got {
				r.until(fmt.Sprintf("receiver %d has all", i), func() bool { return n.Load()+int64(r.counter("droppedBusy")) >= int64(c.senders*each) })
			}
			if d := r.counter("droppedBusy"); d != 0 {
				t.Errorf("%d of %d copies were dropped", d, c.senders*each*c.receivers)
			}
		})
	}
}

// One of sixteen receivers takes nothing: it holds up neither the others' pre-settled messages, nor what it gets as a tap, nor other senders.
func TestASlowReceiverAmongMany(t *testing.T) {
	const n = 1_200
	for _, c := range []struct {
		name    string
		settled bool
		tap     bool
	}{{"pre-settled", true, false}, {"unsettled, the slow one a tap", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, forwarder.Options{SoftQueue: 50, HardQueue: 150, LinkCredit: 100})
			var columns []routetable.Column
			if c.tap {
				columns = optional
			}
			slow := r.recv("SLOW")
			r.rows(row{"A", r.link("SLOW"), columns})
			var quick []*atomic.Int64
			for range 15 {
				quick = append(quick, r.quick("A"))
			}
			r.flood("", "A", c.settled, n)
			for i, q := range quick {
				r.until(fmt.Sprintf("receiver %d has all", i), func() bool { return q.Load() == n })
			}
			if d := r.counter("droppedBusy"); d < n-300 || d > n-150 {
				t.Errorf("%d copies were dropped, want what is over 150 of %d", d, n)
			}
			slow.credit(10)
			slow.message(9)
		})
	}
	t.Run("unsettled, and other senders", func(t *testing.T) {
		r := start(t, forwarder.Options{SoftQueue: 50, HardQueue: 150, LinkCredit: 100})
		r.recv("SLOW")
		r.rows(row{"A", r.link("SLOW"), nil})
		a, b := r.quick("A"), r.quick("B")
		sent := r.flood("", "A", false, n)
		other := r.flood("", "B", false, n)
		r.until("the other has all", func() bool { return b.Load() == n })
		if s := sent.Load(); s > 100 || a.Load() != s {
			t.Errorf("sent %d to a hop that takes nothing; the other hop got %d", s, a.Load())
		}
		_ = other
	})
}

// A hop that was slow and is not any more gets everything again.
func TestASlowReceiverRecovers(t *testing.T) {
	r := start(t, forwarder.Options{SoftQueue: 100, HardQueue: 500, LinkCredit: 200})
	slow := r.recv("SLOW")
	r.rows(row{"A", r.link("SLOW"), nil})
	quick := r.quick("A")
	r.flood("", "A", true, 4_000)
	r.until("the quick one has all", func() bool { return quick.Load() == 4_000 })
	dropped := r.counter("droppedBusy")
	if dropped == 0 {
		t.Error("nothing was dropped")
	}
	got := &atomic.Int64{}
	slow.conn.Do(func() {
		slow.auto = func(*arrival) { got.Add(1); slow.link.Grant(200) }
		slow.link.Grant(200)
	})
	r.until("the slow one has the rest", func() bool { return got.Load() == 4_000-int64(dropped) })
	r.flood("", "A", true, 1_000)
	r.until("both have all", func() bool { return quick.Load() == 5_000 && got.Load() == 5_000-int64(dropped) })
	if d := r.counter("droppedBusy"); d != dropped {
		t.Errorf("%d more were dropped", d-dropped)
	}
}

// A link with a target has the credit that its hops have room for.
func TestCreditByRoom(t *testing.T) {
	const soft = 40
	link := func(r *router, name string) string { r.recv(name); return r.link(name) }
	for _, c := range []struct {
		name string
		rows func(r *router) []row
		fill map[string]int // messages that wait for a name already
		want int
	}{
		{"all: the least", func(r *router) []row { return []row{{"A", link(r, "X"), nil}, {"A*", link(r, "Y"), nil}} }, map[string]int{"X": 10, "Y": 25}, 15},
		{"an optional row does not count", func(r *router) []row { return []row{{"A", link(r, "X"), nil}, {"A*", link(r, "Y"), optional}} }, map[string]int{"X": 10, "Y": 25}, 30},
		{"any: the sum", func(r *router) []row {
			return []row{{"A", link(r, "X"), pick(routetable.PickAny)}, {"A", link(r, "Y"), pick(routetable.PickAny)}}
		}, map[string]int{"X": 10, "Y": 25}, 45},
		{"any: of the lowest order", func(r *router) []row {
			return []row{{"A", link(r, "X"), pick(routetable.PickAny)}, {"A", link(r, "Y"), append(pick(routetable.PickAny), routetable.WithOrder(5))}}
		}, map[string]int{"X": 12, "Y": 5}, 28},
		{"first: the one present", func(r *router) []row {
			return []row{{"A", "amqp://127.0.0.1:1", pick(routetable.PickFirst)}, {"A", link(r, "Y"), pick(routetable.PickFirst)}}
		}, map[string]int{"Y": 13}, 40},
		{"a name: its rows", func(r *router) []row { return []row{{"A", "route:B", nil}, {"B", link(r, "X"), nil}} }, map[string]int{"X": 14}, 26},
		{"a full hop: none", func(r *router) []row { return []row{{"A", link(r, "X"), nil}} }, map[string]int{"X": 40}, 0},
		{"next to none: none", func(r *router) []row { return []row{{"A", link(r, "X"), nil}} }, map[string]int{"X": 35}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, forwarder.Options{SoftQueue: soft, LinkCredit: 90})
			r.rows(c.rows(r)...)
			total := 0
			for name, n := range c.fill {
				s := r.send("")
				for range n {
					s.put(body(name, 10), false)
				}
				total += n
			}
			r.until("they wait", func() bool { return r.waiting() == total })
			s := r.send("A")
			if c.want == 0 {
				r.send("", func(o *engine.AttachOptions) { o.Name = "later" })
			}
			s.until("credit", func() bool { return int(s.link.Credit()) == c.want })
		})
	}
}

// A link that has no credit for want of room gets it, not a message at a time, when there is room, when the hop goes, and when its rows change.
func TestCreditComesBack(t *testing.T) {
	for _, c := range []struct {
		name string
		free func(r *router, h *hand)
	}{
		{"the receiver takes some", func(_ *router, h *hand) { h.credit(20) }},
		{"the receiver goes", func(_ *router, h *hand) { h.cut() }},
		{"the row goes elsewhere", func(r *router, _ *hand) {
			r.rows(row{"B", "null", nil})
			r.table.Delete("A", "route:X")
			r.table.Add("A", "null")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, forwarder.Options{SoftQueue: 20, DeliveryTimeout: time.Minute})
			h := r.recv("X")
			fill := r.send("")
			for range 20 {
				fill.put(body("X", 10), false)
			}
			r.until("they wait", func() bool { return r.counter("received") == 20 })
			r.rows(row{"A", "route:X", nil})
			s := r.send("A")
			if n := s.credits(); n != 0 {
				t.Fatalf("credit %d while the hop is full", n)
			}
			c.free(r, h)
			if c.name == "the receiver goes" {
				r.until("the row is gone", func() bool { return len(r.table.Lookup("X")) == 0 })
				r.quick("X")
			}
			s.until("credit", func() bool { return s.link.Credit() >= 5 })
		})
	}
}

// On a link without a target, a hop that takes nothing may have a quarter of the credit; what is more comes back at once, and other
// hops' messages go on.
func TestNoHopHoldsUpOthersOnALink(t *testing.T) {
	for _, c := range []struct{ name, address string }{{"it takes nothing", ""}, {"it is away", "amqp://127.0.0.1:1"}} {
		for _, settled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, settled %v", c.name, settled), func(t *testing.T) {
				r := start(t, forwarder.Options{LinkCredit: 40})
				if c.address == "" {
					r.recv("STUCK")
				} else {
					r.rows(row{"STUCK", c.address, nil})
				}
				quick := r.quick("QUICK")
				s := r.send("")
				var stuck []*dispatch
				const n = 400
				for range n {
					s.put(body("QUICK", 10), settled)
					stuck = append(stuck, s.put(body("STUCK", 10), settled))
				}
				r.until("the others have come", func() bool { return quick.Load() == n })
				waiting := 0
				s.conn.Do(func() {
					for _, x := range stuck {
						if x.answers == 0 {
							waiting++
						}
					}
				})
				if settled {
					waiting = n - int(r.counter("droppedBusy"))
				}
				if waiting > 40 {
					t.Errorf("%d messages wait for a hop that takes nothing", waiting)
				}
				r.until("a quarter waits", func() bool {
					if settled {
						return r.counter("droppedBusy") >= n-10
					}
					return r.counter("released") >= n-10
				})
				if k := slices.IndexFunc(stuck[:5], func(x *dispatch) bool { return x.kind == wire.Released }); k >= 0 && !settled {
					t.Errorf("message %d, one of the oldest, came back", k)
				}
			})
		}
	}
	t.Run("alone, credit stops", func(t *testing.T) {
		r := start(t, forwarder.Options{LinkCredit: 40, DeliveryTimeout: time.Minute})
		r.recv("STUCK")
		sent := r.flood("STUCK", "", false, 1000)
		time.Sleep(1500 * time.Millisecond) // a hop has to take nothing for so long
		if n := sent.Load(); n > 40 || r.counter("released") != 0 {
			t.Errorf("%d were sent, %d came back", n, r.counter("released"))
		}
	})
}

// The first credit is small, for nobody knows how large the messages will be; a hop that takes nothing does not make it the last.
func TestTheFirstCreditIsNotTheLast(t *testing.T) {
	for _, settled := range []bool{true, false} {
		r := start(t, forwarder.Options{DeliveryTimeout: time.Hour})
		r.recv("STUCK")
		r.rows(row{"A", r.link("STUCK"), nil})
		quick := r.quick("A")
		want := int64(800) // the soft limit
		if settled {
			want = 2000
		}
		r.flood("", "A", settled, want)
		r.until("all came", func() bool { return quick.Load() == want })
	}
}

// However large its messages, a sender whose hop takes them goes on.
func TestCreditForLargerMessagesComesBack(t *testing.T) {
	for _, c := range []struct{ size, n int }{{200 << 10, 120}, {900 << 10, 110}, {20 << 20, 3}} {
		t.Run(fmt.Sprint(c.size), func(t *testing.T) {
			r := start(t, forwarder.Options{LinkCredit: 100})
			rcv := r.recv("q")
			got := 0
			rcv.auto = func(a *arrival) { got++; a.d.SettleAs(wire.Accepted) }
			rcv.credit(1000)
			s := r.send("q")
			m := body("", c.size)
			for range c.n {
				s.put(m, false)
			}
			rcv.until("all of them", func() bool { return got == c.n })
		})
	}
}

// Messages so large that an idle hop has room for few, or for less than one: their link goes on as long as the hop takes them.
func TestLargeMessagesGoOn(t *testing.T) {
	for _, size := range []int{100, 20_000, 200_000, 1_500_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			r := start(t, forwarder.Options{SoftQueueBytes: 1 << 20, LinkCredit: 10})
			in := r.recv("large")
			in.auto = func(a *arrival) { a.d.SettleAs(wire.Accepted) }
			in.credit(1000)
			out := r.send("large")
			for range 30 {
				if got := out.outcome(out.put(body("", size), false)); got != "accepted" {
					t.Fatalf("got %s", got)
				}
			}
		})
	}
}
