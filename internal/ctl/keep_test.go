package ctl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeep edits table files that people wrote. A case is a name behind "== ", the file, and commands behind "---- ", each with what
// becomes of that file: the lines that go behind "-", those that come behind "+", each with the number of the line in the file before
// or after. Every case is also run with other line ends, without the last of them, and with a byte order mark.
func TestKeep(t *testing.T) {
	for _, name := range []string{"yaml", "arrow"} {
		file, err := filepath.Abs("../../testdata/keep/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			var out strings.Builder
			for _, c := range strings.Split(string(text), "== ")[1:] {
				title, rest, _ := strings.Cut(c, "\n")
				parts := strings.Split(rest, "\n---- ")
				before := parts[0] + "\n"
				fmt.Fprintf(&out, "== %s\n%s", title, before)
				for _, part := range parts[1:] {
					command, _, _ := strings.Cut(strings.TrimSuffix(part, "\n"), "\n")
					out.WriteString("---- " + command + "\n" + lineDiff(before, keepEdit(t, name, before, command)))
				}
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got := out.String(); got != string(text) {
				t.Errorf("%s: %s", file, firstDifference(got, string(text)))
			}
		})
	}
}

// keepEdit runs a command on a file in all its variants, and gives the file after it.
func keepEdit(t *testing.T, form, before, command string) string {
	t.Helper()
	words, err := splitWords(command)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(before string) string {
		name := "t." + form
		if err := os.WriteFile(name, []byte(before), 0o640); err != nil {
			t.Fatal(err)
		}
		said := runLine(t, append([]string{"--file", name}, words...), nil)
		after, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(said, "[exit 2]") {
			t.Fatalf("%s: %s", command, said)
		}
		return string(after)
	}
	after := edit(before)
	crlf := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
	for _, v := range []struct {
		name         string
		before, want string
	}{
		{"with CRLF", crlf(before), crlf(after)},
		{"without the last line break", strings.TrimSuffix(before, "\n"), strings.TrimSuffix(after, "\n")},
		{"with a byte order mark", "\xef\xbb\xbf" + before, "\xef\xbb\xbf" + after},
	} {
		if got := edit(v.before); got != v.want {
			t.Errorf("%s %s: got\n%q\nwant\n%q", command, v.name, got, v.want)
		}
	}
	return after
}

// lineDiff is what leads from one text to another, by a longest common subsequence of lines.
func lineDiff(before, after string) string {
	a, b := strings.SplitAfter(before, "\n"), strings.SplitAfter(after, "\n")
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	var out strings.Builder
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common[i+1][j] >= common[i][j+1]):
			fmt.Fprintf(&out, "%d- %s", i+1, a[i])
			i++
		default:
			fmt.Fprintf(&out, "%d+ %s", j+1, b[j])
			j++
		}
	}
	return out.String()
}

func TestWriteFileAtomic(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string) {
		t.Helper()
		if err := writeFileAtomic(in(name), []byte("new")); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(name, want string, mode os.FileMode) {
		t.Helper()
		got, err := os.ReadFile(in(name))
		info, err2 := os.Lstat(in(name))
		if err != nil || err2 != nil || string(got) != want || info.Mode() != mode {
			t.Errorf("%s: got %q, %v, %v, %v", name, got, info.Mode(), err, err2)
		}
	}
	for _, mode := range []os.FileMode{0o600, 0o640, 0o664} {
		os.WriteFile(in("old"), []byte("old"), 0o600)
		os.Chmod(in("old"), mode)
		write("old")
		holds("old", "new", mode)
	}
	long := strings.Repeat("x", 255)
	write(long)
	holds(long, "new", 0o644)

	os.Mkdir(in("sub"), 0o755)
	os.WriteFile(in("sub/real"), []byte("old"), 0o644)
	for link, to := range map[string]string{"link": "sub/real", "sub/again": "../link", "hanging": "sub/made", "far": in("sub/far")} {
		if err := os.Symlink(to, in(link)); err != nil {
			t.Skip(err)
		}
		write(link)
		if got, err := os.Readlink(in(link)); err != nil || got != to {
			t.Errorf("%s: got a link to %q, %v", link, got, err)
		}
	}
	for _, name := range []string{"sub/real", "sub/made", "sub/far"} {
		holds(name, "new", 0o644)
	}

	os.Symlink("round", in("round"))
	for name, want := range map[string]string{
		"sub":     "write " + in("sub") + ": not a regular file",
		"no/file": "write " + in("no/file") + ": no such file or directory",
		"round":   "write " + in("round") + ": ",
	} {
		if err := writeFileAtomic(in(name), []byte("new")); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	left, _ := filepath.Glob(in(".*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	if os.Getuid() == 0 {
		return // root writes anywhere
	}
	os.Chmod(in("sub"), 0o555)
	defer os.Chmod(in("sub"), 0o755)
	os.WriteFile(in("sub/real"), []byte("old"), 0o644)
	if err := writeFileAtomic(in("sub/real"), []byte("new")); err == nil || err.Error() != "write "+in("sub/real")+": permission denied" {
		t.Errorf("got %v", err)
	}
	holds("sub/real", "old", 0o644)
}
