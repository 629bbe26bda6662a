package forwarder_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// slow is an entity type whose list takes as long as the test wants.
type slow struct {
	began chan struct{}
	end   chan struct{}
}

func (slow) Type() string         { return "slow" }
func (slow) Attributes() []string { return nil }
func (s slow) List() []admin.Entity {
	s.began <- struct{}{}
	<-s.end
	return nil
}

// asker is a management client.
type asker struct {
	t       *testing.T
	door    *amqp.Sender
	replies *amqp.Receiver
}

func (r *router) asker(t *testing.T) *asker {
	t.Helper()
	s := r.session()
	replies, err := s.NewReceiver(within(t), "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		t.Fatal(err)
	}
	door, err := s.NewSender(within(t), "$management", nil)
	if err != nil {
		t.Fatal(err)
	}
	return &asker{t, door, replies}
}

func (a *asker) send(id, operation, kind string, body map[string]any) {
	a.t.Helper()
	reply := a.replies.Address()
	err := a.door.Send(within(a.t), &amqp.Message{
		Properties:            &amqp.MessageProperties{ReplyTo: &reply, MessageID: id},
		ApplicationProperties: map[string]any{"operation": operation, "entityType": kind},
		Value:                 body,
	}, &amqp.SendOptions{Settled: true})
	if err != nil {
		a.t.Fatal(err)
	}
}

// next is the correlation id of the next message and its event.
func (a *asker) next() (id, event string) {
	a.t.Helper()
	m, err := a.replies.Receive(within(a.t), nil)
	if err != nil {
		a.t.Fatal(err)
	}
	if err := a.replies.AcceptMessage(within(a.t), m); err != nil {
		a.t.Fatal(err)
	}
	event, _ = m.ApplicationProperties["event"].(string)
	return fmt.Sprint(m.Properties.CorrelationID), event
}

// startOn is start, with a core of the test's.
func startOn(t *testing.T, core *admin.Core) *router {
	t.Helper()
	n := forwarder.New(core, forwarder.Options{})
	addr, err := n.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		n.Stop(ctx)
	})
	return &router{t: t, node: n, table: core.Table(), url: "amqp://" + addr.String()}
}

func TestALongRequestHoldsUpItsOwnConnectionOnly(t *testing.T) {
	core := admin.New(routetable.New(), admin.Options{})
	s := slow{make(chan struct{}), make(chan struct{})}
	core.Register(s)
	r := startOn(t, core)
	alice, bob := r.asker(t), r.asker(t)
	alice.send("a1", "QUERY", "slow", nil)
	<-s.began
	alice.send("a2", "QUERY", "table", nil)
	bob.send("b1", "QUERY", "table", nil)
	if id, _ := bob.next(); id != "b1" {
		t.Errorf("bob got the answer to %s", id)
	}
	close(s.end)
	for _, want := range []string{"a1", "a2"} {
		if id, _ := alice.next(); id != want {
			t.Errorf("got the answer to %s, want %s", id, want)
		}
	}
}

func TestRequestsOfOneConnectionAreAnsweredInOrder(t *testing.T) {
	r := start(t, forwarder.Options{})
	const askers, each = 4, 50
	done := make(chan struct{})
	for range askers {
		a := r.asker(t)
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range each {
				a.send(fmt.Sprint(i), "QUERY", "table", nil)
			}
		}()
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range each {
				if id, _ := a.next(); id != fmt.Sprint(i) {
					t.Errorf("got the answer to %s, want %d", id, i)
					return
				}
			}
		}()
	}
	for range 2 * askers {
		<-done
	}
}

func TestAWatchEndsWhereItIsRefused(t *testing.T) {
	core := admin.New(routetable.New(), admin.Options{})
	r := startOn(t, core)
	a := r.asker(t)
	a.send("w", "WATCH", "", map[string]any{"snapshot": true})
	if id, event := a.next(); id != "w" || event != "" {
		t.Errorf("got %s, event %q", id, event)
	}
	m, err := a.replies.Receive(within(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.ApplicationProperties["event"] != "snapshot" {
		t.Errorf("got %v", m.ApplicationProperties)
	}
	if err := a.replies.RejectMessage(within(t), m, nil); err != nil {
		t.Fatal(err)
	}
	for ctx := within(t); core.Watches() > 0 && ctx.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
	if _, err := r.table.Add("X", "null"); err != nil {
		t.Fatal(err)
	}
	a.send("q", "QUERY", "table", nil)
	if id, event := a.next(); id != "q" || event != "" || core.Watches() != 0 {
		t.Errorf("after the watch ended: got %s, event %q, %d watches", id, event, core.Watches())
	}
}

func TestManagementIsCountedApart(t *testing.T) {
	r := start(t, forwarder.Options{}, "HAL9000 --> null")
	a := r.asker(t)
	a.send("1", "QUERY", "route", map[string]any{"attributeNames": []any{}})
	a.next()
	reply := a.replies.Address()
	err := a.door.Send(within(t), &amqp.Message{
		Properties:            &amqp.MessageProperties{ReplyTo: &reply, MessageID: "2"},
		ApplicationProperties: map[string]any{"operation": "QUERY", "entityType": "route"},
		Value:                 map[string]any{"attributeNames": []any{}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.next()
	if err := r.sender("HAL9000").Send(within(t), message("", "x"), nil); err != nil {
		t.Fatal(err)
	}
	got := r.node.Counters()
	want := map[string]uint64{"management": 2, "managementAnswers": 2, "received": 1, "accepted": 1, "discarded": 1, "copies": 0, "unrouted": 0}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s: got %d, want %d", name, got[name], n)
		}
	}
}
