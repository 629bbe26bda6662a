package websocket

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"unicode/utf8"

	"github.com/gobwas/ws"
)

// Codes of a close (RFC 6455, 7.4.1).
const (
	Normal       = 1000
	GoingAway    = 1001
	BadProtocol  = 1002
	BadKind      = 1003 // text where only binary is taken, and the like
	NoCode       = 1005 // never sent: the close had none
	BadText      = 1007 // no UTF-8
	BadPolicy    = 1008
	TooBig       = 1009
	InternalFail = 1011
)

// maxControl bounds the payload of a control frame (RFC 6455, 5.5).
const maxControl = 125

// CloseError tells why a WebSocket is over: by a close of the peer, or for what the peer did wrong, which it is told by a close of ours.
type CloseError struct {
	Code   int
	Text   string
	Remote bool // the peer sent it
}

func (e *CloseError) Error() string {
	if e.Remote {
		return fmt.Sprintf("websocket: the peer closed with %d %q", e.Code, e.Text)
	}
	return "websocket: " + e.Text
}

func bad(text string) error { return &CloseError{Code: BadProtocol, Text: text} }

// parseHeader parses the header of a frame at the beginning of b. size is its length; where b does not hold all of it, size is what is needed for
// the next step and ok is false. It allocates nothing. A length beyond all numbers is given as 1<<62.
func parseHeader(b []byte) (h ws.Header, size int, ok bool) {
	if len(b) < 2 {
		return h, 2, false
	}
	h.Fin, h.Rsv, h.OpCode = b[0]&0x80 != 0, b[0]>>4&7, ws.OpCode(b[0]&0x0f)
	h.Masked, h.Length = b[1]&0x80 != 0, int64(b[1]&0x7f)
	size = 2
	switch h.Length {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	mask := size
	if h.Masked {
		size += 4
	}
	if len(b) < size {
		return h, size, false
	}
	switch h.Length {
	case 126:
		h.Length = int64(binary.BigEndian.Uint16(b[2:]))
	case 127:
		h.Length = int64(min(binary.BigEndian.Uint64(b[2:]), 1<<62))
	}
	if h.Masked {
		copy(h.Mask[:], b[mask:])
	}
	return h, size, true
}

// checkHeader holds a frame to the rules (RFC 6455, 5.1 to 5.5). client tells whose end this is, fragmented whether the last data frame was not its
// message's last.
func checkHeader(h ws.Header, client, fragmented bool) error {
	switch {
	case h.Rsv != 0:
		return bad("reserved bits are set")
	case h.Masked == client:
		return bad("masking is for clients, and for them a must")
	case h.OpCode.IsControl() && (!h.Fin || h.Length > maxControl):
		return bad("a control frame is in pieces, or longer than 125 bytes")
	case h.OpCode == ws.OpClose, h.OpCode == ws.OpPing, h.OpCode == ws.OpPong:
		return nil
	case h.OpCode == ws.OpContinuation:
		if !fragmented {
			return bad("a continuation of nothing")
		}
	case h.OpCode != ws.OpText && h.OpCode != ws.OpBinary:
		return bad("an unknown kind of frame")
	case fragmented:
		return bad("a message begins inside another")
	}
	return nil
}

// parseClose parses the payload of a close (RFC 6455, 5.5.1 and 7.4).
func parseClose(p []byte) *CloseError {
	if len(p) == 0 {
		return &CloseError{Code: NoCode, Remote: true}
	}
	if len(p) == 1 {
		return &CloseError{Code: BadProtocol, Text: "a close with half a code"}
	}
	code := int(binary.BigEndian.Uint16(p))
	switch {
	case !mayClose(code):
		return &CloseError{Code: BadProtocol, Text: fmt.Sprintf("a close with code %d, which is not for the wire", code)}
	case !utf8.Valid(p[2:]):
		return &CloseError{Code: BadText, Text: "the reason of a close is no UTF-8"}
	}
	return &CloseError{Code: code, Text: string(p[2:]), Remote: true}
}

// mayClose tells whether a code may be on the wire.
func mayClose(code int) bool {
	switch {
	case code < 1000, code == 1004, code == NoCode, code == 1006, code >= 1015 && code < 3000, code > 4999:
		return false
	}
	return true
}

// appendHeader writes the header of a final frame of n bytes, without the mask.
func appendHeader(b []byte, op ws.OpCode, n int, masked bool) []byte {
	bit := byte(0)
	if masked {
		bit = 0x80
	}
	b = append(b, 0x80|byte(op))
	switch {
	case n < 126:
		return append(b, bit|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, bit|126), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(b, bit|127), uint64(n))
}

// appendFrame writes a final frame; payload may not overlap b.
func appendFrame(b []byte, op ws.OpCode, payload []byte, masked bool) []byte {
	b = appendHeader(b, op, len(payload), masked)
	if !masked {
		return append(b, payload...)
	}
	mask := newMask()
	b = append(b, mask[:]...)
	at := len(b)
	b = append(b, payload...)
	ws.Cipher(b[at:], mask, 0)
	return b
}

// newMask gives what the peer cannot guess (RFC 6455, 5.3): the runtime's generator is ChaCha8, seeded by the system.
func newMask() (m [4]byte) {
	binary.LittleEndian.PutUint32(m[:], rand.Uint32())
	return m
}
