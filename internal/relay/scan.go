package relay

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// kind is what an op of a client asks for.
type kind uint8

const (
	kindBad     kind = iota // no object, or one without an op that is text
	kindUnknown             // an op that clients do not have
	kindHead
	kindBody
	kindCancel
	kindServe
	kindUnserve
)

// names of the kinds on the wire.
var names = [...]string{kindHead: "head", kindBody: "body", kindCancel: "cancel", kindServe: "serve", kindUnserve: "unserve"}

func (k kind) String() string { return names[k] }

// op is an element of a message. Its fields are JSON as it was written, slices of the message; nil: there is no such field.
type op struct {
	kind                           kind
	topic, id, ref, to, data, done []byte

	settle func(code) // of an op that no client sent: hears the result
}

// What is wrong with a whole message, of which nothing is done then.
var (
	errSyntax  = errors.New("invalid JSON")
	errNoArray = errors.New("a message is an array of ops")
	errTooMany = errors.New("more than 100 ops in a message")
)

const (
	maxOps   = 100
	maxDepth = 10_000 // of nesting, the message's own array included, as encoding/json has it
)

// scanner takes the ops out of messages. It keeps room for the next.
type scanner struct {
	b     []byte
	i     int
	open  []byte // the brackets of the value that is skipped
	depth int    // outside of that value
	key   []byte // a key with escapes, without them
}

// scan appends the ops of a message. It takes what RFC 8259 allows in one pass, and of keys given twice the last; it does not look at
// whether the text is UTF-8, which is its caller's to know.
//
//	message = "[" [ op *( "," op ) ] "]"     op = a JSON object; another value is of kindBad
func (s *scanner) scan(msg []byte, ops []op) ([]op, error) {
	s.b, s.i = msg, 0
	if s.peek() != '[' {
		return ops, errNoArray
	}
	s.i++
	if s.peek() == ']' {
		s.i++
		return ops, s.end()
	}
	for {
		if len(ops) == maxOps {
			return ops, errTooMany
		}
		ops = append(ops, op{})
		ok := false
		if s.peek() == '{' {
			ok = s.object(&ops[len(ops)-1])
		} else {
			s.depth = 1
			ok = s.value()
		}
		if !ok {
			return ops, errSyntax
		}
		switch s.peek() {
		case ',':
			s.i++
		case ']':
			s.i++
			return ops, s.end()
		default:
			return ops, errSyntax
		}
	}
}

func (s *scanner) end() error {
	if s.peek(); s.i < len(s.b) {
		return errSyntax
	}
	return nil
}

// peek skips white space and gives the byte behind it, 0 at the end.
func (s *scanner) peek() byte {
	if s.i < len(s.b) && s.b[s.i] > ' ' {
		return s.b[s.i]
	}
	return s.blank()
}

// blank is peek where white space may be.
func (s *scanner) blank() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// object reads an op.
func (s *scanner) object(o *op) bool {
	s.depth = 2
	s.i++
	if s.peek() == '}' {
		s.i++
		return true
	}
	for {
		if !s.field(o) {
			return false
		}
		switch s.peek() {
		case ',':
			s.i++
			s.peek()
		case '}':
			s.i++
			return true
		default:
			return false
		}
	}
}

// field reads a member of an op.
func (s *scanner) field(o *op) bool {
	f, ok := s.known()
	switch {
	case f == fieldOp:
		if k := s.knownOp(); k != kindBad {
			o.kind = k
			return true
		}
	case !ok:
		key, ok := s.member()
		if !ok {
			return false
		}
		f = fieldOf(key)
	}
	s.peek()
	begin := s.i
	if !s.value() {
		return false
	}
	o.set(f, s.b[begin:s.i:s.i])
	return true
}

// knownOp reads the name of one of the ops that pass, at the very place; kindBad: there is none.
func (s *scanner) knownOp() kind {
	if len(s.b)-s.i < 8 {
		return kindBad
	}
	k := kindBad
	switch binary.LittleEndian.Uint64(s.b[s.i:]) & (1<<48 - 1) {
	case '"' | 'h'<<8 | 'e'<<16 | 'a'<<24 | 'd'<<32 | '"'<<40:
		k = kindHead
	case '"' | 'b'<<8 | 'o'<<16 | 'd'<<24 | 'y'<<32 | '"'<<40:
		k = kindBody
	default:
		return kindBad
	}
	s.i += len(`"head"`)
	return k
}

// member reads a key and its colon, and gives what the key stands for.
func (s *scanner) member() (key []byte, ok bool) {
	if s.peek() != '"' {
		return nil, false
	}
	begin := s.i
	escaped, ok := s.text()
	if !ok {
		return nil, false
	}
	key = s.b[begin+1 : s.i-1]
	if escaped {
		s.key, _ = unescape(s.key[:0], key)
		key = s.key
	}
	if s.peek() != ':' {
		return nil, false
	}
	s.i++
	return key, true
}

// field is a key of an op.
type field uint8

const (
	fieldNone field = iota // not of the protocol
	fieldOp
	fieldTopic
	fieldID
	fieldRef
	fieldTo
	fieldData
	fieldDone
)

// known reads a key that is written as nearly all are, with its colon, by the eight bytes that are there.
func (s *scanner) known() (f field, ok bool) {
	if len(s.b)-s.i < 8 {
		return fieldNone, false
	}
	const five, six, seven = 1<<40 - 1, 1<<48 - 1, 1<<56 - 1
	w := binary.LittleEndian.Uint64(s.b[s.i:])
	n := 5
	switch w & five {
	case '"' | 'o'<<8 | 'p'<<16 | '"'<<24 | ':'<<32:
		f = fieldOp
	case '"' | 'i'<<8 | 'd'<<16 | '"'<<24 | ':'<<32:
		f = fieldID
	case '"' | 't'<<8 | 'o'<<16 | '"'<<24 | ':'<<32:
		f = fieldTo
	default:
		switch {
		case w == '"'|'t'<<8|'o'<<16|'p'<<24|'i'<<32|'c'<<40|'"'<<48|':'<<56:
			f, n = fieldTopic, 8
		case w&six == '"'|'r'<<8|'e'<<16|'f'<<24|'"'<<32|':'<<40:
			f, n = fieldRef, 6
		case w&seven == '"'|'d'<<8|'a'<<16|'t'<<24|'a'<<32|'"'<<40|':'<<48:
			f, n = fieldData, 7
		case w&seven == '"'|'d'<<8|'o'<<16|'n'<<24|'e'<<32|'"'<<40|':'<<48:
			f, n = fieldDone, 7
		default:
			return fieldNone, false
		}
	}
	s.i += n
	return f, true
}

func fieldOf(key []byte) field {
	switch string(key) {
	case "op":
		return fieldOp
	case "topic":
		return fieldTopic
	case "id":
		return fieldID
	case "ref":
		return fieldRef
	case "to":
		return fieldTo
	case "data":
		return fieldData
	case "done":
		return fieldDone
	}
	return fieldNone
}

// set takes a field. Keys that the protocol does not have, and "from", which only the server writes, are nothing.
func (o *op) set(f field, value []byte) {
	switch f {
	case fieldOp:
		o.kind = kindOf(value)
	case fieldTopic:
		o.topic = value
	case fieldID:
		o.id = value
	case fieldRef:
		o.ref = value
	case fieldTo:
		o.to = value
	case fieldData:
		o.data = value
	case fieldDone:
		o.done = value
	}
}

func kindOf(value []byte) kind {
	switch string(value) {
	case `"head"`:
		return kindHead
	case `"body"`:
		return kindBody
	case `"cancel"`:
		return kindCancel
	case `"serve"`:
		return kindServe
	case `"unserve"`:
		return kindUnserve
	}
	if value[0] != '"' {
		return kindBad
	}
	var room [16]byte
	text, _ := unescape(room[:0], value[1:len(value)-1])
	for k := kindHead; k <= kindUnserve; k++ {
		if names[k] == string(text) {
			return k
		}
	}
	return kindUnknown
}

// value skips a value. Nesting takes no stack: a message may be made of brackets.
func (s *scanner) value() bool {
	if s.i >= len(s.b) {
		return false
	}
	switch s.b[s.i] {
	case '"':
		_, ok := s.text()
		return ok
	case '{', '[':
		return s.nested()
	}
	return s.scalar()
}

// scalar skips a number or a word.
func (s *scanner) scalar() bool {
	switch s.b[s.i] {
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	return s.number()
}

func (s *scanner) word(w string) bool {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		return false
	}
	s.i += len(w)
	return true
}

// number skips [ "-" ] ( "0" / digit1-9 *digit ) [ "." 1*digit ] [ ("e" / "E") [ "+" / "-" ] 1*digit ].
func (s *scanner) number() bool {
	if s.at() == '-' {
		s.i++
	}
	if s.at() == '0' {
		s.i++
	} else if !s.digits() {
		return false
	}
	if s.at() == '.' {
		if s.i++; !s.digits() {
			return false
		}
	}
	if s.at()|0x20 == 'e' {
		s.i++
		if c := s.at(); c == '+' || c == '-' {
			s.i++
		}
		return s.digits()
	}
	return true
}

// at is the byte that comes next, 0 at the end.
func (s *scanner) at() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *scanner) digits() bool {
	begin := s.i
	for s.i < len(s.b) && s.b[s.i]-'0' < 10 {
		s.i++
	}
	return s.i > begin
}

// nested skips an object or an array.
func (s *scanner) nested() bool {
	s.open = s.open[:0]
	for {
		// A value begins here.
		c := s.peek()
		switch {
		case c == '{' || c == '[':
			if len(s.open)+s.depth >= maxDepth {
				return false
			}
			s.open = append(s.open, c)
			s.i++
			if n := s.peek(); n == c+2 { // } is two behind {, and ] behind [
				break
			} else if c == '{' && !s.name() {
				return false
			}
			continue
		case c == '"':
			if _, ok := s.text(); !ok {
				return false
			}
		case c == 0 || !s.scalar():
			return false
		}
		if over, ok := s.after(); over || !ok {
			return ok
		}
	}
}

// after goes on behind a value, or behind an opening bracket that is closed at once, to where the next value begins; over: it was the last.
func (s *scanner) after() (over, ok bool) {
	for len(s.open) > 0 {
		in := s.open[len(s.open)-1]
		switch s.peek() {
		case ',':
			s.i++
			return false, in == '[' || s.name()
		case in + 2:
			s.i++
			s.open = s.open[:len(s.open)-1]
		default:
			return false, false
		}
	}
	return true, true
}

// name skips the name of a member and its colon.
func (s *scanner) name() bool {
	if s.peek() != '"' {
		return false
	}
	if _, ok := s.text(); !ok || s.peek() != ':' {
		return false
	}
	s.i++
	return true
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// text skips a string, from its opening quote, and tells whether escapes are in it.
func (s *scanner) text() (escaped, ok bool) {
	b, i := s.b, s.i+1
	for {
		// Eight bytes at a time: the lowest bit of stop is at the first quote, backslash or control.
		for len(b)-i >= 8 {
			w := binary.LittleEndian.Uint64(b[i:])
			quote, slash := w^(ones*'"'), w^(ones*'\\')
			stop := ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*0x20)&^w) & highs
			if stop != 0 {
				i += bits.TrailingZeros64(stop) / 8
				break
			}
			i += 8
		}
		for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= 0x20 {
			i++
		}
		if i >= len(b) || b[i] < 0x20 {
			return escaped, false
		}
		if b[i] == '"' {
			s.i = i + 1
			return escaped, true
		}
		escaped = true
		n := escapeLen(b[i:])
		if n == 0 {
			return escaped, false
		}
		i += n
	}
}

// escapeLen is the length of the escape that b begins with; 0: it is none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b); ok {
			return 6
		}
	}
	return 0
}

// hex4 reads \uXXXX.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape appends what a string that was scanned stands for, of the text between its quotes. whole is false where half of a surrogate pair
// is in it: no UTF-8 stands for that, and U+FFFD takes its place.
func unescape(dst, b []byte) (text []byte, whole bool) {
	whole = true
	for i := 0; i < len(b); {
		if b[i] != '\\' {
			dst = append(dst, b[i])
			i++
			continue
		}
		switch c := b[i+1]; c {
		case 'u':
			r, _ := hex4(b[i:])
			i += 6
			if utf16.IsSurrogate(r) {
				low, _ := hex4(b[min(i, len(b)):])
				if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
					whole = false
				} else {
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		default:
			dst = append(dst, c)
		}
		i += 2
	}
	return dst, whole
}

// appendText appends a text as JSON.
func appendText(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
