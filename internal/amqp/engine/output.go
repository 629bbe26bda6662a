package engine

import "github.com/fingerpost/fingerpost/internal/amqp/wire"

// output collects encoded frames until the owner takes them.
type output struct {
	buf      []byte
	inFlight int    // taken by the owner and not yet reported written
	taken    uint64 // by the owner, ever
}

func (o *output) append(s string) { o.buf = append(o.buf, s...) }
func (o *output) pending() int    { return len(o.buf) + o.inFlight }

// Output takes what is to be written, in exchange for a spare buffer (which may be nil). The owner reports it by Wrote.
// Dispositions and flows that were held back to be batched are in it.
func (c *Conn) Output(spare []byte) []byte {
	c.Flush()
	buf := c.out.buf
	if len(buf) == 0 {
		return nil
	}
	c.out.buf = spare[:0]
	c.out.inFlight += len(buf)
	c.out.taken += uint64(len(buf))
	c.spoke = true
	return buf
}

// HasOutput tells whether Output would give anything.
func (c *Conn) HasOutput() bool { return len(c.out.buf) > 0 || len(c.dirty) > 0 }

// Wrote reports that n bytes of what Output gave are with the transport, and lets links go on that waited for room.
func (c *Conn) Wrote(n int) {
	c.out.inFlight -= n
	c.resume()
}

// OutputPending is the number of bytes encoded and not yet written.
func (c *Conn) OutputPending() int { return c.out.pending() }

// Encoded and Written are places in the stream of bytes to the peer: the end of what was encoded, and of what is with the transport.
func (c *Conn) Encoded() uint64 { return c.out.taken + uint64(len(c.out.buf)) }
func (c *Conn) Written() uint64 { return c.out.taken - uint64(c.out.inFlight) }

// Flush encodes held-back dispositions and flows.
func (c *Conn) Flush() {
	for i := 0; i < len(c.dirty); i++ {
		c.dirty[i].flush()
	}
	clear(c.dirty)
	c.dirty = c.dirty[:0]
}

func (c *Conn) sendPerformative(channel uint16, appendTo func([]byte) []byte) {
	buf, start := wire.BeginFrame(c.out.buf, wire.FrameAMQP, channel)
	c.out.buf = wire.EndFrame(appendTo(buf), start)
}

func (c *Conn) sendSASL(appendTo func([]byte) []byte) {
	buf, start := wire.BeginFrame(c.out.buf, wire.FrameSASL, 0)
	c.out.buf = wire.EndFrame(appendTo(buf), start)
}

// resume lets links send that were stopped by the session window or by a full output.
func (c *Conn) resume() {
	if c.resuming || len(c.stalled) == 0 || c.phase != phaseOpened {
		return
	}
	c.resuming = true
	n := len(c.stalled)
	i := 0
	for ; i < n && c.out.pending() < c.cfg.OutLimit; i++ {
		l := c.stalled[i]
		l.isStalled = false
		l.continueSending()
	}
	// Those that stopped again, or were not reached, keep their turn.
	c.stalled = append(c.stalled[:0], c.stalled[i:]...)
	c.resuming = false
}
