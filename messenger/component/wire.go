package component

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// frame is a message of the stream, encoded.
type frame []byte

// frames is a codec that leaves messages as they are.
type frames struct{}

func (frames) Name() string { return "proto" }

func (frames) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(frame))}, nil
}

func (frames) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*frame) = data.Materialize()
	return nil
}

// Categories of events.
const (
	message  = 1
	request  = 2
	response = 3
)

// event is the message Event of the broker's .proto.
type event struct {
	id, parent, typ string
	span            []byte
	category        uint64
	created, ttl    int64
	context         evContext
	source, target  identity
	params, values  []entry
	contentType     string
	content         []byte
}

type evContext struct{ platform, environment, deployment, manifest string }

type identity struct{ kind, app, name, hash, id, broker string }

// entry is a map's entry; the value is JSON text.
type entry struct {
	key   string
	value []byte
}

// matched is the message MatchedEvent.
type matched struct {
	event
	route int64
	env   []entry
}

var errWire = errors.New("not an event")

// each calls f with the fields of a message.
func each(b []byte, f func(n protowire.Number, bytes []byte, varint uint64)) error {
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
		f(n, bytes, varint)
	}
	return nil
}

// texts reads a message whose fields from 1 on are texts.
func texts(b []byte, to ...*string) error {
	return each(b, func(n protowire.Number, bytes []byte, _ uint64) {
		if int(n) <= len(to) {
			*to[n-1] = string(bytes)
		}
	})
}

func parseEntry(b []byte) (x entry, err error) {
	err = each(b, func(n protowire.Number, bytes []byte, _ uint64) {
		switch n {
		case 1:
			x.key = string(bytes)
		case 2:
			x.value = bytes
		}
	})
	return x, err
}

func parseMatched(b []byte) (*matched, error) {
	m := &matched{}
	var bad error
	err := each(b, func(n protowire.Number, bytes []byte, varint uint64) {
		switch n {
		case 1:
			bad = errors.Join(bad, m.event.parse(bytes))
		case 2:
			m.route = int64(varint)
		case 3:
			x, err := parseEntry(bytes)
			bad, m.env = errors.Join(bad, err), append(m.env, x)
		}
	})
	return m, errors.Join(err, bad)
}

func (e *event) parse(b []byte) error {
	var bad error
	err := each(b, func(n protowire.Number, bytes []byte, varint uint64) {
		bad = errors.Join(bad, e.field(n, bytes, varint))
	})
	return errors.Join(err, bad)
}

func (e *event) field(n protowire.Number, bytes []byte, varint uint64) (err error) {
	switch n {
	case 1:
		e.id = string(bytes)
	case 2:
		e.parent = string(bytes)
	case 3:
		e.span = bytes
	case 4:
		e.typ = string(bytes)
	case 5:
		e.category = varint
	case 6:
		e.created = int64(varint)
	case 7:
		e.ttl = int64(varint)
	case 8:
		err = texts(bytes, &e.context.platform, &e.context.environment, &e.context.deployment, &e.context.manifest)
	case 9:
		err = e.source.parse(bytes)
	case 10:
		err = e.target.parse(bytes)
	case 11, 12:
		var x entry
		if x, err = parseEntry(bytes); n == 11 {
			e.params = append(e.params, x)
		} else {
			e.values = append(e.values, x)
		}
	case 14:
		e.contentType = string(bytes)
	case 15:
		e.content = bytes
	}
	return err
}

func (x *identity) parse(b []byte) error {
	return texts(b, &x.kind, &x.app, &x.name, &x.hash, &x.id, &x.broker)
}

// bytesField appends a field where it is not empty.
func bytesField(b []byte, n protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

func varintField(b []byte, n protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

func textsOf(list ...string) (b []byte) {
	for i, s := range list {
		b = bytesField(b, protowire.Number(i+1), []byte(s))
	}
	return b
}

func (x *identity) encoded() []byte { return textsOf(x.kind, x.app, x.name, x.hash, x.id, x.broker) }

func (e *event) append(b []byte) []byte {
	b = bytesField(b, 1, []byte(e.id))
	b = bytesField(b, 2, []byte(e.parent))
	b = bytesField(b, 3, e.span)
	b = bytesField(b, 4, []byte(e.typ))
	b = varintField(b, 5, e.category)
	b = varintField(b, 6, uint64(e.created))
	b = varintField(b, 7, uint64(e.ttl))
	b = bytesField(b, 8, textsOf(e.context.platform, e.context.environment, e.context.deployment, e.context.manifest))
	b = bytesField(b, 9, e.source.encoded())
	b = bytesField(b, 10, e.target.encoded())
	for _, x := range e.values {
		b = bytesField(b, 12, bytesField(bytesField(nil, 1, []byte(x.key)), 2, x.value))
	}
	b = bytesField(b, 14, []byte(e.contentType))
	return bytesField(b, 15, e.content)
}

// decoded are entries by key.
func decoded(list []entry) map[string]any {
	m := map[string]any{}
	for _, x := range list {
		var v any
		if json.Unmarshal(x.value, &v) == nil {
			m[x.key] = v
		}
	}
	return m
}

// request is the event as handlers see it.
func (m *matched) request() *Request {
	r := &Request{ID: m.id, Type: m.typ, RouteID: int(m.route), Params: map[string]string{}, Values: decoded(m.values), Env: decoded(m.env),
		ContentType: m.contentType, Content: m.content, event: &m.event}
	for k, v := range decoded(m.params) {
		r.Params[k] = fmt.Sprint(v)
	}
	return r
}

// answer is the beginning of the answer to a request.
func (m *matched) answer(from identity, ttl int64) *event {
	return &event{id: newID(), parent: m.id, span: m.span, typ: m.typ, category: response, ttl: ttl, context: m.context, source: from, target: m.source}
}

func (e *event) setResponse(r *Response) {
	status := r.Status
	if status == 0 {
		status = 200
	}
	e.contentType, e.content = r.ContentType, r.Content
	e.values = []entry{{"statusCode", fmt.Append(nil, status)}}
	if text, err := json.Marshal(r.Header); err == nil && len(r.Header) > 0 {
		e.values = append(e.values, entry{"header", text})
	}
}

// response is the answer that the event is.
func (e *event) response() (*Response, error) {
	if e.typ == "io.kubefox.error" {
		f := &Error{}
		if json.Unmarshal(e.content, f) != nil || f.Msg == "" {
			f = &Error{GRPC: 2, HTTP: 500, Msg: "unexpected error"}
		}
		return nil, f
	}
	r := &Response{Status: 200, ContentType: e.contentType, Content: e.content, Header: map[string][]string{}}
	for _, x := range e.values {
		switch x.key {
		case "statusCode":
			json.Unmarshal(x.value, &r.Status)
		case "header":
			json.Unmarshal(x.value, &r.Header)
		}
	}
	return r, nil
}

// newID is a random UUID (version 4).
func newID() string {
	var u [16]byte
	rand.Read(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	s := hex.EncodeToString(u[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}
