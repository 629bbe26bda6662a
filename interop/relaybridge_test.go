package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/Azure/go-amqp"
)

// A message whose row leads to a topic of the relay is a request there; its response goes to its reply-to.
func TestAMessageIsARequestOfTheRelay(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	r.ctl(t, "add", "orders", "relay:acme/echo")
	s := r.dial(t, "cf-server-Lw0e", nil)
	s.send(serveEcho)
	s.expect(`"serve:ok"`, roleActive)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := amqp.Dial(ctx, r.url(), &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	session, err := c.NewSession(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := session.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		t.Fatal(err)
	}
	orders, err := session.NewSender(ctx, "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	json1, text, to := "application/json", "text/plain", answers.Address()
	message := func(contentType *string, parts ...string) *amqp.Message {
		m := &amqp.Message{Properties: &amqp.MessageProperties{ContentType: contentType, ReplyTo: &to, MessageID: "m-7"}}
		for _, p := range parts {
			m.Data = append(m.Data, []byte(p))
		}
		return m
	}
	for what, m := range map[string]*amqp.Message{
		"no content type": message(nil, `{}`), "another": message(&text, `{}`), "no JSON": message(&json1, `{`), "two sections": message(&json1, `{}`, `{}`), "none": message(&json1),
	} {
		var rejected *amqp.Error
		if err := orders.Send(ctx, m, nil); !errors.As(err, &rejected) || rejected.Condition != amqp.ErrCondNotAllowed {
			t.Errorf("%s: %v", what, err)
		}
	}
	const data = `{"n": 12345678901234567890.0, "s":"\u0041"}`
	if err := orders.Send(ctx, message(&json1, data), nil); err != nil {
		t.Fatal(err)
	}
	m, _, err := s.ws.Next()
	if err != nil {
		t.Fatal(err)
	}
	var ops []struct {
		Op, Topic, ID, From string
		Data                json.RawMessage
		Done                bool
	}
	if err := json.Unmarshal(m.Data, &ops); err != nil || len(ops) != 1 || ops[0].Op != "head" || ops[0].Topic != "echo" || string(ops[0].Data) != data || !ops[0].Done {
		t.Fatalf("%v: %s", err, m.Data)
	}
	s.send(fmt.Sprintf(`[{"op":"head","topic":"echo","id":%q,"to":%q,"data":{"ok" :1},"done":true,"ref":"a"}]`, ops[0].ID, ops[0].From))
	s.expect(`"head:ok"`, `"ref":"a"`)
	s.send(fmt.Sprintf(`[{"op":"body","topic":"echo","id":%q,"to":%q,"data":"late","ref":"b"}]`, ops[0].ID, ops[0].From))
	s.expect(`"body:error"`, `"client_gone"`)
	answer, err := answers.Receive(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p := answer.Properties; string(answer.GetData()) != `{"ok" :1}` || p == nil || p.CorrelationID != "m-7" || p.ContentType == nil || *p.ContentType != json1 {
		t.Errorf("the response: %s %+v", answer.GetData(), p)
	}
}
