package routetable

// Capture is what a placeholder of a predicate took.
type Capture struct{ Name, Value string }

// Predicate is the row's When, compiled; nil where the row has none.
func (r *Route) Predicate() *When {
	if r.c == nil {
		return nil
	}
	return r.c.when
}

// Capture appends to dst what the placeholders took in the tests that make the predicate hold, in their order: where a name occurs twice the
// later counts. suffix is what a PathPrefix left of the path, without "/" around it; hasSuffix whether there was one. The predicate holds: Match
// said so, or the row was found with the same properties.
func (w *When) Capture(dst []Capture, property func(string) (string, bool)) (captures []Capture, suffix string, hasSuffix bool) {
	c := capturing{property: property, captures: dst}
	switch {
	case !w.captures:
	case w.isPlain:
		for i := range w.code {
			c.take(&w.code[i].whenTest)
		}
	default:
		c.node(w.root)
	}
	return c.captures, c.suffix, c.hasSuffix
}

// isPlain reports whether n is a test, or tests that all have to hold.
func (n *whenNode) isPlain() bool {
	for _, kid := range n.kids {
		if kid.kind != 'p' {
			return false
		}
	}
	return n.kind == 'p' || n.kind == '&'
}

// capturing is an evaluation that keeps captures. Its recursion is as deep as the predicate is nested: maxWhenDepth.
type capturing struct {
	property  func(string) (string, bool)
	captures  []Capture
	suffix    string
	hasSuffix bool
}

// node evaluates n. What tests below it took is kept where it holds, and is not where it does not.
func (c *capturing) node(n *whenNode) bool {
	before := *c
	switch n.kind {
	case 'p':
		return c.test(&n.test)
	case '!':
		holds := !c.node(n.kids[0])
		*c = before
		return holds
	}
	for _, kid := range n.kids {
		if c.node(kid) != (n.kind == '&') {
			if n.kind == '&' {
				*c = before
			}
			return n.kind == '|'
		}
	}
	return n.kind == '&'
}

func (c *capturing) test(t *whenTest) bool {
	if !t.holds(c.property) {
		return false
	}
	c.take(t)
	return true
}

// take keeps what a test took that holds.
func (c *capturing) take(t *whenTest) {
	if !t.captures() {
		return
	}
	text, _ := c.property(t.key)
	var suffix string
	c.captures, suffix = t.places.capture(c.captures, text)
	if t.places.prefix {
		c.suffix, c.hasSuffix = suffix, true
	}
}

// maxCover is how many patterns Cover gives at most.
const maxCover = 16

// Cover gives patterns that together fit every address for which the predicate can hold, where an address is prefix and behind it the path
// without "/" at its ends. It is what a row with this predicate has for patterns, so that the table looks at the predicate of few rows.
// Prefix is taken as it is written, without wildcards.
func (w *When) Cover(prefix string) []string {
	p, _ := QuotePattern(prefix)
	paths := w.root.cover()
	out := make([]string, len(paths))
	for i, path := range paths {
		out[i] = p + path.pattern
	}
	return out
}

// covering is a pattern of paths, and how many of its bytes are literal.
type covering struct {
	pattern string
	literal int
}

var coverAll = []covering{{"*", 0}}

// cover gives patterns of the paths that n can hold for.
func (n *whenNode) cover() []covering {
	switch n.kind {
	case 'p':
		if n.test.kind == testPlaces && n.test.places.separator == '/' {
			return n.test.places.cover()
		}
	case '&':
		best := coverAll
		for _, kid := range n.kids {
			if c := kid.cover(); least(c) > least(best) || least(c) == least(best) && len(c) < len(best) {
				best = c
			}
		}
		return best
	case '|':
		var all []covering
		for _, kid := range n.kids {
			all = append(all, kid.cover()...)
		}
		if all = distinctCovers(all); len(all) <= maxCover {
			return all
		}
	}
	return coverAll
}

func least(list []covering) int {
	n := 1 << 30
	for _, c := range list {
		n = min(n, c.literal)
	}
	return n
}

func distinctCovers(all []covering) []covering {
	seen := map[string]bool{}
	out := all[:0]
	for _, c := range all {
		if c.pattern == "*" {
			return coverAll
		}
		if !seen[c.pattern] {
			seen[c.pattern] = true
			out = append(out, c)
		}
	}
	return out
}

func (p *places) cover() []covering {
	var b []byte
	literal := 0
	for i := range p.parts {
		if i > 0 {
			b = append(b, '/')
			literal++
		}
		if one := &p.parts[i]; one.wild {
			b = append(b, '%')
		} else {
			q, _ := QuotePattern(one.lit)
			b = append(b, q...)
			literal += len(one.lit)
		}
	}
	if p.prefix {
		b = append(b, '*')
	}
	return []covering{{string(b), literal}}
}
