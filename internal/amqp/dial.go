package amqp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
)

// DialOptions say where to and how.
type DialOptions struct {
	Address   string      // host:port
	TLS       *tls.Config // nil: plain TCP
	WebSocket string      // path of a WebSocket that carries the connection; empty is none
	User      string
	Password  string
	PLAIN     bool // log in with User and Password
	Engine    engine.Config
	Lock      *sync.Mutex // see NewConn; nil for the connection's own
}

// errNotOpened ends a dial whose peer closed in order instead of opening.
var errNotOpened = errors.New("the peer closed the connection before it opened")

// Dial connects to a peer and waits until it has opened. Where there is no user, AMQP is spoken without a SASL layer first, and with
// ANONYMOUS where the peer asks for SASL. newOwner is called for each try. The connection is served by a goroutine that ends with it.
func Dial(ctx context.Context, o DialOptions, newOwner func(*Conn) Owner) (*Conn, error) {
	withSASL := o.PLAIN
	for {
		c, err := dialOnce(ctx, o, withSASL, newOwner)
		if err == nil || withSASL || !wantsSASL(err) {
			return c, err
		}
		withSASL = true
	}
}

// wantsSASL tells whether a peer that was addressed without SASL may take us with it: it said so, or hung up on the header.
func wantsSASL(err error) bool {
	return errors.Is(err, engine.ErrSASLRequired) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
}

func dialOnce(ctx context.Context, o DialOptions, withSASL bool, newOwner func(*Conn) Owner) (*Conn, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", o.Address)
	if err != nil {
		return nil, err
	}
	if o.TLS != nil {
		t := tls.Client(nc, o.TLS)
		if err := t.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, fmt.Errorf("TLS with %s: %w", o.Address, err)
		}
		nc = t
	}
	if o.WebSocket != "" {
		if nc, err = DialWebSocket(ctx, nc, o.Address, o.WebSocket); err != nil {
			return nil, err
		}
	}
	cfg := o.Engine
	cfg.Client = true
	if withSASL {
		cfg.SASL = clientSASL{user: o.User, password: o.Password, plain: o.PLAIN}
	}
	c := NewConn(nc, cfg, o.Lock, newOwner)
	go c.Serve()
	select {
	case <-c.Ready():
		return c, nil
	case <-c.Done():
		if err := c.Err(); err != nil {
			return nil, err
		}
		return nil, errNotOpened
	case <-ctx.Done():
		c.Abort(ctx.Err())
		<-c.Done()
		return nil, ctx.Err()
	}
}
