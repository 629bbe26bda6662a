package wire_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// offset checks that err, where there is one, is a DecodeError that points into b.
func offset(t *testing.T, b []byte, err error) {
	t.Helper()
	var de *wire.DecodeError
	if err != nil && (!errors.As(err, &de) || de.Offset < 0 || de.Offset > len(b) || de.What == "") {
		t.Fatalf("error %#v for %d bytes", err, len(b))
	}
}

// FuzzParseValue: what can be decoded can be skipped and encoded, and its encoding is a fixed point.
func FuzzParseValue(f *testing.F) {
	for _, c := range golden {
		f.Add(unhex(f, c.hex))
	}
	f.Add(unhex(f, "f0 00 00 00 05 00 01 00 01 45"))
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		rest, skipErr := wire.SkipValue(b)
		offset(t, b, skipErr)
		v, left, err := wire.ParseValue(b, nil)
		offset(t, b, err)
		if err != nil {
			return
		}
		if skipErr != nil || len(rest) != len(left) {
			t.Fatalf("parse leaves %d bytes, skip %d, %v", len(left), len(rest), skipErr)
		}
		wire.AppendText(nil, b[:len(b)-len(left)])
		once, err := wire.AppendValue(nil, v)
		if err != nil {
			t.Fatalf("encode %#v: %v", v, err)
		}
		v, left, err = wire.ParseValue(once, nil)
		if err != nil || len(left) != 0 {
			t.Fatalf("decode % x again: % x, %v", once, left, err)
		}
		if twice, err := wire.AppendValue(nil, v); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("encoded % x, then % x, %v", once, twice, err)
		}
	})
}

// FuzzPerformatives: what parses is written and parsed again to the same bytes.
func FuzzPerformatives(f *testing.F) {
	for _, c := range performatives {
		f.Add(unhex(f, c.hex))
	}
	f.Add(dataFrame()[8:])
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, err := wire.PeekDescriptor(b)
		offset(t, b, err)
		for _, p := range []codec{&wire.Open{}, &wire.Begin{}, &wire.Attach{}, &wire.Flow{}, &wire.Transfer{}, &wire.Disposition{}, &wire.Detach{},
			&wire.End{}, &wire.Close{}, &wire.Error{}, &wire.Source{}, &wire.Target{}, &wire.SASLMechanisms{}, &wire.SASLInit{}, &wire.SASLChallenge{},
			&wire.SASLResponse{}, &wire.SASLOutcome{}, &wire.Header{}, &wire.Properties{}} {
			rest, err := p.Parse(b)
			offset(t, b, err)
			if err != nil {
				continue
			}
			if len(rest) > len(b) {
				t.Fatalf("%d bytes left of %d", len(rest), len(b))
			}
			once := p.Append(nil)
			again := fresh(p)
			if rest, err := again.Parse(once); err != nil || len(rest) != 0 {
				t.Fatalf("%T: % x: % x, %v", p, once, rest, err)
			}
			if twice := again.Append(nil); !bytes.Equal(once, twice) {
				t.Fatalf("%T: % x, then % x", p, once, twice)
			}
			if tr, ok := p.(*wire.Transfer); ok {
				frame := wire.AppendTransferFrame(nil, 1, tr, []byte("payload"))
				rest, err := again.Parse(frame[8:])
				if err != nil || string(rest) != "payload" || !bytes.Equal(again.Append(nil), once) {
					t.Fatalf("transfer frame % x: %q, %v", frame, rest, err)
				}
			}
		}
		var s wire.State
		err = s.Parse(b)
		offset(t, b, err)
		if s.Kind != wire.PeekState(b) {
			t.Fatalf("state %v, peeked %v", s.Kind, wire.PeekState(b))
		}
		if err == nil && s.Kind != wire.Unknown && s.Kind != wire.StateNone {
			var again wire.State
			once := s.Append(nil)
			if err := again.Parse(once); err != nil || !bytes.Equal(again.Append(nil), once) {
				t.Fatalf("state % x: %v", once, err)
			}
		}
	})
}

func seedMessages(f *testing.F) {
	f.Add(unhex(f, hexHeader+hexDA+hexMA+hexProps+hexApp+hexData+hexFooter))
	f.Add(unhex(f, hexProps+hexSeq+hexSeq))
	f.Add(unhex(f, hexMA+hexValue))
	f.Add(message())
	f.Add(annotated())
	f.Add(unhex(f, "00 a3 10 616d71703a646174613a62696e617279 a0 00"))
}

// FuzzScanMessage: ScanHead agrees with ScanMessage, on the whole and on every cut, and sections are what they are said to be.
func FuzzScanMessage(f *testing.F) {
	seedMessages(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, h wire.Sections
		err := wire.ScanMessage(b, &s)
		offset(t, b, err)
		headErr := wire.ScanHead(b, &h)
		offset(t, b, headErr)
		if err == nil && (headErr != nil || h.To != s.To || h.HasTo != s.HasTo || h.Properties != s.Properties || h.Bare != s.Bare ||
			h.MessageAnnotations != s.MessageAnnotations || h.HeadComplete != s.HeadComplete) {
			t.Fatalf("whole %+v, head %+v, %v", s, h, headErr)
		}
		if headErr != nil {
			return
		}
		for n := range b {
			var c wire.Sections
			err := wire.ScanHead(b[:n], &c)
			var de *wire.DecodeError
			if err != nil && (!errors.As(err, &de) || !de.Short) {
				t.Fatalf("cut to %d: %v", n, err)
			}
			if err == nil && c.HeadComplete && (c.To != h.To || c.Bare != h.Bare || c.Properties != h.Properties) {
				t.Fatalf("cut to %d: %+v, whole %+v", n, c, h)
			}
		}
		if p := h.Properties.Of(b); p != nil {
			raw, ok, err := wire.LookupProperty(p, "to")
			if err != nil || ok != h.HasTo {
				t.Fatalf("to % x, %v, %v, scanned %v", raw, ok, err, h.HasTo)
			}
			var full wire.Properties
			if _, err := full.Parse(p); err == nil && (full.HasTo != h.HasTo || full.To != string(h.ToText(b))) {
				t.Fatalf("to %q, scanned %q", full.To, h.ToText(b))
			}
		}
		checkAnnotations(t, h.MessageAnnotations.Of(b))
	})
}

// checkAnnotations sets, finds and removes an entry, and compares with the decoded map.
func checkAnnotations(t *testing.T, section []byte) {
	const key = "x-opt-via"
	var before wire.Map
	if section != nil {
		v, _, err := wire.ParseValue(section, nil)
		if err != nil {
			return
		}
		before = v.(wire.Described).Value.(wire.Map)
	}
	old, had := before.Get(key)
	raw, ok, err := wire.LookupAnnotation(section, key)
	if err != nil || ok != had {
		t.Fatalf("looked up % x, %v, %v, decoded %v", raw, ok, err, old)
	}
	set, err := wire.AppendMapWithEntry(nil, section, wire.CodeMessageAnnotations, key, []byte{0x50, 7})
	if err != nil {
		t.Fatal(err)
	}
	v, rest, err := wire.ParseValue(set, nil)
	if err != nil || len(rest) != 0 {
		t.Fatalf("% x: % x, %v", set, rest, err)
	}
	after := v.(wire.Described).Value.(wire.Map)
	if got, _ := after.Get(key); got != uint8(7) {
		t.Fatalf("set to %v", got)
	}
	if !had && len(after) != len(before)+1 || had && len(after) != len(before) {
		t.Fatalf("%d entries, then %d", len(before), len(after))
	}
	gone, err := wire.AppendMapWithEntry(nil, set, wire.CodeMessageAnnotations, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(after) == 1 {
		if len(gone) != 0 {
			t.Fatalf("% x left", gone)
		}
		return
	}
	if v, _, err = wire.ParseValue(gone, nil); err != nil || len(v.(wire.Described).Value.(wire.Map)) != len(after)-1 {
		t.Fatalf("% x: %v", gone, err)
	}
}

// FuzzMessage: decoding and encoding again is a fixed point.
func FuzzMessage(f *testing.F) {
	seedMessages(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var m wire.Message
		err := m.Parse(b)
		offset(t, b, err)
		if err != nil {
			return
		}
		once, err := m.Append(nil)
		if err != nil {
			t.Fatalf("encode %+v: %v", m, err)
		}
		var again wire.Message
		if err := again.Parse(once); err != nil {
			t.Fatalf("decode % x again: %v", once, err)
		}
		if twice, err := again.Append(nil); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("encoded % x, then % x, %v", once, twice, err)
		}
	})
}
