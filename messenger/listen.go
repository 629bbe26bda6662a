package messenger

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// ListenOptions of one listener. Nil and the zero value are usable for amqp.
type ListenOptions struct {
	// TLS has the certificate of an amqps listener.
	TLS *tls.Config

	// Authenticate tells whether a password is that of a user; then every peer must log in with PLAIN. Nil takes anybody.
	Authenticate func(user, password string) bool
}

// Listener takes connections of peers. They may send to any target, and may receive at dynamic sources only.
type Listener struct {
	m       *Messenger
	l       *amqp.Listener
	options ListenOptions
	secure  bool
	over    sync.WaitGroup
}

// Listen opens a port for peers: amqp://~127.0.0.1:6666, or amqps://~host:port. The "~" may be left out, and a name after the port does
// not count. Port 0 takes a free one; no port is 5672, or 5671 for amqps. The address is not looked up in the table. What
// peers send is got by [Messenger.Get].
func (m *Messenger) Listen(ctx context.Context, address string, o *ListenOptions) (*Listener, error) {
	if o == nil {
		o = &ListenOptions{}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	hostPort, secure, err := listenAddress(address)
	if err != nil {
		return nil, err
	}
	if secure && o.TLS == nil {
		return nil, &AddressError{Address: address, What: "an amqps listener needs ListenOptions.TLS"}
	}
	l, err := amqp.Listen(hostPort)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	ln := &Listener{m: m, l: l, options: *o, secure: secure}
	m.mu.Lock()
	if m.stopped || m.closing.Load() {
		m.mu.Unlock()
		l.Stop()
		return nil, ErrClosed
	}
	m.listeners[ln] = struct{}{}
	m.running.Add(1)
	m.mu.Unlock()
	ln.over.Add(1)
	go func() {
		defer m.running.Done()
		defer ln.over.Done()
		l.Serve(ln.accept, nil)
	}()
	return ln, nil
}

// listenAddress reads [scheme://][~]host[:port][/name].
func listenAddress(address string) (hostPort string, secure bool, err error) {
	bad := func(what string) (string, bool, error) {
		return "", false, &AddressError{Address: address, What: what}
	}
	start := authorityStart(address)
	port := "5672"
	switch scheme := strings.ToLower(address[:start]); scheme {
	case "", "amqp://":
	case "amqps://":
		port, secure = "5671", true
	default:
		return bad("a listener has the scheme amqp or amqps")
	}
	authority, _, _ := strings.Cut(address[start:], "/")
	authority = strings.TrimPrefix(authority, "~")
	if strings.IndexByte(authority, '@') >= 0 {
		address = address[:start] + "***"
		return bad("a listener has no userinfo")
	}
	host := authority
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && !strings.HasSuffix(authority, "]") {
		host, port = authority[:i], authority[i+1:]
		if !isPort(port) {
			return bad("the port is not a number")
		}
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	} else if strings.IndexByte(host, ':') >= 0 {
		return bad("an IPv6 address without brackets")
	}
	if host == "" {
		return bad("the host is empty: 0.0.0.0 or [::] takes connections to any")
	}
	return net.JoinHostPort(host, port), secure, nil
}

// accept makes a connection of a socket.
func (ln *Listener) accept(nc net.Conn) *amqp.Conn {
	if ln.secure {
		nc = tls.Server(nc, ln.options.TLS)
	}
	cfg := ln.m.engineConfig()
	cfg.Mechanisms = []engine.Mechanism{amqp.Anonymous()}
	if f := ln.options.Authenticate; f != nil {
		cfg.Mechanisms = []engine.Mechanism{amqp.Plain(f)}
		cfg.RequireSASL = true
	}
	return amqp.NewConn(nc, cfg, nil, func(ac *amqp.Conn) amqp.Owner { return &conn{m: ln.m, c: ac, by: ln} })
}

// Addr is the address that was bound.
func (ln *Listener) Addr() net.Addr { return ln.l.Addr() }

// Close stops listening and closes the connections that were taken; those that do not end before ctx does are cut.
func (ln *Listener) Close(ctx context.Context) error {
	ln.l.Close(ctx)
	ln.over.Wait()
	ln.m.mu.Lock()
	delete(ln.m.listeners, ln)
	ln.m.mu.Unlock()
	return ctx.Err()
}

// attachSender answers a peer that wants to send: it may, whatever its target.
func (c *conn) attachSender(l *engine.Link) {
	t := l.Remote().Target
	if t == nil || t.Dynamic {
		l.Refuse(&engine.LinkError{Condition: wire.CondNotImplemented, Text: "a target is wanted; dynamic ones are not offered"})
		return
	}
	if c.by == nil {
		l.Refuse(&engine.LinkError{Condition: wire.CondNotAllowed, Text: "links to send are taken by listeners"})
		return
	}
	in := &inlink{c: c, prefetch: c.m.o.Prefetch, by: c.by, target: t.Address, l: l}
	l.Context = in
	answer := *t
	l.Accept(l.Remote().Source, &answer, 0, engine.AttachOptions{})
	in.grant()
}
