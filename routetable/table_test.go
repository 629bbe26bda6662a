package routetable

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// rowTexts lists the rows of a table, columns included.
func rowTexts(s *Snapshot) []string {
	var rows []string
	for r := range s.Routes() {
		text := arrowText(r, 0)
		if r.Origin != OriginOperator {
			text += " of " + r.Origin
		}
		rows = append(rows, text)
	}
	return rows
}

func wantRows(t *testing.T, table *Table, want ...string) {
	t.Helper()
	if got := rowTexts(table.Snapshot()); !slices.Equal(got, want) {
		t.Errorf("got rows\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// must is for edits that have to succeed.
func must(t *testing.T) func(Change, error) Change {
	return func(c Change, err error) Change {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

func TestAddOfARowThatIsThere(t *testing.T) {
	do, table := must(t), New()
	do(table.Add("COLOSSUS", "5.6.7.8:1234", WithPick(PickAny)))
	c := do(table.Add("COLOSSUS", "AMQP://5.6.7.8:1234"))
	if c.Changed() || c.Note != "already there" || table.Revision() != 1 {
		t.Errorf("got %+v at revision %d", c, table.Revision())
	}
	_, err := table.Add("COLOSSUS", "amqp://5.6.7.8:1234", WithPick(PickAll), WithNote("other"))
	var conflict *ConflictError
	if !errors.As(err, &conflict) || !strings.Contains(err.Error(), "set") {
		t.Errorf("got %v", err)
	}
	// An absent name is not an empty one, and a learned row is another row.
	do(table.Add("COLOSSUS", "5.6.7.8:1234/"))
	do(table.Add("COLOSSUS", "5.6.7.8:1234", WithOrigin("link:7")))
	do(table.Add("COLOSSUS", "5.6.7.8:1234", WithOrigin("link:8")))
	if c := do(table.Add("COLOSSUS", "5.6.7.8:1234", WithOrigin("cluster"))); c.Changed() {
		t.Error("configured rows are told apart by origin")
	}
	if table.Revision() != 2 || table.Generation() != 4 {
		t.Errorf("got revision %d, generation %d", table.Revision(), table.Generation())
	}
}

func TestVerbs(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, table *Table) (Change, error)
		note string
		err  string
		want []string
	}{
		{"insert before", func(t *testing.T, table *Table) (Change, error) { return table.InsertBefore("B", "X", "h9") }, "", "",
			[]string{"A --> h1", "X --> h9", "B --> h2 ; order=0", "A --> h3", "B --> h4"}},
		{"insert after the last", func(t *testing.T, table *Table) (Change, error) { return table.InsertAfter("A", "X", "h9") }, "", "",
			[]string{"A --> h1", "B --> h2", "A --> h3", "X --> h9", "B --> h4"}},
		{"insert beside an address", func(t *testing.T, table *Table) (Change, error) {
			return table.Apply(Op{Verb: VerbInsert, Route: NewRoute("X", "h9"), Anchor: "B", AnchorAddress: "amqp://h4"})
		}, "", "", []string{"A --> h1", "B --> h2", "A --> h3", "B --> h4", "X --> h9"}},
		{"insert beside nothing", func(t *testing.T, table *Table) (Change, error) { return table.InsertAfter("C", "X", "h9") }, "", "no such row", nil},
		{"replace", func(t *testing.T, table *Table) (Change, error) { return table.Replace("B", "h9", WithPick(PickAny)) }, "", "",
			[]string{"A --> h1", "B --> h9 ; pick=any", "A --> h3", "B --> h4"}},
		{"replace meets an equal row", func(t *testing.T, table *Table) (Change, error) { return table.Replace("B", "h4") },
			"the equal row further on is removed", "", []string{"A --> h1", "B --> h4", "A --> h3"}},
		{"replace by itself", func(t *testing.T, table *Table) (Change, error) { return table.Replace("B", "amqp://h2") }, "already there", "",
			[]string{"A --> h1", "B --> h2", "A --> h3", "B --> h4"}},
		{"replace adds", func(t *testing.T, table *Table) (Change, error) { return table.Replace("C", "h9") }, "", "",
			[]string{"A --> h1", "B --> h2", "A --> h3", "B --> h4", "C --> h9"}},
		{"replace-all with fewer", func(t *testing.T, table *Table) (Change, error) { return table.ReplaceAll("A", []string{"h9"}) }, "", "",
			[]string{"A --> h9", "B --> h2", "B --> h4"}},
		{"replace-all with more", func(t *testing.T, table *Table) (Change, error) {
			return table.ReplaceAll("A", []string{"h3", "h9", "h1", "h8"})
		}, "", "", []string{"A --> h3", "A --> h9", "A --> h1", "A --> h8", "B --> h2", "B --> h4"}},
		{"replace-all by what is there", func(t *testing.T, table *Table) (Change, error) { return table.ReplaceAll("A", []string{"h1", "h3"}) },
			"already so", "", []string{"A --> h1", "B --> h2", "A --> h3", "B --> h4"}},
		{"delete", func(t *testing.T, table *Table) (Change, error) { return table.Delete("A", "amqp://h3:5672") }, "", "",
			[]string{"A --> h1", "B --> h2", "B --> h4"}},
		{"delete nothing", func(t *testing.T, table *Table) (Change, error) { return table.Delete("A", "h9") }, "nothing to delete", "",
			[]string{"A --> h1", "B --> h2", "A --> h3", "B --> h4"}},
		{"delete-pattern", func(t *testing.T, table *Table) (Change, error) { return table.DeletePattern("A") }, "", "",
			[]string{"B --> h2", "B --> h4"}},
		{"clear", func(t *testing.T, table *Table) (Change, error) { return table.Clear() }, "", "", nil},
		{"set", func(t *testing.T, table *Table) (Change, error) {
			return table.Set("A", "h3", WithOrder(-1), WithTimeout(time.Second), WithRetry(0), WithNote("n"))
		}, "", "", []string{"A --> h3 ; order=-1 ; timeout=1s ; retry=0 ; note=n", "A --> h1", "B --> h2", "B --> h4"}},
		{"set what is so", func(t *testing.T, table *Table) (Change, error) { return table.Set("A", "h3", WithPick(PickAll)) }, "already so", "",
			[]string{"A --> h1", "B --> h2", "A --> h3", "B --> h4"}},
		{"set nothing", func(t *testing.T, table *Table) (Change, error) { return table.Set("A", "h3") }, "", "no column is named", nil},
		{"set what is not there", func(t *testing.T, table *Table) (Change, error) { return table.Set("A", "h9", WithOrder(1)) }, "", "no such row", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			do, table := must(t), New()
			for i, p := range []string{"A", "B", "A", "B"} {
				do(table.Add(p, fmt.Sprintf("h%d", i+1)))
			}
			before := table.Snapshot()
			change, err := c.do(t, table)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got error %v, want %q", err, c.err)
				}
				if table.Snapshot() != before {
					t.Error("a refused edit changed the table")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.want {
				c.want[i] = strings.TrimSuffix(c.want[i], " ; order=0")
			}
			wantRows(t, table, c.want...)
			if change.Note != c.note {
				t.Errorf("got note %q, want %q", change.Note, c.note)
			}
			if changed := change.Changed(); changed != (table.Revision() == before.Revision()+1) || changed != (table.Snapshot() != before) {
				t.Errorf("changed is %v, revision %d after %d", changed, table.Revision(), before.Revision())
			}
			checkTable(t, table.Snapshot())
		})
	}
}

func TestReplaceKeepsTheNote(t *testing.T) {
	do, table := must(t), New()
	do(table.Add("A", "h1", WithNote("main"), WithPick(PickAny), WithOrder(3), WithOrigin("file:x")))
	id := rowAt(table, 0).ID
	c := do(table.Replace("A", "h2"))
	wantRows(t, table, "A --> h2 ; note=main of file:x")
	if len(c.Updated) != 1 || c.Updated[0].ID != id || c.Before[0].Address != "h1" {
		t.Errorf("got %+v", c)
	}
}

func TestInsertHasRoom(t *testing.T) {
	do, table := must(t), New()
	do(table.Add("A", "h"))
	do(table.Add("B", "h"))
	var want []string
	for i := range 200 {
		do(table.InsertBefore("B", fmt.Sprint("X", i), "h"))
		want = append(want, fmt.Sprintf("X%d --> h", i))
	}
	wantRows(t, table, append(append([]string{"A --> h"}, want...), "B --> h")...)
	checkTable(t, table.Snapshot())
}

func TestLearnedRows(t *testing.T) {
	do, table := must(t), New()
	do(table.Add("A", "link:7", WithOrigin("link:7")))
	do(table.Add("topic:a", "peer:B", WithOrigin("peer:B/3/s1")))
	do(table.Add("topic:b", "peer:B", WithOrigin("peer:B/3/s2")))
	do(table.Add("topic:b", "peer:B", WithOrigin("peer:B/4/s2")))
	do(table.Add("topic:b", "peer:BB", WithOrigin("peer:BB/4/s2")))
	do(table.Add("event:*", "replay:ring", WithOrigin(OriginSystem), WithOptional(true)))
	if table.Revision() != 0 || table.Generation() != 6 {
		t.Errorf("got revision %d, generation %d", table.Revision(), table.Generation())
	}
	if c := do(table.Clear()); c.Note != "nothing to clear" {
		t.Errorf("got %+v", c)
	}
	if c := do(table.Delete("A", "link:7")); c.Changed() {
		t.Error("delete without an origin took a learned row")
	}
	if _, err := table.Set("A", "link:7", WithOrigin("link:7"), WithPick(PickAny)); err == nil {
		t.Error("the pick of a learned row was set")
	}
	do(table.Set("A", "link:7", WithOrigin("link:7"), WithOrder(2), WithWeight(5)))
	do(table.Withdraw("peer:B/3/"))
	wantRows(t, table, "topic:b --> peer:B of peer:B/4/s2", "topic:b --> peer:BB of peer:BB/4/s2",
		"event:* --> replay:ring ; optional of system", "A --> link:7 ; weight=5 ; order=2 of link:7")
	do(table.Withdraw("peer:B/4/s2"))
	do(table.DeletePattern("A", WithOrigin("link:7")))
	do(table.Clear(WithOrigin("peer:BB/4/s2")))
	wantRows(t, table, "event:* --> replay:ring ; optional of system")
	if _, err := table.Withdraw(""); err == nil {
		t.Error("a withdraw without an origin was done")
	}
	checkTable(t, table.Snapshot())
}

func TestBalanceOfAGroup(t *testing.T) {
	do, table := must(t), New()
	do(table.Add("A", "h1", WithPick(PickAny), WithBalance(Hash)))
	if _, err := table.Add("A", "h2", WithPick(PickAny), WithBalance(RoundRobin)); err == nil {
		t.Error("another balance was taken")
	}
	do(table.Add("A", "h2", WithPick(PickAny)))
	do(table.Add("A", "h3", WithPick(PickAny), WithBalance(Hash), WithHashKey("group-id")))
	do(table.Add("A", "h4"))
	if _, err := table.Set("A", "h2", WithBalance(RoundRobin)); err == nil {
		t.Error("a later row set the balance")
	}
	groups := table.Lookup("A")
	if len(groups) != 2 || groups[0].Balance != Hash || groups[0].HashKey != "group-id" || len(groups[0].Matches) != 3 {
		t.Errorf("got %+v", groups)
	}
	do(table.Set("A", "h1", WithBalance(RoundRobin)))
	if g := table.Lookup("A")[0]; g.Balance != RoundRobin || g.HashKey != "" {
		t.Errorf("the first row does not decide: %+v", g)
	}
}

func TestRefusals(t *testing.T) {
	table := New()
	do := must(t)
	do(table.Add("a", "route:b"))
	do(table.Add("b", "route:c"))
	before := table.Snapshot()
	for _, c := range []struct {
		name string
		op   Op
		want string
	}{
		{"empty host", Op{Route: NewRoute("x", "amqp:///q")}, "host is empty"},
		{"empty port", Op{Route: NewRoute("x", "h:")}, "port is empty"},
		{"port over 65535", Op{Route: NewRoute("x", "h:65536")}, "over 65535"},
		{"port in words", Op{Route: NewRoute("x", "h:amqp")}, "not a number"},
		{"IPv6", Op{Route: NewRoute("x", "::1")}, "brackets"},
		{"a name without a name", Op{Route: NewRoute("x", "topic:")}, "without a name"},
		{"empty address", Op{Route: NewRoute("x", "")}, "empty"},
		{"glob", Op{Route: NewRoute("glob:{a", "h")}, "pattern"},
		{"predicate", Op{Route: Route{Pattern: "x", Address: "h", When: "Hedder(`a`, `b`)"}}, "when, column 1"},
		{"cycle", Op{Route: NewRoute("c", "route:a")}, "lead back: c --> a --> b --> c"},
		{"cycle of one", Op{Route: NewRoute("topic:x", "topic:x")}, "lead back"},
		{"pick", Op{Route: Route{Pattern: "x", Address: "h", Pick: 9}}, "pick"},
		{"long pattern", Op{Route: NewRoute(strings.Repeat("x", MaxTextBytes+1), "h")}, "64 KiB"},
		{"verb", Op{Verb: 99}, "unknown verb"},
		{"origin", Op{Route: Route{Pattern: "x", Address: "h", Origin: "peer:B/"}}, "origin"},
		{"password", Op{Route: NewRoute("x", "amqp://u:secret/w@h")}, "%2F"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := table.Apply(Op{Verb: VerbAdd, Route: NewRoute("fine", "h")}, c.op)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want %q", err, c.want)
			}
			var refused *RefusedError
			if !errors.As(err, &refused) {
				t.Errorf("got a %T", err)
			}
			if table.Snapshot() != before {
				t.Error("the table changed")
			}
		})
	}
}

func TestCompareAndSet(t *testing.T) {
	do, table := must(t), New()
	do(table.Add("A", "h", WithRevision(0)))
	_, err := table.Add("B", "h", WithRevision(0))
	var conflict *ConflictError
	if !errors.As(err, &conflict) || conflict.Revision != 1 {
		t.Errorf("got %v", err)
	}
	do(table.Add("B", "h", WithRevision(1)))
}

func TestLoadModes(t *testing.T) {
	parse := func(text string) *File {
		f, err := ParseFile("t", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	do, table := must(t), New()
	do(table.Add("A", "h1", WithNote("old")))
	do(table.Add("B", "h2"))
	do(table.Add("C", "h3", WithOrigin("file:x")))
	do(table.Add("D", "h4", WithOrigin(OriginCluster)))
	do(table.Add("E", "link:1", WithOrigin("link:1")))
	id := rowAt(table, 1).ID
	c := do(table.LoadFile(parse("match: first\nN --> h9\nB --> h2\nA --> h1 ; pick=any\nZ --> h8\n"), LoadReplace))
	wantRows(t, table, "D --> h4 of cluster", "E --> link:1 of link:1", "N --> h9", "B --> h2", "A --> h1 ; pick=any", "Z --> h8")
	if table.Snapshot().Match() != MatchFirst || !c.MatchSet {
		t.Error("the match mode is not loaded")
	}
	if rowAt(table, 3).ID != id {
		t.Error("a row that is in the file too got another id")
	}
	// A second load of the same changes nothing; one with a new row in the middle moves no other.
	if c := do(table.LoadFile(parse("match: first\nN --> h9\nB --> h2\nA --> h1 ; pick=any\nZ --> h8\n"), LoadReplace)); c.Changed() {
		t.Errorf("got %+v", c)
	}
	c = do(table.LoadFile(parse("match: first\nN --> h9\nM --> h7\nB --> h2\nA --> h1 ; pick=any\nZ --> h8\n"), LoadReplace))
	if len(c.Added) != 1 || len(c.Updated)+len(c.Removed) != 0 {
		t.Errorf("got %d added, %d updated, %d removed", len(c.Added), len(c.Updated), len(c.Removed))
	}
	// Rows of two orders stand apart: which of them was made first is no difference.
	late := New()
	do(late.Add("A", "h1", WithOrder(2)))
	do(late.Add("B", "h2"))
	do(late.Add("C", "h3", WithOrder(2)))
	if c := do(late.LoadFile(parse("B --> h2\nA --> h1 ; order=2\nC --> h3 ; order=2\n"), LoadReplace)); c.Changed() {
		t.Errorf("a load of the rows that are there: got %+v", c)
	}
	c = do(late.LoadFile(parse("A --> h1 ; order=1\nC --> h3 ; order=2\nB --> h2 ; order=3\nD --> h4\n"), LoadReplace))
	wantRows(t, late, "D --> h4", "A --> h1 ; order=1", "C --> h3 ; order=2", "B --> h2 ; order=3")
	if len(c.Added) != 1 || len(c.Updated) != 2 || len(c.Removed) != 0 {
		t.Errorf("got %d added, %d updated, %d removed", len(c.Added), len(c.Updated), len(c.Removed))
	}
	checkTable(t, late.Snapshot())
	do(table.LoadFile(parse("N --> h9 ; note=n\nO --> h6\n"), LoadMerge))
	wantRows(t, table, "D --> h4 of cluster", "E --> link:1 of link:1", "N --> h9 ; note=n", "M --> h7", "B --> h2", "A --> h1 ; pick=any",
		"Z --> h8", "O --> h6")
	if table.Snapshot().Match() != MatchFirst {
		t.Error("a merge without a match mode set it")
	}
	do(table.LoadFile(parse("F1 --> h1\nF2 --> h2\n"), LoadReplace, WithOrigin("file:f")))
	do(table.LoadFile(parse("F2 --> h2\nO --> h6\n"), LoadReplace, WithOrigin("file:f")))
	wantRows(t, table, "D --> h4 of cluster", "E --> link:1 of link:1", "N --> h9 ; note=n", "M --> h7", "B --> h2", "A --> h1 ; pick=any",
		"Z --> h8", "O --> h6", "F2 --> h2 of file:f")
	checkTable(t, table.Snapshot())
	// All or nothing, with the line.
	before := table.Snapshot()
	_, err := table.Apply(Op{Verb: VerbLoad, Routes: []Route{NewRoute("G", "h"), NewRoute("H", "h:x")}})
	if err == nil || table.Snapshot() != before {
		t.Errorf("got %v", err)
	}
}

func TestLoadBesideRowsOfOtherOrigins(t *testing.T) {
	table := New()
	must(t)(table.Add("A", "h", WithOrigin(OriginCluster)))
	must(t)(table.Add("D", "h"))
	load := func(patterns ...string) {
		var f File
		for _, p := range patterns {
			f.Routes = append(f.Routes, NewRoute(p, "h"))
		}
		must(t)(table.LoadFile(&f, LoadReplace))
	}
	load("D", "B", "A", "C", "A")
	wantRows(t, table, "A --> h of cluster", "D --> h", "B --> h", "C --> h")
	load("B", "A")
	load("E", "A")
	wantRows(t, table, "A --> h of cluster", "E --> h")
}

func TestWatchersAreToldInOrder(t *testing.T) {
	table := New()
	var mu sync.Mutex
	var got []uint64
	cancel := table.OnChange(func(c Change) {
		mu.Lock()
		got = append(got, c.Generation)
		mu.Unlock()
	})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 50 {
				if _, err := table.Add(fmt.Sprintf("w%d/%d", w, i), "h"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	cancel()
	must(t)(table.Add("after", "h"))
	if len(got) != 200 {
		t.Fatalf("got %d changes", len(got))
	}
	for i, g := range got {
		if g != uint64(i+1) {
			t.Fatalf("change %d has generation %d", i, g)
		}
	}
}

// TestReadersSeeWholeBatches has one writer move a pair of rows about while readers look.
func TestReadersSeeWholeBatches(t *testing.T) {
	table := New()
	do := must(t)
	do(table.Apply(Op{Verb: VerbAdd, Route: NewRoute("A", "h0")}, Op{Verb: VerbAdd, Route: NewRoute("B/*", "h0/$1")}))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			last := uint64(0)
			for {
				select {
				case <-stop:
					return
				default:
				}
				s := table.Snapshot()
				a, b := s.LookupInto(nil, "A", nil), s.LookupInto(nil, "B/x", nil)
				if len(a) != 1 || len(b) != 1 || a[0].Matches[0].Hop.Host != b[0].Matches[0].Hop.Host || s.Generation() < last {
					t.Errorf("got %v and %v at generation %d", a, b, s.Generation())
					return
				}
				last = s.Generation()
			}
		})
	}
	for i := range 500 {
		do(table.Apply(Op{Verb: VerbReplace, Route: NewRoute("A", fmt.Sprint("h", i))}, Op{Verb: VerbReplace, Route: NewRoute("B/*", fmt.Sprintf("h%d/$1", i))}))
	}
	close(stop)
	wg.Wait()
}

// checkTable recounts a snapshot's invariants.
func checkTable(t interface{ Errorf(string, ...any) }, s *Snapshot) {
	ids := map[uint64]bool{}
	slots := map[uint32]bool{}
	byPattern := map[string][]*Route{}
	whens, forms, words := 0, 0, 0
	var last *Route
	for r := range s.Routes() {
		if last != nil && !last.before(r) {
			t.Errorf("%v is not behind %v", r.Pattern, last.Pattern)
		}
		last = r
		if ids[r.ID] || r.ID == 0 || slots[uint32(r.ID)] {
			t.Errorf("id %x or its slot is there twice", r.ID)
		}
		ids[r.ID], slots[uint32(r.ID)] = true, true
		if o := s.Row(r.ID); o == nil || o.Pattern != r.Pattern || o.c.key != r.c.key {
			t.Errorf("row %x is not found by its id", r.ID)
		}
		byPattern[r.Pattern] = append(byPattern[r.Pattern], r)
		if r.c.match[0].Route != r {
			t.Errorf("the match of row %x is of another row", r.ID)
		}
		if r.c.when != nil {
			whens++
		}
		w, f := checkFiled(t, s, r)
		words += w
		forms += f
	}
	if whens != s.whens {
		t.Errorf("got %d predicates, counted %d", s.whens, whens)
	}
	used := 0
	for i := range s.slots.n {
		if *s.slots.at(i) != 0 {
			used++
		}
	}
	if used != len(ids) || s.Len() != len(ids) {
		t.Errorf("%d slots are used, the order has %d rows, counted %d", used, s.Len(), len(ids))
	}
	for text, rows := range byPattern {
		if got, _ := s.RowsOf(text, len(rows)); !slices.EqualFunc(got, rows, func(a, b *Route) bool { return a.ID == b.ID }) {
			t.Errorf("the rows of %q are not found", text)
		}
		for _, r := range rows {
			if got := s.find(text, r.c.key, r.Origin); got == nil || got.Pattern != text || got.c.key != r.c.key || got.Origin != r.Origin && !(Configured(got.Origin) && Configured(r.Origin)) {
				t.Errorf("the row %q --> %q of %s is not found", text, r.Address, r.Origin)
			}
		}
		if got := s.firstOf(text, func(record) bool { return true }); got == nil || got.ID != rows[0].ID {
			t.Errorf("the first row of %q is not found", text)
		}
	}
	total := 0
	for _, n := range s.index.filed {
		total += int(n)
	}
	if total != forms || s.index.keys.n != words {
		t.Errorf("%d forms are filed, not %d, with %d words, not %d", total, forms, s.index.keys.n, words)
	}
	counted := 0
	for i := range s.index.keys.buckets.n {
		b := s.index.keys.buckets.at(i).words
		counted += len(b)
		if !slices.IsSorted(b) {
			t.Errorf("bucket %d is not sorted", i)
		}
	}
	if counted != words {
		t.Errorf("the buckets hold %d words, not %d", counted, words)
	}
}

// checkFiled looks up what a row must be filed under, and returns how many words and forms that is.
func checkFiled(t interface{ Errorf(string, ...any) }, s *Snapshot, r *Route) (words, forms int) {
	p, seen := r.c.pattern, map[uint32]bool{}
	must := func(h uint64) {
		if !slices.Contains(s.index.keys.get(uint32(h>>32)), h>>32<<32|uint64(uint32(r.ID))) {
			t.Errorf("%q is not filed under a key of its own", r.Pattern)
		}
		seen[uint32(h>>32)] = true
	}
	if !p.plain() {
		must(hashText(kindText, p.text))
	}
	for _, lit := range p.lits {
		must(hashText(kindExact, lit))
	}
	for h := range originKeys(r.Origin) {
		must(h)
	}
	filed := map[uint32]bool{}
	for i := range p.forms {
		found := false
		for _, k := range keysOf(nil, &p.forms[i]) {
			if slices.Contains(s.index.keys.get(uint32(k.hash>>32)), k.hash>>32<<32|uint64(uint32(r.ID))) {
				found = true
				filed[uint32(k.hash>>32)] = true
				if k.kind != kindRest && !s.index.paths.has(k.hash) && !s.index.grams.has(k.hash) {
					t.Errorf("the filter does not know a key of %q", r.Pattern)
				}
			}
		}
		if !found {
			t.Errorf("a form of %q is not filed", r.Pattern)
		}
	}
	return len(seen) + len(filed), len(filed)
}

// naiveMatches is the documented meaning of a lookup, row by row.
func naiveMatches(s *Snapshot, addr string, property func(string) (string, bool)) (groups [][]*Route) {
	mode := s.space(addr)
	for _, fallback := range []bool{false, true} {
		var rows []*Route
		var end *Route
		for r := range s.Routes() {
			if r.Fallback != fallback || !r.c.pattern.match(addr) || r.c.when != nil && (property == nil || !r.c.when.Match(property)) {
				continue
			}
			rows = append(rows, r)
			if !r.Optional && end == nil {
				end = r
			}
		}
		if end != nil {
			rows = slices.DeleteFunc(rows, func(r *Route) bool {
				tap := r.Optional && r.before(end)
				switch mode {
				case spaceFirst:
					return r.Pattern != end.Pattern && !tap
				case spaceGroup:
					return (r.Pattern != end.Pattern || r.Pick != end.Pick) && !tap
				case spaceRow:
					return r.ID != end.ID && !tap
				}
				return false
			})
		}
		found := false
		at := map[string]int{}
		for _, r := range rows {
			id := fmt.Sprint(r.Pattern, r.Pick)
			i, ok := at[id]
			if !ok {
				i = len(groups)
				at[id] = i
				groups = append(groups, nil)
			}
			groups[i] = append(groups[i], r)
			problem := r.c.match[0].Problem
			if !r.c.template.literal {
				ends := r.c.pattern.capture(nil, addr)
				result, ok := r.c.template.expand(addr, ends)
				_, problem = r.c.template.judge(result, ok, addr, ends, r.DynamicHost)
			}
			found = found || !r.Optional && problem == ""
		}
		if found {
			return groups
		}
	}
	return groups
}

// TestTableAgainstModel does random edits and holds every lookup to the naive one, and the rows of configured edits to a plain list.
func TestTableAgainstModel(t *testing.T) {
	patterns := []string{"a", "b", "a/b", "*", "a/*", "%", "%/b", `a\*`, "glob:{a,b}/*", "glob:**", "topic:a", "topic:a/*", "topic:**", "web:x/*", "rpc:a", "rpc:*", "$r/*", "relay:d/%"}
	addresses := []string{"h1", "amqp://h2/q", "H1:5672", "null", "amqp://h/$1", "amqp://$1", "peer:p", "x://y"}
	probes := []string{"a", "b", "a/b", "a/c", "b/b", "a*", "topic:a", "topic:a/b", "web:x/y", "rpc:a", "$r/1", "relay:d/x", "zzz", ""}
	whens := []string{"", "", "", `Property("k", "1")`, "!Property(`k`, `{[12]}`)"}
	origins := []string{"", "", "link:1", "peer:B/1/s", "system", "cluster"}
	rapid.Check(t, func(t *rapid.T) {
		table := New()
		if rapid.Bool().Draw(t, "first") {
			table.SetMatch(MatchFirst)
		}
		for range rapid.IntRange(1, 25).Draw(t, "edits") {
			pattern, address := rapid.SampledFrom(patterns).Draw(t, "pattern"), rapid.SampledFrom(addresses).Draw(t, "address")
			op := Op{Verb: Verb(rapid.IntRange(0, 8).Draw(t, "verb")), Route: NewRoute(pattern, address)}
			if op.Verb == VerbClear && rapid.IntRange(0, 3).Draw(t, "really") > 0 {
				op.Verb = VerbAdd
			}
			op.Origin = rapid.SampledFrom(origins).Draw(t, "origin")
			op.Route.Origin = op.Origin
			op.Route.Pick = Pick(rapid.IntRange(0, 2).Draw(t, "pick"))
			op.Route.Order = rapid.IntRange(-1, 1).Draw(t, "order")
			op.Route.Fallback = rapid.IntRange(0, 3).Draw(t, "fallback") == 0
			op.Route.Optional = rapid.IntRange(0, 3).Draw(t, "optional") == 0
			op.Route.When = rapid.SampledFrom(whens).Draw(t, "when")
			op.Anchor, op.Before = rapid.SampledFrom(patterns).Draw(t, "anchor"), rapid.Bool().Draw(t, "before")
			op.Addresses = []string{address, rapid.SampledFrom(addresses).Draw(t, "second")}
			before := table.Snapshot()
			rows := rowTexts(before)
			c, err := table.Apply(op)
			if err != nil && table.Snapshot() != before {
				t.Fatalf("%s failed and changed the table: %v", op.Verb, err)
			}
			if !slices.Equal(rows, rowTexts(before)) {
				t.Fatalf("%s changed an old snapshot", op.Verb)
			}
			if err == nil && c.Changed() == slices.Equal(rows, rowTexts(table.Snapshot())) && len(c.Updated) == 0 {
				t.Fatalf("%s says changed is %v", op.Verb, c.Changed())
			}
		}
		s := table.Snapshot()
		checkTable(t, s)
		for _, addr := range probes {
			for _, k := range []string{"", "1", "3"} {
				var property func(string) (string, bool)
				if k != "" {
					property = func(string) (string, bool) { return k, true }
				}
				var got [][]*Route
				for i, g := range s.LookupInto(nil, addr, property) {
					var rows []*Route
					for _, m := range g.Matches {
						if (m.Hop == nil) == (m.Problem == "") || m.Route.Pattern != g.Pattern || m.Route.Pick != g.Pick {
							t.Fatalf("a bad match of %q: %+v", addr, m)
						}
						rows = append(rows, m.Route)
					}
					if g.Number != i+1 {
						t.Fatalf("group %d has number %d", i, g.Number)
					}
					got = append(got, rows)
				}
				if want := naiveMatches(s, addr, property); !sameRows(got, want) {
					t.Fatalf("%q with %q: got %v, want %v in\n%s", addr, k, got, want, strings.Join(rowTexts(s), "\n"))
				}
			}
		}
	})
}

// sameRows compares groups by the ids of their rows.
func sameRows(a, b [][]*Route) bool {
	return slices.EqualFunc(a, b, func(a, b []*Route) bool {
		return slices.EqualFunc(a, b, func(a, b *Route) bool { return a.ID == b.ID })
	})
}

// rowAt is the nth row of a table.
func rowAt(t *Table, n int) *Route {
	for r := range t.Snapshot().RoutesFrom(n) {
		return r
	}
	return nil
}

// TestRowsComeAndGoInFullChunks edits rows with long notes until memory was given up many times: with rows of the chunk that is given up among
// those that the edit drops.
func TestRowsComeAndGoInFullChunks(t *testing.T) {
	table := New()
	rnd := rand.New(rand.NewPCG(1, 2))
	want := map[string]string{}
	for n := range 3000 {
		var ops []Op
		for range 1 + rnd.IntN(4) {
			pattern := fmt.Sprintf("row/%d", rnd.IntN(40))
			row := NewRoute(pattern, "h1")
			row.Note = fmt.Sprintf("%d-%s", n, strings.Repeat("n", rnd.IntN(60_000)))
			if rnd.IntN(3) == 0 {
				ops = append(ops, Op{Verb: VerbDeletePattern, Route: row})
				delete(want, pattern)
			} else {
				ops = append(ops, Op{Verb: VerbReplace, Route: row, Columns: ColNote})
				want[pattern] = row.Note
			}
		}
		if _, err := table.Apply(ops...); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	for r := range table.Snapshot().Routes() {
		got[r.Pattern] = r.Note
	}
	if !maps.Equal(got, want) {
		t.Error("the table is another")
	}
	live := 0
	for i := range table.Snapshot().slots.n {
		if ref := *table.Snapshot().slots.at(i); ref != 0 {
			live += recordAt(table.arena.chunks, ref).size()
		}
	}
	if table.arena.live != live {
		t.Errorf("%d bytes are counted as live, %d are", table.arena.live, live)
	}
	checkTable(t, table.Snapshot())
}

// TestAFileKeepsItsPlace changes rows of a file that another file's rows stand behind.
func TestAFileKeepsItsPlace(t *testing.T) {
	do, table := must(t), New()
	load := func(origin, text string) {
		t.Helper()
		f, err := ParseFile(origin, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		do(table.LoadFile(f, LoadReplace, WithOrigin(origin)))
		checkTable(t, table.Snapshot())
	}
	load("file:1", "X --> h1\nY --> h1\n")
	do(table.Add("M", "h"))
	load("file:2", "* --> h2\n")
	for _, c := range []struct{ text, want string }{
		{"X --> h3\nY --> h1\n", "X Y M *"},
		{"X --> h4\nY --> h4\n", "X Y M *"}, // none of the rows is left
		{"Y --> h4\nX --> h4\n", "Y X M *"}, // in another order
		{"Y --> h4\nX --> h4\nZ --> h1\nZ --> h2\n", "Y X Z Z M *"},
		{"A --> h\nB --> h\nY --> h4\nC --> h\nX --> h4\n", "A B Y C X M *"},
		{"B --> h\nNEW --> h\n", "B NEW M *"},
	} {
		load("file:1", c.text)
		var got []string
		for r := range table.Snapshot().Routes() {
			got = append(got, r.Pattern)
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%q: got %s, want %s", c.text, text, c.want)
		}
	}
	// Room between two rows runs out, over and over.
	for i := range 120 {
		load("file:1", fmt.Sprintf("B --> h\nN%d --> h\nNEW --> h\n", i))
	}
	wantRows(t, table, "B --> h of file:1", "N119 --> h of file:1", "NEW --> h of file:1", "M --> h", "* --> h2 of file:2")
	for i := range 60 {
		do(table.InsertBefore("NEW", fmt.Sprint("I", i), "h"))
	}
	load("file:1", "B --> h\nP --> h\nQ --> h\nNEW --> h\n")
	if got := rowTexts(table.Snapshot()); got[0] != "B --> h of file:1" || got[len(got)-3] != "NEW --> h of file:1" || got[len(got)-4] != "Q --> h of file:1" {
		t.Errorf("got %v", got)
	}
}
