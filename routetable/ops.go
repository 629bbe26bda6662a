package routetable

import (
	"fmt"
	"strings"
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
		if op.Match == e.match {
			e.note("match is %s already", op.Match)
		}
		e.match = op.Match
		return nil
	case VerbRollback:
		return e.rollback(op)
	}
	return &RefusedError{What: fmt.Sprintf("unknown verb %d", op.Verb)}
}

// rowOf makes the row that an op asks for, with the columns that it names.
func rowOf(op *Op) (*Route, ColumnSet) {
	named := namedColumns(op)
	r := NewRoute(op.Route.Pattern, op.Route.Address)
	copyColumns(&r, &op.Route, named)
	if r.Retry < 0 {
		r.Retry = -1
	}
	r.Origin = op.Route.Origin
	if r.Origin == "" {
		r.Origin = OriginOperator
	}
	r.line, r.column = op.Route.line, op.Route.column
	return &r, named
}

// key returns the address in the form that rows are told apart by, whether or not it is a good one.
func key(address string) string {
	t := compileTemplate(address)
	if !t.literal {
		return templateKey(address)
	}
	h, err := parseHop(t.value)
	if err != nil {
		return "!" + address
	}
	return h.Key
}

// add appends a row, or puts it beside place where that says how.
func (e *edit) add(op *Op, place func(*Route)) error {
	r, named := rowOf(op)
	if err := checkOrigin(r.Origin); err != nil {
		return err
	}
	d, err := e.pattern(r.Pattern, true)
	if err != nil {
		return err
	}
	if err := e.compile(r, d.pat); err != nil {
		return err
	}
	if old := d.find(r.c.key, r.Origin); old != nil {
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
	if err := e.joinGroup(d, r, named); err != nil {
		return err
	}
	if place != nil {
		place(r)
	} else {
		r.pos = e.lastPos()
	}
	e.put(d, r)
	return nil
}

func checkOrigin(origin string) error {
	if strings.HasSuffix(origin, "/") {
		return &RefusedError{What: "an origin does not end with /", Where: "origin"}
	}
	return nil
}

// joinGroup gives r the balance of the any group that it joins, and refuses another one.
func (e *edit) joinGroup(d *draft, r *Route, named ColumnSet) error {
	if r.Pick != PickAny {
		return nil
	}
	first := groupFirst(d, r)
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
func groupFirst(d *draft, r *Route) *Route {
	for _, o := range d.rows {
		if o.Pick == r.Pick && o.Fallback == r.Fallback && o.ID != r.ID {
			return o
		}
	}
	return nil
}

func (e *edit) insert(op *Op) error {
	// The anchor is a configured row where there is one.
	var anchor *Route
	want := ""
	if op.AnchorAddress != "" {
		want = key(op.AnchorAddress)
	}
	for _, configured := range [...]bool{true, false} {
		for _, r := range e.rowsOf(op.Anchor) {
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
	d, err := e.pattern(op.Route.Pattern, false)
	if err != nil {
		return err
	}
	old := d.find(key(op.Route.Address), origin)
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
	if err := e.compile(&r, d.pat); err != nil {
		return err
	}
	if r.Pick != old.Pick || r.Fallback != old.Fallback {
		if err := e.joinGroup(d, &r, named); err != nil {
			return err
		}
	} else if first := groupFirst(d, &r); r.Pick == PickAny && first != nil && first.before(old) {
		if r.Balance != first.Balance && named&ColBalance != 0 || hashKey(&r) != hashKey(first) && named&ColHashKey != 0 {
			return e.joinGroup(d, &r, named)
		}
	}
	e.change(d, old, &r)
	return nil
}

func (e *edit) replace(op *Op) error {
	d, err := e.pattern(op.Route.Pattern, false)
	if err != nil {
		return err
	}
	var first *Route
	if d != nil {
		first = firstConfigured(d.rows)
	}
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
	if err := e.compile(r, d.pat); err != nil {
		return err
	}
	if equal := d.find(r.c.key, first.Origin); equal != nil && equal != first {
		e.drop(equal)
		e.note("the equal row further on is removed")
	}
	if r.c.key == first.c.key {
		// The address is kept as it was written.
		r.Address, r.c.template, r.c.match = first.Address, first.c.template, first.c.match
		if sameColumns(first, r, ^ColumnSet(0)) == "" {
			e.note("already there")
			return nil
		}
	}
	r.ID = first.ID
	if err := e.joinGroup(d, r, named); err != nil {
		return err
	}
	e.change(d, first, r)
	return nil
}

func firstConfigured(rows []*Route) *Route {
	for _, r := range rows {
		if Configured(r.Origin) {
			return r
		}
	}
	return nil
}

func (e *edit) replaceAll(op *Op) error {
	pattern := op.Route.Pattern
	var old []*Route
	for _, r := range e.rowsOf(pattern) {
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
	d, err := e.pattern(pattern, true)
	if err != nil {
		return err
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
		if err := e.compile(r, d.pat); err != nil {
			return err
		}
		if seen[r.c.key] {
			e.note("%s is given twice", arrowField(MaskUserinfo(a)))
			continue
		}
		seen[r.c.key] = true
		if o := exists[r.c.key]; o != nil {
			r.ID, r.Origin, r.Address = o.ID, o.Origin, o.Address
			r.c.template, r.c.match = o.c.template, o.c.match
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
		if err := e.joinGroup(d, r, namedColumns(op)); err != nil {
			return err
		}
		r.pos = old[0].pos
		if i > 0 {
			r.pos = e.posBeside(e.now[last], false)
		}
		if r.ID == 0 {
			e.put(d, r)
		} else {
			e.moved[r.ID] = true
			e.restore(d, r)
		}
		last = r.ID
	}
	return nil
}

func (e *edit) delete(op *Op) error {
	d, err := e.pattern(op.Route.Pattern, false)
	if err != nil {
		return err
	}
	r := d.find(key(op.Route.Address), op.Origin)
	if r == nil {
		e.note("nothing to delete%s", d.learnedHint(key(op.Route.Address), op.Origin))
		return nil
	}
	e.drop(r)
	return nil
}

// learnedHint names the origin of a learned row that a delete without an origin did not reach.
func (d *draft) learnedHint(key, origin string) string {
	if d == nil || origin != "" {
		return ""
	}
	for _, r := range d.rows {
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
	for _, r := range e.rowsOf(op.Route.Pattern) {
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

// dropAll drops every row for which is holds, and says how many there were.
func (e *edit) dropAll(is func(*Route) bool) int {
	var gone []*Route
	for r := range e.current {
		if is(r) {
			gone = append(gone, r)
		}
	}
	for _, r := range gone {
		e.drop(r)
	}
	return len(gone)
}

func (e *edit) clear(op *Op) error {
	if e.dropAll(func(r *Route) bool { return meant(r, op.Origin) }) == 0 {
		e.note("nothing to clear")
	}
	return nil
}

func (e *edit) withdraw(op *Op) error {
	if op.Origin == "" || op.Origin == "/" {
		return &RefusedError{What: "a withdraw needs an origin", Where: "origin"}
	}
	prefix := strings.HasSuffix(op.Origin, "/")
	n := e.dropAll(func(r *Route) bool {
		return r.Origin == op.Origin || prefix && strings.HasPrefix(r.Origin, op.Origin)
	})
	if n == 0 {
		e.note("nothing to withdraw")
	}
	return nil
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
	if op.SetMatch {
		e.match = op.Match
	}
	var rows []*Route
	seen := map[string]*Route{}
	for i := range op.Routes {
		r, err := e.loadRow(&op.Routes[i], origin)
		if err != nil {
			return err
		}
		id := r.Pattern + "\x00" + r.c.key
		if o := seen[id]; o != nil {
			if c := sameColumns(o, r, ^ColumnSet(0)); c != "" {
				return atLine(r, &RefusedError{What: fmt.Sprintf("%s --> %s is there twice, with another %s", arrowField(r.Pattern), arrowField(MaskUserinfo(r.Address)), c)})
			}
			e.warn = append(e.warn, Warning{Line: r.line, Pattern: r.Pattern, Address: r.Address, What: "the row is there twice"})
			continue
		}
		seen[id] = r
		rows = append(rows, r)
	}
	if op.Mode == LoadReplace {
		return e.loadReplace(rows, origin)
	}
	for _, r := range rows {
		d := e.nodes[r.Pattern]
		if old := d.find(r.c.key, origin); old != nil {
			if sameColumns(old, r, ^ColumnSet(0)) != "" {
				r.Address, r.Origin, r.pos = old.Address, old.Origin, old.pos
				e.change(d, old, r)
			}
			continue
		}
		r.pos = e.lastPos()
		e.put(d, r)
	}
	return nil
}

// maxMiddle is how many new rows a load puts between old ones one by one; past it every row of the file gets a new position.
const maxMiddle = 64

// loadReplace makes rows the only ones that the load answers for. Rows that are there already keep their ids, and their positions
// where they stand in the order of the file.
func (e *edit) loadReplace(rows []*Route, origin string) error {
	ours := func(r *Route) bool {
		if origin == OriginOperator {
			return Configured(r.Origin) && r.Origin != OriginCluster
		}
		return r.Origin == origin
	}
	inOrder, middle, news := true, 0, 0
	tail := 0 // rows from here on stand behind all that are there already
	last := int64(0)
	keep := map[uint64]bool{}
	old := make([]*Route, len(rows))
	for i, r := range rows {
		o := e.nodes[r.Pattern].find(r.c.key, origin)
		if o == nil {
			news++
			continue
		}
		old[i], keep[o.ID] = o, true
		if ours(o) {
			middle, news, tail = middle+news, 0, i+1
			inOrder = inOrder && o.pos > last
			last = o.pos
		}
	}
	inOrder = inOrder && middle <= maxMiddle
	e.dropAll(func(r *Route) bool { return ours(r) && !keep[r.ID] })
	// From the end, so that a new row can stand before the one that follows it.
	var next uint64
	if !inOrder {
		for i := range rows {
			rows[i].pos = e.lastPos()
		}
	} else {
		for i := tail; i < len(rows); i++ {
			rows[i].pos = e.lastPos()
		}
	}
	for i := len(rows) - 1; i >= 0; i-- {
		r, d, o := rows[i], e.nodes[rows[i].Pattern], old[i]
		if o != nil {
			if now, ok := e.now[o.ID]; ok {
				o = now
			}
		}
		switch {
		case o == nil:
			if r.pos == 0 {
				r.pos = e.posBeside(e.row(next), true)
			}
			e.put(d, r)
		case !ours(o):
			// Another configured origin asserts the row: it stays that one's.
			e.warn = append(e.warn, Warning{Line: r.line, Pattern: r.Pattern, Address: r.Address, What: "the row is there already, of " + o.Origin})
			continue
		case inOrder && r.Address == o.Address && r.Origin == o.Origin && sameColumns(o, r, ^ColumnSet(0)) == "":
			r.ID = o.ID
		default:
			if inOrder {
				r.pos = o.pos
			} else {
				e.moved[o.ID] = true
			}
			e.change(d, o, r)
		}
		next = r.ID
	}
	return nil
}

// row returns the row with the id as it is now.
func (e *edit) row(id uint64) *Route {
	if r, ok := e.now[id]; ok {
		return r
	}
	return e.base.Row(id)
}

// loadRow makes the row of a load.
func (e *edit) loadRow(from *Route, origin string) (*Route, error) {
	r := NewRoute(from.Pattern, from.Address)
	copyColumns(&r, from, ^ColumnSet(0))
	if r.Retry < 0 {
		r.Retry = -1
	}
	r.Origin, r.line, r.column = origin, from.line, from.column
	d, err := e.pattern(r.Pattern, true)
	if err == nil {
		err = e.compile(&r, d.pat)
	}
	if err != nil {
		return nil, atLine(&r, err)
	}
	return &r, nil
}

// atLine says at which line of its file a row is refused.
func atLine(r *Route, err error) error {
	if r.line == 0 {
		return err
	}
	return &RefusedError{What: err.Error(), Where: fmt.Sprintf("line %d, column %d", r.line, r.column)}
}
