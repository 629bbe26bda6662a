package routetable

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"
)

// caches are what lookups keep between them, shared by all snapshots of a table. They only save work: an entry is used where it is known
// to be what the snapshot says.
type caches struct {
	rows    atomic.Pointer[rowCache]
	matches atomic.Pointer[matchCache]
	compact atomic.Pointer[compact]
}

// rowCache is rows made of their records, at the place that their slot gives: a table that fits has a place for each. What is in a place
// is told by the key of the record, which never changes.
type rowCache struct {
	tags []atomic.Uint32 // of the keys of the rows, so that a row that is not there costs one look at a small array
	rows []atomic.Pointer[Route]
}

func newRowCache(n int) *rowCache {
	return &rowCache{make([]atomic.Uint32, n), make([]atomic.Pointer[Route], n)}
}

// tagOf is what a place tells of the row in it.
func tagOf(key uint64) uint32 { return uint32(key*0x9e3779b97f4a7c15>>32) | 1 }

func (c *rowCache) get(slot uint32, key uint64) *Route {
	i := int(slot) & (len(c.rows) - 1)
	if c.tags[i].Load() != tagOf(key) {
		return nil
	}
	if r := c.rows[i].Load(); r != nil && r.key == key {
		return r
	}
	return nil
}

// put keeps the row, unless others are there and it is not its turn: of rows that are looked up once, most would only push others out.
func (c *rowCache) put(slot uint32, r *Route) {
	i := int(slot) & (len(c.rows) - 1)
	if len(c.rows) == maxRowCache && c.tags[i].Load() != 0 && rand.Uint32()%4 != 0 {
		return
	}
	c.rows[i].Store(r)
	c.tags[i].Store(tagOf(r.key))
}

// Bounds of the caches, in entries.
const (
	minRowCache   = 1 << 8
	maxRowCache   = 1 << 14
	minMatchCache = 1 << 10
	maxMatchCache = 1 << 16
)

func newCaches() *caches {
	c := &caches{}
	c.rows.Store(newRowCache(minRowCache))
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
		c.rows.Store(newRowCache(want))
	}
}

// routeOf returns the row of a slot that has one. It is shared.
func (s *Snapshot) routeOf(slot uint32) *Route { return s.route(slot, *s.slots.at(int(slot))) }

// route returns the row of a slot's ref. It is shared.
func (s *Snapshot) route(slot uint32, ref uint64) *Route {
	if r := s.kept(slot, ref); r != nil {
		return r
	}
	r := s.decode(recordAt(s.chunks, ref), recordKey(s.chunks, ref))
	s.caches.rows.Load().put(slot, r)
	return r
}

// lastOf is routeOf for a row that goes: the cache does not take it up.
func (s *Snapshot) lastOf(slot uint32) *Route {
	ref := *s.slots.at(int(slot))
	if r := s.kept(slot, ref); r != nil {
		return r
	}
	return s.decode(recordAt(s.chunks, ref), recordKey(s.chunks, ref))
}

// kept returns the row of a slot's ref if it is in the cache.
func (s *Snapshot) kept(slot uint32, ref uint64) *Route {
	return s.caches.rows.Load().get(slot, recordKey(s.chunks, ref))
}

// wholeRow is a row with all that belongs to it, in one piece.
type wholeRow struct {
	Route
	group   Group
	c       compiled
	pattern pattern
	lit     [1]string
	texts   [160]byte // of a usual record
}

// wildRow is a row whose pattern has wildcards.
type wildRow struct {
	wholeRow
	room wildRoom
}

// globRow is a row whose pattern is a glob.
type globRow struct {
	wholeRow
	room globRoom
}

// decode makes the row of a record. The row has its own copy of the texts, so that it does not keep a chunk alive.
func (s *Snapshot) decode(rec record, key uint64) *Route {
	switch {
	case rec.flags()&recWild == 0:
		w := &wholeRow{}
		ok := w.read(rec)
		w.lit[0] = w.Pattern
		w.pattern = pattern{text: w.Pattern, lits: w.lit[:], isPlain: true}
		return w.finish(key, ok)
	case strings.HasPrefix(rec.pattern(), globPrefix):
		if isStars(rec.pattern()) {
			w := &wildRow{}
			if ok := w.read(rec); w.pattern.compileStars(&w.room, w.Pattern) {
				return w.finish(key, ok)
			}
		}
		w := &globRow{}
		ok := w.read(rec) && w.pattern.compileGlob(&w.room, w.Pattern) == nil
		return w.finish(key, ok)
	}
	w := &wildRow{}
	ok := w.read(rec)
	w.pattern.compileWild(&w.room, w.Pattern)
	return w.finish(key, ok)
}

// read fills the columns of the row from a copy of the record.
func (w *wholeRow) read(rec record) (ok bool) {
	return append(record(w.texts[:0]), rec...).row(&w.Route)
}

// finish compiles what is left, and returns the row. The pattern is there; ok tells whether all was well until now.
func (w *wholeRow) finish(key uint64, ok bool) *Route {
	r, c := &w.Route, &w.c
	if !ok {
		w.pattern.text = r.Pattern
	}
	if err := c.compile(r, &w.pattern); err != nil || !ok {
		// Only a record that was damaged in a way that its checksum does not tell: the row is there and leads nowhere.
		c.match[0], c.template, c.when = Match{Result: r.Address, Problem: "the row's record is damaged"}, &literalTemplate, nil
	}
	r.c = c
	r.key = key
	c.match[0].Route = r
	w.group = Group{Pattern: r.Pattern, Pick: r.Pick, Balance: r.Balance, HashKey: hashKey(r), Fallback: r.Fallback, Number: 1, Matches: c.match[:]}
	r.group, r.plain = &w.group, w.pattern.isPlain
	r.simple = c.template.literal && c.when == nil && c.match[0].Problem == "" && !r.Optional && !r.Fallback && !w.pattern.competes()
	return r
}

// matchCache is what addresses led to, in sets of four places by the hash of the address. One that finds no place in its set is in its other set: then a few
// addresses that are asked for all the time do not push each other out, however their hashes fall.
type matchCache struct {
	sets    []matchSet
	seen    []atomic.Uint32 // tags of addresses that were missed once: an entry is made at the second time
	evicted atomic.Int64    // entries that others took the place of
}

// matchSet is one line of the processor's cache.
type matchSet struct {
	tags    [setSize]atomic.Uint32 // of entries: a part of the hash
	entries [setSize]atomic.Pointer[cached]
	_       [64 - setSize*12]byte
}

// setSize is the number of places for addresses of one set.
const setSize = 4

// cached is what an address led to from one generation to another, in one piece where it is not large.
type cached struct {
	hash   uint64
	from   uint64        // the generation that it was made at
	until  atomic.Uint64 // a later one that it still holds at
	addr   string
	groups []Group
	first  bool // a row counts in the first pass
	found  bool // a row counts, be it a fallback
	when   bool // it depends on properties: there are no groups here, but the rows
	text   [48]byte
	rows   []*Route // that fit the address, in table order
	few    [2]Group
}

func newMatchCache(n int) *matchCache {
	return &matchCache{sets: make([]matchSet, n/setSize), seen: make([]atomic.Uint32, 4*n)}
}

// grown is a larger cache with the same entries.
func (c *matchCache) grown() *matchCache {
	next := newMatchCache(4 * setSize * len(c.sets))
	for i := range c.sets {
		for j := range c.sets[i].entries {
			e := c.sets[i].entries[j].Load()
			if e == nil {
				continue
			}
			if set, k := next.free(e.hash); set != nil {
				set.put(k, e)
			}
		}
	}
	return next
}

// free is a free place for a hash, nil where there is none.
func (c *matchCache) free(hash uint64) (set *matchSet, i int) {
	for _, set := range [2]*matchSet{c.set(hash), c.other(hash)} {
		for i := range set.entries {
			if set.entries[i].Load() == nil {
				return set, i
			}
		}
	}
	return nil, 0
}

func (set *matchSet) put(i int, e *cached) {
	set.entries[i].Store(e)
	set.tags[i].Store(matchTag(e.hash))
}

// find is the entry of an address, and where it is; nil where there is none.
func (c *matchCache) find(addr string, hash uint64) (e *cached, set *matchSet, i int) {
	set = c.set(hash)
	if e, i = set.find(addr, hash); e == nil {
		set = c.other(hash)
		e, i = set.find(addr, hash)
	}
	return e, set, i
}

func (set *matchSet) find(addr string, hash uint64) (e *cached, i int) {
	tag := matchTag(hash)
	for i := range set.tags {
		if set.tags[i].Load() != tag {
			continue
		}
		if e := set.entries[i].Load(); e != nil && e.hash == hash && e.addr == addr {
			return e, i
		}
	}
	return nil, 0
}

func hashAddress(addr string) uint64 { return maphash.String(seed, addr) }

// matchTag is the tag of a hash, which is not 0.
func matchTag(hash uint64) uint32 { return uint32(hash>>32) | 1 }

// set is the set of a hash, and other the one where it is when that was full.
func (c *matchCache) set(hash uint64) *matchSet { return &c.sets[hash&uint64(len(c.sets)-1)] }

func (c *matchCache) other(hash uint64) *matchSet { return &c.sets[hash>>16&uint64(len(c.sets)-1)] }

// cached returns what is known of addr and holds in s, or nil.
func (s *Snapshot) cached(addr string, hash uint64) *cached {
	e, _, _ := s.caches.matches.Load().find(addr, hash)
	if e == nil || !s.holds(e) {
		return nil
	}
	return e
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
func (s *Snapshot) keep(addr string, hash uint64, groups []Group, rows []*Route, first, found, when bool) {
	c, tag := s.caches.matches.Load(), matchTag(hash)
	if at := &c.seen[hash>>16&uint64(len(c.seen)-1)]; at.Load() != tag {
		at.Store(tag)
		if rand.Uint32()%16 != 0 { // now and then at once, so that two that share a place get in
			return
		}
	}
	if len(addr) > maxCachedBytes {
		return
	}
	e := &cached{hash: hash, from: s.generation, first: first, found: found, when: when}
	if len(addr) <= len(e.text) {
		e.addr = unsafe.String(&e.text[0], copy(e.text[:], addr))
	} else {
		e.addr = strings.Clone(addr)
	}
	e.until.Store(s.generation)
	if when {
		e.rows = slices.Clone(rows)
	} else {
		e.groups = append(e.few[:0], groups...)
	}
	// The place of an older entry of the same address, or a free one, or any.
	old, set, at := c.find(addr, hash)
	if old == nil {
		set, at = c.free(hash)
	}
	if set == nil {
		n := c.evicted.Add(1)
		set, at = c.set(hash), int(uint64(n)+hash>>40)%setSize
		if size := setSize * len(c.sets); n > int64(size/8) && size < maxMatchCache {
			s.caches.matches.CompareAndSwap(c, c.grown())
		}
	}
	set.put(at, e)
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
