package events

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
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
	if end = skipValue(m.b, i, maxDepth); end < 0 {
		return nil, nil, false, errJSON
	}
	m.i, m.in = end, true
	return name, m.b[i:end], true, nil
}

// plain gives a name without its escapes.
func (m *members) plain(name []byte) []byte {
	if bytes.IndexByte(name, '\\') < 0 {
		return name
	}
	name, _ = text(append(append([]byte{'"'}, name...), '"'))
	return name
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

// skipValue gives the end of the value that begins at i; -1 where there is none. depth is how many objects and arrays may be open in it.
func skipValue(b []byte, i, depth int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{':
		return skipObject(b, i, depth-1)
	case '[':
		return skipArray(b, i, depth-1)
	}
	return skipScalar(b, i)
}

func skipObject(b []byte, i, depth int) int {
	if depth < 0 {
		return -1
	}
	if i = skipBlank(b, i+1); i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		if i = skipName(b, i); i < 0 {
			return -1
		}
		if i = skipValue(b, i, depth); i < 0 {
			return -1
		}
		switch i = skipBlank(b, i); {
		case i == len(b):
			return -1
		case b[i] == '}':
			return i + 1
		case b[i] != ',':
			return -1
		}
		i = skipBlank(b, i+1)
	}
}

func skipArray(b []byte, i, depth int) int {
	if depth < 0 {
		return -1
	}
	if i = skipBlank(b, i+1); i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = skipValue(b, i, depth); i < 0 {
			return -1
		}
		switch i = skipBlank(b, i); {
		case i == len(b):
			return -1
		case b[i] == ']':
			return i + 1
		case b[i] != ',':
			return -1
		}
		i = skipBlank(b, i+1)
	}
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

// skipString gives the end of the string that begins at i, quotes and all. It looks at eight bytes at a time while there are.
func skipString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for i++; i < len(b); {
		if i+8 <= len(b) {
			x := binary.LittleEndian.Uint64(b[i:])
			// The lowest bit that is set is that of a quote, a backslash or a control character; those above it need not be.
			found := ((x ^ '"'*ones - ones) | (x ^ '\\'*ones - ones) | (x - ' '*ones)) &^ x & highs
			if found == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(found) / 8
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c >= ' ' && c != '\\':
			i++
		default:
			if i = skipEscape(b, i); i < 0 {
				return -1
			}
		}
	}
	return -1
}

// skipEscape gives the end of the escape that begins at i.
func skipEscape(b []byte, i int) int {
	switch {
	case i+1 >= len(b) || b[i] != '\\':
		return -1
	case bytes.IndexByte([]byte(`"\/bfnrt`), b[i+1]) >= 0:
		return i + 2
	case b[i+1] == 'u' && i+6 <= len(b) && isHex(b[i+2]) && isHex(b[i+3]) && isHex(b[i+4]) && isHex(b[i+5]):
		return i + 6
	}
	return -1
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

// skipScalar gives the end of true, false, null or a number.
func skipScalar(b []byte, i int) int {
	switch b[i] {
	case 't':
		return skipWord(b, i, "true")
	case 'f':
		return skipWord(b, i, "false")
	case 'n':
		return skipWord(b, i, "null")
	}
	return skipNumber(b, i)
}

func skipWord(b []byte, i int, word string) int {
	if len(b)-i >= len(word) && string(b[i:i+len(word)]) == word {
		return i + len(word)
	}
	return -1
}

func skipNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
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

// text decodes a JSON string, quotes and all. What has no escape is a part of value. One with half of a surrogate pair is no text: two of them
// would be the same.
func text(value []byte) (s []byte, ok bool) {
	if len(value) < 2 || value[0] != '"' {
		return nil, false
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return value[1 : len(value)-1], true
	}
	var decoded string
	if hasHalf(value) || json.Unmarshal(value, &decoded) != nil {
		return nil, false
	}
	return []byte(decoded), true
}

// hasHalf tells whether half of a surrogate pair is escaped in a JSON string.
func hasHalf(value []byte) bool {
	for i := 0; i < len(value); i++ {
		if value[i] != '\\' {
			continue
		}
		if i++; i == len(value) || value[i] != 'u' {
			continue
		}
		r := hex4(value, i+1)
		if i += 4; !utf16.IsSurrogate(r) {
			continue
		}
		if i+2 >= len(value) || value[i+1] != '\\' || value[i+2] != 'u' || utf16.DecodeRune(r, hex4(value, i+3)) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

// hex4 reads four hexadecimal digits from i on; 0 where they are none.
func hex4(b []byte, i int) rune {
	n, err := strconv.ParseUint(string(b[min(i, len(b)):min(i+4, len(b))]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}

// appendText appends s as a JSON string.
func appendText(b []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // of a string, which cannot fail
	return append(b, quoted...)
}
