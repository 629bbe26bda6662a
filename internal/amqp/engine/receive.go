package engine

import (
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// InDelivery is a delivery that the peer sends. The handler keeps an unsettled one and answers it by Settle.
type InDelivery struct {
	Context any    // the handler's own
	ID      uint32 // delivery-id
	Format  uint32 // message-format
	Tag     []byte // valid while First is true
	Settled bool   // the sender has settled it: no answer is wanted
	First   bool   // inside Transfer: this is the first part

	link    *Link
	outcome bool // our outcome is out; second mode: the sender's settlement is awaited
}

// Link is the link it came by; nil when the delivery is over.
func (d *InDelivery) Link() *Link { return d.link }

func (c *Conn) getIn() *InDelivery {
	if n := len(c.freeIn); n > 0 {
		d := c.freeIn[n-1]
		c.freeIn = c.freeIn[:n-1]
		return d
	}
	return &InDelivery{}
}

func (c *Conn) putIn(d *InDelivery) {
	*d = InDelivery{}
	if len(c.freeIn) < 4096 {
		c.freeIn = append(c.freeIn, d)
	}
}

// handleTransfer takes one transfer frame (AMQP 1.0 part 2, 2.7.5).
func (c *Conn) handleTransfer(ch uint16, body []byte) error {
	t := &c.transfer
	payload, err := t.Parse(body)
	if err != nil {
		return decodeErr("transfer", err)
	}
	s, err := c.known(ch, "transfer")
	if s == nil {
		return err
	}
	if s.nextIn == s.most {
		return sessionErr(wire.CondWindowViolation, "transfer beyond the incoming window of %d", c.cfg.Window)
	}
	s.nextIn++
	if s.opens() {
		s.wantFlow = true
		s.touch()
	}
	l := s.byHandle.get(t.Handle)
	if l == nil {
		return sessionErr(wire.CondUnattachedHandle, "transfer on handle %d, which is not attached", t.Handle)
	}
	if l.in == nil && !l.skipping {
		// Sequence is checked for links that are going away as well: the ids are the session's.
		if err := s.checkDeliveryID(t); err != nil {
			return err
		}
	}
	if l.gone {
		l.discard(t)
		return nil
	}
	if err := l.handleTransfer(t, payload); err != nil {
		l.Detach(err)
		l.discard(t)
	}
	return nil
}

// discard keeps track of where a delivery ends on a link that is gone, so that ids stay in step.
func (l *Link) discard(t *wire.Transfer) {
	if t.More && !t.Aborted {
		l.in = &l.running().scratch
	} else {
		l.in = nil
	}
}

// checkDeliveryID holds the first transfer of each delivery to the session's sequence (2.6.12).
func (s *Session) checkDeliveryID(t *wire.Transfer) error {
	if !t.HasDeliveryID {
		return sessionErr(wire.CondInvalidField, "transfer: the first of a delivery has no delivery-id")
	}
	if s.hasDelivery && t.DeliveryID != s.expectDelivery {
		return sessionErr(wire.CondInvalidField, "transfer: delivery-id %d where %d is next", t.DeliveryID, s.expectDelivery)
	}
	s.hasDelivery = true
	s.expectDelivery = t.DeliveryID + 1
	return nil
}

func (l *Link) handleTransfer(t *wire.Transfer, payload []byte) *LinkError {
	if l.role != RoleReceiver {
		return linkErr(wire.CondNotAllowed, "transfer from the receiving end")
	}
	if l.skipping {
		l.skipping = t.More && !t.Aborted
		return nil
	}
	c, h := l.s.c, l.s.c.h
	d := l.in
	if d == nil {
		if !l.answered || int32(l.granted-l.deliveryCount) <= 0 {
			return linkErr(wire.CondTransferLimitExceeded, "transfer without credit")
		}
		if len(t.Tag) > 32 || !t.HasTag {
			return linkErr(wire.CondInvalidField, "transfer: delivery-tag of 1 to 32 bytes wanted on the first of a delivery")
		}
		if l.deliveryCount++; t.Resume {
			l.skip(t)
			return nil
		}
		l.credit -= min(l.credit, 1)
		l.running().size = 0
		d = l.begin(t)
	} else if t.HasDeliveryID && t.DeliveryID != d.ID {
		return linkErr(wire.CondInvalidField, "transfer: delivery-id %d inside delivery %d", t.DeliveryID, d.ID)
	}
	d.Settled = d.Settled || t.Settled
	if t.Aborted {
		l.in = nil
		if d.outcome {
			l.endAnswered(d)
			return nil
		}
		h.Aborted(d)
		l.overIn(d)
		return nil
	}
	l.inRun.size += uint64(len(payload))
	if limit := c.cfg.MaxMessageSize; limit > 0 && l.inRun.size > limit {
		return linkErr(wire.CondMessageSizeExceeded, "message of more than %d bytes", limit)
	}
	if !t.More {
		l.in = nil
	}
	if d.outcome { // answered before it has arrived: the rest is thrown away
		if !t.More && d.Settled {
			l.endAnswered(d)
		}
		return nil
	}
	h.Transfer(d, payload, !t.More)
	if l.gone {
		l.discard(t)
		return nil
	}
	d.First = false
	if !t.More && d.Settled && d.link != nil {
		l.overIn(d)
	}
	return nil
}

// skip ignores a delivery of an older link, of which nothing is kept here (2.7.5). Its credit is given back.
func (l *Link) skip(t *wire.Transfer) {
	l.skipping = t.More && !t.Aborted
	l.setCredit(l.credit)
	l.touchFlow()
}

// begin makes the record of a delivery. A settled one that is whole is never kept, so the link's own record serves.
func (l *Link) begin(t *wire.Transfer) *InDelivery {
	var d *InDelivery
	if t.Settled {
		d = &l.inRun.scratch
		*d = InDelivery{}
	} else {
		d = l.s.c.getIn()
		l.s.unsettledIn.add(t.DeliveryID, d, &l.unsettled)
	}
	d.ID, d.Format, d.Tag, d.link, d.First = t.DeliveryID, t.MessageFormat, t.Tag, l, true
	l.in = d
	return d
}

// endAnswered ends a delivery that was answered before it had arrived, and that its sender has settled.
func (l *Link) endAnswered(d *InDelivery) {
	if l.inRun != nil && d == &l.inRun.scratch {
		d.link = nil
		return
	}
	l.forgetIn(d)
	l.s.c.h.RemoteSettled(d, nil)
	l.s.c.putIn(d)
}

// overIn drops the record of a delivery that nobody keeps.
func (l *Link) overIn(d *InDelivery) {
	if d == &l.inRun.scratch {
		d.link = nil
		return
	}
	l.forgetIn(d)
	l.s.c.putIn(d)
}

func (l *Link) forgetIn(d *InDelivery) {
	l.s.unsettledIn.remove(d.ID, &l.unsettled)
	d.link = nil
}

// SettleAs answers an unsettled delivery with a simple outcome: accepted or released.
func (d *InDelivery) SettleAs(kind wire.StateKind) { d.settle(kind, nil) }

// Settle answers an unsettled delivery with an outcome of any kind.
func (d *InDelivery) Settle(state *wire.State) {
	switch {
	case state.Kind == wire.Accepted || state.Kind == wire.Released:
		d.settle(state.Kind, nil)
	default:
		d.settle(state.Kind, state.Append(nil))
	}
}

// Progress tells the sender how much has been received, by a state that is no outcome, as encoded.
func (d *InDelivery) Progress(state []byte) {
	if l := d.link; l != nil && !d.outcome && !l.gone {
		l.s.asRecv.add(l.s, true, d.ID, wire.Received, state, false)
	}
}

// settle writes the outcome (batched with its neighbours where they agree). In mode first the delivery is settled with
// it; in mode second the sender settles later (2.6.12, 2.8.3).
func (d *InDelivery) settle(kind wire.StateKind, raw []byte) {
	l := d.link
	if l == nil || d.outcome || l.gone {
		return
	}
	second := l.rcvMode == ReceiverSecond
	l.s.asRecv.add(l.s, true, d.ID, kind, raw, !second)
	if second {
		d.outcome = true
		return
	}
	if d == l.in { // answered before it has arrived: the rest is thrown away
		l.in = &l.running().scratch
		*l.in = InDelivery{ID: d.ID, Settled: true, link: l, outcome: true}
	}
	l.forgetIn(d)
	l.s.c.putIn(d)
}
