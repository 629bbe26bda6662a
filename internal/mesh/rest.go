package mesh

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"sync"
	"time"
)

// Data at rest: every publish that is taken is kept for a while, so that a component that comes later, or comes back, gets what it has missed (rembus.md, 7.2).
// As in the files of twins (acks.go) it is lines, in the order that it happened:
//
//	STAMP NAME FRAME       NAME has published. STAMP is nanoseconds since 1970 in 16 hexadecimal digits, more than that of the line before. The
//	                       frame has "\e" for its escape characters (1b) and "\n" for its ends of line, each behind an escape character
//	STAMP NAME ID FRAME    the same, where routers know it by an id that the frame has not: hexadecimal digits, which begin no frame
//
// They are in parts: files, each of the name of its first stamp; only the last grows, and what is too old or too much is forgotten by the part. A line is
// written before its publish is acknowledged, and outlives the process then; a crash of the machine may take the last ones away. Without a directory parts
// are in memory.
type rest struct {
	// Set at construction, never changed.
	dir string        // empty: in memory
	age time.Duration // how long a line is kept
	max int           // bytes of all parts
	log *slog.Logger

	salt uint64 // of this router: see idAt

	mu      sync.Mutex      // guards what follows; a leaf
	past    *past           // nil: nobody asks
	parts   []*part         // the oldest first
	size    int             // of all parts
	last    int64           // stamp of the last line
	lines   []byte          // that are to be written
	frame   []byte          // scratch
	flights map[*link]int64 // the stamp of the first publish of each link that may not have reached who gets it
	copies  recentStamps    // of what did not come by a link
	growing *part           // the last part, where it takes more
	failed  bool            // that was logged

	recorded, tooLarge, forgotten, failures uint64 // lines; lines; parts; writes
}

// part is one file, or as much memory. Guarded by the lock of its rest, but for what was written, which does not change.
type part struct {
	first, last int64 // no stamp is outside
	size        int
	file        *os.File // nil: in memory
	text        []byte
}

const (
	partsAtMost = 16 // what is kept is in about as many parts, by size and by age
	stampDigits = 16
	maxLines    = 1 << 20 // bytes that wait to be written

	// maxLine bounds a line: a stamp, the name of who sent it, a frame.
	maxLine = stampDigits + 3*maxName + 2*(maxMessage+maxName+64) + 3
)

// openRest takes what a directory has.
func openRest(dir string, age time.Duration, max int, log *slog.Logger) *rest {
	s := &rest{dir: dir, age: age, max: max, log: log, flights: map[*link]int64{}}
	if dir == "" {
		return s
	}
	entries, err := os.ReadDir(dir) // sorted by name, and so by time
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.report(err)
	}
	for _, e := range entries {
		s.report(s.openPart(e.Name()))
	}
	for i, p := range s.parts {
		if i+1 < len(s.parts) {
			p.last = s.parts[i+1].first
		} else {
			p.last = s.lastOf(p)
		}
		s.last = p.last
	}
	s.forget(time.Now().UnixNano(), 0)
	return s
}

// openPart takes a file; one that is not ours is left alone.
func (s *rest) openPart(name string) error {
	first, err := strconv.ParseInt(name, 16, 64)
	if err != nil || len(name) != stampDigits {
		return nil
	}
	f, err := os.Open(filepath.Join(s.dir, name))
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New(f.Name() + " is no file of publishes")
	}
	if err != nil {
		f.Close()
		return err
	}
	s.parts = append(s.parts, &part{first: first, last: first, size: int(info.Size()), file: f})
	s.size += int(info.Size())
	return nil
}

// lastOf finds the last stamp of a part.
func (s *rest) lastOf(p *part) int64 {
	last := p.first
	for c := (cursor{part: p.first}); ; {
		lines, _ := s.read(&c)
		if len(lines) == 0 {
			return last
		}
		for line := range bytes.Lines(lines) {
			if stamp, ok := stampOf(line); ok {
				last = max(last, stamp)
			}
		}
	}
}

// report logs that something cannot be read or written, once.
func (s *rest) report(err error) {
	if err == nil {
		return
	}
	s.failures++
	if !s.failed {
		s.failed = true
		s.log.Error("what was published cannot be kept for those who are away", "error", err)
	}
}

// record keeps a publish, and gives its stamp. write has it written. by is the link whose reader sends it on, and says landed when that is done. from is the
// name of who sent it, escaped, id by which routers know it where the frame has none, if any.
func (s *rest) record(by *link, from string, f *Frame, id ID) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	stamp := s.add(from, f, id)
	if stamp != 0 && s.flights[by] == 0 {
		s.flights[by] = stamp
	}
	return stamp
}

// add is record with the lock. What would take a quarter of the room is not kept: its stamp is 0.
func (s *rest) add(from string, f *Frame, id ID) int64 {
	if 2*len(f.Data) > s.max/4 {
		s.tooLarge++
		return 0
	}
	if s.last++; len(s.lines) == 0 { // else the clock was just looked at
		s.last = max(time.Now().UnixNano(), s.last)
	}
	s.frame = AppendFrame(s.frame[:0], f)
	s.lines = appendRecord(s.lines, s.last, from, id, s.frame)
	s.recorded++
	switch {
	case f.HasID:
		id = f.ID
	case id.n == 0:
		id = s.idAt(s.last)
	}
	s.know(id)
	if cap(s.frame) > 64<<10 {
		s.frame = nil
	}
	if len(s.lines) > maxLines {
		s.flush()
	}
	return s.last
}

// recordCopy is record for a copy of what did not come by a link, or that a row has led to another topic: the first of its message is recorded.
func (s *rest) recordCopy(k copyKey, from string, f func() (*Frame, ID)) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	stamp := s.copies.of(k)
	if stamp == 0 {
		frame, id := f()
		stamp = s.add(from, frame, id)
		s.copies.put(k, stamp)
	}
	return stamp
}

// copyKey is what copies of a message for one topic have in common.
type copyKey struct {
	message uint64
	topic   string
}

func appendRecord(b []byte, stamp int64, from string, id ID, frame []byte) []byte {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], uint64(stamp))
	b = append(append(append(hex.AppendEncode(b, raw[:]), ' '), from...), ' ')
	if id.n > 0 {
		b = append(hex.AppendEncode(b, id.Bytes()), ' ')
	}
	return append(appendEscaped(b, frame), '\n')
}

// Escapes of bytes of a frame that would end its line, and of the escape character.
const (
	escape     = 0x1b
	escapedEnd = 'n'
	escapedOne = 'e'
)

// appendEscaped appends a frame as it stands in a line.
func appendEscaped(b, frame []byte) []byte {
	next := func(c byte, from int) int {
		if n := bytes.IndexByte(frame[from:], c); n >= 0 {
			return from + n
		}
		return len(frame)
	}
	end, one := next('\n', 0), next(escape, 0)
	for at := 0; ; {
		n := min(end, one)
		b = append(b, frame[at:n]...)
		if n == len(frame) {
			return b
		}
		if at = n + 1; n == end {
			b, end = append(b, escape, escapedEnd), next('\n', at)
		} else {
			b, one = append(b, escape, escapedOne), next(escape, at)
		}
	}
}

// unescape appends the frame that text, which has no end of line, stands for.
func unescape(b, text []byte) (frame []byte, ok bool) {
	for {
		n := bytes.IndexByte(text, escape)
		if n < 0 {
			return append(b, text...), true
		}
		b = append(b, text[:n]...)
		switch {
		case n+1 == len(text):
			return b, false
		case text[n+1] == escapedEnd:
			b = append(b, '\n')
		case text[n+1] == escapedOne:
			b = append(b, escape)
		default:
			return b, false
		}
		text = text[n+2:]
	}
}

// escapeName is how a name stands in a line.
func escapeName(name string) string { return url.PathEscape(name) }

// stampOf reads the beginning of a line.
func stampOf(line []byte) (stamp int64, ok bool) {
	if len(line) < stampDigits+3 || line[stampDigits] != ' ' {
		return 0, false
	}
	var raw [8]byte
	if _, err := hex.Decode(raw[:], line[:stampDigits]); err != nil || raw[0] > 0x7f {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(raw[:])), true
}

var errRecord = errors.New("not a line of a publish")

// cutRecord cuts what follows the stamp of a line.
func cutRecord(line []byte) (name, id, text []byte, ok bool) {
	name, text, ok = bytes.Cut(bytes.TrimSuffix(line[stampDigits+1:], []byte("\n")), []byte(" "))
	if ok && len(text) > 0 && text[0] < 0x80 {
		id, text, ok = bytes.Cut(text, []byte(" "))
	}
	return name, id, text, ok
}

// parseRecord reads a line, with its end or without. The frame is put into room, and f has slices of it.
func parseRecord(line, room []byte, f *Frame) (stamp int64, from string, frame []byte, err error) {
	stamp, ok := stampOf(line)
	if !ok {
		return 0, "", room, errRecord
	}
	name, id, text, ok := cutRecord(line)
	if len(id) > 0 && ok {
		_, ok = readID(id)
	}
	if !ok {
		return 0, "", room, errRecord
	}
	if from, err = url.PathUnescape(string(name)); err != nil {
		return 0, "", room, err
	}
	if frame, ok = unescape(room[:0], text); !ok {
		return 0, "", frame, errRecord
	}
	err = ParseFrame(frame, f)
	if err == nil && f.Type != Publish {
		err = errRecord
	}
	return stamp, from, frame, err
}

// write writes what was recorded.
func (s *rest) write() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
}

// landed tells that what a link's reader has sent on is with who gets it.
func (s *rest) landed(by *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.flights, by)
}

// low gives the stamp up to which everything is with who gets it.
func (s *rest) low() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	low := s.last
	for _, first := range s.flights {
		low = min(low, first-1)
	}
	return low
}

// lastStamp is the stamp of the last line.
func (s *rest) lastStamp() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// flush is write with the lock.
func (s *rest) flush() {
	if len(s.lines) == 0 {
		return
	}
	s.forget(s.last, len(s.lines))
	err := s.grow()
	if err == nil {
		err = s.growing.append(s.lines)
	}
	if err == nil {
		s.growing.last = s.last
		s.size += len(s.lines)
	} else {
		s.growing = nil // whatever of it is in the file is behind its end
	}
	s.report(err)
	if s.lines = s.lines[:0]; cap(s.lines) > 256<<10 {
		s.lines = nil
	}
}

// grow has a part that takes lines.
func (s *rest) grow() error {
	first, _ := stampOf(s.lines)
	if p := s.growing; p != nil && p.size < s.max/partsAtMost && first-p.first < int64(s.age)/partsAtMost {
		return nil
	}
	p := &part{first: first, last: first}
	if s.dir == "" {
		p.text = make([]byte, 0, s.max/partsAtMost+readSize)
	} else {
		err := os.MkdirAll(s.dir, 0o700)
		if err == nil {
			p.file, err = os.OpenFile(filepath.Join(s.dir, fmt.Sprintf("%016x", first)), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
		}
		if err != nil {
			return err
		}
	}
	s.parts, s.growing = append(s.parts, p), p
	return nil
}

func (p *part) append(lines []byte) error {
	if p.file == nil {
		p.text = append(p.text, lines...)
	} else if _, err := p.file.Write(lines); err != nil {
		return err
	}
	p.size += len(lines)
	return nil
}

// forget drops parts that are too old, or too much with more bytes.
func (s *rest) forget(now int64, more int) {
	for len(s.parts) > 0 {
		p := s.parts[0]
		if p.last >= now-int64(s.age) && s.size+more <= s.max {
			return
		}
		if p.file != nil {
			p.file.Close()
			s.report(os.Remove(p.file.Name()))
		}
		if s.growing == p {
			s.growing = nil
		}
		s.size -= p.size
		s.parts[0] = nil
		s.parts = s.parts[1:]
		s.forgotten++
	}
}

// sweep drops what is too old.
func (s *rest) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now.UnixNano(), 0)
	if s.past != nil && now.Sub(s.past.used) > pastIdle {
		s.past = nil
	}
}

// counters adds what is counted.
func (s *rest) counters(all map[string]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all["meshKept"], all["meshTooLargeToKeep"], all["meshForgotten"], all["meshNotKept"] = s.recorded, s.tooLarge, s.forgotten, s.failures
	all["meshKeptBytes"] = uint64(s.size)
}

// close writes what was recorded, and lets go of the files.
func (s *rest) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
	for _, p := range s.parts {
		if p.file != nil {
			p.file.Close()
		}
	}
	s.parts, s.growing = nil, nil
}

// cursor is a place in what is kept.
type cursor struct {
	part int64 // its first stamp
	at   int
	buf  []byte // what was read last
}

// from has the cursor stand before all lines of later stamps than after.
func (s *rest) from(c *cursor, after int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
	i := sort.Search(len(s.parts), func(i int) bool { return s.parts[i].last > after })
	switch {
	case i < len(s.parts):
		c.part, c.at = s.parts[i].first, 0
	case s.growing != nil:
		c.part, c.at = s.growing.first, s.growing.size
	default:
		c.part, c.at = after+1, 0
	}
}

// read gives whole lines, and has the cursor stand behind them. There are none at the end: then last is the stamp of the last line ever. They are valid until
// the next call.
func (s *rest) read(c *cursor) (lines []byte, last int64) {
	for {
		p, last := s.find(c)
		if p.size == 0 {
			return nil, last
		}
		lines, err := p.read(c)
		if len(lines) > 0 {
			c.at += len(lines)
			return lines, 0
		}
		c.at = p.size // the rest has no end, or cannot be read
		if err != nil && !errors.Is(err, fs.ErrClosed) {
			s.mu.Lock()
			s.report(err)
			s.mu.Unlock()
		}
	}
}

// find gives the part that the cursor stands in, as it is now; of size 0 at the end.
func (s *rest) find(c *cursor) (p part, last int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
	for _, p := range s.parts {
		if p.first > c.part { // that of the cursor was read, or forgotten
			c.part, c.at = p.first, 0
		}
		if p.first == c.part && c.at < p.size {
			return *p, 0
		}
	}
	return part{}, s.last
}

// readSize is what is read at a time; a longer line is read whole.
const readSize = 64 << 10

// read gives whole lines at the cursor; none where there is no end of one.
func (p *part) read(c *cursor) ([]byte, error) {
	if p.file == nil {
		b := p.text[c.at:p.size]
		b = b[:min(len(b), max(readSize, bytes.IndexByte(b, '\n')+1))]
		return b[:bytes.LastIndexByte(b, '\n')+1], nil
	}
	for n := readSize; ; n *= 2 {
		n = min(n, p.size-c.at)
		if cap(c.buf) < n {
			c.buf = make([]byte, n)
		}
		b := c.buf[:n]
		if _, err := p.file.ReadAt(b, int64(c.at)); err != nil {
			return nil, err
		}
		if end := bytes.LastIndexByte(b, '\n'); end >= 0 || n == p.size-c.at || n > maxLine {
			return b[:end+1], nil
		}
	}
}

// recentStamps remembers the stamps of the latest messages.
type recentStamps struct{ new, old map[copyKey]int64 }

func (r *recentStamps) of(k copyKey) int64 {
	if stamp := r.new[k]; stamp != 0 {
		return stamp
	}
	return r.old[k]
}

func (r *recentStamps) put(k copyKey, stamp int64) {
	if len(r.new) >= maxRecent || r.new == nil {
		r.new, r.old = r.old, r.new
		clear(r.new)
		if r.new == nil {
			r.new = map[copyKey]int64{}
		}
	}
	r.new[k] = stamp
}
