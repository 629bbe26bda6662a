package routetable

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"
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
//     8, 6 or 4 bytes of its literals; a form with nothing literal is filed under one key for all such, and so are those that would be
//     filed under a gram, while they are few;
//   - the origin of a learned row and every prefix of it, so that a withdraw finds them.
//
// The segments of topics are found by outline: which segments are wild, and whether any number of them may stand at one place. Tables have
// few, and for each one an address has one key, made of the segments that the outline leaves (outline.go). Most keys of an address have no rows, which a filter of
// bits tells. A false yes costs a probe, no more: whoever asks matches the row that was found. Grams have a filter of their own: an
// address has one for each byte, and few forms are filed under grams, so what is asked most is small.
type index struct {
	keys     hmap
	outlines []outline    // of forms by segments: never changed, and none is taken out but when the filters are made anew
	paths    *filter      // keys of segments; nil where there are no wildcard forms
	grams    *filter      // cuts and grams
	filed    [kinds]int32 // wildcard forms by kind of key
	others   int32        // those under cuts and grams
	few      bool         // forms that have grams may be filed under kindRest
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
	maxGrams  = 16
	maxPlaces = 256 // where grams are looked for in one form
)

// maxOutlines bounds what a lookup of segments costs; a form of one outline more is filed by its prefix or a gram.
const maxOutlines = 256

// fewGrams is how many forms are looked at for every address, before grams of addresses are.
const fewGrams = 6

// seed is the hash seed of the process, so that a peer cannot choose colliding names.
var seed = maphash.MakeSeed()

// mix spreads a hash, one way for each salt: the folded product with an odd constant. (After wyhash.)
func mix(h, salt uint64) uint64 { return fold(h ^ salt*0x9e3779b97f4a7c15 ^ 0xe7037ed1a0b428db) }

func fold(h uint64) uint64 {
	hi, lo := bits.Mul64(h, 0xa0761d6478bd642f)
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
	var path segments
	if path.read(f); path.literals > 0 {
		cost := 0
		if path.more {
			cost = gramSizes[0]
		}
		o, key := path.outline()
		dst = append(dst, wildKey{kindPath, key, cost, o})
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
	open, few := best, false // what there is instead of a gram; whether it leads to few rows
	for _, k := range keys {
		if k.kind == kindRest && least >= 0 || k.kind == kindPath && !x.hasOutline(k.outline) && len(x.outlines) >= maxOutlines {
			continue
		}
		n := len(x.keys.get(uint32(k.hash >> 32)))
		if cost := 3*n + k.cost; least < 0 || cost < least {
			best, least = k, cost
		}
		if k.kind < kindGram && !few && n < fewGrams {
			open, few = k, true
		}
		if k.kind == kindPath && k.cost == 0 && n < 4 {
			break
		}
	}
	if best.kind >= kindGram && x.filed[kindRest] < fewGrams && !x.hasGrams() {
		best = open
		x.few = x.few || best.kind == kindRest
	}
	if x.keys.add(uint32(best.hash>>32), slot, o) {
		x.count(best.kind, 1)
	}
	return best
}

func (x *index) count(kind int, n int32) {
	x.filed[kind] += n
	if kind >= kindCut {
		x.others += n
	}
}

// hasGrams reports whether a form is filed under a gram.
func (x *index) hasGrams() bool {
	return x.filed[kindGram]|x.filed[kindGram+1]|x.filed[kindGram+2] != 0
}

// spread files the first few forms with grams under them, where others are. s holds x.
func (x *index) spread(s *Snapshot, o owner) {
	if !x.few || !x.hasGrams() {
		return
	}
	x.few = false
	for _, w := range slices.Clone(x.keys.get(uint32(restKey >> 32))) {
		r := s.routeOf(uint32(w))
		for i := range r.c.pattern.forms {
			var room [maxGrams + 4]wildKey
			if keysOf(room[:0], &r.c.pattern.forms[i])[0].kind != kindRest {
				x.remove(r, o)
				x.add(r, o)
				break
			}
		}
	}
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
				x.count(k.kind, -1)
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

// refresh is done after an edit: it puts right what has grown out of its place. s holds x.
func (x *index) refresh(s *Snapshot, o owner) {
	x.spread(s, o)
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
	paths, others := int(x.filed[kindPath]), int(x.others)
	x.paths, x.grams, x.outlines = newFilter(paths+more), newFilter(2*others+more/8), nil
	if paths+others+int(x.filed[kindRest]) == 0 {
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
	if x.filed[kindPath] > 0 {
		x.findPaths(p, addr)
	}
	if x.others > 0 {
		x.findOthers(p, addr)
	}
	if p.n > 0 {
		p.flush(x)
	}
}

// findOthers adds the cuts and the grams of addr that forms are filed under.
func (x *index) findOthers(p *probes, addr string) {
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
	for i, size := range gramSizes {
		if x.filed[kindGram+i] > 0 {
			x.findGrams(p, addr, kindGram+i, size)
		}
	}
}

func (p *probes) add(x *index, h uint64) {
	if x.keys.n <= fewWords {
		if x.keys.n > 0 {
			p.take(x.keys.bucket(uint32(h>>32)), uint32(h>>32))
		}
		return
	}
	if p.n == len(p.keys) {
		p.flush(x)
	}
	p.keys[p.n] = uint32(h >> 32)
	p.n++
}

// fewWords is how large a multimap may be that stays in the processor's caches: each key is looked for at once.
const fewWords = 1 << 12

// flush takes the slots of all keys. Each loop reads what no step of it depends on another for.
func (p *probes) flush(x *index) {
	var lists [len(p.keys)][]uint64
	for i, k := range p.keys[:p.n] {
		lists[i] = x.keys.bucket(k)
	}
	for i, k := range p.keys[:p.n] {
		if words := lists[i]; len(words) > 0 {
			p.touch += words[uint64(k)*uint64(len(words))>>32]
		}
	}
	for i, k := range p.keys[:p.n] {
		p.take(lists[i], k)
	}
	p.n = 0
}

// take appends the slots that a bucket has for a key.
func (p *probes) take(words []uint64, key uint32) {
	for i := search(words, uint64(key)<<32); i < len(words) && uint32(words[i]>>32) == key; i++ {
		if p.found < len(p.few) {
			p.few[p.found] = uint32(words[i])
			p.found++
			continue
		}
		if p.many == nil {
			p.many = append(make([]uint32, 0, 4*len(p.few)), p.few[:]...)
		}
		p.many = append(p.many, uint32(words[i]))
	}
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
