package amqp

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gobwas/ws"
)

// wsProtocol is the WebSocket subprotocol of AMQP (AMQP WebSocket binding 1.0, 2.1).
const wsProtocol = "amqp"

// WebSocketOptions of a server end. The zero value is usable.
type WebSocketOptions struct {
	// Origins are the web pages that may connect, as browsers name them: "https://app.example", or "*" for all. A program that is no browser
	// names none and may connect. Pages that the address itself was used for ("http://127.0.0.1:8080" on 127.0.0.1:8080) may, where it is an
	// IP address or localhost: a name that leads here may be anybody's.
	Origins []string
}

// WebSocket makes an http.Handler whose connections are those of l: newConn and ended are as in Serve.
func (l *Listener) WebSocket(o WebSocketOptions, newConn func(net.Conn) *Conn, ended func(*Conn, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, text := o.refuse(r); status != 0 {
			if status == http.StatusUpgradeRequired {
				w.Header().Set("Connection", "Upgrade")
				w.Header().Set("Upgrade", "websocket")
			}
			http.Error(w, text, status)
			return
		}
		up := ws.HTTPUpgrader{Timeout: HandshakeTimeout, Protocol: func(p string) bool { return p == wsProtocol }}
		nc, rw, _, err := up.Upgrade(r, w)
		if err != nil {
			if nc != nil {
				nc.Close()
			}
			return
		}
		l.serve(newWSConn(nc, rw.Reader, false), nil, newConn, ended)
	})
}

// refuse tells why a request is no AMQP WebSocket that may be: an HTTP status and words; 0 where it may.
func (o *WebSocketOptions) refuse(r *http.Request) (status int, text string) {
	switch {
	case !strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		return http.StatusUpgradeRequired, "this is AMQP 1.0 over WebSocket: upgrade to websocket, subprotocol amqp"
	case !o.allows(r):
		return http.StatusForbidden, fmt.Sprintf("pages of %q may not connect", r.Header.Get("Origin"))
	case !offers(r.Header.Values("Sec-WebSocket-Protocol")):
		return http.StatusBadRequest, "the WebSocket subprotocol amqp is wanted"
	}
	return 0, ""
}

func offers(lists []string) bool {
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			if strings.TrimSpace(name) == wsProtocol {
				return true
			}
		}
	}
	return false
}

// allows looks at the origin: the web page that has a browser connect.
func (o *WebSocketOptions) allows(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	if len(origins) > 1 {
		return false
	}
	origin := origins[0]
	if slices.Contains(o.Origins, "*") || slices.ContainsFunc(o.Origins, func(a string) bool { return strings.EqualFold(a, origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host) && isOwnName(u.Hostname())
}

// isOwnName tells whether nobody else can make the host lead here.
func isOwnName(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost")
}

// maxUpgradeHeader bounds what a client says before it is a WebSocket.
const maxUpgradeHeader = 16 << 10

// serveWeb is Serve of a listener for WebSockets.
func (l *Listener) serveWeb(newConn func(net.Conn) *Conn, ended func(*Conn, error)) error {
	srv := &http.Server{
		Handler:           l.WebSocket(*l.o.WebSocket, newConn, ended),
		ReadHeaderTimeout: HandshakeTimeout, IdleTimeout: HandshakeTimeout, MaxHeaderBytes: maxUpgradeHeader,
		ErrorLog: log.New(io.Discard, "", 0), // what strangers do wrong is answered, not logged
	}
	ln := l.ln
	if l.o.TLS != nil {
		ln = tls.NewListener(ln, l.o.TLS)
	}
	err := srv.Serve(ln)
	srv.Close() // those that are no WebSocket yet
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// DialWebSocket makes a WebSocket of a connection to host (as in the URL, with its port), for AMQP.
func DialWebSocket(ctx context.Context, nc net.Conn, host, path string) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		nc.SetDeadline(deadline)
		defer nc.SetDeadline(time.Time{})
	}
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if path == "" {
		path = "/"
	}
	d := ws.Dialer{Protocols: []string{wsProtocol}}
	br, hs, err := d.Upgrade(nc, &url.URL{Scheme: "ws", Host: host, Path: path})
	switch {
	case err == nil && hs.Protocol != wsProtocol:
		err = errors.New("the peer does not speak the subprotocol amqp")
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("WebSocket with %s: %w", host, err)
	}
	if br == nil {
		br = bufio.NewReaderSize(nc, 4096)
	}
	return newWSConn(nc, br, true), nil
}
