package routetable

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// compact finds the rows of a table that has few. Instead of a key for each outline it has, for each place of a segment, the set of wildcard rows
// that take a segment there, a bit for each row: the sets of an address's segments have in common what may fit.
//
// It is made of a whole snapshot, once enough lookups asked for it. A snapshot whose wildcard rows are too many for a set has none.
type compact struct {
	generation uint64
	asked      atomic.Int32 // lookups before it was made
	made       atomic.Bool

	exact    []exactRow                // by the hash of a literal address, open addressing: a power of two, half of them free
	wild     []*Route                  // by bit, in table order
	sized    [compactLevels + 2]rowSet // by the number of segments; the last is for more
	open     [compactLevels]rowSet     // at each segment from the start: those that take anything there
	openEnd  [compactEnds]rowSet       // from the end
	ends     rowSet                    // those not open from the end everywhere
	segments []segmentRows             // open addressing, as exact
}

// rowSet has a bit for each wildcard row.
type rowSet uint64

// exactRow is a row that has a literal address of that hash.
type exactRow struct {
	hash uint64
	row  *Route // nil is free
}

// segmentRows are the rows that take a segment at a place, as hashAt gives it. Those of two segments with one hash are together: a row too many
// is told by its pattern.
type segmentRows struct {
	hash uint64
	rows rowSet // none is free
}

// What a table of few rows is.
const (
	compactMost   = 256 // what a change makes anew
	compactLevels = 8   // segments from the start that are looked at
	compactEnds   = 2   // and from the end, where any number of them may be before
	compactAfter  = 16  // lookups that do without: rows that change all the time are not worth the making
)

// compact returns the index of a table of few rows; nil if it is not one, or was not asked for often enough.
func (s *Snapshot) compact() *compact {
	if s.order.len() > compactMost {
		return nil
	}
	c := s.caches.compact.Load()
	if c == nil || c.generation != s.generation {
		if c != nil && c.generation > s.generation {
			return nil
		}
		c = &compact{generation: s.generation}
		s.caches.compact.Store(c)
	}
	if !c.made.Load() {
		if c.asked.Add(1) != compactAfter {
			return nil
		}
		c.fill(s)
		c.made.Store(true)
	}
	if c.exact == nil {
		return nil
	}
	return c
}

// fill makes the index, unless there are too many wildcard rows.
func (c *compact) fill(s *Snapshot) {
	var literals []exactRow
	var segs []segmentRows
	var rows []*Route
	s.records(func(rec record) bool { rows = append(rows, s.routeOf(rec.slot())); return true })
	for _, r := range rows {
		for _, lit := range r.c.pattern.lits {
			literals = append(literals, exactRow{hashAddress(lit), r})
		}
		if len(r.c.pattern.forms) == 0 {
			continue
		}
		if len(c.wild) == 64 {
			c.wild = nil
			return
		}
		bit := rowSet(1) << len(c.wild)
		c.wild = append(c.wild, r)
		for i := range r.c.pattern.forms {
			segs = c.fillForm(segs, &r.c.pattern.forms[i], bit)
		}
	}
	c.segments = make([]segmentRows, 1<<bits.Len(uint(2*len(segs))))
	for _, one := range segs {
		at := int(one.hash) & (len(c.segments) - 1)
		for c.segments[at].rows != 0 && c.segments[at].hash != one.hash {
			at = (at + 1) & (len(c.segments) - 1)
		}
		c.segments[at].hash = one.hash
		c.segments[at].rows |= one.rows
	}
	c.exact = make([]exactRow, 1<<bits.Len(uint(2*len(literals))))
	for _, one := range literals {
		at := int(one.hash) & (len(c.exact) - 1)
		for c.exact[at].row != nil {
			at = (at + 1) & (len(c.exact) - 1)
		}
		c.exact[at] = one
	}
}

// fillForm puts a form of the row of a bit into the sets, and appends the segments that it asks for.
func (c *compact) fillForm(segs []segmentRows, form *form, bit rowSet) []segmentRows {
	var path segments
	path.read(form)
	least, most := len(path.before), len(path.before)
	if path.deep {
		least, most = least+len(path.after)+1, len(c.sized)
	}
	if path.long {
		least, most = 0, len(c.sized)
	}
	for n := range c.sized {
		if n >= min(least, len(c.sized)-1) && n <= most {
			c.sized[n] |= bit
		}
	}
	for i := range c.open {
		if path.long || i >= len(path.before) || path.before[i].wild {
			c.open[i] |= bit
		} else {
			segs = append(segs, segmentRows{hashOf(path.before[i].text, i), bit})
		}
	}
	for i := range c.openEnd {
		if last := len(path.after) - 1 - i; path.long || last < 0 || path.after[last].wild {
			c.openEnd[i] |= bit
		} else {
			segs = append(segs, segmentRows{hashOf(path.after[last].text, ^i), bit})
			c.ends |= bit
		}
	}
	return segs
}

// hashOf is hashAt of a segment that stands alone.
func hashOf(segment string, place int) uint64 {
	return hashAt([]byte(segment), 0, len(segment), place)
}

// find appends the rows that fit addr, in no order. One can be there more than once.
func (c *compact) find(dst []*Route, addr string, hash uint64) []*Route {
	for at := int(hash); ; at++ {
		e := &c.exact[at&(len(c.exact)-1)]
		if e.row == nil {
			break
		}
		if e.hash == hash && (e.row.plain && e.row.group.Pattern == addr || !e.row.plain && e.row.c.pattern.match(addr)) {
			dst = append(dst, e.row)
		}
	}
	for set := c.candidates(addr); set != 0; set &= set - 1 {
		r := c.wild[bits.TrailingZeros64(uint64(set))]
		if r.c.pattern.match(addr) {
			dst = append(dst, r)
		}
	}
	return dst
}

// candidates are the wildcard rows that may fit addr.
func (c *compact) candidates(addr string) rowSet {
	b := unsafe.Slice(unsafe.StringData(addr), len(addr))
	set := ^rowSet(0)
	n, last, from := 0, 0, 0 // the segments that ended, where the last of them began, and where the one under way did
	for at := 0; at < len(b); at += 8 {
		for m := slashesIn(wordAt(b, at)); m != 0; m &= m - 1 {
			to := at + bits.TrailingZeros64(m)>>3
			if n < compactLevels {
				set &= c.open[n] | c.taking(hashAt(b, from, to, n))
			}
			n, last, from = n+1, from, to+1
		}
	}
	if n < compactLevels {
		set &= c.open[n] | c.taking(hashAt(b, from, len(b), n))
	}
	if set &= c.sized[min(n+1, len(c.sized)-1)]; set&c.ends == 0 {
		return set
	}
	set &= c.openEnd[0] | c.taking(hashAt(b, from, len(b), -1))
	if n > 0 {
		set &= c.openEnd[1] | c.taking(hashAt(b, last, from-1, -2))
	}
	return set
}

// taking are the rows that take the segment of a hash.
func (c *compact) taking(hash uint64) rowSet {
	for at := hash; ; at++ {
		e := &c.segments[at&uint64(len(c.segments)-1)]
		if e.hash == hash || e.rows == 0 {
			return e.rows
		}
	}
}

// hashAt is the hash of the segment b[from:to] at a place: i from the start, -1-i from the end. Of a long segment it takes the ends.
func hashAt(b []byte, from, to, place int) uint64 {
	var head, tail uint64
	switch n := uint(to - from); {
	case n >= 8:
		head, tail = eightAt(b, from), eightAt(b, to-8)
	case to >= 8:
		head = eightAt(b, to-8) >> (64 - 8*n)
	case from+8 <= len(b):
		head = eightAt(b, from) & (1<<(8*n) - 1)
	default:
		head = wordAt(b[:to], from)
	}
	hi, lo := bits.Mul64(head^segmentSeed, tail^uint64(to-from+place<<32)*0x9e3779b97f4a7c15)
	return hi ^ lo
}

// eightAt is the eight bytes at b[at:], which are there: whoever asks has made sure of it.
func eightAt(b []byte, at int) uint64 {
	return binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), at))[:])
}

// wordAt is the eight bytes at b[at:], zeroes behind the end.
func wordAt(b []byte, at int) uint64 {
	switch {
	case at+8 <= len(b):
		return eightAt(b, at)
	case len(b) >= 8:
		return eightAt(b, len(b)-8) >> (8 * uint(at+8-len(b)))
	}
	var w uint64
	for i := len(b) - 1; i >= at; i-- {
		w = w<<8 | uint64(b[i])
	}
	return w
}

// slashesIn has the high bit of each byte of w that is a slash.
func slashesIn(w uint64) uint64 {
	const low = 0x7f7f7f7f7f7f7f7f
	w ^= 0x2f2f2f2f2f2f2f2f
	return ^(w&low + low | w | low)
}
