package forwarder

import (
	"sync/atomic"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// counters of a node. Every message that goes nowhere is in one of them by its reason.
type counters struct {
	connections atomic.Int64 // open now, of listeners

	by classCounters

	accepted  atomic.Uint64
	rejected  atomic.Uint64
	released  atomic.Uint64
	modified  atomic.Uint64
	discarded atomic.Uint64 // by a null row
	unrouted  atomic.Uint64 // no row
	loops     atomic.Uint64
	problems  atomic.Uint64 // rows of a message whose address cannot be reached
	plans     atomic.Uint64 // made

	droppedBusy    atomic.Uint64 // pre-settled, the hop's line was full
	droppedGone    atomic.Uint64 // pre-settled, the hop was gone
	droppedLate    atomic.Uint64 // pre-settled, not sent by the delivery timeout
	droppedRefused atomic.Uint64 // pre-settled, no row or not allowed
}

func (c *counters) outcome(k wire.StateKind) {
	switch k {
	case wire.Accepted:
		c.accepted.Add(1)
	case wire.Rejected:
		c.rejected.Add(1)
	case wire.Released:
		c.released.Add(1)
	default:
		c.modified.Add(1)
	}
}

// Counters gives the node's counters by name.
func (n *Node) Counters() map[string]uint64 {
	c := &n.count
	return map[string]uint64{
		"connections": uint64(max(c.connections.Load(), 0)),
		"received":    sumOf(c.by.received[:]), "copies": sumOf(c.by.copies[:]),
		"accepted": c.accepted.Load(), "rejected": c.rejected.Load(), "released": c.released.Load(), "modified": c.modified.Load(),
		"discarded": c.discarded.Load(), "unrouted": c.unrouted.Load(), "loops": c.loops.Load(), "problems": c.problems.Load(),
		"droppedBusy": c.droppedBusy.Load(), "droppedGone": c.droppedGone.Load(),
		"droppedLate": c.droppedLate.Load(), "droppedRefused": c.droppedRefused.Load(),
	}
}
