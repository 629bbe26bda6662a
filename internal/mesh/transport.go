package mesh

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/socket"
	"github.com/fingerpost/fingerpost/internal/websocket"
)

// transport carries whole messages. One goroutine calls next, and at last end; the rest is for any, what is marked so with the lock held.
type transport interface {
	// next waits for a message; data is valid until the next call. more tells that another whole one is at hand already.
	next() (data []byte, text, more bool, err error)
	remote() net.Addr
	end() // closes at once, once next gave an error

	Lock()
	Unlock()
	append(text bool, message []byte) // with the lock
	Flush()                           // with the lock
	Pending() int                     // with the lock: bytes that are not written

	Abort(err error)
	close(code int, text string) // in order; code is for a WebSocket
}

// webTransport is a WebSocket: a binary message is CBOR, one of text JSON.
type webTransport struct{ *websocket.Conn }

func newWebTransport(nc net.Conn, already []byte, client bool, o *Options) transport {
	return webTransport{websocket.New(nc, already, client, websocket.Options{MaxMessage: o.MaxMessage, PingEvery: o.PingEvery})}
}

func (t webTransport) next() (data []byte, text, more bool, err error) {
	m, more, err := t.Next()
	return m.Data, m.Text, more, err
}
func (t webTransport) remote() net.Addr                 { return t.RemoteAddr() }
func (t webTransport) append(text bool, message []byte) { t.Append(text, message) }
func (t webTransport) close(code int, text string)      { t.Close(code, text) }
func (t webTransport) end()                             { t.End(0, "") }

const tcpReadSize = 32 << 10

// tcpTransport is a TCP or TLS connection: CBOR, each message behind a header.
type tcpTransport struct {
	nc    net.Conn
	limit int

	// Owned by who reads.
	in   socket.Reader
	used int
	door doorKey // not zero: the connection is for AMQP, and lives on

	sync.Mutex // guards what follows
	w          socket.Writer
	pending    []byte
	kept       []byte
	cause      error
}

func newTCPTransport(nc net.Conn, o *Options) *tcpTransport {
	t := &tcpTransport{nc: nc, limit: o.MaxMessage}
	t.in.Init(nc, tcpReadSize)
	t.w.Init(nc, &t.Mutex, (*tcpSource)(t))
	return t
}

func (t *tcpTransport) remote() net.Addr { return t.nc.RemoteAddr() }

func (t *tcpTransport) next() (data []byte, text, more bool, err error) {
	t.in.Use(t.used)
	t.used = 0
	for {
		b := t.in.Bytes()
		size, n, ok, err := parseTCPHeader(b, t.limit)
		if err != nil {
			return nil, false, false, err
		}
		if ok && len(b) >= size+n {
			t.used = size + n
			return b[size : size+n], false, t.another(), nil
		}
		t.in.Room(size + n)
		if got, err := t.in.Fill(); got == 0 {
			return nil, false, false, t.failed(err)
		}
	}
}

// another tells whether a whole message follows.
func (t *tcpTransport) another() bool {
	b := t.in.Bytes()[t.used:]
	size, n, ok, err := parseTCPHeader(b, t.limit)
	return err != nil || ok && len(b) >= size+n
}

func (t *tcpTransport) failed(err error) error {
	t.Lock()
	defer t.Unlock()
	switch {
	case t.cause != nil:
		return t.cause
	case (err == nil || errors.Is(err, io.EOF)) && len(t.in.Bytes()) > 0:
		return io.ErrUnexpectedEOF
	case err == nil:
		return io.EOF
	}
	return err
}

func (t *tcpTransport) append(_ bool, message []byte) {
	if t.pending == nil {
		t.pending, t.kept = t.kept[:0], nil
	}
	t.pending = append(appendTCPHeader(t.pending, len(message)), message...)
}

func (t *tcpTransport) Flush()       { t.w.Flush() }
func (t *tcpTransport) Pending() int { return len(t.pending) }

func (t *tcpTransport) Abort(err error) {
	t.Lock()
	defer t.Unlock()
	t.abort(err)
}

func (t *tcpTransport) abort(err error) {
	if t.cause == nil {
		t.cause = err
	}
	t.nc.SetReadDeadline(time.Unix(1, 0))
}

const closeWait = 2 * time.Second // for a peer to take what was written last

func (t *tcpTransport) close(int, string) {
	t.Lock()
	defer t.Unlock()
	t.w.Flush()
	t.abort(errClosed)
}

func (t *tcpTransport) end() {
	t.Lock()
	t.w.Flush()
	t.w.Stop()
	t.Unlock()
	t.nc.SetWriteDeadline(time.Now().Add(closeWait))
	t.w.Wait()
	if t.door == (doorKey{}) {
		t.nc.Close()
	}
	t.in.Free()
}

var errClosed = errors.New("the connection was closed here")

// tcpSource is the transport as its writer sees it.
type tcpSource tcpTransport

func (s *tcpSource) Output(spare []byte) []byte {
	if len(s.pending) == 0 {
		return nil
	}
	out := s.pending
	s.pending, s.kept = nil, spare
	return out
}
func (s *tcpSource) Wrote(int)        {}
func (s *tcpSource) Failed(err error) { (*tcpTransport)(s).abort(err) }
func (s *tcpSource) Release()         { s.Mutex.Unlock() }
