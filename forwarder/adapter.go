package forwarder

import (
	"errors"
	"hash/maphash"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// What the adapters of other protocols see of the node: the outlets of their schemes (Handle, Scheme, Outlet, Copy), and the way in for
// what their connections send (Inlet). Their connections ask for rows by commands (admin.Subscribe, admin.Withdraw).

// Handle has the hops of a scheme reached by s, as "relay-conn:7" by that of "relay-conn". Where the scheme is one of names ("event"), messages to its
// names go to s as they are, and s does what the table says of them. Call it before the node listens.
func (n *Node) Handle(scheme string, s Scheme) { n.schemes[scheme] = s }

// InletOptions say what an inlet is for. The zero value is usable.
type InletOptions struct {
	Account    *admin.Account // what may be sent to; nil is all plain names, and no scheme
	Source     any            // given back by Message.Source: an outlet knows by it where a message came from
	Own        string         // the scheme of the adapter's own hops: what it sends reaches them by their outlets, though they are neighbours
	Inside     string         // the scheme whose outlet the adapter is: for this inlet its names are looked up in the table
	MaxMessage int            // bytes of a message; 0 is 1 MiB, with Inside 16 MiB, the most
	Asides     bool           // what it sends is said by the way: what finds no row is nobody's loss, and not told among what is unrouted
	Window     int            // messages without an outcome that the adapter lets its connection have; 0 is Options.LinkCredit
}

// Inlet is the way in for the messages of one connection of another protocol. Its methods are not safe for concurrent use, as those of a
// connection's reader need not be. What it sends goes out in the order that it was sent in, to each hop.
//
// An inlet has no credit: the adapter stops reading its connection while Window messages have no outcome. What wants no outcome is
// dropped and counted at the hard limit of a hop.
type Inlet struct {
	Tag int64 // given back by Message.Tag of what is sent from now on

	c    *conn
	l    *inlink
	most int // bytes of a message
}

// NewInlet makes an inlet. It needs no closing: it is gone when what it sent has its outcomes.
func (n *Node) NewInlet(o InletOptions) *Inlet {
	if o.Account == nil {
		o.Account = &admin.Account{}
	}
	if o.Window == 0 {
		o.Window = n.options.LinkCredit
	}
	if o.MaxMessage == 0 {
		if o.MaxMessage = streamFrom; o.Inside != "" {
			o.MaxMessage = maxWhole // what has its place in an order is not left out of it
		}
	}
	c := &conn{n: n, account: o.Account}
	l := &inlink{c: c, inlet: true, asides: o.Asides, source: o.Source, inside: o.Inside, own: o.Own}
	l.window.Store(int32(o.Window))
	return &Inlet{c: c, l: l, most: min(o.MaxMessage, maxWhole)}
}

// ErrTooLarge refuses a message that an inlet does not take: they do not cut through.
var ErrTooLarge = errors.New("the message is too large")

// Send takes a whole AMQP message, which has its address as `to`, and works out who gets it. The copies leave with Flush, up to which
// payload must stay as it is. told gets the outcome once, from any goroutine and perhaps before Send returns: a lock of the inlet is held, so
// it may only enqueue, and Send must not be called with what it locks. Where told is nil the message is pre-settled.
//
// An address that matches nothing is rejected, amqp:not-found. An error says that the payload is no message, or too large: told is not
// called. Cost: that of a transfer without the AMQP, no allocation in steady state.
func (in *Inlet) Send(payload []byte, told func(Outcome)) error {
	return in.SendAs("", payload, told)
}

// SendAs is Send of a message that is looked up by another address than its own; empty is its own.
func (in *Inlet) SendAs(address string, payload []byte, told func(Outcome)) error {
	if len(payload) > in.most {
		return ErrTooLarge
	}
	c, l := in.c, in.l
	c.mu.Lock() // and not release: the clock and what is counted serve all that is sent up to Flush
	defer c.mu.Unlock()
	d := newDelivery(c, l, nil)
	d.Payload, d.Settled = payload, told == nil
	x := d.has()
	x.told, x.source, x.tag, x.as = told, l.source, in.Tag, address
	if err := wire.ScanHead(payload, &d.scan); err != nil {
		d.recycle()
		return err
	}
	d.findMarks()
	if !d.Settled {
		d.keep()
	}
	l.used++
	l.seq++
	d.seq, d.born, l.settled = l.seq, c.clock(), d.Settled
	l.countMessage()
	if d.lives(); d.until != 0 && d.until <= d.born {
		c.expired(d)
		return nil
	}
	c.forward(l, d)
	return nil
}

// Flush hands the copies of what was sent to their outlets.
func (in *Inlet) Flush() {
	in.c.lock()
	in.c.release()
	in.c.AfterInput(false)
}

// Source is what the inlet that the message came by was made with; nil for one that came over AMQP.
func (m *Message) Source() any { return m.had().source }

// Tag is what the inlet had as its Tag when the message was sent; 0 for one that came over AMQP.
func (m *Message) Tag() int64 { return m.had().tag }

// Keep makes the copy's message one that outlives Deliver: what an outlet keeps until later.
func (c *Copy) Keep() { c.in.keep() }

// Expires is when a copy that was not sent is given back (Released), and whether it is the message's life that ends then (Expired).
func (c *Copy) Expires() (at time.Time, life bool) {
	return time.Unix(0, c.expires), c.in.until != 0 && c.in.until <= c.expires
}

// Expired is the outcome of a copy whose message's life was over before it was sent.
func Expired() Outcome { return expiredOutcome() }

// Rejected is the outcome of a copy that its hop cannot take, and why.
func Rejected(condition wire.Symbol, text string) Outcome { return rejected(condition, text) }

// Property gives a property of the message as text: an application property, else a standard one by its name in the specification ("reply-to",
// "correlation-id"). ok is false where there is none, or one without a text.
func (m *Message) Property(name string) (text string, ok bool) { return m.property(name) }

// Data gives the body of a message whose body is one data section, aliasing the payload, and its content-type.
func (m *Message) Data() (data []byte, contentType string, ok bool) {
	var s wire.Sections
	if wire.ScanMessage(m.Payload, &s) != nil {
		return nil, "", false
	}
	if data, ok = wire.OneData(s.Body.Of(m.Payload)); !ok {
		return nil, "", false
	}
	if p := s.Properties; p.End > p.Start {
		contentType, _, _ = wire.StandardProperty(p.Of(m.Payload), "content-type")
	}
	return data, contentType, true
}

// SettleAll gives copies one outcome: as Settle of each, for less. The slice is the node's scratch until it returns.
func SettleAll(copies []*Copy, o Outcome) {
	if len(copies) == 0 {
		return
	}
	for _, c := range copies {
		c.outcome = o
	}
	copies[0].in.conn.node().settle(copies)
}

// Serial tells copies of different messages apart, and not those of one: an outlet may draw an id from it that all hops of the message share.
func (c *Copy) Serial() uint64 {
	return maphash.Comparable(planSeed, struct {
		link      *inlink
		seq, born uint64
	}{c.in.link, c.in.seq, uint64(c.in.born)})
}
