package events_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/go-amqp"
)

// client is a connection to the node with a container id of its own.
type client struct {
	conn    *amqp.Conn
	session *amqp.Session
	gate    *gate
}

// gate is a socket from which nothing is read while mu is held.
type gate struct {
	net.Conn
	mu    sync.Mutex
	reads int
}

func (g *gate) Read(b []byte) (int, error) {
	g.mu.Lock()
	g.reads++
	g.mu.Unlock()
	return g.Conn.Read(b)
}

func (n *node) dial(container string) *client {
	n.t.Helper()
	nc, err := net.Dial("tcp", n.address)
	if err != nil {
		n.t.Fatal(err)
	}
	c := &client{gate: &gate{Conn: nc}}
	if c.conn, err = amqp.NewConn(n.t.Context(), c.gate, &amqp.ConnOptions{ContainerID: container}); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { nc.Close(); c.conn.Close() })
	if c.session, err = c.conn.NewSession(n.t.Context(), nil); err != nil {
		n.t.Fatal(err)
	}
	return c
}

// follow attaches a receiver of event:req/T by name, from "restart".
func (n *node) follow(c *client, name string, unsettled bool) *amqp.Receiver {
	n.t.Helper()
	o := &amqp.ReceiverOptions{Name: name, Credit: 100, Properties: map[string]any{"from_time": "restart"}}
	if unsettled {
		o.RequestedSenderSettleMode = amqp.SenderSettleModeUnsettled.Ptr()
	}
	r, err := c.session.NewReceiver(n.t.Context(), "event:req/T", o)
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

func (n *node) put(ids ...string) {
	n.t.Helper()
	for _, id := range ids {
		if err := n.send("event:req/T", fmt.Sprintf(`{"id":"%s"}`, id)); err != nil {
			n.t.Fatal(err)
		}
	}
}

// A receiver that comes back goes on where its link went, however that was.
func TestAReceiverComesBackByRestart(t *testing.T) {
	for name, c := range map[string]struct {
		goes      func(*testing.T, *client, *amqp.Receiver)
		unsettled bool
		container string // that it comes back by
		link      string
		want      string
	}{
		"by a detach": {
			goes: func(t *testing.T, _ *client, r *amqp.Receiver) {
				if err := r.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}, container: "shop", link: "orders", want: "3* 4* live",
		},
		"by a close":                   {goes: func(_ *testing.T, c *client, _ *amqp.Receiver) { c.conn.Close() }, container: "shop", link: "orders", want: "3* 4* live"},
		"by a broken connection":       {goes: func(_ *testing.T, c *client, _ *amqp.Receiver) { c.gate.Close() }, container: "shop", link: "orders", want: "3* 4* live"},
		"with what it has not settled": {goes: func(_ *testing.T, c *client, _ *amqp.Receiver) { c.gate.Close() }, unsettled: true, container: "shop", link: "orders", want: "2* 3* 4* live"},
		"by another link":              {goes: func(_ *testing.T, c *client, _ *amqp.Receiver) { c.conn.Close() }, container: "shop", link: "returns", want: "1* 2* 3* 4* live"},
		"as another container":         {goes: func(_ *testing.T, c *client, _ *amqp.Receiver) { c.conn.Close() }, container: "mall", link: "orders", want: "1* 2* 3* 4* live"},
	} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t)
			first := n.dial("shop")
			r := n.follow(first, "orders", c.unsettled)
			n.put("1", "2")
			n.wants(r, "1") // and settled
			if m, err := r.Receive(t.Context(), nil); err != nil || !strings.Contains(string(m.GetData()), `"2"`) {
				t.Fatalf("%v, %v", m, err)
			}
			c.goes(t, first, r)
			n.put("3", "4")
			back := n.follow(n.dial(c.container), c.link, false)
			n.put("live")
			n.wants(back, c.want)
		})
	}
}

// A connection that is dead, and not known to be, does not keep its receiver from coming back.
func TestAReceiverComesBackWhileItsLinkIsThere(t *testing.T) {
	n := startNode(t)
	r := n.follow(n.dial("shop"), "orders", false)
	n.put("1")
	n.wants(r, "1")
	back := n.follow(n.dial("shop"), "orders", false)
	n.put("2")
	n.wants(back, "2")
	_, err := r.Receive(t.Context(), nil)
	if le, ok := errors.AsType[*amqp.LinkError](err); !ok || le.RemoteErr == nil || le.RemoteErr.Condition != amqp.ErrCondStolen {
		t.Errorf("the first: %v", err)
	}
}

// What was encoded and is not with the socket was not handed over.
func TestARestartWithAFullSocket(t *testing.T) {
	n := startNode(t)
	first := n.dial("shop")
	r := n.follow(first, "orders", false)
	first.gate.mu.Lock()
	c := n.component(`{"op":"hello","name":"C"}`)
	const total = 100
	for i := range total {
		say(c, fmt.Sprintf(`{"op":"event","ref":1,"id":"%d","type":"T","data":"%s"}`, i, strings.Repeat("x", 100_000)))
		n.read(c)
	}
	back := n.follow(n.dial("shop"), "orders", false)
	e := n.event(back)
	var again int
	fmt.Sscan(e.ID, &again)
	for i := again + 1; i < total; i++ {
		if e := n.event(back); e.ID != fmt.Sprint(i) || !e.Replay {
			t.Fatalf("got %s, want %d", e.ID, i)
		}
	}
	first.gate.mu.Unlock()
	last := -1
	for {
		m, err := r.Receive(t.Context(), nil)
		if err != nil {
			break
		}
		var e got
		json.Unmarshal(m.GetData(), &e)
		fmt.Sscan(e.ID, &last)
	}
	if again > last || again == 0 {
		t.Errorf("it had up to %d, and came back from %d", last, again)
	}
}

// A receiver that asks for unsettled events, and comes and goes while they flow, misses none of them.
func TestARestartHasNoGap(t *testing.T) {
	n := startNode(t)
	c := n.component(`{"op":"hello","name":"C"}`)
	const total = 3000
	defer flow(c, total)()
	next := 0
	for round := 0; next < total; round++ {
		shop := n.dial("shop")
		r := n.follow(shop, "orders", true)
		for range 100 {
			var e got
			m, err := r.Receive(t.Context(), nil)
			if err != nil || json.Unmarshal(m.GetData(), &e) != nil {
				t.Fatal(err)
			}
			var id int
			if fmt.Sscan(e.ID, &id); id > next {
				t.Fatalf("round %d: got %d, want %d", round, id, next)
			}
			if err := r.AcceptMessage(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if next = max(next, id+1); next == total {
				break
			}
		}
		switch round % 3 {
		case 0:
			r.Close(t.Context())
		case 1:
			shop.conn.Close()
		case 2:
			shop.gate.Close()
		}
	}
}
