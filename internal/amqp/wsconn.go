package amqp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gobwas/ws"
)

// wsConn is a WebSocket as a stream of bytes: the payloads of its binary frames, one after the other, whatever their borders (AMQP WebSocket
// binding 1.0, 2.1). It answers pings and the close. Source: RFC 6455, 5.
type wsConn struct {
	net.Conn
	client bool // we mask, the peer does not

	// Owned by who reads.
	br         *bufio.Reader
	left       uint64 // of the frame that is being read
	mask       [4]byte
	at         int  // place in its payload, for the mask
	masked     bool // it is
	fragmented bool // the last data frame was not the message's last
	rerr       error

	wmu   sync.Mutex // guards the sending side
	frame []byte     // client: a frame with its payload masked
	head  [ws.MaxHeaderSize]byte
	vec   [2][]byte
	parts net.Buffers

	pmu  sync.Mutex // guards pong; a leaf
	pong []byte     // the answer to the latest ping, until it is sent; nil is none

	closing sync.Once
}

// The bounds of a WebSocket peer.
const (
	maxWSFrame   = 64 << 20         // bytes of a frame: it is read as it comes, so this only tells sense from nonsense
	maxWSControl = 125              // RFC 6455, 5.5
	wsControl    = 10 * time.Second // how long a pong or a close may take to send
	keptFrame    = 64 << 10         // a larger buffer for masked frames is not kept
)

// wsError ends a WebSocket: the status tells the peer why.
type wsError struct {
	status ws.StatusCode
	text   string
}

func (e *wsError) Error() string { return "websocket: " + e.text }

func newWSConn(nc net.Conn, br *bufio.Reader, client bool) *wsConn {
	if br == nil {
		br = bufio.NewReaderSize(nc, 4096)
	}
	return &wsConn{Conn: nc, br: br, client: client}
}

// Read gives payload of data frames. It returns io.EOF after the peer's close.
func (c *wsConn) Read(p []byte) (int, error) {
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
func (c *wsConn) readFailed(err error) error {
	var own *wsError
	if errors.As(err, &own) {
		c.sendClose(own.status, own.text)
	}
	var t net.Error
	if !errors.As(err, &t) || !t.Timeout() {
		c.rerr = err
	}
	return err
}

// nextFrame reads the header of a frame; a control frame it handles.
func (c *wsConn) nextFrame() error {
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
		var payload [maxWSControl]byte
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

// peekHeader parses the header of the next frame without taking it, so that nothing is lost where a deadline comes in between. It allocates
// nothing.
func (c *wsConn) peekHeader() (h ws.Header, size int, err error) {
	b, err := c.br.Peek(2)
	if err != nil {
		if len(b) == 0 {
			return h, 0, err
		}
		return h, 0, unexpected(err)
	}
	h.Fin, h.Rsv, h.OpCode = b[0]&0x80 != 0, b[0]>>4&7, ws.OpCode(b[0]&0x0f)
	h.Masked, h.Length = b[1]&0x80 != 0, int64(b[1]&0x7f)
	size = 2
	switch h.Length {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	mask := size
	if h.Masked {
		size += 4
	}
	if b, err = c.br.Peek(size); err != nil {
		return h, 0, unexpected(err)
	}
	switch h.Length {
	case 126:
		h.Length = int64(binary.BigEndian.Uint16(b[2:]))
	case 127:
		h.Length = int64(min(binary.BigEndian.Uint64(b[2:]), 1<<62))
	}
	if h.Masked {
		copy(h.Mask[:], b[mask:])
	}
	return h, size, nil
}

// check holds a frame to the rules (RFC 6455, 5.1 to 5.5).
func (c *wsConn) check(h ws.Header) error {
	bad := func(text string) error { return &wsError{ws.StatusProtocolError, text} }
	switch {
	case h.Rsv != 0:
		return bad("reserved bits are set")
	case h.Masked == c.client:
		return bad("masking is for clients, and for them a must")
	case h.OpCode.IsControl() && (!h.Fin || h.Length > maxWSControl):
		return bad("a control frame is in pieces, or longer than 125 bytes")
	case h.OpCode == ws.OpClose, h.OpCode == ws.OpPing, h.OpCode == ws.OpPong:
		return nil
	case h.Length > maxWSFrame:
		return &wsError{ws.StatusMessageTooBig, fmt.Sprintf("a frame of more than %d bytes", maxWSFrame)}
	case h.OpCode == ws.OpText:
		return &wsError{ws.StatusUnsupportedData, "AMQP is in binary frames"}
	case h.OpCode == ws.OpBinary && c.fragmented:
		return bad("a message begins inside another")
	case h.OpCode == ws.OpContinuation && !c.fragmented:
		return bad("a continuation of nothing")
	case h.OpCode != ws.OpBinary && h.OpCode != ws.OpContinuation:
		return bad("an unknown kind of frame")
	}
	return nil
}

// control answers a ping and a close.
func (c *wsConn) control(op ws.OpCode, body []byte) error {
	switch op {
	case ws.OpPing:
		c.pmu.Lock()
		c.pong = append(make([]byte, 0, len(body)), body...)
		c.pmu.Unlock()
		return c.sendPong()
	case ws.OpClose:
		status := ws.StatusNormalClosure
		if len(body) >= 2 {
			if s := ws.StatusCode(binary.BigEndian.Uint16(body)); s.IsProtocolDefined() || s.IsApplicationSpec() || s.IsPrivateSpec() {
				status = s
			}
		}
		c.sendClose(status, "")
		return io.EOF
	}
	return nil
}

// sendPong sends the answer to the latest ping, unless somebody is sending: then that one does it, and the reader goes on.
func (c *wsConn) sendPong() error {
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
func (c *wsConn) writePong() error {
	c.pmu.Lock()
	body := c.pong
	c.pong = nil
	c.pmu.Unlock()
	if body == nil {
		return nil
	}
	return c.writeControl(ws.OpPong, body)
}

// writeControl writes a control frame. A peer that does not read does not hold us up for long. Called with wmu.
func (c *wsConn) writeControl(op ws.OpCode, body []byte) error {
	c.Conn.SetWriteDeadline(time.Now().Add(wsControl))
	_, err := c.writeFrame(op, body)
	c.Conn.SetWriteDeadline(time.Time{})
	return err
}

// Write sends p as one binary frame.
func (c *wsConn) Write(p []byte) (int, error) {
	c.wmu.Lock()
	n, err := c.writeFrame(ws.OpBinary, p)
	c.wmu.Unlock()
	if err == nil {
		err = c.sendPong()
	}
	return n, err
}

// writeFrame writes one whole frame and gives how much of its payload went. Called with wmu.
func (c *wsConn) writeFrame(op ws.OpCode, p []byte) (int, error) {
	head := c.appendHeader(c.head[:0], op, len(p))
	if !c.client {
		c.vec = [2][]byte{head, p}
		c.parts = c.vec[:]
		n, err := c.parts.WriteTo(c.Conn)
		c.vec = [2][]byte{}
		return max(int(n)-len(head), 0), err
	}
	mask := ws.NewMask()
	c.frame = append(append(append(c.frame[:0], head...), mask[:]...), p...)
	ws.Cipher(c.frame[len(head)+len(mask):], mask, 0)
	n, err := c.Conn.Write(c.frame)
	if cap(c.frame) > keptFrame {
		c.frame = nil
	}
	return max(n-len(head)-len(mask), 0), err
}

// appendHeader writes the header of a final frame, without the mask.
func (c *wsConn) appendHeader(b []byte, op ws.OpCode, n int) []byte {
	isMasked := byte(0)
	if c.client {
		isMasked = 0x80
	}
	b = append(b, 0x80|byte(op))
	switch {
	case n < 126:
		return append(b, isMasked|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, isMasked|126), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(b, isMasked|127), uint64(n))
}

// sendClose sends a close, once; nothing may follow it.
func (c *wsConn) sendClose(status ws.StatusCode, text string) {
	c.closing.Do(func() {
		c.Conn.SetWriteDeadline(time.Now().Add(wsControl)) // for a writer that has wmu and a peer that does not read
		c.wmu.Lock()
		defer c.wmu.Unlock()
		c.writeControl(ws.OpClose, ws.NewCloseFrameBody(status, text))
	})
}

// Close sends a close, where none has gone out, and ends the connection. It gives the peer a moment to read what was sent: where it still
// sends, a reset would overtake that. The caller reads no more.
func (c *wsConn) Close() error {
	c.Conn.SetWriteDeadline(time.Now().Add(time.Second)) // wakes a writer that holds wmu before long
	c.closing.Do(func() {
		if c.wmu.TryLock() { // else a writer is stuck: there is nobody to tell
			c.Conn.SetWriteDeadline(time.Now().Add(time.Second))
			c.writeFrame(ws.OpClose, ws.NewCloseFrameBody(ws.StatusNormalClosure, ""))
			c.wmu.Unlock()
		}
	})
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		c.Conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		io.CopyN(io.Discard, c.Conn, 256<<10)
	}
	return c.Conn.Close()
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
