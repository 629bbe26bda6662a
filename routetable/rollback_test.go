package routetable

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestRollback(t *testing.T) {
	table := New()
	ok := must(t)
	ok(table.Add("A", "h1", WithNote("one"))) // 1
	ok(table.Add("A", "H2:5672"))             // 2
	ok(table.Add("B", "h3"))                  // 3
	ok(table.Add("L", "link:1", WithOrigin("link:1")))
	ok(table.InsertBefore("A", "B", "h4", WithPick(PickFirst))) // 4
	ok(table.Set("A", "h1", WithWeight(3)))                     // 5
	ok(table.Replace("B", "h5"))                                // 6
	ok(table.DeletePattern("A"))                                // 7
	ok(table.SetMatch(MatchFirst))                              // 8

	ids := map[uint64]bool{}
	for r := range table.Snapshot().Routes() {
		ids[r.ID] = true
	}
	c := ok(table.Rollback(Author{User: "alice"}, 5))
	wantRows(t, table, "B --> h4 ; pick=first", "A --> h1 ; weight=3 ; note=one", "A --> H2:5672", "B --> h3", "L --> link:1 of link:1")
	if table.Snapshot().Match() != MatchAll || c.Revision != 9 || !c.MatchSet || len(c.Added) != 3 || len(c.Removed) != 1 || len(c.Updated) != 0 {
		t.Errorf("got %+v", c)
	}
	for _, r := range c.Added {
		if ids[r.ID] {
			t.Errorf("%s came back with the id of another row", r.Pattern)
		}
	}
	if r := table.History(0, 1)[0]; r.Command != "rollback 5" || r.User != "alice" || r.Added != 3 || r.Removed != 1 {
		t.Errorf("got %+v", r)
	}
	ok(table.Rollback(Author{}, 8)) // undoes it
	wantRows(t, table, "B --> h5", "B --> h3", "L --> link:1 of link:1")
	if table.Snapshot().Match() != MatchFirst {
		t.Error("the match mode did not come back")
	}
	if c := ok(table.Rollback(Author{}, 10)); c.Changed() || c.Note != "the table is at revision 10 already" {
		t.Errorf("got %+v", c)
	}
	if c := ok(table.Rollback(Author{}, 8)); c.Changed() || c.Revision != 10 || c.Note != "the table is as it was at revision 8 already" {
		t.Errorf("got %+v", c)
	}
	ok(table.Rollback(Author{}, 0))
	wantRows(t, table, "L --> link:1 of link:1")
}

func TestRollbackRefusals(t *testing.T) {
	table := New()
	must(t)(table.Add("A", "h"))
	must(t)(table.Add("B", "h"))
	_, err := table.Rollback(Author{}, 3)
	refused(t, err, "there is no revision 3 yet, the table is at 2")
	_, err = table.Diff(3, 0)
	refused(t, err, "there is no revision 3 yet")
	_, err = table.Apply(Op{Verb: VerbRollback, To: 1}, Op{Verb: VerbClear})
	refused(t, err, "a rollback cannot be part of a batch")
	seen := uint64(1)
	_, err = table.Apply(Op{Verb: VerbRollback, To: 1, IfRevision: &seen})
	if ce := new(ConflictError); !errors.As(err, &ce) {
		t.Errorf("got %v, want a conflict", err)
	}
	// Rows that came into a cycle since.
	must(t)(table.Add("N", "route:M"))
	must(t)(table.Delete("N", "route:M"))
	must(t)(table.Add("M", "route:N", WithOrigin("peer:B/1/s")))
	before := table.Snapshot()
	if _, err = table.Rollback(Author{}, 3); err == nil || table.Snapshot() != before {
		t.Errorf("got %v, want a refusal of the cycle", err)
	}
}

// A place that another row took, and rows that were renumbered since.
func TestRollbackOfPlaces(t *testing.T) {
	table := New()
	ok := must(t)
	ok(table.Add("A", "h"))
	ok(table.Add("C", "h"))
	ok(table.InsertAfter("A", "B", "h"))
	ok(table.Delete("B", "h"))
	ok(table.InsertAfter("A", "L", "link:1", WithOrigin("link:1"))) // where B was
	ok(table.Rollback(Author{}, 3))
	wantRows(t, table, "A --> h", "L --> link:1 of link:1", "B --> h", "C --> h")

	generation := table.Generation()
	for i := range 40 {
		ok(table.InsertAfter("A", "M", fmt.Sprint("link:", i), WithOrigin("link:2")))
	}
	if len(table.History(0, 0)) != 5 || len(table.history.entries) == 5 {
		t.Errorf("%d revisions of %d entries are listed", len(table.History(0, 0)), len(table.history.entries))
	}
	ok(table.Withdraw("link:2"))
	ok(table.ReplaceAll("C", []string{"h2", "h"}))
	d, err := table.Diff(2, 6)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := diffText(t, d), "+ B --> h\n+ C --> h2\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	ok(table.Rollback(Author{}, 2))
	wantRows(t, table, "A --> h", "L --> link:1 of link:1", "C --> h")
	ok(table.Rollback(Author{}, 6))
	wantRows(t, table, "A --> h", "L --> link:1 of link:1", "B --> h", "C --> h2", "C --> h")
	if table.Generation() == generation {
		t.Error("the generation stood still")
	}
}

// A renumbering that no configured row lived through lets positions begin again: those that come back must not be given twice.
func TestRollbackPastANewBeginning(t *testing.T) {
	table := New()
	ok := must(t)
	for i := range 60 {
		ok(table.Add("A", fmt.Sprint("h", i)))
	}
	ok(table.Clear())
	ok(table.Add("L", "link:0", WithOrigin("link:1")))
	for i := range 33 {
		ok(table.InsertAfter("L", "L", fmt.Sprint("link:", i), WithOrigin("link:1")))
	}
	ok(table.Withdraw("link:1"))
	ok(table.Rollback(Author{}, 60))
	ok(table.Add("B", "h"))
	if rows := rowTexts(table.Snapshot()); rows[60] != "B --> h" || rows[59] != "A --> h59" {
		t.Errorf("the new row is not the last: %s", strings.Join(rows, "\n"))
	}
	checkTable(t, table.Snapshot())
}

func TestDiffText(t *testing.T) {
	const base = "match: all\nA --> h1\nB --> h2\nC --> amqp://u:p@h3 ; weight=2\nD --> h4\n"
	tests := []struct{ name, file, want string }{
		{"the same", base, ""},
		{"a row less", "A --> h1\nC --> amqp://u:p@h3 ; weight=2\nD --> h4\n", "- B --> h2\n"},
		{"a row more", strings.Replace(base, "C", "X --> y ; fallback\nC", 1), "+ X --> y ; fallback\n"},
		{"another address", strings.Replace(base, "h2", "h9", 1), "- B --> h2\n+ B --> h9\n"},
		{"an address of other text", strings.Replace(base, "h2", "H2:5672", 1), "- B --> h2\n+ B --> H2:5672\n"},
		{"columns", strings.Replace(base, "weight=2", "retry=0", 1), "- C --> amqp://***@h3 ; weight=2\n+ C --> amqp://***@h3 ; retry=0\n"},
		{"one row moved down", "B --> h2\nC --> amqp://u:p@h3 ; weight=2\nA --> h1\nD --> h4\n", "> A --> h1\n"},
		{"one row moved up", "D --> h4\nA --> h1\nB --> h2\nC --> amqp://u:p@h3 ; weight=2\n", "> D --> h4\n"},
		{"the match mode", strings.Replace(base, "all", "first", 1), "match: all -> first\n"},
		{"nothing left", "match: first\n", "match: all -> first\n- A --> h1\n- B --> h2\n- C --> amqp://***@h3 ; weight=2\n- D --> h4\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			table := tableOf(t, base)
			f, err := ParseFile("", []byte(test.file))
			if test.name == "nothing left" {
				f, err = &File{Match: MatchFirst}, nil
			}
			if err != nil {
				t.Fatal(err)
			}
			d, err := table.Snapshot().DiffFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if got := diffText(t, d); got != test.want {
				t.Errorf("of the file, got\n%swant\n%s", got, test.want)
			}
			if _, err := table.LoadFile(f, LoadReplace); err != nil {
				t.Fatal(err)
			}
			if d, err = table.Diff(1, table.Revision()); err != nil {
				t.Fatal(err)
			}
			if got := diffText(t, d); got != test.want {
				t.Errorf("of the revisions, got\n%swant\n%s", got, test.want)
			}
		})
	}
}

func TestDiffFileOrigins(t *testing.T) {
	table := New()
	must(t)(table.Add("A", "h", WithOrigin("file:x")))
	must(t)(table.Add("B", "h", WithOrigin(OriginCluster)))
	must(t)(table.Add("C", "h", WithOrigin(OriginCluster)))
	must(t)(table.Add("L", "link:1", WithOrigin("link:1")))
	d, err := table.Snapshot().DiffFile(&File{Routes: []Route{NewRoute("C", "h"), NewRoute("A", "h")}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := diffText(t, d), ""; got != want { // an edit keeps a row's origin
		t.Errorf("got\n%swant\n%s", got, want)
	}
	_, err = table.Snapshot().DiffFile(&File{Routes: []Route{NewRoute("C", "h:x")}})
	if err == nil {
		t.Error("a bad address is taken")
	}
}
