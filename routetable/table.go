package routetable

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
)

// Table is the live table: one snapshot behind an atomic pointer. Lookups take no lock; edits follow each other under one.
//
// An edit is planned on head, the newest snapshot. Without a state directory that is what readers see at once. With one, readers see it when
// it is on disk: edits that come while a commit is under way gather in a batch, and the first of them commits the batch when its turn comes.
type Table struct {
	snapshot atomic.Pointer[Snapshot]

	mu      sync.Mutex // guards what follows; taken after commits
	head    *Snapshot  // the newest, maybe not yet on disk
	open    *batch     // gathers edits; nil is none
	last    *batch     // the newest batch, open or being committed
	arena   arena
	ids     idSource
	owner   owner    // the last edit's
	nextPos int64    // the last position given
	queue   []Change // made and not yet told to the watchers
	history history
	closed  bool

	commits sync.Mutex // held by whoever commits a batch
	state   *state     // set before the table is used; nil is none
	running sync.WaitGroup

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
	t.snapshot.Store(&Snapshot{caches: newCaches()})
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
func (t *Table) Apply(ops ...Op) (Change, error) { return t.ApplyAs(Author{}, ops...) }

// ApplyAs is Apply with an author for the history.
func (t *Table) ApplyAs(a Author, ops ...Op) (Change, error) {
	return t.Plan(a, func(*Snapshot) ([]Op, error) { return ops, nil })
}

// Plan is ApplyAs with ops that are made of the table as it is: no other edit comes between plan and its ops. plan may not edit the table.
// No ops change nothing.
func (t *Table) Plan(a Author, plan func(*Snapshot) ([]Op, error)) (Change, error) {
	for {
		c, w, err := t.edit(a, plan)
		switch {
		case w.lead:
			t.commit(w.batch)
		case w.batch != nil:
			<-w.batch.done
		}
		if err == errNotAlone {
			continue
		}
		if err == nil && w.batch != nil {
			return w.result(c)
		}
		if err == nil && c.Changed() {
			t.tellWatchers()
		}
		return c, err
	}
}

// batch is edits that go to disk together.
type batch struct {
	// Owned by the table's lock until it is committed.
	owner    owner     // of the pages that its edits made
	snapshot *Snapshot // after the last
	changes  []Change
	entries  []*historyEntry
	frames   []frame
	passing  []*passing

	done chan struct{} // closed when it is on disk, or err says why not
	err  error
}

type frame struct {
	generation uint64
	payload    []byte
}

// passing is an edit of rows that are not kept, in a batch since it came behind edits that are. Where the disk refuses those it is done again
// without them: a live connection comes and goes whatever the disk says.
type passing struct {
	author Author
	plan   func(*Snapshot) ([]Op, error)

	// What came of it the second time; written before its batch is done.
	change Change
	err    error
}

// wait is what an edit waits for before it is answered; without a batch it is done.
type wait struct {
	batch   *batch
	lead    bool     // the caller is to commit the batch
	passing *passing // nil: the edit has something for the disk
}

// result is what came of an edit that made c, when its batch is done.
func (w *wait) result(c Change) (Change, error) {
	switch {
	case w.batch.err == nil:
		return c, nil
	case w.passing != nil:
		return w.passing.change, w.passing.err
	}
	return Change{}, w.batch.err
}

// edit does an edit on head. What waits for the disk is in a batch.
func (t *Table) edit(a Author, plan func(*Snapshot) ([]Op, error)) (Change, wait, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return Change{}, wait{}, errClosed
	}
	ops, err := plan(t.head)
	if err != nil {
		return Change{}, wait{}, err
	}
	if slices.ContainsFunc(ops, func(op Op) bool { return op.Verb == VerbRollback }) {
		if len(ops) > 1 {
			return Change{}, wait{}, &RefusedError{What: "a rollback cannot be part of a batch", Hint: "apply it alone"}
		}
		if t.head != t.snapshot.Load() {
			// The history ends at what is on disk.
			return Change{}, wait{batch: t.last}, errNotAlone
		}
	}
	e := newEdit(t, t.head)
	e.mark(a.Marks)
	s, c, err := e.run(ops)
	waiting := t.head != t.snapshot.Load()
	if err != nil || s == e.base {
		t.head = e.abandon()
		if e.shared {
			t.open.snapshot = t.head
		}
	}
	if err != nil {
		return c, wait{}, err
	}
	if s == e.base {
		if waiting {
			return c, wait{batch: t.last}, nil // "already there" is true when what is there is on disk
		}
		return c, wait{}, nil
	}
	e.commit()
	e.tidy() // behind commit, which counts what the edit dropped as dead
	t.head = s
	x := newEntry(a, ops, e, &c)
	var payload []byte
	if t.state != nil {
		payload = appendChange(nil, s, &c, &t.ids, t.nextPos, e.marked, x)
	}
	if payload == nil && !waiting {
		t.publish(s, []Change{c}, []*historyEntry{x})
		return c, wait{}, nil
	}
	w := wait{lead: t.open == nil}
	if w.lead {
		t.open = &batch{done: make(chan struct{}), owner: e.owner}
		t.last = t.open
	}
	b := t.open
	w.batch = b
	b.snapshot = s
	b.changes, b.entries = append(b.changes, c), append(b.entries, x)
	if payload != nil {
		b.frames = append(b.frames, frame{s.generation, payload})
	} else {
		w.passing = &passing{author: a, plan: plan}
		b.passing = append(b.passing, w.passing)
	}
	return c, w, nil
}

// again does an edit once more, where those before it could not be kept. It is called with the lock held and nothing waiting.
func (t *Table) again(p *passing, refused error) (Change, error) {
	ops, err := p.plan(t.head)
	if err != nil {
		return Change{}, err
	}
	e := newEdit(t, t.head)
	s, c, err := e.run(ops)
	if err != nil || s == e.base {
		e.abandon()
		return c, err
	}
	x := newEntry(p.author, ops, e, &c)
	if appendChange(nil, s, &c, &e.ids, e.nextPos, false, x) != nil { // without those before it, it is another edit
		e.abandon()
		return Change{}, refused
	}
	e.commit()
	e.tidy() // behind commit, which counts what the edit dropped as dead
	t.head = s
	t.publish(s, []Change{c}, []*historyEntry{x})
	return c, nil
}

// errNotAlone asks for the batch to be waited for, and the edit to be tried again.
var errNotAlone = fmt.Errorf("the edit waits for others")

// publish shows a snapshot to readers. It is called with the lock held.
func (t *Table) publish(s *Snapshot, changes []Change, entries []*historyEntry) {
	for _, x := range entries {
		if x != nil {
			t.history.add(x)
		}
	}
	t.snapshot.Store(s)
	s.caches.fit(s.slots.n)
	for _, c := range changes {
		if c.Changed() {
			t.queue = append(t.queue, c)
		}
	}
}

// commit brings a batch to disk, in its turn, and shows it.
func (t *Table) commit(b *batch) {
	t.commits.Lock()
	t.mu.Lock()
	if t.open == b {
		t.open = nil
	}
	failed := b.err != nil // one before it could not be kept
	t.mu.Unlock()
	if !failed {
		t.write(b)
	}
	t.tellWatchers()
	t.mu.Lock()
	if t.last == b {
		t.last = nil
	}
	t.mu.Unlock()
	close(b.done)
	t.commits.Unlock()
}

// write writes the batch and publishes it, or takes the table back to what is on disk.
func (t *Table) write(b *batch) {
	j := t.state.journal
	var err error
	if j.Broken() != nil {
		err = t.mend()
	}
	if err == nil {
		for _, f := range b.frames {
			j.Append(f.generation, f.payload)
		}
		err = j.Commit()
	}
	t.mu.Lock()
	if err == nil {
		t.publish(b.snapshot, b.changes, b.entries)
		t.mu.Unlock()
		t.state.tell(nil)
		t.compact()
		return
	}
	b.err = &StateError{err}
	undone := b.passing
	if t.open != nil {
		// Its edits were planned on those that are given up.
		t.open.err = b.err
		undone = append(undone, t.open.passing...)
		t.open = nil
	}
	t.resume(t.snapshot.Load())
	t.head = t.snapshot.Load()
	for _, p := range undone {
		p.change, p.err = t.again(p, b.err)
	}
	t.mu.Unlock()
	t.state.tell(err)
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
	s.index.refresh(s)
	return s, c, nil
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
