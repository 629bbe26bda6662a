package websocket

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gobwas/ws"
)

// Stream is a WebSocket as a stream of bytes: the payloads of its binary frames, one after the other, whatever their borders (AMQP WebSocket
// binding 1.0, 2.1). It answers pings and the close. One goroutine reads; others may write meanwhile. Source: RFC 6455, 5.
type Stream struct {
	net.Conn
	client bool // we mask, the peer does not

	rmu sync.Mutex // guards the receiving side: who reads, and Close

	// Under rmu.
	br         *bufio.Reader
	left       uint64 // of the frame that is being read
	mask       [4]byte
	at         int  // place in its payload, for the mask
	masked     bool // it is
	fragmented bool // the last data frame was not the message's last
	rerr       error

	wmu   sync.Mutex // guards the sending side
	shut  bool       // a close has gone out: nothing may follow it
	frame []byte     // client: a frame with its payload masked
	head  [ws.MaxHeaderSize]byte
	vec   [2][]byte
	parts net.Buffers

	pmu  sync.Mutex // guards pong; a leaf
	pong []byte     // the answer to the latest ping, until it is sent; nil is none

	closing sync.Once
}

// The bounds of a Stream.
const (
	maxFrame    = 64 << 20         // bytes of a frame: it is read as it comes, so this only tells sense from nonsense
	controlWait = 10 * time.Second // how long a pong or a close may take to send
	keptFrame   = 64 << 10         // a larger buffer for masked frames is not kept
)

// NewStream makes a Stream of a connection after the handshake; already are bytes of it that were read.
func NewStream(nc net.Conn, already []byte, client bool) *Stream {
	c := &Stream{Conn: nc, client: client}
	if len(already) == 0 {
		c.br = bufio.NewReaderSize(nc, 4096)
	} else {
		c.br = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(already), nc), 4096)
	}
	return c
}

// Read gives payload of data frames. It returns io.EOF after the peer's close.
func (c *Stream) Read(p []byte) (int, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	for c.left == 0 {
		if c.rerr != nil {
			return 0, c.rerr
		}
		if err := c.nextFrame(); err != nil {
			return 0, c.readFailed(err)
		}
	}
	n, err := c.br.Read(p[:min(uint64(len(p)), c.left)])
	if c.masked {
		ws.Cipher(p[:n], c.mask, c.at)
		c.at += n
	}
	c.left -= uint64(n)
	if n > 0 {
		return n, nil
	}
	return 0, unexpected(err)
}

// readFailed keeps an error that is final, and tells the peer where it is its fault. A deadline is not final.
func (c *Stream) readFailed(err error) error {
	var own *CloseError
	if errors.As(err, &own) {
		c.sendClose(own.Code, own.Text)
	}
	var t net.Error
	if !errors.As(err, &t) || !t.Timeout() {
		c.rerr = err
	}
	return err
}

// nextFrame reads the header of a frame; a control frame it handles.
func (c *Stream) nextFrame() error {
	h, size, err := c.peekHeader()
	if err != nil {
		return err
	}
	if err := c.check(h); err != nil {
		return err
	}
	if h.OpCode.IsControl() {
		// Peeked whole: a deadline in the middle leaves it where it is.
		frame, err := c.br.Peek(size + int(h.Length))
		if err != nil {
			return unexpected(err)
		}
		var payload [maxControl]byte
		body := payload[:copy(payload[:], frame[size:])]
		c.br.Discard(len(frame))
		if h.Masked {
			ws.Cipher(body, h.Mask, 0)
		}
		return c.control(h.OpCode, body)
	}
	c.br.Discard(size)
	c.fragmented = !h.Fin
	c.left, c.mask, c.masked, c.at = uint64(h.Length), h.Mask, h.Masked, 0
	return nil
}

// peekHeader parses the header of the next frame without taking it, so that nothing is lost where a deadline comes in between.
func (c *Stream) peekHeader() (h ws.Header, size int, err error) {
	var b []byte
	for ok := false; !ok; {
		h, size, ok = parseHeader(b)
		if ok {
			break
		}
		if b, err = c.br.Peek(size); err != nil {
			if len(b) > 0 {
				err = unexpected(err)
			}
			return h, 0, err
		}
	}
	return h, size, nil
}

// check holds a frame to the rules, and to those of a stream.
func (c *Stream) check(h ws.Header) error {
	if err := checkHeader(h, c.client, c.fragmented); err != nil {
		return err
	}
	switch {
	case h.Length > maxFrame:
		return &CloseError{Code: TooBig, Text: fmt.Sprintf("a frame of more than %d bytes", maxFrame)}
	case h.OpCode == ws.OpText:
		return &CloseError{Code: BadKind, Text: "this is in binary frames"}
	}
	return nil
}

// control answers a ping and a close.
func (c *Stream) control(op ws.OpCode, body []byte) error {
	switch op {
	case ws.OpPing:
		c.pmu.Lock()
		c.pong = append(make([]byte, 0, len(body)), body...)
		c.pmu.Unlock()
		return c.sendPong()
	case ws.OpClose:
		ce := parseClose(body)
		if !ce.Remote {
			return ce
		}
		code := ce.Code
		if code == NoCode {
			code = Normal
		}
		c.sendClose(code, "")
		return io.EOF
	}
	return nil
}

// sendPong sends the answer to the latest ping, unless somebody is sending: then that one does it, and the reader goes on.
func (c *Stream) sendPong() error {
	for {
		c.pmu.Lock()
		waits := c.pong != nil
		c.pmu.Unlock()
		if !waits || !c.wmu.TryLock() {
			return nil
		}
		err := c.writePong()
		c.wmu.Unlock()
		if err != nil {
			return err
		}
	}
}

// writePong writes what sendPong is about. Called with wmu.
func (c *Stream) writePong() error {
	c.pmu.Lock()
	body := c.pong
	c.pong = nil
	c.pmu.Unlock()
	if body == nil || c.shut {
		return nil
	}
	return c.writeControl(ws.OpPong, body)
}

// writeControl writes a control frame. A peer that does not read does not hold us up for long. Called with wmu.
func (c *Stream) writeControl(op ws.OpCode, body []byte) error {
	c.Conn.SetWriteDeadline(time.Now().Add(controlWait))
	_, err := c.writeFrame(op, body)
	c.Conn.SetWriteDeadline(time.Time{})
	return err
}

// Write sends p as one binary frame. After a close it fails with net.ErrClosed.
func (c *Stream) Write(p []byte) (int, error) {
	c.wmu.Lock()
	if c.shut {
		c.wmu.Unlock()
		return 0, net.ErrClosed
	}
	n, err := c.writeFrame(ws.OpBinary, p)
	c.wmu.Unlock()
	if err == nil {
		err = c.sendPong()
	}
	return n, err
}

// writeFrame writes one whole frame and gives how much of its payload went. Called with wmu.
func (c *Stream) writeFrame(op ws.OpCode, p []byte) (int, error) {
	head := appendHeader(c.head[:0], op, len(p), c.client)
	if !c.client {
		c.vec = [2][]byte{head, p}
		c.parts = c.vec[:]
		n, err := c.parts.WriteTo(c.Conn)
		c.vec = [2][]byte{}
		return max(int(n)-len(head), 0), err
	}
	mask := newMask()
	c.frame = append(append(append(c.frame[:0], head...), mask[:]...), p...)
	ws.Cipher(c.frame[len(head)+len(mask):], mask, 0)
	n, err := c.Conn.Write(c.frame)
	if cap(c.frame) > keptFrame {
		c.frame = nil
	}
	return max(n-len(head)-len(mask), 0), err
}

// sendClose sends a close, once; nothing may follow it.
func (c *Stream) sendClose(code int, text string) {
	c.closing.Do(func() {
		c.Conn.SetWriteDeadline(time.Now().Add(controlWait)) // for a writer that has wmu and a peer that does not read
		c.wmu.Lock()
		defer c.wmu.Unlock()
		c.shut = true
		c.writeControl(ws.OpClose, closeBody(code, text))
	})
}

// Close sends a close, where none has gone out, and ends the connection. It gives the peer a moment to read what was sent: where it still
// sends, a reset would overtake that. Who reads meanwhile gets what has come, and then an error.
func (c *Stream) Close() error {
	c.Conn.SetWriteDeadline(time.Now().Add(time.Second)) // wakes a writer that holds wmu before long
	c.closing.Do(func() {
		if c.wmu.TryLock() { // else a writer is stuck: there is nobody to tell
			c.shut = true
			c.Conn.SetWriteDeadline(time.Now().Add(time.Second))
			c.writeFrame(ws.OpClose, closeBody(Normal, ""))
			c.wmu.Unlock()
		}
	})
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		c.Conn.SetReadDeadline(time.Now().Add(lingerWait))
		c.discard()
	}
	return c.Conn.Close()
}

// discard throws away what comes. It waits for who reads: bytes taken from under it would have it take the rest of a frame for the next one.
func (c *Stream) discard() {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	c.left, c.rerr = 0, net.ErrClosed
	io.CopyN(io.Discard, c.Conn, 256<<10)
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
