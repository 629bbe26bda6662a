package engine

import (
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// dispositions holds back a run of like outcomes so that one frame tells of all of them (AMQP 1.0 part 2, 2.7.6).
type dispositions struct {
	active  bool
	settled bool
	kind    wire.StateKind
	first   uint32
	last    uint32
}

// add notes one delivery's outcome. Outcomes with a body (raw) are written at once, after what was held back.
func (p *dispositions) add(s *Session, asReceiver bool, id uint32, kind wire.StateKind, raw []byte, settled bool) {
	if p.active && raw == nil && p.kind == kind && p.settled == settled {
		if id == p.last+1 {
			p.last = id
			return
		}
		if id == p.first-1 {
			p.first = id
			return
		}
	}
	p.flush(s, asReceiver)
	if raw != nil {
		writeDisposition(s, asReceiver, id, id, raw, settled)
		return
	}
	*p = dispositions{active: true, settled: settled, kind: kind, first: id, last: id}
	s.touch()
}

func (p *dispositions) flush(s *Session, asReceiver bool) {
	if !p.active {
		return
	}
	p.active = false
	writeDisposition(s, asReceiver, p.first, p.last, simpleState(p.kind), p.settled)
}

// The two outcomes without a body, as slices made once. Nobody writes to them.
var (
	acceptedState = []byte(wire.EncodedAccepted)
	releasedState = []byte(wire.EncodedReleased)
)

// simpleState encodes an outcome without a body; nil for none.
func simpleState(k wire.StateKind) []byte {
	switch k {
	case wire.Accepted:
		return acceptedState
	case wire.Released:
		return releasedState
	}
	return nil
}

func writeDisposition(s *Session, asReceiver bool, first, last uint32, state []byte, settled bool) {
	d := &s.c.disposition
	*d = wire.Disposition{Role: wire.Role(asReceiver), First: first, Last: last, Settled: settled, State: state}
	buf, start := wire.BeginFrame(s.c.out.buf, wire.FrameAMQP, s.local)
	buf = wire.EndFrame(d.Append(buf), start)
	if uint32(len(buf)-start) > s.c.peerMaxFrame { // too much to say for the peer's frames: its kind and condition will do
		d.State = shortened(state)
		buf, start = wire.BeginFrame(buf[:start], wire.FrameAMQP, s.local)
		buf = wire.EndFrame(d.Append(buf), start)
	}
	s.c.out.buf = buf
}

// shortened gives an outcome without texts and maps.
func shortened(state []byte) []byte {
	var st wire.State
	if st.Parse(state) != nil {
		return nil
	}
	st.Annotations = nil
	if st.Error != nil {
		st.Error = &wire.Error{Condition: st.Error.Condition}
	}
	return st.Append(nil)
}

// handleDisposition takes the peer's word on a range of deliveries. The work is bounded by what is unsettled here.
func (c *Conn) handleDisposition(ch uint16, body []byte) error {
	var d wire.Disposition
	if _, err := d.Parse(body); err != nil {
		return decodeErr("disposition", err)
	}
	s, err := c.known(ch, "disposition")
	if s == nil {
		return err
	}
	if int32(d.Last-d.First) < 0 {
		return sessionErr(wire.CondInvalidField, "disposition: last %d is before first %d", d.Last, d.First)
	}
	kind := wire.PeekState(d.State)
	if d.Role == RoleReceiver {
		if !d.Settled && !terminal(kind) {
			c.progress(s, &d, kind) // nothing is decided yet
			return nil
		}
		s.unsettledOut.each(d.First, d.Last, func(id uint32, out *OutDelivery) {
			if id%warmed == 0 {
				s.warm(id, d.Last)
			}
			s.outcome(id, out, kind, d.State, d.Settled)
		})
		return nil
	}
	if d.Settled {
		s.unsettledIn.each(d.First, d.Last, func(_ uint32, in *InDelivery) { s.remoteSettled(in, d.State) })
	}
	return nil
}

// progress passes on how much the receiver has.
func (c *Conn) progress(s *Session, d *wire.Disposition, kind wire.StateKind) {
	h, ok := c.h.(Progress)
	if !ok || kind != wire.Received {
		return
	}
	state := d.State
	s.unsettledOut.each(d.First, d.Last, func(_ uint32, out *OutDelivery) { h.Received(out, state) })
}

// warmed is how many deliveries of a range are touched before they are ended. They were sent a while ago and are not in the processor's
// cache: touched one after the other, they come into it together, and so do their links.
const warmed = 16

func (s *Session) warm(id, last uint32) {
	w := &s.unsettledOut
	for n := uint32(1); n < min(warmed, last-id+1, w.n); n++ {
		if d := w.ring[(id+n)&w.mask()].v; d != nil {
			s.warmth += d.id
		}
	}
	for n := uint32(1); n < min(warmed, last-id+1, w.n); n++ {
		if d := w.ring[(id+n)&w.mask()].v; d != nil {
			s.warmth += d.link.credit
		}
	}
}

func terminal(k wire.StateKind) bool { return k != wire.StateNone && k != wire.Received }

// outcome ends a delivery of ours. Where the receiver left it to us to settle (mode second), we do.
func (s *Session) outcome(id uint32, d *OutDelivery, kind wire.StateKind, raw []byte, settled bool) {
	l := d.link
	l.forgetOut(d)
	if !settled {
		s.asSend.add(s, false, id, kind, withBody(kind, raw), true)
	}
	s.c.h.Settled(d, kind, raw)
}

// withBody gives the encoded state of an outcome that cannot be written from its kind alone.
func withBody(kind wire.StateKind, raw []byte) []byte {
	if kind == wire.Accepted || kind == wire.Released {
		return nil
	}
	return raw
}

func (s *Session) remoteSettled(d *InDelivery, state []byte) {
	l := d.link
	if d == l.in { // settled before it has arrived whole: what is to come is settled too
		d.Settled = true
		return
	}
	l.forgetIn(d)
	s.c.h.RemoteSettled(d, state)
	s.c.putIn(d)
}
