package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A window knows what a map and slices know, whatever order deliveries end in: those of a range, and those of each link in order.
func TestWindow(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var w window[uint32]
		chains, want := make([]chain, 3), make([][]uint32, 3)
		next := uint32(1<<32 - 3000) // ids wrap
		for range 20_000 {
			c := r.IntN(len(chains))
			if n := len(want[c]); n == 0 || r.IntN(100) < 52 {
				id := next
				next++
				w.add(id, &id, &chains[c])
				want[c] = append(want[c], id)
			} else if i := r.IntN(n); i >= int(seed) || r.IntN(10) == 0 { // some stay for long
				w.remove(want[c][i], &chains[c])
				want[c] = slices.Delete(want[c], i, i+1)
			}
		}
		all := 0
		for c := range chains {
			var got []uint32
			w.of(&chains[c], func(v *uint32) { got = append(got, *v) })
			if !slices.Equal(got, want[c]) || int(chains[c].n) != len(got) {
				t.Fatalf("seed %d: link %d has %d deliveries %v, want %d", seed, c, chains[c].n, got, len(want[c]))
			}
			all += len(got)
		}
		seen := 0
		w.each(next-20_000, next-1, func(id uint32, v *uint32) {
			seen++
			if id != *v {
				t.Fatalf("seed %d: %d is under id %d", seed, *v, id)
			}
		})
		if seen != all {
			t.Errorf("seed %d: a range of all has %d deliveries, want %d", seed, seen, all)
		}
	}
}
