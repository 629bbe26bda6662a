package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// op is what the relay sends, answers and pushes.
type op struct {
	Op      string          `json:"op"`
	Topic   string          `json:"topic"`
	ID      string          `json:"id"`
	From    string          `json:"from"`
	Data    json.RawMessage `json:"data"`
	Done    bool            `json:"done"`
	Ref     string          `json:"ref"`
	Role    Role            `json:"role"`
	Code    string          `json:"code"`
	Message string          `json:"message"`
}

func (p *op) err() error { return &Error{Code: p.Code, Message: p.Message, Topic: p.Topic} }

// run keeps the connection: it is the client's one reader.
func (c *Client) run(conn *websocket.Conn) {
	defer close(c.done)
	for conn != nil {
		err := c.read(conn)
		conn.End(websocket.Normal, "")
		if !c.lost(err) {
			return
		}
		conn = c.reconnect()
	}
}

// read handles what comes until the connection is over.
func (c *Client) read(conn *websocket.Conn) error {
	var ops []op
	for {
		m, more, err := conn.Next()
		if err != nil {
			return err
		}
		clear(ops)
		ops = ops[:0]
		if !m.Text || json.Unmarshal(m.Data, &ops) != nil {
			return errors.New("the relay sends what is no message")
		}
		for i := range ops {
			c.mu.Lock()
			full := c.handle(&ops[i])
			c.release()
			if full != nil {
				c.hold(full)
			}
		}
		if !more {
			c.mu.Lock()
			conn.Flush()
			c.release()
		}
	}
}

// handle handles an op; it gives a response whose buffer is full. Called under mu.
func (c *Client) handle(p *op) (full *Response) {
	switch p.Op {
	case "head", "body", "cancel":
		if p.From != "" {
			c.handleRequest(p)
			return nil
		}
		return c.handleResponse(p)
	case "role":
		c.handleRole(p)
		return nil
	}
	answered := c.refs[p.Ref]
	delete(c.refs, p.Ref)
	switch {
	case answered != nil:
		answered(p)
	case p.Op == "error":
		c.tellError(p.err())
	}
	return nil
}

// lost fails everything unfinished, and tells whether to connect again.
func (c *Client) lost(err error) bool {
	c.mu.Lock()
	defer c.release()
	c.conn = nil
	meant := c.closed
	c.closed = c.closed || c.o.NoReconnect
	gone := &Error{Code: Closed, Cause: err}
	if ce := new(websocket.CloseError); errors.As(err, &ce) && ce.Remote && ce.Code == websocket.Normal {
		gone.Cause = nil
	}
	for _, r := range c.requests {
		r.fail(gone)
	}
	for _, r := range c.serving {
		r.fail(gone)
	}
	refs := c.refs
	c.refs = map[string]func(*op){}
	for _, answered := range refs {
		answered(&op{Op: ":error", Code: Closed, Message: "the connection was lost"})
	}
	if !meant {
		c.tellError(gone)
	}
	return !c.closed
}

// reconnect connects again, and serves the topics again. Nil: the client is closed.
func (c *Client) reconnect() *websocket.Conn {
	for pause := c.o.RetryAfter; ; pause = min(2*pause, c.o.RetryMost) {
		t := time.NewTimer(pause/2 + rand.N(pause)) // many that lost one relay do not come back as one
		select {
		case <-t.C:
		case <-c.ctx.Done():
			t.Stop()
			return nil
		}
		ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
		conn, err := c.dial(ctx)
		cancel()
		c.mu.Lock()
		switch {
		case c.closed:
			c.release()
			if conn != nil {
				conn.End(websocket.Normal, "")
			}
			return nil
		case err != nil:
			c.tellError(fmt.Errorf("connect again: %w", err))
			c.release()
			continue
		}
		c.conn = conn
		for _, s := range c.topics {
			c.serveAgain(s)
		}
		conn.Flush()
		c.release()
		return conn
	}
}

// send appends an op as a message of its own; answered (which may be nil) is called with its answer. It is written by the next flush. Called
// under mu with a connection.
func (c *Client) send(p *op, to string, answered func(*op)) {
	c.lastRef++
	ref := strconv.FormatUint(c.lastRef, 10)
	if answered == nil {
		answered = func(*op) {}
	}
	c.refs[ref] = answered
	c.conn.AppendWith(true, func(b []byte) []byte {
		b = append(append(append(b, `[{"op":"`...), p.Op...), '"')
		b = appendField(b, "topic", p.Topic)
		b = appendField(b, "id", p.ID)
		b = appendField(b, "to", to)
		b = appendField(b, "ref", ref)
		if p.Data != nil {
			b = append(append(b, `,"data":`...), p.Data...)
		}
		if p.Done {
			b = append(b, `,"done":true`...)
		}
		return append(b, "}]"...)
	})
}

func appendField(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return append(b, String(value)...)
}

// hold waits until a response's buffer has room, for as long as that response may hold up the connection, all told.
func (c *Client) hold(r *Response) {
	began := time.Now()
	t := time.NewTimer(c.o.Hold - r.held)
	defer t.Stop()
	for waits := c.o.Hold > r.held; waits && c.isFull(r); {
		select {
		case <-r.in.room:
		case <-c.ctx.Done():
			return
		case <-t.C:
			waits = false
		}
	}
	r.held += time.Since(began)
	c.mu.Lock()
	if r.in.bytes > c.o.Buffer {
		r.giveUp(&Error{Code: Busy, Topic: r.topic, Message: fmt.Sprintf("more than %d bytes of the response wait to be read", c.o.Buffer)})
	}
	c.release()
}

func (c *Client) isFull(r *Response) bool {
	c.mu.Lock()
	defer c.release()
	return r.in.bytes > c.o.Buffer
}
