package forwarder

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// line is the outlet of one AMQP link: the copies that wait for it, in order, and the link that takes them. A line to a receiver
// that attached lives as long as its link; a line to a dialled peer outlives the connection.
//
// What a copy touches comes first, in one line of a processor's cache: of many receivers, none has it there.
type line struct {
	dialled *peer // nil: a receiver attached here

	mu       *sync.Mutex // the lock of the connection or of the peer; guards what follows, up to follower
	c        *conn       // nil while away
	l        *engine.Link
	*traffic // nil until the first copy: most receivers are idle

	follower *follower    // of a receiver whose address has an order, see Replayer
	busy     atomic.Int32 // copies queued, and sent without an outcome
	gone     atomic.Bool
	listed   atomic.Bool // of a receiver: on Node.active
	toRouter bool        // of a receiver: another node attached it

	n      *Node
	*toHop        // nil for a receiver
	node   string // where toRouter: the other node's id

	slow        atomic.Bool  // over the soft limit for slowAfter, and not empty since
	queued      atomic.Int32 // copies queued, as of the last publish
	queuedBytes atomic.Int64
	wanted      atomic.Bool // there are wants

	wantMu sync.Mutex // a leaf; guards wants
	wants  []*inlink  // links without credit for want of room here
}

// toHop is what a line to a dialled hop has besides.
type toHop struct {
	hop    *routetable.Hop
	target string
	noName bool // null target

	// Guarded by the lock of the line.
	s        *engine.Session // its own, where the lines of the peer are apart
	resend   []*Copy         // of a link that just broke
	attachAt int64           // a refused link is attached again after that
	used     bool            // since the last tick
	usedAt   int64           // when a tick last saw it used
	retired  bool            // off the peer's list
}

// traffic is what a line has that copies use. It is guarded by the lock of the line.
type traffic struct {
	queue     ring
	sent      uint64 // copies, and pieces of streams
	published int32  // queue.n, as told last
	behind    bool   // it did not take a copy of an order: its link is to be detached
	replay    Replay // goes before the queue; nil: there is none, or no more

	bytes    int
	earliest int64     // no queued copy expires before
	later    []*Copy   // released, to be tried again, by when they are due
	scratch  []byte    // for headers, and what of a replay is next
	redo     *replayed // of it, what was sent last
	sending  *tail     // of a large message that is on its way: what is behind it waits

	fullSince int64           // over the soft limit since then; 0 it is not
	seen      uint64          // sent, at the last tick
	waitsAt   int64           // since this tick something waits and nothing was taken; 0 that is not so
	stuckAt   int64           // the last tick at which it had taken nothing for stuckAfter; 0 it does take
	shares    map[*inlink]int // while stuck: the copies in the queue, by the link they came by
	overdueAt int64           // no copy with the receiver is overdue before; 0 none ever

	alarmAt    int64 // guarded by alarms.mu; 0 none
	alarmIndex int
}

// slowAfter is how long a line may be over its soft limit before its hop is slow: one that takes 8000 messages a second is below half of
// it by then. stuckAfter is how long a hop may take nothing before it may hold no more than a quarter of a link's credit.
const (
	slowAfter  = 100 * time.Millisecond
	stuckAfter = time.Second
)

// Present tells whether the hop can be expected to take copies.
func (ln *line) Present() bool {
	if ln.gone.Load() {
		return false
	}
	return ln.dialled == nil || !ln.dialled.down.Load()
}

// Busy is the number of copies that are queued or unsettled.
func (ln *line) Busy() int { return int(ln.busy.Load()) }

// Deliver queues copies for the link, and sends what credit allows at once.
func (ln *line) Deliver(copies []*Copy) (taken int, err error) {
	ln.mu.Lock()
	back, err := ln.take(copies, nil)
	ln.unlock()
	switch {
	case err == errMoved && ln.dialled.neighbour != nil:
		return 0, ErrGone
	case err == errMoved:
		return ln.n.lineFor(ln.hop, ln.target, ln.noName).Deliver(copies)
	case err != nil:
		return 0, err
	case back != nil:
		ln.n.settle(back)
	}
	return len(copies), nil
}

// errMoved says that the line is over and another one has its place: a plan outlived its peer.
var errMoved = errors.New("another line leads there")

// take is Deliver under the lock, of all copies or none; those that came to an end are added to back. Who holds the lock tells the room and
// flushes the connection afterwards, once for all its lines.
func (ln *line) take(copies, back []*Copy) ([]*Copy, error) {
	if ln.gone.Load() {
		return back, ErrGone
	}
	if ln.traffic == nil {
		ln.traffic = &traffic{}
	}
	if ln.dialled != nil {
		if ln.retired && !ln.dialled.enlist(ln) {
			return back, errMoved
		}
		ln.used = true
		ln.attach()
		ln.dialled.want()
	}
	ln.busy.Add(int32(len(copies)))
	if ln.dialled == nil && !ln.listed.Load() {
		ln.n.list(ln)
	}
	for _, cp := range copies {
		cp.line, cp.state = ln, copyQueued
		if ln.tells() && cp.mayNotMiss() {
			cp.expires = cp.lastsUntil()
		}
		if ln.mustWait(cp) {
			back = ln.enqueue(cp, back)
		} else if !ln.offer(cp) {
			cp.in.keep()
			ln.push(cp)
		}
	}
	return back, nil
}

// tellRoom publishes how full the line is, where that has changed, and gives the links to wake that the connection does not wake itself.
// Called under the lock.
func (ln *line) tellRoom() (wake []*inlink) {
	if ln.traffic == nil || ln.queue.n == int(ln.published) {
		return nil
	}
	wake = ln.publish()
	if wake == nil || ln.c == nil {
		return wake
	}
	ln.wakeBy(wake)
	return nil
}

// unlock tells the room, sends what there is to send, and gives the lock back.
func (ln *line) unlock() {
	wake := ln.tellRoom()
	if ln.c != nil {
		ln.c.c.Release()
		return
	}
	ln.mu.Unlock()
	if wake != nil {
		ln.n.wake(wake)
	}
}

// publish tells how full the line is, and gives the links that waited for room. Called under the lock.
func (ln *line) publish() (wake []*inlink) {
	o := &ln.n.options
	ln.published = int32(ln.queue.n)
	ln.queued.Store(int32(ln.queue.n))
	ln.queuedBytes.Store(int64(ln.bytes))
	switch {
	case ln.queue.n >= o.SoftQueue || ln.bytes >= o.SoftQueueBytes:
		if ln.fullSince == 0 {
			ln.fullSince = now()
			ln.n.alarms.set(ln, ln.fullSince+int64(slowAfter))
		}
	case ln.queue.n == 0:
		ln.fullSince = 0
		if ln.slow.Load() {
			ln.slow.Store(false)
		}
	case ln.queue.n <= o.SoftQueue/2 && ln.bytes <= o.SoftQueueBytes/2:
		ln.fullSince = 0
	}
	return ln.takeWants()
}

// enqueue puts a copy in the line; one that the line does not take is added to back, with its outcome.
func (ln *line) enqueue(cp *Copy, back []*Copy) []*Copy {
	if !ln.hasPlace(cp) {
		if ln.tells() && cp.mayNotMiss() && !cp.hasAlternative() {
			ln.fallBehind()
		}
		ln.busy.Add(-1)
		cp.fate, cp.outcome = fateBusy, Outcome{Kind: wire.Released}
		return append(back, cp)
	}
	cp.in.keep()
	if cp.had().due != 0 {
		ln.postpone(cp)
	} else {
		ln.push(cp)
	}
	return back
}

// hasPlace tells whether the line takes a copy. What counts is bounded by its sender's credit, and waits; at the hard limit it goes to
// another row where it can, and a hop that takes nothing drops what is pre-settled.
func (ln *line) hasPlace(cp *Copy) bool {
	if ln.stuckAt != 0 && cp.had().due == 0 && !ln.hasShare(cp) || ln.behind && cp.isOrdered() {
		return false
	}
	o := &ln.n.options
	if ln.queue.n+len(ln.later) < o.HardQueue && ln.bytes < o.HardQueueBytes {
		return true
	}
	switch {
	case cp.droppable, cp.in.Settled && (ln.stuckAt != 0 || ln.l == nil):
		return false
	}
	return !cp.hasAlternative()
}

func (ln *line) push(cp *Copy) {
	if t := cp.had().tail; t != nil {
		t.queuedIn(ln)
	}
	ln.queue.push(cp)
	ln.bytes += len(cp.in.Payload)
	if ln.queue.n == 1 || cp.expires < ln.earliest {
		ln.earliest = cp.expires
	}
	if ln.shares != nil {
		ln.shares[cp.in.link]++
	}
}

// popped takes note of a copy that left the queue.
func (ln *line) popped(cp *Copy) {
	ln.bytes -= len(cp.in.Payload)
	if ln.shares != nil {
		ln.shares[cp.in.link]--
	}
}

// pump sends what is queued as far as credit and room allow. Called under the lock.
func (ln *line) pump() {
	if ln.traffic == nil || ln.replay != nil && !ln.pumpReplay() {
		return
	}
	for ln.queue.n > 0 {
		cp := ln.queue.front()
		size := len(cp.in.Payload)
		link := cp.in.link
		if !ln.offer(cp) {
			break
		}
		ln.queue.pop()
		ln.bytes -= size
		if ln.shares != nil {
			ln.shares[link]--
		}
	}
	ln.tellRoom()
}

// offer sends one copy if the link takes it now; false leaves it for later.
func (ln *line) offer(cp *Copy) bool {
	l := ln.l
	if l == nil || !l.CanSend() {
		return false
	}
	m := &cp.in.Message
	head, body := []byte(nil), m.Payload
	if id, ok := ln.router(); ok {
		if m.passed(id) {
			ln.over(cp, rejected(condLoop, "the message has been at the next node before"))
			return true
		}
		head, body = m.had().head, m.Payload[m.scan.Bare:]
	} else if m.marked {
		head, body = m.had().plain, m.Payload[m.scan.Bare:]
	}
	if m.until != 0 || cp.acquired {
		at := ln.c.clock()
		if m.until != 0 && m.until <= at {
			cp.fate = fateExpired
			ln.over(cp, expiredOutcome())
			return true
		}
		if cp.differs(at) {
			head, body = ln.rewritten(cp, at), m.Payload[m.scan.Bare:]
		}
	}
	if limit := l.MaxMessage(); limit > 0 && uint64(len(head)+len(body)) > limit {
		ln.over(cp, tooLarge())
		return true
	}
	settled := m.Settled
	switch l.SenderMode() {
	case engine.SenderSettled:
		settled = true
	case engine.SenderUnsettled:
		settled = false
	}
	if m.stream != nil {
		return ln.offerStream(cp, settled, head, len(m.Payload)-len(body))
	}
	if !l.Fits(len(head) + len(body)) {
		whole := len(body) == len(m.Payload)
		m.keep() // the engine may look at it after the batch
		if whole {
			body = m.Payload
		} else {
			body = m.Payload[m.scan.Bare:]
		}
	}
	cp.out.Context = cp
	return ln.handed(cp, settled, l.Send(&cp.out, settled, m.Format, head, body))
}

// handed notes what the link made of a copy; false leaves it for later.
func (ln *line) handed(cp *Copy, settled bool, r engine.SendResult) bool {
	if r == engine.Refused {
		return false
	}
	if ln.follower != nil {
		ln.follower.began(cp.in.Tag(), settled, r)
	}
	ln.began(cp, settled)
	if settled && r == engine.Complete {
		ln.over(cp, Outcome{Kind: wire.Accepted})
	}
	return true
}

// began notes that a copy is on its way to the peer.
func (ln *line) began(cp *Copy, settled bool) {
	cp.state = copySent
	ln.countCopy(cp)
	if cp.timed && !settled {
		cp.answerBy = ln.c.clock() + int64(ln.n.options.FanOutTimeout)
		if ln.overdueAt == 0 {
			ln.overdueAt = cp.answerBy
		}
	}
}

// rewritten is the copy's own head, in memory that is used again where the message goes in one frame.
func (ln *line) rewritten(cp *Copy, at int64) []byte {
	m := &cp.in.Message
	if m.stream == nil && ln.l.Fits(len(m.Payload)+len(m.had().head)+64) {
		ln.scratch = ln.ownHead(ln.scratch[:0], cp, at)
		return ln.scratch
	}
	return ln.ownHead(nil, cp, at)
}

// over ends a copy's time on the line. Called under the lock.
func (ln *line) over(cp *Copy, o Outcome) {
	ln.busy.Add(-1)
	if t := cp.had().tail; t != nil {
		if ln.sending == t {
			ln.sending = nil
		}
		o = t.over(ln.c, o)
	}
	ln.c.done(cp, o)
}

// handOver gives back, from the line to a hop that went away, the copies that another row of their group could take now. The rest
// waits for the hop to return. Called without the lock.
func (ln *line) handOver() {
	ln.mu.Lock()
	moved := ln.takeOut(nil, func(cp *Copy) bool {
		if cp.inDoubt || !cp.hasAlternative() {
			return false
		}
		cp.outcome = Outcome{Kind: wire.Released}
		return true
	})
	ln.unlock()
	ln.n.settle(moved)
}

// takeOut takes the copies that f says out of the queue, and adds them to out. Called under the lock.
func (ln *line) takeOut(out []*Copy, f func(*Copy) bool) []*Copy {
	ln.earliest = 1<<63 - 1
	for range ln.queue.n {
		cp := ln.queue.pop()
		if f(cp) {
			ln.popped(cp)
			ln.busy.Add(-1)
			out = append(out, cp)
			continue
		}
		ln.queue.push(cp)
		ln.earliest = min(ln.earliest, cp.expires)
	}
	return out
}

// hasAlternative tells whether another row of the copy's group, or of one around it, could take it now.
func (c *Copy) hasAlternative() bool {
	for gi, tried := range c.around() {
		g := &c.in.plan.groups[gi]
		if g.pick == routetable.PickAll {
			continue
		}
		for i := range g.targets {
			if tried&(1<<min(i, 63)) == 0 && c.in.plan.reaches(&g.targets[i]) {
				return true
			}
		}
	}
	return false
}

// reaches tells whether a target is a hop that is present, or a name that leads to one.
func (p *plan) reaches(t *planTarget) bool {
	if t.outlet != nil {
		return t.outlet.Present()
	}
	for _, gi := range t.inner {
		for i := range p.groups[gi].targets {
			if p.reaches(&p.groups[gi].targets[i]) {
				return true
			}
		}
	}
	return false
}

// late gives a copy that was not sent in time its outcome: released; where it was sent once and the connection broke, modified; where its
// life is over, rejected.
func (cp *Copy) late(at int64) {
	cp.fate = fateLate
	switch {
	case cp.inDoubt:
		cp.outcome = modifiedFailed()
	case cp.in.until != 0 && cp.in.until <= at:
		cp.fate, cp.outcome = fateExpired, expiredOutcome()
	default:
		cp.outcome = Outcome{Kind: wire.Released}
	}
}

// close ends the line of a receiver: what is queued is given back. Called under the lock of ln.c.
func (ln *line) close() {
	ln.gone.Store(true)
	ln.l = nil
	if ln.traffic == nil {
		ln.wakeBy(ln.takeWants())
		return
	}
	ln.shares = nil
	for ln.queue.n > 0 {
		cp := ln.queue.pop()
		cp.fate = fateGone
		ln.over(cp, Outcome{Kind: wire.Released})
	}
	for _, cp := range ln.later {
		ln.over(cp, Outcome{Kind: wire.Released})
	}
	ln.later, ln.bytes, ln.replay = nil, 0, nil
	ln.wakeBy(ln.publish())
}

// wakeBy has the line's connection wake links. Called under the lock.
func (ln *line) wakeBy(wake []*inlink) {
	if wake != nil {
		w := ln.c.toDo()
		w.wake = append(w.wake, wake...)
	}
}

// ring is a queue of copies.
type ring struct {
	n     int
	first int
	buf   []*Copy // length a power of two
}

func (r *ring) front() *Copy { return r.buf[r.first] }

// at is the copy at a place from the front.
func (r *ring) at(i int) *Copy { return r.buf[(r.first+i)&(len(r.buf)-1)] }

func (r *ring) push(c *Copy) {
	r.room()
	r.buf[(r.first+r.n)&(len(r.buf)-1)] = c
	r.n++
}

// pushFront puts a copy before all others.
func (r *ring) pushFront(c *Copy) {
	r.room()
	r.first = (r.first - 1) & (len(r.buf) - 1)
	r.buf[r.first] = c
	r.n++
}

func (r *ring) room() {
	if r.n < len(r.buf) {
		return
	}
	buf := make([]*Copy, max(2*len(r.buf), 8))
	for i := range r.n {
		buf[i] = r.buf[(r.first+i)&(len(r.buf)-1)]
	}
	r.buf, r.first = buf, 0
}

func (r *ring) pop() *Copy {
	c := r.buf[r.first]
	r.buf[r.first] = nil
	r.first = (r.first + 1) & (len(r.buf) - 1)
	r.n--
	if r.n == 0 && len(r.buf) > 1024 {
		r.buf, r.first = nil, 0 // a long line is over: its memory goes
	}
	return c
}
