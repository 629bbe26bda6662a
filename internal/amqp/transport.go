package amqp

import "crypto/tls"

// Transport names what carries the connection: tcp, tls, websocket, or websocket+tls.
func (c *Conn) Transport() string {
	nc, name := c.nc, "tcp"
	if w, ok := nc.(*wsConn); ok {
		nc, name = w.Conn, "websocket"
	}
	if _, ok := nc.(*tls.Conn); !ok {
		return name
	}
	if name == "tcp" {
		return "tls"
	}
	return name + "+tls"
}
