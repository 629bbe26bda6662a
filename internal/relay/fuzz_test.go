package relay

import (
	"encoding/json"
	"testing"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// framesOf gives the payloads of frames of a server.
func framesOf(t *testing.T, b []byte) (payloads [][]byte) {
	for len(b) > 0 {
		n, head := int(b[1]), 2
		switch n {
		case 126:
			n, head = int(b[2])<<8|int(b[3]), 4
		case 127:
			n, head = int(b[6])<<24|int(b[7])<<16|int(b[8])<<8|int(b[9]), 10
		}
		if b[0] != 0x81 || len(b) < head+n {
			t.Fatalf("no frame: %q", b)
		}
		payloads, b = append(payloads, b[head:head+n]), b[head+n:]
	}
	return payloads
}

// Whatever a client sends, what it and others are told is JSON as the protocol has it.
func FuzzMessage(f *testing.F) {
	for _, text := range scanSeeds {
		f.Add([]byte(text))
	}
	f.Add([]byte(`[{"op":"serve","topic":"u"},{"op":"head","topic":"u","id":"1","data":{"a":[1]},"ref":{"b":2}},{"op":"unserve","topic":"u","ref":7},{"op":"cancel","topic":"t","id":"\ud800","ref":null}]`))
	h := newHarness(f, Options{})
	c := h.bare("full")
	w := newWork(h.b)
	c.take(w, websocket.Message{Text: true, Data: []byte(serveOf("t"))})
	c.finish(w)
	w.free()
	f.Fuzz(func(t *testing.T, text []byte) {
		w := newWork(h.b)
		c.take(w, websocket.Message{Text: json.Valid(text) || len(text)%2 == 0, Data: text})
		c.mu.Lock()
		out := append([]byte(nil), c.line.buf...)
		c.line = line{}
		c.mu.Unlock()
		c.pending.Store(0)
		c.pendingBytes.Store(0)
		for _, a := range w.batch.own.answers {
			out = websocket.AppendFrame(out, true, append(append([]byte{'['}, w.batch.own.text[a.begin:a.end]...), ']'), false)
		}
		w.batch.own.clear()
		w.touched = w.touched[:0]
		w.free()
		for _, m := range framesOf(t, out) {
			var ops []struct {
				Op string `json:"op"`
			}
			if err := json.Unmarshal(m, &ops); err != nil || len(ops) == 0 {
				t.Fatalf("%q makes %q: %v", text, m, err)
			}
			for _, o := range ops {
				if o.Op == "" {
					t.Fatalf("%q makes %q", text, m)
				}
			}
		}
	})
}
