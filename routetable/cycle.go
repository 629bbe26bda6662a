package routetable

import (
	"slices"
	"strings"
)

// cycleError is a refusal of names that lead back, with the row of the edit that they lead through.
type cycleError struct {
	error
	row *Route
}

func (e *cycleError) Unwrap() error { return e.error }

// byOp names, in a batch, the op that wrote the row of a cycle: the last that could have.
func (e *cycleError) byOp(ops []Op) error {
	for i, op := range slices.Backward(ops) {
		switch op.Verb {
		case VerbAdd, VerbInsert, VerbReplace, VerbReplaceAll:
			if op.Route.Pattern != e.row.Pattern || op.Verb != VerbReplaceAll && key(op.Route.Address) != e.row.c.key {
				continue
			}
		case VerbLoad:
			if origin := op.Origin; e.row.line == 0 || origin != e.row.Origin && !(origin == "" && e.row.Origin == OriginOperator) {
				continue
			}
		default:
			continue
		}
		return &OpError{i, op.Verb, e.error}
	}
	return e.error
}

// checkCycles refuses names that lead back to themselves by literal rows alone. Only rows reachable from the given ones are looked at.
func (s *Snapshot) checkCycles(lists ...[]*Route) error {
	const (
		open = 1
		done = 2
	)
	state := map[string]int{}
	type step struct {
		name string
		next []string
	}
	for _, rows := range lists {
		for _, r := range slices.Backward(rows) {
			if _, ok := nextName(r); !ok || !r.c.pattern.literal() {
				continue
			}
			name := r.c.pattern.lits[0]
			if state[name] != 0 {
				continue
			}
			state[name] = open
			path := []step{{name, s.namesBehind(name)}}
			for len(path) > 0 {
				top := &path[len(path)-1]
				if len(top.next) == 0 {
					state[top.name] = done
					path = path[:len(path)-1]
					continue
				}
				name, top.next = top.next[0], top.next[1:]
				switch state[name] {
				case open:
					var ring []string
					for i := len(path) - 1; i >= 0; i-- {
						ring = append([]string{arrowField(path[i].name)}, ring...)
						if path[i].name == name {
							break
						}
					}
					ring = append(ring, arrowField(name))
					if len(ring) > MaxDepth {
						ring = append(ring[:MaxDepth/2], append([]string{"…"}, ring[len(ring)-MaxDepth/2:]...)...)
					}
					refused := &RefusedError{What: "the names lead back: " + strings.Join(ring, " --> "), Where: "address"}
					return &cycleError{atLine(r, refused), r}
				case 0:
					state[name] = open
					path = append(path, step{name, s.namesBehind(name)})
				}
			}
		}
	}
	return nil
}

// namesBehind lists the names that the literal rows of a name lead to.
func (s *Snapshot) namesBehind(name string) []string {
	var names []string
	for _, w := range s.index.keys.get(uint32(hashText(kindExact, name) >> 32)) {
		r := s.routeOf(uint32(w))
		if next, ok := nextName(r); ok && slices.Contains(r.c.pattern.lits, name) {
			names = append(names, next)
		}
	}
	return names
}

// nextName is the name that a row with a literal address leads to.
func nextName(r *Route) (string, bool) {
	h := r.c.match[0].Hop
	if h == nil || !h.IsName() {
		return "", false
	}
	return h.LookupName(), true
}
