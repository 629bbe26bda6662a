package routetable

import (
	"strings"
	"testing"
)

// Objects are part of a revision: a change tells them, the history knows who made it, a diff shows and a rollback undoes it, a new life of the
// table has them.
func TestObjects(t *testing.T) {
	dir := t.TempDir()
	table := openTable(t, dir)
	put := func(name, text string) Op { return Op{Verb: VerbObject, Object: name, Text: text} }
	told := 0
	table.OnChange(func(c Change) { told += len(c.Objects) })
	c, err := table.ApplyAs(Author{User: "ada", Command: "put one"}, put("one", "1"), put("two", "2"), Op{Verb: VerbAdd, Route: NewRoute("A", "h1")})
	if err != nil || c.Revision != 1 || len(c.Objects) != 2 || c.Objects[1] != (ObjectChange{"two", "", "2"}) || len(c.Added) != 1 {
		t.Fatalf("got %+v, %v", c, err)
	}
	if c, err = table.Apply(put("one", "1")); err != nil || c.Changed() || c.Note != "one is so already" {
		t.Errorf("again: got %+v, %v", c, err)
	}
	if c, err = table.Apply(put("three", "")); err != nil || c.Changed() || c.Note != "there is no three" {
		t.Errorf("none: got %+v, %v", c, err)
	}
	if c, err = table.Apply(put("one", "3"), put("two", "")); err != nil || c.Revision != 2 || told != 4 {
		t.Errorf("got %+v, %v, told %d", c, err, told)
	}
	if h := table.History(0, 0); h[0].Command != "apply of 2: object one …" || h[1].User != "ada" || h[1].Command != "put one" {
		t.Errorf("history: %+v", h)
	}
	d, err := table.Diff(1, 2)
	if err != nil || diffText(t, d) != "- object one\n+ object one\n- object two\n" {
		t.Errorf("diff: %s, %v", diffText(t, d), err)
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	table = openTable(t, dir)
	defer table.Close()
	if got := objectsText(table.Snapshot()); got != "objects map[\"one\":\"3\"]\n" || table.Revision() != 2 {
		t.Errorf("in its next life: %s at revision %d", got, table.Revision())
	}
	if c, err = table.Rollback(Author{}, 1); err != nil || objectsText(table.Snapshot()) != "objects map[\"one\":\"1\" \"two\":\"2\"]\n" {
		t.Errorf("rollback: %+v, %v, %s", c, err, objectsText(table.Snapshot()))
	}
	for _, op := range []Op{put("", "x"), put(strings.Repeat("n", maxObjectName+1), "x"), put("big", strings.Repeat("t", maxObjectText+1))} {
		if _, err := table.Apply(put("four", "4"), op); err == nil || table.Snapshot().Objects()["four"] != "" {
			t.Errorf("%.10q of %d bytes: got %v", op.Object, len(op.Text), err)
		}
	}
	var many []Op
	for i := range maxObjectBytes/maxObjectText + 1 {
		many = append(many, put(strings.Repeat("m", i+1), strings.Repeat("t", maxObjectText)))
	}
	_, err = table.Apply(many...)
	refused(t, err, "objects or 32 MiB")
}
