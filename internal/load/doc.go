// Package load makes AMQP traffic, and measures what carries it: messages and copies a second, the CPU of each, latency, and what was lost.
//
// It speaks by our own engine, which can fill a router where a client library cannot. Read first: Run in run.go, then (*sender).pump in
// sender.go and (*receiver).Transfer in receiver.go.
package load
