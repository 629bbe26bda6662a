package admin

import (
	"fmt"
	"iter"
	"sync"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// The bounds of watches: how many there are, what waits for one of them, and one page of a snapshot.
const (
	maxWatches      = 64
	maxWatchChanges = 256
	maxWatchBytes   = 4 << 20
	watchPageRows   = 1000
	watchPageBytes  = 256 << 10
)

// Watch is what one watcher has not been told yet. Changes come in by the table, and go out by Next as fast as the watcher takes them; a
// watcher that falls behind is told so (missed), then what the table is (pages of a snapshot), then the changes after that. No change is
// left out between, none is told twice.
//
// Whoever got it from Core.Answer waits for Ready, sends what Next gives, tells Missed of what did not arrive, and ends with Close.
type Watch struct {
	// Set at construction, never changed.
	c       *Core
	caller  Caller
	replyTo string
	id      any // correlation id
	start   uint64
	stop    func()
	ready   chan struct{}

	// Owned by who calls Next.
	pages    func() (*routetable.Route, bool) // the rest of the snapshot that is being told; nil is none
	endPages func()
	of       *routetable.Snapshot // whose rows those are
	offset   int
	held     *routetable.Route // read of pages, for the next page
	revision uint64            // that the watcher is at when it has all that Next gave

	mu      sync.Mutex // guards what follows; a leaf
	told    uint64     // the generation that the watcher is at when it has all that Next gave
	since   uint64     // changes up to this generation are told, or in the snapshot that is being told
	waiting []waitingChange
	bytes   int
	behind  bool   // what waits is not all that happened
	from    uint64 // where behind: the generation that the watcher has for sure
	closed  bool
}

type waitingChange struct {
	ch    routetable.Change
	match routetable.MatchMode
	size  int
}

// refuseWatch answers a WATCH where nobody could go on to send.
func (c *Core) refuseWatch(Caller, args) (answer, error) {
	return answer{}, refuse(StatusNotImplemented, "WATCH: not on this way in: ask over an AMQP link, with a reply-to")
}

// handleWatch begins a watch. The answer tells where it begins: every change after that generation is told. With snapshot, the table at
// that generation is told first.
func (c *Core) handleWatch(caller Caller, q request) (answer, error) {
	a, err := q.arguments()
	if err != nil {
		return answer{}, err
	}
	snapshot, err := a.flag("snapshot")
	if err != nil {
		return answer{}, err
	}
	if q.replyTo == "" {
		return answer{}, refuse(StatusBadRequest, "reply-to: missing: where are the changes to go?")
	}
	c.mu.Lock()
	if c.watches >= maxWatches {
		c.mu.Unlock()
		return answer{}, refuse(StatusTooLarge, "WATCH: %d watch already, no more are taken", maxWatches)
	}
	c.watches++
	c.mu.Unlock()
	w := &Watch{c: c, caller: caller, replyTo: q.replyTo, id: q.id, ready: make(chan struct{}, 1)}
	w.stop = c.table.OnChange(w.note)
	s := c.table.Snapshot() // after OnChange: what is not in it is noted
	w.start, w.told = s.Generation(), s.Generation()
	w.begin(s, snapshot)
	return answer{status: StatusOK, watch: w, body: map[string]any{
		"revision": s.Revision(), "generation": s.Generation(), "match": s.Match().String(), "rows": uint64(s.Len()),
	}}.with("revision", s.Revision()), nil
}

// Watches is the number of watches that are not closed.
func (c *Core) Watches() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watches
}

// ReplyTo is where the messages go.
func (w *Watch) ReplyTo() string { return w.replyTo }

// Mark is the generation of the table that the answer speaks of.
func (w *Watch) Mark() uint64 { return w.start }

// Ready tells that Next may have something. It is never closed.
func (w *Watch) Ready() <-chan struct{} { return w.ready }

// Close ends the watch. Like Next, it is for one goroutine.
func (w *Watch) Close() {
	w.mu.Lock()
	was := w.closed
	w.closed, w.waiting = true, nil
	w.mu.Unlock()
	if was {
		return
	}
	w.stop()
	w.dropPages()
	w.c.mu.Lock()
	w.c.watches--
	w.c.mu.Unlock()
}

// note puts a change in line. It runs on the writer's goroutine.
func (w *Watch) note(ch routetable.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.behind || ch.Generation <= w.since {
		return
	}
	size := changeSize(ch)
	if len(w.waiting) >= maxWatchChanges || w.bytes+size > maxWatchBytes {
		w.fallBehind(w.told)
		return
	}
	w.waiting = append(w.waiting, waitingChange{ch, w.c.table.Snapshot().Match(), size})
	w.bytes += size
	w.wake()
}

// changeSize is about how many bytes a change is on the wire; beyond maxWatchBytes it is not counted to the end.
func changeSize(ch routetable.Change) int {
	size := 300
	for _, o := range ch.Objects {
		size += 60 + len(o.Name)
	}
	for _, list := range [][]*routetable.Route{ch.Added, ch.Removed, ch.Updated, ch.Before} {
		for _, r := range list {
			if size += rowSize(r); size > maxWatchBytes {
				return size
			}
		}
	}
	return size
}

// fallBehind forgets what waits. Called under the lock.
func (w *Watch) fallBehind(from uint64) {
	w.behind, w.from = true, from
	w.waiting, w.bytes = nil, 0
	w.wake()
}

func (w *Watch) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// Missed says that messages after the one with this mark did not reach the watcher, though it is still there.
func (w *Watch) Missed(mark uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fallBehind(mark)
}

// Next gives the next message, encoded, and its mark: the generation that the watcher is at when it has it. Nil is none for now.
func (w *Watch) Next() (message []byte, mark uint64) {
	w.mu.Lock()
	if w.behind {
		from := w.from
		w.behind = false
		w.mu.Unlock()
		w.begin(w.c.table.Snapshot(), true)
		return w.encode("missed", map[string]any{"generation": from}), from
	}
	if w.pages != nil {
		w.mu.Unlock()
		return w.page()
	}
	if len(w.waiting) == 0 {
		w.mu.Unlock()
		return nil, 0
	}
	x := w.waiting[0]
	w.waiting[0] = waitingChange{}
	w.waiting = w.waiting[1:]
	w.bytes -= x.size
	w.since, w.told = x.ch.Generation, x.ch.Generation
	w.mu.Unlock()
	return w.change(x), x.ch.Generation
}

// begin goes on from a snapshot: its rows are told, or known, and changes that are in it are not.
func (w *Watch) begin(s *routetable.Snapshot, tell bool) {
	w.dropPages()
	w.of, w.offset = nil, 0
	if tell {
		w.of = s
		w.pages, w.endPages = iter.Pull(s.Routes())
	}
	w.revision = s.Revision() // an author is told of revisions after it
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = s.Generation()
	if !tell {
		w.told = w.since
	}
	for len(w.waiting) > 0 && w.waiting[0].ch.Generation <= w.since {
		w.bytes -= w.waiting[0].size
		w.waiting = w.waiting[1:]
	}
	if tell {
		w.wake()
	}
}

func (w *Watch) dropPages() {
	if w.endPages != nil {
		w.endPages()
	}
	w.pages, w.endPages, w.held = nil, nil, nil
}

// page is the next page of the snapshot. An empty table has one page too.
func (w *Watch) page() (message []byte, mark uint64) {
	rows := []any{}
	room := watchPageBytes
	take := func(r *routetable.Route) {
		room -= rowSize(r)
		rows = append(rows, w.c.rowMap(w.caller, r))
	}
	if w.held != nil {
		take(w.held)
		w.held = nil
	}
	last := false
	for {
		r, ok := w.pages()
		if !ok {
			last = true
			break
		}
		if len(rows) == watchPageRows || room < 0 {
			w.held = r
			break
		}
		take(r)
	}
	s := w.of
	body := map[string]any{
		"revision": s.Revision(), "generation": s.Generation(), "match": s.Match().String(),
		"offset": uint64(w.offset), "total": uint64(s.Len()), "last": last, "rows": rows,
	}
	w.offset += len(rows)
	w.mu.Lock()
	if last {
		w.told = s.Generation()
	}
	mark = w.told
	w.mu.Unlock()
	if last {
		w.dropPages()
		w.of = nil
	}
	return w.encode("snapshot", body), mark
}

// change is the message of one change.
func (w *Watch) change(x waitingChange) []byte {
	ch := x.ch
	maps := func(list []*routetable.Route) []any {
		out := make([]any, len(list))
		for i, r := range list {
			out[i] = w.c.rowMap(w.caller, r)
		}
		return out
	}
	updated := make([]any, len(ch.Updated))
	for i, r := range ch.Updated {
		updated[i] = map[string]any{"before": w.c.rowMap(w.caller, ch.Before[i]), "after": w.c.rowMap(w.caller, r)}
	}
	body := map[string]any{
		"revision": ch.Revision, "generation": ch.Generation,
		"added": maps(ch.Added), "removed": maps(ch.Removed), "updated": updated,
	}
	if len(ch.Objects) > 0 {
		body["objects"] = ObjectMaps(ch.Objects)
	}
	if ch.MatchSet {
		body["match"] = x.match.String()
	}
	if ch.Revision != w.revision { // else only learned rows changed, which the history does not keep
		if h := w.c.table.History(ch.Revision+1, 1); len(h) == 1 && h[0].Revision == ch.Revision {
			body["author"] = map[string]any{
				"user": h[0].User, "from": h[0].From, "command": h[0].Command, "at": wire.Timestamp(h[0].At.UnixMilli()),
			}
		}
	}
	w.revision = ch.Revision
	return w.encode("change", body)
}

// encode makes the message of an event. Its kind is the application property event, which answers do not have.
func (w *Watch) encode(event string, body map[string]any) []byte {
	body["event"] = event
	m := wire.Message{
		Properties:            &wire.Properties{To: w.replyTo, HasTo: true, CorrelationID: w.id},
		ApplicationProperties: wire.Map{{Key: "event", Value: event}},
		HasValue:              true, Value: toWire(body),
	}
	b, err := m.Append(nil)
	if err != nil { // of our own values: a mistake of ours
		m.Properties.CorrelationID = nil
		m.Value = wire.Map{{Key: "event", Value: "missed"}, {Key: "why", Value: fmt.Sprintf("a %s cannot be encoded", event)}}
		b, _ = m.Append(nil)
	}
	return b
}
