package routetable

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

var (
	errNoState  = fmt.Errorf("the table has no state directory: %w", os.ErrNotExist)
	errSnapshot = errors.New("the snapshot is not one of a table, although its checksum is right")
	errChange   = errors.New("an entry is not a change of a table, although its checksum is right")
)

// replay makes a table of a snapshot and the changes behind it: one edit that nobody sees before it is done.
type replay struct {
	t *Table
	e *edit
}

func newReplay(t *Table) *replay {
	return &replay{t, newEdit(t, t.snapshot.Load())}
}

// snapshot reads what writeState wrote.
func (r *replay) snapshot(from io.Reader, size int64) error {
	b := bufio.NewReaderSize(from, 1<<18)
	s := r.e.s
	flags, err := b.ReadByte()
	if err == nil {
		err = r.head(flags, b, size)
	}
	numbers := [4]uint64{}
	for i := range numbers {
		if err == nil {
			numbers[i], err = binary.ReadUvarint(b)
		}
	}
	var pos int64
	var rows uint64
	if err == nil {
		pos, err = binary.ReadVarint(b)
	}
	if err == nil {
		rows, err = binary.ReadUvarint(b)
	}
	if err != nil || flags&^stateFlags != 0 || numbers[2] > 1<<32-1 || numbers[3] > rows || rows > uint64(size)/recordHeader {
		return errSnapshot
	}
	s.match, s.generation, s.revision = MatchMode(flags&flagMatchFirst), numbers[0], numbers[1]
	r.e.ids.serial, r.e.nextPos = uint32(numbers[2]), pos
	s.index.reserve(s, int(numbers[3]))
	s.index.keys.reserve(int(rows+numbers[3]), r.e.owner)
	if err := r.rows(b, size, int(rows)); err != nil {
		return err
	}
	entries, err := binary.ReadUvarint(b)
	if err != nil {
		return errSnapshot
	}
	for range entries {
		n, err := binary.ReadUvarint(b)
		if err != nil || n > uint64(size) {
			return errSnapshot
		}
		entry := make([]byte, n)
		if _, err := io.ReadFull(b, entry); err != nil {
			return errSnapshot
		}
		if err := r.t.restoreHistory(entry); err != nil {
			return err
		}
	}
	if _, err := b.ReadByte(); err != io.EOF {
		return errSnapshot
	}
	return nil
}

// rows reads the records of a snapshot of at most size bytes, which are all there is.
func (r *replay) rows(b *bufio.Reader, size int64, rows int) error {
	var failed error
	keys := make([]orderKey, 0, rows)
	err := inBunches(func(u *bunch) bool {
		u.raw = u.raw[:0]
		for u.to = 0; u.to < bunchRows && rows > 0 && failed == nil; u.to++ {
			u.raw, failed = appendRead(u.raw, b, size)
			rows--
		}
		return u.to > 0 && failed == nil
	}, func(u *bunch) {
		for rest := u.raw; len(rest) > 0 && u.err == nil; {
			rest, u.err = u.addRecord(rest)
		}
	}, func(u *bunch) error {
		keys = append(keys, u.order...)
		return r.e.putBunch(u)
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	all, ok := r.e.s.order.with(keys)
	if !ok { // one of an older version, where rows of one order could share a position
		for _, k := range keys {
			r.e.s.order.add(k, r.e.owner)
		}
		return nil
	}
	r.e.s.order.fill(all, r.e.owner)
	return nil
}

// appendRead appends the next record of a snapshot of at most size bytes.
func appendRead(dst []byte, b *bufio.Reader, size int64) ([]byte, error) {
	head, err := b.Peek(recordHeader)
	if err != nil {
		return dst, errSnapshot
	}
	n := record(head).size()
	if int64(n) > size || n < recordHeader {
		return dst, errSnapshot
	}
	at := len(dst)
	dst = slices.Grow(dst, n)[:at+n]
	if _, err := io.ReadFull(b, dst[at:]); err != nil {
		return dst, errSnapshot
	}
	return dst, nil
}

// addRecord notes the row of the record at the start of b, and cuts it off.
func (u *bunch) addRecord(b []byte) (rest []byte, err error) {
	rec, rest, ok := readRecord(b)
	var row Route
	if !ok || !validRecord(rec, &row) {
		return nil, errChange
	}
	u.records = append(u.records, rec...)
	if rec.flags()&recWild == 0 {
		u.file(&row, &pattern{text: row.Pattern, lits: []string{row.Pattern}, isPlain: true})
		return rest, nil
	}
	p, err := compileChecked(row.Pattern)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errChange, err)
	}
	u.file(&row, p)
	return rest, nil
}

// validRecord fills row with what a record from disk says, and reports whether it can be one of a table.
func validRecord(rec record, row *Route) bool {
	return rec.slot() < maxSlots && rec.id()>>32 != 0 && rec.row(row) && checkColumns(row) == nil
}

// head reads the marks and objects that the flags tell of; there are at most size bytes.
func (r *replay) head(flags byte, b byteReader, size int64) error {
	if flags&flagMarks != 0 {
		marks, err := readTexts(b, size)
		if err != nil {
			return err
		}
		r.e.s.marks = marks
	}
	if flags&flagObjects == 0 {
		return nil
	}
	objects, err := readTexts(b, size)
	for name, text := range objects {
		r.e.setObject(name, text)
	}
	return err
}

type byteReader interface {
	io.Reader
	io.ByteReader
}

// readTexts reads what appendTexts wrote; there are at most size bytes.
func readTexts(b byteReader, size int64) (map[string]string, error) {
	count, err := binary.ReadUvarint(b)
	if err != nil || count > uint64(size) {
		return nil, errChange
	}
	text := func() string {
		n, e := binary.ReadUvarint(b)
		if e != nil || n > uint64(size) {
			err = errChange
			return ""
		}
		s := make([]byte, n)
		if _, e := io.ReadFull(b, s); e != nil {
			err = errChange
		}
		return string(s)
	}
	texts := map[string]string{}
	for range count {
		name := text()
		texts[name] = text()
		if err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// change reads what appendChange wrote.
func (r *replay) change(generation uint64, payload []byte) error {
	b := reader{b: payload}
	s := r.e.s
	flags := b.byte()
	if flags&(flagMarks|flagObjects) != 0 {
		rest := bytes.NewReader(b.b)
		if err := r.head(flags, rest, int64(len(b.b))); err != nil {
			return err
		}
		b.b = b.b[len(b.b)-rest.Len():]
	}
	revision, serial, pos, gone := b.number(), b.number(), b.signed(), b.number()
	if b.bad || flags&^stateFlags != 0 || serial > 1<<32-1 || gone > uint64(len(b.b))/8 {
		return errChange
	}
	for range gone {
		id := binary.LittleEndian.Uint64(b.b)
		b.b = b.b[8:]
		old := s.Row(id)
		if old == nil {
			return errChange
		}
		r.remove(old)
	}
	rows := b.number()
	if b.bad || rows > uint64(len(b.b))/recordHeader {
		return errChange
	}
	for range rows {
		rec, rest, ok := readRecord(b.b)
		if !ok {
			return errChange
		}
		b.b = rest
		if err := r.put(rec); err != nil {
			return err
		}
	}
	if len(b.b) > 0 {
		if err := r.t.restoreHistory(b.b); err != nil {
			return err
		}
	}
	s.match, s.generation, s.revision = MatchMode(flags&flagMatchFirst), generation, revision
	r.e.ids.serial, r.e.nextPos = uint32(serial), pos
	return nil
}

// maxSlots bounds the slot that a record on disk may claim: rows that were ever there at once.
const maxSlots = 1 << 28

// put takes a record, in the place of the row that has its slot, if any.
func (r *replay) put(b []byte) error {
	rec, rest, ok := readRecord(b)
	var row Route
	if !ok || len(rest) > 0 || !validRecord(rec, &row) {
		return errChange
	}
	e := r.e
	if old := e.s.record(rec.slot()); old != nil {
		r.remove(e.s.routeOf(rec.slot()))
	}
	at := e.slot(&row)
	*at = e.t.arena.put(rec)
	e.s.chunks = e.t.arena.chunks
	e.s.order.add(row.orderKey(), e.owner)
	if row.When != "" {
		e.s.whens++
	}
	if rec.flags()&recWild == 0 {
		e.s.index.keys.add(uint32(hashText(kindExact, row.Pattern)>>32), rec.slot(), e.owner)
		for h := range originKeys(row.Origin) {
			e.s.index.keys.add(uint32(h>>32), rec.slot(), e.owner)
		}
		return nil
	}
	p, err := compileChecked(row.Pattern)
	if err != nil {
		return fmt.Errorf("%w: %w", errChange, err)
	}
	row.c = &compiled{pattern: p}
	e.s.index.add(&row, e.owner)
	return nil
}

func (r *replay) remove(old *Route) {
	e := r.e
	at := e.slot(old)
	e.t.arena.drop(*at)
	*at = 0
	e.s.order.remove(old.orderKey(), e.owner)
	e.s.index.remove(old, e.owner)
	if old.When != "" {
		e.s.whens--
	}
}

// finish makes what was read the table.
func (r *replay) finish() {
	s := r.e.s
	s.index.refresh(s, r.e.owner)
	s.recent = recentChanges{start: s.generation}
	serial, pos := r.e.ids.serial, r.e.nextPos
	r.t.resume(s)
	r.t.ids.serial, r.t.nextPos = max(serial, r.t.ids.serial), max(pos, r.t.nextPos)
	r.t.head = r.t.snapshot.Load()
}
