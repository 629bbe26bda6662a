// Package socket moves bytes between a connection and the buffers of who owns it: a Reader that holds no buffer while its peer is silent, and a
// Writer that tries one write without waiting and leaves to a goroutine what the socket did not take.
//
// The owner has one goroutine that reads, and one lock for everything that is written. Read first: (*Writer).Flush.
package socket
