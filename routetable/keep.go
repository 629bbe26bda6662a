package routetable

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// sheet is the text of a table file taken apart at its rows, so that an edit of one row leaves every other byte as it is.
type sheet struct {
	pieces []piece // in text order; together they are the text
	eol    string  // "\n" or "\r\n"
	cut    bool    // the text has no line break at its end, the last piece has one

	// A YAML list in brackets has a comma between its items. Where they do not stand on lines of their own it is inline: then the pieces
	// are the text before the first item, the items, and the text after the last, and seps the texts between.
	commas, lastComma bool
	inline            bool
	seps              []string

	hole      int    // the piece before which rows go where there are none
	holeStyle *piece // the style of a row there

	match *match // nil: the text has none
	first int    // the piece before which a match goes, -1 for none

	routes int // of a list with dashes: where its key ends with ":", in the text before the first row; else 0
}

// piece is a row, or what stands between rows.
type piece struct {
	text string // of what is no row: whole lines
	row  *Route // as read; nil for no row

	// Of a row; together its lines.
	lead string // the lines of a comment about it
	pre  string // to its beginning
	item string
	post string // a comma, a comment, the line break

	shape       shape
	fields      []field // in text order
	open, close int     // a flow mapping in item: behind "{", before "}"
}

// shape is how a row is written.
type shape uint8

const (
	arrowRow shape = iota
	flowRow        // {pattern: a, address: h}
	blockRow       // a line a key
)

// field is the pattern, the address or a column in the item of a piece: offsets.
type field struct {
	name             string
	from             int // where the field before ends
	key, keyEnd      int
	value, end       int // the same where there is no value
	lineFrom, lineTo int // of a block row: its lines
}

// match is the word of "match: all" in a piece.
type match struct{ piece, from, to int }

// slot is a row of the result: one of the sheet's or a new one.
type slot struct {
	row  *Route
	was  int  // the piece, -1 for a new row
	stay bool // it stands where it stood
}

// edited is the text of the file that f was kept from (Keep), changed where f is another table. It is not ok where the text cannot be
// taken apart, or what comes of it would not be read as f: then all of it is to be written anew.
func (f *File) edited(yaml bool) (text string, ok bool) {
	old := f.old
	if old == nil || old.text == "" || len(f.live) > 0 || !sameExpects(f.Expect, old.Expect) {
		return "", false
	}
	for i := range f.Routes {
		if o := f.Routes[i].Origin; o != "" && o != OriginOperator {
			return "", false // a comment says whose it is
		}
	}
	body := strings.TrimPrefix(old.text, bom)
	var s *sheet
	if yaml {
		s, ok = old.yamlSheet(body, len(f.Routes) > 0)
	} else {
		s, ok = old.arrowSheet(body)
	}
	if !ok {
		return "", false
	}
	if len(f.Routes) == 0 && s.routes > 0 {
		s.insert(s.routes, " []")
	}
	if f.Match != old.Match && !s.setMatch(f.Match) {
		return "", false
	}
	text, ok = s.write(s.plan(f.Routes))
	if !ok {
		return "", false
	}
	text = old.text[:len(old.text)-len(body)] + text
	back, err := ParseFile("", []byte(text))
	if err != nil || back.yaml != old.yaml && len(back.Routes)+len(back.Expect) > 0 && len(old.Routes)+len(old.Expect) > 0 ||
		back.Match != f.Match || !sameExpects(back.Expect, f.Expect) || !sameTables(back.Routes, f.Routes) {
		return "", false
	}
	return text, true
}

const bom = "\xef\xbb\xbf"

func sameExpects(a, b []Expect) bool {
	return slices.EqualFunc(a, b, func(a, b Expect) bool {
		if a.Address != b.Address || a.Target != b.Target || !slices.Equal(a.Hops, b.Hops) || len(a.Properties) != len(b.Properties) {
			return false
		}
		for k, v := range a.Properties {
			if w, ok := b.Properties[k]; !ok || v != w {
				return false
			}
		}
		return true
	})
}

// sameText reports whether two rows are the same to a reader of the file.
func sameText(a, b *Route) bool {
	return a.Pattern == b.Pattern && a.Address == b.Address && sameColumns(a, b, ^ColumnSet(0)) == ""
}

// sameTables reports whether two lists of rows make the same table.
func sameTables(a, b []Route) bool {
	return slices.EqualFunc(tableOrder(a), tableOrder(b), sameText)
}

// tableOrder is the rows that a table makes of a list, in its order.
func tableOrder(rows []Route) []*Route {
	list := make([]*Route, 0, len(rows))
	seen := make(map[rowKey]bool, len(rows))
	for i := range rows {
		if k := keyOf(&rows[i]); !seen[k] {
			seen[k] = true
			list = append(list, &rows[i])
		}
	}
	slices.SortStableFunc(list, func(a, b *Route) int { return cmp.Compare(a.Order, b.Order) })
	return list
}

// plan says which row of the sheet each wanted row is, and which of them stay in place: of each order as many as can. The others stand
// behind the row that they follow in the table.
func (s *sheet) plan(rows []Route) []slot {
	wanted := tableOrder(rows)
	pieceOf := make(map[rowKey]int, len(s.pieces))
	for i := range s.pieces {
		if r := s.pieces[i].row; r != nil {
			if _, twice := pieceOf[keyOf(r)]; !twice {
				pieceOf[keyOf(r)] = i
			}
		}
	}
	slots := make([]slot, len(wanted))
	left := map[string][]int{} // pieces of rows that are gone, by pattern
	taken := make(map[int]bool, len(wanted))
	for j, r := range wanted {
		slots[j] = slot{row: r, was: -1}
		if i, ok := pieceOf[keyOf(r)]; ok {
			slots[j].was = i
			taken[i] = true
		}
	}
	for _, i := range sortedValues(pieceOf) {
		if !taken[i] {
			p := s.pieces[i].row.Pattern
			left[p] = append(left[p], i)
		}
	}
	// A row whose address changed is another one to the table, and the same to who reads the file.
	replaced := map[int]bool{}
	for j := range slots {
		if p := slots[j].row.Pattern; slots[j].was < 0 && len(left[p]) > 0 {
			slots[j].was, left[p] = left[p][0], left[p][1:]
			replaced[j] = true
		}
	}
	for at := 0; at < len(slots); {
		end := at
		for end < len(slots) && slots[end].row.Order == slots[at].row.Order {
			end++
		}
		stayers(slots[at:end])
		at = end
	}
	for j := range replaced {
		if !slots[j].stay {
			slots[j].was = -1
		}
	}
	return s.repeated(ordered(slots), pieceOf)
}

// repeated puts the rows back that the table did not take, since the file has them before. They stay as long as the first one is as it was.
func (s *sheet) repeated(slots []slot, pieceOf map[rowKey]int) []slot {
	same := map[int]bool{}
	for _, sl := range slots {
		if sl.stay && sameText(s.pieces[sl.was].row, sl.row) {
			same[sl.was] = true
		}
	}
	var again []int
	for i := range s.pieces {
		if r := s.pieces[i].row; r != nil {
			if first := pieceOf[keyOf(r)]; first != i && same[first] {
				again = append(again, i)
			}
		}
	}
	if len(again) == 0 {
		return slots
	}
	list := make([]slot, 0, len(slots)+len(again))
	for _, sl := range slots {
		for sl.stay && len(again) > 0 && again[0] < sl.was {
			list = append(list, slot{row: s.pieces[again[0]].row, was: again[0], stay: true})
			again = again[1:]
		}
		list = append(list, sl)
	}
	for _, i := range again {
		list = append(list, slot{row: s.pieces[i].row, was: i, stay: true})
	}
	return list
}

func sortedValues(m map[rowKey]int) []int {
	list := make([]int, 0, len(m))
	for _, i := range m {
		list = append(list, i)
	}
	slices.Sort(list)
	return list
}

// stayers marks a longest rising sequence of pieces.
func stayers(slots []slot) {
	var tails []int // of each length, the slot whose piece is the least
	prev := make([]int, len(slots))
	for j := range slots {
		if slots[j].was < 0 {
			continue
		}
		n := sort.Search(len(tails), func(n int) bool { return slots[tails[n]].was >= slots[j].was })
		prev[j] = -1
		if n > 0 {
			prev[j] = tails[n-1]
		}
		if n == len(tails) {
			tails = append(tails, j)
		}
		tails[n] = j
	}
	if len(tails) > 0 {
		for j := tails[len(tails)-1]; j >= 0; j = prev[j] {
			slots[j].stay = true
		}
	}
}

// ordered puts slots in the order of the text: those that stay as they stood, each other one behind the one that it follows in the table,
// of its own order if there is one, else before the one that follows it.
func ordered(slots []slot) []slot {
	var stay []int
	for j := range slots {
		if slots[j].stay {
			stay = append(stay, j)
		}
	}
	slices.SortFunc(stay, func(a, b int) int { return slots[a].was - slots[b].was })
	next := make([]int, len(slots)+1) // a ring through the end, which is len(slots)
	prev := make([]int, len(slots)+1)
	at := len(slots)
	link := func(j, behind int) {
		next[j], prev[j] = next[behind], behind
		prev[next[j]], next[behind] = j, j
	}
	next[at], prev[at] = at, at
	for _, j := range stay {
		link(j, at)
		at = j
	}
	// The next slot of the same order that stays.
	following := make([]int, len(slots))
	for j, f := len(slots)-1, -1; j >= 0; j-- {
		if j+1 < len(slots) && slots[j+1].row.Order != slots[j].row.Order {
			f = -1
		}
		if following[j] = f; slots[j].stay {
			f = j
		}
	}
	for j := range slots {
		switch {
		case slots[j].stay:
		case j > 0 && slots[j-1].row.Order == slots[j].row.Order:
			link(j, j-1)
		case following[j] >= 0:
			link(j, prev[following[j]])
		case j > 0:
			link(j, j-1)
		default:
			link(j, len(slots))
		}
	}
	list := make([]slot, 0, len(slots))
	for j := next[len(slots)]; j != len(slots); j = next[j] {
		list = append(list, slots[j])
	}
	return list
}

// place gives every slot its piece: as it was, changed, or new in the style of a neighbour.
func (s *sheet) place(slots []slot) ([]piece, bool) {
	list := make([]piece, len(slots))
	near, column := -1, -1
	for j, sl := range slots {
		if sl.was >= 0 {
			near = sl.was
			p := s.pieces[sl.was]
			if !sameText(p.row, sl.row) {
				var ok bool
				if p, ok = p.changed(sl.row, s.eol); !ok {
					return nil, false
				}
			}
			list[j] = p
			continue
		}
		style := s.holeStyle
		if near < 0 {
			for k := j + 1; k < len(slots) && near < 0; k++ {
				near = slots[k].was
			}
			for i := 0; i < len(s.pieces) && near < 0; i++ {
				if s.pieces[i].row != nil {
					near = i
				}
			}
		}
		if near >= 0 {
			style = &s.pieces[near]
		}
		if column < 0 {
			column = s.addressColumn()
		}
		list[j] = style.fresh(sl.row, column, s.eol)
	}
	return list, true
}

// write puts the text together.
func (s *sheet) write(slots []slot) (string, bool) {
	rows, ok := s.place(slots)
	if !ok {
		return "", false
	}
	if s.inline {
		text := s.writeInline(slots, rows)
		if s.cut {
			text = strings.TrimSuffix(text, s.eol)
		}
		return text, true
	}
	if s.commas {
		for j := range rows {
			rows[j].setComma(j < len(rows)-1 || s.lastComma)
		}
	}
	kept := make(map[int]bool)
	for _, sl := range slots {
		if sl.stay {
			kept[sl.was] = true
		}
	}
	w := &lineWriter{spaced: s.spaced(), eol: s.eol}
	j := 0
	// others writes the slots up to the next that stays.
	others := func() {
		for ; j < len(slots) && !slots[j].stay; j++ {
			w.row(&rows[j], true)
		}
	}
	last := -1
	for i := range s.pieces {
		if s.pieces[i].row != nil {
			last = i
		}
	}
	begun := false
	for i := range s.pieces {
		p := &s.pieces[i]
		if p.row == nil {
			if last < 0 && i == s.hole {
				others()
			}
			w.between(p.text, i < last)
			continue
		}
		if !begun {
			begun = true
			others()
		}
		if !kept[i] {
			w.gone()
			continue
		}
		w.row(&rows[j], false)
		j++
		others()
	}
	if last < 0 && s.hole >= len(s.pieces) {
		others()
	}
	text := w.end()
	if s.cut {
		text = strings.TrimSuffix(text, s.eol)
	}
	return text, j == len(slots)
}

// spaced reports whether there is a blank line between any two rows, of at least three.
func (s *sheet) spaced() bool {
	pairs := 0
	blank, begun := false, false
	for i := range s.pieces {
		p := &s.pieces[i]
		if p.row == nil {
			blank = blank || startsBlank(p.text) || endsBlank(p.text)
			continue
		}
		if begun {
			if !blank {
				return false
			}
			pairs++
		}
		begun, blank = true, false
	}
	return pairs > 1
}

// lineWriter joins pieces of whole lines. Where a row goes, one of the blank lines around it goes too.
type lineWriter struct {
	b      strings.Builder
	spaced bool
	eol    string
	rows   int
	hold   string // what is written, its blank lines at the end held back
	went   bool   // a row went just before
}

func (w *lineWriter) put(text string) {
	if text == "" {
		return
	}
	w.b.WriteString(w.hold)
	w.hold = ""
	n := len(text)
	for n > 0 {
		at := lineStart(text, n)
		if strings.Trim(text[at:n], " \t\r\n") != "" {
			break
		}
		n = at
	}
	w.b.WriteString(text[:n])
	w.hold = text[n:]
}

// lineStart is where the line begins that ends at n.
func lineStart(text string, n int) int {
	return strings.LastIndexByte(text[:max(0, n-1)], '\n') + 1
}

func (w *lineWriter) row(p *piece, isNew bool) {
	if isNew && w.spaced && w.rows > 0 && w.hold == "" {
		w.put(w.eol)
	}
	w.went = false
	w.rows++
	w.put(p.lead + p.pre + p.item + p.post)
	if isNew && w.spaced && w.rows == 1 {
		w.put(w.eol)
	}
}

func (w *lineWriter) gone() { w.went = true }

// between writes what stands between rows, or after them; more is whether a row follows.
func (w *lineWriter) between(text string, more bool) {
	if w.went && startsBlank(text) && (w.hold != "" || more && w.rows == 0) {
		for startsBlank(text) {
			_, text, _ = strings.Cut(text, "\n")
		}
	}
	w.went = w.went && text == ""
	w.put(text)
}

func (w *lineWriter) end() string {
	if !w.went {
		w.b.WriteString(w.hold)
	}
	return w.b.String()
}

func startsBlank(text string) bool {
	line, _, ok := strings.Cut(text, "\n")
	return ok && strings.Trim(line, " \t\r") == ""
}

func endsBlank(text string) bool {
	return text != "" && strings.Trim(text[lineStart(text, len(text)):], " \t\r\n") == ""
}

// writeInline joins the items of a list in brackets that stand beside each other.
func (s *sheet) writeInline(slots []slot, rows []piece) string {
	n := len(s.pieces) - 2 // items; the pieces are the text before, the items, the text after
	clean := ", "
	for _, sep := range s.seps {
		if !strings.Contains(sep, "#") {
			clean = sep
			break
		}
	}
	var b strings.Builder
	b.WriteString(s.pieces[0].text)
	tail := s.pieces[n+1].text
	for j := range rows {
		b.WriteString(rows[j].item)
		was := -1
		if slots[j].stay {
			was = slots[j].was - 1
		}
		behind := "" // with a comment that is behind the row
		if was >= 0 && was < n-1 && strings.Contains(s.seps[was], "#") {
			behind = s.seps[was]
		}
		if j == len(rows)-1 {
			if behind != "" {
				b.WriteString(behind)
				if before, after, ok := strings.Cut(tail, ","); ok && strings.Trim(before, " \t\r\n") == "" {
					tail = after
				}
			}
			break
		}
		next := -1
		if slots[j+1].stay {
			next = slots[j+1].was - 1
		}
		switch {
		case behind != "":
			b.WriteString(behind)
		case next > 0 && (was == next-1 || !strings.Contains(s.seps[next-1], "#")):
			b.WriteString(s.seps[next-1])
		case was >= 0 && was < n-1:
			b.WriteString(s.seps[was])
		default:
			b.WriteString(clean)
		}
	}
	b.WriteString(tail)
	return b.String()
}

// setComma sees to it that a comma is behind the item, or none.
func (p *piece) setComma(comma bool) {
	rest := strings.TrimLeft(p.post, " \t")
	has := strings.HasPrefix(rest, ",")
	switch {
	case comma && !has:
		p.post = "," + p.post
	case !comma && has:
		p.post = p.post[:len(p.post)-len(rest)] + rest[1:]
	}
}

// setMatch changes the match mode, or writes one before the rows.
func (s *sheet) setMatch(m MatchMode) bool {
	if s.match != nil {
		p := &s.pieces[s.match.piece]
		p.text = p.text[:s.match.from] + m.String() + p.text[s.match.to:]
		return true
	}
	if s.first < 0 {
		return false
	}
	line := piece{text: "match: " + m.String() + s.eol}
	s.pieces = slices.Insert(s.pieces, s.first, line)
	if s.hole >= s.first {
		s.hole++
	}
	return true
}

// splice is a change of an item: what stands from one offset to another becomes text.
type splice struct {
	from, to int
	text     string
}

// replaced makes the splices. It is not ok where two overlap.
func replaced(item string, splices []splice) (text string, ok bool) {
	slices.SortStableFunc(splices, func(a, b splice) int { return cmp.Or(a.from-b.from, a.to-b.to) })
	var b strings.Builder
	at := 0
	for _, c := range splices {
		if c.from < at || c.to < c.from || c.to > len(item) {
			return "", false
		}
		b.WriteString(item[at:c.from])
		b.WriteString(c.text)
		at = c.to
	}
	b.WriteString(item[at:])
	return b.String(), true
}

// rank orders the fields of a row as the writers do.
func rank(name string) int {
	switch name {
	case "pattern":
		return -2
	case "address":
		return -1
	}
	return slices.IndexFunc(columns, func(c column) bool { return c.name == name })
}

// textOf is the text of a field of a row. The default of a column has one too.
func textOf(r *Route, name string) string {
	switch name {
	case "pattern":
		return r.Pattern
	case "address":
		return r.Address
	case "retry":
		if r.Retry < 0 {
			return "none"
		}
	}
	return findColumn(name).format(r)
}

func (p *piece) field(name string) *field {
	for i := range p.fields {
		if p.fields[i].name == name {
			return &p.fields[i]
		}
	}
	return nil
}

// changed is the piece with the row in the place of its own. What is the same in both stays as written. A column whose value is now the
// default goes, unless there is a comment at it.
func (p *piece) changed(r *Route, eol string) (piece, bool) {
	q := *p
	q.row = r
	set, gone := map[string]bool{}, map[string]bool{}
	if p.row.Pattern != r.Pattern {
		set["pattern"] = true
	}
	if p.row.Address != r.Address {
		set["address"] = true
	}
	for i := range columns {
		c := &columns[i]
		if sameColumns(p.row, r, c.set) == "" {
			continue
		}
		f := p.field(c.name)
		switch {
		case c.isSet(r) || f != nil && p.commented(f):
			set[c.name] = true
		case f == nil:
			return q, false
		default:
			gone[c.name] = true
		}
	}
	var splices []splice
	only := true // all fields so far are gone
	for i := range p.fields {
		f := &p.fields[i]
		switch {
		case !gone[f.name]:
			only = false
			if set[f.name] {
				splices = append(splices, splice{f.value, f.end, p.value(f, r)})
				delete(set, f.name)
			}
		case only && i+1 < len(p.fields):
			splices = append(splices, splice{f.key, p.fields[i+1].key, ""})
		case p.shape == blockRow:
			splices = append(splices, splice{f.lineFrom, f.lineTo, ""})
		default:
			splices = append(splices, splice{f.from, f.end, ""})
		}
	}
	for i := range columns { // new fields, in canonical order
		name := columns[i].name
		if !set[name] {
			continue
		}
		behind := -1
		for k := range p.fields {
			if f := &p.fields[k]; !gone[f.name] && rank(f.name) < rank(name) {
				behind = k
			}
		}
		if behind < 0 {
			return q, false
		}
		f := &p.fields[behind]
		text := p.added(name, r, eol)
		at := f.end
		if p.shape == blockRow {
			at = f.lineTo
		}
		splices = append(splices, splice{at, at, text})
	}
	var ok bool
	if q.item, ok = replaced(p.item, splices); !ok {
		return q, false
	}
	q.fields = nil
	q.align(p.item)
	return q, true
}

// align keeps the place of a comment that is behind the row on its line.
func (p *piece) align(was string) {
	rest := strings.TrimPrefix(p.post, ",")
	blanks := len(rest) - len(strings.TrimLeft(rest, " "))
	if blanks < 3 || !strings.HasPrefix(rest[blanks:], "#") || strings.Contains(was+p.item, "\n") {
		return
	}
	grown := utf8.RuneCountInString(p.item) - utf8.RuneCountInString(was)
	p.post = p.post[:len(p.post)-len(rest)] + strings.Repeat(" ", max(2, blanks-grown)) + rest[blanks:]
}

// commented reports whether a field would take a comment with it if it went.
func (p *piece) commented(f *field) bool {
	switch p.shape {
	case flowRow:
		end := f.end
		if f.from == p.open { // the first
			end = p.fields[min(1, len(p.fields)-1)].key
		}
		return strings.Contains(p.item[f.from:f.value], "#") || strings.Contains(p.item[f.end:max(end, f.end)], "#")
	case blockRow:
		end := f.lineTo
		if f.from == 0 {
			end = p.fields[1].key
		}
		if strings.Contains(p.item[f.keyEnd:f.value], "#") || strings.Contains(p.item[f.end:max(f.end, end)], "#") {
			return true
		}
		before := p.item[:f.lineFrom]
		line := ""
		if before != "" {
			line = strings.TrimLeft(before[lineStart(before, len(before)):], " \t")
		}
		return strings.HasPrefix(line, "#")
	}
	return false
}

// value writes the value of a field anew, quoted as it was.
func (p *piece) value(f *field, r *Route) string {
	text := textOf(r, f.name)
	old := p.item[f.value:f.end]
	if p.shape == arrowRow {
		switch {
		case f.name == "pattern":
			return arrowPattern(text)
		case isFlag(f.name) && old == "" && text == "true":
			return ""
		case isFlag(f.name) && old == "":
			return "=" + text
		}
		return arrowField(text)
	}
	value := yamlValue(f.name, text, old)
	if old == "" {
		value = " " + value
	}
	return value
}

func isFlag(name string) bool {
	c := findColumn(name)
	return c != nil && c.set&(ColFallback|ColOptional|ColDynamicHost) != 0
}

// added is a field that the item has not, with what separates it from the one before.
func (p *piece) added(name string, r *Route, eol string) string {
	text := textOf(r, name)
	switch p.shape {
	case arrowRow:
		sep := " ; "
		for i, f := range p.fields[min(2, len(p.fields)):] {
			if s := p.item[f.from:f.key]; i == 0 || len(s) < len(sep) {
				sep = s
			}
		}
		if isFlag(name) {
			return sep + name
		}
		return sep + name + "=" + arrowField(text)
	case flowRow:
		key, like := p.keyLike(name)
		return p.separator() + key + ": " + yamlValue(name, text, like)
	}
	indent := ""
	for _, f := range p.fields[1:] {
		if indent = p.item[f.lineFrom:f.key]; strings.Trim(indent, " ") == "" {
			break
		}
	}
	key, like := p.keyLike(name)
	return indent + key + ": " + yamlValue(name, text, like) + eol
}

// separator is what stands between two fields of a flow mapping.
func (p *piece) separator() string {
	for _, f := range p.fields[1:] {
		if sep := p.item[f.from:f.key]; !strings.Contains(sep, "#") && (strings.Contains(sep, "\n") || len(sep) <= 2) {
			return sep
		}
	}
	return ", "
}

// keyLike is a key as the row writes its keys, and a value to take the quotes of, empty for the writers' own.
func (p *piece) keyLike(name string) (key, like string) {
	for _, f := range p.fields {
		if p.item[f.key] != '"' {
			return name, ""
		}
	}
	switch name {
	case "pick", "balance", "hash-key", "when", "timeout", "note", "name", "pattern", "address":
		like = `"`
	}
	return `"` + name + `"`, like
}

// likeOf is keyLike for a new row in the style of p. Quotes that the value in p needs say nothing of one that does not.
func (p *piece) likeOf(name, text string) (key, like string) {
	key, like = p.keyLike(name)
	f := p.field(name)
	if like != "" || f == nil {
		return key, like
	}
	value := textOf(p.row, name)
	if isQuoted(p.item[f.value:f.end]) && isQuoted(yamlScalar(value)) && !isQuoted(yamlScalar(text)) {
		return key, ""
	}
	return key, p.item[f.value:f.end]
}

func isQuoted(scalar string) bool { return scalar != "" && (scalar[0] == '"' || scalar[0] == '\'') }

// addressColumn is where the address begins in every one of at least two rows on one line, counted from the brace, if the hand put blanks
// there for it; else 0.
func (s *sheet) addressColumn() int {
	column, padded, rows := 0, false, 0
	for i := range s.pieces {
		p := &s.pieces[i]
		if p.row == nil {
			continue
		}
		if p.shape != flowRow || p.fields[0].name != "pattern" || p.fields[1].name != "address" {
			return 0
		}
		f := &p.fields[1]
		gap := p.item[f.from:f.key]
		n := utf8.RuneCountInString(p.item[:f.key])
		if strings.TrimRight(gap, " ") != "," || rows > 0 && n != column {
			return 0
		}
		column, padded, rows = n, padded || len(gap) > 2, rows+1
	}
	if rows < 2 || !padded {
		return 0
	}
	return column
}

// fresh is a new row in the style of p.
func (p *piece) fresh(r *Route, column int, eol string) piece {
	q := piece{row: r, pre: p.pre, post: eol, shape: p.shape}
	if strings.Trim(q.pre, " \t-") != "" { // a comment, an anchor, a line break
		indent := q.pre[:len(q.pre)-len(strings.TrimLeft(q.pre, " "))]
		if q.pre = indent; strings.HasPrefix(p.pre[len(indent):], "-") {
			q.pre += "- "
		}
	}
	switch p.shape {
	case arrowRow:
		q.item = p.freshArrow(r)
	case flowRow:
		q.item = p.freshFlow(r, column)
	default:
		q.item, q.post = p.freshBlock(r, strings.Repeat(" ", utf8.RuneCountInString(q.pre)), eol), ""
	}
	return q
}

func (p *piece) freshArrow(r *Route) string {
	if len(p.fields) == 0 {
		return arrowText(r, 0)
	}
	pattern, address := &p.fields[0], &p.fields[1]
	at := pattern.end + strings.Index(p.item[pattern.end:address.value], arrow)
	blanks := at - pattern.end
	text := arrowPattern(r.Pattern)
	if pad := utf8.RuneCountInString(p.item[:at]) - utf8.RuneCountInString(text); blanks > 0 {
		text += strings.Repeat(" ", max(1, pad))
	}
	text += p.item[at:address.value] + arrowField(r.Address)
	for i, kv := range FormatColumns(r) {
		column := p.added(kv.Key, r, "")
		if i == 0 && len(p.fields) > 2 {
			column = strings.TrimLeft(column, " \t")
			if sep := p.item[p.fields[2].from:p.fields[2].key]; strings.TrimLeft(sep, " \t") != sep {
				column = sep[:len(sep)-len(strings.TrimLeft(sep, " \t"))] + column
			}
		}
		text += column
	}
	return text
}

func (p *piece) freshFlow(r *Route, column int) string {
	if len(p.fields) == 0 {
		return yamlText(r)
	}
	open, shut := p.item[:p.open], p.item[p.close:]
	first, last := &p.fields[0], &p.fields[len(p.fields)-1]
	inner, outer := p.item[p.open:first.key], p.item[last.end:p.close]
	if strings.Contains(inner, "#") {
		inner = ""
	}
	if strings.Contains(outer, "#") {
		outer = ""
	}
	if open != "{" {
		open = "{" // an anchor or a tag
	}
	text := open + inner
	for i, name := range append([]string{"pattern", "address"}, fieldNames(r)...) {
		if i > 0 {
			sep := p.separator()
			if i == 1 && column > 0 {
				sep = "," + strings.Repeat(" ", max(1, column-utf8.RuneCountInString(text)-1))
			}
			text += sep
		}
		key, like := p.likeOf(name, textOf(r, name))
		colon := ": "
		if f := p.field(name); f != nil && f.value < f.end {
			if c := p.item[f.keyEnd:f.value]; strings.HasSuffix(c, " ") && strings.Trim(c, " :") == "" {
				colon = c
			}
		}
		text += key + colon + yamlValue(name, textOf(r, name), like)
	}
	return text + outer + shut
}

func fieldNames(r *Route) []string {
	var names []string
	for _, kv := range FormatColumns(r) {
		names = append(names, kv.Key)
	}
	return names
}

func (p *piece) freshBlock(r *Route, indent, eol string) string {
	text := ""
	for i, name := range append([]string{"pattern", "address"}, fieldNames(r)...) {
		if i > 0 {
			text += indent
		}
		key, like := p.likeOf(name, textOf(r, name))
		text += key + ": " + yamlValue(name, textOf(r, name), like) + eol
	}
	return text
}

// newSheet is a text as one piece, with a line break at its end.
func newSheet(text string) *sheet {
	s := &sheet{eol: eolOf(text), first: -1}
	if text != "" && !strings.HasSuffix(text, "\n") {
		s.cut = true
		text += s.eol
	}
	s.pieces = []piece{{text: text}}
	return s
}

func eolOf(text string) string {
	if i := strings.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

func (p *piece) size() int {
	return len(p.text) + len(p.lead) + len(p.pre) + len(p.item) + len(p.post)
}

// findWord makes the text between two offsets the match mode.
func (s *sheet) findWord(from, to int) {
	begin := 0
	for i := range s.pieces {
		end := begin + s.pieces[i].size()
		if begin <= from && to <= end && s.pieces[i].row == nil {
			s.match = &match{i, from - begin, to - begin}
			return
		}
		begin = end
	}
}

// insert writes text at an offset that is in no row.
func (s *sheet) insert(at int, text string) {
	begin := 0
	for i := range s.pieces {
		p := &s.pieces[i]
		end := begin + p.size()
		if at <= end {
			if p.row == nil {
				p.text = p.text[:at-begin] + text + p.text[at-begin:]
			}
			return
		}
		begin = end
	}
}

// splitAt makes an offset that is in no row the place where a match mode goes.
func (s *sheet) splitAt(at int) {
	begin := 0
	for i := range s.pieces {
		p := &s.pieces[i]
		end := begin + p.size()
		switch {
		case at == begin:
			s.first = i
			return
		case at < end && p.row == nil:
			text := p.text
			p.text = text[:at-begin]
			s.pieces = slices.Insert(s.pieces, i+1, piece{text: text[at-begin:]})
			if s.hole > i {
				s.hole++
			}
			s.first = i + 1
			return
		}
		begin = end
	}
}
