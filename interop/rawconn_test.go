package interop

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// patience is how long anything may take on a loaded machine before a test gives up on it.
const patience = time.Minute // nobody waits for it in vain but a test that fails

// Descriptors of performatives (AMQP 1.0 part 2, 2.7) and of what they hold.
const (
	open, begin, attach, flow, transfer, disposition, detach, end, closing = 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18

	errorCode                                                      = 0x1d
	received, accepted, rejected                                   = 0x23, 0x24, 0x25
	released, modified                                             = 0x26, 0x27
	source, target, coordinator                                    = 0x28, 0x29, 0x30
	saslMechanisms, saslInit, saslOutcome                          = 0x40, 0x41, 0x44
	headerSection, deliveryAnnotationsSect, messageAnnotationsSect = 0x70, 0x71, 0x72
	propertiesSection, applicationPropertiesSect, dataSection      = 0x73, 0x74, 0x75
	valueSection, footerSection                                    = 0x77, 0x78
)

var (
	amqpHeader = []byte("AMQP\x00\x01\x00\x00")
	saslHeader = []byte("AMQP\x03\x01\x00\x00")
)

// frame is one frame that came in.
type frame struct {
	channel uint16
	code    uint64
	fields  []any
	payload []byte // after the performative
	size    int    // of the whole frame
}

func (f *frame) at(i int) any {
	if i < len(f.fields) {
		return f.fields[i]
	}
	return nil
}

func (f *frame) number(i int) uint64 { n, _ := f.at(i).(uint64); return n }
func (f *frame) flag(i int) bool     { b, _ := f.at(i).(bool); return b }
func (f *frame) text(i int) string   { s, _ := f.at(i).(string); return s }

// condition is the error of a detach, end, close or rejected state; "" without one.
func condition(v any) string {
	e, ok := v.(tagged)
	if !ok {
		return ""
	}
	fields, _ := e.value.([]any)
	if len(fields) == 0 {
		return ""
	}
	if c, ok := fields[0].(symbol); ok && e.descriptor == uint64(errorCode) {
		return string(c)
	}
	return condition(fields[0])
}

// addressOf is the address in a source or target.
func addressOf(terminus any) (string, bool) {
	d, _ := terminus.(tagged)
	fields, _ := d.value.([]any)
	if len(fields) == 0 {
		return "", false
	}
	s, ok := fields[0].(string)
	return s, ok
}

func (f *frame) String() string {
	name := map[uint64]string{open: "open", begin: "begin", attach: "attach", flow: "flow", transfer: "transfer", disposition: "disposition",
		detach: "detach", end: "end", closing: "close"}[f.code]
	if name == "" {
		name = fmt.Sprintf("%#x", f.code)
	}
	return fmt.Sprintf("%s on channel %d %v, %d bytes of payload", name, f.channel, f.fields, len(f.payload))
}

// rawConn is a connection on which frames are written and read as a test says.
type rawConn struct {
	net.Conn
	in       *bufio.Reader
	maxFrame uint32 // of the peer
	mine     uint32 // the largest that it says it takes
}

func newRawConn(c net.Conn) *rawConn {
	return &rawConn{Conn: c, in: bufio.NewReaderSize(c, 64<<10), maxFrame: 512, mine: 1 << 20}
}

// bytesOf makes a frame.
func bytesOf(kind byte, channel uint16, body ...[]byte) []byte {
	b := []byte{0, 0, 0, 0, 2, kind, byte(channel >> 8), byte(channel)}
	for _, p := range body {
		b = append(b, p...)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}

// write writes one AMQP frame.
func (c *rawConn) write(channel uint16, body ...[]byte) error {
	return c.bytes(bytesOf(0, channel, body...))
}

func (c *rawConn) bytes(b []byte) error {
	c.SetWriteDeadline(time.Now().Add(patience))
	_, err := c.Write(b)
	return err
}

// header reads a protocol header.
func (c *rawConn) header() ([]byte, error) {
	c.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, 8)
	_, err := io.ReadFull(c.in, b)
	return b, err
}

// read gives the next frame that is not empty. The peer's end of the connection is io.EOF.
func (c *rawConn) read(wait time.Duration) (*frame, error) {
	c.SetReadDeadline(time.Now().Add(wait))
	for {
		var h [8]byte
		if _, err := io.ReadFull(c.in, h[:]); err != nil {
			return nil, err
		}
		size := binary.BigEndian.Uint32(h[:])
		if size < 8 || h[4] < 2 || size < uint32(h[4])*4 || size > 64<<20 {
			return nil, fmt.Errorf("frame header is bad: % x", h)
		}
		body := make([]byte, size-8)
		if _, err := io.ReadFull(c.in, body); err != nil {
			return nil, fmt.Errorf("frame is cut short: %w", err)
		}
		body = body[int(h[4])*4-8:]
		if len(body) == 0 {
			continue // keeps the connection alive
		}
		v, rest, err := decode(body)
		if err != nil {
			return nil, fmt.Errorf("frame % x: %w", body[:min(len(body), 64)], err)
		}
		d, ok := v.(tagged)
		code, ok2 := d.descriptor.(uint64)
		fields, ok3 := d.value.([]any)
		if !ok || !ok2 || !ok3 {
			return nil, fmt.Errorf("frame has no performative: % x", body[:min(len(body), 64)])
		}
		f := &frame{channel: binary.BigEndian.Uint16(h[6:]), code: code, fields: fields, payload: rest, size: int(size)}
		if code == open {
			if c.maxFrame = 1 << 20; f.at(2) != nil {
				c.maxFrame = uint32(min(f.number(2), 1<<20))
			}
		}
		return f, nil
	}
}

// await reads until a frame with the code; what comes before it is dropped.
func (c *rawConn) await(code uint64) (*frame, error) {
	deadline := time.Now().Add(patience)
	for {
		f, err := c.read(time.Until(deadline))
		if err != nil {
			return nil, fmt.Errorf("waiting for %#x: %w", code, err)
		}
		if f.code == code {
			return f, nil
		}
		if f.code == closing {
			return nil, fmt.Errorf("waiting for %#x: the connection was closed: %v", code, f.fields)
		}
	}
}

// greet does the client's part of SASL ANONYMOUS and open.
func (c *rawConn) greet(container string) error {
	if err := c.bytes(saslHeader); err != nil {
		return err
	}
	if h, err := c.header(); err != nil || string(h) != string(saslHeader) {
		return fmt.Errorf("SASL header: got % x, %v", h, err)
	}
	if _, err := c.await(saslMechanisms); err != nil {
		return err
	}
	c.bytes(bytesOf(1, 0, composite(saslInit, sym("ANONYMOUS"))))
	if f, err := c.await(saslOutcome); err != nil || f.number(0) != 0 {
		return fmt.Errorf("SASL outcome: got %v, %v", f, err)
	}
	if err := c.bytes(amqpHeader); err != nil {
		return err
	}
	if h, err := c.header(); err != nil || string(h) != string(amqpHeader) {
		return fmt.Errorf("AMQP header: got % x, %v", h, err)
	}
	c.write(0, composite(open, str(container), str("localhost"), uint32v(c.mine), []byte{0x60, 0xff, 0xff}))
	_, err := c.await(open)
	return err
}

// dialRaw connects and opens. The connection is cut at the end of the test.
func dialRaw(t testing.TB, addr string) *rawConn {
	t.Helper()
	c := dialBare(t, addr)
	if err := c.greet("raw-" + t.Name()); err != nil {
		t.Fatal(err)
	}
	return c
}

// dialBare connects the socket alone.
func dialBare(t testing.TB, addr string) *rawConn {
	t.Helper()
	s, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return newRawConn(s)
}

// session begins a session on the channel. Its incoming window is as large as it can be.
func (c *rawConn) session(channel uint16) error {
	c.write(channel, composite(begin, null, uint32v(0), uint32v(1<<31-1), uint32v(1<<31-1)))
	_, err := c.await(begin)
	return err
}

// isClosed tells whether an error is the end of the peer's side.
func isClosed(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) && !op.Timeout()
}
