package events

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

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
	r.node = n
	r.inlet = n.NewInlet(forwarder.InletOptions{Account: inside, Source: r, Inside: "event"})
	n.Handle("event", nameScheme{r})
	n.Handle("event-conn", hopScheme{r})
	n.Handle("replay", hopScheme{r})
}

// nameScheme takes messages to event:req/TYPE and event:res/TYPE, and gives receivers from there what came before.
type nameScheme struct{ r *Router }

var _ forwarder.Replayer = nameScheme{}

func (s nameScheme) Outlet(h *routetable.Hop, _ *routetable.Route, _ string) forwarder.Outlet {
	o := &nameOutlet{r: s.r, address: h.Text}
	o.typ, o.response, o.known = parseName(h.Name)
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
	address  string
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
		err := o.event(c.Message(), &f, &e)
		if err != nil {
			o.r.log.Info("a message that is no event was refused", "address", o.address, "error", err)
			c.Settle(forwarder.Rejected(wire.CondDecodeError, firstLine(err)))
			continue
		}
		e.payload = c.Message().Payload
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
	if !utf8.Valid(data) {
		return errors.New("an event is UTF-8") // components would close for it
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
		if c.Message().Source() == any(o.r) {
			c.Settle(forwarder.Outcome{Kind: wire.Accepted})
			continue
		}
		c.Settle(forwarder.Rejected(wire.CondNotAllowed, "a component gets events by their names: lead the route to event:req/TYPE"))
	}
	return len(batch), nil
}

// sendOn gives an event to the node, for the hops of its rows that are not ours. Called under the lock, so that they see the order too.
func (r *Router) sendOn(k *kind, e *event, at int64) {
	var payload []byte
	if e.payload != nil {
		payload = r.stamped(e.payload, at)
	} else {
		payload = r.message(k, e, at)
	}
	r.inlet.Tag = at
	if err := r.inlet.SendAs(k.address, payload, nil); err != nil {
		r.log.Warn("an event could not be sent on", "type", k.typ, "error", err)
		return
	}
	r.inlet.Flush()
}

// message makes the AMQP message of an event. It is good until the next call.
func (r *Router) message(k *kind, e *event, at int64) []byte {
	b := append(r.stamp.append(append(r.body[:0], k.bodyHead...), at), `",`...)
	r.body = append(e.appendBody(b), '}')
	r.sent = appendMessage(r.sent[:0], k, e.id, &r.stamp, at, r.body)
	return r.sent
}

// appendMessage appends the AMQP message of an event. data is the JSON object, id its member.
func appendMessage(dst []byte, k *kind, id []byte, s *stamp, at int64, data []byte) []byte {
	word, _ := text(id)
	return wire.AppendDataMessage(appendStamp(dst, nil, s, at), word, k.address, contentType, wire.Timestamp(at/1e6), data)
}

// timeAnnotation is the message annotation that tells a receiver when an event came: a text as the member time of events. It is what a receiver that
// comes back gives as from_time.
const timeAnnotation = "x-opt-event-time"

// appendStamp appends the message annotations of an event: section, which may be empty, and its time.
func appendStamp(dst, section []byte, s *stamp, at int64) []byte {
	raw := s.append(append(make([]byte, 0, 2+maxTimeText), 0xa1, byte(maxTimeText)), at) // AMQP 1.0 part 1, 1.6.20: str8-utf8
	out, err := wire.AppendMapWithEntry(dst, section, wire.CodeMessageAnnotations, timeAnnotation, raw)
	if err != nil {
		return append(dst, section...)
	}
	return out
}

// maxTimeText is the length of a time as stamp writes it.
const maxTimeText = len("2006-01-02T15:04:05.000000000Z")

// stamped is a message as it came, its annotations but for the time included. It is good until the next call.
func (r *Router) stamped(payload []byte, at int64) []byte {
	var s wire.Sections
	if wire.ScanHead(payload, &s) != nil {
		return payload
	}
	b := append(append(r.sent[:0], s.Header.Of(payload)...), s.DeliveryAnnotations.Of(payload)...)
	b = append(appendStamp(b, s.MessageAnnotations.Of(payload), &r.stamp, at), payload[s.Bare:]...)
	if r.sent = b; cap(b) > maxScratch {
		r.sent = nil
	}
	return b
}

// CheckName says why nothing can be received from a name.
func (s nameScheme) CheckName(name string) error {
	if _, _, ok := parseName(name); !ok {
		return errors.New("events are received from event:req/TYPE or event:res/TYPE, with a TYPE of 1 to 1024 bytes")
	}
	return nil
}

// CheckFrom says why a receiver cannot have what came from a time on.
func (s nameScheme) CheckFrom(from string) error {
	_, err := linkTime(from)
	return err
}

// linkTime reads from_time of a receiver, but for "restart".
func linkTime(from string) (int64, error) {
	switch from {
	case "", forwarder.Restart:
		return 0, nil
	case "now":
		return 1<<63 - 1, nil
	}
	return parseTime(from)
}

// Now is a time that no later event is stamped with less than.
func (s nameScheme) Now() int64 { return s.r.now() }

// Left keeps where a receiver goes on.
func (s nameScheme) Left(who string, from int64) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.points.keep(linkWho(who), from, r.now())
}

// Replay has a receiver given what came to a name from a time on, and then what comes, with no gap and no double in between.
func (s nameScheme) Replay(name, who, from string, begin func(forwarder.Replay)) {
	r := s.r
	typ, response, _ := parseName(name)
	at, _ := linkTime(from)
	if from == forwarder.Restart {
		at = r.restartPoint(linkWho(who))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keepEvents()
	r.unrouted.clear(typ, response)
	v := r.replayOf(typ, response, at)
	if len(v.places) == 0 {
		begin(nil)
		return
	}
	begin(&linkReplay{v: v})
}

// linkReplay makes AMQP messages of the events of a view.
type linkReplay struct {
	v     view
	stamp stamp
	body  []byte
}

func (p *linkReplay) Next() { p.v.next() }

// Tag is when the next event came.
func (p *linkReplay) Tag() int64 { return p.v.at(0).at }

// Append appends the message of the next event.
func (p *linkReplay) Append(dst []byte) []byte {
	if len(p.v.places) == 0 {
		return dst
	}
	e := p.v.at(0)
	k := p.v.of(e)
	b := append(p.stamp.append(append(p.body[:0], k.bodyHead...), e.at), `",`...)
	p.body = append(append(b, e.body...), `,"replay":true}`...)
	return appendMessage(dst, k, idOf(e.body), &p.stamp, e.at, p.body)
}

// idOf gives the id of an event, by what the ring keeps of it.
func idOf(body []byte) []byte {
	const before = len(`"id":`)
	if end := skipValue(body, before, maxDepth); end > before {
		return body[before:end]
	}
	return nil
}
