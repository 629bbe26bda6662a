package forwarder

import (
	"slices"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// follower is what a receiver from an order has besides: where it is in that order, so that it can go on there when it comes back. It is known again by
// its user, container, link and address.
type follower struct {
	r      *receiver
	scheme Replayer
	who    string
	before *follower // the one that was known by this when it came

	// Under the lock of the line.
	next   int64  // the place in the order from which on it was sent nothing
	missed int64  // of the first message that its link went with; 0 none
	marks  []mark // of what was sent settled and is not with the transport, the oldest first

	// Under Node.mu.
	gone bool   // the scheme knows that it has gone
	then func() // called when it does
}

// mark is some of what was sent: from which place in the order on, and where it ends in the stream of bytes to the peer.
type mark struct {
	tag        int64
	begin, end uint64
}

// markBytes is how finely it is known what the transport has.
const markBytes = 16 << 10

// maxWho bounds the names that a receiver is known again by: one with longer ones is not.
const maxWho = 1024

// follow makes the receiver one of an order. Called under the lock.
func (r *receiver) follow(scheme Replayer, l *engine.Link) {
	c := r.c
	f := &follower{r: r, scheme: scheme, next: scheme.Now()}
	r.follower = f
	container := c.c.Engine.Remote().ContainerID
	if r.pick != routetable.PickAll || len(container)+len(l.Name())+len(r.address) > maxWho {
		return
	}
	f.who = c.caller.User + "\x00" + container + "\x00" + l.Name() + "\x00" + r.address
	c.n.mu.Lock()
	f.before = c.n.followers[f.who]
	c.n.followers[f.who] = f
	c.n.mu.Unlock()
}

// began notes that a message was sent, or part of one.
func (f *follower) began(tag int64, settled bool, r engine.SendResult) {
	if r == engine.Refused {
		return
	}
	f.next = tag + 1
	if settled && r == engine.Complete {
		f.mark(tag)
	}
}

// mark notes that a message that was sent settled is encoded to its end.
func (f *follower) mark(tag int64) {
	e := f.r.c.c.Engine
	end, written := e.Encoded(), e.Written()
	n := 0
	for n < len(f.marks) && f.marks[n].end <= written {
		n++
	}
	f.marks = slices.Delete(f.marks, 0, n)
	if n = len(f.marks) - 1; n >= 0 && end-f.marks[n].begin < markBytes {
		f.marks[n].end = end
		return
	}
	f.marks = append(f.marks, mark{tag, end, end})
}

// lost notes that a message went with its link.
func (f *follower) lost(tag int64) {
	if f.missed == 0 || tag < f.missed {
		f.missed = tag
	}
}

// from is the place in the order from which on the receiver was not handed what came. Called under the lock.
func (f *follower) from() int64 {
	from, written := f.next, f.r.c.c.Engine.Written()
	if f.missed != 0 {
		from = min(from, f.missed)
	}
	for _, m := range f.marks {
		if m.end > written {
			return min(from, m.tag)
		}
	}
	return from
}

// end has the receiver gone, since somebody else is it now; false: the scheme does not know yet, b begins when it does. Called in turn.
func (f *follower) end(b *beginning) bool {
	c := f.r.c
	c.lock()
	if l := f.r.l; l != nil {
		l.Refuse(&engine.LinkError{Condition: wire.CondStolen, Text: "the receiver was attached again, and goes on elsewhere"})
	}
	c.release()
	n := f.r.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if !f.gone {
		f.then = b.begin
	}
	return f.gone
}

// leave has the scheme told that the receiver has gone, and from where on it has missed what came. Called under the lock.
func (f *follower) leave() {
	from := int64(0)
	if f.r.row == rowThere && f.who != "" {
		from = f.from()
	}
	f.r.n.inTurn(func() { f.left(from) })
}

func (f *follower) left(from int64) {
	n := f.r.n
	if from != 0 {
		f.scheme.Left(f.who, from)
	}
	n.mu.Lock()
	if n.followers[f.who] == f {
		delete(n.followers, f.who)
	}
	f.gone = true
	then := f.then
	n.mu.Unlock()
	if then != nil {
		then()
	}
}

// inTurn has f called soon, without a lock and behind what was put in before: what concerns an order may not be done by who may be within it. It may be
// called with a connection's lock.
func (n *Node) inTurn(f func()) {
	n.mu.Lock()
	n.turns = append(n.turns, f)
	n.mu.Unlock()
	select {
	case n.turn <- struct{}{}:
	default:
	}
}

func (n *Node) takeTurns() {
	n.mu.Lock()
	list := n.turns
	n.turns = nil
	n.mu.Unlock()
	for _, f := range list {
		f()
	}
}
