package forwarder

import (
	"unsafe"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
)

// firstPart takes the first of several parts of a message. It stays where it lies in the reader's buffer until the next flush: what comes right
// behind it, as the rest of a message that is little larger than a frame does, joins it there and not all of it has to be copied.
func (c *conn) firstPart(l *inlink, in *engine.InDelivery, payload []byte) {
	c.pickUp()
	l.stream = nil
	if len(payload) > streamFrom {
		l.parts = bigBuffer(2 * len(payload))
		c.part(l, in, payload, false)
		return
	}
	l.frame = max(l.frame, len(payload))
	c.lying, l.lies = l, payload
}

// nextPart takes a part of a message behind its first.
func (c *conn) nextPart(l *inlink, in *engine.InDelivery, payload []byte, last bool) {
	if c.lying == l {
		if last && joins(l.lies, payload) {
			whole := l.lies[:len(l.lies)+len(payload)]
			copy(whole[len(l.lies):], payload)
			l.frame = max(l.frame, len(payload))
			c.lying, l.lies = nil, nil
			c.message(l, in, whole, false, nil)
			return
		}
		c.pickUp()
	}
	c.part(l, in, payload, last)
}

// pickUp copies the part that lies in the reader's buffer. Called under the lock.
func (c *conn) pickUp() {
	if l := c.lying; l != nil {
		l.parts = append(bigBuffer(2*len(l.lies)), l.lies...)
		c.lying, l.lies = nil, nil
	}
}

// dropParts forgets what has come of a message. Called under the lock.
func (l *inlink) dropParts() {
	if l.c.lying == l {
		l.c.lying = nil
	}
	l.lies, l.parts = nil, nil
}

// frameHead is more than the head of a frame that goes on with a message, and less than those of two frames and a message between them.
const frameHead = 40

// joins reports whether b lies in memory right behind a, but for the head of a frame, and may be moved to a's end: nothing else is there.
func joins(a, b []byte) bool {
	gap := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(a))) - uintptr(len(a))
	return gap <= frameHead && cap(a)-len(a) >= int(gap)+len(b)
}
