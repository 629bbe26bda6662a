// Package websocket is the WebSocket protocol (RFC 6455), both ends: the handshake, and after it either a Conn of whole messages or a Stream of
// bytes. Extensions are neither offered nor taken.
//
// A Conn has no goroutine of its own: who owns it calls Next in one, and writes under the connection's lock from any. Read first: (*Conn).Next in
// conn.go, then (*Conn).Output in write.go.
package websocket
