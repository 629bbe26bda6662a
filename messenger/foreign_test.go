package messenger_test

import (
	"errors"
	"testing"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/messenger"
)

// TestAForeignClient sends to a listener, and asks for replies, with another library.
func TestAForeignClient(t *testing.T) {
	bob := newMessenger(t, messenger.Options{})
	c, err := amqp.Dial(within(t), listen(t, bob), nil)
	must(t, err)
	defer c.Close()
	s, err := c.NewSession(within(t), nil)
	must(t, err)
	r, err := s.NewReceiver(within(t), "", &amqp.ReceiverOptions{DynamicAddress: true})
	must(t, err)
	sender, err := s.NewSender(within(t), "COLOSSUS", nil)
	must(t, err)

	replyTo := r.Address()
	sent := make(chan error, 1)
	go func() {
		m := amqp.NewMessage([]byte("hello"))
		m.Properties = &amqp.MessageProperties{ReplyTo: &replyTo, MessageID: "1"}
		sent <- sender.Send(within(t), m, nil)
	}()
	d := get(t, bob)
	if d.LinkTarget() != "COLOSSUS" || d.Message.ReplyTo != replyTo || string(d.Message.Body) != "hello" {
		t.Errorf("target %q, message %+v", d.LinkTarget(), d.Message)
	}
	tr := put(t, bob, &messenger.Message{Address: d.Message.ReplyTo, CorrelationID: d.Message.MessageID, Value: map[string]any{"k": int64(1)}})
	must(t, d.Reject(&messenger.Error{Condition: "acme:no", Description: "no"}))
	var de *amqp.Error
	if err := <-sent; !errors.As(err, &de) || de.Condition != "acme:no" {
		t.Errorf("send: %v", err)
	}
	m, err := r.Receive(within(t), nil)
	must(t, err)
	if v, ok := m.Value.(map[string]any); !ok || v["k"] != int64(1) || m.Properties.CorrelationID != "1" {
		t.Errorf("reply %#v %+v", m.Value, m.Properties)
	}
	must(t, r.ReleaseMessage(within(t), m))
	if o, err := wait(t, tr); o.State != messenger.Released {
		t.Errorf("outcome %v %v", o.State, err)
	}
}
