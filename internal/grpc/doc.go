// Package grpc is the server's side of gRPC, of methods whose both sides are streams.
//
// Read conn.read in conn.go first. A connection has one goroutine that reads: it hands each message to the stream's owner where it lies. What is written is
// taken from the owners when the socket takes it, many messages in one write. HTTP/2 is RFC 9113, header compression RFC 7541.
package grpc
