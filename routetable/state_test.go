package routetable

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/fingerpost/fingerpost/internal/journal"
	"pgregory.net/rapid"
)

func openTable(t interface {
	Fatal(...any)
	Helper()
}, dir string) *Table {
	t.Helper()
	table, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// kept is what of a table has to be there after it was opened again.
func kept(s *Snapshot) string {
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d match %s\n", s.Revision(), s.Match())
	for r := range s.Routes() {
		if durable(r.Origin) {
			fmt.Fprintf(&b, "%x %d %s --> %s of %s %v\n", r.ID, r.pos, r.Pattern, r.Address, r.Origin, FormatColumns(r))
		}
	}
	return b.String() + objectsText(s)
}

// TestTableOutlivesItsProcess edits a table at random, closes and opens it, and finds its durable rows, its revision and its history.
func TestTableOutlivesItsProcess(t *testing.T) {
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := fmt.Sprintf("%s/%d", root, n)
		m := &historyModel{openTable(t, dir), map[uint64]string{}, map[uint64]*Snapshot{}}
		for range rapid.IntRange(1, 4).Draw(t, "lives") {
			for range rapid.IntRange(0, 8).Draw(t, "edits") {
				m.note(t)
				m.edit(t)
			}
			mark := rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, "mark")
			if _, err := m.table.ApplyAs(Author{Marks: map[string]string{"file": mark}}); err != nil {
				t.Fatal(err)
			}
			m.note(t)
			want, history := kept(m.table.Snapshot()), m.table.History(0, 0)
			if rapid.Bool().Draw(t, "compact") {
				m.table.turn.Lock()
				if err := m.table.mend(); err != nil {
					t.Fatal(err)
				}
				m.table.turn.Unlock()
			}
			if err := m.table.Close(); err != nil {
				t.Fatal(err)
			}
			m.table = openTable(t, dir)
			s := m.table.Snapshot()
			checkTable(t, s)
			if got := kept(s); got != want {
				t.Fatalf("got\n%s\nwant\n%s", got, want)
			}
			if got, ok := s.Mark("file"); got != mark || ok != (mark != "") {
				t.Fatalf("got mark %q, want %q", got, mark)
			}
			if got := m.table.History(0, 0); fmt.Sprint(got) != fmt.Sprint(history) {
				t.Fatalf("got history\n%v\nwant\n%v", got, history)
			}
			m.rollback(t)
		}
		m.table.Close()
		os.RemoveAll(dir)
	})
}

// TestWaitingEditsShareASync lets many edits wait at once: each is there after a restart, and revisions have no gap.
func TestWaitingEditsShareASync(t *testing.T) {
	dir := t.TempDir()
	table := openTable(t, dir)
	told := 0
	table.OnChange(func(c Change) {
		if told++; c.Revision != uint64(told) {
			t.Errorf("told of revision %d as the %dth", c.Revision, told)
		}
	})
	var wg sync.WaitGroup
	for i := range 500 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c, err := table.Add(fmt.Sprintf("row-%d", i), "h1")
			if err != nil {
				t.Error(err)
			} else if s := table.Snapshot(); s.Revision() < c.Revision || !s.hasPattern(fmt.Sprintf("row-%d", i)) {
				t.Errorf("row %d is acknowledged and cannot be seen", i)
			}
		}()
	}
	wg.Wait()
	want := kept(table.Snapshot())
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Add("x", "h"); err == nil {
		t.Error("a closed table was edited")
	}
	again := openTable(t, dir)
	defer again.Close()
	if got := kept(again.Snapshot()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if again.Revision() != 500 || told != 500 {
		t.Errorf("revision %d, told %d times", again.Revision(), told)
	}
}

// TestDiskFails takes the journal away beneath a table: edits are refused and change nothing, lookups and rows of live connections go on,
// and once the disk is back so are edits.
func TestDiskFails(t *testing.T) {
	dir := t.TempDir()
	do, table := must(t), openTable(t, dir)
	do(table.Add("A", "h1"))
	before := table.Snapshot()
	if err := table.state.journal.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, err := table.Add("B", "h2")
		var se *StateError
		if !errors.As(err, &se) {
			t.Fatalf("got %v", err)
		}
	}
	if s := table.Snapshot(); kept(s) != kept(before) || s.Generation() != before.Generation() {
		t.Errorf("got %s", kept(s))
	}
	do(table.Add("A", "link:1", WithOrigin("link:1")))
	if got := table.Lookup("A"); len(got) != 1 || len(got[0].Matches) != 2 {
		t.Errorf("got %v", got)
	}
	checkTable(t, table.Snapshot())
	j, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Recover(func(io.Reader, int64) error { return nil }, func(uint64, []byte) error { return nil }); err != nil {
		t.Fatal(err)
	}
	table.state.journal = j
	do(table.Add("B", "h2"))
	want := kept(table.Snapshot())
	table.Close()
	again := openTable(t, dir)
	defer again.Close()
	if got := kept(again.Snapshot()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// inLine runs f, which edits the table, and returns when its edit is in line behind the others. Somebody else has the turn.
func inLine(table *Table, wg *sync.WaitGroup, f func()) {
	waiting := func() int {
		table.asking.Lock()
		defer table.asking.Unlock()
		return len(table.asked)
	}
	before := waiting()
	wg.Go(f)
	for waiting() == before {
		runtime.Gosched()
	}
}

// TestLiveRowsDoNotWaitForAFullDisk has rows of live connections come and go while edits before them wait for a disk that then refuses: the
// edits are given up, the rows are as their connections say.
func TestLiveRowsDoNotWaitForAFullDisk(t *testing.T) {
	dir := t.TempDir()
	do, table := must(t), openTable(t, dir)
	do(table.Add("A", "h1"))
	do(table.Add("A", "link:1", WithOrigin("link:1")))
	before := kept(table.Snapshot())
	told := map[string]int{}
	table.OnChange(func(c Change) {
		for _, r := range c.Added {
			told[r.Address]++
		}
		for _, r := range c.Removed {
			told[r.Address]--
		}
	})
	if err := table.state.journal.Close(); err != nil {
		t.Fatal(err)
	}
	table.turn.Lock() // the disk is slow
	var wg sync.WaitGroup
	in := func(f func()) { inLine(table, &wg, f) }
	refused := func() {
		_, err := table.Add(fmt.Sprintf("B/%d", rand.Int()), "h2")
		if se := (*StateError)(nil); !errors.As(err, &se) {
			t.Errorf("got %v", err)
		}
	}
	in(refused)
	in(func() { do(table.Withdraw("link:1")) })
	in(refused)
	in(func() { do(table.Add("A", "link:2", WithOrigin("link:2"))) })
	table.turn.Unlock()
	wg.Wait()
	s := table.Snapshot()
	if got := kept(s); got != before {
		t.Errorf("got\n%s\nwant\n%s", got, before)
	}
	if got := table.Lookup("A"); len(got) != 1 || len(got[0].Matches) != 2 || got[0].Matches[1].Route.Address != "link:2" {
		t.Errorf("got %v", got)
	}
	if told["link:1"] != -1 || told["link:2"] != 1 || len(told) != 2 {
		t.Errorf("the watchers were told %v", told)
	}
	checkTable(t, s)
}

// TestCloseWaitsForEdits closes a table under many edits: each is refused, or there when it is opened again.
func TestCloseWaitsForEdits(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		table := openTable(t, dir)
		var wg sync.WaitGroup
		var done sync.Map
		first := make(chan struct{})
		for i := range 16 {
			wg.Go(func() {
				for n := 0; ; n++ {
					pattern := fmt.Sprintf("%d/%d", i, n)
					if _, err := table.Add(pattern, "h1"); err != nil {
						if !errors.Is(err, errClosed) {
							t.Error(err)
						}
						return
					}
					done.Store(pattern, true)
					if i+n == 0 {
						close(first)
					}
				}
			})
		}
		<-first
		if err := table.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		again := openTable(t, dir)
		done.Range(func(pattern, _ any) bool {
			if !again.Snapshot().hasPattern(pattern.(string)) {
				t.Errorf("%s is not there", pattern)
			}
			return true
		})
		again.Close()
	}
}

// TestJournalIsCompacted edits until snapshots have taken the journal's place a few times, while edits go on.
func TestJournalIsCompacted(t *testing.T) {
	dir := t.TempDir()
	do, table := must(t), openTable(t, dir)
	note := strings.Repeat("n", 30_000)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 900 {
		do(table.Replace(fmt.Sprintf("row-%d", rnd.IntN(50)), fmt.Sprintf("h%d", i), WithNote(note)))
	}
	want := kept(table.Snapshot())
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	if size := table.state.journal.Size(); size > 3*leastJournal {
		t.Errorf("the journal has %d bytes", size)
	}
	again := openTable(t, dir)
	defer again.Close()
	if got := kept(again.Snapshot()); got != want {
		t.Error("the table is another")
	}
}

func FuzzReplay(f *testing.F) {
	dir := f.TempDir()
	table, err := Open(dir, nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, row := range [][2]string{{"A", "h1"}, {"a/*", "amqp://h/$1"}, {"glob:{a,b}", "null"}, {"A", "h2"}} {
		if _, err := table.Add(row[0], row[1], WithNote("n")); err != nil {
			f.Fatal(err)
		}
	}
	c, err := table.Delete("A", "h1")
	if err != nil {
		f.Fatal(err)
	}
	if _, err := table.Apply(Op{Verb: VerbObject, Object: "one", Text: "a"}); err != nil {
		f.Fatal(err)
	}
	s := table.Snapshot()
	change, _ := appendChange(nil, s, &c, &table.ids, table.nextPos, true, table.history.entries[0])
	f.Add(change, false)
	var b strings.Builder
	if err := writeState(&b, s, table.ids, table.nextPos, table.history.entries); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(b.String()), true)
	table.Close()
	f.Fuzz(func(t *testing.T, data []byte, snapshot bool) {
		table := New()
		r := newReplay(table)
		var err error
		if snapshot {
			err = r.snapshot(strings.NewReader(string(data)), int64(len(data)))
		} else {
			err = r.change(1, data)
		}
		if err == nil {
			r.finish()
			checkTable(t, table.Snapshot())
			table.LookupInto(nil, "a/b", nil)
		}
	})
}

func BenchmarkDurableEdit(b *testing.B) {
	for _, waiting := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			table, err := Open(b.TempDir(), nil)
			if err != nil {
				b.Fatal(err)
			}
			defer table.Close()
			b.ReportAllocs()
			for i := 0; i < b.N; {
				var wg sync.WaitGroup
				for range min(waiting, b.N-i) {
					i++
					wg.Add(1)
					go func(i int) {
						defer wg.Done()
						if _, err := table.Add(fmt.Sprintf("customers/%d/orders", i), "amqp://h1.example:5672/q"); err != nil {
							b.Error(err)
						}
					}(i)
				}
				wg.Wait()
			}
		})
	}
}

// TestEditsOfOneBatch gathers edits, also such that are refused after they changed something, into one commit, and holds the table to one
// that did them one by one.
func TestEditsOfOneBatch(t *testing.T) {
	dir := t.TempDir()
	n := 0
	patterns := []string{"a", "b", "c", "x/*", "glob:{a,b}*"}
	addresses := []string{"h1", "h2", "amqp://h/$1", "route:a", "route:b", "route:c"}
	rapid.Check(t, func(t *rapid.T) {
		n++
		table, plain := openTable(t, fmt.Sprintf("%s/%d", dir, n)), New()
		draw := func() []Op {
			var ops []Op
			for range rapid.SampledFrom([]int{1, 1, 1, 2, 4}).Draw(t, "ops") {
				op := Op{Verb: Verb(rapid.IntRange(int(VerbAdd), int(VerbMatch)).Draw(t, "verb"))}
				op.Route = NewRoute(rapid.SampledFrom(patterns).Draw(t, "pattern"), rapid.SampledFrom(addresses).Draw(t, "address"))
				op.Route.Order = rapid.IntRange(-1, 1).Draw(t, "order")
				op.Route.Pick = Pick(rapid.IntRange(0, 1).Draw(t, "pick"))
				op.Origin = rapid.SampledFrom([]string{"", "", "", "peer:N/1/s", "link:3"}).Draw(t, "origin")
				op.Route.Origin = op.Origin
				op.Anchor, op.Before = rapid.SampledFrom(patterns).Draw(t, "anchor"), rapid.Bool().Draw(t, "before")
				op.Addresses = []string{op.Route.Address, "h3"}
				if op.Verb == VerbMatch {
					op.Match = MatchMode(rapid.IntRange(0, 1).Draw(t, "match"))
				}
				if op.Verb == VerbLoad {
					op.Origin, op.Mode = "", LoadMerge
					op.Routes = []Route{NewRoute("a", "h1"), NewRoute("c", "route:a")}
				}
				ops = append(ops, op)
			}
			return ops
		}
		for range rapid.IntRange(1, 3).Draw(t, "batches") {
			var waiting sync.WaitGroup
			table.turn.Lock()
			for range rapid.IntRange(1, 12).Draw(t, "edits") {
				ops := draw()
				c, err := plain.Apply(ops...)
				inLine(table, &waiting, func() {
					got, gotErr := table.Plan(Author{}, func(s *Snapshot) ([]Op, error) { checkTable(t, s); return ops, nil })
					if fmt.Sprint(gotErr) != fmt.Sprint(err) || got.Revision != c.Revision || len(got.Added) != len(c.Added) || len(got.Removed) != len(c.Removed) {
						t.Errorf("got %v, %v, want %v, %v", got, gotErr, c, err)
					}
				})
			}
			table.turn.Unlock()
			waiting.Wait()
			s := table.Snapshot()
			checkTable(t, s)
			if got, want := strings.Join(rowTexts(s), "\n"), strings.Join(rowTexts(plain.Snapshot()), "\n"); got != want {
				t.Fatalf("got\n%s\nwant\n%s", got, want)
			}
			if s.Generation() != plain.Generation() || s.Revision() != plain.Revision() || s.Match() != plain.Snapshot().Match() {
				t.Fatalf("got generation %d, revision %d", s.Generation(), s.Revision())
			}
		}
		want := kept(table.Snapshot())
		table.Close()
		table = openTable(t, fmt.Sprintf("%s/%d", dir, n))
		if got := kept(table.Snapshot()); got != want {
			t.Fatalf("opened again: got\n%s\nwant\n%s", got, want)
		}
		table.Close()
		os.RemoveAll(fmt.Sprintf("%s/%d", dir, n))
	})
}

func TestAStateDirectoryThatIsRemovedIsNoticedAtTheNextEdit(t *testing.T) {
	dir := t.TempDir()
	do, table := must(t), openTable(t, dir)
	do(table.Add("A", "h1"))
	before := kept(table.Snapshot())
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	_, err := table.Add("A", "h2")
	if se := (*StateError)(nil); !errors.As(err, &se) || !strings.Contains(err.Error(), "was removed") {
		t.Errorf("got %v", err)
	}
	if got := kept(table.Snapshot()); got != before {
		t.Errorf("got\n%s\nwant\n%s", got, before)
	}
	do(table.Add("A", "link:1", WithOrigin("link:1")))
	if got := table.Lookup("A"); len(got) != 1 || len(got[0].Matches) != 2 {
		t.Errorf("a live row did not come: %v", got)
	}
}
