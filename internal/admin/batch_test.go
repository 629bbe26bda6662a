package admin_test

import (
	"fmt"
	"testing"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// TestDoAll does commands together of which some are refused: each is told of in its turn, and has what Do would have given it.
func TestDoAll(t *testing.T) {
	table := routetable.New()
	c := admin.New(table, admin.Options{})
	subscribe := func(i int) admin.Command {
		origin := fmt.Sprint("link:", i)
		return admin.Subscribe{Origin: origin, Pattern: fmt.Sprint("P", i), Address: origin}
	}
	list := []admin.Command{
		subscribe(1),
		admin.Add{Route: routetable.NewRoute("X", "null")}, // needs a role
		admin.Subscribe{Origin: "operator", Pattern: "X", Address: "link:2"},
		admin.Subscribe{Origin: "link:3", Pattern: "X", Address: "host:port"},
		admin.Withdraw{},
		admin.Withdraw{Origin: "link:1"},
		subscribe(4),
	}
	var refused []bool
	for i := range 3000 { // more than go together
		list = append(list, subscribe(10+i))
	}
	c.DoAll(admin.Caller{}, list, func(i int, err error) {
		if i != len(refused) {
			t.Fatalf("told of %d, want %d", i, len(refused))
		}
		refused = append(refused, err != nil)
	})
	if got := fmt.Sprint(refused[:7]); got != "[false true true true true false false]" {
		t.Errorf("refused: %s", got)
	}
	if len(refused) != len(list) {
		t.Errorf("told of %d commands, want %d", len(refused), len(list))
	}
	if n := table.Snapshot().Len(); n != 3001 {
		t.Errorf("%d rows, want 3001", n)
	}
	if got := table.Lookup("P3009"); len(got) != 1 || got[0].Matches[0].Route.Origin != "link:3009" {
		t.Errorf("P3009 leads to %v", got)
	}
}
