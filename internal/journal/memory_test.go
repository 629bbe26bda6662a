package journal

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// errCrash is what a memory disk panics with where the machine goes down.
var errCrash = errors.New("crash")

// memory is a disk that knows what is durable and what is only cached, and fails or crashes at a chosen call.
type memory struct {
	names  map[string]*memoryFile // as programs see them
	synced map[string]*memoryFile // as they are after a crash
	steps  []func(names map[string]*memoryFile)
	locked bool

	calls           int
	failFrom, until int // calls in [failFrom, until) fail
	cause           error
	crashAt         int // 0: never
}

type memoryFile struct {
	m            *memory
	data, synced []byte
}

func newMemory() *memory {
	return &memory{names: map[string]*memoryFile{}, synced: map[string]*memoryFile{}}
}

func (m *memory) call() error {
	m.calls++
	if m.calls == m.crashAt {
		panic(errCrash)
	}
	if m.calls >= m.failFrom && m.calls < m.until {
		return m.cause
	}
	return nil
}

func (m *memory) step(do func(names map[string]*memoryFile)) {
	do(m.names)
	m.steps = append(m.steps, do)
}

func (m *memory) mkdir(string) error { return m.call() }

func (m *memory) open(name string, flag int) (file, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	f := m.names[name]
	switch {
	case f == nil && flag&os.O_CREATE == 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case f == nil:
		f = &memoryFile{m: m}
		m.step(func(names map[string]*memoryFile) { names[name] = f })
	case flag&os.O_TRUNC != 0:
		f.data = nil
	}
	return f, nil
}

func (m *memory) list(dir string) ([]string, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	var names []string
	for name := range m.names {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	return names, nil
}

func (m *memory) rename(from, to string) error {
	if err := m.call(); err != nil {
		return err
	}
	m.step(func(names map[string]*memoryFile) {
		names[to] = names[from]
		delete(names, from)
	})
	return nil
}

func (m *memory) remove(name string) error {
	if err := m.call(); err != nil {
		return err
	}
	if m.names[name] == nil {
		return fs.ErrNotExist
	}
	m.step(func(names map[string]*memoryFile) { delete(names, name) })
	return nil
}

func (m *memory) syncDir(string) error {
	if err := m.call(); err != nil {
		return err
	}
	m.synced, m.steps = maps.Clone(m.names), nil
	return nil
}

func (m *memory) lock(string) (held, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	if m.locked {
		return nil, ErrInUse
	}
	m.locked = true
	return unlock{m}, nil
}

func (m *memory) holder(string) (int, bool) { return 0, m.locked }

type unlock struct{ m *memory }

func (u unlock) Close() error      { u.m.locked = false; return nil }
func (u unlock) named(string) bool { return true }

func (f *memoryFile) ReadAt(b []byte, at int64) (int, error) {
	if err := f.m.call(); err != nil {
		return 0, err
	}
	if at >= int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.data[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt writes half where it fails, as a full disk does, and half where the machine goes down. The half of a failure is on the disk at once: the
// system may write back when it likes.
func (f *memoryFile) WriteAt(b []byte, at int64) (n int, err error) {
	if f.m.calls+1 == f.m.crashAt {
		f.put(b[:len(b)/2], at)
	}
	if err := f.m.call(); err != nil {
		f.put(b[:len(b)/2], at)
		f.synced = slices.Clone(f.data)
		return len(b) / 2, err
	}
	f.put(b, at)
	return len(b), nil
}

func (f *memoryFile) put(b []byte, at int64) {
	f.data = resize(f.data, max(len(f.data), int(at)+len(b)))
	copy(f.data[at:], b)
}

// resize gives a copy, longer with zeros or shorter.
func resize(b []byte, size int) []byte {
	c := make([]byte, size)
	copy(c, b)
	return c
}

func (f *memoryFile) Truncate(size int64) error {
	if err := f.m.call(); err != nil {
		return err
	}
	f.data = resize(f.data, int(size))
	return nil
}

func (f *memoryFile) Sync() error {
	if err := f.m.call(); err != nil {
		return err
	}
	f.synced = slices.Clone(f.data)
	return nil
}

func (f *memoryFile) named(name string) bool { return f.m.names[name] == f }

func (f *memoryFile) Datasync() error      { return f.Sync() }
func (f *memoryFile) Size() (int64, error) { return int64(len(f.data)), f.m.call() }
func (f *memoryFile) Close() error         { return f.m.call() }

// crashed is the disk after the machine went down: a first part of the changes of the directory that were not synced is there, and of each
// file any sectors that were not synced, or others.
func (m *memory) crashed(rng *rand.Rand) *memory {
	after := newMemory()
	names := maps.Clone(m.synced)
	for _, step := range m.steps[:rng.IntN(len(m.steps)+1)] {
		step(names)
	}
	for name, f := range names {
		data := mixed(rng, f.synced, f.data)
		g := &memoryFile{m: after, data: data, synced: slices.Clone(data)}
		after.names[name], after.synced[name] = g, g
	}
	return after
}

func mixed(rng *rand.Rand, synced, cached []byte) []byte {
	low, high := min(len(synced), len(cached)), max(len(synced), len(cached))
	size := []int{len(synced), len(cached), low + rng.IntN(high-low+1)}[rng.IntN(3)]
	b, other := resize(synced, size), resize(cached, size)
	for s := 0; s < size; s += sector {
		if rng.IntN(2) == 0 {
			copy(b[s:min(s+sector, size)], other[s:])
		}
	}
	return b
}

// left is the same disk after the process ended: what was cached is, and is still not durable.
func (m *memory) left() *memory {
	m.crashAt, m.failFrom, m.until, m.locked = 0, 0, 0, false
	return m
}

// flood has every call from one on fail, count times.
func (m *memory) flood(from, count int, cause syscall.Errno) {
	m.failFrom, m.until, m.cause = from, from+count, cause
}
