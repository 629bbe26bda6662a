package mesh

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// missed is since when each router of our kind has not been reached, by who it is: from then on it gets what is kept when it is back (rest.go), and so do
// those on the way. It is a file beside what is kept, of lines:
//
//	STAMP NODE    NODE may have missed what was published from then on; 0: it can be reached
//
// Guarded by the lock of kin.
type missed struct {
	m       *Mesh
	since   map[string]int64 // 0: it can be reached
	changed bool             // since it was written
	failed  bool             // that was logged
}

const (
	missedFile = "routers"
	maxMissed  = 1 << 12 // routers that are away
)

// self is who this router is in all its lives: where it keeps nothing on disk, no more than its name.
func (m *Mesh) self() string {
	if m.o.Rest == "" {
		return m.o.Name
	}
	return m.node.ID()
}

// onItsWay is how long a publish may have been on its way to a router without anybody knowing that it does not get there.
func (m *Mesh) onItsWay() int64 { return int64(2 * m.o.PingEvery) }

// openMissed reads the file. Who could be reached when this router ended may have missed the end of what is kept.
func openMissed(m *Mesh) missed {
	x := missed{m: m, since: map[string]int64{}}
	if m.rest == nil || m.o.Rest == "" {
		return x
	}
	info, err := os.Stat(x.file())
	if errors.Is(err, fs.ErrNotExist) {
		return x
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxMissed*(maxName+32)) {
		err = errors.New("no list of routers")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(x.file())
	}
	x.report(err)
	x.since = parseMissed(text)
	for node, since := range x.since {
		if since == 0 {
			x.since[node] = max(m.rest.lastStamp()-m.onItsWay(), 1)
		}
	}
	return x
}

// parseMissed reads the lines of a file. What is none is passed over.
func parseMissed(text []byte) map[string]int64 {
	all := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		stamp, node, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		since, err := strconv.ParseInt(stamp, 10, 64)
		if ok && err == nil && since >= 0 && badName(node) == "" {
			all[node] = since
		}
	}
	return all
}

func appendMissed(b []byte, all map[string]int64) []byte {
	for node, since := range all {
		b = fmt.Appendf(b, "%d %s\n", since, node)
	}
	return b
}

func (x *missed) file() string { return filepath.Join(x.m.o.Rest, missedFile) }

func (x *missed) report(err error) {
	if err != nil && !x.failed {
		x.failed = true
		x.m.o.Log.Error("which routers are away cannot be kept", "file", x.file(), "error", err)
	}
}

// begins notes that a router cannot be reached any more, or not by the way that it was.
func (x *missed) begins(node string) {
	if x.m.rest != nil && node != "" && x.since[node] == 0 {
		x.since[node], x.changed = max(time.Now().UnixNano()-x.m.onItsWay(), 1), true
	}
}

// of tells since when a router that is reached has missed what was published; 0: it has not.
func (x *missed) of(node string) int64 {
	since, known := x.since[node]
	if !known && x.m.rest != nil {
		x.since[node], x.changed = 0, true
	}
	return since
}

// ends notes that a router has got what it missed.
func (x *missed) ends(node string) {
	if x.since[node] != 0 {
		x.since[node], x.changed = 0, true
	}
}

// save writes the file, where something has changed. Of too many routers those that are away the longest are forgotten.
func (x *missed) save() {
	if !x.changed {
		return
	}
	x.changed = false
	for len(x.since) > maxMissed {
		x.forgetOldest()
	}
	if x.m.o.Rest == "" {
		return
	}
	err := os.MkdirAll(x.m.o.Rest, 0o700)
	if err == nil {
		err = writeFile(x.file(), appendMissed(nil, x.since))
	}
	x.report(err)
}

func (x *missed) forgetOldest() {
	oldest, at := "", int64(0)
	for node, since := range x.since {
		if at == 0 || since != 0 && since < at {
			oldest, at = node, since
		}
	}
	delete(x.since, oldest)
}
