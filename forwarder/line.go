package forwarder

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// line is the outlet of one AMQP link: the copies that wait for it, in order, and the link that takes them. A line to a receiver
// that attached lives as long as its link; a line to a dialled peer outlives the connection.
type line struct {
	n       *Node
	hop     *routetable.Hop
	dialled *peer // nil: a receiver attached here
	target  string
	noName  bool // dialled, null target

	busy atomic.Int32 // copies queued, and sent without an outcome
	gone atomic.Bool

	mu *sync.Mutex // the lock of the connection or of the peer; guards what follows
	c  *conn       // nil while away
	l  *engine.Link

	queue    ring
	bytes    int
	earliest int64   // no queued copy expires before
	resend   []*Copy // of a link that just broke
	attachAt int64   // a refused link is attached again after that
	used     bool    // since the last tick
	usedAt   int64   // when a tick last saw it used
	retired  bool    // off the peer's list
	messages uint64  // copies that were handed to a link
}

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
	taken, err = ln.take(copies)
	c := ln.c
	if c == nil {
		ln.mu.Unlock()
	} else {
		c.c.Release()
	}
	if err == errMoved {
		return ln.n.lineFor(ln.hop, ln.target, ln.noName).Deliver(copies)
	}
	return taken, err
}

// errMoved says that the line is over and another one has its place: a plan outlived its peer.
var errMoved = errors.New("another line leads there")

// take is Deliver under the lock. Who holds it flushes the connection afterwards, once for all its lines.
func (ln *line) take(copies []*Copy) (taken int, err error) {
	if ln.gone.Load() {
		return 0, ErrGone
	}
	if ln.dialled != nil {
		if ln.retired && !ln.dialled.enlist(ln) {
			return 0, errMoved
		}
		ln.used = true
		ln.attach()
		ln.dialled.want()
	}
	o := &ln.n.options
	for _, cp := range copies {
		// What is unsettled is bounded by its sender's credit; what is pre-settled, by the hard limit.
		if cp.Message.Settled && (ln.queue.n >= o.HardQueue || ln.bytes >= o.HardQueueBytes) {
			return taken, ErrBusy
		}
		cp.line, cp.state = ln, copyQueued
		ln.busy.Add(1)
		taken++
		if ln.queue.n == 0 && ln.offer(cp) {
			continue
		}
		cp.Message.keep()
		ln.push(cp)
	}
	return taken, nil
}

func (ln *line) push(cp *Copy) {
	ln.queue.push(cp)
	ln.bytes += len(cp.Message.Payload)
	if ln.queue.n == 1 || cp.expires < ln.earliest {
		ln.earliest = cp.expires
	}
}

// pump sends what is queued as far as credit and room allow. Called under the lock.
func (ln *line) pump() {
	for ln.queue.n > 0 {
		cp := ln.queue.front()
		if !ln.offer(cp) {
			return
		}
		ln.queue.pop()
		ln.bytes -= len(cp.Message.Payload)
	}
}

// offer sends one copy if the link takes it now; false leaves it for later.
func (ln *line) offer(cp *Copy) bool {
	l := ln.l
	if l == nil || !l.CanSend() {
		return false
	}
	m := cp.Message
	head, body := []byte(nil), m.Payload
	if ln.dialled != nil {
		if m.passed(ln.dialled.nodeID) {
			ln.over(cp, rejected(condLoop, "the message has been at the next node before"))
			return true
		}
		head, body = m.head, m.Payload[m.scan.Bare:]
		if cp.attempts > 0 {
			head = m.appendHead(nil, ln.n.id, cp.attempts)
		}
	}
	if limit := l.MaxMessage(); limit > 0 && uint64(len(head)+len(body)) > limit {
		ln.over(cp, rejected(wire.CondMessageSizeExceeded, "the message is larger than the receiver takes"))
		return true
	}
	settled := m.Settled
	switch l.SenderMode() {
	case engine.SenderSettled:
		settled = true
	case engine.SenderUnsettled:
		settled = false
	}
	if !l.Fits(len(head) + len(body)) {
		m.keep() // the engine may look at it after the batch
		if ln.dialled == nil {
			body = m.Payload
		} else {
			body = m.Payload[m.scan.Bare:]
		}
	}
	cp.out.Context = cp
	switch l.Send(&cp.out, settled, m.Format, head, body) {
	case engine.Refused:
		return false
	case engine.Complete:
		cp.state = copySent
		ln.countCopy()
		if settled {
			ln.over(cp, Outcome{Kind: wire.Accepted})
		}
	case engine.Partial:
		cp.state = copySent
		ln.countCopy()
	}
	return true
}

// over ends a copy's time on the line. Called under the lock.
func (ln *line) over(cp *Copy, o Outcome) {
	ln.busy.Add(-1)
	ln.c.done(cp, o)
}

// expire takes out the copies whose time to be sent is over, and gives them back. Called without the lock.
func (ln *line) expire(at int64) {
	ln.mu.Lock()
	if ln.queue.n == 0 || at < ln.earliest {
		ln.mu.Unlock()
		return
	}
	var late []*Copy
	ln.earliest = 1<<63 - 1
	for range ln.queue.n {
		cp := ln.queue.pop()
		if cp.expires <= at {
			ln.bytes -= len(cp.Message.Payload)
			ln.busy.Add(-1)
			cp.outcome = ln.lateOutcome(cp)
			late = append(late, cp)
			continue
		}
		ln.queue.push(cp)
		ln.earliest = min(ln.earliest, cp.expires)
	}
	ln.mu.Unlock()
	ln.n.settle(late)
}

// handOver gives back, from the line to a hop that went away, the copies that another row of their group could take now. The rest
// waits for the hop to return. Called without the lock.
func (ln *line) handOver() {
	ln.mu.Lock()
	var moved []*Copy
	for range ln.queue.n {
		cp := ln.queue.pop()
		if cp.state != copyQueued || !cp.hasAlternative() {
			ln.queue.push(cp)
			continue
		}
		ln.bytes -= len(cp.Message.Payload)
		ln.busy.Add(-1)
		cp.outcome = Outcome{Kind: wire.Released}
		moved = append(moved, cp)
	}
	ln.mu.Unlock()
	ln.n.settle(moved)
}

// hasAlternative tells whether another row of the copy's group could take it now.
func (c *Copy) hasAlternative() bool {
	g := &c.in.plan.groups[c.group]
	if g.pick == routetable.PickAll {
		return false
	}
	for i := range g.targets {
		if int32(i) != c.target && g.targets[i].outlet != nil && g.targets[i].outlet.Present() {
			return true
		}
	}
	return false
}

// lateOutcome is that of a copy that was not sent in time: released; where it was sent once and the connection broke, modified.
func (ln *line) lateOutcome(cp *Copy) Outcome {
	cp.fate = fateLate
	if cp.Message.Settled {
		ln.n.count.droppedLate.Add(1)
	}
	if cp.state == copySent {
		return modifiedFailed()
	}
	return Outcome{Kind: wire.Released}
}

// close ends the line of a receiver: what is queued is given back. Called under the lock of ln.c.
func (ln *line) close() {
	ln.gone.Store(true)
	ln.l = nil
	for ln.queue.n > 0 {
		cp := ln.queue.pop()
		cp.fate = fateGone
		if cp.Message.Settled {
			ln.n.count.droppedGone.Add(1)
		}
		ln.over(cp, Outcome{Kind: wire.Released})
	}
	ln.bytes = 0
}

// ring is a queue of copies.
type ring struct {
	buf   []*Copy // length a power of two
	first int
	n     int
}

func (r *ring) front() *Copy { return r.buf[r.first] }

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
