package routetable

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// edit is a batch of ops on its way from one snapshot to the next. Nothing of it shows before finish.
type edit struct {
	t     *Table
	base  *Snapshot
	owner *owner

	match   MatchMode
	nextID  uint64
	nextPos int64
	nodes   map[string]*draft // patterns touched, with their rows as they are now
	was     map[uint64]*Route // rows touched, by id: as they were, nil for new ones
	now     map[uint64]*Route // rows touched, by id: as they are, nil for rows gone
	moved   map[uint64]bool   // rows whose place among the others changed
	touched []uint64          // keys of was, in the order they were touched
	stayed  []stayed          // set by finish: configured rows touched that are as they were, but for their positions
	notes   []string
	warn    []Warning
}

// draft is the rows of one pattern while they are edited.
type draft struct {
	pat   *pattern
	rows  []*Route            // in table order
	byKey map[string][]*Route // by address key, once there are many
}

// manyRows is where a draft begins to find rows by a map.
const manyRows = 32

func newEdit(t *Table, base *Snapshot) *edit {
	return &edit{
		t: t, base: base, owner: new(owner), match: base.match, nextID: t.nextID, nextPos: t.nextPos,
		nodes: map[string]*draft{}, was: map[uint64]*Route{}, now: map[uint64]*Route{}, moved: map[uint64]bool{},
	}
}

// pattern returns the draft of a pattern, nil where the table has no such pattern and make is false.
func (e *edit) pattern(text string, make bool) (*draft, error) {
	if d := e.nodes[text]; d != nil {
		return d, nil
	}
	if n := e.base.index.find(text); n != nil {
		d := &draft{pat: n.pat, rows: slices.Clone(n.rows)}
		e.nodes[text] = d
		return d, nil
	}
	if !make {
		return nil, nil
	}
	p, err := compilePattern(text)
	if err != nil {
		return nil, err
	}
	d := &draft{pat: p}
	e.nodes[text] = d
	return d, nil
}

// rowsOf returns the rows of a pattern now, for reading.
func (e *edit) rowsOf(text string) []*Route {
	if d := e.nodes[text]; d != nil {
		return d.rows
	}
	if n := e.base.index.find(text); n != nil {
		return n.rows
	}
	return nil
}

// find returns the row of d that an op on (key, origin) means: among configured rows the key alone decides.
func (d *draft) find(key, origin string) *Route {
	if d == nil {
		return nil
	}
	rows := d.rows
	if len(rows) > manyRows {
		if d.byKey == nil {
			d.byKey = map[string][]*Route{}
			for _, r := range rows {
				d.byKey[r.c.key] = append(d.byKey[r.c.key], r)
			}
		}
		rows = d.byKey[key]
	}
	for _, r := range rows {
		if r.c.key == key && (r.Origin == origin || Configured(origin) && Configured(r.Origin)) {
			return r
		}
	}
	return nil
}

func (d *draft) insert(r *Route) {
	i := len(d.rows)
	if i > 0 && r.before(d.rows[i-1]) {
		i = sort.Search(i, func(i int) bool { return r.before(d.rows[i]) })
	}
	d.rows = slices.Insert(d.rows, i, r)
	if d.byKey != nil {
		d.byKey[r.c.key] = append(d.byKey[r.c.key], r)
	}
}

func (d *draft) remove(r *Route) {
	i := sort.Search(len(d.rows), func(i int) bool { return !d.rows[i].before(r) })
	d.rows = slices.Delete(d.rows, i, i+1)
	if d.byKey != nil {
		d.byKey[r.c.key] = slices.DeleteFunc(d.byKey[r.c.key], func(o *Route) bool { return o == r })
	}
}

// touch notes a row before it changes.
func (e *edit) touch(id uint64, before *Route) {
	if _, ok := e.was[id]; !ok {
		e.was[id] = before
		e.touched = append(e.touched, id)
	}
}

// compile checks the texts and columns of r and fills r.c.
func (e *edit) compile(r *Route, p *pattern) error {
	if err := checkColumns(r); err != nil {
		return err
	}
	c, err := compileRow(r, p, e.base.dynamicHosts)
	if err != nil {
		return err
	}
	r.c = c
	return nil
}

// compileRow makes what the table keeps of a row's texts. It refuses a bad predicate and a bad literal address.
func compileRow(r *Route, p *pattern, dynamicHosts bool) (*compiled, error) {
	if len(r.Address) > MaxTextBytes {
		return nil, &RefusedError{What: "the address is longer than 64 KiB", Where: "address"}
	}
	c := &compiled{pattern: p, template: compileTemplate(r.Address)}
	if r.When != "" {
		w, err := CompileWhen(r.When)
		if err != nil {
			return nil, err
		}
		c.when = w
	}
	t := c.template
	if !t.literal {
		c.key = templateKey(r.Address)
		return c, nil
	}
	h, err := parseHop(t.value)
	if err != nil {
		return nil, err
	}
	c.key = h.Key
	c.match = Match{Result: t.value, Problem: h.problem}
	if h.problem == "" {
		c.match.Hop = &h.Hop
	}
	return c, nil
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
func (e *edit) put(d *draft, r *Route) {
	e.nextID++
	r.ID = e.nextID
	r.c.match.Route = r
	e.touch(r.ID, nil)
	e.now[r.ID] = r
	d.insert(r)
}

// change puts r in the place of old, whose id it takes. Both are rows of d.
func (e *edit) change(d *draft, old, r *Route) {
	r.ID = old.ID
	c := *r.c
	c.match.Route = r
	r.c = &c
	e.touch(r.ID, old)
	e.now[r.ID] = r
	d.remove(old)
	d.insert(r)
}

// restore puts back a row that was dropped, as r, whose id is set.
func (e *edit) restore(d *draft, r *Route) {
	r.c.match.Route = r
	e.now[r.ID] = r
	d.insert(r)
}

func (e *edit) drop(r *Route) {
	d, _ := e.pattern(r.Pattern, false)
	e.touch(r.ID, r)
	e.now[r.ID] = nil
	d.remove(r)
}

// current gives all rows of the table as the edit has it, in no order.
func (e *edit) current(yield func(*Route) bool) {
	for _, r := range e.base.rows {
		now := r
		if len(e.now) > 0 {
			if o, touched := e.now[r.ID]; touched {
				now = o
			}
		}
		if now != nil && !yield(now) {
			return
		}
	}
	for _, id := range e.touched {
		if e.was[id] == nil && e.now[id] != nil && !yield(e.now[id]) {
			return
		}
	}
}

// gap is the distance between the positions of rows that are appended: room for 31 inserts at one place before all are renumbered.
const gap = 1 << 31

func (e *edit) lastPos() int64 {
	e.nextPos += gap
	return e.nextPos
}

// posBeside returns a free position just before or after anchor, numbering all rows anew where there is none.
func (e *edit) posBeside(anchor *Route, before bool) int64 {
	for {
		lo, hi := int64(0), e.nextPos+2*gap
		for r := range e.current {
			if r.pos < anchor.pos {
				lo = max(lo, r.pos)
			} else if r.pos > anchor.pos {
				hi = min(hi, r.pos)
			}
		}
		if before {
			hi = anchor.pos
		} else {
			lo = anchor.pos
		}
		if hi-lo > 1 {
			pos := lo + (hi-lo)/2
			e.nextPos = max(e.nextPos, pos)
			return pos
		}
		id := anchor.ID
		e.renumber()
		anchor = e.now[id]
	}
}

// renumber gives every row a position with room around it.
func (e *edit) renumber() {
	var rows []*Route
	for r := range e.current {
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b *Route) int { return cmp64(a.pos, b.pos) })
	e.nextPos = 0
	for _, old := range rows {
		d, _ := e.pattern(old.Pattern, false)
		r := *old
		r.pos = e.lastPos()
		d.byKey = nil
		e.touch(old.ID, old)
		c := *old.c
		c.match.Route = &r
		r.c = &c
		e.now[old.ID] = &r
		d.rows[slices.Index(d.rows, old)] = &r
	}
}

func cmp64(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (e *edit) note(format string, args ...any) {
	e.notes = append(e.notes, fmt.Sprintf(format, args...))
}

// finish makes the next snapshot and says what changed. Where nothing did, the snapshot is base.
func (e *edit) finish() (*Snapshot, Change, error) {
	c := Change{Note: strings.Join(e.notes, "; "), Warnings: e.warn, MatchSet: e.match != e.base.match}
	configured := c.MatchSet
	moved := false
	for _, id := range e.touched {
		was, now := e.was[id], e.now[id]
		switch {
		case was == nil && now == nil:
			continue
		case was == nil:
			c.Added = append(c.Added, now)
		case now == nil:
			c.Removed = append(c.Removed, was)
		case was.c.key == now.c.key && was.Address == now.Address && was.Origin == now.Origin && !e.moved[id] && sameColumns(was, now, ^ColumnSet(0)) == "":
			moved = moved || was.pos != now.pos
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
	if !c.Changed() && !moved {
		c.Revision, c.Generation = e.base.revision, e.base.generation
		return e.base, c, nil
	}
	s := e.build()
	if err := s.checkCycles(c.Added, c.Updated); err != nil {
		return nil, Change{}, err
	}
	s.generation = e.base.generation + 1
	s.revision = e.base.revision
	if configured {
		s.revision++
	}
	c.Revision, c.Generation = s.revision, s.generation
	return s, c, nil
}

// build makes the snapshot, without its counters.
func (e *edit) build() *Snapshot {
	s := &Snapshot{match: e.match, dynamicHosts: e.base.dynamicHosts, index: e.base.index, whens: e.base.whens}
	fresh := make([]*Route, 0, len(e.touched))
	for _, id := range e.touched {
		if r := e.was[id]; r != nil && r.c.when != nil {
			s.whens--
		}
		if r := e.now[id]; r != nil {
			fresh = append(fresh, r)
			if r.c.when != nil {
				s.whens++
			}
		}
	}
	s.rows = e.mergeRows(fresh)
	for text, d := range e.nodes {
		if len(d.rows) == 0 {
			s.index.remove(text, e.owner)
			continue
		}
		n := &node{pat: d.pat, rows: d.rows}
		n.build()
		s.index.set(n, e.owner)
	}
	return s
}

// mergeRows gives base's rows without those touched, with fresh among them, in table order. What lies between is copied as it is.
func (e *edit) mergeRows(fresh []*Route) []*Route {
	events := fresh
	for _, id := range e.touched {
		if r := e.was[id]; r != nil {
			events = append(events, r)
		}
	}
	slices.SortFunc(events, compareRoutes)
	base := e.base.rows
	rows := make([]*Route, 0, len(base)+len(fresh))
	for _, r := range events {
		at := sort.Search(len(base), func(i int) bool { return !base[i].before(r) })
		rows = append(rows, base[:at]...)
		base = base[at:]
		if len(base) > 0 && base[0] == e.was[r.ID] {
			base = base[1:]
		}
		if r == e.now[r.ID] {
			rows = append(rows, r)
		}
	}
	return append(rows, base...)
}
