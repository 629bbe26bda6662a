package websocket

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gobwas/ws"
)

// DialOptions of a client end. The zero value is usable.
type DialOptions struct {
	TLS       *tls.Config // for wss; nil: the system's roots
	Header    http.Header // of the request
	Protocols []string    // subprotocols that are offered; where there are any, the server must take one
	Conn      Options
}

// RefusedError is a server's answer to the handshake that makes no WebSocket of it.
type RefusedError struct {
	Status int    // of HTTP
	Text   string // what the server said, one line
}

func (e *RefusedError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("the server refuses with %d %s", e.Status, http.StatusText(e.Status))
	}
	return fmt.Sprintf("the server refuses with %d: %s", e.Status, e.Text)
}

// Dial connects to a ws: or wss: URL. Errors do not name the URL: there may be a token in it.
func Dial(ctx context.Context, address string, o DialOptions) (*Conn, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the WebSocket's URL cannot be parsed")
	}
	port := map[string]string{"ws": "80", "wss": "443"}[u.Scheme]
	if port == "" || u.Hostname() == "" {
		return nil, errors.New("a WebSocket's URL is ws://HOST… or wss://HOST…")
	}
	if u.Port() != "" {
		port = u.Port()
	}
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, err
	}
	if u.Scheme == "wss" {
		if nc, err = secure(ctx, nc, u.Hostname(), o.TLS); err != nil {
			return nil, err
		}
	}
	nc, already, err := handshake(ctx, nc, u, o)
	if err != nil {
		return nil, err
	}
	return New(nc, already, true, o.Conn), nil
}

func secure(ctx context.Context, nc net.Conn, name string, config *tls.Config) (net.Conn, error) {
	if config == nil {
		config = &tls.Config{}
	}
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName = name
	}
	t := tls.Client(nc, config)
	if err := t.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return t, nil
}

// DialStream makes a Stream of a connection to host (as in the URL, with its port), by a subprotocol.
func DialStream(ctx context.Context, nc net.Conn, host, path, protocol string) (*Stream, error) {
	if path == "" {
		path = "/"
	}
	nc, already, err := handshake(ctx, nc, &url.URL{Host: host, Path: path}, DialOptions{Protocols: []string{protocol}})
	if err != nil {
		return nil, fmt.Errorf("WebSocket with %s: %w", host, err)
	}
	return NewStream(nc, already, true), nil
}

// handshake asks for a WebSocket until ctx ends. Where it fails, nc is closed.
func handshake(ctx context.Context, nc net.Conn, u *url.URL, o DialOptions) (_ net.Conn, already []byte, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		nc.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	var refused *RefusedError
	d := ws.Dialer{Protocols: o.Protocols, Header: ws.HandshakeHeaderHTTP(o.Header)}
	d.OnStatusError = func(status int, _ []byte, answer io.Reader) {
		nc.SetReadDeadline(time.Now().Add(time.Second)) // an answer of no said length may not end
		refused = &RefusedError{status, firstLine(answer)}
	}
	br, hs, err := d.Upgrade(nc, &url.URL{Scheme: "ws", Host: u.Host, Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery})
	switch {
	case !stop() || ctx.Err() != nil:
		err = ctx.Err()
	case refused != nil:
		err = refused
	case err == nil && len(o.Protocols) > 0 && hs.Protocol == "":
		err = errors.New("the peer does not speak the subprotocol " + strings.Join(o.Protocols, " or "))
	}
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	nc.SetDeadline(time.Time{})
	if br != nil {
		b, _ := br.Peek(br.Buffered())
		already = slices.Clone(b)
		ws.PutReader(br)
	}
	return nc, already, nil
}

// firstLine is the first line of an answer's body, as far as it is fit to be shown.
func firstLine(answer io.Reader) string {
	r, err := http.ReadResponse(bufio.NewReader(io.LimitReader(answer, 16<<10)), nil)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(r.Body, 200))
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == '\uFFFD' {
			return -1
		}
		return c
	}, strings.TrimSpace(line))
}
