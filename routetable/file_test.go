package routetable

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFileErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"yaml syntax", "match: all\nroutes:\n  - {pattern: a, address: h\n  - x", "t: line"},
		{"yaml root", "- a\n- b", "line 1, column 1: the table is not a mapping"},
		{"yaml unknown key", "routes: []\nroute: []\n", `line 2, column 1: unknown key "route"`},
		{"yaml unknown column", "routes:\n  - {pattern: a, address: h, wieght: 3}", `line 2, column 30: unknown key "wieght"`},
		{"yaml twice", "routes:\n  - {pattern: a, pattern: h}", `line 2, column 18: the key "pattern" is there twice`},
		{"yaml no address", "routes:\n  - {pattern: a}", "line 2, column 5: the row has no address"},
		{"yaml empty address", "routes:\n  - pattern: a\n    address:\n", "line 3, column 13: the address is missing"},
		{"yaml port", "routes:\n  - {pattern: a, address: \"h:99999\"}", "line 2, column 27: address, column 3: the port is over 65535"},
		{"yaml pick", "routes:\n  - {pattern: a, address: h, pick: some}", `line 2, column 36: pick: unknown pick "some"`},
		{"yaml bool", "routes:\n  - {pattern: a, address: h, optional: yes}", "line 2, column 40: optional"},
		{"yaml alias", "routes:\n  - {pattern: &a x, address: *a}", "anchors"},
		{"yaml glob", "routes:\n  - {pattern: \"glob:{a\", address: h}", "line 2, column 15: pattern"},
		{"yaml cycle", "routes:\n  - {pattern: a, address: \"route:b\"}\n  - {pattern: b, address: \"route:a\"}", "line 3, column 5: address: the names lead back"},
		{"yaml two documents", "routes: []\n---\nroutes: []\n", "line 2, column 1: a table is one YAML document"},
		{"yaml expect key", "expect:\n  - {address: a, hop: [h]}", `line 2, column 18: unknown key "hop"`},
		{"yaml match", "match: some\nroutes: []", "line 1, column 8: match mode"},
		{"arrow no arrow", "A --> h\nB h", "line 2, column 3: expected -->"},
		{"arrow no address", "A -->", "line 1, column 6: the address is missing"},
		{"arrow no pattern", " --> h", "line 1, column 2: the pattern is missing"},
		{"arrow port", "A --> h\nÄÖ --> h:x ; note=x", "line 2, column 8: address, column 3: the port is not a number"},
		{"arrow column", "A --> h ; wieght=3", `line 1, column 11: unknown column "wieght"`},
		{"arrow value", "A --> h ; weight", "line 1, column 11: weight has no value"},
		{"arrow number", "A --> h ; weight=x", `line 1, column 11: weight: "x" is not a number`},
		{"arrow twice", "A --> h ; order=1 ; order=2", "line 1, column 21: order is there twice"},
		{"arrow quote", `A --> "h`, "line 1, column 7: the address: the quoted string is not closed"},
		{"arrow inner quote", `A --> h"x"`, "line 1, column 8: the address: a quote inside"},
		{"arrow match", "A --> h\nmatch: all", "line 2, column 1: match stands before the rows"},
		{"arrow match twice", "match: all\nmatch: all\nA --> h", "line 2, column 1: match is there twice"},
		{"arrow rest", "A --> h h2", "line 1, column 9: expected ;"},
		{"arrow row twice", "A --> h\nA --> amqp://H ; order=2", "line 2, column 1: A --> amqp://H is there twice, with another order"},
		{"arrow when", "A --> h ; when=\"Prop()\"", "line 1, column 11: when, column 1"},
		{"arrow expect", "A --> h\nexpect: A --> h ; hop=x", "line 2, column 19: unknown column"},
		{"garbage", "hello world", "line 1, column 7: expected -->"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseFile("t", []byte(c.text))
			var fe *FileError
			if !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "t: line ") {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && (fe.Line < 1 || fe.Column < 1) {
				t.Errorf("got line %d, column %d", fe.Line, fe.Column)
			}
		})
	}
	big := []byte("routes:\n" + strings.Repeat("  - {pattern: a, address: h}\n", MaxYAMLRows+1))
	if _, err := ParseFile("t", big); err == nil || !strings.Contains(err.Error(), "at most 100000 rows") {
		t.Errorf("got %v", err)
	}
	if _, err := ParseFile("t", append([]byte("routes: []\n"), make([]byte, MaxYAMLBytes)...)); err == nil || !strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("got %v", err)
	}
}

func TestFileForms(t *testing.T) {
	want := []string{
		"COLOSSUS --> 5.6.7.8:1234", `COLOSSUS --> 5.6.7.9:1234 ; note="second arm"`, "HAL9000 --> null", "* --> amqp://broker/$1 ; fallback",
	}
	for _, text := range []string{
		"COLOSSUS --> 5.6.7.8:1234\nCOLOSSUS-->5.6.7.9:1234;note=\"second arm\" # a comment\r\nHAL9000  --> null\n*        --> amqp://broker/$1 ; fallback\n",
		"\xef\xbb\xbfmatch: all\nroutes:\n  - {pattern: COLOSSUS, address: \"5.6.7.8:1234\"}\n  - pattern: COLOSSUS\n    address: 5.6.7.9:1234\n    note: second arm\n" +
			"  - {pattern: HAL9000,  address: null}\n  - {pattern: \"*\", address: \"amqp://broker/$1\", fallback: true}\n",
		"match: all\n# only this\nCOLOSSUS --> 5.6.7.8:1234\nCOLOSSUS --> 5.6.7.9:1234 ; note = `second arm`\n\"HAL9000\" --> null\n* --> amqp://broker/$1 ; fallback=true\n",
		`{"match": "all", "routes": [{"pattern": "COLOSSUS", "address": "5.6.7.8:1234"}, {"pattern": "COLOSSUS", "address": "5.6.7.9:1234", "note": "second arm"},` +
			` {"pattern": "HAL9000", "address": null}, {"pattern": "*", "address": "amqp://broker/$1", "fallback": true}]}`,
	} {
		f, err := ParseFile("", []byte(text))
		if err != nil {
			t.Errorf("%s\n%v", text, err)
			continue
		}
		var got []string
		for i := range f.Routes {
			got = append(got, arrowText(&f.Routes[i], 0))
		}
		if !slices.Equal(got, want) || f.Match != MatchAll {
			t.Errorf("got\n%s", strings.Join(got, "\n"))
		}
	}
	for _, text := range []string{"", "# nothing\n", "match: first\n", "routes:\n", "---\n"} {
		f, err := ParseFile("", []byte(text))
		if err != nil || len(f.Routes) != 0 {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestCommentsSurvive(t *testing.T) {
	edit := func(text string, write func(f *File, b *strings.Builder) error) string {
		f, err := ParseFile("", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		do, table := must(t), New()
		do(table.LoadFile(f, LoadReplace))
		do(table.Add("NEW", "h9"))
		do(table.Delete("B", "h2"))
		out := table.Snapshot().File(false)
		out.Keep(f)
		var b strings.Builder
		if err := write(out, &b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	got := edit("# The table.\n\nmatch: first\n# Rows.\nroutes:\n  # About A,\n  # in two lines.\n  - {pattern: A, address: h1}  # the first\n  - {pattern: B, address: h2}\n"+
		"expect:\n  - {address: A, hops: [h1]}\n",
		func(f *File, b *strings.Builder) error { return f.WriteYAML(b) })
	want := "# The table.\n\nmatch: first\n# Rows.\nroutes:\n  # About A,\n  # in two lines.\n  - {pattern: A, address: h1}  # the first\n  - {pattern: NEW, address: h9}\n" +
		"expect:\n  - {address: A, hops: [h1]}\n"
	if got != want {
		t.Errorf("got\n%s", got)
	}
	got = edit("# The table.\n\nmatch: first\n# About A.\nA --> h1  # the first\nB --> h2\n\nexpect: A --> h1\n# The end.\n",
		func(f *File, b *strings.Builder) error { return f.WriteArrow(b) })
	want = "# The table.\n\nmatch: first\n# About A.\nA --> h1  # the first\nNEW --> h9\n\nexpect: A --> h1\n# The end.\n"
	if got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestStoredRows(t *testing.T) {
	do, table := must(t), New()
	do(table.Add("A", "h", WithOrigin("file:a")))
	do(table.Add("topic:x", "peer:B", WithOrigin("peer:B/3/s1")))
	do(table.Add("topic:x", "peer:0", WithOrigin("peer:0f8fad5b-d9cb-469f-a165-70867728950e/3/s1")))
	do(table.Add("Q", "link:7", WithOrigin("link:7")))
	do(table.Add("event:*", "replay:ring", WithOrigin(OriginSystem)))
	var b strings.Builder
	if err := table.Snapshot().File(false).WriteArrow(&b); err != nil {
		t.Fatal(err)
	}
	if want := "match: all\nA       --> h  # from file:a\ntopic:x --> peer:B  # from peer:B/3/s1\n"; b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
	b.Reset()
	if err := table.Snapshot().File(true).WriteYAML(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "  # - {pattern: Q, address: \"link:7\"}  # from link:7\n") {
		t.Errorf("got\n%s", b.String())
	}
	if f, err := ParseFile("", []byte(b.String())); err != nil || len(f.Routes) != 2 {
		t.Errorf("got %v", err)
	}
}

// drawFile makes a table file of odd texts.
func drawFile(t *rapid.T) *File {
	text := rapid.OneOf(
		rapid.StringOfN(rapid.SampledFrom([]rune("ab*%$\\ ;#\"'`-->:/{}[],&!|\n\t\x00é\u0085\u2028\ufeff🦊=~")), 0, 12, -1),
		rapid.SampledFrom([]string{"null", "~", "true", "0x10", "- a", "match: first", "routes:", "expect: a", "\xff\xfe", "", "no", "<<", "%YAML", "---", "glob:{a,b}*", "topic:a/*", "a # b", "#x", "!!binary"}),
	)
	f := &File{Match: MatchMode(rapid.IntRange(0, 1).Draw(t, "match")), HasMatch: true}
	seen := map[rowKey]bool{}
	for range rapid.IntRange(0, 6).Draw(t, "rows") {
		r := NewRoute(text.Draw(t, "pattern"), rapid.SampledFrom([]string{"h", "null", "amqp://u:p@h/q?x#y", "route:a b", "h/$1", "x://h", "h/#", "h/a;b"}).Draw(t, "address"))
		r.Pick = Pick(rapid.IntRange(0, 2).Draw(t, "pick"))
		r.Balance = Balance(rapid.IntRange(0, 3).Draw(t, "balance"))
		r.Weight = rapid.IntRange(0, 3).Draw(t, "weight")
		r.HashKey = text.Draw(t, "hash-key")
		r.Order = rapid.IntRange(-2, 2).Draw(t, "order")
		r.Fallback, r.Optional, r.DynamicHost = rapid.Bool().Draw(t, "f"), rapid.Bool().Draw(t, "o"), rapid.Bool().Draw(t, "d")
		r.When = rapid.SampledFrom([]string{"", "Property(`a`, \"b\")"}).Draw(t, "when")
		r.Timeout = time.Duration(rapid.IntRange(0, 3).Draw(t, "timeout")) * 1500 * time.Millisecond
		r.Retry = rapid.IntRange(-1, 2).Draw(t, "retry")
		r.Note, r.Name = text.Draw(t, "note"), text.Draw(t, "name")
		if _, err := compilePattern(r.Pattern); err != nil || seen[keyOf(&r)] || r.Pattern == "a b" {
			continue
		}
		seen[keyOf(&r)] = true
		f.Routes = append(f.Routes, r)
	}
	for range rapid.IntRange(0, 2).Draw(t, "expects") {
		e := Expect{Address: text.Draw(t, "address"), Target: text.Draw(t, "target")}
		if rapid.Bool().Draw(t, "hops") {
			e.Hops = []string{text.Draw(t, "hop"), "null"}
		}
		if rapid.Bool().Draw(t, "properties") {
			e.Properties = map[string]string{strings.ReplaceAll(text.Draw(t, "key"), "=", "k"): text.Draw(t, "value")}
		}
		f.Expect = append(f.Expect, e)
	}
	return f
}

// TestFilesRoundTrip writes and reads both forms.
func TestFilesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFile(t)
		for _, form := range []func(*File, *strings.Builder) error{
			func(f *File, b *strings.Builder) error { return f.WriteYAML(b) },
			func(f *File, b *strings.Builder) error { return f.WriteArrow(b) },
		} {
			var b strings.Builder
			if err := form(f, &b); err != nil {
				t.Fatal(err)
			}
			back, err := ParseFile("t", []byte(b.String()))
			if err != nil {
				t.Fatalf("%v in\n%s", err, b.String())
			}
			sameFile(t, back, f, b.String())
			var again strings.Builder
			if err := form(back, &again); err != nil || again.String() != b.String() {
				t.Fatalf("written again it is\n%s\nnot\n%s", again.String(), b.String())
			}
		}
	})
}

// The line of what WriteRows writes leads back to the row of the file, whatever else is in the file.
func TestRowAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFile(t)
		var text strings.Builder
		form := rapid.SampledFrom([]func(*strings.Builder) error{
			func(b *strings.Builder) error { return f.WriteYAML(b) },
			func(b *strings.Builder) error { return f.WriteArrow(b) },
		}).Draw(t, "form")
		if err := form(&text); err != nil {
			t.Fatal(err)
		}
		f, err := ParseFile("t", []byte(text.String()))
		if err != nil {
			t.Fatal(err)
		}
		var rows strings.Builder
		if err := f.WriteRows(&rows); err != nil {
			t.Fatal(err)
		}
		sent, err := ParseFile("sent", []byte(rows.String()))
		if err != nil {
			t.Fatalf("%v in\n%s", err, rows.String())
		}
		sameFile(t, sent, &File{Match: f.Match, Routes: f.Routes}, rows.String())
		for i, r := range sent.Routes {
			want := f.Routes[i]
			if line, column, ok := f.RowAt(r.line); !ok || line != want.line || column != want.column {
				t.Fatalf("row %d at line %d, column %d (%v), want %d, %d in\n%s", i, line, column, ok, want.line, want.column, text.String())
			}
		}
		if _, _, ok := f.RowAt(len(f.Routes) + 2); ok {
			t.Fatal("a row behind the last")
		}
	})
}

func sameFile(t interface{ Fatalf(string, ...any) }, got, want *File, text string) {
	if got.Match != want.Match || len(got.Routes) != len(want.Routes) || len(got.Expect) != len(want.Expect) {
		t.Fatalf("got %d rows and %d expects, want %d and %d in\n%s", len(got.Routes), len(got.Expect), len(want.Routes), len(want.Expect), text)
	}
	for i := range want.Routes {
		g, w := got.Routes[i], want.Routes[i]
		g.line, g.column, w.line, w.column = 0, 0, 0, 0
		if !reflect.DeepEqual(g, w) {
			t.Fatalf("got row %+v, want %+v in\n%s", g, w, text)
		}
	}
	for i := range want.Expect {
		g, w := got.Expect[i], want.Expect[i]
		g.Line, w.Line = 0, 0
		if len(g.Hops)+len(w.Hops) == 0 {
			g.Hops, w.Hops = nil, nil
		}
		if !reflect.DeepEqual(g, w) {
			t.Fatalf("got %+v, want %+v in\n%s", g, w, text)
		}
	}
}

func TestExpectNull(t *testing.T) {
	f, err := ParseFile("", []byte("routes:\n  - {pattern: A, address: null}\n  - {pattern: B, address: h}\nexpect:\n"+
		"  - {address: A, hops: []}\n  - {address: A, hops: [null]}\n  - {address: A, hops: [\"null\"]}\n  - {address: X, hops: []}\n  - {address: X, hops: [null]}\n"+
		"  - {address: B, hops: []}\n  - {address: B, hops: [\"H:5672\"]}\n  - {address: B, hops: [\"h:x\"]}\n  - {address: Y, hops: [h], target: B}\n"))
	if err != nil {
		t.Fatal(err)
	}
	table := New()
	must(t)(table.LoadFile(f, LoadReplace))
	var lines []int
	for _, failure := range CheckExpect(table.Snapshot(), f.Expect) {
		lines = append(lines, failure.Expect.Line)
	}
	if !slices.Equal(lines, []int{9, 10, 12}) {
		t.Errorf("got failures at %v", lines)
	}
}

// TestArrowTables holds the arrow form of an example table to its YAML form.
func TestArrowTables(t *testing.T) {
	names, _ := filepath.Glob("../tables/*.arrow")
	if len(names) == 0 {
		t.Fatal("no tables")
	}
	for _, name := range names {
		var files [2]*File
		for i, name := range []string{name, strings.TrimSuffix(name, ".arrow") + ".yaml"} {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if files[i], err = ParseFile(name, data); err != nil {
				t.Fatal(err)
			}
		}
		sameFile(t, files[0], files[1], name)
	}
}

// TestDefaultTableStaysAtHome checks that a router without arguments dials nothing outside loopback.
func TestDefaultTableStaysAtHome(t *testing.T) {
	data, err := os.ReadFile("../tables/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for r := range tableOf(t, string(data)).Snapshot().Routes() {
		if h := r.c.match[0].Hop; h == nil || h.Host != "" && h.Host != "127.0.0.1" {
			t.Errorf("the default table dials %s", r.Address)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	for _, s := range []string{
		"match: first\nA --> h ; pick=any # c\n", "routes:\n  - {pattern: a, address: h, note: \"x\"}\nexpect:\n  - {address: a, hops: [h]}\n",
		"{routes: [{pattern: !!binary \"/w==\", address: null}]}", "expect: A --> h ; target=x ; property=\"a=b\"\n", "a: &x [*x]", "# c\n\n\"a\\x00\" --> `h`\n",
		"routes:\n  # head\n  - pattern: a # line\n    # in\n    address: h\n  # foot\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := ParseFile("f", []byte(text))
		if err != nil {
			var fe *FileError
			// YAML has more line breaks than one.
			lines := strings.NewReplacer("\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n").Replace(text)
			if !errors.As(err, &fe) || fe.Line < 1 || fe.Column < 1 || fe.Line > strings.Count(lines, "\n")+1 {
				t.Fatalf("an error without a place: %v", err)
			}
			return
		}
		for _, form := range []func(*File, *strings.Builder) error{
			func(f *File, b *strings.Builder) error { return f.WriteYAML(b) },
			func(f *File, b *strings.Builder) error { return f.WriteArrow(b) },
		} {
			var b strings.Builder
			if err := form(file, &b); err != nil {
				t.Fatal(err)
			}
			back, err := ParseFile("t", []byte(b.String()))
			if err != nil {
				t.Fatalf("%v in\n%q", err, b.String())
			}
			sameFile(t, back, file, b.String())
		}
	})
}

func FuzzParseHop(f *testing.F) {
	for _, s := range []string{"5.6.7.8:1234", "amqps://u:p%40@[::1]:5/q?x#y", "topic:a", "null", "~h", "u%zz@h", "AMQP://H", "[::1]x:5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ValidateLiteral(text)
		MaskUserinfo(text)
		h, err := ParseHop(text)
		if err != nil {
			return
		}
		if h.HasUser {
			if !strings.Contains(h.Text, maskText+"@") {
				t.Fatalf("%q shows its userinfo: %q", text, h.Text)
			}
			return
		}
		again, err := ParseHop(h.Text)
		if err != nil || again.Text != h.Text || again.Key != h.Key || again.Name != h.Name || again.Host != h.Host || again.Port != h.Port {
			t.Fatalf("%q is %q, which is %+v: %v", text, h.Text, again, err)
		}
	})
}

func FuzzWhen(f *testing.F) {
	for _, s := range []string{"Property(`a`,`b`)", "!(Property(`a`, `{x+}`) || Property(\"b\",\"\")) && Property(`c`,`{}`)", "((("} {
		f.Add(s, "b", true)
	}
	f.Fuzz(func(t *testing.T, text, value string, has bool) {
		w, err := CompileWhen(text)
		if err != nil {
			return
		}
		property := func(string) (string, bool) { return value, has }
		n, err := CompileWhen("!(" + text + ")")
		if err != nil {
			if len(text) < maxWhenBytes-3 && !strings.Contains(err.Error(), "too deep") {
				t.Fatal(err)
			}
			return
		}
		if w.Match(property) == n.Match(property) {
			t.Fatalf("%q is its own negation", text)
		}
	})
}

func FuzzExpand(f *testing.F) {
	f.Add("a*", "amqp://h/${1}$$$2$", "abc")
	f.Add("%@%", "amqp://$2:$1@h$3/$0", "x@y")
	f.Fuzz(func(t *testing.T, pattern, address, addr string) {
		p, err := compilePattern(pattern)
		if err != nil || len(address) > MaxTextBytes || !p.match(addr) {
			return
		}
		tmpl := compileTemplate(address)
		ends := p.capture(nil, addr)
		result, ok := tmpl.expand(addr, ends)
		hop, problem := tmpl.judge(result, ok, addr, ends, false)
		if (hop == nil) == (problem == "") {
			t.Fatalf("hop %v, problem %q", hop, problem)
		}
		if hop == nil || tmpl.literal || hop.Host == "" {
			return
		}
		// With every capture empty of meaning, the host is what the template says around it.
		marked := strings.NewReplacer("\x00", "x").Replace(address)
		if strings.Contains(hop.Host, "@") && !strings.Contains(marked, "@") {
			t.Fatalf("the host %q holds captured text", hop.Host)
		}
	})
}
