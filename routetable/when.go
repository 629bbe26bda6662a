package routetable

import (
	"strconv"
	"strings"
)

// Limits of a when predicate.
const (
	maxWhenBytes = 16 << 10
	maxWhenDepth = 64
)

// When is a compiled predicate over the properties of a message.
//
// What an evaluation looks at lies together: of many predicates each is not in the processor's cache, and every pointer on the way is waited for.
type When struct {
	code     []whenOp
	captures bool // a test captures something
	isPlain  bool // the steps are tests that all have to hold
	first    [1]whenOp

	text string
	root *whenNode
}

// whenOp is one step: a test with where to go on. Steps only go forward, so evaluation ends.
type whenOp struct {
	yes int32 // the next step if the test holds; whenTrue and whenFalse end
	no  int32
	whenTest
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
//	call   = NAME "(" [ STRING { "," STRING } [ "," ] ] ")"
//	STRING = `raw` | "Go-quoted"
//
// Blanks and Go comments may stand between words. These are the names, which are case-sensitive:
//
//	All()            always
//	Property(k, v)   the message has the property k and its text is v; a value that is wholly {regex} holds where the whole text
//	                 matches the regular expression (Go syntax), and {} where the property is there at all
//	Type(t)          the property type is t, or ends with t in any case
//	Method(m, ...)   the property method is one of them in any case; none given: never
//	Header(k, v)     the property header:K, where K is k as HTTP writes it, has among its values (JoinValues) one that v holds for, as in Property
//	Query(k, v)      the same of the property query:k
//	Host(p)          the property host fits p, taken apart at "."
//	Path(p)          the property path fits p, taken apart at "/"
//	PathPrefix(p)    the first parts of the path fit p
//
// The patterns of the last three are those of parsePlaces. The error is a *RefusedError.
func CompileWhen(text string) (*When, error) {
	if len(text) > maxWhenBytes {
		return nil, &RefusedError{What: "the predicate is longer than 16 KiB", Where: "when"}
	}
	p := &whenParser{text: text}
	w := &When{text: text}
	w.code = w.first[:0]
	tree := p.or(0)
	if p.err == nil && p.blank() < len(text) {
		p.fail("expected && or || or the end")
	}
	if p.err != nil {
		return nil, p.err
	}
	tree.emit(w, whenTrue, whenFalse)
	w.reverse()
	w.root, w.captures, w.isPlain = tree, p.captures, tree.isPlain()
	return w, nil
}

// Match evaluates the predicate. property returns the text of a property by name.
func (w *When) Match(property func(string) (string, bool)) bool {
	at := int32(0)
	for at >= 0 {
		op := &w.code[at]
		if op.holds(property) {
			at = op.yes
		} else {
			at = op.no
		}
	}
	return at == whenTrue
}

// whenNode is a node of the parsed predicate.
type whenNode struct {
	kind  byte // '&', '|', '!' or 'p'
	group bool // it stood in parentheses
	kids  []*whenNode
	test  whenTest
}

// emit appends the steps of n, last first, and returns the index of its first step. Indices count from the end until reverse.
func (n *whenNode) emit(w *When, yes, no int32) int32 {
	switch n.kind {
	case 'p':
		w.code = append(w.code, whenOp{yes, no, n.test})
		return int32(len(w.code) - 1)
	case '!':
		return n.kids[0].emit(w, no, yes)
	}
	next := int32(0)
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
	flip := func(i int32) int32 {
		if i < 0 {
			return i
		}
		return int32(n) - 1 - i
	}
	for i := range w.code {
		w.code[i].yes, w.code[i].no = flip(w.code[i].yes), flip(w.code[i].no)
	}
	for i := 0; i < n/2; i++ {
		w.code[i], w.code[n-1-i] = w.code[n-1-i], w.code[i]
	}
}

type whenParser struct {
	text     string
	at       int
	err      error
	captures bool // a test captures something
}

func (p *whenParser) fail(what string) {
	if p.err == nil {
		p.err = &RefusedError{What: what, Where: "when, column " + strconv.Itoa(p.at+1)}
	}
}

// blank skips blanks and comments, and returns the offset.
func (p *whenParser) blank() int {
	for p.at < len(p.text) {
		rest, size := p.text[p.at:], 1
		switch {
		case strings.IndexByte(" \t\r\n", rest[0]) >= 0:
		case strings.HasPrefix(rest, "//"):
			if size = strings.IndexByte(rest, '\n'); size < 0 {
				size = len(rest)
			}
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest[2:], "*/")
			if end < 0 {
				return p.at
			}
			size = end + 4
		default:
			return p.at
		}
		p.at += size
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
		if n.kind != kind || len(n.kids) == 0 || n.group {
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
		return &whenNode{kind: '&', kids: []*whenNode{n}, group: true}
	}
	return p.call()
}

func (p *whenParser) call() *whenNode {
	start := p.blank()
	for p.at < len(p.text) && (p.text[p.at] == '_' || p.text[p.at]|0x20 >= 'a' && p.text[p.at]|0x20 <= 'z') {
		p.at++
	}
	name := p.text[start:p.at]
	kind, known := whenTests[name]
	if !known {
		p.at = start
		if name == "" {
			p.fail("expected a predicate such as Property(key, value), ! or (")
		} else {
			p.fail("unknown predicate " + strconv.Quote(name) + ", expected one of " + whenTestNames)
		}
		return &whenNode{}
	}
	args, places := p.arguments()
	n := &whenNode{kind: 'p'}
	if p.err != nil {
		return n
	}
	if want := kind.arguments; want >= 0 && len(args) != want {
		p.at = start
		p.fail(name + " takes " + strconv.Itoa(want) + " arguments, not " + strconv.Itoa(len(args)))
		return n
	}
	end := p.at
	at, err := kind.make(&n.test, args)
	if err != nil {
		p.at = start
		if at >= 0 {
			p.at = places[at]
		}
		p.fail(err.Error())
		return n
	}
	p.at = end
	p.captures = p.captures || n.test.captures()
	return n
}

// arguments reads the strings in parentheses, and says where each is.
func (p *whenParser) arguments() (args []string, places []int) {
	if !p.take("(") {
		p.fail("expected (")
	}
	for p.err == nil && !p.take(")") {
		if len(args) > 0 && !p.take(",") {
			p.fail("expected , or )")
			break
		}
		if len(args) > 0 && p.take(")") { // after the last comma, as in Go
			break
		}
		places = append(places, p.blank())
		args = append(args, p.str())
	}
	return args, places
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
