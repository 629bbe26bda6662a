package routetable

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
)

// Table is the live table: one snapshot behind an atomic pointer. Lookups take no lock; edits follow each other in a line (turn.go).
type Table struct {
	snapshot atomic.Pointer[Snapshot]

	asking  sync.Mutex // guards asked; a leaf
	asked   []*Request // in line; whoever finds it empty works it off
	callers sync.Pool  // of *caller

	turn    sync.Mutex // held while edits are done and committed; guards what follows
	head    *Snapshot  // the newest, maybe not yet to be seen
	batch   batch      // what was done and is not to be seen yet
	idle    *edit      // room of the last edit, or nil
	scratch *Snapshot  // one that nobody has, or nil
	line    []*Request // is worked off
	rest    []*Request // of line, while the turn is handed over
	spare   []*Request // room for the next line
	arena   arena
	ids     idSource
	owner   owner    // the last edit's
	nextPos int64    // the last position given
	queue   []Change // to be seen and not yet told to the watchers
	closed  bool

	state   *state // set before the table is used; nil is none
	running sync.WaitGroup

	mu       sync.Mutex // guards what follows, and that it agrees with snapshot; a leaf
	history  history    // written by whoever has the turn, who may read it without mu
	watchers []*watcher // copied before it is changed
}

type watcher struct{ f func(Change) }

// Option sets up a table.
type Option func(*Table)

// DynamicHosts lets captures supply whole hosts in every row, as if each had dynamic-host set: for a client's own table.
func DynamicHosts() Option {
	return func(t *Table) { t.snapshot.Load().dynamicHosts = true }
}

// New returns an empty table with match mode all.
func New(opts ...Option) *Table {
	t := &Table{}
	t.snapshot.Store(&Snapshot{caches: newCaches(), emptied: &emptied{}})
	for _, o := range opts {
		o(t)
	}
	t.head = t.snapshot.Load()
	return t
}

// Load reads a table from either file form. The rows are the operator's.
func Load(r io.Reader, opts ...Option) (*Table, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("load table: %w", err)
	}
	f, err := ParseFile("", data)
	if err != nil {
		return nil, err
	}
	t := New(opts...)
	if _, err := t.LoadFile(f, LoadReplace); err != nil {
		return nil, err
	}
	return t, nil
}

// Snapshot is the table now.
func (t *Table) Snapshot() *Snapshot { return t.snapshot.Load() }

// Generation counts all changes.
func (t *Table) Generation() uint64 { return t.Snapshot().generation }

// Revision counts the changes of configured rows.
func (t *Table) Revision() uint64 { return t.Snapshot().revision }

// Lookup returns the groups for addr, for a message without properties. See Snapshot.LookupInto.
func (t *Table) Lookup(addr string) []Group { return t.LookupInto(nil, addr, nil) }

// LookupInto is Snapshot.LookupInto on the table now.
func (t *Table) LookupInto(dst []Group, addr string, property func(string) (string, bool)) []Group {
	return t.Snapshot().LookupInto(dst, addr, property)
}

// Apply does the ops in order as one change, or none of them: readers see the table before or after it, never between. The error says
// which op failed where there are several. A change that does nothing moves no counter and tells no watcher.
//
// With a state directory it returns when the change is on disk, and a *StateError where it cannot be.
func (t *Table) Apply(ops ...Op) (Change, error) { return t.request(&Author{}, ops, nil) }

// ApplyAs is Apply with an author for the history.
func (t *Table) ApplyAs(a Author, ops ...Op) (Change, error) {
	return t.request(&a, ops, nil)
}

// Plan is ApplyAs with ops that are made of the table as it is: no other edit comes between plan and its ops. plan may not edit the table,
// and may be called again where the edit has to be done again. It may run on the goroutine of another writer. No ops change nothing.
func (t *Table) Plan(a Author, plan func(*Snapshot) ([]Op, error)) (Change, error) {
	return t.request(&a, nil, plan)
}

// resume makes the table that of a snapshot: one read from disk, or an older one where newer ones were given up.
func (t *Table) resume(s *Snapshot) {
	t.arena.reset(s)
	t.ids.free, t.ids.slots = nil, uint32(s.slots.n)
	for i := s.slots.n - 1; i >= 0; i-- {
		ref := *s.slots.at(i)
		if ref == 0 {
			t.ids.free = append(t.ids.free, uint32(i))
			continue
		}
		rec := recordAt(t.arena.chunks, ref)
		t.ids.serial = max(t.ids.serial, uint32(rec.id()>>32))
		t.nextPos = max(t.nextPos, rec.pos())
	}
	next := *s
	next.chunks = t.arena.chunks
	t.snapshot.Store(&next)
	next.caches.fit(next.slots.n)
}

// run does the ops, in order, and finishes.
func (e *edit) run(ops []Op) (*Snapshot, Change, error) {
	for i := range ops {
		if err := e.do(&ops[i]); err != nil {
			if len(ops) > 1 {
				err = &OpError{i, ops[i].Verb, err}
			}
			return nil, Change{}, err
		}
	}
	s, c, err := e.finish()
	if cycle, ok := errors.AsType[*cycleError](err); ok {
		if err = cycle.error; len(ops) > 1 {
			err = cycle.byOp(ops)
		}
	}
	if err != nil || s == e.base {
		return s, c, err
	}
	if len(c.Added)+len(c.Updated) <= bulk {
		for _, r := range c.Added {
			c.Warnings = s.warnRow(c.Warnings, r)
		}
		for _, r := range c.Updated {
			c.Warnings = s.warnRow(c.Warnings, r)
		}
		c.Warnings = s.warnManyLoose(c.Warnings, c.Added)
	}
	s.index.refresh(s, e.owner)
	return s, c, nil
}

// OnChange calls f with every change from now on, in order, on the goroutine of a writer and before the Apply that made it returns. f may
// only enqueue: it must not edit the table.
func (t *Table) OnChange(f func(Change)) (cancel func()) {
	w := &watcher{f}
	t.mu.Lock()
	t.watchers = append(slices.Clone(t.watchers), w)
	t.mu.Unlock()
	return func() {
		t.mu.Lock()
		t.watchers = slices.DeleteFunc(slices.Clone(t.watchers), func(o *watcher) bool { return o == w })
		t.mu.Unlock()
	}
}

// tellWatchers is called by whoever has the turn.
func (t *Table) tellWatchers() {
	if len(t.queue) == 0 {
		return
	}
	t.mu.Lock()
	watchers := t.watchers
	t.mu.Unlock()
	for _, c := range t.queue {
		for _, w := range watchers {
			w.f(c)
		}
	}
	clear(t.queue)
	if t.queue = t.queue[:0]; cap(t.queue) > keepRoom {
		t.queue = nil
	}
}
