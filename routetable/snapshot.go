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

	chunks []chunk        // records
	slots  parray[uint64] // ref of the record of each slot, 0 is none
	order  orderTree      // rows in table order
	index  index          // rows by pattern
	whens  int            // rows with a predicate
	marks  map[string]string
	recent recentChanges
	caches *caches // of the table; nil in a snapshot under way
}

// Generation counts all changes.
func (s *Snapshot) Generation() uint64 { return s.generation }

// Revision counts the changes of configured rows and of the match mode.
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

// records gives the records in table order.
func (s *Snapshot) records(yield func(record) bool) {
	s.order.each(0, func(k orderKey) bool { return yield(s.record(k.slot)) })
}

// Row returns the row with the id, or nil.
func (s *Snapshot) Row(id uint64) *Route {
	if rec := s.record(uint32(id)); rec != nil && rec.id() == id {
		return s.route(uint32(id))
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
			if r := s.route(rec.slot()); r.Name == name {
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

// hasPattern reports whether any row has the pattern.
func (s *Snapshot) hasPattern(text string) bool {
	has := false
	s.recordsOf(text, func(record) bool { has = true; return false })
	return has
}

// rowsOf returns the rows of a pattern, in table order.
func (s *Snapshot) rowsOf(text string) []*Route {
	var rows []*Route
	s.recordsOf(text, func(rec record) bool { rows = append(rows, s.route(rec.slot())); return true })
	slices.SortFunc(rows, compareRoutes)
	return rows
}

// find returns the row of a pattern that an op on (key, origin) means: among configured rows the key alone decides.
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
	s.recordsOfKind(kind, text, func(rec record) bool {
		if rec.keyHash() != hash {
			return true
		}
		if o := rec.origin(); o != origin && !(configured && Configured(o)) {
			return true
		}
		if r := s.route(rec.slot()); r.c.key == key {
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
	var last *Route // the last row that was matched, and whether it fits: many rows of one pattern come one after the other
	fits, wild, g := false, false, guard(addr)
	var seen slotSet
	s.index.find(addr, hash, func(slot uint32) {
		if seen.has(slot) {
			return
		}
		r := s.routeIfFits(slot, addr)
		switch {
		case r == nil:
			return
		case r.c.pattern.plain():
		case last != nil && last.Pattern == r.Pattern:
			if !fits {
				return
			}
		default:
			if last, fits = r, r.c.pattern.matchGuarded(addr, g); !fits {
				return
			}
			wild = true
		}
		dst = append(dst, r)
	})
	sortRoutes(dst[base:])
	if wild && len(dst)-base > 1 {
		// A row is found once for each of its forms that fits, and for each place where the address holds its gram.
		dst = dst[:base+len(slices.CompactFunc(dst[base:], func(a, b *Route) bool { return a.ID == b.ID }))]
	}
	return dst
}

// slotSet is the slots that a lookup has looked at: each is matched once, under however many keys it is found.
type slotSet struct {
	few  [16]uint32
	n    int
	many map[uint32]bool
}

// has reports whether the slot is in the set, and puts it in.
func (s *slotSet) has(slot uint32) bool {
	for _, o := range s.few[:min(s.n, len(s.few))] {
		if o == slot {
			return true
		}
	}
	if s.n < len(s.few) {
		s.few[s.n] = slot
		s.n++
		return false
	}
	if s.many == nil {
		s.many = map[uint32]bool{}
	}
	if s.many[slot] {
		return true
	}
	s.many[slot] = true
	return false
}

// routeIfFits returns the row of a slot, or nil where it is plain and not that of addr. Whether a wildcard fits is not known yet.
func (s *Snapshot) routeIfFits(slot uint32, addr string) *Route {
	if int(slot) >= s.slots.n {
		return nil
	}
	ref := *s.slots.at(int(slot))
	if ref == 0 {
		return nil
	}
	r := s.kept(slot, ref)
	if r == nil {
		rec := recordAt(s.chunks, ref)
		if rec.flags()&recWild == 0 {
			if rec.pattern() != addr {
				return nil
			}
		} else if !mayFit(rec.pattern(), addr) {
			return nil
		}
		return s.route(slot)
	}
	if r.c.pattern.plain() && r.Pattern != addr {
		return nil
	}
	return r
}

// sortRoutes puts rows in table order.
func sortRoutes(rows []*Route) {
	if len(rows) > 16 {
		slices.SortFunc(rows, compareRoutes)
		return
	}
	for i := 1; i < len(rows); i++ {
		for j := i; j > 0 && rows[j].before(rows[j-1]); j-- {
			rows[j], rows[j-1] = rows[j-1], rows[j]
		}
	}
}

// ChangedSince reports whether what addr finds may be another than it was at an earlier generation. A false yes is possible.
//
// A cache of what an address led to keeps the generation it was made at and asks this at each use for every name that was looked up.
// Cost: a few nanoseconds for each change since.
func (s *Snapshot) ChangedSince(generation uint64, addr string) bool {
	return generation != s.generation && s.recent.touches(generation, s.generation, addr, hashAddress(addr))
}
