package routetable_test

import (
	"fmt"
	"testing"

	"github.com/fingerpost/fingerpost/routetable"
)

func TestRowsOfAnOrigin(t *testing.T) {
	table := routetable.New()
	for i := range 100 {
		r := routetable.NewRoute(fmt.Sprintf("event:req/T%d", i/3), "event-conn:X")
		r.Origin = fmt.Sprint("event:C", i%3)
		if _, err := table.Apply(routetable.Op{Verb: routetable.VerbAdd, Route: r}); err != nil {
			t.Fatal(err)
		}
	}
	if rows := table.Snapshot().OfOrigin("event:C0"); len(rows) != 34 || rows[0].Pattern != "event:req/T0" || rows[33].Pattern != "event:req/T33" {
		t.Errorf("got %d rows", len(rows))
	}
	if rows := table.Snapshot().OfOrigin("event:C"); len(rows) != 0 {
		t.Errorf("got %d rows of an origin that has none", len(rows))
	}
	if _, err := table.Apply(routetable.Op{Verb: routetable.VerbWithdraw, Origin: "event:C0"}); err != nil {
		t.Fatal(err)
	}
	if rows := table.Snapshot().OfOrigin("event:C0"); len(rows) != 0 {
		t.Errorf("got %d rows that are withdrawn", len(rows))
	}
}

func TestTheLiteralOfAPattern(t *testing.T) {
	for _, name := range []string{"A", `A\B`, "A*B%C", `\\*`, "event:req/50% off*"} {
		pattern, ok := routetable.QuotePattern(name)
		if got, is := routetable.LiteralOf(pattern); !ok || !is || got != name {
			t.Errorf("%q is quoted %q, which is the literal %q, %v", name, pattern, got, is)
		}
	}
	for _, pattern := range []string{"A*", "%", `A\*%`} {
		if got, is := routetable.LiteralOf(pattern); is {
			t.Errorf("%q is said to be the literal %q", pattern, got)
		}
	}
}
