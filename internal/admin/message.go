package admin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// decodeRequest reads a request from its message. With an error it still gives what is needed to answer, where the
// message had it.
func decodeRequest(message []byte) (request, error) {
	var m wire.Message
	var q request
	err := m.Parse(message)
	if p := m.Properties; p != nil {
		if p.HasReplyTo {
			q.replyTo = p.ReplyTo
		}
		if q.id = p.CorrelationID; q.id == nil {
			q.id = p.MessageID
		}
	}
	if err != nil {
		return q, refuse(StatusBadRequest, "the request is no AMQP message: %v", err)
	}
	q.properties = args{}
	for _, kv := range m.ApplicationProperties {
		if key, ok := textOf(kv.Key); ok {
			q.properties[key] = fromWire(kv.Value)
		}
	}
	switch {
	case m.HasValue:
		q.body = fromWire(m.Value)
	case len(m.Data) > 0:
		q.body = slices.Concat(m.Data...)
		if len(q.body.([]byte)) == 0 {
			q.body = nil
		}
	case len(m.Sequence) == 1:
		q.body = fromWire(m.Sequence[0])
	}
	for _, field := range []struct {
		name string
		to   *string
	}{{"operation", &q.operation}, {"type", &q.kind}, {"name", &q.name}, {"identity", &q.identity}} {
		if *field.to, err = q.properties.text(field.name); err != nil {
			return q, err
		}
	}
	q.operation = strings.ToUpper(strings.TrimSpace(q.operation))
	isNode := q.kind == "" || q.kind == managementType
	q.kind = shortType(strings.TrimSpace(q.kind))
	if isNode && q.name == "self" {
		q.name = ""
	}
	return q, nil
}

// encodeAnswer makes the message of an answer.
func encodeAnswer(q request, a answer) []byte {
	text := a.text
	if text == "" {
		text = statusText(a.status)
	}
	m := wire.Message{
		Properties: &wire.Properties{To: q.replyTo, HasTo: true, CorrelationID: q.id},
		ApplicationProperties: wire.Map{
			{Key: "statusCode", Value: int32(a.status)},
			{Key: "statusDescription", Value: validText(text)},
		},
		HasValue: true,
	}
	for _, name := range slices.Sorted(maps.Keys(a.properties)) {
		m.ApplicationProperties = append(m.ApplicationProperties, wire.KV{Key: name, Value: toWire(a.properties[name])})
	}
	body := a.body
	if body == nil {
		body = map[string]any{}
	}
	m.Value = toWire(body)
	b, err := m.Append(nil)
	if err != nil {
		// A value that cannot be encoded is a mistake of ours; the caller still needs an end to wait for.
		m.ApplicationProperties = wire.Map{
			{Key: "statusCode", Value: int32(StatusInternal)},
			{Key: "statusDescription", Value: "internal error"},
		}
		m.Value = wire.Map{}
		b, err = m.Append(nil)
		if err != nil {
			m.Properties.CorrelationID = nil
			b, _ = m.Append(nil)
		}
	}
	return b
}

func statusText(status int) string {
	switch status {
	case StatusOK:
		return "OK"
	case StatusCreated:
		return "Created"
	case StatusNoContent:
		return "No Content"
	}
	return "Refused"
}

// fromWire turns a decoded value into plain Go: map[string]any, []any, string, []byte, numbers, bool, nil. Keys of
// maps become text; a key that has none is left out.
func fromWire(v any) any {
	switch v := v.(type) {
	case wire.Symbol:
		return string(v)
	case wire.Map:
		m := make(map[string]any, len(v))
		for _, kv := range v {
			if key, ok := scalarText(kv.Key); ok {
				m[key] = fromWire(kv.Value)
			}
		}
		return m
	case wire.List:
		return fromWireList(v)
	case []any:
		return fromWireList(v)
	case wire.Array:
		return fromWireList(v.Elems)
	case *wire.Array:
		return fromWireList(v.Elems)
	case wire.Described:
		return fromWire(v.Value)
	case *wire.Described:
		return fromWire(v.Value)
	case wire.Timestamp:
		return int64(v)
	case wire.UUID:
		return v.String()
	case wire.Char:
		return string(rune(v))
	}
	return v
}

func fromWireList(list []any) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = fromWire(v)
	}
	return out
}

// toWire turns plain Go into values of the codec, maps in key order so that equal answers are equal bytes. Text that
// is not UTF-8 (patterns are bytes) goes as binary.
func toWire(v any) any {
	switch v := v.(type) {
	case string:
		if !utf8.ValidString(v) {
			return []byte(v)
		}
		return v
	case map[string]any:
		m := make(wire.Map, 0, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			m = append(m, wire.KV{Key: validText(k), Value: toWire(v[k])})
		}
		return m
	case Entity:
		return toWire(map[string]any(v))
	case []any:
		list := make(wire.List, len(v))
		for i, e := range v {
			list[i] = toWire(e)
		}
		return list
	case []string:
		list := make(wire.List, len(v))
		for i, e := range v {
			list[i] = toWire(e)
		}
		return list
	case int:
		return int64(v)
	case uint:
		return uint64(v)
	case nil, bool, []byte, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64,
		wire.Symbol, wire.Timestamp, wire.UUID, wire.Map, wire.List:
		return v
	}
	return fmt.Sprint(v)
}

func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
