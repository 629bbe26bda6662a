package wire_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// unhex reads hexadecimal bytes; blanks are for the reader.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// golden are values and their shortest encodings, by hand from AMQP 1.0 part 1, 1.6.
var golden = []struct {
	name  string
	value any
	hex   string
}{
	{"null", nil, "40"},
	{"true", true, "41"},
	{"false", false, "42"},
	{"ubyte", uint8(255), "50 ff"},
	{"ushort", uint16(0x1234), "60 12 34"},
	{"uint zero", uint32(0), "43"},
	{"uint small", uint32(255), "52 ff"},
	{"uint", uint32(256), "70 00 00 01 00"},
	{"uint greatest", uint32(math.MaxUint32), "70 ff ff ff ff"},
	{"ulong zero", uint64(0), "44"},
	{"ulong small", uint64(1), "53 01"},
	{"ulong", uint64(1 << 40), "80 00 00 01 00 00 00 00 00"},
	{"byte", int8(-1), "51 ff"},
	{"short", int16(-2), "61 ff fe"},
	{"int small", int32(-128), "54 80"},
	{"int", int32(-129), "71 ff ff ff 7f"},
	{"long small", int64(127), "55 7f"},
	{"long", int64(128), "81 00 00 00 00 00 00 00 80"},
	{"float", float32(1.5), "72 3f c0 00 00"},
	{"double", -2.0, "82 c0 00 00 00 00 00 00 00"},
	{"decimal32", wire.Decimal32{1, 2, 3, 4}, "74 01 02 03 04"},
	{"decimal64", wire.Decimal64{1, 2, 3, 4, 5, 6, 7, 8}, "84 01 02 03 04 05 06 07 08"},
	{"decimal128", wire.Decimal128{15: 1}, "94 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01"},
	{"char", wire.Char('€'), "73 00 00 20 ac"},
	{"timestamp", wire.Timestamp(1311704463521), "83 00 00 01 31 67 ad b8 a1"},
	{"timestamp before the epoch", wire.Timestamp(-1), "83 ff ff ff ff ff ff ff ff"},
	{"uuid", wire.UUID{0xf8, 1, 15: 9}, "98 f8 01 00 00 00 00 00 00 00 00 00 00 00 00 00 09"},
	{"binary", []byte{0, 255}, "a0 02 00 ff"},
	{"empty binary", []byte{}, "a0 00"},
	{"string", "Grüß", "a1 06 47 72 c3 bc c3 9f"},
	{"empty string", "", "a1 00"},
	{"symbol", wire.Symbol("ab"), "a3 02 61 62"},
	{"empty list", wire.List{}, "45"},
	{"list", wire.List{nil, uint8(7), "x"}, "c0 07 03 40 50 07 a1 01 78"},
	{"nested list", wire.List{wire.List{}, wire.List{true}}, "c0 06 02 45 c0 02 01 41"},
	{"empty map", wire.Map{}, "c1 01 00"},
	{"map keeps order and both kinds of key", wire.Map{{"a", uint32(0)}, {wire.Symbol("a"), nil}},
		"c1 09 04 a1 01 61 43 a3 01 61 40"},
	{"map keeps keys that occur twice", wire.Map{{true, uint8(1)}, {true, uint8(2)}}, "c1 07 04 41 50 01 41 50 02"},
	{"array of uint", wire.Array{Code: 0x70, Elems: []any{uint32(1), uint32(2)}}, "e0 0a 02 70 00 00 00 01 00 00 00 02"},
	{"array of smalluint", wire.Array{Code: 0x52, Elems: []any{uint32(1), uint32(2)}}, "e0 04 02 52 01 02"},
	{"array of boolean", wire.Array{Code: 0x56, Elems: []any{true, false}}, "e0 04 02 56 01 00"},
	{"array of true", wire.Array{Code: 0x41, Elems: []any{true, true}}, "e0 02 02 41"},
	{"array of null", wire.Array{Code: 0x40, Elems: []any{nil, nil, nil}}, "e0 02 03 40"},
	{"array of symbol", wire.Array{Code: 0xa3, Elems: []any{wire.Symbol("a"), wire.Symbol("bc")}}, "e0 07 02 a3 01 61 02 62 63"},
	{"empty array", wire.Array{Code: 0xa1, Elems: []any{}}, "e0 02 00 a1"},
	{"array of list", wire.Array{Code: 0xd0, Elems: []any{wire.List{uint8(1)}, wire.List{}}},
		"e0 14 02 d0 00 00 00 06 00 00 00 01 50 01 00 00 00 04 00 00 00 00"},
	{"array of map", wire.Array{Code: 0xd1, Elems: []any{wire.Map{{nil, nil}}}}, "e0 0c 01 d1 00 00 00 06 00 00 00 02 40 40"},
	{"array of array", wire.Array{Code: 0xf0, Elems: []any{wire.Array{Code: 0x50, Elems: []any{uint8(9)}}}},
		"e0 0c 01 f0 00 00 00 06 00 00 00 01 50 09"},
	{"array of described", wire.Array{Code: 0x50, Descriptors: []any{uint64(5)}, Elems: []any{uint8(1), uint8(2)}},
		"e0 07 02 00 53 05 50 01 02"},
	{"described", wire.Described{wire.Symbol("x:y"), uint64(3)}, "00 a3 03 78 3a 79 53 03"},
	{"described by a described", wire.Described{wire.Described{nil, nil}, nil}, "00 00 40 40 40"},
	{"a source as a value", wire.Described{uint64(0x28), wire.List{"q"}}, "00 53 28 c0 04 01 a1 01 71"},
}

func TestValuesAreEncodedAsTheSpecificationSays(t *testing.T) {
	for _, c := range golden {
		want := unhex(t, c.hex)
		got, err := wire.AppendValue([]byte("before"), c.value)
		if err != nil || !bytes.Equal(got, append([]byte("before"), want...)) {
			t.Errorf("%s: encode: got % x, %v, want % x", c.name, got, err, want)
		}
		v, rest, err := wire.ParseValue(append(want, "rest"...), nil)
		if err != nil || !reflect.DeepEqual(v, c.value) || string(rest) != "rest" {
			t.Errorf("%s: decode: got %#v, %q, %v, want %#v", c.name, v, rest, err, c.value)
		}
		if rest, err := wire.SkipValue(append(want, "rest"...)); err != nil || string(rest) != "rest" {
			t.Errorf("%s: skip: got %q, %v", c.name, rest, err)
		}
		for n := range want {
			_, _, err := wire.ParseValue(want[:n], nil)
			_, skipErr := wire.SkipValue(want[:n])
			for _, err := range []error{err, skipErr} {
				var de *wire.DecodeError
				if !errors.As(err, &de) || !de.Short || de.Offset > n {
					t.Errorf("%s: cut to %d bytes: got %v, want a short input", c.name, n, err)
				}
			}
		}
	}
}

func TestLongFormsAreUnderstoodAndLongValuesUseThem(t *testing.T) {
	for _, c := range []struct {
		name  string
		hex   string
		value any
	}{
		{"boolean byte", "56 01", true},
		{"uint", "70 00 00 00 05", uint32(5)},
		{"ulong", "80 00 00 00 00 00 00 00 05", uint64(5)},
		{"int", "71 00 00 00 05", int32(5)},
		{"long", "81 00 00 00 00 00 00 00 05", int64(5)},
		{"binary", "b0 00 00 00 01 09", []byte{9}},
		{"string", "b1 00 00 00 01 61", "a"},
		{"symbol", "b3 00 00 00 01 61", wire.Symbol("a")},
		{"empty list8", "c0 01 00", wire.List{}},
		{"list32", "d0 00 00 00 05 00 00 00 01 40", wire.List{nil}},
		{"map32", "d1 00 00 00 06 00 00 00 02 40 40", wire.Map{{nil, nil}}},
		{"array32", "f0 00 00 00 06 00 00 00 01 50 09", wire.Array{Code: 0x50, Elems: []any{uint8(9)}}},
		{"array of list8", "e0 05 01 c0 02 01 40", wire.Array{Code: 0xd0, Elems: []any{wire.List{nil}}}},
		{"array of str32", "e0 07 01 b1 00 00 00 01 61", wire.Array{Code: 0xa1, Elems: []any{"a"}}},
	} {
		v, rest, err := wire.ParseValue(unhex(t, c.hex), nil)
		if err != nil || !reflect.DeepEqual(v, c.value) || len(rest) != 0 {
			t.Errorf("%s: got %#v, % x, %v, want %#v", c.name, v, rest, err, c.value)
		}
	}

	long := strings.Repeat("x", 256)
	list := make(wire.List, 300)
	m := make(wire.Map, 128)
	for _, v := range []any{
		long, wire.Symbol(long), []byte(long), list, m, wire.List{long, list}, wire.Map{{long, m}},
		wire.Array{Code: 0xa1, Elems: []any{"a", long}}, wire.Array{Code: 0xa3, Elems: []any{wire.Symbol(long)}},
		wire.Array{Code: 0xa0, Elems: []any{[]byte("a"), []byte(long)}}, wire.Array{Code: 0x40, Elems: make([]any, 300)},
		wire.Array{Code: 0xf0, Elems: []any{wire.Array{Code: 0xa1, Elems: []any{long}}}},
	} {
		b, err := wire.AppendValue(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		got, rest, err := wire.ParseValue(b, nil)
		if err != nil || len(rest) != 0 || !reflect.DeepEqual(got, v) {
			t.Errorf("%T: does not come back: % x: %v", v, b[:min(len(b), 20)], err)
		}
	}
}

func TestArraysTakeTheTypeOfTheirFirstElement(t *testing.T) {
	for _, e := range []any{nil, true, uint8(1), uint16(1), uint32(1), uint64(1), int8(1), int16(1), int32(1), int64(1), float32(1), 1.0,
		wire.Timestamp(1), wire.UUID{}, wire.Char('x'), wire.Decimal32{}, wire.Decimal64{}, wire.Decimal128{}, []byte{1}, "s",
		wire.Symbol("s"), wire.List{}, wire.Map{}, wire.Array{Code: 0x40, Elems: []any{}}} {
		b, err := wire.AppendValue(nil, wire.Array{Elems: []any{e, e}})
		if err != nil {
			t.Errorf("%T: %v", e, err)
			continue
		}
		v, _, err := wire.ParseValue(b, nil)
		if a, ok := v.(wire.Array); err != nil || !ok || !reflect.DeepEqual(a.Elems, []any{e, e}) {
			t.Errorf("%T: got %#v, %v", e, v, err)
		}
	}
}

func TestValuesThatCannotBeEncodedAreErrors(t *testing.T) {
	deep := any(nil)
	for range 40 {
		deep = wire.List{deep}
	}
	loop := wire.List{nil}
	loop[0] = loop
	for name, v := range map[string]any{
		"a Go struct":                 struct{}{},
		"a pointer":                   new(int),
		"a string that is not UTF-8":  "\xff",
		"a symbol that is not ASCII":  wire.Symbol("ü"),
		"a surrogate":                 wire.Char(0xd800),
		"too deep":                    deep,
		"a list in itself":            loop,
		"mixed array":                 wire.Array{Elems: []any{uint8(1), "x"}},
		"array that does not fit":     wire.Array{Code: 0x52, Elems: []any{uint32(256)}},
		"array of true with a false":  wire.Array{Code: 0x41, Elems: []any{false}},
		"array of list0 with an item": wire.Array{Code: 0x45, Elems: []any{wire.List{nil}}},
		"array of no type":            wire.Array{Code: 0x33},
		"described, inside bad":       wire.Described{"\xff", nil},
		"map, key bad":                wire.Map{{struct{}{}, nil}},
		"long array, one bad string":  wire.Array{Code: 0xa1, Elems: []any{strings.Repeat("x", 300), "\xff"}},
	} {
		got, err := wire.AppendValue([]byte("before"), v)
		if err == nil || string(got) != "before" {
			t.Errorf("%s: got % x, want an error", name, got)
		}
	}
}

func TestMalformedValuesAreErrors(t *testing.T) {
	for _, c := range []struct {
		name, hex, want string
		skipped         bool // SkipValue does not look that far
	}{
		{"nothing", "", "value cut short", false},
		{"unknown code", "3f", "unknown format code", false},
		{"reserved code of a known width", "57 00", "unknown format code", false},
		{"boolean 2", "56 02", "boolean", true},
		{"string not UTF-8", "a1 01 ff", "UTF-8", true},
		{"symbol not ASCII", "a3 01 80", "ASCII", true},
		{"char beyond Unicode", "73 00 11 00 00", "Unicode", true},
		{"char surrogate", "73 00 00 d8 00", "Unicode", true},
		{"char negative", "73 ff ff ff ff", "Unicode", true},
		{"string of 4 GiB", "b1 ff ff ff ff 61", "value cut short", false},
		{"list of size 0", "c0 00 00", "size too small", false},
		{"list32 of size 3", "d0 00 00 00 03 00 00 00 00", "size too small", false},
		{"list of 4 GiB", "d0 ff ff ff ff 00 00 00 00", "value cut short", false},
		{"list with more entries than bytes", "c0 02 02 40", "count greater", false},
		{"list of 4 Gi entries", "d0 00 00 00 05 ff ff ff ff 40", "count greater", false},
		{"list with bytes left", "c0 03 01 40 40", "bytes left", true},
		{"entry longer than its list", "c0 03 01 a1 05 61 61 61 61 61", "entry longer", true},
		{"map with an odd count", "c1 02 01 40", "odd", false},
		{"map32 with an odd count", "d1 00 00 00 05 00 00 00 01 40", "odd", false},
		{"map with bytes left", "c1 04 02 40 40 40", "bytes left", true},
		{"array without a constructor", "e0 01 00", "size too small", false},
		{"array with more elements than bytes", "e0 04 03 50 01 02", "count greater", false},
		{"array of strings, one too long", "e0 03 01 a1 05 61 61 61 61 61", "entry longer", true},
		{"array with bytes left", "e0 04 01 50 01 02", "bytes left", true},
		{"array of 4 Gi nulls", "f0 00 00 00 05 ff ff ff ff 40", "", true},
		{"array of 65537 empty lists", "f0 00 00 00 05 00 01 00 01 45", "too many", true},
		{"array of an unknown type", "e0 02 00 3f", "unknown format code", true},
		{"described without a value", "00 53 01", "value cut short", false},
		{"descriptor only opened", "00", "value cut short", false},
	} {
		b := unhex(t, c.hex)
		_, _, err := wire.ParseValue(b, nil)
		var de *wire.DecodeError
		if !errors.As(err, &de) || !strings.Contains(err.Error(), c.want) || de.Offset > len(b) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		_, err = wire.SkipValue(b)
		if c.skipped {
			continue
		}
		if !errors.As(err, &de) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: skip: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestDepthIsBounded(t *testing.T) {
	for name, b := range map[string][]byte{
		"described values":    append([]byte{0, 0x53, 0x77}, make([]byte, 800_000)...),
		"descriptors":         make([]byte, 800_000),
		"values of described": bytes.Repeat([]byte{0, 0x40}, 400_000),
	} {
		if _, _, err := wire.ParseValue(b, nil); err == nil || !strings.Contains(err.Error(), "deeply") {
			t.Errorf("%s: parse: got %v", name, err)
		}
		if _, err := wire.SkipValue(b); err == nil || !strings.Contains(err.Error(), "deeply") {
			t.Errorf("%s: skip: got %v", name, err)
		}
		var s wire.Sections
		var m wire.Message
		if wire.ScanMessage(b, &s) == nil || wire.ScanHead(b, &s) == nil && name != "described values" || m.Parse(b) == nil {
			t.Errorf("%s: taken for a message", name)
		}
	}
	nest := func(n int) []byte {
		v := any(true)
		for range n {
			v = wire.List{v}
		}
		b, err := wire.AppendValue(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if _, _, err := wire.ParseValue(nest(32), nil); err != nil {
		t.Errorf("32 lists: %v", err)
	}
	if _, _, err := wire.ParseValue(append([]byte{0xc0, byte(len(nest(32)) + 1), 1}, nest(32)...), nil); err == nil {
		t.Error("33 lists: no error")
	}
	if _, _, err := wire.ParseValue(nest(3), &wire.Limits{Depth: 2}); err == nil {
		t.Error("3 lists of 2 allowed: no error")
	}
}

func TestMemoryIsBoundedByTheInput(t *testing.T) {
	// Many arrays of zero-width elements share one allowance.
	one := unhex(t, "f0 00 00 00 05 00 00 ff ff 40")
	list := append([]byte{0xd0, 0, 0, 0, 0, 0, 0, 0, 100}, bytes.Repeat(one, 100)...)
	list[3], list[4] = byte((len(list)-5)>>8), byte(len(list)-5)
	if _, _, err := wire.ParseValue(list, nil); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("100 arrays of 65535 nulls: got %v", err)
	}
	if _, _, err := wire.ParseValue(list, &wire.Limits{Entries: 100 << 16}); err != nil {
		t.Errorf("with a higher limit: %v", err)
	}
	if _, err := wire.SkipValue(list); err != nil {
		t.Errorf("skip: %v", err)
	}

	// Counts that lie at every level do not add up.
	lie := []byte{}
	for range 31 {
		lie = append(lie, 0xd0, 0, 0xff, 0xff, 0xff, 0, 0xff, 0, 0)
	}
	lie = append(lie, make([]byte, 0x1000000)...)
	r := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			wire.ParseValue(lie, nil)
		}
	})
	if r.AllocedBytesPerOp() > 1<<20 {
		t.Errorf("lying counts made it allocate %d bytes", r.AllocedBytesPerOp())
	}
}

func TestMapGet(t *testing.T) {
	m := wire.Map{{uint64(1), "n"}, {wire.Symbol("a"), "first"}, {"a", "second"}, {"b", nil}}
	if v, ok := m.Get("a"); v != "first" || !ok {
		t.Errorf("a: got %v, %v", v, ok)
	}
	if v, ok := m.Get("b"); v != nil || !ok {
		t.Errorf("b: got %v, %v", v, ok)
	}
	if v, ok := m.Get("1"); v != nil || ok {
		t.Errorf("1: got %v, %v", v, ok)
	}
}
