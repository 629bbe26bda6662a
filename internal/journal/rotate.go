package journal

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// SnapshotWriter writes the snapshot of one rotation.
type SnapshotWriter struct {
	j      *Journal
	number uint64
	base   uint64
}

// Rotate begins a new journal file; what is appended from now on is in it. The caller then gives the state as it was at this moment to Write
// of the SnapshotWriter, on any goroutine. Until that has succeeded, a recovery reads the older snapshot and all journals behind it.
//
// Nothing may be buffered. On an error the old file stays in use.
func (j *Journal) Rotate() (*SnapshotWriter, error) {
	if j.f == nil {
		return nil, fmt.Errorf("rotate %s: %w", j.dir, errNotRecovered)
	}
	if len(j.buf) > 0 || j.refused != nil {
		return nil, fmt.Errorf("rotate %s: entries are not committed", j.dir)
	}
	if err := j.gone(); err != nil {
		return nil, err
	}
	next := j.number + 1
	f, named, err := j.begin(next, j.last)
	if err != nil {
		err = fmt.Errorf("rotate: begin %s: %w", join(j.dir, fileName(kindJournal, next)), err)
		if named {
			// A recovery that finds the new file reads the old one only as far as now: either the new one goes, or the old one ends.
			if undo := j.unname(next); undo != nil {
				err = errors.Join(err, undo)
				j.breakOff(err)
			}
		}
		return nil, err
	}
	if err := j.f.Close(); err != nil {
		j.log.Warn("close an old journal", "file", j.name, "err", err)
	}
	j.f, j.name, j.number, j.end = f, join(j.dir, fileName(kindJournal, next)), next, headerSize
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sizes[next] = headerSize
	return &SnapshotWriter{j: j, number: next, base: j.last}, nil
}

// begin makes and opens journal number, behind generation base. named says that the name may be there, although there is an error.
func (j *Journal) begin(number, base uint64) (f file, named bool, err error) {
	name := fileName(kindJournal, number)
	named, err = place(j.disk, j.dir, name, func(f file) error {
		_, err := f.WriteAt(header(kindJournal, number, base), 0)
		return err
	})
	if err != nil {
		return nil, named, err
	}
	f, err = j.disk.open(join(j.dir, name), os.O_RDWR)
	return f, true, err
}

func (j *Journal) unname(number uint64) error {
	if err := j.disk.remove(join(j.dir, fileName(kindJournal, number))); err != nil {
		return err
	}
	return j.disk.syncDir(j.dir)
}

// Write makes the snapshot from what f writes, durable and checksummed, and then removes the snapshots and journals before it, and mends a
// journal that was broken before the rotation. On an error, its own or the one of f, the state of the directory is as before, and
// Write may be called again. Where a later snapshot is whole already, nothing is done.
func (s *SnapshotWriter) Write(f func(w io.Writer) error) error {
	j := s.j
	name := fileName(kindSnapshot, s.number)
	j.mu.Lock()
	closed, overtaken := j.closed, j.snapshot >= s.number
	if !closed {
		j.writers.Add(1)
	}
	j.mu.Unlock()
	if closed {
		return fmt.Errorf("write %s: %w", join(j.dir, name), errClosed)
	}
	defer j.writers.Done()
	if overtaken {
		return nil
	}
	if err := j.gone(); err != nil {
		return err
	}
	// A file that has its name but not durably is whole and is of the same state: it may stay, whatever a crash makes of it.
	if _, err := place(j.disk, j.dir, name, func(out file) error { return writeSnapshot(out, s.number, s.base, f) }); err != nil {
		return fmt.Errorf("write %s: %w", join(j.dir, name), err)
	}
	j.mu.Lock()
	newest := max(j.snapshot, s.number) // another may have been quicker
	j.snapshot = newest
	for number := range j.sizes {
		if number < newest {
			delete(j.sizes, number)
		}
	}
	if j.brokenAt < newest {
		j.broken = nil
	}
	j.mu.Unlock()
	j.removeBefore(newest)
	return nil
}

// writeSnapshot writes a whole snapshot file.
func writeSnapshot(out file, number, base uint64, f func(w io.Writer) error) error {
	sum := &summing{w: io.NewOffsetWriter(out, 0)}
	w := bufio.NewWriterSize(sum, 64<<10)
	_, _ = w.Write(header(kindSnapshot, number, base)) // Flush tells
	if err := f(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	length := le.AppendUint64(nil, uint64(sum.n-headerSize))
	if _, err := sum.Write(length); err != nil {
		return err
	}
	_, err := sum.w.Write(le.AppendUint32(nil, sum.crc))
	return err
}

// summing counts and checksums what goes through.
type summing struct {
	w   io.Writer
	n   int64
	crc uint32
}

func (s *summing) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	s.n += int64(n)
	s.crc = crc32.Update(s.crc, castagnoli, b[:n])
	return n, err
}

// removeBefore removes what a snapshot makes needless. What cannot be removed is passed over by a recovery, and tried again at the next snapshot.
func (j *Journal) removeBefore(snapshot uint64) {
	names, err := j.disk.list(j.dir)
	if err != nil {
		j.log.Warn("older files stay", "dir", j.dir, "err", err)
		return
	}
	h := holdingsOf(names)
	for _, number := range h.snapshots {
		if number < snapshot {
			j.discard(fileName(kindSnapshot, number))
		}
	}
	for _, number := range h.journals {
		if number < snapshot {
			j.discard(fileName(kindJournal, number))
		}
	}
}
