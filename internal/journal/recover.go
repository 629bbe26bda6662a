package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// Recover gives the newest whole snapshot, where there is one, and then every entry behind it in order. It is called once, before Append.
//
// size is the length of the snapshot, all of which was verified before; payload is valid until entry returns. The torn end of the last journal is
// cut off and logged. Damage is a *DamageError and changes nothing; a damaged snapshot is passed over where the older one is there
// with all journals behind it. A file of another format is a *VersionError. On an error, also one of a callback, what was given so far is
// to be thrown away, and the journal only closed.
func (j *Journal) Recover(snapshot func(r io.Reader, size int64) error, entry func(generation uint64, payload []byte) error) error {
	if j.recovered {
		return fmt.Errorf("recover %s: called twice", j.dir)
	}
	j.recovered = true
	r, err := read(j.disk, j.dir, snapshot, entry)
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	for _, passed := range r.passed {
		j.log.Warn("a damaged snapshot is passed over; the older one and all journals behind it are there", "err", passed)
	}
	// What was read may be in memory only, if the last process ended between a write and its sync. It is told as truth now, so it has to stay.
	if err := j.disk.syncDir(j.dir); err != nil {
		return fmt.Errorf("recover: sync %s: %w", j.dir, err)
	}
	if err := j.resume(r); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	if len(r.passed) == 0 {
		j.removeBefore(r.snapshot)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.snapshot, j.sizes = r.snapshot, r.sizes
	return nil
}

// resume opens the last journal where the next entry goes.
func (j *Journal) resume(r *reading) error {
	name := join(j.dir, fileName(kindJournal, r.number))
	var f file
	var err error
	if r.begin {
		if f, _, err = j.begin(r.number, r.last); err != nil {
			return fmt.Errorf("begin %s: %w", name, err)
		}
	} else {
		if f, err = j.disk.open(name, os.O_RDWR); err != nil {
			return err
		}
		if r.torn > 0 {
			err = f.Truncate(r.end)
		}
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			f.Close()
			return fmt.Errorf("cut and sync %s: %w", name, err)
		}
	}
	if r.torn > 0 {
		j.log.Warn("the torn end of a journal is cut off: it was never acknowledged", "file", name, "offset", r.end, "bytes", r.torn, "what", r.tail)
	}
	j.f, j.name, j.number, j.end, j.last, j.appended = f, name, r.number, r.end, r.last, r.last
	return nil
}

// reading is what reading a directory came to.
type reading struct {
	snapshot uint64         // that was used; 0: none
	passed   []*DamageError // snapshots that were not
	number   uint64         // of the journal where the next entry goes
	begin    bool           // it is to be made: it is not there, or nothing was ever written to it
	end      int64          // of what is whole in it
	torn     int64          // bytes behind end
	tail     string         // what they are
	last     uint64         // generation of the last entry
	sizes    map[uint64]int64
}

// read reads a directory and changes nothing. With an error the reading is as far as it came; nil where it did not come to the journals.
func read(d disk, dir string, snapshot func(io.Reader, int64) error, entry func(uint64, []byte) error) (*reading, error) {
	names, err := d.list(dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	h := holdingsOf(names)
	r := &reading{sizes: map[uint64]int64{}}
	for i := len(h.snapshots) - 1; i >= 0 && r.snapshot == 0; i-- {
		number := h.snapshots[i]
		base, err := readSnapshot(d, dir, number, snapshot)
		var damage *DamageError
		switch {
		case errors.As(err, &damage):
			r.passed = append(r.passed, damage)
		case err != nil:
			return nil, err
		default:
			r.snapshot, r.last = number, base
		}
	}
	err = r.journals(d, dir, h, entry)
	var damage *DamageError
	if len(r.passed) > 0 && errors.As(err, &damage) {
		whole := *r.passed[0]
		whole.Problem += "; what is older does not lead as far: " + damage.File + ": " + damage.Problem
		return r, &whole
	}
	return r, err
}

// readSnapshot verifies snapshot number, and then has it read. base is the generation that it is of.
func readSnapshot(d disk, dir string, number uint64, give func(io.Reader, int64) error) (base uint64, err error) {
	name := fileName(kindSnapshot, number)
	f, err := d.open(join(dir, name), os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	damage := func(offset int64, problem string) error {
		return &DamageError{Dir: dir, File: name, Offset: offset, Problem: problem, kind: kindSnapshot, number: number}
	}
	head := make([]byte, min(size, headerSize))
	if _, err := f.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("read %s: %w", join(dir, name), err)
	}
	h := parseHeader(head, kindSnapshot, number)
	switch {
	case h.problem != "":
		return 0, damage(0, h.problem)
	case !h.torn && h.version != version:
		return 0, &VersionError{Dir: dir, File: name, Kind: kindSnapshot, Version: h.version}
	case h.torn, size < headerSize+trailerSize:
		return 0, damage(size, "the snapshot is cut short")
	}
	sum := &summing{w: io.Discard}
	if _, err := io.CopyBuffer(struct{ io.Writer }{sum}, io.NewSectionReader(f, 0, size-4), make([]byte, min(size, 256<<10))); err != nil {
		return 0, fmt.Errorf("read %s: %w", join(dir, name), err)
	}
	var trailer [trailerSize]byte
	if n, err := f.ReadAt(trailer[:], size-trailerSize); n < trailerSize {
		return 0, fmt.Errorf("read %s: %w", join(dir, name), err)
	}
	length := size - headerSize - trailerSize
	switch {
	case le.Uint64(trailer[:]) != uint64(length):
		return 0, damage(size, fmt.Sprintf("the snapshot is cut short or longer than it was: it has %d bytes", length))
	case le.Uint32(trailer[8:]) != sum.crc:
		return 0, damage(0, "the checksum of the snapshot is wrong")
	}
	if err := give(bufio.NewReaderSize(io.NewSectionReader(f, headerSize, length), int(min(length, 64<<10))), length); err != nil {
		return 0, fmt.Errorf("%s: %w", join(dir, name), err)
	}
	return h.base, nil
}

// chained is a journal behind the snapshot, with what its header says.
type chained struct {
	number uint64
	name   string
	headed
}

// journals reads the journals from the snapshot on.
func (r *reading) journals(d disk, dir string, h holdings, entry func(uint64, []byte) error) error {
	chain, err := r.chain(d, dir, h)
	if err != nil {
		return err
	}
	for i, c := range chain {
		b, err := load(d, join(dir, c.name))
		if err != nil {
			return fmt.Errorf("read %s: %w", join(dir, c.name), err)
		}
		damage := func(offset int, problem string) error {
			return &DamageError{Dir: dir, File: c.name, Offset: int64(offset), Problem: problem, kind: kindJournal, number: c.number}
		}
		r.number, r.end, r.torn, r.begin = c.number, headerSize, 0, c.torn
		r.sizes[c.number] = int64(len(b))
		if c.torn {
			// Only the last is. Its header is durable before anything is written behind it.
			if rest := behind(b, c.number, 0, r.last); rest.unsure || rest.entries > 0 {
				return &DamageError{Dir: dir, File: c.name, Problem: "there is no header; " + rest.String(), kind: kindJournal, number: c.number, header: true}
			}
			r.torn, r.tail = int64(len(b)), "a header that was not written"
			r.sizes[c.number] = headerSize
			continue
		}
		if c.base != r.last {
			return damage(0, fmt.Sprintf("this journal goes on behind generation %d, but what is before it ends at %d", c.base, r.last))
		}
		w := walk{b: b, number: c.number, last: c.base, bounded: i+1 < len(chain) && !chain[i+1].torn, entry: entry}
		if w.bounded {
			w.limit = chain[i+1].base
		}
		if err := w.run(); err != nil {
			return fmt.Errorf("%s: %w", join(dir, c.name), err)
		}
		if w.problem != "" {
			return damage(w.end, w.problem)
		}
		r.last, r.end, r.torn = w.last, int64(w.end), int64(len(b)-w.end)
		if r.sizes[c.number] = r.end; r.torn > 0 {
			r.tail = tail(b, w.end)
		}
	}
	return nil
}

// chain finds the journals from the snapshot on, and reads their headers.
func (r *reading) chain(d disk, dir string, h holdings) ([]chained, error) {
	first := max(r.snapshot, 1)
	var until uint64 // there is a journal of every number up to this
	if n := len(h.journals); n > 0 {
		until = h.journals[n-1]
	}
	if n := len(h.snapshots); n > 0 {
		until = max(until, h.snapshots[n-1])
	}
	if until == 0 { // a new directory
		r.number, r.begin, r.end = 1, true, headerSize
		r.sizes[1] = headerSize
		return nil, nil
	}
	there := map[uint64]bool{}
	for _, number := range h.journals {
		there[number] = true
	}
	var chain []chained
	for number := first; number <= until; number++ {
		c := chained{number: number, name: fileName(kindJournal, number)}
		if !there[number] {
			problem := "the file is missing"
			if number == 1 && r.snapshot == 0 && len(h.journals) > 0 {
				problem = fmt.Sprintf("the file is missing, and there is no snapshot for what follows (%s)", fileName(kindJournal, h.journals[0]))
			}
			return nil, &DamageError{Dir: dir, File: c.name, Problem: problem, kind: kindJournal, number: number, missing: true}
		}
		head, err := readHead(d, join(dir, c.name))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", join(dir, c.name), err)
		}
		c.headed = parseHeader(head, kindJournal, number)
		switch {
		case c.torn && number == until:
		case c.torn:
			c.problem = "there is no header"
			fallthrough
		case c.problem != "":
			return nil, &DamageError{Dir: dir, File: c.name, Problem: c.problem, kind: kindJournal, number: number, header: true}
		case c.version != version:
			return nil, &VersionError{Dir: dir, File: c.name, Kind: kindJournal, Version: c.version}
		}
		chain = append(chain, c)
	}
	return chain, nil
}

func readHead(d disk, name string) ([]byte, error) {
	f, err := d.open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, headerSize)
	n, err := f.ReadAt(head, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return head[:n], err
}

// walk goes over the frames of one journal.
type walk struct {
	b       []byte
	number  uint64
	last    uint64 // generation before it, then of the last entry
	bounded bool   // there is a successor, and
	limit   uint64 // this is the last generation before it
	entry   func(uint64, []byte) error

	end     int    // of what is whole
	group   int64  // the commit of the last entry
	entries int    // that were given
	first   uint64 // generation of the first of them
	problem string // what is damaged at end; "": whole, or torn there
}

// run goes on until the limit, the end, or a bad frame. The error is the one of entry.
func (w *walk) run() error {
	w.end = headerSize
	for w.end < len(w.b) && !(w.bounded && w.last == w.limit) {
		f, ok := parseFrame(w.b, w.number, w.end)
		switch {
		case !ok && w.bounded:
			w.problem = fmt.Sprintf("no entry can be read, but generation %d was committed; %v", w.limit, behind(w.b, w.number, w.end, w.last))
			return nil
		case !ok:
			switch rest := behind(w.b, w.number, w.end, w.last); {
			case !rest.torn(w.b, w.end):
				w.problem = fmt.Sprintf("no entry can be read, but this is not the end: %v", rest)
			case rest.entries == 0 && whole(w.b, w.end, w.last, w.group):
				f := w.b[w.end:]
				w.problem = fmt.Sprintf("the last entry, of generation %d, was written to its end (%d bytes), but its checksum is wrong: it is damaged, not torn, and may have been acknowledged",
					le.Uint64(f[8:]), frameSize(int(le.Uint32(f[4:]))))
			}
			return nil
		case f.generation <= w.last:
			w.problem = fmt.Sprintf("generation %d does not follow %d", f.generation, w.last)
			return nil
		case w.bounded && f.generation > w.limit:
			w.problem = fmt.Sprintf("generation %d comes before the next journal, which goes on behind %d", f.generation, w.limit)
			return nil
		}
		if err := w.entry(f.generation, f.payload); err != nil {
			return fmt.Errorf("offset %d: entry of generation %d: %w", w.end, f.generation, err)
		}
		if w.entries++; w.entries == 1 {
			w.first = f.generation
		}
		w.last, w.end, w.group = f.generation, f.end, f.group
	}
	if w.bounded && w.last < w.limit {
		w.problem = fmt.Sprintf("it ends at generation %d, but generation %d was committed", w.last, w.limit)
	}
	return nil
}
