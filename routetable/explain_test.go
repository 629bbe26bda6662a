package routetable

import (
	"strings"
	"testing"
)

func TestExplainSaysWhyARowIsNotUsed(t *testing.T) {
	for _, c := range []struct {
		name, table, addr string
		want              []string // of the rows that are not used
	}{
		{"a predicate", "A --> null ; when=\"Property(`k`, `v`)\"\nA --> amqp://a\n", "A",
			[]string{"its when does not hold: Property(`k`, `v`)"}},
		{"a fallback", "* --> amqp://u:secret@b ; fallback\nA --> amqp://u:secret@a\n", "A",
			[]string{"fallback: another row was found: A --> amqp://***@a at position 2"}},
		{"match first", "match: first\nA --> amqp://a\n* --> amqp://b\nA* --> amqp://c\n", "A",
			[]string{"match first: another pattern comes first: A --> amqp://a at position 1", "match first: another pattern comes first: A --> amqp://a at position 1"}},
		{"a tap behind the end of the search", "match: first\nA --> amqp://a\n* --> amqp://tap ; optional\n", "A",
			[]string{"optional: the search ended before it, at A --> amqp://a at position 1"}},
		{"one row of web", "web:/x --> amqp://a\nweb:/* --> amqp://b\n", "web:/x",
			[]string{"order: web:/x --> amqp://a at position 1 comes first"}},
		{"one group of rpc", "rpc:* --> amqp://b ; order=2\nrpc:f --> amqp://a\n", "rpc:f",
			[]string{"one group only: another one comes first: rpc:f --> amqp://a at position 1"}},
		{"nothing that counts", "A --> null ; when=\"Property(`k`, `v`)\"\n* --> null ; fallback ; when=\"Property(`l`, `v`)\"\n", "A",
			[]string{"its when does not hold: Property(`k`, `v`)", "its when does not hold: Property(`l`, `v`)"}},
		{"all are used", "A --> amqp://a\n* --> amqp://b\n", "A", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := tableOf(t, c.table).Snapshot().Explain(c.addr, "", func(string) (string, bool) { return "", false })
			var got []string
			for _, m := range x.Matches {
				if m.Used != (m.Why == "") {
					t.Errorf("%s: used %v, why %q", m.Pattern, m.Used, m.Why)
				}
				if !m.Used {
					got = append(got, m.Why)
				}
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestExplainNamesPatternsThatNearlyFit(t *testing.T) {
	many := strings.Builder{}
	for i := range 50 {
		many.WriteString("*" + strings.Repeat("o", i%6) + "*" + strings.Repeat("*", i) + " --> null\n")
	}
	for _, c := range []struct {
		name, table, addr string
		want              []string
	}{
		{"a star and a scheme", "* --> null\n", "topic:orders", []string{"* does not match names of the scheme topic: write topic:*"}},
		{"a segment wildcard and a scheme", "% --> null\n", "rpc:f", []string{"% does not match names of the scheme rpc: write rpc:%"}},
		{"a part of the scheme", "t* --> null\n", "topic:orders", []string{"t* does not match names of the scheme topic"}},
		{"names of the router", "* --> null\n", "$reply/x", []string{"* does not match names that begin with $: write $*"}},
		{"a glob", "glob:** --> null\n", "topic:orders", []string{"glob:** does not match names of the scheme topic"}},
		{"what does not fit anyhow", "*x --> null\n", "topic:orders", nil},
		{"what fits", "topic:* --> null\n", "topic:orders", nil},
		{"a plain name", "B* --> null\n", "A", nil},
		{"many", many.String(), "topic:orders", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := tableOf(t, c.table).Snapshot().Explain(c.addr, "", nil).Near
			if c.name == "many" {
				if len(got) != maxNear {
					t.Errorf("got %d, want %d", len(got), maxNear)
				}
				return
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestLintFindsRowsThatLeadToOneHopTwice(t *testing.T) {
	for _, c := range []struct {
		name, table string
		want        []string
	}{
		{"a capture and its text", "A --> amqp://h/$0\nA --> amqp://h/A\n",
			[]string{"A --> amqp://h/A: leads to the same hop as A --> amqp://h/$0: it gets one copy, and one of the rows will do"}},
		{"two names of one capture", "* --> amqp://h/$0\n* --> amqp://h/$1\n",
			[]string{"* --> amqp://h/$1: leads to the same hop as * --> amqp://h/$0: it gets one copy, and one of the rows will do"}},
		{"different captures", "*/* --> amqp://h/$1\n*/* --> amqp://h/$2\n", nil},
		{"rows of different patterns", "A --> amqp://h/A\n* --> amqp://h/$0\n", nil},
		{"rows of different picks", "A --> amqp://h/A\nA --> amqp://h/$0 ; pick=any\n", nil},
		{"rows for different messages", "A --> amqp://h/A ; when=\"Property(`k`, `v`)\"\nA --> amqp://h/$0\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, w := range tableOf(t, c.table).Snapshot().Lint() {
				if strings.Contains(w.What, "same hop") {
					w.Line = 0
					got = append(got, w.String())
				}
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}
