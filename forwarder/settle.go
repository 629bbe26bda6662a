package forwarder

import (
	"sync"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// Conditions of our own.
const (
	condLoop    = wire.Symbol("fingerpost:loop")
	condExpired = wire.Symbol("fingerpost:expired")
)

// Settle reports what became of the copy. Once, from any goroutine that holds no connection's lock.
func (c *Copy) Settle(o Outcome) {
	c.outcome = o
	c.in.conn.node().settle([]*Copy{c})
}

// refuse gives the copy the outcome of a Deliver that did not take it.
func (c *Copy) refuse(err error) {
	c.outcome = Outcome{Kind: wire.Released}
	c.fate = fateGone
	if err == ErrBusy {
		c.fate = fateBusy
	}
}

// work is what a connection's lock holder leaves for after the release: copies that are done, and links that wait for room.
type work struct {
	n      *Node
	copies []*Copy
	wake   []*inlink

	progress []progress
	settled  []settledFirst
	streams  []*stream
}

// progress is what a receiver told of a copy that it has not answered.
type progress struct {
	copyRef
	state []byte
}

// settledFirst is a copy whose sender has settled it. It counts as pending until that is passed on.
type settledFirst struct {
	copy *Copy
	line *line
}

var works = sync.Pool{New: func() any { return &work{} }}

// Run settles the copies with the connections that they came from.
func (w *work) Run() {
	if w.progress != nil || w.settled != nil {
		w.passOn()
	}
	w.n.settle(w.copies)
	clear(w.copies)
	w.copies = w.copies[:0]
	if w.wake != nil {
		w.n.wake(w.wake)
		w.wake = nil
	}
	for _, s := range w.streams {
		s.attend()
	}
	w.streams = nil
	works.Put(w)
}

var _ amqp.Work = (*work)(nil)

// passOn tells senders of the progress of copies, and receivers that senders have settled.
func (w *work) passOn() {
	for _, p := range w.progress {
		p.conn.lock()
		if p.d.serial.Load() == p.serial && !p.copy.over && p.d.in != nil {
			p.d.in.Progress(p.state)
		}
		p.conn.release()
	}
	for _, s := range w.settled {
		s.line.settledFirst(s.copy)
		d := s.copy.in
		from := d.conn
		from.lock()
		if d.pending--; d.pending == 0 && d.answered {
			d.recycle()
		}
		from.release()
	}
	w.progress, w.settled = nil, nil
}

// settledFirst settles a copy that its receiver has and has not answered: the sender wants no answer any more.
func (ln *line) settledFirst(cp *Copy) {
	ln.mu.Lock()
	there := false
	if ln.l != nil {
		ln.l.Unsettled(func(d *engine.OutDelivery) { there = there || d.Context == any(cp) })
	}
	if there && ln.l.Whole(&cp.out) {
		cp.out.Settle()
		ln.over(cp, Outcome{Kind: wire.Accepted})
	}
	ln.unlock()
}

// toDo is the work that the lock's holder leaves.
func (c *conn) toDo() *work {
	if c.work == nil {
		c.work = works.Get().(*work)
		c.work.n = c.n
	}
	return c.work
}

// done notes, under the connection's lock, that a copy has its outcome.
func (c *conn) done(cp *Copy, o Outcome) {
	cp.outcome = o
	w := c.toDo()
	w.copies = append(w.copies, cp)
}

// settle brings the outcomes of copies to the deliveries that they belong to. It takes each source's lock once, one at a time.
func (n *Node) settle(copies []*Copy) {
	sources := sourcesPool.Get().(*[]*conn)
	from := (*sources)[:0]
	for _, cp := range copies { // one look at each delivery, and not one for each source
		var src *conn
		if cp != nil {
			src = cp.in.conn
		}
		from = append(from, src)
	}
	var again []*Copy
	for i, src := range from {
		if src == nil {
			continue
		}
		src.lock()
		for j, next := i, i; j < len(copies); j++ {
			if from[j] != src {
				continue
			}
			if j >= next {
				next = src.warm(copies, from, j)
			}
			copies[j].in.copyDone(copies[j], &again)
			copies[j], from[j] = nil, nil
		}
		src.release()
	}
	*sources = from
	sourcesPool.Put(sources)
	for _, cp := range again {
		if taken, err := cp.outlet().Deliver([]*Copy{cp}); taken == 0 {
			cp.refuse(err)
			n.settle([]*Copy{cp})
		}
	}
}

// sourcesPool is memory for the sources of copies; all nil when it is given back.
var sourcesPool = sync.Pool{New: func() any { return new([]*conn) }}

// warmed is how many copies of a source are touched before they are settled: what their ends need comes into the processor's cache together.
const warmed = 16

// warm touches the next copies of the source, and tells where they end.
func (c *conn) warm(copies []*Copy, from []*conn, i int) (next int) {
	for n := 0; i < len(copies) && n < warmed; i++ {
		if from[i] != c {
			continue
		}
		n++
		if in := copies[i].in.in; in != nil {
			c.warmth += int32(in.ID)
		}
		if row := copies[i].row; row != nil {
			c.warmth += int32(row.place)
		}
	}
	return i
}

// copyDone takes the outcome of one copy. Copies that go on their way again are added to again. Called under the lock of d.conn.
func (d *delivery) copyDone(c *Copy, again *[]*Copy) {
	if c.outcome.Kind == wire.Released {
		switch d.next(c, again) {
		case goesOn:
			*again = append(*again, c)
			return
		case waits:
			return
		}
	}
	d.conn.ended(c)
	c.over = true
	if t := c.had().tail; t != nil && t.end() {
		d.conn.rewindow(t.s.session)
	}
	d.pending--
	if !c.tap {
		d.counting--
	}
	switch {
	case d.counting == 0 && !d.answered:
		d.finish()
	case d.pending == 0:
		d.recycle()
	}
}

// finish settles a delivery by the outcomes of all its copies.
func (d *delivery) finish() {
	var o Outcome
	if d.in != nil || d.had().told != nil {
		o = d.aggregate()
	}
	d.answer(o)
}

// answer tells the sender, where it waits for that, and gives the link room for another message. The delivery is over, but for copies
// that do not count.
func (d *delivery) answer(o Outcome) {
	if d.stream != nil && d.stream.holdsBack(o) {
		return
	}
	d.answered = true
	held := false
	if d.in != nil {
		d.conn.countOutcome(d.link, o.Kind)
		held = d.tell(o)
		if w := d.had().way; o.Kind != wire.Accepted && w != (way{}) {
			d.conn.n.repeats.forget(w)
		}
		d.in = nil
	}
	if told := d.had().told; told != nil {
		told(o)
		d.more.told = nil
	}
	if d.link != nil && !held {
		d.link.room(1)
	}
	if d.pending == 0 {
		d.recycle()
	}
}

// tell gives the sender its outcome; held says that it keeps the delivery until it settles it (mode second), and its place.
func (d *delivery) tell(o Outcome) (held bool) {
	d.in.Context = nil
	if d.in.Link().ReceiverMode() == engine.ReceiverSecond {
		d.in.Context, held = d.link, true
	}
	if o.State != nil {
		d.in.Settle(o.State)
	} else {
		d.in.SettleAs(o.Kind)
	}
	return held
}

// aggregate makes one outcome of those of the non-optional copies (DESIGN §5, end to end).
func (d *delivery) aggregate() Outcome {
	if len(d.copies) == 1 && !d.copies[0].tap && d.copies[0].outcome.Kind == wire.Accepted { // mostly
		return Outcome{Kind: wire.Accepted}
	}
	var count [wire.Modified + 1]int
	counted, loops := 0, 0
	only := -1
	for i := range d.copies {
		c := &d.copies[i]
		if c.tap {
			continue
		}
		counted++
		only = i
		k := c.outcome.Kind
		if k > wire.Modified {
			k = wire.Modified
		}
		count[k]++
		if k == wire.Rejected && c.outcome.State != nil && c.outcome.State.Error != nil && c.outcome.State.Error.Condition == condLoop {
			loops++
		}
	}
	if loops > 0 && count[wire.Accepted] > 0 { // it went round, but it also arrived
		counted -= loops
		count[wire.Rejected] -= loops
	}
	switch {
	case d.plan.tapsOnly:
		return rejected(d.plan.condition, d.plan.problem)
	case counted == count[wire.Accepted]:
		return Outcome{Kind: wire.Accepted}
	case counted == count[wire.Released]:
		return Outcome{Kind: wire.Released}
	case counted == 1 && loops == 0 || len(d.copies) == 1:
		return d.copies[only].outcome
	case count[wire.Rejected] > 0:
		return d.aggregateRejected()
	}
	return Outcome{Kind: wire.Modified, State: &wire.State{
		Kind: wire.Modified, DeliveryFailed: true,
		Annotations: wire.Map{{Key: wire.Symbol("x-opt-fingerpost-copies"), Value: d.copyList()}},
	}}
}

func (d *delivery) aggregateRejected() Outcome {
	e := &wire.Error{Condition: wire.CondInternalError}
	for i := range d.copies {
		if d.copies[i].tap { // it may still get its outcome
			continue
		}
		if o := d.copies[i].outcome; o.Kind == wire.Rejected && o.State != nil && o.State.Error != nil {
			e.Condition, e.Description = o.State.Error.Condition, o.State.Error.Description
			break
		}
	}
	e.Info = wire.Map{{Key: wire.Symbol("copies"), Value: d.copyList()}}
	return Outcome{Kind: wire.Rejected, State: &wire.State{Kind: wire.Rejected, Error: e}}
}

// copyList tells of each non-optional copy where it went and what became of it.
func (d *delivery) copyList() wire.List {
	var list wire.List
	for i := range d.copies {
		c := &d.copies[i]
		if c.tap {
			continue
		}
		m := wire.Map{
			{Key: wire.Symbol("hop"), Value: c.Hop().Text},
			{Key: wire.Symbol("outcome"), Value: kindName(c.outcome.Kind)},
		}
		if s := c.outcome.State; s != nil && s.Error != nil {
			m = append(m, wire.KV{Key: wire.Symbol("condition"), Value: s.Error.Condition},
				wire.KV{Key: wire.Symbol("description"), Value: s.Error.Description})
		}
		list = append(list, m)
	}
	return list
}

func kindName(k wire.StateKind) string {
	switch k {
	case wire.Accepted:
		return "accepted"
	case wire.Rejected:
		return "rejected"
	case wire.Released:
		return "released"
	}
	return "modified"
}

// remoteOutcome is the outcome that a receiver gave. One that settles without a word has taken the message.
func remoteOutcome(kind wire.StateKind, raw []byte) Outcome {
	switch kind {
	case wire.StateNone, wire.Received, wire.Accepted:
		return Outcome{Kind: wire.Accepted}
	case wire.Released:
		return Outcome{Kind: wire.Released}
	case wire.Rejected, wire.Modified:
		s := &wire.State{}
		if err := s.Parse(raw); err == nil {
			return Outcome{Kind: kind, State: s}
		}
	}
	return rejected(wire.CondNotImplemented, "the receiver answered with a state that is not an outcome")
}

func rejected(cond wire.Symbol, text string) Outcome {
	return Outcome{Kind: wire.Rejected, State: &wire.State{Kind: wire.Rejected, Error: &wire.Error{Condition: cond, Description: text}}}
}

func modifiedFailed() Outcome {
	return Outcome{Kind: wire.Modified, State: &wire.State{Kind: wire.Modified, DeliveryFailed: true}}
}
