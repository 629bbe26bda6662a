package mesh

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
)

// A client of AMQP asks a method of Rembus by one row of an operator, at its own router and at another's.
func TestAMQPAsksRembus(t *testing.T) {
	routers := meshOf(t, 2, [2]int{1, 0})
	hears := routers[0].component("hears", "near")
	near, far := routers[0].component("exposer"), routers[1].component("distant")
	near.admin("near", "expose")
	far.admin("far", "expose")
	routers[0].knows("rpc:far", 1)
	for name, address := range map[string]string{"near": "rpc:near", "far": "rpc:far", "direct": "node:exposer"} {
		if _, err := routers[0].table.Add(name, address); err != nil {
			t.Fatal(err)
		}
	}
	s := routers[0].session()
	answers, err := s.NewReceiver(within(t), "", &amqp.ReceiverOptions{DynamicAddress: true, Credit: 10})
	if err != nil {
		t.Fatal(err)
	}
	replyTo, kind, method := answers.Address(), contentCBOR, "near"
	for _, c := range []struct {
		name    string
		to      string
		who     *client
		body    []byte
		kind    *string
		asked   string // the arguments
		status  Status
		answer  string
		want    string // data of the answer
		content string // and its type
	}{
		{"bytes both ways", "near", near, []byte{0xde, 0xad}, nil, "8142dead", StatusOK, "42beef", "beef", ""},
		{"CBOR both ways", "near", near, []byte{0x82, 1, 2}, &kind, "820102", StatusOK, "03", "03", contentCBOR},
		{"a method that fails", "near", near, []byte{0x80}, &kind, "80", StatusException, "636f7570", "636f7570", contentCBOR},
		{"by the next router", "far", far, []byte{0x82, 1, 2}, &kind, "820102", StatusOK, "f6", "f6", contentCBOR},
		{"by name", "direct", near, []byte{0x80}, &kind, "80", StatusOK, "01", "01", contentCBOR},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &amqp.Message{Data: [][]byte{c.body}, Properties: &amqp.MessageProperties{ReplyTo: &replyTo, MessageID: uint64(7), ContentType: c.kind, Subject: &method}}
			if err := sender(t, s, c.to).Send(within(t), m, nil); err != nil {
				t.Fatal(err)
			}
			f := c.who.request()
			if got := fmt.Sprintf("%x", f.Data); got != c.asked || (f.Target != nil) != (c.to == "direct") {
				t.Errorf("it is asked %+v", f)
			}
			c.who.send(&Frame{Type: Response, ID: f.ID, Status: c.status, Data: unhex(t, c.answer)})
			a := next(t, answers)
			answers.AcceptMessage(within(t), a)
			content := ""
			if a.Properties.ContentType != nil {
				content = *a.Properties.ContentType
			}
			if got := fmt.Sprintf("%x", a.GetData()); got != c.want || content != c.content || a.Properties.CorrelationID != uint64(7) || a.ApplicationProperties[statusProperty] != uint32(c.status) {
				t.Errorf("got %s %s, %+v, %v", got, content, a.Properties, a.ApplicationProperties)
			}
		})
	}
	for name, m := range map[string]*amqp.Message{"a value": {Value: "x"}, "half an item": {Data: [][]byte{{0x82, 1}}, Properties: &amqp.MessageProperties{ContentType: &kind}}} {
		var refused *amqp.Error
		if err := sender(t, s, "near").Send(within(t), m, nil); !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f := hears.publish(); fmt.Sprintf("%x", f.Data) != "8142dead" { // who subscribes to a method's name hears what it was asked
		t.Errorf("got %+v", f)
	}
}

// request gives the next request.
func (c *client) request() Frame {
	c.t.Helper()
	for {
		if f := c.next(); f.Type == Request {
			return f
		}
	}
}

// Who asks over AMQP a method that does not answer is told so.
func TestAMQPAsksInVain(t *testing.T) {
	r := startRouter(t, Options{RequestTimeout: 20 * time.Millisecond})
	r.component("exposer").admin("m", "expose")
	if _, err := r.table.Add("m", "rpc:m"); err != nil {
		t.Fatal(err)
	}
	s := r.session()
	answers, err := s.NewReceiver(within(t), "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		t.Fatal(err)
	}
	replyTo := answers.Address()
	if err := sender(t, s, "m").Send(within(t), &amqp.Message{Data: [][]byte{{1}}, Properties: &amqp.MessageProperties{ReplyTo: &replyTo}}, nil); err != nil {
		t.Fatal(err)
	}
	if a := next(t, answers); a.ApplicationProperties[statusProperty] != uint32(StatusTimeout) {
		t.Errorf("got %+v", a)
	}
}

// A component asks a method that a program of AMQP runs, by one row of an operator, at its own router and at another's.
func TestRembusAsksAMQP(t *testing.T) {
	routers := meshOf(t, 2, [2]int{1, 0})
	if _, err := routers[1].table.Add("rpc:sum", "route:sums"); err != nil {
		t.Fatal(err)
	}
	routers[0].knows("rpc:sum", 1)
	s := routers[1].session()
	requests := receiver(t, s, "sums")
	for i, r := range routers {
		caller := r.component(fmt.Sprintf("caller%d", i))
		hears := r.component(fmt.Sprintf("hears%d", i), "sum")
		for j, c := range []struct {
			answer *amqp.Message
			status Status
			want   string
		}{
			{amqp.NewMessage([]byte{0xbe, 0xef}), StatusOK, "42beef"},
			{&amqp.Message{Data: [][]byte{{3}}, Properties: &amqp.MessageProperties{ContentType: pointer(contentCBOR)}}, StatusOK, "03"},
			{&amqp.Message{Data: [][]byte{{0xf6}}, Properties: &amqp.MessageProperties{ContentType: pointer(contentCBOR)}, ApplicationProperties: map[string]any{statusProperty: uint32(40)}}, StatusException, "f6"},
		} {
			id := number(uint64(1000 + j))
			caller.send(&Frame{Type: Request, ID: id, Name: []byte("sum"), Data: []byte{0x82, 1, 2}})
			m := next(t, requests)
			requests.AcceptMessage(within(t), m)
			if !bytes.Equal(m.GetData(), []byte{0x82, 1, 2}) || *m.Properties.ContentType != contentCBOR || m.Properties.CorrelationID == nil {
				t.Errorf("it is asked %x, %+v", m.GetData(), m.Properties)
			}
			answers := sender(t, s, *m.Properties.ReplyTo)
			if err := answers.Send(within(t), c.answer, nil); err != nil {
				t.Error(err)
			}
			f := caller.response()
			if f.ID != id || f.Status != c.status || fmt.Sprintf("%x", f.Data) != c.want {
				t.Errorf("got %+v", f)
			}
			if c.status == StatusOK {
				hears.publish()
			}
			var refused *amqp.Error
			if err := answers.Send(within(t), c.answer, nil); !errors.As(err, &refused) {
				t.Errorf("a second answer: %v", err)
			}
		}
		hears.quiet()
	}
	requests.Close(within(t)) // nobody is there any more
	routers[1].until("the receiver's row is gone", func() bool { return len(routers[1].table.Snapshot().LookupInto(nil, "sums", nil)) == 0 })
	for i, r := range routers {
		if f := r.component(fmt.Sprintf("late%d", i)).ask(&Frame{Type: Request, Name: []byte("sum"), Data: []byte{0x80}}); f.Status != StatusMethodAway {
			t.Errorf("status %d", f.Status)
		}
	}
}

func pointer(s string) *string { return &s }
