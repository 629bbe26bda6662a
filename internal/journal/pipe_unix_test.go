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

// TestAPipeIsNoJournal puts a pipe, and a directory, in the place of each file: to open a pipe waits for whoever writes to it.
func TestAPipeIsNoJournal(t *testing.T) {
	for _, name := range []string{"table.00000001.journal", "table.00000002.snapshot", "lock"} {
		t.Run("a pipe for "+name, func(t *testing.T) { inPlace(t, name, syscall.Mkfifo) })
		t.Run("a directory for "+name, func(t *testing.T) {
			inPlace(t, name, func(path string, mode uint32) error { return os.Mkdir(path, os.FileMode(mode)|0o100) })
		})
	}
}

// inPlace has something made in the place of a file: a check says so, as a start does.
func inPlace(t *testing.T, name string, place func(path string, mode uint32) error) {
	dir := t.TempDir()
	if err := place(filepath.Join(dir, name), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := journal.Check(dir, nil)
	if name != "lock" && (err == nil || !strings.Contains(err.Error(), "not a regular file")) {
		t.Errorf("check: %v", err)
	}
	j, err := journal.Open(dir, journal.Options{})
	if err == nil {
		err = j.Recover(nil, nil)
		j.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("open: %v", err)
	}
}
