package ctl

import (
	"slices"
	"testing"
)

func TestSplitWords(t *testing.T) {
	for _, c := range []struct {
		name, line string
		want       []string
		err        string
	}{
		{name: "an empty line has no words", line: "  \t "},
		{name: "blanks of any number separate", line: " add  A\tamqp://b ", want: []string{"add", "A", "amqp://b"}},
		{name: "a comment ends the line", line: "clear # all", want: []string{"clear"}},
		{name: "a sharp inside a word is itself", line: "add topic:# null", want: []string{"add", "topic:#", "null"}},
		{name: "a quoted sharp is a word", line: `add "#" null`, want: []string{"add", "#", "null"}},
		{name: "a quoted text keeps blanks and escapes", line: `add A b --note "x \"y\"\tz"`, want: []string{"add", "A", "b", "--note", "x \"y\"\tz"}},
		{name: "a quote may follow an equals sign", line: `set A b --note="second arm"`, want: []string{"set", "A", "b", "--note=second arm"}},
		{name: "single quotes are verbatim", line: `add 'a\*b c' null`, want: []string{"add", `a\*b c`, "null"}},
		{name: "a backslash is itself", line: `add a\*b null`, want: []string{"add", `a\*b`, "null"}},
		{name: "a quote in the middle is itself", line: `add it's null`, want: []string{"add", "it's", "null"}},
		{name: "an empty quoted word is a word", line: `explain ""`, want: []string{"explain", ""}},
		{name: "an open quote is refused", line: `add "A`, err: "column 5: a quoted text is not closed, or has a bad escape"},
		{name: "an open single quote is refused", line: `add 'A`, err: "column 5: a quote is not closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := splitWords(c.line)
			if err != nil && err.Error() != c.err || err == nil && c.err != "" {
				t.Fatalf("got error %v, want %q", err, c.err)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func FuzzSplitWords(f *testing.F) {
	f.Add(`add "a b" 'c' --note="x" # y`)
	f.Add("\"\\x")
	f.Fuzz(func(t *testing.T, line string) { splitWords(line) })
}
