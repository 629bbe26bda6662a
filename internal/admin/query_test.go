package admin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/routetable"
)

// A QUERY that names a pattern, an origin or a space has those rows alone, page by page, however many they are.
func TestQueryOfSomeRows(t *testing.T) {
	table := routetable.New()
	const many = maxPageRows + 1
	var ops []routetable.Op
	add := func(pattern, address, origin string) {
		r := routetable.NewRoute(pattern, address)
		r.Origin = origin
		ops = append(ops, routetable.Op{Verb: routetable.VerbAdd, Route: r})
	}
	for i := range many {
		add("many", fmt.Sprintf("amqp://h%d", i), "")
	}
	add("topic:t", "peer:a", "peer:a/1/s1")
	add("topic:t", "peer:ab", "peer:ab/1/s1")
	add("rpc:t", "peer:a", "peer:a/1/s2")
	add("TOPIC:t", "amqp://h", "")
	if _, err := table.Apply(ops...); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		properties args
		want       int
		first      string // the address of the first row but one, or of the only one
	}{
		{"all", args{}, many + 4, "amqp://h1"},
		{"a pattern with more rows than a page", args{"pattern": "many"}, many, "amqp://h1"},
		{"a pattern and an origin", args{"pattern": "topic:t", "origin": "peer:a"}, 1, "peer:a"},
		{"no such pattern", args{"pattern": "none"}, 0, ""},
		{"the empty pattern", args{"pattern": ""}, 0, ""},
		{"operator", args{"origin": "operator"}, many + 1, "amqp://h1"},
		{"all peers", args{"origin": "peer"}, 3, "peer:ab"},
		{"a peer", args{"origin": "peer:a/"}, 2, "peer:a"},
		{"half a name", args{"origin": "pee"}, 0, ""},
		{"a space, whatever its case", args{"space": "topic"}, 3, "peer:ab"},
		{"plain", args{"space": "plain"}, many, "amqp://h1"},
		{"a space and an origin", args{"space": "rpc", "origin": "peer"}, 1, "peer:a"},
		{"no such space", args{"space": "web"}, 0, ""},
	} {
		got, err := routesAsked(table.Snapshot(), c.properties)
		if err != nil || got.n != c.want {
			t.Errorf("%s: got %d routes, %v, want %d", c.name, got.n, err, c.want)
			continue
		}
		n, first := 0, ""
		for r := range got.from(min(1, max(got.n-1, 0))) {
			if n++; n == 1 {
				first = r.Address
			}
		}
		if first != c.first || got.n > 1 && n != got.n-1 {
			t.Errorf("%s: after the first come %d rows, %q first, want %q", c.name, n, first, c.first)
		}
	}
	if _, err := routesAsked(table.Snapshot(), args{"origin": []any{}}); err == nil {
		t.Error("a list is taken for an origin")
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
