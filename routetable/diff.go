package routetable

import (
	"bufio"
	"cmp"
	"io"
	"slices"
	"sort"
)

// Difference is a configured row that two tables do not have in common, or have with other columns, origin or place.
//
// Rows are told apart by pattern and address: a row that got another address is one row gone and one more.
type Difference struct {
	Before *Route // nil: the row is only in the second table
	After  *Route // nil: the row is only in the first
	Moved  bool   // the columns are the same, the place among the others is not
}

// Diff is what leads from one table to another.
type Diff struct {
	Rows        []Difference // in table order of the second table; rows that are gone stand where they stood in the first
	Match       [2]MatchMode // before and after
	MatchDiffer bool
	Objects     []ObjectChange
}

// Empty reports whether there is no difference.
func (d *Diff) Empty() bool { return len(d.Rows)+len(d.Objects) == 0 && !d.MatchDiffer }

// WriteText writes the difference for people, one line a row, with the rows in the arrow form; mask hides credentials in addresses.
//
//	match: all -> first
//	- PATTERN --> ADDRESS ; COLUMN=VALUE    gone, or as it was
//	+ PATTERN --> ADDRESS ; COLUMN=VALUE    new, or as it is
//	> PATTERN --> ADDRESS ; COLUMN=VALUE    in another place
//	- object NAME                           gone, or as it was
//	+ object NAME                           new, or as it is
func (d *Diff) WriteText(w io.Writer, mask bool) error {
	b := bufio.NewWriter(w)
	if d.MatchDiffer {
		b.WriteString("match: " + d.Match[0].String() + " -> " + d.Match[1].String() + "\n")
	}
	line := func(sign string, r *Route) {
		shown := *r
		if mask {
			shown.Address = MaskUserinfo(r.Address)
		}
		b.WriteString(sign + " " + arrowText(&shown, 0))
		if r.Origin != "" && r.Origin != OriginOperator {
			b.WriteString("  " + clean(fromPrefix+r.Origin))
		}
		b.WriteByte('\n')
	}
	for _, r := range d.Rows {
		if r.Moved {
			line(">", r.After)
			continue
		}
		if r.Before != nil {
			line("-", r.Before)
		}
		if r.After != nil {
			line("+", r.After)
		}
	}
	for _, o := range d.Objects {
		if o.Before != "" {
			b.WriteString("- object " + clean(o.Name) + "\n")
		}
		if o.After != "" {
			b.WriteString("+ object " + clean(o.Name) + "\n")
		}
	}
	return b.Flush()
}

// Diff compares the configured rows and the objects of two revisions that the history still reaches. The revision now is always reached, and a may be
// later than b. A revision that is not reached is a RefusedError, which says how far the history goes.
func (t *Table) Diff(a, b uint64) (*Diff, error) {
	t.mu.Lock()
	s := t.snapshot.Load()
	toA, err := t.history.since(s, a)
	toB, errB := t.history.since(s, b)
	t.mu.Unlock()
	if err == nil {
		err = errB
	}
	if err != nil {
		return nil, err
	}
	return s.between(s.before(toA), s.before(toB)), nil
}

// DiffFile compares the configured rows of the table with those of a file: what loading the file in replace mode would change. The rows
// of the cluster are not meant. A file that a load would refuse for one of its rows is refused.
func (s *Snapshot) DiffFile(f *File) (*Diff, error) {
	e := newEdit(new(Table), s)
	c := comparison{match: [2]MatchMode{s.match, f.Match}}
	at := map[rowKey]int{} // index of the pair of a row of the file
	for i := range f.Routes {
		r := new(Route)
		if err := e.loadRow(r, &f.Routes[i], OriginOperator, nil); err != nil {
			return nil, err
		}
		k := rowKey{r.Pattern, r.c.key}
		if _, twice := at[k]; !twice {
			at[k] = len(c.pairs)
			r.pos = int64(i)
			c.add(nil, r)
		}
	}
	fromCluster := map[int]bool{}
	for r := range s.Routes() {
		if !Configured(r.Origin) {
			continue
		}
		i, found := at[rowKey{r.Pattern, r.c.key}]
		if found {
			c.pairs[i].after.Origin = r.Origin // which a load leaves alone
		}
		switch {
		case r.Origin == OriginCluster:
			if found {
				fromCluster[i] = true
			}
		case !found:
			c.add(r, nil)
		case sameRow(r, c.pairs[i].after):
			// The row of the file stands for both, so that the table's need not be held.
			c.pairs[i].before = c.pairs[i].after
			c.pairs[i].a = spotOf(r)
		default:
			c.pairs[i].before, c.pairs[i].a = r, spotOf(r)
		}
	}
	if len(fromCluster) > 0 {
		kept := c.pairs[:0]
		for i := range c.pairs {
			if !fromCluster[i] {
				kept = append(kept, c.pairs[i])
			}
		}
		c.pairs = kept
	}
	return c.diff(nil), nil
}

// sameRow reports whether two rows of one identity are the same but for their places.
func sameRow(a, b *Route) bool {
	return a.Address == b.Address && a.Origin == b.Origin && sameColumns(a, b, ^ColumnSet(0)) == ""
}

// between compares two pasts of the snapshot.
func (s *Snapshot) between(a, b *past) *Diff {
	c := comparison{match: [2]MatchMode{a.match, b.match}, oneNumbering: len(a.shifts) == len(b.shifts)}
	known := map[rowKey]bool{}
	moved := !c.oneNumbering
	for _, rows := range [...]map[rowKey]pastRow{a.rows, b.rows} {
		for k := range rows {
			if known[k] {
				continue
			}
			known[k] = true
			present := s.find(k.pattern, k.key, OriginOperator)
			was, is := a.row(k, present), b.row(k, present)
			if was != nil || is != nil {
				c.add(was, is)
				moved = moved || was != nil && is != nil && was.pos != is.pos
			}
		}
	}
	objects := s.objectsBetween(a, b)
	if !moved || len(c.pairs) == 0 {
		d := c.diff(nil) // no row passed another one
		d.Objects = objects
		return d
	}
	i := 0
	for r := range s.Routes() {
		if Configured(r.Origin) && !known[rowKey{r.Pattern, r.c.key}] {
			c.pairs = append(c.pairs, pair{a: spot{r.Order, a.pos(r.Order, r.pos, 0)}, b: spot{r.Order, b.pos(r.Order, r.pos, 0)}, index: i})
		}
		i++
	}
	d := c.diff(s)
	d.Objects = objects
	return d
}

// spot is a place in a table.
type spot struct {
	order int
	pos   int64
}

func spotOf(r *Route) spot { return spot{r.Order, r.pos} }

func (s spot) compare(o spot) int {
	if s.order != o.order {
		return cmp.Compare(int64(s.order), int64(o.order))
	}
	return cmp.Compare(s.pos, o.pos)
}

// pair is a row in two tables. One that is in both with the same columns may be there by its index among the rows of a snapshot alone.
type pair struct {
	before, after *Route
	a, b          spot
	index         int

	kept int  // rows that kept their places before this one
	stay bool // the row is in both and kept its place
}

func (p *pair) inBoth() bool { return (p.before == nil) == (p.after == nil) }

// comparison is two tables on the way to a Diff.
type comparison struct {
	match        [2]MatchMode
	pairs        []pair
	oneNumbering bool // spots of both tables can be compared with each other
}

func (c *comparison) add(before, after *Route) {
	p := pair{before: before, after: after}
	if before != nil {
		p.a = spotOf(before)
	}
	if after != nil {
		p.b = spotOf(after)
	}
	c.pairs = append(c.pairs, p)
}

// diff finds the fewest rows that have to move, and puts the differences in order. s has the rows that are there by index.
func (c *comparison) diff(s *Snapshot) *Diff {
	d := &Diff{Match: c.match, MatchDiffer: c.match[0] != c.match[1]}
	// The rows that are the same, in order of the first table. Those of a longest run that the second has in the same order stay.
	var same []*pair
	for i := range c.pairs {
		p := &c.pairs[i]
		if p.inBoth() && (p.before == nil || sameRow(p.before, p.after)) {
			same = append(same, p)
		}
	}
	slices.SortFunc(same, func(x, y *pair) int { return x.a.compare(y.a) })
	stay := longestRun(same)
	for _, p := range stay {
		p.stay = true
	}
	missing := map[int]*pair{}
	var rows []*pair
	for i := range c.pairs {
		p := &c.pairs[i]
		if p.stay {
			continue
		}
		if p.before == nil && p.after == nil {
			missing[p.index] = p
		}
		// The spots of those that stay ascend in both tables.
		p.kept = sort.Search(len(stay), func(i int) bool {
			if p.after == nil && p.before != nil {
				return stay[i].a.compare(p.a) > 0
			}
			return stay[i].b.compare(p.b) > 0
		})
		rows = append(rows, p)
	}
	if len(missing) > 0 {
		i := 0
		for r := range s.Routes() {
			if p := missing[i]; p != nil {
				p.before, p.after = r, r
			}
			i++
		}
	}
	slices.SortFunc(rows, c.order)
	for _, p := range rows {
		moved := p.before != nil && p.after != nil && sameRow(p.before, p.after)
		d.Rows = append(d.Rows, Difference{p.before, p.after, moved})
	}
	return d
}

// order is that of differences: between the same rows that stay, gone ones stand where they stood.
func (c *comparison) order(x, y *pair) int {
	if x.kept != y.kept {
		return cmp.Compare(int64(x.kept), int64(y.kept))
	}
	xGone, yGone := x.after == nil, y.after == nil
	if xGone == yGone {
		if xGone {
			return x.a.compare(y.a)
		}
		return x.b.compare(y.b)
	}
	if c.oneNumbering {
		at := func(p *pair, gone bool) spot {
			if gone {
				return p.a
			}
			return p.b
		}
		if o := at(x, xGone).compare(at(y, yGone)); o != 0 {
			return o
		}
	}
	if xGone {
		return -1
	}
	return 1
}

// longestRun returns as many as possible of the pairs, in their order, such that their second spots ascend.
func longestRun(pairs []*pair) []*pair {
	var ends []int // ends[n] is the pair with the lowest second spot that a run of n+1 ends with
	back := make([]int, len(pairs))
	for i, p := range pairs {
		n := sort.Search(len(ends), func(n int) bool { return pairs[ends[n]].b.compare(p.b) >= 0 })
		back[i] = -1
		if n > 0 {
			back[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		} else {
			ends[n] = i
		}
	}
	run := make([]*pair, len(ends))
	if len(ends) == 0 {
		return run
	}
	for i, n := ends[len(ends)-1], len(ends)-1; n >= 0; n-- {
		run[n] = pairs[i]
		i = back[i]
	}
	return run
}
