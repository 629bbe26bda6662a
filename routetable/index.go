package routetable

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/gobwas/glob/syntax"
)

// index finds the rows whose pattern may fit an address. It is a value: a copy is a snapshot, edits of one copy do not show in another.
//
// There is one multimap from hashes to rows (keys), and a row is filed in it under hashes of several kinds:
//
//   - its pattern's text, so that edits find the rows of a pattern;
//   - each whole address that the pattern is a literal of;
//   - for each wildcard form one key, the rarest of: the path of its segments (the trie of topics), its literal prefix cut to one of
//     a few lengths, or a gram of 8, 6 or 4 bytes of its literals; a form with nothing literal is filed under one key for all such;
//   - the origin of a learned row and every prefix of it, so that a withdraw finds them.
//
// A trie has no nodes here: the node of a path is the hash of the path. What tells whether anything lies beneath a path, and spares most
// lookups of grams and prefixes, is one bit in a filter. A false yes costs a probe, no more: whoever asks matches the row that was found.
type index struct {
	keys   hmap
	filter *filter
	filed  [kinds]int32 // wildcard forms by kind of key
	levels int32        // the deepest path
}

// The kinds of keys. Cuts and grams are a kind for each length.
const (
	kindText = iota
	kindExact
	kindOrigin
	kindRest
	kindPath // the path of a form to its end
	kindDeep // the path of a form to where the rest of the address is free
	kindCut
	kindGram = kindCut + len(prefixCuts)
	kinds    = kindGram + len(gramSizes)
)

// prefixCuts are the lengths that prefixes are cut to.
var prefixCuts = [...]int{1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32}

// gramSizes are the lengths of grams.
var gramSizes = [...]int{8, 6, 4}

// Bounds of the paths and grams that one form is filed by.
const (
	maxLevels = 16
	maxGrams  = 16
	maxPlaces = 256 // where grams are looked for in one form
)

// seed is the hash seed of the process, so that a peer cannot choose colliding names.
var seed = maphash.MakeSeed()

// mix spreads a hash, one way for each salt: the folded product with an odd constant. (After wyhash.)
func mix(h, salt uint64) uint64 {
	hi, lo := bits.Mul64(h^salt*0x9e3779b97f4a7c15^0xe7037ed1a0b428db, 0xa0761d6478bd642f)
	return hi ^ lo
}

func hashText(kind int, text string) uint64 { return mix(maphash.String(seed, text), uint64(kind)+1) }

// salts of the steps of a path.
const (
	saltRoot = 100 + iota
	saltWild
	saltDeep
	saltEnd
)

// gramAt is the hash of the n bytes at s[i:], n from 4 to 8.
func gramAt(s string, i, n, kind int) uint64 {
	var w uint64
	if i+8 <= len(s) {
		w = binary.LittleEndian.Uint64(unsafe.Slice(unsafe.StringData(s), len(s))[i:])
		w &= uint64(1)<<(8*n) - 1
	} else {
		for j := n - 1; j >= 0; j-- {
			w = w<<8 | uint64(s[i+j])
		}
	}
	return mix(w^gramSeed, uint64(kind)+1)
}

var gramSeed = maphash.String(seed, "gram")

// wildKey is a key that a form can be filed under. Of two with as many rows, the one with the lower cost is taken: digits tell names apart
// better than the words that many have.
type wildKey struct {
	kind int
	hash uint64
	cost int
}

// keysOf appends the keys that a form can be filed under, the first to be tried first.
func keysOf(dst []wildKey, f *form) []wildKey {
	var path pathBuilder
	path.build(f)
	if path.literals > 0 && path.levels <= maxLevels {
		cost := 0
		if path.more {
			cost = gramSizes[0]
		}
		dst = append(dst, wildKey{path.kind, path.end, cost})
	}
	for i := len(prefixCuts) - 1; i >= 0; i-- {
		if cut := prefixCuts[i]; cut <= len(f.prefix) {
			dst = append(dst, wildKey{kindCut + i, hashText(kindCut+i, f.prefix[:cut]), gramSizes[0]})
			break
		}
	}
	for i, size := range gramSizes {
		n := len(dst)
		if dst = appendGrams(dst, f, i, size); len(dst) > n {
			break
		}
	}
	return append(dst, wildKey{kindRest, hashText(kindRest, ""), 0})
}

// appendGrams appends the grams of a size that tell most, at most maxGrams of them.
func appendGrams(dst []wildKey, f *form, kind, size int) []wildKey {
	base, looked := len(dst), 0
	for lit := range f.literals {
		for at := 0; at+size <= len(lit) && looked < maxPlaces; at++ {
			looked++
			cost := size
			for _, c := range []byte(lit[at : at+size]) {
				if c >= '0' && c <= '9' {
					cost--
				}
			}
			k := wildKey{kindGram + kind, gramAt(lit, at, size, kindGram+kind), cost}
			if len(dst)-base < maxGrams {
				dst = append(dst, k)
				continue
			}
			most := base
			for i := base + 1; i < len(dst); i++ {
				if dst[i].cost > dst[most].cost {
					most = i
				}
			}
			if k.cost < dst[most].cost {
				dst[most] = k
			}
		}
	}
	return dst
}

// literals gives the literal runs of a form: every address that fits holds each.
func (f *form) literals(yield func(string) bool) {
	if f.w != nil {
		for _, lit := range f.w.lits {
			if !yield(lit) {
				return
			}
		}
		return
	}
	for i := range f.g.tokens {
		if t := &f.g.tokens[i]; t.kind == syntax.Text && !yield(t.lit) {
			return
		}
	}
}

// pathBuilder makes the path of a form: a step for each segment, literal or wild. From the first wildcard that can take a slash on, the
// rest of the address is one deep step. What else a segment with a wildcard asks for is left to the matcher.
type pathBuilder struct {
	hash     uint64
	end      uint64            // the key
	kind     int               // kindPath or kindDeep
	more     bool              // literals stand behind the end of the path
	steps    [maxLevels]uint64 // the nodes on the way
	levels   int
	literals int
	segment  strings.Builder
	wild     bool
}

func (p *pathBuilder) build(f *form) {
	p.hash = mix(0, saltRoot)
	deep := false
	text := func(lit string) {
		for {
			i := strings.IndexByte(lit, '/')
			if i < 0 {
				p.segment.WriteString(lit)
				return
			}
			p.segment.WriteString(lit[:i])
			p.step()
			lit = lit[i+1:]
		}
	}
	if f.w != nil {
		for i, lit := range f.w.lits {
			text(lit)
			if i < len(f.w.kinds) {
				p.wild = true
				if deep = f.w.kinds[i] == wildAny; deep {
					for _, rest := range f.w.lits[i+1:] {
						p.more = p.more || len(rest) > 1
					}
					break
				}
			}
		}
	} else {
		for i := range f.g.tokens {
			switch t := &f.g.tokens[i]; {
			case t.kind == syntax.Text:
				text(t.lit)
				continue
			case t.kind == syntax.Super || t.kind == syntax.RangeOpen && t.has('/'):
				deep = true
			}
			p.wild = true
			if deep {
				for _, rest := range f.g.tokens[i+1:] {
					p.more = p.more || len(rest.lit) > 1
				}
				break
			}
		}
	}
	if deep {
		p.kind, p.end = kindDeep, mix(p.hash, saltDeep)
		return
	}
	p.step()
	p.kind, p.end = kindPath, mix(p.hash, saltEnd)
}

// step ends a segment.
func (p *pathBuilder) step() {
	if p.wild {
		p.hash = mix(p.hash, saltWild)
	} else {
		p.hash = stepLiteral(p.hash, p.segment.String())
		if p.segment.Len() > 0 {
			p.literals++
		}
	}
	if p.levels < maxLevels {
		p.steps[p.levels] = p.hash
	}
	p.levels++
	p.wild = false
	p.segment.Reset()
}

func stepLiteral(node uint64, segment string) uint64 {
	return mix(node^hashSegment(segment), saltRoot)
}

// hashSegment hashes what is between two slashes, mostly a few bytes, by one multiplication of its ends. (After wyhash.)
func hashSegment(s string) uint64 {
	var a, b uint64
	n := len(s)
	p := unsafe.Slice(unsafe.StringData(s), n)
	switch le := binary.LittleEndian; {
	case n > 16:
		return maphash.String(seed, s)
	case n >= 8:
		a, b = le.Uint64(p), le.Uint64(p[n-8:])
	case n >= 4:
		a, b = uint64(le.Uint32(p)), uint64(le.Uint32(p[n-4:]))
	case n > 0:
		a = uint64(p[0])<<16 | uint64(p[n/2])<<8 | uint64(p[n-1])
	}
	hi, lo := bits.Mul64(a^segmentSeed[0], b^segmentSeed[1]^uint64(n)*0x9e3779b97f4a7c15)
	return hi ^ lo
}

var segmentSeed = [2]uint64{maphash.String(seed, "segment 0"), maphash.String(seed, "segment 1")}

// add files a row, which has its slot.
func (x *index) add(r *Route, o owner) {
	slot, p := uint32(r.ID), r.c.pattern
	file := func(h uint64) { x.keys.add(uint32(h>>32), slot, o) }
	if !p.plain() {
		file(hashText(kindText, p.text))
	}
	for _, lit := range p.lits {
		file(hashText(kindExact, lit))
	}
	for i := range p.forms {
		x.addForm(&p.forms[i], slot, o)
	}
	for h := range originKeys(r.Origin) {
		file(h)
	}
}

func (x *index) addForm(f *form, slot uint32, o owner) {
	var room [maxGrams + 4]wildKey
	x.mark(f, x.fileForm(keysOf(room[:0], f), slot, o))
}

// fileForm files a form under the one of its keys that has the fewest rows, which it returns.
func (x *index) fileForm(keys []wildKey, slot uint32, o owner) wildKey {
	best, least := keys[0], -1
	for _, k := range keys {
		if k.kind == kindRest && least >= 0 {
			break
		}
		n := len(x.keys.get(uint32(k.hash >> 32)))
		if cost := 3*n + k.cost; least < 0 || cost < least {
			best, least = k, cost
		}
		if k.kind < kindCut && k.cost == 0 && n < 4 {
			break
		}
	}
	if x.keys.add(uint32(best.hash>>32), slot, o) {
		x.filed[best.kind]++
	}
	return best
}

// mark sets the filter's bits of a form that is filed under k.
func (x *index) mark(f *form, k wildKey) {
	var path pathBuilder
	if k.kind == kindPath || k.kind == kindDeep {
		path.build(f)
	}
	x.markPath(k, path.steps[:min(path.levels, maxLevels)], int32(path.levels))
}

// markPath is mark of a form whose path has the steps.
func (x *index) markPath(k wildKey, steps []uint64, levels int32) {
	if x.filter == nil {
		x.filter = newFilter(0)
	}
	if k.kind == kindPath || k.kind == kindDeep {
		for _, h := range steps {
			x.filter.add(h)
		}
		x.levels = max(x.levels, levels)
	}
	if k.kind != kindRest {
		x.filter.add(k.hash)
	}
}

// remove takes a row out.
func (x *index) remove(r *Route, o owner) {
	slot, p := uint32(r.ID), r.c.pattern
	unfile := func(h uint64) bool { return x.keys.remove(uint32(h>>32), slot, o) }
	if !p.plain() {
		unfile(hashText(kindText, p.text))
	}
	for _, lit := range p.lits {
		unfile(hashText(kindExact, lit))
	}
	for i := range p.forms {
		var room [maxGrams + 4]wildKey
		for _, k := range keysOf(room[:0], &p.forms[i]) {
			if unfile(k.hash) {
				x.filed[k.kind]--
				if x.filter != nil {
					x.filter.stale++
				}
			}
		}
	}
	for h := range originKeys(r.Origin) {
		unfile(h)
	}
}

// refresh makes the filter anew where it is due. s holds x.
func (x *index) refresh(s *Snapshot) {
	if x.filter != nil && x.filter.worn() {
		x.renew(s, 0)
	}
}

// reserve makes the filter large enough for more wildcard forms.
func (x *index) reserve(s *Snapshot, more int) {
	if more > 64 && (x.filter == nil || (x.filter.added+4*more)*12 > len(x.filter.bits)*64) {
		x.renew(s, more)
	}
}

// renew makes the filter anew, with room for more wildcard forms.
func (x *index) renew(s *Snapshot, more int) {
	wild := int32(0)
	for _, n := range x.filed {
		wild += n
	}
	x.filter, x.levels = newFilter(4*(int(wild)+more)), 0
	if wild == 0 {
		return
	}
	s.records(func(rec record) bool {
		if rec.flags()&recWild == 0 {
			return true
		}
		forms := s.route(rec.slot()).c.pattern.forms
		for i := range forms {
			var room [maxGrams + 4]wildKey
			for _, k := range keysOf(room[:0], &forms[i]) {
				words := x.keys.get(uint32(k.hash >> 32))
				w := k.hash>>32<<32 | uint64(rec.slot())
				if at := search(words, w); at < len(words) && words[at] == w {
					x.mark(&forms[i], k)
				}
			}
		}
		return true
	})
}

// originKeys gives the keys of a learned row's origin: the whole, and every prefix that ends with a slash.
func originKeys(origin string) func(yield func(uint64) bool) {
	return func(yield func(uint64) bool) {
		if !Learned(origin) {
			return
		}
		if !yield(hashText(kindOrigin, origin)) {
			return
		}
		for i := 0; i < len(origin)-1; i++ {
			if origin[i] == '/' && !yield(hashText(kindOrigin, origin[:i+1])) {
				return
			}
		}
	}
}

// find calls yield with the slots of rows that may fit addr, whose hash is given. A slot can come more than once.
func (x *index) find(addr string, hash uint64, yield func(slot uint32)) {
	for _, w := range x.keys.get(uint32(mix(hash, kindExact+1) >> 32)) {
		yield(uint32(w))
	}
	if x.filter == nil {
		return
	}
	probe := func(h uint64) {
		if x.filter.has(h) {
			for _, w := range x.keys.get(uint32(h >> 32)) {
				yield(uint32(w))
			}
		}
	}
	if x.filed[kindRest] > 0 {
		for _, w := range x.keys.get(uint32(hashText(kindRest, "") >> 32)) {
			yield(uint32(w))
		}
	}
	for i, cut := range prefixCuts {
		if cut > len(addr) {
			break
		}
		if x.filed[kindCut+i] > 0 {
			probe(hashText(kindCut+i, addr[:cut]))
		}
	}
	if x.filed[kindPath]+x.filed[kindDeep] > 0 {
		x.walk(addr, probe)
	}
	for i, size := range gramSizes {
		if x.filed[kindGram+i] > 0 {
			x.findGrams(addr, kindGram+i, size, probe)
		}
	}
}

// findGrams probes each gram of addr once, however often it is there: a sender may repeat one thousands of times.
func (x *index) findGrams(addr string, kind, size int, probe func(uint64)) {
	var room [64]uint64 // the last grams, by their hash: enough for addresses that are not long
	var all map[uint64]bool
	if len(addr) > 4*len(room) {
		all = map[uint64]bool{}
	}
	for at := 0; at+size <= len(addr); at++ {
		h := gramAt(addr, at, size, kind)
		last := &room[h&uint64(len(room)-1)]
		if *last == h || !x.filter.has(h) {
			continue
		}
		*last = h
		if all != nil {
			if all[h] {
				continue
			}
			all[h] = true
		}
		probe(h)
	}
}

// walk follows the paths that the segments of addr can take.
func (x *index) walk(addr string, probe func(uint64)) {
	var room [2][32]uint64
	nodes, next := append(room[0][:0], mix(0, saltRoot)), room[1][:0]
	deep := x.filed[kindDeep] > 0
	for level := int32(0); ; level++ {
		if deep {
			for _, n := range nodes {
				probe(mix(n, saltDeep))
			}
		}
		if level == x.levels {
			return
		}
		segment, rest, more := strings.Cut(addr, "/")
		h := hashSegment(segment)
		next = next[:0]
		for _, n := range nodes {
			if lit := mix(n^h, saltRoot); x.filter.has(lit) {
				next = append(next, lit)
			}
			if wild := mix(n, saltWild); x.filter.has(wild) {
				next = append(next, wild)
			}
		}
		if !more {
			for _, n := range next {
				probe(mix(n, saltEnd))
			}
			return
		}
		if len(next) == 0 {
			return
		}
		nodes, next, addr = next, nodes, rest
	}
}

// filter is a set of hashes that errs to yes. Readers use it while the writer adds to it: a bit that is there too early is a false yes.
type filter struct {
	bits  []atomic.Uint64
	added int
	stale int // taken out of the index since; their bits stay
}

func newFilter(expect int) *filter {
	n := 64
	for n*64 < 12*expect {
		n *= 2
	}
	return &filter{bits: make([]atomic.Uint64, n)}
}

func (f *filter) has(h uint64) bool {
	return f.bits[h>>6&uint64(len(f.bits)-1)].Load()&(1<<(h&63)) != 0
}

func (f *filter) add(h uint64) {
	w := &f.bits[h>>6&uint64(len(f.bits)-1)]
	if old := w.Load(); old&(1<<(h&63)) == 0 {
		w.Store(old | 1<<(h&63))
		f.added++
	}
}

// worn reports whether the filter says yes too often: it is too full, or too much of it is stale.
func (f *filter) worn() bool {
	return f.added > len(f.bits)*8 || f.stale > 1024 && f.stale > f.added/2
}
