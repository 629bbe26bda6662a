// Package wire reads and writes AMQP 1.0 on byte slices: types, performatives, SASL frames and message sections.
//
// Read ScanHead first: it is what a router does to every message. The package is pure (no network, goroutine or clock),
// never trusts a size or a count before it is checked against the bytes at hand, and never panics on input.
//
// Two kinds of code live here. Frames of the data path (transfer, flow, disposition) and the scanners of message
// sections are straight lines that allocate nothing; what they return aliases their input, and says so. Everything else
// goes through a small field walker (reader, writer), copies what it keeps, and may allocate in proportion to its input.
//
// Errors are [*DecodeError] with an offset into the slice that was given.
package wire
