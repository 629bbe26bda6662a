package events

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/websocket"
	"github.com/fingerpost/fingerpost/routetable"
)

// plan is what the table has for a kind of event. It is kept until the table has another.
type plan struct {
	made       bool
	generation uint64 // of the table
	joined     uint64 // of Router

	keep   bool    // in the ring
	routed bool    // a row counts
	others bool    // a row leads to a hop that the node reaches
	brief  bool    // names were looked up for it: it holds for its generation only
	to     []*conn // each gets a copy
	links  []*conn // the same, where the event may cross
	oneOf  []pool  // one of each gets one

	rows   []*routetable.Route // of the router's own that were used each time: of components, routers and the ring
	uses   uint64              // since they were counted
	usedAt int64
}

// pool is a group of rows of which one is used.
type pool struct {
	first bool // the first that is there; else that with the least to do
	of    []*conn
	rows  []*routetable.Route // of each
	used  []uint64
}

// publish gives an event that came here first its place in the order: it is stamped, kept, looked up and queued for its components. What has to be
// written is in d afterwards.
func (r *Router) publish(e *event, d *dirty) (at int64) { return r.publishFrom(nil, "", 0, e, d) }

// publishFrom is publish of an event that came by a link, nil for others, with the router that it came to first and its number there. One that was here
// before is left out: then the time is 0. One that may not cross is refused: then it is negative.
func (r *Router) publishFrom(from *conn, origin string, seq uint64, e *event, d *dirty) (at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keepEvents()
	at = r.tick()
	number := uint32(0)
	if from == nil {
		seq = r.nextSeq(e)
	} else if !r.crosses(from, e) {
		return -1
	} else if number = r.originOf(origin); number == 0 || !r.seen[number].add(seq, at) {
		return 0
	}
	r.taken++
	k := r.kindOf(e)
	p := r.planOf(k)
	b, frameAt := websocket.BeginFrame(r.frame[:0], false)
	b = append(r.stamp.append(append(b, k.head...), at), `",`...)
	if bodyAt := len(b); p.keep {
		b = append(b, r.ring.add(k, at, number, seq, e.bodySize(), e.appendBody)...)
	} else {
		b = e.appendBody(b[:bodyAt])
	}
	payload := b[frameAt+4:] // without via: what links get
	if from != nil {
		b = appendText(append(b, `,"via":`...), origin)
	}
	sent := seq != 0 && r.sendLinks(from, origin, seq, p, payload, at, d)
	b = websocket.EndFrame(append(b, '}'), frameAt, true, false)
	r.frame = b
	for _, c := range p.to {
		c.push(b, at, d)
	}
	for i := range p.oneOf {
		p.oneOf[i].choose().push(b, at, d)
	}
	if p.others && r.inlet != nil {
		r.sendOn(k, e, at) // it counts for all rows
	} else {
		p.uses, p.usedAt = p.uses+1, at
	}
	if !p.routed && !sent {
		r.dropped(k, at)
	}
	if !p.keep {
		r.count(p) // the kind is not kept either
	}
	if cap(b) > maxScratch {
		r.frame = nil
	}
	return at
}

// sendLinks queues an event that may cross for the links that want it: never back the way it came, nor to where it came from. payload lacks its
// last brace.
func (r *Router) sendLinks(from *conn, origin string, seq uint64, p *plan, payload []byte, at int64, d *dirty) (sent bool) {
	if len(p.links) == 0 {
		return false
	}
	if from == nil {
		origin = r.o.ID
	}
	b := append(append(r.linkFrame[:0], payload...), '}')
	b = appendLinkEvent(b, origin, seq)
	for _, c := range p.links {
		if c != from && c.link.router != origin {
			c.pushLink(b, at, d)
			sent = true
		}
	}
	r.linkFrame = b
	return sent
}

// maxScratch is how large a buffer is kept.
const maxScratch = 64 << 10

// tick gives the time of the next event: later than that of the last. Called under the lock.
func (r *Router) tick() int64 {
	r.last = max(r.last+1, r.now())
	return r.last
}

// nextSeq counts the events that may cross to other routers. Called under the lock.
func (r *Router) nextSeq(e *event) uint64 {
	if len(r.shareable) == 0 || !r.shareable[string(e.typ)] {
		return 0
	}
	r.ownSeq++
	return r.ownSeq
}

func (r *Router) kindOf(e *event) *kind {
	m := r.kinds[direction(e.response)]
	if k := m[string(e.typ)]; k != nil {
		return k
	}
	k := newKind(string(e.typ), e.response)
	if r.planOf(k); k.plan.keep {
		m[k.typ] = k // until its last event leaves the ring
	}
	return k
}

func (r *Router) forgetKind(k *kind) {
	r.count(&k.plan)
	delete(r.leading, k)
	delete(r.kinds[direction(k.response)], k.typ)
}

func direction(response bool) int {
	if response {
		return 1
	}
	return 0
}

// planOf gives what the table has for a kind of event now. Called under the lock.
func (r *Router) planOf(k *kind) *plan {
	p, s := &k.plan, r.table.Snapshot()
	if p.made && p.joined == r.joined && (p.generation == s.Generation() || !p.brief && !s.ChangedSince(p.generation, k.address)) {
		p.generation = s.Generation()
		return p
	}
	r.count(p)
	*p = plan{made: true, generation: s.Generation(), joined: r.joined, to: p.to[:0], links: p.links[:0], oneOf: p.oneOf[:0], rows: p.rows[:0]}
	r.groups = s.LookupInto(r.groups[:0], k.address, nil)
	for i := range r.groups {
		r.planGroup(p, s, &r.groups[i], 1)
	}
	if p.brief && p.keep {
		r.leading[k] = struct{}{}
	} else {
		delete(r.leading, k)
	}
	return p
}

// planGroup adds the components that a group of rows leads to: each of them once.
func (r *Router) planGroup(p *plan, s *routetable.Snapshot, g *routetable.Group, depth int) {
	var of []*conn
	var rows []*routetable.Route
	for i := range g.Matches {
		m := &g.Matches[i]
		if m.Problem != "" {
			continue
		}
		if !isLink(m.Hop) {
			p.routed = p.routed || !m.Route.Optional
		}
		switch m.Hop.Scheme {
		case "replay":
			p.keep = true
			p.rows = append(p.rows, m.Route)
		case "event-conn":
			c := r.conns[m.Hop.Name]
			if c != nil && c.link != nil {
				if !slices.Contains(p.links, c) {
					p.links = append(p.links, c)
					p.rows = append(p.rows, m.Route)
				}
			} else if c != nil && !slices.Contains(of, c) {
				of, rows = append(of, c), append(rows, m.Route)
			}
		case routetable.NullAddress:
		default:
			p.others = true
			if m.Hop.IsName() && depth < routetable.MaxDepth { // there may be components behind it
				p.brief = true
				for _, inner := range s.Inner(nil, m.Hop, nil) {
					r.planGroup(p, s, &inner, depth+1)
				}
			}
		}
	}
	if g.Pick != routetable.PickAll && len(of) > 0 {
		p.oneOf = append(p.oneOf, pool{g.Pick == routetable.PickFirst, of, rows, make([]uint64, len(of))})
		return
	}
	for i, c := range of {
		if !slices.Contains(p.to, c) {
			p.to, p.rows = append(p.to, c), append(p.rows, rows[i])
		}
	}
}

// count tells the node how often the rows of a plan were used since the last time. Called under the lock.
func (r *Router) count(p *plan) {
	if p.uses == 0 || r.node == nil {
		return
	}
	add := func(row *routetable.Route, n uint64) {
		if n > 0 {
			r.node.AddToRow(row, admin.RowCounters{Matched: n, Copied: n, Delivered: n, LastUsed: time.Unix(0, p.usedAt)})
		}
	}
	for _, row := range p.rows {
		add(row, p.uses)
	}
	for _, g := range p.oneOf {
		for i, row := range g.rows {
			add(row, g.used[i])
			g.used[i] = 0
		}
	}
	p.uses = 0
}

// countAll does that for all plans: it is for a clock. Called under the lock.
func (r *Router) countAll() {
	for _, m := range r.kinds {
		for _, k := range m {
			r.count(&k.plan)
		}
	}
}

// choose picks a component of a pool, which has one.
func (g *pool) choose() *conn {
	best, least := 0, 0
	for i, c := range g.of {
		if g.first {
			break
		}
		if n := c.depth(); i == 0 || n < least {
			best, least = i, n
		}
	}
	g.used[best]++
	return g.of[best]
}

var (
	errSubscriptions = errors.New("a component has at most 131072 subscriptions")
	errTypeText      = errors.New("type: it cannot be subscribed to")
)

// maxSubscriptions is how many types, by direction, a component may subscribe to.
const maxSubscriptions = 1 << 17

// subscribe makes the rows of subscriptions, and has the component told of each, given what came at from or later, and given what comes from now on,
// with no gap and no double in between.
func (r *Router) subscribe(c *conn, list []asked, d *dirty) {
	commands := make([]admin.Command, 0, len(list))
	at := make([]int, 0, len(list)) // the place of each in list
	errs := make([]error, len(list))
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.table.Snapshot()
	for i := range list {
		pattern, ok := routetable.QuotePattern(addressOf(list[i].typ, list[i].response))
		switch {
		case !ok:
			errs[i] = errTypeText
		case c.subscriptions >= maxSubscriptions:
			errs[i] = errSubscriptions
		default:
			commands = append(commands, admin.Subscribe{Origin: c.origin, Pattern: pattern, Address: c.address})
			at = append(at, i)
			if s.Find(pattern, c.address, c.origin) == nil {
				c.subscriptions++
			}
		}
	}
	r.core.DoAll(c.caller, commands, func(i int, err error) { errs[at[i]] = err })
	for i, a := range list {
		if errs[i] != nil {
			c.refuse(d, a.ref, "bad_request", firstLine(errs[i]))
			continue
		}
		r.unrouted.clear(a.typ, a.response)
		c.subscribed(a.ref, r.replayOf(a.typ, a.response, a.from), d)
	}
}

// replayOf gives what came to a name from a time on: of its kind, and of those that rows lead on to it. Called under the lock.
func (r *Router) replayOf(typ string, response bool, from int64) (v view) {
	now := max(r.now(), r.last)
	k := r.kinds[direction(response)][typ]
	if k != nil {
		v = r.ring.view(k, from, now)
	}
	s := r.table.Snapshot()
	for other := range r.leading {
		if other != k && leadsOn(s, s.LookupInto(nil, other.address, nil), addressOf(typ, response), 1) {
			v = v.merge(r.ring.view(other, from, now))
		}
	}
	v.origins = r.origins
	return v
}

// leadsOn tells whether all that groups of rows get comes to a name of events, too.
func leadsOn(s *routetable.Snapshot, groups []routetable.Group, name string, depth int) bool {
	for i := range groups {
		if groups[i].Pick != routetable.PickAll {
			continue
		}
		for j := range groups[i].Matches {
			m := &groups[i].Matches[j]
			if m.Problem != "" || !m.Hop.IsName() {
				continue
			}
			if m.Hop.Scheme == "event" && "event:"+m.Hop.Name == name {
				return true
			}
			if depth < routetable.MaxDepth && leadsOn(s, s.Inner(nil, m.Hop, nil), name, depth+1) {
				return true
			}
		}
	}
	return false
}

// unsubscribe takes the row back, and has the component told.
func (r *Router) unsubscribe(c *conn, ref []byte, typ string, response bool, d *dirty) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pattern, ok := routetable.QuotePattern(addressOf(typ, response)); ok {
		change, err := r.core.Do(c.caller, admin.Unsubscribe{Origin: c.origin, Pattern: pattern, Address: c.address})
		if err != nil {
			return fmt.Errorf("unsubscribe: %w", err)
		}
		c.subscriptions -= len(change.Removed)
	}
	c.answer(d, "unsubscribed", ref, "")
	return nil
}

// withdraw takes all rows of a component back. Called under the lock.
func (r *Router) withdraw(c *conn) {
	if c.subscriptions == 0 {
		return
	}
	c.subscriptions = 0
	if _, err := r.core.Do(c.caller, admin.Withdraw{Origin: c.origin}); err != nil {
		r.log.Error("the subscriptions of a component could not be withdrawn", "component", c.name, "error", err)
	}
}

// restartPoint gives where somebody goes on that asks for "restart": 0 is the whole window. Called without the lock.
func (r *Router) restartPoint(who string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.points.at(who, r.now())
}

// Unrouted is a type of events that nobody had subscribed to when the last came.
type Unrouted struct {
	Type      string `json:"type"`
	Direction string `json:"direction"`
	State     string `json:"state"` // NOT WIRED, or HANDLER GONE
	Drops     uint64 `json:"drops"`
	LastDrop  string `json:"lastDrop"`

	Address string    `json:"-"` // event:req/TYPE, event:res/TYPE
	First   time.Time `json:"-"`
	Last    time.Time `json:"-"`

	last int64
}

// maxUnrouted bounds the tally; the one whose last drop is the oldest goes first.
const maxUnrouted = 1000

// tally counts events that nobody wanted, by address.
type tally struct {
	of         map[string]*Unrouted
	generation uint64 // of the table, at which none of them had a row
}

// dropped counts an event that had no row. Called under the lock.
func (r *Router) dropped(k *kind, at int64) {
	r.nowhere++
	state := "NOT WIRED"
	if _, ok := r.table.Snapshot().Emptied(k.address); ok {
		state = "HANDLER GONE"
	}
	if u := r.unrouted.of[k.address]; u != nil {
		u.State, u.last = state, at
		u.Drops++
		return
	}
	r.log.Info("an event without a subscriber was dropped", "type", k.typ, "direction", directionOf(k.response), "state", state)
	r.unrouted.add(k.address, &Unrouted{Type: k.typ, Direction: directionOf(k.response), State: state, Drops: 1, Address: k.address, First: time.Unix(0, at), last: at})
}

func (t *tally) add(address string, u *Unrouted) {
	if len(t.of) >= maxUnrouted {
		oldest := ""
		for a, u := range t.of {
			if oldest == "" || u.last < t.of[oldest].last {
				oldest = a
			}
		}
		delete(t.of, oldest)
	}
	if t.of == nil {
		t.of = map[string]*Unrouted{}
	}
	t.of[address] = u
}

// clearUnrouted forgets what there is a row for now, whoever made it: a receiver, an operator. Called under the lock.
func (r *Router) clearUnrouted() {
	s := r.table.Snapshot()
	if r.unrouted.generation == s.Generation() {
		return
	}
	r.unrouted.generation = s.Generation()
	for address := range r.unrouted.of {
		if r.leads(s, address) {
			delete(r.unrouted.of, address)
		}
	}
}

// leads tells whether a row leads an address to anything but links and the ring. Called under the lock.
func (r *Router) leads(s *routetable.Snapshot, address string) bool {
	r.groups = s.LookupInto(r.groups[:0], address, nil)
	for i := range r.groups {
		for j := range r.groups[i].Matches {
			m := &r.groups[i].Matches[j]
			if m.Problem == "" && !m.Route.Optional && !isLink(m.Hop) {
				return true
			}
		}
	}
	return false
}

func (t *tally) clear(typ string, response bool) { delete(t.of, addressOf(typ, response)) }

// Unrouted gives what nobody has subscribed to, the latest first.
func (r *Router) Unrouted() []Unrouted {
	r.mu.Lock()
	r.clearUnrouted()
	all := make([]Unrouted, 0, len(r.unrouted.of))
	for _, u := range r.unrouted.of {
		all = append(all, *u)
	}
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b Unrouted) int {
		if a.last != b.last {
			return int(max(min(b.last-a.last, 1), -1))
		}
		return strings.Compare(a.Type, b.Type)
	})
	for i := range all {
		all[i].Last = time.Unix(0, all[i].last)
		all[i].LastDrop = strings.Trim(string(appendTime(nil, all[i].last)), `"`)
	}
	return all
}
