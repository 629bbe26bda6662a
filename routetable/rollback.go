package routetable

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// Rollback makes the configured rows, the objects and the match mode those of an earlier revision, as a new change: address texts, origins, columns and
// the order of the rows among each other. Learned rows are not touched. Rows that come back get new ids. A revision that the history does
// not reach is a RefusedError. It can be undone as any other change.
func (t *Table) Rollback(a Author, revision uint64) (Change, error) {
	return t.ApplyAs(a, Op{Verb: VerbRollback, To: revision})
}

// goal is a row as it is and as it is to be; either may be nil.
type goal struct{ now, then *Route }

// rollback plans the way back to op.To. It has to be the only op of its edit.
func (e *edit) rollback(op *Op) error {
	s := e.base
	entries, err := e.t.history.since(s, op.To)
	if err != nil {
		return err
	}
	if op.To == s.revision {
		e.note("the table is at revision %d already", op.To)
		return nil
	}
	p := s.before(entries)
	goals, moved := e.goalsInPlace(p)
	if !slices.ContainsFunc(goals, goal.differs) {
		d := s.between(s.before(nil), p)
		if d.Empty() {
			e.note("the table is as it was at revision %d already", op.To)
			return nil
		}
		if goals == nil {
			goals, moved = e.goalsAnew(p, d)
		}
	}
	e.s.match = p.match
	for name, text := range p.objects {
		e.setObject(name, text)
	}
	return e.reach(goals, moved)
}

// differs reports whether the row is another one, be it at its place or not.
func (g goal) differs() bool {
	return (g.now == nil) != (g.then == nil) || g.now != nil && !sameRow(g.now, g.then)
}

// reach makes the rows what they are to be. All that goes or moves goes first, so that no two rows have one position.
func (e *edit) reach(goals []goal, moved map[rowKey]bool) error {
	var gone, back []*Route
	var kept []goal
	for _, g := range goals {
		if g.now != nil {
			gone = append(gone, g.now)
		}
		switch {
		case g.then == nil:
		case g.now == nil:
			r := *g.then
			back = append(back, &r)
		default:
			kept = append(kept, g)
		}
	}
	slices.SortFunc(gone, compareRoutes)
	e.dropRows(gone)
	slices.SortFunc(kept, func(x, y goal) int { return compareRoutes(x.then, y.then) })
	for _, g := range kept {
		if err := e.comeBack(g, moved); err != nil {
			return err
		}
	}
	slices.SortFunc(back, compareRoutes)
	if err := e.compileAll(back); err != nil {
		return err
	}
	return e.putAll(back)
}

// compileAll compiles rows that are to be put.
func (e *edit) compileAll(rows []*Route) error {
	var mu sync.Mutex
	var failed error
	inParts(len(rows), func(from, to int) {
		for _, r := range rows[from:to] {
			p, err := e.pattern(r.Pattern)
			if err == nil {
				err = e.compile(r, p)
			}
			if err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
				return
			}
		}
	})
	return failed
}

func presence(r *Route) int {
	if r == nil {
		return 0
	}
	return 1
}

// comeBack puts a row that is there now, and whose place is free, as it is to be.
func (e *edit) comeBack(g goal, moved map[rowKey]bool) error {
	r := *g.then
	if r.Address == g.now.Address && r.When == g.now.When {
		r.c = g.now.c.of(&r)
	} else if err := e.compile(&r, g.now.c.pattern); err != nil {
		return err
	}
	r.ID = g.now.ID
	if moved[rowKey{r.Pattern, r.c.key}] {
		e.move(r.ID)
	}
	e.restore(&r)
	return nil
}

// goalsInPlace lets the rows that differ have the positions that they had. It is nil where these mean other places today: where rows were
// renumbered since, or another row took a position.
func (e *edit) goalsInPlace(p *past) (goals []goal, moved map[rowKey]bool) {
	if len(p.shifts) > 0 {
		return nil, nil
	}
	s := e.base
	goals = s.differing(p)
	moved = map[rowKey]bool{}
	wanted := map[spot]bool{}
	for _, g := range goals {
		if g.then == nil {
			continue
		}
		wanted[spotOf(g.then)] = true
		if g.now != nil && g.now.pos != g.then.pos {
			moved[rowKey{g.now.Pattern, g.now.c.key}] = true
		}
	}
	if len(wanted) == 0 {
		return goals, moved
	}
	taken := false
	s.records(func(rec record) bool {
		taken = wanted[spot{rec.order(), rec.pos()}] && !Configured(rec.origin())
		return !taken
	})
	if taken {
		return nil, nil
	}
	for pos := range wanted {
		e.nextPos = max(e.nextPos, pos.pos) // a renumbering that no row lived through began again below
	}
	return goals, moved
}

// differing lists the rows that were others, or elsewhere. It is not nil.
func (s *Snapshot) differing(p *past) []goal {
	keys := slices.Collect(maps.Keys(p.rows))
	goals := make([]goal, 0, len(keys))
	var mu sync.Mutex
	inParts(len(keys), func(from, to int) {
		var part []goal
		for _, k := range keys[from:to] {
			now := s.find(k.pattern, k.key, OriginOperator)
			then := p.row(k, now)
			if now == nil && then == nil || now != nil && then != nil && sameRow(now, then) && now.pos == then.pos {
				continue
			}
			part = append(part, goal{now, then})
		}
		mu.Lock()
		goals = append(goals, part...)
		mu.Unlock()
	})
	return goals
}

// goalsAnew numbers all rows of the table anew. Rows of other origins keep their order, and stay behind the configured row that they stand
// behind now, of those that keep their places.
func (e *edit) goalsAnew(p *past, d *Diff) (goals []goal, moved map[rowKey]bool) {
	moved = map[rowKey]bool{}
	for _, r := range d.Rows {
		if r.Moved {
			moved[rowKey{r.After.Pattern, key(r.After.Address)}] = true
		}
	}
	rows := slices.SortedFunc(e.s.Routes(), func(a, b *Route) int { return cmp.Compare(a.pos, b.pos) })
	var both []*pair // rows that are there now and then
	done := map[rowKey]bool{}
	for _, r := range rows {
		if !Configured(r.Origin) {
			continue
		}
		k := rowKey{r.Pattern, r.c.key}
		done[k] = true
		then := p.row(k, r)
		goals = append(goals, goal{r, then})
		if then != nil {
			both = append(both, &pair{before: r, a: spot{pos: r.pos}, b: spot{pos: then.pos}})
		}
	}
	for k := range p.rows {
		if then := p.row(k, nil); then != nil && !done[k] {
			goals = append(goals, goal{nil, then})
		}
	}
	slices.SortFunc(goals, func(x, y goal) int {
		if x.then == nil || y.then == nil {
			return cmp.Compare(presence(x.then), presence(y.then))
		}
		return cmp.Compare(x.then.pos, y.then.pos)
	})

	e.nextPos, e.renumbered = 0, true
	var all []goal
	place := func(now, then *Route) {
		r := *then
		r.pos = e.lastPos()
		all = append(all, goal{now, &r})
	}
	stay := longestRun(both)
	// others places the rows of other origins up to the next configured row that stays.
	others := func() {
		for len(rows) > 0 && (len(stay) == 0 || rows[0] != stay[0].before) {
			if r := rows[0]; !Configured(r.Origin) {
				place(r, r)
			}
			rows = rows[1:]
		}
	}
	others()
	for _, g := range goals {
		if g.then == nil {
			all = append(all, g)
			continue
		}
		place(g.now, g.then)
		if len(stay) > 0 && g.now == stay[0].before {
			stay, rows = stay[1:], rows[1:]
			others()
		}
	}
	return all, moved
}
