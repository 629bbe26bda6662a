package forwarder

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// plan is what the table says of one address, with the hops' outlets at hand. It holds until one of the names that were looked up for
// it leads elsewhere. Links share it.
//
// What every message asks comes first: all of it is in few lines of a processor's cache, as the messages of many addresses find none there.
type plan struct {
	generation atomic.Uint64                 // of the table: up to here it is known to hold
	allowed    atomic.Pointer[admin.Account] // the last one whose client was found to be free to send by it
	pruned     uint64                        // Node.pruned
	problems   int32                         // rows whose address cannot be reached

	found     bool // some row counts: the message goes somewhere, or is discarded
	discarded bool // a null row, or a topic without a subscriber, and nothing else
	quiet     bool // discarded, and no null row: it counts as unrouted
	dialled   bool // some hop is another node: it gets x-opt-via
	meshed    bool // some hop is a neighbour: it gets a stamp
	back      bool // some hop is a node's link for replies
	received  bool // some hop is a receiver
	foreign   bool // some hop is neither a link of ours nor null
	tapsOnly  bool // all targets are optional: copies go, but the message counts as unrouted
	brief     bool // holds for its generation only
	own       bool // a predicate was asked: it holds for its message only

	sole bool // one row makes one copy in any case: target says where it goes

	name    string // the message's own address
	problem string // what the sender is told where the rows lead nowhere for a reason
	target  planTarget

	of      string // shared: the scheme of the adapter's hops whose messages it is for
	address string // the name that was looked up and found

	roots  []int32 // the groups of the first lookup
	groups []planGroup
	lookup lookup // the rows that every message uses

	condition wire.Symbol
	unread    string // a hop that a row leads to and that is not there; empty: none
	unserved  string // a name that a row leads to and that no row matches, a topic not counted; empty: none

	// What it was made of, and so how long it holds.
	names []string // looked up; more than maxNames of them make it brief
	links []*line  // receivers that a row of somebody else's leads to, and neighbours
}

type planGroup struct {
	targets  []planTarget
	pick     routetable.Pick
	balance  routetable.Balance
	hashKey  string
	turn     *atomic.Uint32 // round robin: of the group's first row
	inOrder  bool           // least busy: of equals the first, not each in turn
	outer    leaf           // the row, a name, that led here
	isOnly   bool           // what that row leads to is one hop of this group
	schedule []int32        // weighted: the targets of the lowest order in the turns that they get, spread evenly
}

// planTarget is a row: a hop's outlet, or a name with the groups that it leads to. What every message asks comes first.
type planTarget struct {
	outlet   Outlet
	line     *line         // the outlet, where it is one
	row      *rowCount     // nil: no row of the table
	timeout  time.Duration // of a name, 0: none of its own
	optional bool
	isNull   bool // it discards
	maybe    bool // beneath a row of an any or first group: it may get no copy

	hop    *routetable.Hop
	inner  []int32
	weight int
	order  int
	retry  int     // times that a copy is tried again; -1 no limit
	seed   uint64  // of balance hash
	lookup *lookup // of a name that is maybe followed: the rows that are used with it
}

// present tells whether the target can be expected to take a copy; a name always is.
func (t *planTarget) present() bool { return t.outlet == nil || t.outlet.Present() }

func (t *planTarget) busy() int {
	if t.outlet == nil {
		return 0
	}
	return t.outlet.Busy()
}

// sharedPlans are the plans of messages that came by links without a target, by address: what these links would make for themselves is the same,
// since it is what the table says. Links of listeners that dial what the table does not know take no part. One place in memory for all links
// is in the processor's cache where one for each would not be. Reading takes no lock; of writers that meet, one is late, and its plan is made again.
type sharedPlans struct {
	buckets atomic.Pointer[[sharedBuckets]planBucket] // nil until the first

	// Of the node's tick.
	generation uint64 // of the table at the last sweep
	sweptAt    int64
}

// planBucket is a line of a processor's cache.
type planBucket [8]atomic.Pointer[plan]

const sharedBuckets = 8 << 10

var planSeed = maphash.MakeSeed()

// bucket is where the plan of an address is: the place at which to begin, and go round.
func (x *sharedPlans) bucket(to []byte) (b *planBucket, at uint64) {
	all := x.buckets.Load()
	if all == nil {
		return nil, 0
	}
	h := maphash.Bytes(planSeed, to)
	return &all[h%sharedBuckets], h / sharedBuckets
}

// get gives the plan of an address for messages of an adapter's, or of nobody's; nil where there is none that holds.
func (x *sharedPlans) get(n *Node, s *routetable.Snapshot, own string, to []byte) *plan {
	b, at := x.bucket(to)
	if b == nil {
		return nil
	}
	for i := range uint64(len(b)) {
		p := b[(at+i)%uint64(len(b))].Load()
		if p == nil {
			return nil
		}
		if p.name == string(to) && p.of == own {
			if p.holds(n, s) {
				return p
			}
			return nil
		}
	}
	return nil
}

// put keeps a plan, in place of one for the same, else where there is room, else of the one that is first.
func (x *sharedPlans) put(own string, p *plan) {
	if x.buckets.Load() == nil {
		x.buckets.CompareAndSwap(nil, new([sharedBuckets]planBucket))
	}
	p.of = own
	b, at := x.bucket([]byte(p.name))
	for i := range uint64(len(b)) {
		place := &b[(at+i)%uint64(len(b))]
		if old := place.Load(); old == nil || old.name == p.name && old.of == own {
			place.Store(p)
			return
		}
	}
	b[at%uint64(len(b))].Store(p)
}

// sweep lets go of plans that hold no more, now and then. What is behind one of them in its bucket is made again.
func (x *sharedPlans) sweep(n *Node, at int64) {
	s := n.table.Snapshot()
	if s.Generation() == x.generation || at-x.sweptAt < int64(sweepPlans) {
		return
	}
	x.generation, x.sweptAt = s.Generation(), at
	all := x.buckets.Load()
	if all == nil {
		return
	}
	for i := range all {
		for j := range all[i] {
			place := &all[i][j]
			if p := place.Load(); p != nil && !p.holds(n, s) {
				place.CompareAndSwap(p, nil)
			}
		}
	}
}

// plans are the plans of one link, by address.
type plans struct {
	byTo map[string]*plan
	noTo *plan // of messages without an address of their own

	generation uint64 // of the table, when a plan was last asked for
	sweptAt    int64  // Unix nanoseconds
}

const (
	maxPlans = 16 << 10 // of one link
	maxNames = 32       // that a plan remembers

	// sweepPlans is how often, at most, plans that hold no more are looked for: they keep connections in memory that are over.
	sweepPlans = 10 * time.Second
)

// route gives the plan of a message that came by l. The address is the message's own, or the link's target. Called under the lock.
func (n *Node) route(l *inlink, m *Message, scratch *[]routetable.Group) *plan {
	s := n.table.Snapshot()
	if g := s.Generation(); g != l.plans.generation {
		l.plans.generation = g
		if at := l.c.clock(); at-l.plans.sweptAt > int64(sweepPlans) {
			l.plans.sweptAt = at
			l.plans.sweep(n, s)
		}
	}
	to, hasTo := m.To()
	if as := m.had().as; as != "" {
		to, hasTo = []byte(as), true
	}
	p := l.plans.noTo
	shares := hasTo && !l.hasTarget && !l.c.direct && l.inside == ""
	if shares {
		if p := n.shared.get(n, s, l.own, to); p != nil {
			return p
		}
	}
	if hasTo {
		p = l.plans.byTo[string(to)]
	}
	if p != nil && p.holds(n, s) {
		return p
	}
	if !hasTo {
		p = n.plan(s, "", false, l, m.property, scratch)
		if !p.own {
			l.plans.noTo = p
		}
		return p
	}
	p = n.plan(s, string(to), true, l, m.property, scratch)
	switch {
	case p.own:
	case shares && p.found:
		n.shared.put(l.own, p)
	default:
		l.plans.keep(p)
	}
	return p
}

// keep remembers the plan of an address.
func (x *plans) keep(p *plan) {
	if len(x.byTo) >= maxPlans {
		clear(x.byTo)
	}
	if x.byTo == nil {
		x.byTo = map[string]*plan{}
	}
	x.byTo[p.name] = p
}

// sweep lets go of plans that hold no more.
func (x *plans) sweep(n *Node, s *routetable.Snapshot) {
	for to, p := range x.byTo {
		if !p.holds(n, s) {
			delete(x.byTo, to)
		}
	}
	if x.noTo != nil && !x.noTo.holds(n, s) {
		x.noTo = nil
	}
}

// holds tells whether the plan would be made the same way now.
func (p *plan) holds(n *Node, s *routetable.Snapshot) bool {
	if p.dialled && p.pruned != n.pruned.Load() {
		return false
	}
	known := p.generation.Load()
	if known == s.Generation() {
		return true
	}
	if p.brief {
		return false
	}
	for _, name := range p.names {
		if n.changedSince(s, known, name) {
			return false
		}
	}
	for _, ln := range p.links {
		if ln.gone.Load() {
			return false
		}
	}
	if known < s.Generation() {
		p.generation.CompareAndSwap(known, s.Generation())
	}
	return true
}

// uses notes that a name was looked up.
func (p *plan) uses(name string) {
	switch {
	case p.brief || slices.Contains(p.names, name):
	case len(p.names) == maxNames:
		p.brief, p.names = true, nil
	default:
		p.names = append(p.names, name)
	}
}

// usesFirst notes the names of the first lookup (routetable.Snapshot.Route): those that come before the one found, and all where
// none was or fallback rows were.
func (p *plan) usesFirst(to string, hasTo bool, l *inlink, groups []routetable.Group, found bool) {
	for i := range groups {
		found = found && !groups[i].Fallback
	}
	if hasTo {
		p.uses(to)
		if found && p.address == to {
			return
		}
		if _, rest, ok := strings.Cut(to, "://"); ok {
			if _, name, ok := strings.Cut(rest, "/"); ok { // of an amqp URL; a name too many does no harm
				p.uses(name)
				if found && p.address == name {
					return
				}
			}
		}
	}
	if l.hasTarget {
		p.uses(l.target)
	}
}

// matches tells whether any row fits the link's target. Called under the lock.
func (l *inlink) matches() bool {
	if o, _ := l.c.n.owned(l.target, l.inside); o != nil {
		return true
	}
	s := l.c.n.table.Snapshot()
	if !l.c.n.changedSince(s, l.unmatched, l.target) {
		return false
	}
	_, _, ok := s.Route(nil, "", false, l.target, true, func(string) (string, bool) { return "", false })
	if !ok {
		l.unmatched = s.Generation()
	}
	return ok
}

// plan makes the plan of an address.
func (n *Node) plan(s *routetable.Snapshot, to string, hasTo bool, l *inlink, property func(string) (string, bool), scratch *[]routetable.Group) *plan {
	n.count.plans.Add(1)
	p := &plan{name: to, condition: wire.CondNotFound, pruned: n.pruned.Load()}
	p.generation.Store(s.Generation())
	if n.ownedPlan(p, l, to, hasTo) {
		return p
	}
	if s.HasWhen() {
		asked := property
		property = func(name string) (string, bool) {
			p.own = true
			return asked(name)
		}
	} else {
		property = nil
	}
	groups, address, found := s.Route((*scratch)[:0], to, hasTo, l.target, l.hasTarget, property)
	p.address = address
	p.usesFirst(to, hasTo, l, groups, found)
	if !found && len(groups) == 0 { // taps alone are groups that do not count
		n.direct(p, l, to, hasTo)
		return p
	}
	b := planner{n: n, s: s, p: p, inside: l.inside, own: l.own, hasTo: hasTo, property: property, all: map[Outlet]*planTarget{}}
	p.roots = b.groups(groups, &p.lookup, planTarget{retry: -1}, 1)
	b.conclude()
	p.findSole()
	*scratch = groups[:0]
	return p
}

// findSole finds out whether the plan is one row's.
func (p *plan) findSole() {
	if len(p.groups) != 1 || len(p.roots) != 1 || len(p.lookup.rows) != 1 || len(p.lookup.nulls) != 0 {
		return
	}
	g := &p.groups[0]
	if len(g.targets) == 1 && g.pick == routetable.PickAll && g.targets[0].outlet != nil && g.targets[0].row == p.lookup.rows[0] {
		p.sole, p.target = true, g.targets[0]
	}
}

// at is a row in its group.
func (p *plan) at(group, target int32) *planTarget {
	if p.sole {
		return &p.target
	}
	return &p.groups[group].targets[target]
}

// planner makes one plan.
type planner struct {
	n        *Node
	s        *routetable.Snapshot
	p        *plan
	hasTo    bool
	inside   string // the space that the message comes from inside of
	own      string // the scheme of its adapter's hops
	property func(string) (string, bool)

	all      map[Outlet]*planTarget // targets of all groups that get a copy in any case: one for each distinct hop
	counted  int                    // targets that are not optional
	optional int
	nulls    int // rows that discard and are not optional
	quiet    int // topics without a subscriber, likewise
	deep     bool
	lookups  int
	problem  string
}

// groups adds the groups of one lookup and gives their places; their rows are of the lookup used. outer is the row that led here: where
// it has a timeout or is optional, that holds.
func (b *planner) groups(groups []routetable.Group, used *lookup, outer planTarget, depth int) []int32 {
	var at []int32
	for i := range groups {
		g := &groups[i]
		place := int32(len(b.p.groups))
		b.p.groups = append(b.p.groups, planGroup{pick: g.Pick, balance: g.Balance, hashKey: g.HashKey})
		var targets []planTarget
		if g.Pick == routetable.PickAll {
			targets = make([]planTarget, 0, len(g.Matches)) // pointed at by b.all: must not move
		}
		rows := b.n.rows.find(g.Matches)
		certain := g.Pick == routetable.PickAll && !outer.maybe
		for j := range g.Matches {
			if g.Matches[j].Hop == nil {
				b.p.problems++
				b.problem = g.Matches[j].Problem
				continue
			}
			used.rows = append(used.rows, rows[j])
			t, ok := b.target(&g.Matches[j], used, outer, depth, g.Pick)
			t.row = rows[j]
			if !ok && t.isNull {
				used.nulls = append(used.nulls, rows[j])
			}
			if !ok || certain && b.merge(&t) {
				continue
			}
			targets = append(targets, t)
			b.nest(&t, leaf{place, int32(len(targets) - 1)})
			if certain && t.outlet != nil {
				b.all[t.outlet] = &targets[len(targets)-1]
			}
		}
		if len(targets) == 0 {
			continue
		}
		if g.Pick != routetable.PickAll {
			b.p.groups[place].turn = &rows[0].turn
		}
		b.p.groups[place].targets = targets
		b.p.groups[place].prepare()
		at = append(at, place)
	}
	return at
}

// nest notes, with the group that a name alone leads to, where that row is.
func (b *planner) nest(t *planTarget, at leaf) {
	if len(t.inner) != 1 {
		return
	}
	g := &b.p.groups[t.inner[0]]
	g.outer, g.isOnly = at, g.pick != routetable.PickAll || len(g.targets) == 1
}

// merge makes one copy of rows that lead to one hop: not optional beats optional, the first row gives the rest.
func (b *planner) merge(t *planTarget) bool {
	old := b.all[t.outlet]
	if t.outlet == nil || old == nil {
		return false
	}
	if old.retry >= 0 && (t.retry < 0 || t.retry > old.retry) {
		old.retry = t.retry
	}
	if old.optional && !t.optional {
		old.optional = false
		b.optional--
		b.counted++
	}
	return true
}

// target makes a row's target; false where the row leads nowhere.
func (b *planner) target(m *routetable.Match, used *lookup, outer planTarget, depth int, pick routetable.Pick) (planTarget, bool) {
	t := planTarget{hop: m.Hop, optional: m.Route.Optional || outer.optional, weight: m.Route.Weight, order: m.Route.Order, timeout: m.Route.Timeout, retry: m.Route.Retry}
	t.maybe = outer.maybe || pick != routetable.PickAll
	if outer.timeout != 0 {
		t.timeout = outer.timeout
	}
	if outer.retry >= 0 {
		t.retry = outer.retry
	}
	switch m.Hop.Scheme {
	case "null":
		t.outlet, t.isNull = discard{b.n}, true
		if !t.optional {
			b.nulls++
		} else if pick != routetable.PickAll {
			b.optional++
		}
		return t, pick != routetable.PickAll
	case "link":
		if r := b.n.receiver(m.Hop.Name); r != nil {
			t.outlet = &r.line
			if r.toRouter {
				b.p.dialled, b.p.back = true, true
			} else {
				b.p.received = true
			}
			if m.Route.Origin != "link:"+m.Hop.Name { // else the row goes with the receiver
				b.p.links = append(b.p.links, &r.line)
			}
		}
	case "amqp", "amqps":
		t.outlet = b.n.lineFor(m.Hop, b.p.address, b.hasTo)
		b.p.dialled = true
	case "route", "topic", "rpc", "relay", "event", "web", "comp", "node":
		if t.outlet, _ = b.n.owned(m.Hop.Text, b.inside); t.outlet == nil {
			return b.name(t, used, depth)
		}
		b.p.foreign = true
	default:
		if s := b.n.schemes[m.Hop.Scheme]; s != nil {
			name := b.p.address
			if outer.hop != nil {
				name = outer.hop.LookupName()
			}
			if ln := b.neighbour(s, m.Hop, name); ln != nil {
				t.outlet = ln
				break
			}
			t.outlet = s.Outlet(m.Hop, m.Route, name)
			b.p.foreign = true
		} else {
			b.p.problems++
			b.problem = "this node has no outlet for " + m.Hop.Scheme + ":"
		}
	}
	if t.outlet == nil {
		b.p.brief, b.p.unread = true, m.Hop.Text // nothing tells when there is one
		return t, false
	}
	if t.timeout == 0 {
		t.timeout = b.n.options.DeliveryTimeout
	}
	t.line, _ = t.outlet.(*line)
	b.tally(&t)
	return t, true
}

// neighbour gives the line to a hop that is one, nil for others. What its own adapter sends goes by its outlet.
func (b *planner) neighbour(s Scheme, hop *routetable.Hop, name string) *line {
	x, ok := s.(Neighbourly)
	if !ok || b.own == hop.Scheme {
		return nil
	}
	nb, lookedUp := x.Neighbour(hop, name)
	if nb == nil {
		return nil
	}
	ln := nb.line(hop, lookedUp)
	if ln != nil {
		b.p.dialled, b.p.meshed = true, true
		b.p.links = append(b.p.links, ln)
	}
	return ln
}

func (b *planner) tally(t *planTarget) {
	if t.optional {
		b.optional++
	} else {
		b.counted++
	}
}

// maxLookups bounds the names that one address leads through: a small table can name a great many.
const maxLookups = 256

// name looks up a row that names another name.
func (b *planner) name(t planTarget, outer *lookup, depth int) (planTarget, bool) {
	if b.lookups++; depth > routetable.MaxDepth || b.lookups > maxLookups {
		b.deep = true
		return t, false
	}
	b.p.uses(t.hop.LookupName())
	used := outer
	if t.maybe {
		used = &lookup{}
		t.lookup = used
	}
	t.inner = b.groups(b.s.Inner(nil, t.hop, b.property), used, t, depth+1)
	if len(t.inner) == 0 {
		if t.maybe { // it is never picked: what was looked up is known now
			outer.rows = append(outer.rows, used.rows...)
		}
		switch {
		case t.hop.Scheme == "topic" && t.optional: // says nothing of the message
		case t.hop.Scheme == "topic":
			b.quiet++
		case b.p.unserved == "":
			b.p.unserved = t.hop.LookupName()
		}
		return t, false
	}
	return t, true
}

// conclude says what the targets amount to.
func (b *planner) conclude() {
	p := b.p
	if b.lookups > 0 {
		p.lookup.once()
	}
	if b.lookups > maxLookups {
		p.roots = nil
		p.found, p.problem, p.condition = true, "the address leads through too many names", condLoop
		return
	}
	switch {
	case b.counted > 0 || b.optional == 0 && len(p.roots) > 0:
		p.found = true
	case b.optional > 0 && b.nulls+b.quiet > 0:
		p.found = true // discarded, but for the taps
	case b.optional > 0:
		p.found, p.tapsOnly, p.problem = true, true, "no route that counts matches the address "+p.address
	case b.nulls > 0 || b.quiet > 0:
		p.found, p.discarded, p.quiet = true, true, b.nulls == 0
	case b.deep:
		p.found, p.problem, p.condition = true, "the address leads through more than 8 names", condLoop
	}
}

// discard is the outlet of null rows.
type discard struct{ n *Node }

func (discard) Present() bool { return true }
func (discard) Busy() int     { return 0 }

// Deliver accepts everything.
func (o discard) Deliver(batch []*Copy) (int, error) {
	o.n.count.discarded.Add(uint64(len(batch)))
	for _, c := range batch {
		c.outcome = Outcome{Kind: wire.Accepted}
	}
	o.n.settle(append([]*Copy(nil), batch...))
	return len(batch), nil
}
