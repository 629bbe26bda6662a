package forwarder

import (
	"net"
	"net/http"

	"github.com/fingerpost/fingerpost/internal/amqp"
)

// WebSocket is an http.Handler that takes AMQP connections over WebSocket. They end with the node, not with the HTTP server.
func (n *Node) WebSocket(o amqp.WebSocketOptions) http.Handler {
	ln := amqp.NewListener(amqp.ListenOptions{Accept: n.mayConnect, Over: n.disconnected})
	n.mu.Lock()
	n.listeners = append(n.listeners, ln)
	n.mu.Unlock()
	return ln.WebSocket(o, func(nc net.Conn) *amqp.Conn { return n.take(nc, &ListenOptions{}) }, n.connEnded)
}
