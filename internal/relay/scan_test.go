package relay

import (
	"encoding/json"
	"strings"
	"testing"
)

// checkScan holds the scanner to encoding/json.
func checkScan(t *testing.T, text []byte) {
	var s scanner
	ops, err := s.scan(text, nil)
	var elements []json.RawMessage
	jsonErr := json.Unmarshal(text, &elements)
	if jsonErr == nil && elements == nil { // null
		jsonErr = errNoArray
	}
	if err == errTooMany {
		if jsonErr == nil && len(elements) <= maxOps {
			t.Fatalf("too many ops, of %d: %q", len(elements), text)
		}
		return
	}
	if (err == nil) != (jsonErr == nil) {
		t.Fatalf("scan says %v, encoding/json %v: %q", err, jsonErr, text)
	}
	if err != nil {
		return
	}
	if len(ops) != len(elements) {
		t.Fatalf("%d ops, encoding/json has %d: %q", len(ops), len(elements), text)
	}
	for i, e := range elements {
		checkOp(t, ops[i], e)
	}
}

func checkOp(t *testing.T, o op, e json.RawMessage) {
	var fields map[string]json.RawMessage
	if e[0] != '{' {
		if o.kind != kindBad || o.topic != nil {
			t.Fatalf("%s is no op, and is read as one of kind %d", e, o.kind)
		}
		return
	}
	if err := json.Unmarshal(e, &fields); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]byte{"topic": o.topic, "id": o.id, "ref": o.ref, "to": o.to, "data": o.data, "done": o.done} {
		if want := fields[name]; string(got) != string(want) || (got == nil) != (want == nil) {
			t.Fatalf("%s of %s: got %q, want %q", name, e, got, want)
		}
		var text string
		if len(got) > 0 && got[0] == '"' && json.Unmarshal(got, &text) == nil {
			if plain, _ := unescape(nil, got[1:len(got)-1]); strings.ToValidUTF8(string(plain), "\ufffd") != strings.ToValidUTF8(text, "\ufffd") {
				t.Fatalf("%s stands for %q, read as %q", got, text, plain)
			}
		}
	}
	want, word := kindBad, ""
	if raw := fields["op"]; len(raw) > 0 && raw[0] == '"' {
		json.Unmarshal(raw, &word)
		want = kindUnknown
		for k := kindHead; k <= kindUnserve; k++ {
			if names[k] == word {
				want = k
			}
		}
	}
	if o.kind != want {
		t.Fatalf("kind of %s: got %d, want %d", e, o.kind, want)
	}
}

var scanSeeds = []string{
	`[]`, ` [ ] `, `null`, `7`, `"x"`, `{}`, `[`, `[]]`, `[,]`, `[1,]`, `[{}]`, `[{},7,null,"a",[1,[2]],{"a":{"b":[]}}]`,
	`[{"op":"head","topic":"echo","id":"r1","data":{"hello":"world"},"ref":"1"}]`,
	`[{"op":"body","topic":"t","id":"1","to":"abc","done":true,"data":[1,2.5e-3,-0,"\ud83d\ude00",null,false,{}]}]`,
	"\n [ \t{ \"op\" : \"unserve\",\r\n \"topic\" : \"t\" , \"ref\":\"1\" } ] \n",
	`[{"op":"head","op":"body","topic":1,"topic":"z"}]`, `[{"\u006fp":"h\u0065ad","t\u006fpic":"\ud800x"}]`,
	`[{"op":"head","data":01}]`, `[{"op":"head","data":1.}]`, `[{"op":"head","data":.5}]`, `[{"op":"head","data":1e}]`, `[{"op":"head","data":-}]`,
	`[{"op":"head","data":tru}]`, `[{"op":"head","data":"\x"}]`, `[{"op":"head","data":"\u12g4"}]`, "[\"\x01\"]", "[\"abcdefghijk\x1f\"]", `["abcdefghi\"jklmnop"]`,
	`[{"a"}]`, `[{"a":}]`, `[{"a":1,}]`, `[{a:1}]`, `[[[[[{"a":[{}]}]]]]]`, `[[}]`, `[{]]`, `[{"data":{"a":1,"b":[}}]`, "[\"\xff\xfe\"]", `[{"op":7}]`, `[{"op":""}]`,
	`["\u0000\b\f\n\r\t\/"]`, `[{"data":` + "\x00" + `}]`,
}

func TestScan(t *testing.T) {
	for _, text := range scanSeeds {
		checkScan(t, []byte(text))
	}
	for _, n := range []int{9_997, 9_998, 9_999, 10_000, 10_001} {
		checkScan(t, []byte(strings.Repeat("[", n)+strings.Repeat("]", n)))
		checkScan(t, []byte(`[{"data":`+strings.Repeat(`{"a":`, n)+"1"+strings.Repeat("}", n)+"}]"))
	}
	for _, n := range []int{99, 100, 101} {
		text := "[" + strings.Repeat("{},", n-1) + "{}]"
		checkScan(t, []byte(text))
		if _, err := new(scanner).scan([]byte(text), nil); (err == errTooMany) != (n > 100) {
			t.Errorf("%d ops: %v", n, err)
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, text := range scanSeeds {
		f.Add([]byte(text))
	}
	f.Fuzz(checkScan)
}

func TestScanAllocatesNothing(t *testing.T) {
	var s scanner
	ops := make([]op, 0, maxOps)
	msg := []byte(`[{"op":"head","topic":"echo","id":"r1","data":{"hello":["world",{"a":1}]},"ref":"1"},{"op":"body","topic":"echo","id":"r1","done":true,"ref":"2"}]`)
	s.scan(msg, ops)
	if n := testing.AllocsPerRun(100, func() { s.scan(msg, ops) }); n != 0 {
		t.Errorf("%v allocations a message", n)
	}
}

func TestTextIsJSON(t *testing.T) {
	for _, text := range []string{"", "echo", "a\"b\\c\x00\x1f\n/<>&", "żółw 🐢 \u2028"} {
		var got string
		if err := json.Unmarshal(appendText(nil, text), &got); err != nil || got != text {
			t.Errorf("%q comes back as %q: %v", text, got, err)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	var s scanner
	ops := make([]op, 0, maxOps)
	for _, msg := range []string{
		`[{"op":"head","topic":"echo","id":"r1","data":{"hello":"world"},"ref":"1"}]`,
		`[{"op":"body","topic":"echo","id":"r1","data":"` + strings.Repeat("x", 64<<10) + `","ref":"1"}]`,
	} {
		b.Run(map[bool]string{true: "small", false: "64KiB"}[len(msg) < 1000], func(b *testing.B) {
			text := []byte(msg)
			b.SetBytes(int64(len(msg)))
			for b.Loop() {
				s.scan(text, ops)
			}
		})
	}
}
