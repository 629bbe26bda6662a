package routetable

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Explanation is the answer of Explain.
type Explanation struct {
	Address  string      `json:"address"`
	Revision uint64      `json:"revision"`
	Matches  []Explained `json:"matches"`
	Hops     []string    `json:"hops"`              // canonical text of every candidate that the table allows, each once
	Routed   string      `json:"routed,omitempty"`  // the routing address, where it is not Address
	Emptied  *Emptied    `json:"emptied,omitempty"` // where no row matches: the pattern that did, and has no row any more
	Near     []string    `json:"near,omitempty"`    // patterns that nearly fit, and why they do not: at most maxNear
}

// Explained is one row whose pattern fits the address.
type Explained struct {
	Pattern  string   `json:"pattern"`
	Address  string   `json:"address"`
	Captures []string `json:"captures"`
	Result   string   `json:"result"`
	Hop      string   `json:"hop,omitempty"`     // where the result is usable
	Problem  string   `json:"problem,omitempty"` // where it is not
	Pick     Pick     `json:"pick"`
	Group    int      `json:"group"` // from 1
	Fallback bool     `json:"fallback"`
	Optional bool     `json:"optional"`
	Used     bool     `json:"used"`
	Why      string   `json:"why,omitempty"`     // where it is not used: in a person's words, without credentials
	Nowhere  string   `json:"nowhere,omitempty"` // where it is used and names what leads to no hop: why, in the same words
	Depth    int      `json:"depth,omitempty"`   // where it is used and names another name: how many names deep that goes, MaxDepth at most, one more where it is too deep
	Chosen   *bool    `json:"chosen,omitempty"`  // a running router fills it
	Route    *Route   `json:"-"`
}

// Explain says which rows fit addr, what they make of it, and where it would go. addr is a message's to; target is the target of its
// link, empty for none: where addr matches no row, its rows are the ones explained (see Snapshot.Route). property is as for LookupInto.
//
// Rows are in table order, used ones and others. The lists are never nil. Hops holds "null" only where nothing else is left.
func (s *Snapshot) Explain(addr, target string, property func(string) (string, bool)) *Explanation {
	x := &Explanation{Address: addr, Revision: s.revision, Matches: []Explained{}, Hops: []string{}}
	groups, routed, ok := s.Route(nil, addr, true, target, target != "", property)
	if !ok && len(groups) == 0 {
		routed = addr
		// Rows that have a problem are used all the same, and lead nowhere.
		groups = s.LookupInto(nil, addr, property)
	}
	if routed != addr {
		x.Routed = routed
	}
	used := map[uint64]int{}
	for i := range groups {
		for _, m := range groups[i].Matches {
			used[m.Route.ID] = groups[i].Number
		}
	}
	x.Matches = s.explainRows(x.Matches, routed, used, len(groups), property)
	s.explainUnused(x.Matches, routed, property)
	if len(x.Matches) == 0 {
		if e, ok := s.Emptied(routed); ok {
			x.Emptied = &e
		}
	}
	s.explainNames(x.Matches, groups, property)
	x.Near = s.near(routed)
	x.Hops = s.hops(x.Hops, groups, property)
	return x
}

// explainRows appends every row whose pattern fits addr. Groups that are not used get the numbers after n.
func (s *Snapshot) explainRows(dst []Explained, addr string, used map[uint64]int, n int, property func(string) (string, bool)) []Explained {
	rows := s.rowsFor(nil, addr, hashAddress(addr))
	cands := groupRows(make([]cand, 0, len(rows)), rows, func(*Route) bool { return true })
	for i := range cands {
		c := &cands[i]
		ends := c.pattern.capture(nil, addr)
		captures := make([]string, 0, len(ends)/2)
		for i := 0; i < len(ends); i += 2 {
			captures = append(captures, addr[ends[i]:ends[i+1]])
		}
		number := 0
		for _, m := range c.matches {
			if number == 0 {
				number = used[m.Route.ID]
			}
		}
		if number == 0 {
			n++
			number = n
		}
		for _, m := range s.expandAll(c, addr) {
			r := m.Route
			_, isUsed := used[r.ID]
			e := Explained{
				Pattern: r.Pattern, Address: r.Address, Captures: captures, Result: m.Result, Problem: m.Problem, Pick: r.Pick,
				Group: number, Fallback: r.Fallback, Optional: r.Optional, Used: isUsed, Route: r,
			}
			if m.Hop != nil {
				e.Hop = m.Hop.Text
			}
			dst = append(dst, e)
		}
	}
	slices.SortFunc(dst, func(a, b Explained) int { return compareRoutes(a.Route, b.Route) })
	return dst
}

// explainUnused says of each row that is not used why not.
func (s *Snapshot) explainUnused(rows []Explained, addr string, property func(string) (string, bool)) {
	var winner *Route // the first row that counts
	for i := range rows {
		if x := &rows[i]; x.Used && !x.Optional && (winner == nil || x.Problem == "" && winner.Fallback && !x.Fallback) {
			winner = x.Route
		}
	}
	first := "" // made once: it may take a while
	for i := range rows {
		if x := &rows[i]; !x.Used {
			if first == "" && winner != nil {
				first = rowText(winner) + fmt.Sprintf(" at position %d", s.Position(winner)+1)
			}
			x.Why = s.whyNot(x.Route, addr, winner, first, property)
		}
	}
}

// explainNames says of each row that is used and names a name how deep that goes, and where it leads to no hop why. A topic without a subscriber
// is not nowhere: what is sent to it is accepted.
func (s *Snapshot) explainNames(rows []Explained, groups []Group, property func(string) (string, bool)) {
	at := map[uint64]*Explained{}
	for i := range rows {
		at[rows[i].Route.ID] = &rows[i]
	}
	for _, g := range groups {
		for i := range g.Matches {
			x := at[g.Matches[i].Route.ID]
			if x == nil || x.Problem != "" || !g.Matches[i].Hop.IsName() {
				continue
			}
			one := g
			one.Matches = g.Matches[i : i+1]
			ends := s.Resolve(nil, []Group{one}, nil, property)
			x.Nowhere = nowhere(ends, x.Optional)
			for _, c := range ends {
				x.Depth = max(x.Depth, c.Depth)
			}
		}
	}
}

// nowhere says why none of the candidates is a hop; "" where one is. Those that are optional count only for a row that is optional itself.
func nowhere(candidates []Candidate, optional bool) string {
	const most = 5
	var why []string
	for _, c := range candidates {
		text := ""
		switch leads := c.End == EndHop || c.End == EndEmpty && strings.HasPrefix(c.Name, topicPrefix); {
		case leads && (optional || !c.Optional):
			return ""
		case leads:
			text = rowText(c.Route) + " is optional"
		case c.End == EndEmpty:
			text = "no row matches the name " + short(arrowField(c.Name))
		case c.End == EndTooDeep:
			text = "the name leads back or too deep: " + short(arrowField(c.Name))
		case c.End == EndProblem:
			text = rowText(c.Route) + ": " + short(c.Problem)
		}
		if len(why) == most {
			text = "and more"
		}
		if len(why) <= most && !slices.Contains(why, text) {
			why = append(why, text)
		}
	}
	return strings.Join(why, "; ")
}

// whyNot says why a row whose pattern fits is not used. first describes winner, the first row that counts; there may be none.
func (s *Snapshot) whyNot(r *Route, addr string, winner *Route, first string, property func(string) (string, bool)) string {
	if w := r.c.when; w != nil && (property == nil || !w.Match(property)) {
		return "its when does not hold: " + short(r.When)
	}
	switch {
	case winner == nil:
		return "no row that counts was found"
	case r.Fallback && !winner.Fallback:
		return "fallback: another row was found: " + first
	case r.Optional:
		return "optional: the search ended before it, at " + first
	}
	switch s.space(addr) {
	case spaceFirst:
		if r.Pattern != winner.Pattern {
			return "match first: another pattern comes first: " + first
		}
	case spaceGroup:
		return "one group only: another one comes first: " + first
	}
	return "order: " + first + " comes first"
}

// rowText is a row as people write it, with credentials masked.
func rowText(r *Route) string {
	return short(arrowField(r.Pattern)) + " --> " + short(arrowField(MaskUserinfo(r.Address)))
}

// short bounds a text that stands in another.
func short(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	end := most
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// maxNear bounds the patterns that nearly fit.
const maxNear = 10

// near lists patterns that would fit if their wildcards took the product's own names; see guard.
func (s *Snapshot) near(addr string) []string {
	g := guard(addr)
	if g == 0 || len(addr) > MaxTextBytes {
		return nil
	}
	names := "names that begin with $"
	if addr[0] != '$' {
		names = "names of the scheme " + addr[:g-1]
	}
	var near []string
	for _, p := range s.unguarded(addr) {
		text := short(arrowField(p.text)) + " does not match " + names
		prefix := p.forms[0].prefix
		if prefix == "" && len(p.lits) == 0 && !strings.HasPrefix(p.text, globPrefix) && !strings.HasPrefix(p.text, "\\") && (addr[:g] != topicPrefix || !strings.Contains(p.text, "%")) {
			text += ": write " + short(arrowField(addr[:g]+p.text))
		}
		near = append(near, text)
	}
	slices.Sort(near)
	return near
}

// unguarded gives at most maxNear patterns that addr fits but for its guard.
func (s *Snapshot) unguarded(addr string) []*pattern {
	var found []*pattern
	var p probes
	s.index.find(&p, addr, hashAddress(addr))
	for _, slot := range p.slots() {
		rec := s.record(slot)
		if len(found) == maxNear || rec == nil || rec.flags()&recWild == 0 {
			continue
		}
		p := s.routeOf(slot).c.pattern
		fits := slices.ContainsFunc(p.forms, func(f form) bool { return f.fits(addr) })
		if fits && !p.match(addr) && !slices.ContainsFunc(found, func(o *pattern) bool { return o.text == p.text }) {
			found = append(found, p)
		}
	}
	return found
}

// hops appends the canonical texts of the candidates that groups lead to, each once.
func (s *Snapshot) hops(dst []string, groups []Group, property func(string) (string, bool)) []string {
	null := false
	seen := map[string]bool{}
	for _, c := range s.Resolve(nil, groups, nil, property) {
		switch {
		case c.End != EndHop:
		case c.Hop.Scheme == NullAddress:
			null = true
		case !seen[c.Hop.Key]:
			seen[c.Hop.Key] = true
			dst = append(dst, c.Hop.Text)
		}
	}
	if null && len(dst) == 0 {
		dst = append(dst, NullAddress)
	}
	return dst
}
