package messenger

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// AMQP types that Go has not got, for values of properties, annotations and bodies. Besides these, values may be nil, bool,
// int, int8 to int64, uint8 to uint64, float32, float64, string, []byte, time.Time and map[string]any.
type (
	Symbol    = wire.Symbol    // ASCII text from a constrained domain
	Timestamp = wire.Timestamp // milliseconds since the Unix epoch
	UUID      = wire.UUID
	Char      = wire.Char
	List      = wire.List
	Map       = wire.Map // ordered; keys of any type
	KV        = wire.KV  // one entry of a Map
	Described = wire.Described
	Array     = wire.Array
)

// Message is a message to put, or one that came. Put does not change it and keeps nothing of it.
type Message struct {
	Address string // where to, untranslated: `to` on the wire, but for credentials, which never go out
	ReplyTo string // "~", or "~/" and anything: an address of this messenger's, made for the connection the message goes by
	Subject string
	GroupID string

	MessageID     any // uint64, UUID, []byte or string; nil if absent
	CorrelationID any // likewise

	ContentType string
	Properties  map[string]any // application properties: scalars
	Annotations map[string]any // message annotations

	// Body is the data section; several that came are one here. Value is any other body: of an AMQP value its value, of
	// sequences one List. A message to put has one of the two; with neither it goes out with an empty data section.
	Body  []byte
	Value any

	Durable  bool
	Priority uint8         // 1 to 9; 0 is not sent, which means 4
	TTL      time.Duration // how long the message is of use, to the millisecond; 0 is for ever

	Created       time.Time // zero if absent
	DeliveryCount uint32    // of a message that came: failed attempts before this one

	// Settled: put it, and ask for no outcome. A copy that is lost on the way is lost.
	Settled bool

	// Raw is a whole encoded message, to be passed on byte for byte. Only Address and Settled count beside it: it is routed by
	// Address, and what it says of itself is neither looked at nor changed. See Delivery.Raw.
	Raw []byte
}

// encoded is a message as it goes on the wire.
type encoded struct {
	payload  []byte
	sections wire.Sections
	settled  bool

	// Of a message whose head is not the same for each copy: the header has what is left of the ttl, and the reply-to is an
	// address of the connection.
	header   *wire.Header
	props    *wire.Properties
	deadline time.Time // zero without ttl
	replies  bool      // reply-to is to be filled in
}

// encode makes the bytes of a message.
func (m *Message) encode(now time.Time) (*encoded, error) {
	e := &encoded{settled: m.Settled}
	if m.Raw != nil {
		e.payload = slices.Clone(m.Raw)
		if err := wire.ScanMessage(e.payload, &e.sections); err != nil {
			return nil, fmt.Errorf("raw message: %w", err)
		}
		return e, nil
	}
	if m.Body != nil && m.Value != nil {
		return nil, fmt.Errorf("message with both a Body and a Value")
	}
	e.replies = m.ReplyTo == "~" || len(m.ReplyTo) > 1 && m.ReplyTo[:2] == "~/"
	to, err := stripUserinfo(m.Address)
	if err != nil {
		return nil, err
	}
	replyTo := ""
	if !e.replies {
		if replyTo, err = stripUserinfo(m.ReplyTo); err != nil {
			return nil, err
		}
	}
	p := &wire.Properties{
		MessageID: m.MessageID, CorrelationID: m.CorrelationID, To: to, ReplyTo: replyTo, Subject: m.Subject,
		GroupID: m.GroupID, ContentType: wire.Symbol(m.ContentType),
	}
	if !m.Created.IsZero() {
		p.CreationTime, p.HasCreationTime = wire.TimestampOf(m.Created), true
	}
	w := wire.Message{Properties: p, Header: m.header()}
	if m.TTL > 0 {
		e.deadline = now.Add(m.TTL)
	}
	if len(m.Annotations) > 0 {
		w.MessageAnnotations = mapOf(m.Annotations, func(k string) any { return wire.Symbol(k) })
	}
	if len(m.Properties) > 0 {
		w.ApplicationProperties = mapOf(m.Properties, func(k string) any { return k })
	}
	if m.Value != nil {
		w.Value, w.HasValue = toWire(m.Value), true
	} else {
		w.Data = [][]byte{m.Body}
	}
	if e.payload, err = w.Append(make([]byte, 0, len(m.Body)+256)); err != nil {
		return nil, fmt.Errorf("message: %w", err)
	}
	if err := wire.ScanMessage(e.payload, &e.sections); err != nil {
		return nil, fmt.Errorf("message: %w", err)
	}
	if e.replies || m.TTL > 0 {
		e.header, e.props = w.Header, p
	}
	return e, nil
}

func (m *Message) header() *wire.Header {
	if !m.Durable && m.Priority == 0 && m.TTL <= 0 {
		return nil
	}
	h := &wire.Header{Durable: m.Durable, Priority: m.Priority, HasPriority: m.Priority != 0}
	if m.TTL > 0 {
		h.TTL, h.HasTTL = millis(m.TTL), true
	}
	return h
}

// millis gives a ttl as on the wire: at least a millisecond, at most what the field holds.
func millis(d time.Duration) uint32 {
	return uint32(min(max(d.Milliseconds(), 1), 1<<32-1))
}

// parts gives the bytes of a copy that goes out now, in two pieces. replyTo is the address that stands for "~".
func (e *encoded) parts(now time.Time, replyTo string) (head, body []byte) {
	if e.props == nil {
		return nil, e.payload
	}
	s := &e.sections
	if e.header != nil {
		h := *e.header
		if h.HasTTL {
			h.TTL = millis(e.deadline.Sub(now))
		}
		head = h.Append(head)
	}
	head = append(head, s.MessageAnnotations.Of(e.payload)...)
	p := *e.props
	if e.replies {
		p.ReplyTo = replyTo
	}
	return p.Append(head), e.payload[s.Properties.End:]
}

// property gives a property of the message to the table's predicates: an application property, else one of the standard ones.
func (e *encoded) property(name string) (string, bool) {
	if v, ok, err := wire.ApplicationProperty(e.sections.ApplicationProperties.Of(e.payload), name); ok && err == nil {
		return v, true
	}
	v, ok, err := wire.StandardProperty(e.sections.Properties.Of(e.payload), name)
	return v, ok && err == nil
}

// mapOf makes an AMQP map in the order of its keys.
func mapOf(m map[string]any, key func(string) any) wire.Map {
	out := make(wire.Map, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, wire.KV{Key: key(k), Value: toWire(m[k])})
	}
	return out
}

func toWire(v any) any {
	switch v := v.(type) {
	case time.Time:
		return wire.TimestampOf(v)
	case map[string]any:
		return mapOf(v, func(k string) any { return k })
	}
	return v
}

// fromMap gives the entries of an AMQP map whose keys are text; of two with one key, the first.
func fromMap(m wire.Map) map[string]any {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]any, len(m))
	for _, kv := range m {
		var key string
		switch k := kv.Key.(type) {
		case string:
			key = k
		case wire.Symbol:
			key = string(k)
		default:
			continue
		}
		if _, twice := out[key]; !twice {
			out[key] = kv.Value
		}
	}
	return out
}

// decode makes a message of its bytes. Body may alias them.
func decode(raw []byte) (*Message, error) {
	var w wire.Message
	if err := w.Parse(raw); err != nil {
		return nil, err
	}
	m := &Message{Priority: 4, Annotations: fromMap(w.MessageAnnotations), Properties: fromMap(w.ApplicationProperties)}
	if h := w.Header; h != nil {
		m.Durable, m.Priority, m.DeliveryCount = h.Durable, h.Priority, h.DeliveryCount
		m.TTL = time.Duration(h.TTL) * time.Millisecond
	}
	if p := w.Properties; p != nil {
		m.Address, m.ReplyTo, m.Subject, m.GroupID = p.To, p.ReplyTo, p.Subject, p.GroupID
		m.MessageID, m.CorrelationID, m.ContentType = p.MessageID, p.CorrelationID, string(p.ContentType)
		if p.HasCreationTime {
			m.Created = p.CreationTime.Time()
		}
	}
	switch {
	case len(w.Data) == 1:
		m.Body = w.Data[0]
	case len(w.Data) > 1:
		m.Body = slices.Concat(w.Data...)
	case w.HasValue:
		m.Value = w.Value
	case len(w.Sequence) > 0:
		m.Value = slices.Concat(w.Sequence...)
	}
	return m, nil
}
