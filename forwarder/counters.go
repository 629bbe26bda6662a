package forwarder

import (
	"sync/atomic"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// counters of a node. Every message that goes nowhere is in one of them by its reason.
type counters struct {
	connections atomic.Int64 // open now, of listeners

	by classCounters

	outcomes  [outcomeKinds]atomic.Uint64 // told to senders
	discarded atomic.Uint64               // by a null row
	unrouted  atomic.Uint64               // no row

	// Of these, what was refused.
	handlerGone atomic.Uint64 // the address had rows once
	notWired    atomic.Uint64 // it had none, as far as is remembered

	loops    atomic.Uint64
	repeats  atomic.Uint64 // messages that neighbours brought by a second way
	problems atomic.Uint64 // rows of a message whose address cannot be reached
	plans    atomic.Uint64 // made

	connectionsRefused atomic.Uint64 // there were too many
	handshakesFailed   atomic.Uint64 // of TLS
	loginsFailed       atomic.Uint64
	unauthorized       atomic.Uint64 // messages and links to addresses that the client may not name
	linksRefused       atomic.Uint64 // the connection had too many
	tooLarge           atomic.Uint64 // links that ended by a message larger than is taken

	replayed atomic.Uint64 // events that receivers got again

	streamed atomic.Uint64 // messages that cut through
	aborted  atomic.Uint64 // of these, those that their sender took back, or did not send to the end
	stalled  atomic.Uint64 // copies of them that were ended because their receiver took nothing

	droppedBusy    atomic.Uint64 // pre-settled or a tap's, the hop's line was full
	droppedGone    atomic.Uint64 // pre-settled or a tap's, the hop was gone
	droppedLate    atomic.Uint64 // pre-settled or a tap's, not sent by the delivery timeout
	droppedRefused atomic.Uint64 // pre-settled, no row, not allowed, or more than the hop takes
	behind         atomic.Uint64 // receivers that were detached because too many events waited for them
	eventsMissed   atomic.Uint64 // copies of events that did not reach a hop, which cannot be told
	expired        atomic.Uint64 // messages, or copies, whose time to live was over
	overdue        atomic.Uint64 // copies of a fan-out that their receiver had for too long

	// What the door does is in these, and in none above.
	management           atomic.Uint64 // requests
	managementAnswers    atomic.Uint64 // and what watchers are told
	managementUnanswered atomic.Uint64 // where whoever asked was gone
}

// ended counts a copy that came to an end without its receiver's word, where that is nobody's outcome, or has a name of its own.
func (c *counters) ended(cp *Copy) {
	switch quiet := cp.in.Settled || cp.tap; {
	case cp.fate == fateExpired:
		c.expired.Add(1)
	case cp.fate == fateOverdue:
		c.overdue.Add(1)
	case cp.fate == fateStalled:
		c.stalled.Add(1)
	case cp.fate == fateAborted:
	case cp.fate == fateBusy && quiet:
		c.droppedBusy.Add(1)
	case cp.fate == fateGone && quiet:
		c.droppedGone.Add(1)
	case cp.fate == fateLate && quiet:
		c.droppedLate.Add(1)
	case cp.in.Settled:
		c.droppedRefused.Add(1)
	}
}

// outcomeKinds are accepted, rejected, released, and modified.
const outcomeKinds = 4

// countOutcome notes an outcome that a sender on the link is told; l may be nil. Called under the lock.
func (c *conn) countOutcome(l *inlink, k wire.StateKind) {
	if l != nil && l.door {
		return
	}
	if k < wire.Accepted || k > wire.Modified {
		k = wire.Modified
	}
	c.counts.outcomes[k-wire.Accepted]++
}

// outcome is how often senders were told it.
func (c *counters) outcome(k wire.StateKind) uint64 { return c.outcomes[k-wire.Accepted].Load() }

// linkEnded counts a link that ended by a limit.
func (c *counters) linkEnded(err error) {
	if le, ok := err.(*engine.LinkError); ok && !le.Remote && le.Condition == wire.CondMessageSizeExceeded {
		c.tooLarge.Add(1)
	}
}

// Counters gives the node's counters by name.
func (n *Node) Counters() map[string]uint64 {
	c := &n.count
	return map[string]uint64{
		"connections": uint64(max(c.connections.Load(), 0)),
		"received":    sumOf(c.by.received[:]) - c.by.received[linkManagement].Load(), "copies": sumOf(c.by.copies[:]),
		"accepted": c.outcome(wire.Accepted), "rejected": c.outcome(wire.Rejected), "released": c.outcome(wire.Released), "modified": c.outcome(wire.Modified),
		"discarded": c.discarded.Load(), "unrouted": c.unrouted.Load(), "loops": c.loops.Load(), "repeats": c.repeats.Load(), "problems": c.problems.Load(),
		"droppedBusy": c.droppedBusy.Load(), "droppedGone": c.droppedGone.Load(),
		"connectionsRefused": c.connectionsRefused.Load(), "handshakesFailed": c.handshakesFailed.Load(), "loginsFailed": c.loginsFailed.Load(),
		"unauthorized": c.unauthorized.Load(), "linksRefused": c.linksRefused.Load(), "tooLarge": c.tooLarge.Load(),
		"droppedLate": c.droppedLate.Load(), "droppedRefused": c.droppedRefused.Load(),
		"handlerGone": c.handlerGone.Load(), "notWired": c.notWired.Load(),
		"management": c.management.Load(), "managementAnswers": c.managementAnswers.Load(), "managementUnanswered": c.managementUnanswered.Load(),
		"behind": c.behind.Load(), "eventsMissed": c.eventsMissed.Load(), "replayed": c.replayed.Load(), "expired": c.expired.Load(), "overdue": c.overdue.Load(),
		"streamed": c.streamed.Load(), "aborted": c.aborted.Load(), "stalled": c.stalled.Load(),
	}
}
