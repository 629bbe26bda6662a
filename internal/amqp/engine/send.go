package engine

import (
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// OutDelivery is a delivery to the peer. Its memory is the caller's, who may use it again when it is over: after Send
// answered Complete for a settled one, after Sent for a settled one that was Partial, else after Settled or OutDropped.
type OutDelivery struct {
	Context any // the caller's own

	link    *Link
	id      uint32
	settled bool
}

// outRun is what is left to encode of Link.out: most messages go in one frame.
type outRun struct {
	parts [2][]byte
	rest  Source // what follows them; nil where they are all
}

// Link is the link that the delivery is on; nil before Send and when it is over.
func (d *OutDelivery) Link() *Link { return d.link }

// SendResult says what became of a Send.
type SendResult uint8

// The results of Send.
const (
	Refused  SendResult = iota // no credit, or no window or room: Flow will tell when to try again
	Partial                    // begun; the rest follows as window and room allow
	Complete                   // all of it is encoded
)

// CanSend tells whether Send would be refused.
func (l *Link) CanSend() bool {
	return l.credit > 0 && l.out == nil && !l.isStalled && l.answered && !l.gone
}

// Fits tells whether a message of n bytes is sent in one frame, so that Send never answers Partial for it.
func (l *Link) Fits(n int) bool { return n <= int(min(l.s.c.peerMaxFrame, 1<<30))-frameOverhead }

// Send sends a message whose bytes are head followed by body. settled says that no outcome is wanted; a link whose receiver
// asked for one of the settle modes has the last word (see Link.SenderMode). head and body must stay as they are until
// the delivery is complete, body until it is over where the caller wants to send it again.
//
// A Send that is refused changes nothing, but for this: where there is credit and no room, Flow will be called.
func (l *Link) Send(d *OutDelivery, settled bool, format uint32, head, body []byte) SendResult {
	return l.send(d, settled, format, head, body, nil)
}

func (l *Link) send(d *OutDelivery, settled bool, format uint32, head, body []byte, rest Source) SendResult {
	if !l.CanSend() {
		return Refused
	}
	s, c := l.s, l.s.c
	if s.remoteWindow == 0 || c.out.pending() >= c.cfg.OutLimit {
		l.stall()
		return Refused
	}
	id := s.nextDelivery
	s.nextDelivery++
	l.credit--
	l.deliveryCount++
	d.link, d.id, d.settled = l, id, settled
	if !settled {
		s.unsettledOut.add(id, d, &l.unsettled)
	}
	c.tag = [4]byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}
	c.sendFrame = wire.Transfer{
		Handle: l.handle, DeliveryID: id, HasDeliveryID: true, Tag: c.tag[:], HasTag: true,
		MessageFormat: format, HasMessageFormat: true, Settled: settled, HasSettled: settled,
	}
	if rest == nil && l.Fits(len(head)+len(body)) {
		s.remoteWindow--
		s.nextOut++
		start := len(c.out.buf)
		buf := wire.AppendTransferHeader(c.out.buf, s.local, &c.sendFrame)
		c.out.buf = wire.EndFrame(append(append(buf, head...), body...), start)
		if settled {
			d.link = nil
		}
		return Complete
	}
	l.beginOut(d, outRun{[2][]byte{head, body}, rest})
	if l.pushFrames(d, true) {
		l.endOut()
		return Complete
	}
	if !l.isDry {
		l.stall()
	}
	return Partial
}

// beginOut makes a delivery the one that the link sends in pieces; endOut has the link free for another.
func (l *Link) beginOut(d *OutDelivery, r outRun) {
	if l.left == nil {
		l.left = &outRun{}
	}
	l.out, *l.left = d, r
}

func (l *Link) endOut() {
	l.out = nil
	*l.left = outRun{}
}

// frameOverhead is what a transfer frame needs beyond its payload at most: header, and a transfer of our making.
const frameOverhead = 64

// pushFrames encodes as much of a delivery as window and room allow; true when it is whole. For the first frame
// c.sendFrame is filled in already.
func (l *Link) pushFrames(d *OutDelivery, first bool) bool {
	if l.left.rest != nil {
		return l.pushStream(d, first)
	}
	s, c, r := l.s, l.s.c, l.left
	room := int(min(c.peerMaxFrame, 1<<30)) - frameOverhead
	for s.remoteWindow > 0 && c.out.pending() < c.cfg.OutLimit {
		if !first {
			c.sendFrame = wire.Transfer{Handle: l.handle}
		}
		first = false
		left := len(r.parts[0]) + len(r.parts[1])
		c.sendFrame.More = left > room
		s.remoteWindow--
		s.nextOut++
		start := len(c.out.buf)
		buf := wire.AppendTransferHeader(c.out.buf, s.local, &c.sendFrame)
		buf = r.take(buf, room)
		c.out.buf = wire.EndFrame(buf, start)
		if left <= room {
			if d.settled {
				d.link = nil
			}
			return true
		}
	}
	return false
}

// take moves up to n bytes of what is left to dst.
func (r *outRun) take(dst []byte, n int) []byte {
	for i, p := range r.parts {
		k := min(len(p), n)
		dst = append(dst, p[:k]...)
		r.parts[i] = p[k:]
		n -= k
	}
	return dst
}

// stall notes that the link waits for window or room.
func (l *Link) stall() {
	if !l.isStalled {
		l.isStalled = true
		l.s.c.stalled = append(l.s.c.stalled, l)
	}
}

// continueSending is the link's turn after window or room opened.
func (l *Link) continueSending() {
	if l.gone {
		return
	}
	if l.s.remoteWindow == 0 {
		l.stall()
		return
	}
	if l.abortDue {
		l.abortDue = false
		l.sendAbort()
	}
	if d := l.out; d != nil {
		if !l.pushFrames(d, false) {
			if !l.isDry {
				l.stall()
			}
			return
		}
		l.endOut()
		l.s.c.h.Sent(d)
	}
	if !l.gone && !l.isStalled {
		l.s.c.h.Flow(l)
		l.finishDrain()
	}
}

// forgetOut takes a delivery from the records. Where it is half sent, an abort tells the peer (2.7.5).
func (l *Link) forgetOut(d *OutDelivery) {
	l.s.unsettledOut.remove(d.id, &l.unsettled)
	d.link = nil
	if l.out == d {
		l.endOut()
		if !l.gone {
			l.sendAbort()
		}
	}
}

// sendAbort tells the peer that what has begun to arrive is taken back: at once, or when it takes a transfer again.
func (l *Link) sendAbort() {
	l.isDry = false
	if l.s.remoteWindow == 0 {
		l.abortDue = true
		l.stall()
		return
	}
	l.s.nextOut++
	l.s.remoteWindow--
	t := wire.Transfer{Handle: l.handle, Aborted: true}
	l.s.c.sendPerformative(l.s.local, t.Append)
}

// Settle ends a delivery that the receiver has not answered: the receiver is told that it is settled (2.6.12), or aborted where it has
// not arrived. Nothing is reported of it.
func (d *OutDelivery) Settle() {
	l := d.link
	if l == nil || d.settled || l.out == d {
		d.Abort()
		return
	}
	id := d.id
	l.forgetOut(d)
	l.s.asSend.add(l.s, false, id, wire.StateNone, nil, true)
}

// Whole tells whether all of a delivery on the link is encoded.
func (l *Link) Whole(d *OutDelivery) bool { return l.out != d }

// Unsettled calls f with every delivery on the link that has no outcome, the oldest first. f must not end any.
func (l *Link) Unsettled(f func(*OutDelivery)) {
	if l.role == RoleSender {
		l.s.unsettledOut.of(&l.unsettled, f)
	}
}

// Abort takes back a delivery that is on the link; the peer is told where it has begun to arrive. Nothing is reported of it.
func (d *OutDelivery) Abort() {
	l := d.link
	if l == nil {
		return
	}
	if !d.settled {
		l.forgetOut(d)
		return
	}
	if l.out == d {
		l.endOut()
		d.link = nil
		if !l.gone {
			l.sendAbort()
		}
	}
}
