package ctl

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write what is got over what is expected")

// A session is a text of commands in an empty directory, and what they print:
//
//	$ routectl …            standard output, then standard error with "! " before each line, then [exit N] where not 0
//	$ routectl … < NAME     with a file as standard input
//	$ cat NAME
//	$ write NAME            the lines up to END become the file
//
// An empty line ends what a command prints; lines that begin with # are kept.
func TestSessions(t *testing.T) {
	files, err := filepath.Glob("../../testdata/ctl/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sessions: %v", err)
	}
	for _, file := range files {
		file, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			for _, variable := range []string{"URL", "RELAY_URL", "RELAY_DOMAIN", "RELAY_TOKEN"} {
				t.Setenv("ROUTECTL_"+variable, "")
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			got := runSession(t, string(want), nil)
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("%s: %s", file, firstDifference(got, string(want)))
			}
		})
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d:\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("got %d lines, want %d", len(g), len(w))
}

func runSession(t *testing.T, script string, open func(context.Context) (editor, error)) string {
	t.Helper()
	var out strings.Builder
	lines := strings.Split(strings.TrimSuffix(script, "\n"), "\n")
	for i := 0; i < len(lines); {
		line := lines[i]
		i++
		if !strings.HasPrefix(line, "$ ") {
			fmt.Fprintln(&out, line)
			continue
		}
		fmt.Fprintln(&out, line)
		words, err := splitWords(line[2:])
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if words[0] == "write" {
			var content strings.Builder
			for ; lines[i] != "END"; i++ {
				fmt.Fprintln(&content, lines[i])
				fmt.Fprintln(&out, lines[i])
			}
			fmt.Fprintln(&out, "END")
			i++
			if err := os.WriteFile(words[1], []byte(content.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for i < len(lines) && lines[i] != "" { // what was expected
			i++
		}
		switch words[0] {
		case "cat":
			content, err := os.ReadFile(words[1])
			if err != nil {
				fmt.Fprintln(&out, "! no such file")
				break
			}
			out.WriteString(shown(string(content)))
		case "routectl":
			out.WriteString(runLine(t, words[1:], open))
		default:
			t.Fatalf("%s: no such command", line)
		}
	}
	return out.String()
}

// shown keeps an empty line in the output from ending it.
func shown(s string) string {
	if s == "" {
		return ""
	}
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	for i, l := range lines {
		if l == "" {
			lines[i] = "."
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

func runLine(t *testing.T, argv []string, open func(context.Context) (editor, error)) string {
	t.Helper()
	var stdin []byte
	if n := len(argv); n >= 2 && argv[n-2] == "<" {
		var err error
		if stdin, err = os.ReadFile(argv[n-1]); err != nil {
			t.Fatal(err)
		}
		argv = argv[:n-2]
	}
	var stdout, stderr bytes.Buffer
	r := &run{open: open, env: Env{
		Stdin: bytes.NewReader(stdin), Stdout: &stdout, Stderr: &stderr,
		Getenv: os.Getenv,
	}}
	status := r.run(context.Background(), argv)
	s := shown(stdout.String())
	for line := range strings.Lines(stderr.String()) {
		s += "! " + line
	}
	if status != 0 {
		s += fmt.Sprintf("[exit %d]\n", status)
	}
	return s
}
