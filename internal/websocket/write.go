package websocket

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/gobwas/ws"

	"github.com/fingerpost/fingerpost/internal/socket"
)

// Line is what an owner has to write. Its methods are called with the lock.
type Line interface {
	// Output gives the next frames, made by AppendText and the like, nil where there are none. spare is an empty buffer to append them to; one of
	// the owner's own, given instead, comes back as the next spare.
	Output(spare []byte) []byte

	// Wrote is told that the socket took n bytes more of what Output gave: in its order, and frames of the connection itself not counted.
	Wrote(n int)
}

// Trimmer is a Line that takes back what the socket has not begun: the rest that Trim is given begins where Wrote has come to and ends with the last
// Output, and Trim tells how much of it has to be written, from 1 byte to all. A frame that was begun has to be.
type Trimmer = socket.Trimmer

// Lock takes the connection's lock.
func (c *Conn) Lock() { c.mu.Lock() }

// Unlock lets go of it, and writes nothing.
func (c *Conn) Unlock() { c.mu.Unlock() }

// Flush tries to write what there is; a goroutine takes over what the socket does not take. Called with the lock.
func (c *Conn) Flush() { c.w.Flush() }

// Client tells whether this is the end that masks.
func (c *Conn) Client() bool { return c.client }

// Append has a message written behind those that were given before. It is written by Flush. Called with the lock.
//
// It is for connections without a Line. How much waits, Pending tells.
func (c *Conn) Append(text bool, payload []byte) {
	c.pending = appendFrame(c.grown(len(payload)), kind(text), payload, c.client)
}

// AppendWith is Append of a payload that write appends to what it is given.
func (c *Conn) AppendWith(text bool, write func([]byte) []byte) {
	b, at := BeginFrame(c.grown(0), c.client)
	c.pending = EndFrame(write(b), at, text, c.client)
}

func (c *Conn) grown(n int) []byte {
	if c.pending == nil {
		c.pending, c.kept = c.kept[:0], nil
	}
	return c.pending
}

// Pending is how many bytes of Append the writer has not begun with. Called with the lock.
func (c *Conn) Pending() int { return len(c.pending) }

func (c *Conn) release() {
	if c.o.Release != nil {
		c.o.Release()
		return
	}
	c.mu.Unlock()
}

func kind(text bool) ws.OpCode {
	if text {
		return ws.OpText
	}
	return ws.OpBinary
}

// AppendFrame appends a message to b as one frame; client tells whose end sends it. payload may not overlap b.
func AppendFrame(b []byte, text bool, payload []byte, client bool) []byte {
	return appendFrame(b, kind(text), payload, client)
}

// AppendHeader appends the header of a message of n bytes, all of it in one frame, as the end sends it that does not mask.
func AppendHeader(b []byte, text bool, n int) []byte { return appendHeader(b, kind(text), n, false) }

// BeginFrame makes room in b for the header of a frame whose payload is then appended; EndFrame with the same at writes it.
func BeginFrame(b []byte, client bool) (_ []byte, at int) {
	at = len(b)
	if client {
		return append(b, 0, 0, 0, 0, 0, 0, 0, 0), at
	}
	return append(b, 0, 0, 0, 0), at
}

// EndFrame makes a frame of what was appended since BeginFrame. A payload below 126 bytes or from 64 KiB on is moved by a few bytes.
func EndFrame(b []byte, at int, text, client bool) []byte {
	from := at + 4
	if client {
		from += 4
	}
	n := len(b) - from
	var head [ws.MaxHeaderSize]byte
	h := appendHeader(head[:0], kind(text), n, client)
	if client {
		m := newMask()
		ws.Cipher(b[from:], m, 0)
		h = append(h, m[:]...)
	}
	switch to := at + len(h); {
	case to < from:
		copy(b[to:], b[from:])
		b = b[:to+n]
	case to > from:
		b = append(b, h[:to-from]...) // any bytes
		copy(b[to:], b[from:from+n])
	}
	copy(b[at:], h)
	return b
}

// control is the frames that the connection sends by itself.
type control struct {
	pong    []byte // the answer to the latest ping, where pongs
	pongs   bool
	ping    bool
	asked   bool // a ping was sent and nothing has come since
	close   []byte
	closing bool // nothing but close may follow
	closed  bool // it was given to the writer
}

func (k *control) sendPong(p []byte) {
	k.pong, k.pongs = append(k.pong[:0], p...), true
}

func (k *control) sendPing() { k.ping, k.asked = true, true }

// sendClose has a close sent, once.
func (k *control) sendClose(code int, text string) {
	if k.closing {
		return
	}
	k.closing = true
	if code != NoCode {
		k.close = closeBody(code, text)
	}
}

// closeBody is the payload of a close. A text that is too long is cut, on a border.
func closeBody(code int, text string) []byte {
	for len(text) > maxControl-2 || !utf8.ValidString(text) {
		text = text[:min(len(text)-1, maxControl-2)]
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(code)), text...)
}

// output appends what there is to b.
func (k *control) output(b []byte, client bool) []byte {
	if k.pongs {
		b = appendFrame(b, ws.OpPong, k.pong, client)
	}
	if k.ping && !k.closing {
		b = appendFrame(b, ws.OpPing, nil, client)
	}
	if k.closing && !k.closed {
		b = appendFrame(b, ws.OpClose, k.close, client)
		k.closed = true
	}
	k.pongs, k.ping = false, false
	return b
}

// source is what the writer takes bytes from: frames of the connection itself in buffers of their own, and the owner's.
type source struct {
	*Conn
	own bool // the last Output is not the Line's
}

// trimmer is the source of a Line that is one.
type trimmer struct{ source }

func (c *Conn) source() socket.Source {
	if _, ok := c.o.Line.(Trimmer); ok {
		return &trimmer{source{Conn: c}}
	}
	return &source{Conn: c}
}

func (s *source) Output(spare []byte) []byte {
	k := &s.control
	if k.closing && !k.closed && len(s.pending) > 0 { // what was said before the close
		return s.said(spare)
	}
	if !k.closed && (k.pongs || k.ping || k.closing) {
		if out := k.output(spare, s.client); len(out) > 0 {
			s.own = true
			return out
		}
	}
	if s.control.closing {
		return nil
	}
	s.own = s.o.Line == nil || len(s.pending) > 0
	if !s.own {
		return s.o.Line.Output(spare)
	}
	if len(s.pending) == 0 {
		return nil
	}
	return s.said(spare)
}

// said gives what Append was given.
func (s *source) said(spare []byte) []byte {
	out := s.pending
	s.own, s.pending, s.kept = true, nil, spare
	return out
}

func (s *source) Wrote(n int) {
	if !s.own {
		s.o.Line.Wrote(n)
	}
}

func (s *source) Failed(err error) {
	if s.control.closed { // the peer is gone, as it may be
		return
	}
	s.abort(err)
}

func (s *source) Release() { s.release() }

func (t *trimmer) Trim(rest []byte) int {
	if t.own {
		return len(rest)
	}
	return t.o.Line.(Trimmer).Trim(rest)
}
