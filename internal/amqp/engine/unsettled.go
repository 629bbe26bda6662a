package engine

// window finds unsettled deliveries by id. Ids come in sequence, so it is a ring from the oldest unsettled to the
// newest; a few old ones that stay while many pass move to a map, so that memory follows what is unsettled.
//
// Invariant: ids in [base, base+n) are in ring slots (nil where settled); all others are in old.
type window[T any] struct {
	ring []*T // length a power of two, or 0
	base uint32
	n    uint32
	live uint32 // non-nil slots
	old  map[uint32]*T
}

// sparse is the span from which a ring that is mostly empty is moved to the map.
const sparse = 4096

func (w *window[T]) mask() uint32 { return uint32(len(w.ring)) - 1 }

// add stores v under id, which is later than every id added before.
func (w *window[T]) add(id uint32, v *T) {
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
	w.ring[id&w.mask()] = v
	w.n = span
	w.live++
}

func (w *window[T]) retire() {
	if w.old == nil {
		w.old = map[uint32]*T{}
	}
	for i := uint32(0); i < w.n; i++ {
		slot := &w.ring[(w.base+i)&w.mask()]
		if *slot != nil {
			w.old[w.base+i] = *slot
			*slot = nil
		}
	}
	w.live, w.n = 0, 0
}

func (w *window[T]) grow(span uint32) {
	size := max(uint32(len(w.ring)), 16)
	for size < span {
		size *= 2
	}
	ring := make([]*T, size)
	for i := uint32(0); i < w.n; i++ {
		id := w.base + i
		ring[id&(size-1)] = w.ring[id&w.mask()]
	}
	w.ring = ring
}

func (w *window[T]) remove(id uint32) {
	if id-w.base >= w.n {
		delete(w.old, id)
		return
	}
	slot := &w.ring[id&w.mask()]
	if *slot == nil {
		return
	}
	*slot = nil
	w.live--
	for w.n > 0 && w.ring[w.base&w.mask()] == nil {
		w.base++
		w.n--
	}
}

// each calls f for every unsettled delivery with an id in [first, last], bounded by what is held and not by the range. f
// may remove the one that it is given.
func (w *window[T]) each(first, last uint32, f func(id uint32, v *T)) {
	span := last - first
	for id := range w.old {
		if id-first <= span {
			f(id, w.old[id])
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
		if v := w.ring[id&w.mask()]; v != nil {
			f(id, v)
		}
		if id == to {
			return
		}
	}
}
