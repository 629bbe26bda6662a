package component

import (
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/mem"

	"github.com/fingerpost/fingerpost/internal/components/proto"
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

// matched is an event that came, with the route that took it and the variables of its environment.
type matched struct {
	proto.Event
	route int64
	env   []proto.Entry
}

// parseMatched reads a MatchedEvent, of which it keeps the bytes.
func parseMatched(b []byte) (*matched, error) {
	var x proto.Matched
	if err := x.Parse(b); err != nil {
		return nil, err
	}
	m := &matched{route: x.RouteID, env: x.Env}
	_, err := m.Event.Parse(x.Event)
	return m, err
}

// decoded are entries by key.
func decoded(list []proto.Entry) map[string]any {
	m := map[string]any{}
	for _, x := range list {
		var v any
		if json.Unmarshal(x.Value, &v) == nil {
			m[x.Key] = v
		}
	}
	return m
}

// request is the event as handlers see it.
func (m *matched) request() *Request {
	r := &Request{ID: m.ID, Type: m.Type, RouteID: int(m.route), Params: map[string]string{}, Values: decoded(m.Values), Env: decoded(m.env),
		ContentType: m.ContentType, Content: m.Content, event: &m.Event}
	for k, v := range decoded(m.Params) {
		r.Params[k] = fmt.Sprint(v)
	}
	return r
}

// answer is the beginning of the answer to a request.
func (m *matched) answer(from proto.Component, ttl int64) *proto.Event {
	return &proto.Event{ID: proto.NewID(), ParentID: m.ID, Span: m.Span, Type: m.Type, Category: proto.Response, TTL: ttl,
		HasContext: true, Context: m.Context, HasSource: true, Source: from, HasTarget: true, Target: m.Source}
}

// setResponse has an answer say what the handler does.
func setResponse(e *proto.Event, r *Response) {
	status := r.Status
	if status == 0 {
		status = 200
	}
	e.ContentType, e.Content = r.ContentType, r.Content
	e.Values = []proto.Entry{{Key: "statusCode", Value: fmt.Append(nil, status)}}
	if text, err := json.Marshal(r.Header); err == nil && len(r.Header) > 0 {
		e.Values = append(e.Values, proto.Entry{Key: "header", Value: text})
	}
}

// responseOf is the answer that an event is.
func responseOf(e *proto.Event) (*Response, error) {
	if e.Type == proto.TypeError {
		f := &Error{}
		if json.Unmarshal(e.Content, f) != nil || f.Msg == "" {
			f = &Error{GRPC: 2, HTTP: 500, Msg: "unexpected error"}
		}
		return nil, f
	}
	r := &Response{Status: 200, ContentType: e.ContentType, Content: e.Content, Header: map[string][]string{}}
	for _, x := range e.Values {
		switch x.Key {
		case "statusCode":
			json.Unmarshal(x.Value, &r.Status)
		case "header":
			json.Unmarshal(x.Value, &r.Header)
		}
	}
	return r, nil
}
