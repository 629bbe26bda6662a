package forwarder

import (
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// plan is what the table says of one address, with the hops' outlets at hand. It holds for one generation of the table.
type plan struct {
	address   string // the name that was looked up and found
	found     bool   // some row counts: the message goes somewhere, or is discarded
	discarded bool   // a null row, or a topic without a subscriber, and nothing else
	problem   string // what the sender is told where the rows lead nowhere for a reason
	condition wire.Symbol
	dialled   bool // some hop is another node: it gets x-opt-via
	tapsOnly  bool // all targets are optional: copies go, but the message counts as unrouted

	roots  []int32 // the groups of the first lookup
	groups []planGroup
}

type planGroup struct {
	pick    routetable.Pick
	balance routetable.Balance
	hashKey string
	turn    *atomic.Uint32 // round robin
	targets []planTarget
}

// planTarget is a row: a hop's outlet, or a name with the groups that it leads to.
type planTarget struct {
	outlet   Outlet
	inner    []int32
	hop      *routetable.Hop
	optional bool
	maybe    bool // beneath a row of an any or first group: it may get no copy
	weight   int
	order    int
	timeout  time.Duration // 0: the node's
}

// present tells whether the target can be expected to take a copy; a name always is.
func (t *planTarget) present() bool { return t.outlet == nil || t.outlet.Present() }

func (t *planTarget) busy() int {
	if t.outlet == nil {
		return 0
	}
	return t.outlet.Busy()
}

// plans caches plans by address for one generation.
type plans struct {
	generation uint64
	byTo       map[string]*plan
}

// maxPlans bounds the cache of one link.
const maxPlans = 16 << 10

// route looks up a message that came by l. The address is the message's own, or the link's target.
func (n *Node) route(l *inlink, m *Message, scratch *[]routetable.Group) *plan {
	s := n.table.Snapshot()
	to, hasTo := m.To()
	if s.HasWhen() {
		return n.plan(s, string(to), hasTo, l, m.property, scratch)
	}
	if l.plans.generation != s.Generation() || l.plans.byTo == nil {
		l.plans.generation = s.Generation()
		if l.plans.byTo == nil {
			l.plans.byTo = map[string]*plan{}
		}
		clear(l.plans.byTo)
		l.noTo = nil
	}
	if !hasTo {
		if l.noTo == nil {
			l.noTo = n.plan(s, "", false, l, nil, scratch)
		}
		return l.noTo
	}
	if p := l.plans.byTo[string(to)]; p != nil {
		return p
	}
	if len(l.plans.byTo) >= maxPlans {
		clear(l.plans.byTo)
	}
	p := n.plan(s, string(to), true, l, nil, scratch)
	l.plans.byTo[string(to)] = p
	return p
}

// matches tells whether any row fits a link's target.
func (n *Node) matches(target string) bool {
	var groups []routetable.Group
	_, _, ok := n.table.Snapshot().Route(groups, "", false, target, true, func(string) (string, bool) { return "", false })
	return ok
}

// plan makes the plan of an address.
func (n *Node) plan(s *routetable.Snapshot, to string, hasTo bool, l *inlink, property func(string) (string, bool), scratch *[]routetable.Group) *plan {
	groups, address, found := s.Route((*scratch)[:0], to, hasTo, l.target, l.hasTarget, property)
	p := &plan{address: address, condition: wire.CondNotFound}
	if !found && len(groups) == 0 { // taps alone are groups that do not count
		return p
	}
	b := planner{n: n, s: s, p: p, hasTo: hasTo, property: property, all: map[Outlet]*planTarget{}}
	p.roots = b.groups(groups, planTarget{}, 1)
	b.conclude()
	*scratch = groups[:0]
	return p
}

// planner makes one plan.
type planner struct {
	n        *Node
	s        *routetable.Snapshot
	p        *plan
	hasTo    bool
	property func(string) (string, bool)

	all      map[Outlet]*planTarget // targets of all groups that get a copy in any case: one for each distinct hop
	counted  int                    // targets that are not optional
	optional int
	nulls    int
	quiet    int // topics without a subscriber
	deep     bool
	lookups  int
	problem  string
}

// groups adds the groups of one lookup and gives their places. outer is the row that led here: where it has a timeout or is optional, that holds.
func (b *planner) groups(groups []routetable.Group, outer planTarget, depth int) []int32 {
	var at []int32
	for i := range groups {
		g := &groups[i]
		place := int32(len(b.p.groups))
		b.p.groups = append(b.p.groups, planGroup{pick: g.Pick, balance: g.Balance, hashKey: g.HashKey})
		var targets []planTarget
		if g.Pick == routetable.PickAll {
			targets = make([]planTarget, 0, len(g.Matches)) // pointed at by b.all: must not move
		}
		certain := g.Pick == routetable.PickAll && !outer.maybe
		for j := range g.Matches {
			t, ok := b.target(&g.Matches[j], outer, depth, g.Pick)
			if !ok || certain && b.merge(&t) {
				continue
			}
			targets = append(targets, t)
			if certain && t.outlet != nil {
				b.all[t.outlet] = &targets[len(targets)-1]
			}
		}
		if len(targets) == 0 {
			continue
		}
		if g.Pick != routetable.PickAll {
			b.p.groups[place].turn = b.n.turn(g.Pattern)
		}
		b.p.groups[place].targets = targets
		at = append(at, place)
	}
	return at
}

// merge makes one copy of rows that lead to one hop: not optional beats optional, the first row gives the rest.
func (b *planner) merge(t *planTarget) bool {
	old := b.all[t.outlet]
	if t.outlet == nil || old == nil {
		return false
	}
	if old.optional && !t.optional {
		old.optional = false
		b.optional--
		b.counted++
	}
	return true
}

// target makes a row's target; false where the row leads nowhere.
func (b *planner) target(m *routetable.Match, outer planTarget, depth int, pick routetable.Pick) (planTarget, bool) {
	t := planTarget{hop: m.Hop, optional: m.Route.Optional || outer.optional, weight: m.Route.Weight, order: m.Route.Order, timeout: m.Route.Timeout}
	t.maybe = outer.maybe || pick != routetable.PickAll
	if outer.timeout != 0 {
		t.timeout = outer.timeout
	}
	if m.Hop == nil {
		b.n.count.problems.Add(1)
		b.problem = m.Problem
		return t, false
	}
	switch m.Hop.Scheme {
	case "null":
		b.nulls++
		t.outlet = discard{b.n}
		return t, pick != routetable.PickAll
	case "link":
		if r := b.n.receiver(m.Hop.Name); r != nil {
			t.outlet = &r.line
		}
	case "amqp", "amqps":
		t.outlet = b.n.peerFor(m.Hop).line(m.Hop, b.p.address, b.hasTo)
		b.p.dialled = true
	case "route", "topic", "rpc", "relay", "event", "web", "comp", "node":
		return b.name(t, depth)
	default:
		if s := b.n.schemes[m.Hop.Scheme]; s != nil {
			t.outlet = s.Outlet(m.Hop)
		} else {
			b.n.count.problems.Add(1)
			b.problem = "this node has no outlet for " + m.Hop.Scheme + ":"
		}
	}
	if t.outlet == nil {
		return t, false
	}
	b.tally(&t)
	return t, true
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
func (b *planner) name(t planTarget, depth int) (planTarget, bool) {
	if b.lookups++; depth >= routetable.MaxDepth || b.lookups > maxLookups {
		b.deep = true
		return t, false
	}
	t.inner = b.groups(b.s.Inner(nil, t.hop, b.property), t, depth+1)
	if len(t.inner) == 0 {
		if t.hop.Scheme == "topic" {
			b.quiet++
		}
		return t, false
	}
	return t, true
}

// conclude says what the targets amount to.
func (b *planner) conclude() {
	p := b.p
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
		p.found, p.discarded = true, true
		if b.nulls == 0 {
			b.n.count.unrouted.Add(1)
		}
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
