package mesh

// inbox remembers the ids of QoS 2 publishes that a twin has sent and not yet said ack2 to, so that each is taken once. It is pure. The oldest are forgotten
// where a peer never says ack2.
type inbox struct {
	seen  map[ID]int // its place in order, counted from the first ever
	order []ID
	first int // the count of order[0]
}

// maxSeen bounds the ids of one twin.
const maxSeen = 1 << 16

// take tells whether a publish is new.
func (b *inbox) take(id ID) bool {
	id = id.bare()
	if _, ok := b.seen[id]; ok {
		return false
	}
	if b.seen == nil {
		b.seen = map[ID]int{}
	}
	if len(b.order) == maxSeen {
		b.forgetOldest(maxSeen / 4)
	}
	b.seen[id] = b.first + len(b.order)
	b.order = append(b.order, id)
	return true
}

// release takes an ack2; false where its publish is not known.
func (b *inbox) release(id ID) bool {
	id = id.bare()
	if _, ok := b.seen[id]; !ok {
		return false
	}
	delete(b.seen, id)
	if len(b.seen) == 0 {
		b.order, b.first = b.order[:0], 0
	}
	return true
}

// forgetOldest makes room. Entries that were released already are dropped with it.
func (b *inbox) forgetOldest(n int) {
	for _, id := range b.order[:n] {
		if at, ok := b.seen[id]; ok && at < b.first+n {
			delete(b.seen, id)
		}
	}
	b.order = append(b.order[:0], b.order[n:]...)
	b.first += n
}

// ids gives those that are remembered, oldest first.
func (b *inbox) ids() []ID {
	var ids []ID
	for i, id := range b.order {
		if at, ok := b.seen[id]; ok && at == b.first+i {
			ids = append(ids, id)
		}
	}
	return ids
}
