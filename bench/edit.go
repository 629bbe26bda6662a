package main

import (
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/internal/house/mix"
	"github.com/fingerpost/fingerpost/routetable"
)

const (
	editGoal  = 25e3            // ns
	editLimit = 3 * time.Second // of one repetition
)

// measureEdits times single edits of random rows, by verb. A repetition leaves the rows of the table as they were.
func measureEdits(s settings) []line {
	m := mix.Mix{Rows: s.rows}
	t := newTable(s.rows, mix.All)
	rows := edited(t, m, 4096)
	next := s.rows // the next new row
	verbs := []string{"add", "delete", "set", "replace"}
	medians, highs := make([][]float64, len(verbs)), make([][]float64, len(verbs))
	for range s.count {
		times := make([][]float64, len(verbs))
		timeOf := func(verb int, edit func() (routetable.Change, error)) {
			var c routetable.Change
			var err error
			times[verb] = append(times[verb], timed(func() { c, err = edit() }))
			check(err)
			if !c.Changed() {
				panic(verbs[verb] + " changed nothing")
			}
		}
		start := time.Now()
		for i, r := range rows {
			if time.Since(start) > editLimit {
				break
			}
			fresh := m.Row(next)
			next++
			other := strings.Replace(r.Address, "/inbox-", "/spare-", 1)
			timeOf(0, func() (routetable.Change, error) { return t.Add(fresh.Pattern, fresh.Address) })
			timeOf(2, func() (routetable.Change, error) {
				return t.Set(r.Pattern, r.Address, routetable.WithTimeout(time.Duration(i+1)*time.Second))
			})
			timeOf(3, func() (routetable.Change, error) { return t.Replace(r.Pattern, other) })
			timeOf(1, func() (routetable.Change, error) { return t.Delete(r.Pattern, other) })
			timeOf(0, func() (routetable.Change, error) { return t.Add(r.Pattern, r.Address) })
			timeOf(1, func() (routetable.Change, error) { return t.Delete(fresh.Pattern, fresh.Address) })
		}
		for i := range verbs {
			medians[i] = append(medians[i], median(times[i]))
			highs[i] = append(highs[i], quantile(times[i], 0.99))
		}
	}
	var lines []line
	for i, verb := range verbs {
		what := verb + " of a row among " + thousands(s.rows)
		lines = append(lines, newLine(what, ns, medians[i]).atMost(editGoal), newLine(what+": 99 in 100 at most", ns, highs[i]))
	}
	return lines
}
