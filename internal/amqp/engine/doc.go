// Package engine is the AMQP 1.0 protocol: connection, session, link and delivery state of one connection, for either end.
//
// It is pure: bytes and calls in, bytes and callbacks out. It starts no goroutine, opens no socket and reads no clock. Its
// owner holds one lock around every call into a Conn and what hangs from it; the callbacks of [Handler] run inside
// those calls, so under the same lock.
//
// Read first: (*Conn).Input in conn.go (frames in), (*Link).Send in send.go (messages out), (*Conn).Output in output.go.
//
// Source: AMQP 1.0 part 2 (transport), part 3 sections 3.4 and 3.5 (states, termini), part 5 section 5.3 (SASL).
package engine
