package relay

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// An address says which connection asks, and on which topic: it is given to servers as from, and comes back as to. Nobody keeps those that were
// issued. Its text is base64url of
//
//	address = connection mac     connection = 8 bytes     mac = 25 bytes of HMAC-SHA256(secret, connection length-of-domain domain topic)
//
// The secret is the process's: after a restart, addresses of before are none. 33 bytes are 44 characters without one bit to spare.
const (
	macBytes      = 25
	addressBytes  = 8 + macBytes
	addressLength = 44
)

var addressCoding = base64.RawURLEncoding.Strict()

// mint makes and checks addresses.
type mint struct{ secret [32]byte }

func newMint() *mint {
	m := &mint{}
	rand.Read(m.secret[:])
	return m
}

// issue appends the address of a connection on a topic.
func (m *mint) issue(dst []byte, connection uint64, domain, topic string) []byte {
	var b [addressBytes]byte
	m.fill(&b, connection, domain, topic)
	return addressCoding.AppendEncode(dst, b[:])
}

func (m *mint) fill(b *[addressBytes]byte, connection uint64, domain, topic string) {
	binary.BigEndian.PutUint64(b[:8], connection)
	h := hmac.New(sha256.New, m.secret[:])
	h.Write(b[:8])
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(domain))))
	h.Write([]byte(domain))
	h.Write([]byte(topic))
	copy(b[8:], h.Sum(nil))
}

// connection gives the connection of an address; false where none was issued for the topic.
func (m *mint) connection(address []byte, domain, topic string) (uint64, bool) {
	var got, want [addressBytes]byte
	if len(address) != addressLength {
		return 0, false
	}
	if n, err := addressCoding.Decode(got[:], address); err != nil || n != addressBytes {
		return 0, false
	}
	connection := binary.BigEndian.Uint64(got[:8])
	m.fill(&want, connection, domain, topic)
	return connection, hmac.Equal(got[:], want[:])
}
