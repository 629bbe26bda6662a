package mesh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// The major types of CBOR (RFC 8949, 3.1).
const (
	majorUint   = 0
	majorNegInt = 1
	majorBytes  = 2
	majorText   = 3
	majorArray  = 4
	majorMap    = 5
	majorTag    = 6
	majorOther  = 7
)

const (
	cborNull  = 0xf6
	cborUndef = 0xf7
	cborBreak = 0xff
	cborF64   = 0xfb
	cborTrue  = 0xf5
	cborFalse = 0xf4
)

// maxDepth bounds how deep items may nest.
const maxDepth = 128

var (
	errShort = errors.New("it ends too early")
	errDepth = fmt.Errorf("items nest deeper than %d", maxDepth)
)

// head is the beginning of an item: its major type and its argument, which is a number, a length or a count.
type head struct {
	major  byte
	info   byte // the low five bits
	arg    uint64
	indef  bool // no length is given: items or pieces follow up to a break
	length int  // of the head
}

// readHead reads the head at the beginning of b. It is given nothing that is not there: a length is checked by who uses it.
func readHead(b []byte) (h head, err error) {
	if len(b) == 0 {
		return h, errShort
	}
	h.major, h.info, h.length = b[0]>>5, b[0]&31, 1
	switch {
	case h.info < 24:
		h.arg = uint64(h.info)
		return h, nil
	case h.info == 31:
		h.indef = true
		if h.major == majorUint || h.major == majorNegInt || h.major == majorTag {
			return h, errors.New("an item of this kind has a length")
		}
		return h, nil
	case h.info > 27:
		return h, fmt.Errorf("byte %#02x begins no item", b[0])
	}
	n := 1 << (h.info - 24)
	if len(b) < 1+n {
		return h, errShort
	}
	h.length += n
	switch n {
	case 1:
		h.arg = uint64(b[1])
	case 2:
		h.arg = uint64(binary.BigEndian.Uint16(b[1:]))
	case 4:
		h.arg = uint64(binary.BigEndian.Uint32(b[1:]))
	default:
		h.arg = binary.BigEndian.Uint64(b[1:])
	}
	return h, nil
}

// skipItem gives the length of the item at the beginning of b, which is well formed. It allocates nothing, and looks at each byte of heads once: a count
// that the rest of b cannot hold is refused before it is believed.
func skipItem(b []byte) (int, error) { return skipNested(b, 0) }

func skipNested(b []byte, depth int) (int, error) {
	h, err := readHead(b)
	if err != nil {
		return 0, err
	}
	rest := uint64(len(b) - h.length)
	switch {
	case depth > maxDepth:
		return 0, errDepth
	case h.major == majorOther:
		return skipSimple(h)
	case h.major == majorBytes || h.major == majorText:
		if h.indef {
			return skipPieces(b, h)
		}
		if h.arg > rest {
			return 0, errShort
		}
		return h.length + int(h.arg), nil
	case h.major < majorBytes:
		return h.length, nil
	}
	items := h.arg
	switch {
	case h.major == majorTag:
		items = 1
	case h.indef:
		return skipUntilBreak(b, h, depth)
	case h.major == majorMap:
		if items > rest/2 {
			return 0, errShort
		}
		items *= 2
	}
	if items > rest { // each has a byte at least
		return 0, errShort
	}
	at := h.length
	for range items {
		n, err := skipNested(b[at:], depth+1)
		if err != nil {
			return 0, err
		}
		at += n
	}
	return at, nil
}

func skipSimple(h head) (int, error) {
	switch {
	case h.indef:
		return 0, errors.New("a break where an item is due")
	case h.info == 24 && h.arg < 32:
		return 0, errors.New("a simple value in two bytes that has one")
	}
	return h.length, nil
}

// skipPieces skips a string that comes in pieces.
func skipPieces(b []byte, h head) (int, error) {
	for at := h.length; ; {
		if at >= len(b) {
			return 0, errShort
		}
		if b[at] == cborBreak {
			return at + 1, nil
		}
		p, err := readHead(b[at:])
		switch {
		case err != nil:
			return 0, err
		case p.major != h.major || p.indef:
			return 0, errors.New("a piece of a string is of another kind")
		case p.arg > uint64(len(b)-at-p.length):
			return 0, errShort
		}
		at += p.length + int(p.arg)
	}
}

func skipUntilBreak(b []byte, h head, depth int) (int, error) {
	at := h.length
	for n := 0; ; n++ {
		if at >= len(b) {
			return 0, errShort
		}
		if b[at] == cborBreak {
			if h.major == majorMap && n%2 == 1 {
				return 0, errors.New("a map ends behind a key")
			}
			return at + 1, nil
		}
		size, err := skipNested(b[at:], depth+1)
		if err != nil {
			return 0, err
		}
		at += size
	}
}

// readText reads a text of a known length. What is given is part of b.
func readText(b []byte) (text []byte, n int, err error) {
	h, err := readHead(b)
	switch {
	case err != nil:
		return nil, 0, err
	case h.major != majorText || h.indef:
		return nil, 0, errors.New("a text of known length is wanted")
	case h.arg > uint64(len(b)-h.length):
		return nil, 0, errShort
	}
	n = h.length + int(h.arg)
	if text = b[h.length:n]; !utf8.Valid(text) {
		return nil, 0, errors.New("a text is not UTF-8")
	}
	return text, n, nil
}

// readBytes reads a byte string of a known length, under a tag or not.
func readBytes(b []byte) (p []byte, n int, err error) {
	at := 0
	h, err := readHead(b)
	if err == nil && h.major == majorTag {
		at = h.length
		h, err = readHead(b[at:])
	}
	switch {
	case err != nil:
		return nil, 0, err
	case h.major != majorBytes || h.indef:
		return nil, 0, errors.New("a byte string of known length is wanted")
	case h.arg > uint64(len(b)-at-h.length):
		return nil, 0, errShort
	}
	n = at + h.length + int(h.arg)
	return b[at+h.length : n], n, nil
}

// readUint reads an unsigned integer.
func readUint(b []byte) (v uint64, n int, err error) {
	h, err := readHead(b)
	if err == nil && h.major != majorUint {
		err = errors.New("an unsigned integer is wanted")
	}
	return h.arg, h.length, err
}

// isNull reports whether the item is null or undefined.
func isNull(b []byte) bool { return len(b) == 1 && (b[0] == cborNull || b[0] == cborUndef) }

// appendHead appends the shortest head.
func appendHead(b []byte, major byte, arg uint64) []byte {
	m := major << 5
	switch {
	case arg < 24:
		return append(b, m|byte(arg))
	case arg <= math.MaxUint8:
		return append(b, m|24, byte(arg))
	case arg <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, m|25), uint16(arg))
	case arg <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, m|26), uint32(arg))
	}
	return binary.BigEndian.AppendUint64(append(b, m|27), arg)
}

func appendText[T ~string | ~[]byte](b []byte, s T) []byte {
	return append(appendHead(b, majorText, uint64(len(s))), s...)
}

func appendBytes(b, p []byte) []byte { return append(appendHead(b, majorBytes, uint64(len(p))), p...) }

func appendFloat(b []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, cborF64), math.Float64bits(f))
}

// appendWide appends an unsigned integer of eight bytes.
func appendWide(b []byte, v uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, majorUint<<5|27), v)
}
