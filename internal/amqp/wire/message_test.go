package wire_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

const (
	hexHeader = "00 53 70 c0 02 01 41 "
	hexDA     = "00 53 71 c1 06 02 a3 01 64 53 01 "
	hexMA     = "00 53 72 c1 06 02 a3 01 6d 53 02 "
	hexProps  = "00 53 73 c0 08 03 a1 01 69 40 a1 01 71 "
	hexApp    = "00 53 74 c1 06 02 a1 01 61 53 03 "
	hexData   = "00 53 75 a0 02 68 69 "
	hexSeq    = "00 53 76 c0 02 01 41 "
	hexValue  = "00 53 77 40 "
	hexFooter = "00 53 78 c1 06 02 a3 01 66 53 04 "
)

func TestScanFindsTheSections(t *testing.T) {
	b := unhex(t, hexHeader+hexDA+hexMA+hexProps+hexApp+hexData+hexData+hexFooter)
	var s wire.Sections
	if err := wire.ScanMessage(b, &s); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		got  wire.Span
		want string
	}{
		{"header", s.Header, hexHeader}, {"delivery annotations", s.DeliveryAnnotations, hexDA}, {"message annotations", s.MessageAnnotations, hexMA},
		{"properties", s.Properties, hexProps}, {"application properties", s.ApplicationProperties, hexApp}, {"body", s.Body, hexData + hexData},
		{"footer", s.Footer, hexFooter},
	} {
		if !bytes.Equal(c.got.Of(b), unhex(t, c.want)) || !c.got.Present() {
			t.Errorf("%s: got % x, want %s", c.name, c.got.Of(b), c.want)
		}
	}
	if s.Bare != int(s.Properties.Start) || string(s.ToText(b)) != "q" || !s.HeadComplete {
		t.Errorf("got %+v", s)
	}
	if (wire.Span{}).Present() || (wire.Span{}).Of(b) != nil {
		t.Error("an absent span is there")
	}

	// ScanHead sees the same up to the properties, wherever the payload is cut behind them.
	for n := int(s.Properties.End); n <= len(b); n++ {
		var h wire.Sections
		if err := wire.ScanHead(b[:n], &h); err != nil {
			t.Fatalf("cut to %d: %v", n, err)
		}
		if h.Header != s.Header || h.DeliveryAnnotations != s.DeliveryAnnotations || h.MessageAnnotations != s.MessageAnnotations ||
			h.Properties != s.Properties || h.To != s.To || h.Bare != s.Bare || !h.HeadComplete {
			t.Errorf("cut to %d: got %+v", n, h)
		}
	}
	// Cut before that, it says that there is more to come.
	for n := range s.Properties.End {
		var h wire.Sections
		err := wire.ScanHead(b[:n], &h)
		if de, ok := err.(*wire.DecodeError); err == nil && h.HeadComplete || err != nil && (!ok || !de.Short) {
			t.Errorf("cut to %d: got %+v, %v", n, h, err)
		}
	}
}

func TestScanTakesEveryLegalForm(t *testing.T) {
	sym := func(name string) string { return "00 a3 " + wireHex(string(rune(len(name)))+name) }
	for _, c := range []struct {
		name, hex string
		to        any // nil or a string
		bare      int
		complete  bool
	}{
		{"nothing", "", nil, 0, false},
		{"a body alone", hexValue, nil, 0, true},
		{"a header alone", hexHeader, nil, 7, false},
		{"a footer behind a header", hexHeader + hexFooter, nil, 7, true},
		{"empty lists", "00 53 70 45 00 53 73 45" + hexData, nil, 4, true},
		{"lists of nothing", "00 53 70 c0 01 00 00 53 73 c0 01 00" + hexData, nil, 6, true},
		{"list32", "00 53 73 d0 00 00 00 09 00 00 00 03 40 40 a1 01 71" + hexData, "q", 0, true},
		{"str32", "00 53 73 c0 0a 04 40 40 b1 00 00 00 01 71 40" + hexData, "q", 0, true},
		{"null to", "00 53 73 c0 05 04 40 40 40 40" + hexData, nil, 0, true},
		{"empty to", "00 53 73 c0 05 03 40 40 a1 00" + hexData, "", 0, true},
		{"properties before to only", "00 53 73 c0 03 02 40 40" + hexData, nil, 0, true},
		{"ids of other types", "00 53 73 c0 18 03 98 00000000000000000000000000000000 a0 01 75 a1 01 71" + hexData, "q", 0, true},
		{"symbolic descriptors", sym("amqp:header:list") + "45" + sym("amqp:properties:list") + "c0 06 03 40 40 a1 01 71" +
			sym("amqp:data:binary") + "a0 00", "q", 20, true},
		{"long descriptors", "00 80 0000000000000073 c0 06 03 40 40 a1 01 71" + "00 80 0000000000000077 41", "q", 0, true},
		{"long maps", "00 53 72 d1 00 00 00 04 00 00 00 00" + hexData, nil, 12, true},
		{"sequences", hexSeq + hexSeq + hexFooter, nil, 0, true},
		{"long data", "00 53 75 b0 00 00 00 01 09", nil, 0, true},
		{"a source as the body", "00 53 77 00 53 28 45", nil, 0, true},
		{"an address beyond ASCII", "00 53 73 c0 0e 03 40 40 a1 09 47 72 c3 bc c3 9f 65 65 65" + hexData, "Grüßeee", 0, true},
	} {
		b := unhex(t, c.hex)
		var head, all wire.Sections
		if err := wire.ScanMessage(b, &all); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if err := wire.ScanHead(b, &head); err != nil {
			t.Errorf("%s: head: %v", c.name, err)
		}
		for _, s := range []wire.Sections{head, all} {
			if want, ok := c.to.(string); s.HasTo != ok || string(s.ToText(b)) != want || s.Bare != c.bare || s.HeadComplete != c.complete {
				t.Errorf("%s: got %q and %+v", c.name, s.ToText(b), s)
			}
		}
	}
}

func TestScanRefuses(t *testing.T) {
	for _, c := range []struct {
		name, hex, want string
		head            bool // ScanHead sees it too
	}{
		{"no section", "41", "not a described value", true},
		{"an unknown section", "00 53 79 45", "not a section", true},
		{"a performative", "00 53 14 45", "not a section", true},
		{"an unknown symbolic section", "00 a3 01 78 45", "not a section", true},
		{"a header twice", hexHeader + hexHeader, "out of order", true},
		{"a header behind properties", hexProps + hexHeader, "out of order", false},
		{"delivery annotations behind message annotations", hexMA + hexDA, "out of order", true},
		{"properties behind the body", hexData + hexProps, "out of order", false},
		{"two values", hexValue + hexValue, "out of order", false},
		{"data and a sequence", hexData + hexSeq, "out of order", false},
		{"a value behind data", hexData + hexValue, "out of order", false},
		{"two footers", hexFooter + hexFooter, "out of order", false},
		{"a body behind the footer", hexFooter + hexData, "out of order", false},
		{"a map as header", "00 53 70 c1 01 00", "wrong type", true},
		{"a list as annotations", "00 53 72 45", "wrong type", true},
		{"a string as data", "00 53 75 a1 00", "wrong type", false},
		{"a map as properties", "00 53 73 c1 01 00", "not a list", true},
		{"14 properties", "00 53 73 c0 0f 0e 40 40 40 40 40 40 40 40 40 40 40 40 40 40", "more properties", true},
		{"to as a symbol", "00 53 73 c0 06 03 40 40 a3 01 71", "to: not a string", true},
		{"to not UTF-8", "00 53 73 c0 06 03 40 40 a1 01 ff", "to: string is not UTF-8", true},
		{"a long to not UTF-8", "00 53 73 c0 0f 03 40 40 a1 0a 61 61 61 61 61 61 61 61 61 ff", "to: string is not UTF-8", true},
		{"to longer than the list", "00 53 73 c0 06 03 40 40 a1 05 71" + hexData, "longer than what it is in", true},
		{"message-id longer than the list", "00 53 73 c0 06 03 a1 09 40 40 40" + hexData, "longer than what it is in", true},
		{"odd map", "00 53 72 c1 02 01 40", "odd", true},
		{"data cut short", "00 53 75 a0 05 00", "value cut short", false},
	} {
		b := unhex(t, c.hex)
		var s wire.Sections
		err := wire.ScanMessage(b, &s)
		if de, ok := err.(*wire.DecodeError); !ok || !strings.Contains(err.Error(), c.want) || de.Offset > len(b) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		if err := wire.ScanHead(b, &s); (err != nil) != c.head {
			t.Errorf("%s: head: got %v", c.name, err)
		}
	}
}

func TestLookupAnnotation(t *testing.T) {
	section := unhex(t, "00 53 72 c1 22 08 53 09 a1 01 78 a3 01 61 c0 02 01 41 a1 01 62 40 a3 01 61 42"+"a3 05 6c6f6e67 65 50 07")
	section[4] = byte(len(section) - 5)
	section[5] = 10
	for _, c := range []struct {
		key, want string
		ok        bool
	}{
		{"a", "c0 02 01 41", true}, {"b", "40", true}, {"longe", "50 07", true}, {"c", "", false}, {"", "", false}, {"x", "", false},
	} {
		for _, s := range [][]byte{section, section[3:]} {
			raw, ok, err := wire.LookupAnnotation(s, c.key)
			if err != nil || ok != c.ok || !bytes.Equal(raw, unhex(t, c.want)) {
				t.Errorf("%q: got % x, %v, %v", c.key, raw, ok, err)
			}
		}
	}
	if _, ok, err := wire.LookupAnnotation(nil, "a"); ok || err != nil {
		t.Errorf("no section: got %v, %v", ok, err)
	}
	for _, h := range []string{"45", "00 53 72 45", "00", "c1 04 02 a3 05 61", "c1 05 02 a3 01 61 a1", "c1 04 02 40 40 40"} {
		if _, ok, err := wire.LookupAnnotation(unhex(t, h), "a"); ok || err == nil {
			t.Errorf("%s: got %v, %v, want an error", h, ok, err)
		}
	}
}

func TestAppendMapWithEntryTouchesOneEntry(t *testing.T) {
	const a, b, c = "a3 01 61 70 00 00 00 01 ", "b3 00 00 00 01 62 56 01 ", "53 09 d1 00 00 00 04 00 00 00 00 " // odd forms, to be kept
	long := strings.Repeat("78", 250)
	for _, x := range []struct {
		name, section, key, raw, want string
	}{
		{"into nothing", "", "k", "41", "00 53 72 c1 05 02 a3 01 6b 41"},
		{"out of nothing", "", "k", "", ""},
		{"into an empty map", "00 53 72 c1 01 00", "k", "41", "00 53 72 c1 05 02 a3 01 6b 41"},
		{"a long one becomes short", "00 53 72 d1 00 00 00 04 00 00 00 00", "k", "41", "00 53 72 c1 05 02 a3 01 6b 41"},
		{"added at the end", "00 53 72 c1 1c 06 " + a + b + c, "k", "41", "00 53 72 c1 20 08 " + a + b + c + "a3 01 6b 41"},
		{"first in place", "00 53 72 c1 1c 06 " + a + b + c, "a", "41", "00 53 72 c1 18 06 a3 01 61 41" + b + c},
		{"middle in place", "00 53 72 c1 1c 06 " + a + b + c, "b", "a1 01 7a", "00 53 72 c1 1d 06 " + a + "b3 00 00 00 01 62 a1 01 7a" + c},
		{"removed", "00 53 72 c1 1c 06 " + a + b + c, "b", "", "00 53 72 c1 14 04 " + a + c},
		{"the last removed", "00 53 72 c1 09 02 " + a, "a", "", ""},
		{"not there, removed", "00 53 72 c1 09 02 " + a, "z", "", "00 53 72 c1 09 02 " + a},
		{"the first of two", "00 53 72 c1 09 04 a3 01 61 41 a3 01 61 42", "a", "40", "00 53 72 c1 09 04 a3 01 61 40 a3 01 61 42"},
		{"grown to the long form", "00 53 72 c1 05 02 a3 01 6b 41", "k", "a1 fa" + long, "00 53 72 d1 00 00 01 03 00 00 00 02 a3 01 6b a1 fa" + long},
		{"symbolic descriptor kept", "00 a3 01 78 c1 01 00", "k", "41", "00 a3 01 78 c1 05 02 a3 01 6b 41"},
		{"a bare map", "c1 01 00", "k", "41", "c1 05 02 a3 01 6b 41"},
	} {
		var raw []byte
		if x.raw != "" {
			raw = unhex(t, x.raw)
		}
		got, err := wire.AppendMapWithEntry([]byte("before"), unhex(t, x.section), wire.CodeMessageAnnotations, x.key, raw)
		if err != nil || string(got[:6]) != "before" || !bytes.Equal(got[6:], unhex(t, x.want)) {
			t.Errorf("%s:\n got % x, %v\nwant %s", x.name, got[6:], err, x.want)
		}
	}
	for _, h := range []string{"45", "c1 05 02 a3 01 61 a1", "00 53 72 d1 00 00 00 10 00 00 00 00"} {
		got, err := wire.AppendMapWithEntry([]byte("before"), unhex(t, h), wire.CodeMessageAnnotations, "k", []byte{0x41})
		if err == nil || string(got) != "before" {
			t.Errorf("%s: got % x, %v", h, got, err)
		}
	}
}

func TestPropertiesHaveACanonicalText(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
		ok    bool
	}{
		{"text", "text", true}, {"", "", true}, {wire.Symbol("sym"), "sym", true}, {[]byte("bin"), "bin", true},
		{strings.Repeat("x", 300), strings.Repeat("x", 300), true}, {true, "true", true}, {false, "false", true},
		{uint8(7), "7", true}, {uint16(7000), "7000", true}, {uint32(0), "0", true}, {uint32(7), "7", true}, {uint32(70000), "70000", true},
		{uint64(0), "0", true}, {uint64(7), "7", true}, {^uint64(0), "18446744073709551615", true},
		{int8(-7), "-7", true}, {int16(-7000), "-7000", true}, {int32(-7), "-7", true}, {int32(-70000), "-70000", true}, {int64(-7), "-7", true},
		{int64(-1 << 63), "-9223372036854775808", true}, {float32(0.1), "0.1", true}, {2.5e300, "2.5e+300", true}, {wire.Timestamp(1000), "1000", true},
		{wire.UUID{0xf8, 0x1d, 15: 0xff}, "f81d0000-0000-0000-0000-0000000000ff", true}, {wire.Char('€'), "€", true},
		{nil, "", false}, {wire.Decimal32{}, "", false}, {wire.List{}, "", false}, {wire.Map{}, "", false}, {wire.Described{nil, "x"}, "", false},
	} {
		raw, err := wire.AppendValue(nil, c.value)
		if err != nil {
			t.Fatal(err)
		}
		section, err := wire.AppendMapWithEntry(nil, nil, wire.CodeApplicationProperties, "k", raw)
		if err != nil {
			t.Fatal(err)
		}
		got, ok, err := wire.ApplicationProperty(section, "k")
		if err != nil || got != c.want || ok != c.ok {
			t.Errorf("%T %v: got %q, %v, %v", c.value, c.value, got, ok, err)
		}
	}
	if _, ok, err := wire.ApplicationProperty(nil, "k"); ok || err != nil {
		t.Errorf("no section: got %v, %v", ok, err)
	}
	if out, ok := wire.AppendText([]byte("x"), []byte{0x56, 1}); string(out) != "xtrue" || !ok {
		t.Errorf("boolean byte: got %q, %v", out, ok)
	}
}

func TestStandardProperties(t *testing.T) {
	p := wire.Properties{MessageID: uint64(5), UserID: []byte("u"), To: "t", Subject: "s", ReplyTo: "r", CorrelationID: wire.UUID{},
		ContentType: "c", ContentEncoding: "e", AbsoluteExpiryTime: 1, HasAbsoluteExpiryTime: true, CreationTime: 2, HasCreationTime: true,
		GroupID: "g", GroupSequence: 3, ReplyToGroupID: "G"}
	section := p.Append(nil)
	for name, want := range map[string]string{
		"message-id": "5", "user-id": "u", "to": "t", "subject": "s", "reply-to": "r", "correlation-id": "00000000-0000-0000-0000-000000000000",
		"content-type": "c", "content-encoding": "e", "absolute-expiry-time": "1", "creation-time": "2", "group-id": "g", "group-sequence": "3",
		"reply-to-group-id": "G",
	} {
		for _, s := range [][]byte{section, section[3:]} {
			if got, ok, err := wire.StandardProperty(s, name); got != want || !ok || err != nil {
				t.Errorf("%s: got %q, %v, %v", name, got, ok, err)
			}
		}
	}
	short := (&wire.Properties{Subject: "s"}).Append(nil)
	for _, name := range []string{"message-id", "reply-to", "Subject", "x"} {
		if got, ok, err := wire.StandardProperty(short, name); ok || err != nil {
			t.Errorf("%s: got %q, %v, %v", name, got, ok, err)
		}
	}
	if _, ok, err := wire.StandardProperty(nil, "to"); ok || err != nil {
		t.Errorf("no section: %v, %v", ok, err)
	}
	if _, _, err := wire.StandardProperty([]byte{0xc0, 4, 4, 0x40, 0xa1, 9}, "to"); err == nil {
		t.Error("broken section: no error")
	}
}

func TestMessagesComeBack(t *testing.T) {
	ann := wire.Map{{wire.Symbol("x-a"), "v"}, {uint64(7), nil}}
	for name, m := range map[string]wire.Message{
		"empty":     {},
		"null body": {HasValue: true},
		"value":     {Value: wire.Map{{"a", wire.List{uint8(1)}}}, HasValue: true},
		"data":      {Data: [][]byte{[]byte("one"), {}, bytes.Repeat([]byte("x"), 300)}},
		"sequences": {Sequence: []wire.List{{"a"}, {}}},
		"all": {Header: &wire.Header{Priority: 4, TTL: 5, HasTTL: true}, DeliveryAnnotations: ann, MessageAnnotations: wire.Map{},
			Properties: &wire.Properties{MessageID: []byte{1}, To: "q", HasTo: true}, ApplicationProperties: wire.Map{{"k", wire.Symbol("s")}},
			Data: [][]byte{{1}}, Footer: ann},
	} {
		b, err := m.Append([]byte("before"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got wire.Message
		if err := got.Parse(b[6:]); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, m)
		}
	}
	for name, m := range map[string]wire.Message{
		"two bodies":       {Data: [][]byte{{1}}, HasValue: true},
		"three bodies":     {Data: [][]byte{{1}}, Sequence: []wire.List{{}}, Value: 1},
		"a bad id":         {Properties: &wire.Properties{MessageID: 5}},
		"a bad annotation": {MessageAnnotations: wire.Map{{struct{}{}, 1}}},
		"a bad value":      {Value: struct{}{}},
	} {
		if b, err := m.Append([]byte("before")); err == nil || string(b) != "before" {
			t.Errorf("%s: got % x, %v", name, b, err)
		}
	}
	for name, h := range map[string]string{
		"header field": "00 53 70 c0 02 01 50", "property": "00 53 73 c0 02 01 43", "annotation": "00 53 72 c1 03 02 40 3f",
		"value": "00 53 77 3f", "sequence": "00 53 76 c0 02 01 3f",
	} {
		b := unhex(t, h)
		err := new(wire.Message).Parse(b)
		if de, ok := err.(*wire.DecodeError); !ok || de.Offset > len(b) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestWhatIsParsedDoesNotAliasUnlessItSaysSo(t *testing.T) {
	for _, c := range performatives {
		switch c.value.(type) {
		case *wire.Transfer, *wire.Disposition:
			continue
		}
		b := unhex(t, c.hex)
		got := fresh(c.value)
		if _, err := got.Parse(b); err != nil {
			t.Fatal(err)
		}
		for i := range b {
			b[i] = 0xee
		}
		if !reflect.DeepEqual(got, c.value) {
			t.Errorf("%s: changed with its input: %+v", c.name, got)
		}
	}
}

func TestADataMessageIsWhatAMessageIs(t *testing.T) {
	for _, n := range []int{0, 1, 255, 256, 70_000} {
		id, to, data := strings.Repeat("i", n%300), strings.Repeat("ä", n/2), bytes.Repeat([]byte{7}, n)
		m := wire.Message{
			Properties: &wire.Properties{MessageID: id, To: to, HasTo: true, ContentType: "application/json", CreationTime: 123, HasCreationTime: true},
			Data:       [][]byte{data},
		}
		want, err := m.Append(nil)
		if got := wire.AppendDataMessage(nil, []byte(id), to, "application/json", 123, data); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: got %.60x, want %.60x (%v)", n, got, want, err)
		}
	}
}
