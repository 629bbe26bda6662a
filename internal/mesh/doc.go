// Package mesh speaks Rembus: to components, and to the other routers of a mesh. It owns the connections, the state of each twin (who is at the other
// end, what is on its way there) and the peer: outlet. Who gets what is rows of the table, written by admin commands.
//
// Read first: (*link).handle in handle.go, what a frame does; then (*twin).Deliver in outlet.go, how a copy goes out. The wire is frame.go (CBOR), json.go
// and tcp.go; they are pure, as are login.go, outbox.go and inbox.go, the state of a twin.
//
// What is published is kept (rest.go), and what a twin has missed is sent to it from there (replay.go).
//
// Requests of HTTP are visits (gateway.go, visit.go): links and twins for as long as they take, that nothing leads to.
//
// Locks, the outer first: kin.mu, Mesh.mu, twin.mu, the lock of the twin's connection. All others are leaves. No lock of the node's is taken under one
// of ours, nor one of ours but Mesh.mu and twin.mu under one of the node's.
package mesh
