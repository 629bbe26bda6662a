package routetable

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// edit is a batch of ops on its way from one snapshot to the next. Nothing of it shows before it is published.
type edit struct {
	t     *Table
	base  *Snapshot
	s     *Snapshot // the next one, under way: it can be read
	owner owner

	// The pages of base are those of a batch that nobody reads yet, and this edit may change them too.
	shared bool

	nextPos    int64
	appended   int64 // the last position given behind all others
	ids        idSource
	touched    []touch
	places     map[uint64]int // where in touched a row of base is, by id
	fresh      []int          // where in touched the rows with new ids are, by serial
	moved      map[uint64]bool
	marked     bool            // the marks are not those of base
	objects    map[string]bool // names of those that were set; nil: those of s are those of base
	written    []uint64        // refs of records written
	dropped    []uint64        // refs of records of base that are in no row any more
	stayed     []stayed        // set by finish: configured rows touched that are as they were, but for their positions
	renumbered bool            // all rows have new positions
	buffer     []byte
	notes      []string
	warn       []Warning
}

// touch is a row that the edit changes: as it was, nil for a new one, and as it is, nil for one that is gone.
type touch struct {
	id       uint64
	was, now *Route
}

// idSource gives ids: a slot, and a serial number that tells apart the rows that have a slot one after the other.
type idSource struct {
	free   []uint32 // slots of rows that are gone
	slots  uint32   // slots ever used
	serial uint32   // the last serial given
}

func (d *idSource) next() uint64 {
	slot := d.slots
	if n := len(d.free); n > 0 {
		slot = d.free[n-1]
		d.free = d.free[:n-1]
	} else {
		d.slots++
	}
	if d.serial++; d.serial == 0 { // no row has it
		d.serial = 1
	}
	return uint64(d.serial)<<32 | uint64(slot)
}

// newEdit begins an edit of base, after the one before it was forgotten.
func newEdit(t *Table, base *Snapshot) *edit {
	e, s := t.idle, t.scratch
	t.idle, t.scratch = nil, nil
	if e == nil {
		e = &edit{}
	}
	if s == nil {
		s = &Snapshot{}
	}
	*s = *base
	*e = edit{
		t: t, base: base, s: s, nextPos: t.nextPos, ids: t.ids, buffer: e.buffer[:0],
		touched: e.touched[:0], fresh: e.fresh[:0], written: e.written[:0], dropped: e.dropped[:0],
	}
	if t.batch.snapshot == base {
		e.owner, e.shared = t.batch.owner, true
		return e
	}
	t.owner++
	e.owner = t.owner
	return e
}

// forget keeps the room of an edit that is done for the next, and the snapshot that nobody can have seen: its base, where that was never
// published and is not the newest, or what it gave up. What finish gave stays as it is.
func (e *edit) forget() {
	t := e.t
	if cap(e.touched) > keepRoom || cap(e.buffer) > MaxTextBytes {
		return
	}
	if e.shared && t.head == e.s {
		t.scratch = e.base
	} else if t.head == e.base {
		t.scratch = e.s
	}
	clear(e.touched)
	e.base, e.s = nil, nil
	t.idle = e
}

// pattern returns the compiled pattern of a text, that of a row that has it where there is one.
func (e *edit) pattern(text string) (*pattern, error) {
	if !strings.HasPrefix(text, globPrefix) {
		return compilePattern(text)
	}
	var p *pattern
	e.s.recordsOf(text, func(rec record) bool { p = e.s.routeOf(rec.slot()).c.pattern; return false })
	if p != nil {
		return p, nil
	}
	return compilePattern(text)
}

// touch returns the note of a row's change, made at the first. was is the row before.
func (e *edit) touch(id uint64, was *Route) *touch {
	if serial := uint32(id >> 32); serial-e.t.ids.serial-1 < uint32(len(e.fresh)) {
		return &e.touched[e.fresh[serial-e.t.ids.serial-1]]
	}
	at, ok := e.places[id]
	if !ok {
		at = len(e.touched)
		if e.places == nil {
			e.places = map[uint64]int{}
		}
		e.places[id] = at
		e.touched = append(e.touched, touch{id: id, was: was})
	}
	return &e.touched[at]
}

// compile checks the texts and columns of r and fills r.c.
func (e *edit) compile(r *Route, p *pattern) error {
	return e.compileInto(new(compiled), r, p)
}

// compileInto is compile with c, which is empty.
func (e *edit) compileInto(c *compiled, r *Route, p *pattern) error {
	if err := checkColumns(r); err != nil {
		return err
	}
	if err := c.compile(r, p); err != nil {
		return err
	}
	r.c = c
	return nil
}

// compileRow makes what the table keeps of a row's texts. It refuses a bad predicate and a bad literal address.
func compileRow(r *Route, p *pattern) (*compiled, error) {
	c := &compiled{}
	return c, c.compile(r, p)
}

func (c *compiled) compile(r *Route, p *pattern) error {
	c.pattern = p
	if len(r.Address) > MaxTextBytes {
		return &RefusedError{What: "the address is longer than 64 KiB", Where: "address"}
	}
	if r.When != "" {
		w, err := CompileWhen(r.When)
		if err != nil {
			return err
		}
		c.when = w
	}
	if strings.IndexByte(r.Address, '$') < 0 {
		c.template = &literalTemplate
	} else {
		c.template = compileTemplate(r.Address)
	}
	if !c.template.literal {
		c.key = templateKey(r.Address)
		return nil
	}
	value := c.template.of(r.Address)
	var h parsedHop
	if err := h.parse(value); err != nil {
		return err
	}
	c.key, c.hop, c.warning = h.Key, h.Hop, h.warning
	c.match[0] = Match{Result: value, Problem: h.problem}
	if h.problem == "" {
		c.match[0].Hop = &c.hop
	}
	return nil
}

// holds reports whether c is what compile makes of r.
func (c *compiled) holds(r *Route) bool {
	if c.pattern.text != r.Pattern || (c.when == nil) != (r.When == "") || c.when != nil && c.when.text != r.When {
		return false
	}
	if c.template == &literalTemplate {
		return c.match[0].Result == r.Address
	}
	return c.template.text == r.Address
}

// of is a copy of c for row r.
func (c *compiled) of(r *Route) *compiled {
	fresh := *c
	fresh.become(r)
	return &fresh
}

// become makes a copy that of row r.
func (c *compiled) become(r *Route) {
	c.match[0].Route = r
	if c.match[0].Hop != nil {
		c.match[0].Hop = &c.hop
	}
}

// templateKey is the normal form of an address that is a template: its scheme in lower case, amqp:// where there is none.
func templateKey(text string) string {
	if i := strings.Index(text, "://"); i > 0 && strings.IndexByte(text, '/') == i+1 && strings.IndexByte(text[:i], '$') < 0 {
		return "$" + strings.ToLower(text[:i]) + text[i:]
	}
	if scheme, ok := ReservedScheme(text); ok {
		return "$" + scheme + text[len(scheme):]
	}
	if text[0] != '$' && !isSchemeColon(strings.SplitN(text, "$", 2)[0]) {
		return "$amqp://" + text
	}
	return "$" + text
}

// put adds a new row at r.pos.
func (e *edit) put(r *Route) {
	if r.pos != e.appended {
		e.makePlace(r)
	}
	r.ID = e.ids.next()
	e.fresh = append(e.fresh, len(e.touched))
	e.touched = append(e.touched, touch{id: r.ID, now: r})
	e.insertRow(r)
}

// insertRow puts the row, which has its id, into the snapshot under way.
func (e *edit) insertRow(r *Route) {
	e.write(r)
	e.s.order.add(r.orderKey(), e.owner)
	e.s.index.add(r, e.owner)
	if r.c.when != nil {
		e.s.whens++
	}
}

// write writes the row's record in the place of the one that its slot has.
func (e *edit) write(r *Route) {
	e.buffer = appendRecord(e.buffer[:0], r)
	ref := e.t.arena.put(e.buffer)
	e.written = append(e.written, ref)
	e.s.chunks = e.t.arena.chunks
	at := e.slot(r)
	e.dropRecord(*at)
	*at = ref
}

// slot is the place of the row's ref, for writing.
func (e *edit) slot(r *Route) *uint64 { return e.slotPlace(uint32(r.ID)) }

func (e *edit) slotPlace(at uint32) *uint64 {
	slot := int(at)
	return e.s.slots.edit(slot, e.owner)
}

func (e *edit) dropRecord(ref uint64) {
	if ref != 0 {
		e.dropped = append(e.dropped, ref)
	}
}

// change puts r in the place of old, whose id it takes. They have the same pattern.
func (e *edit) change(old, r *Route) {
	r.ID = old.ID
	if r.Order != old.Order {
		e.makePlace(r)
	}
	r.c = r.c.of(r)
	e.touch(r.ID, old).now = r
	e.write(r)
	if r.orderKey() != old.orderKey() {
		e.s.order.remove(old.orderKey(), e.owner)
		e.s.order.add(r.orderKey(), e.owner)
	}
	if r.Origin != old.Origin && (Learned(r.Origin) || Learned(old.Origin)) {
		e.s.index.remove(old, e.owner)
		e.s.index.add(r, e.owner)
	}
	if old.c.when != nil {
		e.s.whens--
	}
	if r.c.when != nil {
		e.s.whens++
	}
}

// restore puts back a row that was dropped, as r, whose id is set.
func (e *edit) restore(r *Route) {
	e.makePlace(r)
	e.touch(r.ID, nil).now = r
	e.insertRow(r)
}

func (e *edit) drop(r *Route) {
	e.touch(r.ID, r).now = nil
	at := e.slot(r)
	e.dropRecord(*at)
	*at = 0
	e.s.order.remove(r.orderKey(), e.owner)
	e.s.index.remove(r, e.owner)
	if r.c.when != nil {
		e.s.whens--
	}
}

// gap is the distance between the positions of rows that are appended: room for 19 inserts at one place before rows beside it are moved, and
// for 2^43 appends before positions run out.
const gap = 1 << 20

func (e *edit) lastPos() int64 {
	e.nextPos += gap
	e.appended = e.nextPos
	return e.nextPos
}

// posBeside returns a free position just before or after anchor, among the rows of its order.
func (e *edit) posBeside(anchor *Route, before bool) int64 {
	e.appended = math.MinInt64
	for {
		k := anchor.orderKey()
		prev, next, hasPrev, hasNext := e.s.order.around(k)
		lo, hi := k.pos-2*gap, k.pos+2*gap
		if hasPrev && prev.order == k.order {
			lo = prev.pos
		}
		if hasNext && next.order == k.order {
			hi = next.pos
		}
		if before {
			hi = k.pos
		} else {
			lo = k.pos
		}
		if hi-lo > 1 {
			pos := lo + (hi-lo)/2
			e.nextPos = max(e.nextPos, pos)
			return pos
		}
		e.spread(k)
		anchor = e.s.Row(anchor.ID)
	}
}

// makePlace moves r just behind a row that has its place already: positions tell rows of one order apart, not those of two.
func (e *edit) makePlace(r *Route) {
	k := r.orderKey()
	k.slot = 0
	e.s.order.each(e.s.order.rank(k), func(o orderKey) bool {
		if o.order == k.order && o.pos == k.pos && (r.ID == 0 || o.slot != uint32(r.ID)) {
			r.pos = e.posBeside(e.s.routeOf(o.slot), false)
		}
		return false
	})
}

// spread gives the rows about a place new positions, with room between them: so many rows that there is.
func (e *edit) spread(k orderKey) {
	const room = 1 << 10
	at := e.s.order.rank(k)
	for width := 32; ; width *= 2 {
		var keys []orderKey
		from := max(at-width, 0)
		e.s.order.each(from, func(o orderKey) bool {
			if o.order == k.order {
				keys = append(keys, o)
			}
			return o.order <= k.order && len(keys) < 2*width
		})
		lo, hi := keys[0].pos-gap, keys[len(keys)-1].pos+gap
		if prev, _, has, _ := e.s.order.around(keys[0]); has && prev.order == k.order {
			lo = prev.pos
		}
		if _, next, _, has := e.s.order.around(keys[len(keys)-1]); has && next.order == k.order {
			hi = next.pos
		}
		step := (hi - lo) / int64(len(keys)+1)
		if step < room && len(keys) >= 2*width {
			continue
		}
		if step < room {
			step = gap
			hi = lo + step*int64(len(keys)+1)
		}
		rows := make([]*Route, len(keys))
		for i, o := range keys {
			rows[i] = e.s.routeOf(o.slot)
		}
		for i, old := range rows {
			r := *old
			r.pos = lo + step*int64(i+1)
			e.change(old, &r)
		}
		e.nextPos = max(e.nextPos, hi)
		return
	}
}

// move notes that the row's place among the others is meant to be another.
func (e *edit) move(id uint64) {
	if e.moved == nil {
		e.moved = map[uint64]bool{}
	}
	e.moved[id] = true
}

func (e *edit) note(format string, args ...any) {
	e.notes = append(e.notes, fmt.Sprintf(format, args...))
}

// mark sets marks.
func (e *edit) mark(marks map[string]string) {
	for name, value := range marks {
		if e.s.marks[name] == value {
			continue
		}
		if !e.marked {
			e.s.marks, e.marked = maps.Clone(e.s.marks), true
			if e.s.marks == nil {
				e.s.marks = map[string]string{}
			}
		}
		if e.s.marks[name] = value; value == "" {
			delete(e.s.marks, name)
		}
	}
}

// finish makes the next snapshot and says what changed. Where nothing did, the snapshot is base.
func (e *edit) finish() (*Snapshot, Change, error) {
	c := Change{Note: strings.Join(e.notes, "; "), Warnings: e.warn, MatchSet: e.s.match != e.base.match, Objects: e.objectChanges()}
	configured := c.MatchSet || len(c.Objects) > 0
	c.Added = make([]*Route, 0, len(e.fresh))
	for i := range e.touched {
		was, now := e.touched[i].was, e.touched[i].now
		switch {
		case was == nil && now == nil:
			continue
		case was == nil:
			c.Added = append(c.Added, now)
		case now == nil:
			c.Removed = append(c.Removed, was)
		case was.c.key == now.c.key && was.Address == now.Address && was.Origin == now.Origin && !e.moved[was.ID] && sameColumns(was, now, ^ColumnSet(0)) == "":
			if was.pos != now.pos {
				c.moved = append(c.moved, now)
			}
			if Configured(now.Origin) {
				e.stayed = append(e.stayed, stayed{was, now})
			}
			continue
		default:
			c.Updated, c.Before = append(c.Updated, now), append(c.Before, was)
		}
		if was != nil {
			configured = configured || Configured(was.Origin)
		} else {
			configured = configured || Configured(now.Origin)
		}
	}
	if !c.Changed() && len(c.moved) == 0 && !e.marked {
		c.Revision, c.Generation = e.base.revision, e.base.generation
		return e.base, c, nil
	}
	s := e.s
	if err := s.checkCycles(c.Added, c.Updated); err != nil {
		return nil, Change{}, err
	}
	if err := s.checkObjects(); len(c.Objects) > 0 && err != nil {
		return nil, Change{}, err
	}
	s.generation++
	if configured {
		s.revision++
	}
	c.Revision, c.Generation = s.revision, s.generation
	s.recent = s.recent.with(s.generation, e.patterns(&c))
	return s, c, nil
}

// patterns lists the patterns that a change touches; nil is too many, or all.
func (e *edit) patterns(c *Change) []*pattern {
	if c.MatchSet || len(c.Added)+len(c.Removed)+len(c.Updated) > maxRecentPatterns {
		return nil
	}
	list := make([]*pattern, 0, 4)
	for _, rows := range [...][]*Route{c.Added, c.Removed, c.Updated} {
		for _, r := range rows {
			if !slices.ContainsFunc(list, func(p *pattern) bool { return p.text == r.Pattern }) {
				list = append(list, r.c.pattern)
			}
		}
	}
	return list
}

// commit makes what the edit used of the table's stock final; s is what finish made.
func (e *edit) commit() {
	t := e.t
	t.nextPos = e.nextPos
	t.ids = e.ids
	for i := range e.touched {
		if e.touched[i].now == nil {
			t.ids.free = append(t.ids.free, uint32(e.touched[i].id))
		}
	}
	for _, ref := range e.dropped {
		t.arena.drop(ref)
	}
}

// tidy empties the chunk with the most dead bytes, where there are many.
func (e *edit) tidy() {
	a := &e.t.arena
	worst := a.worst()
	if worst < 0 {
		return
	}
	b := record(a.chunks[worst].b[:a.use[worst].end])
	for at := 0; at < len(b); {
		rec := b[at:]
		rec = rec[:rec.size()]
		ref := (uint64(worst)<<offsetBits | uint64(at)) + 1
		if slot := int(rec.slot()); slot < e.s.slots.n && *e.s.slots.at(slot) == ref {
			*e.s.slots.edit(slot, e.owner) = a.put(rec)
		}
		at += len(rec)
	}
	a.release(worst)
	e.s.chunks = a.chunks
}

// abandon gives back what the edit used, and returns the snapshot that is as if it had not been. Records that were written stay where
// they are, dead: their place names them.
func (e *edit) abandon() *Snapshot {
	if !e.shared || len(e.touched) == 0 {
		for _, ref := range e.written {
			e.t.arena.drop(ref)
		}
		return e.base
	}
	// What was changed in place is changed back.
	touched := e.touched
	for _, x := range touched {
		if x.now != nil {
			e.drop(e.s.Row(x.id))
		}
	}
	for _, x := range touched {
		if x.was != nil {
			e.insertRow(x.was)
		}
	}
	for _, ref := range e.dropped {
		e.t.arena.drop(ref)
	}
	s := e.s
	s.match, s.generation, s.revision, s.recent = e.base.match, e.base.generation, e.base.revision, e.base.recent
	s.marks, s.objects = e.base.marks, e.base.objects
	return s
}
