package engine

import "github.com/fingerpost/fingerpost/internal/amqp/wire"

// Source gives what follows of a message that is sent while it is still coming in. It is asked under the owner's lock.
type Source interface {
	// Ready tells how many of the next n bytes are there, and whether the message goes on behind these.
	Ready(n int) (k int, more bool)

	// Append appends k bytes that are there to dst.
	Append(dst []byte, k int) []byte
}

// SendStream is Send for a message that is not all there yet: rest follows head. Whoever has more of it calls Continue.
func (l *Link) SendStream(d *OutDelivery, settled bool, format uint32, head []byte, rest Source) SendResult {
	return l.send(d, settled, format, head, nil, rest)
}

// Continue goes on with a delivery that was sent as far as it had come.
func (l *Link) Continue(d *OutDelivery) {
	if l.out == d && l.isDry {
		l.isDry = false
		l.continueSending()
	}
}

// pushStream is pushFrames for a delivery with more to come. Where the rest has not come yet, the link is dry.
func (l *Link) pushStream(d *OutDelivery, first bool) (whole bool) {
	s, c, r := l.s, l.s.c, l.left
	room := int(min(c.peerMaxFrame, 1<<30)) - frameOverhead
	l.isDry = false
	for s.remoteWindow > 0 && c.out.pending() < c.cfg.OutLimit {
		head := min(len(r.parts[0]), room)
		n, more := r.rest.Ready(room - head)
		if more && n == 0 && head == 0 {
			l.isDry = true
			return false
		}
		if !first {
			c.sendFrame = wire.Transfer{Handle: l.handle}
		}
		first = false
		c.sendFrame.More = more || head < len(r.parts[0])
		s.remoteWindow--
		s.nextOut++
		start := len(c.out.buf)
		buf := wire.AppendTransferHeader(c.out.buf, s.local, &c.sendFrame)
		buf = append(buf, r.parts[0][:head]...)
		r.parts[0] = r.parts[0][head:]
		buf = r.rest.Append(buf, n)
		c.out.buf = wire.EndFrame(buf, start)
		if !c.sendFrame.More {
			if d.settled {
				d.link = nil
			}
			return true
		}
	}
	return false
}
