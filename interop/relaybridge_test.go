package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/internal/websocket"
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

// pushedOp is an op as it comes.
type pushedOp struct {
	Op, Topic, ID, From, Role, Code string
	Data                            json.RawMessage
}

// next reads a message of one op; ok is false where the connection has ended.
func (p *relayPeer) next() (o pushedOp, ok bool) {
	p.t.Helper()
	m, _, err := p.ws.Next()
	if err != nil {
		return o, false
	}
	var ops []pushedOp
	if err := json.Unmarshal(m.Data, &ops); err != nil || len(ops) != 1 {
		p.t.Errorf("%v: %d ops where one was wanted", err, len(ops))
		return o, false
	}
	return ops[0], true
}

func jsonMessage(data, replyTo string) *amqp.Message {
	contentType := "application/json"
	m := amqp.NewMessage([]byte(data))
	m.Properties = &amqp.MessageProperties{ContentType: &contentType, MessageID: "m-1"}
	if replyTo != "" {
		m.Properties.ReplyTo = &replyTo
	}
	return m
}

// The ids of requests that were messages can be guessed. Nobody who serves another topic, or another domain, answers them.
func TestOnlyItsTopicAnswersAMessage(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	session := dialGo(t, r.url())
	answers, err := session.NewReceiver(within(t), "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		t.Fatal(err)
	}
	servers, asked := map[string]*relayPeer{}, map[string]pushedOp{}
	for _, of := range []struct{ domain, topic, token string }{
		{"acme", "echo", "cf-server-Lw0e"}, {"acme", "other", "cf-server-Lw0e"}, {"other", "echo", "cf-other-Hk55"},
	} {
		address := of.domain + "/" + of.topic
		r.ctl(t, "add", address, "relay:"+address)
		s := r.dialIn(t, of.domain, of.token, nil)
		s.send(fmt.Sprintf(`[{"op":"serve","topic":%q}]`, of.topic))
		s.expect(roleActive)
		sender, err := session.NewSender(within(t), address, nil)
		if err != nil {
			t.Fatal(err)
		}
		if o := sendOne(t, sender, jsonMessage(`"who are you?"`, answers.Address())); o != "accepted" {
			t.Fatalf("%s: %s", address, o)
		}
		servers[address] = s
		asked[address], _ = s.next()
	}
	answer := func(from string, q pushedOp) pushedOp {
		own := asked[from]
		servers[from].send(fmt.Sprintf(`[{"op":"head","topic":%q,"id":%q,"to":%q,"data":%q,"done":true}]`, own.Topic, q.ID, own.From, from))
		o, _ := servers[from].next()
		return o
	}
	const mine = "acme/echo"
	for _, foreign := range []string{"acme/other", "other/echo"} {
		if o := answer(foreign, asked[mine]); o.Op != "head:error" || o.Code != "client_gone" {
			t.Errorf("%s answers a request of %s: got %+v, want client_gone", foreign, mine, o)
		}
	}
	if o := answer(mine, asked[mine]); o.Op != "head:ok" {
		t.Errorf("the server that was asked: got %+v, want head:ok", o)
	}
	m, err := answers.Receive(within(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(m.GetData()), `"`+mine+`"`; got != want {
		t.Errorf("the answer: got %s, want %s", got, want)
	}
}

// Messages that a server's connection does not take any more are released; where another server stands by, it has them, and they are accepted.
func TestMessagesThatAServerLeavesAreReleased(t *testing.T) {
	t.Parallel()
	for _, standby := range []bool{false, true} {
		t.Run(fmt.Sprintf("standby %v", standby), func(t *testing.T) {
			t.Parallel()
			r := startRelay(t)
			r.ctl(t, "add", "orders", "relay:acme/echo")
			ws, err := websocket.Dial(within(t), r.web+"/api/acme/relay/connect?token=cf-server-Lw0e", websocket.DialOptions{})
			if err != nil {
				t.Fatal(err)
			}
			first := &relayPeer{t, ws}
			first.send(serveEcho)
			first.expect(roleActive)
			came := make(chan int, 1)
			if standby {
				second := r.dial(t, "cf-server-Lw0e", nil)
				second.send(serveEcho)
				second.expect(roleStandby)
				go func() { came <- countHeads(second) }()
			}
			const messages = 16 // of 0.9 MB: more than a socket takes
			outcomes := sendUnread(t, r, messages, func() { ws.End(0, "") })
			if standby {
				if outcomes["accepted"] != messages {
					t.Errorf("got %v, want %d accepted", outcomes, messages)
				}
				r.stop()
				if n := <-came; n == 0 {
					t.Error("the standby got none")
				}
			} else if outcomes["released"] == 0 || outcomes["released"]+outcomes["accepted"] != messages {
				t.Errorf("got %v, want %d accepted or released, and some released", outcomes, messages)
			}
		})
	}
}

// sendUnread sends large messages to a server that reads nothing, and when the router has them all has it end. It counts the outcomes.
func sendUnread(t *testing.T, r *relayRouter, messages int, end func()) map[string]int {
	t.Helper()
	sender, err := dialGo(t, r.url()).NewSender(within(t), "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	large := jsonMessage(`"`+strings.Repeat("y", 900_000)+`"`, "")
	var receipts []amqp.SendReceipt
	for range messages {
		receipt, err := sender.SendWithReceipt(within(t), large, nil)
		if err != nil {
			t.Fatal(err)
		}
		receipts = append(receipts, receipt)
	}
	eventually(t, "the router has the messages", func() bool {
		return strings.Contains(httpGet(t, "http"+strings.TrimPrefix(r.web, "ws")+"/metrics"), fmt.Sprintf("\nfingerpost_messages_received_total %d\n", messages))
	})
	end()
	outcomes := map[string]int{}
	for _, receipt := range receipts {
		state, err := receipt.Wait(within(t))
		if err != nil {
			t.Fatal(err)
		}
		outcomes[stateInWords(state)]++
	}
	return outcomes
}

// countHeads reads until the connection ends.
func countHeads(p *relayPeer) (n int) {
	for {
		o, ok := p.next()
		if !ok {
			return n
		}
		if o.Op == "head" {
			n++
		}
	}
}
