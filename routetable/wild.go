package routetable

import (
	"bytes"
	"fmt"
	"strings"
)

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
	first int // the literal before the first "*", where others with segment wildcards are before it; else 0
	ahead int // slashes in the literals between the first and that one
}

// bindFirst fills first and ahead.
func (w *wild) bindFirst() {
	n := max(bytes.IndexByte(w.kinds, wildAny), 0)
	w.first, w.ahead = n, 0
	for i := 1; i < n; i++ {
		w.ahead += strings.Count(w.lits[i], "/")
	}
}

// firstEnd is where the literal before the first "*" ends at the latest: what is before it has a fixed number of slashes.
func (w *wild) firstEnd(s string, floor int) int {
	at := floor
	for range w.ahead + 1 {
		n := strings.IndexByte(s[at:], '/')
		if n < 0 {
			return len(s)
		}
		at += n + 1
	}
	return at - 1 + len(w.lits[w.first])
}

// maxRescans bounds how often a match looks at the same place of an address: the slashes that the literals of one run between two "*" may
// hold. Without it the time would be a product of the lengths of pattern and address.
const maxRescans = 32

// check refuses a pattern that would take too long to match. Between two "*" a run of literals with segment wildcards may lie anywhere, and each
// place in the address is tried for it: one for each segment, and each looks at as many segments as the run has. (No linear way is known for
// such runs.) A run before the first "*" or behind the last lies where it lies.
func (w *wild) check() error {
	slashes, segments, floating := 0, false, false
	for i, kind := range w.kinds {
		slashes += strings.Count(w.lits[i], "/")
		if kind != wildAny {
			segments = true
			continue
		}
		if floating && segments && slashes > maxRescans {
			return &RefusedError{
				What:  fmt.Sprintf("the pattern has %d slashes, and segment wildcards, between two wildcards that take slashes", slashes),
				Where: "pattern", Hint: fmt.Sprintf("at most %d can be matched in linear time", maxRescans),
			}
		}
		slashes, segments, floating = 0, false, true
	}
	return nil
}

// match reports whether s fits, and where pos is not nil puts the start of every literal into it: wildcard i took
// s[pos[i]+len(lits[i]):pos[i+1]]. pos has room for len(lits).
//
// Wildcards are greedy, the left one first. The placements of the literals that fit form a lattice (the right one of two places
// for every literal fits as well: a gap only shrinks, or lies inside a gap that fitted), so what left-first greed finds is the greatest
// placement, and that is found from the right, each literal as far right as it goes. Going back is needed only to the last "*": of two
// places for the literal before a segment wildcard, both without a slash up to where it starts, the left one reaches no more than the
// right one did. The time is linear in the lengths; see maxRescans.
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
	switch {
	case k == 0:
		return len(s) == floor
	case k == 1: // as most are
		gap := s[floor:e]
		return w.kinds[0] == wildAny || strings.IndexByte(gap, '/') < 0 && (gap != "" || w.kinds[0] == wildSeg)
	}
	slashes := slashes{s: s, floor: floor, at: len(s)}
	star, starAt := 0, 0 // the literal that follows no later "*" and may still move left; its place. 0 is none.
	for i := k - 1; ; i-- {
		if i == w.first && i > 0 {
			e = min(e, w.firstEnd(s, floor))
		}
		p := w.place(&slashes, i, e)
		if p < 0 {
			// A literal behind a star has nowhere to go, and what is before the first star lies where it lies: nothing helps.
			if w.kinds[i] == wildAny || star == 0 || star == w.first {
				return false
			}
			// The segment wildcard left of the star's literal gets no further from another place in the same segment.
			slash := slashes.before(starAt)
			if slash < floor {
				return false
			}
			i, e = star, min(slash+len(w.lits[star]), starAt+len(w.lits[star])-1)
			if p = w.place(&slashes, i, e); p < 0 {
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
func (w *wild) place(c *slashes, i, e int) int {
	lit := w.lits[i]
	lo, hi := c.floor, e // the literal lies in s[lo:hi]
	if w.kinds[i] != wildAny {
		if w.kinds[i] == wildSeg1 {
			hi--
		}
		slash := c.before(e)
		if own := strings.LastIndexByte(lit, '/'); own >= 0 && i > 0 {
			// It lies with its last slash on the last one.
			p := slash - own
			if p < lo || p+len(lit) > hi || c.s[p:p+len(lit)] != lit {
				return -1
			}
			return p
		}
		if lo = slash + 1; i == 0 && lo > c.floor {
			return -1
		}
	}
	switch {
	case hi < lo:
		return -1
	case i == 0:
		return 0
	}
	p := strings.LastIndex(c.s[lo:hi], lit)
	if p < 0 {
		return -1
	}
	return lo + p
}

// slashes finds the last slash before a place. It goes over the bytes between two slashes once, while the places move left.
type slashes struct {
	s     string
	floor int
	at    int // there is no slash in s[at+1:end]
	end   int
}

// before returns the place of the last slash in s[floor:e], floor-1 if there is none.
func (c *slashes) before(e int) int {
	if e <= c.at || e > c.end {
		c.at, c.end = c.floor-1, e
		if e > c.floor {
			c.at += 1 + strings.LastIndexByte(c.s[c.floor:e], '/')
		}
	}
	return c.at
}
