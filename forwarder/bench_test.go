package forwarder_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// loader is a client on our own engine, fast enough to measure the node and not itself.
type loader struct {
	c       *amqp.Conn
	link    *engine.Link
	role    wire.Role
	address string
	up      chan struct{}

	payload []byte
	settled bool
	free    []*engine.OutDelivery
	left    int // to send
	over    chan struct{}
	pending int

	got    *atomic.Int64
	want   int64
	used   uint32
	window uint32
}

func (l *loader) Opened() {
	s, err := l.c.Engine.Begin()
	if err != nil {
		panic(err)
	}
	o := engine.AttachOptions{Name: "bench", Role: l.role, SenderMode: engine.SenderMixed, Credit: l.window,
		Source: &wire.Source{}, Target: &wire.Target{}}
	if l.role == engine.RoleSender {
		o.Target.Address, o.Target.HasAddress = l.address, true
	} else {
		o.Source.Address, o.Source.HasAddress = l.address, true
	}
	l.link, _ = s.Attach(o)
}
func (l *loader) Attached(*engine.Link)        { close(l.up) }
func (l *loader) Detached(*engine.Link, error) {}
func (l *loader) Transfer(d *engine.InDelivery, _ []byte, last bool) {
	if !last {
		return
	}
	if !d.Settled {
		d.SettleAs(wire.Accepted)
	}
	if l.used++; l.used >= l.window/2 {
		l.used = 0
		l.link.Grant(l.window)
	}
	if l.got.Add(1) == l.want {
		close(l.over)
	}
}
func (l *loader) Aborted(*engine.InDelivery)               {}
func (l *loader) RemoteSettled(*engine.InDelivery, []byte) {}
func (l *loader) Sent(d *engine.OutDelivery)               { l.free = append(l.free, d) }
func (l *loader) Settled(d *engine.OutDelivery, _ wire.StateKind, _ []byte) {
	l.free = append(l.free, d)
	l.pending--
	l.check()
	l.pump()
}
func (l *loader) Flow(*engine.Link)                    { l.pump() }
func (l *loader) InDropped(*engine.InDelivery)         {}
func (l *loader) OutDropped(*engine.OutDelivery, bool) {}
func (l *loader) Closed(error)                         {}
func (l *loader) AfterInput(bool)                      {}
func (l *loader) BeforeFlush()                         {}
func (l *loader) TakeWork() amqp.Work                  { return nil }

func (l *loader) check() {
	if l.left == 0 && l.pending == 0 && l.over != nil && l.role == engine.RoleSender && !l.settled {
		close(l.over)
		l.over = nil
	}
}

func (l *loader) pump() {
	for l.left > 0 && len(l.free) > 0 {
		d := l.free[len(l.free)-1]
		switch l.link.Send(d, l.settled, 0, nil, l.payload) {
		case engine.Refused:
			return
		case engine.Complete:
			l.left--
			if l.settled {
				continue
			}
			l.pending++
		case engine.Partial:
			l.left--
			if !l.settled {
				l.pending++
			}
		}
		l.free = l.free[:len(l.free)-1]
	}
}

func dialLoader(b testing.TB, r *router, l *loader) *loader {
	l.up = make(chan struct{})
	_, err := amqp.Dial(within(b), amqp.DialOptions{Address: r.hop, Engine: engine.Config{ContainerID: "bench"}}, func(c *amqp.Conn) amqp.Owner {
		l.c = c
		return l
	})
	if err != nil {
		b.Fatal(err)
	}
	<-l.up
	b.Cleanup(func() { l.c.Close(nil); <-l.c.Done() })
	return l
}

func benchmarkNode(b *testing.B, settled bool, size, fan int) {
	run := prepareLoad(b, settled, size, fan, b.N)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	run()
}

// prepareLoad connects a sender and fan receivers to a node; the result sends n messages and waits for all copies.
func prepareLoad(b testing.TB, settled bool, size, fan, n int) (run func()) {
	run, _ = prepareNode(b, settled, size, fan, n)
	return run
}

func prepareNode(b testing.TB, settled bool, size, fan, n int) (run func(), r *router) {
	r = start(b, forwarder.Options{})
	got := &atomic.Int64{}
	over := make(chan struct{})
	for range fan {
		dialLoader(b, r, &loader{role: engine.RoleReceiver, address: "Q", window: 1000, got: got, want: int64(n * fan), over: over})
	}
	s := dialLoader(b, r, &loader{role: engine.RoleSender, address: "Q", settled: settled})
	m := wire.Message{Properties: &wire.Properties{To: "Q", HasTo: true}, Data: [][]byte{make([]byte, size)}}
	s.payload, _ = m.Append(nil)
	for range 1000 {
		s.free = append(s.free, &engine.OutDelivery{})
	}
	return func() {
		s.c.Do(func() { s.left = n; s.pump() })
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Second): // where the machine stops, a receiver may be so slow beside others that its copies are dropped
			}
			if dropped := int64(r.node.Counters()["droppedBusy"]); dropped > 0 && got.Load()+dropped >= int64(n*fan) {
				b.Logf("%d copies were dropped", dropped)
				return
			}
		}
	}, r
}

// The data path allocates nothing per message, settled or not, to one receiver or to several.
func TestNoAllocationPerMessage(t *testing.T) {
	const n = 10_000
	for _, c := range []struct {
		settled bool
		fan     int
	}{{true, 1}, {false, 1}, {true, 4}, {false, 4}} {
		run := prepareLoad(t, c.settled, 100, c.fan, n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run()
		runtime.ReadMemStats(&after)
		if per := float64(after.Mallocs-before.Mallocs) / n; per > allocationsAllowed {
			t.Errorf("settled %v, fan-out %d: %.2f allocations a message", c.settled, c.fan, per)
		}
	}
}

// One more receiver takes nothing: by a row that counts where messages are pre-settled, by an optional one where not.
func benchmarkSlow(b *testing.B, settled bool, fan int) {
	run, r := prepareNode(b, settled, 100, fan, b.N)
	r.recv("STUCK")
	columns := []routetable.Column{}
	if !settled {
		columns = append(columns, routetable.WithOptional(true))
	}
	if _, err := r.table.Add("Q", r.link("STUCK"), columns...); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	run()
}

func BenchmarkNode(b *testing.B) {
	b.Run("settled/100B", func(b *testing.B) { benchmarkNode(b, true, 100, 1) })
	b.Run("unsettled/100B", func(b *testing.B) { benchmarkNode(b, false, 100, 1) })
	b.Run("settled/100B/fan-out-8", func(b *testing.B) { benchmarkNode(b, true, 100, 8) })
	b.Run("unsettled/100B/fan-out-8", func(b *testing.B) { benchmarkNode(b, false, 100, 8) })
	b.Run("settled/100B/fan-out-8/one-stuck", func(b *testing.B) { benchmarkSlow(b, true, 8) })
	b.Run("unsettled/100B/fan-out-8/one-stuck", func(b *testing.B) { benchmarkSlow(b, false, 8) })
	b.Run("settled/4KiB", func(b *testing.B) { benchmarkNode(b, true, 4096, 1) })
	b.Run("settled/64KiB", func(b *testing.B) { benchmarkNode(b, true, 65536, 1) })
}
