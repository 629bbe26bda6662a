package routetable

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"

	"github.com/fingerpost/fingerpost/internal/journal"
)

// state is where a table is kept: a journal of its changes, and a snapshot of the whole now and then. What is in it are the rows that
// outlive the process: configured ones, and learned ones with a name.
type state struct {
	journal *journal.Journal
	log     *slog.Logger

	refused string // what the log was told of the disk; empty: it takes changes; guarded by the table's turn

	// Guarded by the table's mu.
	size    int64 // of the journal when the last snapshot was begun
	writing bool  // a snapshot is being written
}

// StateError says that a change could not be kept on disk. The table is as it was before it.
type StateError struct{ Err error }

func (e *StateError) Error() string {
	return fmt.Sprintf("the change could not be kept, and nothing was changed: %v", e.Err)
}

// Unwrap is the error of the file system.
func (e *StateError) Unwrap() error { return e.Err }

// Open returns the table that a directory keeps, an empty one for a new directory, exactly as it was after the last change that was
// acknowledged. From then on a change is done when it is on disk: Apply returns after the sync that it shares with all changes that wait
// for it. log gets what recovery and the writing of snapshots have to say; nil is nobody.
//
// The directory is this process's alone until Close. Errors are those of the journal package: journal.ErrInUse, *journal.DamageError,
// *journal.VersionError, and those of the file system.
//
// Cost: about a microsecond a row.
func Open(dir string, log *slog.Logger, opts ...Option) (*Table, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	j, err := journal.Open(dir, journal.Options{Log: log})
	if err != nil {
		return nil, fmt.Errorf("open state %s: %w", dir, err)
	}
	t := New(opts...)
	r := newReplay(t)
	if err := j.Recover(r.snapshot, r.change); err != nil {
		j.Close()
		return nil, fmt.Errorf("open state %s: %w", dir, err)
	}
	r.finish()
	t.state = &state{journal: j, log: log, size: 0}
	return t, nil
}

// Close waits for changes under way and gives the directory free. Later changes are refused.
func (t *Table) Close() error {
	t.turn.Lock()
	t.closed = true
	t.turn.Unlock()
	if t.state == nil {
		return nil
	}
	t.running.Wait()
	return t.state.journal.Close()
}

// ReadValue returns a value that WriteValue kept in the table's directory: such as the node's id. It is os.ErrNotExist where there is
// none, or no directory. A name is letters, digits and "-".
func (t *Table) ReadValue(name string) ([]byte, error) {
	if t.state == nil {
		return nil, errNoState
	}
	return t.state.journal.ReadValue(name)
}

// WriteValue keeps a value in the table's directory, in one step and durably.
func (t *Table) WriteValue(name string, value []byte) error {
	if t.state == nil {
		return errNoState
	}
	return t.state.journal.WriteValue(name, value)
}

// durable reports whether rows of an origin outlive the process.
func durable(origin string) bool { return origin != OriginSystem && !Live(origin) }

// The flags of a change and of a snapshot.
const (
	flagMatchFirst = 1 << iota
	flagMarks      // the marks follow: a count, then names and values as texts
	flagObjects    // objects follow in the same form: in a snapshot all, in a change those that are others after it, with no text what is gone
	stateFlags     = flagMatchFirst | flagMarks | flagObjects
)

// appendStateHead appends what a change and a snapshot begin with: the flags, the marks where they are to be kept, and objects where there are any.
func appendStateHead(dst []byte, s *Snapshot, marked bool, objects map[string]string) []byte {
	flags := byte(s.match) & flagMatchFirst
	if marked {
		flags |= flagMarks
	}
	if len(objects) > 0 {
		flags |= flagObjects
	}
	dst = append(dst, flags)
	if marked {
		dst = appendTexts(dst, s.marks)
	}
	if len(objects) > 0 {
		dst = appendTexts(dst, objects)
	}
	return dst
}

// appendTexts appends how many texts there are, and each with its name, in the order of the names.
func appendTexts(dst []byte, texts map[string]string) []byte {
	dst = appendNumbers(dst, uint64(len(texts)))
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		dst = appendText(appendText(dst, name), texts[name])
	}
	return dst
}

// appendChange appends a change for the journal, where it touches anything that is kept.
//
//	change = flags [ marks ] [ objects ] revision serial position gone { id } count { record } [ entry ]
//
// flags is one byte, position a varint, ids are u64, the other numbers uvarints; the rows are as they are after it, those that are gone by
// their ids; what is left is the entry of the history.
func appendChange(dst []byte, s *Snapshot, c *Change, ids *idSource, nextPos int64, marked bool, x *historyEntry) (_ []byte, kept bool) {
	gone, rows := 0, 0
	for _, r := range c.Removed {
		if durable(r.Origin) {
			gone++
		}
	}
	lists := [...][]*Route{c.Added, c.Updated, c.moved}
	for _, list := range lists {
		for _, r := range list {
			if durable(r.Origin) {
				rows++
			}
		}
	}
	if gone+rows == 0 && x == nil && !c.MatchSet && !marked {
		return dst, false
	}
	objects := make(map[string]string, len(c.Objects))
	for _, o := range c.Objects {
		objects[o.Name] = o.After
	}
	dst = appendStateHead(dst, s, marked, objects)
	dst = appendNumbers(dst, s.revision, uint64(ids.serial))
	dst = appendSigned(dst, nextPos)
	dst = appendNumbers(dst, uint64(gone))
	for _, r := range c.Removed {
		if durable(r.Origin) {
			dst = binary.LittleEndian.AppendUint64(dst, r.ID)
		}
	}
	dst = appendNumbers(dst, uint64(rows))
	for _, list := range lists {
		for _, r := range list {
			if durable(r.Origin) {
				dst = appendRecord(dst, r)
			}
		}
	}
	if x != nil {
		dst = x.appendTo(dst)
	}
	return dst, true
}

// writeState writes a snapshot for the disk.
//
//	snapshot = flags [ marks ] [ objects ] generation revision serial wild position count { record } count { length entry }
//
// wild is how many of the rows are not the one address that their pattern is.
func writeState(w io.Writer, s *Snapshot, ids idSource, nextPos int64, entries []*historyEntry) error {
	var b []byte
	flush := func(least int) error {
		if len(b) < least {
			return nil
		}
		_, err := w.Write(b)
		b = b[:0]
		return err
	}
	n, wild := uint64(0), uint64(0)
	s.records(func(rec record) bool {
		if durable(rec.origin()) {
			n++
			if rec.flags()&recWild != 0 {
				wild++
			}
		}
		return true
	})
	b = appendStateHead(b, s, len(s.marks) > 0, s.objects)
	b = appendNumbers(b, s.generation, s.revision, uint64(ids.serial), wild)
	b = appendSigned(b, nextPos)
	b = appendNumbers(b, n)
	var err error
	s.records(func(rec record) bool {
		if durable(rec.origin()) {
			b = append(b, rec...)
			err = flush(1 << 18)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	b = appendNumbers(b, uint64(len(entries)))
	var entry []byte
	for _, x := range entries {
		entry = x.appendTo(entry[:0])
		b = append(appendNumbers(b, uint64(len(entry))), entry...)
		if err := flush(1 << 18); err != nil {
			return err
		}
	}
	return flush(0)
}

// leastJournal is how long a journal grows before a snapshot takes its place, however small the table is.
const leastJournal = 8 << 20

// compact begins a snapshot where the journal has grown longer than the table. It is called by whoever commits, with nothing buffered.
func (t *Table) compact() {
	st := t.state
	t.mu.Lock()
	s, live := t.snapshot.Load(), int64(t.arena.live)
	size := st.journal.Size()
	due := !st.writing && size-st.size > max(leastJournal, live)
	ids, nextPos := t.ids, t.nextPos
	var entries []*historyEntry
	if due {
		entries = slices.Clone(t.history.entries)
		st.writing = true
	}
	t.mu.Unlock()
	if !due {
		return
	}
	w, err := st.journal.Rotate()
	if err != nil {
		t.snapshotDone(size, err)
		return
	}
	t.running.Add(1)
	go func() {
		defer t.running.Done()
		err := w.Write(func(w io.Writer) error { return writeState(w, s, ids, nextPos, entries) })
		t.snapshotDone(size, err)
	}()
}

// snapshotDone ends the writing of a snapshot. After a failure the next is tried when the journal has grown as much again.
func (t *Table) snapshotDone(size int64, err error) {
	t.mu.Lock()
	t.state.writing = false
	t.state.size = 0
	if err != nil {
		t.state.size = size
	}
	t.mu.Unlock()
	if err != nil {
		t.state.log.Error("a snapshot of the table could not be written; the journal goes on", "error", err)
	}
}

// tell tells the log when the disk begins to refuse changes, and when it takes them again.
func (s *state) tell(err error) {
	switch {
	case err == nil && s.refused != "":
		s.refused = ""
		s.log.Info("changes of the table are kept again")
	case err != nil && s.refused != err.Error():
		s.refused = err.Error()
		s.log.Error("changes of the table cannot be kept: they are refused until they can", "error", err)
	}
}

// mend gives a broken journal up for a new one that begins with the table as it is.
func (t *Table) mend() error {
	st := t.state
	t.mu.Lock()
	s, ids, nextPos, entries := t.snapshot.Load(), t.ids, t.nextPos, slices.Clone(t.history.entries)
	t.mu.Unlock()
	w, err := st.journal.Rotate()
	if err != nil {
		return err
	}
	if err := w.Write(func(w io.Writer) error { return writeState(w, s, ids, nextPos, entries) }); err != nil {
		return err
	}
	st.log.Info("the table is kept in a new journal")
	return nil
}
