package wire

import (
	"encoding/binary"
	"unicode/utf8"
)

// reader walks the fields of one composite (AMQP 1.0 part 1, 1.4). The first failure sticks and makes the fields after it
// look absent, so that callers read straight on and ask once, in done.
type reader struct {
	b    []byte // what the composite was found in, cut at its end: offsets are those of the whole
	i    int    // the next field
	n    int    // fields that are left
	name string
	err  *DecodeError

	surplus int // nulls behind b that belong to the composite
}

// readComposite begins with the composite at offset i of b, which has at most fields fields.
func readComposite(b []byte, i int, code uint64, name string, fields int) (r reader) {
	r.name = name
	got, next, bad := descriptor(b, i)
	if bad == "" && got != code {
		next, bad = i, "wrong descriptor"
	}
	if bad == "" {
		var count, end int
		i = next
		if r.i, count, end, bad = listHead(b, i); bad == "" {
			if count <= fields {
				r.b, r.n = b[:end], count
				return r
			}
			bad = "more fields than defined"
		}
		next = i
	}
	r.b = b
	r.fail(next, "", bad)
	return r
}

func (r *reader) fail(at int, field, what string) {
	if r.err == nil {
		r.err = failed(at, what)
		if field != "" {
			what = field + ": " + what
		}
		r.err.What = r.name + ": " + what
	}
	r.n, r.i = 0, len(r.b)
}

// done ends the walk. rest is what follows the composite in body.
func (r *reader) done(body []byte) (rest []byte, err error) {
	if r.err == nil && (r.i != len(r.b) || r.n != 0) {
		r.fail(r.i, "", "bytes left after the last field")
	}
	if r.err != nil {
		return nil, r.err
	}
	return body[len(r.b):], nil
}

// need makes the absence of a mandatory field an error.
func (r *reader) need(field string, present bool) {
	if !present && r.err == nil {
		r.fail(r.i, field, "mandatory field is missing")
	}
}

// next tells whether there is a field that is not null.
func (r *reader) next() bool {
	if r.n == 0 {
		return false
	}
	r.n--
	if r.i < len(r.b) && r.b[r.i] == fmtNull {
		r.i++
		return false
	}
	return true
}

// wrong reports the field at i, which is broken or not of the type that is wanted.
func (r *reader) wrong(field, want string) {
	if next, bad := skip(r.b, r.i); bad != "" {
		r.fail(next, field, bad)
		return
	}
	r.fail(r.i, field, "not a "+want)
}

func (r *reader) boolean(field string) (v, ok bool) {
	if !r.next() {
		return false, false
	}
	if b := r.b[r.i:]; len(b) > 0 {
		switch {
		case b[0] == fmtTrue:
			r.i++
			return true, true
		case b[0] == fmtFalse:
			r.i++
			return false, true
		case b[0] == fmtBool && len(b) > 1 && b[1] <= 1:
			r.i += 2
			return b[1] == 1, true
		}
	}
	r.wrong(field, "boolean")
	return false, false
}

func (r *reader) uint8(field string) (v uint8, ok bool) {
	if !r.next() {
		return 0, false
	}
	if b := r.b[r.i:]; len(b) > 1 && b[0] == fmtUbyte {
		r.i += 2
		return b[1], true
	}
	r.wrong(field, "ubyte")
	return 0, false
}

// choice is uint8 for a restricted type whose values are 0 to most.
func (r *reader) choice(field string, most uint8) (v uint8, ok bool) {
	at := r.i
	if v, ok = r.uint8(field); v > most {
		r.fail(at, field, "value is not defined")
	}
	return v, ok
}

func (r *reader) uint16(field string) (v uint16, ok bool) {
	if !r.next() {
		return 0, false
	}
	if b := r.b[r.i:]; len(b) > 2 && b[0] == fmtUshort {
		r.i += 3
		return binary.BigEndian.Uint16(b[1:]), true
	}
	r.wrong(field, "ushort")
	return 0, false
}

func (r *reader) uint32(field string) (v uint32, ok bool) {
	if !r.next() {
		return 0, false
	}
	if b := r.b[r.i:]; len(b) > 0 {
		switch {
		case b[0] == fmtUint0:
			r.i++
			return 0, true
		case b[0] == fmtSmallUint && len(b) > 1:
			r.i += 2
			return uint32(b[1]), true
		case b[0] == fmtUint && len(b) > 4:
			r.i += 5
			return binary.BigEndian.Uint32(b[1:]), true
		}
	}
	r.wrong(field, "uint")
	return 0, false
}

func (r *reader) uint64(field string) (v uint64, ok bool) {
	if !r.next() {
		return 0, false
	}
	if b := r.b[r.i:]; len(b) > 0 {
		switch {
		case b[0] == fmtUlong0:
			r.i++
			return 0, true
		case b[0] == fmtSmallUlong && len(b) > 1:
			r.i += 2
			return uint64(b[1]), true
		case b[0] == fmtUlong && len(b) > 8:
			r.i += 9
			return binary.BigEndian.Uint64(b[1:]), true
		}
	}
	r.wrong(field, "ulong")
	return 0, false
}

func (r *reader) timestamp(field string) (v Timestamp, ok bool) {
	if !r.next() {
		return 0, false
	}
	if b := r.b[r.i:]; len(b) > 8 && b[0] == fmtTimestamp {
		r.i += 9
		return Timestamp(binary.BigEndian.Uint64(b[1:])), true
	}
	r.wrong(field, "timestamp")
	return 0, false
}

// bytes gives the content of a variable-width value of the 8-bit format code narrow, or of its 32-bit form. It aliases.
func (r *reader) bytes(field string, narrow byte, want string) (v []byte, ok bool) {
	if !r.next() {
		return nil, false
	}
	v, next, ok := variable(r.b, r.i, narrow)
	if !ok {
		r.wrong(field, want)
		return nil, false
	}
	r.i = next
	return v, true
}

// variable reads a variable-width value of one type; ok is false for any other type and for one cut short.
func variable(b []byte, i int, narrow byte) (v []byte, next int, ok bool) {
	if i >= len(b) {
		return nil, i, false
	}
	switch left := len(b) - i; {
	case b[i] == narrow && left > 1 && int(b[i+1]) <= left-2:
		next = i + 2 + int(b[i+1])
		return b[i+2 : next : next], next, true
	case b[i] == narrow|0x10 && left > 4 && uint64(binary.BigEndian.Uint32(b[i+1:])) <= uint64(left-5):
		next = i + 5 + int(binary.BigEndian.Uint32(b[i+1:]))
		return b[i+5 : next : next], next, true
	}
	return nil, i, false
}

func (r *reader) binary(field string) (v []byte, ok bool) { return r.bytes(field, fmtBin8, "binary") }

// copied is binary as a copy that is not nil.
func (r *reader) copied(field string) (v []byte, ok bool) {
	v, ok = r.binary(field)
	if ok {
		v = append(make([]byte, 0, len(v)), v...)
	}
	return v, ok
}

func (r *reader) string(field string) (v string, ok bool) {
	b, ok := r.bytes(field, fmtStr8, "string")
	if ok && !utf8.Valid(b) {
		r.fail(r.i-len(b), field, badUTF8)
		return "", false
	}
	return string(b), ok
}

func (r *reader) symbol(field string) (v Symbol, ok bool) {
	b, ok := r.bytes(field, fmtSym8, "symbol")
	if ok && !isASCII(b) {
		r.fail(r.i-len(b), field, badASCII)
		return "", false
	}
	return Symbol(b), ok
}

// isUTF8 is utf8.Valid with less ado for short ASCII, which nearly all addresses are: eight bytes at a time, and the last
// eight once more. With utf8.Valid alone, a third of ScanHead was spent in it.
func isUTF8(b []byte) bool {
	if len(b) < 8 {
		return utf8.Valid(b)
	}
	high := binary.LittleEndian.Uint64(b[len(b)-8:])
	for i := 0; i+8 <= len(b); i += 8 {
		high |= binary.LittleEndian.Uint64(b[i:])
	}
	return high&0x8080808080808080 == 0 || utf8.Valid(b)
}

func isASCII[T []byte | string](s T) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// symbols reads a field with multiple="true": null, one symbol, or an array of them (AMQP 1.0 part 1, 1.4).
func (r *reader) symbols(field string) []Symbol {
	if r.n == 0 || r.i >= len(r.b) || (r.b[r.i] != fmtArray8 && r.b[r.i] != fmtArray32) {
		if v, ok := r.symbol(field); ok {
			return []Symbol{v}
		}
		return nil
	}
	r.n--
	at := r.i
	first, count, end, bad := array(r.b, at)
	if bad != "" {
		r.fail(at, field, bad)
		return nil
	}
	code := r.b[first]
	if code != fmtSym8 && code != fmtSym32 {
		r.fail(first, field, "not an array of symbols")
		return nil
	}
	i := first + 1
	out := make([]Symbol, 0, min(count, prealloc))
	for range count {
		// An element is a value without its constructor, which is put back for it.
		n, width := 0, 1
		if code == fmtSym8 && i < end {
			n = int(r.b[i])
		} else if width = 4; code == fmtSym32 && i+4 <= end {
			n = int(min(binary.BigEndian.Uint32(r.b[i:]), maxInt))
		} else {
			r.fail(i, field, badCount)
			return nil
		}
		i += width
		if n > end-i {
			r.fail(i, field, badShort)
			return nil
		}
		v := r.b[i : i+n]
		if !isASCII(v) {
			r.fail(i, field, badASCII)
			return nil
		}
		out = append(out, Symbol(v))
		i += n
	}
	if i != end {
		r.fail(i, field, "bytes left after the last element")
		return nil
	}
	r.i = end
	return out
}

// raw gives the encoded value as it is. It aliases.
func (r *reader) raw(field string) (v []byte) {
	if !r.next() {
		return nil
	}
	next, bad := skip(r.b, r.i)
	if bad != "" {
		r.fail(next, field, bad)
		return nil
	}
	v = r.b[r.i:next:next]
	r.i = next
	return v
}

// state is raw for what must be a described value.
func (r *reader) state(field string) (v []byte) {
	at := r.i
	if v = r.raw(field); v != nil && v[0] != fmtDescribed {
		r.fail(at, field, "not a described value")
		return nil
	}
	return v
}

// any decodes a value of any type; nil where there is none.
func (r *reader) any(field string) (v any) {
	if !r.next() {
		return nil
	}
	d := decoder{b: r.b, depth: maxDepth, zero: maxZeroWidth}
	v, next, err := d.value(r.i, 0)
	if err != nil {
		r.failWith(field, err)
		return nil
	}
	r.i = next
	return v
}

func (r *reader) failWith(field string, err *DecodeError) {
	r.fail(err.Offset, field, err.What)
	r.err.Short = err.Short
}

// fields decodes a map; nil where there is none.
func (r *reader) fields(field string) Map {
	if r.n > 0 && r.i < len(r.b) {
		switch r.b[r.i] {
		case fmtNull, fmtMap8, fmtMap32:
		default:
			r.wrong(field, "map")
			return nil
		}
	}
	m, _ := r.any(field).(Map)
	return m
}

// composite begins with the field as a composite of its own. The caller ends it with adopt.
func (r *reader) composite(field string, code uint64, name string, fields int) (sub reader, ok bool) {
	if !r.next() {
		return sub, false
	}
	if _, bad := skip(r.b, r.i); bad != "" {
		r.wrong(field, "")
		return sub, false
	}
	if sub, ok = withoutSurplus(r.b, r.i, code, fields); ok {
		sub.name = r.name + ": " + name
		return sub, true
	}
	sub = readComposite(r.b, r.i, code, r.name+": "+name, fields)
	return sub, true
}

// withoutSurplus begins with a composite that has more fields than are defined, where those too many are null: some peers answer
// with a terminus that was a source before. ok is false for all others.
func withoutSurplus(b []byte, i int, code uint64, fields int) (sub reader, ok bool) {
	got, next, bad := descriptor(b, i)
	if bad != "" || got != code {
		return sub, false
	}
	start, count, end, bad := listHead(b, next)
	surplus := count - fields
	if bad != "" || surplus <= 0 || surplus > end-start {
		return sub, false
	}
	for _, x := range b[end-surplus : end] {
		if x != fmtNull {
			return sub, false
		}
	}
	return reader{b: b[:end-surplus], i: start, n: fields, surplus: surplus}, true
}

// adopt goes on behind sub.
func (r *reader) adopt(sub *reader) {
	if _, err := sub.done(sub.b); err != nil {
		r.err = sub.err
		r.n, r.i = 0, len(r.b)
		return
	}
	r.i = len(sub.b) + sub.surplus
}

func (r *reader) error(field string) *Error {
	sub, ok := r.composite(field, CodeError, "error", 3)
	if !ok {
		return nil
	}
	e := &Error{}
	e.read(&sub)
	r.adopt(&sub)
	return e
}

func (e *Error) read(r *reader) {
	var ok bool
	e.Condition, ok = r.symbol("condition")
	r.need("condition", ok)
	e.Description, _ = r.string("description")
	e.Info = r.fields("info")
}
