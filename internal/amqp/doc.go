// Package amqp carries engine connections over sockets: it listens and dials, reads batches of frames into an engine, writes
// what comes out, and keeps the clock for timeouts.
//
// Each Conn has one lock, which guards its engine and whatever its owner keeps beside it. The reader goroutine of a
// connection handles all frames of one read under that lock, then releases it and calls Owner.AfterInput. Locks are leaves: nobody
// holds two. Read first: (*Conn).Serve in conn.go, then (*Conn).Release in write.go.
package amqp
