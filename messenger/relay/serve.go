package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Role is what a client is on a topic that it serves.
type Role string

// Roles. A standby gets no requests, but may finish those that it has.
const (
	Active  Role = "active"
	Standby Role = "standby"
	None    Role = "none" // the relay took it off the topic
)

// Handler answers a request: by Respond and Send, and by returning, which ends the response. It is called in a goroutine of its own. ctx ends
// when the client cancels or goes, when the connection is lost, and with Close. For what an error does, see the package's Failures.
type Handler func(ctx context.Context, r *Request) error

// served is a topic that the client serves.
type served struct {
	topic   string
	handler Handler
	role    Role
}

// Serve has handler answer the requests of a topic, and gives the role that the client has on it now. Serving a topic again changes its handler. Where
// there is no connection for now, the error's code is "closed", and the topic is served when there is one; where ctx ends before the relay has
// answered, it may be served all the same.
func (c *Client) Serve(ctx context.Context, topic string, handler Handler) (Role, error) {
	if err := c.check(topic, nil); err != nil {
		return None, err
	}
	c.mu.Lock()
	if c.closed {
		c.release()
		return None, &Error{Code: Closed, Topic: topic}
	}
	s := &served{topic: topic, handler: handler}
	if old := c.topics[topic]; old != nil {
		s.role = old.role
	}
	c.topics[topic] = s
	c.release()
	if err := c.goBack(ctx); err != nil {
		return None, err
	}
	answer, err := c.call(ctx, "serve", topic)
	c.mu.Lock()
	defer c.release()
	if err != nil {
		if code := CodeOf(err); code != Closed && code != Cancelled && c.topics[topic] == s {
			delete(c.topics, topic)
		}
		return None, err
	}
	s.role = answer.Role
	return answer.Role, nil
}

// Unserve serves a topic no more. Requests that are being answered are finished.
func (c *Client) Unserve(ctx context.Context, topic string) error {
	if err := c.check(topic, nil); err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.topics, topic)
	c.release()
	_, err := c.call(ctx, "unserve", topic)
	if CodeOf(err) == Closed { // the relay knows of no topic of ours
		return nil
	}
	return err
}

// call sends an op and waits for its answer.
func (c *Client) call(ctx context.Context, kind, topic string) (*op, error) {
	answers := make(chan op, 1)
	c.mu.Lock()
	if c.conn == nil {
		c.release()
		return nil, &Error{Code: Closed, Topic: topic, Message: "there is no connection"}
	}
	c.send(&op{Op: kind, Topic: topic}, "", func(p *op) { answers <- *p })
	c.conn.Flush()
	c.release()
	select {
	case p := <-answers:
		if p.Code != "" {
			return nil, &Error{Code: p.Code, Message: p.Message, Topic: topic}
		}
		return &p, nil
	case <-ctx.Done():
		return nil, &Error{Code: Cancelled, Topic: topic, Cause: context.Cause(ctx)}
	}
}

// serveAgain serves a topic after a reconnect. Called under mu.
func (c *Client) serveAgain(s *served) {
	c.send(&op{Op: "serve", Topic: s.topic}, "", func(p *op) {
		switch {
		case p.Code == Closed: // and once more
		case p.Code != "":
			c.tellError(fmt.Errorf("serve %s again: %w", s.topic, p.err()))
			s.role = None
			c.tellRole(s.topic, None)
		default:
			s.role = p.Role
			c.tellRole(s.topic, p.Role)
		}
	})
}

func (c *Client) handleRole(p *op) {
	if s := c.topics[p.Topic]; s != nil {
		s.role = p.Role
	}
	c.tellRole(p.Topic, p.Role)
}

// servedKey tells requests apart.
type servedKey struct{ topic, from, id string }

// Request is a request to a topic that is served here.
type Request struct {
	Topic string
	From  string          // the client's address: opaque, one for all its requests of this connection and topic
	Head  json.RawMessage // nil where it has no data

	c      *Client
	key    servedKey
	ctx    context.Context
	cancel context.CancelCauseFunc
	in     incoming // guarded by the client's lock
	out    outgoing
	headed bool // owned by the handler
}

// handleRequest takes an op of a request; it gives a buffer that is full. Called under mu.
func (c *Client) handleRequest(p *op) (full *incoming) {
	key := servedKey{p.Topic, p.From, p.ID}
	r := c.serving[key]
	switch {
	case p.Op == "cancel":
		if r != nil {
			r.fail(&Error{Code: Cancelled, Topic: p.Topic, Message: "the client cancelled"})
		}
		return nil
	case p.Op == "head" && (r == nil || r.out.err != nil): // an id of an answered or cancelled request may come again before its handler is over
		r = c.begin(key, p)
	case r != nil && p.Data != nil:
		r.in.add(p.Data)
	}
	switch {
	case r == nil:
	case p.Done:
		r.in.end(io.EOF)
	case r.in.bytes > c.o.Buffer:
		return &r.in
	}
	return nil
}

// begin starts the handler of a request, which handlers waits for.
func (c *Client) begin(key servedKey, p *op) *Request {
	s := c.topics[p.Topic]
	if s == nil { // unserved a moment ago
		c.refuse(key, &Error{Code: Unavailable, Message: "the topic is not served here any more"})
		return nil
	}
	if c.atWork >= c.o.Concurrent {
		c.refuse(key, &Error{Code: Busy, Message: "the server has too many requests"})
		return nil
	}
	r := &Request{Topic: p.Topic, From: p.From, Head: p.Data, c: c, key: key}
	r.in.init(func(err *Error) { err.Topic = p.Topic; r.in.end(err) })
	r.ctx, r.cancel = context.WithCancelCause(c.ctx)
	r.out = outgoing{c: c, topic: p.Topic, id: p.ID, to: p.From, wake: make(chan struct{}, 1), over: r.fail, progress: func() {}}
	c.serving[key] = r
	c.atWork++
	c.handlers.Add(1)
	go r.serve(s.handler)
	return r
}

// refuse answers a request that no handler gets.
func (c *Client) refuse(key servedKey, err error) {
	c.send(&op{Op: "head", Topic: key.topic, ID: key.id, Data: failed(err), Done: true}, key.from, nil)
	c.way(key.from).Flush()
}

// serve is the goroutine of a request.
func (r *Request) serve(handler Handler) {
	defer r.c.handlers.Done()
	err := handler(r.ctx, r)
	if sendErr := r.conclude(err); err == nil {
		err = sendErr
	}
	r.c.mu.Lock()
	if err != nil && CodeOf(err) == "" {
		r.c.tellError(fmt.Errorf("serve %s: %w", r.Topic, err))
	}
	r.fail(&Error{Code: Closed, Topic: r.Topic, Message: "the request was answered"})
	if r.c.serving[r.key] == r {
		delete(r.c.serving, r.key)
	}
	if r.c.atWork--; r.c.atWork == 0 {
		for _, idle := range r.c.idle {
			close(idle)
		}
		r.c.idle = nil
	}
	r.c.release()
}

// conclude ends the response.
func (r *Request) conclude(err error) error {
	switch {
	case err != nil && r.headed:
		return r.out.send(r.ctx, "body", failed(err), true)
	case err != nil:
		return r.out.send(r.ctx, "head", failed(err), true)
	case r.headed:
		return r.out.send(r.ctx, "body", nil, true)
	}
	return r.out.send(r.ctx, "head", nil, true)
}

// fail ends it from the other side. Called under the lock.
func (r *Request) fail(err error) {
	r.in.end(err)
	r.out.end(err)
	r.cancel(err)
}

// Next waits for the next part of the request's body; io.EOF is its end.
func (r *Request) Next() (json.RawMessage, error) { return r.c.next(r.ctx, &r.in) }

// Body is the parts that were not read yet.
func (r *Request) Body() Body { return r.c.body(r.ctx, &r.in) }

// Respond sends the head of the response, once. It may be sent before the request's body has come. nil is a head without data.
func (r *Request) Respond(head json.RawMessage) error {
	if r.headed {
		return errors.New("relay: the response has a head already")
	}
	err := r.out.send(r.ctx, "head", head, false)
	r.headed = err == nil
	return err
}

// Send sends a part of the response when the window allows it, after a head without data where there was none.
func (r *Request) Send(part json.RawMessage) error {
	if !r.headed {
		if err := r.Respond(nil); err != nil {
			return err
		}
	}
	if part == nil {
		part = json.RawMessage("null")
	}
	return r.out.send(r.ctx, "body", part, false)
}
