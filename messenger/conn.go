package messenger

import (
	"errors"
	"iter"
	"slices"
	"strconv"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// conn is our side of one connection, whoever opened it. It is the handler of its engine.
type conn struct {
	// Set at construction, never changed.
	m  *Messenger
	c  *amqp.Conn
	ep *endpoint // we dialled, else nil
	by *Listener // it was accepted, else nil

	// Under the connection's lock.
	s     *engine.Session    // for links of ours; begun when first needed
	reply *inlink            // the dynamic source that "~" stands for
	lines map[*line]struct{} // to receivers at dynamic addresses of ours
	retry []*line            // to be attached again before the next flush
	work  work

	// Owned by the reader.
	arrived []*Delivery // of one read
}

var _ amqp.Owner = (*conn)(nil)

// work is what is done after the lock is released.
type work []func()

func (w work) Run() {
	for _, f := range w {
		f()
	}
}

// after has f called when the lock is released.
func (c *conn) after(f func()) { c.work = append(c.work, f) }

// TakeWork gives what after noted.
func (c *conn) TakeWork() amqp.Work {
	if len(c.work) == 0 {
		return nil
	}
	w := c.work
	c.work = nil
	return w
}

// BeforeFlush attaches the links that were lost.
func (c *conn) BeforeFlush() {
	for len(c.retry) > 0 {
		again := c.retry
		c.retry = nil
		for _, ln := range again {
			ln.pump()
		}
	}
}

// again has a line looked at before the next flush: inside a callback the engine may be ending the session.
func (c *conn) again(ln *line) { c.retry = append(c.retry, ln) }

// attach attaches a link of ours, on a session that is begun where there is none or the last has ended.
func (c *conn) attach(o engine.AttachOptions) (*engine.Link, error) {
	o.Name = c.m.o.Name + "/" + strconv.FormatUint(c.m.nextID.Add(1), 10)
	if c.s != nil {
		l, err := c.s.Attach(o)
		var le *engine.LinkError
		if !errors.As(err, &le) || le.Condition != wire.CondIllegalState {
			return l, err
		}
	}
	s, err := c.c.Engine.Begin()
	if err != nil {
		return nil, err
	}
	c.s = s
	return s.Attach(o)
}

// Opened: the peer is there.
func (c *conn) Opened() {
	if c.ep != nil {
		c.ep.opened(c)
	}
}

// Closed: the connection is over.
func (c *conn) Closed(err error) {
	if c.ep != nil {
		c.ep.lost(c)
	}
}

// sending gives the lines that send by this connection.
func (c *conn) sending() iter.Seq[*line] {
	return func(yield func(*line) bool) {
		for ln := range c.lines {
			if !yield(ln) {
				return
			}
		}
		if c.ep == nil || c.ep.c != c {
			return
		}
		for _, ln := range c.ep.lines {
			if !yield(ln) {
				return
			}
		}
	}
}

// Attached takes the peer's answer to a link of ours, or answers one of the peer's.
func (c *conn) Attached(l *engine.Link) {
	switch x := l.Context.(type) {
	case *line:
		x.attached()
	case *inlink:
		x.attached(l)
	default:
		if l.IsSender() {
			c.attachReceiver(l)
		} else {
			c.attachSender(l)
		}
	}
}

// Detached: a link is gone.
func (c *conn) Detached(l *engine.Link, err error) {
	switch x := l.Context.(type) {
	case *line:
		x.detached(err)
		if x.ep == nil {
			delete(c.lines, x)
			c.after(func() { c.m.dropLink(x) })
		}
	case *inlink:
		x.detached(err)
	}
}

// Flow: a line may go on.
func (c *conn) Flow(l *engine.Link) {
	if ln, ok := l.Context.(*line); ok {
		ln.pump()
	}
}

// Sent: a message that went in parts is whole.
func (c *conn) Sent(d *engine.OutDelivery) {
	cp := d.Context.(*outCopy)
	cp.line.wholeSent(cp)
}

// Settled: a copy has its outcome.
func (c *conn) Settled(d *engine.OutDelivery, kind wire.StateKind, state []byte) {
	cp := d.Context.(*outCopy)
	cp.line.finish(cp, outcomeOf(kind, state))
}

// OutDropped: a copy was on a link that is gone.
func (c *conn) OutDropped(d *engine.OutDelivery, begun bool) {
	cp := d.Context.(*outCopy)
	cp.line.drop(cp)
}

// Transfer takes a part of a message.
func (c *conn) Transfer(d *engine.InDelivery, payload []byte, last bool) {
	l := d.Link().Context.(*inlink)
	if d.First && last {
		c.message(l, d, slices.Clone(payload))
		return
	}
	if d.First {
		l.parts = nil
	}
	l.parts = append(l.parts, payload...)
	if last {
		raw := l.parts
		l.parts = nil
		c.message(l, d, raw)
	}
}

// message takes a whole message.
func (c *conn) message(l *inlink, in *engine.InDelivery, raw []byte) {
	d := &Delivery{raw: raw, link: l, settled: in.Settled, listener: l.by, target: l.target, isReply: l.isReply}
	if l.sub != nil {
		d.sub = l.sub.sub
	}
	if !in.Settled {
		d.in = in
		in.Context = d
	}
	l.held++
	c.arrived = append(c.arrived, d)
}

// AfterInput hands over the messages of one read.
func (c *conn) AfterInput(more bool) {
	if len(c.arrived) > 0 {
		c.m.in.push(c.arrived)
		clear(c.arrived)
		c.arrived = c.arrived[:0]
	}
}

// Aborted: the sender took back what it had begun.
func (c *conn) Aborted(d *engine.InDelivery) {
	l := d.Link().Context.(*inlink)
	l.parts = nil
	l.grant()
}

// RemoteSettled: the sender does not wait for the outcome.
func (c *conn) RemoteSettled(in *engine.InDelivery, _ []byte) {
	if d, ok := in.Context.(*Delivery); ok {
		d.in, d.settled = nil, true
	}
}

// InDropped: the link is gone, and with it the way to settle.
func (c *conn) InDropped(in *engine.InDelivery) {
	if d, ok := in.Context.(*Delivery); ok {
		d.in, d.lost = nil, true
	}
}
