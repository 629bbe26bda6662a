package routetable

import (
	"bytes"
	"iter"
	"slices"
	"strings"
	"unsafe"
)

// Snapshot is the table at one moment, immutable. Every lookup of a message should use the same one.
type Snapshot struct {
	generation   uint64
	revision     uint64
	match        MatchMode
	dynamicHosts bool // captures may supply whole hosts in every row

	chunks  []chunk   // records
	slots   slotArray // ref of the record of each slot, 0 is none
	order   orderTree // rows in table order
	index   index     // rows by pattern
	whens   int       // rows with a predicate
	marks   map[string]string
	objects map[string]string // by name
	recent  recentChanges
	caches  *caches // of the table; nil in a snapshot under way

	emptied *emptied // of the table
}

// Generation counts all changes.
func (s *Snapshot) Generation() uint64 { return s.generation }

// Revision counts the changes of configured rows, of objects and of the match mode.
func (s *Snapshot) Revision() uint64 { return s.revision }

// Match is the match mode of the plain name space.
func (s *Snapshot) Match() MatchMode { return s.match }

// Len is the number of rows.
func (s *Snapshot) Len() int { return s.order.len() }

// HasWhen reports whether any row has a predicate, so that a lookup needs the message's properties.
func (s *Snapshot) HasWhen() bool { return s.whens > 0 }

// Mark returns what an Author.Marks said of a name last.
func (s *Snapshot) Mark(name string) (value string, ok bool) {
	value, ok = s.marks[name]
	return value, ok
}

// Origins counts the rows by their origins.
func (s *Snapshot) Origins() map[string]int {
	n := map[string]int{}
	s.records(func(rec record) bool {
		if o := rec.origin(); n[o] > 0 {
			n[o]++
		} else {
			n[strings.Clone(o)] = 1
		}
		return true
	})
	return n
}

// Routes gives the rows in table order. Rows are made as they are asked for: about a microsecond each.
func (s *Snapshot) Routes() iter.Seq[*Route] { return s.RoutesFrom(0) }

// RoutesFrom gives the rows in table order, from the one at position n (the first is 0) on.
func (s *Snapshot) RoutesFrom(n int) iter.Seq[*Route] {
	return func(yield func(*Route) bool) {
		s.order.each(n, func(k orderKey) bool { return yield(s.decode(s.record(k.slot), 0)) })
	}
}

// Where gives the rows whose pattern and origin are taken: how many they are, and those from the one at place i among them on, in table order. It
// looks at every row, for some 50 ns each, and makes only those that are asked for.
func (s *Snapshot) Where(takes func(pattern, origin string) bool) (n int, from func(i int) iter.Seq[*Route]) {
	s.records(func(rec record) bool {
		if takes(rec.pattern(), rec.origin()) {
			n++
		}
		return true
	})
	return n, func(i int) iter.Seq[*Route] {
		return func(yield func(*Route) bool) {
			left := i
			s.records(func(rec record) bool {
				if !takes(rec.pattern(), rec.origin()) {
					return true
				}
				if left--; left >= 0 {
					return true
				}
				return yield(s.decode(rec, 0))
			})
		}
	}
}

// records gives the records in table order.
func (s *Snapshot) records(yield func(record) bool) {
	s.order.each(0, func(k orderKey) bool { return yield(s.record(k.slot)) })
}

// Row returns the row with the id, or nil.
func (s *Snapshot) Row(id uint64) *Route {
	if rec := s.record(uint32(id)); rec != nil && rec.id() == id {
		return s.routeOf(uint32(id))
	}
	return nil
}

// Position is the place of a row in the table, from 0.
func (s *Snapshot) Position(r *Route) int { return s.order.rank(r.orderKey()) }

// Find returns the row of a pattern and an address that an edit of the origin means, or nil: among configured rows pattern and address alone
// decide. Addresses are compared by their normalised form.
func (s *Snapshot) Find(pattern, address, origin string) *Route {
	return s.find(pattern, key(address), origin)
}

// Named returns the first row with the operator's own name for it, or nil. It looks at every row: some 50 ns each.
func (s *Snapshot) Named(name string) *Route {
	var found *Route
	s.records(func(rec record) bool {
		if bytes.Contains(rec.tail(), unsafe.Slice(unsafe.StringData(name), len(name))) {
			if r := s.routeOf(rec.slot()); r.Name == name {
				found = r
			}
		}
		return found == nil
	})
	return found
}

// record returns the record of a slot, or nil.
func (s *Snapshot) record(slot uint32) record {
	if int(slot) >= s.slots.n {
		return nil
	}
	ref := *s.slots.at(int(slot))
	if ref == 0 {
		return nil
	}
	return recordAt(s.chunks, ref)
}

// recordsOf calls yield with the records of the rows of a pattern, in no order.
func (s *Snapshot) recordsOf(text string, yield func(record) bool) {
	if s.recordsOfKind(kindExact, text, yield) {
		s.recordsOfKind(kindText, text, yield)
	}
}

// recordsOfKind is recordsOf where the text is a plain pattern (kindExact), or is not (kindText). It reports whether yield asks for more.
func (s *Snapshot) recordsOfKind(kind int, text string, yield func(record) bool) bool {
	for _, w := range s.index.keys.get(uint32(hashText(kind, text) >> 32)) {
		rec := s.record(uint32(w))
		// A row whose literal happens to be this text is filed under kindExact too: its own text decides. A row filed under both
		// kinds has two texts.
		if rec != nil && rec.pattern() == text && (rec.flags()&recWild != 0) == (kind == kindText) && !yield(rec) {
			return false
		}
	}
	return true
}

// recordsOfOrigin is recordsOf for the rows of one learned origin.
func (s *Snapshot) recordsOfOrigin(origin, text string, yield func(record) bool) {
	words := s.index.keys.get(uint32(hashText(kindOrigin, origin) >> 32))
	if len(words) > manyRows {
		s.recordsOf(text, yield)
		return
	}
	for _, w := range words {
		if rec := s.record(uint32(w)); rec != nil && rec.origin() == origin && rec.pattern() == text && !yield(rec) {
			return
		}
	}
}

// hasPattern reports whether any row has the pattern.
func (s *Snapshot) hasPattern(text string) bool {
	has := false
	s.recordsOf(text, func(record) bool { has = true; return false })
	return has
}

// RowsOf returns the rows of a pattern, in table order; ok is false where there are more than most of them. It looks at no other row.
func (s *Snapshot) RowsOf(pattern string, most int) (rows []*Route, ok bool) {
	n := 0
	if s.recordsOf(pattern, func(record) bool { n++; return n <= most }); n > most {
		return nil, false
	}
	return s.rowsOf(pattern), true
}

// rowsOf returns the rows of a pattern, in table order.
func (s *Snapshot) rowsOf(text string) []*Route {
	var rows []*Route
	s.recordsOf(text, func(rec record) bool { rows = append(rows, s.routeOf(rec.slot())); return true })
	slices.SortFunc(rows, compareRoutes)
	return rows
}

// firstOf returns the row of a pattern that is first in the table, of those for which is holds; nil where there is none.
func (s *Snapshot) firstOf(text string, is func(record) bool) *Route {
	var first record
	s.recordsOf(text, func(rec record) bool {
		if first == nil || rec.order() < first.order() || rec.order() == first.order() && rec.pos() < first.pos() {
			if is(rec) {
				first = rec
			}
		}
		return true
	})
	if first == nil {
		return nil
	}
	return s.routeOf(first.slot())
}

// find returns the row of a pattern that an op on (key, origin) means: among configured rows the key alone decides. The rows of a learned
// origin are mostly few, where a pattern may have thousands.
func (s *Snapshot) find(text, key, origin string) *Route {
	if found := s.findKind(kindExact, text, key, origin); found != nil {
		return found
	}
	return s.findKind(kindText, text, key, origin)
}

// findCompiled is find of the row that r, which is compiled, would be.
func (s *Snapshot) findCompiled(r *Route, origin string) *Route {
	if r.c.pattern.plain() {
		return s.findKind(kindExact, r.Pattern, r.c.key, origin)
	}
	return s.findKind(kindText, r.Pattern, r.c.key, origin)
}

func (s *Snapshot) findKind(kind int, text, key, origin string) *Route {
	var found *Route
	hash := keyHash32(key)
	configured := Configured(origin)
	rows := func(yield func(record) bool) { s.recordsOfKind(kind, text, yield) }
	if Learned(origin) {
		rows = func(yield func(record) bool) { s.recordsOfOrigin(origin, text, yield) }
	}
	rows(func(rec record) bool {
		if rec.keyHash() != hash {
			return true
		}
		if o := rec.origin(); o != origin && !(configured && Configured(o)) {
			return true
		}
		if r := s.routeOf(rec.slot()); r.c.key == key {
			found = r
		}
		return found == nil
	})
	return found
}

// rowsFor appends the rows whose pattern fits addr, whose hash is given, in table order.
func (s *Snapshot) rowsFor(dst []*Route, addr string, hash uint64) []*Route {
	if len(addr) > MaxTextBytes {
		return dst
	}
	base := len(dst)
	if c := s.compact(); c != nil {
		dst = c.find(dst, addr, hash)
		return dst[:base+sortRoutes(dst[base:])]
	}
	var p probes
	s.index.find(&p, addr, hash)
	slots := p.slots()
	m := matching{addr: addr, cache: s.caches.rows.Load()}
	for len(slots) > sideBySide {
		dst = s.matchSlots(dst, slots[:sideBySide], &m)
		slots = slots[sideBySide:]
	}
	dst = s.matchSlots(dst, slots, &m)
	return dst[:base+sortRoutes(dst[base:])]
}

// matching is an address on its way past the rows that may fit it.
type matching struct {
	addr  string
	cache *rowCache
	last  *Route // the last wildcard row, and whether it fits: many rows of one pattern come one after the other
	fits  bool
	touch uint32
}

// sideBySide is how many rows are fetched at once.
const sideBySide = 8

// matchSlots appends the rows of the slots, at most sideBySide, that fit. What no step depends on another for is read before it is looked at,
// so that the processor waits for the memory of all rows at once.
func (s *Snapshot) matchSlots(dst []*Route, slots []uint32, m *matching) []*Route {
	var found [sideBySide]struct {
		ref uint64
		row *Route
	}
	for i, slot := range slots {
		if int(slot) >= s.slots.n {
			continue
		}
		ref := *s.slots.at(int(slot))
		if ref == 0 {
			continue
		}
		f := &found[i&(sideBySide-1)]
		f.ref = ref
		if f.row = m.cache.get(slot, recordKey(s.chunks, ref)); f.row == nil {
			m.touch += recordAt(s.chunks, ref).u32(recordHeader)
		} else if text := f.row.group.Pattern; text != "" {
			m.touch += uint32(text[0])
		}
	}
	for i, slot := range slots {
		f := &found[i&(sideBySide-1)]
		if f.row == nil {
			if f.ref == 0 || !mayFit(recordAt(s.chunks, f.ref), m.addr) {
				continue
			}
			f.row = s.route(slot, f.ref)
		}
		if m.fit(f.row) {
			dst = append(dst, f.row)
		}
	}
	return dst
}

// fit reports whether the row fits.
func (m *matching) fit(r *Route) bool {
	if r.plain {
		return r.group.Pattern == m.addr
	}
	if m.last == nil || m.last.Pattern != r.Pattern {
		m.last, m.fits = r, r.c.pattern.match(m.addr)
	}
	return m.fits
}

// sortRoutes puts rows in table order, each once, and returns how many they are: a row is found once for each of its forms that fits, and a false
// yes of a filter finds a row again.
func sortRoutes(rows []*Route) int {
	if len(rows) < 2 {
		return len(rows)
	}
	if len(rows) > 16 {
		slices.SortFunc(rows, compareRoutes)
		return len(slices.CompactFunc(rows, func(a, b *Route) bool { return a.ID == b.ID }))
	}
	n := 0
	for _, r := range rows {
		at := n
		for at > 0 && r.before(rows[at-1]) {
			at--
		}
		if at > 0 && r.ID == rows[at-1].ID {
			continue
		}
		for i := n; i > at; i-- {
			rows[i] = rows[i-1]
		}
		rows[at] = r
		n++
	}
	return n
}

// ChangedSince reports whether what addr finds may be another than it was at an earlier generation. A false yes is possible.
//
// A cache of what an address led to keeps the generation it was made at and asks this at each use for every name that was looked up.
// Cost: a few nanoseconds for each change since.
func (s *Snapshot) ChangedSince(generation uint64, addr string) bool {
	return generation != s.generation && s.recent.touches(generation, s.generation, addr, hashAddress(addr))
}

// OfOrigin gives the rows of a learned origin, or of all learned origins that begin with it where it ends with a slash, in table order.
func (s *Snapshot) OfOrigin(origin string) []*Route {
	var rows []*Route
	for _, w := range s.index.keys.get(uint32(hashText(kindOrigin, origin) >> 32)) {
		rec := s.record(uint32(w))
		if rec == nil {
			continue
		}
		if o := rec.origin(); o == origin || strings.HasSuffix(origin, "/") && strings.HasPrefix(o, origin) {
			rows = append(rows, s.routeOf(rec.slot()))
		}
	}
	slices.SortFunc(rows, compareRoutes)
	return rows
}
