package forwarder

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// peer is a node that the table's amqp: hops name: one endpoint with its credentials, and one line for each target name on it. It
// is dialled when a copy wants to go there, again with back-off when it goes away, and closed when it is idle.
type peer struct {
	n        *Node
	endpoint routetable.Hop // without a name
	key      string
	count    *hopCount
	up       atomic.Bool // connected
	down     atomic.Bool // the last try failed, or the connection broke

	neighbour *NeighbourOptions // nil: a hop that rows name by its address
	account   *admin.Account    // what its connections may do; nil: peerAccount

	linesMu sync.Mutex // guards what follows; Node.mu may be taken under it
	lines   map[lineKey]*line
	over    bool // given up, and off the node's list

	mu      sync.Mutex // the lock of its connections and lines; guards what follows
	c       *conn      // nil while away
	s       *engine.Session
	held    bool // lines wait for the peer to begin its session
	apart   bool // each line has a session of its own
	nodeID  string
	running bool  // a goroutine keeps the connection
	taken   bool  // of a neighbour: the other end has opened one
	leaving int64 // of a neighbour that leaves: at the latest then
	lastUse int64

	back        *inlink // by which replies come back from it, where it is a node
	backAt      int64   // not to be attached before
	backRefused bool    // said once
}

type lineKey struct {
	target string
	noName bool
}

// idlePeer is how long a connection to a peer is kept without traffic.
const idlePeer = 5 * time.Minute

// stableAfter is how long a connection must last for the next try to come at once; one that breaks sooner counts as a failure.
const stableAfter = 5 * time.Second

// peerFor gives the peer of a hop, one for each endpoint and its credentials.
func (n *Node) peerFor(hop *routetable.Hop) *peer {
	key := fmt.Sprintf("%s|%q|%q|%t%t|%s|%d", hop.Scheme, hop.User, hop.Password, hop.HasUser, hop.HasPass, hop.Host, hop.Port)
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.peers[key]
	if p == nil {
		p = &peer{n: n, key: key, endpoint: *hop, lines: map[lineKey]*line{}, count: n.hopCountFor(endpointText(hop))}
		n.peers[key] = p
	}
	return p
}

// lineFor gives the line to a hop of another node's.
func (n *Node) lineFor(hop *routetable.Hop, routed string, hasTo bool) *line {
	for {
		if ln := n.peerFor(hop).line(hop, routed, hasTo); ln != nil {
			return ln
		}
	}
}

// line gives the line to one target of the peer, nil where the peer was given up: then there is another. A hop without a name leads to the peer's anonymous terminus, where each
// message's own address counts; for a message that has none, to a target named as it was routed here.
func (p *peer) line(hop *routetable.Hop, routed string, hasTo bool) *line {
	k := lineKey{target: hop.Name}
	if !hop.HasName {
		k = lineKey{noName: hasTo}
		if !hasTo {
			k.target = routed
		}
	}
	p.linesMu.Lock()
	defer p.linesMu.Unlock()
	ln := p.lines[k]
	if ln == nil && !p.over {
		ln = &line{n: p.n, dialled: p, mu: &p.mu, traffic: &traffic{}, toHop: &toHop{hop: hop, target: k.target, noName: k.noName}}
		p.lines[k] = ln
		p.n.addLine(ln)
	}
	return ln
}

// retire takes a line that nothing has used for long off the peer's list, and its link with it. A plan may still point to it: then
// enlist brings it back. Called under the lock.
func (p *peer) retire(ln *line) {
	p.linesMu.Lock()
	delete(p.lines, lineKey{ln.target, ln.noName})
	p.linesMu.Unlock()
	p.n.removeLine(ln)
	ln.retired = true
	if ln.l != nil {
		ln.l.Detach(nil)
	}
	if ln.s != nil {
		ln.s.End(nil)
		ln.s = nil
	}
}

// enlist brings a retired line back; false where the peer was given up. Where another line has taken its place meanwhile, both serve.
// Called under the lock.
func (p *peer) enlist(ln *line) bool {
	p.linesMu.Lock()
	if p.over {
		p.linesMu.Unlock()
		return false
	}
	ln.retired, ln.attachAt = false, 0
	if k := (lineKey{ln.target, ln.noName}); p.lines[k] == nil {
		p.lines[k] = ln
	}
	p.linesMu.Unlock()
	p.n.addLine(ln)
	return true
}

// giveUp takes a peer that has no line off the node's list. Called under the lock.
func (p *peer) giveUp() {
	p.linesMu.Lock()
	defer p.linesMu.Unlock()
	if len(p.lines) > 0 {
		return
	}
	p.over = true
	p.n.mu.Lock()
	delete(p.n.peers, p.key)
	p.n.mu.Unlock()
	p.n.pruned.Add(1)
}

// all gives the peer's lines.
func (p *peer) all() []*line {
	p.linesMu.Lock()
	defer p.linesMu.Unlock()
	lines := make([]*line, 0, len(p.lines))
	for _, ln := range p.lines {
		lines = append(lines, ln)
	}
	return lines
}

// want sees to it that somebody connects. Called under the lock.
func (p *peer) want() {
	if p.running || p.neighbour != nil && (p.neighbour.Dial == nil || p.leaving != 0) || !p.n.start() {
		return
	}
	p.lastUse = now()
	p.running = true
	go p.run()
}

// run keeps the peer connected while it is wanted.
func (p *peer) run() {
	defer p.n.running.Done()
	pause := time.Duration(0)
	for {
		started := time.Now()
		opened, err := p.connect()
		if time.Since(started) > stableAfter {
			pause = 0
		}
		wasDown := p.down.Swap(true)
		for _, ln := range p.all() {
			ln.handOver()
		}
		if p.stopped() {
			return
		}
		level := slog.LevelDebug // said once, until the hop is back
		if opened && pause == 0 || !wasDown {
			level = slog.LevelWarn
		}
		p.n.log.Log(p.n.ctx, level, "hop away", "hop", p.endpoint.Text, "reason", reasonOf(err))
		pause = min(max(2*pause, 100*time.Millisecond), 5*time.Second)
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-p.n.hops.Load().changed:
		case <-p.n.ctx.Done():
		}
	}
}

// stopped ends the keeping of a peer that nothing waits for.
func (p *peer) stopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n.ctx.Err() == nil {
		for _, ln := range p.all() {
			if ln.busy.Load() > 0 {
				return false
			}
		}
		if p.neighbour != nil && p.leaving == 0 {
			return false
		}
		if p.leaving == 0 && now()-p.lastUse < int64(p.n.options.DeliveryTimeout) {
			return false
		}
	}
	p.running = false
	p.down.Store(false) // to be tried again when wanted
	return true
}

func reasonOf(err error) string {
	if err == nil {
		return "closed by the peer"
	}
	return err.Error()
}

// connect dials, first the hop's own place and then those that stand in for it, and stays until the connection is over. opened tells whether there was one.
func (p *peer) connect() (opened bool, err error) {
	if p.neighbour != nil {
		return p.connectBy([]amqp.DialOptions{{Open: p.neighbour.Dial, Engine: p.n.engineConfig()}}, 0)
	}
	ways, err := p.n.ways(&p.endpoint)
	for i := 0; i < len(ways) && !opened && p.n.ctx.Err() == nil; i++ {
		opened, err = p.connectBy(ways, i)
	}
	return opened, err
}

// opened: the peer is there. Called under the lock.
func (p *peer) opened(c *conn) {
	s, err := c.c.Engine.Begin()
	if err != nil {
		return
	}
	p.c, p.s, p.nodeID = c, s, c.peerID
	p.up.Store(true)
	if c.account = p.account; c.account == nil {
		c.account = peerAccount()
	}
	p.down.Store(false)
	p.backAt = 0
	p.askReplies(now()) // before the first request
	for _, ln := range p.all() {
		ln.attach()
	}
}

// closed: the connection is over. Its links were reported detached. Called under the lock.
func (p *peer) closed(c *conn, err error) {
	if p.c != c {
		return
	}
	p.c, p.s, p.held, p.apart = nil, nil, false, false
	p.up.Store(false)
	for _, ln := range p.all() {
		ln.c, ln.s, ln.attachAt = nil, nil, 0
	}
}

// sessionFor gives the session for a line's link: one for all, until the peer ends it. It may have done so because of one link (RabbitMQ
// before 4 does where it refuses one), so from then on each line has its own, as long as there are channels. Called under the lock.
func (p *peer) sessionFor(ln *line) (s *engine.Session, err error) {
	if p.s.Ended() {
		if s, err = p.c.c.Engine.Begin(); err != nil {
			return nil, err
		}
		p.s, p.apart = s, true
	}
	if !p.apart {
		return p.s, nil
	}
	if ln.s == nil || ln.s.Ended() {
		if s, err = p.c.c.Engine.Begin(); err != nil {
			return p.s, nil
		}
		ln.s = s
	}
	return ln.s, nil
}

// attach asks the peer for the line's link, where the peer is there and the link is not. Called under the lock.
func (ln *line) attach() {
	c := ln.dialled.c
	if c == nil || ln.l != nil || ln.attachAt > now() || !c.c.Engine.IsOpen() {
		return
	}
	s, err := ln.dialled.sessionFor(ln)
	if err != nil {
		return
	}
	if !s.Begun() && s.Links() > 0 { // there may be no room for a second link: wait for the peer's word
		ln.dialled.held = true
		return
	}
	ln.c = c
	l, err := s.Attach(ln.attachOptions())
	if le, ok := err.(*engine.LinkError); ok && le.Condition == wire.CondResourceLimitExceeded { // the session has no handle left: another has
		if s, err = c.c.Engine.Begin(); err == nil {
			ln.dialled.s = s
			l, err = s.Attach(ln.attachOptions())
		}
	}
	if err != nil {
		ln.n.log.Warn("link to hop cannot be attached", "hop", ln.hop.Text, "error", err)
		ln.attachAt = now() + int64(time.Second)
		return
	}
	ln.l = l
}

func (ln *line) attachOptions() engine.AttachOptions {
	return engine.AttachOptions{
		Name: fmt.Sprintf("%s/%d", ln.n.name, ln.n.nextID.Add(1)), Role: engine.RoleSender,
		Source:     &wire.Source{Address: ln.target, HasAddress: !ln.noName},
		Target:     &wire.Target{Address: ln.target, HasAddress: !ln.noName},
		SenderMode: engine.SenderMixed, ReceiverMode: engine.ReceiverFirst,
		Context: ln,
	}
}

// attachHeld attaches the lines that waited for the peer to begin its session. Called under the lock.
func (p *peer) attachHeld() {
	if !p.held || !p.s.Begun() {
		return
	}
	p.held = false
	for _, ln := range p.all() {
		ln.attach()
	}
}

// attached: the peer took the link.
func (ln *line) attached(l *engine.Link) {
	ln.pump()
	ln.dialled.attachHeld()
}

// detached: the link is gone; what waits stays in line for the next one. Called under the lock.
func (ln *line) detached(err error) {
	for i := len(ln.resend) - 1; i >= 0; i-- {
		ln.queue.pushFront(ln.resend[i])
		ln.bytes += len(ln.resend[i].in.Payload)
		ln.earliest = min(ln.earliest, ln.resend[i].expires)
	}
	if ln.queue.n == len(ln.resend) && ln.queue.n > 0 {
		ln.earliest = ln.queue.front().expires
	}
	clear(ln.resend)
	ln.resend = ln.resend[:0]
	ln.l = nil
	if err != nil && ln.c.c.Engine.IsOpen() { // refused, or closed by the peer: try again in a while
		ln.n.log.Warn("link to hop refused or closed", "hop", ln.hop.Text, "error", err)
	}
	ln.attachAt = now() + int64(time.Second)
	if ln.c.c.Engine.IsOpen() {
		ln.dialled.attachHeld()
	}
}

// again takes back a copy that was on a link that broke. It goes out first when the peer is back; in doubt, so with a higher delivery-count.
func (ln *line) again(cp *Copy) {
	t := cp.planned()
	switch {
	case cp.in.Settled:
		cp.fate = fateGone
		ln.over(cp, Outcome{Kind: wire.Released})
		return
	case t.retry >= 0 && int(cp.had().attempts) >= t.retry, cp.inDoubt && cp.expires <= now():
		ln.over(cp, modifiedFailed())
		return
	}
	cp.has().attempts++
	if !cp.inDoubt { // one that breaks its hop each time is not sent for ever
		cp.expires = cp.in.expiry(now(), t)
	}
	cp.inDoubt, cp.acquired = true, true
	ln.resend = append(ln.resend, cp)
}

// tick attaches links that were refused a while ago, takes lines off the list that nobody has used for long, and then closes the
// connection and gives the peer up.
func (p *peer) tick(at int64) {
	p.mu.Lock()
	p.tickLines(at)
	if p.neighbour != nil {
		p.tickNeighbour(at)
		return
	}
	if p.c == nil {
		if !p.running {
			p.giveUp()
		}
		p.mu.Unlock()
		return
	}
	p.askReplies(at)
	c := p.c.c
	c.Release()
	if at-p.idleSince() > int64(idlePeer) {
		c.Close(nil)
	}
}

// tickNeighbour keeps what a neighbour needs, and sees to its end. Called under the lock, which it gives back.
func (p *peer) tickNeighbour(at int64) {
	leaving := p.leaving
	if p.c == nil {
		p.mu.Unlock()
	} else {
		p.askReplies(at)
		p.c.c.Release()
	}
	if leaving != 0 {
		p.leave(at)
	}
}

// tickLines looks at the peer's lines. Called under the lock.
func (p *peer) tickLines(at int64) {
	used := false
	for _, ln := range p.all() {
		if ln.busy.Load() > 0 {
			ln.attach()
		}
		switch {
		case ln.used || ln.busy.Load() > 0:
			ln.used, ln.usedAt = false, at
			used = true
		case ln.usedAt > 0 && at-ln.usedAt > int64(p.n.options.IdleLink):
			p.retire(ln)
		case ln.usedAt == 0:
			ln.usedAt = at
		}
	}
	if used && p.c != nil {
		p.lastUse = at
	}
}

func (p *peer) idleSince() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastUse
}
