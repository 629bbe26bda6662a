//go:build unix

package journal_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fingerpost/fingerpost/internal/journal"
)

// TestAPipeIsNoJournal puts a pipe in the place of each file: to open one waits for whoever writes to it.
func TestAPipeIsNoJournal(t *testing.T) {
	for _, name := range []string{"table.00000001.journal", "table.00000002.snapshot", "lock"} {
		dir := t.TempDir()
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Skip(err)
		}
		_, err := journal.Check(dir, nil)
		if name != "lock" && (err == nil || !strings.Contains(err.Error(), "not a regular file")) {
			t.Errorf("%s: check: %v", name, err)
		}
		j, err := journal.Open(dir, journal.Options{})
		if err == nil {
			err = j.Recover(nil, nil)
			j.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: open: %v", name, err)
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lock"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Open(dir, journal.Options{}); err == nil {
		t.Error("a directory is no lock")
	}
}
