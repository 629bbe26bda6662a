package forwarder

import (
	"strings"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// mayUse tells whether the client may send by a plan: the address that it was found by has to be among its grants, or the one that
// was asked for where none was. It is looked up once for each plan. Called under the lock.
func (c *conn) mayUse(l *inlink, d *delivery, p *plan) bool {
	if l.isNeighbour() && !c.mayPass(l, p.askedFor(l, d)) {
		return false
	}
	if p.allowed.Load() == c.account {
		return true
	}
	if !c.account.Send.Allow(p.askedFor(l, d)) {
		return false
	}
	p.allowed.Store(c.account)
	return true
}

func (p *plan) askedFor(l *inlink, d *delivery) string {
	if p.found {
		return p.address
	}
	if as := d.had().as; as != "" {
		return as
	}
	if to, ok := d.To(); ok {
		return string(to)
	}
	return l.target
}

// refuseUnauthorized rejects a message that the client may not send.
func (c *conn) refuseUnauthorized(d *delivery) {
	c.n.count.unauthorized.Add(1)
	c.refuse(d, wire.CondUnauthorizedAccess, "this client may not send to this address")
}

// mayName tells whether a sender may attach to its target.
func (c *conn) mayName(in *inlink) *engine.LinkError {
	switch {
	case !in.hasTarget:
		return nil
	case in.target == managementAddress:
		if c.caller.Role == admin.RoleNone {
			c.n.count.unauthorized.Add(1)
			return unauthorized("this client has no role at the door")
		}
		return nil
	case !c.account.Send.Allow(in.target) || !c.mayPass(in, in.target):
		c.n.count.unauthorized.Add(1)
		return unauthorized("this client may not send to this address")
	}
	return nil
}

// mayReceive tells whether a receiver may attach to its address.
func (c *conn) mayReceive(r *receiver) *engine.LinkError {
	switch {
	case !r.private && strings.HasPrefix(r.address, "$"):
		return &engine.LinkError{Condition: wire.CondNotAllowed, Text: "names that begin with $ are the router's own"}
	case c.isGranted(r):
		return nil
	}
	c.n.count.unauthorized.Add(1)
	if r.isPattern {
		return unauthorized("a receiver on a pattern needs role operator")
	}
	return unauthorized("this client may not receive from this address")
}

// isGranted tells whether its account lets a client receive. A pattern is for who may write such rows: it takes what no list of addresses foresees.
func (c *conn) isGranted(r *receiver) bool {
	switch {
	case r.private:
		return true
	case r.isPattern:
		return c.account.Role >= admin.RoleOperator
	}
	return c.account.Receive.Allow(r.address)
}

// roomFor tells whether the client may have one more link, and refuses it where it may not. Called under the lock.
func (c *conn) roomFor(l *engine.Link) bool {
	if !c.isClient && (c.dialled == nil || c.dialled.neighbour == nil) || c.links < c.n.access.Load().Limits.Links {
		return true
	}
	c.n.count.linksRefused.Add(1)
	l.Refuse(&engine.LinkError{Condition: wire.CondResourceLimitExceeded, Text: "this connection has as many links as it may have"})
	return false
}

// maxDirect is how many peers there may be for a client's own URLs to be dialled.
const maxDirect = 1000

// direct makes the plan of an address that matches nothing, where the client came by a listener that dials such an amqp URL. The plan
// knows already which names were looked up. Called under the lock.
func (n *Node) direct(p *plan, l *inlink, to string, hasTo bool) {
	if !l.c.direct {
		return
	}
	address := to
	if !hasTo {
		address = l.target
	}
	scheme, _, _ := strings.Cut(address, "://")
	if s := strings.ToLower(scheme); s != "amqp" && s != "amqps" {
		return
	}
	hop, err := routetable.ParseHop(address)
	if err != nil || n.peerCount() >= maxDirect {
		return
	}
	p.address, p.found, p.dialled = address, true, true
	ln := n.lineFor(hop, address, hasTo)
	p.groups = []planGroup{{targets: []planTarget{{outlet: ln, line: ln, hop: hop, timeout: n.options.DeliveryTimeout, retry: -1}}}}
	p.roots = []int32{0}
}
