package journal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// diskOf is a disk with files of the given content, durable.
func diskOf(files map[string][]byte) *memory {
	m := newMemory()
	for name, b := range files {
		f := &memoryFile{m: m, data: slices.Clone(b), synced: slices.Clone(b)}
		m.names[join(dir, name)], m.synced[join(dir, name)] = f, f
	}
	return m
}

// filesOf is the content of a disk.
func filesOf(m *memory) map[string][]byte {
	files := map[string][]byte{}
	for name, f := range m.names {
		files[strings.TrimPrefix(name, dir+"/")] = slices.Clone(f.data)
	}
	return files
}

// told is what a recovery gave.
type told struct {
	snapshot string
	entries  []string // generation and payload

	generations []uint64
}

func (t told) String() string { return fmt.Sprintf("[%s]%s", t.snapshot, strings.Join(t.entries, ",")) }

func recovered(m *memory) (told, *Journal, error) {
	var got told
	j, err := open(m, dir, Options{})
	if err != nil {
		return got, nil, err
	}
	err = j.Recover(func(r io.Reader, _ int64) error {
		b, err := io.ReadAll(r)
		got.snapshot = string(b)
		return err
	}, func(generation uint64, payload []byte) error {
		got.generations = append(got.generations, generation)
		got.entries = append(got.entries, fmt.Sprintf("%d%s", generation, payload))
		return nil
	})
	return got, j, err
}

type entry struct {
	generation uint64
	payload    string
}

// journalOf is a journal of groups of entries, each written by one commit.
func journalOf(number, base uint64, groups ...[]entry) []byte {
	b := header(kindJournal, number, base)
	for _, group := range groups {
		begin := int64(len(b))
		for _, e := range group {
			b = appendFrame(b, number, int64(len(b)), begin, e.generation, []byte(e.payload))
		}
	}
	return b
}

func snapshotOf(number, base uint64, text string) []byte {
	f := &memoryFile{m: newMemory()}
	if err := writeSnapshot(f, number, base, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}); err != nil {
		panic(err)
	}
	return f.data
}

const (
	journal1, journal2, journal3 = "table.00000001.journal", "table.00000002.journal", "table.00000003.journal"
	snapshot2, snapshot3         = "table.00000002.snapshot", "table.00000003.snapshot"
)

// life is a journal of three commits, the second of three entries.
func life() []byte {
	return journalOf(1, 0, []entry{{1, "a"}}, []entry{{2, "bb"}, {3, ""}, {5, "a longer one, of some words"}}, []entry{{6, "last"}})
}

func flip(b []byte, at int) []byte {
	b = slices.Clone(b)
	b[at] ^= 0x10
	return b
}

func version9(b []byte) []byte {
	b = slices.Clone(b)
	b[8] = 9
	le.PutUint32(b[12:], headerSum(b))
	return b
}

func TestADirectoryIsReadAsFarAsItCanBeTrusted(t *testing.T) {
	two := []entry{{4, "d"}, {5, "e"}}
	old := journalOf(1, 0, []entry{{1, "a"}, {2, "b"}}, []entry{{3, "c"}})
	next := journalOf(2, 3, two)
	lost := func(b []byte, from, to int) []byte { // sectors that were not written
		b = slices.Clone(b)
		clear(b[from:to])
		return b
	}
	big := strings.Repeat("x", 700)
	wide := journalOf(1, 0, []entry{{1, "a"}}, []entry{{2, big}, {3, big}, {4, "d"}})
	wide2 := journalOf(1, 0, []entry{{1, "a"}}, []entry{{2, strings.Repeat("x", 1200)}})
	for _, c := range []struct {
		name  string
		files map[string][]byte
		want  string // what Recover tells; where it fails, a part of the error
		mend  string // what Recover tells after Repair; where that refuses, a part of the error
	}{
		{"nothing", nil, "[]", "[]"},
		{"other files", map[string][]byte{"notes": []byte("x"), "table.1.journal": []byte("x"), "table.00000001.journal.damaged-1": []byte("x")}, "[]", "[]"},
		{"one journal", map[string][]byte{journal1: old}, "[]1a,2b,3c", "[]1a,2b,3c"},
		{"two journals before their snapshot", map[string][]byte{journal1: old, journal2: next}, "[]1a,2b,3c,4d,5e", ""},
		{"a snapshot and its journal", map[string][]byte{snapshot2: snapshotOf(2, 3, "abc"), journal2: next}, "[abc]4d,5e", ""},
		{"an empty snapshot", map[string][]byte{snapshot2: snapshotOf(2, 3, ""), journal2: next}, "[]4d,5e", ""},
		{"what a snapshot made needless may be damaged", map[string][]byte{journal1: flip(old, 40), snapshot2: snapshotOf(2, 3, "abc"), journal2: next}, "[abc]4d,5e", ""},
		{"a file of the wrong number", map[string][]byte{journal1: journalOf(2, 0)}, "this is the journal of number 2 under the name of number 1", "[]"},

		{"an empty journal", map[string][]byte{journal1: {}}, "[]", "[]"},
		{"a journal of zeros", map[string][]byte{journal1: make([]byte, 5000)}, "[]", "[]"},
		{"an empty journal behind one with entries", map[string][]byte{journal1: old, journal2: {}}, "[]1a,2b,3c", ""},
		{"an empty journal behind a torn one", map[string][]byte{journal1: old[:len(old)-1], journal2: {}}, "[]1a,2b", ""},
		{"an empty journal before one with entries", map[string][]byte{journal1: {}, journal2: next}, "offset 0: there is no header", "[]"},
		{"a journal of garbage", map[string][]byte{journal1: bytes.Repeat([]byte("garbage "), 99)}, `this is no journal: it begins with "garbage "`, "[]"},
		{"a short journal of garbage", map[string][]byte{journal1: []byte("gar")}, `this is no journal: it begins with "gar"`, "[]"},
		{"a damaged header", map[string][]byte{journal1: flip(old, 17)}, "offset 0: the checksum of the header is wrong", "[]1a,2b,3c"},
		{"a damaged version", map[string][]byte{journal1: flip(old, 9)}, "offset 0: the version in the header is damaged", "[]1a,2b,3c"},
		{"a lost header", map[string][]byte{journal1: lost(old, 0, 32)}, "there is no header; behind it 3 entries", "[]1a,2b,3c"},
		{"a damaged header of a successor", map[string][]byte{journal1: old, journal2: flip(next, 17)}, "offset 0: the checksum of the header is wrong", "[]1a,2b,3c"},

		{"garbage behind the end", map[string][]byte{journal1: append(slices.Clone(old), "some words that are no entry"...)}, "[]1a,2b,3c", ""},
		{"zeros behind the end", map[string][]byte{journal1: append(slices.Clone(old), make([]byte, 4096)...)}, "[]1a,2b,3c", ""},
		{"a length beyond the end", map[string][]byte{journal1: append(slices.Clone(old), 1, 2, 3, 4, 0xff, 0xff, 0xff, 0xff, 9, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0)}, "[]1a,2b,3c", ""},
		{"damage in the last entry", map[string][]byte{journal1: flip(old, len(old)-8)}, "offset 96: the last entry, of generation 3, was written to its end (32 bytes), but its checksum is wrong", "[]1a,2b"},
		{"damage in the checksum of the last entry", map[string][]byte{journal1: flip(old, 96)}, "offset 96: the last entry", "[]1a,2b"},
		{"damage in the last of a commit of two", map[string][]byte{journal2: flip(next, len(next)-8), snapshot2: snapshotOf(2, 3, "abc")}, "offset 64: the last entry, of generation 5", "[abc]4d"},
		{"damage in a wide last entry", map[string][]byte{journal1: flip(wide2, 800)}, "offset 64: the last entry, of generation 2", "[]1a"},
		{"a lost sector of a wide last entry is torn", map[string][]byte{journal1: lost(wide2, 512, 1024)}, "[]1a", ""},
		{"a lost end of a wide last entry is torn", map[string][]byte{journal1: lost(wide2, 1024, len(wide2))}, "[]1a", ""},
		{"a last entry cut short is torn", map[string][]byte{journal1: wide2[:len(wide2)-8]}, "[]1a", ""},
		{"damage in the last length is torn", map[string][]byte{journal1: flip(old, 103)}, "[]1a,2b", ""},
		{"damage behind which there are zeros", map[string][]byte{journal1: append(flip(old, len(old)-8), make([]byte, 4096)...)}, "offset 96: the last entry", "[]1a,2b"},
		{"damage with a later commit behind it", map[string][]byte{journal1: flip(old, 32+24)}, "offset 32: no entry can be read, but this is not the end: behind it 2 entries can be read, of generations 2 to 3", "[]"},
		{"damage inside the last commit", map[string][]byte{journal2: flip(next, 32+24), snapshot2: snapshotOf(2, 3, "abc")}, "offset 32: no entry can be read", "[abc]"},
		{"a lost sector inside the last commit is torn", map[string][]byte{journal1: lost(wide, 512, 1024)}, "[]1a", ""},
		{"a lost first sector of the last commit is torn", map[string][]byte{journal1: lost(wide, 64, 512)}, "[]1a", ""},
		{"a lost sector before a later commit", map[string][]byte{journal1: lost(journalOf(1, 0, []entry{{2, big}, {3, big}}, []entry{{4, "d"}}), 512, 1024)}, "offset 32: no entry can be read, but this is not the end", "[]"},
		{"a generation that does not increase", map[string][]byte{journal1: journalOf(1, 0, []entry{{1, "a"}}, []entry{{1, "b"}})}, "generation 1 does not follow 1", "[]1a"},
		{"an old block of another place", map[string][]byte{journal1: append(slices.Clone(old), journalOf(1, 3, []entry{{9, "z"}})[32:]...)}, "[]1a,2b,3c", ""},

		{"damage in a journal with a successor", map[string][]byte{journal1: flip(old, len(old)-8), journal2: next}, "offset 96: no entry can be read, but generation 3 was committed", "[]1a,2b"},
		{"a journal with a successor is cut between entries", map[string][]byte{journal1: old[:96], journal2: next}, "offset 96: it ends at generation 2, but generation 3 was committed", "[]1a,2b"},
		{"remains of a failed commit before a successor", map[string][]byte{journal1: journalOf(1, 0, []entry{{1, "a"}, {2, "b"}}, []entry{{3, "c"}}, []entry{{4, "x"}, {9, "y"}}), journal2: next}, "[]1a,2b,3c,4d,5e", ""},
		{"torn remains before a successor", map[string][]byte{journal1: append(slices.Clone(old), "torn"...), journal2: next}, "[]1a,2b,3c,4d,5e", ""},
		{"a generation beyond the successor", map[string][]byte{journal1: journalOf(1, 0, []entry{{1, "a"}, {4, "b"}}), journal2: next}, "generation 4 comes before the next journal", "[]1a"},
		{"a journal is missing", map[string][]byte{journal1: old, journal3: journalOf(3, 5)}, journal2 + ": offset 0: the file is missing", "[]1a,2b,3c"},
		{"the journal of a snapshot is missing", map[string][]byte{snapshot2: snapshotOf(2, 3, "abc")}, journal2 + ": offset 0: the file is missing", "[abc]"},
		{"the snapshot is missing", map[string][]byte{journal2: next}, "the file is missing, and there is no snapshot for what follows (table.00000002.journal)", "refused"},
		{"a journal of another directory", map[string][]byte{snapshot2: snapshotOf(2, 7, "abc"), journal2: next}, "goes on behind generation 3, but what is before it ends at 7", "[abc]"},

		{"a damaged snapshot with the older state there", map[string][]byte{journal1: old, snapshot2: flip(snapshotOf(2, 3, "abc"), 33), journal2: next}, "[]1a,2b,3c,4d,5e", "[]1a,2b,3c,4d,5e"},
		{"a damaged snapshot with an older snapshot", map[string][]byte{snapshot2: snapshotOf(2, 3, "abc"), journal2: next, snapshot3: flip(snapshotOf(3, 5, "abcde"), 33), journal3: journalOf(3, 5, []entry{{6, "f"}})}, "[abc]4d,5e,6f", ""},
		{"a damaged snapshot alone", map[string][]byte{snapshot2: flip(snapshotOf(2, 3, "abc"), 33), journal2: next}, "offset 0: the checksum of the snapshot is wrong", "refused"},
		{"a damaged snapshot and a damaged older journal", map[string][]byte{journal1: flip(old, 40), snapshot2: flip(snapshotOf(2, 3, "abc"), 33), journal2: next}, "what is older does not lead as far", "refused"},
		{"a snapshot cut short", map[string][]byte{snapshot2: snapshotOf(2, 3, "abc")[:40], journal2: next}, "the snapshot is cut short", "refused"},
		{"an empty snapshot file", map[string][]byte{snapshot2: {}, journal2: next}, "the snapshot is cut short", "refused"},

		{"a snapshot of another version", map[string][]byte{journal1: old, snapshot2: version9(snapshotOf(2, 3, "abc")), journal2: next},
			"/state/table.00000002.snapshot: snapshot version 9: this program reads version 1; use the program that wrote it, or start with an empty directory", "version 9"},
		{"a journal of another version", map[string][]byte{journal1: old, journal2: version9(next)},
			"/state/table.00000002.journal: journal version 9: this program reads version 1; use the program that wrote it, or start with an empty directory", "version 9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			report, err := check(diskOf(c.files), dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			m := diskOf(c.files)
			got, j, err := recovered(m)
			if err != nil {
				var damage *DamageError
				var other *VersionError
				if !errors.As(err, &damage) && !errors.As(err, &other) {
					t.Errorf("%v is neither damage nor another version", err)
				}
				if damage != nil && !strings.Contains(err.Error(), "routectl state repair "+dir) {
					t.Errorf("%v does not say what to do", err)
				}
				if !strings.Contains(err.Error(), c.want) {
					t.Errorf("recover: %v, want %s", err, c.want)
				}
				if !maps.EqualFunc(filesOf(m), c.files, bytes.Equal) {
					t.Error("a recovery that failed changed files")
				}
				if report.OK {
					t.Errorf("check found nothing:\n%v", report)
				}
			} else if got.String() != c.want {
				t.Errorf("recover: %v, want %s", got, c.want)
			}
			if err == nil {
				again(t, m, j, got)
			}
			if c.mend != "" {
				mended(t, c.files, c.mend)
			}
		})
	}
}

// again appends to a recovered journal, and recovers that.
func again(t *testing.T, m *memory, j *Journal, before told) {
	t.Helper()
	j.Append(1000, []byte("new"))
	if err := j.Commit(); err != nil {
		t.Fatal(err)
	}
	j.Close()
	before.entries = append(before.entries, "1000new")
	got, j, err := recovered(m)
	if err != nil || got.String() != before.String() {
		t.Errorf("after a commit: %v, %v; want %v", got, err, before)
	}
	if got, want := j.Size(), int64(0); got <= want {
		t.Errorf("size %d", got)
	}
	j.Close()
}

// mended repairs a directory and recovers what is left.
func mended(t *testing.T, files map[string][]byte, want string) {
	t.Helper()
	m := diskOf(files)
	report, err := repair(m, dir, nil)
	if err != nil {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("repair: %v, want %s", err, want)
		}
		if strings.Contains(err.Error(), "state repair") {
			t.Errorf("a repair advises itself: %v", err)
		}
		if !maps.EqualFunc(filesOf(m), files, bytes.Equal) {
			t.Error("a repair that was refused changed files")
		}
		return
	}
	if !report.OK {
		t.Errorf("after a repair:\n%v", report)
	}
	var before, after int
	for _, b := range files {
		before += len(b)
	}
	for _, b := range filesOf(m) {
		after += len(b)
	}
	if after < before {
		t.Errorf("%d bytes after a repair, %d before: it threw some away\n%v", after, before, report)
	}
	got, j, err := recovered(m)
	if err != nil || got.String() != want {
		t.Errorf("after a repair: %v, %v; want %s\n%v", got, err, want, report)
		return
	}
	again(t, m, j, got)
}

func TestAJournalCutAnywhereGivesItsWholeEntries(t *testing.T) {
	b := life()
	whole := []string{"1a", "2bb", "3", "5a longer one, of some words", "6last"}
	ends := []int{64, 96, 120, 176, 208}
	for size := range len(b) + 1 {
		m := diskOf(map[string][]byte{journal1: b[:size]})
		got, j, err := recovered(m)
		n := 0
		for n < len(ends) && ends[n] <= size {
			n++
		}
		if err != nil || !slices.Equal(got.entries, whole[:n]) {
			t.Fatalf("cut at %d: %q, %v; want %q", size, got.entries, err, whole[:n])
		}
		again(t, m, j, got)
	}
}

func TestOneFlippedBitNeverGivesAWrongEntry(t *testing.T) {
	b := life()
	whole := []string{"1a", "2bb", "3", "5a longer one, of some words", "6last"}
	last := 176 // of the last commit
	for at := range b {
		for bit := range 8 {
			c := slices.Clone(b)
			c[at] ^= 1 << bit
			got, j, err := recovered(diskOf(map[string][]byte{journal1: c}))
			if n := len(got.entries); n > len(whole) || !slices.Equal(got.entries, whole[:n]) {
				t.Fatalf("byte %d bit %d: %q", at, bit, got.entries)
			}
			var damage *DamageError
			// What the head of the last entry tells of it may look like a torn end.
			torn := at >= last+4 && at < last+frameHead && err == nil
			if !torn && !errors.As(err, &damage) {
				t.Fatalf("byte %d bit %d: %q, %v; want damage", at, bit, got.entries, err)
			}
			if torn && len(got.entries) != 4 {
				t.Fatalf("byte %d bit %d: %q, %v; want all but the last", at, bit, got.entries, err)
			}
			j.Close()
		}
	}
	s := snapshotOf(2, 6, "the state")
	for at := range s {
		for bit := range 8 {
			c := slices.Clone(s)
			c[at] ^= 1 << bit
			got, _, err := recovered(diskOf(map[string][]byte{snapshot2: c, journal2: journalOf(2, 6)}))
			var damage *DamageError
			if !errors.As(err, &damage) || got.snapshot != "" {
				t.Fatalf("byte %d bit %d of a snapshot: %q, %v; want damage", at, bit, got.snapshot, err)
			}
		}
	}
}

// A file may be made such that a long frame seems to begin in many places.
func TestLookingBehindDamageIsLinear(t *testing.T) {
	b := journalOf(1, 0, []entry{{1, "a"}})
	for len(b) < 8<<20 {
		b = le.AppendUint32(b, 0)
		b = le.AppendUint32(b, 4<<20)
		b = le.AppendUint64(b, 7)
		b = le.AppendUint64(b, headerSize)
	}
	_, _, err := recovered(diskOf(map[string][]byte{journal1: b}))
	if err == nil || !strings.Contains(err.Error(), "more behind it looks like entries") {
		t.Errorf("%v", err)
	}
}

// The bytes of files outlive programs: a change of them is a new version.
func TestTheFormatIsWhatItWas(t *testing.T) {
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"journal", journalOf(1, 0, []entry{{1, "hello"}}), journalHex},
		{"snapshot", snapshotOf(2, 1, "hello"), snapshotHex},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
}

const (
	journalHex = "667073746a726e6c" + "01000000" + "1d8bbab1" + "0100000000000000" + "0000000000000000" +
		"6dd0a8b4" + "05000000" + "0100000000000000" + "2000000000000000" + "68656c6c6f" + "000000"
	snapshotHex = "66707374736e6170" + "01000000" + "5fa724d4" + "0200000000000000" + "0100000000000000" +
		"68656c6c6f" + "0500000000000000" + "5374f1ed"
)

func TestAFailedCommitCountsForNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		fail   func(m *memory)
		cause  error
		broken bool
	}{
		{"the disk is full", func(m *memory) { m.flood(m.calls+1, 1, syscall.ENOSPC) }, syscall.ENOSPC, false},
		{"the sync fails", func(m *memory) { m.flood(m.calls+2, 1, syscall.EIO) }, syscall.EIO, true},
		{"the write and the cut fail", func(m *memory) { m.flood(m.calls+1, 2, syscall.EIO) }, syscall.EIO, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMemory()
			_, j, err := recovered(m)
			if err != nil {
				t.Fatal(err)
			}
			commit := func(generation uint64) error {
				j.Append(generation, []byte("x"))
				return j.Commit()
			}
			if err := commit(1); err != nil {
				t.Fatal(err)
			}
			c.fail(m)
			err = commit(2)
			if !errors.Is(err, c.cause) || !strings.Contains(err.Error(), "/state/"+journal1) {
				t.Errorf("commit: %v, want %v", err, c.cause)
			}
			m.flood(0, 0, 0)
			if got := j.Broken() != nil; got != c.broken {
				t.Fatalf("broken: %v", j.Broken())
			}
			if err := commit(2); (err != nil) != c.broken {
				t.Errorf("the next commit: %v", err)
			}
			s, err := j.Rotate()
			if err != nil {
				t.Fatal(err)
			}
			if err := commit(3); (err != nil) != c.broken {
				t.Errorf("a commit before the snapshot: %v", err)
			}
			m.flood(m.calls+3, 1, syscall.ENOSPC)
			if err := s.Write(func(w io.Writer) error { return nil }); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("a snapshot on a full disk: %v", err)
			}
			if got := j.Broken() != nil; got != c.broken {
				t.Errorf("broken after a failed snapshot: %v", j.Broken())
			}
			if err := s.Write(func(w io.Writer) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if err := commit(4); err != nil || j.Broken() != nil {
				t.Errorf("after the snapshot: %v, %v", err, j.Broken())
			}
			if got := slices.Sorted(maps.Keys(filesOf(m))); !slices.Equal(got, []string{journal2, snapshot2}) {
				t.Errorf("files %q", got)
			}
		})
	}
}

// The snapshot of a rotation mends what was broken before it, not the journal that came with it.
func TestASnapshotDoesNotMendALaterJournal(t *testing.T) {
	m := newMemory()
	_, j, err := recovered(m)
	if err != nil {
		t.Fatal(err)
	}
	s, err := j.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	m.flood(m.calls+2, 1, syscall.EIO)
	if j.Append(1, nil); j.Commit() == nil || j.Broken() == nil {
		t.Fatal("a sync that fails")
	}
	if err := s.Write(func(io.Writer) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if j.Broken() == nil {
		t.Error("the journal is mended by the snapshot before it")
	}
}

func TestAJournalRefusesWhatCannotBeRight(t *testing.T) {
	m := newMemory()
	j, err := open(m, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if j.Append(1, nil); !errors.Is(j.Commit(), errNotRecovered) {
		t.Error("a commit before Recover")
	}
	if _, err := j.Rotate(); err == nil {
		t.Error("a rotation before Recover")
	}
	if err := j.Recover(nil, nil); err != nil {
		t.Fatal(err)
	}
	if j.Recover(nil, nil) == nil {
		t.Error("a second Recover")
	}
	for _, generation := range []uint64{0, 5, 5} {
		j.Append(generation, nil)
	}
	if j.Commit() == nil {
		t.Error("generation 0")
	}
	j.Append(5, nil)
	j.Append(5, nil)
	if _, err := j.Rotate(); err == nil {
		t.Error("a rotation with entries buffered")
	}
	if j.Commit() == nil {
		t.Error("a generation twice")
	}
	j.Append(5, nil)
	if err := j.Commit(); err != nil {
		t.Error(err)
	}
	s, err := j.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Close(), j.Close()); err != nil {
		t.Error(err)
	}
	if err := s.Write(nil); !errors.Is(err, errClosed) {
		t.Errorf("a snapshot after Close: %v", err)
	}
	if j.Append(6, nil); j.Commit() == nil {
		t.Error("a commit after Close")
	}
}

func TestALateSnapshotDoesNotReplaceANewerOne(t *testing.T) {
	m := newMemory()
	_, j, err := recovered(m)
	if err != nil {
		t.Fatal(err)
	}
	early, err1 := j.Rotate()
	late, err2 := j.Rotate()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	text := func(s string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
	}
	if err := errors.Join(late.Write(text("late")), early.Write(text("early")), j.Close()); err != nil {
		t.Fatal(err)
	}
	if got, _, err := recovered(m); err != nil || got.snapshot != "late" {
		t.Errorf("%v, %v", got, err)
	}
}

// resummed is a journal with the right checksums for what its lengths say.
func resummed(b []byte, number uint64) []byte {
	b = slices.Clone(b)
	if len(b) < headerSize {
		return b
	}
	le.PutUint32(b[12:], headerSum(b))
	for offset := headerSize; ; {
		size, ok := plausible(b, offset)
		if !ok {
			return b
		}
		le.PutUint32(b[offset:], frameSum(number, int64(offset), b[offset:offset+size]))
		offset += size
	}
}

func FuzzRecover(f *testing.F) {
	old, next := life(), journalOf(2, 6, []entry{{7, "g"}, {8, "h"}})
	f.Add(byte(2), []byte{}, old, []byte{})
	f.Add(byte(6), []byte{}, old, next)
	f.Add(byte(7), snapshotOf(2, 6, "abc"), old, next)
	f.Add(byte(5), snapshotOf(2, 6, "abc"), []byte{}, next)
	f.Add(byte(7), flip(snapshotOf(2, 6, "abc"), 33), old, flip(next, 60))
	f.Add(byte(2), []byte{}, flip(old, 70), []byte{})
	f.Add(byte(2), []byte{}, old[:190], []byte{})
	f.Add(byte(14), []byte{}, old, next)
	f.Fuzz(func(t *testing.T, there byte, snapshot, first, second []byte) {
		files := map[string][]byte{}
		if there&8 != 0 { // as if the checksums were right
			first, second = resummed(first, 1), resummed(second, 2)
		}
		for i, b := range [][]byte{snapshot, first, second} {
			if there&(1<<i) != 0 {
				files[[]string{snapshot2, journal1, journal2}[i]] = b
			}
		}
		report, err := check(diskOf(files), dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = report.String()
		m := diskOf(files)
		got, j, err := recovered(m)
		if err != nil {
			j.Close()
			if report.OK {
				t.Errorf("check found nothing, but: %v", err)
			}
			if _, err := repair(m, dir, nil); err != nil {
				var damage *DamageError
				var other *VersionError
				if !errors.As(err, &damage) && !errors.As(err, &other) || !maps.EqualFunc(filesOf(m), files, bytes.Equal) {
					t.Errorf("repair: %v", err)
				}
				return
			}
			if got, j, err = recovered(m); err != nil {
				t.Fatalf("after a repair: %v", err)
			}
		}
		j.Close()
		for i, generation := range got.generations {
			if generation == 0 || i > 0 && generation <= got.generations[i-1] {
				t.Errorf("generations %d", got.generations)
			}
		}
		if same, _, err := recovered(m); err != nil || same.String() != got.String() {
			t.Errorf("a second recovery: %v, %v; want %v", same, err, got)
		}
	})
}
