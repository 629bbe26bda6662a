package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// AppendValue appends v in its shortest encoding. v is of the Go types of this package; int, []any and []Symbol are taken
// as int64, List and an array of symbols. An error says which type or text cannot be encoded, and dst is then returned as
// it was.
func AppendValue(dst []byte, v any) ([]byte, error) {
	out, err := appendValue(dst, v, 0)
	if err != nil {
		return dst, err
	}
	return out, nil
}

func appendValue(dst []byte, v any, depth int) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(dst, fmtNull), nil
	case bool:
		return appendBool(dst, v), nil
	case uint8:
		return append(dst, fmtUbyte, v), nil
	case uint16:
		return append(dst, fmtUshort, byte(v>>8), byte(v)), nil
	case uint32:
		return appendUint(dst, v), nil
	case uint64:
		return appendUlong(dst, v), nil
	case int8:
		return append(dst, fmtByte, byte(v)), nil
	case int16:
		return append(dst, fmtShort, byte(v>>8), byte(v)), nil
	case int32:
		if v == int32(int8(v)) {
			return append(dst, fmtSmallInt, byte(v)), nil
		}
		return binary.BigEndian.AppendUint32(append(dst, fmtInt), uint32(v)), nil
	case int64:
		return appendLong(dst, v), nil
	case int:
		return appendLong(dst, int64(v)), nil
	case float32:
		return binary.BigEndian.AppendUint32(append(dst, fmtFloat), math.Float32bits(v)), nil
	case float64:
		return binary.BigEndian.AppendUint64(append(dst, fmtDouble), math.Float64bits(v)), nil
	case Timestamp:
		return binary.BigEndian.AppendUint64(append(dst, fmtTimestamp), uint64(v)), nil
	case UUID:
		return append(append(dst, fmtUUID), v[:]...), nil
	case Decimal32:
		return append(append(dst, fmtDecimal32), v[:]...), nil
	case Decimal64:
		return append(append(dst, fmtDecimal64), v[:]...), nil
	case Decimal128:
		return append(append(dst, fmtDecimal128), v[:]...), nil
	case Char:
		if !utf8.ValidRune(rune(v)) {
			return nil, fmt.Errorf("encode char: %s", badChar)
		}
		return binary.BigEndian.AppendUint32(append(dst, fmtChar), uint32(v)), nil
	case []byte:
		return appendVariable(dst, fmtBin8, v), nil
	case string:
		if !utf8.ValidString(v) {
			return nil, fmt.Errorf("encode string: %s", badUTF8)
		}
		return appendVariable(dst, fmtStr8, v), nil
	case Symbol:
		if !isASCII(string(v)) {
			return nil, fmt.Errorf("encode symbol: %s", badASCII)
		}
		return appendVariable(dst, fmtSym8, v), nil
	case []Symbol:
		return appendSymbols(dst, v), nil
	}
	if depth >= maxDepth {
		return nil, fmt.Errorf("encode %T: %s", v, badDepth)
	}
	switch v := v.(type) {
	case List:
		return appendList(dst, v, depth)
	case []any:
		return appendList(dst, v, depth)
	case Map:
		return appendMap(dst, v, depth)
	case Array:
		return appendArray(dst, v, depth)
	case Described:
		dst, err := appendValue(append(dst, fmtDescribed), v.Descriptor, depth+1)
		if err != nil {
			return nil, err
		}
		return appendValue(dst, v.Value, depth+1)
	}
	return nil, fmt.Errorf("encode %T: not an AMQP type", v)
}

func appendLong(dst []byte, v int64) []byte {
	if v == int64(int8(v)) {
		return append(dst, fmtSmallLong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, fmtLong), uint64(v))
}

func appendList(dst []byte, l List, depth int) (_ []byte, err error) {
	if len(l) == 0 {
		return append(dst, fmtList0), nil
	}
	at := len(dst)
	dst = append(dst, listHead32...)
	for _, v := range l {
		if dst, err = appendValue(dst, v, depth+1); err != nil {
			return nil, err
		}
	}
	return closeCompound(dst, at, len(l), fmtList8), nil
}

func appendMap(dst []byte, m Map, depth int) (_ []byte, err error) {
	at := len(dst)
	dst = append(dst, listHead32...)
	for _, kv := range m {
		if dst, err = appendValue(dst, kv.Key, depth+1); err != nil {
			return nil, err
		}
		if dst, err = appendValue(dst, kv.Value, depth+1); err != nil {
			return nil, err
		}
	}
	return closeCompound(dst, at, 2*len(m), fmtMap8), nil
}

func appendArray(dst []byte, a Array, depth int) (_ []byte, err error) {
	at := len(dst)
	if dst, err = appendArrayContent(append(dst, listHead32...), a, depth); err != nil {
		return nil, err
	}
	return closeCompound(dst, at, len(a.Elems), fmtArray8), nil
}

// appendArrayContent appends the constructor and the elements of an array (AMQP 1.0 part 1, 1.6.24).
func appendArrayContent(dst []byte, a Array, depth int) (_ []byte, err error) {
	if depth+len(a.Descriptors) >= maxDepth {
		return nil, fmt.Errorf("encode array: %s", badDepth)
	}
	depth += len(a.Descriptors)
	for _, d := range a.Descriptors {
		if dst, err = appendValue(append(dst, fmtDescribed), d, depth); err != nil {
			return nil, err
		}
	}
	code := elementCode(a.Code)
	if code == 0 {
		if code = fmtNull; len(a.Elems) > 0 {
			code = codeOf(a.Elems[0])
		}
	}
	for _, v := range a.Elems {
		if wideElement(code, v) {
			code |= 0x10
		}
	}
	if !knownCode(code) {
		return nil, fmt.Errorf("encode array: no element type 0x%02x", code)
	}
	dst = append(dst, code)
	for i, v := range a.Elems {
		n := len(dst)
		dst, err = appendElement(dst, code, v, depth+1)
		if err == nil && minWidth(code) == 0 && len(dst) != n {
			err = errElement
		}
		if err != nil {
			return nil, fmt.Errorf("encode array: element %d: %w", i, err)
		}
	}
	return dst, nil
}

// codeOf is the element code that takes every value of the type of v.
func codeOf(v any) byte {
	switch v.(type) {
	case nil:
		return fmtNull
	case bool:
		return fmtBool
	case uint8:
		return fmtUbyte
	case uint16:
		return fmtUshort
	case uint32:
		return fmtUint
	case uint64:
		return fmtUlong
	case int8:
		return fmtByte
	case int16:
		return fmtShort
	case int32:
		return fmtInt
	case int64, int:
		return fmtLong
	case float32:
		return fmtFloat
	case float64:
		return fmtDouble
	case Timestamp:
		return fmtTimestamp
	case UUID:
		return fmtUUID
	case Char:
		return fmtChar
	case Decimal32:
		return fmtDecimal32
	case Decimal64:
		return fmtDecimal64
	case Decimal128:
		return fmtDecimal128
	case []byte:
		return fmtBin8
	case string:
		return fmtStr8
	case Symbol:
		return fmtSym8
	case List, []any:
		return fmtList32
	case Map:
		return fmtMap32
	case Array:
		return fmtArray32
	}
	return 0
}

// wideElement tells whether v makes an array of an 8-bit variable type one of the 32-bit form.
func wideElement(code byte, v any) bool {
	if code>>4 != 0xa {
		return false
	}
	switch v := v.(type) {
	case []byte:
		return len(v) > 255
	case string:
		return len(v) > 255
	case Symbol:
		return len(v) > 255
	}
	return false
}

var errElement = errors.New("value is not of the array's type")

// appendElement appends v without a constructor, as the format code says.
func appendElement(dst []byte, code byte, v any, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%s", badDepth)
	}
	at := len(dst)
	switch code {
	case fmtList32:
		l, ok := v.(List)
		if !ok {
			if l, ok = v.([]any); !ok {
				return nil, errElement
			}
		}
		dst = append(dst, listHead32[1:]...)
		for _, e := range l {
			var err error
			if dst, err = appendValue(dst, e, depth); err != nil {
				return nil, err
			}
		}
		return closeElement(dst, at, len(l)), nil
	case fmtMap32:
		m, ok := v.(Map)
		if !ok {
			return nil, errElement
		}
		dst = append(dst, listHead32[1:]...)
		for _, kv := range m {
			var err error
			if dst, err = appendValue(dst, kv.Key, depth); err == nil {
				dst, err = appendValue(dst, kv.Value, depth)
			}
			if err != nil {
				return nil, err
			}
		}
		return closeElement(dst, at, 2*len(m)), nil
	case fmtArray32:
		a, ok := v.(Array)
		if !ok {
			return nil, errElement
		}
		dst, err := appendArrayContent(append(dst, listHead32[1:]...), a, depth)
		if err != nil {
			return nil, err
		}
		return closeElement(dst, at, len(a.Elems)), nil
	case fmtList0:
		if l, ok := v.(List); !ok || len(l) > 0 {
			return nil, errElement
		}
		return dst, nil
	case fmtBin32, fmtStr32, fmtSym32:
		// The text is checked by the encoding of the value; only its length is written differently.
		b, err := appendValue(dst, v, depth)
		if err != nil || b[at]|0x10 != code {
			return nil, errElement
		}
		if b[at] == code {
			return append(b[:at], b[at+1:]...), nil
		}
		n := len(b) - at - 2
		b = append(b, 0, 0)
		copy(b[at+4:], b[at+2:at+2+n])
		binary.BigEndian.PutUint32(b[at:], uint32(n))
		return b, nil
	}
	return appendFixed(dst, code, v)
}

func closeElement(b []byte, at, count int) []byte {
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	binary.BigEndian.PutUint32(b[at+4:], uint32(count))
	return b
}

// appendFixed is appendElement for fixed widths, and for variable ones of the 8-bit form.
func appendFixed(dst []byte, code byte, v any) ([]byte, error) {
	ok := false
	switch v := v.(type) {
	case nil:
		ok = code == fmtNull
	case bool:
		switch code {
		case fmtTrue:
			ok = v
		case fmtFalse:
			ok = !v
		case fmtBool:
			ok = true
			if v {
				dst = append(dst, 1)
			} else {
				dst = append(dst, 0)
			}
		}
	case uint32:
		switch code {
		case fmtUint0:
			ok = v == 0
		case fmtSmallUint:
			dst, ok = append(dst, byte(v)), v < 256
		case fmtUint:
			dst, ok = binary.BigEndian.AppendUint32(dst, v), true
		}
	case uint64:
		switch code {
		case fmtUlong0:
			ok = v == 0
		case fmtSmallUlong:
			dst, ok = append(dst, byte(v)), v < 256
		case fmtUlong:
			dst, ok = binary.BigEndian.AppendUint64(dst, v), true
		}
	case int32:
		switch code {
		case fmtSmallInt:
			dst, ok = append(dst, byte(v)), v == int32(int8(v))
		case fmtInt:
			dst, ok = binary.BigEndian.AppendUint32(dst, uint32(v)), true
		}
	case int:
		return appendFixed(dst, code, int64(v))
	case int64:
		switch code {
		case fmtSmallLong:
			dst, ok = append(dst, byte(v)), v == int64(int8(v))
		case fmtLong:
			dst, ok = binary.BigEndian.AppendUint64(dst, uint64(v)), true
		}
	default:
		// The remaining types have one encoding each, or the 8-bit one that fits: it is the element behind its constructor.
		at := len(dst)
		b, err := appendValue(dst, v, maxDepth)
		if err != nil {
			return nil, err
		}
		if b[at] != code {
			return nil, errElement
		}
		return append(b[:at], b[at+1:]...), nil
	}
	if !ok {
		return nil, errElement
	}
	return dst, nil
}
