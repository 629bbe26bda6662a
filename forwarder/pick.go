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
	d.copies = d.copies[:0]
	d.collect(p.roots, b, d.conn.clock())
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

// collect makes the copies of some groups.
func (d *delivery) collect(groups []int32, b *batch, at int64) {
	for _, gi := range groups {
		g := &d.plan.groups[gi]
		if g.pick == routetable.PickAll {
			for ti := range g.targets {
				d.addCopy(gi, int32(ti), b, at)
			}
			continue
		}
		if ti := d.choose(g, b, 0); ti >= 0 {
			d.tried |= 1 << min(ti, 63)
			d.addCopy(gi, int32(ti), b, at)
		}
	}
}

func (d *delivery) addCopy(group, target int32, b *batch, at int64) {
	t := &d.plan.groups[group].targets[target]
	if t.outlet == nil {
		d.collect(t.inner, b, at)
		return
	}
	timeout := t.timeout
	if timeout == 0 {
		timeout = d.conn.node().options.DeliveryTimeout
	}
	d.copies = append(d.copies, Copy{
		Message: &d.Message, Hop: t.hop, in: d, group: group, target: target, expires: at + int64(timeout),
	})
}

func (c *Copy) outlet() Outlet { return c.in.plan.groups[c.group].targets[c.target].outlet }

// choose picks one row of an any or first group, without the rows in the bit set tried; -1 if none is left. An any group one of whose
// members gets a copy already is satisfied: -1 too.
func (d *delivery) choose(g *planGroup, b *batch, tried uint64) int {
	if tried == 0 && len(d.plan.groups) > 1 {
		for ti := range g.targets {
			for i := range d.copies {
				if g.targets[ti].outlet != nil && d.copies[i].outlet() == g.targets[ti].outlet {
					return -1
				}
			}
		}
	}
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
