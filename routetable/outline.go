package routetable

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"strings"
	"unsafe"

	"github.com/gobwas/glob/syntax"
)

// outline is which segments of an address a form leaves open: a number of segments from the start, and where a wildcard takes slashes any
// number of segments, at least one, and then a number of segments to the end.
type outline struct {
	before  uint8  // segments from the start
	after   uint8  // segments to the end, where deep
	deep    bool   // between them is a free place of one segment or more; else the address ends
	least   uint8  // segments of an address; not more where not deep
	wild    uint16 // of before: bit i is segment i from the start
	wildEnd uint8  // of after: bit i is segment i from the end
	salt    uint64 // of all the others
}

// Bounds of the segments that are looked at.
const (
	maxLevels = 16 // from the start
	maxTail   = 8  // from the end
)

func newOutline(before, after int, deep bool, wild uint16, wildEnd uint8) outline {
	o := outline{before: uint8(before), after: uint8(after), deep: deep, least: uint8(before), wild: wild, wildEnd: wildEnd}
	salt := uint64(before)<<40 | uint64(after)<<48 | uint64(wildEnd)<<16 | uint64(wild)
	if deep {
		o.least += uint8(after) + 1
		salt |= 1 << 63
	}
	o.salt = mix(gramSeed, salt)
	return o
}

// segments are those of a form that its outline and its key are made of. What a segment with a wildcard asks for besides is left to the matcher.
type segments struct {
	before, after []pathPart
	beforeRoom    [maxLevels]pathPart
	afterRoom     [maxTail]pathPart
	long          bool // there are more from the start than an outline can have
	deep          bool
	more          bool // other literals stand behind the first wildcard that takes slashes
	literals      int  // segments without a wildcard that are not empty

	inDeep bool     // the segment under way has a wildcard that takes slashes
	under  pathPart // the segment under way, and its text
	text   strings.Builder
}

// pathPart is one segment: its text, or that it has a wildcard.
type pathPart struct {
	text string
	wild bool
}

// read reads the segments of a form. One with too many has no literals.
func (p *segments) read(f *form) {
	p.before, p.after = p.beforeRoom[:0], p.afterRoom[:0]
	if f.w != nil {
		for i, lit := range f.w.lits {
			p.literal(lit)
			if i < len(f.w.kinds) {
				p.wildcard(f.w.kinds[i] == wildAny)
			}
		}
	} else {
		for i := range f.g.tokens {
			switch t := &f.g.tokens[i]; t.kind {
			case syntax.Text:
				p.literal(t.lit)
			default:
				p.wildcard(t.kind == syntax.Super || t.kind == syntax.RangeOpen && t.has('/'))
			}
		}
	}
	p.step()
	for _, list := range [][]pathPart{p.before, p.after} {
		for i := range list {
			if !list[i].wild && list[i].text != "" {
				p.literals++
			}
		}
	}
	if p.long {
		p.literals = 0
	}
}

func (p *segments) literal(lit string) {
	for {
		i := strings.IndexByte(lit, '/')
		if i < 0 {
			break
		}
		p.text.WriteString(lit[:i])
		p.step()
		lit = lit[i+1:]
	}
	p.text.WriteString(lit)
}

func (p *segments) wildcard(deep bool) {
	p.under.wild = true
	if !deep {
		return
	}
	if p.deep { // the free place reaches from the first of these to the last
		p.more = p.more || len(p.after) > 0 || p.text.Len() > 1
		p.after = p.after[:0]
	}
	p.deep, p.inDeep = true, true
	p.text.Reset()
}

// step ends a segment.
func (p *segments) step() {
	text := p.text.String()
	p.under.text = text
	switch {
	case p.inDeep: // a part of the free place
		p.more = p.more || len(text) > 1
	case !p.deep && len(p.before) == maxLevels:
		p.long = true
	case !p.deep:
		p.before = append(p.before, p.under)
	case len(p.after) == maxTail:
		p.more = true
		p.after = append(p.after[:0], append(p.after[1:], p.under)...)
	default:
		p.after = append(p.after, p.under)
	}
	p.inDeep, p.under = false, pathPart{}
	p.text.Reset()
}

// outline returns the outline and the key.
func (p *segments) outline() (o outline, key uint64) {
	var sum uint64
	var wild uint16
	var wildEnd uint8
	for i, one := range p.before {
		if one.wild {
			wild |= 1 << i
		} else {
			sum += fromStart(hashSegment(one.text), i)
		}
	}
	for i := range p.after {
		if one := p.after[len(p.after)-1-i]; one.wild {
			wildEnd |= 1 << i
		} else {
			sum += fromEnd(hashSegment(one.text), i)
		}
	}
	o = newOutline(len(p.before), len(p.after), p.deep, wild, wildEnd)
	return o, fold(sum ^ o.salt)
}

// fromStart and fromEnd make of the hash of a segment the one of segment i.
func fromStart(h uint64, i int) uint64 { return bits.RotateLeft64(h, 4*i) }
func fromEnd(h uint64, i int) uint64   { return bits.RotateLeft64(h, 4*i+2) }

// hashSegment hashes what is between two slashes, mostly a few bytes, by one multiplication of its ends. (After wyhash.)
func hashSegment(s string) uint64 {
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
	hi, lo := bits.Mul64(a^segmentSeed, b^gramSeed^uint64(n)*0x9e3779b97f4a7c15)
	return hi ^ lo
}

var segmentSeed = maphash.String(seed, "segment")

// parts are the hashes of an address's segments.
type parts struct {
	n     int                   // segments
	hash  [maxLevels]uint64     // of each from the start
	start [maxLevels + 1]uint64 // sums of so many from the start
	tail  [maxTail]uint64       // hashes from the end, where there are more than maxLevels
}

// findPaths adds the keys that the segments of addr have in each outline.
func (x *index) findPaths(p *probes, addr string) {
	var a parts
	a.read(addr)
	filter := x.paths.bits
	for i := range x.outlines {
		o := &x.outlines[i]
		if n := int(o.least); a.n < n || a.n > n && !o.deep {
			continue
		}
		sum := a.start[o.before]
		for w := o.wild; w != 0; w &= w - 1 {
			at := bits.TrailingZeros16(w)
			sum -= fromStart(a.hash[at&(maxLevels-1)], at)
		}
		if o.after > 0 {
			sum += a.end(o)
		}
		if h := fold(sum ^ o.salt); hasBits(filter, h) {
			p.add(x, h)
		}
	}
}

// read reads the segments.
func (a *parts) read(addr string) {
	sum, rest := uint64(0), addr
	for n := range maxLevels {
		end := strings.IndexByte(rest, '/')
		if end < 0 {
			a.n = n + 1
			end = len(rest)
		}
		h := hashSegment(rest[:end])
		sum += fromStart(h, n)
		a.hash[n], a.start[n+1] = h, sum
		if a.n > 0 {
			return
		}
		rest = rest[end+1:]
	}
	a.n = maxLevels + 1 + strings.Count(rest, "/")
	rest = addr
	for i := range a.tail {
		at := strings.LastIndexByte(rest, '/')
		a.tail[i] = hashSegment(rest[at+1:])
		rest = rest[:at]
	}
}

// end is the sum of the segments from the end that the outline leaves.
func (a *parts) end(o *outline) (sum uint64) {
	for i := range int(o.after) {
		switch {
		case o.wildEnd>>i&1 != 0:
		case a.n <= maxLevels:
			sum += fromEnd(a.hash[a.n-1-i], i)
		default:
			sum += fromEnd(a.tail[i], i)
		}
	}
	return sum
}
