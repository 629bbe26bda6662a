package routetable

import (
	"fmt"
	"testing"
)

func TestEmptiedPatternsAreRemembered(t *testing.T) {
	do, table := must(t), New()
	do(table.Add("A", "h1"))
	do(table.Add("A", "link:1", WithOrigin("link:1")))
	do(table.Add("x/*", "h1"))
	do(table.Add("topic:t/*", "peer:P", WithOrigin("peer:P/1/s")))
	do(table.Add("$reply/1", "link:2", WithOrigin("link:2")))
	want := func(addr, pattern string, revision uint64) {
		t.Helper()
		e, ok := table.Snapshot().Emptied(addr)
		if ok != (pattern != "") || e.Pattern != pattern || e.Revision != revision || ok && e.At.IsZero() {
			t.Errorf("%s: got %+v, want %q at %d", addr, e, pattern, revision)
		}
	}
	want("A", "", 0)
	do(table.Delete("A", "h1"))
	want("A", "", 0) // a row is left
	do(table.Withdraw("link:1"))
	want("A", "A", 3)
	want("B", "", 0)
	do(table.DeletePattern("x/*"))
	want("x/1", "x/*", 4)
	want("y/1", "", 0)
	do(table.Withdraw("peer:P/"))
	want("topic:t/1", "topic:t/*", 4)
	do(table.Withdraw("link:2"))
	want("$reply/1", "", 0)
	do(table.Add("A", "h2"))
	want("A", "", 0) // it has rows again
	do(table.Add("x/*", "h2"))
	want("x/1", "", 0)
	do(table.Clear())
	want("A", "A", 7)
	want("x/1", "x/*", 7)
	if got := table.Snapshot().Explain("A", "", nil).Emptied; got == nil || got.Revision != 7 {
		t.Errorf("explain: got %+v", got)
	}
}

func TestEmptiedPatternsAreBounded(t *testing.T) {
	do, table := must(t), New()
	for round := range 3 { // what is emptied over and over is remembered once
		var add, gone []Op
		for i := range maxEmptied + 500 {
			r := NewRoute(fmt.Sprintf("N%d", i), "h")
			add, gone = append(add, Op{Route: r}), append(gone, Op{Verb: VerbDelete, Route: r})
		}
		for i := range maxEmptiedWild + 5 {
			r := NewRoute(fmt.Sprintf("W%d/*", i), "h")
			add, gone = append(add, Op{Route: r}), append(gone, Op{Verb: VerbDelete, Route: r})
		}
		do(table.Apply(add...))
		for i := 0; i < len(gone); i += 1000 {
			do(table.Apply(gone[i:min(i+1000, len(gone))]...))
		}
		m := table.Snapshot().emptied
		if len(m.names) != maxEmptied || len(m.wild) != maxEmptiedWild || len(m.order) > 2*maxEmptied {
			t.Errorf("round %d: %d names, %d with wildcards, %d in order", round, len(m.names), len(m.wild), len(m.order))
		}
	}
	for addr, ok := range map[string]bool{"N0": false, "N499": false, "N500": true, "N10499": true, "W4/x": false, "W5/x": true} {
		if _, got := table.Snapshot().Emptied(addr); got != ok {
			t.Errorf("%s: got %v, want %v", addr, got, ok)
		}
	}
}
