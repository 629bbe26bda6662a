package events

import "sort"

// seen is which events of an origin were seen, by their numbers, within a window.
type seen struct{ ranges []seqRange } // apart from each other, and rising

type seqRange struct {
	first, last uint64
	at          int64 // when its last came
}

// maxRanges bounds what is remembered of an origin; the lowest go first.
const maxRanges = 4096

// add notes a number, and reports whether it is new.
func (s *seen) add(n uint64, at int64) bool {
	i := sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].last >= n-1 }) // n is never 0
	if i < len(s.ranges) && s.ranges[i].first <= n && n <= s.ranges[i].last {
		return false
	}
	if i < len(s.ranges) && s.ranges[i].last+1 == n {
		r := &s.ranges[i]
		r.last, r.at = n, at
		if i+1 < len(s.ranges) && s.ranges[i+1].first == n+1 {
			r.last = s.ranges[i+1].last
			s.ranges = append(s.ranges[:i+1], s.ranges[i+2:]...)
		}
		return true
	}
	if i < len(s.ranges) && s.ranges[i].first == n+1 {
		s.ranges[i].first, s.ranges[i].at = n, at
		return true
	}
	s.ranges = append(s.ranges, seqRange{})
	copy(s.ranges[i+1:], s.ranges[i:])
	s.ranges[i] = seqRange{n, n, at}
	if len(s.ranges) > maxRanges {
		s.ranges = append(s.ranges[:0], s.ranges[1:]...)
	}
	return true
}

// has tells whether a number was seen.
func (s *seen) has(n uint64) bool {
	if s == nil {
		return false
	}
	i := sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].last >= n })
	return i < len(s.ranges) && s.ranges[i].first <= n
}

// forget drops what is older than a time.
func (s *seen) forget(before int64) {
	kept := s.ranges[:0]
	for _, r := range s.ranges {
		if r.at >= before {
			kept = append(kept, r)
		}
	}
	s.ranges = kept
}

// pairs is seen as the wire has it.
func (s *seen) pairs() [][2]uint64 {
	all := make([][2]uint64, 0, len(s.ranges))
	for _, r := range s.ranges {
		all = append(all, [2]uint64{r.first, r.last})
	}
	return all
}

// seenOf reads what pairs gives; what does not rise is left out.
func seenOf(pairs [][2]uint64) *seen {
	s := &seen{}
	for _, p := range pairs {
		if n := len(s.ranges); p[0] <= p[1] && (n == 0 || s.ranges[n-1].last < p[0]) && n < maxRanges {
			s.ranges = append(s.ranges, seqRange{first: p[0], last: p[1]})
		}
	}
	return s
}
