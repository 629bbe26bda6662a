package routetable

import (
	"cmp"
	"slices"
	"sort"
	"strings"
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
