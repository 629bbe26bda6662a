package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/go-amqp"
)

// startDirect runs a router whose listener is direct.
func startDirect(t testing.TB) *router {
	t.Helper()
	file := filepath.Join(t.TempDir(), "direct.yaml")
	config := "listeners: [{url: \"amqp://127.0.0.1:0\", direct: true}]\nhttp: {listen: off}\ntables: []\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &router{process: start(t, "router direct", routerProgram, "--config", file)}
	addr, ok := strings.CutPrefix(r.line(), "ready amqp://")
	if !ok {
		t.Fatalf("the router is not ready: it printed %q", addr)
	}
	r.addr = addr
	return r
}

// An address that matches nothing and is an amqp URL is dialled for clients of a direct listener, and for nobody else.
func TestDirectListeners(t *testing.T) {
	direct, plain := startDirect(t), startRouter(t, "plain", rows("NAME", "null"))
	for _, kind := range allClients {
		end := listenRaw(t, nil)
		b := batchOf{to: end.url("inbox"), id: "m", count: 1, sizes: []int{10}}
		sameOutcomes(t, kind+" at a plain listener", sendBy(t, kind, plain.url(), b), "rejected amqp:not-found")
		if n := len(end.all()); n != 0 {
			t.Errorf("%s: %d messages were dialled out for by a plain listener", kind, n)
		}
		sameOutcomes(t, kind+" at a direct listener", sendBy(t, kind, direct.url(), b), "accepted")
		if d := end.wait(t, 1)[0]; d.target != "inbox" {
			t.Errorf("%s: came on a link to %q, want inbox", kind, d.target)
		}
		b.address, b.to = b.to, ""
		sameOutcomes(t, kind+" on a link to it", sendBy(t, kind, direct.url(), b), "accepted")
		end.wait(t, 2)
		for _, to := range []string{"nowhere", "127.0.0.1:" + portOf(end.addr), "http://127.0.0.1/x", "amqp://127.0.0.1:x/y"} {
			b := batchOf{to: to, id: "m", count: 1, sizes: []int{10}}
			sameOutcomes(t, kind+" to "+to, sendBy(t, kind, direct.url(), b), "rejected amqp:not-found")
		}
		// The name in a URL that matches a row is not dialled.
		b = batchOf{to: end.url("NAME"), id: "m", count: 1, sizes: []int{10}}
		sameOutcomes(t, kind+" to a name in a URL", sendBy(t, kind, plain.url(), b), "accepted")
		if n := len(end.all()); n != 2 {
			t.Errorf("%s: the end has %d messages, want 2", kind, n)
		}
	}
}

// Clients from loopback name plain names, topics and events, by a link's target and by the message's own address; nothing else.
func TestSchemesThatClientsMayName(t *testing.T) {
	const refused = "amqp:unauthorized-access"
	r := startRouter(t, "schemes", "")
	for _, address := range []string{"link:1", "peer:a", "route:NAME", "relay:d/T", "rpc:T", "web:a/b/c", "comp:a", "node:1", "admin:", "replay:ring", "LINK:1"} {
		for _, kind := range allClients {
			b := batchOf{to: address, id: "m", count: 1, sizes: []int{1}}
			sameOutcomes(t, kind+" to "+address, sendBy(t, kind, r.url(), b), "rejected "+refused)
			if kind != goAMQP {
				break // one foreign client says as much as two
			}
		}
		if _, err := dialGo(t, r.url()).NewSender(within(t), address, nil); refusal(err) != refused {
			t.Errorf("a link to %s: got %v, want %s", address, err, refused)
		}
		if _, err := dialGo(t, r.url()).NewReceiver(within(t), address, nil); refusal(err) != refused {
			t.Errorf("a receiver on %s: got %v, want %s", address, err, refused)
		}
	}
	for _, kind := range allClients {
		topic := "topic:" + kind
		wait := receiveBy(t, kind, r.url(), topic, 1)
		b := batchOf{to: topic, id: kind, count: 1, sizes: []int{1}}
		sameOutcomes(t, kind+" to "+topic, sendBy(t, kind, r.url(), b), "accepted")
		sameMessages(t, kind, wait(), b.want())
		b.to = "event:req/" + kind // it may be named; what is no event is not one
		sameOutcomes(t, kind+" to "+b.to, sendBy(t, kind, r.url(), b), "rejected amqp:decode-error")
	}
}

// A link on the target $management is the door, whatever its messages say.
func TestTheDoorIsTheDoor(t *testing.T) {
	r := startRouter(t, "door", "")
	session := dialGo(t, r.url())
	other, err := session.NewReceiver(within(t), "NAME", nil)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := session.NewReceiver(within(t), "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := session.NewSender(within(t), "$management", nil)
	if err != nil {
		t.Fatal(err)
	}
	for n, to := range []string{"NAME", "topic:prices", "link:1", "$reply/0000000000000000/x", "amqp://127.0.0.1:9/x"} {
		replyTo := answers.Address()
		m := amqp.NewMessage(nil)
		m.Properties = &amqp.MessageProperties{To: &to, ReplyTo: &replyTo, MessageID: fmt.Sprint(n)}
		m.ApplicationProperties = map[string]any{"operation": "GET-TYPES", "type": "org.amqp.management", "name": "self"}
		if o := sendOne(t, sender, m); o != "accepted" {
			t.Errorf("to %s: got %s, want accepted", to, o)
		}
		answer, err := answers.Receive(within(t), nil)
		if err != nil {
			t.Fatalf("to %s: no answer: %v", to, err)
		}
		answers.AcceptMessage(within(t), answer)
		if answer.Properties.CorrelationID != fmt.Sprint(n) {
			t.Errorf("to %s: got the answer to %v", to, answer.Properties.CorrelationID)
		}
	}
	if m := other.Prefetched(); m != nil {
		t.Errorf("a request came to its own address: %v", m)
	}
}
