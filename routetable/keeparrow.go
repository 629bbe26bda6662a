package routetable

import "strings"

// arrowSheet takes the text that f was read from apart.
func (f *File) arrowSheet(text string) (*sheet, bool) {
	s := newSheet(text)
	y := sourceOf(s.pieces[0].text)
	s.pieces = nil
	rows := 0
	at := 0 // the first line that is in no piece yet
	matchFrom, matchTo, begin := -1, -1, -1
	for n := range len(y.lines) - 1 {
		line := y.lineText(n)
		l := &arrowLine{text: strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), line: n + 1}
		if l.blank(); l.end() {
			continue
		}
		rest := l.text[l.at:]
		if isMatchLine(rest) {
			matchFrom = y.lines[n] + l.at + len("match:")
			matchFrom += len(y.text[matchFrom:]) - len(strings.TrimLeft(y.text[matchFrom:], " \t"))
			matchTo = matchFrom + len(f.Match.String())
			if !strings.HasPrefix(y.text[matchFrom:], f.Match.String()) {
				return nil, false
			}
			continue
		}
		if begin < 0 {
			begin = y.lines[n]
		}
		if strings.HasPrefix(rest, "expect: ") || strings.HasPrefix(rest, "expect:\t") {
			continue
		}
		if rows == len(f.Routes) {
			return nil, false
		}
		p, ok := arrowPiece(l)
		if !ok {
			return nil, false
		}
		p.row = &f.Routes[rows]
		rows++
		lead := y.aboutRow(n, at)
		s.between(y, at, lead)
		p.lead = y.text[y.lines[lead]:y.lines[n]]
		p.post += line[len(l.text):]
		s.pieces = append(s.pieces, p)
		at = n + 1
	}
	if rows != len(f.Routes) {
		return nil, false
	}
	s.between(y, at, len(y.lines)-1)
	if rows == 0 {
		s.holeStyle = &piece{shape: arrowRow}
		s.hole = len(s.pieces) // behind all
	}
	switch {
	case matchFrom >= 0:
		s.findWord(matchFrom, matchTo)
	case begin < 0:
		s.first = len(s.pieces)
	case rows == 0:
		s.splitAt(begin)
	default:
		for i := range s.pieces {
			if s.pieces[i].row != nil || strings.Contains(s.pieces[i].text, "expect:") {
				s.first = i
				break
			}
		}
	}
	return s, true
}

// arrowPiece takes a line apart that holds a row.
func arrowPiece(l *arrowLine) (p piece, ok bool) {
	begin := l.at
	p.pre = l.text[:begin]
	f := field{name: "pattern"}
	if _, err := l.field("", false); err != nil {
		return p, false
	}
	f.end = l.at - begin
	p.fields = append(p.fields, f)
	if l.arrow() != nil {
		return p, false
	}
	f = field{name: "address", from: f.end, key: l.at - begin, keyEnd: l.at - begin, value: l.at - begin}
	if _, err := l.field("", false); err != nil {
		return p, false
	}
	f.end = l.at - begin
	p.fields = append(p.fields, f)
	for {
		mark := l.at
		if l.blank(); l.end() {
			p.item, p.post = l.text[begin:mark], l.text[mark:]
			return p, true
		}
		f := field{from: mark - begin}
		if !l.take(";") {
			return p, false
		}
		l.blank()
		f.key = l.at - begin
		name, err := l.field("", true)
		if err != nil {
			return p, false
		}
		f.name, f.keyEnd = name, l.at-begin
		mark = l.at
		if l.blank(); l.take("=") {
			l.blank()
			f.value = l.at - begin
			if _, err := l.field("", false); err != nil {
				return p, false
			}
		} else {
			l.at = mark
			f.value = mark - begin
		}
		f.end = l.at - begin
		p.fields = append(p.fields, f)
	}
}
