package routetable

import (
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// yamlSource is a YAML text with the places of its lines.
type yamlSource struct {
	text  string
	lines []int // where they begin, and the end
}

func sourceOf(text string) *yamlSource {
	y := &yamlSource{text: text, lines: []int{0}}
	for i := 0; i < len(text); i++ {
		if text[i] == '\n' {
			y.lines = append(y.lines, i+1)
		}
	}
	if last := y.lines[len(y.lines)-1]; last < len(text) {
		y.lines = append(y.lines, len(text))
	}
	return y
}

// offset is where a node begins, -1 where it is not in the text.
func (y *yamlSource) offset(n *yaml.Node) int {
	if n.Line < 1 || n.Line >= len(y.lines) {
		return -1
	}
	at, end := y.lines[n.Line-1], y.lines[n.Line]
	for range n.Column - 1 {
		if at >= end {
			return -1
		}
		_, size := utf8.DecodeRuneInString(y.text[at:])
		at += size
	}
	if at >= end {
		return -1
	}
	return at
}

// line is the number of the line of an offset, from 0.
func (y *yamlSource) line(at int) int {
	lo, hi := 0, len(y.lines)-1
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; y.lines[mid] <= at {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// lineText is a line with its break.
func (y *yamlSource) lineText(n int) string { return y.text[y.lines[n]:y.lines[n+1]] }

func (y *yamlSource) lineEnd(at int) int { return y.lines[y.line(at)+1] }

// space skips blanks, line breaks and comments.
func (y *yamlSource) space(at int) int {
	for at < len(y.text) {
		switch c := y.text[at]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			at++
		case c == '#' && (at == 0 || strings.IndexByte(" \t\r\n", y.text[at-1]) >= 0):
			n := strings.IndexByte(y.text[at:], '\n')
			if n < 0 {
				return len(y.text)
			}
			at += n
		default:
			return at
		}
	}
	return at
}

// properties skips anchors and tags.
func (y *yamlSource) properties(at int) int {
	for at >= 0 && at < len(y.text) && (y.text[at] == '!' || y.text[at] == '&') {
		for at < len(y.text) && strings.IndexByte(" \t\r\n", y.text[at]) < 0 {
			at++
		}
		at = y.space(at)
	}
	return at
}

// scalar is where a scalar ends that begins at an offset, -1 where that does not show. indent is that of the block that it is in.
func (y *yamlSource) scalar(at int, n *yaml.Node, indent int) int {
	at = y.properties(at)
	if at < 0 || at >= len(y.text) {
		return -1
	}
	text := y.text
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		if text[at] != '"' {
			return -1
		}
		for at++; at < len(text); at++ {
			switch text[at] {
			case '\\':
				at++
			case '"':
				return at + 1
			}
		}
		return -1
	case n.Style&yaml.SingleQuotedStyle != 0:
		if text[at] != '\'' {
			return -1
		}
		for at++; at < len(text); at++ {
			if text[at] != '\'' {
				continue
			}
			if at++; at >= len(text) || text[at] != '\'' {
				return at
			}
		}
		return -1
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		if text[at] != '|' && text[at] != '>' {
			return -1
		}
		return y.blockScalar(at, indent)
	}
	// A plain scalar over lines has one blank for a line break, and a line break for each further one.
	j := 0
	for j < len(n.Value) {
		run := at
		for run < len(text) && strings.IndexByte(" \t\r\n", text[run]) >= 0 {
			run++
		}
		switch {
		case strings.Contains(text[at:run], "\n"):
			k := j
			if n.Value[k] == ' ' {
				k++
			}
			for k == j || k < len(n.Value) && n.Value[j] == '\n' && n.Value[k] == '\n' {
				if n.Value[k] != '\n' {
					return -1
				}
				k++
			}
			at, j = run, k
		case at < len(text) && text[at] == n.Value[j]:
			at, j = at+1, j+1
		default:
			return -1
		}
	}
	return at
}

// blockScalar is where the last line of a literal or folded scalar ends that is not blank.
func (y *yamlSource) blockScalar(at, indent int) int {
	n := y.line(at)
	header, _, _ := strings.Cut(y.text[at:y.lines[n+1]], "#")
	end := y.lines[n] + len(strings.TrimRight(y.lineText(n), "\r\n"))
	content := -1
	if i := strings.IndexAny(header, "123456789"); i >= 0 {
		content = indent + int(header[i]-'0')
	}
	for n++; n < len(y.lines)-1; n++ {
		line := y.lineText(n)
		rest := strings.TrimLeft(line, " ")
		if strings.Trim(rest, " \t\r\n") == "" {
			continue
		}
		own := len(line) - len(rest)
		if own <= indent || content >= 0 && own < content {
			break
		}
		if content < 0 {
			content = own
		}
		end = y.lines[n] + len(strings.TrimRight(line, "\r\n"))
	}
	return end
}

// row takes a row apart. item is where the row itself begins and end where it ends; the offsets of the fields count from item.
func (y *yamlSource) row(n *yaml.Node) (p piece, item, end int, ok bool) {
	item = y.offset(n)
	flow := n.Style&yaml.FlowStyle != 0
	at := item
	if item < 0 || len(n.Content) < 4 {
		return p, 0, 0, false
	}
	if flow {
		p.shape = flowRow
		if at = y.properties(item); at >= len(y.text) || y.text[at] != '{' {
			return p, 0, 0, false
		}
		at++
		p.open = at - item
	} else {
		p.shape = blockRow
		if item = y.offset(n.Content[0]); item < 0 {
			return p, 0, 0, false
		}
		at = item
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		f := field{name: k.Value, from: at - item}
		key := y.offset(k)
		indent := k.Column - 1
		keyEnd := y.scalar(key, k, indent)
		if key < at || keyEnd <= key {
			return p, 0, 0, false
		}
		colon := y.space(keyEnd)
		if colon >= len(y.text) || y.text[colon] != ':' {
			return p, 0, 0, false
		}
		value, valueEnd := colon+1, colon+1
		if v.Tag != "!!null" || v.Value != "" || v.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
			value = y.offset(v)
			if value < colon+1 || y.space(colon+1) != value {
				return p, 0, 0, false
			}
			if valueEnd = y.scalar(value, v, indent); valueEnd < value {
				return p, 0, 0, false
			}
		} else if v.Style&yaml.TaggedStyle != 0 {
			return p, 0, 0, false
		}
		f.key, f.keyEnd, f.value, f.end = key-item, keyEnd-item, value-item, valueEnd-item
		at = valueEnd
		if !flow {
			f.lineFrom = max(0, y.lines[y.line(key)]-item)
			last := y.line(max(valueEnd-1, 0))
			f.lineTo = y.lines[last+1] - item
			if rest := strings.TrimLeft(y.text[valueEnd:f.lineTo+item], " \t\r\n"); rest != "" && rest[0] != '#' {
				return p, 0, 0, false
			}
		}
		p.fields = append(p.fields, f)
	}
	end = at
	if flow {
		p.close = at - item
		at = y.space(at)
		if at < len(y.text) && y.text[at] == ',' {
			at = y.space(at + 1)
			p.close = at - item
			// "outer" is what stands between the last value and the brace.
		}
		if at >= len(y.text) || y.text[at] != '}' {
			return p, 0, 0, false
		}
		p.close = at - item
		end = at + 1
	}
	p.item = y.text[item:end]
	return p, item, end, true
}

// yamlSheet takes the text that f was read from apart. more is whether there will be rows.
func (f *File) yamlSheet(text string, more bool) (*sheet, bool) {
	if !f.yaml || strings.ContainsAny(text, "\x00\u0085\u2028\u2029") || strings.Count(text, "\r") != strings.Count(text, "\r\n") || !utf8.ValidString(text) {
		return nil, false
	}
	s := newSheet(text)
	text = s.pieces[0].text
	s.pieces = nil
	var root, routesKey, routes, expectKey *yaml.Node
	if f.doc != nil {
		root = f.doc.Content[0]
		for i := 0; i+1 < len(root.Content); i += 2 {
			switch k, v := root.Content[i], root.Content[i+1]; k.Value {
			case "routes":
				routesKey, routes = k, v
			case "expect":
				expectKey = k
			}
		}
		if root.Kind == yaml.ScalarNode {
			if root.Value != "" || root.Style != 0 {
				return nil, false
			}
			root = nil
		}
	}
	if len(f.Routes) == 0 && more {
		var at int
		var ok bool
		if text, at, ok = f.makeRoom(text, root, routesKey, routes, expectKey); !ok {
			return nil, false
		}
		if at < 0 { // in a list in brackets
			y := sourceOf(text)
			open := y.offset(routes) + 1
			s.inline, s.first = true, -1
			s.holeStyle = &piece{shape: flowRow}
			s.pieces = []piece{{text: text[:open]}, {text: text[open:]}}
			return s, f.findMatch(s, y, root)
		}
		indent := "  "
		if root != nil && len(root.Content) > 0 {
			indent += strings.Repeat(" ", root.Content[0].Column-1)
		}
		s.holeStyle = &piece{shape: flowRow, pre: indent + "- "}
		s.pieces = []piece{{text: text[:at]}, {text: text[at:]}}
		s.hole = 1
		y := sourceOf(text)
		return s, f.findMatch(s, y, root)
	}
	y := sourceOf(text)
	if len(f.Routes) == 0 {
		s.pieces = []piece{{text: text}}
		s.hole = 1
		return s, f.findMatch(s, y, root)
	}
	if len(routes.Content) != len(f.Routes) {
		return nil, false
	}
	rows := make([]piece, len(f.Routes))
	items, ends := make([]int, len(rows)), make([]int, len(rows))
	for i, n := range routes.Content {
		var ok bool
		if rows[i], items[i], ends[i], ok = y.row(n); !ok || i > 0 && items[i] < ends[i-1] {
			return nil, false
		}
		rows[i].row = &f.Routes[i]
	}
	var ok bool
	switch {
	case routes.Style&yaml.FlowStyle == 0:
		ok = s.dashLines(y, rows, items, ends, routes.Column-1)
		s.routes = y.scalar(y.offset(routesKey), routesKey, 0) + 1
	case s.commaLines(y, rows, items, ends):
		ok = true
	default:
		ok = s.beside(y, rows, items, ends)
	}
	return s, ok && f.findMatch(s, y, root)
}

// makeRoom writes the key "routes" where there is none, and takes the empty value away where it has one. at is where rows go, -1 between
// the brackets of the list.
func (f *File) makeRoom(text string, root, routesKey, routes, expectKey *yaml.Node) (changed string, at int, ok bool) {
	y := sourceOf(text)
	eol := eolOf(text)
	if root != nil && root.Style&yaml.FlowStyle != 0 {
		ok = routes != nil && routes.Kind == yaml.SequenceNode
		return text, -1, ok && y.offset(routes) >= 0 && y.text[y.offset(routes)] == '['
	}
	if routesKey == nil {
		at = len(text)
		indent := ""
		if root != nil && len(root.Content) > 0 {
			indent = strings.Repeat(" ", root.Content[0].Column-1)
		}
		if expectKey != nil {
			n := expectKey.Line - 1
			for n > 0 && isComment(y.lineText(n-1)) {
				n--
			}
			at = y.lines[n]
		}
		line := indent + "routes:" + eol
		return text[:at] + line + text[at:], at + len(line), true
	}
	key := y.offset(routesKey)
	keyEnd := y.scalar(key, routesKey, 0)
	if key < 0 || keyEnd < 0 || keyEnd >= len(text) || text[keyEnd] != ':' {
		return "", 0, false
	}
	from, to := keyEnd+1, keyEnd+1
	switch {
	case routes.Kind == yaml.SequenceNode:
		if to = y.offset(routes); to < 0 || text[to] != '[' {
			return "", 0, false
		}
		if to = y.space(to+1) + 1; to > len(text) || text[to-1] != ']' {
			return "", 0, false
		}
	case routes.Value != "":
		if to = y.scalar(y.offset(routes), routes, 0); to < 0 {
			return "", 0, false
		}
	}
	if strings.ContainsAny(text[from:to], "#\n") {
		return "", 0, false
	}
	text = text[:from] + text[to:]
	at = sourceOf(text).lineEnd(from)
	rest := strings.TrimLeft(text[from:at], " \t\r\n")
	return text, at, rest == "" || rest[0] == '#'
}

func isComment(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " \t"), "#") }

// aboutRow is the number of the first line of the comment that stands directly before line n and is about the row there. What heads the
// file is not about its first row, and rows that were made comments stand for themselves.
func (y *yamlSource) aboutRow(n, low int) int {
	first := n
	for first > low && isComment(y.lineText(first-1)) {
		text := strings.TrimLeft(strings.TrimLeft(y.lineText(first-1), " \t"), "# \t")
		if strings.HasPrefix(text, "- ") || strings.HasPrefix(text, "{") || strings.Contains(text, arrow) {
			break
		}
		first--
	}
	if first == 0 {
		return n
	}
	return first
}

// between appends the lines from one number to another as text that is no row.
func (s *sheet) between(y *yamlSource, from, to int) {
	if from < to {
		s.pieces = append(s.pieces, piece{text: y.text[y.lines[from]:y.lines[to]]})
	}
}

// dashLines takes a block list apart, whose dashes stand at column dash.
func (s *sheet) dashLines(y *yamlSource, rows []piece, items, ends []int, dash int) bool {
	at := 0 // the line
	for i := range rows {
		p := &rows[i]
		first := y.line(items[i])
		for {
			line := y.lineText(first)
			rest := strings.TrimLeft(line, " ")
			if strings.HasPrefix(rest, "-") && utf8.RuneCountInString(line[:len(line)-len(rest)]) == dash {
				break
			}
			if first--; first < at {
				return false
			}
		}
		last := y.line(ends[i] - 1)
		if first < at || !y.onlyComments(at, first, i > 0) {
			return false
		}
		lead := y.aboutRow(first, at)
		s.between(y, at, lead)
		p.lead = y.text[y.lines[lead]:y.lines[first]]
		p.pre = y.text[y.lines[first]:items[i]]
		tail := y.text[ends[i]:y.lines[last+1]]
		if rest := strings.TrimLeft(tail, " \t\r\n"); rest != "" && rest[0] != '#' {
			return false
		}
		if p.shape == blockRow {
			p.item += tail
		} else {
			p.post = tail
		}
		s.pieces = append(s.pieces, *p)
		at = last + 1
	}
	s.between(y, at, len(y.lines)-1)
	return true
}

func (y *yamlSource) onlyComments(from, to int, check bool) bool {
	for n := from; check && n < to; n++ {
		if line := y.lineText(n); !isComment(line) && strings.Trim(line, " \t\r\n") != "" {
			return false
		}
	}
	return true
}

// commaLines takes a list in brackets apart whose items have lines of their own.
func (s *sheet) commaLines(y *yamlSource, rows []piece, items, ends []int) bool {
	at := 0
	var pieces []piece
	for i := range rows {
		p := rows[i]
		first, last := y.line(items[i]), y.line(ends[i]-1)
		p.pre = y.text[y.lines[first]:items[i]]
		p.post = y.text[ends[i]:y.lines[last+1]]
		rest := strings.TrimLeft(p.post, " \t")
		comma := strings.HasPrefix(rest, ",")
		if comma {
			rest = strings.TrimLeft(rest[1:], " \t")
		}
		rest = strings.TrimRight(rest, "\r\n")
		if first < at || strings.Trim(p.pre, " \t") != "" || rest != "" && rest[0] != '#' || !comma && i < len(rows)-1 || !y.onlyComments(at, first, i > 0) {
			return false
		}
		lead := y.aboutRow(first, at)
		if at < lead {
			pieces = append(pieces, piece{text: y.text[y.lines[at]:y.lines[lead]]})
		}
		p.lead = y.text[y.lines[lead]:y.lines[first]]
		pieces = append(pieces, p)
		at = last + 1
		s.lastComma = comma
	}
	s.commas = true
	s.pieces = pieces
	s.between(y, at, len(y.lines)-1)
	return true
}

// beside takes a list in brackets apart whose items stand beside each other.
func (s *sheet) beside(y *yamlSource, rows []piece, items, ends []int) bool {
	s.inline, s.first = true, -1
	s.pieces = append(s.pieces, piece{text: y.text[:items[0]]})
	for i := range rows {
		if i > 0 {
			sep := y.text[ends[i-1]:items[i]]
			if at := y.space(ends[i-1]); at >= items[i] || y.text[at] != ',' {
				return false
			}
			s.seps = append(s.seps, sep)
		}
		s.pieces = append(s.pieces, rows[i])
	}
	s.pieces = append(s.pieces, piece{text: y.text[ends[len(ends)-1]:]})
	return true
}

// findMatch finds the match mode in the pieces, or where one goes.
func (f *File) findMatch(s *sheet, y *yamlSource, root *yaml.Node) bool {
	if root == nil {
		s.first = 0
		return true
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		v := root.Content[i+1]
		if root.Content[i].Value != "match" {
			continue
		}
		at := y.offset(v)
		// Room was made for rows behind the match mode, or before it.
		if at < 0 || root.Style&yaml.FlowStyle == 0 && len(y.text) < at {
			return true
		}
		end := y.scalar(at, v, 0)
		if at = y.properties(at); end < at {
			return true
		}
		if end-at > 2 && isQuoted(y.text[at:end]) {
			at, end = at+1, end-1
		}
		if y.text[at:end] != v.Value {
			return true
		}
		s.findWord(at, end)
		return true
	}
	if root.Style&yaml.FlowStyle != 0 || s.inline || root.Content[0].Column != 1 {
		return true
	}
	if n := y.line(max(0, y.offset(root.Content[0]))); strings.HasPrefix(y.lineText(n), "---") {
		return true
	}
	s.splitAt(y.lines[root.Content[0].Line-1])
	return true
}
