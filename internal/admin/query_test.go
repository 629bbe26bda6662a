package admin

import (
	"fmt"
	"strings"
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

// However long rows are and however many are warned about, an answer stays far below what one message may be, and says what it leaves out.
func TestAnswersAreBounded(t *testing.T) {
	long := strings.Repeat("x", 24<<10)
	var text strings.Builder
	for i := range 300 {
		fmt.Fprintf(&text, "%d%s --> http://%s\n", i, long, long)
	}
	f, err := routetable.ParseFile("t", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	c := New(routetable.New(), Options{})
	caller := Caller{Role: RoleAdmin}
	ch, err := c.Do(caller, Load{File: f})
	if err != nil {
		t.Fatal(err)
	}
	ch.Warnings = routetable.JoinWarnings(ch.Warnings, f.Warnings)
	lint, err := c.handleLint(caller, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]answer{"load": changeAnswer(ch), "lint": lint} {
		if size := len(fmt.Sprint(a.body)); size > maxPageBytes+maxPageBytes/4 {
			t.Errorf("%s: the answer has %d bytes", name, size)
		}
	}
	warnings := changeAnswer(ch).body.(map[string]any)["warnings"].([]any)
	if got := fmt.Sprint(warnings[len(warnings)-1]); got != "and 200 more" || len(warnings) != 101 {
		t.Errorf("got %d warnings, the last is %.100q", len(warnings), got)
	}
	body := lint.body.(map[string]any)
	if n := len(body["warnings"].([]any)); uint64(n)+body["more"].(uint64) != 300 || n == 0 {
		t.Errorf("lint tells %d warnings and %v more", n, body["more"])
	}
}
