package ctl

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/journal"
)

func TestStateCheckAndRepair(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	j, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = j.Recover(func(io.Reader, int64) error { return nil }, func(uint64, []byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for g := range uint64(20) {
		j.Append(g+1, []byte(strings.Repeat("x", 100)))
		if err := j.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	routectl := func(argv ...string) (int, string) {
		var out bytes.Buffer
		status := Run(context.Background(), argv, Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }})
		return status, strings.ReplaceAll(out.String(), dir, "DIR")
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if status, text := routectl("state", "check", dir); status != exitDone || !strings.HasSuffix(text, "20 entries, generations 1 to 20\nDIR is whole\n") {
		t.Errorf("whole: got exit %d: %s", status, text)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	damaged := ""
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && bytes.Contains(b, []byte("xxx")) {
			b[len(b)/2] ^= 0x55
			if err := os.WriteFile(f, b, 0o644); err != nil {
				t.Fatal(err)
			}
			damaged = filepath.Base(f)
		}
	}
	status, text := routectl("state", "check", dir)
	if status != exitNo || !strings.Contains(text, damaged) || !strings.HasSuffix(text, "DIR is damaged\n") {
		t.Errorf("damaged: got exit %d: %s", status, text)
	}
	if status, text := routectl("state", "check", dir, "-o", "json"); status != exitNo || !strings.Contains(text, `"ok": false`) || !strings.Contains(text, `"problem": `) {
		t.Errorf("damaged, as JSON: got exit %d: %s", status, text)
	}
	if status, text := routectl("state", "repair", dir); status != exitDone || !strings.Contains(text, "done: ") {
		t.Errorf("repair: got exit %d: %s", status, text)
	}
	if status, text := routectl("state", "check", dir); status != exitDone {
		t.Errorf("repaired: got exit %d: %s", status, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "value.node"), []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, text := routectl("state", "check", dir); status != exitDone || !strings.Contains(text, "value.node: 17 bytes, a value\n") {
		t.Errorf("a value: got exit %d: %s", status, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "value.node"), make([]byte, 17), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, text := routectl("state", "check", dir); status != exitNo || !strings.Contains(text, "problem: it is not a node id") {
		t.Errorf("a bad value: got exit %d: %s", status, text)
	}
	if status, text := routectl("state", "repair", dir); status != exitDone || !strings.Contains(text, "done: value.node is put aside as value.node.damaged-1") || !strings.HasSuffix(text, "DIR is whole\n") {
		t.Errorf("repair of a bad value: got exit %d: %s", status, text)
	}
	if status, text := routectl("state", "check", dir); status != exitDone {
		t.Errorf("a value put aside: got exit %d: %s", status, text)
	}
	for _, argv := range [][]string{{"state"}, {"state", "check"}, {"state", "check", filepath.Join(dir, "nobody")}, {"state", "mend", dir}, {"state", "repair", filepath.Join(dir, "nobody")},
		{"state", "check", filepath.Join(dir, "value.node.damaged-1")}, {"state", "repair", filepath.Join(dir, "lock", "x")}} {
		if status, text := routectl(argv...); status != exitUsage || strings.Count(text, "\n") != 1 {
			t.Errorf("%v: got exit %d: %s", argv, status, text)
		}
	}
}
