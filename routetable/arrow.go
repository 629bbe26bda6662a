package routetable

import (
	"bufio"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The arrow form:
//
//	file    = { line }
//	line    = [ row | match | expect ] [ comment ]
//	match   = "match:" ( "all" | "first" )                    before the first row
//	row     = field "-->" field { ";" column }
//	expect  = "expect:" field "-->" { field } { ";" column }  the columns are target and, as often as needed, property="k=v"
//	column  = key [ "=" field ]
//	field   = Go quoted string | text without blanks, ";", quotes and "-->"
//	comment = "#" at the start of a line or after a blank

const arrow = "-->"

// arrowField is a field as the arrow form writes it.
func arrowField(s string) string {
	if needsQuotes(s) {
		return strconv.Quote(s)
	}
	return s
}

// arrowPattern is the first field of a line. One that would read as YAML or as a line of another kind is quoted.
func arrowPattern(s string) string {
	for _, word := range [...]string{"match:", "routes:", "expect:", "%YAML", "-", "[", "{", "&", "!"} {
		if strings.HasPrefix(s, word) {
			return strconv.Quote(s)
		}
	}
	return arrowField(s)
}

func needsQuotes(s string) bool {
	if s == "" || strings.Contains(s, arrow) {
		return true
	}
	ascii := true
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c <= ' ', c == ';', c == '#', c == '"', c == '\'', c == '`', c == '\\', c == 0x7f:
			return true
		case c > 0x7f:
			ascii = false
		}
	}
	if ascii {
		return false
	}
	if !utf8.ValidString(s) {
		return true
	}
	return strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) || c == 0xfeff })
}

// arrowLine reads one line.
type arrowLine struct {
	text string
	line int
	at   int
}

func (l *arrowLine) place() place {
	return place{l.line, utf8.RuneCountInString(l.text[:l.at]) + 1}
}

// blank skips blanks and a comment, and returns the comment.
func (l *arrowLine) blank() (comment string) {
	for l.at < len(l.text) && (l.text[l.at] == ' ' || l.text[l.at] == '\t') {
		l.at++
	}
	if l.at < len(l.text) && l.text[l.at] == '#' && (l.at == 0 || l.text[l.at-1] == ' ' || l.text[l.at-1] == '\t') {
		comment = clean(l.text[l.at:])
		l.at = len(l.text)
	}
	return comment
}

func (l *arrowLine) end() bool { return l.at >= len(l.text) }

func (l *arrowLine) take(token string) bool {
	if !strings.HasPrefix(l.text[l.at:], token) {
		return false
	}
	l.at += len(token)
	return true
}

// field reads a field; equals is whether "=" ends it.
func (l *arrowLine) field(what string, equals bool) (string, error) {
	rest := l.text[l.at:]
	if rest != "" && strings.IndexByte("\"`", rest[0]) >= 0 {
		quoted, err := strconv.QuotedPrefix(rest)
		if err == nil {
			var s string
			if s, err = strconv.Unquote(quoted); err == nil {
				l.at += len(quoted)
				return s, nil
			}
		}
		return "", l.place().errorf("%s: the quoted string is not closed, or not one of Go", what)
	}
	n := 0
	for n < len(rest) {
		c := rest[n]
		if c == ' ' || c == '\t' || c == ';' || equals && c == '=' || c == '-' && strings.HasPrefix(rest[n:], arrow) {
			break
		}
		if c == '"' || c == '\'' || c == '`' {
			l.at += n
			return "", l.place().errorf("%s: a quote inside: write the whole field as a quoted string", what)
		}
		n++
	}
	if n == 0 {
		return "", l.place().errorf("%s is missing", what)
	}
	l.at += n
	return rest[:n], nil
}

func (f *File) parseArrow(text string) error {
	f.Routes = make([]Route, 0, min(strings.Count(text, "\n")+1, 1<<20))
	if f.later == nil {
		f.compiled = make([]*compiled, 0, cap(f.Routes))
	}
	var pending []string
	begun := false
	for number := 1; text != ""; number++ {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		l := &arrowLine{text: strings.TrimSuffix(line, "\r"), line: number}
		if comment := l.blank(); l.end() {
			pending = append(pending, comment)
			continue
		}
		switch rest := l.text[l.at:]; {
		case isMatchLine(rest):
			if begun {
				return l.place().errorf("match stands before the rows")
			}
			if f.HasMatch {
				return l.place().errorf("match is there twice")
			}
			l.at += len("match:")
			l.blank()
			word, err := l.field("match", false)
			if err != nil {
				return err
			}
			f.Match, err = ParseMatchMode(word)
			if err != nil {
				return l.place().errorf("%s", err)
			}
			f.HasMatch = true
			if l.blank(); !l.end() {
				return l.place().errorf("match stands alone on its line")
			}
			f.comments.head, pending = append(f.comments.head, pending...), nil
			continue
		case strings.HasPrefix(rest, "expect: ") || strings.HasPrefix(rest, "expect:\t"):
			if err := f.arrowExpect(l); err != nil {
				return err
			}
			if len(f.Expect) == 1 {
				f.comments.expect, pending = pending, nil
			}
			// Comments among the expect lines come behind them.
			continue
		}
		if !begun {
			// What stands before a blank line is about the file.
			if i := lastBlank(pending); i >= 0 {
				f.comments.head, pending = append(f.comments.head, pending[:i+1]...), pending[i+1:]
			}
		}
		begun = true
		comment, err := f.arrowRow(l)
		if err != nil {
			return err
		}
		f.keepComments(pending, comment)
		pending = nil
	}
	f.comments.tail = pending
	return nil
}

func lastBlank(lines []string) int {
	for i := len(lines) - 1; i >= 0; i-- {
		if lines[i] == "" {
			return i
		}
	}
	return -1
}

// keepComments gives the last row its comments.
func (f *File) keepComments(before []string, after string) {
	if len(before) == 0 && after == "" {
		return
	}
	k := keyOf(&f.Routes[len(f.Routes)-1])
	if len(before) > 0 {
		f.comments.before[k] = append(f.comments.before[k], before...)
	}
	if after != "" && !strings.HasPrefix(after, fromPrefix) {
		f.comments.after[k] = after
	}
}

// arrowRow reads a row.
func (f *File) arrowRow(l *arrowLine) (comment string, err error) {
	begin := l.place()
	pattern, err := l.field("the pattern", false)
	if err != nil {
		return "", err
	}
	if err := l.arrow(); err != nil {
		return "", err
	}
	at := l.at
	address, err := l.field("the address", false)
	if err != nil {
		return "", err
	}
	if comment = l.blank(); l.end() && f.later != nil { // nothing that needs more care
		f.Routes = append(f.Routes, Route{Pattern: pattern, Address: address, Retry: -1, line: begin.line, column: begin.column})
		f.compileMore(laterRows)
		return comment, nil
	}
	r := &fileRow{op: Op{Route: NewRoute(pattern, address)}, pattern: begin, hasPattern: true, hasAddress: true}
	r.address = (&arrowLine{l.text, l.line, at}).place()
	if !l.end() {
		comment, err = l.columns(r.column)
	}
	if err != nil {
		return "", err
	}
	return comment, f.addRow(r, begin)
}

func (l *arrowLine) arrow() error {
	if l.blank(); !l.take(arrow) {
		return l.place().errorf("expected -->")
	}
	l.blank()
	return nil
}

// columns reads { ";" key [ "=" value ] } to the end of the line.
func (l *arrowLine) columns(set func(name, value string, at place) error) (comment string, err error) {
	for {
		if comment = l.blank(); l.end() {
			return comment, nil
		}
		if !l.take(";") {
			return "", l.place().errorf("expected ; and a column, or the end of the line")
		}
		l.blank()
		at := l.place()
		name, err := l.field("a column", true)
		if err != nil {
			return "", err
		}
		value := ""
		mark := l.at
		if comment := l.blank(); comment != "" {
			l.at = mark
		}
		if l.take("=") {
			l.blank()
			if value, err = l.field(name, false); err != nil {
				return "", err
			}
		} else if c := findColumn(name); c != nil && c.set&(ColFallback|ColOptional|ColDynamicHost) == 0 {
			return "", at.errorf("%s has no value", name)
		}
		if err := set(name, value, at); err != nil {
			return "", err
		}
	}
}

// arrowExpect reads an expect line.
func (f *File) arrowExpect(l *arrowLine) (err error) {
	e := Expect{Line: l.line}
	l.take("expect:")
	l.blank()
	if e.Address, err = l.field("the address", false); err != nil {
		return err
	}
	if err := l.arrow(); err != nil {
		return err
	}
	for !l.end() && l.text[l.at] != ';' {
		hop, err := l.field("a hop", false)
		if err != nil {
			return err
		}
		e.Hops = append(e.Hops, hop)
		l.blank()
	}
	_, err = l.columns(func(name, value string, at place) error {
		switch name {
		case "target":
			e.Target = value
			return nil
		case "property":
			k, v, ok := strings.Cut(value, "=")
			if !ok {
				return at.errorf("property is written property=\"key=value\"")
			}
			if e.Properties == nil {
				e.Properties = map[string]string{}
			}
			e.Properties[k] = v
			return nil
		}
		return at.errorf("unknown column %q of an expect line, the columns are target and property", name)
	})
	f.Expect = append(f.Expect, e)
	return err
}

// WriteRows writes what a load takes of f, in the arrow form: the match mode, where f says one, and each row on a line of its own. Comments and
// expectations are not written, so the line of a row tells which it is (see [File.RowAt]).
func (f *File) WriteRows(w io.Writer) error {
	b := bufio.NewWriter(w)
	if f.HasMatch {
		b.WriteString("match: " + f.Match.String() + "\n")
	}
	for i := range f.Routes {
		b.WriteString(arrowText(&f.Routes[i], 0) + "\n")
	}
	return b.Flush()
}

// RowAt gives the place in f's own text, from 1, of the row that WriteRows writes on that line. There is none where ok is false.
func (f *File) RowAt(line int) (at, column int, ok bool) {
	i := line - 1
	if f.HasMatch {
		i--
	}
	if i < 0 || i >= len(f.Routes) || f.Routes[i].line == 0 {
		return 0, 0, false
	}
	return f.Routes[i].line, f.Routes[i].column, true
}

// WriteArrow writes the arrow form.
func (f *File) WriteArrow(w io.Writer) error {
	if text, ok := f.edited(false); ok {
		_, err := io.WriteString(w, text)
		return err
	}
	b := bufio.NewWriter(w)
	lines := func(lines []string) {
		for _, line := range lines {
			b.WriteString(line + "\n")
		}
	}
	lines(f.comments.head)
	if f.HasMatch {
		b.WriteString("match: " + f.Match.String() + "\n")
	}
	lines(f.comments.routes)
	width := 0
	for i := range f.Routes {
		if n := utf8.RuneCountInString(arrowPattern(f.Routes[i].Pattern)); n <= 32 {
			width = max(width, n)
		}
	}
	for i := range f.Routes {
		r := &f.Routes[i]
		lines(f.comments.before[keyOf(r)])
		b.WriteString(arrowText(r, width))
		if c := f.trailing(r); c != "" {
			b.WriteString("  " + c)
		}
		b.WriteByte('\n')
	}
	for i := range f.live {
		b.WriteString("# " + arrowText(&f.live[i], width) + "  " + f.trailing(&f.live[i]) + "\n")
	}
	lines(f.comments.expect)
	for i := range f.Expect {
		b.WriteString(arrowExpectText(&f.Expect[i]) + "\n")
	}
	lines(f.comments.tail)
	return b.Flush()
}

// arrowText is a row as a line.
func arrowText(r *Route, width int) string {
	pattern := arrowPattern(r.Pattern)
	if n := width - utf8.RuneCountInString(pattern); n > 0 {
		pattern += strings.Repeat(" ", n)
	}
	line := pattern + " " + arrow + " " + arrowField(r.Address)
	for _, kv := range FormatColumns(r) {
		line += " ; " + kv.Key
		if c := findColumn(kv.Key); c.set&(ColFallback|ColOptional|ColDynamicHost) == 0 {
			line += "=" + arrowField(kv.Value)
		}
	}
	return line
}

func arrowExpectText(e *Expect) string {
	line := "expect: " + arrowField(e.Address) + " " + arrow
	for _, hop := range e.Hops {
		line += " " + arrowField(hop)
	}
	if e.Target != "" {
		line += " ; target=" + arrowField(e.Target)
	}
	for _, k := range sortedKeys(e.Properties) {
		line += " ; property=" + strconv.Quote(k+"="+e.Properties[k])
	}
	return line
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
