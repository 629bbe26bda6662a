package routetable

import (
	"slices"
	"time"
)

// MaxDepth is how many names deep a lookup goes.
const MaxDepth = 8

// maxCandidates ends a Resolve of names that fan out over and over: past it there are no further candidates.
const maxCandidates = 100_000

// End says how the search for a candidate ended.
type End uint8

// The ends.
const (
	EndHop     End = iota // at a hop
	EndEmpty              // Name leads to no row: unrouted; for topic: accepted, and counted
	EndTooDeep            // MaxDepth names deep, or at a name that leads back to itself: rejected fingerpost:loop
	EndProblem            // the row's expansion is a problem: the row counts as not there
)

// Candidate is where a lookup leads, name schemes looked up.
type Candidate struct {
	Hop   *Hop   // for EndHop
	Route *Route // the row that names the hop, or the name that ended the search
	Outer *Route // the row of the first lookup that it came by; Route itself where no name was between
	Name  string // the name that Route was found under, empty at the first lookup; for EndEmpty and EndTooDeep the one that was not found
	Group int    // index in groups of the first lookup
	Depth int    // names between Outer and here; for EndEmpty and EndTooDeep with Name

	// Of Route, where an outer row on the way does not say otherwise.
	Optional bool
	Timeout  time.Duration // 0 is the node's
	Retry    int           // -1 is none set

	Problem string // for EndProblem
	End     End
}

// Inner appends to dst the groups that a name hop leads to.
func (s *Snapshot) Inner(dst []Group, h *Hop, property func(string) (string, bool)) []Group {
	return s.LookupInto(dst, h.LookupName(), property)
}

// Resolve appends to dst the candidates that groups lead to, in order: hops as they are, names looked up again, up to MaxDepth deep.
//
// choose picks the matches of a group that are followed, at every depth; nil follows all, which gives every candidate that the table
// allows. A row that names another name is always present, so a node picks among rows first, and a name picked is then looked up.
//
// A row outside overrides those inside: an optional row makes what it leads to optional, its timeout and retry hold where it sets
// them. A name that was followed is not followed again with the same overrides.
func (s *Snapshot) Resolve(dst []Candidate, groups []Group, choose func(*Group) []Match, property func(string) (string, bool)) []Candidate {
	r := resolver{s: s, choose: choose, property: property, dst: dst, limit: len(dst) + maxCandidates}
	for i := range groups {
		r.index = i
		r.group(&groups[i], nil, "", 0)
	}
	return r.dst
}

type resolver struct {
	s        *Snapshot
	choose   func(*Group) []Match
	property func(string) (string, bool)
	dst      []Candidate
	limit    int
	index    int
	lookups  int
	path     [MaxDepth]string // the names on the way to here
	seen     map[followed]int // at which depth
}

// followed is a name that was looked up, and what overrides its rows.
type followed struct {
	name     string
	optional bool
	timeout  time.Duration
	retry    int
}

// group follows the matches of g, found under name at depth; outer is what the rows outside make of them, nil at the first lookup.
func (r *resolver) group(g *Group, outer *Candidate, name string, depth int) {
	matches := g.Matches
	if r.choose != nil {
		matches = r.choose(g)
	}
	for i := range matches {
		m := &matches[i]
		if len(r.dst) >= r.limit {
			return
		}
		c := Candidate{
			Hop: m.Hop, Route: m.Route, Outer: m.Route, Name: name, Group: r.index, Depth: depth,
			Optional: m.Route.Optional, Timeout: m.Route.Timeout, Retry: m.Route.Retry, Problem: m.Problem,
		}
		if outer != nil {
			c.Outer = outer.Outer
			c.Optional = c.Optional || outer.Optional
			if outer.Timeout != 0 {
				c.Timeout = outer.Timeout
			}
			if outer.Retry >= 0 {
				c.Retry = outer.Retry
			}
		}
		switch {
		case m.Hop == nil:
			c.End = EndProblem
		case m.Hop.IsName():
			r.follow(&c, depth)
			continue
		}
		r.dst = append(r.dst, c)
	}
}

// follow looks up the name that c's hop is.
func (r *resolver) follow(c *Candidate, depth int) {
	h := c.Hop
	c.Hop, c.Name, c.Depth = nil, h.LookupName(), depth+1
	if depth == MaxDepth || slices.Contains(r.path[:depth], c.Name) {
		c.End = EndTooDeep
		r.dst = append(r.dst, *c)
		return
	}
	key := followed{c.Name, c.Optional, c.Timeout, c.Retry}
	if at, ok := r.seen[key]; ok && at <= depth || r.lookups >= r.limit {
		return
	}
	if r.seen == nil {
		r.seen = map[followed]int{}
	}
	r.seen[key] = depth
	r.lookups++
	groups := r.s.Inner(nil, h, r.property)
	if len(groups) == 0 {
		c.End = EndEmpty
		r.dst = append(r.dst, *c)
		return
	}
	name := c.Name
	r.path[depth] = name
	for i := range groups {
		r.group(&groups[i], c, name, depth+1)
	}
}
