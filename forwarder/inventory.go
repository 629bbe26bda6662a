package forwarder

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// Connection is a connection that is open, for people.
type Connection struct {
	ID        uint64
	Class     string // client, websocket, router, hop
	Container string // the peer's name for itself
	Remote    string // its address
	Transport string // tcp, tls, websocket, websocket+tls
	User      string // empty for ANONYMOUS
	Mechanism string // of SASL; empty where there was none
	Role      string // at $management
	NodeID    string // of one of our kind
	Hop       string // the peer that it was dialled for, or the neighbour that it is of; empty: a client's
	Since     time.Time
	Links     int
	Received  uint64 // messages
	Sent      uint64 // copies
}

// Link is a link of a connection, for people.
type Link struct {
	Connection uint64
	Container  string
	Name       string
	Class      string // sender, anonymous, management, receiver, hop
	Address    string // the target that a sender named, the source of a receiver, the target at a hop
	Credit     uint32 // what the sending end has
	InFlight   int    // messages taken and not done with; copies queued, or sent without an outcome
	Messages   uint64 // that came, or copies that were handed over
	Limited    bool   // no row matches its target: one message at a time
	Backlog           // of a receiver
}

// HopState is a peer that the table names and the node dials, for people.
type HopState struct {
	Hop     string
	State   string // connected, away, idle
	NodeID  string // of one of our kind
	Links   int
	Waiting int    // copies queued, and sent without an outcome
	Copies  uint64 // that were handed to it; of hops beyond the hundredth, of all of those
	Backlog
}

// connections gives the connections in the order of their ids.
func (n *Node) connections() []*conn {
	n.mu.Lock()
	all := slices.Collect(maps.Values(n.conns))
	n.mu.Unlock()
	slices.SortFunc(all, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	return all
}

// Connections gives the connections that are open, oldest first. It takes the lock of each, one at a time.
func (n *Node) Connections() []Connection {
	var all []Connection
	for _, c := range n.connections() {
		c.c.Lock()
		x := Connection{
			ID: c.id, Class: c.class.String(), Container: c.container(), Remote: c.c.RemoteAddr().String(), Transport: c.c.Transport(),
			User: c.c.Engine.User(), Mechanism: string(c.c.Engine.Mechanism()), Role: c.caller.Role.String(), NodeID: c.peerID,
			Since: time.Unix(0, c.since), Received: c.received, Sent: c.sent,
		}
		if c.dialled != nil {
			x.Role, x.Hop = admin.RoleNone.String(), endpointText(&c.dialled.endpoint)
		}
		c.c.Engine.Links(func(*engine.Link) { x.Links++ })
		c.c.Mutex().Unlock()
		all = append(all, x)
	}
	return all
}

func (c *conn) container() string {
	id := c.c.Engine.Remote().ContainerID
	return id[:min(len(id), 200)]
}

// maxListedLinks bounds the answer of Links: it is for people.
const maxListedLinks = 10_000

// Links gives links that are attached, those of the oldest connection first, at most 10,000.
func (n *Node) Links() []Link {
	var all []Link
	for _, c := range n.connections() {
		if len(all) >= maxListedLinks {
			break
		}
		all = append(all, c.listLinks(maxListedLinks-len(all))...)
	}
	return all
}

func (c *conn) listLinks(most int) []Link {
	var links []Link
	c.c.Lock()
	defer c.c.Mutex().Unlock()
	c.c.Engine.Links(func(l *engine.Link) {
		if len(links) >= most {
			return
		}
		x := Link{Connection: c.id, Container: c.container(), Name: l.Name(), Credit: l.Credit()}
		switch own := l.Context.(type) {
		case *inlink:
			x.Class, x.Address, x.InFlight, x.Messages, x.Limited = own.class().String(), own.target, own.used, own.messages, own.limited
		case *receiver:
			x.Class, x.Address, x.InFlight, x.Messages = linkReceiver.String(), own.address, own.Busy(), own.copiesSent()
			x.Backlog = own.backlog()
		case *line:
			x.Class, x.Address, x.InFlight, x.Messages = linkHop.String(), own.target, own.Busy(), own.sent
		default:
			return
		}
		links = append(links, x)
	})
	slices.SortFunc(links, func(a, b Link) int { return cmp.Compare(a.Name, b.Name) })
	return links
}

// copiesSent is how many copies the line has sent. Called under the lock.
func (ln *line) copiesSent() uint64 {
	if ln.traffic == nil {
		return 0
	}
	return ln.sent
}

// Backlog is what waits for a hop.
type Backlog struct {
	Depth   int           // copies queued
	Bytes   int           // of these
	Slow    bool          // it was over the soft limit, and has not had all since
	Stalled time.Duration // it has taken nothing of it for so long, as far as the clock has seen
}

// backlog is what waits for the line. Called under the lock.
func (ln *line) backlog() (b Backlog) {
	if ln.traffic == nil {
		return b
	}
	b = Backlog{Depth: ln.queue.n + len(ln.later), Bytes: ln.bytes, Slow: ln.slow.Load()}
	if ln.waitsAt != 0 && ln.sent == ln.seen {
		b.Stalled = time.Duration(now() - ln.waitsAt)
	}
	return b
}

// add adds what waits for another line of the same hop.
func (b *Backlog) add(x Backlog) {
	b.Depth += x.Depth
	b.Bytes += x.Bytes
	b.Slow = b.Slow || x.Slow
	b.Stalled = max(b.Stalled, x.Stalled)
}

// name is what the hop is called, for people.
func (ln *line) name() string {
	switch {
	case ln.dialled != nil:
		return endpointText(&ln.dialled.endpoint)
	case ln.l != nil:
		if r, ok := ln.l.Context.(*receiver); ok {
			return r.origin() + ", of " + label(r.address)
		}
	}
	return "a receiver"
}

// HopName is what Hops calls the peer that a row's address leads to; empty where it is none that is dialled.
func HopName(address string) string {
	h, err := routetable.ParseHop(address)
	if err != nil || h.Scheme != "amqp" && h.Scheme != "amqps" {
		return ""
	}
	return endpointText(h)
}

// Hops gives the peers that the node keeps, by name.
func (n *Node) Hops() []HopState {
	n.mu.Lock()
	peers := slices.Collect(maps.Values(n.peers))
	n.mu.Unlock()
	all := make([]HopState, 0, len(peers))
	for _, p := range peers {
		all = append(all, p.state())
	}
	slices.SortFunc(all, func(a, b HopState) int { return cmp.Compare(a.Hop, b.Hop) })
	return all
}

func (p *peer) state() HopState {
	x := HopState{Hop: endpointText(&p.endpoint), State: "idle", Copies: p.count.copies.Load()}
	p.mu.Lock()
	x.NodeID = p.nodeID
	switch {
	case p.c != nil:
		x.State = "connected"
	case p.running:
		x.State = "away"
	}
	p.mu.Unlock()
	for _, ln := range p.all() {
		x.Links++
		x.Waiting += ln.Busy()
		ln.mu.Lock()
		x.add(ln.backlog())
		ln.mu.Unlock()
	}
	return x
}

// CloseConnection closes a connection, in order. It reports whether there was one; one to a hop is dialled again when it is wanted.
func (n *Node) CloseConnection(id string) bool {
	number, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return false
	}
	n.mu.Lock()
	c := n.conns[number]
	n.mu.Unlock()
	if c == nil {
		return false
	}
	c.c.Close(&engine.ConnectionError{Condition: wire.CondConnectionForced, Text: fmt.Sprintf("connection %d was closed by an operator", number)})
	return true
}
