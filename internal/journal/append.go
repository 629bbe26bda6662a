package journal

import (
	"errors"
	"fmt"
	"io/fs"
)

// keepBuffer is what a buffer may keep between commits: enough for 20 000 usual entries.
const keepBuffer = 8 << 20

var errNotRecovered = errors.New("the journal was not recovered")

// Append buffers an entry for the next Commit; payload is copied. Generations begin above 0 and strictly increase, also over files; an
// entry whose Commit failed was never there, so its generation may come again. What cannot be written, such as a generation that does
// not increase, is told by the Commit.
func (j *Journal) Append(generation uint64, payload []byte) {
	switch {
	case j.refused != nil:
	case j.f == nil:
		j.refused = errNotRecovered
	case generation <= j.appended:
		j.refused = fmt.Errorf("append to %s: generation %d does not follow %d", j.name, generation, j.appended)
	case len(payload) > maxPayload:
		j.refused = fmt.Errorf("append to %s: an entry of %d bytes, at most %d fit", j.name, len(payload), maxPayload)
	default:
		j.buf = appendFrame(j.buf, j.number, j.end+int64(len(j.buf)), j.end, generation, payload)
		j.appended = generation
	}
}

// Commit writes what is buffered with one write and one sync; where it returns nil, a crash cannot take that away.
//
// On an error none of it counts and the buffer is empty: what was written of it is cut off. Where the system says that a sync or the cut
// failed, or the file is no longer there, it is not to be trusted: the journal is broken until Rotate and the Write of its snapshot succeed. If the process ends
// before that, a recovery may find the entries of that last commit.
//
// Cost: about 110 ns for each entry of 150 bytes to frame it, about 1 µs with the disk in a group of 10 000, and one sync: a millisecond or a few.
func (j *Journal) Commit() error {
	buf, appended, refused := j.buf, j.appended, j.refused
	j.buf, j.appended, j.refused = j.buf[:0], j.last, nil
	if cap(j.buf) > keepBuffer {
		j.buf = nil
	}
	if broken := j.Broken(); broken != nil {
		return fmt.Errorf("commit to %s: nothing is written until a new snapshot is: %w", j.name, broken)
	}
	switch {
	case refused != nil:
		return refused
	case j.f == nil:
		return errNotRecovered
	case len(buf) == 0:
		return nil
	}
	if err := j.gone(); err != nil {
		return err
	}
	if !j.f.named(j.name) {
		err := fmt.Errorf("%s was removed or replaced while this router has it", j.name)
		j.breakOff(err)
		return err
	}
	if _, err := j.f.WriteAt(buf, j.end); err != nil {
		err = fmt.Errorf("write %s: %w", j.name, reason(err))
		if cut := j.cut(); cut != nil {
			err = errors.Join(err, fmt.Errorf("cut %s at %d: %w", j.name, j.end, reason(cut)))
			j.breakOff(err)
		}
		return err
	}
	if err := j.f.Datasync(); err != nil {
		// The kernel may have dropped the pages and would call the next sync good: the file is given up, the cut is only for a restart.
		err = fmt.Errorf("sync %s: %w", j.name, reason(err))
		j.breakOff(err)
		_ = j.cut()
		return err
	}
	j.end += int64(len(buf))
	j.last, j.appended = appended, appended
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sizes[j.number] = j.end
	return nil
}

// reason is an error of the file system without the call and the name of the file, which are told already.
func reason(err error) error {
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		return of.Err
	}
	return err
}

// cut takes the file back to what was committed, durably: entries that nobody was told of must not come back.
func (j *Journal) cut() error {
	if err := j.f.Truncate(j.end); err != nil {
		return err
	}
	return j.f.Sync()
}
