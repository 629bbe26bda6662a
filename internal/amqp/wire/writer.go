package wire

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// writer appends one composite: trailing nulls are left out and the shortest form of the list is used.
type writer struct {
	b      []byte
	list   int // where the list's constructor is
	n      int // fields so far
	keepN  int // fields up to the last that is not null
	keepAt int // and where that one ends
}

// listRoom is the size of the head of a list32, map32 or array32, and listHead32 such a head, for closeCompound to fill in.
const (
	listRoom   = 9
	listHead32 = "\xd0\x00\x00\x00\x00\x00\x00\x00\x00"
)

// appendDescriptor appends the constructor of a described value. Codes of the specification fit a smallulong.
func appendDescriptor(dst []byte, code byte) []byte {
	return append(dst, fmtDescribed, fmtSmallUlong, code)
}

func writeComposite(dst []byte, code byte) writer {
	b := appendDescriptor(dst, code)
	w := writer{b: append(b, listHead32...), list: len(b)}
	w.keepAt = len(w.b)
	return w
}

// done gives what was appended.
func (w *writer) done() []byte {
	w.b = w.b[:w.keepAt]
	if w.keepN == 0 {
		return append(w.b[:w.list], fmtList0)
	}
	return closeCompound(w.b, w.list, w.keepN, fmtList8)
}

// closeCompound ends the list, map or array that begins at at with listRoom bytes reserved: it takes the 8-bit form, of
// format code narrow, where size and count fit.
func closeCompound(b []byte, at, count int, narrow byte) []byte {
	size := len(b) - at - listRoom
	if size+1 <= 255 && count <= 255 {
		b[at], b[at+1], b[at+2] = narrow, byte(size+1), byte(count)
		copy(b[at+3:], b[at+listRoom:])
		return b[:at+3+size]
	}
	b[at] = narrow | 0x10
	binary.BigEndian.PutUint32(b[at+1:], uint32(size+4))
	binary.BigEndian.PutUint32(b[at+5:], uint32(count))
	return b
}

// wrote takes b as the output with one more field in it.
func (w *writer) wrote(b []byte) {
	w.b = b
	w.n++
	w.keepN, w.keepAt = w.n, len(b)
}

func (w *writer) null() {
	w.b = append(w.b, fmtNull)
	w.n++
}

func (w *writer) boolean(v, present bool) {
	if !present {
		w.null()
		return
	}
	w.wrote(appendBool(w.b, v))
}

func (w *writer) uint8(v uint8, present bool) {
	if !present {
		w.null()
		return
	}
	w.wrote(append(w.b, fmtUbyte, v))
}

func (w *writer) uint16(v uint16, present bool) {
	if !present {
		w.null()
		return
	}
	w.wrote(append(w.b, fmtUshort, byte(v>>8), byte(v)))
}

func (w *writer) uint32(v uint32, present bool) {
	if !present {
		w.null()
		return
	}
	w.wrote(appendUint(w.b, v))
}

func (w *writer) uint64(v uint64, present bool) {
	if !present {
		w.null()
		return
	}
	w.wrote(appendUlong(w.b, v))
}

func (w *writer) timestamp(v Timestamp, present bool) {
	if !present {
		w.null()
		return
	}
	w.wrote(binary.BigEndian.AppendUint64(append(w.b, fmtTimestamp), uint64(v)))
}

func (w *writer) string(v string, present bool) {
	if !present {
		w.null()
		return
	}
	if !utf8.ValidString(v) {
		v = strings.ToValidUTF8(v, "\uFFFD") // a peer would end the connection for it
	}
	w.wrote(appendVariable(w.b, fmtStr8, v))
}

func (w *writer) symbol(v Symbol, present bool) {
	if !present {
		w.null()
		return
	}
	w.wrote(appendSymbol(w.b, v))
}

func (w *writer) binary(v []byte, present bool) {
	if !present {
		w.null()
		return
	}
	w.wrote(appendVariable(w.b, fmtBin8, v))
}

// symbols writes null for none, and an array otherwise.
func (w *writer) symbols(v []Symbol) {
	if len(v) == 0 {
		w.null()
		return
	}
	w.wrote(appendSymbols(w.b, v))
}

func (w *writer) raw(v []byte) {
	if len(v) == 0 {
		w.null()
		return
	}
	w.wrote(append(w.b, v...))
}

// any writes a value. One that AppendValue refuses is written as null.
func (w *writer) any(v any) {
	if v == nil {
		w.null()
		return
	}
	b, err := AppendValue(w.b, v)
	if err != nil {
		w.null()
		return
	}
	w.wrote(b)
}

func (w *writer) fields(m Map) {
	if m == nil {
		w.null()
		return
	}
	w.any(m)
}

func (w *writer) error(e *Error) {
	if e == nil {
		w.null()
		return
	}
	w.wrote(e.Append(w.b))
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, fmtTrue)
	}
	return append(dst, fmtFalse)
}

func appendUint(dst []byte, v uint32) []byte {
	switch {
	case v == 0:
		return append(dst, fmtUint0)
	case v < 256:
		return append(dst, fmtSmallUint, byte(v))
	}
	return append(dst, fmtUint, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

func appendUlong(dst []byte, v uint64) []byte {
	switch {
	case v == 0:
		return append(dst, fmtUlong0)
	case v < 256:
		return append(dst, fmtSmallUlong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, fmtUlong), v)
}

// appendVariable appends a variable-width value by the 8-bit format code of its type, in the form that fits.
func appendVariable[T string | Symbol | []byte](dst []byte, narrow byte, v T) []byte {
	if len(v) < 256 {
		return append(append(dst, narrow, byte(len(v))), v...)
	}
	dst = binary.BigEndian.AppendUint32(append(dst, narrow|0x10), uint32(len(v)))
	return append(dst, v...)
}

// appendSymbol writes '?' for what is not ASCII.
func appendSymbol(dst []byte, v Symbol) []byte {
	return appendVariable(dst, fmtSym8, asciiOnly(v))
}

func asciiOnly(v Symbol) Symbol {
	if isASCII(string(v)) {
		return v
	}
	b := []byte(v)
	for i, c := range b {
		if c >= 0x80 {
			b[i] = '?'
		}
	}
	return Symbol(b)
}

func appendSymbols(dst []byte, v []Symbol) []byte {
	at := len(dst)
	narrow := byte(fmtSym8)
	for _, s := range v {
		if len(s) > 255 {
			narrow = fmtSym32
		}
	}
	dst = append(dst, listHead32...)
	dst = append(dst, narrow)
	for _, s := range v {
		s = asciiOnly(s)
		if narrow == fmtSym8 {
			dst = append(dst, byte(len(s)))
		} else {
			dst = binary.BigEndian.AppendUint32(dst, uint32(len(s)))
		}
		dst = append(dst, s...)
	}
	return closeCompound(dst, at, len(v), fmtArray8)
}
