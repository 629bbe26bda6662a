package routetable

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestLintFindsWhatCoversARow holds the tables of the linter to a scan of all rows.
func TestLintFindsWhatCoversARow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tb := New()
		if rapid.Bool().Draw(t, "first") {
			tb.SetMatch(MatchFirst)
		}
		star := rapid.SampledFrom([]string{"*", "a*", "ab*", "web:*", "web:a*", "rpc:*", "%", "a/*"})
		for range rapid.IntRange(1, 20).Draw(t, "rows") {
			pattern := drawPattern(t)
			if rapid.Bool().Draw(t, "star") {
				pattern = star.Draw(t, "pattern")
			}
			r := NewRoute(pattern, rapid.SampledFrom([]string{"h", "i", "j/$1"}).Draw(t, "address"))
			r.Fallback, r.Optional = rapid.Bool().Draw(t, "fallback"), rapid.IntRange(0, 3).Draw(t, "optional") == 0
			r.Order = rapid.IntRange(0, 2).Draw(t, "order")
			if rapid.IntRange(0, 3).Draw(t, "when") == 0 {
				r.When = "x = 1"
			}
			_, _ = tb.Apply(Op{Verb: VerbAdd, Route: r})
		}
		s := tb.Snapshot()
		l := newLinter(s)
		for r := range s.Routes() {
			l.kinOf(r.Pattern)
			for what, is := range map[string]func(*Route) bool{
				"a row":      func(o *Route) bool { return !o.Fallback },
				"one before": func(o *Route) bool { return o.Fallback == r.Fallback && o.before(r) && o.Pattern != r.Pattern },
			} {
				if got, want := l.covering(r, is), scanCovering(s, r, is); (got == nil) != (want == nil) || got != nil && got.ID != want.ID {
					t.Fatalf("%s %s is covered by %v, want %v", what, r.Pattern, got, want)
				}
			}
		}
	})
}

func scanCovering(s *Snapshot, r *Route, is func(*Route) bool) *Route {
	p := r.c.pattern
	rows := slices.Collect(s.Routes())
	if p.literal() {
		rows = s.rowsFor(nil, p.lits[0], hashAddress(p.lits[0]))
	}
	for _, o := range rows {
		if !o.alwaysCounts() || !is(o) {
			continue
		}
		_, star := starOf(o.c.pattern)
		if p.literal() || o.Pattern == r.Pattern || star && covers(o.c.pattern, p) {
			return o
		}
	}
	return nil
}

// BenchmarkLint is the cost of a row, in tables on which a look at pairs of rows would not end.
func BenchmarkLint(b *testing.B) {
	const n = 20_000
	for _, c := range []struct {
		name string
		row  func(i string) Route
	}{
		{"one pattern", func(i string) Route { return NewRoute("a", "h/"+i) }},
		{"patterns", func(i string) Route { return NewRoute("web:a/"+i+"/*", "h") }},
		{"stars", func(i string) Route { return NewRoute("web:"+i+"*", "h") }},
	} {
		b.Run(c.name, func(b *testing.B) {
			op := Op{Verb: VerbLoad}
			for i := range n {
				op.Routes = append(op.Routes, c.row(strconv.Itoa(i)))
			}
			tb := New()
			if _, err := tb.Apply(op); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				tb.Snapshot().Lint()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/row")
		})
	}
}
