package forwarder

import (
	"errors"
	"sync"

	"github.com/fingerpost/fingerpost/routetable"
)

// ErrGone says that there is no such hop (any more): the node takes another row, or gives the copy back as released.
var ErrGone = errors.New("no such hop")

// ErrBusy says that the hop's line is full: the node takes another row of an any group, else a pre-settled copy is dropped by
// name and an unsettled one given back as released.
var ErrBusy = errors.New("the hop's line is full")

// Outlet is one hop, as the outlet of its scheme reaches it.
type Outlet interface {
	// Deliver queues the copies, in order, and returns how many it took; the rest got err: ErrGone or ErrBusy. For each one
	// taken the outlet settles exactly once. No lock is held by the caller.
	Deliver(batch []*Copy) (taken int, err error)

	// Present tells whether the hop can be expected to take a copy now; Busy how many copies it has and has not settled.
	Present() bool
	Busy() int
}

// Asked is an Outlet that may be one of requests: of those that are equally busy the first gets the next, where receivers take turns.
type Asked interface {
	IsAsked() bool
}

// Scheme finds the outlets of one scheme of hop addresses.
type Scheme interface {
	// Outlet gives the hop's outlet; nil where there is no such hop. row is the one that leads to it, and name what was looked up last and led to
	// that: topic:T where an operator's row leads there. Both are empty where only Present is asked for. A hop gets a copy for each of its outlets: in
	// topic: a peer has one for each of its patterns that fits (DESIGN §2).
	Outlet(hop *routetable.Hop, row *routetable.Route, name string) Outlet
}

// batch collects the copies of a part of a read for each outlet, so that each destination is locked once for it, and written to once for
// the read.
type batch struct {
	slots   []batchSlot
	n       int
	hint    int                   // messages of one address go to the same outlets in the same order: the next slot is this one
	index   map[Outlet]int        // used from manySlots on
	foreign bool                  // some outlet is no line
	unsent  map[*sync.Mutex]*line // lines that got copies of this read and whose connections were not flushed since

	warmth uint32 // of nothing: what warm reads has to go somewhere

	// Scratch of deliver.
	last    map[*sync.Mutex]int // the last slot of each lock so far, of those that chain does not search
	refused []*Copy
}

type batchSlot struct {
	outlet Outlet
	mu     *sync.Mutex // of a line, once chained
	copies []*Copy
	next   int  // the next slot of the same lock; 0 is none: no slot comes after itself
	done   bool // its copies are handed over
}

const manySlots = 16

func (b *batch) add(o Outlet, c *Copy) {
	i := b.hint
	if i >= b.n || b.slots[i].outlet != o {
		i = b.find(o)
	}
	if b.hint = i + 1; b.hint == b.n {
		b.hint = 0
	}
	b.slots[i].copies = append(b.slots[i].copies, c)
}

func (b *batch) find(o Outlet) int {
	if b.n <= manySlots {
		for i := b.n - 1; i >= 0; i-- {
			if b.slots[i].outlet == o {
				return i
			}
		}
	} else if i, ok := b.index[o]; ok {
		return i
	}
	if b.n == len(b.slots) {
		b.slots = append(b.slots, batchSlot{})
	}
	b.slots[b.n].outlet = o
	if _, isLine := o.(*line); !isLine {
		b.foreign = true
	}
	b.n++
	if b.n > manySlots {
		if b.index == nil {
			b.index = map[Outlet]int{}
		}
		if b.n == manySlots+1 {
			for i := range b.slots[:b.n] {
				b.index[b.slots[i].outlet] = i
			}
		}
		b.index[o] = b.n - 1
	}
	return b.n - 1
}

// count tells how many copies of the batch an outlet is going to get. A nil batch has none.
func (b *batch) count(o Outlet) int {
	if b == nil {
		return 0
	}
	for i := range b.slots[:b.n] {
		if b.slots[i].outlet == o {
			return len(b.slots[i].copies)
		}
	}
	return 0
}

// deliver hands every outlet its copies: the lines of one connection together, so that it is locked once. What was not taken is settled by
// the node. Connections are flushed, unless there is more to come.
func (b *batch) deliver(n *Node, more bool) {
	if b.n > 1 {
		b.chain()
	}
	for i := range b.slots[:b.n] {
		s := &b.slots[i]
		switch ln, isLine := s.outlet.(*line); {
		case s.done:
		case isLine:
			b.deliverTo(n, ln, i, more)
		default:
			taken, err := s.outlet.Deliver(s.copies)
			b.refuse(s.copies[taken:], err)
		}
	}
	for i := range b.slots[:b.n] {
		s := &b.slots[i]
		clear(s.copies)
		*s = batchSlot{copies: s.copies[:0]}
	}
	b.n, b.foreign = 0, false
	clear(b.index)
	if !more {
		for _, ln := range b.unsent {
			ln.mu.Lock()
			ln.unlock()
		}
		clear(b.unsent)
	}
	if refused := b.refused; len(refused) > 0 {
		n.settle(refused)
		clear(refused)
		b.refused = refused[:0]
	}
}

// chain links the slots of lines that share a lock, in their order.
func (b *batch) chain() {
	var tails [16]int // the last slots of the first locks
	locks := 0
	for i := range b.slots[:b.n] {
		ln, ok := b.slots[i].outlet.(*line)
		if !ok {
			continue
		}
		s := &b.slots[i]
		s.mu = ln.mu
		k := 0
		for k < locks && b.slots[tails[k]].mu != s.mu {
			k++
		}
		switch {
		case k < locks:
			b.slots[tails[k]].next, tails[k] = i, i
		case locks < len(tails):
			tails[k] = i
			locks++
		default:
			b.chainMore(i)
		}
	}
	clear(b.last)
}

// chainMore is chain for a slot of one lock of many.
func (b *batch) chainMore(i int) {
	if b.last == nil {
		b.last = map[*sync.Mutex]int{}
	}
	mu := b.slots[i].mu
	if j, ok := b.last[mu]; ok {
		b.slots[j].next = i
	}
	b.last[mu] = i
}

// warm touches what the lines of a chain are going to touch, so that it comes into the processor's cache together. Called under their lock.
func (b *batch) warm(first int) {
	for i := b.slots[first].next; i != 0; i = b.slots[i].next {
		ln := b.slots[i].outlet.(*line)
		if ln.l != nil {
			b.warmth += ln.l.Credit()
		}
		if ln.traffic != nil {
			b.warmth += uint32(ln.queue.n)
		}
	}
}

// deliverTo hands the lines of a chain their copies, under their lock.
func (b *batch) deliverTo(n *Node, head *line, first int, more bool) {
	mu := head.mu
	var c *conn
	var moved []int
	var wake []*inlink
	mu.Lock()
	b.warm(first)
	for i := first; ; i = b.slots[i].next {
		s := &b.slots[i]
		s.done = true
		ln := s.outlet.(*line)
		var err error
		b.refused, err = ln.take(s.copies, b.refused)
		wake = append(wake, ln.tellRoom()...)
		if c == nil {
			c = ln.c
		}
		switch {
		case err == errMoved:
			moved = append(moved, i)
		case err != nil:
			b.refuse(s.copies, err)
		}
		if s.next == 0 {
			break
		}
	}
	switch {
	case c == nil:
		mu.Unlock()
	case more:
		if b.unsent == nil {
			b.unsent = map[*sync.Mutex]*line{}
		}
		b.unsent[mu] = head
		c.c.Pause()
	default:
		delete(b.unsent, mu)
		c.c.Release()
	}
	if wake != nil {
		n.wake(wake)
	}
	for _, i := range moved {
		s := &b.slots[i]
		taken, err := s.outlet.Deliver(s.copies)
		b.refuse(s.copies[taken:], err)
	}
}

// refuse notes the copies that an outlet did not take.
func (b *batch) refuse(copies []*Copy, err error) {
	for _, c := range copies {
		c.refuse(err)
		b.refused = append(b.refused, c)
	}
}
