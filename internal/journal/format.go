package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	version = 1

	kindSnapshot = "snapshot"
	kindJournal  = "journal"
	kindValue    = "value"

	temporarySuffix = ".tmp"

	headerSize  = 32
	trailerSize = 12
	frameHead   = 24
	align       = 8

	maxPayload = math.MaxInt32 // what an int can count everywhere
)

var (
	magics = map[string]string{kindSnapshot: "fpstsnap", kindJournal: "fpstjrnl"}

	castagnoli = crc32.MakeTable(crc32.Castagnoli) // the polynomial that processors have an instruction for
	le         = binary.LittleEndian
)

// fileName is the name of a numbered file, such as table.00000007.journal.
func fileName(kind string, number uint64) string { return fmt.Sprintf("table.%08d.%s", number, kind) }

// parseName is the other way round; ok is false for every other name.
func parseName(name string) (kind string, number uint64, ok bool) {
	digits, kind, _ := strings.Cut(strings.TrimPrefix(name, "table."), ".")
	number, err := strconv.ParseUint(digits, 10, 63) // 63: a successor has its number too
	if err != nil || number == 0 || magics[kind] == "" || name != fileName(kind, number) {
		return "", 0, false
	}
	return kind, number, true
}

// holdings are the files of a directory by name, in rising order.
type holdings struct {
	snapshots, journals []uint64
	temporaries         []string
}

func holdingsOf(names []string) holdings {
	var h holdings
	for _, name := range names {
		whole, temporary := strings.CutSuffix(name, temporarySuffix)
		kind, number, ok := parseName(whole)
		switch {
		case temporary && (ok || strings.HasPrefix(name, valuePrefix) || strings.HasPrefix(name, "table.") && strings.Contains(name, damagedMark)):
			h.temporaries = append(h.temporaries, name)
		case temporary || !ok:
		case kind == kindSnapshot:
			h.snapshots = append(h.snapshots, number)
		case kind == kindJournal:
			h.journals = append(h.journals, number)
		}
	}
	slices.Sort(h.snapshots)
	slices.Sort(h.journals)
	return h
}

// header is the first headerSize bytes of a file.
func header(kind string, number, base uint64) []byte {
	b := append(make([]byte, 0, headerSize), magics[kind]...)
	b = le.AppendUint32(b, version)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, number)
	b = le.AppendUint64(b, base)
	le.PutUint32(b[12:], headerSum(b))
	return b
}

func headerSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[16:headerSize])
}

// headed is what parseHeader made of a header.
type headed struct {
	base    uint64
	version uint32 // 0: not to be told
	torn    bool   // nothing was written, or only a part
	problem string // of a header that was written
}

// parseHeader reads the header at the beginning of b. A version that is not ours is told, and nothing behind it read.
func parseHeader(b []byte, kind string, number uint64) headed {
	b = b[:min(len(b), headerSize)]
	if begun := b[:min(len(b), 8)]; zero(b) {
		return headed{torn: true}
	} else if string(begun) != magics[kind][:len(begun)] {
		return headed{problem: fmt.Sprintf("this is no %s: it begins with %q", kind, begun)}
	} else if len(b) < headerSize {
		return headed{torn: true}
	}
	h := headed{base: le.Uint64(b[24:]), version: le.Uint32(b[8:])}
	sum := le.Uint32(b[12:])
	if h.version != version {
		ours := slices.Clone(b)
		le.PutUint32(ours[8:], version)
		if headerSum(ours) == sum {
			return headed{problem: "the version in the header is damaged"}
		}
		return h
	}
	if headerSum(b) != sum {
		h.problem = "the checksum of the header is wrong"
	} else if n := le.Uint64(b[16:]); n != number {
		h.problem = fmt.Sprintf("this is the %s of number %d under the name of number %d", kind, n, number)
	}
	return h
}

// frame is an entry as it was found in a journal.
type frame struct {
	generation uint64
	group      int64  // where its commit began
	payload    []byte // within the bytes of the journal
	end        int    // offset behind it
}

// frameSize is the bytes that a payload takes.
func frameSize(payload int) int { return (frameHead + payload + align - 1) &^ (align - 1) }

// appendFrame appends a frame that will stand at offset of journal number.
func appendFrame(b []byte, number uint64, offset, group int64, generation uint64, payload []byte) []byte {
	start := len(b)
	b = slices.Grow(b, frameSize(len(payload)))
	b = le.AppendUint32(b, 0)
	b = le.AppendUint32(b, uint32(len(payload)))
	b = le.AppendUint64(b, generation)
	b = le.AppendUint64(b, uint64(group))
	b = append(b, payload...)
	for (len(b)-start)%align != 0 {
		b = append(b, 0)
	}
	le.PutUint32(b[start:], frameSum(number, offset, b[start:]))
	return b
}

// frameSum begins the checksum with the place of the frame: the same bytes have another one at every other offset of a journal up to 32 GiB.
func frameSum(number uint64, offset int64, frame []byte) uint32 {
	const spread = 0x9e3779b1 // odd, so that journals with numbers close to each other begin far apart
	return crc32.Update(uint32(number)*spread^uint32(offset/align), castagnoli, frame[4:])
}

// plausible says whether a frame could begin at offset of b, and how many bytes it would take. It reads no more than frameHead bytes.
func plausible(b []byte, offset int) (size int, ok bool) {
	if len(b)-offset < frameHead {
		return 0, false
	}
	length := uint64(le.Uint32(b[offset+4:]))
	group := le.Uint64(b[offset+16:])
	if length > uint64(len(b)-offset-frameHead) || group < headerSize || group > uint64(offset) {
		return 0, false
	}
	size = frameSize(int(length))
	return size, size <= len(b)-offset
}

// parseFrame reads the frame at offset of b, which are the bytes of journal number.
func parseFrame(b []byte, number uint64, offset int) (f frame, ok bool) {
	size, ok := plausible(b, offset)
	if !ok {
		return frame{}, false
	}
	raw := b[offset : offset+size]
	if le.Uint32(raw) != frameSum(number, int64(offset), raw) {
		return frame{}, false
	}
	length := int(le.Uint32(raw[4:]))
	return frame{
		generation: le.Uint64(raw[8:]), group: int64(le.Uint64(raw[16:])),
		payload: raw[frameHead : frameHead+length : frameHead+length], end: offset + size,
	}, true
}

// remains are the entries that can be read behind a bad frame.
type remains struct {
	at          int // offset of the first; the end of the file where there is none
	entries     int
	first, last uint64 // generations
	later       bool   // one is of a commit that began behind the bad frame
	unsure      bool   // too much looked like an entry to look at all of it
}

// behind looks for entries behind the bad frame at offset bad, later than generation last.
//
// Frames begin at multiples of align, so all of these are tried. Bytes made for it could claim a long frame at each of them; what is
// checksummed in vain is therefore bounded by four times the file.
func behind(b []byte, number uint64, bad int, last uint64) remains {
	r := remains{at: len(b)}
	budget := 4 * len(b)
	for offset := max(bad+align, headerSize); offset <= len(b)-frameHead; {
		size, ok := plausible(b, offset)
		if !ok || le.Uint64(b[offset+8:]) <= last {
			offset += align
			continue
		}
		f, ok := parseFrame(b, number, offset)
		if !ok {
			if budget -= size; budget < 0 {
				r.unsure = true
				return r
			}
			offset += align
			continue
		}
		if r.entries++; r.entries == 1 {
			r.at, r.first = offset, f.generation
		}
		r.later = r.later || f.group > int64(bad)
		last, r.last = f.generation, f.generation
		offset = f.end
	}
	return r
}

// torn says whether the bad frame at offset bad of the last journal is the end that a crash left, and not damage.
func (r remains) torn(b []byte, bad int) bool {
	return !r.unsure && (r.entries == 0 || !r.later && hole(b, bad, r.at))
}

func (r remains) String() string {
	switch {
	case r.unsure:
		return "more behind it looks like entries"
	case r.entries == 0:
		return "no entry can be read behind it"
	}
	return fmt.Sprintf("behind it %d entries can be read, of generations %d to %d", r.entries, r.first, r.last)
}

// whole says whether the bad frame at offset bad was written to its end, so that it is damage and no torn end: its head is that of an entry which
// may stand there, all of its bytes are there, and no sector of it is one that was not written. A disk writes a sector at once.
//
// last and group are the generation and the commit of the entry before it.
func whole(b []byte, bad int, last uint64, group int64) bool {
	size, ok := plausible(b, bad)
	if !ok || le.Uint64(b[bad+8:]) <= last {
		return false
	}
	if own := int64(le.Uint64(b[bad+16:])); own != group && own != int64(bad) {
		return false // an old block of the disk
	}
	return !hole(b, bad, bad+size) && !zero(b[(bad+size)/sector*sector:bad+size])
}

// tail says for people what is behind the last entry, at offset bad. b ends there or goes on.
func tail(b []byte, bad int) string {
	rest := b[bad:]
	switch {
	case zero(rest):
		return "zeros"
	case len(rest) < frameHead:
		return "the beginning of an entry"
	}
	if size, ok := plausible(b, bad); ok {
		return fmt.Sprintf("an entry of %d bytes of which a part was not written", size)
	}
	if size := uint64(frameHead) + uint64(le.Uint32(rest[4:])); size > uint64(len(rest)) && size <= maxPayload && le.Uint64(rest[16:]) <= uint64(bad) {
		return fmt.Sprintf("%d bytes of an entry of %d", len(rest), size)
	}
	return "bytes that are no entry"
}

// sector is what a disk writes at once, at least.
const sector = 512

// hole says whether between the bad frame at offset bad and what can be read at offset at a sector was not written: zeros to its end. Before
// bad a sector may hold what was committed earlier.
func hole(b []byte, bad, at int) bool {
	for from := bad; ; {
		end := (from/sector + 1) * sector
		if end > at {
			return false
		}
		if zero(b[from:end]) {
			return true
		}
		from = end
	}
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
