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
//   - for each wildcard form one key, the rarest of: its literal segments, its literal prefix cut to one of a few lengths, or a gram of
//     8, 6 or 4 bytes of its literals; a form with nothing literal is filed under one key for all such, and so are the first few of
//     those that would be filed under a gram;
//   - the origin of a learned row and every prefix of it, so that a withdraw finds them.
//
// The segments of topics are found by outline: which segments are wild, and whether the rest is free. Tables have few, and for
// each one an address has one key, made of the segments that the outline leaves. Most keys of an address have no rows, which a filter of
// bits tells. A false yes costs a probe, no more: whoever asks matches the row that was found. Grams have a filter of their own: an
// address has one for each byte, and few forms are filed under grams, so what is asked most is small.
type index struct {
	keys     hmap
	outlines []outline    // of forms by segments: never changed, and none is taken out but when the filters are made anew
	paths    *filter      // keys of segments; nil where there are no wildcard forms
	grams    *filter      // cuts and grams
	filed    [kinds]int32 // wildcard forms by kind of key
}

// The kinds of keys. Cuts and grams are a kind for each length.
const (
	kindText = iota
	kindExact
	kindOrigin
	kindRest
	kindPath // literal segments of a form
	kindCut
	kindGram = kindCut + len(prefixCuts)
	kinds    = kindGram + len(gramSizes)
)

// prefixCuts are the lengths that prefixes are cut to.
var prefixCuts = [...]int{1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32}

// gramSizes are the lengths of grams.
var gramSizes = [...]int{8, 6, 4}

// Bounds of the segments and grams that one form is filed by.
const (
	maxLevels = 16
	maxGrams  = 16
	maxPlaces = 256 // where grams are looked for in one form
)

// maxOutlines bounds what a lookup of segments costs; a form of one outline more is filed by its prefix or a gram.
const maxOutlines = 256

// fewGrams is how many forms are looked at for every address, before grams of addresses are.
const fewGrams = 6

// outline is which segments of an address a form leaves open.
type outline struct {
	levels uint8  // segments that are looked at
	deep   bool   // the rest of the address is free; else there is none
	wild   uint16 // of levels: bit i is segment i
	salt   uint64 // of the three
}

func newOutline(levels int, deep bool, wild uint16) outline {
	salt := uint64(levels)<<17 | uint64(wild)
	if deep {
		salt |= 1 << 16
	}
	return outline{uint8(levels), deep, wild, mix(gramSeed, salt)}
}

// seed is the hash seed of the process, so that a peer cannot choose colliding names.
var seed = maphash.MakeSeed()

// mix spreads a hash, one way for each salt: the folded product with an odd constant. (After wyhash.)
func mix(h, salt uint64) uint64 {
	hi, lo := bits.Mul64(h^salt*0x9e3779b97f4a7c15^0xe7037ed1a0b428db, 0xa0761d6478bd642f)
	return hi ^ lo
}

func hashText(kind int, text string) uint64 { return mix(maphash.String(seed, text), uint64(kind)+1) }

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

var (
	gramSeed = maphash.String(seed, "gram")
	restKey  = hashText(kindRest, "")
)

// wildKey is a key that a form can be filed under. Of two with as many rows, the one with the lower cost is taken: digits tell names apart
// better than the words that many have.
type wildKey struct {
	kind    int
	hash    uint64
	cost    int
	outline outline // of kindPath
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
		dst = append(dst, wildKey{kindPath, path.key(), cost, path.outline()})
	}
	for i := len(prefixCuts) - 1; i >= 0; i-- {
		if cut := prefixCuts[i]; cut <= len(f.prefix) {
			dst = append(dst, wildKey{kind: kindCut + i, hash: hashText(kindCut+i, f.prefix[:cut]), cost: gramSizes[0]})
			break
		}
	}
	for i, size := range gramSizes {
		n := len(dst)
		if dst = appendGrams(dst, f, i, size); len(dst) > n {
			break
		}
	}
	return append(dst, wildKey{kind: kindRest, hash: restKey})
}

// loose reports whether a form of the pattern can be filed under nothing that is in it, though it asks for some text: the index has it looked
// at for every address. One that takes all, such as "*" or "%/%", does not count: nothing else could be written for it.
func (p *pattern) loose() bool {
	for i := range p.forms {
		f := &p.forms[i]
		var room [maxGrams + 4]wildKey
		if keysOf(room[:0], f)[0].kind != kindRest {
			continue
		}
		for lit := range f.literals {
			if strings.Trim(lit, "/") != "" {
				return true
			}
		}
	}
	return false
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
			k := wildKey{kind: kindGram + kind, hash: gramAt(lit, at, size, kindGram+kind), cost: cost}
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

// pathBuilder reads the segments of a form. From the first wildcard that can take a slash on, the rest of the address is free. What else a
// segment with a wildcard asks for is left to the matcher.
type pathBuilder struct {
	sum      uint64 // of the literal segments
	deep     bool
	more     bool // literals stand behind the segments that are looked at
	levels   int
	wilds    uint16
	literals int
	segment  strings.Builder
	wild     bool
}

func (p *pathBuilder) outline() outline { return newOutline(p.levels, p.deep, p.wilds) }

func (p *pathBuilder) key() uint64 { return mix(p.sum, p.outline().salt) }

func (p *pathBuilder) build(f *form) {
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
				if p.deep = f.w.kinds[i] == wildAny; p.deep {
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
				p.deep = true
			}
			p.wild = true
			if p.deep {
				for _, rest := range f.g.tokens[i+1:] {
					p.more = p.more || len(rest.lit) > 1
				}
				break
			}
		}
	}
	if !p.deep {
		p.step()
	}
}

// step ends a segment.
func (p *pathBuilder) step() {
	switch {
	case p.levels >= maxLevels:
	case p.wild:
		p.wilds |= 1 << p.levels
	default:
		p.sum += hashSegment(p.segment.String(), p.levels)
		if p.segment.Len() > 0 {
			p.literals++
		}
	}
	p.levels++
	p.wild = false
	p.segment.Reset()
}

// hashSegment hashes a segment and its number, from 0: what is between two slashes, mostly a few bytes, by one multiplication of its ends.
// (After wyhash.)
func hashSegment(s string, level int) uint64 {
	var a, b uint64
	n := len(s)
	p := unsafe.Slice(unsafe.StringData(s), n)
	switch le := binary.LittleEndian; {
	case n > 16:
		a = maphash.String(seed, s)
	case n >= 8:
		a, b = le.Uint64(p), le.Uint64(p[n-8:])
	case n >= 4:
		a, b = uint64(le.Uint32(p)), uint64(le.Uint32(p[n-4:]))
	case n > 0:
		a = uint64(p[0])<<16 | uint64(p[n/2])<<8 | uint64(p[n-1])
	}
	hi, lo := bits.Mul64(a^segmentSeed[level&(maxLevels-1)], b^segmentSeed[maxLevels]^uint64(n)*0x9e3779b97f4a7c15)
	return hi ^ lo
}

var segmentSeed = func() (seeds [maxLevels + 1]uint64) {
	for i := range seeds {
		seeds[i] = hashText(i, "segment")
	}
	return seeds
}()

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
	x.mark(x.fileForm(keysOf(room[:0], f), slot, o))
}

// fileForm files a form under the one of its keys that has the fewest rows, which it returns.
func (x *index) fileForm(keys []wildKey, slot uint32, o owner) wildKey {
	best, least := keys[len(keys)-1], -1
	for _, k := range keys {
		if k.kind == kindRest && least >= 0 || k.kind == kindPath && !x.hasOutline(k.outline) && len(x.outlines) >= maxOutlines {
			continue
		}
		n := len(x.keys.get(uint32(k.hash >> 32)))
		if cost := 3*n + k.cost; least < 0 || cost < least {
			best, least = k, cost
		}
		if k.kind == kindPath && k.cost == 0 && n < 4 {
			break
		}
	}
	if best.kind >= kindGram && x.filed[kindRest] < fewGrams {
		best = keys[len(keys)-1]
	}
	if x.keys.add(uint32(best.hash>>32), slot, o) {
		x.filed[best.kind]++
	}
	return best
}

func (x *index) hasOutline(want outline) bool {
	for i := range x.outlines {
		if x.outlines[i].salt == want.salt {
			return true
		}
	}
	return false
}

// mark notes that forms are filed under k.
func (x *index) mark(k wildKey) {
	if x.paths == nil {
		x.paths, x.grams = newFilter(0), newFilter(0)
	}
	switch k.kind {
	case kindRest:
	case kindPath:
		if !x.hasOutline(k.outline) {
			x.outlines = append(x.outlines[:len(x.outlines):len(x.outlines)], k.outline)
		}
		x.paths.add(k.hash)
	default:
		x.grams.add(k.hash)
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
				switch {
				case x.paths == nil || k.kind == kindRest:
				case k.kind == kindPath:
					x.paths.stale++
				default:
					x.grams.stale++
				}
			}
		}
	}
	for h := range originKeys(r.Origin) {
		unfile(h)
	}
}

// refresh makes the filters anew where it is due. s holds x.
func (x *index) refresh(s *Snapshot) {
	if x.paths != nil && (x.paths.worn() || x.grams.worn()) {
		x.renew(s, 0)
	}
}

// reserve makes the filters large enough for more wildcard forms.
func (x *index) reserve(s *Snapshot, more int) {
	if more > 64 && (x.paths == nil || x.paths.full(more) || x.grams.full(more/8)) {
		x.renew(s, more)
	}
}

// renew makes the filters anew, with room for more wildcard forms.
func (x *index) renew(s *Snapshot, more int) {
	paths := int(x.filed[kindPath])
	grams := 0
	for _, n := range x.filed[kindCut:] {
		grams += int(n)
	}
	wild := paths + grams + int(x.filed[kindRest])
	x.paths, x.grams, x.outlines = newFilter(paths+more), newFilter(2*grams+more/8), nil
	if wild == 0 {
		return
	}
	s.records(func(rec record) bool {
		if rec.flags()&recWild == 0 {
			return true
		}
		forms := s.routeOf(rec.slot()).c.pattern.forms
		for i := range forms {
			var room [maxGrams + 4]wildKey
			for _, k := range keysOf(room[:0], &forms[i]) {
				words := x.keys.get(uint32(k.hash >> 32))
				w := k.hash>>32<<32 | uint64(rec.slot())
				if at := search(words, w); at < len(words) && words[at] == w {
					x.mark(k)
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

// probes are the keys under which a lookup looks for rows, and the slots that it finds: first all keys are gathered, then what they lead to
// is read side by side, so that the processor waits for the memory of all of them at once.
type probes struct {
	keys  [8]uint32
	n     int
	few   [16]uint32 // slots, unless they are more
	found int
	many  []uint32
	grams map[uint64]bool // those of a long address
	touch uint64
}

// slots are what was found. One can be there more than once.
func (p *probes) slots() []uint32 {
	if p.many != nil {
		return p.many
	}
	return p.few[:p.found]
}

// find looks for the slots of rows that may fit addr, whose hash is given.
//
// Cost: a step for each segment of the address, for each outline and, where forms are filed under grams, for each byte, and a probe of the
// multimap for each key that may have rows.
func (x *index) find(p *probes, addr string, hash uint64) {
	p.add(x, mix(hash, kindExact+1))
	if x.filed[kindRest] > 0 {
		p.add(x, restKey)
	}
	if x.cuts() {
		for i, cut := range prefixCuts {
			if cut > len(addr) {
				break
			}
			if x.filed[kindCut+i] > 0 {
				if h := hashText(kindCut+i, addr[:cut]); x.grams.has(h) {
					p.add(x, h)
				}
			}
		}
	}
	if x.filed[kindPath] > 0 {
		x.findPaths(p, addr)
	}
	for i, size := range gramSizes {
		if x.filed[kindGram+i] > 0 {
			x.findGrams(p, addr, kindGram+i, size)
		}
	}
	p.flush(x)
}

// cuts reports whether a form is filed under a cut of its prefix.
func (x *index) cuts() bool {
	n := int32(0)
	for _, filed := range x.filed[kindCut:kindGram] {
		n |= filed
	}
	return n != 0
}

func (p *probes) add(x *index, h uint64) {
	if p.n == len(p.keys) {
		p.flush(x)
	}
	p.keys[p.n] = uint32(h >> 32)
	p.n++
}

// flush appends the slots of all keys. Each loop reads what no step of it depends on another for.
func (p *probes) flush(x *index) {
	if x.keys.n == 0 {
		p.n = 0
		return
	}
	var lists [len(p.keys)][]uint64
	for i, k := range p.keys[:p.n] {
		lists[i] = x.keys.bucket(k)
	}
	if p.n > 1 && x.keys.n > 1<<12 {
		for i, k := range p.keys[:p.n] {
			if words := lists[i]; len(words) > 0 {
				p.touch += words[uint64(k)*uint64(len(words))>>32]
			}
		}
	}
	for i, k := range p.keys[:p.n] {
		for _, w := range wordsOf(lists[i], k) {
			if p.found < len(p.few) {
				p.few[p.found] = uint32(w)
				p.found++
				continue
			}
			if p.many == nil {
				p.many = append(make([]uint32, 0, 4*len(p.few)), p.few[:]...)
			}
			p.many = append(p.many, uint32(w))
		}
	}
	p.n = 0
}

// findGrams adds each gram of addr that may have rows once, however often it is there: a sender may repeat one thousands of times.
func (x *index) findGrams(p *probes, addr string, kind, size int) {
	bits := x.grams.bits
	salt := uint64(kind) + 1
	mask := uint64(1)<<(8*size) - 1
	at := 0
	for b := unsafe.Slice(unsafe.StringData(addr), len(addr)); at+8 <= len(b); at++ {
		h := mix(binary.LittleEndian.Uint64(b[at:])&mask^gramSeed, salt)
		if hasBits(bits, h) {
			x.addGram(p, addr, at, h, size)
		}
	}
	for ; at+size <= len(addr); at++ {
		if h := gramAt(addr, at, size, kind); hasBits(bits, h) {
			x.addGram(p, addr, at, h, size)
		}
	}
}

// addGram adds the gram at a place of addr, if no place before has it.
func (x *index) addGram(p *probes, addr string, at int, h uint64, size int) {
	if len(addr) <= 1<<10 {
		if strings.Index(addr, addr[at:at+size]) < at {
			return
		}
	} else {
		if p.grams == nil {
			p.grams = map[uint64]bool{}
		}
		if p.grams[h] {
			return
		}
		p.grams[h] = true
	}
	p.add(x, h)
}

// findPaths adds the keys that the segments of addr have in each outline.
func (x *index) findPaths(p *probes, addr string) {
	var sums [maxLevels + 1]uint64 // of the segments before each
	n, start := 0, 0
	b := unsafe.Slice(unsafe.StringData(addr), len(addr))
	for at := 0; at < len(b); at += 8 {
		for m := slashesIn(wordAt(b, at)); m != 0; m &= m - 1 {
			if n == maxLevels {
				break
			}
			end := at + bits.TrailingZeros64(m)/8
			sums[n+1] = sums[n] + hashSegment(addr[start:end], n)
			start = end + 1
			n++
		}
	}
	if n < maxLevels {
		sums[n+1] = sums[n] + hashSegment(addr[start:], n)
	}
	n++ // more than maxLevels is more than any outline looks at
	for i := range x.outlines {
		o := &x.outlines[i]
		levels := int(o.levels)
		if levels != n && (!o.deep || levels > n) || levels == n && o.deep {
			continue
		}
		sum := sums[levels]
		for w := o.wild; w != 0; w &= w - 1 {
			at := bits.TrailingZeros16(w)
			sum -= sums[at+1] - sums[at]
		}
		if h := mix(sum, o.salt); x.paths.has(h) {
			p.add(x, h)
		}
	}
}

// slashesIn returns the slashes among the 8 bytes of a word, as the high bits of the bytes.
func slashesIn(w uint64) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	w ^= ones * '/'
	return ^((w&^uint64(highs) + ones*0x7f) | w | ones*0x7f)
}

// wordAt is the 8 bytes at b[at:], 0 where there are none.
func wordAt(b []byte, at int) (w uint64) {
	if at+8 <= len(b) {
		return binary.LittleEndian.Uint64(b[at:])
	}
	return tailAt(b, at)
}

func tailAt(b []byte, at int) (w uint64) {
	if len(b) >= 8 {
		return binary.LittleEndian.Uint64(b[len(b)-8:]) >> (8 * uint(at+8-len(b)))
	}
	for i := len(b) - 1; i >= at; i-- {
		w = w<<8 | uint64(b[i])
	}
	return w
}

// filter is a set of hashes that errs to yes. Readers use it while the writer adds to it: a bit that is there too early is a false yes.
// A hash is two bits of one word.
type filter struct {
	bits  []atomic.Uint64 // a power of two of them
	added int
	stale int // taken out of the index since; their bits stay
}

// filterBits is how many bits a filter has for each hash that is expected, at least.
const filterBits = 16

func newFilter(expect int) *filter {
	n := 64
	for n*64 < filterBits*expect {
		n *= 2
	}
	return &filter{bits: make([]atomic.Uint64, n)}
}

// filterMask is the two bits of a hash. Its high half is its key in the multimap, and the low bits choose the word.
func filterMask(h uint64) uint64 { return 1<<(h>>26&63) | 1<<(h>>32&63) }

func hasBits(bits []atomic.Uint64, h uint64) bool {
	mask := filterMask(h)
	return bits[h&uint64(len(bits)-1)].Load()&mask == mask
}

func (f *filter) has(h uint64) bool { return hasBits(f.bits, h) }

func (f *filter) add(h uint64) {
	w := &f.bits[h&uint64(len(f.bits)-1)]
	if old, mask := w.Load(), filterMask(h); old&mask != mask {
		w.Store(old | mask)
		f.added++
	}
}

// worn reports whether the filter says yes too often: it is too full, or too much of it is stale.
func (f *filter) worn() bool {
	return f.added*filterBits > len(f.bits)*64*2 || f.stale > 1024 && f.stale > f.added/2
}

// full reports whether the filter is too small for more hashes.
func (f *filter) full(more int) bool { return (f.added+more)*filterBits > len(f.bits)*64 }
