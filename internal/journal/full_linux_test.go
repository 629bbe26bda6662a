package journal_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/fingerpost/fingerpost/internal/journal"
)

// A disk that is really full, where the test may mount one.
func TestAFullDiskRefusesAndTakesAgain(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	j, _ := opened(t, dir, journal.Options{})
	want := ""
	for range 3 {
		j.Append(uint64(len(want)/3+1), []byte("x"))
		if err := j.Commit(); err != nil {
			t.Fatal(err)
		}
		want += " " + string(rune('1'+len(want)/3)) + "x"
		j.Append(uint64(len(want)/3+1), []byte(strings.Repeat("y", 1000)))
		j.Append(uint64(len(want)/3+2), make([]byte, 1<<20))
		if err := j.Commit(); !errors.Is(err, syscall.ENOSPC) || j.Broken() != nil {
			t.Errorf("commit: %v, broken: %v", err, j.Broken())
		}
	}
	j.Close()
	if _, got := opened(t, dir, journal.Options{}); got != want {
		t.Errorf("got %.99q, want %q", got, want)
	}
}
