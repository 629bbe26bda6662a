package messenger

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// Replies go by dynamic addresses. A message with reply-to "~" has us ask the peer for a dynamic source, one for each connection, and
// its address is what goes out. A peer that asks us for one gets an address of ours, $reply/<this messenger>/<random>, which is
// a row of the table for as long as its link lives: a put to it finds the link like any other hop.

// errNoReply says that the peer gave no address.
var errNoReply = errors.New("the peer granted a dynamic source without an address")

// Reply puts a message to the reply-to of the one that came, with its correlation-id, or else its message-id, as correlation-id
// where msg has none. msg.Address does not count, and msg is not changed.
//
// The address is looked up like any other. Where no row matches it, the reply goes back to the peer that the request came from by a
// subscription: its reply-to is an address that the peer knows. A request without a reply-to is [ErrNoRoute].
func (d *Delivery) Reply(ctx context.Context, msg *Message) (*Tracker, error) {
	reply := *msg
	if reply.Address = d.replyTo; d.replyTo == "" {
		return nil, fmt.Errorf("reply: %w: the request has no reply-to", ErrNoRoute)
	}
	if reply.CorrelationID == nil {
		reply.CorrelationID = d.correlation
	}
	var back *way
	if ep := d.link.c.ep; ep != nil {
		hop := ep.hop
		hop.Name, hop.HasName = "", false
		hop.Text, hop.Key = ep.text, ep.text
		back = &way{hop: &hop, text: ep.text}
	}
	return d.link.c.m.put(ctx, &reply, back)
}

// replyAddress gives the address that "~" stands for on this connection; ok is false while the peer is asked for it, and the lines
// are looked at again when it has answered. Called under the lock.
func (c *conn) replyAddress() (address string, ok bool, err error) {
	if c.reply == nil {
		l := &inlink{c: c, prefetch: c.m.o.Prefetch, isReply: true}
		el, err := c.attach(engine.AttachOptions{
			Role:       engine.RoleReceiver,
			Source:     &wire.Source{Dynamic: true, ExpiryPolicy: wire.ExpireLinkDetach},
			Target:     &wire.Target{},
			SenderMode: engine.SenderMixed, ReceiverMode: engine.ReceiverFirst,
			Credit: uint32(l.prefetch), Context: l,
		})
		if err != nil {
			return "", false, public(err)
		}
		l.l = el
		c.reply = l
	}
	return c.reply.address, c.reply.address != "", nil
}

// replyGranted: the peer has granted the address that "~" stands for.
func (l *inlink) replyGranted(address string) {
	if address == "" {
		l.l.Detach(&engine.LinkError{Condition: wire.CondInvalidField, Text: errNoReply.Error()})
		return
	}
	l.address = address
	for ln := range l.c.sending() {
		ln.pump()
	}
}

// replyGone: the link of that address is gone. Where the peer did not grant it, what waits for it fails.
func (c *conn) replyGone(l *inlink, err error) {
	if c.reply == l {
		c.reply = nil
	}
	if l.address != "" || !c.c.Engine.IsOpen() {
		return
	}
	for ln := range c.sending() {
		ln.noReplies(public(err))
		c.again(ln)
	}
}

// noReplies gives up the copies at the front of the queue that want an address for replies.
func (ln *line) noReplies(err error) {
	for ln.queue.len() > 0 && ln.queue.front().e.replies {
		c := ln.queue.front()
		ln.queue.pop()
		ln.giveUp(c, Outcome{State: Released, Err: causedBy(errNoReplies, err)})
	}
}

// errNoReplies begins the error of a message whose "~" could not be filled in.
var errNoReplies = errors.New("no address for replies")

// maxDynamic is how many dynamic addresses one connection may have of us.
const maxDynamic = 1000

// attachReceiver answers a peer that wants to receive: it can have a dynamic address, and nothing else.
func (c *conn) attachReceiver(l *engine.Link) {
	source := l.Remote().Source
	switch {
	case source == nil || !source.Dynamic:
		l.Refuse(&engine.LinkError{Condition: wire.CondNotAllowed, Text: "receivers are served at dynamic sources only"})
		return
	case len(c.lines) >= maxDynamic:
		l.Refuse(&engine.LinkError{Condition: wire.CondResourceLimitExceeded, Text: "too many dynamic sources on one connection"})
		return
	}
	answer := *source
	answer.Address, answer.HasAddress = "$reply/"+c.m.id+"/"+random(), true
	ln := &line{m: c.m, target: answer.Address, mu: c.c.Mutex(), c: c, l: l}
	l.Context = ln
	if c.lines == nil {
		c.lines = map[*line]struct{}{}
	}
	c.lines[ln] = struct{}{}
	target := l.Remote().Target
	c.after(func() {
		c.m.addLink(ln) // first the row, then the answer: who knows the address can be reached there
		c.c.Do(func() { l.Accept(&answer, target, 0, engine.AttachOptions{}) })
	})
}

// addLink makes the row of a dynamic address. It is called without the connection's lock.
func (m *Messenger) addLink(ln *line) {
	name := m.id + "." + strconv.FormatUint(m.nextID.Add(1), 10)
	ln.mu.Lock()
	gone := ln.gone
	ln.name = name
	ln.mu.Unlock()
	if gone {
		return
	}
	m.mu.Lock()
	m.links[name] = ln
	m.mu.Unlock()
	if _, err := m.routes.Add(ln.target, "link:"+name, routetable.WithOrigin("link:"+name)); err != nil {
		m.log.Error("no row for a dynamic address", "address", ln.target, "error", err)
	}
}

// dropLink takes the row of a dynamic address back.
func (m *Messenger) dropLink(ln *line) {
	ln.mu.Lock()
	name := ln.name
	ln.mu.Unlock()
	if name == "" {
		return
	}
	m.mu.Lock()
	delete(m.links, name)
	m.mu.Unlock()
	if _, err := m.routes.Withdraw("link:" + name); err != nil {
		m.log.Error("row of a dynamic address", "address", ln.target, "error", err)
	}
}
