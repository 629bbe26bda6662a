package routetable

import (
	"strconv"
	"strings"
)

// template is a row's address, taken apart once.
type template struct {
	text    string
	parts   []part
	literal bool   // it names no group
	value   string // of a literal: its expansion, "$$" made "$"; see of
	size    int    // bytes of the literal parts
	highest int    // the highest group number, 0 is the whole address
	lone    bool   // a "$" without a number or a second "$"

	// Of a template that is not literal:
	name        bool // it begins with a reserved scheme: no authority
	hostLiteral bool // its authority has host text of its own
	dynamic     bool // captures supply the whole host
	inHost      int  // parts before this one are in the scheme or the authority
	afterScheme bool // a capture follows "x:/" and could complete a "://"
}

// literalTemplate is the template of every address without a "$".
var literalTemplate = template{literal: true}

// of is the expansion of a literal whose text is address.
func (t *template) of(address string) string {
	if t == &literalTemplate {
		return address
	}
	return t.value
}

// part is literal text, or the number of a group. A group that no pattern has is -1.
type part struct {
	lit   string
	group int
}

// compileTemplate reads an address as Messenger does: "$" and digits is a group, "${N}" too, "$$" is "$", and any other "$" is the
// whole address. A number too great to be one is a group that is not there.
func compileTemplate(text string) *template {
	t := &template{text: text}
	var lit []byte
	flush := func() {
		if len(lit) > 0 {
			t.parts = append(t.parts, part{lit: string(lit)})
			t.size += len(lit)
			lit = lit[:0]
		}
	}
	literal := true
	for i := 0; i < len(text); {
		if text[i] != '$' {
			lit = append(lit, text[i])
			i++
			continue
		}
		i++
		if i < len(text) && text[i] == '$' {
			lit = append(lit, '$')
			i++
			continue
		}
		group, end := groupNumber(text, i)
		if end == i {
			t.lone = true
		}
		flush()
		literal = false
		t.parts = append(t.parts, part{group: group})
		if group < 0 {
			t.highest = maxGroup
		}
		t.highest = max(t.highest, group)
		i = end
	}
	flush()
	if t.literal = literal; literal {
		for _, p := range t.parts {
			t.value += p.lit
		}
		return t
	}
	t.inspect()
	return t
}

// maxGroup is a number over every group that a pattern can have.
const maxGroup = MaxTextBytes + 1

// groupNumber reads the digits, or {digits}, at text[i:]. With neither the group is 0, the whole address, and end is i.
func groupNumber(text string, i int) (group, end int) {
	start, brace := i, false
	if i < len(text) && text[i] == '{' {
		brace = true
		i++
	}
	digits := i
	for i < len(text) && text[i] >= '0' && text[i] <= '9' {
		if group = group*10 + int(text[i]-'0'); group >= maxGroup {
			group = maxGroup
		}
		i++
	}
	if i == digits || brace && (i >= len(text) || text[i] != '}') {
		return 0, start
	}
	if brace {
		i++
	}
	if group == maxGroup {
		group = -1
	}
	return group, i
}

// inspect finds out which captures could move the host.
func (t *template) inspect() {
	// The skeleton has a NUL for each capture, and partAt says which part a byte is of.
	var skeleton []byte
	var partAt []int
	for i, p := range t.parts {
		if p.lit == "" {
			skeleton, partAt = append(skeleton, 0), append(partAt, i)
			continue
		}
		for j := 0; j < len(p.lit); j++ {
			skeleton, partAt = append(skeleton, max(1, p.lit[j])), append(partAt, i)
		}
	}
	s := string(skeleton)
	head, _, _ := strings.Cut(s, "\x00")
	if _, ok := ReservedScheme(head); ok {
		t.name = true
		return
	}
	start := 0
	slash := strings.IndexByte(s, '/')
	if slash > 0 && s[slash-1] == ':' && strings.HasPrefix(s[slash:], "//") {
		start = slash + 2
	} else if isSchemeColon(head) && len(head) < len(s) {
		start = len(head) // amqps:$1 on //host/name
	}
	end := len(s)
	if i := strings.IndexByte(s[start:], '/'); i >= 0 {
		end = start + i
	}
	t.inHost = len(t.parts)
	if end < len(s) {
		t.inHost = partAt[end]
		t.afterScheme = end > 0 && s[end-1] == ':' && end+1 < len(s) && s[end+1] == 0
	}
	host := s[start:end]
	if i := strings.IndexByte(host, '@'); i >= 0 {
		host = host[i+1:]
	}
	if i := strings.IndexByte(host, ']'); strings.HasPrefix(host, "[") && i > 0 {
		host = host[1:i]
	} else if i := strings.LastIndexByte(host, ':'); i >= 0 {
		host = host[:i]
	}
	t.dynamic = host != "" && strings.Trim(host, "\x00") == ""
	t.hostLiteral = !t.dynamic
}

// isSchemeColon reports whether s is a scheme and its colon.
func isSchemeColon(s string) bool {
	return len(s) > 1 && s[len(s)-1] == ':' && strings.Trim(strings.ToLower(s[:len(s)-1]), "abcdefghijklmnopqrstuvwxyz0123456789+.-") == ""
}

// expand puts the captures of addr into the template. ends is as pattern.capture gives it. It is pure: what the result is worth
// is judged by judge. Past MaxTextBytes there is no result.
func (t *template) expand(addr string, ends []int) (result string, ok bool) {
	if t.literal {
		return t.value, true
	}
	size := t.size
	for _, p := range t.parts {
		if p.lit == "" {
			size += len(group(addr, ends, p.group))
			if size > MaxTextBytes {
				return "", false
			}
		}
	}
	out := make([]byte, 0, size)
	for _, p := range t.parts {
		if p.lit != "" {
			out = append(out, p.lit...)
		} else {
			out = append(out, group(addr, ends, p.group)...)
		}
	}
	return string(out), true
}

// group is the text of group n: the whole address for 0, nothing for one that is not there.
func group(addr string, ends []int, n int) string {
	switch {
	case n == 0:
		return addr
	case n < 0 || 2*n > len(ends):
		return ""
	}
	return addr[ends[2*n-2]:ends[2*n-1]]
}

// judge says whether a result is a usable hop, and else what the problem is. dynamicHost allows captures to supply the whole host.
func (t *template) judge(result string, ok bool, addr string, ends []int, dynamicHost bool) (*Hop, string) {
	if !ok {
		return nil, "the expansion is longer than 64 KiB"
	}
	if !t.literal {
		if problem := t.judgeCaptures(result, addr, ends, dynamicHost); problem != "" {
			return nil, problem
		}
	}
	p, err := parseHop(result)
	if err != nil {
		return nil, err.Error()
	}
	if p.problem != "" {
		return nil, p.problem
	}
	return &p.Hop, ""
}

func (t *template) judgeCaptures(result, addr string, ends []int, dynamicHost bool) string {
	if t.name {
		return ""
	}
	if _, ok := ReservedScheme(result); ok || result == NullAddress {
		return "captured text makes it a " + strconv.Quote(strings.SplitN(result, ":", 2)[0]) + " address"
	}
	if t.dynamic {
		if !dynamicHost {
			return "captured text supplies the whole host (set dynamic-host if that is meant)"
		}
		return ""
	}
	if t.afterScheme && strings.HasPrefix(group(addr, ends, t.parts[t.inHost+1].group), "/") {
		return "captured text would begin another host"
	}
	for _, p := range t.parts[:t.inHost] {
		if p.lit != "" {
			continue
		}
		if c := forbidden(group(addr, ends, p.group)); c >= 0 {
			return "captured text beside the host holds " + strconv.QuoteRune(rune(c))
		}
	}
	return ""
}

// forbidden returns the first byte of s that could move a host, or -1.
func forbidden(s string) int {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '@', ':', '/', '[', ']', '?', '#', '%':
			return int(c)
		default:
			if c < ' ' || c == 0x7f {
				return int(c)
			}
		}
	}
	return -1
}
