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
	if mode, ok := spaceOf(addr); ok {
		return mode
	}
	if s.match == MatchFirst {
		return spaceFirst
	}
	return spaceAll
}

// spaceOf is the mode of the name space that addr, or the beginning of one, is in, where that has one of its own.
func spaceOf(addr string) (mode space, ok bool) {
	scheme, _ := ReservedScheme(addr)
	switch scheme {
	case "topic", "event":
		return spaceAll, true
	case "web":
		return spaceRow, true
	case "relay", "rpc", "comp", "node":
		return spaceGroup, true
	}
	return spaceAll, false
}

// competes reports whether the pattern fits addresses of which not every row is used, in whatever match mode: a pattern fits names of a
// reserved scheme only where it holds all of it.
func (p *pattern) competes() bool {
	one := func(text string) bool {
		mode, _ := spaceOf(text)
		return mode != spaceAll
	}
	for _, lit := range p.lits {
		if one(lit) {
			return true
		}
	}
	for i := range p.forms {
		if one(p.forms[i].prefix) {
			return true
		}
	}
	return false
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
//
// Cost: tens of nanoseconds where addr was looked up before and no change has touched it, else a probe of each index that the table has
// rows in: some hundred nanoseconds, and microseconds where the rows are not in the processor's caches.
func (s *Snapshot) LookupInto(dst []Group, addr string, property func(string) (string, bool)) []Group {
	dst, _, _ = s.look(dst, addr, property)
	return dst
}

// LookupUncached is LookupInto without the cache of addresses.
func (s *Snapshot) LookupUncached(dst []Group, addr string, property func(string) (string, bool)) []Group {
	var room [8]*Route
	dst, _, _ = s.compute(dst, addr, s.rowsFor(room[:0], addr, hashAddress(addr)), property)
	return dst
}

// look appends the groups for addr, and reports whether a row counts (is not optional and has no problem) in the first pass, and at all.
func (s *Snapshot) look(dst []Group, addr string, property func(string) (string, bool)) (out []Group, first, found bool) {
	hash := hashAddress(addr)
	e := s.cached(addr, hash)
	if e != nil {
		if !e.when {
			return append(dst, e.groups...), e.first, e.found
		}
		return s.compute(dst, addr, e.rows, property)
	}
	var room [8]*Route
	rows := s.rowsFor(room[:0], addr, hash)
	out, first, found = s.compute(dst, addr, rows, property)
	when := s.whens > 0 && slices.ContainsFunc(rows, func(r *Route) bool { return r.c.when != nil })
	s.keep(addr, hash, out[len(dst):], rows, first, found, when)
	return out, first, found
}

// compute is look on the rows that fit addr.
func (s *Snapshot) compute(dst []Group, addr string, rows []*Route, property func(string) (string, bool)) (out []Group, first, found bool) {
	if len(rows) == 0 {
		return dst, false, false
	}
	if len(rows) <= fewRows && s.apart(addr, rows) {
		for i, r := range rows {
			dst = append(dst, *r.group)
			dst[len(dst)-1].Number = i + 1
		}
		return dst, true, true
	}
	base := len(dst)
	dst, first = s.pass(dst, base, addr, rows, false, property)
	if found = first; !found {
		dst, found = s.pass(dst, base, addr, rows, true, property)
	}
	return dst, first, found
}

// fewRows is up to how many rows the common case is looked for.
const fewRows = 6

// apart reports whether each of the rows is a group of its own and nothing competes: the common case.
func (s *Snapshot) apart(addr string, rows []*Route) bool {
	for i, r := range rows {
		if !r.simple {
			return false
		}
		for _, o := range rows[:i] {
			if o.group.Pattern == r.group.Pattern {
				return false
			}
		}
	}
	return s.match == MatchAll || len(rows) == 1 || s.space(addr) == spaceAll
}

// cand is a group on its way to the result: rows of one pattern with one pick.
type cand struct {
	pattern  *pattern
	matches  []Match // addresses not yet expanded
	template bool    // a row's address is a template
}

// groupRows appends the groups of the rows for which holds is true, in table order of their first rows.
func groupRows(cands []cand, rows []*Route, holds func(*Route) bool) []cand {
	base := len(cands)
	var at map[groupKey]int
	if len(rows) > manyRows {
		at = map[groupKey]int{}
	}
	for _, r := range rows {
		if !holds(r) {
			continue
		}
		i := -1
		if at != nil {
			if n, ok := at[groupKey{r.Pattern, r.Pick, r.Fallback}]; ok {
				i = n
			}
		} else {
			for n := base; n < len(cands); n++ {
				if o := cands[n].matches[0].Route; o.Pick == r.Pick && o.Fallback == r.Fallback && o.Pattern == r.Pattern {
					i = n
					break
				}
			}
		}
		if i < 0 {
			i = len(cands)
			cands = append(cands, cand{pattern: r.c.pattern, matches: r.c.match[:], template: !r.c.template.literal})
			if at != nil {
				at[groupKey{r.Pattern, r.Pick, r.Fallback}] = i
			}
			continue
		}
		c := &cands[i]
		c.matches = append(c.matches, r.c.match[0])
		c.template = c.template || !r.c.template.literal
	}
	return cands
}

// manyRows is where groups are found by a map.
const manyRows = 32

type groupKey struct {
	pattern  string
	pick     Pick
	fallback bool
}

// pass appends the groups of the first pass, or of the fallback rows, and reports whether a row counts as found: not optional, no
// problem. Groups get the numbers that follow base.
func (s *Snapshot) pass(dst []Group, base int, addr string, rows []*Route, fallback bool, property func(string) (string, bool)) ([]Group, bool) {
	var room [8]cand
	cands := groupRows(room[:0], rows, func(r *Route) bool {
		return r.Fallback == fallback && (r.c.when == nil || property != nil && r.c.when.Match(property))
	})
	if len(cands) == 0 {
		return dst, false
	}
	if mode := s.space(addr); mode != spaceAll {
		cands = restrict(cands, mode)
	}
	found := false
	for i := range cands {
		c := &cands[i]
		r := c.first()
		g := Group{Pattern: r.Pattern, Pick: r.Pick, Balance: r.Balance, HashKey: hashKey(r), Fallback: fallback, Number: len(dst) - base + 1, Matches: c.matches}
		if c.template {
			g.Matches = s.expandAll(c, addr)
		}
		for j := range g.Matches {
			found = found || g.Matches[j].Problem == "" && !g.Matches[j].Route.Optional
		}
		dst = append(dst, g)
	}
	return dst, found
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

func (c *cand) first() *Route { return c.matches[0].Route }

// firstCounting is the first row that is not optional, or nil.
func (c *cand) firstCounting() *Route {
	for i := range c.matches {
		if r := c.matches[i].Route; !r.Optional {
			return r
		}
	}
	return nil
}

// restrict keeps the rows of the pattern, the group or the row that is first, and the optional rows before it. Where every row is
// optional it keeps all.
func restrict(cands []cand, mode space) []cand {
	winner := -1
	var end *Route
	for i := range cands {
		if r := cands[i].firstCounting(); r != nil && (end == nil || r.before(end)) {
			winner, end = i, r
		}
	}
	if end == nil {
		return cands
	}
	out := cands[:0]
	for i, c := range cands {
		if mode == spaceFirst && c.first().Pattern == end.Pattern || mode == spaceGroup && i == winner {
			out = append(out, c)
			continue
		}
		keep := func(r *Route) bool { return r.ID == end.ID && mode == spaceRow || r.Optional && r.before(end) }
		n := 0
		for j := range c.matches {
			if keep(c.matches[j].Route) {
				n++
			}
		}
		if n == 0 {
			continue
		}
		if n < len(c.matches) {
			kept := make([]Match, 0, n)
			for j := range c.matches {
				if keep(c.matches[j].Route) {
					kept = append(kept, c.matches[j])
				}
			}
			c.matches = kept
		}
		out = append(out, c)
	}
	return out
}

// expandAll returns the matches of c with the templates among them expanded.
func (s *Snapshot) expandAll(c *cand, addr string) []Match {
	var room [32]int
	ends := c.pattern.capture(room[:0], addr)
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
	// The rows of an address that does not count, optional ones or such with a problem, are kept only where no address counts.
	rest := -1
	base := len(dst)
	anyFallback := false
	for i, name := range names[:n] {
		var first, found bool
		dst, first, found = s.look(dst[:base], name, property)
		if first {
			return dst, name, true
		}
		anyFallback = anyFallback || found
		if len(dst) > base && rest < 0 {
			rest = i
		}
	}
	if rest < 0 {
		return dst[:base], "", false
	}
	for _, name := range names[:n] {
		if !anyFallback {
			break
		}
		var found bool
		if dst, _, found = s.look(dst[:base], name, property); found {
			return dst, name, true
		}
	}
	dst, _, _ = s.look(dst[:base], names[rest], property)
	return dst, names[rest], false
}

// urlName is the name part of an address that is an amqp URL.
func urlName(to string) (string, bool) {
	const least = len("amqp://")
	if len(to) < least || to[0]|0x20 != 'a' {
		return "", false
	}
	var p parsedHop
	if err := p.parseURL(to); err != nil {
		// A host that Messenger would not have liked either still has a name behind it.
		return "", false
	}
	if p.authority == 0 || p.Scheme != "amqp" && p.Scheme != "amqps" || !p.HasName {
		return "", false
	}
	return p.Name, true
}
