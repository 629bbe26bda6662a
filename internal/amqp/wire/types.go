package wire

import (
	"encoding/hex"
	"time"
)

// The Go types of AMQP values (AMQP 1.0 part 1, 1.6). The others are Go's own: nil, bool, uint8 to uint64, int8 to int64,
// float32, float64, string and []byte.
type (
	Symbol     string   // ASCII
	Timestamp  int64    // milliseconds since the Unix epoch
	UUID       [16]byte // RFC 4122
	Char       rune
	Decimal32  [4]byte // IEEE 754-2008, as on the wire
	Decimal64  [8]byte
	Decimal128 [16]byte
	List       []any
)

// Map is an AMQP map: ordered, and nothing is done about keys that occur twice.
type Map []KV

// KV is one entry of a Map.
type KV struct{ Key, Value any }

// Get gives the value of the first entry whose key is the symbol or string key.
func (m Map) Get(key string) (v any, ok bool) {
	for _, kv := range m {
		switch k := kv.Key.(type) {
		case Symbol:
			ok = string(k) == key
		case string:
			ok = k == key
		}
		if ok {
			return kv.Value, true
		}
	}
	return nil, false
}

// Described is a value with a descriptor (AMQP 1.0 part 1, 1.2). Descriptors that the specification reserves are
// nothing special here.
type Described struct{ Descriptor, Value any }

// Array is an AMQP array: elements of one type. Code is the format code of the element constructor, which decides the type
// of Elems; 0 takes the type of the first element. Descriptors are those of the constructor, outermost first; none for
// plain elements, and Elems do not repeat them. Elements of a compound type are written in the 32-bit form.
type Array struct {
	Code        byte
	Descriptors []any
	Elems       []any
}

// Time gives t as a time in UTC.
func (t Timestamp) Time() time.Time { return time.UnixMilli(int64(t)).UTC() }

// TimestampOf gives the timestamp of t, without what is below the millisecond.
func TimestampOf(t time.Time) Timestamp { return Timestamp(t.UnixMilli()) }

// String gives the usual form, 8-4-4-4-12.
func (u UUID) String() string {
	var b [36]byte
	u.put(&b)
	return string(b[:])
}

func (u UUID) put(b *[36]byte) {
	hex.Encode(b[0:8], u[0:4])
	hex.Encode(b[9:13], u[4:6])
	hex.Encode(b[14:18], u[6:8])
	hex.Encode(b[19:23], u[8:10])
	hex.Encode(b[24:36], u[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
}

// Limits bound what a value may become in memory. The zero value and a nil *Limits mean the defaults.
type Limits struct {
	Depth   int // values inside values, descriptors included; 0 is 32
	Entries int // elements that take no bytes of their own, in all arrays together; 0 is 65536. Others are bounded by the input
}

const (
	maxDepth     = 32
	maxZeroWidth = 64 << 10
)
