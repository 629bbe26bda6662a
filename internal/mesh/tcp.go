package mesh

import (
	"encoding/binary"
	"fmt"
)

// The headers of a message over TCP (rembus.md, 1.2): a byte that tells how many bytes of length follow, big-endian.
const (
	tcpShort = 0x81
	tcpTwo   = 0x8d
	tcpFour  = 0x8f
)

// parseTCPHeader reads the header at the beginning of b: its own length and that of the message. Where b does not hold all of it, size is what is needed and ok is
// false. A message of more than limit bytes is refused before anything is kept for it.
func parseTCPHeader(b []byte, limit int) (size, message int, ok bool, err error) {
	if len(b) == 0 {
		return 1, 0, false, nil
	}
	switch b[0] {
	case tcpShort:
		size = 2
	case tcpTwo:
		size = 3
	case tcpFour:
		size = 5
	default:
		return 0, 0, false, fmt.Errorf("rembus: %#02x begins no message", b[0])
	}
	if len(b) < size {
		return size, 0, false, nil
	}
	var n uint32
	switch size {
	case 2:
		n = uint32(b[1])
	case 3:
		n = uint32(binary.BigEndian.Uint16(b[1:]))
	default:
		n = binary.BigEndian.Uint32(b[1:])
	}
	if uint64(n) > uint64(limit) {
		return 0, 0, false, fmt.Errorf("rembus: a message of %d bytes is too long", n)
	}
	return size, int(n), true, nil
}

// appendTCPHeader appends the header of a message of n bytes.
func appendTCPHeader(b []byte, n int) []byte {
	switch {
	case n < 1<<8:
		return append(b, tcpShort, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, tcpTwo), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, tcpFour), uint32(n))
}
