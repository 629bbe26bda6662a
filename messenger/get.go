package messenger

import (
	"context"
	"errors"
	"sync"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// Delivery is a message that came, and the way to say what became of it. It stays unsettled, and holds one of its link's prefetch
// credits, until one of Accept, Reject, Release and Modify. These may be called from any goroutine, once; they say [ErrSettled] after
// that, and [ErrLost] where the link has gone meanwhile. For a message that its sender sent settled they do nothing.
type Delivery struct {
	// Message is the message. It is the application's to change.
	Message *Message

	// Set at construction, never changed.
	raw      []byte
	link     *inlink
	sub      *Subscription
	listener *Listener
	target   string
	isReply  bool

	// Set by Get, for Reply, whatever the application does with Message.
	replyTo     string
	correlation any

	// Guarded by the lock of the link's connection.
	in      *engine.InDelivery // nil when there is nothing to settle any more
	settled bool               // no outcome is wanted
	lost    bool               // the link has gone
	done    bool               // has its outcome, or was given out settled
}

// Subscription is what the message came by; nil where a peer sent it to a listener, or it is a reply.
func (d *Delivery) Subscription() *Subscription { return d.sub }

// Listener is where a peer that sent the message is connected; nil where it came by a subscription, or as a reply.
func (d *Delivery) Listener() *Listener { return d.listener }

// IsReply tells that the message came to an address that stood for "~" in a message of ours.
func (d *Delivery) IsReply() bool { return d.isReply }

// LinkTarget is the address that the sending peer's link is for; empty where it has none, and where we asked for the link.
func (d *Delivery) LinkTarget() string { return d.target }

// Raw is the message as it came, byte for byte, for Message.Raw. It is not to be changed: Message.Body may be a part of it.
func (d *Delivery) Raw() []byte { return d.raw }

// Settled tells that the sender wants no outcome.
func (d *Delivery) Settled() bool {
	d.link.c.c.Lock()
	defer d.link.c.c.Mutex().Unlock()
	return d.settled
}

// Accept says that the message is taken.
func (d *Delivery) Accept() error { return d.settle(&wire.State{Kind: wire.Accepted}) }

// Release gives the message back, as if it had never come.
func (d *Delivery) Release() error { return d.settle(&wire.State{Kind: wire.Released}) }

// Reject says that the message will never be taken, and why. An [*Error] goes to the sender as it is. Of any other error the text
// goes, with the condition amqp:precondition-failed; nil gives no reason.
func (d *Delivery) Reject(reason error) error {
	s := &wire.State{Kind: wire.Rejected}
	var e *Error
	switch {
	case errors.As(reason, &e):
		s.Error = &wire.Error{Condition: wire.Symbol(e.Condition), Description: e.Description}
		if len(e.Info) > 0 {
			s.Error.Info = mapOf(e.Info, func(k string) any { return wire.Symbol(k) })
		}
	case reason != nil:
		s.Error = &wire.Error{Condition: wire.CondPreconditionFailed, Description: reason.Error()}
	}
	return d.settle(s)
}

// Modification is what Modify says of a message.
type Modification struct {
	DeliveryFailed    bool           // count it as a failed attempt
	UndeliverableHere bool           // do not send it here again
	Annotations       map[string]any // to be merged into the message's
}

// Modify gives the message back, changed.
func (d *Delivery) Modify(x Modification) error {
	s := &wire.State{Kind: wire.Modified, DeliveryFailed: x.DeliveryFailed, UndeliverableHere: x.UndeliverableHere}
	if len(x.Annotations) > 0 {
		s.Annotations = mapOf(x.Annotations, func(k string) any { return wire.Symbol(k) })
	}
	return d.settle(s)
}

func (d *Delivery) settle(s *wire.State) error {
	c := d.link.c.c
	c.Lock()
	defer c.Release()
	switch {
	case d.done && !d.settled:
		return ErrSettled
	case d.settled:
		d.finish()
		return nil
	case d.lost:
		return ErrLost
	}
	in := d.in
	d.in, in.Context = nil, nil
	if s.Kind == wire.Accepted || s.Kind == wire.Released {
		in.SettleAs(s.Kind)
	} else {
		in.Settle(s)
	}
	d.finish()
	return nil
}

// finish gives the credit back, once. Called under the lock.
func (d *Delivery) finish() {
	if !d.done {
		d.done = true
		d.link.held--
		d.link.grant()
	}
}

// taken tells whether the application may have the delivery. One whose link has gone it may not: it will be sent again.
func (d *Delivery) taken() bool {
	c := d.link.c.c
	c.Lock()
	defer c.Release()
	if d.lost {
		return false
	}
	if d.settled {
		d.finish() // nobody will settle it
	}
	return true
}

// Get waits for the next message: of a subscription, from a peer at a listener, or a reply. The error is that of ctx, or [ErrClosed].
//
// What cannot be decoded is rejected with amqp:decode-error and passed over.
func (m *Messenger) Get(ctx context.Context) (*Delivery, error) {
	for {
		d, err := m.in.pop(ctx)
		if err != nil {
			return nil, err
		}
		if !d.taken() {
			continue
		}
		if d.Message, err = decode(d.raw); err != nil {
			m.log.Warn("message rejected", "error", err)
			d.Reject(&Error{Condition: wire.CondDecodeError, Description: err.Error()})
			continue
		}
		d.Message.Settled = d.Settled()
		d.replyTo, d.correlation = d.Message.ReplyTo, d.Message.CorrelationID
		if d.correlation == nil {
			d.correlation = d.Message.MessageID
		}
		return d, nil
	}
}

// inlink is a link by which messages come in.
type inlink struct {
	// Set at construction, never changed.
	c        *conn
	prefetch int
	sub      *subLink  // of a subscription
	by       *Listener // a peer attached it
	target   string    // the peer's
	isReply  bool

	// Guarded by the connection's lock.
	l       *engine.Link
	address string // isReply: as granted; empty before
	held    int    // deliveries that are not settled
	parts   []byte // of a message that comes in several frames
}

// grant gives the link the credit that there is room for, when a quarter of all is free: one flow frame serves many messages.
func (l *inlink) grant() {
	if l.l == nil || l.l.Gone() {
		return
	}
	free, have := l.prefetch-l.held, int(l.l.Credit())
	if free > have && (have == 0 || free-have >= (l.prefetch+3)/4) {
		l.l.Grant(uint32(free))
	}
}

// attached: the peer took a link of ours.
func (l *inlink) attached(el *engine.Link) {
	address := ""
	if s := el.Remote().Source; s != nil {
		address = s.Address
	}
	switch {
	case l.sub != nil:
		l.sub.attached(address)
	case l.isReply:
		l.replyGranted(address)
	}
}

// detached: the link is gone. Its deliveries were reported dropped.
func (l *inlink) detached(err error) {
	l.parts = nil
	switch {
	case l.sub != nil:
		l.sub.detached(l.c, err)
	case l.isReply:
		l.c.replyGone(l, err)
	}
	l.l = nil
}

// inbox is what came and was not got yet. Its length is bounded by the credit of the links.
type inbox struct {
	wake chan struct{} // has something when there is something to take

	mu     sync.Mutex // guards what follows; a leaf
	items  []*Delivery
	first  int
	closed bool
}

func (b *inbox) push(ds []*Delivery) {
	b.mu.Lock()
	if !b.closed {
		b.items = append(b.items, ds...)
	}
	b.mu.Unlock()
	b.signal()
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *inbox) pop(ctx context.Context) (*Delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			b.signal() // the next one waits, too
			return nil, ErrClosed
		}
		if b.first < len(b.items) {
			d := b.items[b.first]
			b.items[b.first] = nil
			b.first++
			more := b.first < len(b.items)
			if !more {
				b.items, b.first = b.items[:0], 0
			} else if b.first > 1024 && b.first > len(b.items)/2 {
				n := copy(b.items, b.items[b.first:])
				clear(b.items[n:])
				b.items, b.first = b.items[:n], 0
			}
			b.mu.Unlock()
			if more {
				b.signal()
			}
			return d, nil
		}
		b.mu.Unlock()
		select {
		case <-b.wake:
		case <-ctx.Done():
		}
	}
}

func (b *inbox) close() {
	b.mu.Lock()
	b.closed = true
	b.items, b.first = nil, 0
	b.mu.Unlock()
	b.signal()
}
