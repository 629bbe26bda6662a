package messenger

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// State is what became of a message or a copy.
type State uint8

// The states. Accepted to Modified are AMQP's outcomes.
const (
	Pending  State = iota // nothing yet
	Accepted              // the receiver has taken it
	Rejected              // the receiver will not have it
	Released              // it was not taken, and can be sent again as if it never had been
	Modified              // it was not taken, and something may have been done with it
	Settled               // it is over without an outcome: it was put settled, or the peer settled without one
)

var stateNames = [...]string{"pending", "accepted", "rejected", "released", "modified", "settled"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Outcome is what became of a message, or of one copy.
type Outcome struct {
	State State

	// Err is why: nil for accepted, settled and pending. It wraps one of the errors of this package: [*Error] (rejected, with the
	// peer's condition; link refused), [ErrReleased], [ErrModified], [ErrNotSent], [ErrInDoubt], [ErrClosed],
	// [ErrInsecurePlain], [ErrAuthentication], [ErrNoRoute]; and a [*HopError] says where. That of a fan-out joins those of its copies.
	Err error

	DeliveryFailed    bool           // modified
	UndeliverableHere bool           // modified
	Annotations       map[string]any // modified: the peer's
}

// String gives the state, and why.
func (o Outcome) String() string {
	if o.Err == nil {
		return o.State.String()
	}
	return o.State.String() + ": " + o.Err.Error()
}

// Copy is one copy of a message.
type Copy struct {
	Hop      string // as the table gave it, without credentials
	Optional bool   // a tap, which does not count
	Outcome  Outcome
}

// Tracker tells what becomes of a message that was put. It may be dropped: nothing depends on its being looked at.
type Tracker struct {
	m      *Messenger
	copies []outCopy // set before the first is given to a line; their outcomes are guarded by mu
	done   chan struct{}

	mu      sync.Mutex // guards what follows, and outcomes
	left    int        // copies without an outcome
	counted int        // of these, those that are not optional
	outcome Outcome
}

// outCopy is a copy on its way. The line that has it owns all but outcome.
type outCopy struct {
	t        *Tracker
	e        *encoded
	hop      string
	optional bool
	line     *line
	expires  time.Time
	out      engine.OutDelivery
	settled  bool // it goes, or went, settled
	sent     bool // all of it is with the connection, or it was given up
	outcome  Outcome
}

// Done is closed when the message has its outcome.
func (t *Tracker) Done() <-chan struct{} { return t.done }

// Wait waits for the outcome. The error is nil for a message that was accepted, or was put settled and sent; else it says why not
// ([Outcome].Err). Where ctx ends first, the error is that of ctx and the outcome's state is [Pending]; the message stays on its way.
//
// The outcome of several copies: all accepted is accepted, all released is released, any rejected is rejected, and any other
// mixture is modified. Optional copies do not count.
func (t *Tracker) Wait(ctx context.Context) (Outcome, error) {
	select {
	case <-t.done:
	case <-ctx.Done():
		select {
		case <-t.done: // both: the outcome is the news
		default:
			return Outcome{}, ctx.Err()
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outcome, t.outcome.Err
}

// Outcome is the outcome so far: its state is Pending until Done.
func (t *Tracker) Outcome() Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outcome
}

// Copies gives every copy and what became of it so far, in table order. A message that was discarded has none.
func (t *Tracker) Copies() []Copy {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Copy, len(t.copies))
	for i := range t.copies {
		c := &t.copies[i]
		out[i] = Copy{Hop: c.hop, Optional: c.optional, Outcome: c.outcome}
	}
	return out
}

// settle gives a copy its outcome, once. It may be called under a connection's lock.
func (c *outCopy) settle(o Outcome) {
	if o.Err != nil {
		o.Err = &HopError{Hop: c.hop, Err: o.Err}
	}
	t := c.t
	t.mu.Lock()
	if c.outcome.State != Pending {
		t.mu.Unlock()
		return
	}
	c.outcome = o
	t.left--
	if !c.optional {
		t.counted--
		if t.counted == 0 {
			t.finish()
		}
	}
	last := t.left == 0
	t.mu.Unlock()
	if last {
		t.m.releaseSlot()
	}
}

// finish sums the copies up. Called under mu.
func (t *Tracker) finish() {
	var seen [Settled + 1]int
	n := 0
	var errs []error
	var o Outcome
	for i := range t.copies {
		c := &t.copies[i]
		if c.optional {
			continue
		}
		n++
		seen[c.outcome.State]++
		o = c.outcome
		if c.outcome.Err != nil {
			errs = append(errs, c.outcome.Err)
		}
	}
	if n != 1 {
		o = Outcome{State: sum(&seen, n), Err: errors.Join(errs...)}
		o.DeliveryFailed = o.State == Modified
	}
	t.outcome = o
	close(t.done)
}

// sum is the state of n copies of which seen counts the states.
func sum(seen *[Settled + 1]int, n int) State {
	switch {
	case seen[Rejected] > 0:
		return Rejected
	case seen[Accepted] == n:
		return Accepted
	case seen[Released] == n:
		return Released
	case seen[Settled] == n:
		return Settled
	}
	return Modified
}

// outcomeOf makes an outcome of a delivery state that the peer gave.
func outcomeOf(kind wire.StateKind, raw []byte) Outcome {
	switch kind {
	case wire.Accepted:
		return Outcome{State: Accepted}
	case wire.Released:
		return Outcome{State: Released, Err: ErrReleased}
	case wire.StateNone, wire.Received:
		return Outcome{State: Settled}
	}
	var s wire.State
	if err := s.Parse(raw); err != nil {
		return Outcome{State: Modified, DeliveryFailed: true, Err: causedBy(ErrModified, err)}
	}
	switch kind {
	case wire.Rejected:
		return Outcome{State: Rejected, Err: fromWire(s.Error)}
	case wire.Modified:
		return Outcome{
			State: Modified, Err: ErrModified, DeliveryFailed: s.DeliveryFailed, UndeliverableHere: s.UndeliverableHere,
			Annotations: fromMap(s.Annotations),
		}
	}
	return Outcome{State: Modified, DeliveryFailed: true, Err: causedBy(ErrModified, errors.New("an outcome that is not known here"))}
}
