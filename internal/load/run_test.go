package load

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// broker is the least of a peer: it gives every message of a link to the links that receive from the address, and accepts it. It can be told to
// lose or repeat messages.
type broker struct {
	ln   *amqp.Listener
	done chan struct{}
	lock atomic.Pointer[map[string][]*out]
	odd  func(n uint64) (copies int) // nil: one
	n    atomic.Uint64
}

// out is a link that receives.
type out struct {
	c *amqp.Conn
	l *engine.Link
	p [][]byte // waits for credit
}

func startBroker(t *testing.T, odd func(uint64) int) *broker {
	t.Helper()
	ln, err := amqp.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{ln: ln, done: make(chan struct{}), odd: odd}
	b.lock.Store(&map[string][]*out{})
	go func() {
		defer close(b.done)
		ln.Serve(func(nc net.Conn) *amqp.Conn {
			return amqp.NewConn(nc, engine.Config{ContainerID: "broker"}, nil, func(c *amqp.Conn) amqp.Owner {
				return &brokerConn{endpoint: endpoint{c: c}, b: b}
			})
		}, nil)
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		ln.Close(ctx)
		<-b.done
	})
	return b
}

type brokerConn struct {
	endpoint
	b     *broker
	later []func()
}

func (c *brokerConn) Detached(*engine.Link, error) {}
func (c *brokerConn) Closed(error)                 {}

func (c *brokerConn) Attached(l *engine.Link) {
	if l.IsSender() {
		o := &out{c: c.c, l: l}
		l.Context = o
		for {
			old := c.b.lock.Load()
			links := map[string][]*out{}
			for k, v := range *old {
				links[k] = v
			}
			a := l.Remote().Source.Address
			links[a] = append(links[a][:len(links[a]):len(links[a])], o)
			if c.b.lock.CompareAndSwap(old, &links) {
				break
			}
		}
	} else {
		l.Context = l.Remote().Target.Address
	}
	l.Accept(l.Remote().Source, l.Remote().Target, 100, engine.AttachOptions{})
}

func (c *brokerConn) Transfer(d *engine.InDelivery, payload []byte, last bool) {
	l := d.Link()
	to, _ := l.Context.(string)
	if to == "" {
		var m wire.Message
		if m.Parse(payload) == nil && m.Properties != nil {
			to = m.Properties.To
		}
	}
	copies := 1
	if c.b.odd != nil {
		copies = c.b.odd(c.b.n.Add(1) - 1)
	}
	p := append([]byte(nil), payload...)
	for range copies {
		for _, o := range (*c.b.lock.Load())[to] {
			c.later = append(c.later, func() { o.c.Do(func() { o.p = append(o.p, p); o.pump() }) })
		}
	}
	if !d.Settled {
		d.SettleAs(wire.Accepted)
	}
	if l.Credit() < 50 {
		l.Grant(100)
	}
}

func (c *brokerConn) AfterInput(bool) {
	for _, f := range c.later {
		f()
	}
	c.later = nil
}

func (c *brokerConn) Flow(l *engine.Link) {
	if o, ok := l.Context.(*out); ok {
		o.pump()
	}
}

func (o *out) pump() {
	for len(o.p) > 0 && o.l.Send(&engine.OutDelivery{}, true, 0, nil, o.p[0]) == engine.Complete {
		o.p = o.p[1:]
	}
}

func (b *broker) options() Options {
	return Options{
		Dial: amqp.DialOptions{Address: b.ln.Addr().String()}, Size: 100, Window: 20,
		Warmup: 10 * time.Millisecond, Duration: 400 * time.Millisecond, PID: os.Getpid(),
	}
}

func TestRuns(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(o *Options)
		fan  uint64
	}{
		{"one to one", func(*Options) {}, 1},
		{"settled", func(o *Options) { o.Settled = true }, 1},
		{"fan-out", func(o *Options) { o.Receivers = 3 }, 3},
		{"many to one", func(o *Options) { o.Senders = 3 }, 1},
		{"shares of many addresses", func(o *Options) { o.Senders, o.Receivers, o.Addresses = 2, 3, 7 }, 1},
		{"many addresses by anonymous links", func(o *Options) { o.Senders, o.Receivers, o.Addresses, o.Anonymous = 2, 3, 7, true }, 1},
		{"at a rate", func(o *Options) { o.Rate = 2000 }, 1},
		{"tiny bodies", func(o *Options) { o.Size = 1 }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := startBroker(t, nil).options()
			c.set(&o)
			x, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			f := x.Peer
			if f.Messages == 0 || f.Copies == 0 || f.Lost != 0 || f.Duplicates != 0 || f.Strays != 0 || f.Unanswered != 0 {
				t.Errorf("got %+v", f)
			}
			if !o.Settled && f.Accepted != f.Sent {
				t.Errorf("accepted %d of %d", f.Accepted, f.Sent)
			}
			if f.Latency == nil || f.Latency.P50 <= 0 || f.Latency.P50 > f.Latency.P99 || f.Latency.P99 > f.Latency.Max {
				t.Errorf("latency %+v", f.Latency)
			}
			if ratio := float64(f.Copies) / float64(f.Messages) / float64(c.fan); ratio < .5 || ratio > 2 {
				t.Errorf("%d copies of %d messages, want %d of each", f.Copies, f.Messages, c.fan)
			}
			if f.RSS == 0 {
				t.Error("no memory was measured")
			}
		})
	}
}

func TestWhatIsLostAndWhatComesTwiceIsCounted(t *testing.T) {
	var sent atomic.Uint64
	b := startBroker(t, func(n uint64) int {
		sent.Store(n + 1)
		switch n % 10 {
		case 3:
			return 0
		case 7:
			return 2
		}
		return 1
	})
	x, err := Run(t.Context(), b.options())
	if err != nil {
		t.Fatal(err)
	}
	n := sent.Load()
	lost, twice := (n+6)/10, (n+2)/10
	if x.Peer.Lost != lost || x.Peer.Duplicates != twice || x.Peer.Sent != n {
		t.Errorf("of %d: lost %d, twice %d; want %d, %d", n, x.Peer.Lost, x.Peer.Duplicates, lost, twice)
	}
}

// A peer that stops for a while is charged with what was due meanwhile: latency counts from when a message was meant to leave.
func TestAStopIsChargedToAllThatWereDue(t *testing.T) {
	var stopped atomic.Bool
	b := startBroker(t, func(n uint64) int {
		if n == 40 && !stopped.Swap(true) {
			<-time.After(100 * time.Millisecond)
		}
		return 1
	})
	o := b.options()
	o.Rate, o.Window, o.Duration = 1000, 5, 300*time.Millisecond
	x, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	// About 100 of 300 messages were due while it stopped, though only a window of 5 was on its way. A busy machine makes fewer, and later ones.
	if l := x.Peer.Latency; l == nil || l.P90 < 20_000 {
		t.Errorf("latency %+v", l)
	}
}

func TestARunThatIsInterruptedTellsWhatItHas(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var warm, more atomic.Uint64 // when the first came, and what came after the warm-up
	b := startBroker(t, func(uint64) int {
		warm.CompareAndSwap(0, uint64(time.Now().UnixNano()))
		if time.Since(time.Unix(0, int64(warm.Load()))) > time.Second && more.Add(1) == 50 {
			cancel()
		}
		return 1
	})
	o := b.options()
	o.Duration = time.Hour
	x, err := Run(ctx, o)
	if err != nil || x.Peer == nil || x.Peer.Messages == 0 || x.Peer.Lost != 0 {
		t.Errorf("got %+v, %v", x.Peer, err)
	}
}

func TestAPeerThatGoesAwayIsTold(t *testing.T) {
	b := startBroker(t, nil)
	o := b.options()
	o.Duration = time.Hour
	go func() {
		for b.ln.Addr() != nil && len(*b.lock.Load()) == 0 {
			<-time.After(time.Millisecond)
		}
		<-time.After(50 * time.Millisecond)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		b.ln.Close(ctx)
	}()
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrLost) {
		t.Errorf("got %v", err)
	}
}

func TestTheRelayCarriesTheSame(t *testing.T) {
	t.Setenv("LOAD_TEST_RELAY", "1")
	for _, settled := range []bool{false, true} {
		o := startBroker(t, nil).options()
		o.RelayCommand, o.Settled, o.Senders, o.Receivers = []string{os.Args[0]}, settled, 2, 1
		x, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		f := x.Relay
		if f == nil || f.Messages == 0 || f.Lost != 0 || f.Duplicates != 0 || f.Unanswered != 0 || f.RSS == 0 || x.Ratio == nil {
			t.Errorf("got %+v, %+v", f, x.Ratio)
		}
	}
}

func TestIdle(t *testing.T) {
	o := startBroker(t, nil).options()
	for _, sends := range []int{0, 1} {
		o.Senders = sends
		x, err := RunIdle(t.Context(), o, 20, 50)
		if err != nil {
			t.Fatal(err)
		}
		if x.ConnectSeconds <= 0 || x.AttachSeconds <= 0 {
			t.Errorf("got %+v", x)
		}
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	for _, o := range []Options{
		{Size: -1}, {Senders: -1}, {Receivers: 10_001}, {Window: -1}, {Rate: -1}, {Addresses: 2, Receivers: 3}, {Addresses: 2_000_000}, {Duration: -1},
	} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// Nothing is allocated for a message, neither by who sends nor by who receives.
func TestNoAllocationPerMessage(t *testing.T) {
	o, _ := Options{Settled: true, Size: 100}.withDefaults()
	r := newRunner(o)
	x := r.newReceiver(0, nil)
	s := r.newSender(0, nil)
	m := s.slots[0]
	st := stamp{run: r.id}
	head := appendHead(nil, "", o.Size)
	var seen uint64
	n := testing.AllocsPerRun(1000, func() {
		st.seq++
		m.head = append(st.append(append(m.head[:0], head...)), r.filler...)
		var got stamp
		if got.find(m.head, &x.hint) {
			seen += got.seq
		}
		x.hist.Add(r.clock())
	})
	if n != 0 || seen == 0 {
		t.Errorf("%v allocations", n)
	}
}
