package relay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// modelLine holds a line to what it promises: whatever a socket takes of it, in whatever pieces, what arrives is whole frames in their order, each op
// is answered once, in order, and with success just when its last byte is gone; ops that were dropped before they were begun never arrive.
type modelLine struct {
	t       *testing.T
	l       line
	senders [2]*Conn
	plan    plan
	n       int
	clock   int64

	with  []byte // the writer has it
	spare []byte
	wire  []byte

	answers map[int]string
	order   [2][]int // of answers with success
}

func (m *modelLine) op() op {
	m.n++
	id := fmt.Appendf(nil, `"%d"`, m.n)
	return op{kind: kindBody, topic: []byte(`"t"`), id: id, ref: id, data: bytes.Repeat([]byte{'1'}, rand.IntN(200))}
}

func (m *modelLine) add() {
	o := m.op()
	w := waiting{kind: o.kind, from: m.senders[rand.IntN(2)], at: m.clock}
	if rand.IntN(10) == 0 {
		w.from, w.kind = nil, kindCancel
	}
	buf, place := m.l.at()
	before := len(*buf)
	*buf = appendPushed(*buf, &o, &m.plan)
	m.l.add(w, place, len(*buf)-before, &o)
}

func (m *modelLine) answer(what string) func(*waiting) {
	return func(w *waiting) {
		if w.from == nil {
			return
		}
		var id int
		fmt.Sscanf(string(m.l.tailOf(w)), `,"topic":"t","id":"%d"`, &id)
		if was := m.answers[id]; was != "" || id == 0 {
			m.t.Fatalf("op %d is answered %s, and was %s", id, what, was)
		}
		m.answers[id] = what
		if what == "ok" {
			i := slices.Index(m.senders[:], w.from)
			m.order[i] = append(m.order[i], id)
		}
	}
}

// write has the writer go on, by some bytes or by all that it has to.
func (m *modelLine) write() {
	if m.with != nil { // the goroutine writes its rest to the end
		m.taken(len(m.with))
		m.with = nil
	}
	for {
		out := m.l.output(m.spare)
		if out == nil {
			return
		}
		m.spare = nil
		n := rand.IntN(len(out) + 1)
		if rand.IntN(3) == 0 {
			n = len(out)
		}
		m.with = out[:n]
		if n > 0 {
			m.taken(n)
		}
		rest := out[n:]
		if len(rest) == 0 {
			m.with, m.spare = nil, out[:0]
			continue
		}
		m.with = rest
		if !m.l.layered {
			keep := m.l.trim(rest)
			if keep < 1 || keep > len(rest) {
				m.t.Fatalf("trim of %d bytes: %d", len(rest), keep)
			}
			m.with = rest[:keep:keep]
		}
		return
	}
}

func (m *modelLine) taken(n int) {
	m.wire = append(m.wire, m.with[:n]...)
	m.l.wrote(n, m.answer("ok"))
}

func (m *modelLine) check() {
	l := &m.l
	if got := l.end - l.took; got != uint64(len(m.with)+len(l.back)+len(l.buf)) {
		m.t.Fatalf("%d bytes are on their way, and the line says %d", len(m.with)+len(l.back)+len(l.buf), got)
	}
	bytes := 0
	for _, w := range l.ops[l.first:] {
		bytes += w.size()
	}
	if bytes != l.bytes {
		m.t.Fatalf("%d bytes of ops, and the line says %d", bytes, l.bytes)
	}
}

// arrived parses what arrived: frames, whole and in order.
func (m *modelLine) arrived() (ids []int) {
	for b := m.wire; len(b) > 0; {
		n, head := int(b[1]), 2
		if n == 126 {
			n, head = int(binary.BigEndian.Uint16(b[2:])), 4
		}
		p := b[head : head+n]
		if _, rest, ok := bytes.Cut(p, []byte(`"id":"`)); ok {
			var id int
			fmt.Sscan(string(rest[:bytes.IndexByte(rest, '"')]), &id)
			ids = append(ids, id)
		} else if string(p) != `["words"]` {
			m.t.Fatalf("%q arrived", p)
		}
		b = b[head+n:]
	}
	return ids
}

func TestLine(t *testing.T) {
	for round := range 150 {
		m := &modelLine{t: t, senders: [2]*Conn{{}, {}}, answers: map[int]string{}}
		m.plan.begins[kindBody], m.plan.begins[kindCancel] = []byte(`[{"op":"body","topic":"t","id":`), []byte(`[{"op":"cancel","topic":"t","id":`)
		m.l.layered = round%3 == 0
		for range rand.IntN(300) {
			m.clock++
			switch rand.IntN(12) {
			case 0, 1, 2, 3, 4, 5:
				for range 1 + rand.IntN(16) {
					m.add()
				}
			case 6:
				m.l.say([]byte(`["words"]`))
			case 7, 8, 9:
				m.write()
			case 10:
				before := m.clock - int64(rand.IntN(40))
				m.l.drop(func(w *waiting) bool { return w.at <= before && (w.from != nil || w.kind == kindCancel) }, m.answer("busy"))
			case 11:
				m.l.hold()
				m.add()
				m.l.say([]byte(`["words"]`))
				m.add()
				if rand.IntN(2) == 0 {
					m.write()
				}
				m.l.letGo()
			}
			m.check()
		}
		for !m.l.empty() {
			m.write()
		}
		m.check()
		ids := m.arrived()
		for i := range m.order {
			if !slices.IsSorted(m.order[i]) {
				t.Fatalf("answers out of order: %v", m.order[i])
			}
		}
		for id := 1; id <= m.n; id++ {
			if m.answers[id] == "ok" && !slices.Contains(ids, id) {
				t.Fatalf("op %d was taken and is lost", id)
			}
		}
		// Ops of a message that hold kept back come behind words that were said meanwhile; they keep their own order.
		if !slices.IsSorted(ids) {
			t.Fatalf("ops out of order: %v", ids)
		}
	}
}
