package routetable

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// tableOf is a table from the arrow form.
func tableOf(t testing.TB, text string, opts ...Option) *Table {
	t.Helper()
	table, err := Load(strings.NewReader(text), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestExplainHops(t *testing.T) {
	for _, c := range []struct {
		name, table, address, target string
		want                         []string
	}{
		{"every row", "A --> 5.6.7.8:1234\nA --> 5.6.7.9:1234\n* --> h/$1", "A", "",
			[]string{"amqp://5.6.7.8:1234", "amqp://5.6.7.9:1234", "amqp://h/A"}},
		{"the first pattern", "match: first\nA --> h1\n* --> h2\nA --> h3", "A", "", []string{"amqp://h1", "amqp://h3"}},
		{"a tap before the first pattern", "match: first\n* --> tap ; optional\nA --> h1\n* --> h2\n* --> late ; optional", "A", "",
			[]string{"amqp://tap", "amqp://h1"}},
		{"null alone", "A --> null", "A", "", []string{"null"}},
		{"null beside a hop", "A --> null\nA --> h", "A", "", []string{"amqp://h"}},
		{"null beats fallback", "A --> null\n* --> h ; fallback", "A", "", []string{"null"}},
		{"fallback", "A --> h1\n* --> h2 ; fallback", "B", "", []string{"amqp://h2"}},
		{"no fallback where a row is found", "A --> h1\n* --> h2 ; fallback", "A", "", []string{"amqp://h1"}},
		{"fallback for a problem", "A --> x://h\n* --> h2 ; fallback", "A", "", []string{"amqp://h2"}},
		{"fallback and tap for an optional row", "A --> h1 ; optional\n* --> h2 ; fallback", "A", "", []string{"amqp://h1", "amqp://h2"}},
		{"names", "orders --> topic:orders\ntopic:orders --> h1\ntopic:* --> h2", "orders", "", []string{"amqp://h1", "amqp://h2"}},
		{"route", "A --> route:B\nB --> h1\nB --> null", "A", "", []string{"amqp://h1"}},
		{"one copy a hop", "A --> h1\nA --> amqp://H1:5672\n* --> h1", "A", "", []string{"amqp://h1"}},
		{"to is a URL", "X --> h1", "amqp://far.example/X", "", []string{"amqp://h1"}},
		{"to as written first", "X --> h1\namqp://far.example/* --> h2", "amqp://far.example/X", "", []string{"amqp://h2"}},
		{"the target", "X --> h1", "Y", "X", []string{"amqp://h1"}},
		{"fallback only after all three", "X --> h1\n* --> h2 ; fallback", "Y", "X", []string{"amqp://h1"}},
		{"nothing", "X --> h1", "Y", "", []string{}},
		{"rpc is one group", "rpc:T --> peer:B ; pick=first\nrpc:T --> peer:C ; pick=first\nrpc:* --> peer:D", "rpc:T", "", []string{"peer:B", "peer:C"}},
		{"web is one row", "web:v/d/a/* --> comp:a/C@1\nweb:v/d/* --> comp:a/D@1\ncomp:a/C@1 --> grpc:1\ncomp:a/D@1 --> grpc:2", "web:v/d/a/b", "", []string{"grpc:1"}},
		{"credentials are masked", "A --> amqp://u:p@h/q", "A", "", []string{"amqp://***@h/q"}},
		{"captures beside the host", "% --> amqp://broker-$1.example/q", "x@evil", "", []string{}},
		{"captures behind the host", "* --> amqp://broker/$1", "a/b@c:d", "", []string{"amqp://broker/a/b@c:d"}},
		{"a whole host", "host/* --> amqp://$1", "host/h:1/q", "", []string{}},
		{"a whole host allowed", "host/* --> amqp://$1 ; dynamic-host", "host/h:1/q", "", []string{"amqp://h:1/q"}},
		{"a captured reserved scheme", "host/* --> $1 ; dynamic-host", "host/link:7", "", []string{}},
		{"a captured null", "host/* --> $1 ; dynamic-host", "host/null", "", []string{}},
		{"a host that a capture completes", "x/* --> amqp:/$1", "x//evil/q", "", []string{}},
		{"a scheme that a capture completes", "x/* --> to$1:5", "x/pic", "", []string{}},
		{"a scheme beside the host", "x/* --> $1://h/q", "x/amqp://evil", "", []string{}},
		{"TLS over", "amqp:* --> amqps:$1 ; dynamic-host", "amqp://h.example/q", "", []string{"amqps://h.example/q"}},
		{"the empty address", "\"\" --> h", "", "", []string{"amqp://h"}},
		{"the mesh is not swallowed", "* --> h/$1", "topic:x", "", []string{}},
		{"nor the door", "* --> h/$1", "$management", "", []string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tableOf(t, c.table).Snapshot()
			if got := s.Explain(c.address, c.target, nil).Hops; !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			checkTable(t, s)
		})
	}
}

func TestExplainAsJSON(t *testing.T) {
	s := tableOf(t, "sensors/%/% --> amqp://$1.example:5672/t\n* --> h ; fallback").Snapshot()
	got, err := json.Marshal(s.Explain("sensors/eu/1", "", nil))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"address":"sensors/eu/1","revision":1,"matches":[` +
		`{"pattern":"sensors/%/%","address":"amqp://$1.example:5672/t","captures":["eu","1"],"result":"amqp://eu.example:5672/t",` +
		`"hop":"amqp://eu.example/t","pick":"all","group":1,"fallback":false,"optional":false,"used":true},` +
		`{"pattern":"*","address":"h","captures":["sensors/eu/1"],"result":"h","hop":"amqp://h","pick":"all","group":2,"fallback":true,` +
		`"optional":false,"used":false,"why":"fallback: another row was found: sensors/%/% --\u003e amqp://$1.example:5672/t at position 1"}],"hops":["amqp://eu.example/t"]}`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	got, _ = json.Marshal(New().Snapshot().Explain("x", "", nil))
	if want := `{"address":"x","revision":0,"matches":[],"hops":[]}`; string(got) != want {
		t.Errorf("got %s", got)
	}
}

func TestRowAsJSON(t *testing.T) {
	table := tableOf(t, "A --> null\nB --> h ; pick=any ; balance=hash ; hash-key=k ; retry=0 ; timeout=5s ; note=n ; optional")
	var rows []*Route
	for r := range table.Snapshot().Routes() {
		rows = append(rows, r)
	}
	got, _ := json.Marshal(rows)
	want := `[{"pattern":"A","address":"null","pick":"all","order":0,"fallback":false,"optional":false,"origin":"operator"},` +
		`{"pattern":"B","address":"h","pick":"any","balance":"hash","hash-key":"k","order":0,"fallback":false,"optional":true,"timeout":"5s",` +
		`"retry":0,"origin":"operator","note":"n"}]`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestResolveOverrides(t *testing.T) {
	s := tableOf(t, "A --> route:B ; timeout=5s ; optional\nA --> route:C\nB --> h1 ; timeout=9s ; retry=3\nC --> h1 ; retry=2 ; optional\nC --> route:D").Snapshot()
	var got []string
	for _, c := range s.Resolve(nil, s.LookupInto(nil, "A", nil), nil, nil) {
		hop := ""
		if c.Hop != nil {
			hop = c.Hop.Text
		}
		got = append(got, fmt.Sprintf("%s under %s by %s: %v %v %d end %d", hop, c.Name, c.Outer.Address, c.Optional, c.Timeout, c.Retry, c.End))
	}
	want := []string{
		"amqp://h1 under B by route:B: true 5s 3 end 0",
		"amqp://h1 under C by route:C: true 0s 2 end 0",
		" under D by route:C: false 0s -1 end 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestResolveDepth(t *testing.T) {
	var b strings.Builder
	for i := range 9 {
		fmt.Fprintf(&b, "n%d --> route:n%d\n", i, i+1)
	}
	b.WriteString("n9 --> h\n* --> route:loop ; fallback\n")
	s := tableOf(t, b.String()).Snapshot()
	end := func(addr string) End {
		c := s.Resolve(nil, s.LookupInto(nil, addr, nil), nil, nil)
		return c[len(c)-1].End
	}
	if end("n1") != EndHop {
		t.Error("8 names deep is too deep")
	}
	if end("n0") != EndTooDeep {
		t.Error("9 names deep is not too deep")
	}
	if got := s.Explain("other", "", nil).Hops; len(got) != 0 {
		t.Errorf("a loop by a wildcard has hops: %q", got)
	}
}

// TestResolveDoesNotExplode has eight levels of ten names that each lead to all of the next level.
func TestResolveDoesNotExplode(t *testing.T) {
	var b strings.Builder
	for level := range 8 {
		for i := range 10 {
			for j := range 10 {
				fmt.Fprintf(&b, "n%d/%d --> route:n%d/%d\n", level, i, level+1, j)
			}
		}
	}
	b.WriteString("n8/* --> h/$1\n")
	s := tableOf(t, b.String()).Snapshot()
	if got := s.Explain("n0/0", "", nil).Hops; len(got) != 10 {
		t.Errorf("got %d hops, want 10", len(got))
	}
}

func TestResolveWithChoice(t *testing.T) {
	s := tableOf(t, "A --> route:B ; pick=any\nA --> route:C ; pick=any\nB --> h1\nC --> h2").Snapshot()
	last := func(g *Group) []Match { return g.Matches[len(g.Matches)-1:] }
	got := s.Resolve(nil, s.LookupInto(nil, "A", nil), last, nil)
	if len(got) != 1 || got[0].Hop.Text != "amqp://h2" {
		t.Errorf("got %+v", got)
	}
}

func TestWhen(t *testing.T) {
	properties := map[string]string{"kind": "order", "size": "12", "subject": "x", "empty": ""}
	property := func(k string) (string, bool) { v, ok := properties[k]; return v, ok }
	for _, c := range []struct {
		text string
		want bool
	}{
		{"Property(`kind`, `order`)", true},
		{`Property("kind", "Order")`, false},
		{"Property(`size`, `{[0-9]+}`)", true},
		{"Property(`size`, `{1}`)", false},
		{"Property(`size`, `{1|12}`)", true},
		{"Property(`none`, `{}`)", false},
		{"Property(`empty`, `{}`) && Property(`empty`, ``)", true},
		{"!Property(`none`, `x`)", true},
		{"!!Property(`none`, `x`)", false},
		{"Property(`kind`,`a`) || Property(`kind`,`b`) && Property(`size`,`12`) || Property(`subject`,`x`)", true},
		{"(Property(`kind`,`order`) || Property(`kind`,`b`)) && Property(`size`,`13`)", false},
		{"Property(`kind`,`order`) || (Property(`kind`,`b`) && Property(`size`,`13`))", true},
		{"!(Property(`kind`,`order`) && Property(`size`,`13`))", true},
		{"!(Property(`kind`,`order`) || Property(`size`,`13`)) || !Property(`size`,`13`)", true},
	} {
		w, err := CompileWhen(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := w.Match(property); got != c.want {
			t.Errorf("%s: got %v", c.text, got)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"", "column 1"}, {"Property(`a`)", "takes 2 arguments, not 1"}, {"Property(`a`,`b`", "column 17"}, {"Property(``,`b`)", "no name"},
		{"Property(`a`,`{[}`)", "column 14"}, {"Property(a,`b`)", "column 10"}, {"Property(`a`,`b`) &", "column 19"},
		{"Property(`a`,`b`) && ", "column 22"}, {"(Property(`a`,`b`)", "expected )"}, {"Hedder(`a`,`b`)", "unknown predicate"},
		{"Property(`a`,'b')", "column 14"}, {"Property(`a`,`b`,`c`)", "takes 2 arguments, not 3"}, {strings.Repeat("(", 100), "too deep"},
		{"Property(`a`,`{a)|(b}`)", "column 14"},
	} {
		if _, err := CompileWhen(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.text, err, c.want)
		}
	}
}

func TestLookupAllocatesNothing(t *testing.T) {
	table := tableOf(t, "A --> h1\nA --> h2\nA --> h3 ; pick=any\nB/* --> h4\n%/x --> h5\nglob:*.log --> h6\ntopic:a/* --> h7\n* --> h8 ; optional\nnone* --> h9 ; fallback")
	s := table.Snapshot()
	dst := make([]Group, 0, 16)
	property := func(string) (string, bool) { return "", false }
	for _, addr := range []string{"A", "B/x", "q.log", "topic:a/b", "none", "nothing/at/all"} {
		if n := testing.AllocsPerRun(100, func() { dst = s.LookupInto(dst[:0], addr, property) }); n != 0 {
			t.Errorf("%s: %v allocations", addr, n)
		}
		if n := testing.AllocsPerRun(100, func() { dst, _, _ = s.Route(dst[:0], addr, true, "A", true, property) }); n != 0 {
			t.Errorf("route of %s: %v allocations", addr, n)
		}
	}
}

func TestParseHopCanonicalText(t *testing.T) {
	for _, c := range []struct{ text, want, key string }{
		{"5.6.7.8:1234", "amqp://5.6.7.8:1234", ""},
		{"HOST", "amqp://host", ""},
		{"AMQPS://Host:5671/Q", "amqps://host/Q", ""},
		{"amqps://h:5672", "amqps://h:5672", ""},
		{"h/", "amqp://h/", ""},
		{"[::1]:05672/q", "amqp://[::1]/q", ""},
		{"u:p%40@h/q", "amqp://***@h/q", `amqp://"u":"p@"@h/q`},
		{"u@h", "amqp://***@h", `amqp://"u"@h`},
		{"TOPIC:Orders", "topic:Orders", ""},
		{"web:5672", "web:5672", ""},
		{"null", "null", ""},
		{"admin:", "admin:", ""},
	} {
		h, err := ParseHop(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if c.key == "" {
			c.key = c.want
		}
		if h.Text != c.want || h.Key != c.key {
			t.Errorf("%s: got %s and %s", c.text, h.Text, h.Key)
		}
	}
	for _, text := range []string{"~h", "http://h/q", "h:70000", "", "u:p/w@h"} {
		if h, err := ParseHop(text); err == nil {
			t.Errorf("%s: got %s", text, h.Text)
		}
	}
}

func TestMaskUserinfo(t *testing.T) {
	for _, c := range [][2]string{
		{"amqp://u:p@h/q", "amqp://***@h/q"}, {"u:p@h", "***@h"}, {"amqp://h/a@b", "amqp://h/a@b"}, {"amqp://u:p/w@h", "amqp://***@h"},
		{"amqp://$1@h", "amqp://***@h"}, {"relay:d/x@y", "relay:d/x@y"}, {"h:5672/a@b", "h:5672/a@b"}, {"", ""},
	} {
		if got := MaskUserinfo(c[0]); got != c[1] {
			t.Errorf("%s: got %s, want %s", c[0], got, c[1])
		}
	}
}

func TestLint(t *testing.T) {
	for _, c := range []struct{ name, table, want string }{
		{"a group that is not there", "A* --> h/$2", "$2 is empty"},
		{"a group of a literal", "A --> h/$1", "has no groups"},
		{"a group of a glob", "glob:a* --> h/$1", "no groups but $0"},
		{"an overflow", "a* --> h/$99999999999999999999", "is empty"},
		{"a lone dollar", "A* --> h/$x", "without a number"},
		{"a whole host", "* --> amqp://$1", "only with dynamic-host"},
		{"an open host", "* --> amqp://$1 ; dynamic-host", "open host"},
		{"an unknown scheme", "A --> http://h", "no outlet"},
		{"a listener", "A --> ~h", "listens"},
		{"a reserved scheme", "A --> web:5672", "amqp://web:5672"},
		{"a bare word", "A --> B\nB --> h:1", "route:B"},
		{"shadowed", "match: first\na* --> h1\nab --> h2", "never used"},
		{"shadowed pattern", "match: first\na* --> h1\nab% --> h2", "never used"},
		{"a shadowed fallback", "match: first\n* --> h1 ; fallback\nA --> h2 ; fallback", "A --> h2: never used: * comes first"},
		{"a fallback that is covered", "* --> h1\nA --> h2 ; fallback", "never used"},
		{"a loop by a wildcard", "* --> route:x", "leads back"},
		{"a name that is not there", "A --> route:B", "no row matches the name B"},
		{"weight", "A --> h ; weight=3", "no effect"},
		{"port 0", "A --> h:0", "port 0"},
		{"percent", "A --> u%zz@h", "%25"},
		{"bracket", "A --> [::1]5672", "not read"},
		{"balance", "A --> h1 ; pick=any\nA --> h2 ; pick=any ; balance=hash", "first row decides"},
	} {
		w := tableOf(t, c.table).Snapshot().Lint()
		if len(w) == 0 || !slices.ContainsFunc(w, func(w Warning) bool { return strings.Contains(w.String(), c.want) }) {
			t.Errorf("%s: got %v, want %q", c.name, w, c.want)
		}
	}
	for _, table := range []string{
		"A --> h1\nB* --> h2/$1\n* --> h3/$0 ; fallback\ntopic:x --> peer:p",
		"* --> h1 ; fallback\nA --> h2 ; fallback",
		"match: first\nA --> h2 ; fallback\n* --> h1 ; fallback",
		"match: first\nA --> h1\n* --> h2 ; fallback",
	} {
		if w := tableOf(t, table).Snapshot().Lint(); len(w) != 0 {
			t.Errorf("%s: got %v", table, w)
		}
	}
}

// benchTable has a mix of rows: 4 in 5 literals, the others patterns with literal prefixes, topics, suffix patterns and globs.
func benchTable(b *testing.B, n int) *Table {
	ops := make([]Op, n)
	for i := range ops {
		var pattern, address string
		switch i % 20 {
		case 0:
			pattern, address = fmt.Sprintf("tenant-%d/*", i), fmt.Sprintf("amqp://h%d/$1", i%97)
		case 5:
			pattern, address = fmt.Sprintf("topic:region%d/*/temp", i), fmt.Sprintf("peer:p%d", i%31)
		case 10:
			pattern, address = fmt.Sprintf("glob:logs/{a,b}%d/**", i), fmt.Sprintf("h%d", i%97)
		case 15:
			pattern, address = fmt.Sprintf("sensors/%%/%d", i), fmt.Sprintf("h%d", i%97)
		default:
			pattern, address = fmt.Sprintf("queue/orders/%d", i), fmt.Sprintf("h%d:%d", i%97, 1000+i%100)
		}
		ops[i] = Op{Verb: VerbAdd, Route: NewRoute(pattern, address)}
	}
	t := New()
	if _, err := t.Apply(ops...); err != nil {
		b.Fatal(err)
	}
	return t
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		s := benchTable(b, n).Snapshot()
		for _, c := range []struct{ name, addr string }{
			{"literal", "queue/orders/81"}, {"prefix", "tenant-80/q/x"}, {"topic", "topic:region85/x/temp"}, {"glob", "logs/b90/x/y"}, {"miss", "queue/orders/none"},
		} {
			b.Run(fmt.Sprintf("%s/rows=%d", c.name, n), func(b *testing.B) {
				dst := make([]Group, 0, 8)
				b.ReportAllocs()
				for b.Loop() {
					dst = s.LookupInto(dst[:0], c.addr, nil)
				}
				if want := c.name != "miss"; want != (len(dst) == 1) {
					b.Fatalf("found %d groups", len(dst))
				}
			})
		}
	}
}

func BenchmarkEdit(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		t := benchTable(b, n)
		b.Run(fmt.Sprintf("literal/rows=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				t.Add("edit", "h")
				t.Delete("edit", "h")
			}
		})
		b.Run(fmt.Sprintf("pattern/rows=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				t.Add("edit/*", "h/$1")
				t.Delete("edit/*", "h/$1")
			}
		})
	}
}

// BenchmarkAttach is the edit of a receiver that attaches, and leaves again, where ten thousand others are on the address.
func BenchmarkAttach(b *testing.B) {
	for _, pick := range []Pick{PickAll, PickAny} {
		b.Run(pick.String(), func(b *testing.B) {
			table := New()
			ops := make([]Op, 10_000)
			for i := range ops {
				link := fmt.Sprintf("link:%d", i)
				ops[i] = Op{Route: NewRoute("X", link)}
				ops[i].Route.Origin, ops[i].Route.Pick, ops[i].Columns = link, pick, ColPick
			}
			if _, err := table.Apply(ops...); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := table.Add("X", "link:new", WithOrigin("link:new"), WithPick(pick)); err != nil {
					b.Fatal(err)
				}
				if _, err := table.Withdraw("link:new"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		benchTable(b, 100_000)
	}
}

func TestManyLoosePatternsAreWarnedAbout(t *testing.T) {
	const loose = "is looked at for every address"
	count := func(w []Warning) int {
		n := 0
		for _, w := range w {
			if strings.Contains(w.What, loose) {
				n++
			}
		}
		return n
	}
	rows := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "*.%c%c --> h\n", 'a'+i%26, 'a'+i/26)
		}
		return b.String()
	}
	for _, c := range []struct {
		name, pattern string
		want          int
	}{
		{"a short suffix", "*.eu", 1},
		{"a short word", "*abc*", 1},
		{"a short word in a glob", "glob:**abc", 1},
		{"a suffix of four bytes", "*.eu1", 0},
		{"a prefix", "a*", 0},
		{"a segment", "%/x", 0},
		{"all", "*", 0},
		{"all of two segments", "%/%", 0},
		{"a literal", "abc", 0},
	} {
		tb := tableOf(t, "")
		if ch, err := tb.Add(c.pattern, "h"); err != nil || count(ch.Warnings) != 0 {
			t.Errorf("%s: add to an empty table: %v, warns %v", c.name, err, ch.Warnings)
		}
		if got := count(tb.Snapshot().Lint()); got != c.want {
			t.Errorf("%s: lint warns %d times, want %d", c.name, got, c.want)
		}
		f, err := ParseFile("", []byte(rows(64)))
		if err != nil || count(f.Warnings) != 0 {
			t.Fatalf("a file of 64: %v, warns %v", err, f.Warnings)
		}
		tb = tableOf(t, rows(64))
		ch, err := tb.Add(c.pattern, "h")
		if err != nil || count(ch.Warnings) != c.want {
			t.Errorf("%s: add to 64: %v, warns %v, want %d", c.name, err, ch.Warnings, c.want)
		}
		ch, err = tb.Set(c.pattern, "h", WithNote("n"))
		if err != nil || count(ch.Warnings) != 0 {
			t.Errorf("%s: set: %v, warns %v again", c.name, err, ch.Warnings)
		}
	}
	f, err := ParseFile("", []byte(rows(65)))
	if err != nil || count(f.Warnings) != 65 {
		t.Errorf("a file of 65: %v, warns %d times", err, count(f.Warnings))
	}
}

// The predicates of HTTP requests read properties too; their vectors are tests of internal/components.
func TestWhenOfRequests(t *testing.T) {
	properties := map[string]string{
		"type": "io.kubefox.http", "method": "GET", "host": "a.example:80", "path": "/shop/jobs/a17/", "header:X-A": JoinValues([]string{"1\n2", `b\n`}), "query:q": "",
	}
	property := func(k string) (string, bool) { v, ok := properties[k]; return v, ok }
	for _, c := range []struct{ text, want string }{
		{"All()", "true"}, {"Type(`HTTP`)", "true"}, {"Type(`xhttp`)", "false"}, {"Method(`put`, `get`,)", "true"}, {"Method()", "false"},
		{"Host(`{x}.example:80`)", "true x=a"}, {"Path(`/shop/{}/{id}`)", "true id=a17"}, {"PathPrefix(`shop/{x}`)", "true x=jobs suffix a17"},
		{"Header(`x-a`, `b\\n`)", "true"}, {"Header(`x-a`, \"1\\n2\")", "true"}, {"Header(`x-a`, `1`)", "false"}, {"Query(`q`, `{}`)", "true"}, {"Query(`Q`, `{}`)", "false"},
		{"!Path(`/{x}`) && (Path(`/{x}/{y}/z`) || Path(`/{z}/{y}/{x}`))", "true z=shop y=jobs x=a17"},
	} {
		w, err := CompileWhen(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		got := strconv.FormatBool(w.Match(property))
		if got == "true" {
			captures, suffix, has := w.Capture(nil, property)
			for _, x := range captures {
				got += " " + x.Name + "=" + x.Value
			}
			if has {
				got += " suffix " + suffix
			}
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.text, got, c.want)
		}
	}
}
