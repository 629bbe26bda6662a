package routetable

import (
	"slices"
	"strings"
)

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
					return atLine(r, &RefusedError{What: "the names lead back: " + strings.Join(ring, " --> "), Where: "address"})
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
