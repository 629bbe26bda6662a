package messenger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/messenger"
	"github.com/fingerpost/fingerpost/routetable"
)

// pair is a sender whose COLOSSUS is a listening receiver.
func pair(t testing.TB) (alice, bob *messenger.Messenger) {
	t.Helper()
	alice = newMessenger(t, messenger.Options{Name: "alice"})
	bob = newMessenger(t, messenger.Options{Name: "bob"})
	add(t, alice, "COLOSSUS", listen(t, bob)+"/queue")
	return alice, bob
}

func TestAMessageArrivesAsItWasPut(t *testing.T) {
	alice, bob := pair(t)
	sent := &messenger.Message{
		Address: "COLOSSUS", ReplyTo: "GUARDIAN", Subject: "s", GroupID: "g", MessageID: uint64(7), CorrelationID: "c",
		ContentType: "text/plain", Body: []byte("hello"), Durable: true, Priority: 9, TTL: time.Hour,
		Properties:  map[string]any{"n": int64(1), "s": "x", "b": true},
		Annotations: map[string]any{"x-opt-a": messenger.Symbol("y")},
		Created:     time.UnixMilli(1_700_000_000_000).UTC(),
	}
	before := *sent
	tr := put(t, alice, sent)
	if !reflect.DeepEqual(*sent, before) {
		t.Errorf("put changed the message: %+v, want %+v", *sent, before)
	}
	d := get(t, bob)
	got := *d.Message
	if got.TTL <= 0 || got.TTL > time.Hour {
		t.Errorf("ttl %v, want at most an hour", got.TTL)
	}
	got.TTL = time.Hour
	if !reflect.DeepEqual(got, before) {
		t.Errorf("got %+v, want %+v", got, before)
	}
	if d.LinkTarget() != "queue" || d.Listener() == nil || d.Subscription() != nil || d.IsReply() || d.Settled() {
		t.Errorf("target %q, listener %v, subscription %v, reply %v, settled %v", d.LinkTarget(), d.Listener(), d.Subscription(), d.IsReply(), d.Settled())
	}
	if o := tr.Outcome(); o.State != messenger.Pending {
		t.Errorf("outcome %v before it was given", o.State)
	}
	must(t, d.Accept())
	if err := d.Accept(); !errors.Is(err, messenger.ErrSettled) {
		t.Errorf("accept twice: %v, want ErrSettled", err)
	}
	o, err := wait(t, tr)
	if o.State != messenger.Accepted || err != nil {
		t.Errorf("outcome %v %v, want accepted", o.State, err)
	}
}

func TestEachOutcomeReachesTheTracker(t *testing.T) {
	alice, bob := pair(t)
	for _, x := range []struct {
		name  string
		do    func(*messenger.Delivery) error
		state messenger.State
		check func(messenger.Outcome, error) bool
	}{
		{"accepted", (*messenger.Delivery).Accept, messenger.Accepted, func(_ messenger.Outcome, err error) bool { return err == nil }},
		{"released", (*messenger.Delivery).Release, messenger.Released, func(_ messenger.Outcome, err error) bool {
			return errors.Is(err, messenger.ErrReleased)
		}},
		{"rejected with a condition", func(d *messenger.Delivery) error {
			return d.Reject(&messenger.Error{Condition: "acme:no", Description: "not today", Info: map[string]any{"k": "v"}})
		}, messenger.Rejected, func(_ messenger.Outcome, err error) bool {
			var e *messenger.Error
			return errors.As(err, &e) && e.Condition == "acme:no" && e.Description == "not today" && e.Info["k"] == "v"
		}},
		{"rejected with a Go error", func(d *messenger.Delivery) error { return d.Reject(errors.New("broken")) }, messenger.Rejected,
			func(_ messenger.Outcome, err error) bool {
				var e *messenger.Error
				return errors.As(err, &e) && e.Condition == "amqp:precondition-failed" && e.Description == "broken"
			}},
		{"rejected without a reason", func(d *messenger.Delivery) error { return d.Reject(nil) }, messenger.Rejected,
			func(_ messenger.Outcome, err error) bool {
				var e *messenger.Error
				return errors.As(err, &e) && e.Condition == ""
			}},
		{"modified", func(d *messenger.Delivery) error {
			return d.Modify(messenger.Modification{DeliveryFailed: true, UndeliverableHere: true, Annotations: map[string]any{"a": int64(1)}})
		}, messenger.Modified, func(o messenger.Outcome, err error) bool {
			return errors.Is(err, messenger.ErrModified) && o.DeliveryFailed && o.UndeliverableHere && o.Annotations["a"] == int64(1)
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			tr := put(t, alice, &messenger.Message{Address: "COLOSSUS", Body: []byte("b")})
			must(t, x.do(get(t, bob)))
			o, err := wait(t, tr)
			if o.State != x.state || !x.check(o, err) {
				t.Errorf("outcome %+v, error %v", o, err)
			}
			var he *messenger.HopError
			if err != nil && !errors.As(err, &he) {
				t.Errorf("error %v does not say where", err)
			}
		})
	}
}

func TestFanOut(t *testing.T) {
	accept, release := (*messenger.Delivery).Accept, (*messenger.Delivery).Release
	reject := func(d *messenger.Delivery) error { return d.Reject(errors.New("no")) }
	for _, x := range []struct {
		name     string
		do1, do2 func(*messenger.Delivery) error
		want     messenger.State
	}{
		{"all accepted is accepted", accept, accept, messenger.Accepted},
		{"all released is released", release, release, messenger.Released},
		{"one rejected is rejected", accept, reject, messenger.Rejected},
		{"a mixture is modified", accept, release, messenger.Modified},
	} {
		t.Run(x.name, func(t *testing.T) {
			alice := newMessenger(t, messenger.Options{})
			b1, b2 := newMessenger(t, messenger.Options{}), newMessenger(t, messenger.Options{})
			hop1, hop2 := listen(t, b1), listen(t, b2)
			add(t, alice, "COLOSSUS", hop1)
			add(t, alice, "COLOSSUS", hop2)
			add(t, alice, "COL*", hop2) // the same hop: one copy
			tr := put(t, alice, &messenger.Message{Address: "COLOSSUS"})
			must(t, x.do1(get(t, b1)))
			d2 := get(t, b2)
			if o := tr.Outcome(); o.State != messenger.Pending {
				t.Errorf("outcome %v while a copy is on its way", o.State)
			}
			must(t, x.do2(d2))
			o, err := wait(t, tr)
			if o.State != x.want || (err == nil) != (x.want == messenger.Accepted) {
				t.Errorf("got %v %v, want %v", o.State, err, x.want)
			}
			copies := tr.Copies()
			if len(copies) != 2 || copies[0].Hop != hop1 || copies[1].Hop != hop2 || copies[0].Outcome.State == messenger.Pending {
				t.Errorf("copies %+v", copies)
			}
		})
	}
}

func TestOptionalCopiesDoNotCount(t *testing.T) {
	alice, bob := pair(t)
	tap := newMessenger(t, messenger.Options{})
	if _, err := alice.Routes().Add("*", listen(t, tap), routetable.WithOptional(true)); err != nil {
		t.Fatal(err)
	}
	tr := put(t, alice, &messenger.Message{Address: "COLOSSUS"})
	must(t, get(t, bob).Accept())
	if o, err := wait(t, tr); o.State != messenger.Accepted || err != nil {
		t.Errorf("outcome %v %v before the tap's", o.State, err)
	}
	must(t, get(t, tap).Reject(nil))
	if _, err := alice.Put(within(t), &messenger.Message{Address: "ELSEWHERE"}); !errors.Is(err, messenger.ErrNoRoute) {
		t.Errorf("a message with a tap only: %v, want ErrNoRoute", err)
	}
	if d := get(t, tap); d.Message.Address != "ELSEWHERE" {
		t.Errorf("tap got %q", d.Message.Address)
	}
}

func TestAddressesWithoutARow(t *testing.T) {
	alice := newMessenger(t, messenger.Options{})
	bob := newMessenger(t, messenger.Options{})
	url := listen(t, bob)
	add(t, alice, "HAL9000", "null")
	for _, x := range []struct {
		name, address string
		want          error // nil: it arrives
	}{
		{"a URL is its own hop", url + "/q", nil},
		{"a host and port is", url[len("amqp://"):], nil},
		{"a bare word is a name", "SKYNET", messenger.ErrNoRoute},
		{"a bare word with a slash is a name", "SKYNET/x", messenger.ErrNoRoute},
		{"a reserved scheme is a name", "topic:5672", messenger.ErrNoRoute},
		{"an unknown scheme is no hop", "http://127.0.0.1:80/", messenger.ErrNoRoute},
		{"no address", "", messenger.ErrNoRoute},
		{"a bad port", "amqp://h:x1", messenger.ErrNoRoute},
	} {
		t.Run(x.name, func(t *testing.T) {
			tr, err := alice.Put(within(t), &messenger.Message{Address: x.address})
			if !errors.Is(err, x.want) || (err == nil) != (x.want == nil) {
				t.Fatalf("put: %v, want %v", err, x.want)
			}
			if err != nil {
				return
			}
			d := get(t, bob)
			if d.Message.Address != x.address {
				t.Errorf("to %q, want %q", d.Message.Address, x.address)
			}
			must(t, d.Accept())
			wait(t, tr)
		})
	}
	t.Run("null discards", func(t *testing.T) {
		tr := put(t, alice, &messenger.Message{Address: "HAL9000"})
		if o, err := wait(t, tr); o.State != messenger.Accepted || err != nil || len(tr.Copies()) != 0 {
			t.Errorf("outcome %v %v, copies %v", o.State, err, tr.Copies())
		}
	})
}

func TestRoutesChangeBetweenPuts(t *testing.T) {
	alice := newMessenger(t, messenger.Options{})
	b1, b2 := newMessenger(t, messenger.Options{}), newMessenger(t, messenger.Options{})
	add(t, alice, "COLOSSUS", listen(t, b1))
	put(t, alice, &messenger.Message{Address: "COLOSSUS", Body: []byte("1")})
	must(t, get(t, b1).Accept())
	if _, err := alice.Routes().Replace("COLOSSUS", listen(t, b2)); err != nil {
		t.Fatal(err)
	}
	put(t, alice, &messenger.Message{Address: "COLOSSUS", Body: []byte("2")})
	if d := get(t, b2); string(d.Message.Body) != "2" {
		t.Errorf("got %q", d.Message.Body)
	}
}

// relay is the seed's router: what comes is put again, byte for byte, by its untranslated address.
func TestARouterOfMessengers(t *testing.T) {
	alice := newMessenger(t, messenger.Options{})
	router := newMessenger(t, messenger.Options{})
	b1, b2 := newMessenger(t, messenger.Options{}), newMessenger(t, messenger.Options{})
	add(t, alice, "COLOSSUS", listen(t, router))
	add(t, router, "COLOSSUS", listen(t, b1))
	add(t, router, "COLOSSUS", listen(t, b2))
	tr := put(t, alice, &messenger.Message{Address: "COLOSSUS", Subject: "s", Body: []byte("hello")})
	d := get(t, router)
	onward := put(t, router, &messenger.Message{Address: d.Message.Address, Raw: d.Raw()})
	for _, b := range []*messenger.Messenger{b1, b2} {
		got := get(t, b)
		if !bytes.Equal(got.Raw(), d.Raw()) || got.Message.Address != "COLOSSUS" || string(got.Message.Body) != "hello" {
			t.Errorf("got %q to %q", got.Raw(), got.Message.Address)
		}
		must(t, got.Accept())
	}
	if _, err := wait(t, onward); err != nil {
		t.Error(err)
	}
	must(t, d.Accept())
	if _, err := wait(t, tr); err != nil {
		t.Error(err)
	}
}

func TestSettledMessagesHaveNoOutcome(t *testing.T) {
	alice, bob := pair(t)
	tr := put(t, alice, &messenger.Message{Address: "COLOSSUS", Settled: true})
	d := get(t, bob)
	if !d.Settled() || !d.Message.Settled {
		t.Error("it came unsettled")
	}
	must(t, d.Accept())
	must(t, d.Accept())
	if o, err := wait(t, tr); o.State != messenger.Settled || err != nil {
		t.Errorf("outcome %v %v, want settled", o.State, err)
	}
}

func TestALargeMessage(t *testing.T) {
	alice, bob := pair(t)
	body := make([]byte, 10<<20)
	for i := range body {
		body[i] = byte(i * 7 >> 3)
	}
	for _, settled := range []bool{false, true} {
		tr := put(t, alice, &messenger.Message{Address: "COLOSSUS", Body: body, Settled: settled})
		d := get(t, bob)
		if !bytes.Equal(d.Message.Body, body) {
			t.Fatal("the body is another")
		}
		must(t, d.Accept())
		if _, err := wait(t, tr); err != nil {
			t.Error(err)
		}
	}
}

func TestTooLargeForThePeer(t *testing.T) {
	alice := newMessenger(t, messenger.Options{})
	bob := newMessenger(t, messenger.Options{MaxMessageSize: 1000})
	tr := put(t, alice, &messenger.Message{Address: listen(t, bob), Body: make([]byte, 2000)})
	var e *messenger.Error
	if o, err := wait(t, tr); o.State != messenger.Rejected || !errors.As(err, &e) || e.Condition != "amqp:link:message-size-exceeded" {
		t.Errorf("got %v %v", o.State, err)
	}
}

func TestManyMessagesStayInOrder(t *testing.T) {
	alice, bob := pair(t)
	const n = 5000
	var trackers [n]*messenger.Tracker
	var both sync.WaitGroup
	both.Go(func() {
		for i := range n {
			tr, err := alice.Put(within(t), &messenger.Message{Address: "COLOSSUS", Body: fmt.Appendf(nil, "%d", i)})
			if err != nil {
				t.Error(err)
				return
			}
			trackers[i] = tr
		}
	})
	both.Go(func() {
		for i := range n {
			d, err := bob.Get(within(t))
			if err != nil {
				t.Error(err)
				return
			}
			if got := string(d.Message.Body); got != fmt.Sprint(i) {
				t.Errorf("message %d is %s", i, got)
				return
			}
			if err := d.Accept(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	both.Wait()
	for _, tr := range trackers {
		if tr == nil {
			return
		}
		if o, err := wait(t, tr); o.State != messenger.Accepted {
			t.Fatal(err)
		}
	}
}

func TestPrefetchBoundsWhatIsUnsettled(t *testing.T) {
	alice := newMessenger(t, messenger.Options{})
	bob := newMessenger(t, messenger.Options{Prefetch: 4})
	add(t, alice, "Q", listen(t, bob))
	for range 6 {
		put(t, alice, &messenger.Message{Address: "Q"})
	}
	var ds []*messenger.Delivery
	for range 4 {
		ds = append(ds, get(t, bob))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := bob.Get(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a fifth message came: %v", err)
	}
	must(t, ds[2].Accept())
	get(t, bob)
	must(t, ds[0].Release())
	get(t, bob)
}

func TestTheStoreIsBounded(t *testing.T) {
	alice := newMessenger(t, messenger.Options{MaxOutgoing: 2})
	bob := newMessenger(t, messenger.Options{})
	add(t, alice, "Q", listen(t, bob))
	put(t, alice, &messenger.Message{Address: "Q"})
	put(t, alice, &messenger.Message{Address: "Q"})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := alice.Put(ctx, &messenger.Message{Address: "Q"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a third put: %v, want a timeout", err)
	}
	must(t, get(t, bob).Accept())
	put(t, alice, &messenger.Message{Address: "Q"})
	must(t, get(t, bob).Accept())
	must(t, get(t, bob).Accept())
}

func TestWaitAndGetEndWithTheirContext(t *testing.T) {
	alice, bob := pair(t)
	tr := put(t, alice, &messenger.Message{Address: "COLOSSUS"})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if o, err := tr.Wait(ctx); o.State != messenger.Pending || !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v %v", o.State, err)
	}
	if _, err := alice.Get(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("get: %v", err)
	}
	if _, err := alice.Put(ctx, &messenger.Message{Address: "COLOSSUS"}); !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v", err)
	}
	if _, err := alice.Subscribe(ctx, "amqp://127.0.0.1:1/q", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("subscribe: %v", err)
	}
	must(t, get(t, bob).Accept())
	wait(t, tr)
}

// freePort gives an address that nobody listens at.
func freePort(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func TestARefusedPortIsToldByTheTracker(t *testing.T) {
	alice := newMessenger(t, messenger.Options{DeliveryTimeout: 200 * time.Millisecond})
	hop := freePort(t)
	tr := put(t, alice, &messenger.Message{Address: "amqp://" + hop})
	o, err := wait(t, tr)
	var op *net.OpError
	if o.State != messenger.Released || !errors.Is(err, messenger.ErrNotSent) || !errors.As(err, &op) {
		t.Errorf("outcome %v %v, want released, not sent, and the refused connection", o.State, err)
	}
	if _, err := alice.Subscribe(within(t), "amqp://"+hop+"/q", nil); !errors.As(err, &op) {
		t.Errorf("subscribe: %v", err)
	}
}

func TestAMessageExpiresWhileItWaits(t *testing.T) {
	alice := newMessenger(t, messenger.Options{})
	tr := put(t, alice, &messenger.Message{Address: "amqp://" + freePort(t), TTL: 50 * time.Millisecond})
	if o, err := wait(t, tr); o.State != messenger.Released || !errors.Is(err, messenger.ErrNotSent) {
		t.Errorf("outcome %v %v", o.State, err)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	alice, err := messenger.New(messenger.Options{})
	must(t, err)
	bob := newMessenger(t, messenger.Options{})
	add(t, alice, "Q", listen(t, bob))
	add(t, alice, "AWAY", "amqp://"+freePort(t))
	sent := put(t, alice, &messenger.Message{Address: "Q"})
	d := get(t, bob)
	waiting := put(t, alice, &messenger.Message{Address: "AWAY"})
	getErr := make(chan error, 1)
	go func() {
		_, err := alice.Get(context.Background())
		getErr <- err
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := alice.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close with something unsent: %v", err)
	}
	if err := <-getErr; !errors.Is(err, messenger.ErrClosed) {
		t.Errorf("get: %v, want ErrClosed", err)
	}
	if o, err := wait(t, sent); o.State != messenger.Modified || !errors.Is(err, messenger.ErrInDoubt) || !o.DeliveryFailed {
		t.Errorf("sent: %v %v, want modified, in doubt", o.State, err)
	}
	if o, err := wait(t, waiting); o.State != messenger.Released || !errors.Is(err, messenger.ErrClosed) {
		t.Errorf("waiting: %v %v, want released, closed", o.State, err)
	}
	if _, err := alice.Put(within(t), &messenger.Message{Address: "Q"}); !errors.Is(err, messenger.ErrClosed) {
		t.Errorf("put: %v, want ErrClosed", err)
	}
	must(t, alice.Close(within(t)))
	must(t, ignoreLost(d.Accept())) // its end of the link may not have heard yet
}

func TestCloseSendsWhatWaits(t *testing.T) {
	alice, err := messenger.New(messenger.Options{})
	must(t, err)
	bob := newMessenger(t, messenger.Options{Prefetch: 1000})
	add(t, alice, "Q", listen(t, bob))
	for range 500 {
		put(t, alice, &messenger.Message{Address: "Q", Settled: true, Body: make([]byte, 1000)})
	}
	must(t, alice.Close(within(t)))
	for range 500 {
		get(t, bob)
	}
}

func ignoreLost(err error) error {
	if errors.Is(err, messenger.ErrLost) {
		return nil
	}
	return err
}
