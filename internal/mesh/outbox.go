package mesh

import (
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
)

// outbox is what is on its way to a twin: publishes, in order. One with QoS 1 or 2 is sent, and sent again, until it is acknowledged or given up; those
// behind it wait (rembus.md, 7.1). It is pure: the clock is an argument.
type outbox struct {
	waiting []parcel // the first is on its way, where tries > 0
	bytes   int
	tries   int
	again   time.Time // when the first is sent again, or given up
}

// parcel is a publish to be sent.
type parcel struct {
	frame []byte // as it goes out, CBOR
	id    ID
	qos   byte
	copy  *forwarder.Copy // whose outcome the ack is; nil: nobody asks
	stamp int64           // as it is kept (rest.go); 0: it is not
	kin   bool            // it is for a router of our kind
	sent  bool            // it may have been, by a connection that is over
}

// policy is how often a publish is sent.
type retryPolicy struct {
	timeout time.Duration // for an ack
	retries int
}

// push adds a publish. It tells whether it can go at once: there is nothing before it.
func (o *outbox) push(p parcel) bool {
	o.waiting = append(o.waiting, p)
	o.bytes += len(p.frame)
	return len(o.waiting) == 1
}

// next gives the next publish to be sent now, nil where the one on its way is waited for. One without QoS is done with.
func (o *outbox) next(now time.Time, r retryPolicy) *parcel {
	if len(o.waiting) == 0 || o.tries > 0 {
		return nil
	}
	p := o.waiting[0]
	if p.qos == 0 {
		o.drop()
		return &p
	}
	o.tries, o.again, o.waiting[0].sent = 1, now.Add(r.timeout), true
	return &p
}

// drop takes the first away.
func (o *outbox) drop() {
	o.bytes -= len(o.waiting[0].frame)
	o.waiting[0] = parcel{}
	o.waiting, o.tries, o.again = o.waiting[1:], 0, time.Time{}
	if len(o.waiting) == 0 {
		o.waiting = nil
	}
}

// acked takes an ack: what it acknowledges is done with. Another's is nobody's, as that of one that was given up.
func (o *outbox) acked(id ID) (p parcel, ok bool) {
	if o.tries == 0 || o.waiting[0].id.bare() != id.bare() {
		return p, false
	}
	p = o.waiting[0]
	o.drop()
	return p, true
}

// remove takes the first of an id away, wherever it is.
func (o *outbox) remove(id ID) {
	for i := range o.waiting {
		if o.waiting[i].id.bare() == id.bare() {
			o.bytes -= len(o.waiting[i].frame)
			o.waiting = append(o.waiting[:i], o.waiting[i+1:]...)
			return
		}
	}
}

// forget takes away what is kept elsewhere since a time, and gives it.
func (o *outbox) forget(since int64) (gone []parcel) {
	var left []parcel
	for _, p := range o.waiting {
		if p.copy != nil || p.stamp == 0 || p.stamp < since {
			left = append(left, p)
			continue
		}
		gone = append(gone, p)
		o.bytes -= len(p.frame)
	}
	o.waiting = left
	o.interrupted()
	return gone
}

// due says what is to be done now: send the first again, or give it up.
func (o *outbox) due(now time.Time, r retryPolicy) (again, gaveUp *parcel) {
	if o.tries == 0 || now.Before(o.again) {
		return nil, nil
	}
	p := o.waiting[0]
	if o.tries > r.retries {
		o.drop()
		return nil, &p
	}
	o.tries++
	o.again = now.Add(r.timeout)
	return &p, nil
}

// interrupted has the first be sent anew, as when the twin is back.
func (o *outbox) interrupted() { o.tries, o.again = 0, time.Time{} }

// clear takes everything away.
func (o *outbox) clear() []parcel {
	all := o.waiting
	*o = outbox{}
	return all
}
