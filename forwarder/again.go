package forwarder

import (
	"time"

	"github.com/fingerpost/fingerpost/routetable"
)

// What becomes of a copy that came back released, and when waiting is over (DESIGN §5, waiting and retrying, failures).

// step is what a released copy does next.
type step uint8

const (
	isOver step = iota
	goesOn      // to an outlet
	waits       // the whole message, for a row
)

// A copy of an all group that a receiver released is tried again after that, doubled each time.
const (
	firstBackOff = 100 * time.Millisecond
	lastBackOff  = time.Second
)

// next says what a copy does that came back released. Called under the lock of d.conn.
func (d *delivery) next(c *Copy) step {
	if c.fate == fateLate || c.fate == fateExpired || d.Settled && c.state == copySent {
		return isOver
	}
	if c.tail != nil && !c.tail.mayBegin() {
		return isOver
	}
	g := &d.plan.groups[c.group]
	if g.pick != routetable.PickAll {
		if s := d.nextRow(c, g); s != isOver {
			return s
		}
	} else if c.fate == fateSent && c.state == copySent && d.retry(c) {
		return goesOn
	}
	if c.fate == fateGone && d.waitAgain(c) {
		return waits
	}
	return isOver
}

// nextRow sends a copy on to another row of its group.
func (d *delivery) nextRow(c *Copy, g *planGroup) step {
	ti := d.choose(g, nil, c.tried)
	if ti < 0 || g.targets[ti].outlet == nil {
		return isOver
	}
	t := &g.targets[ti]
	if other := d.copyTo(t.outlet); other != nil && other != c {
		d.lend(c, other, t.optional)
		return isOver
	}
	d.conn.tally(c.planned().row).released++
	c.tried |= 1 << min(ti, 63)
	c.target, c.Hop, c.due, c.fate = int32(ti), t.hop, 0, fateSent
	if c.state == copySent {
		c.acquired, c.expires = true, d.expiry(now(), t)
	}
	c.state = copyQueued
	d.copied(t)
	d.keep()
	return goesOn
}

// lend: the hop that a copy would go to has another one already, whose outcome counts for this one too.
func (d *delivery) lend(c, other *Copy, optional bool) {
	if !c.tap && !optional && other.tap {
		other.tap = false
		if !other.over {
			d.counting++
		}
	}
	if !c.tap {
		c.tap = true
		d.counting--
	}
}

// retry has a copy tried again at the same hop, behind later ones.
func (d *delivery) retry(c *Copy) bool {
	t := c.planned()
	at := now()
	if c.releases == 0 {
		c.expires = d.expiry(at, t)
	}
	if t.retry >= 0 && int(c.releases) >= t.retry || d.conn.node().draining.Load() {
		return false
	}
	c.due = at + int64(min(firstBackOff<<min(c.releases, 10), lastBackOff))
	if c.due >= c.expires {
		return false
	}
	c.releases++
	c.acquired, c.state = true, copyQueued
	return true
}

// expiry is when a copy that is not sent is given back.
func (d *delivery) expiry(from int64, t *planTarget) int64 {
	at := from + int64(t.timeout)
	if d.until != 0 && d.until < at {
		at = d.until
	}
	return at
}

// waitAgain puts a message of a targeted link whose only hop went away, and that nobody has seen, back among those that wait for a row
// (DESIGN §4).
func (d *delivery) waitAgain(c *Copy) bool {
	l, ln := d.link, c.planned().line
	if ln == nil || ln.dialled != nil { // what else says that it is gone may say so again
		return false
	}
	if l == nil || d.in == nil || !l.hasTarget || l.door || l.l == nil || l.l.Gone() || d.answered || len(d.copies) != 1 || c.inDoubt {
		return false
	}
	d.conn.ended(c)
	if d.stream != nil {
		d.stream.forgetTails()
	}
	clear(d.copies)
	d.copies, d.pending, d.counting = d.copies[:0], 0, 0
	l.waitInTurn(d)
	return true
}
