package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fingerpost/fingerpost/internal/house/mix"
	"github.com/fingerpost/fingerpost/routetable"
)

const (
	openGoal    = 3e3    // ns of each row: a million in three seconds
	durableGoal = 10e3   // ns of each of many waiting edits
	waiting     = 10_000 // edits
	oneByOne    = 1_000  // edits
)

// openTable opens the table that is kept in a directory. done closes it.
func openTable(dir string) (t *routetable.Table, done func() error, err error) {
	if t, err = routetable.Open(dir, nil); err != nil {
		return nil, nil, err
	}
	return t, t.Close, nil
}

// measureDurable keeps a table on disk: opens it, and edits it so that every edit is on disk before it is answered.
func measureDurable(s settings) []line {
	dir, err := os.MkdirTemp(s.dir, "bench")
	check(err)
	defer os.RemoveAll(dir)
	state := filepath.Join(dir, "state")
	lines := measureOpen(s, state)

	t, done, err := openTable(state)
	check(err)
	m := mix.Mix{Rows: s.rows}
	var next atomic.Int64
	next.Store(int64(s.rows))
	row := func() (add func()) {
		r := m.Row(int(next.Add(1)))
		return func() {
			_, err := t.Add(r.Pattern, r.Address)
			check(err)
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	check(err)
	record := []byte(strings.Repeat("r", 128))
	y := newYardstick(s.rows)
	took := interleave(s.count,
		func() float64 {
			return timed(func() {
				for range oneByOne {
					row()()
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
		func() float64 { return addWaiting(row) },
		func() float64 { return y.nsPerLookup(s.turn) })
	check(log.Close())
	check(done())
	return append(lines,
		newLine("edit on disk, one at a time", ns, took[0]).against("write and fsync of 128 B", took[1]),
		newLine("edit on disk, each of "+thousands(waiting)+" that wait", ns, took[2]).atMostHere(durableGoal, y, took[3]))
}

// measureOpen makes a table in a directory and opens it, from a snapshot alone and from a snapshot with a journal behind it.
func measureOpen(s settings, state string) []line {
	f, err := routetable.ParseFile("bench", arrowText(s.rows))
	check(err)
	load := func(mode routetable.LoadMode, note string) {
		for i := range f.Routes {
			f.Routes[i].Note = note
		}
		t, done, err := openTable(state)
		check(err)
		_, err = t.LoadFile(f, mode)
		check(err)
		check(done())
	}
	open := func() (times []float64) {
		for range s.count {
			runtime.GC()
			var t *routetable.Table
			var done func() error
			times = append(times, timed(func() { t, done, err = openTable(state) }))
			check(err)
			if t.Snapshot().Len() != s.rows {
				check(fmt.Errorf("opened %d rows of %d", t.Snapshot().Len(), s.rows))
			}
			check(done())
		}
		return times
	}

	// A load that the journal has no room for makes a snapshot; of a small table it takes some.
	for i := 0; snapshotOf(state) == ""; i++ {
		load(routetable.LoadReplace, []string{"", "again"}[i%2])
	}
	what := "load of " + thousands(s.rows) + " rows from a snapshot on disk"
	lines := []line{newLine(what, ns, open()).atMost(openGoal * float64(s.rows))}

	before := snapshotOf(state)
	f.Routes = f.Routes[:len(f.Routes)/5*2]
	load(routetable.LoadMerge, "changed")
	if snapshotOf(state) != before {
		check(errors.New("the journal was longer than was meant, a snapshot took its place"))
	}
	return append(lines, newLine(what+" and a journal of "+thousands(len(f.Routes))+" of them", ns, open()))
}

// snapshotOf is the file of the snapshot in a state directory, "" for none.
func snapshotOf(state string) string {
	files, err := filepath.Glob(filepath.Join(state, "*.snapshot"))
	check(err)
	return strings.Join(files, " ")
}

// addWaiting does as many edits at once as there are waiting, each of which row makes, and returns the time of each.
func addWaiting(row func() (add func())) float64 {
	start := make(chan struct{})
	var ready, done sync.WaitGroup
	for range waiting {
		ready.Add(1)
		add := row()
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
