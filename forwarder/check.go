package forwarder

import (
	"slices"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// What the clock does with a line: copies whose time is over, copies to be tried again, hops that are slow or take nothing.

// check looks at the line at a tick of the node's clock. Called without the lock.
func (ln *line) check(at int64) {
	ln.mu.Lock()
	var over []*Copy
	if ln.queue.n > 0 && at >= ln.earliest {
		over = ln.takeOut(over, func(cp *Copy) bool {
			if cp.expires > at || ln.sending != nil && (cp.in.until == 0 || cp.in.until > at) {
				return false
			}
			cp.late(at)
			return true
		})
	}
	over = ln.checkLater(at, over)
	over = ln.checkStuck(at, over)
	ln.checkOverdue(at)
	ln.unlock()
	ln.n.settle(over)
}

// postpone puts a copy among those to be tried again. Called under the lock.
func (ln *line) postpone(cp *Copy) {
	i, _ := slices.BinarySearchFunc(ln.later, cp, func(x, y *Copy) int {
		if x.had().due <= y.had().due { // behind those of the same time
			return -1
		}
		return 1
	})
	ln.later = slices.Insert(ln.later, i, cp)
	ln.n.alarms.set(ln, ln.later[0].had().due)
}

// checkLater takes those whose time is over out of the copies to be tried again. They come back released, as the receiver said.
func (ln *line) checkLater(at int64, over []*Copy) []*Copy {
	ln.later = slices.DeleteFunc(ln.later, func(cp *Copy) bool {
		if cp.expires > at {
			return false
		}
		ln.busy.Add(-1)
		cp.late(at)
		over = append(over, cp)
		return true
	})
	return over
}

// alarm is called when what the line waits for may be due: copies to be tried again, or the judgement that its hop is slow.
func (ln *line) alarm(at int64) {
	ln.mu.Lock()
	if ln.behind && ln.l != nil {
		ln.detachBehind()
	}
	i := 0
	for ; i < len(ln.later) && ln.later[i].had().due <= at; i++ {
		cp := ln.later[i]
		cp.notDue()
		ln.push(cp)
	}
	ln.later = slices.Delete(ln.later, 0, i)
	if len(ln.later) > 0 {
		ln.n.alarms.set(ln, ln.later[0].had().due)
	}
	refs := ln.checkSlow(at)
	if ln.l != nil {
		ln.pump()
	}
	ln.unlock()
	ln.n.easeQueued(refs, ln, at)
}

// checkSlow calls the hop slow where its line was over the soft limit for slowAfter. The result is what is queued pre-settled and
// counts: it may stop to.
func (ln *line) checkSlow(at int64) (refs []copyRef) {
	if ln.fullSince == 0 || ln.slow.Load() {
		return nil
	}
	if due := ln.fullSince + int64(slowAfter); due > at {
		ln.n.alarms.set(ln, due)
		return nil
	}
	ln.slow.Store(true)
	if ln.queue.n > 0 && ln.queue.front().isOrdered() {
		ln.n.log.Warn("a hop of events is slow", "hop", ln.name(), "events", ln.queue.n, "bytes", ln.bytes)
	}
	for i := range ln.queue.n {
		if cp := ln.queue.at(i); cp.in.Settled && !cp.droppable {
			refs = append(refs, refTo(cp))
		}
	}
	return refs
}

// checkStuck finds out whether the hop takes anything. When it has taken nothing for stuckAfter, what anonymous links have here beyond
// their share is given back.
func (ln *line) checkStuck(at int64, over []*Copy) []*Copy {
	switch {
	case ln.sent != ln.seen || ln.queue.n == 0:
		ln.seen, ln.waitsAt, ln.stuckAt, ln.shares = ln.sent, 0, 0, nil
		return over
	case ln.waitsAt == 0:
		ln.waitsAt = at
	}
	if at-ln.waitsAt < int64(stuckAfter) {
		return over
	}
	ln.stuckAt = at
	if ln.shares != nil {
		return over
	}
	ln.shares = map[*inlink]int{}
	return ln.takeOut(over, func(cp *Copy) bool {
		if ln.hasShareAt(cp, at) {
			ln.shares[cp.in.link]++
			return false
		}
		ln.shares[cp.in.link]++ // takeOut takes it off
		cp.fate, cp.outcome = fateBusy, Outcome{Kind: wire.Released}
		return true
	})
}

func (ln *line) hasShare(cp *Copy) bool {
	if ln.shares == nil {
		return true
	}
	return ln.hasShareAt(cp, ln.stuckAt)
}

// hasShareAt tells whether one more copy of a link's may wait for a hop that takes nothing: on an anonymous link that carries messages
// for others too, a quarter of its credit. What has an order has no credit that others share.
func (ln *line) hasShareAt(cp *Copy, at int64) bool {
	l := cp.in.link
	if l == nil || l.hasTarget || l.inside != "" || cp.inDoubt || !l.carriesOthers(at) {
		return true
	}
	return ln.shares[l] < max(int(l.window.Load())/4, 1)
}

// checkOverdue ends the copies that a receiver has had for too long. Called under the lock.
func (ln *line) checkOverdue(at int64) {
	if ln.overdueAt == 0 || at < ln.overdueAt || ln.l == nil {
		return
	}
	var overdue []*Copy
	ln.overdueAt = 0
	ln.l.Unsettled(func(d *engine.OutDelivery) {
		switch cp, ok := d.Context.(*Copy); {
		case !ok || !cp.timed:
		case cp.had().tail != nil && cp.rare.tail.sending():
			ln.overdueAt = at // it has not all of it
		case at >= cp.answerBy:
			overdue = append(overdue, cp)
		case ln.overdueAt == 0 || cp.answerBy < ln.overdueAt:
			ln.overdueAt = cp.answerBy
		}
	})
	for _, cp := range overdue {
		cp.out.Settle()
		cp.fate = fateOverdue
		ln.over(cp, modifiedFailed())
	}
}
