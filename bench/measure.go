package main

import (
	"runtime"
	"runtime/metrics"
	"time"
)

// interleave calls the functions in turn, count times each (a b a b …), so that what disturbs the machine disturbs all, and
// returns the values of each.
func interleave(count int, fs ...func() float64) [][]float64 {
	values := make([][]float64, len(fs))
	for range count {
		for i, f := range fs {
			values[i] = append(values[i], f())
		}
	}
	return values
}

// walk looks up one address after the other, and goes on where it stopped.
type walk struct {
	addrs  []string
	lookup func(addr string) int // the number of rows or groups found
	at     int
	found  int // keeps the lookups from being left out
}

// chunk is how many addresses are looked up between two looks at the clock.
const chunk = 512

func (w *walk) step() {
	if w.at+chunk > len(w.addrs) {
		w.at = 0
	}
	for _, addr := range w.addrs[w.at:min(w.at+chunk, len(w.addrs))] {
		w.found += w.lookup(addr)
	}
	w.at += chunk
}

// nsPerLookup walks for about d and returns the CPU time of a lookup. There are at least chunk addresses.
func (w *walk) nsPerLookup(d time.Duration) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n := 0
	start := threadTime()
	for {
		w.step()
		n += chunk
		if took := threadTime() - start; took >= d {
			return float64(took.Nanoseconds()) / float64(n)
		}
	}
}

// allocsPerLookup counts the allocations of the whole process, so nothing else may run.
func (w *walk) allocsPerLookup() float64 {
	const steps = 8
	w.step()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range steps {
		w.step()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / (steps * chunk)
}

// heap is the bytes of what is reachable.
func heap() float64 {
	runtime.GC()
	runtime.GC() // what the first one's finalizers and pools let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// gcCycle is the time of one collection of all that is reachable, on the clock and of all CPUs together, in ns.
func gcCycle() (wall, cpu float64) {
	before := gcCPU()
	start := time.Now()
	runtime.GC()
	wall = float64(time.Since(start).Nanoseconds())
	return wall, gcCPU() - before
}

func gcCPU() float64 {
	sample := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(sample)
	return sample[0].Value.Float64() * 1e9
}

// timed calls f and returns how long it took, in ns.
func timed(f func()) float64 {
	start := time.Now()
	f()
	return float64(time.Since(start).Nanoseconds())
}
