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
	Open func(ctx context.Context) (net.Conn, error) // opens the connection; nil: by what follows

	Address   string      // host:port
	TLS       *tls.Config // nil: plain TCP
	WebSocket string      // path of a WebSocket that carries the connection; empty is none
	User      string
	Password  string
	PLAIN     bool // log in with User and Password: by SCRAM where the peer has it, else by PLAIN

	Mechanisms         []string // the SASL mechanisms to use, by name; nil: any that fits
	AllowInsecurePlain bool     // PLAIN without TLS beyond loopback
	Engine             engine.Config
	Lock               *sync.Mutex // see NewConn; nil for the connection's own
}

func (o *DialOptions) hasCertificate() bool {
	return o.TLS != nil && (len(o.TLS.Certificates) > 0 || o.TLS.GetClientCertificate != nil)
}

// errNotOpened ends a dial whose peer closed in order instead of opening.
var errNotOpened = errors.New("the peer closed the connection before it opened")

// Dial connects to a peer and waits until it has opened. Where there is neither user nor certificate, AMQP is spoken without a SASL layer
// first, and with ANONYMOUS where the peer asks for SASL. newOwner is called for each try. The connection is served by a goroutine that ends with it.
func Dial(ctx context.Context, o DialOptions, newOwner func(*Conn) Owner) (*Conn, error) {
	withSASL := o.PLAIN || o.hasCertificate()
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
	if o.Open == nil {
		o.Open = o.open
	}
	nc, err := o.Open(ctx)
	if err != nil {
		return nil, err
	}
	cfg := o.Engine
	cfg.Client = true
	var login *clientSASL
	if withSASL {
		login = newClientSASL(&o)
		cfg.SASL = login
	}
	c := NewConn(nc, cfg, o.Lock, newOwner)
	go c.Serve()
	select {
	case <-c.Ready():
		return c, nil
	case <-c.Done():
		err := c.Err()
		if login != nil && login.err != nil && errors.Is(err, engine.ErrNoMechanism) {
			return nil, fmt.Errorf("%w: %w", engine.ErrNoMechanism, login.err)
		}
		if err != nil {
			return nil, err
		}
		return nil, errNotOpened
	case <-ctx.Done():
		c.Abort(ctx.Err())
		<-c.Done()
		return nil, ctx.Err()
	}
}

// open opens the connection by address, TLS and WebSocket.
func (o *DialOptions) open(ctx context.Context) (net.Conn, error) {
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
		return DialWebSocket(ctx, nc, o.Address, o.WebSocket)
	}
	return nc, nil
}
