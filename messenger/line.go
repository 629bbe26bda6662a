package messenger

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// line is the copies that wait for one sending link, in order, and the link that takes them. One to a target of an endpoint outlives
// connections; one to a receiver that attached here (ep is nil) ends with its link.
type line struct {
	// Set at construction, never changed.
	m      *Messenger
	ep     *endpoint
	target string
	noName bool        // ep: to the anonymous terminus
	mu     *sync.Mutex // the lock of the connection; guards what follows

	c       *conn // nil while away
	l       *engine.Link
	since   time.Time // the link: when the peer took it; zero before
	used    bool      // the link: something was sent on it
	gone    bool      // no copy is taken any more
	retired bool      // it had nothing to do, and its endpoint has forgotten it
	name    string    // ep is nil: of its link: hop; empty before it has one

	queue    queue
	inFlight int // sent, or half sent, without an outcome
	dropped  []*outCopy
	timer    *time.Timer // for the first copy that expires; nil before there was one
	earliest time.Time   // when timer fires; zero if it does not
}

// queue is copies in order.
type queue struct {
	items []*outCopy
	first int
}

func (q *queue) len() int         { return len(q.items) - q.first }
func (q *queue) front() *outCopy  { return q.items[q.first] }
func (q *queue) push(c *outCopy)  { q.items = append(q.items, c) }
func (q *queue) rest() []*outCopy { return q.items[q.first:] }

func (q *queue) pop() {
	q.items[q.first] = nil
	q.first++
	if q.first == len(q.items) {
		q.items, q.first = q.items[:0], 0
	} else if q.first > 1024 && q.first > len(q.items)/2 {
		n := copy(q.items, q.items[q.first:])
		clear(q.items[n:])
		q.items, q.first = q.items[:n], 0
	}
}

// put takes a copy, and sends it at once where that can be done. false says that the line is retired: ask for a new one.
func (ln *line) put(c *outCopy) bool {
	ln.mu.Lock()
	if ln.retired {
		ln.mu.Unlock()
		return false
	}
	if ln.gone {
		ln.mu.Unlock()
		c.settle(Outcome{State: Released, Err: ErrClosed})
		return true
	}
	c.line = ln
	ln.m.unsent.Add(1)
	ln.queue.push(c)
	ln.watch(c.expires)
	if ln.ep != nil {
		ln.ep.want()
	}
	ln.pump()
	ln.unlock()
	return true
}

// unlock releases the lock, by way of the connection where there is one, so that what was said is written.
func (ln *line) unlock() {
	if ln.c != nil {
		ln.c.c.Release()
		return
	}
	ln.mu.Unlock()
}

// pump sends what can be sent. Called under the lock.
func (ln *line) pump() {
	if ln.c == nil || ln.queue.len() == 0 || !ln.c.c.Engine.IsOpen() {
		return
	}
	if ln.l == nil {
		ln.attach()
		return
	}
	now := time.Time{}
	for ln.queue.len() > 0 && ln.l != nil && ln.l.CanSend() {
		c := ln.queue.front()
		if now.IsZero() {
			now = time.Now()
		}
		if !now.Before(c.expires) {
			ln.queue.pop()
			ln.giveUp(c, Outcome{State: Released, Err: causedBy(ErrNotSent, ln.why())})
			continue
		}
		replyTo := ""
		if c.e.replies {
			address, ok, err := ln.c.replyAddress()
			if err != nil {
				ln.noReplies(err)
				continue
			}
			if !ok {
				return // its link pumps the lines when it is there
			}
			replyTo = address
		}
		if !ln.send(c, now, replyTo) {
			return
		}
	}
}

// send gives the front of the queue to the link; false says that it did not go.
func (ln *line) send(c *outCopy, now time.Time, replyTo string) bool {
	head, body := c.e.parts(now, replyTo)
	if most := ln.l.MaxMessage(); most > 0 && uint64(len(head)+len(body)) > most {
		ln.queue.pop()
		ln.giveUp(c, Outcome{State: Rejected, Err: &Error{
			Condition: wire.CondMessageSizeExceeded, Description: fmt.Sprintf("the link takes messages of up to %d bytes", most),
		}})
		return true
	}
	settled := c.e.settled
	switch ln.l.SenderMode() {
	case engine.SenderSettled:
		settled = true
	case engine.SenderUnsettled:
		settled = false
	}
	c.out.Context = c
	result := ln.l.Send(&c.out, settled, 0, head, body)
	if result == engine.Refused {
		return false
	}
	ln.queue.pop()
	ln.inFlight++
	ln.used = true
	c.settled = settled
	if result == engine.Complete {
		ln.wholeSent(c)
	}
	return true
}

// wholeSent: the last byte of a copy is encoded.
func (ln *line) wholeSent(c *outCopy) {
	c.isSent()
	if c.settled {
		ln.finish(c, Outcome{State: Settled})
	}
}

// finish gives a copy that was in flight its outcome.
func (ln *line) finish(c *outCopy, o Outcome) {
	ln.inFlight--
	c.isSent() // settled before it was whole, or dropped
	c.settle(o)
}

// giveUp ends a copy that was never sent.
func (ln *line) giveUp(c *outCopy, o Outcome) {
	c.isSent()
	c.settle(o)
}

// isSent notes that nothing of the copy is left to be sent, once.
func (c *outCopy) isSent() {
	if !c.sent {
		c.sent = true
		c.t.m.sent()
	}
}

// giveUpAll ends all that waits.
func (ln *line) giveUpAll(o Outcome) {
	for ln.queue.len() > 0 {
		c := ln.queue.front()
		ln.queue.pop()
		ln.giveUp(c, o)
	}
}

// why is what keeps the line from sending, as far as it is known.
func (ln *line) why() error {
	switch {
	case ln.ep != nil && ln.c == nil && ln.ep.lastErr != nil:
		return ln.ep.lastErr
	case ln.c == nil:
		return errors.New("not connected")
	case ln.l == nil || ln.since.IsZero():
		return errors.New("the peer has not answered")
	}
	return errors.New("the peer gives no credit")
}

// watch has the line looked at when a copy expires.
func (ln *line) watch(at time.Time) {
	if !ln.earliest.IsZero() && !at.Before(ln.earliest) {
		return
	}
	ln.earliest = at
	if ln.timer == nil {
		ln.timer = time.AfterFunc(time.Until(at), ln.expire)
		return
	}
	ln.timer.Reset(time.Until(at))
}

// expire gives up what has waited too long. It runs on the line's timer.
func (ln *line) expire() {
	if !ln.m.start() {
		return
	}
	defer ln.m.running.Done()
	ln.mu.Lock()
	now := time.Now()
	ln.earliest = time.Time{}
	next := time.Time{}
	kept := ln.queue.rest()[:0]
	for _, c := range ln.queue.rest() {
		if !now.Before(c.expires) {
			ln.giveUp(c, Outcome{State: Released, Err: causedBy(ErrNotSent, ln.why())})
			continue
		}
		kept = append(kept, c)
		if next.IsZero() || c.expires.Before(next) {
			next = c.expires
		}
	}
	clear(ln.queue.items[ln.queue.first+len(kept):])
	ln.queue.items = ln.queue.items[:ln.queue.first+len(kept)]
	if !next.IsZero() {
		ln.watch(next)
	}
	ln.unlock()
}

// attach asks the endpoint for the link. Called under the lock, with a connection.
func (ln *line) attach() {
	l, err := ln.c.attach(engine.AttachOptions{
		Role:       engine.RoleSender,
		Source:     &wire.Source{Address: ln.target, HasAddress: !ln.noName},
		Target:     &wire.Target{Address: ln.target, HasAddress: !ln.noName},
		SenderMode: engine.SenderMixed, ReceiverMode: engine.ReceiverFirst,
		Context: ln,
	})
	if err != nil {
		ln.giveUpAll(Outcome{State: Released, Err: public(err)})
		return
	}
	ln.l, ln.since, ln.used = l, time.Time{}, false
}

// attached: the peer took the link.
func (ln *line) attached() {
	ln.since = time.Now()
	ln.pump()
}

// drop notes a copy that was in flight on a link that is gone. The reason is told by detached.
func (ln *line) drop(c *outCopy) { ln.dropped = append(ln.dropped, c) }

// detached: the link is gone, and maybe its connection. What was sent is in doubt. What waits goes by the next link, unless this one
// was refused, or its receiver is the only one there can be.
func (ln *line) detached(err error) {
	connected := ln.c != nil && ln.c.c.Engine.IsOpen()
	// A peer that takes a link and ends it at once refuses it, too.
	refused := connected && (ln.since.IsZero() || !ln.used && time.Since(ln.since) < time.Second)
	ln.l = nil
	for _, c := range ln.dropped {
		ln.finish(c, Outcome{State: Modified, DeliveryFailed: true, Err: causedBy(ErrInDoubt, public(err))})
	}
	clear(ln.dropped)
	ln.dropped = ln.dropped[:0]
	switch {
	case ln.ep == nil:
		ln.end(Outcome{State: Released, Err: causedBy(ErrClosed, errors.New("the receiver has gone"))})
	case refused:
		ln.giveUpAll(Outcome{State: Released, Err: public(err)})
	case connected:
		ln.c.again(ln)
	}
}

// end gives up all that waits and takes no more. Called under the lock.
func (ln *line) end(o Outcome) {
	ln.gone = true
	ln.giveUpAll(o)
	if ln.timer != nil {
		ln.timer.Stop()
	}
}
