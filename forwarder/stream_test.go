package forwarder_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// tale is a message that is sent as a test says: only what was told so far is there.
type tale struct {
	h        *hand
	d        *dispatch
	payload  []byte
	at, told int
	settled  bool
}

func (x *tale) Ready(n int) (int, bool) {
	k := min(n, x.told-x.at)
	return k, x.at+k < len(x.payload)
}

func (x *tale) Append(dst []byte, k int) []byte {
	dst = append(dst, x.payload[x.at:x.at+k]...)
	x.at += k
	return dst
}

// large is a message with a body of random bytes.
func large(to string, size int) *wire.Message {
	m := body(to, size)
	r := rand.NewChaCha8([32]byte{byte(size)})
	r.Read(m.Data[0])
	return m
}

// tryBegin sends the first of a message of one byte over and over, where there is credit.
func (h *hand) tryBegin(kind byte, settled bool) *tale {
	m := &wire.Message{Data: [][]byte{bytes.Repeat([]byte{kind}, int(kind)<<18)}}
	payload, _ := m.Append(nil)
	x := &tale{h: h, d: &dispatch{}, payload: payload, told: 3 << 16, settled: settled}
	x.d.out.Context = x.d
	began := false
	h.conn.Do(func() {
		began = !h.link.Gone() && h.link.SendStream(&x.d.out, settled, 0, nil, x) != engine.Refused
	})
	if !began {
		return nil
	}
	h.sent = append(h.sent, x.d)
	return x
}

// begin sends the first n bytes of a message, when there is credit.
func (h *hand) begin(m *wire.Message, settled bool, n int) *tale {
	h.t.Helper()
	payload, err := m.Append(nil)
	if err != nil {
		h.t.Fatal(err)
	}
	x := &tale{h: h, d: &dispatch{}, payload: payload, told: min(n, len(payload))}
	x.d.out.Context = x.d
	h.until("credit", func() bool { return h.link.SendStream(&x.d.out, settled, 0, nil, x) != engine.Refused })
	return x
}

// tell sends up to n bytes more.
func (x *tale) tell(n int) {
	x.h.conn.Do(func() {
		x.told = min(x.told+n, len(x.payload))
		x.h.link.Continue(&x.d.out)
	})
}

func (x *tale) rest() { x.tell(len(x.payload)) }

func (x *tale) abort() { x.h.conn.Do(func() { x.d.out.Abort() }) }

// has waits until a receiver has n bytes of a message that is still coming.
func (h *hand) has(n int) {
	h.t.Helper()
	h.until(fmt.Sprintf("%d bytes", n), func() bool { return len(h.parts) >= n })
}

func sum(m *wire.Message) [32]byte { return sha256.Sum256(m.Data[0]) }

const mib = 1 << 20

func TestALargeMessageArrivesWhileItIsSent(t *testing.T) {
	for _, settled := range []bool{false, true} {
		t.Run(fmt.Sprint("settled ", settled), func(t *testing.T) {
			r := start(t, forwarder.Options{})
			a, b := r.recv("q"), r.recv("q")
			for _, h := range []*hand{a, b} {
				h.auto = func(a *arrival) {
					if a.d != nil {
						a.d.SettleAs(wire.Accepted)
					}
				}
				h.credit(10)
			}
			s := r.send("q")
			m := large("", 6*mib)
			x := s.begin(m, settled, 2*mib)
			a.has(2*mib - 64)
			b.has(2*mib - 64)
			x.tell(mib)
			a.has(3*mib - 64)
			if x.d.answers > 0 {
				t.Fatal("answered before it was whole")
			}
			x.rest()
			for _, h := range []*hand{a, b} {
				if got := h.message(0); sum(&got.message) != sum(m) || got.settled != settled {
					t.Errorf("another message came, settled %v", got.settled)
				}
			}
			if settled {
				s.until("the rest is sent", func() bool { return x.d.out.Link() == nil })
			} else if got := s.outcome(x.d); got != "accepted" {
				t.Errorf("got %s", got)
			}
			if got := r.node.Counters()["streamed"]; got != 1 {
				t.Errorf("%d messages cut through, want 1", got)
			}
		})
	}
}

// However the sender cuts its frames and the receivers take them, all get the same bytes, and messages before and behind keep their order.
func TestALargeMessageIsTheSameForAll(t *testing.T) {
	r := start(t, forwarder.Options{})
	var hands []*hand
	for i, cfg := range []engine.Config{{MaxFrameSize: 512, Window: 50}, {MaxFrameSize: 1 << 20}, {Window: 3}} {
		h := r.connect(engine.AttachOptions{Name: fmt.Sprint(i), Role: engine.RoleReceiver, SenderMode: engine.SenderMixed,
			Source: &wire.Source{Address: "q", HasAddress: true}, Target: &wire.Target{}}, cfg)
		h.auto = func(a *arrival) { a.d.SettleAs(wire.Accepted) }
		h.credit(100)
		hands = append(hands, h)
	}
	s := r.send("q")
	sizes := []int{10, 3 * mib, 20, 9*mib + 7, mib + 1, 30}
	var sent []*dispatch
	for _, n := range sizes {
		x := s.begin(large("", n), false, 1)
		sent = append(sent, x.d)
		for x.told < len(x.payload) {
			x.tell(1 + rand.IntN(300_000))
		}
		s.until("it is sent", func() bool { return s.link.Whole(&x.d.out) })
	}
	for i, x := range sent {
		if got := s.outcome(x); got != "accepted" {
			t.Errorf("message %d: %s", i, got)
		}
	}
	for i, h := range hands {
		for j, n := range sizes {
			if got := h.message(j); sum(&got.message) != sum(large("", n)) {
				t.Errorf("receiver %d: message %d is another one", i, j)
			}
		}
	}
}

func TestAnAbortReachesEveryCopy(t *testing.T) {
	r := start(t, forwarder.Options{})
	a, b, idle := r.recv("q"), r.recv("q"), r.recv("q")
	a.credit(10)
	b.credit(10)
	s := r.send("q")
	x := s.begin(large("", 8*mib), false, 2*mib)
	a.has(2*mib - 64)
	x.abort()
	for _, h := range []*hand{a, b} {
		h.until("the abort", func() bool { return h.aborted == 1 })
	}
	y := s.put(body("", 5), false)
	idle.credit(10)
	for _, h := range []*hand{a, b, idle} {
		if got := h.message(0); got.size > 100 {
			t.Errorf("a message of %d bytes came", got.size)
		}
		h.accept(h.message(0))
	}
	if got := s.outcome(y); got != "accepted" {
		t.Errorf("the next one: %s", got)
	}
	if x.d.answers > 0 {
		t.Error("the aborted one was answered")
	}
}

func TestASenderThatIsLostAbortsItsCopies(t *testing.T) {
	for _, how := range []string{"the connection", "the link", "its data"} {
		t.Run(how, func(t *testing.T) {
			var o forwarder.Options
			if how == "its data" {
				o.DeliveryTimeout = 4 * time.Second
			}
			r := start(t, o)
			a := r.recv("q")
			a.credit(10)
			s := r.send("q")
			x := s.begin(large("", 8*mib), false, 2*mib)
			a.has(2*mib - 64)
			switch how {
			case "the connection":
				s.cut()
			case "the link":
				s.conn.Do(func() { s.link.Detach(nil) })
			default:
				if got := s.outcome(x.d); got != "modified failed" {
					t.Errorf("got %s", got)
				}
			}
			a.until("the abort", func() bool { return a.aborted == 1 })
			other := r.send("q")
			other.put(body("", 5), true)
			a.message(0)
		})
	}
}

func TestAReceiverThatIsLostGetsOneAttempt(t *testing.T) {
	r := start(t, forwarder.Options{})
	a, b := r.recv("q"), r.recv("q")
	a.credit(10)
	b.credit(10)
	s := r.send("q")
	m := large("", 8*mib)
	x := s.begin(m, false, 2*mib)
	a.has(mib)
	b.has(mib)
	a.cut()
	x.rest()
	b.accept(b.message(0))
	if got := s.outcome(x.d); got != "modified failed" {
		t.Errorf("got %s", got)
	}
	if got := fmt.Sprint(x.d.copies()); got != "[modified accepted]" && got != "[accepted modified]" {
		t.Errorf("copies %s", got)
	}
	y := s.begin(m, false, 2*mib)
	b.has(mib)
	b.cut()
	y.rest()
	if got := s.outcome(y.d); got != "modified failed" {
		t.Errorf("the only copy: %s", got)
	}
}

func TestACopyOfWhichNothingHasLeftGoesToAnotherRow(t *testing.T) {
	r := start(t, forwarder.Options{})
	a := r.recv("q", asQueue)
	s := r.send("q")
	m := large("", 5*mib)
	x := s.begin(m, false, 2*mib)
	r.until("it is looked up", func() bool { return r.node.Counters()["streamed"] == 1 })
	b := r.recv("q", asQueue)
	b.credit(1)
	a.cut()
	b.has(mib)
	x.rest()
	got := b.message(0)
	if sum(&got.message) != sum(m) {
		t.Error("another message came")
	}
	b.accept(got)
	if got := s.outcome(x.d); got != "accepted" {
		t.Errorf("got %s", got)
	}
}

// While one receiver takes nothing, the others wait, but not for long; a second link of its connection goes on all the time.
func TestAStalledCopyIsAborted(t *testing.T) {
	r := start(t, forwarder.Options{StalledAfter: 4 * time.Second})
	quick, stuck, idle := r.recv("q"), r.recv("q"), r.recv("q")
	quick.credit(10)
	stuck.conn.Do(func() { stuck.link.Session().SetWindow(4) })
	stuck.credit(10)
	stuck.conn.Do(func() {
		s, err := stuck.conn.Engine.Begin()
		if err != nil {
			t.Fatal(err)
		}
		s.Attach(engine.AttachOptions{Name: "beside", Role: engine.RoleReceiver, SenderMode: engine.SenderMixed, Credit: 1000,
			Source: &wire.Source{Address: "other", HasAddress: true}, Target: &wire.Target{}})
	})
	small, s := r.send("other"), r.send("q")
	x := s.begin(large("", 20*mib), false, 21*mib)
	stuck.until("some of it", func() bool { return len(stuck.parts) > 0 })
	stuck.conn.Do(func() { stuck.link.Session().SetWindow(0) })
	for i := range 40 {
		small.put(body("", 10), true)
		stuck.until("what comes beside it", func() bool { return stuck.beside > i })
	}
	if n := r.node.Counters()["stalled"]; n != 0 {
		t.Error("it has stalled already")
	}
	got := quick.message(0)
	if got.size < 20*mib {
		t.Errorf("the quick one got %d bytes", got.size)
	}
	quick.accept(got)
	if got := s.outcome(x.d); got != "modified failed" {
		t.Errorf("got %s", got)
	}
	want := map[string]int{"accepted": 1, "modified": 1, "released": 1}
	for _, o := range x.d.copies() {
		want[o]--
	}
	if want["accepted"] != 0 || want["modified"] != 0 || want["released"] != 0 {
		t.Errorf("copies %v", x.d.copies())
	}
	if n := r.node.Counters()["stalled"]; n != 2 {
		t.Errorf("%d copies stalled, want 2: one takes nothing, and one has no credit", n)
	}
	stuck.conn.Do(func() { stuck.link.Session().SetWindow(1000) })
	stuck.until("the abort", func() bool { return stuck.aborted == 1 })
	idle.credit(10)
	s.put(body("", 10), true)
	for _, h := range []*hand{stuck, idle} {
		if got := h.message(0); got.size > 100 {
			t.Errorf("a message of %d bytes came", got.size)
		}
	}
}

// An optional copy does not hold the others up: it is aborted when it lags too far.
func TestAnOptionalCopyThatLagsIsAborted(t *testing.T) {
	r := start(t, forwarder.Options{StalledAfter: time.Minute})
	tap := r.recv("tap")
	tap.conn.Do(func() { tap.link.Session().SetWindow(4) })
	tap.credit(10)
	if _, err := r.table.Add("q", "route:tap", optional...); err != nil {
		t.Fatal(err)
	}
	quick := r.recv("q")
	quick.credit(10)
	s := r.send("q")
	x := s.begin(large("", 20*mib), false, 2*mib)
	tap.until("some of it", func() bool { return len(tap.parts) > 0 })
	tap.conn.Do(func() { tap.link.Session().SetWindow(0) })
	x.rest()
	quick.accept(quick.message(0))
	if got := s.outcome(x.d); got != "accepted" {
		t.Errorf("got %s", got)
	}
	tap.conn.Do(func() { tap.link.Session().SetWindow(1000) })
	tap.until("the abort", func() bool { return tap.aborted == 1 })
	if n := r.node.Counters()["droppedBusy"]; n != 1 {
		t.Errorf("%d copies dropped, want 1", n)
	}
}

// A receiver's early word ends the message: the rest is thrown away, the sender is told when it has sent that, or sends nothing any more, and the link goes on.
func TestALargeMessageIsAnsweredBeforeItIsWhole(t *testing.T) {
	for _, mode := range []string{"first", "second"} {
		for _, c := range []struct {
			answer *wire.State
			want   string
		}{
			{isRejected, "rejected x:no"}, {isModified, "modified failed"}, {isReleased, "released"}, {isAccepted, "modified failed"},
		} {
			t.Run(mode+" "+c.want, func(t *testing.T) {
				r := start(t, forwarder.Options{StalledAfter: time.Second})
				a := r.recv("q")
				a.early = c.answer
				a.credit(10)
				s := r.send("q", func(o *engine.AttachOptions) {
					if mode == "second" {
						o.ReceiverMode = engine.ReceiverSecond
					}
				})
				x := s.begin(large("", 8*mib), false, 2*mib)
				if got := s.outcome(x.d); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
				a.conn.Do(func() { a.early = nil })
				y := s.put(body("", 5), false)
				a.accept(a.message(0))
				if got := s.outcome(y); got != "accepted" {
					t.Errorf("the next one: %s", got)
				}
			})
		}
	}
}

// Some clients look for an outcome only when they have sent all of a message, and wait for ever for one that came before.
func TestTheOutcomeComesBehindTheLastOfALargeMessage(t *testing.T) {
	r := start(t, forwarder.Options{StalledAfter: time.Minute})
	a := r.recv("q")
	a.early = isRejected
	a.credit(10)
	s := r.send("")
	for to, want := range map[string]string{"NOWHERE": "rejected amqp:not-found", "q": "rejected x:no"} {
		x := s.begin(large(to, 20*mib), false, 2*mib)
		if to == "q" {
			a.until("its word", func() bool { return a.hasty > 0 })
		} else {
			r.until("it is unrouted", func() bool { return r.counter("unrouted") == 1 })
		}
		s.conn.Do(func() {
			if x.d.answers > 0 {
				t.Errorf("%s: told before all of it had come", to)
			}
		})
		x.rest()
		if got := s.outcome(x.d); got != want {
			t.Errorf("%s: got %s, want %s", to, got, want)
		}
	}
}

func TestWhatBecomesOfLargeMessagesWithoutReceivers(t *testing.T) {
	r := start(t, forwarder.Options{DeliveryTimeout: 500 * time.Millisecond}, "HAL9000 --> null", "AWAY --> amqp://127.0.0.1:1")
	for _, c := range []struct{ to, want string }{
		{"HAL9000", "accepted"}, {"NOWHERE", "rejected amqp:not-found"}, {"AWAY", "released"}, {"web:secret", "rejected amqp:unauthorized-access"},
	} {
		s := r.send("")
		for range 3 {
			x := s.begin(large(c.to, 6*mib), false, 2*mib)
			x.rest()
			if got := s.outcome(x.d); got != c.want {
				t.Errorf("to %s: got %s, want %s", c.to, got, c.want)
			}
			s.begin(large(c.to, 6*mib), true, 6*mib+100)
		}
		y := s.put(body("HAL9000", 5), false)
		if got := s.outcome(y); got != "accepted" {
			t.Errorf("the next one after %s: %s", c.to, got)
		}
	}
}

func TestALargeMessageWaitsForARow(t *testing.T) {
	r := start(t, forwarder.Options{})
	s := r.send("q")
	m := large("", 7*mib)
	x := s.begin(m, false, 7*mib+100)
	r.until("it waits", func() bool { return r.node.Counters()["unrouted"] == 1 })
	a := r.recv("q")
	a.credit(1)
	got := a.message(0)
	if sum(&got.message) != sum(m) {
		t.Error("another message came")
	}
	a.accept(got)
	if got := s.outcome(x.d); got != "accepted" {
		t.Errorf("got %s", got)
	}
}

// Over two nodes, with a time to live and the guard against loops in front of it.
func TestALargeMessageCrossesNodes(t *testing.T) {
	b := start(t, forwarder.Options{})
	a := start(t, forwarder.Options{}, "q --> amqp://"+b.hop+"/q")
	rcv := b.recv("q")
	rcv.credit(10)
	s := a.send("q")
	m := large("", 9*mib)
	m.Header = &wire.Header{TTL: 600_000, HasTTL: true}
	x := s.begin(m, false, 2*mib)
	rcv.has(mib)
	x.rest()
	got := rcv.message(0)
	if sum(&got.message) != sum(m) || got.message.Header.TTL > 600_000 || got.message.Header.TTL < 500_000 {
		t.Errorf("another message came, ttl %d", got.message.Header.TTL)
	}
	rcv.accept(got)
	if got := s.outcome(x.d); got != "accepted" {
		t.Errorf("got %s", got)
	}
	y := s.begin(m, false, 2*mib)
	rcv.has(mib)
	y.abort()
	rcv.until("the abort", func() bool { return rcv.aborted == 1 })
	z := s.begin(m, false, 2*mib)
	rcv.has(mib)
	a.node.CutPeers()
	z.rest()
	if got := s.outcome(z.d); got != "modified failed" {
		t.Errorf("over a connection that broke: %s", got)
	}
}

// A receiver that says how much it takes gets no more.
func TestALargeMessageGrowsTooLargeForAReceiver(t *testing.T) {
	r := start(t, forwarder.Options{})
	a := r.connect(engine.AttachOptions{Role: engine.RoleReceiver, SenderMode: engine.SenderMixed,
		Source: &wire.Source{Address: "q", HasAddress: true}, Target: &wire.Target{}}, engine.Config{MaxMessageSize: 3 * mib})
	a.credit(10)
	s := r.send("q")
	x := s.begin(large("", 8*mib), false, 2*mib)
	a.has(mib)
	x.rest()
	if got := s.outcome(x.d); got != "rejected amqp:link:message-size-exceeded" {
		t.Errorf("got %s", got)
	}
	a.until("the abort", func() bool { return a.aborted == 1 })
}

// A sender whose message nobody takes is held; another session of its connection is not.
func TestAHeldStreamHoldsItsSessionAlone(t *testing.T) {
	// A sender that is told too late how far it may go has the connection wait, but not for longer than the message is waited for.
	r := start(t, forwarder.Options{DeliveryTimeout: time.Minute}, "free --> null")
	r.recv("q")
	s := r.send("q")
	x := s.begin(large("", 100*mib), false, 101*mib)
	s.until("it is held", func() bool { return x.at > 4*mib && x.at < 90*mib })
	var free *engine.Link
	s.conn.Do(func() {
		session, err := s.conn.Engine.Begin()
		if err != nil {
			t.Fatal(err)
		}
		free, _ = session.Attach(engine.AttachOptions{Name: "free", Role: engine.RoleSender, SenderMode: engine.SenderMixed,
			Source: &wire.Source{}, Target: &wire.Target{Address: "free", HasAddress: true}})
	})
	for range 100 {
		y := &dispatch{}
		y.out.Context = y
		payload, _ := body("", 10).Append(nil)
		s.until("credit", func() bool { return free.Send(&y.out, false, 0, nil, payload) != engine.Refused })
		if got := s.outcome(y); got != "accepted" {
			t.Fatal(got)
		}
	}
	if x.at > 60*mib {
		t.Errorf("%d bytes were taken of a message that nobody takes", x.at)
	}
}

// witness is a receiver that takes whatever comes, and knows what is whole and right.
type witness struct {
	*hand
	t     testing.TB
	whole map[byte]int // messages, by what they are made of
}

func (w *witness) watch(settle func(n int) *wire.State) {
	w.whole = map[byte]int{}
	w.auto = func(a *arrival) {
		kind, data := a.message.Data[0][0], a.message.Data[0]
		if bytes.Count(data, data[:1]) != len(data) || len(data) != int(kind)<<18 {
			w.t.Errorf("%d bytes of kind %d came", len(data), kind)
		}
		w.whole[kind]++
		if a.d != nil {
			a.d.Settle(settle(len(w.came)))
		}
	}
}

// Whatever senders and receivers do with large messages, and wherever in one they do it, what a receiver calls whole is whole and right, and
// at the end nothing is left over (ConsistencyCheck).
func FuzzStreams(f *testing.F) {
	for i := range 8 {
		script := make([]byte, 60)
		rand.NewChaCha8([32]byte{byte(i)}).Read(script)
		f.Add(script)
	}
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, script []byte) { streams(t, script[:min(len(script), 200)]) })
}

func streams(t *testing.T, script []byte) {
	r := start(t, forwarder.Options{DeliveryTimeout: 300 * time.Millisecond, StalledAfter: 300 * time.Millisecond})
	receive := func(i int, queue bool) *witness {
		w := &witness{t: t}
		if queue {
			w.hand = r.recv("q", asQueue)
		} else {
			w.hand = r.recv("q")
		}
		w.watch(func(n int) *wire.State {
			return []*wire.State{isAccepted, isAccepted, isAccepted, isReleased, isRejected, isModified}[(n+i)%6]
		})
		w.credit(uint32(i * 2))
		return w
	}
	receivers := []*witness{receive(0, false), receive(1, false), receive(2, true), receive(3, true)}
	senders := []*hand{r.send("q"), r.send("q", modeSecond)}
	tales := make([]*tale, len(senders))
	for n, b := range script {
		i, arg := int(b>>3)%len(senders), int(b>>4)
		s, x := senders[i], tales[i]
		switch w := receivers[int(b>>3)%len(receivers)]; b & 7 {
		case 0, 1, 2:
			if x != nil {
				x.tell(arg << 16)
				break
			}
			tales[i] = s.tryBegin(byte(1+arg), n%5 == 0)
		case 3:
			if x != nil {
				x.rest()
				tales[i] = nil
			}
		case 4:
			if x != nil {
				x.abort()
				tales[i] = nil
			}
		case 5:
			w.credit(uint32(arg))
		case 6:
			w.conn.Do(func() { w.link.Session().SetWindow(uint32(arg) * 2) })
		default:
			if arg < 4 {
				s.cut()
				senders[i], tales[i] = r.send("q"), nil
			} else if arg < 8 {
				w.cut()
				receivers[int(b>>3)%len(receivers)] = receive(int(b>>3)%4, arg&1 == 0)
			}
		}
	}
	for i, x := range tales {
		if x != nil && (i == 0 || x.settled || x.told < 2*mib) { // the rest of another one does not come
			x.rest()
		}
	}
	for _, w := range receivers {
		w.conn.Do(func() { w.link.Session().SetWindow(1 << 20) })
		w.credit(1000)
	}
	for _, s := range senders {
		s.until("every answer", func() bool {
			for _, x := range s.sent {
				if x.answers == 0 && x.out.Link() != nil {
					return false
				}
			}
			return true
		})
	}
}
