//go:build unix

package ctl

import (
	"bytes"
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestWhatIsNoFileIsRefused gives a pipe, a directory and a device where a file belongs: to open the first takes until somebody writes to it.
func TestWhatIsNoFileIsRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile("table.yaml", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pipe", ".", "/dev/null"} {
		for _, argv := range [][]string{
			{"load", name}, {"lint", name}, {"test", name}, {"diff", name}, {"apply", name}, {"store", name},
			{"--file", name, "list"}, {"--file", name, "add", "A", "h"},
		} {
			if argv[0] != "--file" && argv[0] != "lint" && argv[0] != "test" {
				argv = append([]string{"--file", "table.yaml"}, argv...)
			}
			var stderr bytes.Buffer
			status := Run(context.Background(), argv, Env{Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &stderr, Getenv: func(string) string { return "" }})
			if status == exitDone || !strings.Contains(stderr.String(), "not a regular file") {
				t.Errorf("%v: exit %d: %s", argv, status, &stderr)
			}
		}
	}
}
