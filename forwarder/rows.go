package forwarder

import (
	"maps"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// rowCount is what the node counts for one row. It is made when the row is first planned, and goes with the row.
//
// Invariant, where the address is not null: copied - delivered - released - dropped copies are on their way.
type rowCount struct {
	matched   atomic.Uint64 // messages whose lookup used the row
	copied    atomic.Uint64 // copies handed to an outlet for it
	delivered atomic.Uint64 // copies accepted; of a null row, messages discarded
	released  atomic.Uint64 // copies that a receiver released or modified, or that went on to another row
	dropped   atomic.Uint64 // copies rejected, not taken, not sent in time; pre-settled ones that nobody took
	lastUsed  atomic.Int64  // Unix nanoseconds of the batch; 0 never
	turn      atomic.Uint32 // round robin of the group whose first row it is

	place uint32 // which of a connection's tallies is its: rows that came one after the other have different ones

	sum *rowCount // where what the row counts is counted too: it has no series of its own; nil: it has
}

// rowCounts finds the counters of rows.
type rowCounts struct {
	mu   sync.Mutex           // a leaf
	of   map[uint64]*rowCount // by Route.ID
	made uint32

	series map[uint64]routeName // rows with metrics of their own
	other  rowCount             // of all others
}

// find gives the counters of rows, in their order.
func (c *rowCounts) find(matches []routetable.Match) []*rowCount {
	found := make([]*rowCount, len(matches))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range matches {
		found[i] = c.one(matches[i].Route)
	}
	return found
}

// one gives the counters of a row. Called with mu.
func (c *rowCounts) one(route *routetable.Route) *rowCount {
	r := c.of[route.ID]
	if r == nil {
		r = c.newCount(route)
		r.place = c.made
		c.made++
		c.of[route.ID] = r
	}
	return r
}

// AddToRow counts what an adapter has done by a row itself, without the node. LastUsed is not the zero time. It takes no lock of a connection.
func (n *Node) AddToRow(route *routetable.Route, x admin.RowCounters) {
	n.rows.mu.Lock()
	r := n.rows.one(route)
	n.rows.mu.Unlock()
	t := rowTally{row: r, matched: uint32(x.Matched), copied: uint32(x.Copied), delivered: uint32(x.Delivered), released: uint32(x.Released), dropped: uint32(x.Dropped)}
	t.add(x.LastUsed.UnixNano())
}

// forget lets go of the counters of rows that were removed.
func (c *rowCounts) forget(removed []*routetable.Route) {
	if len(removed) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range removed {
		delete(c.of, r.ID)
		delete(c.series, r.ID)
	}
}

// sweep lets go of counters without a row: a plan that was made while its row was removed leaves one. It looks only where
// there are more counters than rows, which bounds them.
func (c *rowCounts) sweep(t *routetable.Table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := t.Snapshot() // under the lock: not older than that of any plan whose counters are here
	if len(c.of) <= s.Len() {
		return
	}
	kept := make(map[uint64]*rowCount, s.Len())
	for r := range s.Routes() {
		if count := c.of[r.ID]; count != nil {
			kept[r.ID] = count
		}
	}
	c.of = kept
	maps.DeleteFunc(c.series, func(id uint64, _ routeName) bool { return kept[id] == nil })
}

// rename keeps the names of series up to date with rows that changed.
func (c *rowCounts) rename(updated []*routetable.Route) {
	if len(updated) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range updated {
		if _, ok := c.series[r.ID]; ok {
			c.series[r.ID] = nameOf(r)
		}
	}
}

// RowCounters gives the counters of a row.
func (n *Node) RowCounters(r *routetable.Route) admin.RowCounters {
	n.rows.mu.Lock()
	c := n.rows.of[r.ID]
	n.rows.mu.Unlock()
	if c == nil {
		return admin.RowCounters{}
	}
	x := admin.RowCounters{
		Matched: c.matched.Load(), Copied: c.copied.Load(), Delivered: c.delivered.Load(),
		Released: c.released.Load(), Dropped: c.dropped.Load(),
	}
	if at := c.lastUsed.Load(); at != 0 {
		x.LastUsed = time.Unix(0, at)
	}
	return x
}

// rowTally is what one connection adds to a row with the next flush.
type rowTally struct {
	row *rowCount // nil: none

	matched, copied, delivered, released, dropped uint32
}

// tallies are those of one connection, under its lock. Two rows may share a place: the one that comes adds the other to its row.
type tallies struct {
	slots [tallySlots]rowTally
	used  uint64 // slots, as bits
	noRow rowTally
}

const tallySlots = 64

// lookup is the rows that a lookup used; each is matched once for each message.
type lookup struct {
	rows  []*rowCount
	nulls []*rowCount // those of rows that discard, where they make no copy
}

// lookedUp notes that a message used the rows of a lookup. Called under the lock.
func (c *conn) lookedUp(l *lookup) {
	for _, r := range l.rows {
		c.tally(r).matched++
	}
	for _, r := range l.nulls {
		c.tally(r).delivered++
	}
}

// use notes that a message follows a plan. Called under the lock.
func (c *conn) use(p *plan) {
	if p.sole {
		c.tally(p.target.row).matched++
	} else {
		c.lookedUp(&p.lookup)
	}
	if p.problems > 0 {
		c.n.count.problems.Add(uint64(p.problems))
	}
}

// tally gives the tally of a row, to be added to; nil is no row of the table. Called under the lock.
func (c *conn) tally(r *rowCount) *rowTally {
	if c.tallies == nil {
		c.tallies = &tallies{}
	}
	if r == nil {
		return &c.tallies.noRow
	}
	i := r.place % tallySlots
	t := &c.tallies.slots[i]
	if t.row != r {
		if t.row != nil {
			t.add(c.clock())
		}
		*t = rowTally{row: r}
		c.tallies.used |= 1 << i
	}
	return t
}

// ended tallies what became of a copy. Called under the lock.
func (c *conn) ended(cp *Copy) {
	t := c.tally(cp.row)
	if cp.outcome.Kind == wire.Accepted {
		t.delivered++
		return
	}
	c.n.count.ended(cp)
	if cp.isOrdered() {
		c.n.missed(cp)
	}
	switch {
	case cp.fate == fateLate && cp.had().releases > 0:
		t.released++
	case cp.outcome.Kind == wire.Rejected, cp.fate != fateSent, cp.in.Settled:
		t.dropped++
	default:
		t.released++
	}
}

// addTallies adds what was tallied since the last time to the rows, and what was counted to the node's counters. Called under the lock, before it is released.
func (c *conn) addTallies() {
	c.addCounts()
	if c.tallies == nil || c.tallies.used == 0 {
		return
	}
	at := c.clock()
	for used := c.tallies.used; used != 0; used &= used - 1 {
		t := &c.tallies.slots[bits.TrailingZeros64(used)]
		t.add(at)
		*t = rowTally{}
	}
	c.tallies.used = 0
}

func (t *rowTally) add(at int64) {
	t.addTo(t.row)
	if t.matched > 0 {
		t.row.lastUsed.Store(at)
	}
	if t.row.sum != nil {
		t.addTo(t.row.sum)
	}
}

func (t *rowTally) addTo(r *rowCount) {
	addTo(&r.matched, t.matched)
	addTo(&r.copied, t.copied)
	addTo(&r.delivered, t.delivered)
	addTo(&r.released, t.released)
	addTo(&r.dropped, t.dropped)
}

// once takes out rows that a message's names led to more than once.
func (l *lookup) once() {
	seen := make(map[*rowCount]struct{}, len(l.rows))
	rows := l.rows[:0]
	for _, r := range l.rows {
		if _, ok := seen[r]; !ok {
			seen[r] = struct{}{}
			rows = append(rows, r)
		}
	}
	l.rows = rows
}
