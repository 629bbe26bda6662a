package events

import (
	"math"
	"math/rand/v2"
	"testing"
)

// What was seen is a set, whatever the order.
func TestSeenIsASet(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var s seen
		all := map[uint64]bool{}
		for range 300 {
			n := 1 + random.Uint64N(200)
			if got := s.add(n, 1); got == all[n] {
				t.Fatalf("%d: new is %v, and it is there: %v", n, got, all[n])
			}
			all[n] = true
		}
		again := seenOf(s.pairs())
		for n := range uint64(202) {
			if s.has(n) != all[n] || again.has(n) != all[n] {
				t.Fatalf("%d: got %v and %v, want %v", n, s.has(n), again.has(n), all[n])
			}
		}
		for i := 1; i < len(s.ranges); i++ {
			if s.ranges[i].first <= s.ranges[i-1].last+1 {
				t.Fatalf("ranges touch: %v", s.ranges)
			}
		}
	}
}

// Numbers of other routers may be any.
func TestSeenOfTheGreatestNumbers(t *testing.T) {
	var s seen
	for _, n := range []uint64{math.MaxUint64, 5, math.MaxUint64 - 1, 6} {
		if !s.add(n, 1) || s.add(n, 1) || !s.has(n) {
			t.Errorf("%d: %v", n, s.ranges)
		}
	}
	if len(s.ranges) != 2 {
		t.Errorf("ranges: %v", s.ranges)
	}
}

func TestSeenIsBoundAndForgets(t *testing.T) {
	var s seen
	for i := range uint64(3 * maxRanges) {
		s.add(2*i, int64(i))
	}
	if len(s.ranges) != maxRanges || !s.has(2*(3*maxRanges-1)) {
		t.Errorf("%d ranges", len(s.ranges))
	}
	s.forget(3*maxRanges - 10)
	if len(s.ranges) != 10 {
		t.Errorf("%d ranges are left", len(s.ranges))
	}
	if seenOf([][2]uint64{{5, 1}, {3, 4}, {2, 9}}).has(2) {
		t.Error("what does not rise is taken")
	}
}
