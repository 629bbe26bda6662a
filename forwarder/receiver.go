package forwarder

import (
	"fmt"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// receiver is a link by which a client takes messages: the outlet link:ID. Its attach is a row, gone with the link.
type receiver struct {
	line
	id      uint64
	origin  string
	address string
	private bool // the address was made for it
}

// capQueue is the source capability of competing consumers.
const capQueue = wire.Symbol("queue")

// capTopic is that of receivers that get a copy each, which all do that do not share.
const capTopic = wire.Symbol("topic")

// attachReceiver answers a peer that wants to receive: a row leads its address to the link.
func (c *conn) attachReceiver(l *engine.Link) {
	src := l.Remote().Source
	if src == nil {
		l.Refuse(&engine.LinkError{Condition: wire.CondInvalidField, Text: "a receiver needs a source"})
		return
	}
	address := src.Address
	switch {
	case src.Dynamic:
		address = c.n.newReplyAddress()
	case address == managementAddress && l.Remote().Target != nil && l.Remote().Target.Address != "":
		address = l.Remote().Target.Address // answers of the door, by the name that requests give in reply-to
	case address == "":
		l.Refuse(&engine.LinkError{Condition: wire.CondInvalidField, Text: "a receiver needs a source address, or a dynamic source"})
		return
	}
	private := src.Dynamic || address != src.Address
	if err := c.mayReceive(address, private); err != nil {
		l.Refuse(err)
		return
	}
	r := &receiver{id: c.n.nextID.Add(1), address: address, private: private}
	r.origin = fmt.Sprintf("link:%d", r.id)
	r.line = line{n: c.n, mu: c.c.Mutex(), c: c, l: l, hop: &routetable.Hop{Scheme: "link", Name: fmt.Sprint(r.id), HasName: true, Text: r.origin, Key: r.origin}}
	l.Context = r
	answer := answerTo(src, address)
	c.n.addReceiver(r)
	if err := c.n.subscribe(c.caller, address, r.origin, pickOf(src)); err != nil {
		c.n.removeReceiver(r)
		l.Context = nil
		l.Refuse(&engine.LinkError{Condition: wire.CondNotAllowed, Text: err.Error()})
		return
	}
	c.n.count.by.links[linkReceiver].Add(1)
	l.Accept(answer, l.Remote().Target, 0, engine.AttachOptions{})
}

// answerTo gives the source that is there, whatever more was asked for (AMQP 1.0 part 3, 3.5.3): nothing is durable, all goes with the
// link, and there are no filters.
func answerTo(src *wire.Source, address string) *wire.Source {
	answer := &wire.Source{
		Address: src.Address, HasAddress: true, ExpiryPolicy: wire.ExpireLinkDetach,
		DistributionMode: src.DistributionMode, Outcomes: src.Outcomes,
	}
	if src.Dynamic {
		answer.Address, answer.Dynamic = address, true
		answer.DynamicNodeProperties = wire.Map{{Key: wire.Symbol("lifetime-policy"), Value: wire.Described{Descriptor: uint64(wire.CodeDeleteOnClose), Value: wire.List{}}}}
	}
	for _, s := range src.Capabilities {
		if s == capQueue || s == capTopic {
			answer.Capabilities = append(answer.Capabilities, s)
		}
	}
	return answer
}

// pickOf tells how a receiver shares its address: every receiver gets a copy, unless it asks for a queue.
func pickOf(src *wire.Source) routetable.Pick {
	if src.DistributionMode == "move" {
		return routetable.PickAny
	}
	for _, s := range src.Capabilities {
		if s == capQueue {
			return routetable.PickAny
		}
	}
	return routetable.PickAll
}

// close takes the receiver's rows away and gives back what it did not take.
func (r *receiver) close() {
	r.line.close()
	r.n.removeReceiver(r)
	if _, err := r.n.core.Do(r.c.caller, admin.Withdraw{Origin: r.origin}); err != nil {
		r.n.log.Error("withdraw failed", "origin", r.origin, "error", err)
	}
}

// dropped: the link went with a copy on it. Nobody can tell whether the receiver had it, so it is not sent again here.
func (ln *line) dropped(cp *Copy) {
	if ln.dialled != nil {
		ln.again(cp)
		return
	}
	if cp.Message.Settled {
		cp.fate = fateGone
		ln.over(cp, Outcome{Kind: wire.Released})
		return
	}
	ln.over(cp, modifiedFailed())
}
