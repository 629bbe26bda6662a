package forwarder

import (
	"slices"

	"github.com/fingerpost/fingerpost/routetable"
)

// A link whose target matches no row has one credit. Its message waits for a row until the delivery timeout, then it is rejected. The
// same holds for what is in flight when the rows of a target vanish (DESIGN §4).

// wait puts a message on the link's waiting list. Called under the connection's lock.
func (l *inlink) wait(d *delivery) {
	d.keep()
	until := now() + int64(l.c.n.options.DeliveryTimeout)
	if d.until != 0 {
		until = min(until, d.until)
	}
	d.has().waiting = until
	l.waiting = append(l.waiting, d)
	l.limit()
}

// waitInTurn puts a message on the waiting list whose hop went away before it was sent: before those that came later. Called under the
// connection's lock.
func (l *inlink) waitInTurn(d *delivery) {
	l.wait(d)
	i := len(l.waiting) - 1
	for ; i > 0 && l.waiting[i-1].seq > d.seq; i-- {
		l.waiting[i] = l.waiting[i-1]
	}
	l.waiting[i] = d
	l.c.n.poke()
}

// limit takes the link down to one message at a time.
func (l *inlink) limit() {
	l.limited = true // what is on its way with credit given before is taken, and waits too
	l.c.n.watchLimited(l)
}

// found: a message of the link was routed, so it has its full credit.
func (l *inlink) found() {
	if l.limited {
		l.limited = false
		l.look()
	}
}

// recheck looks at the waiting messages again: those that match a row now go on, those that waited too long are rejected. While
// it has messages that are not with their outlets yet, what comes in waits behind them, so that order is kept. A link that waits for
// nothing any more is not watched any more. Called by the node's loop without a lock.
func (l *inlink) recheck(at int64) {
	c := l.c
	var b batch
	for {
		c.lock()
		if c.handing.Load() { // the reader's batch, which came before what waits, is on its way: its end asks for another look
			c.missed.Store(true)
			c.release()
			return
		}
		l.replaying = l.replay(&b, at)
		more := l.replaying
		if !more && (l.l == nil || !l.limited && len(l.waiting) == 0) {
			c.n.unwatch(l) // under the lock: a message that waits from now on has it watched again
		}
		c.release()
		if !more {
			return
		}
		b.deliver(c.n, false)
	}
}

// replay sends the waiting messages on their way, by b; true where there were any. Called under the lock.
func (l *inlink) replay(b *batch, at int64) (sent bool) {
	c := l.c
	if l.l == nil {
		return false
	}
	c.at = at
	var groups []routetable.Group
	for len(l.waiting) > 0 {
		d := l.waiting[0]
		p := c.n.route(l, &d.Message, &groups)
		if !c.mayUse(l, d, p) {
			l.take()
			c.refuseUnauthorized(d)
			continue
		}
		if !l.counts(p) && d.had().waiting > at {
			break
		}
		l.take()
		switch {
		case d.until != 0 && d.until <= at:
			if !p.found {
				c.n.notFound(l, d, p) // that is why it grew too old
			}
			c.expired(d)
		case !p.found:
			c.refuseUnrouted(l, d, p)
		case c.send(l, d, p, b):
			sent = true
		}
	}
	if len(l.waiting) == 0 && l.limited && l.matches() {
		l.found()
	}
	return sent
}

// forgetWaiting takes a message out that does not come any more.
func (l *inlink) forgetWaiting(d *delivery) {
	if i := slices.Index(l.waiting, d); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

func (l *inlink) take() {
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	if len(l.waiting) == 0 {
		l.waiting = nil
	}
}

// close forgets a link that is gone. What waited goes with it: nobody was told that it was taken.
func (l *inlink) close() {
	l.l = nil
	l.dropParts()
	if l.stream != nil {
		l.stream.abort()
	}
	for _, d := range l.waiting {
		d.recycle()
	}
	if l.waiting = nil; l.watched { // who comes and goes often is not to leave many until the table changes
		l.c.n.unwatch(l)
	}
}
