package routetable

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// eachKind runs f on a table in memory and on one that is kept on disk.
func eachKind(t *testing.T, f func(t *testing.T, table *Table)) {
	t.Run("in memory", func(t *testing.T) { f(t, New()) })
	t.Run("on disk", func(t *testing.T) {
		table := openTable(t, t.TempDir())
		defer table.Close()
		f(t, table)
	})
}

func adding(pattern, address, origin string) *Request {
	return &Request{Plan: func(*Snapshot) ([]Op, error) {
		op := Op{Verb: VerbAdd, Route: NewRoute(pattern, address)}
		op.Route.Origin = origin
		return []Op{op}, nil
	}}
}

// TestPlanAll asks for edits at once that see each other, fail, roll back and do nothing: each is answered as if it came alone.
func TestPlanAll(t *testing.T) {
	eachKind(t, func(t *testing.T, table *Table) {
		var told []uint64
		table.OnChange(func(c Change) { told = append(told, c.Revision) })
		seen := -1
		list := []*Request{
			adding("A", "h1", ""),
			adding("A", "h1", ""),
			adding("B", "", ""),
			adding("B", "link:7", "link:7"),
			{Plan: func(s *Snapshot) ([]Op, error) { seen = s.Len(); return nil, errors.New("no") }},
			{Plan: func(*Snapshot) ([]Op, error) { return []Op{{Verb: VerbRollback, To: 0}}, nil }},
			adding("C", "h2", ""),
		}
		table.PlanAll(list)
		var got []string
		for _, x := range list {
			got = append(got, fmt.Sprintf("%d %q %v", x.Change.Revision, x.Change.Note, x.Err != nil))
		}
		if fmt.Sprint(got) != `[1 "" false 1 "already there" false 0 "" true 1 "" false 0 "" true 2 "" false 3 "" false]` {
			t.Fatalf("got %v", got)
		}
		wantRows(t, table, "B --> link:7 of link:7", "C --> h2")
		checkTable(t, table.Snapshot())
		if seen != 2 || fmt.Sprint(told) != "[1 1 2 3]" {
			t.Errorf("a plan saw %d rows, the watchers were told of %v", seen, told)
		}
	})
}

// TestAPanicIsItsCallersOwn has a plan panic on the goroutine of another writer: whoever asked for it hears of it, and nobody else.
func TestAPanicIsItsCallersOwn(t *testing.T) {
	eachKind(t, func(t *testing.T, table *Table) {
		must(t)(table.Add("A", "h1"))
		table.turn.Lock()
		var wg sync.WaitGroup
		var got any
		inLine(table, &wg, func() {
			table.Plan(Author{}, func(*Snapshot) ([]Op, error) { return nil, errors.New("the first is done by itself") })
		})
		inLine(table, &wg, func() {
			defer func() { got = recover() }()
			table.Plan(Author{}, func(*Snapshot) ([]Op, error) { panic("alice") })
		})
		inLine(table, &wg, func() { must(t)(table.Add("B", "h2")) })
		table.turn.Unlock()
		wg.Wait()
		if got != "alice" {
			t.Errorf("got %v", got)
		}
		must(t)(table.Add("C", "h3"))
		wantRows(t, table, "A --> h1", "B --> h2", "C --> h3")
		checkTable(t, table.Snapshot())
	})
}

// TestALiveRowThatLeadsDoesNotWait has a row of a live connection first in line, and behind it an edit whose commit ends only when the first
// is answered.
func TestALiveRowThatLeadsDoesNotWait(t *testing.T) {
	table := openTable(t, t.TempDir())
	defer table.Close()
	answered := make(chan struct{})
	table.OnChange(func(c Change) {
		if len(c.Added) == 0 || c.Added[0].Pattern != "B" {
			return
		}
		select {
		case <-answered:
		case <-time.After(20 * time.Second):
			t.Error("the row of a live connection waits for the disk")
		}
	})
	table.turn.Lock()
	var wg sync.WaitGroup
	inLine(table, &wg, func() {
		must(t)(table.Add("A", "link:1", WithOrigin("link:1")))
		close(answered)
	})
	inLine(table, &wg, func() { must(t)(table.Add("B", "h1")) })
	inLine(table, &wg, func() { must(t)(table.Add("C", "link:2", WithOrigin("link:2"))) })
	inLine(table, &wg, func() { must(t)(table.Rollback(Author{}, 0)) })
	table.turn.Unlock()
	wg.Wait()
	wantRows(t, table, "A --> link:1 of link:1", "C --> link:2 of link:2")
}

// TestLiveRowsAreShownTogether does edits of rows of live connections at once: readers see them in one step, but all that come before an edit
// for the disk before that one begins.
func TestLiveRowsAreShownTogether(t *testing.T) {
	for _, c := range []struct {
		name string
		list []string // origins of rows; "withdraw ORIGIN", "look"
		seen string   // rows that readers see when it is asked
	}{
		{"live rows alone", []string{"link:1", "link:2", "look", "withdraw link:1", "look"}, "[0 0]"},
		{"a row for the disk behind them", []string{"link:1", "link:2", "look", "operator", "look", "link:3", "look"}, "[0 2 2]"},
		{"a component's row is for the disk", []string{"link:1", "component:X", "look", "look"}, "[1 1]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := openTable(t, t.TempDir())
			defer table.Close()
			var seen []int
			var list []*Request
			want := map[string]bool{}
			for i, word := range c.list {
				origin, out := strings.CutPrefix(word, "withdraw ")
				switch {
				case out:
					list = append(list, &Request{Ops: []Op{{Verb: VerbWithdraw, Origin: origin}}})
					delete(want, origin)
				case word == "look":
					list = append(list, &Request{Plan: func(*Snapshot) ([]Op, error) {
						seen = append(seen, table.Snapshot().Len())
						return nil, nil
					}})
				default:
					list = append(list, adding(fmt.Sprint("P", i), "null", word))
					want[word] = true
				}
			}
			table.PlanAll(list)
			for i, x := range list {
				if x.Err != nil {
					t.Errorf("%s: %v", c.list[i], x.Err)
				}
			}
			if fmt.Sprint(seen) != c.seen {
				t.Errorf("readers saw %v, want %s", seen, c.seen)
			}
			if n := table.Snapshot().Len(); n != len(want) {
				t.Errorf("%d rows, want %d", n, len(want))
			}
			checkTable(t, table.Snapshot())
		})
	}
}
