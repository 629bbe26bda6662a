package load

import (
	"bytes"
	"encoding/binary"
)

// stamp begins the body of every message.
type stamp struct {
	run     uint32 // of this run: others may send to the same address
	sender  uint32
	address uint32
	seq     uint64 // of the sender's messages to the address, from 0
	at      int64  // when the message was meant to leave, by the clock of the run
}

// stampSize is the least size of a body: the mark and the five numbers.
const stampSize = len(mark) + 4 + 4 + 4 + 8 + 8

// mark finds the stamp in a message whatever sections stand before the body.
const mark = "\xf1fpld"

// append writes the stamp.
func (s *stamp) append(b []byte) []byte {
	b = append(b, mark...)
	b = binary.BigEndian.AppendUint32(b, s.run)
	b = binary.BigEndian.AppendUint32(b, s.sender)
	b = binary.BigEndian.AppendUint32(b, s.address)
	b = binary.BigEndian.AppendUint64(b, s.seq)
	return binary.BigEndian.AppendUint64(b, uint64(s.at))
}

// searched is how far into a message the stamp is looked for.
const searched = 4096

// find reads the stamp of a message; hint is where it was in the last one.
func (s *stamp) find(payload []byte, hint *int) bool {
	i := *hint
	if len(payload) < i+stampSize || string(payload[i:i+len(mark)]) != mark {
		if i = bytes.Index(payload[:min(len(payload), searched)], []byte(mark)); i < 0 || len(payload) < i+stampSize {
			return false
		}
		*hint = i
	}
	b := payload[i+len(mark):]
	s.run = binary.BigEndian.Uint32(b)
	s.sender = binary.BigEndian.Uint32(b[4:])
	s.address = binary.BigEndian.Uint32(b[8:])
	s.seq = binary.BigEndian.Uint64(b[12:])
	s.at = int64(binary.BigEndian.Uint64(b[20:]))
	return true
}

// appendHead writes what stands before the stamp: properties with the address where it is not empty, and the beginning of a data section of
// size bytes.
func appendHead(b []byte, to string, size int) []byte {
	if to != "" {
		b = append(b, 0x00, 0x53, 0x73) // properties
		if len(to) < 200 {
			b = append(b, 0xc0, byte(1+2+2+len(to)), 3, 0x40, 0x40, 0xa1, byte(len(to)))
		} else {
			b = append(b, 0xd0)
			b = binary.BigEndian.AppendUint32(b, uint32(4+2+5+len(to)))
			b = append(b, 0, 0, 0, 3, 0x40, 0x40, 0xb1)
			b = binary.BigEndian.AppendUint32(b, uint32(len(to)))
		}
		b = append(b, to...)
	}
	b = append(b, 0x00, 0x53, 0x75) // data
	if size < 256 {
		return append(b, 0xa0, byte(size))
	}
	b = append(b, 0xb0)
	return binary.BigEndian.AppendUint32(b, uint32(size))
}
