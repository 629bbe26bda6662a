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

// handle handles an op; it gives a buffer that is full. Called under mu.
func (c *Client) handle(p *op) (full *incoming) {
	switch p.Op {
	case "head", "body", "cancel":
		if p.From != "" {
			return c.handleRequest(p)
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
	if back := c.back; back != nil {
		c.back = nil
		c.events = append(c.events, func() { back.Abort(err) })
	}
	meant := c.closed
	c.closed = c.closed || c.o.NoReconnect
	gone := &Error{Code: Closed, Cause: err}
	if ce := new(websocket.CloseError); errors.As(err, &ce) && ce.Remote && ce.Code == websocket.Normal {
		gone.Cause = nil
	}
	c.failAll(gone)
	if !meant {
		c.tellError(gone)
	}
	return !c.closed
}

// failAll fails everything unfinished. Called under mu.
func (c *Client) failAll(gone *Error) {
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
		conn, err := c.again(ctx)
		cancel()
		if err == nil {
			return conn
		}
		c.mu.Lock()
		c.tellError(fmt.Errorf("connect again: %w", err))
		c.release()
	}
}

// again tries once to connect again. Nil and no error: the client is closed.
func (c *Client) again(ctx context.Context) (*websocket.Conn, error) {
	conn, err := c.dial(ctx)
	c.mu.Lock()
	if c.closed {
		c.release()
		if conn != nil {
			conn.End(websocket.Normal, "")
		}
		return nil, nil
	}
	if err != nil {
		c.release()
		return nil, err
	}
	c.conn = conn
	serves := len(c.topics) > 0
	c.release()
	if serves {
		err = c.goBack(ctx)
	}
	c.mu.Lock()
	defer c.release()
	if err != nil {
		c.conn = nil
		c.failAll(&Error{Code: Closed, Cause: err})
		c.events = append(c.events, func() { conn.End(websocket.Normal, "") })
		return nil, err
	}
	for _, s := range c.topics {
		c.serveAgain(s)
	}
	conn.Flush()
	return conn, nil
}

// send appends an op as a message of its own; answered (which may be nil) is called with its answer. It is written by the next flush of its
// way. Called under mu with a connection.
func (c *Client) send(p *op, to string, answered func(*op)) {
	c.lastRef++
	ref := strconv.FormatUint(c.lastRef, 10)
	if answered == nil {
		answered = func(*op) {}
	}
	c.refs[ref] = answered
	c.way(to).AppendWith(true, func(b []byte) []byte {
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

// hold waits until a full buffer has room: the connection is not read meanwhile, so that TCP and the relay slow the sender down. It waits no longer than
// Options.Hold without a part being read.
func (c *Client) hold(in *incoming) {
	t := time.NewTimer(max(c.o.Hold, 0))
	defer t.Stop()
	for late := c.o.Hold < 0; ; {
		c.mu.Lock()
		if in.err == nil && in.bytes > c.o.Buffer && late {
			in.giveUp(&Error{Code: Busy, Message: fmt.Sprintf("%d bytes wait, and nobody reads", in.bytes)})
		}
		full := in.err == nil && in.bytes > c.o.Buffer
		c.release()
		if !full {
			return
		}
		select {
		case <-in.room:
			t.Reset(max(c.o.Hold, 0))
		case <-c.ctx.Done():
			return
		case <-t.C:
			late = true
		}
	}
}

// goBack connects the way back, where there is none: what answers requests goes by a connection of its own. The relay's answers to that come by it too, so
// that a handler which waits for one gets it, however full the buffers of bodies are.
func (c *Client) goBack(ctx context.Context) error {
	c.backing.Lock()
	defer c.backing.Unlock()
	c.mu.Lock()
	main, has := c.conn, c.back != nil
	c.release()
	if main == nil || has {
		return nil
	}
	back, err := c.dial(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.conn != main || c.closed { // lost meanwhile
		c.release()
		back.End(websocket.Normal, "")
		return nil
	}
	c.back = back
	c.handlers.Add(1)
	c.release()
	go c.readBack(main, back)
	return nil
}

// readBack is the goroutine of the way back. The connections of a client end together.
func (c *Client) readBack(main, back *websocket.Conn) {
	defer c.handlers.Done()
	err := c.read(back)
	back.End(websocket.Normal, "")
	c.mu.Lock()
	if c.back == back {
		c.back = nil
	}
	c.release()
	main.Abort(err)
}

// way is the connection for an op that goes to a client's address, or to none. Called under mu.
func (c *Client) way(to string) *websocket.Conn {
	if to != "" && c.back != nil {
		return c.back
	}
	return c.conn
}
