package mesh

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/routetable"
)

// A component that becomes reactive gets what it has missed from what is kept (rest.go): of the last msg_from nanoseconds, what is newer than its mark, the
// stamp of the newest publish that was sent to it, and of each topic what is within the msg_from of its subscription (rembus.md, 7.2). Until it has caught up
// what is published goes to it from there too, and not from the node, so that all comes in order and once. So it goes with a component that takes less than
// it is sent.

// replay is how far a twin has caught up. Guarded by the twin's lock, at by who has set busy.
type replay struct {
	at    cursor
	after int64   // the mark when it began: what is newer is wanted
	late  []int64 // and these
	began int64   // from when it looks back
	since int64   // what is older is not wanted
	live  int64   // what is newer was published since, and looks not back
	busy  bool    // somebody is at it

	origins map[uint64]bool // routers that have missed what is not newer than live; others have not
	room    []byte          // a frame
}

// wants tells whether a line is to be looked at.
func (r *replay) wants(stamp int64) bool {
	if stamp <= r.after && !slices.Contains(r.late, stamp) {
		return false
	}
	return stamp > r.live || stamp >= r.since
}

// maxLate is how many publishes a twin can have missed that are older than its mark: those that were on their way when it went.
const maxLate = 1 << 12

// react has publishes sent to a twin, and what it has missed, as far as it looks back.
func (m *Mesh) react(t *twin, lookBack float64) {
	far := 0.0
	if m.rest != nil && t.named && t.kin.Load() == 0 && lookBack > 0 {
		far = min(lookBack, m.farthest(t))
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if far > 0 && t.replay == nil && t.link != nil {
		r := &replay{after: t.mark, late: t.late, began: now.UnixNano(), live: m.rest.low()}
		r.since = r.began - int64(min(far, float64(r.began)))
		t.late = nil
		t.begin(r)
	}
	t.reactive = true
	t.pump(now)
}

// again has a router be sent what one behind it, or itself, has missed since a time. It knows by its own log what it has had.
func (t *twin) again(since int64, origin uint64) {
	r := &replay{since: since, live: t.m.rest.low(), origins: map[uint64]bool{origin: true}}
	t.mu.Lock()
	if old := t.replay; old != nil {
		if r.live = min(r.live, old.live); old.origins != nil {
			r.since = min(r.since, old.since)
		}
		maps.Copy(r.origins, old.origins)
	}
	if t.link != nil {
		t.begin(r)
	}
	t.mu.Unlock()
	t.flush(nil)
}

// leaveToReplay has what waits for a router that has gone, and is kept since a time, be sent from there when it is back.
func (t *twin) leaveToReplay(since int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.link != nil {
		return
	}
	for _, p := range t.out.forget(since) {
		if p.isKept() {
			t.note(lineAcked, p.id.Bytes())
		}
	}
	t.commit()
}

// begin has a twin catch up. Called under the lock.
func (t *twin) begin(r *replay) {
	from := max(r.after, r.since-1)
	if r.origins != nil {
		from = min(from, r.live)
	}
	if len(r.late) > 0 {
		from = min(from, slices.Min(r.late)-1)
	}
	t.m.rest.from(&r.at, from)
	t.replay, t.alarmed = r, true
}

// fallsBehind has a component that takes less than it is sent get the rest when it does; false where it cannot. Called under the lock.
func (t *twin) fallsBehind() bool {
	if t.m.rest == nil || !t.named || !t.reactive || t.relays.Load() && t.kin.Load() == 0 {
		return false
	}
	if t.replay == nil {
		t.begin(&replay{after: t.mark, live: t.mark})
		t.m.count.behind.Add(1)
	}
	return true
}

// isDue tells whether a publish goes out now: not where the twin is away, or gets it of what is kept. Called under the lock.
func (t *twin) isDue(stamp int64, wanted bool) bool {
	switch {
	case !t.reactive:
		t.miss(stamp)
		return false
	case stamp == 0:
		return true
	case stamp <= t.covered:
		return wanted // who waits for its outcome gets it twice rather than not
	case t.replay != nil:
		return stamp <= t.replay.after
	}
	return true
}

// miss notes a publish that a twin does not get. Most are newer than its mark, which says so. Called under the lock.
func (t *twin) miss(stamp int64) {
	if !t.named || stamp == 0 || stamp > t.mark || stamp <= t.covered || slices.Contains(t.late, stamp) {
		return
	}
	if len(t.late) == maxLate {
		t.mark = min(t.mark, stamp-1)
		return
	}
	t.late = append(t.late, stamp)
	t.note(lineLate, appendStamp(nil, stamp))
}

// sent notes that a twin was sent a publish. Called under the lock.
func (t *twin) sent(stamp int64) { t.mark = max(t.mark, stamp) }

// noteMark has the mark kept. Called under the lock.
func (t *twin) noteMark() {
	if t.mark != t.noted {
		t.noted = t.mark
		var room [8]byte
		t.note(lineMark, appendStamp(room[:0], t.mark))
	}
}

// catchUp sends what a twin has missed, as much as there is room for. What is left the clock sees to, and acks.
func (t *twin) catchUp() {
	t.mu.Lock()
	r := t.replay
	if r == nil || r.busy {
		t.mu.Unlock()
		return
	}
	r.busy = true
	over := false
	for t.replay == r && t.hasRoom() && t.m.ctx.Err() == nil {
		t.mu.Unlock()
		lines, _ := t.m.rest.read(&r.at)
		t.mu.Lock()
		if t.replay == r {
			t.resend(r, lines)
			over = t.replay == nil
		}
		t.mu.Unlock()
		t.flush(nil)
		t.mu.Lock()
	}
	r.busy = false
	t.alarmed = t.replay != nil
	t.mu.Unlock()
	t.flush(nil)
	if over && r.origins != nil {
		t.m.kin.caughtUp(t, r.origins)
	}
}

// hasRoom tells whether a twin can be sent what it has missed: half of what may wait is left for what comes otherwise. Called under the lock.
func (t *twin) hasRoom() bool {
	if t.link == nil || len(t.out.waiting) > t.m.o.HardCount/2 || t.out.bytes > t.m.o.HardQueue/2 {
		return false
	}
	t.link.t.Lock()
	defer t.link.t.Unlock()
	return t.link.t.Pending() <= t.m.o.HardQueue/2
}

// resend sends lines, or ends the replay where there are none and there is nothing new. Called under the lock.
func (t *twin) resend(r *replay, lines []byte) {
	if len(lines) == 0 { // no publish is missed between this and the next: each has its stamp before it is here
		var last int64
		if lines, last = t.m.rest.read(&r.at); len(lines) == 0 {
			t.replay, t.covered = nil, last
			return
		}
	}
	used := 0
	for line := range bytes.Lines(lines) {
		if used > 0 && !t.hasRoom() {
			break
		}
		used += len(line)
		if stamp, ok := stampOf(line); ok && r.wants(stamp) {
			t.resendLine(r, line)
		}
	}
	r.at.at -= len(lines) - used
	t.trim()
	t.noteMark()
	t.commit()
}

// resendLine sends what a line has, where the twin is to get it. Called under the lock.
func (t *twin) resendLine(r *replay, line []byte) {
	var f Frame
	stamp, from, frame, err := parseRecord(line, r.room, &f)
	if r.room = frame; err != nil || from == t.name || from != "" && (t.m.o.Server || tenantOf(from) != t.tenant) { // as reaches says
		return
	}
	topic := string(f.Name)
	if t.m.private.Load() && !t.m.mayHear(t, topic) {
		return
	}
	kin := t.kin.Load() != 0
	if kin && from == "" && stamp <= r.live {
		return // of AMQP, which has its own way there
	}
	now := time.Time{}
	for _, k := range t.keysOf(r, topic, stamp) {
		l, e := &lane{t, k}, envelope{id: f.ID.Bytes(), hasID: f.HasID, flags: f.Flags, data: f.Data}
		head := Frame{}
		if kin {
			head = t.toKin(r, line, &f)
		} else {
			head = l.frame(nil, &e, nil, false)
		}
		t.put(l, &head, &e, nil, stamp, &now)
		t.sent(stamp)
		t.m.count.replayed.Add(1)
	}
}

// toKin is the head of a publish that a router is sent again.
func (t *twin) toKin(r *replay, line []byte, f *Frame) Frame {
	head := Frame{Type: Publish, HasID: true, Flags: cmp.Or(f.Flags, flagSlot)}
	head.ID, _ = t.m.rest.idOf(line)
	if r.origins != nil {
		head.Flags |= flagAgain
	}
	return head
}

// keysOf gives the lanes by which a twin gets what was published on a topic at a time.
func (t *twin) keysOf(r *replay, topic string, stamp int64) (keys []laneKey) {
	var room [4]routetable.Group
	name := "topic:" + topic
	for _, g := range t.m.table.Snapshot().LookupInto(room[:0], name, nil) {
		for i := range g.Matches {
			hop, row := g.Matches[i].Hop, g.Matches[i].Route
			if hop == nil || hop.Scheme != "peer" || hop.Name != t.name || stamp <= r.live && !r.reaches(row, stamp) {
				continue
			}
			if k := keyOf(row.Pattern, name, isPlaced(row.Origin)); !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// reaches tells whether a row has its twin get what was published at a time: as far as a subscription looks back, or since a router was away.
func (r *replay) reaches(row *routetable.Route, stamp int64) bool {
	if r.origins == nil {
		return lookBackOf(row) > float64(r.began-stamp)
	}
	mark, ok := parseLinkName(row.Origin[strings.LastIndexByte(row.Origin, '/')+1:])
	return ok && r.origins[mark]
}

// lookBackOf is how far back a subscription looks, in nanoseconds.
func lookBackOf(r *routetable.Route) float64 {
	text, ok := strings.CutPrefix(r.Note, notePrefix)
	if !ok || !strings.HasPrefix(r.Origin, "peer:") {
		return 0
	}
	far, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(far) {
		return 0
	}
	return far
}

// farthest is how far back a twin looks on any topic.
func (m *Mesh) farthest(t *twin) (far float64) {
	for _, r := range m.table.Snapshot().OfOrigin(originOf(t.name)) {
		far = max(far, lookBackOf(r))
	}
	return far
}

// cleanMarks removes the files of twins that say no more than what was sent to them so long ago that nothing of that time is kept.
func cleanMarks(dir string, before time.Time) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<10 || !info.ModTime().Before(before) {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if x, err := parseAcks(text); err == nil && len(x.in.seen) == 0 && len(x.out.waiting) == 0 {
			os.Remove(name)
		}
	}
}
