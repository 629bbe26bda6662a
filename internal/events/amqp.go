package events

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// contentType is that of an event as an AMQP message: one data section, which holds the JSON object that the members id, type, data, response and
// context make, and time where it comes from here.
const contentType = "application/json"

// Attach has the node hand over what is sent to event: names, and take what the table leads on to its own hops. Call it before the node listens.
func (r *Router) Attach(n *forwarder.Node) {
	inside := &admin.Account{Send: admin.GrantsOfSchemes("event")}
	r.inlet = n.NewInlet(forwarder.InletOptions{Account: inside, Source: r, Inside: "event"})
	n.Handle("event", nameScheme{r})
	n.Handle("event-conn", hopScheme{r})
	n.Handle("replay", hopScheme{r})
}

// nameScheme takes messages to event:req/TYPE and event:res/TYPE.
type nameScheme struct{ r *Router }

func (s nameScheme) Outlet(h *routetable.Hop, _ *routetable.Route, _ string) forwarder.Outlet {
	o := &nameOutlet{r: s.r}
	if o.typ, o.response, o.known = parseName(h.Name); !o.known {
		o.typ = h.Name
	}
	return o
}

// parseName takes the name of an event address apart.
func parseName(name string) (typ string, response, ok bool) {
	if typ, ok = strings.CutPrefix(name, "req/"); !ok {
		typ, ok = strings.CutPrefix(name, "res/")
		response = ok
	}
	return typ, response, ok && typ != "" && len(typ) <= maxTypeBytes
}

// nameOutlet is one kind of event, as a place to send to.
type nameOutlet struct {
	r        *Router
	typ      string
	response bool
	known    bool
}

func (o *nameOutlet) Present() bool { return true }
func (o *nameOutlet) Busy() int     { return 0 }

// Deliver puts the messages in the order of events. They are accepted when they are kept and queued: what a component does with them is seen by
// answers, which are events.
func (o *nameOutlet) Deliver(batch []*forwarder.Copy) (int, error) {
	var d dirty
	var f frame
	var e event
	for _, c := range batch {
		err := o.event(c.Message, &f, &e)
		if err != nil {
			o.r.log.Info("a message that is no event was refused", "address", addressOf(o.typ, o.response), "error", err)
			c.Settle(forwarder.Rejected(wire.CondDecodeError, firstLine(err)))
			continue
		}
		e.payload = c.Message.Payload
		o.r.publish(&e, &d)
		c.Settle(forwarder.Outcome{Kind: wire.Accepted})
	}
	d.flush()
	return len(batch), nil
}

// event reads the event that a message holds.
func (o *nameOutlet) event(m *forwarder.Message, f *frame, e *event) error {
	if !o.known {
		return errors.New("an event goes to event:req/TYPE or event:res/TYPE")
	}
	data, _, ok := m.Data()
	if !ok {
		return errors.New("an event is JSON in one data section")
	}
	if err := f.parse(data); err != nil {
		return fmt.Errorf("an event is a JSON object: %w", err)
	}
	if f.id == nil {
		id, ok := m.Property("message-id")
		if !ok {
			id = newUUID()
		}
		f.id = appendText(nil, id)
	}
	if f.kind == nil {
		f.kind = appendText(nil, o.typ)
	}
	if err := f.event(e); err != nil {
		return err
	}
	if string(e.typ) != o.typ || e.response != o.response {
		return fmt.Errorf("this is an event of %.200s", addressOf(string(e.typ), e.response))
	}
	return nil
}

// newUUID makes a random UUID.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// hopScheme are components and the ring, as hops: the router has given them an event before the node sees it.
type hopScheme struct{ r *Router }

func (s hopScheme) Outlet(h *routetable.Hop, _ *routetable.Route, _ string) forwarder.Outlet {
	return &hopOutlet{s.r, h}
}

type hopOutlet struct {
	r   *Router
	hop *routetable.Hop
}

func (o *hopOutlet) Busy() int { return 0 }

func (o *hopOutlet) Present() bool {
	if o.hop.Scheme == "replay" {
		return true
	}
	_, there := o.r.present.Load(o.hop.Name) // without the lock, which whoever asks may hold
	return there
}

// Deliver takes nothing from others: an event goes to a component by its name, event:req/TYPE, which gives it its place in the order.
func (o *hopOutlet) Deliver(batch []*forwarder.Copy) (int, error) {
	for _, c := range batch {
		if c.Message.Source() == any(o.r) {
			c.Settle(forwarder.Outcome{Kind: wire.Accepted})
			continue
		}
		c.Settle(forwarder.Rejected(wire.CondNotAllowed, "a component gets events by their names: lead the route to event:req/TYPE"))
	}
	return len(batch), nil
}

// sendOn gives an event to the node, for the hops of its rows that are not ours. Called under the lock, so that they see the order too.
func (r *Router) sendOn(k *kind, e *event, at int64) {
	payload := e.payload
	if payload == nil {
		if payload = r.message(k, e, at); payload == nil {
			return
		}
	}
	if err := r.inlet.SendAs(k.address, payload, nil); err != nil {
		r.log.Warn("an event could not be sent on", "type", k.typ, "error", err)
		return
	}
	r.inlet.Flush()
}

// message makes the AMQP message of an event.
func (r *Router) message(k *kind, e *event, at int64) []byte {
	b := append(appendText(append(r.body[:0], `{"type":`...), k.typ), `,"time":"`...)
	b = append(e.appendBody(append(r.stamp.append(b, at), `",`...)), '}')
	r.body = b
	id, _ := text(e.id)
	m := wire.Message{
		Properties: &wire.Properties{To: k.address, HasTo: true, MessageID: string(id), ContentType: contentType, CreationTime: wire.Timestamp(at / 1e6), HasCreationTime: true},
		Data:       [][]byte{b},
	}
	out, err := m.Append(r.sent[:0])
	if err != nil {
		r.log.Error("an event could not be encoded", "type", k.typ, "error", err)
		return nil
	}
	r.sent = out
	return out
}
