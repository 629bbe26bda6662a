package amqp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// ListenOptions of a listener. The zero value takes everybody on plain TCP.
type ListenOptions struct {
	TLS       *tls.Config       // nil: plain TCP
	WebSocket *WebSocketOptions // nil: AMQP straight over it

	// Accept tells whether a socket is taken; it is asked before anything is read. Nil takes all.
	Accept func(net.Conn) bool

	// Over is called once for each socket that Accept took, when it is closed. err tells that TLS was not agreed on.
	Over func(nc net.Conn, err error)

	// Failing is told when connections cannot be accepted, once until one can. Nil: nobody is told.
	Failing func(error)
}

// Listener takes connections of peers.
type Listener struct {
	ln net.Listener // nil where connections come by an http.Handler only
	o  ListenOptions

	mu      sync.Mutex // guards what follows
	conns   map[*Conn]struct{}
	shaking map[net.Conn]struct{} // TLS is not agreed on yet
	closed  bool
	served  sync.WaitGroup
}

// Listen opens a TCP port.
func Listen(address string) (*Listener, error) { return ListenWith(address, ListenOptions{}) }

// ListenTCP opens a port at an address and at no other: 0.0.0.0 is every IPv4 address of the host and no IPv6 one, where package net would take both.
func ListenTCP(address string) (net.Listener, error) {
	network := "tcp"
	if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().Is4() {
		network = "tcp4"
	}
	return net.Listen(network, address)
}

// ListenWith opens a TCP port with options.
func ListenWith(address string, o ListenOptions) (*Listener, error) {
	ln, err := ListenTCP(address)
	if err != nil {
		return nil, err
	}
	l := NewListener(o)
	l.ln = ln
	return l, nil
}

// NewListener makes a listener without a port: its connections come by WebSocket.
func NewListener(o ListenOptions) *Listener {
	return &Listener{o: o, conns: map[*Conn]struct{}{}, shaking: map[net.Conn]struct{}{}}
}

// Addr is the address that was bound.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Serve accepts connections until Close. newConn makes a Conn of a socket, or gives nil to turn it away; ended (which may
// be nil) is told of each when it is over.
func (l *Listener) Serve(newConn func(net.Conn) *Conn, ended func(*Conn, error)) error {
	if l.o.WebSocket != nil {
		return l.serveWeb(newConn, ended)
	}
	pause := time.Duration(0)
	for {
		nc, err := l.ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			if pause == 0 && l.o.Failing != nil {
				l.o.Failing(err)
			}
			// Out of descriptors, mostly: wait for some to come back.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			time.Sleep(pause)
			continue
		}
		pause = 0
		l.serve(nc, l.o.TLS, newConn, ended)
	}
}

// serve takes one socket, on which TLS is to be agreed on unless secure is nil. Its goroutine is waited for by Close.
func (l *Listener) serve(nc net.Conn, secure *tls.Config, newConn func(net.Conn) *Conn, ended func(*Conn, error)) {
	if l.o.Accept != nil && !l.o.Accept(nc) {
		nc.Close()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		nc.Close()
		l.over(nc, nil)
		return
	}
	l.served.Add(1)
	if secure != nil {
		l.shaking[nc] = struct{}{}
		go func() {
			defer l.served.Done()
			err := l.shake(nc, newConn, ended)
			l.over(nc, err)
		}()
		return
	}
	c := l.add(nc, newConn)
	go func() {
		defer l.served.Done()
		l.run(c, nc, ended)
		l.over(nc, nil)
	}()
}

func (l *Listener) over(nc net.Conn, err error) {
	if l.o.Over != nil {
		l.o.Over(nc, err)
	}
}

// shake agrees on TLS, and serves the connection. What is known of the peer then, newConn can ask.
func (l *Listener) shake(nc net.Conn, newConn func(net.Conn) *Conn, ended func(*Conn, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), HandshakeTimeout)
	defer cancel()
	t := tls.Server(nc, l.o.TLS)
	err := t.HandshakeContext(ctx)
	l.mu.Lock()
	delete(l.shaking, nc)
	if err != nil || l.closed {
		l.mu.Unlock()
		nc.Close()
		if err != nil {
			err = fmt.Errorf("TLS: %w", err)
		}
		return err
	}
	c := l.add(t, newConn)
	l.mu.Unlock()
	l.run(c, t, ended)
	return nil
}

// add makes the connection of a socket, nil where it is turned away. Called under the lock.
func (l *Listener) add(nc net.Conn, newConn func(net.Conn) *Conn) *Conn {
	c := newConn(nc)
	if c != nil {
		l.conns[c] = struct{}{}
	}
	return c
}

func (l *Listener) run(c *Conn, nc net.Conn, ended func(*Conn, error)) {
	if c == nil {
		nc.Close()
		return
	}
	err := c.Serve()
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
	if ended != nil {
		ended(c, err)
	}
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

// goingAway is what connections are told that end with their listener. Clients that connect again by themselves do so after this condition
// (rhea and qpid-proton after no other).
func goingAway() *engine.ConnectionError {
	return &engine.ConnectionError{Condition: wire.CondConnectionForced, Text: "the router is going away"}
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
	for nc := range l.shaking {
		nc.Close()
	}
	l.mu.Unlock()
	for _, c := range conns {
		c.Close(goingAway())
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
