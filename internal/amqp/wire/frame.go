package wire

import "encoding/binary"

// FrameHeaderSize is the size of a frame header; no frame is smaller (AMQP 1.0 part 2, 2.3.1).
const FrameHeaderSize = 8

// FrameType is the type byte of a frame header.
type FrameType = uint8

// Frame types (AMQP 1.0 part 2, 2.3.2; part 5, 5.3.1).
const (
	FrameAMQP FrameType = 0
	FrameSASL FrameType = 1
)

// FrameHeader begins every frame (AMQP 1.0 part 2, 2.3.1).
type FrameHeader struct {
	Size       uint32 // of the whole frame, bytes
	DataOffset uint8  // where the body begins, in words of four bytes
	Type       uint8
	Channel    uint16 // without meaning in a SASL frame
}

// ParseFrameHeader takes the header from the first eight bytes of b and checks that size and data offset fit each other.
// The body is b[DataOffset*4:Size], once that much is there.
func ParseFrameHeader(b []byte) (h FrameHeader, err error) {
	if len(b) < FrameHeaderSize {
		return h, &DecodeError{Offset: len(b), What: "frame header cut short", Short: true}
	}
	h = FrameHeader{binary.BigEndian.Uint32(b), b[4], b[5], binary.BigEndian.Uint16(b[6:])}
	switch {
	case h.Size < FrameHeaderSize:
		return h, &DecodeError{What: "frame smaller than its header"}
	case h.DataOffset < 2:
		return h, &DecodeError{Offset: 4, What: "data offset inside the frame header"}
	case uint32(h.DataOffset)*4 > h.Size:
		return h, &DecodeError{Offset: 4, What: "data offset beyond the frame"}
	}
	return h, nil
}

// BeginFrame appends a frame header whose size is still open. start is what EndFrame wants, once the body is appended.
func BeginFrame(dst []byte, typ uint8, channel uint16) (out []byte, start int) {
	return append(dst, 0, 0, 0, 0, 2, typ, byte(channel>>8), byte(channel)), len(dst)
}

// EndFrame makes the frame that begins at start end where dst does.
func EndFrame(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}
