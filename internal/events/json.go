package events

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/bits"
)

// maxDepth is how deep a JSON value may be nested.
const maxDepth = 512

var errJSON = errors.New("the frame is no JSON object")

// members goes through the members of a JSON object. It allocates nothing, and what it gives are parts of the text.
type members struct {
	b  []byte
	i  int
	in bool // behind a member
}

// object begins with the members of the object that b is.
func object(b []byte) (m members, err error) {
	i := skipBlank(b, 0)
	if i == len(b) || b[i] != '{' {
		return m, errJSON
	}
	return members{b: b, i: i + 1}, nil
}

// next gives a member: its name without quotes (as written: with its escapes), and its value. At the end of the object, behind which only
// blanks may follow, more is false.
func (m *members) next() (name, value []byte, more bool, err error) {
	i := skipBlank(m.b, m.i)
	if i < len(m.b) && m.b[i] == '}' {
		if skipBlank(m.b, i+1) < len(m.b) {
			return nil, nil, false, errJSON
		}
		return nil, nil, false, nil
	}
	if m.in {
		if i == len(m.b) || m.b[i] != ',' {
			return nil, nil, false, errJSON
		}
		i = skipBlank(m.b, i+1)
	}
	end := skipString(m.b, i)
	if end < 0 {
		return nil, nil, false, errJSON
	}
	name = m.b[i+1 : end-1]
	if i = skipBlank(m.b, end); i == len(m.b) || m.b[i] != ':' {
		return nil, nil, false, errJSON
	}
	i = skipBlank(m.b, i+1)
	if end = skipValue(m.b, i); end < 0 {
		return nil, nil, false, errJSON
	}
	m.i, m.in = end, true
	return name, m.b[i:end], true, nil
}

func skipBlank(b []byte, i int) int {
	if i < len(b) && b[i] > ' ' {
		return i // most frames have none
	}
	return skipBlanks(b, i)
}

func skipBlanks(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// skipValue gives the end of the value that begins at i; -1 where there is none.
func skipValue(b []byte, i int) int {
	var objects [maxDepth / 64]uint64 // a bit for each level: it is an object, not an array
	for depth := 0; ; {
		if i >= len(b) {
			return -1
		}
		switch c := b[i]; c {
		case '{', '[':
			if depth == maxDepth {
				return -1
			}
			objects[depth/64] &^= 1 << (depth % 64)
			i = skipBlank(b, i+1)
			if i < len(b) && b[i] == c+2 { // "}" and "]" are two behind "{" and "["
				i++
				break
			}
			if c == '{' {
				objects[depth/64] |= 1 << (depth % 64)
				if i = skipName(b, i); i < 0 {
					return -1
				}
			}
			depth++
			continue
		case '"':
			i = skipString(b, i)
		default:
			i = skipScalar(b, i)
		}
		if i < 0 {
			return -1
		}
		var open bool
		if i, depth, open = skipEnds(b, i, depth, &objects); i < 0 || !open {
			return i
		}
	}
}

// skipEnds goes on behind a value: past the ends of what it was the last of, to the next value where something is still open.
func skipEnds(b []byte, i, depth int, objects *[maxDepth / 64]uint64) (end, still int, open bool) {
	for depth > 0 {
		if i = skipBlank(b, i); i == len(b) {
			return -1, 0, false
		}
		isObject := objects[(depth-1)/64]>>((depth-1)%64)&1 == 1
		switch c := b[i]; {
		case c == ',' && isObject:
			return skipName(b, skipBlank(b, i+1)), depth, true
		case c == ',':
			return skipBlank(b, i+1), depth, true
		case c == '}' && isObject, c == ']' && !isObject:
			depth--
			i++
		default:
			return -1, 0, false
		}
	}
	return i, 0, false
}

// skipName gives where the value begins behind a name and its colon.
func skipName(b []byte, i int) int {
	if i = skipString(b, i); i < 0 {
		return -1
	}
	if i = skipBlank(b, i); i == len(b) || b[i] != ':' {
		return -1
	}
	return skipBlank(b, i+1)
}

// skipString gives the end of the string that begins at i, quotes and all.
func skipString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; i < len(b); i++ {
		if i = skipPlain(b, i); i == len(b) {
			return -1
		}
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			if i++; i == len(b) {
				return -1
			}
			if b[i] == 'u' {
				if i += 4; i >= len(b) || !isHex(b[i-3]) || !isHex(b[i-2]) || !isHex(b[i-1]) || !isHex(b[i]) {
					return -1
				}
			} else if bytes.IndexByte([]byte(`"\/bfnrt`), b[i]) < 0 {
				return -1
			}
		default:
			return -1
		}
	}
	return -1
}

// skipPlain goes on to a quote, a backslash, a control character, or the end, eight bytes at a time while there are.
func skipPlain(b []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^'"'*ones, x^'\\'*ones
		// The lowest bit that is set is that of a byte sought; those above it need not be.
		if found := ((quote-ones)&^quote | (slash-ones)&^slash | (x-' '*ones)&^x) & highs; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= ' ' {
		i++
	}
	return i
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

// skipScalar gives the end of true, false, null or a number.
func skipScalar(b []byte, i int) int {
	word := ""
	switch b[i] {
	case 't':
		word = "true"
	case 'f':
		word = "false"
	case 'n':
		word = "null"
	case '-':
		i++
	}
	if word != "" {
		if len(b)-i >= len(word) && string(b[i:i+len(word)]) == word {
			return i + len(word)
		}
		return -1
	}
	from := i
	if i = skipDigits(b, i); i == from || b[from] == '0' && i > from+1 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		from = i + 1
		if i = skipDigits(b, from); i == from {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		from = i
		if i = skipDigits(b, i); i == from {
			return -1
		}
	}
	return i
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i
}

// text decodes a JSON string, quotes and all. What has no escape is a part of value.
func text(value []byte) (s []byte, ok bool) {
	if len(value) < 2 || value[0] != '"' {
		return nil, false
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return value[1 : len(value)-1], true
	}
	var decoded string
	if json.Unmarshal(value, &decoded) != nil {
		return nil, false
	}
	return []byte(decoded), true
}

// appendText appends s as a JSON string.
func appendText(b []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // of a string, which cannot fail
	return append(b, quoted...)
}
