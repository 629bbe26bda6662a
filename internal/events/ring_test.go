package events

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

func add(r *ring, k *kind, at int64, body string) {
	r.add(k, at, 0, 0, len(body), func(b []byte) []byte { return append(b, body...) })
}

// bodies takes a view to its end.
func bodies(v view) (all []string) {
	for len(v.places) > 0 {
		all = append(all, string(v.next().body))
	}
	return all
}

func TestRingGivesTheEventsOfAKindFromATimeOn(t *testing.T) {
	r := ring{window: 100, max: 1 << 30}
	a, b := newKind("A", false), newKind("A", true)
	for i := range int64(10) {
		add(&r, a, 10*i, fmt.Sprint("a", i))
		add(&r, b, 10*i+5, fmt.Sprint("b", i))
	}
	for _, c := range []struct {
		name      string
		kind      *kind
		from, now int64
		want      string
	}{
		{"from the beginning", a, 0, 100, "[a0 a1 a2 a3 a4 a5 a6 a7 a8 a9]"},
		{"inclusive", a, 70, 100, "[a7 a8 a9]"},
		{"between two", a, 71, 100, "[a8 a9]"},
		{"of the other direction", b, 70, 100, "[b7 b8 b9]"},
		{"in the future", a, 1000, 100, "[]"},
		{"what the window has left", a, 0, 180, "[a8 a9]"},
		{"past the window", a, 0, 300, "[]"},
		{"nothing came", newKind("B", false), 0, 100, "[]"},
	} {
		if got := fmt.Sprint(bodies(r.view(c.kind, c.from, c.now))); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// The ring is a list of all that came; what is in the window is found, in order, however it is cut into chunks and dropped.
func TestRingIsAListWithAWindow(t *testing.T) {
	type came struct {
		kind int
		at   int64
		body string
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		r := ring{window: 2000, max: 1 << 30}
		kinds := make([]*kind, 5)
		for i := range kinds {
			kinds[i] = newKind(fmt.Sprint("T", i), i%2 == 1)
		}
		var all []came
		now := int64(0)
		for i := range 3000 {
			now += random.Int64N(3)
			c := came{random.IntN(len(kinds)), now, fmt.Sprint(i, "-", string(make([]byte, random.IntN(2000))))}
			if random.IntN(500) == 0 {
				c.body += string(make([]byte, 2*chunkBytes))
			}
			add(&r, kinds[c.kind], c.at, c.body)
			all = append(all, c)
			if random.IntN(100) == 0 {
				r.evict(now)
			}
		}
		held := 0
		for i, k := range kinds {
			from := now - random.Int64N(2500)
			var want []string
			for _, c := range all {
				if c.kind == i && c.at >= from && c.at >= now-r.window {
					want = append(want, c.body)
				}
			}
			got := bodies(r.view(k, from, now))
			if !slices.Equal(got, want) {
				t.Fatalf("kind %d from %d at %d: got %d events, want %d", i, from, now, len(got), len(want))
			}
			held += len(k.places)
		}
		if held != r.count || r.count+int(r.evicted) != len(all) {
			t.Fatalf("%d places and %d evicted of %d, and a count of %d", held, r.evicted, len(all), r.count)
		}
		r.evict(now + r.window + 1)
		if r.count != 0 || r.bytes != 0 || len(r.chunks) != 0 {
			t.Fatalf("an empty ring has %d events in %d bytes and %d chunks", r.count, r.bytes, len(r.chunks))
		}
	}
}

func TestRingIsBoundInMemory(t *testing.T) {
	r := ring{window: 1 << 40, max: 4 * chunkBytes}
	var last *kind
	for i := range int64(20_000) {
		last = newKind(fmt.Sprint("T", i), false) // as bad as it can be: a kind for each event
		add(&r, last, i, string(make([]byte, 200)))
		if r.bytes > r.max+kindCost+refCost {
			t.Fatalf("%d bytes after %d events, %d are allowed", r.bytes, i+1, r.max)
		}
	}
	if r.dropped == 0 || r.evicted != 0 || len(r.view(last, 0, 1<<30).places) != 1 {
		t.Errorf("%d dropped, %d evicted", r.dropped, r.evicted)
	}
	if len(r.kinds) > r.count+len(r.free) {
		t.Errorf("%d ids for %d kinds", len(r.kinds), r.count)
	}
}

// A view that was made before its events went still has them.
func TestViewOutlivesTheWindow(t *testing.T) {
	r := ring{window: 10, max: 1 << 30}
	k := newKind("A", false)
	for i := range int64(5) {
		add(&r, k, i, fmt.Sprint(i))
	}
	v := r.view(k, 0, 5)
	r.evict(100)
	add(&r, k, 100, "new")
	if got := fmt.Sprint(bodies(v)); got != "[0 1 2 3 4]" {
		t.Errorf("got %s", got)
	}
}

// 10⁶ events of 200 bytes take at most 1.3 times their bytes.
func TestRingTakesLittleMoreThanItsEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("200 MB")
	}
	n := 1_000_000
	if underRace {
		n = 200_000
	}
	frame := []byte(frameOf200)
	var f frameForRing
	f.parse(t, frame)
	before := heap()
	r := &ring{window: int64(time.Hour), max: 1 << 30}
	k := newKind("Order", false)
	for i := range int64(n) {
		f.add(r, k, i)
	}
	used := heap() - before
	t.Logf("%d bytes for %d events of %d: %.2f", used, n, len(frame), float64(used)/float64(n*len(frame)))
	if used > uint64(n*len(frame)*13/10) {
		t.Errorf("%d bytes", used)
	}
	if r.bytes < int(used)*9/10 || r.bytes > int(used)*11/10 {
		t.Errorf("the ring counts %d bytes, there are %d", r.bytes, used)
	}
	runtime.KeepAlive(r)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// frameOf200 is an event of 200 bytes, as a component sends it.
const frameOf200 = `{"op":"event","id":"0192f3a1-7c11-7b3e-9d2e-5a6f00112233","type":"Order","data":{"number":123456,"customer":"Ada Lovelace, London","lines":[{"sku":"A-1","n":2},{"sku":"B-7","n":1}],"paid":true,"x":0}}`

type frameForRing struct{ e event }

func (f *frameForRing) parse(t testing.TB, b []byte) {
	t.Helper()
	if len(b) != 200 {
		t.Fatalf("the frame has %d bytes", len(b))
	}
	var fr frame
	if err := fr.parse(b); err != nil {
		t.Fatal(err)
	}
	if err := fr.event(&f.e); err != nil {
		t.Fatal(err)
	}
}

func (f *frameForRing) add(r *ring, k *kind, at int64) {
	r.add(k, at, 0, 0, f.e.bodySize(), f.e.appendBody)
}

func BenchmarkRingAdd(b *testing.B) {
	var f frameForRing
	f.parse(b, []byte(frameOf200))
	r := &ring{window: 1 << 40, max: 64 << 20}
	k := newKind("Order", false)
	b.ReportAllocs()
	at := int64(0)
	for b.Loop() {
		at++
		f.add(r, k, at)
	}
}

func BenchmarkReplay(b *testing.B) {
	var f frameForRing
	f.parse(b, []byte(frameOf200))
	r := &ring{window: 1 << 40, max: 1 << 30}
	k := newKind("Order", false)
	for i := range int64(100_000) {
		f.add(r, k, i)
	}
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		for v := r.view(k, 0, 100_000); len(v.places) > 0; {
			buf = v.appendFrames(buf[:0], 64<<10)
		}
	}
	b.ReportMetric(100_000*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
