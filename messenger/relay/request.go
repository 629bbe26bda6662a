package relay

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"time"
)

// Response is what a server answers. Close it, or read it to its end.
type Response struct {
	Head json.RawMessage // nil where it has no data

	c         *Client
	topic, id string
	headed    chan struct{} // closed when the head is here or the request has failed
	stop      func() bool   // of the context
	timer     *time.Timer   // nil: it may take for ever

	// Guarded by the client's lock.
	in     incoming
	out    outgoing
	over   bool // it is not among the client's requests any more
	hasHad bool // headed is closed
}

// Request sends a request and waits for the head of its response. body may be nil; it is read by a goroutine, which goes on while the response
// comes, and ends with it. ctx bounds the whole request, the response's body included: when it ends first, the request is cancelled.
//
// Errors are *Error: what the relay says, "timeout" where nothing comes for Options.Timeout, "cancelled", "closed" where there is no connection.
func (c *Client) Request(ctx context.Context, topic string, head json.RawMessage, body Body) (*Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, &Error{Code: Cancelled, Topic: topic, Cause: context.Cause(ctx)}
	}
	r, err := c.newResponse(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := r.out.send(ctx, "head", head, body == nil); err != nil {
		c.mu.Lock()
		r.fail(err)
		c.release()
		return nil, err
	}
	if body != nil {
		go r.sendBody(ctx, body)
	}
	<-r.headed // the context, the timer and the connection's end see to it
	c.mu.Lock()
	err = r.in.err
	c.release()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return r, nil
}

func (c *Client) newResponse(ctx context.Context, topic string) (*Response, error) {
	r := &Response{c: c, topic: topic, headed: make(chan struct{})}
	r.in.init(func(err *Error) { err.Topic = topic; r.giveUp(err) })
	c.mu.Lock()
	defer c.release()
	if c.conn == nil {
		return nil, &Error{Code: Closed, Topic: topic, Message: "there is no connection"}
	}
	c.lastID++
	r.id = strconv.FormatUint(c.lastID, 10)
	r.out = outgoing{c: c, topic: topic, id: r.id, wake: make(chan struct{}, 1), over: r.fail, progress: r.progress}
	c.requests[r.id] = r
	if c.o.Timeout > 0 {
		r.timer = time.AfterFunc(c.o.Timeout, func() {
			r.finish(&Error{Code: Timeout, Topic: topic, Message: "nothing came for " + c.o.Timeout.String()})
		})
	}
	r.stop = context.AfterFunc(ctx, func() { r.finish(&Error{Code: Cancelled, Topic: topic, Cause: context.Cause(ctx)}) })
	return r, nil
}

// sendBody is the goroutine of a request's body. It ends with the body, or with the request.
func (r *Response) sendBody(ctx context.Context, body Body) {
	for part, err := range body {
		if err != nil {
			r.finish(&Error{Code: Cancelled, Topic: r.topic, Message: "the request's body failed", Cause: err})
			return
		}
		if part == nil {
			part = json.RawMessage("null")
		}
		if err := r.out.send(ctx, "body", part, false); err != nil {
			r.finish(err)
			return
		}
	}
	if err := r.out.send(ctx, "body", nil, true); err != nil {
		r.finish(err)
	}
}

// handleResponse takes an op of a response; it gives a buffer that is full. Called under mu.
func (c *Client) handleResponse(p *op) (full *incoming) {
	r := c.requests[p.ID]
	if r == nil || r.topic != p.Topic || p.Op == "cancel" {
		return nil
	}
	r.progress()
	if p.Op == "head" && !r.hasHad {
		r.Head, r.hasHad = p.Data, true
		close(r.headed)
	} else if p.Data != nil {
		r.in.add(p.Data)
	}
	if p.Done {
		r.complete()
		return nil
	}
	if r.in.bytes > c.o.Buffer {
		return &r.in
	}
	return nil
}

// complete is the response's end. What is left of the request is not sent: nobody wants it.
func (r *Response) complete() {
	if r.out.err == nil {
		r.c.send(&op{Op: "cancel", Topic: r.topic, ID: r.id}, "", nil)
	}
	r.fail(io.EOF)
}

// progress puts the timeout off. Called under the lock.
func (r *Response) progress() {
	if r.timer != nil && !r.over {
		r.timer.Reset(r.c.o.Timeout)
	}
}

// finish ends the request from this side: the server is told, unless it is over anyway.
func (r *Response) finish(err error) {
	r.c.mu.Lock()
	r.giveUp(err)
	if r.c.conn != nil {
		r.c.conn.Flush()
	}
	r.c.release()
}

// giveUp is finish under the lock, without the flush.
func (r *Response) giveUp(err error) {
	if !r.over && r.c.conn != nil {
		r.c.send(&op{Op: "cancel", Topic: r.topic, ID: r.id}, "", nil)
	}
	r.fail(err)
}

// fail ends the request, for err; io.EOF is its good end. Called under the lock.
func (r *Response) fail(err error) {
	if r.over {
		return
	}
	r.over = true
	delete(r.c.requests, r.id)
	r.in.end(err)
	r.out.end(&Error{Code: Cancelled, Topic: r.topic, Message: "the request is over"})
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.stop != nil {
		r.stop()
	}
	if !r.hasHad {
		r.hasHad = true
		close(r.headed)
	}
}

// Next waits for the next part; io.EOF is the end of the body.
func (r *Response) Next() (json.RawMessage, error) { return r.c.next(context.Background(), &r.in) }

// Body is the parts that were not read yet.
func (r *Response) Body() Body { return r.c.body(context.Background(), &r.in) }

// Close gives up what has not come yet: the server is told by a cancel. After the end of the response it does nothing.
func (r *Response) Close() {
	r.finish(&Error{Code: Cancelled, Topic: r.topic, Message: "the response was closed"})
}
