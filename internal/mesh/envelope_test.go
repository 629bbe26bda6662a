package mesh

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// An envelope is a message to every reader of AMQP, and gives our own outlets back what was put in, byte for byte.
func TestEnvelopes(t *testing.T) {
	long := bytes.Repeat([]byte{7}, 300)
	for _, c := range []struct {
		name    string
		e       envelope
		raw     bool
		content string
	}{
		{"publish", envelope{data: unhex(t, "816178")}, false, "application/cbor"},
		{"publish with an id", envelope{id: []byte{1, 2}, hasID: true, flags: 0x51, data: unhex(t, "80")}, false, "application/cbor"},
		{"one byte string", envelope{data: unhex(t, "8142dead")}, true, ""},
		{"an empty byte string", envelope{data: unhex(t, "8140")}, true, ""},
		{"a long byte string", envelope{data: append(unhex(t, "8159012c"), long...)}, true, ""},
		{"a byte string written longer", envelope{data: unhex(t, "815802dead")}, false, "application/cbor"},
		{"two byte strings", envelope{data: unhex(t, "824140"+"4140")}, false, "application/cbor"},
		{"no array", envelope{data: unhex(t, "f6")}, false, "application/cbor"},
		{"direct", envelope{subject: []byte("add"), id: make([]byte, 16), hasID: true, data: unhex(t, "820102")}, false, "application/cbor"},
	} {
		b := appendEnvelope([]byte("before")[:0], "topic:", []byte("a/b"), &c.e)
		var e envelope
		if err := e.open(b); err != nil || e.raw != c.raw || string(e.to) != "topic:a/b" || string(e.subject) != string(c.e.subject) || e.flags != c.e.flags ||
			!bytes.Equal(e.id, c.e.id) || e.hasID != c.e.hasID || !bytes.Equal(e.appendPayload(nil), c.e.data) {
			t.Errorf("%s: got %+v, %v", c.name, e, err)
		}
		var m wire.Message
		if err := m.Parse(b); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if to := m.Properties.To; to != "topic:a/b" || string(m.Properties.ContentType) != c.content {
			t.Errorf("%s: to %s, %s", c.name, to, m.Properties.ContentType)
		}
	}
}

func TestPayloadsForPatterns(t *testing.T) {
	for _, c := range []struct{ payload, want string }{
		{"80", "8163612f62"}, {"820102", "8363612f620102"}, {"01", "8263612f6201"}, {"f6", "8263612f62f6"}, {"9f01ff", "9f63612f6201ff"}, {"8142dead", "8263612f6242dead"},
		{"97" + "0102030405060708090a0b0c0d0e0f1011121314151617", "981863612f62" + "0102030405060708090a0b0c0d0e0f1011121314151617"}, {"a10102", "8263612f62a10102"},
	} {
		var e envelope
		if err := e.open(appendEnvelope(nil, "topic:", []byte("a/b"), &envelope{data: unhex(t, c.payload)})); err != nil {
			t.Fatal(err)
		}
		got := e.appendSpacePayload(nil, "a/b")
		if n, err := skipItem(got); hex.EncodeToString(got) != c.want || err != nil || n != len(got) {
			t.Errorf("%s: got %x, %v, want %s", c.payload, got, err, c.want)
		}
	}
}
