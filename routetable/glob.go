package routetable

import (
	"errors"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gobwas/glob"
	"github.com/gobwas/glob/syntax"
)

// globToken is one token of a brace-free glob.
type globToken struct {
	kind syntax.TokenType // Text, Any, Super, Single or RangeOpen (a whole class)
	src  string
	lit  string // of Text
	class
}

// class is a character class: a range, or a list.
type class struct {
	not    bool
	lo, hi rune
	list   string
}

func (c *class) has(r rune) bool {
	in := r >= c.lo && r <= c.hi
	if c.list != "" {
		in = strings.ContainsRune(c.list, r)
	}
	return in != c.not
}

// compileGlob reads the syntax of gobwas/glob, by that package's own lexer and its own refusals, and expands the braces. The forms are
// matched here: gobwas/glob is wrong for some patterns of stars around alternatives, and exponential where several "*" precede a class
// or a "?". Stars that meet are joined: two "*" are one, and "**" swallows its neighbours.
func compileGlob(text string) (*pattern, error) {
	if err := refuseGlob(text); err != nil {
		return nil, err
	}
	return compileChecked(text)
}

// globRoom is memory for what a usual glob: pattern consists of.
type globRoom struct {
	forms  [1]form
	glob   globForm
	tokens [7]globToken
}

// globPattern is a pattern with its room.
type globPattern struct {
	pattern
	room globRoom
}

// refuseGlob is what gobwas/glob and the limits have against a pattern.
func refuseGlob(text string) error {
	if len(text) > maxGlobBytes {
		return &RefusedError{What: "a glob: pattern is longer than 1 KiB", Where: "pattern"}
	}
	if _, err := glob.Compile(text[len(globPrefix):], '/'); err != nil {
		var se *glob.SyntaxError
		if errors.As(err, &se) {
			return &RefusedError{What: se.Reason, Where: "pattern, column " + strconv.Itoa(len(globPrefix)+se.Offset+1)}
		}
		return &RefusedError{What: err.Error(), Where: "pattern"}
	}
	return nil
}

// isStars reports whether a glob: pattern has no special characters but stars, which is what wild matches.
func isStars(text string) bool { return !strings.ContainsAny(text, `?[]{}\`) }

// compileStars compiles a glob: pattern that isStars. It reports false for one that is too much for wild.
func (p *pattern) compileStars(room *wildRoom, text string) bool {
	w := &room.wild
	w.lits, w.kinds = room.lits[:0], room.kinds[:0]
	for rest := text[len(globPrefix):]; ; {
		i := strings.IndexByte(rest, '*')
		if i < 0 {
			w.lits = append(w.lits, rest)
			break
		}
		kind, n := byte(wildSeg), 1
		for i+n < len(rest) && rest[i+n] == '*' {
			kind = wildAny
			n++
		}
		w.lits, w.kinds = append(w.lits, rest[:i]), append(w.kinds, kind)
		rest = rest[i+n:]
	}
	p.finish(room, text, form{ats: -1})
	p.groups = 0
	return w.check() == nil
}

// compileGlob compiles a glob that gobwas/glob and the limits have nothing against.
func (p *pattern) compileGlob(room *globRoom, text string) error {
	*p = pattern{text: text}
	body := text[len(globPrefix):]
	if !strings.ContainsAny(body, `[]{}\`) {
		p.addGlob(&room.glob, scanGlob(room.tokens[:0], body), room.forms[:0])
		return nil
	}
	forms, err := expandBraces(body)
	if err != nil {
		return err
	}
	var seen map[string]bool
	for _, tokens := range forms {
		g := &globForm{}
		tokens = joinTokens(tokens)
		if len(forms) > 1 {
			var src strings.Builder
			for _, t := range tokens {
				src.WriteString(t.src)
			}
			if seen[src.String()] {
				continue
			}
			if seen == nil {
				seen = map[string]bool{}
			}
			seen[src.String()] = true
		}
		p.addGlob(g, tokens, p.forms)
	}
	return nil
}

// addGlob adds a brace-free glob to the forms so far, or to the literals where it is one.
func (p *pattern) addGlob(g *globForm, tokens []globToken, forms []form) {
	g.tokens = tokens
	g.finish()
	first, last := "", ""
	if n := len(tokens); n > 0 {
		first, last = tokens[0].lit, tokens[n-1].lit
	}
	if n := len(tokens); n == 0 || n == 1 && tokens[0].kind == syntax.Text {
		p.lits = append(p.lits, first)
		return
	}
	p.forms = append(forms, form{prefix: first, suffix: last, g: g, ats: -1})
}

// scanGlob appends the tokens of a glob without brackets, braces and backslashes, joined: what expandBraces and joinTokens make of it.
func scanGlob(tokens []globToken, body string) []globToken {
	start := 0
	text := func(end int) {
		if end > start {
			tokens = append(tokens, globToken{kind: syntax.Text, src: body[start:end], lit: body[start:end]})
		}
	}
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '?':
			text(i)
			tokens = append(tokens, globToken{kind: syntax.Single, src: "?"})
		case '*':
			text(i)
			n := 1
			for i+n < len(body) && body[i+n] == '*' {
				n++
			}
			if n == 1 {
				tokens = append(tokens, globToken{kind: syntax.Any, src: "*"})
			} else {
				tokens = append(tokens, globToken{kind: syntax.Super, src: "**"})
			}
			i += n - 1
		default:
			continue
		}
		start = i + 1
	}
	text(len(body))
	return tokens
}

// expandBraces returns the brace-free forms of a glob, at most maxGlobForms of them.
func expandBraces(body string) ([][]globToken, error) {
	type frame struct{ before, done [][]globToken }
	var stack []frame
	current := [][]globToken{nil}
	lex := syntax.NewLexer(body)
	for {
		start := lex.Offset()
		t := lex.Next()
		token := globToken{kind: t.Type}
		switch t.Type {
		case syntax.EOF:
			return current, nil
		case syntax.Error:
			return nil, &RefusedError{What: t.Data, Where: "pattern"}
		case syntax.TermsOpen:
			stack = append(stack, frame{before: current})
			current = [][]globToken{nil}
			continue
		case syntax.TermSeparator, syntax.TermsClose:
			if len(stack) == 0 {
				return nil, &RefusedError{What: "a brace is not open", Where: "pattern"}
			}
			top := &stack[len(stack)-1]
			top.done = append(top.done, current...)
			if len(top.done)*len(top.before) > maxGlobForms {
				return nil, &RefusedError{What: "the braces of the pattern have more than 256 forms", Where: "pattern", Hint: "write several rows"}
			}
			current = [][]globToken{nil}
			if t.Type == syntax.TermsClose {
				current = product(top.before, top.done)
				stack = stack[:len(stack)-1]
			}
			continue
		case syntax.RangeOpen:
			token.class = readClass(lex)
		case syntax.Text:
			token.lit = t.Data
		}
		token.src = body[start:lex.Offset()]
		for i := range current {
			current[i] = append(current[i], token)
		}
	}
}

// readClass reads a class after its "[". That it is well formed is known.
func readClass(lex *syntax.Lexer) class {
	c := class{lo: 1}
	for {
		switch t := lex.Next(); t.Type {
		case syntax.Not:
			c.not = true
		case syntax.RangeLo:
			c.lo, _ = utf8.DecodeRuneInString(t.Data)
		case syntax.RangeHi:
			c.hi, _ = utf8.DecodeRuneInString(t.Data)
		case syntax.Text:
			c.list = t.Data
		case syntax.RangeClose, syntax.Error, syntax.EOF:
			return c
		}
	}
}

func product(left, right [][]globToken) [][]globToken {
	out := make([][]globToken, 0, len(left)*len(right))
	for _, l := range left {
		for _, r := range right {
			out = append(out, slices.Concat(l, r))
		}
	}
	return out
}

// joinTokens joins stars that meet, and texts that meet.
func joinTokens(tokens []globToken) []globToken {
	out := make([]globToken, 0, len(tokens))
	isStar := func(t *globToken) bool { return t.kind == syntax.Any || t.kind == syntax.Super }
	for i := range tokens {
		t := tokens[i]
		n := len(out)
		switch {
		case n > 0 && isStar(&t) && isStar(&out[n-1]):
			if t.kind == syntax.Super {
				out[n-1] = t
			}
		case n > 0 && t.kind == syntax.Text && out[n-1].kind == syntax.Text:
			out[n-1].lit += t.lit
			out[n-1].src += t.src
		default:
			out = append(out, t)
		}
	}
	return out
}

// globForm is a brace-free glob.
type globForm struct {
	tokens []globToken
	slashy bool       // a class takes "/" as well as others
	elems  []globElem // of a slashy form
}

// globElem is a token, or one character of a text.
type globElem struct {
	token *globToken
	r     rune
}

// finish chooses the matcher.
func (g *globForm) finish() {
	for i := range g.tokens {
		if t := &g.tokens[i]; t.kind == syntax.RangeOpen && t.has('/') {
			g.slashy = true
		}
	}
	if !g.slashy {
		return
	}
	for i := range g.tokens {
		t := &g.tokens[i]
		if t.kind != syntax.Text {
			g.elems = append(g.elems, globElem{t, 0})
		}
		for _, r := range t.lit {
			g.elems = append(g.elems, globElem{t, r})
		}
	}
}

// match reports whether s fits.
func (g *globForm) match(s string) bool {
	if g.slashy {
		return g.matchAll(s)
	}
	return g.matchStars(s)
}

// matchAll follows every way to match at once: where a class may take a "/" or not, any star may have to take more.
func (g *globForm) matchAll(s string) bool {
	var room [2][maxGlobBytes/64 + 1]uint64 // bit i: what is before element i has matched
	now, next := room[0][:], room[1][:]
	enter := func(set []uint64, i int) {
		set[i/64] |= 1 << (i % 64)
		if i < len(g.elems) && (g.elems[i].token.kind == syntax.Any || g.elems[i].token.kind == syntax.Super) {
			i++ // stars do not meet
			set[i/64] |= 1 << (i % 64)
		}
	}
	enter(now, 0)
	for s != "" {
		r, n := utf8.DecodeRuneInString(s)
		invalid := r == utf8.RuneError && n == 1
		s = s[n:]
		clear(next)
		alive := false
		for w, word := range now {
			for ; word != 0; word &= word - 1 {
				i := w*64 + bits.TrailingZeros64(word)
				if i == len(g.elems) {
					continue
				}
				switch t := g.elems[i].token; {
				case t.kind == syntax.Super || t.kind == syntax.Any && r != '/':
					enter(next, i)
				case t.kind == syntax.Text && r == g.elems[i].r && !invalid, t.kind == syntax.Single && r != '/', t.kind == syntax.RangeOpen && t.has(r):
					enter(next, i+1)
				default:
					continue
				}
				alive = true
			}
		}
		if !alive {
			return false
		}
		now, next = next, now
	}
	return now[len(g.elems)/64]&(1<<(len(g.elems)%64)) != 0
}

// matchStars matches a form whose classes do not take "/". Each star first takes nothing and then more, a character at a time. Only
// the last "*" may have to take more, and where it comes to a "/", the last "**"; that one then moves on so far that the first "*"
// behind it begins after that "/", since from anywhere before it the "*" reaches no more than it did.
func (g *globForm) matchStars(s string) bool {
	const none = -1
	ti, si := 0, 0
	seg, segAt := none, 0     // the last "*" since the last "**": its token, and where it ends now
	super, superAt := none, 0 // the last "**"
	chain, chainAt := none, 0 // the first "*" behind the last "**", and where it began
	beyond := none            // chain must begin behind this "/"
	for {
		fits := false
		switch {
		case ti == len(g.tokens):
			if si == len(s) {
				return true
			}
		case g.tokens[ti].kind == syntax.Super:
			super, superAt, seg, chain, beyond = ti, si, none, none, none
			ti++
			continue
		case g.tokens[ti].kind == syntax.Any:
			if chain == none && super != none {
				chain = ti
			}
			if ti != chain || si > beyond {
				if ti == chain {
					chainAt = si
				}
				seg, segAt = ti, si
				ti++
				continue
			}
		default:
			var n int
			if n, fits = g.tokens[ti].matchOne(s[si:]); fits {
				ti++
				si += n
				continue
			}
		}
		if seg != none && segAt < len(s) && s[segAt] != '/' {
			_, n := utf8.DecodeRuneInString(s[segAt:])
			segAt += n
			if next := g.textAfter(seg); next != "" {
				// No place before the text is one to go on from.
				slash, at := strings.IndexByte(s[segAt:], '/'), strings.Index(s[segAt:], next)
				switch {
				case at >= 0 && (slash < 0 || at <= slash):
					segAt += at
				case slash >= 0:
					segAt += slash
				default:
					segAt = len(s)
				}
			}
			ti, si = seg+1, segAt
			continue
		}
		if super == none || superAt >= len(s) {
			return false
		}
		if seg != none {
			slash := strings.IndexByte(s[chainAt:], '/')
			if slash < 0 {
				return false
			}
			beyond = chainAt + slash
		}
		_, n := utf8.DecodeRuneInString(s[superAt:])
		superAt += n
		if next := g.textAfter(super); next != "" {
			at := strings.Index(s[superAt:], next)
			if at < 0 {
				return false
			}
			superAt += at
		}
		ti, si, seg = super+1, superAt, none
	}
}

// textAfter is the text of the token behind token i, or nothing.
func (g *globForm) textAfter(i int) string {
	if i+1 < len(g.tokens) {
		return g.tokens[i+1].lit
	}
	return ""
}

// matchOne matches a token that is no star at the start of s, and returns how much it took.
func (t *globToken) matchOne(s string) (n int, ok bool) {
	if t.kind == syntax.Text {
		return len(t.lit), strings.HasPrefix(s, t.lit)
	}
	if s == "" {
		return 0, false
	}
	r, n := utf8.DecodeRuneInString(s)
	return n, t.kind == syntax.Single && r != '/' || t.kind == syntax.RangeOpen && t.has(r)
}
