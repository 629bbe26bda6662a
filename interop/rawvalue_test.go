package interop

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The bytes of AMQP values (AMQP 1.0 part 1, 1.6), written by hand so that a mistake of the product's codec is not
// repeated by its test.

var null = []byte{0x40}

func boolean(b bool) []byte {
	if b {
		return []byte{0x41}
	}
	return []byte{0x42}
}

func ubyte(n byte) []byte { return []byte{0x50, n} }

func uint32v(n uint32) []byte {
	switch {
	case n == 0:
		return []byte{0x43}
	case n < 256:
		return []byte{0x52, byte(n)}
	}
	return binary.BigEndian.AppendUint32([]byte{0x70}, n)
}

func ulong(n uint64) []byte {
	switch {
	case n == 0:
		return []byte{0x44}
	case n < 256:
		return []byte{0x53, byte(n)}
	}
	return binary.BigEndian.AppendUint64([]byte{0x80}, n)
}

func str(s string) []byte     { return variable(0xa1, s) }
func sym(s string) []byte     { return variable(0xa3, s) }
func binaryv(b []byte) []byte { return variable(0xa0, string(b)) }

func variable(code byte, s string) []byte {
	if len(s) < 256 {
		return append([]byte{code, byte(len(s))}, s...)
	}
	b := binary.BigEndian.AppendUint32([]byte{code + 0x10}, uint32(len(s)))
	return append(b, s...)
}

func list(items ...[]byte) []byte {
	if len(items) == 0 {
		return []byte{0x45}
	}
	return compound(0xc0, len(items), join(items...))
}

func mapv(keysAndValues ...[]byte) []byte {
	return compound(0xc1, len(keysAndValues), join(keysAndValues...))
}

func compound(code byte, count int, body []byte) []byte {
	if count < 256 && len(body) < 255 {
		return append([]byte{code, byte(len(body) + 1), byte(count)}, body...)
	}
	b := binary.BigEndian.AppendUint32([]byte{code + 0x10}, uint32(len(body)+4))
	b = binary.BigEndian.AppendUint32(b, uint32(count))
	return append(b, body...)
}

func described(code uint64, value []byte) []byte { return join([]byte{0x00}, ulong(code), value) }

func composite(code uint64, fields ...[]byte) []byte { return described(code, list(fields...)) }

func join(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// Decoded values: nil, bool, uint64, int64, string, symbol, []byte, []any (list), pairs (map), tagged; what else there is
// stays as its bytes, opaque.
type (
	symbol string
	pairs  []any // key, value, key, value
	tagged struct{ descriptor, value any }
	opaque []byte
)

var errShort = errors.New("the value ends too early")

// measure gives the length of the value at the start of b.
func measure(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, errShort
	}
	if b[0] == 0 {
		d, err := measure(b[1:])
		if err != nil {
			return 0, err
		}
		v, err := measure(b[1+d:])
		return 1 + d + v, err
	}
	n := 0
	switch b[0] >> 4 {
	case 4:
		n = 1
	case 5:
		n = 2
	case 6:
		n = 3
	case 7:
		n = 5
	case 8:
		n = 9
	case 9:
		n = 17
	case 0xa, 0xc, 0xe:
		if len(b) < 2 {
			return 0, errShort
		}
		n = 2 + int(b[1])
	case 0xb, 0xd, 0xf:
		if len(b) < 5 {
			return 0, errShort
		}
		n = 5 + int(binary.BigEndian.Uint32(b[1:]))
	default:
		return 0, fmt.Errorf("no such format code: %#x", b[0])
	}
	if len(b) < n {
		return 0, errShort
	}
	return n, nil
}

// decode reads the value at the start of b.
func decode(b []byte) (value any, rest []byte, err error) {
	n, err := measure(b)
	if err != nil {
		return nil, nil, err
	}
	v, rest := b[:n], b[n:]
	switch v[0] {
	case 0x00:
		d, after, err := decode(v[1:])
		if err != nil {
			return nil, nil, err
		}
		inner, _, err := decode(after)
		return tagged{d, inner}, rest, err
	case 0x40:
		return nil, rest, nil
	case 0x41:
		return true, rest, nil
	case 0x42:
		return false, rest, nil
	case 0x56:
		return v[1] != 0, rest, nil
	case 0x43, 0x44:
		return uint64(0), rest, nil
	case 0x50, 0x52, 0x53:
		return uint64(v[1]), rest, nil
	case 0x60:
		return uint64(binary.BigEndian.Uint16(v[1:])), rest, nil
	case 0x70:
		return uint64(binary.BigEndian.Uint32(v[1:])), rest, nil
	case 0x80:
		return binary.BigEndian.Uint64(v[1:]), rest, nil
	case 0x54, 0x55:
		return int64(int8(v[1])), rest, nil
	case 0x71:
		return int64(int32(binary.BigEndian.Uint32(v[1:]))), rest, nil
	case 0x81:
		return int64(binary.BigEndian.Uint64(v[1:])), rest, nil
	case 0xa0:
		return v[2:], rest, nil
	case 0xb0:
		return v[5:], rest, nil
	case 0xa1:
		return string(v[2:]), rest, nil
	case 0xb1:
		return string(v[5:]), rest, nil
	case 0xa3:
		return symbol(v[2:]), rest, nil
	case 0xb3:
		return symbol(v[5:]), rest, nil
	case 0x45:
		return []any{}, rest, nil
	case 0xc0, 0xd0, 0xc1, 0xd1:
		items, err := decodeItems(v)
		if v[0]&0xf == 1 {
			return pairs(items), rest, err
		}
		return items, rest, err
	}
	return opaque(v), rest, nil
}

func decodeItems(v []byte) ([]any, error) {
	count, body := int(v[2]), v[3:]
	if v[0] >= 0xd0 {
		count, body = int(binary.BigEndian.Uint32(v[5:])), v[9:]
	}
	items := []any{}
	for range count {
		item, rest, err := decode(body)
		if err != nil {
			return nil, err
		}
		items, body = append(items, item), rest
	}
	return items, nil
}

// Sections of a message (AMQP 1.0 part 3, 3.2) as the bytes that were sent.
type section struct {
	code uint64
	raw  []byte
}

var sectionNames = map[symbol]uint64{
	"amqp:header:list": 0x70, "amqp:delivery-annotations:map": 0x71, "amqp:message-annotations:map": 0x72, "amqp:properties:list": 0x73,
	"amqp:application-properties:map": 0x74, "amqp:data:binary": 0x75, "amqp:amqp-sequence:list": 0x76, "amqp:amqp-value:*": 0x77, "amqp:footer:map": 0x78,
}

// sections cuts a message into its sections.
func sections(message []byte) ([]section, error) {
	var all []section
	for len(message) > 0 {
		if message[0] != 0 {
			return nil, fmt.Errorf("a section begins with %#x", message[0])
		}
		n, err := measure(message)
		if err != nil {
			return nil, err
		}
		d, _, err := decode(message[1:])
		if err != nil {
			return nil, err
		}
		code, _ := d.(uint64)
		if name, ok := d.(symbol); ok {
			code = sectionNames[name]
		}
		all = append(all, section{code, message[:n]})
		message = message[n:]
	}
	return all, nil
}
