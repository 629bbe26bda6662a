package routetable

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// commentTexts are the comments that an edit of other rows must not lose, by a reading of lines that knows nothing of
// YAML: each line that is a comment.
func commentTexts(text string) []string {
	var list []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list
}

// keptText is old with other rows, and whether its text was kept.
func keptText(t *testing.T, old *File, rows []Route, yaml bool) (text string, kept bool) {
	f := &File{Match: old.Match, HasMatch: true, Routes: rows}
	f.Keep(old)
	_, kept = f.edited(yaml)
	var b strings.Builder
	err := f.WriteArrow(&b)
	if yaml {
		b.Reset()
		err = f.WriteYAML(&b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), kept
}

// FuzzEditKeeps makes one row of a file go, changes one and adds one. What is written must be the wanted table, and where it was kept, the
// comments of all other rows must be there and, without a change, every byte.
func FuzzEditKeeps(f *testing.F) {
	for _, s := range []string{
		"match: first\n# A\nA --> h ; pick=any # c\n\n# B\nB-->h;note=`x`\r\nexpect: A --> h\n# end",
		"# head\nroutes:\n  # a\n  - {pattern: a, address: h, note: \"x\"} # 1\n\n  # b\n  - pattern: b\n    # c\n    address: h # 2\nexpect:\n  - {address: a, hops: [h]}\n",
		"routes: [{pattern: a, address: h}, # a\n {pattern: b, address: null}]\nmatch: all",
		"{\"routes\": [\n  {\"pattern\": \"a\", \"address\": \"h\"},\n  {\"pattern\": \"b\", \"address\": \"h\"}\n]}",
		"---\nroutes:\n- &x {pattern: !!str a, address: h}\n-\n  pattern: b\n  address: >-\n    h\n    \n  note: |\n    # x\n\n...\n",
		"routes:\n - pattern: 'a''b'\n   address: h\n   order: 3\n - {address: h,\n    pattern: b, # c\n    pick: all}\n - {pattern: b, address: \"amqp://h\"}\n",
		"match: all\n", "# x\n", "routes: []\n", "routes:\n  # none\nexpect: []\n",
	} {
		f.Add(s, uint8(0), uint8(1))
	}
	f.Fuzz(func(t *testing.T, text string, which, change uint8) {
		old, err := ParseFile("f", []byte(text))
		if err != nil {
			return
		}
		if same, kept := keptText(t, old, old.Routes, old.yaml); kept && same != text {
			t.Fatalf("nothing changed, and the text is\n%q\nnot\n%q", same, text)
		}
		var lists [][]Route
		rows := make([]Route, 0, len(old.Routes)+1)
		for _, r := range tableOrder(old.Routes) {
			rows = append(rows, *r)
		}
		if n := len(rows); n > 0 {
			i := int(which) % n
			changed := slices.Clone(rows)
			r := &changed[i]
			switch change % 5 {
			case 0:
				r.Note = "a # \"note\""
			case 1:
				r.Pick, r.Note, r.Fallback = PickAll, "", false
			case 2:
				r.Weight, r.Retry = 7, 3
			case 3:
				r.Order = 0
			case 4:
				r.Address, r.Optional = "amqp://replaced", true
			}
			lists = append(lists, slices.Delete(slices.Clone(rows), i, i+1), changed)
			lists = append(lists, slices.Insert(slices.Clone(rows), i, NewRoute("inserted row", "amqp://new/x")))
			moved := slices.Clone(rows)
			slices.Reverse(moved)
			lists = append(lists, moved)
		}
		lists = append(lists, append(slices.Clone(rows), NewRoute("new", "amqp://new")))
		for n, want := range lists {
			if _, err := New().LoadFile(&File{Routes: want, Match: old.Match}, LoadReplace); err != nil {
				continue // the change makes a table that is refused
			}
			got, kept := keptText(t, old, want, old.yaml)
			back, err := ParseFile("back", []byte(got))
			if err != nil {
				t.Fatalf("edit %d: %v in\n%q", n, err, got)
			}
			if back.Match != old.Match || !sameExpects(back.Expect, old.Expect) || !sameTables(back.Routes, want) {
				t.Fatalf("edit %d: another table in\n%q", n, got)
			}
			if !kept || n == 0 && len(lists) > 1 {
				continue // the row that went takes comments
			}
			have := commentTexts(got)
			for _, c := range commentTexts(text) {
				if !slices.Contains(have, c) && !inScalars(old, c) {
					t.Fatalf("edit %d: %q is not in\n%q", n, c, got)
				}
			}
		}
	})
}

// inScalars reports whether what looks like a comment may be part of a text.
func inScalars(f *File, comment string) bool {
	for i := range f.Routes {
		r := &f.Routes[i]
		for _, text := range []string{r.Pattern, r.Address, r.Note, r.Name, r.When, r.HashKey} {
			if strings.Contains(text, "#") {
				return true
			}
		}
	}
	return len(f.Expect) > 0
}

// endless gives a line for ever.
type endless struct{ line string }

func (e endless) Read(p []byte) (n int, err error) {
	for n < len(p) {
		n += copy(p[n:], e.line)
	}
	return n, nil
}

func TestFileLimits(t *testing.T) {
	long := strings.Repeat("x", MaxTextBytes+1)
	for _, c := range []struct{ name, text, want string }{
		{"a pattern in YAML", "routes:\n  - {pattern: a, address: h}\n  - {pattern: " + long + ", address: h}\n", "line 3, column 15: pattern: the pattern is longer than 64 KiB"},
		{"an address in YAML", "routes:\n  - pattern: a\n    address: " + long + "\n", "line 3, column 14: address: the address is longer than 64 KiB"},
		{"a pattern in the arrow form", "a --> h\n" + long + " --> h\n", "line 2, column 1: pattern: the pattern is longer than 64 KiB"},
		{"an address in the arrow form", "a --> h\nb --> \"" + long + "\"\n", "line 2, column 7: address: the address is longer than 64 KiB"},
	} {
		if _, err := ParseFile("", []byte(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
	for _, c := range []struct {
		name, line  string
		size, limit int64
		want        string
	}{
		{"by its size", "", 3<<20 + 1, 3 << 20, "t: line 1, column 1: a table file is at most 3 MiB"},
		{"by what comes", "a --> h\n", 0, 3 << 20, "t: line 1, column 1: a table file is at most 3 MiB"},
		{"past the limit of YAML", "a --> h\n", 0, 17 << 20, "t: line 1, column 1: a table file is at most 17 MiB"},
		{"in YAML", "routes: #\n", 0, MaxFileBytes, "t: line 1, column 1: a YAML table is at most 16 MiB (use the arrow form)"},
	} {
		if _, err := readFile("t", endless{c.line}, c.size, c.limit); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
	name := t.TempDir() + "/t"
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, MaxFileBytes+1); err != nil {
		t.Skip(err)
	}
	if _, err := ReadFile(name); err == nil || !strings.HasSuffix(err.Error(), "a table file is at most 512 MiB") {
		t.Errorf("got %v", err)
	}
	f, err := ReadTable("t", strings.NewReader("a --> h"))
	if err != nil || len(f.Routes) != 1 {
		t.Errorf("got %v", err)
	}
}

// TestKeepMatch changes the match mode of files, as a load of another file does.
func TestKeepMatch(t *testing.T) {
	for _, c := range []struct{ before, after string }{
		{"# head\nmatch:   'all'  # c\nroutes:\n  - {pattern: A, address: h}\n", "# head\nmatch:   'first'  # c\nroutes:\n  - {pattern: A, address: h}\n"},
		{"# head\n\nroutes:\n  - {pattern: A, address: h}\n", "# head\n\nmatch: first\nroutes:\n  - {pattern: A, address: h}\n"},
		{"routes:\n  - {pattern: A, address: h}\nmatch: all", "routes:\n  - {pattern: A, address: h}\nmatch: first"},
		{"{\"match\": \"all\", \"routes\": [{\"pattern\": \"A\", \"address\": \"h\"}]}\n", "{\"match\": \"first\", \"routes\": [{\"pattern\": \"A\", \"address\": \"h\"}]}\n"},
		{"match: all # c\r\nA --> h\r\n", "match: first # c\r\nA --> h\r\n"},
		{"# head\n\n# A\nA --> h\n", "# head\n\nmatch: first\n# A\nA --> h\n"},
	} {
		old, err := ParseFile("", []byte(c.before))
		if err != nil {
			t.Fatal(err)
		}
		f := &File{Match: MatchFirst, HasMatch: true, Routes: old.Routes}
		f.Keep(old)
		if got, kept := f.edited(old.yaml); !kept || got != c.after {
			t.Errorf("got %v\n%s\nwant\n%s", kept, got, c.after)
		}
	}
}
