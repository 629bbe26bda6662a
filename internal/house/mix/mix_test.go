package mix_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/house/mix"
	"github.com/fingerpost/fingerpost/routetable"
)

func TestEveryRowIsFoundByItsHitAndNoRowByAMiss(t *testing.T) {
	for _, n := range []int{100, 10_000} {
		m := mix.Mix{Rows: n}
		table := routetable.New()
		op := routetable.Op{Verb: routetable.VerbLoad}
		kinds := map[mix.Kind]int{}
		addresses := map[string]bool{}
		leading, bytes := 0, 0
		for i := range n {
			r := m.Row(i)
			kinds[r.Kind]++
			addresses[r.Address] = true
			bytes += len(r.Pattern)
			if strings.HasPrefix(r.Pattern, "glob:*") {
				leading++
			}
			op.Routes = append(op.Routes, routetable.NewRoute(r.Pattern, r.Address))
		}
		if _, err := table.Apply(op); err != nil {
			t.Fatal(err)
		}
		if table.Snapshot().Len() != n || len(addresses) != n {
			t.Errorf("%d rows: got %d in the table, %d addresses", n, table.Snapshot().Len(), len(addresses))
		}
		if kinds[mix.Literal]*100 != 80*n || kinds[mix.Topic]*100 != 15*n || leading*100 != 2*n {
			t.Errorf("%d rows: got kinds %v, %d globs with a leading wildcard", n, kinds, leading)
		}
		if mean := bytes / n; mean < 40 || mean > 60 {
			t.Errorf("%d rows: patterns are %d bytes in the mean", n, mean)
		}
		for i := range n {
			r := m.Row(i)
			groups := table.Lookup(r.Hit)
			if !slices.ContainsFunc(groups, func(g routetable.Group) bool { return g.Pattern == r.Pattern }) {
				t.Fatalf("%s does not find %s", r.Hit, r.Pattern)
			}
		}
		misses := 0
		addrs := m.Addresses(10_000, 1, mix.All)
		for _, addr := range addrs {
			if len(table.Lookup(addr)) == 0 {
				misses++
			}
		}
		if misses < 900 || misses > 1100 {
			t.Errorf("%d rows: %d of %d addresses find nothing", n, misses, len(addrs))
		}
	}
}

func TestARowAfterTheLastIsNew(t *testing.T) {
	m := mix.Mix{Rows: 1000}
	if a, b := m.Row(999).Address, m.Row(1000).Address; a == b {
		t.Errorf("got %s twice", a)
	}
	if !slices.Equal(m.Addresses(50, 7, mix.All), m.Addresses(50, 7, mix.All)) {
		t.Error("the same seed gives other addresses")
	}
}
