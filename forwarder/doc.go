// Package forwarder is the node: it looks up the address of every message, picks hops, hands a copy to the outlet of each,
// and settles the message with its sender by what became of the copies.
//
// The way of a message, file by file: inlet.go takes it from a link, plan.go looks its address up, pick.go chooses, outlet.go and
// line.go carry the copies to a link of another connection, settle.go brings the outcomes back. stream.go does the same for a message of more
// than 1 MiB, of which the rest is still to come. adapter.go is what other protocols see of the node. The rest is for what happens rarely.
//
// Locks: every AMQP connection (and every dialled endpoint with all its connections) has one lock. It guards the engine, the
// links and the lines behind it. A goroutine holds at most one of them at a time: what is to be done on other connections is
// collected (work) and done after the release. Under a connection's lock the table and the leaves may be taken (Node.mu, alarms.mu,
// line.wantMu, the mutex of a stream, which connections share); never the reverse. Who comes from a line to a delivery without the line's
// lock may find its memory another message's: a copyRef tells.
package forwarder
