package routetable

// arena holds the records of rows, in chunks. A record is written once, behind the others, and never changed: a reader of an older
// snapshot sees the bytes that it always saw. What is in no row any more is dead; a chunk with many dead bytes is emptied by writing its
// live records again, and the garbage collector takes it when nobody reads it any more.
//
// Snapshots share the list of chunks: it is copied before a place in it is used anew.
type arena struct {
	chunks []chunk
	use    []chunkUse // of each chunk
	lastID uint64     // of chunks
	head   int        // the chunk that is written to
	free   []int      // places in chunks that hold none
	live   int        // bytes that rows use
	dead   int        // bytes in chunks that no row uses
}

// chunk is memory for records. Its id is never given again, so that it and an offset name a record for ever.
type chunk struct {
	id uint64
	b  []byte
}

type chunkUse struct {
	end  int // bytes written
	dead int // of these, in no row
}

const (
	chunkBytes = 256 << 10
	offsetBits = 32 // a ref is the chunk, the offset in it, and one more: 0 is no record
)

// recordAt returns the record of a ref.
func recordAt(chunks []chunk, ref uint64) record {
	ref--
	rec := record(chunks[ref>>offsetBits].b[uint32(ref):])
	n := rec.size()
	return rec[:n:n]
}

// recordKey returns the name of the record of a ref.
func recordKey(chunks []chunk, ref uint64) uint64 {
	ref--
	return chunks[ref>>offsetBits].id<<offsetBits | ref&(1<<offsetBits-1)
}

// put appends a record and returns its ref.
func (a *arena) put(rec []byte) uint64 {
	if len(a.chunks) == 0 || a.use[a.head].end+len(rec) > len(a.chunks[a.head].b) {
		a.open(max(chunkBytes, len(rec)))
	}
	u := &a.use[a.head]
	at := u.end
	copy(a.chunks[a.head].b[at:], rec)
	u.end += len(rec)
	a.live += len(rec)
	return (uint64(a.head)<<offsetBits | uint64(at)) + 1
}

// open begins a chunk.
func (a *arena) open(size int) {
	if n := len(a.free); n > 0 {
		a.head = a.free[n-1]
		a.free = a.free[:n-1]
		a.chunks = append([]chunk(nil), a.chunks...)
	} else {
		a.head = len(a.chunks)
		a.chunks, a.use = append(a.chunks, chunk{}), append(a.use, chunkUse{})
	}
	a.lastID++
	a.chunks[a.head] = chunk{a.lastID, make([]byte, size)}
	a.use[a.head] = chunkUse{}
}

// drop says that no row uses a record any more.
func (a *arena) drop(ref uint64) {
	n := recordAt(a.chunks, ref).size()
	a.use[(ref-1)>>offsetBits].dead += n
	a.live -= n
	a.dead += n
}

// slack is how many dead bytes the arena may hold whatever its size.
const slack = 4 << 20

// worst returns the chunk to be emptied next, or -1 while dead bytes are few: less than half of the live ones.
func (a *arena) worst() int {
	if a.dead < slack || a.dead < a.live/2 {
		return -1
	}
	worst, most := -1, 0
	for i := range a.use {
		if i != a.head && a.use[i].dead > most {
			worst, most = i, a.use[i].dead
		}
	}
	return worst
}

// release gives a chunk up. Its records were written again, which counts them as live twice: what is left is subtracted.
func (a *arena) release(i int) {
	u := &a.use[i]
	a.live -= u.end - u.dead
	a.dead -= u.dead
	*u = chunkUse{}
	a.chunks = append([]chunk(nil), a.chunks...)
	a.chunks[i] = chunk{}
	a.free = append(a.free, i)
}

// reset makes the arena that of a snapshot, after newer ones were given up.
func (a *arena) reset(s *Snapshot) {
	a.chunks = append([]chunk(nil), s.chunks...)
	a.use = make([]chunkUse, len(a.chunks))
	a.live, a.dead, a.free = 0, 0, nil
	for i := range s.slots.n {
		ref := *s.slots.at(i)
		if ref == 0 {
			continue
		}
		n := recordAt(a.chunks, ref).size()
		u := &a.use[(ref-1)>>offsetBits]
		u.end = max(u.end, int(uint32(ref-1))+n)
		u.dead -= n
		a.live += n
	}
	for i := range a.use {
		u := &a.use[i]
		u.dead += u.end
		a.dead += u.dead
		if a.chunks[i].b == nil || u.end == u.dead {
			a.chunks[i], *u = chunk{}, chunkUse{}
			a.free = append(a.free, i)
		}
	}
	a.open(chunkBytes)
}
