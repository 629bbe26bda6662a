package mesh

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
)

// What a named twin's QoS is about is kept in a file of its name, so that it outlives the router, however that ends. It is lines, in the order that it happened:
//
//	HEX     it has sent a QoS 2 publish of this id
//	-HEX    it has said ack2 to it
//	>HEX    a publish is on its way to it: the frame
//	<HEX    it has acknowledged the publish of this id, or it was given up
//	@HEX    it was sent the publish of this stamp (rest.go), and all before it but those that follow
//	~HEX    not the one of this stamp
//
// A line is written before the frame is that depends on it, and outlives the process then; a crash of the machine may take the last ones away. Where the file is
// long for what is left, and when a connection or the router ends, it is written anew. A last line without an end is of a write that was interrupted.

// boxLog is the file of a twin. Guarded by the twin's lock.
type boxLog struct {
	file    *os.File // nil: closed
	size    int      // of what was written to it
	lines   []byte   // that are to be written
	changed bool     // since the file was read or written anew
	failed  bool     // that was logged
}

// The first byte of a line; that of an id that was taken has none.
const (
	lineReleased = '-'
	lineWaits    = '>'
	lineAcked    = '<'
	lineMark     = '@'
	lineLate     = '~'
)

var lineKinds = []byte{lineReleased, lineWaits, lineAcked, lineMark, lineLate}

// longLog is from when on a file is written anew where little of it is left.
const longLog = 1 << 20

func (m *Mesh) ackFile(name string) string {
	return filepath.Join(m.o.Acks, url.PathEscape(name))
}

// boxes are what is kept of a twin.
type boxes struct {
	in   inbox
	out  outbox
	mark int64   // stamp of the newest publish that was sent to it
	late []int64 // stamps of older ones that it has missed
}

// parseAcks reads a file. With an error the boxes are what precedes it.
func parseAcks(b []byte) (x boxes, err error) {
	for n := 1; ; n++ {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		if !ended {
			return x, nil
		}
		if err := x.take(line); err != nil {
			return x, fmt.Errorf("line %d: %w", n, err)
		}
		b = rest
	}
}

// take does what a line says.
func (x *boxes) take(line []byte) error {
	kind := byte(0)
	if len(line) > 0 && bytes.IndexByte(lineKinds, line[0]) >= 0 {
		kind, line = line[0], line[1:]
	}
	raw, err := hex.DecodeString(string(line))
	if err != nil {
		return err
	}
	if kind == lineMark || kind == lineLate {
		return x.takeStamp(kind, raw)
	}
	if kind == lineWaits {
		var f Frame
		if ParseFrame(raw, &f) != nil || f.Type != Publish || f.QoS() == 0 {
			return errors.New("not a publish with QoS")
		}
		x.out.push(parcel{frame: raw, id: f.ID, qos: f.QoS()})
		return nil
	}
	id, ok := MakeID(raw)
	switch {
	case !ok:
		return errors.New("not an id")
	case kind == 0:
		x.in.take(id)
	case kind == lineReleased:
		x.in.release(id)
	default:
		x.out.remove(id)
	}
	return nil
}

// takeStamp does what a line of a stamp says.
func (x *boxes) takeStamp(kind byte, raw []byte) error {
	if len(raw) != 8 || raw[0] > 0x7f {
		return errors.New("not a stamp")
	}
	stamp := int64(binary.BigEndian.Uint64(raw))
	switch {
	case kind == lineMark:
		x.mark, x.late = stamp, nil
	case len(x.late) < maxLate:
		x.late = append(x.late, stamp)
	}
	return nil
}

func appendStamp(b []byte, stamp int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(stamp))
}

// appendAcks appends a file of what is left. A mark is left where there may be publishes that are newer, and are not wanted again.
func appendAcks(b []byte, x *boxes, oldest int64) []byte {
	for _, id := range x.in.ids() {
		b = appendLine(b, 0, id.Bytes())
	}
	for i := range x.out.waiting {
		if p := &x.out.waiting[i]; p.isKept() {
			b = appendLine(b, lineWaits, p.frame)
		}
	}
	if x.mark > oldest {
		b = appendLine(b, lineMark, appendStamp(nil, x.mark))
	}
	for _, stamp := range x.late {
		if stamp > oldest {
			b = appendLine(b, lineLate, appendStamp(nil, stamp))
		}
	}
	return b
}

func appendLine(b []byte, kind byte, what []byte) []byte {
	if kind != 0 {
		b = append(b, kind)
	}
	return append(hex.AppendEncode(b, what), '\n')
}

// isKept tells whether a publish outlives the router. One whose sender waits for its outcome does not: who waits sends it again.
func (p *parcel) isKept() bool { return p.qos != 0 && p.copy == nil }

// loadAcks has a new twin know what it has sent before, and what is on its way to it.
func (m *Mesh) loadAcks(t *twin) {
	if m.o.Acks == "" || !t.named {
		return
	}
	name := m.ackFile(t.name)
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var text []byte
	if err == nil && (!info.Mode().IsRegular() || info.Size() > int64(m.maxAckFile())) {
		err = errors.New("not a file of ids and publishes")
	}
	if err == nil {
		text, err = os.ReadFile(name)
	}
	x, bad := parseAcks(text)
	if err == nil {
		err = bad
	}
	if err != nil {
		m.o.Log.Error("what a component has sent and is to get cannot be read whole", "component", t.name, "file", name, "error", err)
	}
	for i := range x.out.waiting {
		x.out.waiting[i].sent = true
	}
	t.boxes, t.noted = x, x.mark
	t.log.changed = true // it is written anew before it grows: its last line may have no end
}

// maxAckFile bounds a file: what may be left, three times, and what a batch adds.
func (m *Mesh) maxAckFile() int {
	return 3*(2*(m.o.HardQueue+m.o.MaxMessage)+maxSeen*(2*maxID+1)) + 4*longLog
}

// note adds a line. commit writes it. Called under the lock.
func (t *twin) note(kind byte, what []byte) {
	if t.named && t.m.o.Acks != "" {
		t.log.lines = appendLine(t.log.lines, kind, what)
	}
}

// commit writes the lines that were noted. Called under the lock.
func (t *twin) commit() {
	if len(t.log.lines) == 0 {
		return
	}
	err := error(nil)
	if t.log.file == nil && t.log.changed {
		err = t.rewrite() // which has what the lines say
	} else if err = t.openLog(); err == nil {
		_, err = t.log.file.Write(t.log.lines)
		t.log.size += len(t.log.lines)
		t.log.changed = true
	}
	if t.log.lines = t.log.lines[:0]; cap(t.log.lines) > 64<<10 {
		t.log.lines = nil
	}
	if err == nil && t.log.size > longLog && t.log.size/3 > 2*t.out.bytes+len(t.in.seen)*(2*maxID+1) {
		err = t.rewrite()
	}
	t.report(err)
}

// report logs that a file cannot be written, once.
func (t *twin) report(err error) {
	if err != nil && !t.log.failed {
		t.log.failed = true
		t.m.o.Log.Error("what a component has sent and is to get cannot be kept", "component", t.name, "file", t.m.ackFile(t.name), "error", err)
	}
}

// openLog opens the file. Called under the lock.
func (t *twin) openLog() (err error) {
	if t.log.file != nil {
		return nil
	}
	if err = os.MkdirAll(t.m.o.Acks, 0o700); err != nil {
		return err
	}
	t.log.file, err = os.OpenFile(t.m.ackFile(t.name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	return err
}

// rewrite writes the file anew, with what is left; without, there is none. Called under the lock.
func (t *twin) rewrite() error {
	t.log.file.Close() // nil is fine
	t.log.file, t.log.changed = nil, false
	name, text := t.m.ackFile(t.name), appendAcks(nil, &t.boxes, t.m.oldest())
	t.log.size = len(text)
	if len(text) == 0 {
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(t.m.o.Acks, 0o700); err != nil {
		return err
	}
	return writeFile(name, text)
}

// saveAcks writes a twin's file anew, as when its connection ends.
func (m *Mesh) saveAcks(t *twin) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.o.Acks == "" || !t.named || !t.log.changed && len(t.log.lines) == 0 {
		return
	}
	t.log.lines = t.log.lines[:0]
	t.report(t.rewrite())
}
