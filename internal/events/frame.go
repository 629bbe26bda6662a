package events

import (
	"errors"
	"math"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// Bounds of what a frame says.
const (
	maxTypeBytes = 1024
	maxIDBytes   = 128
	maxNameBytes = 128
	maxRefBytes  = 256
)

// frame is a frame from a component: the members that some op knows, as they are written. Those of other names are passed over.
type frame struct {
	op, ref, name, id, kind, data, response, context         []byte
	direction, fromTime, protocol, restart, shareable        []byte
	check, status, exceptions, vitals                        []byte
	router, origin, seq, requests, responses, markers, paths []byte
	code, message                                            []byte
}

// field gives the place of a member; nil where no op knows the name.
func (f *frame) field(name []byte) *[]byte {
	switch string(name) {
	case "op":
		return &f.op
	case "ref":
		return &f.ref
	case "name":
		return &f.name
	case "id":
		return &f.id
	case "type":
		return &f.kind
	case "data":
		return &f.data
	case "response":
		return &f.response
	case "context":
		return &f.context
	case "direction":
		return &f.direction
	case "from_time":
		return &f.fromTime
	case "protocol":
		return &f.protocol
	case "restart":
		return &f.restart
	case "shareable":
		return &f.shareable
	case "check":
		return &f.check
	case "status":
		return &f.status
	case "exceptions":
		return &f.exceptions
	case "vitals":
		return &f.vitals
	}
	return f.linkField(name)
}

// linkField is field for what only routers say to each other.
func (f *frame) linkField(name []byte) *[]byte {
	switch string(name) {
	case "router":
		return &f.router
	case "origin":
		return &f.origin
	case "seq":
		return &f.seq
	case "requests":
		return &f.requests
	case "responses":
		return &f.responses
	case "markers":
		return &f.markers
	case "paths":
		return &f.paths
	case "code":
		return &f.code
	case "message":
		return &f.message
	}
	return nil
}

// parse reads a frame. Its members are parts of b. Where there is an error, it has those before it.
func (f *frame) parse(b []byte) error {
	*f = frame{}
	m, err := object(b)
	for more := err == nil; more; {
		var name, value []byte
		if name, value, more, err = m.next(); err != nil || !more {
			break
		}
		p := f.field(name)
		if p == nil {
			name = m.plain(name)
			p = f.field(name)
		}
		if p != nil {
			if *p != nil {
				return errors.New("a member is there twice: " + string(name))
			}
			*p = value
		}
	}
	return err
}

// word decodes a member that is a string; empty where it is none, or not there.
func word(value []byte) string {
	s, _ := text(value)
	return string(s)
}

func isNull(value []byte) bool { return value == nil || string(value) == "null" }

// event is an event as it came: parts of its frame.
type event struct {
	typ      []byte // decoded
	response bool   // its direction
	id       []byte // a JSON string
	data     []byte
	answer   []byte // the member response; nil is none
	context  []byte // nil is none
	payload  []byte // the AMQP message that it came as; nil is none
}

// event reads the event that a frame holds.
func (f *frame) event(e *event) error {
	*e = event{id: f.id, data: f.data, context: f.context}
	if id, ok := text(f.id); !ok || len(id) == 0 || len(id) > maxIDBytes {
		return errors.New("id: a text of 1 to 128 bytes is wanted")
	}
	var err error
	if e.typ, err = typeOf(f.kind); err != nil {
		return err
	}
	if isNull(e.context) {
		e.context = nil
	}
	if e.data == nil {
		e.data = []byte("null")
	}
	if isNull(f.response) {
		return nil
	}
	status, err := statusOf(f.response)
	if err != nil || status == "NONE" {
		return err
	}
	e.response, e.answer = true, f.response
	return nil
}

func typeOf(value []byte) ([]byte, error) {
	t, ok := text(value)
	if !ok || len(t) == 0 || len(t) > maxTypeBytes {
		return nil, errors.New("type: a text of 1 to 1024 bytes is wanted")
	}
	return t, nil
}

// statusOf gives the status of a response: OK, FAILED, or NONE, which makes it none.
func statusOf(response []byte) (string, error) {
	var status []byte
	m, err := object(response)
	for more := err == nil; more; {
		var name, value []byte
		if name, value, more, err = m.next(); err != nil || !more {
			break
		}
		if string(m.plain(name)) != "status" {
			continue
		}
		if status != nil {
			return "", errors.New("response: a member is there twice: status") // the component may take the other
		}
		status = value
	}
	switch s, _ := text(status); string(s) {
	case "OK":
		return "OK", nil
	case "FAILED":
		return "FAILED", nil
	case "NONE":
		return "NONE", nil
	}
	return "", errors.New(`response: an object with status "OK" or "FAILED" is wanted`)
}

// isResponse reads a direction.
func isResponse(value []byte) (response bool, err error) {
	switch s, _ := text(value); string(s) {
	case "request":
		return false, nil
	case "response":
		return true, nil
	}
	return false, errors.New(`direction: "request" or "response" is wanted`)
}

// appendTime appends a time, Unix nanoseconds, as a JSON string: RFC 3339 with nine digits of a second, always.
func appendTime(b []byte, at int64) []byte {
	b = append(b, '"')
	b = time.Unix(0, at).UTC().AppendFormat(b, "2006-01-02T15:04:05.000000000Z")
	return append(b, '"')
}

// parseTime reads a time of the wire as Unix nanoseconds. One that these cannot hold is the first or the last that there is: clocks that are not set, and
// the least and greatest times of languages, are asked for.
func parseTime(s string) (int64, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	switch {
	case err != nil, s[len("2006-01-02T15")] != ':', strings.Contains(s, ","): // Parse takes hours of one digit, and a comma for the dot
		return 0, errors.New(`from_time: a time as 2026-07-01T12:00:00.5Z is wanted, "restart" or "now"`)
	case t.Year() < 1970:
		return 0, nil
	case t.Year() > 2200: // nanoseconds hold 1678 to 2262
		return math.MaxInt64, nil
	}
	return max(t.UnixNano(), 0), nil
}

// bodySize is the length of what appendBody appends.
func (e *event) bodySize() int {
	n := len(`"id":,"data":`) + len(e.id) + len(e.data)
	if e.answer != nil {
		n += len(`,"response":`) + len(e.answer)
	}
	if e.context != nil {
		n += len(`,"context":`) + len(e.context)
	}
	return n
}

// appendBody appends the members of an event that the ring keeps.
func (e *event) appendBody(b []byte) []byte {
	b = append(append(b, `"id":`...), e.id...)
	b = append(append(b, `,"data":`...), e.data...)
	if e.answer != nil {
		b = append(append(b, `,"response":`...), e.answer...)
	}
	if e.context != nil {
		b = append(append(b, `,"context":`...), e.context...)
	}
	return b
}

// stamp writes times as appendTime does, and keeps what the last had in common with the next. The zero value is usable.
type stamp struct {
	second int64
	text   [len("2006-01-02T15:04:05.")]byte
}

// append appends a time, without quotes.
func (s *stamp) append(b []byte, at int64) []byte {
	second, rest := at/1e9, at%1e9
	if second != s.second || s.text[0] == 0 {
		s.second = second
		time.Unix(second, 0).UTC().AppendFormat(s.text[:0], "2006-01-02T15:04:05.")
	}
	b = append(b, s.text[:]...)
	var digits [10]byte
	for i := 8; i >= 0; i-- {
		digits[i] = '0' + byte(rest%10)
		rest /= 10
	}
	digits[9] = 'Z'
	return append(b, digits[:]...)
}

// appendEvent appends the frame of an event, as the payload of a message. via is the router that it came to first; empty is this one.
func (s *stamp) appendEvent(b, head []byte, at int64, body []byte, via string, replay bool) []byte {
	b = s.append(append(b, head...), at)
	b = append(append(b, `",`...), body...)
	if via != "" {
		b = appendText(append(b, `,"via":`...), via)
	}
	if replay {
		b = append(b, `,"replay":true`...)
	}
	return append(b, '}')
}

// via gives the router that an event came to first; empty for this one.
func (v *view) via(origin uint32) string {
	if origin == 0 {
		return ""
	}
	return v.origins[origin]
}

// appendFrames takes events off the view and appends their frames, for a component, until there are n bytes.
func (v *view) appendFrames(b []byte, n int) []byte {
	var s stamp
	for len(v.places) > 0 && len(b) < n {
		e := v.next()
		var at int
		b, at = websocket.BeginFrame(b, false)
		b = websocket.EndFrame(s.appendEvent(b, v.of(e).head, e.at, e.body, v.via(e.origin), true), at, true, false)
	}
	return b
}
