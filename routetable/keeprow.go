package routetable

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

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
