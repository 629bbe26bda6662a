package routetable

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"sort"
	"strings"
)

// undo is what leads from the configured rows after a change back to those before it, and the match mode. It holds rows as records, so
// that it keeps nothing else of the table in memory.
//
//	undo  = match count { shift } { item }       match is one byte, count a uvarint
//	shift = order low high delta                 varints; see shift
//	item  = 0 text text    the pattern and normalised address of a row that was not there
//	      | 1 record       a row as it was; it counts more than a 0 before it
//	      | 2 text text    the name of an object, and its text as it was
type undo []byte

// The kinds of items.
const (
	itemAbsent = iota
	itemRow
	itemObject
)

// shift says where rows of one order stood that a renumbering gave other positions: those now from low to high stood delta further on. Rows that have an
// item are not meant.
type shift struct {
	order            int
	low, high, delta int64
}

// compare orders shifts by where they begin.
func (s shift) compare(order int, low int64) int {
	return cmp.Or(cmp.Compare(s.order, order), cmp.Compare(s.low, low))
}

// stayed is a configured row that an edit touched without another change than of its position, which happens where all are renumbered.
type stayed struct{ was, now *Route }

// undoOf makes the undo of an edit that is done, nil where it would not fit into the history.
func undoOf(e *edit, c *Change) undo {
	size := 16
	for _, rows := range [...][]*Route{c.Removed, c.Before} {
		for _, r := range rows {
			size += recordHeader + len(r.Pattern) + len(r.Address) + 32
		}
	}
	least := size
	for _, r := range c.Added {
		if Configured(r.Origin) {
			least += len(r.Pattern) + len(r.c.key)
		}
	}
	if least > historyUndoBytes+historyUndoBytes/4 {
		return nil
	}
	u := append(make(undo, 0, min(least+least/8, historyUndoBytes)), byte(e.base.match))
	u = appendShifts(u, e.stayed, e.renumbered)
	// Rows that were not there come first: where a row took the address of one that went in the same edit, that one counts.
	for i, r := range c.Updated {
		if r.c.key != c.Before[i].c.key {
			u = u.absent(r)
		}
	}
	for _, r := range c.Added {
		u = u.absent(r)
	}
	for _, rows := range [...][]*Route{c.Removed, c.Before} {
		for _, r := range rows {
			if !Configured(r.Origin) {
				continue
			}
			if u = appendRecord(append(u, itemRow), r); len(u) > historyUndoBytes {
				return nil
			}
		}
	}
	for _, o := range c.Objects {
		u = appendText(appendText(append(u, itemObject), o.Name), o.Before)
	}
	if len(u) > historyUndoBytes {
		return nil
	}
	return slices.Clip(u)
}

// absent appends that the row was not there.
func (u undo) absent(r *Route) undo {
	if !Configured(r.Origin) || len(u) > historyUndoBytes {
		return u
	}
	return appendText(appendText(append(u, itemAbsent), r.Pattern), r.c.key)
}

// appendShifts appends the shifts of rows that stayed. Where all rows were renumbered, rows in a run moved by the same are taken together.
func appendShifts(u undo, rows []stayed, all bool) undo {
	slices.SortFunc(rows, func(a, b stayed) int { return compareRoutes(a.now, b.now) })
	var shifts []shift
	for _, r := range rows {
		delta := r.was.pos - r.now.pos
		if n := len(shifts); n > 0 && all && shifts[n-1].delta == delta && shifts[n-1].order == r.now.Order {
			shifts[n-1].high = r.now.pos
		} else {
			shifts = append(shifts, shift{r.now.Order, r.now.pos, r.now.pos, delta})
		}
	}
	shifts = slices.DeleteFunc(shifts, func(s shift) bool { return s.delta == 0 })
	u = appendNumbers(u, uint64(len(shifts)))
	for _, s := range shifts {
		u = appendSigned(u, int64(s.order), s.low, s.high, s.delta)
	}
	return u
}

// undoItem is an item as it is read: the row as it was, or for one that was not there its identity alone, or an object.
type undoItem struct {
	object, text string

	pattern string
	key     string // of one that was not there
	row     record
}

// read takes the undo apart, in order. It reports whether the bytes are well formed.
func (u undo) read(match func(MatchMode), shifts func([]shift), item func(undoItem)) bool {
	r := reader{b: u}
	mode := MatchMode(r.byte())
	count := r.number()
	if r.bad || mode > MatchFirst || count > uint64(len(r.b)) {
		return false
	}
	match(mode)
	if count > 0 {
		list := make([]shift, 0, min(count, 4096))
		for range count {
			list = append(list, shift{int(r.signed()), r.signed(), r.signed(), r.signed()})
		}
		if r.bad || !slices.IsSortedFunc(list, func(a, b shift) int { return a.compare(b.order, b.low) }) {
			return false
		}
		shifts(list)
	}
	for len(r.b) > 0 && !r.bad {
		switch r.byte() {
		case itemAbsent:
			it := undoItem{pattern: r.text(), key: r.text()}
			if r.bad {
				return false
			}
			item(it)
		case itemRow:
			rec, rest, ok := readRecord(r.b)
			if !ok {
				return false
			}
			r.b = rest
			item(undoItem{pattern: rec.pattern(), row: rec})
		case itemObject:
			it := undoItem{object: r.text(), text: r.text()}
			if r.bad || it.object == "" {
				return false
			}
			item(it)
		default:
			return false
		}
	}
	return !r.bad
}

// valid reports whether the bytes, which may be anything, are an undo whose rows can be read.
func (u undo) valid() bool {
	rows := true
	return u.read(func(MatchMode) {}, func([]shift) {}, func(it undoItem) {
		var r Route
		rows = rows && (it.row == nil || it.row.row(&r) && Configured(r.Origin) && checkColumns(&r) == nil)
	}) && rows
}

// past is the configured rows, the objects and the match mode at an earlier revision, as what differs from a later snapshot.
type past struct {
	match   MatchMode
	rows    map[rowKey]pastRow // rows that differ; others are those of the snapshot
	shifts  [][]shift          // renumberings since, newest first
	objects map[string]string  // that differ; those that were not there have no text
}

// pastRow is a row as it was.
type pastRow struct {
	row    record // nil: it was not there
	shifts int    // that many of the renumberings are in its position already
}

// before undoes the entries, oldest first, on the snapshot that they lead to.
func (s *Snapshot) before(entries []*historyEntry) *past {
	p := &past{match: s.match, rows: map[rowKey]pastRow{}, objects: map[string]string{}}
	for _, x := range slices.Backward(entries) {
		x.undo.read(
			func(m MatchMode) { p.match = m },
			func(list []shift) { p.shifts = append(p.shifts, list) },
			func(it undoItem) {
				if it.object != "" {
					p.objects[strings.Clone(it.object)] = strings.Clone(it.text)
					return
				}
				k := rowKey{it.pattern, it.key}
				if it.row != nil {
					k.key = key(it.row.address())
				}
				p.rows[k] = pastRow{it.row, len(p.shifts)}
			})
	}
	return p
}

// pos is where a row stood that has the position now, of which the first done renumberings are undone already.
func (p *past) pos(order int, now int64, done int) int64 {
	for _, list := range p.shifts[done:] {
		i := sort.Search(len(list), func(i int) bool { return list[i].compare(order, now) > 0 }) - 1
		if i >= 0 && list[i].order == order && now <= list[i].high {
			now += list[i].delta
		}
	}
	return now
}

// row is the row as it was, not compiled; nil where it was not there. present is the row of the snapshot, if any.
func (p *past) row(k rowKey, present *Route) *Route {
	was, ok := p.rows[k]
	switch {
	case ok && was.row == nil, !ok && present == nil:
		return nil
	case ok:
		r := new(Route)
		if !was.row.row(r) {
			return nil
		}
		r.pos = p.pos(r.Order, r.pos, was.shifts)
		return r
	case len(p.shifts) == 0:
		return present
	}
	r := *present
	r.pos = p.pos(r.Order, r.pos, 0)
	return &r
}

func appendNumbers(dst []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		dst = binary.AppendUvarint(dst, n)
	}
	return dst
}

func appendSigned(dst []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		dst = binary.AppendVarint(dst, n)
	}
	return dst
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// reader takes bytes apart that may be anything. Past the first fault all it gives is zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) skip(n int) {
	if n <= 0 {
		r.b, r.bad = nil, true
		return
	}
	r.b = r.b[n:]
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) number() uint64 {
	n, used := binary.Uvarint(r.b)
	r.skip(used)
	return n
}

func (r *reader) signed() int64 {
	n, used := binary.Varint(r.b)
	r.skip(used)
	return n
}

func (r *reader) count() int {
	n := r.number()
	r.bad = r.bad || n > math.MaxInt32
	return int(n)
}

// text is a view of the bytes.
func (r *reader) text() string {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return ""
	}
	s := record(r.b).text(0, int(n))
	r.b = r.b[n:]
	return s
}
