// Package messenger sends and receives AMQP 1.0 messages by abstract addresses, which a route table of its own translates to hops.
//
// A message put to COLOSSUS is looked up in the table at that moment, and a copy goes to every hop that the table picks. The
// message keeps the address it was put to, so the node it reaches can translate again. One [Tracker] tells what became of the
// copies, each and together. Messages come in by [Messenger.Subscribe], by [Messenger.Listen] and as replies, all to
// [Messenger.Get], and stay unsettled until the application accepts, rejects, releases or modifies them.
//
// Read [Messenger.Put] first.
//
// # Inside
//
// Two structs keep connections: an endpoint dials and redials a peer; a Listener takes those who dial. Either way a conn is
// the handler of the connection's engine, a line is the copies that wait for one sending link, and an inlink is a receiving
// link.
//
// Locks: each connection has one, which those of one endpoint that follow each other share; callbacks of the engine run under
// it. Messenger.mu, inbox.mu, Tracker.mu and Subscription.mu are leaves: they may be taken under it, and nothing is called
// while they are held. The table is never written under a connection's lock: that is work for after its release.
package messenger
