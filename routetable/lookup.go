package routetable

import "slices"

// space says how patterns compete for an address.
type space uint8

const (
	spaceAll   space = iota // every matching row
	spaceFirst              // the rows of the first matching pattern
	spaceGroup              // the first matching group
	spaceRow                // the first matching row
)

// space returns the mode of the name space that addr is in. Reserved schemes that are not name spaces of their own go by the table's.
func (s *Snapshot) space(addr string) space {
	if scheme, ok := ReservedScheme(addr); ok {
		switch scheme {
		case "topic", "event":
			return spaceAll
		case "web":
			return spaceRow
		case "relay", "rpc", "comp", "node":
			return spaceGroup
		}
	}
	if s.match == MatchFirst {
		return spaceFirst
	}
	return spaceAll
}

// LookupInto appends to dst the groups of rows whose pattern fits addr, in table order, fallback groups only where no other row was
// found and then behind the rest.
//
// The address is matched as written: no case folding, no default port. property returns a message property by name; where it is nil,
// rows with a When are left out. Rows carry their address with captures substituted, and what is wrong with it where it is not a
// usable hop. No fitting row is an empty result, not an error. It takes no lock, and where the rows found have literal addresses and
// no When it allocates nothing while dst has room.
//
// How patterns compete depends on the name space of addr:
//
//   - plain names: every row, or in match mode first the rows of the pattern whose first row is first in the table
//   - topic: and event: every row
//   - relay:, rpc:, comp: and node: the first group
//   - web: the first row
//
// Optional rows never decide this: they are found as far as the search goes, which is to the row that ends it.
func (s *Snapshot) LookupInto(dst []Group, addr string, property func(string) (string, bool)) []Group {
	base := len(dst)
	var room [16]*node
	nodes := s.index.match(room[:0], addr)
	if len(nodes) == 1 && len(nodes[0].groups) == 1 {
		// Nothing competes: the common case.
		if g := &nodes[0].groups[0]; g.ready && g.usable && len(g.group.Matches) == 1 {
			dst = append(dst, g.group)
			dst[base].Number = 1
			return dst
		}
	}
	dst, found := s.pass(dst, base, addr, nodes, false, property)
	if !found {
		dst, _ = s.pass(dst, base, addr, nodes, true, property)
	}
	return dst
}

// cand is a group on its way to the result.
type cand struct {
	group   *nodeGroup
	node    *node
	matches []Match // the rows that hold; expanded where the group is not ready
	ready   bool    // matches are the shared ones
}

// pass appends the groups of the first pass, or of the fallback rows, and reports whether a row counts as found: not optional, no
// problem. Groups get the numbers that follow base.
func (s *Snapshot) pass(dst []Group, base int, addr string, nodes []*node, fallback bool, property func(string) (string, bool)) ([]Group, bool) {
	var room [16]cand
	cands := room[:0]
	for _, n := range nodes {
		for i := range n.groups {
			g := &n.groups[i]
			if g.group.Fallback != fallback {
				continue
			}
			c := cand{group: g, node: n, matches: g.group.Matches, ready: true}
			if g.when {
				if c.matches = holding(c.matches, property); len(c.matches) == 0 {
					continue
				}
				c.ready = false
			}
			cands = append(cands, c)
		}
	}
	if len(cands) == 0 {
		return dst, false
	}
	if len(cands) > 1 {
		sortCands(cands)
	}
	if mode := s.space(addr); mode != spaceAll {
		cands = restrict(cands, mode)
	}
	found := false
	for i := range cands {
		c := &cands[i]
		g := c.group.group
		g.Matches = c.matches
		if c.group.template {
			g.Matches = s.expandAll(c, addr)
		}
		g.Number = len(dst) - base + 1
		if c.ready && c.group.ready {
			found = found || c.group.usable
		} else {
			first := g.Matches[0].Route
			g.Balance, g.HashKey = first.Balance, hashKey(first)
			for j := range g.Matches {
				found = found || g.Matches[j].Problem == "" && !g.Matches[j].Route.Optional
			}
		}
		dst = append(dst, g)
	}
	return dst, found
}

// holding returns the matches whose predicate holds.
func holding(matches []Match, property func(string) (string, bool)) []Match {
	var out []Match
	for i := range matches {
		w := matches[i].Route.c.when
		if w == nil || property != nil && w.Match(property) {
			out = append(out, matches[i])
		}
	}
	return out
}

func (c *cand) first() *Route { return c.matches[0].Route }

// firstCounting is the first row that is not optional, or nil.
func (c *cand) firstCounting() *Route {
	if !c.group.counts {
		return nil
	}
	for i := range c.matches {
		if r := c.matches[i].Route; !r.Optional {
			return r
		}
	}
	return nil
}

func sortCands(cands []cand) {
	if len(cands) > 16 {
		slices.SortFunc(cands, func(a, b cand) int { return compareRoutes(a.first(), b.first()) })
		return
	}
	for i := 1; i < len(cands); i++ {
		for j := i; j > 0 && cands[j].first().before(cands[j-1].first()); j-- {
			cands[j], cands[j-1] = cands[j-1], cands[j]
		}
	}
}

// restrict keeps the rows of the pattern, the group or the row that is first, and the optional rows before it. Where every row is
// optional it keeps all.
func restrict(cands []cand, mode space) []cand {
	var winner *cand
	var end *Route
	for i := range cands {
		if r := cands[i].firstCounting(); r != nil && (end == nil || r.before(end)) {
			winner, end = &cands[i], r
		}
	}
	if end == nil {
		return cands
	}
	won := *winner
	out := cands[:0]
	for _, c := range cands {
		switch {
		case mode == spaceFirst && c.node == won.node, mode == spaceGroup && c.group == won.group:
			out = append(out, c)
			continue
		}
		keep := func(r *Route) bool { return r == end && mode == spaceRow || r.Optional && r.before(end) }
		n := 0
		for i := range c.matches {
			if keep(c.matches[i].Route) {
				n++
			}
		}
		if n == 0 {
			continue
		}
		if n < len(c.matches) {
			kept := make([]Match, 0, n)
			for i := range c.matches {
				if keep(c.matches[i].Route) {
					kept = append(kept, c.matches[i])
				}
			}
			c.matches, c.ready = kept, false
		}
		out = append(out, c)
	}
	return out
}

// expandAll returns the matches of c with the templates among them expanded.
func (s *Snapshot) expandAll(c *cand, addr string) []Match {
	var room [32]int
	ends := c.node.pat.capture(room[:0], addr)
	out := make([]Match, len(c.matches))
	copy(out, c.matches)
	for i := range out {
		m := &out[i]
		t := m.Route.c.template
		if t.literal {
			continue
		}
		var ok bool
		m.Result, ok = t.expand(addr, ends)
		m.Hop, m.Problem = t.judge(m.Result, ok, addr, ends, m.Route.DynamicHost || s.dynamicHosts)
	}
	return out
}

// Route finds the groups for a message by its routing address: the first of its to as written, the name part of a to that is an amqp
// URL, and the link's target, that matches a row; fallback rows count only after all three. routed is the address that matched. Where
// ok is false the message is unrouted, and groups holds at most its optional rows.
func (s *Snapshot) Route(dst []Group, to string, hasTo bool, target string, hasTarget bool, property func(string) (string, bool)) (groups []Group, routed string, ok bool) {
	var names [3]string
	n := 0
	if hasTo {
		names[n] = to
		n++
		if name, ok := urlName(to); ok {
			names[n] = name
			n++
		}
	}
	if hasTarget {
		names[n] = target
		n++
	}
	base := len(dst)
	// The rows of an address that does not count, optional ones or such with a problem, are kept only where no address counts.
	rest := -1
	for _, fallback := range [...]bool{false, true} {
		for i, name := range names[:n] {
			var room [16]*node
			nodes := s.index.match(room[:0], name)
			var found bool
			dst = dst[:base]
			if fallback {
				dst, _ = s.pass(dst, base, name, nodes, false, property)
			}
			dst, found = s.pass(dst, base, name, nodes, fallback, property)
			if found {
				return dst, name, true
			}
			if len(dst) > base && (rest < 0 || i < rest) {
				rest = i
			}
		}
	}
	dst = dst[:base]
	if rest < 0 {
		return dst, "", false
	}
	return s.LookupInto(dst, names[rest], property), names[rest], false
}

// urlName is the name part of an address that is an amqp URL.
func urlName(to string) (string, bool) {
	const least = len("amqp://")
	if len(to) < least || to[0]|0x20 != 'a' {
		return "", false
	}
	p, err := parseURL(to)
	if err != nil {
		// A host that Messenger would not have liked either still has a name behind it.
		return "", false
	}
	if p.authority == 0 || p.Scheme != "amqp" && p.Scheme != "amqps" || !p.HasName {
		return "", false
	}
	return p.Name, true
}
