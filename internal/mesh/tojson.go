package mesh

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"
)

// appendJSON appends an item of CBOR, which is well formed, as JSON. What JSON has no form for: byte strings are base64 text; undefined, not-a-number and the
// infinities are null; a data frame is an array of its rows (arrow.go); another tag's
// content stands for itself, but big integers are numbers; keys that are no text are written as one.
func appendJSON(b, item []byte) ([]byte, error) {
	b, _, err := transcode(b, item, 0)
	return b, err
}

// maxJSON bounds what becomes of a message: data frames grow.
const maxJSON = 2 * maxRows

var errNotJSON = errors.New("there is no JSON for it")

// transcode appends the item at the beginning of item, and tells its length.
func transcode(b, item []byte, depth int) ([]byte, int, error) {
	h, err := readHead(item)
	if err != nil {
		return b, 0, err
	}
	if depth > maxDepth {
		return b, 0, errDepth
	}
	if len(b) > maxJSON {
		return b, 0, errNotJSON
	}
	switch h.major {
	case majorUint:
		return strconv.AppendUint(b, h.arg, 10), h.length, nil
	case majorNegInt:
		return appendNegative(b, h.arg), h.length, nil
	case majorBytes, majorText:
		return transcodeString(b, item, h)
	case majorArray, majorMap:
		return transcodeItems(b, item, h, depth)
	case majorTag:
		return transcodeTag(b, item, h, depth)
	}
	return appendSimple(b, h), h.length, nil
}

func appendNegative(b []byte, arg uint64) []byte {
	if arg <= math.MaxInt64 {
		return strconv.AppendInt(b, -1-int64(arg), 10)
	}
	n := new(big.Int).SetUint64(arg)
	return n.Not(n).Append(b, 10)
}

func appendSimple(b []byte, h head) []byte {
	var f float64
	switch h.info {
	case 20:
		return append(b, "false"...)
	case 21:
		return append(b, "true"...)
	case 25:
		f = halfFloat(uint16(h.arg))
	case 26:
		f = float64(math.Float32frombits(uint32(h.arg)))
	case 27:
		f = math.Float64frombits(h.arg)
	default:
		return append(b, "null"...)
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, f, 'g', -1, 64)
}

// halfFloat is IEEE 754 binary16 (RFC 8949, appendix D).
func halfFloat(h uint16) float64 {
	exp, mant := int(h>>10&0x1f), float64(h&0x3ff)
	var f float64
	switch exp {
	case 0:
		f = math.Ldexp(mant, -24)
	case 31:
		if f = math.Inf(1); mant != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(mant+1024, exp-25)
	}
	if h&0x8000 != 0 {
		f = -f
	}
	return f
}

// stringOf gives the content of a string, put together where it comes in pieces, and the length of the item.
func stringOf(item []byte, h head) (content []byte, n int) {
	if !h.indef {
		n = h.length + int(h.arg)
		return item[h.length:n], n
	}
	at := h.length
	for item[at] != cborBreak {
		p, _ := readHead(item[at:])
		content = append(content, item[at+p.length:at+p.length+int(p.arg)]...)
		at += p.length + int(p.arg)
	}
	return content, at + 1
}

func transcodeString(b, item []byte, h head) ([]byte, int, error) {
	s, n := stringOf(item, h)
	if h.major == majorText {
		return appendJSONText(b, s), n, nil
	}
	return append(base64.StdEncoding.AppendEncode(append(b, '"'), s), '"'), n, nil
}

func transcodeItems(b, item []byte, h head, depth int) ([]byte, int, error) {
	isMap := h.major == majorMap
	open, end := byte('['), byte(']')
	if isMap {
		open, end = '{', '}'
	}
	b = append(b, open)
	at := h.length
	for i := uint64(0); h.indef || i < h.arg; i++ {
		if h.indef && item[at] == cborBreak {
			at++
			break
		}
		if i > 0 {
			b = append(b, ',')
		}
		var n int
		var err error
		if isMap {
			if b, n, err = transcodeKey(b, item[at:], depth); err != nil {
				return b, 0, err
			}
			at += n
			b = append(b, ':')
		}
		if b, n, err = transcode(b, item[at:], depth+1); err != nil {
			return b, 0, err
		}
		at += n
	}
	return append(b, end), at, nil
}

// transcodeKey writes a key as text.
func transcodeKey(b, item []byte, depth int) ([]byte, int, error) {
	h, err := readHead(item)
	if err != nil {
		return b, 0, err
	}
	if h.major == majorText || h.major == majorBytes {
		return transcodeString(b, item, h)
	}
	key, n, err := transcode(nil, item, depth+1)
	return appendJSONText(b, key), n, err
}

// maxBigBytes bounds a big integer that is written as a number: it takes time that grows with the square of its length.
const maxBigBytes = 256

func transcodeTag(b, item []byte, h head, depth int) ([]byte, int, error) {
	rest := item[h.length:]
	if h.arg == 2 || h.arg == 3 {
		if s, err := readHead(rest); err == nil && s.major == majorBytes {
			digits, n := stringOf(rest, s)
			if len(digits) > maxBigBytes {
				return b, 0, errNotJSON
			}
			v := new(big.Int).SetBytes(digits)
			if h.arg == 3 {
				v.Not(v)
			}
			return v.Append(b, 10), h.length + n, nil
		}
	}
	if h.arg == tagFrame {
		if s, err := readHead(rest); err == nil && s.major == majorBytes {
			stream, n := stringOf(rest, s)
			if rows, err := appendRows(b, stream); err == nil {
				return rows, h.length + n, nil
			}
		}
	}
	b, n, err := transcode(b, rest, depth+1)
	return b, h.length + n, err
}

// tagFrame is the tag of a data frame (rembus.md, 2).
const tagFrame = 80

// appendJSONText appends a text in quotes. What is not UTF-8 is replaced.
func appendJSONText[T ~string | ~[]byte](b []byte, s T) []byte {
	const hexDigits = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20 || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, n := utf8.DecodeRune([]byte(s[i:min(len(s), i+utf8.UTFMax)]))
			b = utf8.AppendRune(b, r)
			i += n
			continue
		}
		i++
	}
	return append(b, '"')
}

// appendJSONID appends an id. One that came by CBOR is the number of its eight bytes, as text unless numbers is set: JavaScript's numbers do not hold all
// of them. Of another length it is "x:" and hexadecimal digits.
func appendJSONID(b []byte, id ID, numbers bool) []byte {
	if id.kind == idText {
		return appendJSONText(b, id.Bytes())
	}
	if id.n != 8 {
		b = append(b, `"x:`...)
		return append(hex.AppendEncode(b, id.Bytes()), '"')
	}
	v := binary.LittleEndian.Uint64(id.Bytes())
	if id.kind == idNumber || id.kind == idBytes && numbers {
		return strconv.AppendUint(b, v, 10)
	}
	return append(strconv.AppendUint(append(b, '"'), v, 10), '"')
}

// AppendJSON appends the message as a JSON object, its type under the keys of both Rembus.jl and rembus.python (rembus.md, 2.1).
func AppendJSON(b []byte, f *Frame, numbers bool) ([]byte, error) {
	data := f.Data
	if data == nil {
		data = nullItem
	}
	b = append(b, `{"jsonrpc":"2.0"`...)
	if f.Type != Publish || f.Flags != 0 {
		b = appendJSONID(append(b, `,"id":`...), f.ID, numbers)
	}
	kind := func(n uint64) {
		b = strconv.AppendUint(append(b, `{"__type__":`...), n, 10)
		b = strconv.AppendUint(append(b, `,"type":`...), n, 10)
	}
	method := func(name []byte) {
		b = append(appendJSONText(append(b, `,"method":`...), name), `,"params":`...)
	}
	var err error
	switch f.Type {
	case Publish, Request:
		name := f.Name
		if f.Target != nil {
			name = append(append(append([]byte{}, f.Target...), '/'), f.Name...)
		}
		method(name)
		if f.Flags == 0 {
			b, err = appendJSON(b, data)
			break
		}
		kind(uint64(f.Flags))
		b, err = appendJSON(append(b, `,"data":`...), data)
		b = append(b, '}')
	case Admin:
		method(f.Name)
		kind(uint64(Admin))
		var m []byte
		if m, err = appendJSON(nil, data); err == nil && len(m) > 2 && m[0] == '{' {
			b = append(append(b, ','), m[1:]...)
		} else {
			b = append(b, '}')
		}
	case Response:
		what := `,"error":`
		if f.Status == StatusOK || f.Status == StatusChallenge {
			what = `,"result":`
		}
		b = append(b, what...)
		kind(uint64(Response))
		b = strconv.AppendUint(append(b, `,"sts":`...), uint64(f.Status), 10)
		b, err = appendJSON(append(b, `,"data":`...), data)
		b = append(b, '}')
	case Ack, Ack2:
		b = append(b, `,"result":`...)
		kind(uint64(f.Type))
		b = append(b, '}')
	default:
		return b, errNotJSON // a router sends no others
	}
	return append(b, '}'), err
}
