package forwarder

import (
	"container/list"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// receiver is a link by which a client takes messages: the outlet link:ID. Its attach is a row, gone with the link.
type receiver struct {
	line
	id         uint64
	address    string
	private    bool // the address was made for it
	isPattern  bool // the address is a pattern
	pick       routetable.Pick
	isAnswered bool // a client took the link that we attached
	isReturn   bool // attached by us, for the replies to a client's container id
	row        rowState
	paths      *list.List // of *path, that lead by it, of another node; guarded by replies.mu
}

// rowState tells where the row of a receiver is.
type rowState uint8

const (
	rowWanted rowState = iota // on conn.rows
	rowThere
	rowOver // it is not to be, or to be withdrawn
)

func (r *receiver) origin() string { return "link:" + strconv.FormatUint(r.id, 10) }

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
	if c.peerID != "" && address == replyPattern(c.peerID) {
		c.attachReplies(l)
		return
	}
	r := &receiver{address: address, private: src.Dynamic || address != src.Address, pick: pickOf(src)}
	shares := c.shared && !r.private && sharesByDefault(src, address)
	if shares {
		r.pick = routetable.PickAny
	}
	r.isPattern = !r.private && slices.Contains(src.Capabilities, capPattern)
	if err := c.mayReceive(r); err != nil {
		l.Refuse(err)
		return
	}
	if err := c.n.checkReceivable(r); err != nil {
		l.Refuse(&engine.LinkError{Condition: wire.CondNotAllowed, Text: err.Error()})
		return
	}
	r.id = c.n.nextID.Add(1)
	r.line = line{n: c.n, mu: c.c.Mutex(), c: c, l: l}
	var begins *beginning
	if scheme, name := c.n.replayer(address); scheme != nil {
		refusal := checkOrdered(address, scheme, name)
		if refusal == nil {
			begins, refusal = c.replayAsked(l, scheme, name, address)
		}
		if refusal != nil {
			l.Refuse(refusal)
			return
		}
		r.follow(scheme, l)
	}
	l.Context = r
	c.n.count.by.links[linkReceiver].Add(1)
	if begins != nil {
		begins.r = r
		c.n.inTurn(begins.begin)
		return
	}
	c.rows = append(c.rows, r)
	answer := answerTo(src, address)
	if r.isPattern {
		answer.Capabilities = append(answer.Capabilities, capPattern)
	}
	if shares {
		answer.DistributionMode = "move"
	}
	l.Accept(answer, l.Remote().Target, 0, engine.AttachOptions{}) // leaves with the next flush, when the row is there
}

// answerTo gives the source that is there, whatever more was asked for (AMQP 1.0 part 3, 3.5.3): nothing is durable, all goes with the
// link, and there are no filters but that of a replay.
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

// checkReceivable says why an address cannot be received from.
func (n *Node) checkReceivable(r *receiver) error {
	switch {
	case r.address == routetable.NullAddress: // a row that leads there discards: a receiver would wait for ever
		return errors.New("nothing is received from null: it is where rows discard")
	case !r.isPattern:
		if pattern := r.pattern(); pattern == "" || len(pattern) > routetable.MaxTextBytes {
			return fmt.Errorf("the address %.200q cannot be received from", r.address)
		}
		return nil
	}
	if scheme, _ := n.replayer(r.address); scheme != nil {
		return fmt.Errorf("%.200q: what comes in an order is received by its name, not by a pattern", r.address)
	}
	return routetable.ValidatePattern(r.address)
}

// pattern is that of its row; empty where there is none that fits its address alone.
func (r *receiver) pattern() string {
	if r.isPattern {
		return r.address
	}
	pattern, ok := routetable.QuotePattern(r.address)
	if !ok {
		return ""
	}
	return pattern
}

// writeRows makes the rows of receivers that attached and withdraws those of receivers that are gone, all that there are since the last time
// as one batch. It is called before anything can depend on them: before the answers leave, and before a message or a target is looked up.
// Called under the lock.
func (c *conn) writeRows() {
	for len(c.rows) > 0 { // a receiver that is refused its row is detached, and comes again
		list := c.rows
		c.rows = nil
		c.n.core.DoAll(c.caller, c.n.commandsOf(list), func(i int, err error) {
			if err != nil {
				list[i].unwritten(err)
			}
		})
		if c.rows == nil {
			clear(list)
			if c.rows = list[:0]; cap(list) > maxKeptRows {
				c.rows = nil
			}
			return
		}
	}
}

// unwritten: the table did not take what was to become of the receiver's row.
func (r *receiver) unwritten(err error) {
	r.n.log.Error("the row of a receiver could not be written", "origin", r.origin(), "error", err)
	if r.row == rowThere && r.l != nil {
		r.l.Detach(&engine.LinkError{Condition: wire.CondNotAllowed, Text: err.Error()})
	}
}

// maxKeptRows is how many rows the list of a connection keeps room for.
const maxKeptRows = 64

// commandsOf gives what is to be told to the table of each receiver, and keeps the list of receivers.
func (n *Node) commandsOf(list []*receiver) []admin.Command {
	commands := make([]admin.Command, len(list))
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, r := range list {
		if r.row == rowOver {
			delete(n.receivers, r.id)
			commands[i] = admin.Withdraw{Origin: r.origin()}
			continue
		}
		r.row = rowThere
		n.receivers[r.id] = r
		origin := r.origin()
		commands[i] = admin.Subscribe{Origin: origin, Pattern: r.pattern(), Address: origin, Pick: r.pick}
	}
	return commands
}

// newReceiver makes the outlet of a link for replies, whose row its maker writes. Called under the lock.
func (c *conn) newReceiver(l *engine.Link, address string) *receiver {
	r := &receiver{id: c.n.nextID.Add(1), address: address, private: true, row: rowOver}
	r.line = line{n: c.n, mu: c.c.Mutex(), c: c, l: l}
	if l != nil {
		l.Context = r
	}
	c.n.mu.Lock()
	c.n.receivers[r.id] = r
	c.n.mu.Unlock()
	return r
}

func (n *Node) removeReceiver(r *receiver) {
	n.mu.Lock()
	delete(n.receivers, r.id)
	n.mu.Unlock()
}

// pickOf tells how a receiver asks to share its address: every receiver gets a copy, unless it asks for a queue.
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

// sharesByDefault tells whether a receiver says nothing of how it shares its address, and may: names of a scheme have rules of their own.
func sharesByDefault(src *wire.Source, address string) bool {
	_, reserved := routetable.ReservedScheme(address)
	return !reserved && src.DistributionMode == "" && !slices.Contains(src.Capabilities, capQueue) && !slices.Contains(src.Capabilities, capTopic)
}

// close gives back what the receiver did not take, and has its row withdrawn.
func (r *receiver) close() {
	if r.follower != nil {
		r.follower.leave()
	}
	r.line.close()
	switch {
	case r.toRouter:
		r.n.removeReceiver(r)
		r.n.replies.release(r)
		return
	case r.isReturn:
		r.c.returnEnded(r)
		if r.row != rowThere {
			r.n.removeReceiver(r)
		}
	}
	if r.row == rowThere {
		r.c.rows = append(r.c.rows, r)
	} else if i := slices.Index(r.c.rows, r); i >= 0 { // nobody has seen it
		r.c.rows = slices.Delete(r.c.rows, i, i+1)
	}
	r.row = rowOver
}

// dropped: the link went with a copy on it. Nobody can tell whether the receiver had it, so it is not sent again here.
func (ln *line) dropped(cp *Copy) {
	if ln.dialled != nil && cp.had().tail == nil {
		ln.again(cp)
		return
	}
	if cp.in.Settled {
		cp.fate = fateGone
		ln.over(cp, Outcome{Kind: wire.Released})
		return
	}
	ln.over(cp, modifiedFailed())
}
