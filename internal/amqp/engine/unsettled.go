package engine

// window finds unsettled deliveries by id. Ids come in sequence, so it is a ring from the oldest unsettled to the
// newest; a few old ones that stay while many pass move to a map, so that memory follows what is unsettled. It also
// keeps those of each link in order: by their ids, here and not in the deliveries, so that what one that ends lets go of is close together.
//
// Invariant: ids in [base, base+n) are in ring slots (empty where settled); all others are in old.
type window[T any] struct {
	ring []entry[T] // length a power of two, or 0
	base uint32
	n    uint32
	live uint32 // slots in use
	old  map[uint32]*entry[T]
}

// entry is one delivery, and the ids of those of its link before and behind it.
type entry[T any] struct {
	v          *T
	prev, next uint32
}

// chain is the deliveries of one link: n of them, from the oldest to the newest.
type chain struct{ first, last, n uint32 }

// sparse is the span from which a ring that is mostly empty is moved to the map.
const sparse = 4096

func (w *window[T]) mask() uint32 { return uint32(len(w.ring)) - 1 }

// at is the place of an id that is there.
func (w *window[T]) at(id uint32) *entry[T] {
	if id-w.base < w.n {
		return &w.ring[id&w.mask()]
	}
	return w.old[id]
}

// add stores v under id, which is later than every id added before, as the newest of a link's.
func (w *window[T]) add(id uint32, v *T, c *chain) {
	if w.live == 0 {
		w.base, w.n = id, 0
	}
	span := id - w.base + 1
	if span > uint32(len(w.ring)) {
		if span > sparse && w.live < span/4 {
			w.retire()
			w.base, w.n, span = id, 0, 1
		}
		if span > uint32(len(w.ring)) {
			w.grow(span)
		}
	}
	w.ring[id&w.mask()] = entry[T]{v: v, prev: c.last}
	w.n = span
	w.live++
	if c.n == 0 {
		c.first = id
	} else {
		w.at(c.last).next = id
	}
	c.last = id
	c.n++
}

func (w *window[T]) retire() {
	if w.old == nil {
		w.old = map[uint32]*entry[T]{}
	}
	for i := uint32(0); i < w.n; i++ {
		slot := &w.ring[(w.base+i)&w.mask()]
		if slot.v != nil {
			moved := *slot
			w.old[w.base+i] = &moved
			slot.v = nil
		}
	}
	w.live, w.n = 0, 0
}

func (w *window[T]) grow(span uint32) {
	size := max(uint32(len(w.ring)), 16)
	for size < span {
		size *= 2
	}
	ring := make([]entry[T], size)
	for i := uint32(0); i < w.n; i++ {
		id := w.base + i
		ring[id&(size-1)] = w.ring[id&w.mask()]
	}
	w.ring = ring
}

// remove takes out a delivery that is there, of the link with the chain c.
func (w *window[T]) remove(id uint32, c *chain) {
	slot := w.at(id)
	if slot == nil || slot.v == nil {
		return
	}
	if id == c.first {
		c.first = slot.next
	} else {
		w.at(slot.prev).next = slot.next
	}
	if id == c.last {
		c.last = slot.prev
	} else {
		w.at(slot.next).prev = slot.prev
	}
	c.n--
	if id-w.base >= w.n {
		delete(w.old, id)
		return
	}
	slot.v = nil
	w.live--
	for w.n > 0 && w.ring[w.base&w.mask()].v == nil {
		w.base++
		w.n--
	}
}

// of calls f for every delivery of a link, the oldest first. f must not remove any.
func (w *window[T]) of(c *chain, f func(*T)) {
	for id, n := c.first, c.n; n > 0; n-- {
		e := w.at(id)
		f(e.v)
		id = e.next
	}
}

// each calls f for every unsettled delivery with an id in [first, last], bounded by what is held and not by the range. f
// may remove the one that it is given.
func (w *window[T]) each(first, last uint32, f func(id uint32, v *T)) {
	span := last - first
	for id := range w.old {
		if id-first <= span {
			f(id, w.old[id].v)
		}
	}
	if w.n == 0 {
		return
	}
	// Clip the range to the ring.
	from, to := first, last
	if d := int32(first - w.base); d < 0 {
		if int32(last-w.base) < 0 {
			return
		}
		from = w.base
	}
	end := w.base + w.n - 1
	if int32(from-end) > 0 {
		return
	}
	if int32(to-end) > 0 {
		to = end
	}
	for id := from; ; id++ {
		if v := w.ring[id&w.mask()].v; v != nil {
			f(id, v)
		}
		if id == to {
			return
		}
	}
}
