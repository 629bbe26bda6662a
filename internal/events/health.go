package events

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// The health of a component.
const (
	healthOK      = "OK"
	healthWarning = "WARNING"
	healthError   = "ERROR"
)

// Bounds of what is kept of a component.
const (
	maxRecords    = 1000
	maxExceptions = 20
	maxKeptBytes  = 16 << 10 // of one exception, and of the vitals
)

// record is what is known of a component, by name: it outlives its connection. Router.mu guards it.
type record struct {
	name        string
	conn        *conn // nil: it is away
	since       int64 // when it came, or went
	replied     int64 // to a health check, last; 0 is never on this connection
	status      string
	exceptions  []json.RawMessage // the latest
	raised      uint64            // all of them
	vitals      json.RawMessage
	shown       string // the health that was logged last
	unstartable bool   // its restart action does not work
}

// recordOf gives the record of a component that comes. Called under the lock.
func (r *Router) recordOf(c *conn) *record {
	rec := r.records[c.key]
	if rec == nil {
		r.makeRoom()
		rec = &record{name: c.name, shown: healthWarning}
		r.records[c.key] = rec
	}
	rec.conn, rec.since, rec.replied, rec.status, rec.unstartable = c, r.now(), 0, "", false
	return rec
}

// makeRoom forgets the component that has been away for longest, where there are too many.
func (r *Router) makeRoom() {
	if len(r.records) < maxRecords {
		return
	}
	oldest := ""
	for key, rec := range r.records {
		if rec.conn == nil && (oldest == "" || rec.since < r.records[oldest].since) {
			oldest = key
		}
	}
	delete(r.records, oldest)
}

// leave takes a component off: its subscriptions go at once, where it can go on is kept for a window, and what starts it again is run.
func (c *conn) leave(why error) {
	r := c.r
	c.mu.Lock()
	c.over = true
	undelivered := c.out.undelivered()
	c.mu.Unlock()
	ce, _ := errors.AsType[*websocket.CloseError](why)
	onPurpose := ce != nil && ce.Code == websocket.Normal
	r.mu.Lock()
	had := c.subscriptions
	c.yield()
	rec, now := c.record, r.now()
	rec.conn, rec.since = nil, now
	point, stopping := undelivered, r.stopping
	if point == 0 {
		point = max(now, r.last+1)
	}
	if had > 0 {
		r.points.keep(c.key, point, now)
	} else if before := r.points.at(c.key, now); before != 0 { // one that has subscribed to nothing goes on where it was before
		point = before
	}
	r.mu.Unlock()
	if onPurpose || stopping {
		c.log.Info("a component has gone", "reason", words(why))
		return
	}
	c.log.Warn("a component is lost", "reason", words(why))
	if c.again {
		r.startAgain(c, point)
	}
}

func words(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it closed the connection without a word"
	}
	return err.Error()
}

// replied takes the answer to a health check.
func (r *Router) replied(c *conn, f *frame) {
	status := word(f.status)
	if status != healthOK && status != healthWarning && status != healthError {
		c.refuse(&c.dirty, f.ref, "bad_request", `status: "OK", "WARNING" or "ERROR" is wanted`)
		return
	}
	var raised []json.RawMessage
	if !isNull(f.exceptions) && json.Unmarshal(f.exceptions, &raised) != nil {
		c.refuse(&c.dirty, f.ref, "bad_request", "exceptions: a list is wanted")
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := c.record
	rec.status, rec.replied = status, r.now()
	rec.raised += uint64(len(raised))
	for _, x := range raised {
		if len(x) <= maxKeptBytes {
			rec.exceptions = append(rec.exceptions, x)
		}
	}
	rec.exceptions = slices.Clone(rec.exceptions[max(0, len(rec.exceptions)-maxExceptions):])
	rec.vitals = nil
	if len(f.vitals) <= maxKeptBytes && !isNull(f.vitals) {
		rec.vitals = slices.Clone(f.vitals)
	}
	r.show(rec, rec.replied)
}

// health judges a component. Called under the lock.
func (r *Router) health(rec *record, now int64) string {
	if rec.conn == nil {
		if rec.unstartable {
			return healthError
		}
		return healthWarning
	}
	silent := now - max(rec.replied, rec.since)
	limit := int64(r.o.HealthLimit+1) * int64(r.o.HealthEvery)
	switch {
	case silent >= limit || rec.status == healthError:
		return healthError
	case silent >= limit/2, rec.status != healthOK, rec.conn.isSlow():
		return healthWarning
	}
	return healthOK
}

func (c *conn) isSlow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slow
}

// show logs a component whose health has changed. Called under the lock.
func (r *Router) show(rec *record, now int64) {
	was, is := rec.shown, r.health(rec, now)
	if was == is {
		return
	}
	rec.shown = is
	log := r.log.Info
	if is != healthOK {
		log = r.log.Warn
	}
	log("the health of a component has changed", "component", rec.name, "was", was, "is", is)
}

// loop is the router's clock.
func (r *Router) loop() {
	t := time.NewTicker(max(min(time.Second, r.o.Window/2, r.o.HealthEvery), time.Millisecond))
	defer t.Stop()
	check, info := r.now()+int64(r.o.HealthEvery), r.now()+int64(r.o.InfoEvery)
	var told window
	for n := uint64(1); ; {
		select {
		case <-r.stop:
			return
		case <-r.demands:
			r.tellAllDemands()
			continue
		case <-t.C:
		}
		now := r.now()
		r.sweep(now)
		if now >= check {
			check += int64(r.o.HealthEvery)
			r.checkHealth(n)
			n++
		}
		if now >= info {
			info += int64(r.o.InfoEvery)
			told = r.logWindow(told)
		}
	}
}

// sweep forgets what is past the window, and looks at the health of everybody.
func (r *Router) sweep(now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.countAll()
	r.ring.evict(now)
	r.points.forget(now)
	r.clearUnrouted()
	for _, s := range r.seen[1:] {
		s.forget(now - 2*r.ring.window) // longer than what is sent again can be
	}
	for _, rec := range r.records {
		r.show(rec, now)
	}
}

// window is what the log tells of the events that are kept.
type window struct {
	count, bytes     int
	evicted, dropped uint64
}

// logWindow tells what is kept where it differs from what was told last, and gives what it told: an idle router is silent.
func (r *Router) logWindow(told window) window {
	r.mu.Lock()
	w := window{r.ring.count, r.ring.bytes, r.ring.evicted, r.ring.dropped}
	r.mu.Unlock()
	if w != told {
		r.log.Info("events are kept for replay", "events", w.count, "bytes", w.bytes, "evicted", w.evicted, "dropped for want of memory", w.dropped)
	}
	return w
}

// checkHealth asks every component how it is: each connection is written to, so that a dead one is found.
func (r *Router) checkHealth(n uint64) {
	r.mu.Lock()
	conns := r.list()
	r.mu.Unlock()
	var d dirty
	id := strconv.FormatUint(n, 10)
	for _, c := range conns {
		if c.link != nil {
			continue
		}
		c.say(&d, func(b []byte) []byte {
			return append(append(append(b, `{"op":"health_check","check":"`...), id...), `"}`...)
		})
		c.mu.Lock()
		c.out.idle()
		c.mu.Unlock()
	}
	d.flush()
}

// Component is what is known of a component.
type Component struct {
	Name       string            `json:"name"`
	Connected  bool              `json:"connected"`
	Remote     string            `json:"remote,omitempty"`
	Health     string            `json:"health"`
	LastReply  string            `json:"lastReply,omitempty"`
	Raised     uint64            `json:"exceptionCount"`
	Exceptions []json.RawMessage `json:"exceptions"`
	Vitals     json.RawMessage   `json:"vitals,omitempty"`
	Requests   []string          `json:"requests"`
	Responses  []string          `json:"responses"`
	Outbound   Outbound          `json:"outbound"`
}

// Outbound is what waits for a component.
type Outbound struct {
	Depth          int      `json:"depth"`
	Bytes          int      `json:"bytes"`
	Slow           bool     `json:"slow"`
	Failed         bool     `json:"failed"`
	StalledSeconds *float64 `json:"stalledSeconds"` // nil up to the stall limit
	Sent           uint64   `json:"sent"`
}

// Components tells of all components that are known, by name.
func (r *Router) Components() []Component {
	all, s := r.Statuses(), r.table.Snapshot()
	for i := range all { // without the lock: it may be 100 000 types
		all[i].Requests, all[i].Responses = subscriptions(s, keyOf(all[i].Name))
	}
	return all
}

// Statuses is Components without what they have subscribed to.
func (r *Router) Statuses() []Component {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Component, 0, len(r.records))
	now := r.now()
	for _, rec := range r.records {
		x := Component{
			Name: rec.name, Connected: rec.conn != nil, Health: r.health(rec, now), Raised: rec.raised,
			Exceptions: append([]json.RawMessage{}, rec.exceptions...), Vitals: rec.vitals,
			Outbound: Outbound{Failed: rec.conn == nil},
		}
		if rec.replied != 0 {
			x.LastReply = strings.Trim(string(appendTime(nil, rec.replied)), `"`)
		}
		if c := rec.conn; c != nil {
			x.Remote, x.Outbound = c.remote, c.outbound()
		}
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b Component) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (c *conn) outbound() Outbound {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := Outbound{Depth: c.out.depth, Bytes: c.out.bytes, Slow: c.slow, Failed: c.over, Sent: c.out.sent}
	if s := c.out.stalled(time.Now()); s >= c.r.o.Stall {
		seconds := s.Seconds()
		o.StalledSeconds = &seconds
	}
	return o
}
