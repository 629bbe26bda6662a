package admin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// What peers assert is rows of their own origin, whatever others assert of the same names.
func TestAssertSetup(t *testing.T) {
	table := routetable.New()
	core := admin.New(table, admin.Options{})
	row := func(pattern, origin, note string) routetable.Route {
		r := routetable.NewRoute(pattern, "peer:b")
		r.Origin, r.Note = origin, note
		return r
	}
	for _, step := range []struct {
		name string
		cmd  admin.Command
		want string
	}{
		{"asserted", admin.Assert{Route: row("topic:a", "peer:b/1", "")}, "topic:a[peer:b/1]"},
		{"of another origin", admin.Assert{Route: row("topic:a", "peer:b/2", "")}, "topic:a[peer:b/1] topic:a[peer:b/2]"},
		{"again", admin.Assert{Route: row("topic:a", "peer:b/1", "")}, "topic:a[peer:b/1] topic:a[peer:b/2]"},
		{"with a note", admin.Assert{Route: row("topic:a", "peer:b/1", "new")}, "topic:a[peer:b/2] topic:a[peer:b/1]new"},
		{"retracted", admin.Unsubscribe{Origin: "peer:b/2", Pattern: "topic:a", Address: "peer:b"}, "topic:a[peer:b/1]new"},
		{"retracted again", admin.Unsubscribe{Origin: "peer:b/2", Pattern: "topic:a", Address: "peer:b"}, "topic:a[peer:b/1]new"},
		{"set up", admin.Setup{Origin: "peer:b/1", Routes: []routetable.Route{row("topic:c", "", ""), row("topic:a", "", "new")}}, "topic:a[peer:b/1]new topic:c[peer:b/1]"},
		{"set up with less", admin.Setup{Origin: "peer:b/1", Routes: []routetable.Route{row("topic:c", "", "")}}, "topic:c[peer:b/1]"},
		{"set up from nothing", admin.Setup{Origin: "peer:b/2", Routes: []routetable.Route{row("topic:d", "", "n")}}, "topic:c[peer:b/1] topic:d[peer:b/2]n"},
		{"several at once", admin.Together{Commands: []admin.Command{admin.Assert{Route: row("topic:e", "peer:b/2", "")}, admin.Unsubscribe{Origin: "peer:b/2", Pattern: "topic:d", Address: "peer:b"}}}, "topic:c[peer:b/1] topic:e[peer:b/2]"},
		{"several, with an operator's", admin.Together{Commands: []admin.Command{admin.Delete{Pattern: "topic:e", Address: "peer:b"}}}, "refused"},
		{"an operator's", admin.Assert{Route: row("topic:a", "operator", "")}, "refused"},
		{"of nobody", admin.Setup{}, "refused"},
		{"retract of an operator's", admin.Unsubscribe{Origin: "operator", Pattern: "topic:c", Address: "peer:b"}, "refused"},
	} {
		_, err := core.Do(admin.Caller{Via: "mesh"}, step.cmd)
		got := "refused"
		if err == nil {
			var rows []string
			for r := range table.Snapshot().Routes() {
				rows = append(rows, fmt.Sprintf("%s[%s]%s", r.Pattern, r.Origin, r.Note))
			}
			got = strings.Join(rows, " ")
		}
		if got != step.want {
			t.Errorf("%s: got %s (%v), want %s", step.name, got, err, step.want)
		}
	}
	if n := len(table.Snapshot().OfOrigin("peer:b/")); n != 2 {
		t.Errorf("%d rows of the peer", n)
	}
}
