package routetable

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// drawPattern makes patterns of every dialect that share much with each other and with the addresses of drawAddress.
func drawPattern(t *rapid.T) string {
	segment := rapid.SampledFrom([]string{"a", "b", "ab", "sensor", "sensors", "temperature-17", "temperature-18", "", "a@b", "*", "%", "*", "%", "a*", "%b", "se*or", "temp%17"})
	glob := rapid.SampledFrom([]string{"a", "sensor", "temperature-1[0-9]", "*", "**", "?", "{a,b}", "sen*", "{sensor,}s", "[!a]b", "temperature-*"})
	topic := rapid.SampledFrom([]string{"a", "b", "sensors", "temperature-17", "*", "**", "a*", "x@y"})
	join := func(g *rapid.Generator[string]) string {
		return strings.Join(rapid.SliceOfN(g, 1, 5).Draw(t, "segments"), "/")
	}
	switch rapid.IntRange(0, 5).Draw(t, "dialect") {
	case 0:
		return globPrefix + join(glob)
	case 1:
		return topicPrefix + join(topic)
	case 2:
		return rapid.SampledFrom([]string{"event:req/", "web:", "rpc:", "$", "long.common.prefix.of.everything/"}).Draw(t, "prefix") + join(segment)
	}
	return join(segment)
}

func drawAddress(t *rapid.T) string {
	segment := rapid.SampledFrom([]string{"a", "b", "ab", "sensor", "sensors", "temperature-17", "temperature-18", "", "a@b", "x"})
	prefix := rapid.SampledFrom([]string{"", "", "", "topic:", "event:req/", "web:", "rpc:", "$", "long.common.prefix.of.everything/"}).Draw(t, "prefix")
	return prefix + strings.Join(rapid.SliceOfN(segment, 1, 6).Draw(t, "segments"), "/")
}

// TestIndexAgainstScan holds lookups, with and without the cache, to a scan of all rows, while rows come and go.
func TestIndexAgainstScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := New()
		if rapid.Bool().Draw(t, "first") {
			table.SetMatch(MatchFirst)
		}
		var addrs []string
		for range rapid.IntRange(2, 8).Draw(t, "addresses") {
			addrs = append(addrs, drawAddress(t))
		}
		var patterns []string
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			var ops []Op
			for range rapid.IntRange(1, 12).Draw(t, "ops") {
				if len(patterns) > 0 && rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
					ops = append(ops, Op{Verb: VerbDeletePattern, Route: NewRoute(rapid.SampledFrom(patterns).Draw(t, "pattern"), "")})
					continue
				}
				p := drawPattern(t)
				patterns = append(patterns, p)
				r := NewRoute(p, rapid.SampledFrom([]string{"h1", "h2", "amqp://h/$1", "null", "route:zz"}).Draw(t, "address"))
				r.Order = rapid.IntRange(-1, 1).Draw(t, "order")
				ops = append(ops, Op{Verb: VerbReplace, Route: r})
			}
			if _, err := table.Apply(ops...); err != nil {
				t.Fatal(err)
			}
			s := table.Snapshot()
			checkTable(t, s)
			for _, addr := range addrs {
				want := naiveMatches(s, addr, nil)
				for range 3 { // the third one comes from the cache
					if got := idsOf(s.LookupInto(nil, addr, nil)); !sameRows(got, want) {
						t.Fatalf("%q: got %s, want %s in\n%s", addr, texts(got), texts(want), strings.Join(rowTexts(s), "\n"))
					}
				}
				for way := range waysOf(s) {
					if got := idsOf(s.LookupUncached(nil, addr, nil)); !sameRows(got, want) {
						t.Fatalf("%q %s: got %s, want %s in\n%s", addr, way, texts(got), texts(want), strings.Join(rowTexts(s), "\n"))
					}
				}
			}
		}
	})
}

// waysOf gives the ways to find rows that the snapshot has, while lookups go each of them.
func waysOf(s *Snapshot) iter.Seq[string] {
	return func(yield func(string) bool) {
		none, c := &compact{generation: s.generation}, &compact{generation: s.generation}
		c.fill(s)
		for _, one := range []*compact{none, c} {
			one.made.Store(true)
			s.caches.compact.Store(one)
			if !yield(map[bool]string{false: "by the index", true: "by the compact index"}[one.exact != nil]) {
				return
			}
		}
	}
}

// TestMayFitIsNecessary holds the quick look at a pattern's text to its matcher.
func TestMayFitIsNecessary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawPattern(t)
		if rapid.Bool().Draw(t, "odd") {
			text = rapid.SampledFrom([]string{"", globPrefix}).Draw(t, "kind") + rapid.StringMatching(`[ab/*%?\\{},\[\]!-]{0,12}`).Draw(t, "text")
		}
		p, err := compilePattern(text)
		if err != nil {
			t.Skip()
		}
		addr := drawAddress(t)
		if rapid.Bool().Draw(t, "short") {
			addr = rapid.StringMatching(`[ab/*%?\\{}!-]{0,8}`).Draw(t, "addr")
		}
		if p.match(addr) && !p.plain() && !holdsLiterals(text, addr) {
			t.Fatalf("%q fits %q", addr, text)
		}
	})
}

// TestRepeatedGramsCostLittle looks up an address that holds the literal of many rows thousands of times: each row is matched once.
func TestRepeatedGramsCostLittle(t *testing.T) {
	do, table := must(t), New()
	for i := range 40 {
		do(table.Add(fmt.Sprintf("*temperature*xyz%d*", i), "h"))
	}
	s, addr := table.Snapshot(), strings.Repeat("temperature", 5900)
	var p probes
	s.index.find(&p, addr, hashAddress(addr))
	found := p.slots()
	if n := len(found); n > 40*len("temperature") {
		t.Errorf("%d are found", n)
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(found)))); n > 40 {
		t.Errorf("%d are matched, of 40", n)
	}
	if got := s.LookupUncached(nil, addr+"xyz7", nil); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

func idsOf(groups []Group) (rows [][]*Route) {
	for _, g := range groups {
		var list []*Route
		for _, m := range g.Matches {
			list = append(list, m.Route)
		}
		rows = append(rows, list)
	}
	return rows
}

func texts(groups [][]*Route) string {
	var b strings.Builder
	for _, g := range groups {
		for _, r := range g {
			fmt.Fprintf(&b, "%s --> %s, ", r.Pattern, r.Address)
		}
		b.WriteString("; ")
	}
	return b.String()
}

// TestReadersSeeOneGeneration lets readers look up names whose rows one change always moves together: whatever a reader sees must be of
// one generation, be it from the cache or not, with a snapshot that it kept or the one now.
func TestReadersSeeOneGeneration(t *testing.T) {
	table := New()
	names := []string{"north", "south", "east/1", "topic:west/2"}
	patterns := []string{"north", "so*", "east/%", "topic:west/*"}
	var n atomic.Uint64
	set := func(i uint64) {
		ops := make([]Op, 0, 8)
		for _, p := range patterns {
			ops = append(ops, Op{Verb: VerbReplaceAll, Route: NewRoute(p, ""), Addresses: []string{fmt.Sprintf("host-%d", i)}})
		}
		ops = append(ops, Op{Verb: VerbReplaceAll, Route: NewRoute(fmt.Sprintf("other-%d", i%50), ""), Addresses: []string{fmt.Sprintf("h%d", i)}})
		if _, err := table.Apply(ops...); err != nil {
			t.Error(err)
		}
	}
	set(0)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for r := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rnd := rand.New(rand.NewPCG(uint64(r), 1))
			var kept *Snapshot
			for {
				select {
				case <-stop:
					return
				default:
				}
				s := table.Snapshot()
				if kept != nil && rnd.IntN(3) == 0 {
					s = kept
				} else if rnd.IntN(10) == 0 {
					kept = s
				}
				var seen string
				for _, name := range names {
					groups := s.LookupInto(nil, name, nil)
					if len(groups) != 1 || len(groups[0].Matches) != 1 {
						t.Errorf("%s: got %d groups", name, len(groups))
						return
					}
					host := groups[0].Matches[0].Result
					if seen == "" {
						seen = host
					} else if host != seen {
						t.Errorf("generation %d: %s leads to %s, others to %s", s.Generation(), name, host, seen)
						return
					}
				}
				n.Add(1)
			}
		}()
	}
	for i := uint64(1); i < 1000; i++ {
		set(i)
	}
	close(stop)
	wg.Wait()
	checkTable(t, table.Snapshot())
}

// TestChurnReusesMemory edits a table for long: its chunks and slots do not grow with the number of edits.
func TestChurnReusesMemory(t *testing.T) {
	table := New()
	rnd := rand.New(rand.NewPCG(1, 2))
	live := map[int]bool{}
	for range 20_000 {
		i := rnd.IntN(2000)
		p := fmt.Sprintf("name-%d-%s", i, strings.Repeat("x", i%400))
		var err error
		if live[i] {
			_, err = table.DeletePattern(p)
		} else {
			_, err = table.Add(p, "h1", WithNote(strings.Repeat("n", i%300)))
		}
		live[i] = !live[i]
		if err != nil {
			t.Fatal(err)
		}
	}
	s := table.Snapshot()
	checkTable(t, s)
	if s.slots.n > 2000 {
		t.Errorf("%d slots for at most 2000 rows", s.slots.n)
	}
	chunks := 0
	for _, c := range s.chunks {
		chunks += len(c.b)
	}
	if most := 2*table.arena.live + slack + 4*chunkBytes; chunks > most {
		t.Errorf("%d bytes of chunks, at most %d expected", chunks, most)
	}
	live2, dead := 0, 0
	for i := range table.arena.use {
		live2 += table.arena.use[i].end - table.arena.use[i].dead
		dead += table.arena.use[i].dead
	}
	counted := 0
	s.records(func(rec record) bool { counted += rec.size(); return true })
	if live2 != table.arena.live || dead != table.arena.dead || counted != table.arena.live {
		t.Errorf("the arena counts %d live and %d dead bytes, its chunks %d and %d, the rows %d", table.arena.live, table.arena.dead, live2, dead, counted)
	}
}

// TestInsertsAtOnePlace puts rows at one place until positions run out, many times over.
func TestInsertsAtOnePlace(t *testing.T) {
	table, do := New(), must(t)
	for i := range 300 {
		do(table.Add(fmt.Sprintf("row-%03d", i), "h1"))
	}
	want := rowTexts(table.Snapshot())
	at := slices.Index(want, "row-150 --> h1")
	for i := range 500 {
		p := fmt.Sprintf("new-%03d", i)
		if i%2 == 0 {
			do(table.InsertBefore("row-150", p, "h2"))
			want = slices.Insert(want, at, p+" --> h2")
			at++
		} else {
			do(table.InsertAfter("row-150", p, "h2"))
			want = slices.Insert(want, at+1, p+" --> h2")
		}
	}
	if got := rowTexts(table.Snapshot()); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	checkTable(t, table.Snapshot())
}

// TestManyOutlines fills a table with rows of more outlines than the index files rows under, and takes half of them out again.
func TestManyOutlines(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	words := []string{"a", "bb", "ccc", "north", "device-0001", "temperature-of-the-outer-wall"}
	segments := func(wild string) string {
		parts := make([]string, 3+rnd.IntN(8))
		for i := range parts {
			if parts[i] = words[rnd.IntN(len(words))]; wild != "" && rnd.IntN(3) == 0 {
				parts[i] = wild
			}
		}
		return strings.Join(parts, "/")
	}
	table, have := New(), map[string]*pattern{}
	do := must(t)
	check := func() {
		t.Helper()
		s := table.Snapshot()
		if n := len(s.index.outlines); n > maxOutlines {
			t.Fatalf("%d outlines", n)
		}
		for range 300 {
			addr := segments("")
			if rnd.IntN(2) == 0 {
				addr = topicPrefix + addr
			}
			want := 0
			for _, p := range have {
				if p.match(addr) {
					want++
				}
			}
			if got := len(s.LookupUncached(nil, addr, nil)); got != want {
				t.Fatalf("%q finds %d rows, want %d", addr, got, want)
			}
		}
	}
	for len(have) < 1500 {
		text := segments("%")
		switch rnd.IntN(4) {
		case 0:
			text = topicPrefix + segments("*")
		case 1:
			text += "/*"
		}
		if have[text] == nil {
			p, err := compilePattern(text)
			if err != nil {
				t.Fatal(err)
			}
			have[text] = p
			do(table.Add(text, "h"))
		}
	}
	if n := len(table.Snapshot().index.outlines); n != maxOutlines {
		t.Errorf("%d outlines are too few to try this", n)
	}
	check()
	for text := range have {
		if rnd.IntN(2) == 0 {
			delete(have, text)
			do(table.DeletePattern(text))
		}
	}
	check()
}

// TestLongPaths looks up addresses of many segments among patterns that leave some of them open, from the start, to the end and between.
func TestLongPaths(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	words := []string{"a", "b", "", "device-0001", "a-segment-of-more-than-16-bytes"}
	path := func(most int) []string {
		parts := make([]string, 1+rnd.IntN(most))
		for i := range parts {
			parts[i] = words[rnd.IntN(len(words))]
		}
		return parts
	}
	found := 0
	for range 300 {
		table, have := New(), map[string]*pattern{}
		do := must(t)
		addr := path(40)
		for range 20 {
			// A pattern that is the address with some of it open, or nearly so.
			parts := slices.Clone(addr)
			for range rnd.IntN(4) {
				parts[rnd.IntN(len(parts))] = []string{"*", "?", "a*", "*1"}[rnd.IntN(4)]
			}
			for range rnd.IntN(3) {
				from := rnd.IntN(len(parts))
				to := from + 1 + rnd.IntN(len(parts)-from)
				parts = slices.Concat(parts[:from], []string{[]string{"**", "**", "a**", "**1", "**b**"}[rnd.IntN(5)]}, parts[to:])
			}
			if rnd.IntN(4) == 0 {
				parts = append(parts, words[rnd.IntN(len(words))])
			}
			text := globPrefix + strings.Join(parts, "/")
			if have[text] == nil {
				have[text] = must2(compilePattern(text))
				do(table.Add(text, "h"))
			}
		}
		s := table.Snapshot()
		checkTable(t, s)
		for _, a := range []string{strings.Join(addr, "/"), strings.Join(path(40), "/"), strings.Join(addr[1:], "/")} {
			want := 0
			for _, p := range have {
				if p.match(a) {
					want++
				}
			}
			for way := range waysOf(s) {
				if got := len(s.LookupUncached(nil, a, nil)); got != want {
					t.Fatalf("%s: %q finds %d rows, want %d among\n%s", way, a, got, want, strings.Join(rowTexts(s), "\n"))
				}
			}
			found += want
		}
	}
	if found < 300 {
		t.Errorf("%d rows were found: too few to tell", found)
	}
}

func must2[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// TestScanGlob holds the quick reader of simple globs to the one that takes all.
func TestScanGlob(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		body := make([]byte, rnd.IntN(12))
		for i := range body {
			body[i] = "a/*?*-,!^.b"[rnd.IntN(11)]
		}
		if refuseGlob(globPrefix+string(body)) != nil {
			continue
		}
		forms, err := expandBraces(string(body))
		if err != nil || len(forms) != 1 {
			t.Fatalf("%q: %d forms, %v", body, len(forms), err)
		}
		want, got := joinTokens(forms[0]), scanGlob(nil, string(body))
		if len(got) != len(want) {
			t.Fatalf("%q: got %v, want %v", body, got, want)
		}
		for i := range got {
			if got[i].kind != want[i].kind || got[i].lit != want[i].lit {
				t.Fatalf("%q: got %v, want %v", body, got, want)
			}
		}
	}
}

// TestParsePlain holds the quick reader of usual addresses to the one that takes all.
func TestParsePlain(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	plain := 0
	for range 50_000 {
		text := []byte("amqp://")
		for range rnd.IntN(12) {
			text = append(text, "ab9.-:/5672~@[]%A"[rnd.IntN(17)])
		}
		var quick, whole parsedHop
		if !quick.parsePlain(string(text)) {
			continue
		}
		plain++
		if err := whole.parseURL(string(text)); err != nil || whole != quick {
			t.Fatalf("%q: got %+v, want %+v, %v", text, quick, whole, err)
		}
	}
	if plain < 1000 {
		t.Errorf("%d of the addresses are plain", plain)
	}
}
