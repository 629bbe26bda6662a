package forwarder

import (
	"net"
	"net/http"

	"github.com/fingerpost/fingerpost/internal/amqp"
)

// ListenWebSocket opens a listener for AMQP over WebSocket; Addr of the result tells the port. Its connections end with the node.
func (n *Node) ListenWebSocket(address string, o amqp.WebSocketOptions) (net.Addr, error) {
	ln, err := amqp.ListenWebSocket(address, o)
	if err != nil {
		return nil, err
	}
	n.serve(ln)
	return ln.Addr(), nil
}

// WebSocket is an http.Handler that takes AMQP connections over WebSocket. They end with the node, not with the HTTP server.
func (n *Node) WebSocket(o amqp.WebSocketOptions) http.Handler {
	ln := amqp.NewListener()
	n.mu.Lock()
	n.listeners = append(n.listeners, ln)
	n.mu.Unlock()
	return ln.WebSocket(o, n.newConn, n.connEnded)
}
