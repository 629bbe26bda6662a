package forwarder

import (
	"hash/fnv"

	"github.com/fingerpost/fingerpost/routetable"
)

// dispatch gives each hop that the plan picks a copy, by way of b, and returns how many copies there are. Called under the lock of
// d.conn, where there is one.
func (n *Node) dispatch(d *delivery, p *plan, b *batch) int {
	d.plan = p
	if p.dialled {
		d.makeHead(n.id)
	}
	// The copies are pointed at once they are in the batch, so their slice gets its full size first.
	if most := p.copies(); cap(d.copies) < most {
		d.copies = make([]Copy, 0, most)
	}
	d.copies, d.later = d.copies[:0], d.later[:0]
	at := d.conn.clock()
	d.conn.use(p)
	d.certain(p.roots, at)
	for _, gi := range d.later {
		d.oneOf(gi, b, at)
	}
	d.pending = len(d.copies)
	for i := range d.copies {
		c := &d.copies[i]
		b.add(c.outlet(), c)
	}
	return len(d.copies)
}

// copies is the most copies that a message can have.
func (p *plan) copies() int {
	n := 0
	for i := range p.groups {
		n += len(p.groups[i].targets)
	}
	return n
}

// certain makes the copies that go in any case: those of groups with pick all. The planner has seen to it that their hops are
// distinct. Groups that pick one row come later, when it is known which hops have a copy.
func (d *delivery) certain(groups []int32, at int64) {
	for _, gi := range groups {
		g := &d.plan.groups[gi]
		if g.pick != routetable.PickAll {
			d.later = append(d.later, gi)
			continue
		}
		for ti := range g.targets {
			if t := &g.targets[ti]; t.outlet == nil {
				d.certain(t.inner, at)
			} else {
				d.addCopy(gi, int32(ti), at)
			}
		}
	}
}

// oneOf picks a row of a group and makes its copy; where the row is a name, those of its groups.
func (d *delivery) oneOf(gi int32, b *batch, at int64) {
	g := &d.plan.groups[gi]
	if g.pick == routetable.PickAll {
		for ti := range g.targets {
			d.unlessThere(gi, int32(ti), b, at)
		}
		return
	}
	for ti := range g.targets { // a group one of whose members has a copy is satisfied
		if c := d.copyTo(g.targets[ti].outlet); c != nil && g.pick == routetable.PickAny {
			c.tap = c.tap && g.targets[ti].optional
			return
		}
	}
	if ti := d.choose(g, b, 0); ti >= 0 {
		d.unlessThere(gi, int32(ti), b, at)
	}
}

// unlessThere makes a copy unless its hop has one already, which then counts if this one would.
func (d *delivery) unlessThere(gi, ti int32, b *batch, at int64) {
	t := &d.plan.groups[gi].targets[ti]
	if t.outlet == nil {
		d.conn.lookedUp(t.lookup)
		for _, inner := range t.inner {
			d.oneOf(inner, b, at)
		}
		return
	}
	if c := d.copyTo(t.outlet); c != nil {
		c.tap = c.tap && t.optional
		return
	}
	d.addCopy(gi, ti, at)
}

// copyTo is the copy that a hop gets, nil if it gets none.
func (d *delivery) copyTo(o Outlet) *Copy {
	if o == nil {
		return nil
	}
	for i := range d.copies {
		if d.copies[i].outlet() == o {
			return &d.copies[i]
		}
	}
	return nil
}

func (d *delivery) addCopy(group, target int32, at int64) {
	t := &d.plan.groups[group].targets[target]
	timeout := t.timeout
	if timeout == 0 {
		timeout = d.conn.node().options.DeliveryTimeout
	}
	d.copies = append(d.copies, Copy{
		Message: &d.Message, Hop: t.hop, in: d, group: group, target: target, tap: t.optional,
		tried: 1 << min(target, 63), expires: at + int64(timeout),
	})
	d.copied(t)
}

// copied tallies a copy that goes to a target; discarding is none.
func (d *delivery) copied(t *planTarget) {
	if t.hop.Scheme != "null" {
		d.conn.tally(t).copied++
	}
}

// planned is the target that the copy goes to.
func (c *Copy) planned() *planTarget { return &c.in.plan.groups[c.group].targets[c.target] }

func (c *Copy) outlet() Outlet { return c.planned().outlet }

// choose picks one row of an any or first group, without the rows in the bit set tried; -1 if none is left.
func (d *delivery) choose(g *planGroup, b *batch, tried uint64) int {
	if g.pick == routetable.PickFirst {
		return firstPresent(g, tried)
	}
	return d.balance(g, b, tried)
}

// firstPresent gives the first row whose hop is present; where none is, the first row, which waits.
func firstPresent(g *planGroup, tried uint64) int {
	fallback := -1
	for i := range g.targets {
		if tried&(1<<min(i, 63)) != 0 {
			continue
		}
		if g.targets[i].present() {
			return i
		}
		if fallback < 0 && tried == 0 {
			fallback = i
		}
	}
	return fallback
}

// balance gives a row of the lowest order that has a live one.
func (d *delivery) balance(g *planGroup, b *batch, tried uint64) int {
	lo, hi := 0, 0 // rows are in table order: those of one order are neighbours
	for lo = 0; lo < len(g.targets); lo = hi {
		hi = lo + 1
		for hi < len(g.targets) && g.targets[hi].order == g.targets[lo].order {
			hi++
		}
		if i := d.balanceAmong(g, b, lo, hi, tried); i >= 0 {
			return i
		}
	}
	if tried == 0 {
		return 0 // none is live: the first row waits
	}
	return -1
}

func (d *delivery) balanceAmong(g *planGroup, b *batch, lo, hi int, tried uint64) int {
	usable := func(i int) bool { return tried&(1<<min(i, 63)) == 0 && g.targets[i].present() }
	live, weights := 0, 0
	for i := lo; i < hi; i++ {
		if usable(i) {
			live++
			weights += max(g.targets[i].weight, 1)
		}
	}
	if live == 0 {
		return -1
	}
	switch g.balance {
	case routetable.Weighted:
		left := int(g.turn.Add(1)) % weights
		for i := lo; i < hi; i++ {
			if usable(i) {
				if left -= max(g.targets[i].weight, 1); left < 0 {
					return i
				}
			}
		}
	case routetable.LeastBusy:
		best, bestBusy, turn := -1, 0, int(g.turn.Add(1))
		for k := range hi - lo {
			i := lo + (turn+k)%(hi-lo)
			if !usable(i) {
				continue
			}
			if busy := g.targets[i].busy() + b.count(g.targets[i].outlet); best < 0 || busy < bestBusy {
				best, bestBusy = i, busy
			}
		}
		return best
	}
	nth := 0
	if g.balance == routetable.Hash {
		nth = int(d.hash(g.hashKey) % uint64(live))
	} else {
		nth = int(g.turn.Add(1)) % live
	}
	for i := lo; i < hi; i++ {
		if usable(i) {
			if nth == 0 {
				return i
			}
			nth--
		}
	}
	return -1
}

func (d *delivery) hash(key string) uint64 {
	if key == "" {
		key = "group-id"
	}
	v, _ := d.property(key)
	h := fnv.New64a()
	h.Write([]byte(v))
	return h.Sum64()
}
