package relay

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"unicode/utf8"
)

// Body is the parts of a request or a response, one after the other. An error is its last.
type Body = iter.Seq2[json.RawMessage, error]

// PartSize is the most bytes of a part of FromReader.
const PartSize = 32 << 10

// Parts is a body of these parts.
func Parts(parts ...json.RawMessage) Body {
	return func(yield func(json.RawMessage, error) bool) {
		for _, p := range parts {
			if !yield(p, nil) {
				return
			}
		}
	}
}

// String is text as JSON. What is no UTF-8 in it is replaced.
func String(s string) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s) // a string always can be
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Bytes is bytes as JSON: a string where they are UTF-8, else {"base64":"…"}.
func Bytes(p []byte) json.RawMessage {
	if utf8.Valid(p) {
		return String(string(p))
	}
	b, _ := json.Marshal(base64{p}) // always can be
	return b
}

type base64 struct {
	Base64 []byte `json:"base64"`
}

// ParseBytes gives the bytes that Bytes has made JSON of. Other JSON is given as it is, isOther is true then.
func ParseBytes(data json.RawMessage) (p []byte, isOther bool) {
	var s string
	trimmed := bytes.TrimLeft(data, " \t\r\n")
	switch {
	case bytes.HasPrefix(trimmed, []byte(`"`)) && json.Unmarshal(data, &s) == nil:
		return []byte(s), false
	case bytes.HasPrefix(trimmed, []byte("{")):
		var keys map[string]json.RawMessage
		var b base64
		if json.Unmarshal(data, &keys) == nil && len(keys) == 1 && keys["base64"] != nil && json.Unmarshal(data, &b) == nil {
			return b.Base64, false
		}
	}
	return data, true
}

// FromReader is a body of what r gives, as it comes, in parts of PartSize at most as Bytes makes them. Text is cut between characters.
func FromReader(r io.Reader) Body {
	return func(yield func(json.RawMessage, error) bool) {
		buf := make([]byte, PartSize)
		have := 0
		for {
			n, err := r.Read(buf[have:])
			have += n
			cut := have
			if err == nil {
				cut = whole(buf[:have])
			}
			if cut > 0 && !yield(Bytes(buf[:cut]), nil) {
				return
			}
			have = copy(buf, buf[cut:have])
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(nil, err)
				}
				return
			}
		}
	}
}

// whole is the length of p without a character that begins at its end and is not all there.
func whole(p []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		if c := p[len(p)-i]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(p[len(p)-i:]) {
				return len(p) - i
			}
			break
		}
	}
	return len(p)
}
