package forwarder

import (
	"iter"
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
	lends       // it is over: another's outcome is its own
)

// A copy of an all group that a receiver released is tried again after that, doubled each time.
const (
	firstBackOff = 100 * time.Millisecond
	lastBackOff  = time.Second
)

// next says what a copy does that came back released; copies that it makes beside it are added to more. Called under the lock of d.conn.
func (d *delivery) next(c *Copy, more *[]*Copy) step {
	if c.fate == fateLate || c.fate == fateExpired || d.Settled && c.state == copySent {
		return isOver
	}
	if t := c.had().tail; t != nil && !t.mayBegin() {
		return isOver
	}
	picked := false // some group picked one of its rows for the copy
	for gi, tried := range c.around() {
		if d.plan.groups[gi].pick == routetable.PickAll {
			continue
		}
		picked = true
		switch s := d.nextRow(c, gi, tried, more); s {
		case isOver:
		case lends:
			return isOver
		default:
			return s
		}
	}
	if !picked && c.fate == fateSent && c.state == copySent && d.retry(c) {
		return goesOn
	}
	if c.fate == fateGone && d.waitAgain(c) {
		return waits
	}
	return isOver
}

// around gives the copy's group and the rows of it that were tried, and then those around it: of a name that is nothing but the copy's way to its
// hop, the group that it is a row of.
func (c *Copy) around() iter.Seq2[int32, uint64] {
	return func(yield func(int32, uint64) bool) {
		groups := c.in.plan.groups
		gi, tried := c.group, c.had().tried|1<<min(c.target, 63)
		for yield(gi, tried) && groups[gi].isOnly {
			o := groups[gi].outer
			gi, tried = o.group, c.triedIn(o.group)|1<<min(o.target, 63)
		}
	}
}

// triedOf is the rows of a group around the copy's own that were tried.
type triedOf struct {
	group int32
	tried uint64
}

func (c *Copy) triedIn(group int32) uint64 {
	for _, x := range c.had().triedAround {
		if x.group == group {
			return x.tried
		}
	}
	return 0
}

func (c *Copy) noteTried(group int32, tried uint64) {
	x := c.has()
	for i := range x.triedAround {
		if x.triedAround[i].group == group {
			x.triedAround[i].tried = tried
			return
		}
	}
	x.triedAround = append(x.triedAround, triedOf{group, tried})
}

// nextRow sends a copy on to another row of its group, or of one around it.
func (d *delivery) nextRow(c *Copy, gi int32, tried uint64, more *[]*Copy) step {
	g := &d.plan.groups[gi]
	ti := d.choose(g, nil, tried)
	if ti < 0 {
		return isOver
	}
	t := &g.targets[ti]
	if t.outlet == nil {
		c.noteTried(gi, tried|1<<min(ti, 63))
		return d.nextName(c, t, more)
	}
	if other := d.copyTo(t.outlet); other != nil && other != c {
		d.lend(c, other, t.optional)
		return lends
	}
	d.move(c, leaf{gi, int32(ti)}, tried)
	return goesOn
}

// move has a copy that came back go to another target.
func (d *delivery) move(c *Copy, to leaf, tried uint64) {
	t := to.in(d.plan)
	d.conn.tally(c.row).released++
	c.group, c.target, c.row = to.group, to.target, t.row
	c.has().tried = tried
	c.fate = fateSent
	c.notDue()
	if c.state == copySent {
		c.acquired, c.expires = true, d.expiry(now(), t)
	}
	c.state = copyQueued
	d.copied(t)
	d.keep()
}

// notDue has the copy tried again at once.
func (c *Copy) notDue() {
	if c.rare != nil {
		c.rare.due = 0
	}
}

// leaf is a target that is no name, in its group.
type leaf struct{ group, target int32 }

func (x leaf) in(p *plan) *planTarget { return p.at(x.group, x.target) }

// leaves adds to all the hops that the groups of a name pick.
func (d *delivery) leaves(all []leaf, groups []int32) []leaf {
	for _, gi := range groups {
		g := &d.plan.groups[gi]
		from, to := 0, len(g.targets)
		if g.pick != routetable.PickAll {
			from = d.choose(g, nil, 0)
			if to = from + 1; from < 0 {
				continue
			}
		}
		for ti := from; ti < to; ti++ {
			if t := &g.targets[ti]; t.outlet == nil {
				all = d.leaves(all, t.inner)
			} else {
				all = append(all, leaf{gi, int32(ti)})
			}
		}
	}
	return all
}

// nextName sends a copy on to a row that is a name: to the first hop that it leads to. The others get copies of their own.
func (d *delivery) nextName(c *Copy, name *planTarget, more *[]*Copy) step {
	d.conn.lookedUp(name.lookup)
	s := isOver
	var lender *Copy
	for _, to := range d.leaves(nil, name.inner) {
		t := to.in(d.plan)
		switch other := d.copyTo(t.outlet); {
		case other != nil && other != c:
			lender = other
		case s == isOver:
			d.move(c, to, 0)
			s = goesOn
		case d.stream == nil && other == nil && len(d.copies) < cap(d.copies):
			d.addCopy(to.group, to.target, now())
			x := &d.copies[len(d.copies)-1]
			x.tap = x.tap || c.tap
			if d.pending++; !x.tap {
				d.counting++
			}
			x.timed, x.droppable = x.tap || d.counting > 1, x.tap || d.isLoose()
			*more = append(*more, x)
		}
	}
	if s == isOver && lender != nil {
		d.lend(c, lender, name.optional)
		return lends
	}
	return s
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
	at, x := now(), c.has()
	if x.releases == 0 {
		c.expires = d.expiry(at, t)
	}
	if t.retry >= 0 && int(x.releases) >= t.retry || d.conn.node().draining.Load() {
		return false
	}
	x.due = at + int64(min(firstBackOff<<min(x.releases, 10), lastBackOff))
	if x.due >= c.expires {
		return false
	}
	x.releases++
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
