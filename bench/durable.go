package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fingerpost/fingerpost/internal/house/mix"
	"github.com/fingerpost/fingerpost/routetable"
)

const (
	durableGoal = 10e3   // ns of each of many waiting edits
	waiting     = 10_000 // edits
	oneByOne    = 1_000  // edits
)

// errNoOpen says that tables on disk are not there yet.
var errNoOpen = errors.New("tables are in memory only")

// openTable opens the table that is kept in a directory. done closes it.
func openTable(dir string) (t *routetable.Table, done func() error, err error) {
	return nil, nil, errNoOpen
}

// measureDurable keeps a table on disk: opens it, and edits it so that every edit is on disk before it is answered.
func measureDurable(s settings) []line {
	what := []string{
		"open a table on disk, " + thousands(s.rows) + " rows",
		"edit on disk, one at a time",
		"edit on disk, each of " + thousands(waiting) + " that wait",
	}
	dir, err := os.MkdirTemp(s.dir, "bench")
	check(err)
	defer os.RemoveAll(dir)
	state := filepath.Join(dir, "state")
	t, done, err := openTable(state)
	if errors.Is(err, errNoOpen) {
		var lines []line
		for _, w := range what {
			lines = append(lines, notMeasured(w, err.Error()))
		}
		return lines
	}
	check(err)
	f, err := routetable.ParseFile("bench", arrowText(s.rows))
	check(err)
	_, err = t.LoadFile(f, routetable.LoadReplace)
	check(err)
	check(done())
	f = nil

	var open []float64
	for range s.count {
		open = append(open, timed(func() { t, done, err = openTable(state) }))
		check(err)
		if t.Snapshot().Len() != s.rows {
			check(fmt.Errorf("opened %d rows of %d", t.Snapshot().Len(), s.rows))
		}
		check(done())
	}

	t, done, err = openTable(state)
	check(err)
	m := mix.Mix{Rows: s.rows}
	var next atomic.Int64
	next.Store(int64(s.rows))
	add := func() {
		r := m.Row(int(next.Add(1)))
		_, err := t.Add(r.Pattern, r.Address)
		check(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	check(err)
	record := []byte(strings.Repeat("r", 128))
	took := interleave(s.count,
		func() float64 {
			return timed(func() {
				for range oneByOne {
					add()
				}
			}) / oneByOne
		},
		func() float64 {
			return timed(func() {
				for range oneByOne {
					_, err := log.Write(record)
					check(err)
					check(log.Sync())
				}
			}) / oneByOne
		},
		func() float64 { return addWaiting(add) })
	check(log.Close())
	check(done())
	return []line{
		newLine(what[0], ns, open),
		newLine(what[1], ns, took[0]).against("write and fsync of 128 B", took[1]),
		newLine(what[2], ns, took[2]).atMost(durableGoal),
	}
}

// addWaiting does as many edits at once as there are waiting and returns the time of each.
func addWaiting(add func()) float64 {
	start := make(chan struct{})
	var ready, done sync.WaitGroup
	for range waiting {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			add()
		})
	}
	ready.Wait()
	return timed(func() {
		close(start)
		done.Wait()
	}) / waiting
}
