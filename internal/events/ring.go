package events

import (
	"encoding/binary"
	"maps"
	"slices"
	"sort"
)

const (
	chunkBytes = 256 << 10
	headBytes  = 28  // of an entry: time, seq, kind, origin, length of the body
	kindCost   = 512 // what a kind with events is counted as, beside them
	runCost    = 24  // a kind in a chunk
	refCost    = 10  // and the place of an event among those of its kind
)

// chunk is a piece of the ring's memory. What was used of it never changes, so that a replay reads it without the lock.
type chunk struct {
	b []byte // all of it; set when it is made

	// The ring's.
	used   int   // bytes
	newest int64 // when its last event came
	runs   []run // of each kind that has events in it
}

// run is how many events of a kind a chunk has: what goes when it does, told without a look at them.
type run struct {
	kind *kind
	n    int
}

// entry is an event in the ring.
type entry struct {
	at     int64  // when it came: Unix nanoseconds
	seq    uint64 // among those of its origin; 0 is none
	kind   uint32
	origin uint32 // the router that it came to first; 0 is this one
	body   []byte // its members but op, type, direction and time
}

func entryAt(b []byte) entry {
	size := binary.LittleEndian.Uint32(b[24:])
	return entry{
		at: int64(binary.LittleEndian.Uint64(b)), seq: binary.LittleEndian.Uint64(b[8:]),
		kind: binary.LittleEndian.Uint32(b[16:]), origin: binary.LittleEndian.Uint32(b[20:]),
		body: b[headBytes : headBytes+size],
	}
}

// place is where an event is: the number of its chunk, and the offset there.
type place uint64

func (p place) split() (chunk uint64, offset uint32) { return uint64(p >> 32), uint32(p) }

// ring keeps the events of a window, in their order, as long as its memory suffices. The sequencer's lock guards it.
//
// Invariant: the places of a kind, and the times at them, rise.
type ring struct {
	window int64       // nanoseconds
	max    int         // bytes
	forget func(*kind) // is told of a kind whose last event went; nil: nobody is

	chunks []*chunk // the oldest first
	first  uint64   // the number of chunks[0]
	bytes  int      // of memory, by count
	count  int
	kinds  []*kind // by id; nil is a free id
	free   []uint32
	adding *kind // an event of it comes: it is not forgotten for want of others

	dropped uint64 // events that went for want of memory, within their window
	evicted uint64 // that went because their window was over
}

// kind is one type of event in one direction.
type kind struct {
	typ      string
	response bool
	address  string // event:req/TYPE, event:res/TYPE
	head     []byte // of its frames: `{"op":"event","type":TYPE,"direction":D,"time":"`
	bodyHead []byte // of what AMQP is sent: `{"type":TYPE,"time":"`
	id       uint32
	named    bool    // it has an id in the ring
	places   []place // of its events in the ring
	in       *chunk  // the chunk of the last of them
	run      int     // and its place in the runs of that

	plan plan // the sequencer's
}

func newKind(typ string, response bool) *kind {
	k := &kind{typ: typ, response: response, address: addressOf(typ, response)}
	k.head = append(appendText(append(k.head, `{"op":"event","type":`...), typ), `,"direction":"`...)
	k.head = append(append(k.head, directionOf(response)...), `","time":"`...)
	k.bodyHead = append(appendText(append(k.bodyHead, `{"type":`...), typ), `,"time":"`...)
	return k
}

func addressOf(typ string, response bool) string {
	if response {
		return "event:res/" + typ
	}
	return "event:req/" + typ
}

func directionOf(response bool) string {
	if response {
		return "response"
	}
	return "request"
}

// add keeps an event whose body write appends; n is at least the length of that.
func (r *ring) add(k *kind, at int64, origin uint32, seq uint64, n int, write func([]byte) []byte) (body []byte) {
	r.adding = k
	c := r.room(headBytes + n)
	r.adding = nil
	if !k.named {
		r.nameKind(k)
	}
	from := c.used
	b := binary.LittleEndian.AppendUint64(c.b[:from], uint64(at))
	b = binary.LittleEndian.AppendUint64(b, seq)
	b = binary.LittleEndian.AppendUint32(b, k.id)
	b = binary.LittleEndian.AppendUint32(b, origin)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = write(b)
	binary.LittleEndian.PutUint32(b[from+24:], uint32(len(b)-from-headBytes))
	c.used, c.newest = len(b), at
	if k.in != c {
		k.in, k.run = c, len(c.runs)
		c.runs = append(c.runs, run{kind: k})
		r.bytes += runCost
	}
	c.runs[k.run].n++
	k.places = append(k.places, place((r.first+uint64(len(r.chunks))-1)<<32|uint64(from)))
	r.count++
	r.bytes += refCost
	return b[from+headBytes:]
}

// room gives a chunk with room for n bytes.
func (r *ring) room(n int) *chunk {
	if last := len(r.chunks) - 1; last >= 0 && len(r.chunks[last].b)-r.chunks[last].used >= n {
		return r.chunks[last]
	}
	c := &chunk{b: make([]byte, max(n, chunkBytes))}
	for r.bytes+len(c.b) > r.max && len(r.chunks) > 0 {
		r.dropped += uint64(r.dropFirst())
	}
	r.chunks = append(r.chunks, c)
	r.bytes += len(c.b)
	return c
}

func (r *ring) nameKind(k *kind) {
	if n := len(r.free); n > 0 {
		k.id, r.free = r.free[n-1], r.free[:n-1]
		r.kinds[k.id] = k
	} else {
		k.id = uint32(len(r.kinds))
		r.kinds = append(r.kinds, k)
	}
	k.named = true
	r.bytes += kindCost
}

// evict forgets the chunks all of whose events are older than the window.
func (r *ring) evict(now int64) {
	for len(r.chunks) > 0 && r.chunks[0].newest < now-r.window {
		r.evicted += uint64(r.dropFirst())
	}
}

// dropFirst forgets the oldest chunk, and tells how many events were in it.
func (r *ring) dropFirst() (n int) {
	c := r.chunks[0]
	for _, of := range c.runs {
		n += of.n
		k := of.kind
		if k.places = k.places[of.n:]; len(k.places) == 0 {
			r.unnameKind(k)
		}
	}
	r.chunks = slices.Clone(r.chunks[1:]) // a view may read the list that was
	r.first++
	r.count -= n
	r.bytes -= len(c.b) + n*refCost + len(c.runs)*runCost
	return n
}

// unnameKind takes the id of a kind that has no events any more.
func (r *ring) unnameKind(k *kind) {
	k.places, k.named, k.in = nil, false, nil
	r.kinds[k.id] = nil
	r.free = append(r.free, k.id)
	r.bytes -= kindCost
	if r.forget != nil && k != r.adding {
		r.forget(k)
	}
}

// view is events of one kind, and of those that rows lead on to its name, as they are in the ring when it is made: oldest first. It is read without the
// lock, and what it has does not go while it is read.
type view struct {
	kind    *kind // only its words are read, which do not change
	others  map[uint32]*kind
	places  []place
	chunks  []*chunk
	first   uint64
	origins []string
}

// view gives the events of a kind that are in the window now and came at from or later.
func (r *ring) view(k *kind, from, now int64) view {
	v := view{kind: k, places: k.places, chunks: r.chunks, first: r.first}
	from = max(from, now-r.window)
	v.places = v.places[sort.Search(len(v.places), func(i int) bool { return v.at(i).at >= from }):]
	if len(v.places) == 0 {
		return view{}
	}
	return v
}

func (v *view) at(i int) entry {
	c, offset := v.places[i].split()
	return entryAt(v.chunks[c-v.first].b[offset:])
}

// next takes the oldest event off the view.
func (v *view) next() entry {
	e := v.at(0)
	v.places = v.places[1:]
	return e
}

// of gives the kind of an event of the view.
func (v *view) of(e entry) *kind {
	if k := v.others[e.kind]; k != nil {
		return k
	}
	return v.kind
}

// merge gives the events of two views of one ring, made at once. w has one kind.
func (v view) merge(w view) view {
	switch {
	case len(w.places) == 0:
		return v
	case len(v.places) == 0:
		return w
	}
	if v.others = maps.Clone(v.others); v.others == nil {
		v.others = map[uint32]*kind{}
	}
	v.others[w.kind.id] = w.kind
	v.places = slices.Concat(v.places, w.places)
	slices.Sort(v.places)
	return v
}
