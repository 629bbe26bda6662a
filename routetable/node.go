package routetable

// node is the rows of one pattern, immutable once a snapshot holds it.
type node struct {
	pat    *pattern
	rows   []*Route    // in table order
	groups []nodeGroup // by pick and fallback, in table order of their first rows
}

// nodeGroup is a group as far as it is known without an address: complete where all is literal and nothing depends on properties.
type nodeGroup struct {
	group    Group // without a number; its Matches are shared with every lookup
	order    int   // of the first row
	pos      int64
	ready    bool // group may be given out as it is
	when     bool // a row has a predicate
	counts   bool // a row is not optional
	usable   bool // a row is not optional and has no problem, as far as known
	template bool // a row's address is a template
}

// build makes the groups of n.rows.
func (n *node) build() {
	n.groups = nil
	for _, r := range n.rows {
		var g *nodeGroup
		for i := range n.groups {
			if o := &n.groups[i]; o.group.Pick == r.Pick && o.group.Fallback == r.Fallback {
				g = o
				break
			}
		}
		if g == nil {
			n.groups = append(n.groups, nodeGroup{
				group: Group{Pattern: r.Pattern, Pick: r.Pick, Balance: r.Balance, HashKey: hashKey(r), Fallback: r.Fallback},
				order: r.Order, pos: r.pos,
			})
			g = &n.groups[len(n.groups)-1]
		}
		g.group.Matches = append(g.group.Matches, r.c.match)
		g.when = g.when || r.c.when != nil
		g.template = g.template || !r.c.template.literal
		g.counts = g.counts || !r.Optional
		g.usable = g.usable || !r.Optional && r.c.match.Problem == ""
	}
	for i := range n.groups {
		g := &n.groups[i]
		g.group.Matches = g.group.Matches[:len(g.group.Matches):len(g.group.Matches)]
		g.ready = !g.when && !g.template
	}
}

// hashKey is the property that an any group with balance hash uses.
func hashKey(r *Route) string {
	if r.Balance != Hash {
		return ""
	}
	if r.HashKey == "" {
		return "group-id"
	}
	return r.HashKey
}
