package admin

import (
	"fmt"
	"testing"

	"github.com/fingerpost/fingerpost/routetable"
)

// Of a pattern with more rows than a page, a QUERY answers as if it named none: the pages stay cheap, and who asks looks at each row anyway.
func TestQueryOfAPatternWithManyRows(t *testing.T) {
	table := routetable.New()
	ops := []routetable.Op{{Verb: routetable.VerbAdd, Route: routetable.NewRoute("other", "amqp://h")}}
	for i := range maxPageRows + 1 {
		ops = append(ops, routetable.Op{Verb: routetable.VerbAdd, Route: routetable.NewRoute("many", fmt.Sprintf("amqp://h%d", i))})
	}
	if _, err := table.Apply(ops...); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]int{"many": len(ops), "other": 1, "none": 0} {
		got, err := routesAsked(table.Snapshot(), args{"pattern": pattern})
		if err != nil || got.n != want {
			t.Errorf("%s: got %d routes, %v, want %d", pattern, got.n, err, want)
		}
	}
}
