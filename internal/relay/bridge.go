package relay

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// bridge carries messages of other wires to topics, and responses back. A message whose row leads to relay:<domain>/<topic> is a whole request: a head
// with done, whose data is the JSON text of its one data section; it is accepted when the server's connection took it, and released where that ended
// or did not take it in time. What a response has in data goes to the message's reply-to, with its correlation-id or else its message-id, a message for each part.
type bridge struct {
	b    *Broker
	node *forwarder.Node
	next atomic.Uint64

	mu      sync.Mutex // guards what follows; a leaf
	ends    map[string]*Conn
	replies map[string]reply // by id
	swept   time.Time
}

// reply is where a response goes. Who may answer one topic could guess the ids of others, so a response must be on the topic that was asked.
type reply struct {
	address     string // relay:<domain>/<topic>
	to          string
	correlation any
	since       time.Time
}

const (
	maxReplies   = 100_000
	maxReplyWait = 10 * time.Minute // a response that comes later finds nobody
)

// Bridge has a node's messages reach topics. It is called before either takes connections.
func (b *Broker) Bridge(n *forwarder.Node) {
	x := &bridge{b: b, node: n, ends: map[string]*Conn{}, replies: map[string]reply{}}
	b.bridge.Store(x)
	n.Handle("relay-conn", x)
}

// Outlet gives the way to a connection, on the topic of a relay: name that led there.
func (x *bridge) Outlet(hop *routetable.Hop, _ *routetable.Route, name string) forwarder.Outlet {
	c := x.b.named(hop.Name)
	if c == nil {
		return nil
	}
	topic, ok := strings.CutPrefix(name, addressOf(c.domain, ""))
	if name != "" && (!ok || topic == "" || !utf8.ValidString(topic)) {
		return nil // no topic, or one of another domain
	}
	p := newPlan(c.domain, topic, appendText(nil, topic))
	p.from = append(x.b.mint.issue([]byte(`,"from":"`), x.end(c.domain).serial, c.domain, topic), '"')
	return &outlet{x: x, c: c, plan: p}
}

// end is the stand-in for all other wires in a domain.
func (x *bridge) end(domain string) *Conn {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.ends[domain]
	if c == nil {
		c = &Conn{b: x.b, serial: x.b.serial.Add(1), domain: domain, bridge: x, over: true}
		x.ends[domain] = c
	}
	return c
}

func (x *bridge) numbered(serial uint64) *Conn {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.ends {
		if c.serial == serial {
			return c
		}
	}
	return nil
}

// outlet is the way to a connection on a topic.
type outlet struct {
	x    *bridge
	c    *Conn
	plan *plan
	busy atomic.Int64
}

func (o *outlet) Present() bool { return !o.c.gone.Load() }
func (o *outlet) Busy() int     { return int(o.busy.Load()) }

// Deliver queues messages for the connection.
func (o *outlet) Deliver(list []*forwarder.Copy) (taken int, err error) {
	b := o.x.b.newBatch()
	defer b.free()
	for _, cp := range list {
		if o.c.gone.Load() {
			err = forwarder.ErrGone
			break
		}
		o.deliver(cp)
		taken++
	}
	b.write(o.c)
	b.run()
	return taken, err
}

// deliver queues a message, or settles it.
func (o *outlet) deliver(cp *forwarder.Copy) {
	id := fmt.Sprintf("amqp-%d", o.x.next.Add(1))
	m := op{kind: kindHead, topic: appendText(nil, o.plan.topic), id: appendText(nil, id), done: []byte("true")}
	r, err := m.read(cp.Message().Payload, o.x.b.o.MaxData)
	if err != nil {
		cp.Settle(forwarder.Outcome{Kind: wire.Rejected, State: &wire.State{
			Kind: wire.Rejected, Error: &wire.Error{Condition: wire.CondNotAllowed, Description: "the relay takes JSON: " + err.Error()},
		}})
		return
	}
	r.address = o.plan.address
	if r.to != "" && !o.x.expect(id, r) {
		cp.Settle(forwarder.Outcome{Kind: wire.Released})
		return
	}
	o.busy.Add(1)
	m.settle = func(result code) {
		o.busy.Add(-1)
		if result == codeNone {
			cp.Settle(forwarder.Outcome{Kind: wire.Accepted})
			return
		}
		o.x.take(id)
		cp.Settle(forwarder.Outcome{Kind: wire.Released})
	}
	_, reason, told, _ := o.c.queue(nil, &m, o.plan)
	if told {
		o.x.b.roles.check(o.c, o.plan.address)
	}
	if reason != codeNone {
		m.settle(reason)
	}
}

// read takes the data of a message: one data section of content type application/json, which is JSON.
func (o *op) read(payload []byte, most int) (r reply, err error) {
	var m wire.Message
	if err := m.Parse(payload); err != nil {
		return r, fmt.Errorf("no AMQP message: %w", err)
	}
	switch {
	case m.Properties == nil || m.Properties.ContentType != contentType:
		return r, fmt.Errorf("content-type must be %s", contentType)
	case len(m.Data) != 1 || m.HasValue || len(m.Sequence) > 0:
		return r, fmt.Errorf("the body must be one data section")
	case len(m.Data[0]) > most:
		return r, fmt.Errorf("the data section is longer than %d bytes", most)
	case !json.Valid(m.Data[0]) || !utf8.Valid(m.Data[0]):
		return r, fmt.Errorf("the data section is not JSON")
	}
	o.data = m.Data[0]
	if p := m.Properties; p.HasReplyTo {
		r = reply{to: p.ReplyTo, correlation: p.CorrelationID, since: time.Now()}
		if r.correlation == nil {
			r.correlation = p.MessageID
		}
	}
	return r, nil
}

const contentType = "application/json"

// expect notes where the response to a request goes; false: too many are awaited.
func (x *bridge) expect(id string, r reply) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.replies) >= maxReplies {
		return false
	}
	x.replies[id] = r
	return true
}

// take forgets a request, for which no response comes.
func (x *bridge) take(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.replies, id)
}

// forget gives up responses that nobody has sent since.
func (x *bridge) forget(before time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if before.Sub(x.swept) < time.Minute {
		return
	}
	x.swept = before
	for id, r := range x.replies {
		if r.since.Before(before) {
			delete(x.replies, id)
		}
	}
}

// respond sends a part of a response on a topic to where it is asked for.
func (x *bridge) respond(o *op, address string) code {
	id, _ := unescape(nil, o.id[1:len(o.id)-1])
	x.mu.Lock()
	r, ok := x.replies[string(id)]
	ok = ok && r.address == address
	if ok && o.done != nil && o.done[0] == 't' {
		delete(x.replies, string(id))
	}
	x.mu.Unlock()
	if !ok {
		return clientGone
	}
	if o.data == nil {
		return codeNone
	}
	m := wire.Message{
		Properties: &wire.Properties{To: r.to, HasTo: true, CorrelationID: r.correlation, ContentType: contentType},
		Data:       [][]byte{append([]byte(nil), o.data...)},
	}
	payload, err := m.Append(nil)
	if err != nil || !x.node.Send(r.to, payload) {
		return clientGone
	}
	return codeNone
}
