package relay_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fingerpost/fingerpost/messenger/relay"
)

func TestBytesAreTextWhereTheyCanBe(t *testing.T) {
	for _, c := range []struct{ bytes, want string }{
		{"", `""`}, {"a<b>&\"\n", `"a<b>&\"\n"`}, {"€", `"€"`}, {"\x00", `"\u0000"`}, {"\xff\x00", `{"base64":"/wA="}`},
	} {
		got := relay.Bytes([]byte(c.bytes))
		if string(got) != c.want {
			t.Errorf("%q: got %s, want %s", c.bytes, got, c.want)
		}
		if back, isOther := relay.ParseBytes(got); string(back) != c.bytes || isOther {
			t.Errorf("%s: got %q back", got, back)
		}
	}
	for _, other := range []string{`{}`, `1`, `null`, `[1, 2]`, `{"base64":1}`, `{"base64":"!"}`, `{"base64":"","x":1}`} {
		if got, isOther := relay.ParseBytes(json.RawMessage(other)); string(got) != other || !isOther {
			t.Errorf("%s: got %q, %t", other, got, isOther)
		}
	}
}

func TestFromReaderKeepsTextAsText(t *testing.T) {
	for name, text := range map[string]string{"text": strings.Repeat("x€𝄞", 20_000), "binary": strings.Repeat("\xff\xfe\xe2", 30_000), "half a character": "abc\xe2\x82", "none": ""} {
		var got bytes.Buffer
		for p, err := range relay.FromReader(iotest.HalfReader(strings.NewReader(text))) {
			b, _ := relay.ParseBytes(p)
			if err != nil || len(b) > relay.PartSize || name == "text" && p[0] != '"' {
				t.Errorf("%s: a part of %d bytes, %.20s, %v", name, len(b), p, err)
			}
			got.Write(b)
		}
		if got.String() != text {
			t.Errorf("%s: got %d bytes, want %d", name, got.Len(), len(text))
		}
	}
}

func TestFailure(t *testing.T) {
	for text, code := range map[string]string{
		`{"error":{"code":"x","message":"m"}}`: "x", ` {"error":{"code":"y"},"more":1}`: "y", `{"error":"x"}`: "", `{"error":{}}`: "", `"error"`: "", ``: "", `{}`: "",
	} {
		e, ok := relay.Failure(json.RawMessage(text))
		if ok != (code != "") || ok && e.Code != code {
			t.Errorf("%s: got %v, %t", text, e, ok)
		}
	}
}
