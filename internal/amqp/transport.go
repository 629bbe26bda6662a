package amqp

import (
	"crypto/tls"
	"net"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// Transport names what carries the connection: tcp, tls, websocket, or websocket+tls.
func (c *Conn) Transport() string {
	_, isWeb := c.nc.(*websocket.Stream)
	switch isTLS := Secured(c.nc) != nil; {
	case isWeb && isTLS:
		return "websocket+tls"
	case isWeb:
		return "websocket"
	case isTLS:
		return "tls"
	}
	return "tcp"
}

// Secured is the TLS that carries a connection, or nil.
func Secured(nc net.Conn) *tls.Conn {
	if w, ok := nc.(*websocket.Stream); ok {
		nc = w.Conn
	}
	t, _ := nc.(*tls.Conn)
	return t
}
