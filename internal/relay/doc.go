// Package relay is the relay protocol: clients ask, servers serve topics and answer, over WebSockets.
//
// A serve is a row, relay:<domain>/<topic> → relay-conn:C, pick first, of the origin relay:C. The table alone knows who serves a topic:
// a request looks it up (plan.go), and roles.go tells connections what the table makes of them. What is kept here is connections, with the
// ops that are on their way to each.
//
// Read first: Conn.do in op.go, which takes the ops of a message one by one. scan.go takes them out of the text; line.go is what is on the way
// to a connection; batch.go brings answers back; conn.go is a connection, its reader and its writer. address.go makes and checks the
// addresses of clients, keys.go says who may do what.
//
// Locks: every connection has one (Conn.mu, a leaf: nothing is called under it but a write that does not block). Nobody holds two: answers that
// come of a write are collected in a batch and brought to their connections after the release. Broker.mu is a leaf too, never taken under it.
//
// What passes in data is never looked at beyond its end, never kept longer than it is on its way, never logged and never in an error.
package relay
