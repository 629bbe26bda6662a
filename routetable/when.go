package routetable

import (
	"regexp"
	"strconv"
	"strings"
)

// Limits of a when predicate.
const (
	maxWhenBytes = 16 << 10
	maxWhenDepth = 64
)

// When is a compiled predicate over the properties of a message.
type When struct {
	text string
	code []whenOp
}

// whenOp is one step: a test with where to go on. Steps only go forward, so evaluation ends.
type whenOp struct {
	key   string
	value string
	re    *regexp.Regexp
	any   bool // {}: any value
	yes   int  // the next step if the test holds; whenTrue and whenFalse end
	no    int
}

const (
	whenTrue  = -1
	whenFalse = -2
)

// CompileWhen reads a predicate:
//
//	rule   = and { "||" and }
//	and    = not { "&&" not }
//	not    = "!" not | "(" rule ")" | call
//	call   = "Property" "(" STRING "," STRING ")"
//	STRING = `raw` | "Go-quoted"
//
// Property(k, v) holds where the message has the property k and its text is v; a value that is wholly {regex} holds where the whole
// text matches the regular expression (Go syntax), and {} where the property is there at all. The error is a *RefusedError.
func CompileWhen(text string) (*When, error) {
	if len(text) > maxWhenBytes {
		return nil, &RefusedError{What: "the predicate is longer than 16 KiB", Where: "when"}
	}
	p := &whenParser{text: text}
	w := &When{text: text}
	tree := p.or(0)
	if p.err == nil && p.blank() < len(text) {
		p.fail("expected && or || or the end")
	}
	if p.err != nil {
		return nil, p.err
	}
	tree.emit(w, whenTrue, whenFalse)
	w.reverse()
	return w, nil
}

// Match evaluates the predicate. property returns the text of a property by name.
func (w *When) Match(property func(string) (string, bool)) bool {
	at := 0
	for at >= 0 {
		op := &w.code[at]
		v, ok := property(op.key)
		if ok && !op.any {
			if op.re != nil {
				ok = op.re.MatchString(v)
			} else {
				ok = v == op.value
			}
		}
		if at = op.no; ok {
			at = op.yes
		}
	}
	return at == whenTrue
}

// whenNode is a node of the parsed predicate.
type whenNode struct {
	kind byte // '&', '|', '!' or 'p'
	kids []*whenNode
	op   whenOp
}

// emit appends the steps of n, last first, and returns the index of its first step. Indices count from the end until reverse.
func (n *whenNode) emit(w *When, yes, no int) int {
	switch n.kind {
	case 'p':
		op := n.op
		op.yes, op.no = yes, no
		w.code = append(w.code, op)
		return len(w.code) - 1
	case '!':
		return n.kids[0].emit(w, no, yes)
	}
	next := 0
	for i := len(n.kids) - 1; i >= 0; i-- {
		if n.kind == '&' {
			next = n.kids[i].emit(w, yes, no)
			yes = next
		} else {
			next = n.kids[i].emit(w, yes, no)
			no = next
		}
	}
	return next
}

// reverse puts the first step first.
func (w *When) reverse() {
	n := len(w.code)
	flip := func(i int) int {
		if i < 0 {
			return i
		}
		return n - 1 - i
	}
	for i := range w.code {
		w.code[i].yes, w.code[i].no = flip(w.code[i].yes), flip(w.code[i].no)
	}
	for i := 0; i < n/2; i++ {
		w.code[i], w.code[n-1-i] = w.code[n-1-i], w.code[i]
	}
}

type whenParser struct {
	text string
	at   int
	err  error
}

func (p *whenParser) fail(what string) {
	if p.err == nil {
		p.err = &RefusedError{What: what, Where: "when, column " + strconv.Itoa(p.at+1)}
	}
}

// blank skips blanks and returns the offset.
func (p *whenParser) blank() int {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
	return p.at
}

func (p *whenParser) take(token string) bool {
	if !strings.HasPrefix(p.text[p.blank():], token) {
		return false
	}
	p.at += len(token)
	return true
}

func (p *whenParser) or(depth int) *whenNode  { return p.chain(depth, '|', "||", p.and) }
func (p *whenParser) and(depth int) *whenNode { return p.chain(depth, '&', "&&", p.not) }

func (p *whenParser) chain(depth int, kind byte, token string, one func(int) *whenNode) *whenNode {
	n := one(depth)
	for p.err == nil && p.take(token) {
		if n.kind != kind || len(n.kids) == 0 || n.op.any {
			n = &whenNode{kind: kind, kids: []*whenNode{n}}
		}
		n.kids = append(n.kids, one(depth))
	}
	return n
}

func (p *whenParser) not(depth int) *whenNode {
	if depth > maxWhenDepth {
		p.fail("the predicate is nested too deep")
		return &whenNode{}
	}
	switch {
	case p.take("!"):
		return &whenNode{kind: '!', kids: []*whenNode{p.not(depth + 1)}}
	case p.take("("):
		n := p.or(depth + 1)
		if !p.take(")") {
			p.fail("expected )")
		}
		// A group stays one operand.
		return &whenNode{kind: '&', kids: []*whenNode{n}, op: whenOp{any: true}}
	}
	return p.call()
}

func (p *whenParser) call() *whenNode {
	start := p.blank()
	for p.at < len(p.text) && (p.text[p.at] == '_' || p.text[p.at]|0x20 >= 'a' && p.text[p.at]|0x20 <= 'z') {
		p.at++
	}
	name := p.text[start:p.at]
	if name != "Property" {
		p.at = start
		if name == "" {
			p.fail("expected Property(key, value), ! or (")
		} else {
			p.fail("unknown predicate " + strconv.Quote(name) + ", expected Property")
		}
		return &whenNode{}
	}
	if !p.take("(") {
		p.fail("expected (")
	}
	n := &whenNode{kind: 'p'}
	n.op.key = p.str()
	if p.err == nil && !p.take(",") {
		p.fail("expected , and the value")
	}
	p.blank()
	at := p.at
	value := p.str()
	if p.err == nil && !p.take(")") {
		p.fail("expected )")
	}
	if p.err == nil && n.op.key == "" {
		p.at = start
		p.fail("the property has no name")
	}
	n.op.value = value
	if strings.HasPrefix(value, "{") && strings.HasSuffix(value, "}") && len(value) >= 2 {
		body := value[1 : len(value)-1]
		n.op.any = body == ""
		re, err := regexp.Compile(`\A(?:` + body + `)\z`)
		if _, alone := regexp.Compile(body); alone != nil {
			err = alone
		}
		if err != nil && p.err == nil {
			p.at = at
			p.fail(err.Error())
		}
		n.op.re = re
	}
	return n
}

// str reads a `raw` or "quoted" string.
func (p *whenParser) str() string {
	if p.err != nil {
		return ""
	}
	rest := p.text[p.blank():]
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil || quoted[0] == '\'' {
		p.fail("expected a string in \"\" or ``")
		return ""
	}
	s, err := strconv.Unquote(quoted)
	if err != nil {
		p.fail("not a string")
		return ""
	}
	p.at += len(quoted)
	return s
}
