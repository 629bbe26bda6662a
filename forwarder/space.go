package forwarder

import (
	"github.com/fingerpost/fingerpost/routetable"
)

// A name space may have an outlet of its own, as event: has, whose names have one order whoever sends to them. Then names of it are not looked
// up here: messages to them go to that outlet (Handle), which looks up the same table and sends on by an inlet that is inside the space what other
// outlets have to deliver.

// owned gives the outlet of the name's space; nil where it has none of its own, or the message comes from inside.
func (n *Node) owned(name string, inside string) (Outlet, *routetable.Hop) {
	scheme, ok := routetable.ReservedScheme(name)
	if !ok || scheme == inside {
		return nil, nil
	}
	s := n.schemes[scheme]
	if s == nil {
		return nil, nil
	}
	hop, err := routetable.ParseHop(name)
	if err != nil || !hop.IsName() {
		return nil, nil
	}
	return s.Outlet(hop, nil, name), hop
}

// ownedPlan makes the plan of an address whose space has an outlet of its own, and reports whether it has.
func (n *Node) ownedPlan(p *plan, l *inlink, to string, hasTo bool) bool {
	name := to
	outlet, hop := n.owned(to, l.inside)
	if outlet == nil && !hasTo && l.hasTarget {
		name = l.target
		outlet, hop = n.owned(name, l.inside)
	}
	if outlet == nil {
		return false
	}
	p.address, p.found, p.foreign = name, true, true
	p.groups = []planGroup{{targets: []planTarget{{outlet: outlet, hop: hop, timeout: n.options.DeliveryTimeout, retry: -1}}}}
	p.roots = []int32{0}
	return true
}
