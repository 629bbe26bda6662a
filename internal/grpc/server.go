package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Options of a server. All but TLS and Log are needed.
type Options struct {
	// Methods have the streams of /package.Service/Method, each in a goroutine of its own. A stream ends when its method returns: with End, or else as
	// unavailable.
	Methods    map[string]func(s *Stream)
	MaxMessage int         // bytes of a message that comes
	TLS        *tls.Config // nil: without
	Log        *slog.Logger

	Quiet time.Duration // after which a silent peer is asked whether it is there; 0 is 10 s. It has half of that to answer
}

// Bounds and times.
const (
	maxStreams = 100              // of a connection
	maxHeaders = 64 << 10         // bytes of the headers of a stream
	maxFrame   = 16 << 10         // bytes of a frame that comes: the least that may be asked for
	maxControl = 1 << 20          // bytes of answers to a peer that does not read them
	window     = 256 << 10        // bytes that a stream may send before it is told to go on
	beginning  = 10 * time.Second // for handshake and preface
	goodbye    = time.Second / 2  // for a peer to close a connection that has no stream any more
)

// Server is a listener and its connections.
type Server struct {
	o  Options
	ln net.Listener

	ctx     context.Context // of handshakes: over when the server closes
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex // guards what follows
	conns  map[*conn]bool
	closed bool
}

// Listen opens the port.
func Listen(address string, o Options) (*Server, error) {
	if o.Quiet == 0 {
		o.Quiet = 10 * time.Second
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	if o.TLS != nil {
		t := o.TLS.Clone()
		t.NextProtos = []string{"h2"}
		o.TLS = t
	}
	return newServer(ln, o), nil
}

func newServer(ln net.Listener, o Options) *Server {
	s := &Server{o: o, ln: ln, conns: map[*conn]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Addr is the address that was bound.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Serve takes connections until Close.
func (s *Server) Serve() error {
	for said := false; ; {
		nc, err := s.ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			if !said {
				s.o.Log.Warn("grpc: connections cannot be taken", "error", err)
			}
			said = true
			time.Sleep(10 * time.Millisecond) // out of descriptors, mostly: for a while
			continue
		}
		said = false
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			nc.Close()
			return nil
		}
		s.running.Go(func() { s.serve(nc) })
		s.mu.Unlock()
	}
}

// serve has a connection from its first byte to its end.
func (s *Server) serve(nc net.Conn) {
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(beginning))
	var state *tls.ConnectionState
	if s.o.TLS != nil {
		t := tls.Server(nc, s.o.TLS)
		if err := t.HandshakeContext(s.ctx); err != nil {
			s.o.Log.Debug("grpc: handshake", "remote", nc.RemoteAddr().String(), "error", err)
			return
		}
		x := t.ConnectionState()
		nc, state = t, &x
	}
	c := newConn(s, nc)
	c.tls = state
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.conns[c] = true
	s.mu.Unlock()
	c.run()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// Close has streams that are served end by themselves until ctx ends, and then all.
func (s *Server) Close(ctx context.Context) {
	s.ln.Close()
	s.cancel()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		c.goAway()
	}
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			c.nc.Close()
		}
	})
	defer stop()
	s.running.Wait()
}
