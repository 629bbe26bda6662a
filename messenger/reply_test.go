package messenger_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/messenger"
	"github.com/fingerpost/fingerpost/routetable"
)

func TestRequestAndReplyBothWays(t *testing.T) {
	alice, bob := pair(t)
	request := &messenger.Message{Address: "COLOSSUS", ReplyTo: "~", MessageID: "1", Body: []byte("alice asks")}
	put(t, alice, request)
	if request.ReplyTo != "~" {
		t.Errorf("put changed the message's reply-to to %q", request.ReplyTo)
	}
	asked := get(t, bob)
	if !strings.HasPrefix(asked.Message.ReplyTo, "$reply/") {
		t.Fatalf("reply-to %q", asked.Message.ReplyTo)
	}
	must(t, asked.Accept())

	// bob answers, and asks in turn: over the connection that alice opened.
	tr := put(t, bob, &messenger.Message{Address: asked.Message.ReplyTo, CorrelationID: asked.Message.MessageID, ReplyTo: "~/x", Body: []byte("bob asks")})
	answered := get(t, alice)
	if !answered.IsReply() || answered.Message.CorrelationID != "1" || answered.Subscription() != nil || answered.Listener() != nil {
		t.Errorf("reply %v, correlation %v", answered.IsReply(), answered.Message.CorrelationID)
	}
	must(t, answered.Accept())
	if o, err := wait(t, tr); o.State != messenger.Accepted {
		t.Error(err)
	}
	put(t, alice, &messenger.Message{Address: answered.Message.ReplyTo, Body: []byte("alice answers")})
	last := get(t, bob)
	if !last.IsReply() || string(last.Message.Body) != "alice answers" {
		t.Errorf("reply %v %q", last.IsReply(), last.Message.Body)
	}
	must(t, last.Accept())
}

func TestOneAddressForRepliesOnAConnection(t *testing.T) {
	alice, bob := pair(t)
	seen := map[string]bool{}
	for _, replyTo := range []string{"~", "~/x", "~"} {
		put(t, alice, &messenger.Message{Address: "COLOSSUS", ReplyTo: replyTo})
		d := get(t, bob)
		seen[d.Message.ReplyTo] = true
		must(t, d.Accept())
	}
	if len(seen) != 1 {
		t.Errorf("addresses %v", seen)
	}
	put(t, alice, &messenger.Message{Address: "COLOSSUS", ReplyTo: "~x"})
	if d := get(t, bob); d.Message.ReplyTo != "~x" {
		t.Errorf("~x became %q", d.Message.ReplyTo)
	}
}

func TestACatchAllTakesNoReplies(t *testing.T) {
	alice, bob := pair(t)
	add(t, bob, "*", "null")
	put(t, alice, &messenger.Message{Address: "COLOSSUS", ReplyTo: "~"})
	d := get(t, bob)
	put(t, bob, &messenger.Message{Address: d.Message.ReplyTo})
	must(t, get(t, alice).Accept())
}

func TestAReplyToOneWhoHasGone(t *testing.T) {
	_, bob := pair(t)
	alice, err := messenger.New(messenger.Options{})
	must(t, err)
	add(t, alice, "COLOSSUS", listen(t, bob))
	put(t, alice, &messenger.Message{Address: "COLOSSUS", ReplyTo: "~"})
	d := get(t, bob)
	rows := bob.Routes().Snapshot().Len()
	if rows != 1 {
		t.Errorf("%d rows, want that of the reply address", rows)
	}
	gone := make(chan struct{}, 16)
	bob.Routes().OnChange(func(routetable.Change) { gone <- struct{}{} })
	must(t, alice.Close(within(t)))
	select {
	case <-gone:
	case <-within(t).Done():
		t.Fatal("the row of the reply address stayed")
	}
	if _, err := bob.Put(within(t), &messenger.Message{Address: d.Message.ReplyTo}); !errors.Is(err, messenger.ErrNoRoute) {
		t.Errorf("put: %v, want ErrNoRoute", err)
	}
}

func TestABrokerThatGrantsNoAddressForReplies(t *testing.T) {
	b := newBroker(t, "", "")
	b.refuse[""] = &engine.LinkError{Condition: "amqp:not-allowed", Text: "no dynamic nodes"}
	alice := newMessenger(t, messenger.Options{})
	url := "amqp://" + b.addr() + "/q"
	asking := put(t, alice, &messenger.Message{Address: url, ReplyTo: "~"})
	plain := put(t, alice, &messenger.Message{Address: url})
	var e *messenger.Error
	if o, err := wait(t, asking); o.State != messenger.Released || !errors.As(err, &e) || e.Condition != "amqp:not-allowed" {
		t.Errorf("got %v %v", o.State, err)
	}
	if o, err := wait(t, plain); o.State != messenger.Accepted {
		t.Errorf("the next message: %v %v", o.State, err)
	}
}

func TestListenersServeDynamicSourcesOnly(t *testing.T) {
	alice, bob := newMessenger(t, messenger.Options{}), newMessenger(t, messenger.Options{})
	url := listen(t, bob)
	var e *messenger.Error
	if _, err := alice.Subscribe(within(t), url+"/COLOSSUS", nil); !errors.As(err, &e) || e.Condition != "amqp:not-allowed" {
		t.Errorf("subscribe: %v", err)
	}
	sub, err := alice.Subscribe(within(t), url+"/#", nil)
	must(t, err)
	put(t, bob, &messenger.Message{Address: sub.Address()})
	if d := get(t, alice); d.Subscription() != sub {
		t.Error("it came by another")
	}
}

func TestAReplyGoesBackToTheBrokerThatTheRequestCameFrom(t *testing.T) {
	b := newBroker(t, "", "")
	url := "amqp://" + b.addr()
	alice, bob := newMessenger(t, messenger.Options{}), newMessenger(t, messenger.Options{})
	_, err := bob.Subscribe(within(t), url+"/SERVICE", nil)
	must(t, err)
	put(t, alice, &messenger.Message{Address: url + "/SERVICE", ReplyTo: "~", MessageID: "1", CorrelationID: "c"})
	request := get(t, bob)
	answer := &messenger.Message{Address: "ELSEWHERE", Body: []byte("x")}
	tr, err := request.Reply(within(t), answer)
	must(t, err)
	if answer.Address != "ELSEWHERE" || answer.CorrelationID != nil {
		t.Errorf("reply changed the message: %+v", answer)
	}
	if o, err := wait(t, tr); o.State != messenger.Accepted {
		t.Error(err)
	}
	if d := get(t, alice); !d.IsReply() || d.Message.CorrelationID != "c" {
		t.Errorf("reply %v, correlation %v", d.IsReply(), d.Message.CorrelationID)
	}
	put(t, alice, &messenger.Message{Address: url + "/SERVICE"})
	if _, err := get(t, bob).Reply(within(t), answer); !errors.Is(err, messenger.ErrNoRoute) {
		t.Errorf("reply without a reply-to: %v, want ErrNoRoute", err)
	}
}

func TestAReplyIsNotDialled(t *testing.T) {
	b := newBroker(t, "", "")
	url := "amqp://" + b.addr()
	alice, bob := newMessenger(t, messenger.Options{}), newMessenger(t, messenger.Options{})
	_, err := bob.Subscribe(within(t), url+"/SERVICE", nil)
	must(t, err)
	for _, replyTo := range []string{"amqp://alice/replies", "127.0.0.1:9"} {
		put(t, alice, &messenger.Message{Address: url + "/SERVICE", ReplyTo: replyTo})
		tr, err := get(t, bob).Reply(within(t), &messenger.Message{})
		must(t, err)
		if copies := tr.Copies(); len(copies) != 1 || copies[0].Hop != url {
			t.Errorf("the reply to %s goes to %+v, want back to %s", replyTo, copies, url)
		}
	}
}
