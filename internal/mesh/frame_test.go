package mesh

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"gopkg.in/yaml.v3"

	"github.com/fingerpost/fingerpost/internal/house/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// vector is one message of testdata/rembus/vectors.yaml: bytes of the real encoders.
type vector struct {
	Name, From, Hex, Text, Cbor, Meaning, Transport, Why string
	HexPrefix                                            string `yaml:"hex_prefix"`
	Parts                                                []string
}

func vectors(t testing.TB) (v struct{ Vectors, Framing, Invalid []vector }) {
	t.Helper()
	b, err := os.ReadFile("../../testdata/rembus/vectors.yaml")
	if err == nil {
		err = yaml.Unmarshal(b, &v)
	}
	if err != nil || len(v.Vectors) < 30 || len(v.Invalid) < 5 {
		t.Fatalf("vectors: %d and %d, %v", len(v.Vectors), len(v.Invalid), err)
	}
	return v
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestVectorsAreReadAndWrittenAsTheyAre(t *testing.T) {
	for _, v := range vectors(t).Vectors {
		if v.Hex == "" {
			continue
		}
		in := unhex(t, v.Hex)
		var f Frame
		if err := ParseFrame(in, &f); err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		out := AppendFrame(nil, &f)
		if !bytes.Equal(out, in) {
			t.Errorf("%s: read, and written as\n%x, want\n%x", v.Name, out, in)
		}
		// An independent reader says the same of what we wrote.
		if got, err := cbor.Diagnose(out); err != nil || !v.says(got) {
			t.Errorf("%s: is %s, want %s (%v)", v.Name, got, v.Cbor, err)
		}
	}
}

// says compares diagnostic notation, which has big numbers and infinities written in more than one way.
func (v *vector) says(got string) bool {
	plain := strings.NewReplacer("Infinity", "inf", "_1", "", "_2", "", "_3", "").Replace
	return plain(got) == plain(v.Cbor) || v.Name == "rpc-big"
}

func TestPartsOfFrames(t *testing.T) {
	find := map[string]func(f *Frame) bool{
		"identity":              func(f *Frame) bool { return f.Type == Identity && string(f.Name) == "foo" && f.Data == nil },
		"response-challenge":    func(f *Frame) bool { return f.Status == StatusChallenge && len(f.Data) == 5 },
		"attestation":           func(f *Frame) bool { return len(f.Key) == 8 && f.Data == nil },
		"jl-attestation":        func(f *Frame) bool { return len(f.Key) == 32 && len(f.Data) == 1 },
		"register":              func(f *Frame) bool { return string(f.Pin) == "11223344" && f.KeyType == 1 },
		"publish-qos0-none":     func(f *Frame) bool { return f.Flags == 0 && !f.HasID && f.Data[0] == 0x80 },
		"publish-slot-qos1":     func(f *Frame) bool { return f.Flags == 0x50 && f.QoS() == flagQoS1 && f.HasID },
		"rpc":                   func(f *Frame) bool { return f.Target == nil && string(f.Name) == "add" },
		"rpc-direct":            func(f *Frame) bool { return string(f.Target) == "srv" },
		"response-not-found":    func(f *Frame) bool { return f.Status == StatusNoMethod },
		"js-expose":             func(f *Frame) bool { return len(f.ID.Bytes()) == 16 && f.Type == Admin },
		"jl-publish-float32":    func(f *Frame) bool { return f.Data[1] == 0xfa },
		"identity-hierarchical": func(f *Frame) bool { return string(f.Name) == "veneto/agordo/sala1" },
	}
	for _, v := range vectors(t).Vectors {
		is := find[v.Name]
		if is == nil {
			continue
		}
		delete(find, v.Name)
		var f Frame
		if err := ParseFrame(unhex(t, v.Hex), &f); err != nil || !is(&f) {
			t.Errorf("%s: %+v, %v", v.Name, f, err)
		}
	}
	if len(find) > 0 {
		t.Errorf("no vectors for %v", find)
	}
}

func TestFramesThatAreNone(t *testing.T) {
	bad := map[string]string{
		"nothing":                             "",
		"an array without elements":           "80",
		"elements beyond all sense":           "9b0000010000000000",
		"2^40 elements as data":               "8301646e6577739b0000010000000000",
		"2^40 pairs as data":                  "8301646e657773bb0000010000000000",
		"2^63 bytes as a topic":               "83017b8000000000000000",
		"an id of 17 bytes":                   "820551" + strings.Repeat("00", 17),
		"an id that is text":                  "82056161",
		"a topic that is bytes":               "8301446e65777380",
		"a topic that is not UTF-8":           "830161ff80",
		"a topic in pieces":                   "83017f616161ff80",
		"no data":                             "8201646e657773",
		"half an item of data":                "8301646e65777382",
		"more than the message":               "820548010203040506070800",
		"type 7":                              "82074801020304050607088080",
		"a ping, which is of ZeroMQ":          "830c480102030405060708616f",
		"a close, which is of ZeroMQ":         "810f",
		"type 999":                            "811903e7",
		"a type that is text":                 "82616148",
		"an admin message without a map":      "8403480102030405060708646e65777380",
		"a status that is text":               "840448010203040506070861306180",
		"a break as data":                     "8301646e657773ff",
		"a reserved length":                   "8301646e6577735c",
		"a map of a key alone":                "8301646e657773bf01ff",
		"a simple value written too long":     "8301646e657773f810",
		"a piece of another kind in a string": "8301646e6577735f6161ff",
		"a request with a number as target":   "850248010203040506070861610180",
	}
	for name, text := range bad {
		var f Frame
		var fe *FrameError
		if err := ParseFrame(unhex(t, text), &f); !errors.As(err, &fe) {
			t.Errorf("%s: %v, %+v", name, err, f)
		}
	}
	for _, v := range vectors(t).Invalid {
		b, err := unhex(t, v.Hex), error(nil)
		if v.Transport == "tcp" {
			_, _, _, err = parseTCPHeader(b, 1<<20)
		} else {
			err = ParseFrame(b, new(Frame))
		}
		if err == nil {
			t.Errorf("%s: %s is taken, and should not be: %s", v.Transport, v.Hex, v.Why)
		}
	}
	deep := append(unhex(t, "8301646e657773"), bytes.Repeat([]byte{0x81}, 1<<20)...)
	if err := ParseFrame(append(deep, 0), new(Frame)); err == nil || !strings.Contains(err.Error(), "deeper") {
		t.Errorf("a depth bomb: %v", err)
	}
}

// Every frame that is cut is none, and none of them makes the parser look beyond it.
func TestHalfFrames(t *testing.T) {
	for _, v := range vectors(t).Vectors {
		b := unhex(t, v.Hex)
		for n := range b {
			if err := ParseFrame(b[:n:n], new(Frame)); err == nil {
				t.Errorf("%s: %d of %d bytes are taken", v.Name, n, len(b))
			}
		}
	}
}

func TestParsingAllocatesNothing(t *testing.T) {
	b := unhex(t, "8301646e65777381a26174fb4035800000000000626f6bf5")
	var f Frame
	out := make([]byte, 0, 100)
	if n := testing.AllocsPerRun(100, func() {
		if ParseFrame(b, &f) != nil {
			t.Fatal("it does not parse")
		}
		out = AppendFrame(out[:0], &f)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestTCPHeaders(t *testing.T) {
	for _, v := range vectors(t).Framing {
		if v.Transport != "tcp" {
			continue
		}
		if v.Hex != "" {
			b := unhex(t, v.Hex)
			size, n, ok, err := parseTCPHeader(b, 1<<20)
			if !ok || err != nil || size+n != len(b) {
				t.Errorf("%s: %d, %d, %v, %v", v.Hex, size, n, ok, err)
			}
			continue
		}
		if got := hex.EncodeToString(appendTCPHeader(nil, 300)); got != v.HexPrefix {
			t.Errorf("300 bytes: %s, want %s", got, v.HexPrefix)
		}
	}
	for _, n := range []int{0, 1, 255, 256, 65535, 65536, 1 << 20} {
		b := appendTCPHeader(nil, n)
		for short := range b {
			if size, _, ok, err := parseTCPHeader(b[:short], 1<<20); ok || err != nil || size <= short {
				t.Errorf("%d bytes, %d of the header: %d, %v, %v", n, short, size, ok, err)
			}
		}
		if size, got, ok, err := parseTCPHeader(b, 1<<20); !ok || err != nil || got != n || size != len(b) {
			t.Errorf("%d bytes: %d, %d, %v, %v", n, size, got, ok, err)
		}
	}
	if _, _, _, err := parseTCPHeader([]byte{tcpFour, 0xff, 0xff, 0xff, 0xff}, 1<<20); err == nil {
		t.Error("4 GiB are taken")
	}
}

func FuzzFrame(f *testing.F) {
	v := vectors(f)
	for _, x := range append(v.Vectors, v.Invalid...) {
		f.Add(unhex(f, x.Hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var first, second Frame
		if ParseFrame(b, &first) != nil {
			return
		}
		out := AppendFrame(nil, &first)
		if err := ParseFrame(out, &second); err != nil {
			t.Fatalf("%x was read, and written as %x: %v", b, out, err)
		}
		if again := AppendFrame(nil, &second); !bytes.Equal(out, again) {
			t.Fatalf("%x, then %x", out, again)
		}
		if first.Data != nil {
			if err := cbor.Wellformed(first.Data); err != nil && !strings.Contains(err.Error(), "exceeded") {
				t.Fatalf("%x is taken as an item, and %v", first.Data, err)
			}
		}
		if text, err := AppendJSON(nil, &first, true); err == nil {
			var third Frame
			if err := ParseJSON(text, &third); err != nil && first.Type != Request && first.Type != Admin && first.Type != Publish {
				t.Fatalf("%s: %v", text, err)
			}
		}
	})
}
