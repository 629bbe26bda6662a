package routetable

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// configuredText is the configured rows and the match mode as a table file, and the objects.
func configuredText(s *Snapshot) string {
	f := s.File(false)
	f.Routes = slices.DeleteFunc(f.Routes, func(r Route) bool { return !Configured(r.Origin) })
	var b strings.Builder
	if err := f.WriteArrow(&b); err != nil {
		panic(err)
	}
	return b.String() + objectsText(s)
}

func objectsText(s *Snapshot) string {
	if len(s.Objects()) == 0 {
		return ""
	}
	return fmt.Sprintf("objects %q\n", s.Objects())
}

func diffText(t testing.TB, d *Diff) string {
	var b strings.Builder
	if err := d.WriteText(&b, true); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func refused(t testing.TB, err error, what string) {
	t.Helper()
	var re *RefusedError
	if !errors.As(err, &re) || !strings.Contains(re.Error(), what) {
		t.Errorf("got error %v, want a refusal that says %q", err, what)
	}
}

func TestHistoryNamesItsCommands(t *testing.T) {
	long := strings.Repeat("x", 300)
	tests := []struct {
		ops  []Op
		want string
	}{
		{[]Op{{Verb: VerbAdd, Route: NewRoute("A", "amqp://u:p@h")}}, "add A amqp://***@h"},
		{[]Op{{Verb: VerbAdd, Route: Route{Pattern: "A", Address: "h b", Pick: PickAny, Fallback: true, Retry: -1, Note: "of two"}}}, `add A "h b" --pick any --fallback --note "of two"`},
		{[]Op{{Verb: VerbAdd, Route: Route{Pattern: "A", Address: "h", Origin: "cluster"}}}, "add A h --origin cluster"},
		{[]Op{{Verb: VerbInsert, Route: NewRoute("A", "h"), Anchor: "B", AnchorAddress: "x:y@z", Before: true}}, "insert A h --before B --address ***@z"},
		{[]Op{{Verb: VerbInsert, Route: NewRoute("A", "h"), Anchor: "B"}}, "insert A h --after B"},
		{[]Op{{Verb: VerbSet, Route: NewRoute("A", "h"), Columns: ColFallback | ColOrder}}, "set A h --order 0 --fallback=false"},
		{[]Op{{Verb: VerbReplace, Route: NewRoute("A", "h")}}, "replace A h"},
		{[]Op{{Verb: VerbReplaceAll, Route: NewRoute("A", ""), Addresses: []string{"h", "i"}}}, "replace-all A h i"},
		{[]Op{{Verb: VerbDelete, Route: NewRoute("A", "h"), Origin: "link:7"}}, "delete A h --origin link:7"},
		{[]Op{{Verb: VerbDeletePattern, Route: NewRoute("A", "")}}, "delete-pattern A"},
		{[]Op{{Verb: VerbClear}}, "clear"},
		{[]Op{{Verb: VerbWithdraw, Origin: "peer:B/"}}, "withdraw peer:B/"},
		{[]Op{{Verb: VerbLoad, Routes: make([]Route, 3), Mode: LoadMerge, Origin: "file:x"}}, "load of 3 rows --merge --origin file:x"},
		{[]Op{{Verb: VerbMatch, Match: MatchFirst}}, "match first"},
		{[]Op{{Verb: VerbRollback, To: 17}}, "rollback 17"},
		{[]Op{{Verb: VerbClear}, {Verb: VerbMatch}}, "apply of 2: clear …"},
		{[]Op{{Verb: VerbReplaceAll, Route: NewRoute("A", ""), Addresses: []string{long, long, long, long}}}, "replace-all A " + long[:185] + "…"},
		{[]Op{{Verb: VerbDeletePattern, Route: NewRoute(strings.Repeat("é", 300), "")}}, "delete-pattern " + strings.Repeat("é", 184) + "…"},
	}
	for _, test := range tests {
		if got := cutCommand(commandOf(test.ops)); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestHistoryListsWhoDidWhat(t *testing.T) {
	table := New()
	at := time.Now().Add(-time.Hour)
	add := func(pattern, origin string) Op {
		r := NewRoute(pattern, "h")
		r.Origin = origin
		return Op{Verb: VerbAdd, Route: r}
	}
	ok := must(t)
	ok(table.ApplyAs(Author{User: "alice", From: "127.0.0.1:1", Command: "add A", At: at}, add("A", ""), add("L", "link:1")))
	ok(table.ApplyAs(Author{User: "bob"}, add("M", "link:1"))) // learned: no revision
	ok(table.ApplyAs(Author{User: "bob"}, add("A", "")))       // already there
	ok(table.ApplyAs(Author{User: "bob"}, add("B", ""), Op{Verb: VerbDelete, Route: NewRoute("A", "h")}))
	ok(table.SetMatch(MatchFirst))
	show := func(list []Revision) string {
		var lines []string
		for _, r := range list {
			if r.At.IsZero() {
				t.Errorf("revision %d has no time", r.Revision)
			}
			lines = append(lines, fmt.Sprintf("%d %s %q +%d -%d ~%d", r.Revision, r.User, r.Command, r.Added, r.Removed, r.Updated))
		}
		return strings.Join(lines, "\n")
	}
	all := `3  "match first" +0 -0 ~0
2 bob "apply of 2: add B h …" +1 -1 ~0
1 alice "add A" +1 -0 ~0`
	if got := show(table.History(0, 0)); got != all {
		t.Errorf("got\n%s\nwant\n%s", got, all)
	}
	if got, want := show(table.History(3, 1)), strings.Split(all, "\n")[1]; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if r := table.History(2, 0)[0]; !r.At.Equal(at) || r.From != "127.0.0.1:1" {
		t.Errorf("got %+v", r)
	}
}

func TestHistoryBounds(t *testing.T) {
	t.Run("revisions", func(t *testing.T) {
		table := New()
		for i := range historyRevisions + 10 {
			table.SetMatch(MatchMode((i + 1) % 2))
		}
		list := table.History(0, 0)
		if len(list) != historyRevisions || list[len(list)-1].Revision != 11 {
			t.Errorf("got %d revisions down to %d", len(list), list[len(list)-1].Revision)
		}
		_, err := table.Rollback(Author{}, 9)
		refused(t, err, "the history reaches back to revision 10 only: it keeps 10000 changes, and 30 days")
		must(t)(table.Rollback(Author{}, 11))
	})
	t.Run("age", func(t *testing.T) {
		table := New()
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for i := range 40 {
			table.ApplyAs(Author{At: at.AddDate(0, 0, i)}, Op{Verb: VerbAdd, Route: NewRoute(fmt.Sprint("a", i), "h")})
		}
		if list := table.History(0, 0); len(list) != 31 || list[30].Revision != 10 {
			t.Errorf("got %d revisions", len(list))
		}
		_, err := table.Diff(8, 40)
		refused(t, err, "back to revision 9 only")
	})
	t.Run("bytes", func(t *testing.T) {
		table := New()
		note := strings.Repeat("n", 60<<10)
		var rows []Route
		for i := range 600 {
			r := NewRoute(fmt.Sprint("a", i), "h")
			r.Note = note
			rows = append(rows, r)
		}
		ok := must(t)
		for range 4 { // each load undoes to 36 MB, but the first
			ok(table.Apply(Op{Verb: VerbLoad, Routes: rows}))
			for i := range rows {
				rows[i].Order++
			}
		}
		if n := table.history.bytes; n > historyUndoBytes || n < historyUndoBytes/2 {
			t.Errorf("got %d bytes of undo", n)
		}
		if n := len(table.History(0, 0)); n != 4 {
			t.Errorf("got %d revisions listed, want 4", n)
		}
		for _, r := range table.History(0, 0) {
			if r.Gone != (r.Revision < 3) {
				t.Errorf("revision %d: gone is %v", r.Revision, r.Gone)
			}
		}
		_, err := table.Rollback(Author{}, 2)
		refused(t, err, "the history reaches back to revision 3 only: what the changes behind 2 took away was too much to keep (64 MiB in all)")
		ok(table.Rollback(Author{}, 3))

		// One change that is over the bound alone.
		for i := range 600 {
			r := NewRoute(fmt.Sprint("b", i), "h")
			r.Note = note
			rows = append(rows, r)
		}
		ok(table.Apply(Op{Verb: VerbLoad, Routes: rows}))
		ok(table.Clear())
		if table.history.bytes != 0 {
			t.Errorf("got %d bytes of undo, want none", table.history.bytes)
		}
		_, err = table.Rollback(Author{}, table.Revision()-1)
		refused(t, err, fmt.Sprintf("back to revision %d only", table.Revision()))
		ok(table.Add("A", "h"))
		ok(table.Rollback(Author{}, table.Revision()-1))
		if table.Snapshot().Len() != 0 {
			t.Errorf("got %d rows", table.Snapshot().Len())
		}
	})
}

func TestHistoryRestored(t *testing.T) {
	table := New()
	var entries [][]byte
	for i := range 4 {
		table.ApplyAs(Author{User: "alice"}, Op{Verb: VerbAdd, Route: NewRoute(fmt.Sprint("a", i), "h")})
	}
	for b := range table.historyBytes {
		entries = append(entries, b)
	}
	restored := func(entries ...[]byte) *Table {
		c := New()
		for _, b := range entries {
			if err := c.restoreHistory(b); err != nil {
				t.Fatal(err)
			}
		}
		c.snapshot.Store(table.Snapshot())
		return c
	}
	tests := []struct {
		name    string
		entries [][]byte
		oldest  uint64
	}{
		{"all", entries, 0},
		{"the later ones", entries[2:], 2},
		{"none", nil, 4},
		{"with a gap", [][]byte{entries[0], entries[2], entries[3]}, 2},
		{"without the last", entries[:3], 4},
		{"one without an undo", [][]byte{entries[0], entries[1], without(t, entries[2]), entries[3]}, 3},
	}
	for _, test := range tests {
		c := restored(test.entries...)
		if got := len(c.History(0, 0)); got != len(test.entries) {
			t.Errorf("%s: got %d revisions", test.name, got)
		}
		if _, err := c.Diff(test.oldest, 4); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if test.oldest > 0 {
			_, err := c.Diff(test.oldest-1, 4)
			refused(t, err, fmt.Sprintf("back to revision %d only", test.oldest))
		}
	}
	for n := range entries[3] {
		if x, err := readEntry(entries[3][:n]); err == nil && len(x.undo) > 2 {
			t.Errorf("the first %d bytes of an entry are taken for one", n)
		}
	}
}

// without is the bytes of an entry without its undo.
func without(t *testing.T, b []byte) []byte {
	x, err := readEntry(b)
	if err != nil {
		t.Fatal(err)
	}
	x.undo = nil
	return x.appendTo(nil)
}

// FuzzHistoryEntry reads entries that may be anything, and undoes those that can be read.
func FuzzHistoryEntry(f *testing.F) {
	table := New()
	table.Apply(Op{Verb: VerbLoad, Routes: []Route{NewRoute("A", "h"), NewRoute("a/*", "amqp://u:p@h/$1"), {Pattern: "B", Address: "null", Note: "n", Retry: 3}}, Match: MatchFirst, SetMatch: true})
	table.Replace("A", "i", WithWeight(3))
	table.Delete("B", "null")
	for i := range 33 {
		table.InsertAfter("A", "L", fmt.Sprint("h", i), WithOrigin("link:1"))
	}
	table.ApplyAs(Author{User: "alice", From: "here", Command: "clear"}, Op{Verb: VerbClear})
	table.Apply(Op{Verb: VerbObject, Object: "release/a/b", Text: "c: d"})
	if h := table.History(0, 1); h[0].Objects != 1 {
		f.Fatalf("got %+v", h[0])
	}
	for b := range table.historyBytes {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := readEntry(b)
		if err != nil {
			return
		}
		again, err := readEntry(x.appendTo(nil))
		if err != nil {
			t.Fatalf("what was read cannot be written and read: %v", err)
		}
		if again.Revision != x.Revision || !bytes.Equal(again.undo, x.undo) || (again.undo == nil) != (x.undo == nil) {
			t.Fatalf("got %+v, want %+v", again, x)
		}
		s := New().Snapshot()
		p := s.before([]*historyEntry{x})
		d := s.between(p, s.before(nil))
		if err := d.WriteText(&bytes.Buffer{}, true); err != nil {
			t.Fatal(err)
		}
	})
}

// historyModel drives a table at random and knows what it was.
type historyModel struct {
	table *Table
	texts map[uint64]string // configuredText by revision
	snaps map[uint64]*Snapshot
}

func (m *historyModel) note(t *rapid.T) {
	s := m.table.Snapshot()
	text := configuredText(s)
	if old, known := m.texts[s.Revision()]; known && old != text {
		t.Fatalf("revision %d was\n%s\nand is\n%s", s.Revision(), old, text)
	}
	m.texts[s.Revision()], m.snaps[s.Revision()] = text, s
	checkTable(t, s)
	places := map[spot]bool{}
	for r := range s.Routes() {
		if places[spotOf(r)] || r.pos > m.table.nextPos {
			t.Fatalf("position %d of %s is taken (%v), or not below the next, %d", r.pos, r.Pattern, places[spotOf(r)], m.table.nextPos)
		}
		places[spotOf(r)] = true
	}
}

func (m *historyModel) edit(t *rapid.T) {
	pattern := rapid.SampledFrom([]string{"a", "b", "c", "x/*"}).Draw(t, "pattern")
	address := rapid.SampledFrom([]string{"h1", "H1", "amqp://u@h2/$1", "null", "peer:p", "h3"}).Draw(t, "address")
	origins := []string{"", "", "", "link:1", "peer:B/1/s", "system", "cluster", "file:f"}
	draw := func(verb Verb) Op {
		op := Op{Verb: verb, Route: NewRoute(pattern, address)}
		op.Origin = rapid.SampledFrom(origins).Draw(t, "origin")
		op.Route.Origin = op.Origin
		op.Route.Order = rapid.SampledFrom([]int{0, 0, 0, 1, -1}).Draw(t, "order")
		op.Route.Pick = Pick(rapid.IntRange(0, 2).Draw(t, "pick"))
		op.Route.Note = rapid.SampledFrom([]string{"", "n"}).Draw(t, "note")
		op.Route.Fallback = rapid.IntRange(0, 5).Draw(t, "fallback") == 0
		op.Anchor, op.Before = rapid.SampledFrom([]string{"a", "b", "c", "x/*"}).Draw(t, "anchor"), rapid.Bool().Draw(t, "before")
		op.Addresses = []string{address, rapid.SampledFrom([]string{"h1", "h3", "h4"}).Draw(t, "second")}
		op.Match, op.SetMatch = MatchMode(rapid.IntRange(0, 1).Draw(t, "match")), rapid.Bool().Draw(t, "set match")
		op.Mode = LoadMode(rapid.IntRange(0, 1).Draw(t, "mode"))
		for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 5), 0, 6, rapid.ID[int]).Draw(t, "rows") {
			op.Routes = append(op.Routes, NewRoute([]string{"a", "b", "c"}[i%3], []string{"h1", "h3"}[i/3]))
		}
		if verb == VerbLoad && Learned(op.Origin) {
			op.Origin = ""
		}
		return op
	}
	switch kind := rapid.IntRange(0, 24).Draw(t, "kind"); {
	case kind < 20:
		var ops []Op
		for range rapid.SampledFrom([]int{1, 1, 1, 2, 4}).Draw(t, "ops") {
			op := draw(Verb(rapid.IntRange(int(VerbAdd), int(VerbMatch)).Draw(t, "verb")))
			if (op.Verb == VerbClear || op.Verb == VerbWithdraw) && rapid.IntRange(0, 2).Draw(t, "really") > 0 {
				op.Verb = VerbAdd
			}
			if rapid.IntRange(0, 5).Draw(t, "object") == 0 {
				op = Op{Verb: VerbObject, Object: rapid.SampledFrom([]string{"one", "two"}).Draw(t, "name"), Text: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "text")}
			}
			ops = append(ops, op)
		}
		m.table.Apply(ops...)
	case kind < 22: // use up the room at one place, so that rows are numbered anew
		anchor, origin := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "anchor"), rapid.SampledFrom([]string{"", "link:2"}).Draw(t, "origin")
		var ops []Op
		for i := range 33 {
			r := NewRoute("room", fmt.Sprint("h", i))
			r.Origin = origin
			ops = append(ops, Op{Verb: VerbInsert, Route: r, Anchor: anchor})
		}
		if rapid.Bool().Draw(t, "gone") {
			ops = append(ops, Op{Verb: VerbDeletePattern, Route: NewRoute("room", ""), Origin: origin})
		}
		m.table.Apply(ops...)
	default:
		m.rollback(t)
	}
}

func (m *historyModel) revision(t *rapid.T) uint64 {
	return rapid.Uint64Range(0, m.table.Revision()).Draw(t, "revision")
}

// learnedTexts are the rows that no rollback touches, in table order.
func learnedTexts(s *Snapshot) (rows []string) {
	for r := range s.Routes() {
		if !Configured(r.Origin) {
			rows = append(rows, fmt.Sprint(r.ID, " ", arrowText(r, 0), " of ", r.Origin))
		}
	}
	return rows
}

func (m *historyModel) rollback(t *rapid.T) {
	to := m.revision(t)
	before := m.table.Snapshot()
	c, err := m.table.Rollback(Author{User: "test"}, to)
	if err != nil {
		t.Fatalf("rollback to %d: %v", to, err)
	}
	s := m.table.Snapshot()
	if got, want := configuredText(s), m.texts[to]; got != want {
		t.Fatalf("rollback from %d to %d gave\n%s\nwant\n%s", before.Revision(), to, got, want)
	}
	if got, want := learnedTexts(s), learnedTexts(before); !slices.Equal(got, want) {
		t.Fatalf("rollback changed learned rows to\n%s\nfrom\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if same := m.texts[to] == m.texts[before.Revision()]; same == c.Changed() || c.Changed() != (s.Revision() == before.Revision()+1) || same == (c.Note == "") {
		t.Fatalf("rollback from %d to %d says changed is %v, note %q, and revision %d", before.Revision(), to, c.Changed(), c.Note, s.Revision())
	}
}

// checkDiff holds a diff to the two lists of rows that it is of: without its rows they are the same, and no smaller diff does that.
func checkDiff(t *rapid.T, d *Diff, a, b []*Route) {
	text := func(r *Route) string { return arrowText(r, 0) + " of " + r.Origin }
	texts := func(rows []*Route) (list []string) {
		for _, r := range rows {
			list = append(list, text(r))
		}
		return list
	}
	var out, in []string
	for _, r := range d.Rows {
		if r.Before != nil {
			out = append(out, text(r.Before))
		}
		if r.After != nil {
			in = append(in, text(r.After))
		}
		if r.Moved != (r.Before != nil && r.After != nil && text(r.Before) == text(r.After)) {
			t.Fatalf("moved is %v of %+v and %+v", r.Moved, r.Before, r.After)
		}
	}
	take := func(rows, gone []string) (kept, taken []string) {
		for _, r := range rows {
			if slices.Contains(gone, r) {
				taken = append(taken, r)
			} else {
				kept = append(kept, r)
			}
		}
		return kept, taken
	}
	show := func(what string) {
		t.Fatalf("%s: from\n  %s\nto\n  %s\n-\n  %s\n+\n  %s", what, strings.Join(texts(a), "\n  "), strings.Join(texts(b), "\n  "), strings.Join(out, "\n  "), strings.Join(in, "\n  "))
	}
	keptA, _ := take(texts(a), out)
	keptB, takenB := take(texts(b), in)
	if !slices.Equal(keptA, keptB) {
		show("the rows without differences are not the same")
	}
	if !slices.Equal(takenB, in) {
		show("the rows are not in table order")
	}
	if len(keptA) != commonRun(texts(a), texts(b)) {
		show("a smaller difference is possible")
	}
}

// commonRun is the length of the longest common subsequence.
func commonRun(a, b []string) int {
	last := make([]int, len(b)+1)
	for _, x := range a {
		row := make([]int, len(b)+1)
		for j, y := range b {
			row[j+1] = max(last[j+1], row[j])
			if x == y {
				row[j+1] = last[j] + 1
			}
		}
		last = row
	}
	return last[len(b)]
}

func configuredRows(s *Snapshot) (rows []*Route) {
	for r := range s.Routes() {
		if Configured(r.Origin) {
			rows = append(rows, r)
		}
	}
	return rows
}

// TestHistoryAgainstModel does random edits, and holds diffs and rollbacks to what the table was.
func TestHistoryAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &historyModel{New(), map[uint64]string{}, map[uint64]*Snapshot{}}
		m.note(t)
		for range rapid.IntRange(1, 30).Draw(t, "edits") {
			m.edit(t)
			m.note(t)
		}
		for range 3 {
			a, b := m.revision(t), m.revision(t)
			d, err := m.table.Diff(a, b)
			if err != nil {
				t.Fatal(err)
			}
			if d.Empty() != (m.texts[a] == m.texts[b]) {
				t.Fatalf("empty is %v of %d to %d", d.Empty(), a, b)
			}
			if d.Match != [2]MatchMode{m.snaps[a].Match(), m.snaps[b].Match()} {
				t.Fatalf("got match %v", d.Match)
			}
			checkDiff(t, d, configuredRows(m.snaps[a]), configuredRows(m.snaps[b]))
		}
		// A table that has the history from bytes undoes the same.
		copied := New()
		for b := range m.table.historyBytes {
			if err := copied.restoreHistory(b); err != nil {
				t.Fatal(err)
			}
		}
		copied.owner = m.table.owner
		copied.resume(m.table.Snapshot())
		copied.head = copied.snapshot.Load()
		(&historyModel{copied, m.texts, m.snaps}).rollback(t)
		m.rollback(t)
		m.note(t)
		m.rollback(t)
		m.note(t)
	})
}

// TestDiffFileAgainstLoad holds the difference to a file to what loading it does.
func TestDiffFileAgainstLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &historyModel{New(), map[uint64]string{}, map[uint64]*Snapshot{}}
		for range rapid.IntRange(0, 10).Draw(t, "edits") {
			m.note(t)
			m.edit(t)
		}
		before := m.table.Snapshot()
		var f *File
		if rapid.Bool().Draw(t, "own") { // the table's rows in an order that is nearly theirs
			f = before.File(false)
			rows := f.Routes
			f.Routes = nil
			for _, r := range rows {
				if !slices.ContainsFunc(f.Routes, func(o Route) bool { return keyOf(&o) == keyOf(&r) }) {
					f.Routes = append(f.Routes, r)
				}
			}
			if n := len(f.Routes); n > 1 {
				i, j := rapid.IntRange(0, n-1).Draw(t, "i"), rapid.IntRange(0, n-1).Draw(t, "j")
				f.Routes[i], f.Routes[j] = f.Routes[j], f.Routes[i]
			}
		} else {
			f = &File{Match: MatchMode(rapid.IntRange(0, 1).Draw(t, "match"))}
			for _, i := range rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(t, "rows")[:rapid.IntRange(0, 6).Draw(t, "n")] {
				r := NewRoute([]string{"a", "b", "c"}[i%3], []string{"h1", "h3"}[i/3])
				r.Order = rapid.IntRange(0, 1).Draw(t, "order")
				f.Routes = append(f.Routes, r)
			}
		}
		d, err := before.DiffFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.table.LoadFile(f, LoadReplace); err != nil {
			t.Skip(err)
		}
		after := m.table.Snapshot()
		cluster := func(r *Route) bool { return r.Origin == OriginCluster }
		a, b := slices.DeleteFunc(configuredRows(before), cluster), slices.DeleteFunc(configuredRows(after), cluster)
		checkDiff(t, d, a, b)
		if d.Match != [2]MatchMode{before.Match(), after.Match()} {
			t.Fatalf("got match %v", d.Match)
		}
		if d, err = after.DiffFile(f); err != nil || !d.Empty() {
			t.Fatalf("the file differs from the table that it was loaded into: %v, %+v", err, d)
		}
	})
}

// TestHistoryIsReadWhileItIsWritten is for the race detector.
func TestHistoryIsReadWhileItIsWritten(t *testing.T) {
	table := New()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 300 {
			table.Add(fmt.Sprint("a", i%50), "h")
			table.Delete(fmt.Sprint("a", i%40), "h")
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		table.History(0, 10)
		now := table.Revision()
		if _, err := table.Diff(now/2, now); err != nil {
			t.Fatal(err)
		}
		for range table.historyBytes {
			break
		}
	}
	must(t)(table.Rollback(Author{}, 0))
	if n := table.Snapshot().Len(); n != 0 {
		t.Errorf("got %d rows at revision 0", n)
	}
}

func BenchmarkHistoryRecord(b *testing.B) {
	table := benchTable(b, 100)
	op := Op{Verb: VerbSet, Route: NewRoute("edit", "amqp://host.example:5672/q"), Columns: ColOrder}
	table.Add("edit", "amqp://host.example:5672/q")
	e := newEdit(table, table.Snapshot())
	op.Route.Order = 7
	if err := e.do(&op); err != nil {
		b.Fatal(err)
	}
	_, c, err := e.finish()
	if err != nil {
		b.Fatal(err)
	}
	ops := []Op{op}
	var h history
	b.ReportAllocs()
	for b.Loop() {
		h.add(newEntry(Author{}, ops, e, &c))
		e.base.revision++
		c.Revision++
	}
}
