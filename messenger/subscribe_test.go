package messenger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/messenger"
)

func TestSubscribe(t *testing.T) {
	b := newBroker(t, "", "")
	alice := newMessenger(t, messenger.Options{Name: "alice", Prefetch: 2})
	url := "amqp://" + b.addr()
	sub, err := alice.Subscribe(within(t), url+"/QUEUE", nil)
	must(t, err)
	if sub.Address() != "QUEUE" {
		t.Errorf("address %q", sub.Address())
	}
	for range 5 {
		wait(t, put(t, alice, &messenger.Message{Address: url + "/QUEUE", Body: []byte("x")}))
	}
	for range 5 {
		d := get(t, alice)
		if d.Subscription() != sub || string(d.Message.Body) != "x" {
			t.Errorf("by %v: %q", d.Subscription(), d.Message.Body)
		}
		must(t, d.Accept())
	}
	must(t, sub.Close(within(t)))
	if !errors.Is(sub.Err(), messenger.ErrClosed) {
		t.Errorf("err %v", sub.Err())
	}
}

func TestSubscribeIsRoutedLikeAPut(t *testing.T) {
	b1, b2 := newBroker(t, "", ""), newBroker(t, "", "")
	alice := newMessenger(t, messenger.Options{})
	add(t, alice, "ORDERS", "amqp://"+b1.addr()+"/orders")
	add(t, alice, "ORDERS", "amqp://"+b2.addr()) // without a name: the address as it is
	sub, err := alice.Subscribe(within(t), "ORDERS", nil)
	must(t, err)
	put(t, alice, &messenger.Message{Address: "ORDERS"})
	must(t, get(t, alice).Accept())
	must(t, get(t, alice).Accept())
	must(t, sub.Close(within(t)))
	for address, want := range map[string]error{"NOWHERE": messenger.ErrNoRoute, "NULL": messenger.ErrNoRoute} {
		if address == "NULL" {
			add(t, alice, "NULL", "null")
		}
		if _, err := alice.Subscribe(within(t), address, nil); !errors.Is(err, want) {
			t.Errorf("subscribe %s: %v, want %v", address, err, want)
		}
	}
	var ae *messenger.AddressError
	if _, err := alice.Subscribe(within(t), "amqp://"+b1.addr(), nil); !errors.As(err, &ae) {
		t.Errorf("subscribe without a name: %v", err)
	}
}

func TestADynamicSource(t *testing.T) {
	b := newBroker(t, "", "")
	url := "amqp://" + b.addr()
	alice := newMessenger(t, messenger.Options{})
	for _, x := range []struct {
		address string
		o       *messenger.SubscribeOptions
	}{{url + "/#", nil}, {url, &messenger.SubscribeOptions{Dynamic: true}}} {
		sub, err := alice.Subscribe(within(t), x.address, x.o)
		must(t, err)
		if sub.Address() == "" || sub.Address() == "#" {
			t.Fatalf("address %q", sub.Address())
		}
		put(t, alice, &messenger.Message{Address: url + "/" + sub.Address()})
		d := get(t, alice)
		if d.Subscription() != sub {
			t.Error("it came by another")
		}
		must(t, d.Accept())
	}
}

func TestARefusedSubscription(t *testing.T) {
	b := newBroker(t, "", "")
	b.refuse["secret"] = &engine.LinkError{Condition: "amqp:unauthorized-access", Text: "not you"}
	alice := newMessenger(t, messenger.Options{})
	var e *messenger.Error
	if _, err := alice.Subscribe(within(t), "amqp://"+b.addr()+"/secret", nil); !errors.As(err, &e) || e.Condition != "amqp:unauthorized-access" {
		t.Errorf("subscribe: %v", err)
	}
	tr := put(t, alice, &messenger.Message{Address: "amqp://" + b.addr() + "/secret"})
	if o, err := wait(t, tr); o.State != messenger.Released || !errors.As(err, &e) || e.Description != "not you" {
		t.Errorf("put: %v %v", o.State, err)
	}
}

func TestASubscriptionComesBackWithItsPeer(t *testing.T) {
	b := newBroker(t, "", "")
	address := b.addr()
	alice := newMessenger(t, messenger.Options{})
	sub, err := alice.Subscribe(within(t), "amqp://"+address+"/q", nil)
	must(t, err)
	wait(t, put(t, alice, &messenger.Message{Address: "amqp://" + address + "/q", Body: []byte("before")}))
	d := get(t, alice)
	b.cut()
	b.stop()
	newBroker(t, address, "")
	for { // what goes to the old connection before its end is noticed is in doubt
		o, err := wait(t, put(t, alice, &messenger.Message{Address: "amqp://" + address + "/q", Body: []byte("after")}))
		if o.State == messenger.Accepted {
			break
		}
		if !errors.Is(err, messenger.ErrInDoubt) {
			t.Fatal(err)
		}
	}
	if again := get(t, alice); string(again.Message.Body) != "after" || again.Subscription() != sub {
		t.Errorf("got %q", again.Message.Body)
	} else {
		must(t, again.Accept())
	}
	if err := d.Accept(); !errors.Is(err, messenger.ErrLost) {
		t.Errorf("accept over the lost link: %v, want ErrLost", err)
	}
	select {
	case <-sub.Done():
		t.Error("the subscription is over:", sub.Err())
	default:
	}
}

func TestAPeerEndsASubscription(t *testing.T) {
	b := newBroker(t, "", "")
	alice := newMessenger(t, messenger.Options{})
	sub, err := alice.Subscribe(within(t), "amqp://"+b.addr()+"/q", nil)
	must(t, err)
	b.mu.Lock()
	c := anyConn(b)
	b.queues["q"].links[0].Detach(&engine.LinkError{Condition: "amqp:resource-deleted"})
	c.c.Release()
	select {
	case <-sub.Done():
	case <-within(t).Done():
		t.Fatal("it was not told")
	}
	var e *messenger.Error
	if !errors.As(sub.Err(), &e) || e.Condition != "amqp:resource-deleted" {
		t.Errorf("err %v", sub.Err())
	}
}

func anyConn(b *broker) *brokerConn {
	for c := range b.conns {
		return c
	}
	return nil
}

func TestLinksAreTargetedByTheHopsName(t *testing.T) {
	b := newBroker(t, "", "")
	alice := newMessenger(t, messenger.Options{})
	add(t, alice, "A", "amqp://"+b.addr()+"/x/y?z")
	add(t, alice, "B", "amqp://"+b.addr()+"/")
	add(t, alice, "C", "amqp://"+b.addr())
	for _, a := range []string{"A", "B", "C"} {
		wait(t, put(t, alice, &messenger.Message{Address: a}))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := b.targets; len(got) != 3 || got[0] != "x/y?z" || got[1] != "" || got[2] != "-" {
		t.Errorf("targets %q", got)
	}
	if len(b.conns) != 1 {
		t.Errorf("%d connections to one endpoint", len(b.conns))
	}
}

func TestMessagesWaitForTheirPeer(t *testing.T) {
	address := freePort(t)
	alice := newMessenger(t, messenger.Options{})
	var trackers []*messenger.Tracker
	for range 10 {
		trackers = append(trackers, put(t, alice, &messenger.Message{Address: "amqp://" + address + "/q"}))
	}
	newBroker(t, address, "")
	for _, tr := range trackers {
		if o, err := wait(t, tr); o.State != messenger.Accepted {
			t.Errorf("outcome %v %v", o.State, err)
		}
	}
}

func TestReconnectAfterTheListenerRestarts(t *testing.T) {
	alice := newMessenger(t, messenger.Options{})
	bob, err := messenger.New(messenger.Options{})
	must(t, err)
	ln, err := bob.Listen(within(t), "127.0.0.1:0", nil)
	must(t, err)
	address := ln.Addr().String()
	add(t, alice, "COLOSSUS", address)
	sent := put(t, alice, &messenger.Message{Address: "COLOSSUS"})
	get(t, bob)
	must(t, bob.Close(within(t)))
	if o, err := wait(t, sent); o.State != messenger.Modified || !errors.Is(err, messenger.ErrInDoubt) {
		t.Errorf("without an outcome: %v %v, want modified, in doubt", o.State, err)
	}
	tr := put(t, alice, &messenger.Message{Address: "COLOSSUS", Body: []byte("again")})
	carol := newMessenger(t, messenger.Options{})
	if _, err := carol.Listen(within(t), address, nil); err != nil {
		t.Fatal(err)
	}
	d := get(t, carol)
	if string(d.Message.Body) != "again" {
		t.Errorf("got %q", d.Message.Body)
	}
	must(t, d.Accept())
	if _, err := wait(t, tr); err != nil {
		t.Error(err)
	}
}

func TestCredentials(t *testing.T) {
	b := newBroker(t, "", "p@ss/w:rd")
	alice := newMessenger(t, messenger.Options{})
	good := "amqp://user:p%40ss%2Fw%3Ard@" + b.addr() + "/q"
	if o, err := wait(t, put(t, alice, &messenger.Message{Address: good, ReplyTo: good})); o.State != messenger.Accepted {
		t.Fatal(o.State, err)
	}
	b.mu.Lock()
	if len(b.users) != 1 || b.users[0] != "user" {
		t.Errorf("users %q", b.users)
	}
	b.mu.Unlock()
	_, err := alice.Subscribe(within(t), good, nil)
	must(t, err)
	if d := get(t, alice); d.Message.Address != "amqp://"+b.addr()+"/q" || d.Message.ReplyTo != d.Message.Address {
		t.Errorf("to %q, reply-to %q went out", d.Message.Address, d.Message.ReplyTo)
	}
	start := time.Now()
	tr := put(t, alice, &messenger.Message{Address: "amqp://user:wrong@" + b.addr() + "/q"})
	o, err := wait(t, tr)
	if o.State != messenger.Released || !errors.Is(err, messenger.ErrAuthentication) || time.Since(start) > 10*time.Second {
		t.Errorf("a wrong password: %v %v", o.State, err)
	}
	if got := tr.Copies()[0].Hop; got != "amqp://***@"+b.addr()+"/q" {
		t.Errorf("hop %q", got)
	}
}

func TestPlainInClear(t *testing.T) {
	alice := newMessenger(t, messenger.Options{})
	tr := put(t, alice, &messenger.Message{Address: "amqp://user:secret@192.0.2.1/q"})
	if o, err := wait(t, tr); o.State != messenger.Released || !errors.Is(err, messenger.ErrInsecurePlain) {
		t.Errorf("got %v %v", o.State, err)
	}
}
