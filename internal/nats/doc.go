// Package nats is the router's NATS: a server of its own, in this process, or the connection to another.
//
// Read Open in conn.go first. Whoever uses it sees subjects, buckets and messages, and none of the client library's types.
package nats
