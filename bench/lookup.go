package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fingerpost/fingerpost/internal/house/mix"
	"github.com/fingerpost/fingerpost/routetable"
)

const (
	hotSet   = 512
	hotGoal  = 60 // ns
	editRate = 20_000
)

// measureHot looks up the same few addresses again and again, alone and while the table is edited.
func measureHot(s settings) []line {
	m := mix.Mix{Rows: s.rows}
	t := newTable(s.rows, mix.All)
	dst := make([]routetable.Group, 0, 64)
	w := &walk{addrs: m.Addresses(hotSet, 1, mix.All), lookup: func(addr string) int {
		dst = t.LookupInto(dst[:0], addr, nil)
		return len(dst)
	}}
	for range 256 {
		w.step() // fills the cache, which grows with what is asked of it
	}
	y := newYardstick(100)
	// Allocations first: nothing else runs yet.
	perLookup := w.allocsPerLookup()
	rows := edited(t, m, 4096)
	var rates []float64
	values := interleave(s.count,
		func() float64 { return w.nsPerLookup(s.turn) },
		func() float64 {
			stop := edit(t, rows, editRate)
			took := w.nsPerLookup(s.turn)
			rates = append(rates, stop())
			return took
		},
		func() float64 { return y.nsPerLookup(s.turn) })
	what := fmt.Sprintf("lookup, %d hot addresses of %s rows", hotSet, thousands(s.rows))
	busy := newLine(what+", 20,000 edits/s", ns, values[1]).atMostHere(hotGoal, y, values[2])
	if rate := median(rates); rate < 0.95*editRate {
		busy.Verdict = verdict(false)
		busy = busy.note("only %s edits/s", thousands(int(rate)))
	} else {
		busy = busy.note("%s edits/s", thousands(int(rate)))
	}
	return []line{
		newLine(what, ns, values[0]).atMostHere(hotGoal, y, values[2]),
		newLine(what+": allocations", allocs, []float64{perLookup}).atMost(0),
		busy,
	}
}

// edit changes random rows at the rate, in bursts of a millisecond, until stop is called, which says what rate was reached. A row is
// set, deleted and added again.
func edit(t *routetable.Table, rows []mix.Row, rate int) (stop func() (perSecond float64)) {
	quit, reached := make(chan struct{}), make(chan float64)
	go func() {
		start := time.Now()
		done := 0
		for {
			took := time.Since(start)
			select {
			case <-quit:
				if done%3 == 0 { // every row is there again
					reached <- float64(done) / took.Seconds()
					return
				}
			default:
			}
			if due := int(took.Seconds() * float64(rate)); done >= due {
				time.Sleep(time.Millisecond)
				continue
			}
			r := &rows[done/3%len(rows)]
			var err error
			switch done % 3 {
			case 0:
				_, err = t.Set(r.Pattern, r.Address, routetable.WithTimeout(time.Duration(done+1)))
			case 1:
				_, err = t.Delete(r.Pattern, r.Address)
			case 2:
				_, err = t.Add(r.Pattern, r.Address)
			}
			check(err)
			done++
		}
	}()
	return func() float64 {
		close(quit)
		return <-reached
	}
}

// edited draws n rows of the table that are the only ones of their pattern.
func edited(t *routetable.Table, m mix.Mix, n int) []mix.Row {
	rnd := rand.New(rand.NewPCG(2, uint64(m.Rows)))
	seen := map[int]bool{}
	var rows []mix.Row
	for n = min(n, m.Rows/2); len(rows) < n; {
		i := rnd.IntN(m.Rows)
		if r := m.Row(i); !seen[i] && alone(t, r) {
			rows = append(rows, r)
		}
		seen[i] = true
	}
	return rows
}

func alone(t *routetable.Table, r mix.Row) bool {
	for _, g := range t.Lookup(r.Hit) {
		if g.Pattern == r.Pattern {
			return len(g.Matches) == 1
		}
	}
	return false
}

// sizes are those of the tables whose growth is of interest.
func sizes(rows int) []int {
	var list []int
	for _, n := range []int{100, 10_000} {
		if n < rows {
			list = append(list, n)
		}
	}
	return append(list, rows)
}

// uniformGoal is the time of a lookup that no cache helps, in ns, and how many lookups in a map it may take instead.
func uniformGoal(rows int) (goal, maps float64) {
	switch {
	case rows <= 100:
		return 250, 0
	case rows <= 10_000:
		return 1_500, 0
	}
	return 8_000, 8
}

// manyAddresses is so many that a turn hardly sees one twice, where the table is not small.
func manyAddresses(rows int) int { return max(4096, rows/2) }

// measureUniform looks up any address, and the same ones in a map: that tells what this machine's memory costs.
func measureUniform(s settings) []line {
	var lines []line
	for _, n := range sizes(s.rows) {
		m := mix.Mix{Rows: n}
		snapshot := newTable(n, mix.All).Snapshot()
		keys := make(map[string]int, n)
		for i := range n {
			keys[m.Row(i).Hit] = i
		}
		addrs := m.Addresses(manyAddresses(n), 3, mix.All)
		dst := make([]routetable.Group, 0, 64)
		own := &walk{addrs: addrs, lookup: func(addr string) int {
			dst = lookupUncached(snapshot, dst[:0], addr)
			return len(dst)
		}}
		plain := &walk{addrs: addrs, lookup: func(addr string) int { return keys[addr] }}
		for range min(len(addrs)/chunk, 64) {
			own.step() // rows are made at first use, and kept as long as there is room
		}
		perLookup := own.allocsPerLookup()
		y := newYardstick(n)
		values := interleave(s.count,
			func() float64 { return own.nsPerLookup(s.turn) },
			func() float64 { return plain.nsPerLookup(s.turn) },
			func() float64 { return y.nsPerLookup(s.turn) })
		what := "lookup, any address of " + thousands(n) + " rows, no cache"
		goal, maps := uniformGoal(n)
		l := newLine(what, ns, values[0]).atMostHere(goal, y, values[2])
		ratio := l.Value / median(values[1])
		if maps > 0 {
			l.Goal += fmt.Sprintf(" or %.0f × a map", maps)
			if ratio <= maps {
				l.Verdict = verdict(true)
			}
		}
		lines = append(lines, l.note("%.1f × a map (%s)", ratio, format(median(values[1]), ns)),
			newLine(what+": allocations", allocs, []float64{perLookup}))
	}
	return lines
}
