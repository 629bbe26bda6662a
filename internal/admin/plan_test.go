package admin_test

import (
	"reflect"
	"testing"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

func TestPlan(t *testing.T) {
	revision := uint64(0)
	row := func(pattern, address string, change ...func(*routetable.Route)) routetable.Route {
		r := routetable.NewRoute(pattern, address)
		for _, f := range change {
			f(&r)
		}
		return r
	}
	link := func(r *routetable.Route) { r.Origin = "link:7" }
	for _, c := range []struct {
		name string
		cmd  admin.Command
		want []routetable.Op
		err  string
	}{
		{
			name: "add is one op", cmd: admin.Add{Route: row("A", "amqp://a"), Columns: routetable.ColNote},
			want: []routetable.Op{{Verb: routetable.VerbAdd, Route: row("A", "amqp://a"), Columns: routetable.ColNote}},
		},
		{
			name: "insert keeps its anchor", cmd: admin.Insert{Route: row("A", "amqp://a"), Before: true, Anchor: "B", AnchorAddress: "amqp://b"},
			want: []routetable.Op{{Verb: routetable.VerbInsert, Route: row("A", "amqp://a"), Before: true, Anchor: "B", AnchorAddress: "amqp://b"}},
		},
		{
			name: "set reaches an origin", cmd: admin.Set{Route: row("A", "link:7"), Columns: routetable.ColOrder, Origin: "link:7"},
			want: []routetable.Op{{Verb: routetable.VerbSet, Route: row("A", "link:7"), Columns: routetable.ColOrder, Origin: "link:7"}},
		},
		{
			name: "replace-all names its pattern", cmd: admin.ReplaceAll{Pattern: "A", Addresses: []string{"amqp://a", "null"}},
			want: []routetable.Op{{Verb: routetable.VerbReplaceAll, Route: row("A", ""), Addresses: []string{"amqp://a", "null"}}},
		},
		{
			name: "delete", cmd: admin.Delete{Pattern: "A", Address: "amqp://a", Origin: "peer:B/1"},
			want: []routetable.Op{{Verb: routetable.VerbDelete, Route: row("A", "amqp://a"), Origin: "peer:B/1"}},
		},
		{
			name: "a subscription is a row of its origin, its pattern as given", cmd: admin.Subscribe{Origin: "link:7", Pattern: `a\*b`, Address: "link:7", Pick: routetable.PickAny},
			want: []routetable.Op{{Verb: routetable.VerbAdd, Columns: routetable.ColPick, Route: row(`a\*b`, "link:7", link, func(r *routetable.Route) { r.Pick = routetable.PickAny })}},
		},
		{name: "a subscription of the operator is refused", cmd: admin.Subscribe{Origin: "operator", Pattern: "a", Address: "amqp://a"}, err: `SUBSCRIBE: origin "operator" is not one of learned rows`},
		{name: "a subscription of nobody is refused", cmd: admin.Subscribe{Pattern: "a", Address: "amqp://a"}, err: `SUBSCRIBE: origin "" is not one of learned rows`},
		{
			name: "withdraw takes a prefix", cmd: admin.Withdraw{Origin: "peer:B/3/"},
			want: []routetable.Op{{Verb: routetable.VerbWithdraw, Origin: "peer:B/3/"}},
		},
		{name: "withdraw of nothing is refused", cmd: admin.Withdraw{}, err: "WITHDRAW: origin: missing"},
		{
			name: "a batch is its ops in order, the first with the revision",
			cmd:  admin.Apply{Commands: []admin.Command{admin.Clear{}, admin.DeletePattern{Pattern: "A"}}, IfRevision: &revision},
			want: []routetable.Op{{Verb: routetable.VerbClear, IfRevision: &revision}, {Verb: routetable.VerbDeletePattern, Route: row("A", "")}},
		},
		{
			name: "a bad command in a batch is named",
			cmd:  admin.Apply{Commands: []admin.Command{admin.Clear{}, admin.Withdraw{}}},
			err:  "op 2: WITHDRAW: origin: missing",
		},
		{
			name: "load brings the file's match mode", cmd: admin.Load{File: &routetable.File{HasMatch: true, Match: routetable.MatchFirst, Routes: []routetable.Route{row("A", "amqp://a")}}, Mode: routetable.LoadMerge},
			want: []routetable.Op{{Verb: routetable.VerbLoad, Mode: routetable.LoadMerge, SetMatch: true, Match: routetable.MatchFirst, Routes: []routetable.Route{row("A", "amqp://a")}}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := routetable.New().Snapshot()
			got, err := admin.Plan(c.cmd, s)
			if err != nil && err.Error() != c.err || err == nil && c.err != "" {
				t.Fatalf("got error %v, want %q", err, c.err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("\n got %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestNamesOfColumns(t *testing.T) {
	for column, attribute := range map[string]string{"pattern": "pattern", "hash-key": "hashKey", "dynamic-host": "dynamicHost"} {
		if got := admin.AttributeName(column); got != attribute {
			t.Errorf("AttributeName(%q) is %q, want %q", column, got, attribute)
		}
		for _, name := range []string{column, attribute} {
			if got, ok := admin.ColumnName(name); got != column || !ok {
				t.Errorf("ColumnName(%q) is %q, %v, want %q", name, got, ok, column)
			}
		}
	}
	if got, ok := admin.ColumnName("colour"); ok {
		t.Errorf("ColumnName(colour) is %q", got)
	}
}
