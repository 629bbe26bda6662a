package relay

import "github.com/fingerpost/fingerpost/internal/websocket"

// line is what is on its way to a connection: frames, in the order in which they are to be there, and for each op among them who waits to
// hear that the socket took it. An op is taken when the socket took the last byte of its frame; one is begun when it took the first.
//
// Places are counted from the beginning of all that was ever written.
//
// Invariant: end - took is what the writer has, and back, and buf.
type line struct {
	back []byte // what the writer gave back: it goes out before buf
	buf  []byte
	took uint64 // up to here the socket has taken
	end  uint64

	layered bool // between us and the socket is something (TLS) that takes bytes on its own account

	ops   []waiting // those from first on
	first int
	tails []byte
	bytes int // of the frames of ops

	// While the connection's own reply to a serve is being made, what others send waits behind it: see Conn.asks.
	holds    bool
	held     []byte
	heldFrom int // of ops: their places are counted from the beginning of held
}

// waiting is an op on its way.
type waiting struct {
	begin, end uint64
	at         int64      // when it came, on the clock
	from       *Conn      // waits for the answer; nil: nobody does
	settle     func(code) // or is told so, without a lock; for an op of another wire
	tail       int        // in tails: what the answer says of topic, id and ref
	tailLen    int
	kind       kind
	response   bool // it has a to
}

// size of the frame.
func (w *waiting) size() int { return int(w.end - w.begin) }

// own are the bytes on their way that are no ops of others.
func (l *line) own() int { return int(l.end-l.took) + len(l.held) - l.bytes }

// empty tells whether nothing is on its way.
func (l *line) empty() bool { return l.end == l.took && len(l.held) == 0 }

// tailOf is what the answer to an op says.
func (l *line) tailOf(w *waiting) []byte { return l.tails[w.tail : w.tail+w.tailLen] }

// at is where the next frame of another connection goes.
func (l *line) at() (buf *[]byte, place uint64) {
	if l.holds {
		return &l.held, uint64(len(l.held))
	}
	return &l.buf, l.end
}

// add queues a frame of an op that was appended to the buffer of at, from place on.
func (l *line) add(w waiting, place uint64, n int, o *op) {
	l.tidy()
	w.begin, w.end = place, place+uint64(n)
	if w.from != nil {
		w.tail = len(l.tails)
		l.tails = appendTail(l.tails, o)
		w.tailLen = len(l.tails) - w.tail
	}
	l.ops = append(l.ops, w)
	l.bytes += n
	l.grew(n)
}

// grew counts what was appended to the buffer of at.
func (l *line) grew(n int) {
	if !l.holds {
		l.end += uint64(n)
	}
}

// say queues a frame that nobody waits for, of the connection itself.
func (l *line) say(payload []byte) {
	before := len(l.buf)
	l.buf = websocket.AppendFrame(l.buf, true, payload, false)
	l.end += uint64(len(l.buf) - before)
}

// tidy moves the ops to the front where most of the list is over.
func (l *line) tidy() {
	if l.first < 64 || 2*l.first < len(l.ops) || l.holds {
		return
	}
	cut := len(l.tails)
	for i := l.first; i < len(l.ops); i++ {
		if l.ops[i].from != nil {
			cut = l.ops[i].tail
			break
		}
	}
	n := copy(l.ops, l.ops[l.first:])
	clear(l.ops[n:])
	l.ops, l.first = l.ops[:n], 0
	for i := range l.ops {
		l.ops[i].tail -= cut
	}
	l.tails = l.tails[:copy(l.tails, l.tails[cut:])]
}

// hold has what others send wait from now on.
func (l *line) hold() {
	if !l.holds {
		l.holds, l.heldFrom = true, len(l.ops)
	}
}

// letGo queues what was held.
func (l *line) letGo() {
	if !l.holds {
		return
	}
	for i := l.heldFrom; i < len(l.ops); i++ {
		l.ops[i].begin += l.end
		l.ops[i].end += l.end
	}
	l.end += uint64(len(l.held))
	l.buf = append(l.buf, l.held...)
	l.held, l.holds = nil, false
}

// placed are the ops that have their places.
func (l *line) placed() []waiting {
	if l.holds {
		return l.ops[l.first:l.heldFrom]
	}
	return l.ops[l.first:]
}

// output gives the writer what it is to write; spare is an empty buffer.
func (l *line) output(spare []byte) []byte {
	out := l.back
	if out != nil {
		l.back = nil // spare is a part of the same memory, and is dropped
	} else {
		if len(l.buf) == 0 {
			return nil
		}
		if cap(spare) > keepBuffer {
			spare = nil
		}
		out, l.buf = l.buf, spare
	}
	if l.layered && len(out) > layeredBytes {
		n := l.border(l.end-uint64(len(out)+len(l.buf)), len(out), layeredBytes)
		if n < len(out) {
			l.back, out = out[n:], out[:n]
		}
	}
	return out
}

// layeredBytes is about how much a writer gets at a time that cannot give back what the socket does not take.
const layeredBytes = 32 << 10

// border is the first place at least so many bytes behind from where an op begins or ends, in bytes from there; n where there is none before.
func (l *line) border(from uint64, n, least int) int {
	for i := range l.placed() {
		w := &l.placed()[i]
		for _, place := range [...]uint64{w.begin, w.end} {
			if place >= from+uint64(least) {
				return min(int(place-from), n)
			}
		}
	}
	return n
}

// keepBuffer is the most that a connection keeps of a buffer to write to.
const keepBuffer = 256 << 10

// wrote counts what the socket took, and gives the ops that it took with that to done.
func (l *line) wrote(n int, done func(*waiting)) {
	l.took += uint64(n)
	list := l.placed()
	i := 0
	for ; i < len(list) && list[i].end <= l.took; i++ {
		w := &list[i]
		l.bytes -= w.size()
		done(w)
		*w = waiting{}
	}
	if l.first += i; l.first == len(l.ops) {
		l.first, l.ops, l.tails = 0, l.ops[:0], l.tails[:0]
		if l.heldFrom = 0; cap(l.tails) > keepBuffer {
			l.tails, l.ops = nil, nil
		}
	}
}

// trim takes back from the writer all that the socket need not take: the frame that it has begun is to be written to its end, ops behind that
// are not. It tells how much of rest is still the writer's.
func (l *line) trim(rest []byte) int {
	keep := l.border(l.took, len(rest), 1)
	if keep < len(rest) {
		l.back = append(rest[keep:len(rest):len(rest)], l.back...)
	}
	return keep
}

// drop gives up the ops for which over is true: told is called with each, and has its answer. Those that the writer has not begun are taken out
// of the line; the others may still arrive.
func (l *line) drop(over func(*waiting) bool, told func(*waiting)) {
	if l.holds { // in a moment
		return
	}
	free := l.end - uint64(len(l.back)+len(l.buf))
	rest := l.buf
	if l.back != nil {
		rest = append(l.back[:len(l.back):len(l.back)], l.buf...)
	}
	var kept []byte
	from, gone := 0, 0
	out := l.ops[:l.first]
	for i := l.first; i < len(l.ops); i++ {
		w := l.ops[i]
		if over(&w) {
			told(&w)
			w.from, w.settle = nil, nil
			if w.begin >= free {
				at := int(w.begin - free)
				kept = append(kept, rest[from:at]...)
				from = at + w.size()
				gone += w.size()
				continue
			}
		}
		w.begin -= uint64(gone)
		w.end -= uint64(gone)
		out = append(out, w)
	}
	clear(l.ops[len(out):])
	l.ops = out
	if gone > 0 {
		l.back, l.buf = nil, append(kept, rest[from:]...)
		l.end -= uint64(gone)
		l.bytes -= gone
	}
}
