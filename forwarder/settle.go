package forwarder

import (
	"sync"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// Conditions of our own.
const (
	condLoop = wire.Symbol("fingerpost:loop")
)

// Settle reports what became of the copy. Once, from any goroutine that holds no connection's lock.
func (c *Copy) Settle(o Outcome) {
	c.outcome = o
	c.in.conn.node().settle([]*Copy{c})
}

// refuse gives the copy the outcome of a Deliver that did not take it.
func (c *Copy) refuse(err error) {
	c.outcome = Outcome{Kind: wire.Released}
	c.fate = fateGone
	if err == ErrBusy {
		c.fate = fateBusy
	}
	n := c.in.conn.node()
	switch {
	case c.Message.Settled && err == ErrBusy:
		n.count.droppedBusy.Add(1)
	case c.Message.Settled:
		n.count.droppedGone.Add(1)
	}
}

// work is what a connection's lock holder leaves for after the release: copies that are done.
type work struct {
	n      *Node
	copies []*Copy
}

var works = sync.Pool{New: func() any { return &work{} }}

// Run settles the copies with the connections that they came from.
func (w *work) Run() {
	w.n.settle(w.copies)
	clear(w.copies)
	w.copies = w.copies[:0]
	works.Put(w)
}

var _ amqp.Work = (*work)(nil)

// done notes, under the connection's lock, that a copy has its outcome.
func (c *conn) done(cp *Copy, o Outcome) {
	cp.outcome = o
	if c.work == nil {
		c.work = works.Get().(*work)
		c.work.n = c.n
	}
	c.work.copies = append(c.work.copies, cp)
}

// settle brings the outcomes of copies to the deliveries that they belong to. It takes each source's lock once, one at a time.
func (n *Node) settle(copies []*Copy) {
	var again []*Copy
	for i, cp := range copies {
		if cp == nil {
			continue
		}
		src := cp.in.conn
		src.lock()
		for j := i; j < len(copies); j++ {
			if next := copies[j]; next != nil && next.in.conn == src {
				copies[j] = nil
				if next.in.copyDone(next) {
					again = append(again, next)
				}
			}
		}
		src.release()
	}
	for _, cp := range again {
		if taken, err := cp.outlet().Deliver([]*Copy{cp}); taken == 0 {
			cp.refuse(err)
			n.settle([]*Copy{cp})
		}
	}
}

// copyDone takes the outcome of one copy; true says that the copy goes on its way again, to another row of its group.
func (d *delivery) copyDone(c *Copy) (again bool) {
	g := &d.plan.groups[c.group]
	if c.fate == fateGone {
		d.plan.stale = true
	}
	if c.outcome.Kind == wire.Released && g.pick != routetable.PickAll && !(d.Settled && c.state == copySent) {
		if ti := d.choose(g, nil, c.tried); ti >= 0 && g.targets[ti].outlet != nil {
			t := &g.targets[ti]
			if other := d.copyTo(t.outlet); other == nil || other == c {
				d.conn.tally(c.planned()).released++
				c.tried |= 1 << min(ti, 63)
				c.target, c.Hop, c.state, c.fate = int32(ti), t.hop, copyQueued, fateSent
				d.copied(t)
				d.keep()
				return true
			} else { // that hop has a copy by another row: its outcome counts for this one too
				other.tap = other.tap && t.optional
				c.tap = true
			}
		}
	}
	d.conn.ended(c)
	c.state = copyOver
	if d.pending--; d.pending == 0 {
		d.finish()
	}
	return false
}

// finish settles a delivery by the outcomes of all its copies.
func (d *delivery) finish() {
	var o Outcome
	if d.in != nil || d.told != nil {
		o = d.aggregate()
	}
	d.answer(o)
}

// answer tells the sender, where it waits for that, and gives the link room for another message. The delivery is over.
func (d *delivery) answer(o Outcome) {
	if d.in != nil {
		d.conn.n.count.outcome(d.link, o.Kind)
		d.in.Context = nil
		if o.State != nil {
			d.in.Settle(o.State)
		} else {
			d.in.SettleAs(o.Kind)
		}
	}
	if d.told != nil {
		d.told(o)
	}
	if d.link != nil {
		d.link.room(1)
	}
	d.recycle()
}

// aggregate makes one outcome of those of the non-optional copies (DESIGN §5, end to end).
func (d *delivery) aggregate() Outcome {
	var count [wire.Modified + 1]int
	counted, loops := 0, 0
	only := -1
	for i := range d.copies {
		c := &d.copies[i]
		if c.tap {
			continue
		}
		counted++
		only = i
		k := c.outcome.Kind
		if k > wire.Modified {
			k = wire.Modified
		}
		count[k]++
		if k == wire.Rejected && c.outcome.State != nil && c.outcome.State.Error != nil && c.outcome.State.Error.Condition == condLoop {
			loops++
		}
	}
	if loops > 0 && count[wire.Accepted] > 0 { // it went round, but it also arrived
		counted -= loops
		count[wire.Rejected] -= loops
	}
	switch {
	case d.plan.tapsOnly:
		return rejected(d.plan.condition, d.plan.problem)
	case counted == count[wire.Accepted]:
		return Outcome{Kind: wire.Accepted}
	case counted == count[wire.Released]:
		return Outcome{Kind: wire.Released}
	case counted == 1 && loops == 0 || len(d.copies) == 1:
		return d.copies[only].outcome
	case count[wire.Rejected] > 0:
		return d.aggregateRejected()
	}
	return Outcome{Kind: wire.Modified, State: &wire.State{
		Kind: wire.Modified, DeliveryFailed: true,
		Annotations: wire.Map{{Key: wire.Symbol("x-opt-fingerpost-copies"), Value: d.copyList()}},
	}}
}

func (d *delivery) aggregateRejected() Outcome {
	e := &wire.Error{Condition: wire.CondInternalError}
	for i := range d.copies {
		if o := d.copies[i].outcome; o.Kind == wire.Rejected && o.State != nil && o.State.Error != nil && !d.copies[i].tap {
			e.Condition, e.Description = o.State.Error.Condition, o.State.Error.Description
			break
		}
	}
	e.Info = wire.Map{{Key: wire.Symbol("copies"), Value: d.copyList()}}
	return Outcome{Kind: wire.Rejected, State: &wire.State{Kind: wire.Rejected, Error: e}}
}

// copyList tells of each non-optional copy where it went and what became of it.
func (d *delivery) copyList() wire.List {
	var list wire.List
	for i := range d.copies {
		c := &d.copies[i]
		if c.tap {
			continue
		}
		m := wire.Map{
			{Key: wire.Symbol("hop"), Value: c.Hop.Text},
			{Key: wire.Symbol("outcome"), Value: kindName(c.outcome.Kind)},
		}
		if s := c.outcome.State; s != nil && s.Error != nil {
			m = append(m, wire.KV{Key: wire.Symbol("condition"), Value: s.Error.Condition},
				wire.KV{Key: wire.Symbol("description"), Value: s.Error.Description})
		}
		list = append(list, m)
	}
	return list
}

func kindName(k wire.StateKind) string {
	switch k {
	case wire.Accepted:
		return "accepted"
	case wire.Rejected:
		return "rejected"
	case wire.Released:
		return "released"
	}
	return "modified"
}

// remoteOutcome is the outcome that a receiver gave. One that settles without a word has taken the message.
func remoteOutcome(kind wire.StateKind, raw []byte) Outcome {
	switch kind {
	case wire.StateNone, wire.Received, wire.Accepted:
		return Outcome{Kind: wire.Accepted}
	case wire.Released:
		return Outcome{Kind: wire.Released}
	case wire.Rejected, wire.Modified:
		s := &wire.State{}
		if err := s.Parse(raw); err == nil {
			return Outcome{Kind: kind, State: s}
		}
	}
	return rejected(wire.CondNotImplemented, "the receiver answered with a state that is not an outcome")
}

func rejected(cond wire.Symbol, text string) Outcome {
	return Outcome{Kind: wire.Rejected, State: &wire.State{Kind: wire.Rejected, Error: &wire.Error{Condition: cond, Description: text}}}
}

func modifiedFailed() Outcome {
	return Outcome{Kind: wire.Modified, State: &wire.State{Kind: wire.Modified, DeliveryFailed: true}}
}
