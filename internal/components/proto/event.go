package proto

import (
	"encoding/binary"
	"errors"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// Category is what an event is.
type Category int32

const (
	Message  Category = 1
	Request  Category = 2
	Response Category = 3
)

// Event types of the platform.
const (
	TypeRegister  = "io.kubefox.register"
	TypeError     = "io.kubefox.error"
	TypeTelemetry = "io.kubefox.telemetry"
	TypeComponent = "io.kubefox.kubefox"
)

// Event is the message Event of broker.proto. Texts and bytes of a parsed event alias what it was parsed of.
type Event struct {
	ID, ParentID string
	Span         []byte // SpanContext, encoded; not looked at
	Type         string
	Category     Category
	CreateTime   int64 // Unix time, ns
	TTL          int64 // what is left of its life, ns
	HasContext   bool
	Context      Context
	HasSource    bool
	Source       Component
	HasTarget    bool
	Target       Component
	Params       []Entry
	Values       []Entry
	ContentType  string
	Content      []byte

	View any // of who made it; not on the wire
}

// Context is where an event belongs: an environment and a deployment, of a platform. Both empty is "whatever is released".
type Context struct {
	Platform, Environment, Deployment, Manifest string
}

// Entry is a map's entry: a value is its JSON text. See Dialect.
type Entry struct {
	Key   string
	Value []byte
}

// Find finds a value by its key: the last one counts.
func Find(list []Entry, key string) (text []byte, ok bool) {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Key == key {
			return list[i].Value, true
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

// setText takes a text of the wire. Other readers end the stream that brings them one that is not UTF-8: such an event goes to nobody.
func setText(to *string, b []byte) error {
	if !utf8.Valid(b) {
		return errWire
	}
	*to = text(b)
	return nil
}

// checkSpan refuses a SpanContext that others do not read.
func checkSpan(b []byte) error {
	return fields(b, func(n protowire.Number, kind protowire.Type, bytes []byte, _ uint64) error {
		if n == 3 && kind == protowire.BytesType && !utf8.Valid(bytes) {
			return errWire
		}
		return nil
	})
}

// Parse reads an event; it aliases b. Values of either dialect become JSON text, and seen tells of which there were some.
func (e *Event) Parse(b []byte) (seen Dialects, err error) {
	*e = Event{Params: e.Params[:0], Values: e.Values[:0]}
	err = fields(b, func(n protowire.Number, kind protowire.Type, bytes []byte, varint uint64) error {
		if kind == protowire.VarintType {
			switch n {
			case 5:
				e.Category = Category(varint)
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

func (e *Event) field(n protowire.Number, b []byte, seen *Dialects) (err error) {
	switch n {
	case 1:
		err = setText(&e.ID, b)
	case 2:
		err = setText(&e.ParentID, b)
	case 3:
		e.Span = b
		err = checkSpan(b)
	case 4:
		err = setText(&e.Type, b)
	case 8:
		e.HasContext = true
		err = parseTexts(b, &e.Context.Platform, &e.Context.Environment, &e.Context.Deployment, &e.Context.Manifest)
	case 9:
		e.HasSource = true
		err = e.Source.Parse(b)
	case 10:
		e.HasTarget = true
		err = e.Target.Parse(b)
	case 11:
		e.Params, err = appendEntry(e.Params, b, seen)
	case 12:
		e.Values, err = appendEntry(e.Values, b, seen)
	case 14:
		err = setText(&e.ContentType, b)
	case 15:
		e.Content = b
	}
	return err
}

// parseTexts reads a message whose fields from 1 on are texts.
func parseTexts(b []byte, texts ...*string) error {
	return fields(b, func(n protowire.Number, kind protowire.Type, bytes []byte, _ uint64) error {
		if i := int(n) - 1; kind == protowire.BytesType && i < len(texts) {
			return setText(texts[i], bytes)
		}
		return nil
	})
}

func (c *Component) Parse(b []byte) error {
	return parseTexts(b, &c.Type, &c.App, &c.Name, &c.Hash, &c.ID, &c.BrokerID)
}

func appendEntry(list []Entry, b []byte, seen *Dialects) ([]Entry, error) {
	if len(list) >= maxEntries {
		return nil, errWire
	}
	var x Entry
	err := fields(b, func(n protowire.Number, kind protowire.Type, bytes []byte, _ uint64) error {
		switch {
		case kind == protowire.BytesType && n == 1:
			return setText(&x.Key, bytes)
		case kind == protowire.BytesType && n == 2:
			x.Value = bytes
		}
		return nil
	})
	if err == nil {
		x.Value, err = toJSON(x.Value, seen)
	}
	if list == nil {
		list = make([]Entry, 0, 8)
	}
	return append(list, x), err
}

// ttlSize is how many bytes the ttl has in what Append writes: it comes first, and has always room for any, so that it can be changed in its place.
const ttlSize = 1 + 9

// Append appends the event, with its values in a dialect.
func (e *Event) Append(b []byte, d Dialect) []byte {
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
		b = e.Source.Append(b, 9)
	}
	if e.HasTarget {
		b = e.Target.Append(b, 10)
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

func (c *Component) Append(b []byte, n protowire.Number) []byte {
	return appendTexts(b, n, c.Type, c.App, c.Name, c.Hash, c.ID, c.BrokerID)
}

func appendEntries(b []byte, n protowire.Number, list []Entry, d Dialect) []byte {
	for _, x := range list {
		v := x.Value
		if d == D3 {
			v = fromJSON(v)
		}
		size := protowire.SizeTag(1) + protowire.SizeBytes(len(x.Key)) + protowire.SizeTag(2) + protowire.SizeBytes(len(v))
		b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.BytesType), uint64(size))
		b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), x.Key)
		b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), v)
	}
	return b
}

// Matched is the message MatchedEvent.
type Matched struct {
	Event   []byte // an encoded Event
	RouteID int64
	Env     []Entry
}

// AppendMatched appends a MatchedEvent of an event. The event comes first.
func AppendMatched(b []byte, e *Event, route int64, env []Entry, d Dialect) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, 0, 0) // tag, and the length in five bytes
	b = e.Append(b, d)
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

// matchedHead is how many bytes there are before the event in what AppendMatched writes.
const matchedHead = 6

// Age takes time away from the ttl of a MatchedEvent that AppendMatched wrote, in its place, and reports whether there is any left.
func Age(b []byte, by int64) bool {
	left := TTLOf(b) - by
	if left <= 0 {
		return false
	}
	appendPadded(b[matchedHead+1:matchedHead+1], uint64(left))
	return true
}

// TTLOf is the ttl of a MatchedEvent that AppendMatched wrote.
func TTLOf(b []byte) int64 {
	var v uint64
	for i, c := range b[matchedHead+1 : matchedHead+ttlSize] {
		v |= uint64(c&0x7f) << (7 * i)
	}
	return int64(v)
}

// EventOf is the Event in a MatchedEvent that AppendMatched wrote; nil where it did not.
func EventOf(b []byte) []byte {
	if len(b) < matchedHead+ttlSize {
		return nil
	}
	n, size := binary.Uvarint(b[1:])
	if size != 5 || n < ttlSize || n > uint64(len(b)-matchedHead) {
		return nil
	}
	return b[matchedHead : matchedHead+int(n)]
}

// Parse reads a MatchedEvent.
func (m *Matched) Parse(b []byte) error {
	*m = Matched{}
	var seen Dialects
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

// AppendSpan appends a SpanContext: the position in a trace.
func AppendSpan(b, trace, span []byte, state string, flags uint32) []byte {
	b = appendText(appendBytes(appendBytes(b, 1, trace), 2, span), 3, state)
	if flags != 0 {
		b = protowire.AppendFixed32(protowire.AppendTag(b, 4, protowire.Fixed32Type), flags)
	}
	return b
}
