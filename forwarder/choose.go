package forwarder

import (
	"strings"

	"github.com/fingerpost/fingerpost/routetable"
)

// Choose marks in an explanation the rows that a message would go to now: of a group with pick all every row whose hop can be
// reached, of the others the one that would be taken if nothing changed.
func (n *Node) Choose(x *routetable.Explanation) {
	var best *routetable.Explained
	bestBusy := 0
	for i := range x.Matches {
		m := &x.Matches[i]
		m.Chosen = new(bool)
		if i == 0 || x.Matches[i-1].Group != m.Group {
			best = nil
		}
		present, busy := n.state(m)
		switch {
		case !m.Used || !present:
		case m.Pick == routetable.PickAll:
			*m.Chosen = true
		case best == nil || m.Pick == routetable.PickAny && m.Route.Order == best.Route.Order && busy < bestBusy:
			if best != nil {
				*best.Chosen = false
			}
			best, bestBusy = m, busy
			*m.Chosen = true
		}
	}
}

// state tells whether the hop of a row can be expected to take a copy, and how many it has.
func (n *Node) state(m *routetable.Explained) (present bool, busy int) {
	if m.Hop == "" {
		return false, 0
	}
	hop, err := routetable.ParseHop(m.Result)
	if err != nil {
		return false, 0
	}
	return n.stateOf(hop)
}

// Unread tells whether nobody is at an address that a row leads to: a receiver, component, peer or client that is not there, or a name without a row. Of
// hops that are dialled Hops tells.
func (n *Node) Unread(address string) bool {
	hop, err := routetable.ParseHop(address)
	if err != nil || strings.Contains(address, "$") || hop.Scheme == "amqp" || hop.Scheme == "amqps" {
		return false
	}
	if hop.IsName() {
		for _, g := range n.table.Snapshot().Inner(nil, hop, nil) {
			for i := range g.Matches {
				if m := &g.Matches[i]; m.Problem == "" && !m.Route.Optional {
					return false
				}
			}
		}
		return true
	}
	present, _ := n.stateOf(hop)
	return !present
}

func (n *Node) stateOf(hop *routetable.Hop) (present bool, busy int) {
	switch hop.Scheme {
	case "link":
		if r := n.receiver(hop.Name); r != nil {
			return r.Present(), r.Busy()
		}
		return false, 0
	case "amqp", "amqps":
		p := n.peerFor(hop)
		for _, ln := range p.all() {
			busy += ln.Busy()
		}
		return !p.down.Load(), busy
	}
	if s := n.schemes[hop.Scheme]; s != nil {
		o := s.Outlet(hop, nil, "")
		return o != nil && o.Present(), 0
	}
	return true, 0 // null, or a name, which is looked up again
}
