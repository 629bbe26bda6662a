package routetable

import "slices"

// Explanation is the answer of Explain.
type Explanation struct {
	Address  string      `json:"address"`
	Revision uint64      `json:"revision"`
	Matches  []Explained `json:"matches"`
	Hops     []string    `json:"hops"`             // canonical text of every candidate that the table allows, each once
	Routed   string      `json:"routed,omitempty"` // the routing address, where it is not Address
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
	Why      string   `json:"why,omitempty"`    // where it is not used
	Chosen   *bool    `json:"chosen,omitempty"` // a running router fills it
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
	x.Hops = s.hops(x.Hops, groups, property)
	return x
}

// explainRows appends every row whose pattern fits addr. Groups that are not used get the numbers after n.
func (s *Snapshot) explainRows(dst []Explained, addr string, used map[uint64]int, n int, property func(string) (string, bool)) []Explained {
	rows := s.rowsFor(nil, addr)
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
			if !isUsed {
				e.Why = whyNot(r, property)
			}
			dst = append(dst, e)
		}
	}
	slices.SortFunc(dst, func(a, b Explained) int { return compareRoutes(a.Route, b.Route) })
	return dst
}

func whyNot(r *Route, property func(string) (string, bool)) string {
	if w := r.c.when; w != nil && (property == nil || !w.Match(property)) {
		return "its when does not hold"
	}
	if r.Fallback {
		return "a row that is no fallback was found"
	}
	return "another row comes first"
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
