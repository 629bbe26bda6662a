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
	codeStale // is told to nobody
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

// outbox is answers on their way to those who wait for them. A connection has one for the ops of its line: their answers go in their order, by
// one goroutine at a time.
type outbox struct {
	answers []answer
	settles []settled
	text    []byte
	counts  tally
}

// answer is one that waits to be brought: text[begin:end].
type answer struct {
	to         *Conn
	begin, end int
	bytes      int // of the op's frame, which is on its way no more
}

// settled is an op of another wire that has its result.
type settled struct {
	f      func(code)
	result code
}

var outboxes = sync.Pool{New: func() any { return &outbox{} }}

func (x *outbox) clear() {
	clear(x.answers)
	clear(x.settles)
	x.settles = x.settles[:0]
	x.answers, x.text = x.answers[:0], x.text[:0]
}

func (x *outbox) free() {
	x.clear()
	if cap(x.text) <= keepBuffer {
		outboxes.Put(x)
	}
}

// add makes an answer; c is codeNone for success.
func (x *outbox) add(to *Conn, k kind, tail []byte, bytes int, c code) {
	begin := len(x.text)
	if c == codeNone {
		x.text = append(appendOK(x.text, k, tail), '}')
	} else {
		x.text = appendError(x.text, k, tail, c, laterWords[c])
	}
	x.counts.result(k, c)
	x.answers = append(x.answers, answer{to, begin, len(x.text), bytes})
}

// note makes the answer to an op of the connection's line. Called under the lock.
func (c *Conn) note(w *waiting, reason code) {
	if w.from == nil && w.settle == nil {
		return
	}
	if c.outbox == nil {
		c.outbox = outboxes.Get().(*outbox)
	}
	if w.settle != nil {
		c.outbox.counts.result(w.kind, reason)
		c.outbox.settles = append(c.outbox.settles, settled{w.settle, reason})
		return
	}
	c.outbox.add(w.from, w.kind, c.line.tailOf(w), w.size(), reason)
}

// batch is the connections that are to be written to because of what was done on others, when no lock is held.
type batch struct {
	b      *Broker
	own    outbox  // answers to ops that are in no line
	dirty  []*Conn // have something to write
	done   int     // of dirty
	counts tally
}

var batches = sync.Pool{New: func() any { return &batch{} }}

func (b *Broker) newBatch() *batch {
	x := batches.Get().(*batch)
	x.b = b
	return x
}

func (b *batch) free() {
	clear(b.dirty[:cap(b.dirty)])
	b.dirty = b.dirty[:0]
	batches.Put(b)
}

// write has a connection written to.
func (b *batch) write(c *Conn) {
	if n := len(b.dirty); n > b.done && b.dirty[n-1] == c {
		return
	}
	b.dirty = append(b.dirty, c)
}

// run brings the answers of its own and writes, until nothing is left that comes of that.
func (b *batch) run() {
	b.bring(&b.own)
	b.own.clear()
	for b.done < len(b.dirty) {
		b.done++
		b.dirty[b.done-1].flush(b)
	}
	clear(b.dirty)
	b.dirty, b.done = b.dirty[:0], 0
	b.b.stats.add(&b.counts)
}

// bring brings answers to their connections, those that follow each other for one in one message.
func (b *batch) bring(x *outbox) {
	for i := 0; i < len(x.answers); {
		to, j := x.answers[i].to, i+1
		for j < len(x.answers) && x.answers[j].to == to {
			j++
		}
		if to.answered(x, x.answers[i:j]) {
			b.write(to)
		}
		i = j
	}
	for i := range x.settles {
		x.settles[i].f(x.settles[i].result)
	}
	b.b.stats.add(&x.counts)
}

// answered brings answers to their connection, in one message, and tells whether there is something to write.
func (c *Conn) answered(x *outbox, list []answer) bool {
	bytes := 0
	c.mu.Lock()
	is := !c.over
	if is {
		before := len(c.line.buf)
		buf, at := websocket.BeginFrame(c.line.buf, false)
		sep := byte('[')
		for i := range list {
			a := &list[i]
			buf = append(append(buf, sep), x.text[a.begin:a.end]...)
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
	c.ws.Flush()
	c.unlock(b)
}

// unlock lets go of the lock, and has the answers brought that came up under it. A goroutine that is at that already takes these too.
func (c *Conn) unlock(b *batch) {
	late := c.lateLocked()
	for c.outbox != nil && !c.answering {
		x := c.outbox
		c.outbox, c.answering = nil, true
		c.mu.Unlock()
		b.bring(x)
		x.free()
		c.mu.Lock()
		c.answering = false
	}
	c.mu.Unlock()
	if late {
		c.b.watch(c)
	}
}
