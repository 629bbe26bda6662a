package forwarder

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// conn is the node's side of one AMQP connection, whoever opened it. It is the handler of its engine.
type conn struct {
	n  *Node
	c  *amqp.Conn // nil for the node's own inlet
	id uint64

	isClient bool // it came by a listener
	direct   bool // that dials what matches nothing
	shared   bool // whose receivers share an address where they do not say

	handing atomic.Bool // the reader has copies that are not with their outlets yet
	missed  atomic.Bool // somebody wants to look at the waiting messages when it has none

	mu sync.Mutex // stands in for the connection's lock where c is nil

	// Under the connection's lock.
	dialled   *peer            // we opened it, for this peer
	caller    admin.Caller     // who is at the other end, for commands
	account   *admin.Account   // what it may do
	links     int              // that it has attached
	peerID    string           // the other end's node id, if it is one of our kind
	back      *receiver        // where that end takes what is for it and those behind it
	paths     map[string]*path // learned, that lead by back
	returns   *returns         // of a client: by its container id
	saidTaken bool             // that another has its container id
	class     connClass
	since     int64 // when it opened, Unix nanoseconds

	received, sent uint64 // messages; copies
	work           *work
	at             int64         // the time, as of this batch; 0 not looked at yet
	rows           []*receiver   // whose rows are to be made or withdrawn before the next flush, in order
	thirsty        []*inlink     // links whose credit is to be looked at before the next flush
	tallies        *tallies      // made when the first message comes
	counts         connCounts    // as the tallies, of the node
	warmth         int32         // of nothing: what warm reads has to go somewhere
	streams        []*stream     // that come in
	room           chan struct{} // one of them may have gone on; nil before there was one
	lying          *inlink       // whose message has come in part, which lies in the reader's buffer

	ahead atomic.Bool // one of them is too far ahead of its copies, perhaps

	// Owned by the reader; Transfer and AfterInput run there.
	batch  batch
	groups []routetable.Group
	later  []int32 // of a message: any and first groups, picked when the copies that go in any case are made
}

func (c *conn) node() *Node { return c.n }

func (c *conn) lock() {
	if c.c == nil {
		c.mu.Lock()
		return
	}
	c.c.Lock()
}

func (c *conn) release() {
	if c.c == nil {
		c.addTallies()
		c.at = 0
		c.mu.Unlock()
		return
	}
	c.c.Release()
}

// inlink is a link by which messages come in.
type inlink struct {
	c         *conn
	l         *engine.Link
	target    string
	hasTarget bool   // else the link is anonymous: each message says where to
	door      bool   // target $management
	replies   bool   // attached by us at another node, for what comes back from there
	limited   bool   // nothing matches the target: one message at a time
	watched   bool   // it is on Node.limited
	thirsty   bool   // on conn.thirsty
	inlet     bool   // what an Inlet sends by: no link, and no credit
	asides    bool   // of an inlet: what finds no row is not unrouted
	source    any    // of an inlet
	inside    string // of an inlet: names of this scheme are looked up here, though they have an outlet
	own       string // of an inlet: hops of this scheme are its adapter's, and reached by their outlets

	plans plans

	messages uint64 // that came

	used    int         // messages taken and not yet done with
	size    int         // of the link's messages, a running mean; 0 none has come
	lies    []byte      // the first part of a message, in the reader's buffer; nil but for conn.lying
	parts   []byte      // of a message that comes in several frames
	stream  *stream     // of a large message that comes in
	frame   int         // bytes of the largest frame of one in several frames
	waiting []*delivery // for a row, in order

	seq     uint64       // of the last message
	settled bool         // the last message was pre-settled
	last    *plan        // of the last message that was sent on
	free    *line        // a hop that was not slow when a pre-settled message went there
	freeAt  int64        // when
	hop     *line        // of the last message that had one
	otherAt atomic.Int64 // Unix nanoseconds: when the link's messages last went elsewhere than those before, about
	window  atomic.Int32 // what the link may have in flight
	holding bool         // on Node.held
	short   bool         // it may have more than it was given: the room was less, or the size of its messages not known

	unmatched uint64 // the latest generation of the table at which nothing is known to have matched the target; that of an empty table is 0

	replaying bool // messages that waited are on their way to their outlets
}

var _ amqp.Owner = (*conn)(nil)

// Opened notes who the peer is.
func (c *conn) Opened() {
	if id, ok := c.c.Engine.Remote().Properties.Get(nodeIDProperty); ok {
		if text, _ := id.(string); isNodeID(text) {
			c.peerID = text
		}
	}
	c.n.join(c)
	if c.dialled != nil {
		c.dialled.opened(c)
		return
	}
	c.n.admit(c)
}

// Attached answers a link of the peer's, or takes its answer to one of ours.
func (c *conn) Attached(l *engine.Link) {
	if l.Local() {
		c.answered(l)
		return
	}
	if !c.roomFor(l) {
		return
	}
	if l.IsSender() {
		c.attachReceiver(l)
	} else {
		c.attachSender(l)
	}
	if l.Context != nil {
		c.links++
	}
}

// answered: the peer took a link of ours.
func (c *conn) answered(l *engine.Link) {
	switch x := l.Context.(type) {
	case *line:
		x.attached(l)
	case *receiver:
		x.isAnswered = true
		x.pump()
	case *inlink:
		c.dialled.backRefused = false
		x.look()
	}
}

// attachSender answers a peer that wants to send.
func (c *conn) attachSender(l *engine.Link) {
	t := l.Remote().Target
	if t == nil {
		l.Refuse(&engine.LinkError{Condition: wire.CondInvalidField, Text: "a sender needs a target; for the anonymous terminus, one without an address"})
		return
	}
	if t.Dynamic {
		l.Refuse(&engine.LinkError{Condition: wire.CondNotImplemented, Text: "dynamic targets are not offered; a receiver can have a dynamic source"})
		return
	}
	in := &inlink{c: c, l: l, target: t.Address, hasTarget: t.HasAddress && t.Address != ""}
	if err := c.mayName(in); err != nil {
		l.Refuse(err)
		return
	}
	c.writeRows()
	l.Context = in
	in.door = in.target == managementAddress
	in.limited = in.hasTarget && !in.door && !in.matches()
	answer := &wire.Target{Address: t.Address, HasAddress: t.HasAddress, ExpiryPolicy: wire.ExpireLinkDetach}
	l.Accept(l.Remote().Source, answer, 0, engine.AttachOptions{})
	c.n.count.by.links[in.class()].Add(1)
	if in.limited {
		c.n.watchLimited(in)
	}
	in.look()
}

// Transfer takes a part of a message.
func (c *conn) Transfer(d *engine.InDelivery, payload []byte, last bool) {
	l := d.Link().Context.(*inlink)
	switch {
	case d.First && last:
		c.message(l, d, payload, false, nil)
	case d.First:
		c.firstPart(l, d, payload)
	default:
		c.nextPart(l, d, payload, last)
	}
}

// message takes a whole message, or the first part of one that cuts through, and sends it on its way.
func (c *conn) message(l *inlink, in *engine.InDelivery, payload []byte, owned bool, s *stream) {
	if len(c.rows) > 0 {
		c.writeRows()
	}
	d := newDelivery(c, l, in)
	if s != nil {
		d.stream, s.d = s, d
	}
	d.Payload, d.owned, d.Format, d.Settled = payload, owned, in.Format, in.Settled
	if owned {
		d.buf = payload[:0]
	}
	if in.Settled {
		d.in = nil
	} else {
		in.Context = d
		d.keep()
	}
	l.used++
	l.seq++
	if l.short && l.l.Credit() == 0 {
		l.look()
	}
	d.seq, d.born, l.settled = l.seq, c.clock(), in.Settled
	if l.size == 0 {
		l.size = len(payload)
	} else {
		l.size += (len(payload) - l.size) / 8
	}
	l.countMessage()
	if err := wire.ScanHead(d.Payload, &d.scan); err != nil {
		c.refuse(d, wire.CondDecodeError, err.Error())
		return
	}
	d.findMarks()
	if l.replies && !c.takeReply(d) {
		return
	}
	if d.passed(c.n.id) {
		c.n.count.loops.Add(1)
		c.refuse(d, condLoop, "the message has been at this node before")
		return
	}
	if d.lives(); d.until != 0 && d.until <= d.born {
		c.expired(d)
		return
	}
	if l.isNeighbour() {
		d.has().as = l.target
	}
	if c.isRepeat(l, d) {
		d.answer(Outcome{Kind: wire.Accepted})
		return
	}
	c.learn(d)
	if l.door {
		c.n.dispatch(d, c.n.doorPlan, &c.batch)
		return
	}
	if len(l.waiting) > 0 || l.replaying {
		l.wait(d) // behind those that came before
		return
	}
	c.forward(l, d)
}

// forward looks the message up and gives its copies to the batch; a message that matches nothing is refused, or waits.
func (c *conn) forward(l *inlink, d *delivery) {
	p := c.n.route(l, &d.Message, &c.groups)
	if !c.mayUse(l, d, p) {
		c.refuseUnauthorized(d)
		return
	}
	if l.counts(p) {
		c.send(l, d, p, &c.batch)
		return
	}
	if p.tapsOnly && d.Settled {
		c.send(l, d, p, &c.batch)
		l.limit()
		return
	}
	if l.asides && !p.found {
		d.answer(Outcome{Kind: wire.Released})
		return
	}
	c.n.count.unrouted.Add(1)
	if l.hasTarget && !d.Settled && !c.n.isDead(l.addressOf(d)) {
		l.wait(d)
		return
	}
	if l.hasTarget {
		l.limit()
	}
	c.refuseUnrouted(l, d, p)
}

// counts tells whether a plan leads somewhere that counts: for a link with a target, taps alone do not.
func (l *inlink) counts(p *plan) bool { return p.found && !(p.tapsOnly && l.hasTarget) }

// send does what a plan that was found says, by way of b; true where the message got copies. Called under the lock.
func (c *conn) send(l *inlink, d *delivery, p *plan, b *batch) bool {
	switch {
	case d.stream != nil && p.foreign:
		c.use(p)
		c.refuse(d, wire.CondMessageSizeExceeded, "a hop of this address takes no message of more than 1 MiB")
	case p.problem != "" && !p.tapsOnly:
		c.use(p)
		c.n.unrouted(l, d, p.problem)
		c.refuse(d, p.condition, p.problem)
	case p.discarded:
		c.use(p)
		if p.quiet {
			c.n.count.unrouted.Add(1)
			c.n.unrouted(l, d, reasonNobodyReads)
		} else {
			c.n.count.discarded.Add(1)
		}
		d.answer(Outcome{Kind: wire.Accepted})
	default:
		if p.tapsOnly {
			c.tapped(l, d, p)
		} else {
			l.found()
		}
		l.last = p
		if b == &c.batch {
			c.handing.Store(true)
		}
		if c.n.dispatch(d, p, b) > 0 {
			return true
		}
		d.answer(Outcome{Kind: wire.Released})
	}
	return false
}

// tapped counts a message that only taps get: it is unrouted.
func (c *conn) tapped(l *inlink, d *delivery, p *plan) {
	c.n.count.unrouted.Add(1)
	reason := "only optional routes match"
	if p.unread != "" {
		reason = reasonNobodyReads
	} else if p.unserved != "" {
		reason = reasonNotWired
		if _, ok := c.n.table.Snapshot().Emptied(p.unserved); ok {
			reason = reasonHandlerGone
		}
	}
	c.n.unrouted(l, d, reason)
	if d.Settled {
		c.n.count.droppedRefused.Add(1)
	}
}

// expired rejects a message whose life is over before it went anywhere.
func (c *conn) expired(d *delivery) {
	c.n.count.expired.Add(1)
	d.answer(expiredOutcome())
}

// refuseUnrouted rejects a message whose address matches nothing, and tallies the address.
func (c *conn) refuseUnrouted(l *inlink, d *delivery, p *plan) {
	c.use(p)
	c.n.notFound(l, d, p)
	c.refuse(d, wire.CondNotFound, l.noRoute(d, p))
}

// refuse rejects a message with a named reason; a pre-settled one is dropped and counted.
func (c *conn) refuse(d *delivery, cond wire.Symbol, text string) {
	if d.Settled {
		c.n.count.droppedRefused.Add(1)
	}
	d.answer(rejected(cond, text))
}

// AfterInput hands over the copies of a part of a read. Outlets of other packages get theirs after the last.
func (c *conn) AfterInput(more bool) {
	if more && c.batch.foreign {
		return
	}
	c.batch.deliver(c.n, more)
	if more {
		return
	}
	if c.handing.Load() {
		c.handing.Store(false)
		if c.missed.Load() {
			c.missed.Store(false)
			c.n.poke()
		}
	}
}

// clock gives the time, once for each read. Called under the lock.
func (c *conn) clock() int64 {
	if c.at == 0 {
		c.at = now()
	}
	return c.at
}

// TakeWork gives the copies that are done.
func (c *conn) TakeWork() amqp.Work {
	if c.work == nil {
		return nil
	}
	w := c.work
	c.work = nil
	return w
}

// BeforeFlush writes the rows of links that came or went, adds what was counted to the rows, and gives new credit to the links that have room.
func (c *conn) BeforeFlush() {
	c.pickUp()
	if len(c.rows) > 0 {
		c.writeRows()
	}
	c.addTallies()
	c.at = 0
	for _, l := range c.thirsty {
		l.thirsty = false
		l.grant()
	}
	clear(c.thirsty)
	c.thirsty = c.thirsty[:0]
}

// room notes that n messages are done with.
func (l *inlink) room(n int) {
	l.used -= n
	l.look()
}

// look has the link's credit looked at before the next flush.
func (l *inlink) look() {
	if !l.thirsty && l.l != nil {
		l.thirsty = true
		l.c.thirsty = append(l.c.thirsty, l)
	}
}

// firstCredit is what a link gets before it is known how large its messages are.
const firstCredit = 100

// most is how many messages the link may have in flight: the limit in messages, less where its messages are so large that they would be too many bytes.
func (l *inlink) most() int {
	o := &l.c.n.options
	switch {
	case l.limited:
		return 1
	case l.size == 0:
		return min(firstCredit, o.LinkCredit)
	}
	return max(1, min(o.LinkCredit, o.LinkBytes/l.size))
}

// carriesOthers tells whether the link has carried messages to more than one hop lately. From any goroutine.
func (l *inlink) carriesOthers(at int64) bool { return at-l.otherAt.Load() < int64(otherFor) }

// otherFor is how long a link is held for one that carries messages to several hops: longer than a hop that takes nothing can stop it.
const otherFor = 10 * time.Second

// leads notes where a message goes. Called under the lock.
func (l *inlink) leads(ln *line, at int64) {
	if l.hop == ln {
		return
	}
	if l.hop != nil && at-l.otherAt.Load() > int64(time.Second) {
		l.otherAt.Store(at)
	}
	l.hop = ln
}

// grant gives the link the credit that its room allows. It waits until a quarter is free, so that a flow frame serves many
// messages, but never leaves a link without credit that could have some.
func (l *inlink) grant() {
	if l.l == nil || l.l.Gone() || l.c.n.draining.Load() {
		return
	}
	most := l.most()
	if int32(most) != l.window.Load() {
		l.window.Store(int32(most))
	}
	free := most - l.used
	have := int(l.l.Credit())
	if free <= have || have > 0 && free-have < max(most/4, 1) {
		return
	}
	l.short = l.size == 0
	if l.hasTarget && !l.limited && !l.door {
		want := free
		if free = l.withRoom(free, have); free <= have || have > 0 && free-have < max(most/4, 1) {
			l.short = l.short || free < want
			return
		}
		l.short = l.short || free < want
	}
	l.l.Grant(uint32(free))
}

// Aborted throws away what had come of a message.
func (c *conn) Aborted(d *engine.InDelivery) {
	l := d.Link().Context.(*inlink)
	l.dropParts()
	if l.stream != nil {
		l.stream.abort()
	}
	l.look()
}

// RemoteSettled: the sender does not wait for the outcome. Receivers that have the message are told so.
func (c *conn) RemoteSettled(in *engine.InDelivery, _ []byte) {
	d, ok := in.Context.(*delivery)
	forget(in)
	if !ok || d.plan == nil || d.answered {
		return
	}
	for i := range d.copies {
		if cp := &d.copies[i]; !cp.over && cp.planned().line != nil {
			d.pending++
			w := c.toDo()
			w.settled = append(w.settled, settledFirst{cp, cp.planned().line})
		}
	}
}

// Received: a receiver has some of a message. Where it is the only one that counts, the sender hears of it.
func (c *conn) Received(out *engine.OutDelivery, state []byte) {
	if cp, ok := out.Context.(*Copy); !ok || !cp.timed {
		w := c.toDo()
		w.progress = append(w.progress, progress{refTo(cp), append([]byte(nil), state...)})
	}
}

// InDropped: the link is gone, so nobody waits for the outcome; the copies go on.
func (c *conn) InDropped(in *engine.InDelivery) { forget(in) }

func forget(in *engine.InDelivery) {
	switch x := in.Context.(type) {
	case *delivery:
		x.in = nil
	case *inlink: // answered, and kept by the sender until now
		x.room(1)
	}
	in.Context = nil
}

// Detached: a link is gone.
func (c *conn) Detached(l *engine.Link, err error) {
	c.n.count.linkEnded(err)
	switch x := l.Context.(type) {
	case *inlink:
		c.links--
		c.n.count.by.links[x.class()].Add(-1)
		x.close()
		if x.replies {
			c.dialled.repliesEnded(x, err)
		}
	case *receiver:
		c.links--
		c.n.count.by.links[linkReceiver].Add(-1)
		x.close()
	case *line:
		x.detached(err)
	}
}

// Closed: the connection is over.
func (c *conn) Closed(err error) {
	c.writeRows()
	c.addTallies()
	c.n.leave(c)
	if c.dialled != nil {
		c.dialled.closed(c, err)
	}
	if c.returns != nil {
		c.n.replies.leave(c)
	}
}

// Sent: a pre-settled copy that went in pieces has left.
func (c *conn) Sent(d *engine.OutDelivery) {
	if x, ok := d.Context.(*replayed); ok && d.Link() == nil {
		x.to.mark(x.tag)
	}
	cp, ok := d.Context.(*Copy)
	if !ok {
		return
	}
	if f := cp.line.follower; f != nil && d.Link() == nil {
		f.mark(cp.in.Tag())
	}
	t := cp.had().tail
	if cp.line.sending == t {
		cp.line.sending = nil
	}
	if t != nil && cp.timed { // its time with the receiver begins
		cp.answerBy = c.clock() + int64(c.n.options.FanOutTimeout)
	}
	if d.Link() == nil {
		cp.line.over(cp, Outcome{Kind: wire.Accepted})
	}
}

// Settled: a receiver's outcome.
func (c *conn) Settled(d *engine.OutDelivery, kind wire.StateKind, raw []byte) {
	cp, ok := d.Context.(*Copy)
	if !ok {
		return
	}
	isTail := cp.had().tail != nil
	cp.line.over(cp, remoteOutcome(kind, raw))
	if isTail { // the link may be free by it
		cp.line.pump()
	}
}

// OutDropped: a copy was on a link that is gone.
func (c *conn) OutDropped(d *engine.OutDelivery, begun bool) {
	switch x := d.Context.(type) {
	case *Copy:
		if f := x.line.follower; f != nil {
			f.lost(x.in.Tag())
		}
		x.line.dropped(x)
	case *replayed:
		x.to.lost(x.tag)
	}
}

// Flow: a receiver takes more.
func (c *conn) Flow(l *engine.Link) {
	switch x := l.Context.(type) {
	case *receiver:
		x.pump()
	case *line:
		x.pump()
	}
}
