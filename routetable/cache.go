package routetable

import (
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"
)

// caches are what lookups keep between them, shared by all snapshots of a table. They only save work: an entry is used where it is known
// to be what the snapshot says.
type caches struct {
	rows    atomic.Pointer[rowCache]
	matches atomic.Pointer[matchCache]
}

// rowCache is rows made of their records, at the place that their slot gives: a table that fits has a place for each. What is in a place
// is told by the key of the record, which never changes.
type rowCache struct{ rows []atomic.Pointer[Route] }

// Bounds of the caches, in entries.
const (
	minRowCache   = 1 << 8
	maxRowCache   = 1 << 14
	minMatchCache = 1 << 8
	maxMatchCache = 1 << 16
)

func newCaches() *caches {
	c := &caches{}
	c.rows.Store(&rowCache{make([]atomic.Pointer[Route], minRowCache)})
	c.matches.Store(newMatchCache(minMatchCache))
	return c
}

// fit makes the row cache fit a table of n slots.
func (c *caches) fit(n int) {
	have := len(c.rows.Load().rows)
	want := have
	for want < maxRowCache && want < n {
		want *= 2
	}
	if want != have {
		c.rows.Store(&rowCache{make([]atomic.Pointer[Route], want)})
	}
}

// route returns the row of a slot that has one. It is shared.
func (s *Snapshot) route(slot uint32) *Route {
	ref := *s.slots.at(int(slot))
	if r := s.kept(slot, ref); r != nil {
		return r
	}
	r := s.decode(recordAt(s.chunks, ref), recordKey(s.chunks, ref))
	rows := s.caches.rows.Load().rows
	rows[int(slot)&(len(rows)-1)].Store(r)
	return r
}

// kept returns the row of a slot's ref if it is in the cache.
func (s *Snapshot) kept(slot uint32, ref uint64) *Route {
	rows := s.caches.rows.Load().rows
	if r := rows[int(slot)&(len(rows)-1)].Load(); r != nil && r.key == recordKey(s.chunks, ref) {
		return r
	}
	return nil
}

// wholeRow is a row with all that belongs to it, in one piece.
type wholeRow struct {
	Route
	c       compiled
	matches [1]Match
	pattern pattern
	lit     [1]string
	texts   [160]byte // of a usual record
}

// decode makes the row of a record. The row has its own copy of the texts, so that it does not keep a chunk alive.
func (s *Snapshot) decode(rec record, key uint64) *Route {
	w := &wholeRow{}
	r := &w.Route
	rec = append(record(w.texts[:0]), rec...)
	ok := rec.row(r)
	if rec.flags()&recWild == 0 {
		w.lit[0] = r.Pattern
		w.pattern = pattern{text: r.Pattern, lits: w.lit[:], isPlain: true}
	} else if p, err := compileChecked(r.Pattern); err == nil {
		w.pattern = *p
	} else {
		ok, w.pattern = false, pattern{text: r.Pattern}
	}
	if err := w.c.compile(r, &w.pattern); err != nil || !ok {
		// Only a record that was damaged in a way that its checksum does not tell: the row is there and leads nowhere.
		w.c.match = Match{Result: r.Address, Problem: "the row's record is damaged"}
	}
	r.c = &w.c
	r.key = key
	w.c.match.Route = r
	w.matches[0] = w.c.match
	w.c.matches = w.matches[:]
	return r
}

// matchCache is what addresses led to, in sets of four places by the hash of the address.
type matchCache struct {
	tags    []atomic.Uint32 // of entries: a part of the hash
	entries []atomic.Pointer[cached]
	seen    []atomic.Uint32 // tags of addresses that were missed once: an entry is made at the second time
	evicted atomic.Int64    // entries that others took the place of
}

// setSize is the number of places for addresses of one set.
const setSize = 4

// cached is what an address led to from one generation to another.
type cached struct {
	addr   string
	hash   uint64
	from   uint64        // the generation that it was made at
	until  atomic.Uint64 // a later one that it still holds at
	groups []Group
	first  bool // a row counts in the first pass
	found  bool // a row counts, be it a fallback
	when   bool // it depends on properties: there are no groups here
}

func newMatchCache(n int) *matchCache {
	return &matchCache{tags: make([]atomic.Uint32, n), entries: make([]atomic.Pointer[cached], n), seen: make([]atomic.Uint32, 4*n)}
}

func hashAddress(addr string) uint64 { return maphash.String(seed, addr) }

// place is where a hash's set begins, and its tag, which is not 0.
func (c *matchCache) place(hash uint64) (set int, tag uint32) {
	return int(hash&uint64(len(c.entries)-1)) &^ (setSize - 1), uint32(hash>>32) | 1
}

// cached returns what is known of addr and holds in s, or nil.
func (s *Snapshot) cached(addr string, hash uint64) *cached {
	c := s.caches.matches.Load()
	set, tag := c.place(hash)
	for i := set; i < set+setSize; i++ {
		if c.tags[i].Load() != tag {
			continue
		}
		if e := c.entries[i].Load(); e != nil && e.hash == hash && e.addr == addr {
			if s.holds(e) {
				return e
			}
			return nil
		}
	}
	return nil
}

// holds reports whether an entry is what s says.
func (s *Snapshot) holds(e *cached) bool {
	until := e.until.Load()
	switch {
	case until == s.generation:
		return true
	case until > s.generation:
		return e.from <= s.generation
	case s.recent.touches(until, s.generation, e.addr, e.hash):
		return false
	}
	e.until.CompareAndSwap(until, s.generation)
	return true
}

// keep makes an entry for addr, where it was asked for before.
func (s *Snapshot) keep(addr string, hash uint64, groups []Group, first, found, when bool) {
	c := s.caches.matches.Load()
	set, tag := c.place(hash)
	if at := &c.seen[hash>>16&uint64(len(c.seen)-1)]; at.Load() != tag {
		at.Store(tag)
		if rand.Uint32()%16 != 0 { // now and then at once, so that two that share a place get in
			return
		}
	}
	if len(addr) > maxCachedBytes {
		return
	}
	e := &cached{addr: string([]byte(addr)), hash: hash, from: s.generation, first: first, found: found, when: when}
	e.until.Store(s.generation)
	if !when {
		e.groups = append(make([]Group, 0, len(groups)), groups...)
	}
	// The place of an older entry of the same address, or a free one, or any.
	at := -1
	for i := set; i < set+setSize; i++ {
		old := c.entries[i].Load()
		if old != nil && old.hash == hash && old.addr == addr {
			at = i
			break
		}
		if old == nil && at < 0 {
			at = i
		}
	}
	if at < 0 {
		n := c.evicted.Add(1)
		at = set + int(uint64(n)+hash>>40)%setSize
		if size := len(c.entries); n > int64(size/2) && size < maxMatchCache {
			s.caches.matches.CompareAndSwap(c, newMatchCache(4*size))
		}
	}
	c.entries[at].Store(e)
	c.tags[at].Store(tag)
}

// maxCachedBytes is the longest address that the cache keeps.
const maxCachedBytes = 1 << 10

// recentChanges are the patterns that the last changes touched. It is append-only: snapshots share it, each up to its own end.
type recentChanges struct {
	list  []recentChange // ascending by generation
	start uint64         // changes after this generation are all in list
}

type recentChange struct {
	generation uint64
	hash       uint64   // of the one address that the pattern fits, or
	pattern    *pattern // of what it fits
}

// Bounds: a change of more patterns than maxRecentPatterns counts as one of all; the list is cut to keepRecent when it is full.
const (
	maxRecent         = 2048
	keepRecent        = 1024
	maxReplay         = 512
	maxRecentPatterns = 64
)

// touches reports whether a change after from and up to to may have changed what addr finds.
func (c *recentChanges) touches(from, to uint64, addr string, hash uint64) bool {
	if from < c.start || to < from {
		return true
	}
	list := c.list
	i := len(list)
	for i > 0 && list[i-1].generation > from {
		i--
		if len(list)-i > maxReplay {
			return true
		}
		if ch := &list[i]; ch.pattern == nil {
			if ch.hash == hash {
				return true
			}
		} else if ch.pattern.match(addr) {
			return true
		}
	}
	return false
}

// with returns the changes with those of one more generation. patterns nil is a change of everything.
func (c recentChanges) with(generation uint64, patterns []*pattern) recentChanges {
	if patterns == nil {
		return recentChanges{start: generation}
	}
	if len(c.list)+len(patterns) > maxRecent {
		cut := len(c.list) - keepRecent
		if cut > 0 {
			c.start = c.list[cut-1].generation
			c.list = append(make([]recentChange, 0, maxRecent), c.list[cut:]...)
		}
	}
	for _, p := range patterns {
		ch := recentChange{generation: generation, pattern: p}
		if p.literal() {
			ch.hash, ch.pattern = hashAddress(p.lits[0]), nil
		}
		c.list = append(c.list, ch)
	}
	return c
}
