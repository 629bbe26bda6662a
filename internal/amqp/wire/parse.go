package wire

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// prealloc bounds what is allocated for entries before any of them was seen.
const prealloc = 256

// ParseValue decodes the value that b begins with into the Go types of this package. Nothing of it aliases b.
//
// Strings must be UTF-8, symbols ASCII, chars Unicode. lim may be nil.
func ParseValue(b []byte, lim *Limits) (v any, rest []byte, err error) {
	d := decoder{b: b, depth: maxDepth, zero: maxZeroWidth}
	if lim != nil && lim.Depth > 0 {
		d.depth = lim.Depth
	}
	if lim != nil && lim.Entries > 0 {
		d.zero = lim.Entries
	}
	v, next, bad := d.value(0, 0)
	if bad != nil {
		return nil, nil, bad
	}
	return v, b[next:], nil
}

type decoder struct {
	b     []byte
	depth int // the limit
	zero  int // elements without bytes that are still allowed
}

// value decodes the value at i, which is inside depth others.
func (d *decoder) value(i, depth int) (v any, next int, err *DecodeError) {
	if i >= len(d.b) {
		return nil, i, failed(i, badShort)
	}
	if d.b[i] != fmtDescribed {
		return d.plain(d.b[i], i+1, depth)
	}
	if depth >= d.depth {
		return nil, i, failed(i, badDepth)
	}
	var x Described
	if x.Descriptor, i, err = d.value(i+1, depth+1); err != nil {
		return nil, i, err
	}
	if x.Value, i, err = d.value(i, depth+1); err != nil {
		return nil, i, err
	}
	return x, i, nil
}

// plain decodes what follows the format code c at i: an element of an array, or a value whose constructor was read.
func (d *decoder) plain(c byte, i, depth int) (v any, next int, err *DecodeError) {
	b := d.b[i:]
	width := 0
	switch c {
	case fmtNull:
		return nil, i, nil
	case fmtTrue:
		return true, i, nil
	case fmtFalse:
		return false, i, nil
	case fmtUint0:
		return uint32(0), i, nil
	case fmtUlong0:
		return uint64(0), i, nil
	case fmtList0:
		return List{}, i, nil
	case fmtUbyte, fmtByte, fmtSmallUint, fmtSmallUlong, fmtSmallInt, fmtSmallLong, fmtBool:
		width = 1
	case fmtUshort, fmtShort:
		width = 2
	case fmtUint, fmtInt, fmtFloat, fmtChar, fmtDecimal32:
		width = 4
	case fmtUlong, fmtLong, fmtDouble, fmtTimestamp, fmtDecimal64:
		width = 8
	case fmtDecimal128, fmtUUID:
		width = 16
	case fmtBin8, fmtStr8, fmtSym8, fmtBin32, fmtStr32, fmtSym32:
		return d.text(c, i)
	case fmtList8, fmtList32:
		return d.list(c, i, depth)
	case fmtMap8, fmtMap32:
		return d.pairs(c, i, depth)
	case fmtArray8, fmtArray32:
		return d.array(c, i, depth)
	default:
		return nil, i, failed(i-1, badCode)
	}
	if len(b) < width {
		return nil, i, failed(i, badShort)
	}
	next = i + width
	switch c {
	case fmtUbyte:
		v = b[0]
	case fmtByte:
		v = int8(b[0])
	case fmtSmallUint:
		v = uint32(b[0])
	case fmtSmallUlong:
		v = uint64(b[0])
	case fmtSmallInt:
		v = int32(int8(b[0]))
	case fmtSmallLong:
		v = int64(int8(b[0]))
	case fmtBool:
		if b[0] > 1 {
			return nil, i, failed(i, badBool)
		}
		v = b[0] == 1
	case fmtUshort:
		v = binary.BigEndian.Uint16(b)
	case fmtShort:
		v = int16(binary.BigEndian.Uint16(b))
	case fmtUint:
		v = binary.BigEndian.Uint32(b)
	case fmtInt:
		v = int32(binary.BigEndian.Uint32(b))
	case fmtFloat:
		v = math.Float32frombits(binary.BigEndian.Uint32(b))
	case fmtChar:
		r := binary.BigEndian.Uint32(b)
		if r > utf8.MaxRune || !utf8.ValidRune(rune(r)) {
			return nil, i, failed(i, badChar)
		}
		v = Char(r)
	case fmtDecimal32:
		v = Decimal32(b[:4])
	case fmtUlong:
		v = binary.BigEndian.Uint64(b)
	case fmtLong:
		v = int64(binary.BigEndian.Uint64(b))
	case fmtDouble:
		v = math.Float64frombits(binary.BigEndian.Uint64(b))
	case fmtTimestamp:
		v = Timestamp(binary.BigEndian.Uint64(b))
	case fmtDecimal64:
		v = Decimal64(b[:8])
	case fmtDecimal128:
		v = Decimal128(b[:16])
	case fmtUUID:
		v = UUID(b[:16])
	}
	return v, next, nil
}

func (d *decoder) text(c byte, i int) (v any, next int, err *DecodeError) {
	b := d.b[i:]
	n := uint64(0)
	switch {
	case c < fmtBin32 && len(b) >= 1:
		n, b, i = uint64(b[0]), b[1:], i+1
	case c >= fmtBin32 && len(b) >= 4:
		n, b, i = uint64(binary.BigEndian.Uint32(b)), b[4:], i+4
	default:
		return nil, i, failed(i, badShort)
	}
	if n > uint64(len(b)) {
		return nil, i, failed(i, badShort)
	}
	b = b[:n]
	next = i + int(n)
	switch c {
	case fmtStr8, fmtStr32:
		if !utf8.Valid(b) {
			return nil, i, failed(i, badUTF8)
		}
		return string(b), next, nil
	case fmtSym8, fmtSym32:
		if !isASCII(b) {
			return nil, i, failed(i, badASCII)
		}
		return Symbol(b), next, nil
	}
	return append(make([]byte, 0, n), b...), next, nil
}

// open reads size and count of what is at i, after its format code c, and checks that it may be opened.
func (d *decoder) open(c byte, i, depth int) (first, count, end int, err *DecodeError) {
	if depth >= d.depth {
		return 0, 0, 0, failed(i, badDepth)
	}
	first, count, end, bad := sized(d.b, i, c&0x10 != 0)
	if bad == "" && c < fmtArray8 && count > end-first {
		bad = badCount
	}
	if bad != "" {
		return 0, 0, 0, failed(i, bad)
	}
	return first, count, end, nil
}

// within makes d end at end, and gives back what undoes it: entries cannot reach beyond what they are in.
func (d *decoder) within(end int) (outer []byte) {
	outer = d.b
	d.b = d.b[:end]
	return outer
}

func (d *decoder) list(c byte, i, depth int) (any, int, *DecodeError) {
	i, count, end, err := d.open(c, i, depth)
	if err != nil {
		return nil, i, err
	}
	outer := d.within(end)
	l := make(List, 0, min(count, prealloc))
	for range count {
		var v any
		if v, i, err = d.value(i, depth+1); err != nil {
			return nil, i, inside(err)
		}
		l = append(l, v)
	}
	d.b = outer
	if i != end {
		return nil, i, failed(i, "bytes left after the last entry")
	}
	return l, end, nil
}

// inside makes of an entry that reaches beyond its container an error that more input does not cure.
func inside(err *DecodeError) *DecodeError {
	if err.Short {
		err.Short = false
		err.What = "entry longer than what it is in"
	}
	return err
}

func (d *decoder) pairs(c byte, i, depth int) (any, int, *DecodeError) {
	at := i
	i, count, end, err := d.open(c, i, depth)
	if err != nil {
		return nil, i, err
	}
	if count%2 != 0 {
		return nil, i, failed(at, badOdd)
	}
	outer := d.within(end)
	m := make(Map, 0, min(count/2, prealloc))
	for range count / 2 {
		var kv KV
		if kv.Key, i, err = d.value(i, depth+1); err != nil {
			return nil, i, inside(err)
		}
		if kv.Value, i, err = d.value(i, depth+1); err != nil {
			return nil, i, inside(err)
		}
		m = append(m, kv)
	}
	d.b = outer
	if i != end {
		return nil, i, failed(i, "bytes left after the last entry")
	}
	return m, end, nil
}

func (d *decoder) array(c byte, i, depth int) (any, int, *DecodeError) {
	at := i
	i, count, end, err := d.open(c, i, depth)
	if err != nil {
		return nil, i, err
	}
	outer := d.within(end)
	var a Array
	for i < end && d.b[i] == fmtDescribed {
		if depth++; depth >= d.depth {
			return nil, i, failed(i, badDepth)
		}
		var v any
		if v, i, err = d.value(i+1, depth); err != nil {
			return nil, i, inside(err)
		}
		a.Descriptors = append(a.Descriptors, v)
	}
	if i >= end {
		return nil, i, failed(at, badSize)
	}
	code := d.b[i]
	i++
	switch w := minWidth(code); {
	case w > 0 && count > (end-i)/w:
		return nil, i, failed(at, badCount)
	case w == 0:
		if d.zero -= count; d.zero < 0 {
			return nil, i, failed(at, badEntries)
		}
	}
	a.Code = elementCode(code)
	a.Elems = make([]any, 0, min(count, prealloc))
	for range count {
		var v any
		if v, i, err = d.plain(code, i, depth+1); err != nil {
			return nil, i, inside(err)
		}
		a.Elems = append(a.Elems, v)
	}
	if count == 0 && !knownCode(code) {
		return nil, i, failed(i-1, badCode)
	}
	d.b = outer
	if i != end {
		return nil, i, failed(i, "bytes left after the last element")
	}
	return a, end, nil
}

// elementCode is the format code by which Array tells the type: the 8-bit form of variable types, the 32-bit form of
// compound ones, since these are what they are written in if they fit.
func elementCode(c byte) byte {
	switch c {
	case fmtBin32, fmtStr32, fmtSym32:
		return c &^ 0x10
	case fmtList8, fmtMap8, fmtArray8:
		return c | 0x10
	}
	return c
}

func knownCode(c byte) bool {
	switch c {
	case fmtNull, fmtTrue, fmtFalse, fmtUint0, fmtUlong0, fmtList0,
		fmtUbyte, fmtByte, fmtSmallUint, fmtSmallUlong, fmtSmallInt, fmtSmallLong, fmtBool,
		fmtUshort, fmtShort, fmtUint, fmtInt, fmtFloat, fmtChar, fmtDecimal32,
		fmtUlong, fmtLong, fmtDouble, fmtTimestamp, fmtDecimal64, fmtDecimal128, fmtUUID,
		fmtBin8, fmtStr8, fmtSym8, fmtBin32, fmtStr32, fmtSym32,
		fmtList8, fmtList32, fmtMap8, fmtMap32, fmtArray8, fmtArray32:
		return true
	}
	return false
}
