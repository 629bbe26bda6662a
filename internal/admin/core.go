package admin

import (
	"slices"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/routetable"
)

// Core is the door to one table. Its methods are safe for concurrent use.
type Core struct {
	table *routetable.Table
	o     Options

	batches sync.Pool // of *batch

	mu        sync.Mutex // guards what follows; a leaf
	providers []Provider
	loads     loads
	held      []*heldSnapshot
	diffs     []*heldDiff
	watches   int
	born      rowRevisions
}

// Options say who this node is. The zero value works.
type Options struct {
	Name    string           // for people
	NodeID  string           // of the node, as text
	Version string           // of the product
	Now     func() time.Time // nil is time.Now

	// Counters gives the counters of the router entity, by camel-case name; nil is none.
	Counters func() map[string]uint64

	// RowCounters gives the counters of a row; nil is none.
	RowCounters func(r *routetable.Route) RowCounters

	// Choose marks in an explanation what the node would choose now (Explained.Chosen); nil leaves it out.
	Choose func(x *routetable.Explanation)
}

// RowCounters are what a node counts for a row.
type RowCounters struct {
	Matched, Copied, Delivered, Released, Dropped uint64
	LastUsed                                      time.Time // zero is never
}

// New makes the door to a table.
func New(t *routetable.Table, o Options) *Core {
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Core{table: t, o: o}
	c.born.base = t.Revision()
	t.OnChange(c.noteChange)
	c.providers = []Provider{&tableEntity{c}, &routerEntity{c: c, started: o.Now()}}
	return c
}

// Table gives the table behind the door.
func (c *Core) Table() *routetable.Table { return c.table }

// Register adds the entities of another package. A type that is there already is replaced.
func (c *Core) Register(p Provider) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.providers, func(x Provider) bool { return x.Type() == p.Type() }); i >= 0 {
		c.providers[i] = p
		return
	}
	c.providers = append(c.providers, p)
}

// kinds are all entity types, the node's own first.
func (c *Core) kinds() []kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	kinds := make([]kind, 0, len(c.providers)+1)
	kinds = append(kinds, routeKind{c})
	for _, p := range c.providers {
		kinds = append(kinds, listed{p})
	}
	return kinds
}

// Do authorises a command, plans it on the table as it is, and applies it: all of it, or nothing. Errors are *Error,
// and those of routetable's Apply. Adapters call it for what their wires say (an attach is a Subscribe, a detach a
// Withdraw); management calls it for everything else. The history keeps the caller and the command.
func (c *Core) Do(caller Caller, cmd Command) (routetable.Change, error) {
	if err := caller.may(cmd.role(), cmd.operation()); err != nil {
		return routetable.Change{}, err
	}
	x := c.plan(caller, cmd)
	ch, err := c.table.Plan(x.Author, x.Plan)
	return x.changed(ch, err)
}

// DoAll does commands of adapters in their order, each as Do does and each a change of its own, and calls told with what came of each, in
// their order too. They cost less than one Do after the other; one that fails does not keep the others from being done.
func (c *Core) DoAll(caller Caller, commands []Command, told func(i int, err error)) {
	b := c.batch()
	defer c.batches.Put(b)
	for first := 0; first < len(commands); first += maxBatch {
		list := commands[first:min(first+maxBatch, len(commands))]
		b.plan(c.author(caller, ""), caller, list)
		c.table.PlanAll(b.ask)
		for i, err := range b.errs {
			if at := b.at[i]; at >= 0 {
				err = b.requests[at].Err
			}
			told(first+i, err)
		}
		b.clear()
	}
}

// maxBatch is how many commands go to the table together: enough to share what they copy, and few enough for others to have their turn.
const maxBatch = 1024

// batch is room for the commands of one DoAll.
type batch struct {
	requests []routetable.Request
	ops      []routetable.Op
	ask      []*routetable.Request
	at       []int   // for each command, its place in requests; -1 it was refused
	errs     []error // why
}

func (c *Core) batch() *batch {
	if b, ok := c.batches.Get().(*batch); ok {
		return b
	}
	return &batch{}
}

// plan makes the requests of commands.
func (b *batch) plan(a routetable.Author, caller Caller, commands []Command) {
	for _, cmd := range commands {
		err := caller.may(cmd.role(), cmd.operation())
		if err == nil {
			err = b.request(a, cmd)
		}
		at := -1
		if err == nil {
			at = len(b.requests) - 1
		}
		b.at, b.errs = append(b.at, at), append(b.errs, err)
	}
	ops := b.ops
	for i := range b.requests { // they do not move any more, nor do the ops
		x := &b.requests[i]
		if x.Plan == nil {
			x.Ops, ops = ops[:1:1], ops[1:]
		}
		b.ask = append(b.ask, x)
	}
}

// clear makes room for the next commands.
func (b *batch) clear() {
	clear(b.requests)
	clear(b.ops)
	clear(b.ask)
	clear(b.errs)
	b.requests, b.ops, b.ask, b.at, b.errs = b.requests[:0], b.ops[:0], b.ask[:0], b.at[:0], b.errs[:0]
}

// request adds the request of a command: one with ops at hand for what receivers come and go by.
func (b *batch) request(a routetable.Author, cmd Command) error {
	x := routetable.Request{Author: a}
	switch cmd := cmd.(type) {
	case Subscribe:
		op, err := cmd.op()
		if err != nil {
			return err
		}
		b.ops = append(b.ops, op)
	case Withdraw:
		op, err := cmd.op()
		if err != nil {
			return err
		}
		b.ops = append(b.ops, op)
	default:
		x.Plan = func(s *routetable.Snapshot) ([]routetable.Op, error) { return Plan(cmd, s) }
	}
	b.requests = append(b.requests, x)
	return nil
}

// planned is a command on its way into the table.
type planned struct {
	routetable.Request
	nothing bool // there is nothing to do
}

func (c *Core) plan(caller Caller, cmd Command) *planned {
	x := &planned{}
	x.Author = c.author(caller, loadWords(cmd))
	x.Plan = func(s *routetable.Snapshot) ([]routetable.Op, error) {
		ops, err := Plan(cmd, s)
		x.nothing = len(ops) == 0
		return ops, err
	}
	return x
}

// changed is what the table says of the command.
func (x *planned) changed(ch routetable.Change, err error) (routetable.Change, error) {
	if x.nothing && err == nil {
		ch.Note = "nothing to do"
	}
	return ch, err
}

// rowRevisions remembers at which revision each row last changed. Rows that it has not seen have base.
type rowRevisions struct {
	base uint64
	of   map[uint64]uint64 // row id → revision
}

// maxRowRevisions bounds it: a table that large is made by loads, and a load gives all its rows one revision.
const maxRowRevisions = 100_000

// noteChange runs after each change, in order.
func (c *Core) noteChange(ch routetable.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &c.born
	if len(b.of)+len(ch.Added)+len(ch.Updated) > maxRowRevisions {
		b.base, b.of = ch.Revision, nil
	}
	if b.of == nil {
		b.of = map[uint64]uint64{}
	}
	for _, r := range ch.Removed {
		delete(b.of, r.ID)
	}
	for _, list := range [][]*routetable.Route{ch.Added, ch.Updated} {
		for _, r := range list {
			b.of[r.ID] = ch.Revision
		}
	}
}

// rowRevision gives the revision at which a row last changed.
func (c *Core) rowRevision(r *routetable.Route) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rev, ok := c.born.of[r.ID]; ok {
		return rev
	}
	return c.born.base
}
