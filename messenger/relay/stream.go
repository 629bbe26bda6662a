package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// errSent is the end of an outgoing that has sent all.
var errSent = errors.New("relay: the end was sent already")

// incoming is the parts that came and were not read. It is guarded by the client's lock.
type incoming struct {
	parts  []json.RawMessage
	first  int
	bytes  int // of parts
	err    error
	giveUp func(*Error)  // ends it from here; called under the lock
	wake   chan struct{} // holds one where something is new
	room   chan struct{} // holds one where something was read
}

func (in *incoming) init(giveUp func(*Error)) {
	in.giveUp = giveUp
	in.wake, in.room = make(chan struct{}, 1), make(chan struct{}, 1)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (in *incoming) add(data json.RawMessage) {
	if in.err != nil { // it goes on where nobody wants it any more
		return
	}
	in.parts = append(in.parts, data)
	in.bytes += len(data)
	signal(in.wake)
}

// end ends it; io.EOF is the end of all parts. What was not read is read still, unless it failed.
func (in *incoming) end(err error) {
	if in.err != nil {
		return
	}
	in.err = err
	if err != io.EOF {
		in.parts, in.first, in.bytes = nil, 0, 0
	}
	signal(in.wake)
	signal(in.room)
}

// take gives the next part; ok is false where there is none yet.
func (in *incoming) take() (p json.RawMessage, ok bool, err error) {
	if in.first == len(in.parts) {
		in.parts, in.first = in.parts[:0], 0
		return nil, false, in.err
	}
	p = in.parts[in.first]
	in.parts[in.first] = nil
	in.first++
	in.bytes -= len(p)
	signal(in.room)
	return p, true, nil
}

// next waits for a part; io.EOF is the end.
func (c *Client) next(ctx context.Context, in *incoming) (json.RawMessage, error) {
	for {
		c.mu.Lock()
		p, ok, err := in.take()
		c.release()
		if ok || err != nil {
			signal(in.wake) // for another reader
			return p, err
		}
		select {
		case <-in.wake:
		case <-ctx.Done():
			return nil, &Error{Code: Cancelled, Cause: context.Cause(ctx)}
		}
	}
}

// body is what in has as a Body.
func (c *Client) body(ctx context.Context, in *incoming) Body {
	return func(yield func(json.RawMessage, error) bool) {
		for {
			p, err := c.next(ctx, in)
			if err == io.EOF {
				return
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// outgoing is a head and parts on their way out. It is guarded by the client's lock.
type outgoing struct {
	c         *Client
	topic, id string
	to        string // of a response
	untaken   int    // Invariant: untaken <= Options.Window
	err       error
	wake      chan struct{}
	over      func(error) // an op was refused: called under the lock
	progress  func()      // one was taken
}

// send sends an op when the window allows it.
func (o *outgoing) send(ctx context.Context, kind string, data json.RawMessage, done bool) error {
	c := o.c
	if err := c.check(o.topic, data); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.release()
	for o.err == nil && o.untaken >= c.o.Window {
		c.release()
		select {
		case <-o.wake:
			c.mu.Lock()
		case <-ctx.Done():
			c.mu.Lock()
			return &Error{Code: Cancelled, Topic: o.topic, Cause: context.Cause(ctx)}
		}
	}
	if o.err != nil {
		signal(o.wake)
		return o.err
	}
	o.untaken++
	c.send(&op{Op: kind, Topic: o.topic, ID: o.id, Data: data, Done: done}, o.to, o.answered)
	c.way(o.to).Flush()
	if done {
		o.end(errSent)
	}
	return nil
}

// Bounds of a message: the relay's own, unless Options.MaxMessage is higher, and how much of it may be beside the data.
const (
	relayMessage = 16 << 20
	mostWords    = 32 << 10
)

// check says what the relay would end the connection for, with all that goes by it, or would take for another topic.
func (c *Client) check(topic string, data json.RawMessage) error {
	words := ""
	switch {
	case !utf8.ValidString(topic):
		words = "the topic is no UTF-8"
	case data != nil && (!utf8.Valid(data) || !json.Valid(data)):
		words = "a head or a part is no JSON"
	case len(data) > max(c.o.MaxMessage, relayMessage)-mostWords:
		words = fmt.Sprintf("a head or a part of %d bytes is too long", len(data))
	default:
		return nil
	}
	return &Error{Code: BadRequest, Topic: topic, Message: words}
}

func (o *outgoing) answered(p *op) {
	o.untaken--
	if p.Code != "" {
		err := &Error{Code: p.Code, Message: p.Message, Topic: o.topic}
		o.end(err)
		o.over(err)
		return
	}
	o.progress()
	signal(o.wake)
}

// end has nothing be sent any more. Called under the lock.
func (o *outgoing) end(err error) {
	if o.err == nil {
		o.err = err
		signal(o.wake)
	}
}
