package load

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

func TestStreamsTellWhatIsNewAndWhatCameAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		seqs  []uint64
		fresh int
	}{
		{"in order", []uint64{0, 1, 2, 3}, 4},
		{"one is missing", []uint64{0, 1, 3}, 3},
		{"one comes late", []uint64{0, 2, 1}, 3},
		{"one comes twice", []uint64{0, 1, 1}, 2},
		{"one comes late, twice", []uint64{0, 2, 1, 1}, 3},
		{"the first is missing", []uint64{5}, 1},
		{"a long gap, and what was in it", []uint64{0, 200, 199, 137, 200, 199}, 4},
		{"63 places late", []uint64{0, 64, 1}, 3},
		{"too late to be told", []uint64{0, 65, 1}, 2},
	} {
		var s stream
		fresh := 0
		for _, seq := range c.seqs {
			if s.take(seq) {
				fresh++
			}
		}
		if fresh != c.fresh {
			t.Errorf("%s: got %d new, want %d", c.name, fresh, c.fresh)
		}
	}
}

func TestQuantilesAreRightToTheBucket(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h, other Histogram
	var all []int64
	for i := range 20_000 {
		d := int64(r.ExpFloat64() * 1e6)
		if i%100 == 0 {
			d *= 1000
		}
		all = append(all, d)
		if i%2 == 0 {
			h.Add(d)
		} else {
			other.Add(d)
		}
	}
	h.Merge(&other)
	slices.Sort(all)
	for _, q := range []float64{0, .1, .5, .9, .99, .999, 1} {
		want := all[max(int(q*float64(len(all)))-1, 0)]
		got := int64(h.Quantile(q))
		if got < want || got > want+want/64+1 {
			t.Errorf("quantile %v: got %d, want %d to %d", q, got, want, want+want/64)
		}
	}
	if l := h.latency(); l.Count != 20_000 || l.Max != float64(all[len(all)-1])/1e3 {
		t.Errorf("got %+v", l)
	}
}

func TestEveryTimeHasItsBucket(t *testing.T) {
	for d := int64(0); d < 1<<41; d += d/500 + 1 {
		b := bucket(d)
		if b >= len(Histogram{}.count) {
			t.Fatalf("%d is in bucket %d", d, b)
		}
		if d < 1<<maxBits && (top(b) < d || b > 0 && top(b-1) >= d) {
			t.Fatalf("%d is in bucket %d, which ends at %d after %d", d, b, top(b), top(b-1))
		}
	}
}

func TestStampsAreFoundInMessages(t *testing.T) {
	for _, c := range []struct {
		name, to string
		size     int
		before   string
	}{
		{"small", "", 40, ""},
		{"large", "", 70_000, ""},
		{"with an address", "bench/7", 100, ""},
		{"with a long address", strings.Repeat("x", 300), 100, ""},
		{"with annotations that came on the way", "bench/7", 100, "\x00\x53\x72\xc1\x01\x00"},
	} {
		want := stamp{run: 1, sender: 2, address: 3, seq: 4, at: 5}
		m := append([]byte(c.before), want.append(appendHead(nil, c.to, c.size))...)
		m = append(m, make([]byte, c.size-stampSize)...)
		var parsed wire.Message
		if err := parsed.Parse(m); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if c.to != "" && (parsed.Properties == nil || parsed.Properties.To != c.to) {
			t.Errorf("%s: properties %+v", c.name, parsed.Properties)
		}
		hint := 0
		for range 2 {
			var got stamp
			if !got.find(m, &hint) || got != want {
				t.Errorf("%s: got %+v", c.name, got)
			}
		}
	}
	hint := 0
	if (&stamp{}).find([]byte("\x00\x53\x75\xa0\x05hello"), &hint) {
		t.Error("a stamp is found where there is none")
	}
}

func TestStrideReachesAll(t *testing.T) {
	for n := 1; n < 200; n++ {
		seen := map[int]bool{}
		for i, at := 0, 0; i < n; i, at = i+1, (at+stride(n))%n {
			seen[at] = true
		}
		if len(seen) != n {
			t.Errorf("%d of %d", len(seen), n)
		}
	}
}

func TestStatIsReadPastOddCommands(t *testing.T) {
	u, err := parseStat([]byte("7 (a) b) c) S 1 1 1 0 -1 4194560 100 0 0 0 123 45 0 0 20 0 9 0 100 1000000 250 18446744073709551615"))
	if err != nil || u.cpu != 1680*time.Millisecond || u.rss <= 0 {
		t.Errorf("got %+v, %v", u, err)
	}
	if _, err := parseStat([]byte("7 (x) S 1")); err == nil {
		t.Error("a short line is read")
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("7 (a) S 1 1 1 0 -1 4194560 100 0 0 0 123 45 0 0 20 0 9 0 100 1000000 250"))
	f.Fuzz(func(t *testing.T, text []byte) { parseStat(text) })
}

func FuzzFindStamp(f *testing.F) {
	f.Add((&stamp{run: 1}).append(appendHead(nil, "x", 40)), 0)
	f.Fuzz(func(t *testing.T, m []byte, hint int) {
		hint &= 0xffff
		var s stamp
		if s.find(m, &hint) && len(m) < hint+stampSize {
			t.Error("a stamp beyond the end")
		}
	})
}
