package routetable

// The short forms: each applies one op.

// The op is on the heap at once: a stack need not grow for its copies.
func (t *Table) one(ops []Op, cols []Column) (Change, error) {
	for _, c := range cols {
		c(&ops[0])
	}
	return t.Apply(ops...)
}

// Add appends a row. One that exists is done and noted "already there"; with other columns than those named it is a ConflictError.
func (t *Table) Add(pattern, address string, cols ...Column) (Change, error) {
	return t.one([]Op{{Verb: VerbAdd, Route: NewRoute(pattern, address)}}, cols)
}

// InsertBefore puts a row before the first row of the pattern anchor, with its order unless one is named.
func (t *Table) InsertBefore(anchor, pattern, address string, cols ...Column) (Change, error) {
	return t.one([]Op{{Verb: VerbInsert, Route: NewRoute(pattern, address), Anchor: anchor, Before: true}}, cols)
}

// InsertAfter puts a row after the last row of the pattern anchor, with its order unless one is named.
func (t *Table) InsertAfter(anchor, pattern, address string, cols ...Column) (Change, error) {
	return t.one([]Op{{Verb: VerbInsert, Route: NewRoute(pattern, address), Anchor: anchor}}, cols)
}

// Set changes the named columns of a row. A row that is not there is ErrNotFound.
func (t *Table) Set(pattern, address string, cols ...Column) (Change, error) {
	return t.one([]Op{{Verb: VerbSet, Route: NewRoute(pattern, address)}}, cols)
}

// Replace gives the first configured row of the pattern another address and, but for its note, the default of every column that is not
// named; without such a row it adds one. An equal row further on is removed.
func (t *Table) Replace(pattern, address string, cols ...Column) (Change, error) {
	return t.one([]Op{{Verb: VerbReplace, Route: NewRoute(pattern, address)}}, cols)
}

// ReplaceAll makes the addresses the only configured rows of the pattern, in this order, where its first row was.
func (t *Table) ReplaceAll(pattern string, addresses []string, cols ...Column) (Change, error) {
	return t.one([]Op{{Verb: VerbReplaceAll, Route: NewRoute(pattern, ""), Addresses: addresses}}, cols)
}

// Delete removes the row of pattern and address; none is done too, and noted.
func (t *Table) Delete(pattern, address string, cols ...Column) (Change, error) {
	return t.one([]Op{{Verb: VerbDelete, Route: NewRoute(pattern, address)}}, cols)
}

// DeletePattern removes the rows of the pattern.
func (t *Table) DeletePattern(pattern string, cols ...Column) (Change, error) {
	return t.one([]Op{{Verb: VerbDeletePattern, Route: NewRoute(pattern, "")}}, cols)
}

// Clear removes all configured rows, or with WithOrigin those of one origin.
func (t *Table) Clear(cols ...Column) (Change, error) { return t.one([]Op{{Verb: VerbClear}}, cols) }

// Withdraw removes the rows of an origin, or of all origins with a prefix that ends with "/".
func (t *Table) Withdraw(origin string) (Change, error) {
	return t.Apply(Op{Verb: VerbWithdraw, Origin: origin})
}

// LoadFile loads the rows of a file. LoadReplace drops every configured row but the cluster's first and takes the file's match mode, all
// where it says none;
// with WithOrigin the rows get that origin, and only its rows are dropped. LoadMerge keeps what is there; a row that exists takes the
// file's columns.
func (t *Table) LoadFile(f *File, mode LoadMode, cols ...Column) (Change, error) {
	return t.one([]Op{f.Op(mode)}, cols)
}

// Op returns the op that loads the file.
func (f *File) Op(mode LoadMode) Op {
	return Op{Verb: VerbLoad, Routes: f.Routes, compiled: f.compiled, once: f.once, Mode: mode, Match: f.Match, SetMatch: f.HasMatch || mode == LoadReplace}
}

// SetMatch sets the match mode of plain names.
func (t *Table) SetMatch(m MatchMode) (Change, error) {
	return t.Apply(Op{Verb: VerbMatch, Match: m})
}
