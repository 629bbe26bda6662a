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
	if d.marked && p.received {
		x := d.has()
		x.plain = d.appendPlain(append(x.plain[:0], d.scan.Header.Of(d.Payload)...))
	}
	// The copies are pointed at once they are in the batch, so their slice gets its full size first.
	if most := p.copies(); cap(d.copies) < most {
		d.copies = make([]Copy, 0, most)
	}
	d.copies, d.conn.later = d.copies[:0], d.conn.later[:0]
	at := d.conn.clock()
	d.conn.use(p)
	if p.sole {
		d.addCopy(0, 0, at)
	} else {
		d.certain(p.roots, at)
	}
	for _, gi := range d.conn.later {
		d.oneOf(gi, b, at)
	}
	d.pending = int32(len(d.copies))
	d.count(at)
	if d.stream != nil {
		d.stream.makeTails(d)
	}
	for i := range d.copies {
		c := &d.copies[i]
		b.add(c.outlet(), c)
	}
	made := len(d.copies)
	if made > 0 && d.counting == 0 {
		d.finish() // taps alone: nobody waits for them
	}
	return made
}

// count says which copies the sender waits for.
func (d *delivery) count(at int64) {
	switch len(d.copies) {
	case 0:
		return
	case 1: // mostly
		c := &d.copies[0]
		ln := c.planned().line
		if d.counting = 1; c.tap {
			d.counting = 0
		}
		if d.link != nil && ln != nil {
			d.link.leads(ln, at)
		}
		if d.Settled && ln != nil && !c.tap && d.stream == nil {
			d.ease(c, ln, at)
		}
		c.droppable, c.timed = c.tap || d.isLoose(), c.tap
		return
	}
	d.countMany(at)
}

func (d *delivery) countMany(at int64) {
	for i := range d.copies {
		if !d.copies[i].tap {
			d.counting++
		}
	}
	many := d.counting > 1
	for i := range d.copies {
		c := &d.copies[i]
		c.timed = many || c.tap
	}
	if ln := d.copies[0].planned().line; d.link != nil && ln != nil {
		d.link.leads(ln, at)
	}
	if d.Settled && d.stream == nil {
		d.easeMany()
	}
	for i := range d.copies {
		d.copies[i].droppable = d.copies[i].tap || d.isLoose()
	}
}

// isLoose tells whether neither an outcome nor credit holds the message's sender back.
func (d *delivery) isLoose() bool { return d.Settled && d.link != nil && d.link.inlet }

// copies is the most copies that a message can have.
func (p *plan) copies() int {
	if p.sole {
		return 1
	}
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
			d.conn.later = append(d.conn.later, gi)
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
	t := d.plan.at(group, target)
	n := len(d.copies)
	d.copies = d.copies[:n+1] // there is room, and it is all zero: see dispatch and recycle
	c := &d.copies[n]
	c.in, c.group, c.target, c.tap = d, group, target, t.optional
	c.row, c.expires = t.row, d.expiry(at, t)
	d.copied(t)
}

// copied tallies a copy that goes to a target; discarding is none.
func (d *delivery) copied(t *planTarget) {
	if !t.isNull {
		d.conn.tally(t.row).copied++
	}
}

// planned is the target that the copy goes to.
func (c *Copy) planned() *planTarget { return c.in.plan.at(c.group, c.target) }

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
	switch g.balance {
	case routetable.Weighted:
		return g.weighted(lo, hi, usable)
	case routetable.LeastBusy:
		best, bestBusy, turn := -1, 0, 0
		if !g.inOrder {
			turn = int(g.turn.Add(1))
		}
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
	case routetable.Hash:
		return d.byHash(g, lo, hi, usable)
	}
	live := 0
	for i := lo; i < hi; i++ {
		if usable(i) {
			live++
		}
	}
	if live == 0 {
		return -1
	}
	nth := int((g.turn.Add(1) - 1) % uint32(live)) // the first row has the first turn
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

// maxSchedule bounds the schedule of a weighted group; where the weights add up to more, they are rounded.
const maxSchedule = 1024

// prepare makes what picking needs.
func (g *planGroup) prepare() {
	if g.pick != routetable.PickAny {
		return
	}
	g.inOrder = true
	for i := range g.targets {
		a, ok := g.targets[i].outlet.(Asked)
		g.inOrder = g.inOrder && ok && a.IsAsked()
		h := fnv.New64a()
		h.Write([]byte(g.targets[i].hop.Key))
		g.targets[i].seed = h.Sum64()
	}
	if g.balance == routetable.Weighted {
		hi := 1
		for hi < len(g.targets) && g.targets[hi].order == g.targets[0].order {
			hi++
		}
		g.schedule = spread(g.targets[:hi])
	}
}

// spread gives each target as many turns as its weight says, those of each as far apart as can be (smooth weighted round robin).
func spread(targets []planTarget) []int32 {
	sum, common := 0, 0
	for i := range targets {
		w := max(targets[i].weight, 1)
		sum += w
		for a := w; a != 0; {
			common, a = a, common%a
		}
	}
	sum /= common
	weights := make([]int, len(targets))
	turns := 0
	for i := range targets {
		weights[i] = max(targets[i].weight, 1) / common
		if sum > maxSchedule {
			weights[i] = max(1, weights[i]*maxSchedule/sum)
		}
		turns += weights[i]
	}
	order := make([]int32, 0, turns)
	due := make([]int, len(targets))
	for range turns {
		best := 0
		for i := range due {
			if due[i] += weights[i]; due[i] > due[best] {
				best = i
			}
		}
		due[best] -= turns
		order = append(order, int32(best))
	}
	return order
}

// weighted takes the row whose turn it is; where that is not there, those that are share its turns by their weights.
func (g *planGroup) weighted(lo, hi int, usable func(int) bool) int {
	turn := g.turn.Add(1)
	if lo == 0 && len(g.schedule) > 0 {
		if i := int(g.schedule[turn%uint32(len(g.schedule))]); usable(i) {
			return i
		}
	}
	weights := 0
	for i := lo; i < hi; i++ {
		if usable(i) {
			weights += max(g.targets[i].weight, 1)
		}
	}
	if weights == 0 {
		return -1
	}
	left := int(mix(uint64(turn)) % uint64(weights))
	for i := lo; i < hi; i++ {
		if usable(i) {
			if left -= max(g.targets[i].weight, 1); left < 0 {
				return i
			}
		}
	}
	return -1
}

// byHash takes the row that the message's key likes best (rendezvous hashing): a row that goes or comes moves its own share alone.
func (d *delivery) byHash(g *planGroup, lo, hi int, usable func(int) bool) int {
	key := d.hash(g.hashKey)
	best, most := -1, uint64(0)
	for i := lo; i < hi; i++ {
		if usable(i) {
			if likes := mix(key ^ g.targets[i].seed); best < 0 || likes > most {
				best, most = i, likes
			}
		}
	}
	return best
}

// mix spreads the bits of x (the finalizer of MurmurHash3).
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
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
