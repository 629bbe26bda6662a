package admin

import (
	"crypto/rand"
	"encoding/hex"
	"time"
)

// The bounds of loads under way. A table of a million rows is about 100 MB of arrow text.
const (
	maxLoads      = 4
	maxChunkBytes = 1 << 20
	maxLoadBytes  = 256 << 20 // of one load
	maxLoadsBytes = 512 << 20 // of all together
	maxLoadIdle   = 2 * time.Minute
	spareLoadIdle = 15 * time.Second // where another wants to begin
)

// load is a table on its way in: its text is only collected. Nothing changes before the commit.
type load struct {
	user    string // who began it; nobody else may touch it
	mode    string // replace, merge or diff
	source  string // the name of the file, where it was told
	text    []byte
	ifRev   *uint64
	touched time.Time
}

// loads are the loads under way, by their id.
type loads struct {
	m     map[string]*load
	bytes int // of all texts
}

// expire drops the loads that nobody has touched for a while.
func (l *loads) expire(now time.Time) {
	for id, x := range l.m {
		if now.Sub(x.touched) > maxLoadIdle {
			l.drop(id)
		}
	}
}

// spare drops the load that was idle for the longest, most likely of a client that is gone.
func (l *loads) spare(now time.Time) {
	idlest := ""
	for id, x := range l.m {
		if now.Sub(x.touched) > spareLoadIdle && (idlest == "" || x.touched.Before(l.m[idlest].touched)) {
			idlest = id
		}
	}
	l.drop(idlest)
}

func (l *loads) drop(id string) {
	if x := l.m[id]; x != nil {
		l.bytes -= len(x.text)
		delete(l.m, id)
	}
}

func (l *loads) begin(now time.Time, user, mode, source string, ifRev *uint64) (id string, err error) {
	l.expire(now)
	if len(l.m) >= maxLoads {
		l.spare(now)
	}
	if len(l.m) >= maxLoads {
		return "", refuse(StatusTooLarge, "LOAD-BEGIN: %d loads are under way, no more are taken: try again later", len(l.m))
	}
	var b [16]byte
	rand.Read(b[:])
	id = hex.EncodeToString(b[:])
	if l.m == nil {
		l.m = map[string]*load{}
	}
	l.m[id] = &load{user: user, mode: mode, source: source, ifRev: ifRev, touched: now}
	return id, nil
}

func (l *loads) find(now time.Time, user, id string) (*load, error) {
	l.expire(now)
	x := l.m[id]
	if x == nil || x.user != user {
		return nil, refuse(StatusNotFound, "session: no load %q under way: it ended, or was idle for %v; begin again", id, maxLoadIdle)
	}
	return x, nil
}

func (l *loads) chunk(now time.Time, user, id string, text []byte) (total int, err error) {
	x, err := l.find(now, user, id)
	if err != nil {
		return 0, err
	}
	switch {
	case len(text) > maxChunkBytes:
		return 0, refuse(StatusTooLarge, "LOAD-CHUNK: %d bytes: at most %d in one chunk", len(text), maxChunkBytes)
	case len(x.text)+len(text) > maxLoadBytes, l.bytes+len(text) > maxLoadsBytes:
		l.drop(id)
		return 0, refuse(StatusTooLarge, "LOAD-CHUNK: the table is over %d MiB: the load is dropped", maxLoadBytes>>20)
	}
	x.text = append(x.text, text...)
	x.touched = now
	l.bytes += len(text)
	return len(x.text), nil
}

// take ends a load and gives what was collected.
func (l *loads) take(now time.Time, user, id string) (*load, error) {
	x, err := l.find(now, user, id)
	if err != nil {
		return nil, err
	}
	l.drop(id)
	return x, nil
}
