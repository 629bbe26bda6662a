// Package relay is a client of the relay protocol: it serves topics, and sends requests to topics that others serve.
//
// A request is a head and a body of parts, a response likewise; heads and parts are JSON, which passes as the same bytes. Each travels in a message of
// its own, with a window of parts that nobody has taken yet; a body ends with an end marker. Where the connection is lost, everything
// unfinished fails with the code "closed", and the client connects again and serves its topics again.
//
// # Slow readers
//
// The relay knows no credit of a receiver, and one connection carries all. Parts that came and were not read are kept, up to Options.Buffer bytes for
// each request and each response. Beyond that the connection is not read, which slows the sender down, and everything else on it. A reader that reads
// nothing for Options.Hold then loses its stream: a response is cancelled, the body of a served request fails, with an Error of the code "busy".
// Who must not be slowed down uses a Client of its own.
//
// A Client that serves has a second connection, by which its responses go: a handler whose request's body is held up still sends.
//
// # Failures
//
// The protocol has no failed response. A handler that returns an error answers with the head {"error":{"code":…,"message":…}}, or, where its head is gone,
// ends the body with a last part of that form; Failure recognises one.
//
// Read [Client.Request] and [Client.Serve] first. Inside, one lock guards a client, its connection's output too, and its one reader is in conn.go.
package relay
