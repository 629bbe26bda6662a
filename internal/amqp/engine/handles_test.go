package engine

import (
	"math/rand/v2"
	"testing"
)

// TestHandles puts and removes links under the handles of peers of several kinds, beside a plain map, and holds the memory to the links.
func TestHandles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	counts := uint32(0)
	for _, x := range []struct {
		name string
		next func() uint32
	}{
		{"counts up", func() uint32 { counts++; return counts - 1 }},
		{"counts up from 300", func() uint32 { counts++; return counts + 299 }},
		{"at random", func() uint32 { return rng.Uint32N(1 << 16) }},
		{"at random, low", func() uint32 { return rng.Uint32N(600) }},
		{"the highest", func() uint32 { return 1<<32 - 1 - rng.Uint32N(3) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			counts = 0
			var h handles
			all := map[uint32]*Link{}
			for range 20_000 {
				n := x.next()
				if h.get(n) != all[n] {
					t.Fatalf("handle %d: another link than was put", n)
				}
				if all[n] == nil {
					all[n] = &Link{handle: n}
					h.put(n, all[n])
				}
				for n := range all {
					if len(all) > 2000 || rng.IntN(4) == 0 {
						h.remove(n)
						delete(all, n)
					}
					break
				}
			}
			for n, l := range all {
				if h.get(n) != l {
					t.Fatalf("handle %d is lost", n)
				}
			}
			if len(h.low) > 4*2000+lowHandles {
				t.Errorf("%d places for %d links", len(h.low), len(all))
			}
		})
	}
}
