package grpc

import (
	"encoding/binary"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"
)

const contentType = "application/grpc"

func isGRPC(kind string) bool {
	rest, ok := strings.CutPrefix(kind, contentType)
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// headers are those of a stream.
type headers struct {
	method, path, contentType, encoding string
	fields                              map[string][]string
	size                                int
	bad                                 bool
}

func (h *headers) reset() { *h = headers{fields: map[string][]string{}} }

// take takes a field from the decoder.
func (h *headers) take(f hpack.HeaderField) {
	h.size += len(f.Name) + len(f.Value) + 32
	switch {
	case h.size > maxHeaders:
		h.bad = true
	case f.Name == ":method":
		h.method = f.Value
	case f.Name == ":path":
		h.path = f.Value
	case f.Name == "content-type":
		h.contentType = f.Value
	case f.Name == "grpc-encoding":
		h.encoding = f.Value
	case f.Name == "" || f.Name != strings.ToLower(f.Name) || f.Name == "connection":
		h.bad = true
	case f.Name[0] != ':':
		h.fields[f.Name] = append(h.fields[f.Name], f.Value)
	}
}

// appendFrame appends the head of a frame of n bytes.
func appendFrame(b []byte, kind, flags byte, id uint32, n int) []byte {
	return binary.BigEndian.AppendUint32(append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags), id)
}

func appendWindow(b []byte, id, n uint32) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, frameWindow, 0, id, 4), n)
}

func appendReset(b []byte, id uint32, why code) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, frameReset, 0, id, 4), uint32(why))
}

// appendHeaders appends a block of headers: the HTTP status and the content type where they are given, and at the end of a gRPC stream its status.
func appendHeaders(b []byte, id uint32, end bool, status, kind string, code int, message string) []byte {
	at := len(b)
	flags := byte(flagEndHeaders)
	if end {
		flags |= flagEndStream
	}
	b = appendFrame(b, frameHeaders, flags, id, 0)
	if status != "" {
		b = appendField(b, ":status", status)
	}
	if kind != "" {
		b = appendField(b, "content-type", kind)
	}
	if end && (status == "" || status == "200") {
		b = appendField(b, "grpc-status", strconv.Itoa(code))
		if message != "" {
			b = appendField(b, "grpc-message", escape(message))
		}
	}
	n := len(b) - at - 9
	b[at], b[at+1], b[at+2] = byte(n>>16), byte(n>>8), byte(n)
	return b
}

// appendField appends a field as a literal that is not indexed, its name and value as they are (RFC 7541, 6.2.2).
func appendField(b []byte, name, value string) []byte {
	b = append(b, 0)
	for _, s := range [2]string{name, value} {
		b = append(appendInteger(b, len(s)), s...)
	}
	return b
}

// appendInteger appends an integer with a prefix of seven bits (RFC 7541, 5.1).
func appendInteger(b []byte, n int) []byte {
	if n < 127 {
		return append(b, byte(n))
	}
	b = append(b, 127)
	return binary.AppendUvarint(b, uint64(n-127))
}

// escape is a message as gRPC has it in a header, at most 1000 bytes of it.
func escape(s string) string {
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(s))
	for i := range min(len(s), 1000) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			b = append(b, '%', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}
