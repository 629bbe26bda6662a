package load

import (
	"math/bits"
	"time"
)

// Histogram counts times in buckets that are at most 1/64 of their value wide, from a nanosecond to about 18 minutes; longer ones are in the
// last bucket. The zero value is empty. It allocates nothing.
type Histogram struct {
	count [subBuckets * (maxBits - subBits + 1)]uint64
	total uint64
	max   int64
	sum   int64
}

const (
	subBits    = 6
	subBuckets = 1 << subBits
	maxBits    = 40
)

// Add counts one time. A negative one counts as 0.
func (h *Histogram) Add(d int64) {
	d = max(d, 0)
	h.count[bucket(d)]++
	h.total++
	h.sum += d
	h.max = max(h.max, d)
}

func bucket(d int64) int {
	d = min(d, 1<<maxBits-1)
	shift := max(bits.Len64(uint64(d))-subBits-1, 0)
	return shift<<subBits + int(d>>shift)
}

// top is the largest time of a bucket.
func top(b int) int64 {
	shift := max(b>>subBits-1, 0)
	return (int64(b-shift<<subBits)+1)<<shift - 1
}

// Merge adds what another counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.count {
		h.count[i] += n
	}
	h.total += o.total
	h.sum += o.sum
	h.max = max(h.max, o.max)
}

// Quantile gives the time that the part q (0 to 1) of all do not exceed, to 1/64 of it; 0 where nothing was counted.
func (h *Histogram) Quantile(q float64) time.Duration {
	want := uint64(q * float64(h.total))
	if float64(want) < q*float64(h.total) {
		want++
	}
	var n uint64
	for i, c := range h.count {
		if n += c; n >= max(want, 1) {
			return time.Duration(min(top(i), h.max))
		}
	}
	return time.Duration(h.max)
}

// Latency is what a histogram says, in words of a report.
type Latency struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"mean_us"`
	P50   float64 `json:"p50_us"`
	P90   float64 `json:"p90_us"`
	P99   float64 `json:"p99_us"`
	P999  float64 `json:"p999_us"`
	Max   float64 `json:"max_us"`
}

func (h *Histogram) latency() *Latency {
	if h.total == 0 {
		return nil
	}
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	return &Latency{
		Count: h.total, Mean: float64(h.sum) / float64(h.total) / 1e3,
		P50: us(h.Quantile(.5)), P90: us(h.Quantile(.9)), P99: us(h.Quantile(.99)), P999: us(h.Quantile(.999)), Max: us(time.Duration(h.max)),
	}
}
