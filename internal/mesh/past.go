package mesh

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"slices"
	"sync"
	"time"
)

// past is which publishes are kept, by the ids that routers know them by. It is made when one comes again that may have been here long ago (flagAgain), and
// forgotten when none has come for a while.
type past struct {
	reading sync.Mutex // taken before what guards the rest
	read    bool
	old     []uint64 // of what was kept before, sorted

	// Guarded by the lock of the rest.
	new  map[uint64]struct{} // of what was kept since
	used time.Time
}

const (
	pastIdle = time.Minute // how long it is kept for the next
	pastNew  = 1 << 20     // how many may be kept since; then it is made anew
)

// has tells whether a publish is kept.
func (s *rest) has(id ID) bool {
	s.mu.Lock()
	if s.past == nil {
		s.past = &past{new: map[uint64]struct{}{}}
	}
	p, key := s.past, idKey(id)
	p.used = time.Now()
	_, ok := p.new[key]
	s.mu.Unlock()
	if ok {
		return true
	}
	p.reading.Lock()
	defer p.reading.Unlock()
	if !p.read {
		p.old, p.read = s.keys(), true
	}
	_, ok = slices.BinarySearch(p.old, key)
	return ok
}

// keys reads everything.
func (s *rest) keys() (keys []uint64) {
	var c cursor
	for s.from(&c, 0); ; {
		lines, _ := s.read(&c)
		if len(lines) == 0 {
			slices.Sort(keys)
			return keys
		}
		for line := range bytes.Lines(lines) {
			if id, ok := s.idOf(line); ok {
				keys = append(keys, idKey(id))
			}
		}
	}
}

// know notes that a publish is kept now. Called under the lock.
func (s *rest) know(id ID) {
	switch p := s.past; {
	case p == nil:
	case len(p.new) < pastNew:
		p.new[idKey(id)] = struct{}{}
	default:
		s.past = nil
	}
}

// idOf reads by which id routers know what a line has.
func (s *rest) idOf(line []byte) (id ID, ok bool) {
	stamp, ok := stampOf(line)
	if !ok {
		return id, false
	}
	_, known, text, ok := cutRecord(line)
	if !ok {
		return id, false
	}
	if len(known) > 0 {
		return readID(known)
	}
	var room [2 * maxHead]byte
	head, _ := unescape(room[:0], text[:min(len(text), len(room))])
	p := parser{b: head, left: 3}
	if h, err := readHead(p.b); err == nil {
		p.at = h.length
	}
	if f := (Frame{Flags: byte(p.number("the type") & 0xf0)}); f.Flags != 0 {
		p.id(&f)
		return f.ID, p.err == nil
	}
	return s.idAt(stamp), p.err == nil
}

// maxHead is how many bytes of a frame precede the end of its id at most.
const maxHead = 2 + 2 + 2 + maxID

// idAt is by which id routers know what was kept under a stamp and has none.
func (s *rest) idAt(stamp int64) ID {
	id, _ := MakeID(binary.LittleEndian.AppendUint64(nil, uint64(stamp)^s.salt))
	return id
}

// readID reads an id of hexadecimal digits.
func readID(text []byte) (id ID, ok bool) {
	var raw [maxID]byte
	if len(text) > 2*maxID {
		return id, false
	}
	n, err := hex.Decode(raw[:], text)
	if err != nil {
		return id, false
	}
	return MakeID(raw[:n])
}

// idKey is an id in few bytes.
func idKey(id ID) uint64 {
	if b := id.Bytes(); len(b) == 8 {
		return binary.LittleEndian.Uint64(b)
	}
	h := fnv.New64a()
	h.Write(id.Bytes())
	return h.Sum64()
}
