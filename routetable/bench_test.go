package routetable_test

import (
	"bytes"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/house/mix"
	"github.com/fingerpost/fingerpost/routetable"
)

// mixTables are tables of the mix, each made when it is first asked for. Who edits one leaves its rows as they were.
var mixTables = map[int]func() *routetable.Table{
	100:       sync.OnceValue(func() *routetable.Table { return mixTable(100) }),
	10_000:    sync.OnceValue(func() *routetable.Table { return mixTable(10_000) }),
	1_000_000: sync.OnceValue(func() *routetable.Table { return mixTable(1_000_000) }),
}

func mixTable(n int) *routetable.Table {
	m := mix.Mix{Rows: n}
	op := routetable.Op{Verb: routetable.VerbLoad, Routes: make([]routetable.Route, n)}
	for i := range op.Routes {
		r := m.Row(i)
		op.Routes[i] = routetable.NewRoute(r.Pattern, r.Address)
	}
	t := routetable.New()
	if _, err := t.Apply(op); err != nil {
		panic(err)
	}
	return t
}

// eachSize runs f with 100 and 10,000 rows, and with a million where -bench names that number.
func eachSize(b *testing.B, f func(b *testing.B, n int)) {
	for _, n := range []int{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			if n == 1_000_000 && !strings.Contains(flag.Lookup("test.bench").Value.String(), strconv.Itoa(n)) {
				b.Skip("-bench does not name rows=1000000")
			}
			f(b, n)
		})
	}
}

func benchmarkLookups(b *testing.B, n int, addrs []string) {
	t := mixTables[n]()
	dst := make([]routetable.Group, 0, 64)
	for _, addr := range addrs {
		dst = t.LookupInto(dst[:0], addr, nil) // what is cached is cached
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		dst = t.LookupInto(dst[:0], addrs[i], nil)
		if i++; i == len(addrs) {
			i = 0
		}
	}
}

// BenchmarkHotLookup asks for the same 512 addresses.
func BenchmarkHotLookup(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		benchmarkLookups(b, n, mix.Mix{Rows: n}.Addresses(512, 1, mix.All))
	})
}

// BenchmarkUniformLookup asks for any address, of which a large table caches few.
func BenchmarkUniformLookup(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		benchmarkLookups(b, n, mix.Mix{Rows: n}.Addresses(max(4096, n/2), 1, mix.All))
	})
}

// BenchmarkRowEdit does one of four edits on a row that was not there before: add, set, set, delete.
func BenchmarkRowEdit(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		t := mixTables[n]()
		rows := make([]mix.Row, 1024)
		for i := range rows {
			rows[i] = mix.Mix{Rows: n}.Row(n + i)
		}
		i := 0
		edit := func() {
			r := &rows[i/4%len(rows)]
			var err error
			switch i % 4 {
			case 0:
				_, err = t.Add(r.Pattern, r.Address)
			case 1:
				_, err = t.Set(r.Pattern, r.Address, routetable.WithTimeout(time.Second))
			case 2:
				_, err = t.Set(r.Pattern, r.Address, routetable.WithTimeout(time.Minute))
			case 3:
				_, err = t.Delete(r.Pattern, r.Address)
			}
			if err != nil {
				b.Fatal(err)
			}
			i++
		}
		b.ReportAllocs()
		for b.Loop() {
			edit()
		}
		for i%4 != 0 { // the row is gone again
			edit()
		}
	})
}

// BenchmarkLoadFile reads a file of the arrow form and loads it.
func BenchmarkLoadFile(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		m := mix.Mix{Rows: n}
		var text bytes.Buffer
		for i := range n {
			r := m.Row(i)
			fmt.Fprintf(&text, "%s --> %s\n", r.Pattern, r.Address)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := routetable.Load(bytes.NewReader(text.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestHotLookupAllocatesNothing(t *testing.T) {
	const n = 10_000
	table := mixTables[n]()
	dst := make([]routetable.Group, 0, 64)
	for _, kind := range []struct {
		name string
		is   mix.Kind
	}{{"literal", mix.Literal}, {"topic", mix.Topic}, {"glob", mix.Glob}} {
		addrs := mix.Mix{Rows: n}.Addresses(64, 1, func(k mix.Kind) bool { return k == kind.is })
		for _, addr := range addrs {
			dst = table.LookupInto(dst[:0], addr, nil)
			if n := testing.AllocsPerRun(10, func() { dst = table.LookupInto(dst[:0], addr, nil) }); n != 0 {
				t.Errorf("a lookup of %s, which fits a row that is %s, allocates %v times and finds %d groups", addr, kind.name, n, len(dst))
			}
		}
	}
}

// Of addresses that are asked for in turn none pushes another out of the cache, however their hashes fall.
func TestAHotSetAllocatesNothing(t *testing.T) {
	const n, hot = 10_000, 512
	dst := make([]routetable.Group, 0, 64)
	for seed := range uint64(30) { // each with a cache of its own, in which other addresses share a set
		addrs := mix.Mix{Rows: n}.Addresses(hot, seed, mix.All)
		table := routetable.New()
		for range 512 { // two that share a place among those that were seen get in by chance
			for _, addr := range addrs {
				dst = table.LookupInto(dst[:0], addr, nil)
			}
		}
		if n := testing.AllocsPerRun(5, func() {
			for _, addr := range addrs {
				dst = table.LookupInto(dst[:0], addr, nil)
			}
		}); n != 0 {
			t.Errorf("a turn through %d addresses allocates %v times", hot, n)
		}
	}
}
