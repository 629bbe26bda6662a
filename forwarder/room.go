package forwarder

import (
	"math"

	"github.com/fingerpost/fingerpost/routetable"
)

// Credit and room (DESIGN §5, credit). A link with a target gets no more credit than its hops have room; a line tells its room in
// atomics, and wakes the links that wait for some. What is pre-settled has no outcome that could hold its sender to a slow hop's
// pace: a copy for a hop that was over its soft limit for slowAfter stops counting where the sender has others to go on with.

const unlimited = math.MaxInt32

// room is how many messages of a size the line has room for, up to its soft limit. An empty one has room for a message of any size. From
// any goroutine.
func (ln *line) room(size int) int {
	o := &ln.n.options
	queued := int(ln.queued.Load())
	room := o.SoftQueue - queued
	if bytes := o.SoftQueueBytes - int(ln.queuedBytes.Load()); size > 0 && bytes/size < room {
		room = bytes / size
	}
	if queued == 0 {
		return max(room, 1)
	}
	return max(room, 0)
}

// enough is the room for messages of a size from which a link that waits gets credit: with less, it would get a message at a time.
func (o *Options) enough(size int) int {
	enough := max(o.SoftQueue/4, 1)
	if size > 0 {
		enough = max(min(enough, o.SoftQueueBytes/4/size), 1)
	}
	return enough
}

// hasEnough tells whether the line has enough room for messages of any size.
func (ln *line) hasEnough() bool {
	o := &ln.n.options
	queued := int(ln.queued.Load())
	return o.SoftQueue-queued >= o.enough(0) && (queued == 0 || o.SoftQueueBytes-int(ln.queuedBytes.Load()) >= o.SoftQueueBytes/4)
}

// room is the least room over the groups. What is pre-settled is not held up by slow hops where others are free.
func (p *plan) room(groups []int32, size int, pastSlow bool) int {
	least := unlimited
	for _, gi := range groups {
		least = min(least, p.groupRoom(&p.groups[gi], size, pastSlow))
	}
	return least
}

func (p *plan) groupRoom(g *planGroup, size int, pastSlow bool) int {
	switch g.pick {
	case routetable.PickFirst:
		if i := firstPresent(g, 0); i >= 0 {
			return p.targetRoom(&g.targets[i], size, pastSlow)
		}
		return unlimited
	case routetable.PickAny:
		return p.anyRoom(g, size, pastSlow)
	}
	least := unlimited
	for i := range g.targets {
		if t := &g.targets[i]; !t.optional {
			least = min(least, p.targetRoom(t, size, pastSlow))
		}
	}
	return least
}

// anyRoom is the sum over the live rows of the lowest order that has one.
func (p *plan) anyRoom(g *planGroup, size int, pastSlow bool) int {
	sum, live, order := 0, false, 0
	for i := range g.targets {
		t := &g.targets[i]
		if live && t.order != order {
			break
		}
		if t.present() {
			live, order = true, t.order
			if sum += p.targetRoom(t, size, pastSlow); sum >= unlimited {
				return unlimited
			}
		}
	}
	if !live && len(g.targets) > 0 {
		return p.targetRoom(&g.targets[0], size, pastSlow)
	}
	return sum
}

func (p *plan) targetRoom(t *planTarget, size int, pastSlow bool) int {
	switch {
	case t.line != nil:
		if pastSlow && t.line.slow.Load() {
			return unlimited
		}
		return t.line.room(size)
	case t.outlet != nil:
		return unlimited
	}
	return p.room(t.inner, size, pastSlow)
}

// hasFree tells whether a hop that counts is not slow.
func (p *plan) hasFree() bool {
	for i := range p.groups {
		for j := range p.groups[i].targets {
			if t := &p.groups[i].targets[j]; t.line != nil && !t.optional && !t.line.slow.Load() {
				return true
			}
		}
	}
	return false
}

// withRoom is what the link may have of the credit free, which is more than have. A link that has none and finds no room waits on
// the lines that are full. Called under the lock.
func (l *inlink) withRoom(free, have int) int {
	p, n := l.last, l.c.n
	if p == nil || !p.holds(n, n.table.Snapshot()) {
		if p = l.ofTarget(); p == nil { // the next message finds out
			return free
		}
	}
	room := p.room(p.roots, l.size, l.settled && p.hasFree())
	enough := n.options.enough(l.size)
	if room >= min(free, enough) {
		return min(free, room)
	}
	if have > 0 {
		return have
	}
	n.hold(l)
	for i := range p.groups {
		for j := range p.groups[i].targets {
			if ln := p.groups[i].targets[j].line; ln != nil && ln.room(l.size) < enough {
				ln.wantsRoom(l)
			}
		}
	}
	if room = p.room(p.roots, l.size, l.settled && p.hasFree()); room >= min(free, enough) { // it came meanwhile
		return min(free, room)
	}
	return 0
}

// ofTarget is the plan of the link's target, as the table is; nil where nothing matches it. Called under the lock.
func (l *inlink) ofTarget() *plan {
	l.last = nil
	if p := l.c.n.route(l, &Message{}, new([]routetable.Group)); p.found {
		l.last = p
	}
	return l.last
}

// wantsRoom has the link looked at when the line has room again. Called without the line's lock.
func (ln *line) wantsRoom(l *inlink) {
	ln.wantMu.Lock()
	ln.wants = append(ln.wants, l)
	ln.wanted.Store(true)
	ln.wantMu.Unlock()
}

// takeWants gives the links that wait for room, if there is enough. Called under the line's lock.
func (ln *line) takeWants() []*inlink {
	if !ln.wanted.Load() || !ln.gone.Load() && !ln.hasEnough() {
		return nil
	}
	ln.wantMu.Lock()
	defer ln.wantMu.Unlock()
	w := ln.wants
	ln.wants = nil
	ln.wanted.Store(false)
	return w
}

// hold remembers a link without credit for want of room: rows may change, or a hop go, without any line having more of it.
func (n *Node) hold(l *inlink) {
	if l.holding {
		return
	}
	l.holding = true
	n.mu.Lock()
	n.held[l] = struct{}{}
	n.mu.Unlock()
}

// wake has links look at their credit. Called without a lock.
func (n *Node) wake(links []*inlink) {
	for _, l := range links {
		l.c.lock()
		l.look()
		l.c.release()
	}
}

// recheckHeld looks at the links without credit again.
func (n *Node) recheckHeld() {
	n.mu.Lock()
	links := make([]*inlink, 0, len(n.held))
	for l := range n.held {
		links = append(links, l)
	}
	clear(n.held)
	n.mu.Unlock()
	for _, l := range links {
		l.c.lock()
		l.holding = false
		l.look()
		l.c.release()
	}
}

// ease lets a pre-settled copy for a slow hop not count, where its link has lately sent to one that is not slow. Called under the lock
// of d.conn.
func (d *delivery) ease(c *Copy, ln *line, at int64) {
	l := d.link
	if l == nil {
		return
	}
	if !ln.slow.Load() {
		l.free, l.freeAt = ln, at
		return
	}
	if l.goesOnWithout(ln, at) {
		c.tap, d.counting = true, 0
	}
}

// goesOnWithout tells whether the link has sent to another hop, which was not slow, within the last second.
func (l *inlink) goesOnWithout(ln *line, at int64) bool {
	return l.free != nil && l.free != ln && at-l.freeAt < int64(stuckAfter)
}

// easeMany lets the copies of a pre-settled message for slow hops not count. Where all are slow, the one with the shortest queue does.
func (d *delivery) easeMany() {
	slow, best, least := 0, -1, int32(math.MaxInt32)
	for i := range d.copies {
		c := &d.copies[i]
		ln := c.planned().line
		if c.tap || ln == nil || !ln.slow.Load() {
			continue
		}
		slow++
		if q := ln.queued.Load(); q < least {
			best, least = i, q
		}
	}
	if slow == 0 {
		return
	}
	all := slow == int(d.counting)
	for i := range d.copies {
		c := &d.copies[i]
		if ln := c.planned().line; c.tap || ln == nil || !ln.slow.Load() || all && i == best {
			continue
		}
		c.tap = true
		d.counting--
	}
}

// copyRef points to a copy that may be over, and its memory another's, by the time that it is looked at.
type copyRef struct {
	d      *delivery
	serial uint32
	conn   *conn
	copy   *Copy
}

func refTo(c *Copy) copyRef { return copyRef{c.in, c.in.serial.Load(), c.in.conn, c} }

// easeQueued lets pre-settled copies in the line of a hop that turned slow not count. Called without a lock.
func (n *Node) easeQueued(refs []copyRef, ln *line, at int64) {
	for _, r := range refs {
		r.conn.lock()
		if d, c := r.d, r.copy; d.serial.Load() == r.serial && !c.over && !c.tap && c.had().tail == nil && (c.timed || d.link != nil && d.link.goesOnWithout(ln, at)) {
			c.tap = true
			if d.counting--; d.counting == 0 && !d.answered {
				d.finish()
			}
		}
		r.conn.release()
	}
}
