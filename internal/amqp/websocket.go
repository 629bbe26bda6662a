package amqp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// wsProtocol is the WebSocket subprotocol of AMQP (AMQP WebSocket binding 1.0, 2.1).
const wsProtocol = "amqp"

// WebSocketOptions of a server end. The zero value is usable.
type WebSocketOptions struct {
	Origins []string // see websocket.Gate
}

// WebSocket makes an http.Handler whose connections are those of l: newConn and ended are as in Serve.
func (l *Listener) WebSocket(o WebSocketOptions, newConn func(net.Conn) *Conn, ended func(*Conn, error)) http.Handler {
	gate := websocket.Gate{Origins: o.Origins, Protocol: wsProtocol, Speaks: "AMQP 1.0"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if nc, already := gate.Upgrade(w, r); nc != nil {
			l.serve(websocket.NewStream(nc, already, false), nil, newConn, ended)
		}
	})
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
	s, err := websocket.DialStream(ctx, nc, host, path, wsProtocol)
	if err != nil {
		return nil, err
	}
	return s, nil
}
