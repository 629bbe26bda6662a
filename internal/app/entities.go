package app

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/events"
	"github.com/fingerpost/fingerpost/internal/mesh"
	"github.com/fingerpost/fingerpost/internal/relay"
)

// nodeEntities are entities that the node lists afresh each time: connection, link, hop and unrouted.
type nodeEntities struct {
	kind       string
	attributes []string
	list       func() []admin.Entity
}

func (e nodeEntities) Type() string         { return e.kind }
func (e nodeEntities) Attributes() []string { return e.attributes }
func (e nodeEntities) List() []admin.Entity { return e.list() }

// connectionEntities are the connections; deleting one closes it.
type connectionEntities struct {
	nodeEntities
	node   *forwarder.Node
	relay  *relay.Broker
	events *events.Router
}

// Delete closes a connection, by the identity that List gives.
func (e connectionEntities) Delete(identity string) error {
	if id := identity[len("connection/"):]; !e.node.CloseConnection(id) && !e.relay.CloseConnection(id) && !e.events.CloseConnection(id) {
		return fmt.Errorf("connection %s: %w", identity, admin.Refuse(admin.StatusNotFound, "it is gone"))
	}
	return nil
}

// registerNode adds what the node can tell of itself to the door.
func registerNode(core *admin.Core, n *forwarder.Node, r *relay.Broker, ev *events.Router, m *mesh.Mesh) {
	core.Register(connectionEntities{nodeEntities{
		"connection", []string{"class", "container", "remote", "transport", "user", "mechanism", "role", "nodeId", "since", "links", "received", "sent"},
		func() []admin.Entity { return slices.Concat(listConnections(n), listRelay(r), listEvents(ev)) },
	}, n, r, ev})
	core.Register(nodeEntities{
		"link", []string{"connection", "container", "class", "address", "credit", "inFlight", "messages", "limited"},
		func() []admin.Entity { return listLinks(n) },
	})
	core.Register(nodeEntities{
		"hop", []string{"state", "nodeId", "links", "waiting", "copies"},
		func() []admin.Entity { return listHops(n) },
	})
	core.Register(nodeEntities{
		"peer", []string{"class", "hop", "state", "remote", "nodeId", "waiting"},
		func() []admin.Entity { return listPeers(m, n, ev) },
	})
	core.Register(nodeEntities{
		"unrouted", []string{"address", "reason", "count", "first", "last"},
		func() []admin.Entity { return listUnrouted(n, ev) },
	})
}

// connection is a connection of any protocol as the management shows it.
type connection struct {
	name, class, container, remote, transport string
	user, mechanism, role, nodeID             string
	since                                     time.Time
	links                                     int
	received, sent                            uint64
}

func (c connection) entity() admin.Entity {
	return admin.Entity{
		"name": c.name, "identity": "connection/" + c.name, "class": c.class, "container": c.container, "remote": c.remote, "transport": c.transport,
		"user": c.user, "mechanism": c.mechanism, "role": c.role, "nodeId": c.nodeID, "since": c.since.UTC().Format(time.RFC3339),
		"links": uint64(c.links), "received": c.received, "sent": c.sent,
	}
}

func listConnections(n *forwarder.Node) []admin.Entity {
	list := []admin.Entity{}
	for _, c := range n.Connections() {
		id := strconv.FormatUint(c.ID, 10)
		list = append(list, connection{
			name: id, class: c.Class, container: c.Container, remote: c.Remote, transport: c.Transport, user: c.User, mechanism: c.Mechanism, role: c.Role,
			nodeID: c.NodeID, since: c.Since, links: c.Links, received: c.Received, sent: c.Sent,
		}.entity())
	}
	return list
}

// listRelay gives the connections of the relay. Their links are the topics that they serve, their user is the key; sent and received are ops.
func listRelay(r *relay.Broker) []admin.Entity {
	list := []admin.Entity{}
	for _, c := range r.Connections() {
		transport := "websocket"
		if c.Secure {
			transport = "websocket+tls"
		}
		list = append(list, connection{
			name: c.Name, class: "relay", container: c.Domain, remote: c.Remote, transport: transport, user: c.Key, role: admin.RoleNone.String(),
			since: c.Since, links: c.Topics, received: c.Received, sent: c.Sent,
		}.entity())
	}
	return list
}

// listEvents gives the components and linked routers. Their links are their subscriptions, their user is the token; received and sent are events.
func listEvents(r *events.Router) []admin.Entity {
	list := []admin.Entity{}
	for _, c := range r.Connections() {
		class := "component"
		if c.Router {
			class = "event-router"
		}
		list = append(list, connection{
			name: c.Name, class: class, container: c.Component, remote: c.Remote, transport: "websocket", user: c.User, role: admin.RoleNone.String(),
			since: c.Since, links: c.Rows, received: c.Received, sent: c.Sent,
		}.entity())
	}
	return list
}

func listLinks(n *forwarder.Node) []admin.Entity {
	list := []admin.Entity{}
	for _, l := range n.Links() {
		list = append(list, admin.Entity{
			"name": l.Name, "identity": fmt.Sprintf("link/%d/%s", l.Connection, l.Name), "connection": l.Connection, "container": l.Container,
			"class": l.Class, "address": l.Address, "credit": uint64(l.Credit), "inFlight": uint64(max(l.InFlight, 0)), "messages": l.Messages, "limited": l.Limited,
		})
	}
	return list
}

func listHops(n *forwarder.Node) []admin.Entity {
	list := []admin.Entity{}
	for _, h := range n.Hops() {
		list = append(list, admin.Entity{
			"name": h.Hop, "identity": "hop/" + h.Hop, "state": h.State, "nodeId": h.NodeID, "links": uint64(h.Links),
			"waiting": uint64(max(h.Waiting, 0)), "copies": h.Copies,
		})
	}
	return list
}

// maxPeers bounds the list of a mesh, whose components may be many.
const maxPeers = 10_000

// peerEntity is a neighbour of any protocol. A hop is that of rows which lead there, where there is one.
func peerEntity(id, name, class, hop, state, remote, nodeID string, waiting int) admin.Entity {
	return admin.Entity{
		"name": name, "identity": "peer/" + id, "class": class, "hop": hop, "state": state, "remote": remote, "nodeId": nodeID, "waiting": uint64(max(waiting, 0)),
	}
}

// listPeers gives the routers and components of Rembus, and the routers of our kind at the other end of connections of AMQP, each once, by the name
// that it has for itself where it told one, and those that events are linked with. Those of Rembus that are away are there while something waits for them.
func listPeers(m *mesh.Mesh, n *forwarder.Node, ev *events.Router) []admin.Entity {
	list := []admin.Entity{}
	at := map[string]admin.Entity{} // routers of the mesh, by their hop
	for _, p := range m.Peers(maxPeers) {
		class, state := "rembus", "away"
		if p.Router {
			class = "rembus-router"
		}
		if p.Connected {
			state = "connected"
		}
		e := peerEntity(p.Hop, p.Name, class, p.Hop, state, p.Remote, "", p.Waiting+p.Asked)
		if list = append(list, e); p.Router {
			at[p.Hop] = e
		}
	}
	for _, c := range n.Connections() {
		if c.NodeID == "" {
			continue
		}
		if e := at[c.Hop]; e != nil {
			e["name"], e["nodeId"] = c.Container, c.NodeID
			continue
		}
		list = append(list, peerEntity(strconv.FormatUint(c.ID, 10), c.Container, "router", c.Hop, "connected", c.Remote, c.NodeID, 0))
	}
	for _, c := range ev.Connections() {
		if c.Router {
			list = append(list, peerEntity(c.Name, c.Component, "event-router", "event-conn:"+strings.TrimPrefix(c.Name, "event:"), "connected", c.Remote, "", 0))
		}
	}
	return list
}

// listUnrouted gives the addresses of messages that went nowhere, and the types of events that did, that of the latest first.
func listUnrouted(n *forwarder.Node, ev *events.Router) []admin.Entity {
	all := n.Unrouted()
	for _, u := range ev.Unrouted() {
		all = append(all, forwarder.Lost{Address: u.Address, Reason: strings.ToLower(u.State), Count: u.Drops, First: u.First, Last: u.Last})
	}
	slices.SortStableFunc(all, func(a, b forwarder.Lost) int { return b.Last.Compare(a.Last) })
	list := []admin.Entity{}
	for _, u := range all {
		list = append(list, admin.Entity{
			"name": u.Address, "identity": "unrouted/" + u.Address, "address": u.Address, "reason": u.Reason, "count": u.Count,
			"first": u.First.UTC().Format(time.RFC3339), "last": u.Last.UTC().Format(time.RFC3339),
		})
	}
	return list
}
