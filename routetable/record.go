package routetable

import (
	"encoding/binary"
	"math"
	"time"
	"unsafe"
)

// record is a row as bytes: what the table holds of it, what the journal and a snapshot of the table on disk hold, and what the history
// remembers. It has no pointers, so that a million rows cost the garbage collector nothing. All numbers are little endian.
//
//	 0  u32 size of the record, a multiple of 8
//	 4  u32 slot, and
//	 8  u32 serial: together the id
//	12  i32 order
//	16  i64 position
//	24  u32 hash of the address in normalised form
//	28  u8 pick, u8 balance, u8 flags, u8 unused
//	32  u32 length of the pattern
//	36  u32 length of the address
//	40  u32 length of the origin; 0 is operator
//	44  pattern, address, origin, then columns that few rows have: a tag, and a number or a text behind its length
type record []byte

const recordHeader = 44

// The flags.
const (
	recFallback = 1 << iota
	recOptional
	recDynamicHost
	recWhen // the row has a predicate
	recWild // the pattern is not its one literal address
)

// The tags of columns behind the texts.
const (
	tagEnd = iota // padding
	tagWeight
	tagHashKey
	tagWhen
	tagTimeout
	tagRetry
	tagNote
	tagName
	tagLine
	tagColumn
)

func (b record) u32(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }

func (b record) size() int       { return int(b.u32(0)) }
func (b record) slot() uint32    { return b.u32(4) }
func (b record) id() uint64      { return uint64(b.u32(8))<<32 | uint64(b.u32(4)) }
func (b record) order() int      { return int(int32(b.u32(12))) }
func (b record) pos() int64      { return int64(binary.LittleEndian.Uint64(b[16:])) }
func (b record) keyHash() uint32 { return b.u32(24) }
func (b record) pick() Pick      { return Pick(b[28]) }
func (b record) flags() uint8    { return b[30] }

// text is the string that the bytes are; they never change.
func (b record) text(from, n int) string {
	if n == 0 {
		return ""
	}
	return unsafe.String(&b[from], n)
}

func (b record) pattern() string { return b.text(recordHeader, int(b.u32(32))) }

func (b record) address() string { return b.text(recordHeader+int(b.u32(32)), int(b.u32(36))) }

func (b record) origin() string {
	n := int(b.u32(40))
	if n == 0 {
		return OriginOperator
	}
	return b.text(recordHeader+int(b.u32(32))+int(b.u32(36)), n)
}

// tail is what stands behind the texts.
func (b record) tail() []byte {
	return b[recordHeader+int(b.u32(32))+int(b.u32(36))+int(b.u32(40)):]
}

// keyHash32 is the hash of a normalised address that records hold. It is the same in every process.
func keyHash32(key string) uint32 {
	h := uint32(2166136261)
	for i := 0; i < len(key); i++ {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return h
}

// appendRecord appends the record of a compiled row.
func appendRecord(dst []byte, r *Route) []byte {
	start := len(dst)
	var head [recordHeader]byte
	le := binary.LittleEndian
	le.PutUint64(head[4:], r.ID)
	le.PutUint32(head[12:], uint32(int32(r.Order)))
	le.PutUint64(head[16:], uint64(r.pos))
	le.PutUint32(head[24:], keyHash32(r.c.key))
	head[28], head[29] = byte(r.Pick), byte(r.Balance)
	for _, f := range [...]struct {
		is   bool
		flag byte
	}{{r.Fallback, recFallback}, {r.Optional, recOptional}, {r.DynamicHost, recDynamicHost}, {r.When != "", recWhen}, {!r.c.pattern.plain(), recWild}} {
		if f.is {
			head[30] |= f.flag
		}
	}
	origin := r.Origin
	if origin == OriginOperator {
		origin = ""
	}
	le.PutUint32(head[32:], uint32(len(r.Pattern)))
	le.PutUint32(head[36:], uint32(len(r.Address)))
	le.PutUint32(head[40:], uint32(len(origin)))
	dst = append(dst, head[:]...)
	dst = append(dst, r.Pattern...)
	dst = append(dst, r.Address...)
	dst = append(dst, origin...)
	number := func(tag byte, n int64) {
		if n != 0 {
			dst = binary.AppendVarint(append(dst, tag), n)
		}
	}
	text := func(tag byte, s string) {
		if s != "" {
			dst = binary.AppendUvarint(append(dst, tag), uint64(len(s)))
			dst = append(dst, s...)
		}
	}
	number(tagWeight, int64(r.Weight))
	text(tagHashKey, r.HashKey)
	text(tagWhen, r.When)
	number(tagTimeout, int64(r.Timeout))
	number(tagRetry, int64(r.Retry)+1)
	text(tagNote, r.Note)
	text(tagName, r.Name)
	number(tagLine, int64(r.line))
	number(tagColumn, int64(r.column))
	for (len(dst)-start)%8 != 0 {
		dst = append(dst, tagEnd)
	}
	le.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}

// readRecord checks the frame of the record at the start of b, which may be anything, and cuts it off. What texts say is not checked.
func readRecord(b []byte) (rec record, rest []byte, ok bool) {
	if len(b) < recordHeader {
		return nil, nil, false
	}
	rec = record(b)
	size := int64(rec.u32(0))
	texts := int64(rec.u32(32)) + int64(rec.u32(36)) + int64(rec.u32(40))
	if size%8 != 0 || size > int64(len(b)) || recordHeader+texts > size {
		return nil, nil, false
	}
	if int64(rec.u32(32)) > MaxTextBytes || int64(rec.u32(36)) > MaxTextBytes || int64(rec.u32(40)) > MaxTextBytes {
		return nil, nil, false
	}
	return rec[:size:size], b[size:], true
}

// row fills r with the columns of the record; nothing is compiled. It reports whether the record is well formed.
func (b record) row(r *Route) bool {
	flags := b.flags()
	*r = Route{
		Pattern: b.pattern(), Address: b.address(), Origin: b.origin(), Pick: Pick(b[28]), Balance: Balance(b[29]), Order: b.order(),
		Fallback: flags&recFallback != 0, Optional: flags&recOptional != 0, DynamicHost: flags&recDynamicHost != 0,
		Retry: -1, ID: b.id(), pos: b.pos(),
	}
	rest := record(b.tail())
	for len(rest) > 0 {
		tag := rest[0]
		rest = rest[1:]
		switch tag {
		case tagEnd:
			continue
		case tagHashKey, tagWhen, tagNote, tagName:
			n, used := binary.Uvarint(rest)
			if used <= 0 || n > uint64(len(rest)-used) {
				return false
			}
			s := rest.text(used, int(n))
			rest = rest[used+int(n):]
			switch tag {
			case tagHashKey:
				r.HashKey = s
			case tagWhen:
				r.When = s
			case tagNote:
				r.Note = s
			case tagName:
				r.Name = s
			}
		case tagWeight, tagTimeout, tagRetry, tagLine, tagColumn:
			n, used := binary.Varint(rest)
			if used <= 0 || n > math.MaxInt || n < math.MinInt {
				return false
			}
			rest = rest[used:]
			switch tag {
			case tagWeight:
				r.Weight = int(n)
			case tagTimeout:
				r.Timeout = time.Duration(n)
			case tagRetry:
				r.Retry = int(n) - 1
			case tagLine:
				r.line = int(n)
			case tagColumn:
				r.column = int(n)
			}
		default:
			return false
		}
	}
	return int(r.Pick) < len(pickNames) && int(r.Balance) < len(balanceNames)
}
