package wire

import (
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"
)

// mapSection reads the head of a map that may be described: a section, or a bare map.
func mapSection(section []byte) (first, count, end int, err error) {
	i := 0
	bad := ""
	if len(section) > 0 && section[0] == fmtDescribed {
		if _, i, bad = descriptor(section, 0); bad != "" {
			return 0, 0, 0, failed(i, bad)
		}
	}
	first, count, end, bad = mapHead(section, i)
	if bad != "" {
		return 0, 0, 0, failed(i, bad)
	}
	return first, count, end, nil
}

// findEntry gives the offsets of the value of the first entry whose key is key, as a symbol or string. at is 0 where there
// is none.
func findEntry(b []byte, i, count, end int, key string) (at, next int, err error) {
	b = b[:end]
	for range count / 2 {
		k, v, ok := text(b, i)
		hit := ok && string(k) == key
		bad := ""
		if !ok {
			if v, bad = skip(b, i); bad != "" {
				return 0, 0, failed(v, inList(bad))
			}
		}
		if i, bad = skip(b, v); bad != "" {
			return 0, 0, failed(i, inList(bad))
		}
		if hit {
			return v, i, nil
		}
	}
	if i != end {
		return 0, 0, failed(i, "bytes left after the last entry")
	}
	return 0, 0, nil
}

// text gives the content of the symbol or string at i.
func text(b []byte, i int) (v []byte, next int, ok bool) {
	if v, next, ok = variable(b, i, fmtSym8); !ok {
		v, next, ok = variable(b, i, fmtStr8)
	}
	return v, next, ok
}

// LookupAnnotation gives the encoded value of the first entry whose key is the symbol (or string) key. section is a whole
// annotations section or its map alone; an empty one has no entries. raw aliases it.
//
// Cost: 10 to 20 ns for each entry passed over; no allocation.
func LookupAnnotation(section []byte, key string) (raw []byte, ok bool, err error) {
	if len(section) == 0 {
		return nil, false, nil
	}
	i, count, end, err := mapSection(section)
	if err != nil {
		return nil, false, err
	}
	at, next, err := findEntry(section, i, count, end, key)
	if err != nil || at == 0 {
		return nil, false, err
	}
	return section[at:next:next], true, nil
}

// AppendMapWithEntry appends a copy of an annotations section in which the symbol key has the encoded value raw. Where
// the key is there already, its first entry gets the value in place; otherwise an entry is added at the end. Where raw is
// nil the first entry is left out, and a section that has no entry then is not appended at all. Every other entry is kept
// byte for byte and in order, and so is the descriptor. The map takes the 8-bit form if it fits.
//
// section may be empty: a section of the descriptor code is made. An error leaves dst as it was.
func AppendMapWithEntry(dst, section []byte, code uint64, key string, raw []byte) ([]byte, error) {
	first, count, end, desc := 0, 0, 0, 0
	if len(section) > 0 {
		var err error
		if first, count, end, err = mapSection(section); err != nil {
			return dst, err
		}
		if section[0] == fmtDescribed {
			_, desc, _ = descriptor(section, 0)
		}
	}
	at, next, err := findEntry(section, first, count, end, key)
	if err != nil {
		return dst, err
	}
	before, after := section[first:end], []byte(nil)
	keyAt := 0
	if at != 0 {
		if keyAt, err = entryBefore(section[:end], first, at); err != nil {
			return dst, err
		}
		before, after = section[first:at], section[next:end]
	}
	switch {
	case at != 0 && raw == nil:
		before = section[first:keyAt]
		count -= 2
	case at == 0 && raw != nil:
		count += 2
	}
	if count == 0 {
		return dst, nil
	}
	out := dst
	if len(section) == 0 {
		out = append(out, fmtDescribed)
		out = appendUlong(out, code)
	}
	out = append(out, section[:desc]...)
	list := len(out)
	out = append(out, listHead32...)
	out = append(out, before...)
	if at == 0 && raw != nil {
		out = appendVariable(out, fmtSym8, key)
	}
	out = append(out, raw...)
	out = append(out, after...)
	return closeCompound(out, list, count, fmtMap8), nil
}

// entryBefore gives the offset of the key whose value is at at.
func entryBefore(b []byte, i, at int) (int, error) {
	for {
		v, bad := skip(b, i)
		if bad == "" && v == at {
			return i, nil
		}
		if bad == "" {
			i, bad = skip(b, v)
		}
		if bad != "" {
			return 0, failed(i, bad)
		}
	}
}

// ApplicationProperty gives the canonical text of an application property: of a string, symbol or binary its content, of a
// boolean true or false, of a number its shortest decimal form, of a timestamp its milliseconds, of a uuid 8-4-4-4-12, of a
// char itself. ok is false for a property that is absent, null, a decimal or not a scalar.
func ApplicationProperty(section []byte, key string) (text string, ok bool, err error) {
	var buf [64]byte
	b, ok, err := AppendApplicationProperty(buf[:0], section, key)
	return string(b), ok, err
}

// AppendApplicationProperty appends the text of ApplicationProperty to dst, without allocating while dst has room.
func AppendApplicationProperty(dst, section []byte, key string) (out []byte, ok bool, err error) {
	raw, ok, err := LookupAnnotation(section, key)
	if !ok || err != nil {
		return dst, false, err
	}
	out, ok = AppendText(dst, raw)
	return out, ok, nil
}

// AppendText appends the canonical text (see ApplicationProperty) of the encoded scalar raw. ok is false for anything else.
func AppendText(dst, raw []byte) (out []byte, ok bool) {
	if next, bad := skip(raw, 0); bad != "" || next != len(raw) {
		return dst, false
	}
	b := raw[1:]
	switch raw[0] {
	case fmtTrue:
		return append(dst, "true"...), true
	case fmtFalse:
		return append(dst, "false"...), true
	case fmtBool:
		return strconv.AppendBool(dst, b[0] != 0), true
	case fmtUint0, fmtUlong0:
		return append(dst, '0'), true
	case fmtUbyte, fmtSmallUint, fmtSmallUlong:
		return strconv.AppendUint(dst, uint64(b[0]), 10), true
	case fmtUshort:
		return strconv.AppendUint(dst, uint64(binary.BigEndian.Uint16(b)), 10), true
	case fmtUint:
		return strconv.AppendUint(dst, uint64(binary.BigEndian.Uint32(b)), 10), true
	case fmtUlong:
		return strconv.AppendUint(dst, binary.BigEndian.Uint64(b), 10), true
	case fmtByte, fmtSmallInt, fmtSmallLong:
		return strconv.AppendInt(dst, int64(int8(b[0])), 10), true
	case fmtShort:
		return strconv.AppendInt(dst, int64(int16(binary.BigEndian.Uint16(b))), 10), true
	case fmtInt:
		return strconv.AppendInt(dst, int64(int32(binary.BigEndian.Uint32(b))), 10), true
	case fmtLong, fmtTimestamp:
		return strconv.AppendInt(dst, int64(binary.BigEndian.Uint64(b)), 10), true
	case fmtFloat:
		return strconv.AppendFloat(dst, float64(math.Float32frombits(binary.BigEndian.Uint32(b))), 'g', -1, 32), true
	case fmtDouble:
		return strconv.AppendFloat(dst, math.Float64frombits(binary.BigEndian.Uint64(b)), 'g', -1, 64), true
	case fmtChar:
		return utf8.AppendRune(dst, rune(binary.BigEndian.Uint32(b))), true
	case fmtUUID:
		var text [36]byte
		UUID(b).put(&text)
		return append(dst, text[:]...), true
	case fmtBin8, fmtStr8, fmtSym8:
		return append(dst, b[1:]...), true
	case fmtBin32, fmtStr32, fmtSym32:
		return append(dst, b[4:]...), true
	}
	return dst, false
}

// propertyIndex gives the position of a property by its name in the specification (AMQP 1.0 part 3, 3.2.4); -1 for others.
func propertyIndex(name string) int {
	switch name {
	case "message-id":
		return 0
	case "user-id":
		return 1
	case "to":
		return 2
	case "subject":
		return 3
	case "reply-to":
		return 4
	case "correlation-id":
		return 5
	case "content-type":
		return 6
	case "content-encoding":
		return 7
	case "absolute-expiry-time":
		return 8
	case "creation-time":
		return 9
	case "group-id":
		return 10
	case "group-sequence":
		return 11
	case "reply-to-group-id":
		return 12
	}
	return -1
}

// LookupProperty gives the encoded value of a standard property by its name in the specification ("subject"). section is a
// properties section or its list alone; an empty one has no properties. ok is false for an absent or null property and for
// an unknown name. raw aliases section.
//
// Cost: 10 to 20 ns for each property passed over; no allocation.
func LookupProperty(section []byte, name string) (raw []byte, ok bool, err error) {
	index := propertyIndex(name)
	if len(section) == 0 || index < 0 {
		return nil, false, nil
	}
	i, bad := 0, ""
	if section[0] == fmtDescribed {
		if _, i, bad = descriptor(section, 0); bad != "" {
			return nil, false, failed(i, bad)
		}
	}
	at := i
	i, count, end, bad := listHead(section, i)
	if bad != "" {
		return nil, false, failed(at, bad)
	}
	if index >= count {
		return nil, false, nil
	}
	for in := section[:end]; ; index-- {
		next, bad := skip(in, i)
		if bad != "" {
			return nil, false, failed(next, inList(bad))
		}
		if index == 0 {
			return in[i:next:next], in[i] != fmtNull, nil
		}
		i = next
	}
}

// StandardProperty gives the canonical text (see ApplicationProperty) of a standard property by its name in the
// specification.
func StandardProperty(section []byte, name string) (text string, ok bool, err error) {
	raw, ok, err := LookupProperty(section, name)
	if !ok || err != nil {
		return "", false, err
	}
	var buf [64]byte
	b, ok := AppendText(buf[:0], raw)
	return string(b), ok, nil
}
