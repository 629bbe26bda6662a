package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fingerpost/fingerpost/internal/journal"
)

// opened opens and recovers dir, and tells what was there: the snapshot, then entries.
func opened(t testing.TB, dir string, o journal.Options) (*journal.Journal, string) {
	t.Helper()
	j, err := journal.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	var got strings.Builder
	err = j.Recover(func(r io.Reader, size int64) error {
		n, err := io.Copy(&got, r)
		if n != size {
			t.Errorf("a snapshot of %d bytes, told %d", n, size)
		}
		return err
	}, func(generation uint64, payload []byte) error {
		fmt.Fprintf(&got, " %d%s", generation, payload)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return j, got.String()
}

func commit(t testing.TB, j *journal.Journal, generation uint64, payload string) {
	t.Helper()
	j.Append(generation, []byte(payload))
	if err := j.Commit(); err != nil {
		t.Fatal(err)
	}
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

func names(t testing.TB, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

func TestWhatIsCommittedIsThereAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "var", "lib", "state")
	j, got := opened(t, dir, journal.Options{})
	if got != "" {
		t.Errorf("a new directory has %q", got)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", info.Mode(), err)
	}
	commit(t, j, 1, "a")
	commit(t, j, 4, "b")
	j.Append(5, []byte("never committed"))
	j.Close()

	j, got = opened(t, dir, journal.Options{})
	if want := " 1a 4b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	before := j.Size()
	if _, err := j.Rotate(); err != nil {
		t.Fatal(err)
	}
	commit(t, j, 5, "c")
	if j.Size() <= before {
		t.Errorf("size %d behind no new snapshot, %d before", j.Size(), before)
	}
	j.Close()

	// The snapshot was never written: both journals count.
	j, got = opened(t, dir, journal.Options{})
	if want := " 1a 4b 5c"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s, err := j.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	commit(t, j, 6, "d")
	if err := s.Write(func(io.Writer) error { return errors.New("no state") }); err == nil || !strings.Contains(err.Error(), "no state") {
		t.Errorf("a snapshot whose state fails: %v", err)
	}
	if err := s.Write(text("[abc]")); err != nil {
		t.Fatal(err)
	}
	if got, want := names(t, dir), []string{"lock", "table.00000003.journal", "table.00000003.snapshot"}; !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	if info, _ := os.Stat(filepath.Join(dir, "table.00000003.journal")); j.Size() != info.Size() {
		t.Errorf("size %d, the file has %d", j.Size(), info.Size())
	}
	j.Close()

	_, got = opened(t, dir, journal.Options{})
	if want := "[abc] 6d"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestASnapshotOfManyBytesIsStreamed(t *testing.T) {
	dir := t.TempDir()
	j, _ := opened(t, dir, journal.Options{})
	s, err := j.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	piece := bytes.Repeat([]byte("0123456789abcdef"), 4097)
	err = s.Write(func(w io.Writer) error {
		for range 50 {
			if _, err := w.Write(piece); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	j.Close()
	if _, got := opened(t, dir, journal.Options{}); got != strings.Repeat(string(piece), 50) {
		t.Errorf("%d bytes, want %d", len(got), 50*len(piece))
	}
}

// Alice commits while bob writes snapshots; whatever is read at the end is all of it.
func TestASnapshotIsWrittenWhileEntriesAreCommitted(t *testing.T) {
	dir := t.TempDir()
	j, _ := opened(t, dir, journal.Options{})
	var bob sync.WaitGroup
	state := ""
	for generation := uint64(1); generation <= 40; generation++ {
		word := fmt.Sprintf(" %dx", generation)
		commit(t, j, generation, "x")
		state += word
		if generation%8 == 0 {
			s, err := j.Rotate()
			if err != nil {
				t.Fatal(err)
			}
			now := state
			bob.Go(func() {
				if err := s.Write(text(now)); err != nil {
					t.Error(err)
				}
				_, _ = j.Size(), j.Broken()
			})
		}
	}
	bob.Wait()
	j.Close()
	if _, got := opened(t, dir, journal.Options{}); got != state {
		t.Errorf("got %q, want %q", got, state)
	}
}

func TestTwoRoutersDoNotShareADirectory(t *testing.T) {
	dir := t.TempDir()
	j, _ := opened(t, dir, journal.Options{})
	commit(t, j, 1, "a")
	want := fmt.Sprintf("%s is in use by another router (pid %d)", dir, os.Getpid())
	if _, err := journal.Open(dir, journal.Options{}); !errors.Is(err, journal.ErrInUse) || err.Error() != want {
		t.Errorf("open: %v, want %s", err, want)
	}
	if _, err := journal.Repair(dir, nil); !errors.Is(err, journal.ErrInUse) {
		t.Errorf("repair: %v", err)
	}
	report, err := journal.Check(dir, nil)
	if err != nil || !report.OK || !report.Held || report.PID != os.Getpid() {
		t.Errorf("check: %v\n%v", err, report)
	}
	j.Close()
	if report, err := journal.Check(dir, nil); err != nil || report.Held {
		t.Errorf("check after Close: %v\n%v", err, report)
	}
	opened(t, dir, journal.Options{})
}

func TestADirectoryThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Open(file, journal.Options{}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file: %v", err)
	}
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 { // who may do everything
		if _, err := journal.Open(closed, journal.Options{}); !errors.Is(err, os.ErrPermission) {
			t.Errorf("a read-only directory: %v", err)
		}
	}
	if _, err := journal.Check(filepath.Join(closed, "absent"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("check of no directory: %v", err)
	}
	if _, err := journal.Repair(filepath.Join(closed, "absent"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("repair of no directory: %v", err)
	}
}

func TestWhatACrashLeftIsRemovedAndLogged(t *testing.T) {
	dir := t.TempDir()
	j, _ := opened(t, dir, journal.Options{})
	commit(t, j, 1, "a")
	commit(t, j, 2, "b")
	j.Close()
	name := filepath.Join(dir, "table.00000001.journal")
	if err := os.Truncate(name, 90); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"table.00000002.snapshot.tmp", "table.00000002.journal.tmp", "value.node-id.tmp", "mine.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, left), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	_, got := opened(t, dir, journal.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if got != " 1a" {
		t.Errorf("got %q", got)
	}
	if info, err := os.Stat(name); err != nil || info.Size() != 64 {
		t.Errorf("the torn end is still there: %d bytes", info.Size())
	}
	if want := "file=" + name + " offset=64 bytes=26"; !strings.Contains(log.String(), want) {
		t.Errorf("log: %swant %s", &log, want)
	}
	if got, want := names(t, dir), []string{"lock", "mine.tmp", "table.00000001.journal"}; !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
}

func TestValues(t *testing.T) {
	dir := t.TempDir()
	j, _ := opened(t, dir, journal.Options{})
	if _, err := j.ReadValue("node-id"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a value that is absent: %v", err)
	}
	for _, want := range []string{"first", "", "second"} {
		if err := j.WriteValue("node-id", []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := j.ReadValue("node-id"); err != nil || string(got) != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	for _, name := range []string{"", "../x", "a/b", "a.tmp", "é"} {
		if err := j.WriteValue(name, nil); err == nil {
			t.Errorf("%q is taken for a name", name)
		}
		if _, err := j.ReadValue(name); err == nil || errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q is taken for a name", name)
		}
	}
}

func TestACallbackThatFailsEndsTheRecovery(t *testing.T) {
	dir := t.TempDir()
	j, _ := opened(t, dir, journal.Options{})
	commit(t, j, 1, "a")
	commit(t, j, 2, "b")
	j.Close()
	j, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	cause := errors.New("no such pick")
	err = j.Recover(nil, func(generation uint64, _ []byte) error {
		if generation == 2 {
			return cause
		}
		return nil
	})
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "table.00000001.journal: offset 64: entry of generation 2") {
		t.Errorf("recover: %v", err)
	}
	if j.Append(3, nil); j.Commit() == nil {
		t.Error("a commit after a recovery that failed")
	}
}

func TestADamagedDirectoryIsToldAndMended(t *testing.T) {
	dir := t.TempDir()
	j, _ := opened(t, dir, journal.Options{})
	for generation := uint64(1); generation <= 4; generation++ {
		commit(t, j, generation, "abc")
	}
	if _, err := j.Rotate(); err != nil {
		t.Fatal(err)
	}
	commit(t, j, 5, "abc")
	j.Close()
	name := filepath.Join(dir, "table.00000001.journal")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[64+24] ^= 1
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	problem := "offset 64: no entry can be read, but generation 4 was committed; behind it 2 entries can be read, of generations 3 to 4"
	report, err := journal.Check(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := "table.00000001.journal: version 1, 160 bytes, 1 entries, generations 1 to 1\n  problem: " + problem + "\n" +
		"table.00000002.journal: version 1, 64 bytes, 1 entries, generations 5 to 5\n" + dir + " is damaged\n"
	if got := report.String(); report.OK || got != want {
		t.Errorf("check:\n%s\nwant\n%s", got, want)
	}
	j, err = journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = j.Recover(nil, func(uint64, []byte) error { return nil })
	j.Close()
	var damage *journal.DamageError
	if !errors.As(err, &damage) || damage.File != "table.00000001.journal" || damage.Offset != 64 || damage.Dir != dir {
		t.Errorf("recover: %v", err)
	}
	if report, err = journal.Repair(dir, nil); err != nil {
		t.Fatal(err)
	}
	want = "table.00000001.journal: version 1, 64 bytes, 1 entries, generations 1 to 1\n" +
		"done: table.00000001.journal is cut at offset 64, 96 bytes are kept in table.00000001.journal.damaged-1: " + strings.TrimPrefix(problem, "offset 64: ") + "\n" +
		"done: table.00000002.journal is put aside as table.00000002.journal.damaged-1, it cannot follow: 1 entries, generations 5 to 5\n" +
		dir + " is whole\n"
	if got := report.String(); !report.OK || got != want {
		t.Errorf("repair:\n%s\nwant\n%s", got, want)
	}
	if kept, err := os.ReadFile(name + ".damaged-1"); err != nil || !bytes.Equal(kept, b[64:]) {
		t.Errorf("kept %d bytes, %v", len(kept), err)
	}
	if _, got := opened(t, dir, journal.Options{}); got != " 1abc" {
		t.Errorf("got %q", got)
	}
}

func BenchmarkCommit(b *testing.B) {
	payload := bytes.Repeat([]byte("x"), 150)
	for _, group := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(group), func(b *testing.B) {
			j, _ := opened(b, b.TempDir(), journal.Options{})
			var generation uint64
			b.ReportAllocs()
			for b.Loop() {
				for range group {
					generation++
					j.Append(generation, payload)
				}
				if err := j.Commit(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(generation), "ns/entry")
		})
	}
}

// BenchmarkAppend is the part of a commit that is not the disk.
func BenchmarkAppend(b *testing.B) {
	payload := bytes.Repeat([]byte("x"), 150)
	j, _ := opened(b, b.TempDir(), journal.Options{})
	var generation uint64
	b.ReportAllocs()
	for b.Loop() {
		generation++
		j.Append(generation, payload)
		if generation%5000 == 0 {
			b.StopTimer()
			if err := j.Commit(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
}

// TestEntriesAllocateNothing leaves a commit what it takes to ask the system whether the files are still there.
func TestEntriesAllocateNothing(t *testing.T) {
	j, _ := opened(t, t.TempDir(), journal.Options{})
	payload := make([]byte, 150)
	var generation uint64
	allocated := testing.AllocsPerRun(20, func() {
		for range 100 {
			generation++
			j.Append(generation, payload)
		}
		if err := j.Commit(); err != nil {
			t.Fatal(err)
		}
	})
	if allocated > 10 {
		t.Errorf("%v allocations for a commit of 100 entries", allocated)
	}
}
