package relay

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/websocket"
	"github.com/fingerpost/fingerpost/routetable"
)

// role is what the table makes of a connection on a topic.
type role uint8

const (
	roleNone role = iota
	roleStandby
	roleActive
)

func (r role) String() string {
	return [...]string{roleNone: "none", roleStandby: "standby", roleActive: "active"}[r]
}

// told is what a connection knows of its role on a topic. Guarded by Conn.mu.
type told struct {
	role   role
	own    bool // it asked for it: its row is there
	asking bool // its own serve or unserve is being done, and its reply tells
}

// maxTold bounds what is remembered of topics that a connection did not ask for: of one that is forgotten it is told again.
const maxTold = 1000

// roles tells connections what becomes of their roles. It has the table's changes, and for each topic that they name it looks at those that were active
// before, that are now, and that the rows name: nobody else's role can be another.
type roles struct {
	b    *Broker
	wake chan struct{}

	// Owned by run: the table as it was told so far, and before the last change. A change names the snapshot that readers see since.
	current, before *routetable.Snapshot

	mu    sync.Mutex // guards what follows; a leaf
	items []item
	busy  bool   // run is at some that it has taken
	seen  uint64 // the generation of the last change
}

// item is something to look at.
type item struct {
	after   *routetable.Snapshot // a change of a row; nil: the role of a connection
	pattern string
	address string

	conn  *Conn
	topic string // its address
}

func newRoles(b *Broker) *roles {
	s := b.table.Snapshot()
	return &roles{b: b, wake: make(chan struct{}, 1), current: s, before: s, seen: s.Generation()}
}

// note takes a change of the table. It is called by whoever makes it, before the next one can be made.
func (r *roles) note(ch routetable.Change) {
	s := r.b.table.Snapshot()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = ch.Generation
	for _, list := range [...][]*routetable.Route{ch.Added, ch.Removed, ch.Updated, ch.Before} {
		for _, row := range list {
			if fitsRelay(row.Pattern) {
				r.items = append(r.items, item{after: s, pattern: row.Pattern, address: row.Address})
			}
		}
	}
	if len(r.items) > 0 {
		r.poke()
	}
}

// check has the role of a connection on a topic looked at.
func (r *roles) check(c *Conn, address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items = append(r.items, item{conn: c, topic: address})
	r.poke()
}

// left has a topic looked at that a connection which has ended knew its role on.
func (r *roles) left(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items = append(r.items, item{topic: address})
	r.poke()
}

func (r *roles) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// fitsRelay tells whether a pattern can fit a name of relay:.
func fitsRelay(pattern string) bool {
	pattern = strings.TrimPrefix(pattern, "glob:")
	return len(pattern) > 6 && strings.EqualFold(pattern[:6], "relay:")
}

// literalOf gives the only name that a pattern fits; ok is false for one with wildcards, and for globs.
func literalOf(pattern string) (name string, ok bool) {
	if strings.HasPrefix(pattern, "glob:") {
		return "", false
	}
	return routetable.LiteralOf(pattern)
}

// run looks at things until ctx ends.
func (r *roles) run(ctx context.Context) {
	rest := time.NewTicker(time.Second)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
			r.mu.Lock()
			items := r.items
			r.items, r.busy = nil, true
			r.mu.Unlock()
			r.look(items)
			r.mu.Lock()
			r.busy = false
			r.mu.Unlock()
		case <-rest.C:
			r.forget()
		}
	}
}

// forget lets go of tables of before, where all is told.
func (r *roles) forget() {
	s := r.b.table.Snapshot()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.items) == 0 && r.seen == s.Generation() {
		r.current, r.before = s, s
	}
}

// look works items off.
func (r *roles) look(items []item) {
	b := r.b.newBatch()
	defer b.free()
	for i := range items {
		x := &items[i]
		switch {
		case x.after == nil && x.conn == nil:
			r.topic(b, x.topic, nil)
		case x.after == nil:
			r.tell(b, x.conn, x.topic)
		default:
			if x.after != r.current {
				r.before, r.current = r.current, x.after
			}
			r.changed(b, x)
		}
	}
	b.run()
}

// changed looks at the topics of a row.
func (r *roles) changed(b *batch, x *item) {
	named := r.b.named(strings.TrimPrefix(x.address, "relay-conn:"))
	if name, ok := literalOf(x.pattern); ok && !r.b.aliased.Load() {
		r.topic(b, name, named)
		return
	}
	topics := map[string]bool{}
	for _, c := range r.b.all() {
		c.mu.Lock()
		for t := range c.told {
			topics[t] = true
		}
		c.mu.Unlock()
	}
	for t := range topics {
		r.topic(b, t, named)
	}
	for _, c := range r.b.all() {
		for _, t := range c.topics() {
			r.tell(b, c, t)
		}
	}
}

// topic looks at those whose role on a topic can be another.
func (r *roles) topic(b *batch, address string, named *Conn) {
	domain, _, ok := strings.Cut(address[len("relay:"):], "/")
	if !ok {
		return
	}
	var room []routetable.Group
	was, _ := r.b.active(r.before, address, domain, &room)
	is, _ := r.b.active(r.b.table.Snapshot(), address, domain, &room)
	for i, c := range [...]*Conn{was, named, is} {
		if c != nil && c.domain == domain && (i == 0 || c != was) && (i < 2 || c != named) {
			r.tell(b, c, address)
		}
	}
}

// tell tells a connection its role on a topic, where it does not know.
func (r *roles) tell(b *batch, c *Conn, address string) {
	pattern, _ := routetable.QuotePattern(address)
	var room []routetable.Group
	for !c.gone.Load() {
		s := r.b.table.Snapshot()
		is := r.b.roleOf(s, c, address, pattern, &room)
		own := s.Find(pattern, c.address, c.origin) != nil
		if c.learn(s, address, is, own) {
			b.write(c)
			return
		}
	}
}

// learn notes a role and has the connection told of it, where it is another than it was; false: s is no longer the table.
func (c *Conn) learn(s *routetable.Snapshot, address string, is role, own bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.b.table.Snapshot() != s {
		return false
	}
	t := c.told[address]
	if c.over || t.asking || t.role == is && t.own == own {
		return true
	}
	if t.role != is {
		c.sayRole(address, is)
	}
	c.setTold(address, told{role: is, own: own})
	return true
}

// setTold keeps what a connection knows of a topic. Called under the lock.
func (c *Conn) setTold(address string, now told) {
	was := c.told[address]
	if was.own != now.own {
		if now.own {
			c.served++
		} else {
			c.served--
		}
	}
	c.toldGeneration++
	if now == (told{}) {
		delete(c.told, address)
		return
	}
	if c.told == nil {
		c.told = map[string]told{}
	}
	if len(c.told) >= maxTold {
		for t, x := range c.told {
			if !x.own && !x.asking && t != address {
				delete(c.told, t)
				break
			}
		}
	}
	c.told[address] = now
}

// sayRole queues a role op. Called under the lock.
func (c *Conn) sayRole(address string, is role) {
	buf, _ := c.line.at()
	before := len(*buf)
	b, at := websocket.BeginFrame(*buf, false)
	*buf = websocket.EndFrame(c.appendRole(b, address, is), at, true, false)
	c.line.grew(len(*buf) - before)
}

// appendRole appends the message of a role op.
func (c *Conn) appendRole(b []byte, address string, is role) []byte {
	b = append(b, `[{"op":"role","topic":`...)
	b = appendText(b, address[len("relay:")+len(c.domain)+1:])
	return append(append(append(b, `,"role":"`...), is.String()...), `"}]`...)
}

// tellActive tells a server that it is active, before the first op that comes of that; false: it knows. Called under the lock.
func (c *Conn) tellActive(p *plan) bool {
	t := c.told[p.address]
	if t.role == roleActive || t.asking && c.line.holds { // the reply tells
		return false
	}
	c.sayRole(p.address, roleActive)
	t.role = roleActive
	c.setTold(p.address, t)
	return true
}

// roleOf is what the table makes of a connection on a topic.
func (b *Broker) roleOf(s *routetable.Snapshot, c *Conn, address, pattern string, room *[]routetable.Group) role {
	if to, _ := b.active(s, address, c.domain, room); to == c {
		return roleActive
	}
	if b.stands(s, c, address, pattern, room) {
		return roleStandby
	}
	return roleNone
}

// topics are those that the connection knows its role on.
func (c *Conn) topics() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]string, 0, len(c.told))
	for t := range c.told {
		list = append(list, t)
	}
	return list
}

// asks keeps c from being told of its own serve or unserve; with hold, what others send to it waits behind the reply.
func (c *Conn) asks(p *plan, hold bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if hold {
		c.line.hold()
	}
	t := c.told[p.address]
	t.asking = true
	c.setTold(p.address, t)
}

// commit writes the reply array of a message, and with it what it says of roles becomes known. What the table has made of them since comes behind it,
// before anything that follows from that.
func (c *Conn) commit(w *work) {
	for c.mu.Lock(); ; c.mu.Lock() {
		s := c.b.table.Snapshot()
		if !slices.ContainsFunc(w.asked, func(a asked) bool { return a.after != s }) {
			break
		}
		c.mu.Unlock()
		for i := range w.asked {
			w.asked[i].look(c, s, &w.groups)
		}
	}
	defer c.mu.Unlock()
	if len(w.reply) > 0 && !c.over {
		c.line.say(append(w.reply, ']'))
	}
	for i := range w.asked {
		a := &w.asked[i]
		if slices.ContainsFunc(w.asked[i+1:], func(later asked) bool { return later.plan.address == a.plan.address }) {
			continue
		}
		if a.is != a.role && !c.over {
			c.line.say(c.appendRole(nil, a.plan.address, a.is))
		}
		c.setTold(a.plan.address, told{role: a.is, own: a.own})
	}
	c.line.letGo()
	w.reply, w.asked = w.reply[:0], w.asked[:0]
}

// look finds what the table makes of the connection's role.
func (a *asked) look(c *Conn, s *routetable.Snapshot, room *[]routetable.Group) {
	a.after, a.own = s, s.Find(a.plan.pattern, c.address, c.origin) != nil
	a.is = c.b.roleOf(s, c, a.plan.address, a.plan.pattern, room)
}
