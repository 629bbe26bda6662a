package routetable

import "strings"

// The kinds of wildcard.
const (
	wildAny  = '*' // any run of bytes
	wildSeg  = '%' // any run without a slash
	wildSeg1 = '+' // a run of at least one byte without a slash (topics)
)

// wild is a pattern as literals with wildcards between: lits[0] kinds[0] lits[1] … lits[k].
//
// Invariant: len(lits) == len(kinds)+1.
type wild struct {
	lits  []string
	kinds []byte
	min   int // the least length of a match
}

// match reports whether s fits, and where pos is not nil puts the start of every literal into it: wildcard i took
// s[pos[i]+len(lits[i]):pos[i+1]]. pos has room for len(lits).
//
// Wildcards are greedy, the left one first. The placements of the literals that fit form a lattice (the right one of two places
// for every literal fits as well: a gap only shrinks, or lies inside a gap that fitted), so what left-first greed finds is the greatest
// placement, and that is found from the right, each literal as far right as it goes. Going back is needed only to the last "*": of two
// places for the literal before a segment wildcard, both without a slash up to where it starts, the left one reaches no more than the
// right one did. The time is a product of the lengths in the worst case, and linear for patterns of stars.
func (w *wild) match(s string, pos []int) bool {
	k := len(w.kinds)
	if len(s) < w.min || !strings.HasPrefix(s, w.lits[0]) || !strings.HasSuffix(s, w.lits[k]) {
		return false
	}
	floor := len(w.lits[0])      // no literal but the first begins before
	e := len(s) - len(w.lits[k]) // the gap of wildcard i ends here
	if pos != nil {
		pos[0], pos[k] = 0, e
	}
	if k == 0 {
		return len(s) == floor
	}
	star, starAt := 0, 0 // the literal that follows no later "*" and may still move left; its place. 0 is none.
	for i := k - 1; ; i-- {
		p := w.place(s, i, floor, e)
		if p < 0 {
			// A literal behind a star has nowhere to go: nothing helps.
			if w.kinds[i] == wildAny || star == 0 {
				return false
			}
			// The segment wildcard left of the star's literal gets no further from another place in the same segment.
			slash := strings.LastIndexByte(s[floor:starAt], '/')
			if slash < 0 {
				return false
			}
			i, e = star, floor+slash+len(w.lits[star])
			if limit := starAt + len(w.lits[star]) - 1; e > limit {
				e = limit
			}
			if p = w.place(s, i, floor, e); p < 0 {
				return false
			}
		}
		if pos != nil {
			pos[i] = p
		}
		if i == 0 {
			return true
		}
		if w.kinds[i] == wildAny {
			star, starAt = i, p
		}
		e = p
	}
}

// place finds the place furthest right for literal i, so that wildcard i fills the gap from its end to e; -1 if there is none.
func (w *wild) place(s string, i, floor, e int) int {
	lit := w.lits[i]
	lo, hi := floor, e // the literal lies in s[lo:hi]
	if w.kinds[i] != wildAny {
		if w.kinds[i] == wildSeg1 {
			hi--
		}
		if hi < floor {
			return -1
		}
		if slash := strings.LastIndexByte(s[floor:e], '/'); slash >= 0 {
			slash += floor
			if slash+1 > hi {
				return -1
			}
			lo = max(floor, slash+1-len(lit))
			if i == 0 {
				return -1
			}
		}
	}
	if i == 0 {
		if hi < floor {
			return -1
		}
		return 0
	}
	if hi < lo {
		return -1
	}
	p := strings.LastIndex(s[lo:hi], lit)
	if p < 0 {
		return -1
	}
	return lo + p
}
