package journal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/journal"
)

func refused(t *testing.T, j *journal.Journal, generation uint64, want string) {
	t.Helper()
	j.Append(generation, []byte("x"))
	if err := j.Commit(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("commit: got %v, want %q", err, want)
	}
}

func TestACommitToADirectoryThatIsGoneIsRefused(t *testing.T) {
	parent := t.TempDir()
	dir, elsewhere := filepath.Join(parent, "state"), filepath.Join(parent, "elsewhere")
	j, _ := opened(t, dir, journal.Options{})
	commit(t, j, 1, "a")
	if err := os.Rename(dir, elsewhere); err != nil {
		t.Fatal(err)
	}
	refused(t, j, 2, "was removed, moved or replaced")
	if _, err := j.Rotate(); err == nil {
		t.Error("a rotation in a directory that is gone")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	refused(t, j, 2, "was removed, moved or replaced")
	if err := j.WriteValue("v", nil); err == nil || len(names(t, dir)) > 0 {
		t.Errorf("a value was written to another directory: %v", names(t, dir))
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(elsewhere, dir); err != nil {
		t.Fatal(err)
	}
	commit(t, j, 2, "b")
	j.Close()
	j, got := opened(t, dir, journal.Options{})
	if got != " 1a 2b" {
		t.Errorf("got %q", got)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	refused(t, j, 3, "was removed, moved or replaced")
}

func TestAJournalFileThatIsGoneIsBegunAgain(t *testing.T) {
	dir := t.TempDir()
	j, _ := opened(t, dir, journal.Options{})
	commit(t, j, 1, "a")
	if err := os.Remove(filepath.Join(dir, "table.00000001.journal")); err != nil {
		t.Fatal(err)
	}
	refused(t, j, 2, "was removed or replaced")
	if j.Broken() == nil {
		t.Error("it is not broken")
	}
	w, err := j.Rotate()
	if err == nil {
		err = w.Write(text("snapshot"))
	}
	if err != nil {
		t.Fatal(err)
	}
	commit(t, j, 2, "b")
	j.Close()
	if _, got := opened(t, dir, journal.Options{}); got != "snapshot 2b" {
		t.Errorf("got %q", got)
	}
}
