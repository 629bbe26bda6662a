package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// Options are the choices of Open; the zero value is usable.
type Options struct {
	Log *slog.Logger // what was cut off, passed over or could not be removed; nil: nowhere
}

// Journal is a directory in use.
//
// Recover, Append, Commit and Rotate are for one goroutine. Size, Broken, ReadValue, WriteValue and the writing of a snapshot may run on others.
type Journal struct {
	// Set at construction, never changed.
	dir  string
	disk disk
	log  *slog.Logger
	lock held

	// Owned by the goroutine that appends.
	f         file   // nil before Recover and after Close
	name      string // of f, with the directory
	number    uint64 // of f
	end       int64  // behind the last committed entry of f
	last      uint64 // generation of the last committed entry, in f or before it
	buf       []byte // frames for the next Commit; Invariant: they belong at end
	appended  uint64 // generation of the last entry in buf; last where that is empty
	refused   error  // why the next Commit cannot be
	recovered bool   // Recover was called

	writers sync.WaitGroup // snapshots being written; grows only while closed is false

	mu       sync.Mutex // guards what follows; a leaf: nothing is called while it is held
	closed   bool
	snapshot uint64           // number of the newest whole snapshot; 0: none
	sizes    map[uint64]int64 // bytes of each journal from that number on
	broken   error
	brokenAt uint64 // journal of broken; a whole snapshot of a later number mends it
}

// Open takes the directory dir, which is made (mode 0700) where it is absent, and removes temporary files that a crash left. Where another
// process has it, the error is ErrInUse and names that one's pid. The next call is Recover.
func Open(dir string, o Options) (*Journal, error) { return open(system{}, dir, o) }

func open(d disk, dir string, o Options) (*Journal, error) {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := d.mkdir(dir); err != nil {
		return nil, fmt.Errorf("make directory %s: %w", dir, err)
	}
	lock, err := take(d, dir)
	if err != nil {
		return nil, err
	}
	j := &Journal{dir: dir, disk: d, log: log, lock: lock, sizes: map[uint64]int64{}}
	if err := j.tidy(); err != nil {
		lock.Close()
		return nil, err
	}
	return j, nil
}

// take takes the lock of dir.
func take(d disk, dir string) (held, error) {
	name := join(dir, lockName)
	lock, err := d.lock(name)
	switch {
	case errors.Is(err, ErrInUse):
		if pid, held := d.holder(name); held && pid != 0 {
			return nil, fmt.Errorf("%s %w (pid %d)", dir, ErrInUse, pid)
		}
		return nil, fmt.Errorf("%s %w", dir, ErrInUse)
	case err != nil:
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return lock, nil
}

const lockName = "lock"

// tidy removes temporary files. Nothing reads them, so one that stays does no harm.
func (j *Journal) tidy() error {
	names, err := j.disk.list(j.dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", j.dir, err)
	}
	for _, name := range holdingsOf(names).temporaries {
		j.discard(name)
	}
	return nil
}

// gone says how the directory was taken away; nil: it was not. It is asked before anything is written, since what is written to files that have no
// name is lost with the process. Two calls of the system: some microseconds.
func (j *Journal) gone() error {
	if !j.lock.named(join(j.dir, lockName)) {
		return fmt.Errorf("%s was removed, moved or replaced while this router has it: nothing is kept until it is back, or the router was started again", j.dir)
	}
	return nil
}

// discard removes a file that is not needed.
func (j *Journal) discard(name string) {
	if err := j.disk.remove(join(j.dir, name)); err != nil {
		j.log.Warn("a file that is not needed stays", "file", join(j.dir, name), "err", err)
	}
}

// Size is the bytes in journals behind the newest whole snapshot, with 32 for each header: what a recovery has to read besides.
func (j *Journal) Size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	var total int64
	for _, size := range j.sizes {
		total += size
	}
	return total
}

// Broken says why nothing can be committed; nil: it can. Only a rotation with its snapshot mends it.
func (j *Journal) Broken() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.broken
}

// breakOff has every Commit fail until a snapshot is whole that does not need the current journal.
func (j *Journal) breakOff(cause error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.broken, j.brokenAt = cause, j.number
}

// Close waits for snapshots that are being written, and releases the directory. What is buffered was never committed, and is dropped.
func (j *Journal) Close() error {
	j.mu.Lock()
	closed := j.closed
	j.closed = true
	j.mu.Unlock()
	if closed {
		return nil
	}
	j.writers.Wait()
	var err error
	if j.f != nil {
		err = j.f.Close()
		j.f, j.buf = nil, nil
	}
	if released := j.lock.Close(); err == nil {
		err = released
	}
	if err != nil {
		return fmt.Errorf("close %s: %w", j.dir, err)
	}
	return nil
}
