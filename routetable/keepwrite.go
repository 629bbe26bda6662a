package routetable

import (
	"slices"
	"strings"
)

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
