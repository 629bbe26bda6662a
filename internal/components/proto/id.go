package proto

import (
	"crypto/rand"
	"encoding/hex"
)

// NewID is a random UUID (version 4).
func NewID() string {
	var u [16]byte
	rand.Read(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	var text [36]byte
	hex.Encode(text[:8], u[:4])
	for i, at := range []int{9, 14, 19} {
		text[at-1] = '-'
		hex.Encode(text[at:at+4], u[4+2*i:6+2*i])
	}
	text[23] = '-'
	hex.Encode(text[24:], u[10:])
	return string(text[:])
}
