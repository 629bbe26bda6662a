package routetable

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds of the history. What is oldest goes first.
const (
	historyRevisions = 10_000
	historyAge       = 30 * 24 * time.Hour
	historyUndoBytes = 64 << 20 // past it the oldest entries stay listed and cannot be undone
	historyTextBytes = 256      // of a user and of where it came from
)

// Author says who asks for a change, and how: what the history keeps beside what it did.
type Author struct {
	User    string    // empty is unknown
	From    string    // from where: "127.0.0.1:4711", "file:default.yaml", "signal"; empty is this process
	Command string    // the command as a person would type it, credentials masked: "add COLOSSUS amqp://5.6.7.8:1234"; empty is made from the ops
	At      time.Time // zero is now

	// Marks are small values that the table keeps with the rows, in the same step: what has to agree with them, such as the content that a
	// file had when it was loaded. An empty value forgets the name. See Snapshot.Mark.
	Marks map[string]string
}

// Revision is one entry of the history.
type Revision struct {
	Revision uint64 // after the change
	At       time.Time
	User     string
	From     string
	Command  string // at most 200 characters
	Added    int
	Removed  int
	Updated  int
	Objects  int  // that were made others
	Gone     bool // there is no way back to it any more: it can neither be rolled back to nor compared
}

// history is what the table remembers of its changes: who made them, and how to undo them. Whoever has the turn writes it, under the table's mu. Its entries
// are immutable, so that who copied the list may read them without the lock.
//
// Invariant: entries[undoable:] have their undo, and each begins where the one before it ends.
type history struct {
	entries  []*historyEntry // oldest first
	undoable int
	bytes    int // of the undos held
}

// historyEntry is one change. A change that moved no revision has an entry only where it renumbered configured rows; it is not listed.
type historyEntry struct {
	Revision
	unlisted bool
	undo     undo // nil: given up for its size
}

// from is the revision before the change.
func (x *historyEntry) from() uint64 {
	if x.unlisted {
		return x.Revision.Revision
	}
	return x.Revision.Revision - 1
}

// History returns at most limit entries (0: all) older than the revision before (0: from the newest), newest first.
func (t *Table) History(before uint64, limit int) []Revision {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []Revision
	oldest := t.history.oldest(t.snapshot.Load())
	for _, x := range slices.Backward(t.history.entries) {
		if limit > 0 && len(list) == limit {
			break
		}
		if !x.unlisted && (before == 0 || x.Revision.Revision < before) {
			r := x.Revision
			r.Gone = r.Revision < oldest
			list = append(list, r)
		}
	}
	return list
}

// newEntry makes the entry of an edit that is done; nil where there is nothing to remember.
func newEntry(a Author, ops []Op, e *edit, c *Change) *historyEntry {
	listed := c.Revision != e.base.revision
	if !listed && !slices.ContainsFunc(e.stayed, func(r stayed) bool { return r.was.pos != r.now.pos }) {
		return nil
	}
	if a.At.IsZero() {
		a.At = time.Now()
	}
	command := strings.Clone(cutCommand(a.Command)) // not to hold what it was cut from
	if command == "" {
		command = cutCommand(commandOf(ops))
	}
	return &historyEntry{
		Revision: Revision{
			Revision: c.Revision, At: a.At.Round(0), User: cut(a.User, historyTextBytes), From: cut(a.From, historyTextBytes),
			Command: command, Added: countConfigured(c.Added), Removed: countConfigured(c.Removed), Updated: countConfigured(c.Updated),
			Objects: len(c.Objects),
		},
		unlisted: !listed,
		undo:     undoOf(e, c),
	}
}

func countConfigured(rows []*Route) int {
	n := 0
	for _, r := range rows {
		if Configured(r.Origin) {
			n++
		}
	}
	return n
}

// add appends the entry and lets go of what is past the bounds.
func (h *history) add(x *historyEntry) {
	if n := len(h.entries); n > 0 && h.entries[n-1].Revision.Revision != x.from() {
		h.giveUp(n) // something is missing in between
	}
	h.entries = append(h.entries, x)
	h.bytes += len(x.undo)
	if x.undo == nil {
		h.giveUp(len(h.entries))
	}
	gone := max(0, len(h.entries)-historyRevisions)
	for gone < len(h.entries)-1 && x.At.Sub(h.entries[gone].At) > historyAge {
		gone++
	}
	if gone > 0 {
		for _, old := range h.entries[:gone] {
			h.bytes -= len(old.undo)
		}
		clear(h.entries[:gone])
		h.entries = h.entries[gone:]
		h.undoable = max(0, h.undoable-gone)
	}
	for h.bytes > historyUndoBytes {
		h.giveUp(h.undoable + 1)
	}
}

// giveUp drops the undos of the first n entries.
func (h *history) giveUp(n int) {
	for ; h.undoable < n; h.undoable++ {
		old := h.entries[h.undoable]
		if old.undo == nil {
			continue
		}
		h.bytes -= len(old.undo)
		without := *old
		without.undo = nil
		h.entries[h.undoable] = &without
	}
}

// reached are the entries that can be undone, on the snapshot, which is the table's.
func (h *history) reached(s *Snapshot) []*historyEntry {
	kept := h.entries[h.undoable:]
	if n := len(kept); n > 0 && kept[n-1].Revision.Revision != s.revision {
		return nil
	}
	return kept
}

// oldest is the oldest revision that there is a way back to.
func (h *history) oldest(s *Snapshot) uint64 {
	if kept := h.reached(s); len(kept) > 0 {
		return kept[0].from()
	}
	return s.revision
}

// since returns the entries that lead from a revision to the snapshot, which is the table's, oldest first.
func (h *history) since(s *Snapshot, revision uint64) ([]*historyEntry, error) {
	if revision > s.revision {
		return nil, &RefusedError{What: fmt.Sprintf("there is no revision %d yet, the table is at %d", revision, s.revision), Where: "revision"}
	}
	kept := h.reached(s)
	if oldest := h.oldest(s); revision < oldest {
		why := fmt.Sprintf("it keeps %d changes, and %d days", historyRevisions, historyAge/(24*time.Hour))
		if len(h.entries) > 0 && revision >= h.entries[0].from() {
			why = fmt.Sprintf("what the changes behind %d took away was too much to keep (%d MiB in all)", revision, historyUndoBytes>>20)
		}
		return nil, &RefusedError{What: fmt.Sprintf("the history reaches back to revision %d only: %s", oldest, why), Where: "revision"}
	}
	first := len(kept)
	for first > 0 && kept[first-1].Revision.Revision > revision {
		first--
	}
	return slices.Clone(kept[first:]), nil
}

// historyBytes gives the entries, oldest first, each as readEntry reads it. What it gives is not used again.
func (t *Table) historyBytes(yield func([]byte) bool) {
	t.mu.Lock()
	entries := slices.Clone(t.history.entries)
	t.mu.Unlock()
	for _, x := range entries {
		if !yield(x.appendTo(nil)) {
			return
		}
	}
}

// restoreHistory appends an entry that historyBytes or a journal gave, oldest first, before the table is used. Where entries do not follow
// each other, those before the gap are listed and cannot be undone.
func (t *Table) restoreHistory(entry []byte) error {
	x, err := readEntry(entry)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.history.add(x)
	return nil
}

var errEntry = errors.New("an entry of the history is damaged")

// The flags of an entry's bytes.
const (
	entryUnlisted = 1 << iota
	entryHasUndo
	entryHasObjects
	entryFlags = entryUnlisted | entryHasUndo | entryHasObjects
)

// appendTo appends the entry as bytes that need nothing else to be read.
//
//	entry = flags revision time added removed updated [ objects ] text text text [ undo ]
//
// flags is one byte; time is a varint of nanoseconds since 1970; other numbers are uvarints; user, from and command are each a length and
// bytes; the undo goes to the end.
func (x *historyEntry) appendTo(dst []byte) []byte {
	flags := byte(0)
	if x.unlisted {
		flags |= entryUnlisted
	}
	if x.undo != nil {
		flags |= entryHasUndo
	}
	if x.Objects > 0 {
		flags |= entryHasObjects
	}
	dst = appendNumbers(append(dst, flags), x.Revision.Revision)
	dst = appendSigned(dst, x.At.UnixNano())
	dst = appendNumbers(dst, uint64(x.Added), uint64(x.Removed), uint64(x.Updated))
	if x.Objects > 0 {
		dst = appendNumbers(dst, uint64(x.Objects))
	}
	for _, s := range [...]string{x.User, x.From, x.Command} {
		dst = appendText(dst, s)
	}
	return append(dst, x.undo...)
}

// readEntry reads what appendTo wrote. The bytes may be anything, and are not kept.
func readEntry(b []byte) (*historyEntry, error) {
	r := reader{b: b}
	flags := r.byte()
	x := &historyEntry{unlisted: flags&entryUnlisted != 0}
	x.Revision.Revision = r.number()
	x.At = time.Unix(0, r.signed())
	x.Added, x.Removed, x.Updated = r.count(), r.count(), r.count()
	if flags&entryHasObjects != 0 {
		x.Objects = r.count()
	}
	x.User, x.From, x.Command = strings.Clone(r.text()), strings.Clone(r.text()), strings.Clone(r.text())
	if r.bad || flags&^entryFlags != 0 || flags&entryHasObjects != 0 && x.Objects == 0 || !x.unlisted && x.Revision.Revision == 0 {
		return nil, errEntry
	}
	if flags&entryHasUndo != 0 {
		x.undo = slices.Clone(undo(r.b))
		if !x.undo.valid() {
			return nil, errEntry
		}
	} else if len(r.b) > 0 {
		return nil, errEntry
	}
	return x, nil
}
