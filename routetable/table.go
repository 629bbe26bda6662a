package routetable

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
)

// Table is the live table: one snapshot behind an atomic pointer. Lookups take no lock; edits follow each other under one.
type Table struct {
	snapshot atomic.Pointer[Snapshot]

	mu      sync.Mutex // guards what follows; a leaf
	nextID  uint64     // the last id given
	nextPos int64      // the last position given
	queue   []Change   // made and not yet told to the watchers
	history history

	tell     sync.Mutex // held while watchers are called, in order; taken without mu
	watchers []*watcher // guarded by mu; copied before it is changed
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
	t.snapshot.Store(&Snapshot{})
	for _, o := range opts {
		o(t)
	}
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
func (t *Table) Apply(ops ...Op) (Change, error) { return t.ApplyAs(Author{}, ops...) }

func (t *Table) apply(a Author, ops []Op) (Change, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := newEdit(t, t.snapshot.Load())
	for i := range ops {
		if err := e.do(&ops[i]); err != nil {
			if len(ops) > 1 {
				err = fmt.Errorf("op %d, %s: %w", i+1, ops[i].Verb, err)
			}
			return Change{}, err
		}
	}
	s, c, err := e.finish()
	if err != nil {
		return Change{}, err
	}
	if s != e.base {
		t.nextID, t.nextPos = e.nextID, e.nextPos
		for _, r := range c.Added {
			c.Warnings = s.warnRow(c.Warnings, r)
		}
		for _, r := range c.Updated {
			c.Warnings = s.warnRow(c.Warnings, r)
		}
		t.history.record(a, ops, e, &c)
		t.snapshot.Store(s)
		if c.Changed() {
			t.queue = append(t.queue, c)
		}
	}
	return c, nil
}

// OnChange calls f with every change from now on, in order, after the lock is released, on the writer's goroutine and before its Apply
// returns (or on that of another writer that was first to tell). f may only enqueue: it must not edit the table.
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

func (t *Table) tellWatchers() {
	t.tell.Lock()
	defer t.tell.Unlock()
	t.mu.Lock()
	queue, watchers := t.queue, t.watchers
	t.queue = nil
	t.mu.Unlock()
	for _, c := range queue {
		for _, w := range watchers {
			w.f(c)
		}
	}
}
