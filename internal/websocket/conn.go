package websocket

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/gobwas/ws"

	"github.com/fingerpost/fingerpost/internal/socket"
)

// Options of a Conn. The zero value is usable.
type Options struct {
	// MaxMessage is the most bytes of a message that comes in; a longer one is closed with TooBig. 0 is 1 MiB.
	MaxMessage int

	// PingEvery is how long a silent peer is left alone: then it is sent a ping, and where it stays silent for PongWait more, the connection fails with
	// ErrSilent. Whatever comes from the peer counts, and time in which the owner does not read does not. 0: it is never sent one.
	PingEvery time.Duration
	PongWait  time.Duration // 0 is PingEvery

	// Mutex is the connection's lock, nil for one of its own.
	Mutex *sync.Mutex

	// Line gives the frames to write, in the owner's order. Nil: only what Append was given is written.
	Line Line

	// Release is called where the connection has the lock and lets go of it. Nil: it is unlocked.
	Release func()

	// Aborted is called with the lock where the connection has failed but for what Next found itself: an owner that does not read for a while is to read
	// again, and hears why. Nil: nothing is called.
	Aborted func()
}

// ErrSilent ends a connection whose peer answered no ping.
var ErrSilent = errors.New("websocket: the peer is silent, and answers no ping")

const (
	readSize   = 32 << 10 // of a read
	maxMessage = 1 << 20
	closeWait  = 2 * time.Second // for the peer to take what was written last, and to answer a close
	lingerWait = 200 * time.Millisecond
)

// Message is what a peer sent. Data is valid until the next call of Next.
type Message struct {
	Text bool // UTF-8, which was checked
	Data []byte
}

// Conn is a WebSocket of whole messages. One goroutine calls Next, and at last End; all else is for any.
type Conn struct {
	// Set at construction, never changed.
	nc     net.Conn
	client bool // we mask, the peer does not
	o      Options
	mu     *sync.Mutex

	// Owned by who reads.
	in         socket.Reader
	used       int     // of in: the frame of the last message
	whole      *[]byte // the message that comes in fragments, as far as it is here
	wholeLen   int
	fragmented bool
	text       bool // the fragments are
	err        error

	heard   atomic.Bool // something came since the last tick
	probe   atomic.Pointer[probe]
	waiting atomic.Bool // the reader waits for the peer

	// Guarded by mu.
	w       socket.Writer
	pending []byte // frames that Append was given
	kept    []byte // the buffer that pending becomes next
	control control
	cause   error // why we end it
	timer   *time.Timer
	over    bool
}

// New makes a Conn of a connection after the handshake; already are bytes of it that were read.
func New(nc net.Conn, already []byte, client bool, o Options) *Conn {
	if o.MaxMessage == 0 {
		o.MaxMessage = maxMessage
	}
	if o.PongWait == 0 {
		o.PongWait = o.PingEvery
	}
	c := &Conn{nc: nc, client: client, o: o, mu: o.Mutex}
	if c.mu == nil {
		c.mu = &sync.Mutex{}
	}
	c.in.Init(nc, readSize)
	c.in.Push(already)
	c.w.Init(nc, c.mu, c.source())
	if o.PingEvery > 0 {
		c.mu.Lock()
		c.timer = time.AfterFunc(o.PingEvery, c.tick)
		c.mu.Unlock()
	}
	return c
}

// RemoteAddr is the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// Next waits for a message. more tells that another whole one is at hand already: who has none flushes what was written meanwhile. Pings are
// answered and a close is; then, as after any error, the Conn gives that error for ever: a *CloseError where the peer closed or has done wrong, io.EOF
// or io.ErrUnexpectedEOF where it went without a word, what Abort was given, ErrSilent.
//
// While it waits for a silent peer, the connection holds no buffer. Data is a slice of the read buffer where the message came in one frame.
func (c *Conn) Next() (m Message, more bool, err error) {
	if c.err != nil {
		return m, false, c.err
	}
	c.in.Use(c.used)
	c.used = 0
	c.forget()
	for {
		done, err := c.frame(&m)
		if err != nil {
			return Message{}, false, c.fail(err)
		}
		if done {
			return m, c.another(), nil
		}
	}
}

// frame takes a frame, or waits for more of it.
func (c *Conn) frame(m *Message) (done bool, err error) {
	b := c.in.Bytes()
	h, size, ok := parseHeader(b)
	if ok {
		if err := checkHeader(h, c.client, c.fragmented); err != nil {
			return false, err
		}
		if h.Length > int64(c.o.MaxMessage-c.wholeLen) && !h.OpCode.IsControl() {
			return false, &CloseError{Code: TooBig, Text: "the message is too long"}
		}
		size += int(h.Length)
	}
	if len(b) < size {
		return false, c.fill(size)
	}
	payload := b[size-int(h.Length) : size]
	if h.Masked {
		ws.Cipher(payload, h.Mask, 0)
	}
	switch {
	case h.OpCode.IsControl():
		err := c.handleControl(h.OpCode, payload)
		c.in.Use(size)
		return false, err
	case h.Fin && !c.fragmented:
		m.Text, m.Data, c.used = h.OpCode == ws.OpText, payload, size
	default:
		if !c.fragmented {
			c.text = h.OpCode == ws.OpText
		}
		c.gather(payload)
		c.in.Use(size)
		c.fragmented = !h.Fin
		if c.fragmented {
			return false, nil
		}
		m.Text, m.Data = c.text, (*c.whole)[:c.wholeLen]
	}
	if m.Text && !utf8.Valid(m.Data) {
		return false, &CloseError{Code: BadText, Text: "text is no UTF-8"}
	}
	return true, nil
}

// gather adds a fragment to the message. The sum was checked.
func (c *Conn) gather(p []byte) {
	if need := c.wholeLen + len(p); c.whole == nil || need > len(*c.whole) {
		bigger := socket.Get(need)
		if c.whole != nil {
			copy(*bigger, (*c.whole)[:c.wholeLen])
			socket.Put(c.whole)
		}
		c.whole = bigger
	}
	c.wholeLen += copy((*c.whole)[c.wholeLen:], p)
}

// forget gives back what gather took.
func (c *Conn) forget() {
	if c.whole != nil {
		socket.Put(c.whole)
		c.whole, c.wholeLen = nil, 0
	}
}

// another tells whether a whole message follows in what was read.
func (c *Conn) another() bool {
	for b := c.in.Bytes()[c.used:]; ; {
		h, size, ok := parseHeader(b)
		if !ok || h.Length > int64(len(b)-size) {
			return false
		}
		if h.Fin && !h.OpCode.IsControl() {
			return true
		}
		b = b[size+int(h.Length):]
	}
}

func (c *Conn) fill(need int) error {
	c.in.Room(need)
	c.waiting.Store(true)
	n, err := c.in.Fill()
	c.waiting.Store(false)
	switch {
	case n > 0:
		c.heard.Store(true)
		if p := c.probe.Swap(nil); p != nil {
			close(p.heard)
		}
		return nil
	case err == nil || errors.Is(err, io.EOF):
		if len(c.in.Bytes()) > 0 || c.fragmented {
			return io.ErrUnexpectedEOF
		}
		return io.EOF
	}
	return err
}

// fail keeps why reading ended; where it is the peer's fault, End tells it, behind what the owner still has to say. What Abort was given goes before
// what the socket says.
func (c *Conn) fail(err error) error {
	c.mu.Lock()
	var ce *CloseError
	if !errors.As(err, &ce) && c.cause != nil {
		err = c.cause
	}
	c.err = err
	c.w.Flush()
	c.release()
	return err
}

// handleControl takes a control frame.
func (c *Conn) handleControl(op ws.OpCode, p []byte) error {
	switch op {
	case ws.OpPing:
		c.mu.Lock()
		c.control.sendPong(p)
		c.w.Flush()
		c.release()
	case ws.OpClose:
		ce := parseClose(p)
		if ce.Remote {
			c.mu.Lock()
			c.control.sendClose(ce.Code, "")
			c.mu.Unlock() // fail flushes
		}
		return ce
	}
	return nil
}

// tick runs on the timer: a ping after a while of silence, the end after a longer one.
func (c *Conn) tick() {
	waited := c.waiting.Load()
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	c.w.Idle()
	c.kept = nil
	next := c.o.PingEvery
	switch {
	case c.heard.Swap(false) || !waited:
		c.control.asked = false
	case c.control.asked:
		c.abort(ErrSilent)
	default:
		c.control.sendPing()
		c.w.Flush()
		next = c.o.PongWait
	}
	c.timer.Reset(next)
	c.release()
}

// probe is what waits for a sign of life.
type probe struct{ heard chan struct{} }

// Probe sends a ping, and tells whether anything comes from the peer within wait. It is for a Conn whose owner reads.
func (c *Conn) Probe(wait time.Duration) bool {
	p := &probe{heard: make(chan struct{})}
	for !c.probe.CompareAndSwap(nil, p) {
		if other := c.probe.Load(); other != nil {
			p = other // the same sign is good for both
			break
		}
	}
	c.mu.Lock()
	over := c.over
	if !over {
		c.control.sendPing()
		c.w.Flush()
	}
	c.release()
	if over {
		return false
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-p.heard:
		return true
	case <-t.C:
		c.probe.CompareAndSwap(p, nil)
		return false
	}
}

// Abort ends the connection at once, for err: Next returns it.
func (c *Conn) Abort(err error) {
	c.mu.Lock()
	c.abort(err)
	c.mu.Unlock()
}

func (c *Conn) abort(err error) {
	if c.over {
		return
	}
	if c.cause == nil {
		c.cause = err
	}
	c.nc.SetReadDeadline(time.Unix(1, 0))
	if c.o.Aborted != nil {
		c.o.Aborted()
	}
}

// Close closes the connection in order: it sends a close behind what is being written, and Next has a little time for the peer's answer.
func (c *Conn) Close(code int, text string) {
	c.mu.Lock()
	defer c.release()
	if c.over || c.control.closing {
		return
	}
	if c.cause == nil {
		c.cause = &CloseError{Code: code, Text: text}
	}
	c.control.sendClose(code, text)
	c.w.Flush()
	c.nc.SetReadDeadline(time.Now().Add(closeWait))
}

// End ends the connection, once Next gave an error or is called no more. Where no close was sent, it sends one: of what the peer did wrong, else with
// code (0: none) and text. It gives the peer a moment to read what was sent: where it still sends, a reset would overtake that.
func (c *Conn) End(code int, text string) {
	c.mu.Lock()
	var wrong *CloseError
	if errors.As(c.err, &wrong) && !wrong.Remote {
		c.w.Flush()
		code, text = wrong.Code, wrong.Text
	}
	if code != 0 {
		c.control.sendClose(code, text)
	}
	c.w.Flush()
	c.w.Stop()
	c.over = true
	told := c.control.closing
	if c.timer != nil {
		c.timer.Stop()
	}
	c.release()
	c.nc.SetWriteDeadline(time.Now().Add(closeWait))
	c.w.Wait()
	if told {
		linger(c.nc)
	}
	c.nc.Close()
	c.forget()
	c.in.Free()
}

// linger has a last frame reach the peer before the socket goes. A peer that is in the middle of a message that is too long has to get to its end
// first, or a reset overtakes what it is told: what it sends is thrown away while it comes, for a while.
func linger(nc net.Conn) {
	half, ok := nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	buf := socket.Get(readSize)
	defer socket.Put(buf)
	for end := time.Now().Add(closeWait); time.Now().Before(end); {
		nc.SetReadDeadline(time.Now().Add(lingerWait))
		if _, err := nc.Read(*buf); err != nil {
			return
		}
	}
}
