package grpc

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
)

// Owner is what takes the messages of a stream, and gives those to write.
type Owner interface {
	// Message takes a message, valid until it returns, in the goroutine that reads the connection: it must not wait. An error ends the stream's input, as
	// its reason (Stream.Done).
	Message(m []byte) error

	// Drained is called when there are no more messages for now: a place to write what they led to.
	Drained()

	// Next gives the next message to write, with the connection's lock held: nothing of the stream's may be called. It stays as it is until Sent.
	Next() (m []byte, ok bool)

	// Sent tells, with the lock held, that the message of Next is with the socket; Settle is called afterwards, without.
	Sent()
	Settle()
}

// Status is an error that the peer is told of.
type Status struct {
	Code    int
	Message string
}

func (s *Status) Error() string { return s.Message }

// Reasons for which streams end.
var (
	errLost     = errors.New("the connection is lost")
	errCanceled = errors.New("the stream was canceled")
)

// Codes of Status (gRPC).
const (
	OK                = 0
	PermissionDenied  = 7
	ResourceExhausted = 8
	Aborted           = 10
	Internal          = 13
	Unavailable       = 14
)

// Stream is one call of the method.
type Stream struct {
	// Set at construction, never changed.
	c      *conn
	id     uint32
	fields map[string][]string
	first  chan []byte   // of room one: the first message
	done   chan struct{} // closed with err

	reading  sync.Mutex // guards what follows; held by the reader while it hands messages over
	in       []byte     // of a message that is not complete, and before Start what comes after the first
	waited   bool       // somebody waits for the first message, or did
	began    bool       // it was given
	withheld int        // bytes of the window that the peer gets back when First or Start is called
	touched  bool       // owned by the reader

	// Guarded by the connection's lock.
	owner      Owner // nil before Start
	err        error
	closed     bool
	halfClosed bool
	room       int   // that the peer has
	used       int   // bytes that it is to be given back
	paused     bool  // it is given none
	peerRoom   int64 // that the peer gives
	isReady    bool
	hasHeaders bool // written
	ending     bool // trailers are written
	rest       []byte
	prefix     [5]byte
	left       int // bytes of prefix that are not written, with rest behind them
	sending    bool
}

// Values of a field of the metadata; the name in lower case.
func (s *Stream) Values(name string) []string { return s.fields[name] }

// RemoteAddr is the peer's.
func (s *Stream) RemoteAddr() net.Addr { return s.c.nc.RemoteAddr() }

// TLS is the connection's state; nil where there is none.
func (s *Stream) TLS() *tls.ConnectionState { return s.c.tls }

// Done is closed when nothing more comes, or the stream is lost; Err tells why: io.EOF where the peer has said all.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Err is why Done is closed.
func (s *Stream) Err() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.err
}

// First waits for the first message. Until it is called the peer sends no more than its window.
func (s *Stream) First(ctx context.Context) ([]byte, error) {
	s.reading.Lock()
	s.waited = true
	s.releaseWindow()
	s.c.mu.Lock()
	s.c.w.Flush()
	s.c.unlock()
	s.reading.Unlock()
	select {
	case m := <-s.first:
		return m, nil
	case <-s.done:
		select {
		case m := <-s.first:
			return m, nil
		default:
		}
		return nil, s.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Start has the owner take all messages from here on.
func (s *Stream) Start(o Owner) {
	s.reading.Lock()
	defer s.reading.Unlock()
	s.c.mu.Lock()
	s.owner = o
	s.c.wake(s)
	s.c.unlock()
	s.consume()
	o.Drained()
	s.releaseWindow()
	s.Flush()
}

// releaseWindow gives the peer back what was withheld. reading is held.
func (s *Stream) releaseWindow() {
	n := s.withheld
	s.withheld = 0
	s.giveBack(n)
}

// data takes what came of the stream; size is what it takes of the window.
func (s *Stream) data(b []byte, size int) {
	s.reading.Lock()
	defer s.reading.Unlock()
	s.c.mu.Lock()
	owner, closed := s.owner, s.closed
	s.c.mu.Unlock()
	s.withheld += size
	if closed {
		return
	}
	if owner != nil && !s.touched {
		s.touched = true
		s.c.touched = append(s.c.touched, s)
	}
	if owner != nil && len(s.in) == 0 { // mostly: whole messages, where they lie
		b = s.messages(b)
	}
	s.in = append(s.in, b...)
	if len(b) > 0 {
		s.consume()
	}
	if owner != nil || s.waited && !s.began {
		s.releaseWindow()
	}
}

// consume hands over the messages that are complete in what is kept. reading is held.
func (s *Stream) consume() {
	rest := s.messages(s.in)
	switch {
	case len(rest) == 0 && cap(s.in) > 64<<10:
		s.in = nil
	case len(rest) < len(s.in): // not mostly, of a long message
		s.in = append(s.in[:0], rest...)
	}
}

// messages hands over the messages that are complete in b, and gives the rest. reading is held.
func (s *Stream) messages(b []byte) (rest []byte) {
	for len(b) >= 5 {
		n := binary.BigEndian.Uint32(b[1:])
		switch {
		case b[0] != 0:
			s.fail(&Status{Internal, "messages are not compressed here"})
			return nil
		case n > uint32(s.c.s.o.MaxMessage):
			s.fail(&Status{ResourceExhausted, "received message larger than max"})
			return nil
		case uint32(len(b)-5) < n:
			return b
		}
		m := b[5 : 5+n]
		switch {
		case !s.began:
			s.began = true
			s.first <- append([]byte(nil), m...)
		case s.owner == nil:
			return b // it is kept until Start
		default:
			if err := s.owner.Message(m); err != nil {
				s.fail(err)
				return nil
			}
		}
		b = b[5+n:]
	}
	return b
}

// fail ends the stream's input.
func (s *Stream) fail(err error) {
	s.c.mu.Lock()
	defer s.c.unlock()
	s.close(err)
}

// close ends the input with a reason; the first counts. The lock is held.
func (s *Stream) close(err error) {
	if !s.closed {
		s.closed, s.err = true, err
		close(s.done)
	}
}

// endOfInput notes that the peer has said all.
func (s *Stream) endOfInput() {
	s.c.mu.Lock()
	defer s.c.unlock()
	s.halfClosed = true
	s.close(io.EOF)
}

// giveBack gives the peer room for so many bytes again, now or when there is more of it.
func (s *Stream) giveBack(n int) {
	s.c.mu.Lock()
	defer s.c.unlock()
	s.used += n
	s.open()
}

func (s *Stream) open() {
	if !s.paused && s.used >= window/2 && !s.closed {
		s.c.out = appendWindow(s.c.out, s.id, uint32(s.used))
		s.room += s.used
		s.used = 0
	}
}

// Pause has the peer send no more than it may already; Resume ends that.
func (s *Stream) Pause() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.paused = true
}

// Resume has the peer go on.
func (s *Stream) Resume() {
	s.c.mu.Lock()
	defer s.c.unlock()
	if s.paused {
		s.paused = false
		s.open()
		s.c.w.Flush()
	}
}

// Flush writes what the owner has, as far as the peer takes it. It does not wait.
func (s *Stream) Flush() {
	s.c.mu.Lock()
	s.c.wake(s)
	s.c.w.Flush()
	s.c.unlock()
}

// End ends the stream with a status. What the owner still has is not written.
func (s *Stream) End(code int, message string) {
	s.c.mu.Lock()
	defer s.c.unlock()
	s.end(code, message)
}

func (s *Stream) end(code int, message string) {
	if s.ending || s.c.over {
		return
	}
	s.ending = true
	s.close(errCanceled)
	if s.hasHeaders {
		s.c.out = appendHeaders(s.c.out, s.id, true, "", "", code, message)
	} else {
		s.c.out = appendHeaders(s.c.out, s.id, true, "200", contentType, code, message)
	}
	if !s.halfClosed {
		s.c.out = appendReset(s.c.out, s.id, codeNone)
	}
	s.c.w.Flush()
}

// leave is called when Serve has returned.
func (s *Stream) leave() {
	c := s.c
	c.mu.Lock()
	defer c.unlock()
	switch {
	case s.closed && s.err == errCanceled && !s.ending: // by the peer
		s.ending = true
	default:
		s.end(Unavailable, "unavailable")
	}
	delete(c.streams, s.id)
	c.active--
	c.leave()
}

// fill appends frames of one message, as far as there is room. The lock is held.
func (s *Stream) fill(b []byte) []byte {
	if s.ending {
		return b
	}
	if !s.sending {
		m, ok := s.owner.Next()
		s.note() // it may have given some up
		if !ok {
			return b
		}
		s.rest, s.sending, s.left = m, true, 5
		binary.BigEndian.PutUint32(s.prefix[1:], uint32(len(m)))
	}
	if !s.hasHeaders {
		s.hasHeaders = true
		b = appendHeaders(b, s.id, false, "200", contentType, 0, "")
	}
	for s.left+len(s.rest) > 0 {
		n := int(min(int64(s.left+len(s.rest)), int64(s.c.most), s.peerRoom, s.c.window))
		if n <= 0 {
			if s.peerRoom > 0 { // the connection has none: the stream goes on with it
				s.isReady = true
				s.c.ready = append(s.c.ready, s)
			}
			return b
		}
		s.peerRoom -= int64(n)
		s.c.window -= int64(n)
		b = appendFrame(b, frameData, 0, s.id, n)
		if p := min(n, s.left); p > 0 {
			b = append(b, s.prefix[5-s.left:5-s.left+p]...)
			s.left -= p
			n -= p
		}
		b = append(b, s.rest[:n]...)
		s.rest = s.rest[n:]
	}
	s.sending, s.rest = false, nil
	s.owner.Sent()
	s.note()
	s.c.wake(s)
	return b
}

// note has the owner told when the lock is released.
func (s *Stream) note() {
	for _, x := range s.c.sent {
		if x == s {
			return
		}
	}
	s.c.sent = append(s.c.sent, s)
}
