package relay

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// A request and its response, of two ops each, with their answers, 64 at a time; the ends do next to nothing.
func BenchmarkRequest(b *testing.B) {
	h := newHarness(b, Options{})
	s, c := h.dial("full"), h.dial("full")
	s.send(`[{"op":"serve","topic":"t","ref":"s"}]`)
	s.expect(`[{"op":"serve:ok","topic":"t","ref":"s","role":"active"}]`)
	c.send(`[{"op":"head","topic":"t","id":"a","done":true}]`)
	_, from, _ := bytes.Cut(s.next(), []byte(`"from":"`))
	from = bytes.Clone(from[:addressLength])
	c.next()
	const n = 64
	var ask, answer []byte
	for i := range n {
		ask = append(ask, masked(fmt.Sprintf(`[{"op":"head","topic":"t","id":"r%d","data":{"path":"/"},"ref":"%dh"}]`, i, i))...)
		ask = append(ask, masked(fmt.Sprintf(`[{"op":"body","topic":"t","id":"r%d","data":"hello","done":true,"ref":"%db"}]`, i, i))...)
		answer = append(answer, masked(fmt.Sprintf(`[{"op":"head","topic":"t","id":"r%d","to":"%s","data":{"status":200},"ref":"%dh"}]`, i, from, i))...)
		answer = append(answer, masked(fmt.Sprintf(`[{"op":"body","topic":"t","id":"r%d","to":"%s","data":"hello, world","done":true,"ref":"%db"}]`, i, from, i))...)
	}
	count := func(p *testPeer, what string, want int) {
		for got := 0; got < want; {
			got += bytes.Count(p.next(), []byte(what))
		}
	}
	b.ReportAllocs()
	for i := 0; i < b.N; i += n {
		c.nc.Write(ask)
		count(s, `"from"`, 2*n)
		count(c, `:ok"`, 2*n)
		s.nc.Write(answer)
		count(s, `:ok"`, 2*n)
		count(c, `"data"`, 2*n)
	}
}

// What a reader does with 64 messages of one op, and with their answers.
func BenchmarkTake(b *testing.B) {
	_, s, from, w := newServed(b)
	m := websocket.Message{Text: true, Data: []byte(`[{"op":"body","topic":"t","id":"r12345","data":"hello","done":true,"ref":"r12345b"}]`)}
	go io.Copy(io.Discard, s.nc)
	b.ReportAllocs()
	const n = 64
	for i := 0; i < b.N; i += n {
		for range n {
			from.take(w, m)
		}
		from.finish(w)
	}
}
