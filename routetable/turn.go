package routetable

import (
	"errors"
	"slices"
	"strings"
)

// Edits are asked for in a line. Whoever finds the line empty waits for the turn, takes all that is in line by then, and does it in order:
// so one goroutine does the edits of many, on pages that it copied once, and one sync of the disk is shared by all that came during the
// last one. The others sleep until they are answered. What was done is a batch: nobody sees it before all of it may be seen.

// Request is an edit that is asked for, and what came of it. See Table.PlanAll.
type Request struct {
	Author Author
	Plan   func(*Snapshot) ([]Op, error) // as in Table.Plan
	Ops    []Op                          // where Plan is nil: as in Table.Apply. They stay the caller's

	// The answer, as that of Table.Plan.
	Change Change
	Err    error

	caller   *caller
	passing  bool // it has nothing for the disk, and may wait behind those that have
	panicked any  // what it panicked with
}

// caller waits for its requests.
type caller struct {
	left      int           // requests without an answer; owned by whoever has the turn
	takesOver bool          // the turn is handed to it, with a batch to be committed
	done      chan struct{} // one signal where left gets 0, or where it takes over
	one       Request
	list      [1]*Request
}

// batch is edits that are shown together.
type batch struct {
	owner    owner     // of the pages that its edits made
	snapshot *Snapshot // after the last; nil: nothing has changed
	changes  []Change
	entries  []*historyEntry
	frames   []frame    // for the journal
	payloads []byte     // of frames
	ready    []*Request // answered whatever becomes of the batch
	waits    []*Request // answered when it is shown
}

type frame struct {
	generation uint64
	end        int // of its payload in payloads
}

// Bounds of a batch, and of the room that is kept for the next.
const (
	maxBatchBytes = 4 << 20
	keepRoom      = 1 << 14 // requests
)

// clear makes room for the next batch.
func (b *batch) clear() {
	if cap(b.changes) > keepRoom || cap(b.waits) > keepRoom || cap(b.ready) > keepRoom || cap(b.payloads) > 2*maxBatchBytes {
		*b = batch{}
		return
	}
	b.snapshot = nil
	clear(b.changes)
	clear(b.entries)
	clear(b.ready)
	clear(b.waits)
	b.changes, b.entries, b.frames, b.payloads, b.ready, b.waits = b.changes[:0], b.entries[:0], b.frames[:0], b.payloads[:0], b.ready[:0], b.waits[:0]
}

// PlanAll does edits in their order, each as Plan does and each a change of its own, and returns when all are answered. One that fails does
// not keep the others from being done. It costs less than one Plan after the other: those for the disk share its sync.
func (t *Table) PlanAll(list []*Request) {
	if len(list) == 0 {
		return
	}
	c := t.caller()
	c.left = len(list)
	for _, x := range list {
		*x = Request{Author: x.Author, Plan: x.Plan, Ops: x.Ops, caller: c}
	}
	t.ask(c, list)
	t.callers.Put(c)
	for _, x := range list {
		if x.caller = nil; x.panicked != nil {
			panic(x.panicked)
		}
	}
}

func (t *Table) caller() *caller {
	if c, ok := t.callers.Get().(*caller); ok {
		return c
	}
	return &caller{done: make(chan struct{}, 1)}
}

// request is PlanAll of one.
func (t *Table) request(a *Author, ops []Op, plan func(*Snapshot) ([]Op, error)) (Change, error) {
	c := t.caller()
	c.left = 1
	c.one.Author, c.one.Ops, c.one.Plan, c.one.caller = *a, ops, plan, c
	c.list[0] = &c.one
	t.ask(c, c.list[:])
	change, err, panicked := c.one.Change, c.one.Err, c.one.panicked
	c.one = Request{}
	t.callers.Put(c)
	if panicked != nil {
		panic(panicked)
	}
	return change, err
}

// ask puts requests in line and returns when they are answered.
func (t *Table) ask(c *caller, list []*Request) {
	t.asking.Lock()
	first := len(t.asked) == 0
	t.asked = append(t.asked, list...)
	t.asking.Unlock()
	if first {
		t.turn.Lock()
		t.asking.Lock()
		t.line, t.asked, t.spare = t.asked, t.spare, nil
		t.asking.Unlock()
		t.work(c, t.line)
	}
	for <-c.done; c.takesOver; <-c.done {
		c.takesOver = false
		t.commit()
		t.work(c, t.rest)
	}
}

// work does the requests of list, what is left of the line, and gives up the turn. Where c is answered and others have to wait for the disk,
// one of these takes over.
func (t *Table) work(c *caller, list []*Request) {
	b := &t.batch
	for len(list) > 0 {
		list = list[t.gather(list):]
		if len(b.frames) == 0 {
			t.show()
			continue
		}
		t.tellWatchers()
		t.answer(b.ready)
		b.ready = b.ready[:0]
		if c.left == 0 {
			t.rest = list
			next := b.waits[0].caller
			next.takesOver = true
			next.done <- struct{}{}
			return
		}
		t.commit()
	}
	clear(t.line)
	if t.spare = t.line[:0]; cap(t.spare) > keepRoom {
		t.spare = nil
	}
	t.line, t.rest = nil, nil
	t.turn.Unlock()
}

// gather does the first of the requests, as many as can be one batch, and says how many they are.
func (t *Table) gather(list []*Request) int {
	for i, x := range list {
		if len(t.batch.payloads) > maxBatchBytes || !t.try(x) {
			return i
		}
	}
	return len(list)
}

// try does a request, and reports false where it has to wait for those of the batch.
func (t *Table) try(x *Request) (done bool) {
	defer func() {
		if p := recover(); p != nil { // in plan, or in here: what of it may have been done in place is given up
			x.panicked, done = p, true
			t.takeBack(errPanicked)
			t.batch.ready = append(t.batch.ready, x)
		}
	}()
	return t.do(x)
}

var (
	errPanicked = errors.New("an edit before this one broke down, nothing was changed")
	errClosed   = errors.New("the table is closed")
)

// opsOf plans a request.
func (x *Request) opsOf(s *Snapshot) ([]Op, error) {
	if x.Plan == nil {
		return x.Ops, nil
	}
	return x.Plan(s)
}

// do does a request on head, and files it in the batch.
func (t *Table) do(x *Request) (done bool) {
	b := &t.batch
	pending := b.snapshot != nil
	if t.closed {
		x.Err, b.ready = errClosed, append(b.ready, x)
		return true
	}
	ops, err := x.opsOf(t.head)
	if pending && t.state != nil && len(b.frames) == 0 && (len(x.Author.Marks) > 0 || !allLive(ops)) {
		t.publish()
		b.ready, b.waits = append(b.ready, b.waits...), b.waits[:0]
		pending = false
	}
	if err == nil && slices.ContainsFunc(ops, func(op Op) bool { return op.Verb == VerbRollback }) {
		if len(ops) > 1 {
			err = &RefusedError{What: "a rollback cannot be part of a batch", Hint: "apply it alone"}
		} else if pending { // the history ends at what is to be seen
			return false
		}
	}
	if err != nil {
		x.Err, b.ready = err, append(b.ready, x)
		return true
	}
	e := newEdit(t, t.head)
	e.mark(x.Author.Marks)
	s, c, err := e.run(ops)
	x.Change, x.Err = c, err
	if err != nil || s == e.base {
		t.head = e.abandon()
		if e.shared {
			b.snapshot = t.head
		}
		if err == nil && pending { // "already there" is true when what is there is to be seen
			b.waits = append(b.waits, x)
		} else {
			b.ready = append(b.ready, x)
		}
		e.forget()
		return true
	}
	e.commit()
	e.tidy() // behind commit, which counts what the edit dropped as dead
	t.head = s
	t.file(x, e, s, newEntry(x.Author, ops, e, &x.Change))
	e.forget()
	return true
}

// allLive reports whether ops change nothing but rows that are bound to a live connection. Those that follow each other are shown together;
// what comes behind them may be for the disk, for which they do not wait.
func allLive(ops []Op) bool {
	for i := range ops {
		switch op := &ops[i]; {
		case op.Verb == VerbAdd && Live(op.Route.Origin):
		case op.Verb == VerbWithdraw && Live(op.Origin) && !strings.HasSuffix(op.Origin, "/"):
		default:
			return false
		}
	}
	return true
}

// file puts what a request did into the batch.
func (t *Table) file(x *Request, e *edit, s *Snapshot, entry *historyEntry) {
	b := &t.batch
	b.owner, b.snapshot = e.owner, s
	b.changes, b.entries, b.waits = append(b.changes, x.Change), append(b.entries, entry), append(b.waits, x)
	if t.state == nil {
		return
	}
	var kept bool
	if b.payloads, kept = appendChange(b.payloads, s, &x.Change, &t.ids, t.nextPos, e.marked, entry); kept {
		b.frames = append(b.frames, frame{s.generation, len(b.payloads)})
	} else {
		x.passing = true
	}
}

// publish shows the edits of the batch to readers.
func (t *Table) publish() {
	b := &t.batch
	if b.snapshot == nil {
		return
	}
	t.mu.Lock()
	for _, x := range b.entries {
		if x != nil {
			t.history.add(x)
		}
	}
	t.snapshot.Store(b.snapshot)
	t.mu.Unlock()
	b.snapshot.caches.fit(b.snapshot.slots.n)
	for i, c := range b.changes {
		b.snapshot.emptied.note(b.snapshot, &b.changes[i])
		if c.Changed() {
			t.queue = append(t.queue, c)
		}
	}
	clear(b.changes)
	clear(b.entries)
	b.snapshot, b.changes, b.entries = nil, b.changes[:0], b.entries[:0]
}

// show publishes the batch and answers its requests.
func (t *Table) show() {
	t.publish()
	t.tellWatchers()
	t.answer(t.batch.ready)
	t.answer(t.batch.waits)
	t.batch.clear()
}

// answer tells those who wait for the requests.
func (t *Table) answer(list []*Request) {
	for _, x := range list {
		if x.caller.left--; x.caller.left == 0 {
			x.caller.done <- struct{}{}
		}
	}
}

// commit brings the batch to disk and shows it, or takes the table back to what is on disk.
func (t *Table) commit() {
	err := t.write()
	if err != nil {
		t.takeBack(&StateError{err})
	}
	t.show()
	if t.state.tell(err); err == nil {
		t.compact()
	}
}

// write writes the batch.
func (t *Table) write() error {
	j, b := t.state.journal, &t.batch
	if j.Broken() != nil {
		if err := t.mend(); err != nil {
			return err
		}
	}
	begin := 0
	for _, f := range b.frames {
		j.Append(f.generation, b.payloads[begin:f.end])
		begin = f.end
	}
	return j.Commit()
}

// takeBack gives up the edits of the batch, of which each gets the error, but those that need no disk are done again without the others.
func (t *Table) takeBack(err error) {
	b := &t.batch
	waits := slices.Clone(b.waits)
	ready := slices.Clone(b.ready)
	b.clear()
	t.resume(t.snapshot.Load())
	t.head = t.snapshot.Load()
	b.ready = ready
	for _, x := range waits {
		x.Change, x.Err = Change{}, err
		if x.passing {
			x.passing = false
			x.Change, x.Err = t.again(x, err)
		}
		b.ready = append(b.ready, x)
	}
}

// again does a request once more, where those before it could not be kept.
func (t *Table) again(x *Request, refused error) (Change, error) {
	ops, err := x.opsOf(t.head)
	if err != nil {
		return Change{}, err
	}
	e := newEdit(t, t.head)
	s, c, err := e.run(ops)
	if err != nil || s == e.base {
		e.abandon()
		return c, err
	}
	entry := newEntry(x.Author, ops, e, &c)
	if _, kept := appendChange(nil, s, &c, &e.ids, e.nextPos, false, entry); kept { // without those before it, it is another edit
		e.abandon()
		return Change{}, refused
	}
	e.commit()
	e.tidy()
	t.head = s
	b := &t.batch
	b.snapshot, b.changes, b.entries = s, append(b.changes, c), append(b.entries, entry)
	t.publish()
	return c, nil
}
