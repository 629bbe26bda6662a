package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const dir = "/state"

// keeper is a program that keeps a list of words in a journal, and knows what it was told.
type keeper struct {
	m       *memory
	j       *Journal
	acked   []string // what Commit said is there
	pending []string // of a commit that failed or was interrupted such that its entries may be there
	value   string   // what WriteValue said is there
	trying  string
	attempt int
}

// restart opens and recovers, and gives what is there.
func restart(m *memory) (*Journal, []string, error) {
	j, err := open(m, dir, Options{})
	if err != nil {
		return nil, nil, err
	}
	var words []string
	err = j.Recover(func(r io.Reader, size int64) error {
		b, err := io.ReadAll(r)
		if err != nil || int64(len(b)) != size {
			return fmt.Errorf("read %d of %d bytes: %w", len(b), size, err)
		}
		if size > 0 {
			words = strings.Split(string(b), "\n")
		}
		return nil
	}, func(generation uint64, payload []byte) error {
		if int(generation) != len(words)+1 {
			return fmt.Errorf("generation %d behind %d words", generation, len(words))
		}
		words = append(words, string(payload))
		return nil
	})
	return j, words, err
}

func (k *keeper) commit(words, size int) {
	k.attempt++
	var group []string
	for i := range words {
		word := fmt.Sprintf("%d/%d/%d %s", len(k.acked)+i+1, k.attempt, i, strings.Repeat("x", size))
		group = append(group, word)
		k.j.Append(uint64(len(k.acked)+i+1), []byte(word))
	}
	wasBroken := k.j.Broken() != nil
	if !wasBroken {
		k.pending = group
	}
	switch err := k.j.Commit(); {
	case err == nil:
		k.acked, k.pending = append(k.acked, group...), nil
	case k.j.Broken() == nil:
		k.pending = nil
	}
}

func (k *keeper) rotate() *SnapshotWriter {
	s, err := k.j.Rotate()
	if err != nil {
		return nil
	}
	return s
}

// save writes the snapshot of a rotation at which the first n words were there.
func (k *keeper) save(s *SnapshotWriter, n int) {
	if s == nil {
		return
	}
	words := k.acked[:n]
	err := s.Write(func(w io.Writer) error { _, err := io.WriteString(w, strings.Join(words, "\n")); return err })
	if err == nil && k.j.Broken() == nil {
		k.pending = nil
	}
}

// mend does what a program does with a broken journal.
func (k *keeper) mend() {
	if k.j.Broken() != nil {
		k.save(k.rotate(), len(k.acked))
	}
}

func (k *keeper) set(value string) {
	k.trying = value
	if k.j.WriteValue("node-id", []byte(value)) == nil {
		k.value = value
	}
}

// run is a life with all that a journal does. It ends early where the directory cannot be opened.
func (k *keeper) run(t *testing.T) {
	defer func() {
		if p := recover(); p != nil && p != any(errCrash) {
			panic(p)
		}
	}()
	for life := range 2 {
		j, words, err := restart(k.m)
		k.j = j
		if err != nil {
			if j != nil {
				j.Close()
			}
			return
		}
		k.settle(t, words)
		k.set(fmt.Sprint("node-", life))
		k.commit(1, 10)
		k.commit(3, 300)
		k.mend()
		s, n := k.rotate(), len(k.acked)
		k.commit(2, 5)
		k.save(s, n)
		k.commit(4, 700)
		k.mend()
		k.save(k.rotate(), len(k.acked))
		k.commit(1, 0)
		k.rotate() // its snapshot is never written
		k.commit(3, 20)
		k.mend()
		k.commit(1, 1)
		j.Close()
	}
}

// settle compares what a recovery gave with what was told, and takes it as the truth.
func (k *keeper) settle(t *testing.T, words []string) {
	t.Helper()
	most := slices.Concat(k.acked, k.pending)
	if len(words) < len(k.acked) || len(words) > len(most) || !slices.Equal(words, most[:len(words)]) {
		t.Errorf("recovered %.300q, want %.300q and perhaps %.300q", words, k.acked, k.pending)
	}
	k.acked, k.pending = words, nil
}

// verify has another process go on with the disk m, with a crash after its first commit too.
func (k *keeper) verify(t *testing.T, rng *rand.Rand, m *memory) {
	t.Helper()
	j, words, err := restart(m)
	if err != nil {
		t.Errorf("restart: %v", err)
		return
	}
	after := *k
	after.settle(t, words)
	value, err := j.ReadValue("node-id")
	if errors.Is(err, fs.ErrNotExist) {
		value, err = nil, nil
	}
	if got := string(value); err != nil || got != k.value && got != k.trying {
		t.Errorf("value %q, %v; want %q or %q", got, err, k.value, k.trying)
	}
	after.m, after.j = m, j
	for range 2 {
		for range 2 {
			if _, words, err := restart(m.crashed(rng)); err != nil || !slices.Equal(words, after.acked) {
				t.Errorf("after another crash: %.300q, %v; want %.300q", words, err, after.acked)
			}
		}
		after.commit(1, 3)
	}
	after.save(after.rotate(), len(after.acked))
	if len(after.acked) != len(words)+2 {
		t.Error("a recovered journal takes no entries")
	}
	j.Close()
	want := 2
	if _, err := m.open(join(dir, "value.node-id"), 0); err == nil {
		want = 3
	}
	if report, err := check(m, dir, nil); err != nil || !report.OK || len(report.Files) != want {
		t.Errorf("check: %v\n%v", err, report)
	}
}

func TestACrashOrAnErrorAtEveryCallLosesNothingAcknowledged(t *testing.T) {
	quiet := &keeper{m: newMemory()}
	quiet.run(t)
	calls := quiet.m.calls
	if len(quiet.acked) != 30 || quiet.pending != nil {
		t.Fatalf("a quiet life ends with %d words", len(quiet.acked))
	}
	step := 1
	if testing.Short() {
		step = 7
	}
	type trouble struct {
		name string
		set  func(m *memory, at int)
	}
	for _, c := range []trouble{
		{"the machine goes down", func(m *memory, at int) { m.crashAt = at }},
		{"one call finds a full disk", func(m *memory, at int) { m.flood(at, 1, syscall.ENOSPC) }},
		{"two calls fail", func(m *memory, at int) { m.flood(at, 2, syscall.EIO) }},
		{"six calls fail", func(m *memory, at int) { m.flood(at, 6, syscall.EIO) }},
		{"the disk is gone", func(m *memory, at int) { m.flood(at, math.MaxInt32, syscall.EIO) }},
		{"a call fails and the machine goes down soon", func(m *memory, at int) {
			m.flood(at, 1, syscall.ENOSPC)
			m.crashAt = at + 3
		}},
		{"calls fail and the machine goes down later", func(m *memory, at int) {
			m.flood(at, 2, syscall.EIO)
			m.crashAt = at + 11
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for at := 1; at <= calls && !t.Failed(); at += step {
				k := &keeper{m: newMemory()}
				c.set(k.m, at)
				k.run(t)
				rng := rand.New(rand.NewPCG(1, uint64(at)))
				for range 2 {
					k.verify(t, rng, k.m.crashed(rng))
				}
				k.verify(t, rng, k.m.left())
				if t.Failed() {
					t.Logf("at call %d of %d", at, calls)
				}
			}
		})
	}
}
