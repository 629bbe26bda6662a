package forwarder

import (
	"container/list"
	"fmt"
	"strings"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// A client that Qpid Messenger taught to write reply-to amqp://<its container id>/<name> gets its replies over its own connection, as
// Messenger does it: we attach a sender with the name as target. The row, amqp://<container id>/<name> → link:N, is there from the first
// request with that reply-to, and for no other name.

// The bounds of such rows.
const (
	maxReturnsOfConn = 64
	maxReturns       = 10_000 // in all: beyond it no row is made until another goes
)

// returns are the rows for a client's container id.
type returns struct {
	session *engine.Session
	of      map[string]*list.Element // by address
	recent  list.List                // of *receiver; the one asked for last is first
}

// learnReturn makes the row of a reply-to that names the client's own container. Called under the lock.
func (c *conn) learnReturn(to []byte) {
	const scheme = "amqp://"
	if len(to) < len(scheme) || string(to[:len(scheme)]) != scheme {
		return
	}
	if c.returns != nil {
		if e := c.returns.of[string(to)]; e != nil {
			c.returns.recent.MoveToFront(e)
			return
		}
	}
	address := string(to)
	container, name, hasName := strings.Cut(address[len(scheme):], "/")
	if container != c.c.Engine.Remote().ContainerID || !isPlainContainer(container) {
		return
	}
	if !c.n.replies.enter(c, container) {
		return
	}
	if err := c.attachReturn(address, name, hasName); err != nil {
		c.n.log.Debug("no way back for replies", "address", address, "error", err)
	}
}

// isPlainContainer tells whether a container id cannot be taken for a host: else a client would get what is for that host.
func isPlainContainer(id string) bool {
	return id != "" && len(id) <= 256 && !strings.ContainsAny(id, `.:@[]%*\`) && !strings.EqualFold(id, "localhost")
}

// attachReturn attaches a sender at the client and makes its row.
func (c *conn) attachReturn(address, name string, hasName bool) error {
	x := c.returns
	for _, g := range c.n.table.Snapshot().LookupInto(nil, address, nil) {
		if !g.Fallback {
			return fmt.Errorf("the table has a row for it")
		}
	}
	if x.recent.Len() >= maxReturnsOfConn {
		oldest := x.recent.Back().Value.(*receiver)
		if !oldest.isAnswered {
			return fmt.Errorf("the client takes no links")
		}
		oldest.l.Detach(nil)
	}
	if x.session == nil || x.session.Ended() {
		s, err := c.c.Engine.Begin()
		if err != nil {
			return err
		}
		x.session = s
	}
	if !c.n.replies.more() {
		return fmt.Errorf("there are too many")
	}
	r := c.newReceiver(nil, address)
	r.isReturn = true
	l, err := x.session.Attach(engine.AttachOptions{
		Name: fmt.Sprintf("%s/%d", c.n.name, r.id), Role: engine.RoleSender,
		Source:     &wire.Source{Address: name, HasAddress: hasName},
		Target:     &wire.Target{Address: name, HasAddress: hasName},
		SenderMode: engine.SenderMixed, ReceiverMode: engine.ReceiverFirst, Context: r,
	})
	if err == nil {
		r.l = l
		c.links++
		c.n.count.by.links[linkReceiver].Add(1)
		x.of[address] = x.recent.PushFront(r)
		pattern, _ := routetable.QuotePattern(address)
		if _, err = c.n.core.Do(c.caller, admin.Subscribe{Origin: r.origin(), Pattern: pattern, Address: r.origin()}); err != nil {
			l.Detach(nil)
			return err
		}
		r.row = rowThere
		return nil
	}
	c.n.removeReceiver(r)
	c.n.replies.less()
	return err
}

// returnEnded: a link that was attached for replies is gone. Called under the lock.
func (c *conn) returnEnded(r *receiver) {
	if e := c.returns.of[r.address]; e != nil && e.Value == any(r) {
		c.returns.recent.Remove(e)
		delete(c.returns.of, r.address)
	}
	c.n.replies.less()
}

// enter gives a container id to a connection, where no other that is there has it: who came first keeps it. The other's requests go on
// their way, and it is said once; replies to that name go to the first.
func (x *replies) enter(c *conn, container string) bool {
	x.mu.Lock()
	holder := x.containers[container]
	if holder == nil {
		x.containers[container] = c
	}
	x.mu.Unlock()
	switch {
	case holder == nil:
		c.returns = &returns{of: map[string]*list.Element{}}
	case holder != c:
		if !c.saidTaken {
			c.n.log.Warn("two clients have one container id: replies to it go to the one that came first", "container", container, "from", c.caller.Remote)
		}
		c.saidTaken = true
	}
	return holder == nil || holder == c
}

// leave gives the container id of a connection that is over free. Called under the connection's lock.
func (x *replies) leave(c *conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if id := c.c.Engine.Remote().ContainerID; x.containers[id] == c {
		delete(x.containers, id)
	}
}

// more takes a place among the rows of container ids; false where there is none.
func (x *replies) more() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.returns >= maxReturns {
		return false
	}
	x.returns++
	return true
}

func (x *replies) less() {
	x.mu.Lock()
	x.returns--
	x.mu.Unlock()
}
