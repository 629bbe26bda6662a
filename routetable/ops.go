package routetable

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
)

// do plans one op into the edit. The verbs are described at the Table methods of the same names.
func (e *edit) do(op *Op) error {
	if op.IfRevision != nil && *op.IfRevision != e.base.revision {
		return &ConflictError{
			What:     fmt.Sprintf("the table is at revision %d, not %d", e.base.revision, *op.IfRevision),
			Hint:     "read it again",
			Revision: e.base.revision,
		}
	}
	switch op.Verb {
	case VerbAdd:
		return e.add(op, nil)
	case VerbInsert:
		return e.insert(op)
	case VerbSet:
		return e.set(op)
	case VerbReplace:
		return e.replace(op)
	case VerbReplaceAll:
		return e.replaceAll(op)
	case VerbDelete:
		return e.delete(op)
	case VerbDeletePattern:
		return e.deletePattern(op)
	case VerbClear:
		return e.clear(op)
	case VerbWithdraw:
		return e.withdraw(op)
	case VerbLoad:
		return e.load(op)
	case VerbMatch:
		if op.Match > MatchFirst {
			return &RefusedError{What: "unknown match mode", Where: "match", Hint: "use all or first"}
		}
		if op.Match == e.s.match {
			e.note("match is %s already", op.Match)
		}
		e.s.match = op.Match
		return nil
	case VerbRollback:
		return e.rollback(op)
	case VerbObject:
		return e.object(op)
	}
	return &RefusedError{What: fmt.Sprintf("unknown verb %d", op.Verb)}
}

// rowOf makes the row that an op asks for, with the columns that it names.
func rowOf(op *Op) (*Route, ColumnSet) {
	r := new(Route)
	return r, r.fill(op)
}

// fill is rowOf into r, which is empty.
func (r *Route) fill(op *Op) ColumnSet {
	named := namedColumns(op)
	r.Pattern, r.Address, r.Retry = op.Route.Pattern, op.Route.Address, -1
	copyColumns(r, &op.Route, named)
	if r.Retry < 0 {
		r.Retry = -1
	}
	r.Origin = op.Route.Origin
	if r.Origin == "" {
		r.Origin = OriginOperator
	}
	r.line, r.column = op.Route.line, op.Route.column
	return named
}

// key returns the address in the form that rows are told apart by, whether or not it is a good one.
func key(address string) string {
	value := address
	if strings.IndexByte(address, '$') >= 0 {
		t := compileTemplate(address)
		if !t.literal {
			return templateKey(address)
		}
		value = t.value
	}
	h, err := parseHop(value)
	if err != nil {
		return "!" + address
	}
	return h.Key
}

// add appends a row, or puts it beside place where that says how.
func (e *edit) add(op *Op, place func(*Route)) error {
	w := &struct {
		Route
		c compiled
	}{}
	r := &w.Route
	named := r.fill(op)
	if err := checkOrigin(r.Origin); err != nil {
		return err
	}
	p, err := e.pattern(r.Pattern)
	if err != nil {
		return err
	}
	if err := e.compileInto(&w.c, r, p); err != nil {
		return err
	}
	if old := e.s.findCompiled(r, r.Origin); old != nil {
		if c := sameColumns(old, r, named); c != "" {
			return &ConflictError{
				What:     fmt.Sprintf("%s --> %s is there with another %s", arrowField(old.Pattern), arrowField(MaskUserinfo(old.Address)), c),
				Hint:     "use set to change its columns",
				Revision: e.base.revision,
			}
		}
		e.note("already there")
		return nil
	}
	if err := e.joinGroup(r, named); err != nil {
		return err
	}
	if place != nil {
		place(r)
	} else {
		r.pos = e.lastPos()
	}
	e.put(r)
	return nil
}

func checkOrigin(origin string) error {
	if strings.HasSuffix(origin, "/") {
		return &RefusedError{What: "an origin does not end with /", Where: "origin"}
	}
	return nil
}

// joinGroup gives r the balance of the any group that it joins, and refuses another one.
func (e *edit) joinGroup(r *Route, named ColumnSet) error {
	if r.Pick != PickAny {
		return nil
	}
	first := e.groupFirst(r)
	if first == nil {
		return nil
	}
	if named&ColBalance != 0 && r.Balance != first.Balance || named&ColHashKey != 0 && hashKey(r) != hashKey(first) {
		return &RefusedError{
			What:  fmt.Sprintf("the group of %s has balance %s", arrowField(r.Pattern), balanceText(first)),
			Where: "balance", Hint: "set it on the group's first row",
		}
	}
	r.Balance, r.HashKey = first.Balance, first.HashKey
	return nil
}

func balanceText(r *Route) string {
	if k := hashKey(r); k != "" {
		return r.Balance.String() + " by " + k
	}
	return r.Balance.String()
}

// groupFirst is the first row of the group that r is or would be in, other than r itself; nil for a group of its own.
func (e *edit) groupFirst(r *Route) *Route {
	return e.s.firstOf(r.Pattern, func(o record) bool {
		return o.pick() == r.Pick && (o.flags()&recFallback != 0) == r.Fallback && o.id() != r.ID
	})
}

func (e *edit) insert(op *Op) error {
	// The anchor is a configured row where there is one.
	var anchor *Route
	want := ""
	if op.AnchorAddress != "" {
		want = key(op.AnchorAddress)
	}
	for _, configured := range [...]bool{true, false} {
		for _, r := range e.s.rowsOf(op.Anchor) {
			if Configured(r.Origin) != configured || want != "" && r.c.key != want {
				continue
			}
			if anchor == nil || !op.Before {
				anchor = r
			}
		}
		if anchor != nil {
			break
		}
	}
	if anchor == nil {
		return fmt.Errorf("insert beside %s: %w", arrowField(op.Anchor), ErrNotFound)
	}
	with := *op
	if namedColumns(op)&ColOrder == 0 {
		with.Route.Order = anchor.Order
	}
	return e.add(&with, func(r *Route) { r.pos = e.posBeside(anchor, op.Before) })
}

func (e *edit) set(op *Op) error {
	origin := op.Origin
	old := e.s.find(op.Route.Pattern, key(op.Route.Address), origin)
	if old == nil {
		where := ""
		if origin != "" {
			where = " of " + origin
		}
		return fmt.Errorf("set %s --> %s%s: %w", arrowField(op.Route.Pattern), arrowField(MaskUserinfo(op.Route.Address)), where, ErrNotFound)
	}
	named := namedColumns(op)
	if named == 0 {
		return &RefusedError{What: "no column is named", Hint: "the columns are " + strings.Join(ColumnNames(), ", ")}
	}
	if !Configured(old.Origin) && named&^(ColOrder|ColWeight) != 0 {
		return &RefusedError{What: "only order and weight of a learned row can be set", Where: "row of " + old.Origin}
	}
	if sameColumns(old, &op.Route, named) == "" {
		e.note("already so")
		return nil
	}
	r := *old
	copyColumns(&r, &op.Route, named)
	if r.Retry < 0 {
		r.Retry = -1
	}
	if err := e.compile(&r, old.c.pattern); err != nil {
		return err
	}
	if r.Pick != old.Pick || r.Fallback != old.Fallback {
		if err := e.joinGroup(&r, named); err != nil {
			return err
		}
	} else if first := e.groupFirst(&r); r.Pick == PickAny && first != nil && first.before(old) {
		if r.Balance != first.Balance && named&ColBalance != 0 || hashKey(&r) != hashKey(first) && named&ColHashKey != 0 {
			return e.joinGroup(&r, named)
		}
	}
	e.change(old, &r)
	return nil
}

func (e *edit) replace(op *Op) error {
	first := e.s.firstOf(op.Route.Pattern, func(rec record) bool { return Configured(rec.origin()) })
	if first == nil {
		return e.add(op, nil)
	}
	r, named := rowOf(op)
	r.Origin, r.pos = first.Origin, first.pos
	if named&ColNote == 0 {
		r.Note = first.Note
	}
	if named&ColName == 0 {
		r.Name = first.Name
	}
	if err := e.compile(r, first.c.pattern); err != nil {
		return err
	}
	if equal := e.s.findCompiled(r, first.Origin); equal != nil && equal.ID != first.ID {
		e.drop(equal)
		e.note("the equal row further on is removed")
	}
	if r.c.key == first.c.key {
		// The address is kept as it was written.
		r.Address, r.c = first.Address, r.c.withAddress(first.c, r)
		if sameColumns(first, r, ^ColumnSet(0)) == "" {
			e.note("already there")
			return nil
		}
	}
	r.ID = first.ID
	if err := e.joinGroup(r, named); err != nil {
		return err
	}
	e.change(first, r)
	return nil
}

// withAddress is c with the address of o, whose key is the same.
func (c *compiled) withAddress(o *compiled, r *Route) *compiled {
	fresh := o.of(r)
	fresh.when = c.when
	return fresh
}

func (e *edit) replaceAll(op *Op) error {
	pattern := op.Route.Pattern
	var old []*Route
	for _, r := range e.s.rowsOf(pattern) {
		if Configured(r.Origin) {
			old = append(old, r)
		}
	}
	if len(op.Addresses) == 0 {
		return &RefusedError{What: "no address is given", Hint: "delete-pattern removes the rows of a pattern"}
	}
	if len(old) == 0 {
		for _, a := range op.Addresses {
			with := *op
			with.Route.Address = a
			if err := e.add(&with, nil); err != nil {
				return err
			}
		}
		return nil
	}
	// The rows as they will be, each once, those that exist with their id, origin and note.
	var rows []*Route
	exists := map[string]*Route{}
	for _, r := range old {
		exists[r.c.key] = r
	}
	seen := map[string]bool{}
	for _, a := range op.Addresses {
		with := *op
		with.Route.Address = a
		r, named := rowOf(&with)
		if err := e.compile(r, old[0].c.pattern); err != nil {
			return err
		}
		if seen[r.c.key] {
			e.note("%s is given twice", arrowField(MaskUserinfo(a)))
			continue
		}
		seen[r.c.key] = true
		if o := exists[r.c.key]; o != nil {
			r.ID, r.Origin, r.Address = o.ID, o.Origin, o.Address
			r.c = r.c.withAddress(o.c, r)
			if named&ColNote == 0 {
				r.Note = o.Note
			}
			if named&ColName == 0 {
				r.Name = o.Name
			}
		}
		rows = append(rows, r)
	}
	if len(rows) == len(old) {
		same := true
		for i, r := range rows {
			same = same && r.ID == old[i].ID && sameColumns(old[i], r, ^ColumnSet(0)) == ""
		}
		if same {
			e.note("already so")
			return nil
		}
	}
	for _, o := range old {
		e.drop(o)
	}
	var last uint64
	for i, r := range rows {
		if err := e.joinGroup(r, namedColumns(op)); err != nil {
			return err
		}
		r.pos = old[0].pos
		if i > 0 {
			r.pos = e.posBeside(e.s.Row(last), false)
		}
		if r.ID == 0 {
			e.put(r)
		} else {
			e.move(r.ID)
			e.restore(r)
		}
		last = r.ID
	}
	return nil
}

func (e *edit) delete(op *Op) error {
	k := key(op.Route.Address)
	r := e.s.find(op.Route.Pattern, k, op.Origin)
	if r == nil {
		e.note("nothing to delete%s", e.learnedHint(op.Route.Pattern, k, op.Origin))
		return nil
	}
	e.drop(r)
	return nil
}

// learnedHint names the origin of a learned row that a delete without an origin did not reach.
func (e *edit) learnedHint(pattern, key, origin string) string {
	if origin != "" {
		return ""
	}
	for _, r := range e.s.rowsOf(pattern) {
		if r.c.key == key && !Configured(r.Origin) {
			return ": the row is learned, from " + r.Origin + ", and is reached with its origin"
		}
	}
	return ""
}

// meant reports whether a delete-pattern or clear with this origin means r: without one, every configured row.
func meant(r *Route, origin string) bool {
	if origin == "" {
		return Configured(r.Origin)
	}
	return r.Origin == origin
}

func (e *edit) deletePattern(op *Op) error {
	var gone []*Route
	for _, r := range e.s.rowsOf(op.Route.Pattern) {
		if meant(r, op.Origin) {
			gone = append(gone, r)
		}
	}
	if len(gone) == 0 {
		e.note("nothing to delete")
	}
	for _, r := range gone {
		e.drop(r)
	}
	return nil
}

// dropAll drops every row for which is holds, and says how many there were. It looks at the records of all rows.
func (e *edit) dropAll(is func(record) bool) int {
	var gone []uint32
	e.s.records(func(rec record) bool {
		if is(rec) {
			gone = append(gone, rec.slot())
		}
		return true
	})
	rows := make([]*Route, len(gone))
	inParts(len(gone), func(from, to int) {
		for i := from; i < to; i++ {
			rows[i] = e.s.lastOf(gone[i])
		}
	})
	e.dropRows(rows)
	return len(gone)
}

func (e *edit) clear(op *Op) error {
	n := 0
	if op.Origin == "" {
		n = e.dropAll(func(rec record) bool { return Configured(rec.origin()) })
	} else {
		n = e.dropOrigin(op.Origin)
	}
	if n == 0 {
		e.note("nothing to clear")
	}
	return nil
}

func (e *edit) withdraw(op *Op) error {
	if op.Origin == "" || op.Origin == "/" {
		return &RefusedError{What: "a withdraw needs an origin", Where: "origin"}
	}
	if e.dropOrigin(op.Origin) == 0 {
		e.note("nothing to withdraw")
	}
	return nil
}

// dropOrigin drops the rows of an origin, or of all that begin with it where it ends with a slash. Learned rows are found by their origin.
func (e *edit) dropOrigin(origin string) int {
	is := func(rec record) bool {
		o := rec.origin()
		return o == origin || strings.HasSuffix(origin, "/") && strings.HasPrefix(o, origin)
	}
	if !Learned(origin) {
		return e.dropAll(is)
	}
	var gone []uint32
	for _, w := range e.s.index.keys.get(uint32(hashText(kindOrigin, origin) >> 32)) {
		if rec := e.s.record(uint32(w)); rec != nil && is(rec) {
			gone = append(gone, rec.slot())
		}
	}
	for _, slot := range gone {
		e.drop(e.s.lastOf(slot))
	}
	return len(gone)
}

func (e *edit) load(op *Op) error {
	origin := op.Origin
	if origin == "" {
		origin = OriginOperator
	}
	if err := checkOrigin(origin); err != nil {
		return err
	}
	if op.Match > MatchFirst {
		return &RefusedError{What: "unknown match mode", Where: "match", Hint: "use all or first"}
	}
	if op.SetMatch && op.Match != e.s.match {
		e.s.match = op.Match
		e.note("match is %s now", op.Match)
	}
	rows, err := e.loadList(op)
	if err != nil {
		return err
	}
	wild := 0
	for _, r := range rows {
		if !r.c.pattern.plain() {
			wild++
		}
	}
	e.s.index.reserve(e.s, wild)
	e.touched = slices.Grow(e.touched, len(rows))
	e.fresh = slices.Grow(e.fresh, len(rows))
	if op.Mode == LoadReplace {
		return e.loadReplace(rows, origin)
	}
	var fresh []*Route
	for _, r := range rows {
		old := e.s.findCompiled(r, origin)
		switch {
		case old == nil:
			r.pos = e.lastPos()
			fresh = append(fresh, r)
		case sameColumns(old, r, ^ColumnSet(0)) != "":
			r.Address, r.Origin, r.pos = old.Address, old.Origin, old.pos
			e.change(old, r)
		}
	}
	return e.putAll(fresh)
}

// loadList makes the rows of a load, each once.
func (e *edit) loadList(op *Op) ([]*Route, error) {
	rows := make([]*Route, len(op.Routes))
	list := make([]*compiled, len(op.Routes))
	var mu sync.Mutex
	var failed error
	first, changed := len(rows), len(op.compiled) < len(rows)
	inParts(len(rows), func(from, to int) {
		err := e.loadRows(op, rows, list, from, to)
		mu.Lock()
		defer mu.Unlock()
		for i := from; i < to && !changed && err == nil; i++ {
			changed = list[i] != op.compiled[i]
		}
		if err != nil && from < first {
			first, failed = from, err
		}
	})
	if failed != nil {
		return nil, failed
	}
	if op.once && !changed {
		return rows, nil
	}
	seen, n := newSeen(len(rows)), 0
	for i, r := range rows {
		if o := seen.put(op.Routes, list, i, rowHash(r.Pattern, r.c.key)); o >= 0 {
			if err := e.twice(&op.Routes[o], r); err != nil {
				return nil, err
			}
			continue
		}
		rows[n] = r
		n++
	}
	return rows[:n], nil
}

// loadRows makes the rows of a part of a load.
func (e *edit) loadRows(op *Op, rows []*Route, list []*compiled, from, to int) error {
	origin := op.Origin
	if origin == "" {
		origin = OriginOperator
	}
	var room []Route
	for i := from; i < to; i++ {
		if len(room) == 0 {
			room = make([]Route, min(to-i, 64))
		}
		rows[i], room = &room[0], room[1:]
		var c *compiled
		if i < len(op.compiled) {
			c = op.compiled[i]
		}
		if err := e.loadRow(rows[i], &op.Routes[i], origin, c); err != nil {
			return err
		}
		list[i] = rows[i].c
	}
	return nil
}

// seen finds rows of a list that are there already, by the hash of pattern and normalised address: a table of their places and 1.
type seen []int32

func newSeen(n int) seen {
	size := 16
	for size < 2*n {
		size *= 2
	}
	return make(seen, size)
}

// rowHash is the hash that tells rows of a list apart.
func rowHash(pattern, key string) uint64 {
	return mix(hashAddress(pattern)^mix(hashAddress(key), 1), 2)
}

// put notes row i, and returns the place of the row that is the same one, or -1.
func (s seen) put(rows []Route, compiled []*compiled, i int, hash uint64) int {
	r, key := &rows[i], compiled[i].key
	for ; ; hash++ {
		at := &s[hash&uint64(len(s)-1)]
		if *at == 0 {
			*at = int32(i + 1)
			return -1
		}
		if o := int(*at - 1); rows[o].Pattern == r.Pattern && compiled[o].key == key {
			return o
		}
	}
}

// twice judges that row r is there already, as o.
func (e *edit) twice(o, r *Route) error {
	if c := sameColumns(o, r, ^ColumnSet(0)); c != "" {
		return atLine(r, &RefusedError{What: fmt.Sprintf("%s --> %s is there twice, with another %s", arrowField(r.Pattern), arrowField(MaskUserinfo(r.Address)), c)})
	}
	e.warn = append(e.warn, Warning{Line: r.line, Pattern: r.Pattern, Address: r.Address, What: "the row is there twice"})
	return nil
}

// bulk is the number of rows from which an edit does not say what is probably not meant in each: ParseFile has, and Lint does.
const bulk = 1000

// loading is a load in replace mode under way.
type loading struct {
	e       *edit
	origin  string
	rows    []*Route          // of the file
	old     []uint64          // ids of the rows that are there already, 0 for new ones
	keeps   []bool            // the row stands where it stood; set where inOrder
	tail    []int             // rows that go behind all others
	origins map[uint64]string // of rows that are taken out to stand elsewhere: an edit keeps a row's origin
	first   map[int]orderKey  // where the first row of the origin stood, by order; of an origin other than operator
}

// ours reports whether the load answers for rows of an origin.
func (l *loading) ours(origin string) bool {
	if l.origin == OriginOperator {
		return Configured(origin) && origin != OriginCluster
	}
	return origin == l.origin
}

// loadReplace makes rows the only ones that the load answers for. Rows that are there already keep their ids, and their positions
// where they stand in the order of the file. A new row stands between those that it stands between in the file; rows of a file stand where
// rows of that file stood before, also where none of them is left.
func (e *edit) loadReplace(rows []*Route, origin string) error {
	l := &loading{e: e, origin: origin, rows: rows, old: make([]uint64, len(rows)), keeps: make([]bool, len(rows)), first: map[int]orderKey{}, origins: map[uint64]string{}}
	inOrder := true
	last := map[int]int64{} // by order: rows of two orders stand apart whatever their positions
	keep := map[uint32]bool{}
	for i, r := range rows {
		if e.s.Len() == 0 {
			break
		}
		o := e.s.findCompiled(r, origin)
		if o == nil {
			continue
		}
		l.old[i], keep[uint32(o.ID)] = o.ID, true
		if l.keeps[i] = l.ours(o.Origin) && r.Order == o.Order; l.keeps[i] {
			before, any := last[r.Order]
			inOrder = inOrder && (!any || o.pos > before)
			last[r.Order] = o.pos
		}
	}
	if origin != OriginOperator {
		e.s.records(func(rec record) bool {
			if _, known := l.first[rec.order()]; !known && l.ours(rec.origin()) {
				l.first[rec.order()] = orderKey{pos: rec.pos(), order: int32(rec.order()), slot: rec.slot()}
			}
			return true
		})
	}
	e.dropAll(func(rec record) bool { return l.ours(rec.origin()) && !keep[rec.slot()] })
	if !inOrder { // every row of ours is taken out, to stand elsewhere
		clear(l.keeps)
		for i, id := range l.old {
			if o := e.s.Row(id); id != 0 && l.ours(o.Origin) {
				rows[i].ID = id
				l.origins[id] = o.Origin
				e.drop(o)
			}
		}
	}
	l.place()
	return l.put()
}

// place gives a position to every row that does not keep its own. Where there is no room between two rows, those about them are moved, and
// it begins again.
func (l *loading) place() {
	for tries := 0; !l.tryPlace(tries == 3); tries++ {
	}
}

func (l *loading) tryPlace(last bool) (done bool) {
	l.tail = l.tail[:0]
	byOrder := map[int][]int{}
	for i, r := range l.rows {
		if o := l.e.s.Row(l.old[i]); l.keeps[i] {
			r.pos = o.pos
		} else if o != nil && !l.ours(o.Origin) {
			continue // stays another origin's
		}
		byOrder[r.Order] = append(byOrder[r.Order], i)
	}
	for _, order := range slices.Sorted(maps.Keys(byOrder)) {
		list := byOrder[order]
		for from := 0; from < len(list); {
			if l.keeps[list[from]] {
				from++
				continue
			}
			to := from
			for to < len(list) && !l.keeps[list[to]] {
				to++
			}
			if !l.placeRun(order, list, from, to, last) {
				return false
			}
			from = to
		}
	}
	slices.Sort(l.tail) // in the order of the file, whatever the rows' orders
	for _, i := range l.tail {
		l.rows[i].pos = l.e.lastPos()
	}
	return true
}

// placeRun gives positions to the rows list[from:to], which stand between rows that keep theirs. It is not done where it made room instead;
// for the last time it puts the rows behind all others.
func (l *loading) placeRun(order int, list []int, from, to int, last bool) (done bool) {
	e, n := l.e, int64(to-from)
	room := gap * (n + 1)
	var lo, hi int64
	var k orderKey
	first, stood := l.first[order]
	switch {
	case to < len(list): // before the row that follows
		k = orderKey{pos: l.rows[list[to]].pos, order: int32(order)}
		prev, _, has, _ := e.s.order.around(k)
		if lo, hi = k.pos-room, k.pos; has && prev.order == k.order {
			lo = prev.pos
		}
	case l.origin != OriginOperator && (from > 0 || stood): // behind the one that they follow, or where the first stood
		k = first
		if from > 0 {
			k = orderKey{pos: l.rows[list[from-1]].pos, order: int32(order), slot: math.MaxUint32}
		}
		prev, next, hasPrev, hasNext := e.s.order.around(k)
		lo, hi = k.pos-gap, k.pos+room
		if from > 0 {
			lo = k.pos
		} else if hasPrev && prev.order == k.order {
			lo = prev.pos
		}
		if hasNext && next.order == k.order {
			hi = next.pos
		}
	}
	step := (hi - lo) / (n + 1)
	if step == 0 && hi != lo && !last {
		e.spread(k)
		return false
	}
	if step <= 0 {
		l.tail = append(l.tail, list[from:to]...)
		return true
	}
	for i, at := range list[from:to] {
		l.rows[at].pos = lo + step*int64(i+1)
		e.nextPos = max(e.nextPos, l.rows[at].pos)
	}
	return true
}

// put puts the rows, which have their positions.
func (l *loading) put() error {
	e := l.e
	fresh := l.rows[:0:0]
	for i, r := range l.rows {
		if l.old[i] == 0 {
			fresh = append(fresh, r)
			continue
		}
		if r.ID != 0 { // it was taken out to stand elsewhere
			r.Origin = l.origins[r.ID]
			e.move(r.ID)
			e.restore(r)
			continue
		}
		o := e.s.Row(l.old[i])
		switch {
		case !l.ours(o.Origin):
			// Another configured origin asserts the row: it stays that one's.
			e.warn = append(e.warn, Warning{Line: r.line, Pattern: r.Pattern, Address: r.Address, What: "the row is there already, of " + o.Origin})
		case r.Address == o.Address && r.pos == o.pos && sameColumns(o, r, ^ColumnSet(0)) == "":
		default:
			r.Origin = o.Origin
			e.change(o, r)
		}
	}
	return e.putAll(fresh)
}

// loadRow makes r the row of a load. c is what a file made of the row when it was read, nil where it was not read.
func (e *edit) loadRow(r, from *Route, origin string, c *compiled) error {
	*r = *from
	if r.Retry < 0 {
		r.Retry = -1
	}
	r.Origin, r.ID, r.pos, r.c, r.key = origin, 0, 0, nil, 0
	err := checkColumns(r)
	if err == nil && c != nil && c.holds(r) {
		r.c = c // shared with the file
		return nil
	}
	var p *pattern
	if err == nil {
		p, err = e.pattern(r.Pattern)
	}
	if err == nil {
		err = e.compile(r, p)
	}
	if err != nil {
		return atLine(r, err)
	}
	return nil
}

// atLine says at which line of its file a row is refused.
func atLine(r *Route, err error) error {
	if r.line == 0 {
		return err
	}
	return &RefusedError{What: err.Error(), Where: fmt.Sprintf("line %d, column %d", r.line, r.column)}
}
