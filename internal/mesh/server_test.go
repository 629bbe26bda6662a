package mesh

import (
	"errors"
	"testing"

	"github.com/Azure/go-amqp"
)

// A server relays what it publishes itself alone: what comes by other wires goes to components and to the broker that it is connected to, and what
// those publish to receivers of other wires; nothing goes from one of them to another.
func TestServer(t *testing.T) {
	broker, server := startRouter(t, Options{Name: "broker"}), startRouter(t, Options{Name: "server", Server: true})
	server.join(broker, "server")
	above := broker.component("above", "news")
	server.knowsRow("topic:news", "peer:server")
	below, other := server.component("below", "news"), server.component("other", "news")

	s := server.session()
	rcv := receiver(t, s, "topic:news")
	broker.knows("topic:news", 2) // it is told of the receiver
	for i, c := range []*client{above, below} {
		c.send(&Frame{Type: Publish, Name: []byte("news"), Data: []byte{0x81, byte(i)}})
		m := next(t, rcv)
		rcv.AcceptMessage(within(t), m)
		if m.GetData()[1] != byte(i) {
			t.Errorf("%d: got %x", i, m.GetData())
		}
	}
	told := sent(t, sender(t, s, "topic:news"), &amqp.Message{Data: [][]byte{{0x81, 9}}, Properties: &amqp.MessageProperties{ContentType: pointer(contentCBOR)}})
	for _, c := range []*client{above, below, other} {
		f := c.publish()
		if f.Data[1] != 9 { // and nothing came before
			t.Errorf("%s gets %x", c.name, f.Data)
		}
		if f.QoS() == flagQoS1 {
			c.send(&Frame{Type: Ack, ID: f.ID})
		}
	}
	rcv.AcceptMessage(within(t), next(t, rcv))
	if err := <-told; err != nil {
		t.Error(err)
	}
	rcv.Close(within(t))
	broker.knows("topic:news", 1)

	// Methods: those of other wires here, by all; those of peers, by other wires.
	server.table.Add("rpc:sum", "route:sums")
	server.table.Add("add", "rpc:add")
	below.admin("add", "expose")
	broker.knows("rpc:sum", 1)
	requests := receiver(t, s, "sums")
	for _, c := range []*client{above, below} {
		c.send(&Frame{Type: Request, ID: number(77), Name: []byte("sum"), Data: []byte{0x80}})
		m := next(t, requests)
		requests.AcceptMessage(within(t), m)
		if err := sender(t, s, *m.Properties.ReplyTo).Send(within(t), amqp.NewMessage([]byte{5}), nil); err != nil {
			t.Error(err)
		}
		if f := c.response(); f.Status != StatusOK || f.ID != number(77) {
			t.Errorf("%s gets %+v", c.name, f)
		}
	}
	if err := sender(t, s, "add").Send(within(t), amqp.NewMessage([]byte{1}), nil); err != nil {
		t.Error(err)
	}
	below.request()
	if f := other.ask(&Frame{Type: Request, Name: []byte("add"), Data: []byte{0x80}}); f.Status != StatusNoMethod {
		t.Errorf("status %d", f.Status)
	}
	if f := above.ask(&Frame{Type: Request, Name: []byte("add"), Data: []byte{0x80}}); f.Status != StatusNoMethod {
		t.Errorf("the broker knows a method that is not the server's: status %d", f.Status)
	}
	var refused *amqp.Error
	if err := sender(t, s, "add").Send(within(t), &amqp.Message{Value: 1}, nil); !errors.As(err, &refused) {
		t.Errorf("got %v", err)
	}
}

// knowsRow waits until there is a row.
func (r *router) knowsRow(pattern, address string) {
	r.t.Helper()
	r.until("the row "+pattern+" → "+address+" is there", func() bool {
		for x := range r.table.Snapshot().Routes() {
			if x.Pattern == pattern && x.Address == address {
				return true
			}
		}
		return false
	})
}

// response gives the next answer.
func (c *client) response() Frame {
	c.t.Helper()
	for {
		if f := c.next(); f.Type == Response {
			return f
		}
	}
}
