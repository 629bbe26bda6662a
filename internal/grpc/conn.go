package grpc

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/fingerpost/fingerpost/internal/socket"
)

// Types of frames (RFC 9113, 6).
const (
	frameData byte = iota
	frameHeaders
	framePriority
	frameReset
	frameSettings
	framePushPromise
	framePing
	frameGoAway
	frameWindow
	frameContinuation
)

// Flags of frames.
const (
	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

// code is why a connection or a stream ends (RFC 9113, 7). As an error it ends the connection.
type code uint32

const (
	codeNone        code = 0
	codeProtocol    code = 1
	codeFlowControl code = 3
	codeClosed      code = 5
	codeFrameSize   code = 6
	codeRefused     code = 7
	codeCancel      code = 8
	codeCompression code = 9
	codeCalm        code = 11
)

func (c code) Error() string { return fmt.Sprintf("HTTP/2 error %d", uint32(c)) }

// conn is a connection.
type conn struct {
	// Set at construction, never changed.
	s   *Server
	nc  net.Conn
	tls *tls.ConnectionState // nil: without

	// Owned by read.
	r       socket.Reader
	hp      *hpack.Decoder
	head    headers
	block   []byte    // of headers that are not complete
	blockn  uint32    // their stream; 0: none
	ended   bool      // they end the stream
	last    uint32    // the highest stream
	touched []*Stream // got something since the last Drained

	heard   atomic.Int64 // Unix nanoseconds of the last read
	serving sync.WaitGroup

	mu       sync.Mutex // guards what follows, and the parts of streams that say so
	w        socket.Writer
	out      []byte // frames that wait before all messages
	streams  map[uint32]*Stream
	ready    []*Stream // those that may have something to write
	sent     []*Stream // whose owners are to be told once the lock is released
	window   int64     // that the peer gives the connection
	initial  int64     // and each new stream
	most     int       // bytes of a frame that the peer takes
	consumed int       // bytes that the connection's window is to be opened by
	active   int       // goroutines of streams
	leaving  bool      // no stream is taken any more
	over     bool
	pinged   time.Time // zero: no answer is waited for
	timer    *time.Timer
	acks     []byte // answers to pings that wait for acking
	acking   *time.Timer
}

// newConn is a connection that has something to write: its settings. run begins it.
func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{s: s, nc: nc, streams: map[uint32]*Stream{}, window: 65535, initial: 65535, most: maxFrame}
	c.hp = hpack.NewDecoder(4096, c.head.take)
	c.hp.SetMaxStringLength(maxHeaders)
	c.r.Init(nc, 16<<10)
	c.w.Init(nc, &c.mu, c)
	c.out = appendFrame(c.out, frameSettings, 0, 0, 18)
	for _, x := range [...]struct {
		id uint16
		v  uint32
	}{{3, maxStreams}, {4, window}, {6, maxHeaders}} {
		c.out = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(c.out, x.id), x.v)
	}
	c.out = appendWindow(c.out, 0, 16<<20-65535)
	return c
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// run reads until the connection ends, and ends its streams.
func (c *conn) run() {
	c.mu.Lock()
	c.timer = time.AfterFunc(c.s.o.Quiet, c.keepAlive)
	c.heard.Store(time.Now().UnixNano())
	c.w.Flush()
	c.unlock()

	err := c.read()
	c.mu.Lock()
	if why, ok := errors.AsType[code](err); ok {
		c.out = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(appendFrame(c.out, frameGoAway, 0, 0, 8), c.last), uint32(why))
		c.nc.SetWriteDeadline(time.Now().Add(time.Second))
		c.w.Flush()
	}
	c.over = true
	c.timer.Stop()
	if c.acking != nil {
		c.acking.Stop()
	}
	c.w.Stop()
	for _, s := range c.streams {
		s.close(errLost)
	}
	c.unlock()
	if _, ok := errors.AsType[code](err); !ok {
		c.nc.Close()
	}
	c.w.Wait()
	c.nc.Close()
	c.serving.Wait()
	c.r.Free()
}

// unlock releases the lock, and tells the owners of what was written.
func (c *conn) unlock() {
	sent := c.sent
	c.sent = nil
	c.mu.Unlock()
	for _, s := range sent {
		s.owner.Settle()
	}
}

// read reads frames until the connection ends.
func (c *conn) read() error {
	began := false
	for {
		for {
			b := c.r.Bytes()
			if !began {
				if len(b) < len(preface) {
					break
				}
				if !bytes.HasPrefix(b, []byte(preface)) {
					return codeProtocol
				}
				c.r.Use(len(preface))
				c.nc.SetDeadline(time.Time{})
				began = true
				continue
			}
			if len(b) < 9 {
				break
			}
			n := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
			if n > maxFrame {
				return codeFrameSize
			}
			if len(b) < 9+n {
				c.r.Room(9 + n)
				break
			}
			if err := c.frame(b[3], b[4], binary.BigEndian.Uint32(b[5:])&(1<<31-1), b[9:9+n]); err != nil {
				return err
			}
			c.r.Use(9 + n)
		}
		c.drained()
		if c.r.Bytes() != nil {
			c.r.Room(max(len(c.r.Bytes())+1, 9))
		}
		if _, err := c.r.Fill(); err != nil {
			if err == io.EOF {
				return io.ErrUnexpectedEOF
			}
			return err
		}
		c.heard.Store(time.Now().UnixNano())
	}
}

// drained is called when all that was read is handled: windows are opened, owners told, and all of it written at once.
func (c *conn) drained() {
	for i, s := range c.touched {
		s.touched = false
		s.owner.Drained()
		c.touched[i] = nil
	}
	c.touched = c.touched[:0]
	c.mu.Lock()
	if c.consumed > 1<<20 {
		c.out = appendWindow(c.out, 0, uint32(c.consumed))
		c.consumed = 0
	}
	c.w.Flush()
	c.unlock()
}

// frame handles a frame; b is valid until it returns.
func (c *conn) frame(kind, flags byte, id uint32, b []byte) error {
	if c.blockn != 0 && (kind != frameContinuation || id != c.blockn) {
		return codeProtocol
	}
	switch kind {
	case frameData:
		return c.handleData(flags, id, b)
	case frameHeaders:
		return c.handleHeaders(flags, id, b)
	case frameContinuation:
		if c.blockn == 0 {
			return codeProtocol
		}
		return c.handleBlock(flags, b)
	case frameReset:
		if len(b) != 4 {
			return codeFrameSize
		}
		c.mu.Lock()
		defer c.unlock()
		if s := c.streams[id]; s != nil {
			s.close(errCanceled)
		} else if id == 0 || id > c.last {
			return codeProtocol
		}
	case frameSettings:
		return c.handleSettings(flags, id, b)
	case framePing:
		return c.handlePing(flags, id, b)
	case frameWindow:
		return c.handleWindow(id, b)
	case framePushPromise:
		return codeProtocol
	}
	return nil
}

// unpad takes the padding off (RFC 9113, 6.1).
func unpad(flags byte, b []byte) ([]byte, error) {
	if flags&flagPadded == 0 {
		return b, nil
	}
	if len(b) == 0 || int(b[0]) >= len(b) {
		return nil, codeProtocol
	}
	return b[1 : len(b)-int(b[0])], nil
}

func (c *conn) handleData(flags byte, id uint32, b []byte) error {
	size := len(b)
	c.mu.Lock()
	c.consumed += size
	s := c.streams[id]
	if s == nil {
		idle := id == 0 || id > c.last
		c.unlock()
		if idle {
			return codeProtocol
		}
		return nil // it was ended here, and the peer does not know yet
	}
	s.room -= size
	short, halfClosed := s.room < 0, s.halfClosed
	c.unlock()
	b, err := unpad(flags, b)
	switch {
	case err != nil:
		return err
	case short:
		return codeFlowControl
	case halfClosed:
		return codeClosed
	}
	s.data(b, size)
	if flags&flagEndStream != 0 {
		s.endOfInput()
	}
	return nil
}

func (c *conn) handleHeaders(flags byte, id uint32, b []byte) error {
	b, err := unpad(flags, b)
	if err != nil {
		return err
	}
	if flags&flagPriority != 0 {
		if len(b) < 5 {
			return codeFrameSize
		}
		b = b[5:]
	}
	if id%2 == 0 {
		return codeProtocol
	}
	c.blockn, c.ended, c.block = id, flags&flagEndStream != 0, c.block[:0]
	return c.handleBlock(flags, b)
}

func (c *conn) handleBlock(flags byte, b []byte) error {
	if len(c.block)+len(b) > maxHeaders {
		return codeCalm
	}
	c.block = append(c.block, b...)
	if flags&flagEndHeaders == 0 {
		return nil
	}
	id := c.blockn
	c.blockn = 0
	c.head.reset()
	if _, err := c.hp.Write(c.block); err != nil {
		return codeCompression
	}
	if err := c.hp.Close(); err != nil {
		return codeCompression
	}
	if id <= c.last { // trailers
		c.mu.Lock()
		s := c.streams[id]
		c.unlock()
		if s != nil && c.ended {
			s.endOfInput()
		}
		return nil
	}
	c.last = id
	return c.open(id)
}

// open begins a stream, or refuses it.
func (c *conn) open(id uint32) error {
	c.mu.Lock()
	defer c.unlock()
	h := &c.head
	serve := c.s.o.Methods[h.path]
	switch {
	case c.leaving || c.active >= maxStreams:
		c.out = appendReset(c.out, id, codeRefused)
	case h.bad:
		c.out = appendReset(c.out, id, codeProtocol)
	case h.method != "POST":
		c.out = appendHeaders(c.out, id, true, "405", "", 0, "")
	case !isGRPC(h.contentType):
		c.out = appendHeaders(c.out, id, true, "415", "", 0, "")
	case serve == nil:
		c.out = appendHeaders(c.out, id, true, "200", contentType, 12, "unknown method")
	case h.encoding != "" && h.encoding != "identity":
		c.out = appendHeaders(c.out, id, true, "200", contentType, 12, "messages are not compressed here")
	default:
		c.begin(id, serve)
		return nil
	}
	return c.bounded()
}

// bounded ends a connection whose peer does not read what it is answered. The lock is held.
func (c *conn) bounded() error {
	if len(c.out) > maxControl {
		return codeCalm
	}
	return nil
}

func (c *conn) begin(id uint32, serve func(*Stream)) {
	s := &Stream{c: c, id: id, fields: c.head.fields, room: window, peerRoom: c.initial, halfClosed: c.ended, first: make(chan []byte, 1), done: make(chan struct{})}
	c.head.fields = nil
	c.streams[id] = s
	c.active++
	c.serving.Go(func() {
		defer s.leave()
		serve(s)
	})
	if c.ended {
		s.close(io.EOF)
	}
}

func (c *conn) handleSettings(flags byte, id uint32, b []byte) error {
	switch {
	case id != 0:
		return codeProtocol
	case flags&flagAck != 0:
		return nil
	case len(b)%6 != 0:
		return codeFrameSize
	}
	c.mu.Lock()
	defer c.unlock()
	for ; len(b) > 0; b = b[6:] {
		v := binary.BigEndian.Uint32(b[2:])
		switch binary.BigEndian.Uint16(b) {
		case 4:
			if v > 1<<31-1 {
				return codeFlowControl
			}
			for _, s := range c.streams {
				if s.peerRoom += int64(v) - c.initial; s.peerRoom > 1<<31-1 {
					return codeFlowControl
				}
				c.wake(s)
			}
			c.initial = int64(v)
		case 5:
			if v < 16<<10 || v > 1<<24-1 {
				return codeProtocol
			}
			c.most = int(min(v, 64<<10))
		}
	}
	c.out = appendFrame(c.out, frameSettings, flagAck, 0, 0)
	return c.bounded()
}

func (c *conn) handlePing(flags byte, id uint32, b []byte) error {
	switch {
	case id != 0:
		return codeProtocol
	case len(b) != 8:
		return codeFrameSize
	}
	c.mu.Lock()
	defer c.unlock()
	if flags&flagAck != 0 {
		c.pinged = time.Time{}
		return nil
	}
	c.acks = append(appendFrame(c.acks, framePing, flagAck, 0, 8), b...)
	if len(c.acks) > maxControl {
		return codeCalm
	}
	if c.acking == nil {
		c.acking = time.AfterFunc(pingWait, c.acknowledge)
	} else if len(c.acks) == pingSize {
		c.acking.Reset(pingWait)
	}
	return nil
}

// pingWait is how long a ping waits for its answer. Clients in Go measure by pings how much is on its way, one after the other for as long as they are sent
// messages: answered at once, each costs a read and a write, which is as much as the message.
const pingWait = 10 * time.Millisecond

const pingSize = 9 + 8

// acknowledge answers the pings.
func (c *conn) acknowledge() {
	c.mu.Lock()
	defer c.unlock()
	c.out = append(c.out, c.acks...)
	c.acks = c.acks[:0]
	c.w.Flush()
}

func (c *conn) handleWindow(id uint32, b []byte) error {
	if len(b) != 4 {
		return codeFrameSize
	}
	n := int64(binary.BigEndian.Uint32(b) & (1<<31 - 1))
	if n == 0 {
		return codeProtocol
	}
	c.mu.Lock()
	defer c.unlock()
	if id == 0 {
		if c.window += n; c.window > 1<<31-1 {
			return codeFlowControl
		}
		return nil
	}
	s := c.streams[id]
	if s == nil {
		if id > c.last {
			return codeProtocol
		}
		return nil
	}
	if s.peerRoom += n; s.peerRoom > 1<<31-1 {
		return codeFlowControl
	}
	c.wake(s)
	return nil
}

// wake notes that a stream may have something to write. The lock is held.
func (c *conn) wake(s *Stream) {
	if !s.isReady && s.owner != nil && !s.ending {
		s.isReady = true
		c.ready = append(c.ready, s)
	}
}

// keepAlive asks a peer that is silent whether it is there, and ends the connection of one that does not say so.
func (c *conn) keepAlive() {
	c.mu.Lock()
	defer c.unlock()
	now, quiet := time.Now(), c.s.o.Quiet
	silent := now.Sub(time.Unix(0, c.heard.Load()))
	switch {
	case c.over:
	case silent < quiet:
		c.pinged = time.Time{}
		c.timer.Reset(quiet - silent)
	case c.pinged.IsZero():
		c.pinged = now
		c.out = binary.BigEndian.AppendUint64(appendFrame(c.out, framePing, 0, 0, 8), uint64(now.UnixNano()))
		c.w.Flush()
		c.timer.Reset(quiet / 2)
	default:
		c.nc.Close()
	}
}

// goAway takes no more streams; the connection ends with the last one.
func (c *conn) goAway() {
	c.mu.Lock()
	defer c.unlock()
	c.leaving = true
	c.out = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(appendFrame(c.out, frameGoAway, 0, 0, 8), 1<<31-1), 0)
	c.w.Flush()
	c.leave()
}

// leave ends the connection where it is leaving and has no stream: the peer does so, and else the reader. The lock is held.
func (c *conn) leave() {
	if c.leaving && c.active == 0 {
		c.nc.SetReadDeadline(time.Now().Add(goodbye))
	}
}

// Output gives frames for the socket: answers first, then a message of each stream in turn. It is the writer's part of socket.Source.
func (c *conn) Output(b []byte) []byte {
	b = append(b, c.out...)
	c.out = c.out[:0]
	for len(c.ready) > 0 && len(b) < 64<<10 && c.window > 0 {
		s := c.ready[0]
		c.ready = append(c.ready[:0], c.ready[1:]...)
		s.isReady = false
		b = s.fill(b)
	}
	if len(b) == 0 {
		return nil
	}
	return b
}

// Wrote is the writer's part of socket.Source.
func (c *conn) Wrote(int) {}

// Failed is the writer's part of socket.Source: the reader ends the connection.
func (c *conn) Failed(error) { c.nc.Close() }

// Release is the writer's part of socket.Source.
func (c *conn) Release() { c.unlock() }
