package routetable

import (
	"strings"
	"unicode/utf8"

	"github.com/gobwas/glob"
)

// Limits of a glob: pattern.
const (
	maxGlobBytes = 1 << 10
	maxGlobForms = 256
)

const (
	globPrefix  = "glob:"
	topicPrefix = "topic:"
)

// pattern is a compiled pattern: addresses that fit one of its literals or one of its forms.
type pattern struct {
	text   string
	lits   []string // whole addresses
	forms  []form
	groups int // captures of the pattern, without $0

	isPlain bool // see plain
}

// form is one wildcard shape of a pattern. Exactly one of w and g is set.
type form struct {
	prefix string // what every match begins with
	suffix string // what every match ends with
	w      *wild
	g      *globForm

	// Topics: the stars may not take "@", and the pattern's own make up the count; a topic has a slash unless it is the whole space.
	topic bool
	ats   int  // number of "@" in the literals; -1 is any
	slash bool // one is asked for, and no literal has one
}

// literal reports whether the pattern is a single whole address.
func (p *pattern) literal() bool { return len(p.forms) == 0 && len(p.lits) == 1 }

// plain reports whether the pattern is its own text as a literal address.
func (p *pattern) plain() bool { return p.isPlain }

// ValidatePattern says what is wrong with a pattern, as an add does.
func ValidatePattern(text string) error {
	_, err := compilePattern(text)
	return err
}

// QuotePattern returns the pattern that matches exactly name. There is none (ok is false) for a topic: name with a star, which Rembus
// cannot write, and for a glob: name that is not UTF-8 or too long.
func QuotePattern(name string) (pattern string, ok bool) {
	switch {
	case strings.HasPrefix(name, globPrefix):
		q := globPrefix + glob.QuoteMeta(name)
		return q, utf8.ValidString(name) && len(q) <= maxGlobBytes
	case strings.HasPrefix(name, topicPrefix):
		return name, strings.IndexByte(name, '*') < 0
	}
	if !strings.ContainsAny(name, `*%\`) {
		return name, true
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if c := name[i]; c == '*' || c == '%' || c == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(name[i])
	}
	return b.String(), b.Len() <= MaxTextBytes
}

// compilePattern reads a pattern; its prefix names the dialect.
//
//	glob:…          the syntax of gobwas/glob with "/" as separator. It has no captures but $0.
//	topic:… with *  Rembus: "*" one or more bytes without "/", "**" any run; neither takes "@". topic:* and topic:** are every topic.
//	anything else   Messenger: "*" any run, "%" any run without "/", "\" before "*", "%" or "\" takes it as it is
//
// The error is a *RefusedError.
func compilePattern(text string) (*pattern, error) {
	if len(text) > MaxTextBytes {
		return nil, &RefusedError{What: "the pattern is longer than 64 KiB", Where: "pattern"}
	}
	if strings.HasPrefix(text, globPrefix) {
		return compileGlob(text)
	}
	if isPlain(text) {
		p := &struct {
			pattern
			lit [1]string
		}{lit: [1]string{text}}
		p.text, p.lits, p.isPlain = text, p.lit[:], true
		return &p.pattern, nil
	}
	p := &wildPattern{}
	p.compileWild(&p.room, text)
	return &p.pattern, p.room.wild.check()
}

// compileChecked is compilePattern of a pattern that it compiled before: one of a row in the table.
func compileChecked(text string) (*pattern, error) {
	if !strings.HasPrefix(text, globPrefix) {
		return compilePattern(text)
	}
	if isStars(text) {
		p := &wildPattern{}
		if p.compileStars(&p.room, text) {
			return &p.pattern, nil
		}
	}
	g := &globPattern{}
	return &g.pattern, g.pattern.compileGlob(&g.room, text)
}

// wildRoom is memory for what a usual pattern of the Messenger or the topic dialect consists of.
type wildRoom struct {
	forms [1]form
	wild  wild
	lits  [5]string
	kinds [4]byte
}

// wildPattern is a pattern with its room.
type wildPattern struct {
	pattern
	room wildRoom
}

// isPlain reports whether a pattern that is no glob is its own text as a literal address.
func isPlain(text string) bool {
	if strings.HasPrefix(text, topicPrefix) {
		return strings.IndexByte(text, '*') < 0
	}
	return !strings.ContainsAny(text, `*%\`)
}

// compileWild compiles a pattern of the Messenger or the topic dialect that is not plain.
func (p *pattern) compileWild(room *wildRoom, text string) {
	w := &room.wild
	w.lits, w.kinds = room.lits[:0], room.kinds[:0]
	if strings.HasPrefix(text, topicPrefix) {
		p.compileTopic(room, text)
		return
	}
	start, escapes := 0, false
	lit := func(end int) string {
		if !escapes {
			return text[start:end]
		}
		escapes = false
		return unescape(text[start:end])
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text) && isEscaped(text[i+1]):
			escapes = true
			i++
		case c == wildAny || c == wildSeg:
			w.lits, w.kinds = append(w.lits, lit(i)), append(w.kinds, c)
			start = i + 1
		}
	}
	w.lits = append(w.lits, lit(len(text)))
	p.finish(room, text, form{ats: -1})
}

// isEscaped reports whether a backslash before the character makes it literal.
func isEscaped(c byte) bool { return c == wildAny || c == wildSeg || c == '\\' }

// unescape drops the backslashes that escape.
func unescape(text string) string {
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) && isEscaped(text[i+1]) {
			i++
		}
		b = append(b, text[i])
	}
	return string(b)
}

func (p *pattern) compileTopic(room *wildRoom, text string) {
	w := &room.wild
	if text == topicPrefix+"*" {
		w.lits, w.kinds = append(w.lits, topicPrefix, ""), append(w.kinds, wildAny)
		p.finish(room, text, form{topic: true, ats: -1})
		return
	}
	rest := text
	for {
		i := strings.IndexByte(rest, '*')
		if i < 0 {
			break
		}
		w.lits = append(w.lits, rest[:i])
		kind, size := byte(wildSeg1), 1
		if strings.HasPrefix(rest[i:], "**") {
			kind, size = wildAny, 2
		}
		w.kinds = append(w.kinds, kind)
		rest = rest[i+size:]
	}
	w.lits = append(w.lits, rest)
	p.finish(room, text, form{topic: true, ats: strings.Count(text, "@"), slash: text != topicPrefix+"**" && !strings.Contains(text, "/")})
}

// finish makes p of the room's wild, which is its one form.
func (p *pattern) finish(room *wildRoom, text string, f form) {
	w := &room.wild
	if len(w.kinds) == 0 {
		*p = pattern{text: text, lits: w.lits}
		return
	}
	w.bindFirst()
	for _, lit := range w.lits {
		w.min += len(lit)
	}
	for _, k := range w.kinds {
		if k == wildSeg1 {
			w.min++
		}
	}
	f.prefix, f.suffix, f.w = w.lits[0], w.lits[len(w.lits)-1], w
	room.forms[0] = f
	*p = pattern{text: text, forms: room.forms[:], groups: len(w.kinds)}
}

// guard returns how long the literal prefix of a pattern must be to match addr: over the whole "scheme:" of a reserved scheme, over
// the "$" of names that begin with one. So a "*" does not swallow the product's own names.
func guard(addr string) int {
	if addr != "" && addr[0] == '$' {
		return 1
	}
	if scheme, ok := ReservedScheme(addr); ok {
		return len(scheme) + 1
	}
	return 0
}

// fits reports whether addr fits the form but for its guard.
func (f *form) fits(addr string) bool {
	if f.w == nil {
		return strings.HasPrefix(addr, f.prefix) && strings.HasSuffix(addr, f.suffix) && f.g.match(addr)
	}
	if !f.w.match(addr, nil) {
		return false
	}
	return !f.topic || (f.ats < 0 || strings.Count(addr, "@") == f.ats) && (!f.slash || strings.IndexByte(addr, '/') >= 0)
}

// match reports whether addr fits the pattern.
func (p *pattern) match(addr string) bool {
	for _, lit := range p.lits {
		if lit == addr {
			return true
		}
	}
	if len(addr) > MaxTextBytes {
		return false
	}
	for i := range p.forms {
		if f := &p.forms[i]; f.fits(addr) && (len(f.prefix) > longestReserved || len(f.prefix) >= guard(addr)) {
			return true
		}
	}
	return false
}

// mayFit reports whether a record may fit addr.
func mayFit(rec record, addr string) bool {
	if rec.flags()&recWild == 0 {
		return rec.pattern() == addr
	}
	return holdsLiterals(rec.pattern(), addr)
}

// holdsLiterals reports whether addr holds the literals of a pattern's text in their order, which every address that fits does. It looks at the
// text alone: that is far cheaper than to compile it. What is in brackets, in braces or behind a backslash is not looked at.
func holdsLiterals(text, addr string) bool {
	isGlob := strings.HasPrefix(text, globPrefix)
	if isGlob {
		text = text[len(globPrefix):]
	}
	start, at, depth := 0, 0, 0
	first := true
	run := func(lit string) bool {
		if first {
			first = false
			at = len(lit)
			return strings.HasPrefix(addr, lit)
		}
		i := strings.Index(addr[at:], lit)
		at += i + len(lit)
		return i >= 0
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		if depth > 0 {
			switch c {
			case '\\':
				i++
			case '{':
				depth++
			case '}':
				depth--
			}
			start = i + 1
			continue
		}
		if c != '*' && c != '\\' && (isGlob && c != '?' && c != '[' && c != '{' || !isGlob && c != '%') {
			continue
		}
		if !run(text[start:i]) {
			return false
		}
		switch c {
		case '\\':
			i++
		case '{':
			depth = 1
		case '[':
			for i++; i < len(text) && text[i] != ']'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		}
		start = i + 1
	}
	lit := text[min(start, len(text)):]
	if first {
		return addr == lit
	}
	return len(addr)-at >= len(lit) && strings.HasSuffix(addr, lit)
}

// capture appends the ends of the captures of addr to dst, two a group: group n took addr[dst[2n-2]:dst[2n-1]]. addr fits p.
func (p *pattern) capture(dst []int, addr string) []int {
	if p.groups == 0 {
		return dst
	}
	w := p.forms[0].w
	var room [17]int
	pos := room[:]
	if len(w.lits) > len(pos) {
		pos = make([]int, len(w.lits))
	}
	if !w.match(addr, pos) {
		return dst
	}
	for i := range w.kinds {
		dst = append(dst, pos[i]+len(w.lits[i]), pos[i+1])
	}
	return dst
}

// LiteralOf is the way back from QuotePattern, in the Messenger dialect: the one name that a pattern without wildcards fits; ok is false for others.
func LiteralOf(pattern string) (name string, ok bool) {
	if !strings.ContainsAny(pattern, `*%\`) {
		return pattern, true
	}
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '*' || c == '%':
			return "", false
		case c == '\\' && i+1 < len(pattern) && strings.IndexByte(`*%\`, pattern[i+1]) >= 0:
			i++
		}
		b.WriteByte(pattern[i])
	}
	return b.String(), true
}
