package routetable

import "hash/maphash"

// seed is the hash seed of every pmap of the process, so that a peer cannot choose colliding names.
var seed = maphash.MakeSeed()

// owner marks what one edit may change in place.
type owner struct{ _ byte }

// pmap is a persistent hash map from text: an edit copies the list of buckets once and each bucket that it changes once; who holds
// the old map sees nothing of it.
type pmap[V any] struct {
	buckets []*bucket[V] // a power of two, or nil
	n       int
	owner   *owner // may write to buckets
}

type bucket[V any] struct {
	owner   *owner
	entries []entry[V]
}

type entry[V any] struct {
	hash  uint64
	key   string
	value V
}

// loadFactor is the mean number of entries in a bucket before the list doubles.
const loadFactor = 3

func (m *pmap[V]) get(key string) (v V, ok bool) {
	if m.n == 0 {
		return v, false
	}
	h := maphash.String(seed, key)
	b := m.buckets[h&uint64(len(m.buckets)-1)]
	if b == nil {
		return v, false
	}
	for i := range b.entries {
		if e := &b.entries[i]; e.hash == h && e.key == key {
			return e.value, true
		}
	}
	return v, false
}

// own makes the list of buckets writable for o, with room for one more entry.
func (m *pmap[V]) own(o *owner) {
	switch {
	case m.n+1 > loadFactor*len(m.buckets):
		size := max(8, 2*len(m.buckets))
		old := m.buckets
		m.buckets = make([]*bucket[V], size)
		for _, b := range old {
			if b == nil {
				continue
			}
			for _, e := range b.entries {
				at := e.hash & uint64(size-1)
				if m.buckets[at] == nil {
					m.buckets[at] = &bucket[V]{owner: o}
				}
				m.buckets[at].entries = append(m.buckets[at].entries, e)
			}
		}
	case m.owner != o:
		m.buckets = append([]*bucket[V](nil), m.buckets...)
	}
	m.owner = o
}

func (m *pmap[V]) ownBucket(h uint64, o *owner) *bucket[V] {
	m.own(o)
	at := h & uint64(len(m.buckets)-1)
	b := m.buckets[at]
	if b == nil || b.owner != o {
		fresh := &bucket[V]{owner: o}
		if b != nil {
			fresh.entries = append(make([]entry[V], 0, len(b.entries)+1), b.entries...)
		}
		b = fresh
		m.buckets[at] = b
	}
	return b
}

func (m *pmap[V]) set(key string, v V, o *owner) {
	h := maphash.String(seed, key)
	b := m.ownBucket(h, o)
	for i := range b.entries {
		if e := &b.entries[i]; e.hash == h && e.key == key {
			e.value = v
			return
		}
	}
	b.entries = append(b.entries, entry[V]{h, key, v})
	m.n++
}

func (m *pmap[V]) delete(key string, o *owner) {
	if _, ok := m.get(key); !ok {
		return
	}
	h := maphash.String(seed, key)
	b := m.ownBucket(h, o)
	for i := range b.entries {
		if b.entries[i].key == key {
			b.entries = append(b.entries[:i], b.entries[i+1:]...)
			m.n--
			return
		}
	}
}
