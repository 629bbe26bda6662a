package amqp

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Listener takes connections of peers.
type Listener struct {
	ln  net.Listener      // nil where connections come by an http.Handler only
	web *WebSocketOptions // not nil: connections are WebSockets

	mu     sync.Mutex // guards what follows
	conns  map[*Conn]struct{}
	closed bool
	served sync.WaitGroup
}

// Listen opens a TCP port.
func Listen(address string) (*Listener, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &Listener{ln: ln, conns: map[*Conn]struct{}{}}, nil
}

// Addr is the address that was bound.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Serve accepts connections until Close. newConn makes a Conn of a socket, or gives nil to turn it away; ended (which may
// be nil) is told of each when it is over.
func (l *Listener) Serve(newConn func(net.Conn) *Conn, ended func(*Conn, error)) error {
	if l.web != nil {
		return l.serveWeb(newConn, ended)
	}
	pause := time.Duration(0)
	for {
		nc, err := l.ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			// Out of descriptors, mostly: wait for some to come back.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			time.Sleep(pause)
			continue
		}
		pause = 0
		l.serve(nc, newConn, ended)
	}
}

func (l *Listener) serve(nc net.Conn, newConn func(net.Conn) *Conn, ended func(*Conn, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		nc.Close()
		return
	}
	c := newConn(nc)
	if c == nil {
		nc.Close()
		return
	}
	l.conns[c] = struct{}{}
	l.served.Add(1)
	go func() {
		defer l.served.Done()
		err := c.Serve()
		l.mu.Lock()
		delete(l.conns, c)
		l.mu.Unlock()
		if ended != nil {
			ended(c, err)
		}
	}()
}

// Stop takes no more connections; those that are there live on.
func (l *Listener) Stop() {
	if l.ln != nil {
		l.ln.Close()
		return
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
}

// Close stops, closes every connection in order, and waits for them until ctx ends.
func (l *Listener) Close(ctx context.Context) {
	l.Stop()
	l.mu.Lock()
	l.closed = true
	conns := make([]*Conn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns {
		c.Close(nil)
	}
	over := make(chan struct{})
	go func() { l.served.Wait(); close(over) }()
	select {
	case <-over:
	case <-ctx.Done():
		for _, c := range conns {
			c.Abort(ctx.Err())
		}
		<-over
	}
}
