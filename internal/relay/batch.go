package relay

import (
	"sync"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// code says why an op failed.
type code uint8

const (
	codeNone code = iota
	badRequest
	forbidden
	unavailable
	serverGone
	clientGone
	busy
	unknownOp
)

var codes = [...]string{
	codeNone: "ok", badRequest: "bad_request", forbidden: "forbidden", unavailable: "unavailable", serverGone: "server_gone", clientGone: "client_gone",
	busy: "busy", unknownOp: "unknown_op",
}

func (c code) String() string { return codes[c] }

// what people are told of the codes that come later.
var laterWords = [...]string{
	serverGone: "The server's connection ended", clientGone: "The client's connection ended", busy: "The connection did not take it in time",
}

// appendTail appends what answers echo of an op, with the comma before it.
func appendTail(dst []byte, o *op) []byte {
	if echoes(o.topic) {
		dst = append(append(dst, `,"topic":`...), o.topic...)
	}
	if o.kind < kindServe && echoes(o.id) {
		dst = append(append(dst, `,"id":`...), o.id...)
	}
	return appendRef(dst, o.ref)
}

func appendRef(dst, ref []byte) []byte {
	if ref != nil && len(ref) <= maxText {
		dst = append(append(dst, `,"ref":`...), ref...)
	}
	return dst
}

// echoes tells whether a field of an op is given back: one that is not too long, and nothing that others are in.
func echoes(field []byte) bool {
	return len(field) > 0 && len(field) <= maxText && field[0] != '{' && field[0] != '['
}

// appendOK appends the answer of success, without its end.
func appendOK(dst []byte, k kind, tail []byte) []byte {
	dst = append(append(dst, `{"op":"`...), names[k]...)
	return append(append(dst, `:ok"`...), tail...)
}

// appendError appends the answer of failure; words are text inside a JSON string.
func appendError(dst []byte, k kind, tail []byte, c code, words string) []byte {
	dst = append(append(dst, `{"op":"`...), names[k]...)
	dst = append(append(dst, `:error"`...), tail...)
	return appendCode(dst, c, words)
}

func appendCode(dst []byte, c code, words string) []byte {
	dst = append(append(dst, `,"code":"`...), codes[c]...)
	dst = append(append(dst, `","message":"`...), words...)
	return append(dst, `"}`...)
}

// batch is what a write, or an end, has to be followed by on other connections: answers to those who wait for them, and writes. It is collected
// under a connection's lock and run when no lock is held.
type batch struct {
	b       *Broker
	answers []answer
	text    []byte
	dirty   []*Conn // have something to write
	counts  tally
}

// answer is one that waits to be brought: text[begin:end].
type answer struct {
	to         *Conn
	begin, end int
	bytes      int // of the op's frame, which is on its way no more
}

var batches = sync.Pool{New: func() any { return &batch{} }}

func (b *batch) free() {
	clear(b.answers[:cap(b.answers)])
	clear(b.dirty[:cap(b.dirty)])
	b.answers, b.text, b.dirty = b.answers[:0], b.text[:0], b.dirty[:0]
	if cap(b.text) <= keepBuffer {
		batches.Put(b)
	}
}

// note makes the answer to an op of a line.
func (b *batch) note(l *line, w *waiting, c code) {
	if w.from == nil {
		return
	}
	begin := len(b.text)
	if c == codeNone {
		b.text = append(appendOK(b.text, w.kind, l.tailOf(w)), '}')
	} else {
		b.text = appendError(b.text, w.kind, l.tailOf(w), c, laterWords[c])
	}
	b.counts.result(w.kind, c)
	b.answers = append(b.answers, answer{w.from, begin, len(b.text), w.size()})
}

// write has a connection written to.
func (b *batch) write(c *Conn) {
	if n := len(b.dirty); n > 0 && b.dirty[n-1] == c {
		return
	}
	b.dirty = append(b.dirty, c)
}

// run brings the answers and writes, until nothing is left that comes of that.
func (b *batch) run() {
	for len(b.answers) > 0 || len(b.dirty) > 0 {
		for i := 0; i < len(b.answers); {
			to, j := b.answers[i].to, i+1
			for j < len(b.answers) && b.answers[j].to == to {
				j++
			}
			if to.answered(b, b.answers[i:j]) {
				b.write(to)
			}
			i = j
		}
		b.answers, b.text = b.answers[:0], b.text[:0]
		for i := 0; i < len(b.dirty); i++ {
			b.dirty[i].flush(b)
		}
		b.dirty = b.dirty[:0]
	}
	b.b.stats.add(&b.counts)
}

// answered brings answers to their connection, in one message, and tells whether there is something to write.
func (c *Conn) answered(b *batch, list []answer) bool {
	bytes := 0
	c.mu.Lock()
	is := !c.over
	if is {
		buf, at := websocket.BeginFrame(c.line.buf, false)
		before := len(c.line.buf)
		sep := byte('[')
		for i := range list {
			a := &list[i]
			buf = append(append(buf, sep), b.text[a.begin:a.end]...)
			sep = ','
		}
		c.line.buf = websocket.EndFrame(append(buf, ']'), at, true, false)
		c.line.end += uint64(len(c.line.buf) - before)
	}
	c.mu.Unlock()
	for i := range list {
		bytes += list[i].bytes
	}
	c.pending.Add(-int32(len(list)))
	c.pendingBytes.Add(-int64(bytes))
	c.signalRoom()
	return is
}

// flush writes what there is for a connection, as far as its socket takes it.
func (c *Conn) flush(b *batch) {
	c.mu.Lock()
	c.done = b
	c.ws.Flush()
	c.done = nil
	late := c.lateLocked()
	c.mu.Unlock()
	if late {
		c.b.watch(c)
	}
}
