package forwarder

import (
	"errors"

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

// Scheme finds the outlets of one scheme of hop addresses.
type Scheme interface {
	// Outlet gives the hop's outlet; nil where there is no such hop. source is the name that is looked up.
	Outlet(hop *routetable.Hop) Outlet
}

// batch collects the copies of one read for each outlet, so that each destination is locked once.
type batch struct {
	slots []batchSlot
	n     int
	index map[Outlet]int // used from manySlots on
}

type batchSlot struct {
	outlet Outlet
	copies []*Copy
}

const manySlots = 16

func (b *batch) add(o Outlet, c *Copy) {
	i := b.find(o)
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

// deliver hands every outlet its copies. What was not taken is settled by the node.
func (b *batch) deliver(n *Node) {
	if b.n == 0 {
		return
	}
	var refused []*Copy
	for i := range b.slots[:b.n] {
		s := &b.slots[i]
		taken, err := s.outlet.Deliver(s.copies)
		if taken < len(s.copies) {
			for _, c := range s.copies[taken:] {
				c.refuse(err)
				refused = append(refused, c)
			}
		}
		clear(s.copies)
		s.copies, s.outlet = s.copies[:0], nil
	}
	b.n = 0
	clear(b.index)
	if refused != nil {
		n.settle(refused)
	}
}
