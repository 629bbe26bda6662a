package components

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// Category of an event.
type category int32

const (
	categoryMessage  category = 1
	categoryRequest  category = 2
	categoryResponse category = 3
)

// Event types of the platform.
const (
	typeRegister  = "io.kubefox.register"
	typeError     = "io.kubefox.error"
	typeTelemetry = "io.kubefox.telemetry"
	typeComponent = "io.kubefox.kubefox"
)

// Event is the message Event of broker.proto. Texts and bytes of a parsed event alias what it was parsed of.
type Event struct {
	ID, ParentID string
	Span         []byte // SpanContext, encoded; not looked at
	Type         string
	Category     category
	CreateTime   int64 // Unix time, ns
	TTL          int64 // what is left of its life, ns
	HasContext   bool
	Context      Context
	HasSource    bool
	Source       ComponentID
	HasTarget    bool
	Target       ComponentID
	Params       []entry
	Values       []entry
	ContentType  string
	Content      []byte

	view *View // what rules see of it, where who made it knows; not on the wire
}

// entry is a map's entry: a value is its JSON text. See dialect.go.
type entry struct {
	key   string
	value []byte
}

// value finds a value by its key: the last one counts.
func value(list []entry, key string) (text []byte, ok bool) {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].key == key {
			return list[i].value, true
		}
	}
	return nil, false
}

var errWire = errors.New("not an event")

// Bounds of an event: a map with more entries is no event.
const maxEntries = 10_000

// fields calls each with the fields of a message. Of a field with another wire type than bytes or varint only the number is given.
func fields(b []byte, each func(n protowire.Number, kind protowire.Type, bytes []byte, varint uint64) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return errWire
		}
		b = b[size:]
		var bytes []byte
		var varint uint64
		switch kind {
		case protowire.BytesType:
			bytes, size = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			varint, size = protowire.ConsumeVarint(b)
		default:
			size = protowire.ConsumeFieldValue(n, kind, b)
		}
		if size < 0 {
			return errWire
		}
		b = b[size:]
		if err := each(n, kind, bytes, varint); err != nil {
			return err
		}
	}
	return nil
}

// text is b as a string that aliases it.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// parse reads an event; it aliases b. Values of either dialect become JSON text, and d3 tells whether there was one of D3, d4 one of D4.
func (e *Event) parse(b []byte) (seen dialects, err error) {
	*e = Event{Params: e.Params[:0], Values: e.Values[:0]}
	err = fields(b, func(n protowire.Number, kind protowire.Type, bytes []byte, varint uint64) error {
		if kind == protowire.VarintType {
			switch n {
			case 5:
				e.Category = category(varint)
			case 6:
				e.CreateTime = int64(varint)
			case 7:
				e.TTL = int64(varint)
			}
			return nil
		}
		if kind != protowire.BytesType {
			return nil
		}
		return e.field(n, bytes, &seen)
	})
	return seen, err
}

func (e *Event) field(n protowire.Number, b []byte, seen *dialects) (err error) {
	switch n {
	case 1:
		e.ID = text(b)
	case 2:
		e.ParentID = text(b)
	case 3:
		e.Span = b
	case 4:
		e.Type = text(b)
	case 8:
		e.HasContext = true
		err = parseTexts(b, &e.Context.Platform, &e.Context.Environment, &e.Context.Deployment, &e.Context.Manifest)
	case 9:
		e.HasSource = true
		err = e.Source.parse(b)
	case 10:
		e.HasTarget = true
		err = e.Target.parse(b)
	case 11:
		e.Params, err = appendEntry(e.Params, b, seen)
	case 12:
		e.Values, err = appendEntry(e.Values, b, seen)
	case 14:
		e.ContentType = text(b)
	case 15:
		e.Content = b
	}
	return err
}

// parseTexts reads a message whose fields from 1 on are texts.
func parseTexts(b []byte, texts ...*string) error {
	return fields(b, func(n protowire.Number, kind protowire.Type, bytes []byte, _ uint64) error {
		if i := int(n) - 1; kind == protowire.BytesType && i < len(texts) {
			*texts[i] = text(bytes)
		}
		return nil
	})
}

func (c *ComponentID) parse(b []byte) error {
	return parseTexts(b, &c.Type, &c.App, &c.Name, &c.Hash, &c.ID, &c.BrokerID)
}

func appendEntry(list []entry, b []byte, seen *dialects) ([]entry, error) {
	if len(list) >= maxEntries {
		return nil, errWire
	}
	var x entry
	err := fields(b, func(n protowire.Number, kind protowire.Type, bytes []byte, _ uint64) error {
		switch {
		case kind == protowire.BytesType && n == 1:
			x.key = text(bytes)
		case kind == protowire.BytesType && n == 2:
			x.value = bytes
		}
		return nil
	})
	if err == nil {
		x.value, err = toJSON(x.value, seen)
	}
	if list == nil {
		list = make([]entry, 0, 8)
	}
	return append(list, x), err
}

// ttlSize is how many bytes the ttl has in what append writes: it comes first, and has always room for any, so that it can be changed in its place.
const ttlSize = 1 + 9

// append appends the event, with its values in a dialect.
func (e *Event) append(b []byte, d dialect) []byte {
	b = append(b, 7<<3)
	b = appendPadded(b, uint64(max(e.TTL, 0)))
	b = appendText(b, 1, e.ID)
	b = appendText(b, 2, e.ParentID)
	b = appendBytes(b, 3, e.Span)
	b = appendText(b, 4, e.Type)
	b = appendVarint(b, 5, uint64(e.Category))
	b = appendVarint(b, 6, uint64(e.CreateTime))
	if e.HasContext {
		b = appendTexts(b, 8, e.Context.Platform, e.Context.Environment, e.Context.Deployment, e.Context.Manifest)
	}
	if e.HasSource {
		b = e.Source.append(b, 9)
	}
	if e.HasTarget {
		b = e.Target.append(b, 10)
	}
	b = appendEntries(b, 11, e.Params, d)
	b = appendEntries(b, 12, e.Values, d)
	b = appendText(b, 14, e.ContentType)
	return appendBytes(b, 15, e.Content)
}

// appendPadded appends a varint in nine bytes, whatever it is.
func appendPadded(b []byte, v uint64) []byte {
	for range 8 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v)&0x7f)
}

func appendText(b []byte, n protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

func appendBytes(b []byte, n protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

func appendVarint(b []byte, n protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

// appendTexts appends a message whose fields from 1 on are texts.
func appendTexts(b []byte, n protowire.Number, texts ...string) []byte {
	size := 0
	for i, s := range texts {
		if s != "" {
			size += protowire.SizeTag(protowire.Number(i+1)) + protowire.SizeBytes(len(s))
		}
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.BytesType), uint64(size))
	for i, s := range texts {
		b = appendText(b, protowire.Number(i+1), s)
	}
	return b
}

func (c *ComponentID) append(b []byte, n protowire.Number) []byte {
	return appendTexts(b, n, c.Type, c.App, c.Name, c.Hash, c.ID, c.BrokerID)
}

func appendEntries(b []byte, n protowire.Number, list []entry, d dialect) []byte {
	for _, x := range list {
		v := x.value
		if d == dialect3 {
			v = fromJSON(v)
		}
		size := protowire.SizeTag(1) + protowire.SizeBytes(len(x.key)) + protowire.SizeTag(2) + protowire.SizeBytes(len(v))
		b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.BytesType), uint64(size))
		b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), x.key)
		b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), v)
	}
	return b
}

// matched is the message MatchedEvent.
type matched struct {
	Event   []byte // an encoded Event
	RouteID int64
	Env     []entry
}

// appendMatched appends a MatchedEvent of an event. The event comes first.
func appendMatched(b []byte, e *Event, route int64, env []entry, d dialect) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, 0, 0) // tag, and the length in five bytes
	b = e.append(b, d)
	size := uint64(len(b) - start - 6)
	b[start] = 1<<3 | 2
	for i := range 4 {
		b[start+1+i] = byte(size) | 0x80
		size >>= 7
	}
	b[start+5] = byte(size)
	b = appendVarint(b, 2, uint64(route))
	return appendEntries(b, 3, env, d)
}

// matchedHead is how many bytes there are before the event in what appendMatched writes.
const matchedHead = 6

// age takes time away from the ttl of a MatchedEvent that appendMatched wrote, in its place, and reports whether there is any left.
func age(b []byte, by int64) bool {
	left := ttlOf(b) - by
	if left <= 0 {
		return false
	}
	appendPadded(b[matchedHead+1:matchedHead+1], uint64(left))
	return true
}

// ttlOf is the ttl of a MatchedEvent that appendMatched wrote.
func ttlOf(b []byte) int64 {
	var v uint64
	for i, c := range b[matchedHead+1 : matchedHead+ttlSize] {
		v |= uint64(c&0x7f) << (7 * i)
	}
	return int64(v)
}

// eventOf is the Event in a MatchedEvent that appendMatched wrote.
func eventOf(b []byte) []byte {
	n, size := binary.Uvarint(b[1:])
	if size != 5 || n > uint64(len(b)-matchedHead) {
		return nil
	}
	return b[matchedHead : matchedHead+int(n)]
}

// parse reads a MatchedEvent.
func (m *matched) parse(b []byte) error {
	*m = matched{}
	var seen dialects
	return fields(b, func(n protowire.Number, kind protowire.Type, bytes []byte, varint uint64) (err error) {
		switch {
		case n == 1 && kind == protowire.BytesType:
			m.Event = bytes
		case n == 2 && kind == protowire.VarintType:
			m.RouteID = int64(varint)
		case n == 3 && kind == protowire.BytesType:
			m.Env, err = appendEntry(m.Env, bytes, &seen)
		}
		return err
	})
}
