package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/websocket"
	"github.com/fingerpost/fingerpost/routetable"
)

// Routers are linked (edri.v1 between routers, at /router/link): each tells the other which types it and those behind it want (demands), and which events
// it has seen (markers), and is sent events of these types that may cross. What a link demands are rows, event:req/TYPE → event-conn:@ROUTER.

// linkPart is what a connection to another router has beside that of a component.
type linkPart struct {
	// Set by join, not changed then.
	router string // the other's id

	// Guarded by Router.mu.
	wants   [2]map[string][]string // type → ids of the routers that have it
	paths   map[string][]string    // how each of these is reached: ids, the other's own first
	markers map[string][][2]uint64 // what it had seen when it was linked
	marked  bool                   // its markers came: it gets events
	told    []byte                 // the demands that it was sent last
	linked  bool                   // it is in Router.conns
	dialled bool
}

// Link says which router is dialled.
type Link struct {
	URL   string // ws://HOST:PORT/router/link
	Token string
}

const (
	maxLinkTypes = 20_000 // that a link may demand, in each direction
	maxOrigins   = 10_000 // routers whose events are told apart
	linkPrefix   = "@"    // of the key of a link: no component's key has it
	redialMost   = 5 * time.Second
)

// LeastLinkWindow is how long events have to be kept where routers are linked, so that a link that breaks, and is dialled again, loses none.
const LeastLinkWindow = 2 * redialMost

// LinkHandler takes routers at /router/link.
func (r *Router) LinkHandler() http.Handler {
	gate := websocket.Gate{Speaks: "edri.v1 between routers", Origins: []string{}}
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		account, err := r.authorize(q)
		if err != nil || !account.Link {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, errStranger.Error(), http.StatusUnauthorized)
			return
		}
		if nc, already := gate.Upgrade(w, q); nc != nil {
			r.ServeLink(nc, already, account)
		}
	})
}

// ServeLink speaks with another router, on a goroutine of its own, until it has gone. already is what was read from it.
func (r *Router) ServeLink(nc net.Conn, already []byte, account *Account) {
	c := r.newConn(account, nc.RemoteAddr())
	c.link = &linkPart{}
	c.ws = websocket.New(nc, already, false, c.linkOptions())
	if !r.enter(c) {
		c.ws.End(closeGoingAway, "the router stops")
		return
	}
	go func() {
		defer r.exit(c)
		c.serveLink()
	}()
}

func (c *conn) linkOptions() websocket.Options {
	return websocket.Options{MaxMessage: 16 << 20, PingEvery: pingEvery, Mutex: &c.mu, Line: &c.out, Release: c.release}
}

// Dial keeps a link to another router, until the router closes.
func (r *Router) Dial(l Link) {
	if !r.start() {
		return
	}
	go func() {
		defer r.running.Done()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			select {
			case <-r.stop:
				cancel()
			case <-ctx.Done():
			}
		}()
		for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, redialMost) {
			if r.dial(ctx, l) {
				pause = 100 * time.Millisecond
			}
			wait := time.NewTimer(pause)
			select {
			case <-wait.C:
			case <-ctx.Done():
				wait.Stop()
			}
		}
	}()
}

// dial is one connection of Dial, to its end; it reports whether there was a link.
func (r *Router) dial(ctx context.Context, l Link) bool {
	c := r.newConn(&Account{}, nil)
	c.link = &linkPart{dialled: true}
	c.remote = l.URL
	o := websocket.DialOptions{Conn: c.linkOptions()}
	if l.Token != "" {
		o.Header = http.Header{"Authorization": {"Bearer " + l.Token}}
	}
	dialing, cancel := context.WithTimeout(ctx, helloWait)
	defer cancel()
	var err error
	if c.ws, err = r.dialer(dialing, l.URL, o); err != nil {
		r.log.Info("another router is not reached", "url", l.URL, "error", err)
		return false
	}
	if !r.enter(c) {
		c.ws.End(closeGoingAway, "the router stops")
		return false
	}
	defer r.exit(c)
	return c.serveLink()
}

func (c *conn) serveLink() (linked bool) {
	c.sayLink()
	c.dirty.flush()
	late := time.AfterFunc(helloWait, func() {
		c.r.mu.Lock()
		defer c.r.mu.Unlock()
		if !c.link.linked {
			c.ws.Abort(errNoHello)
		}
	})
	err := c.readLink()
	late.Stop()
	if linked = c.link.linked; linked { // written by this goroutine
		c.unlink(err)
	}
	close(c.left)
	code, text := 0, ""
	if ce, ok := errors.AsType[*websocket.CloseError](err); ok {
		code, text = ce.Code, ce.Text
	}
	c.ws.End(code, text)
	return linked
}

func (c *conn) sayLink() {
	c.say(&c.dirty, func(b []byte) []byte {
		return append(appendText(append(b, `{"op":"link","protocol":1,"router":`...), c.r.o.ID), '}')
	})
}

// readLink takes what the other router sends.
func (c *conn) readLink() error {
	for {
		m, more, err := c.ws.Next()
		if err != nil {
			return err
		}
		if err := c.parse(m); err != nil {
			c.refuse(&c.dirty, nil, "bad_request", err.Error())
		} else if err := c.handleLink(); err != nil {
			c.refuse(&c.dirty, c.f.ref, "bad_request", firstLine(err))
		}
		if !more {
			c.dirty.flush()
		}
	}
}

func (c *conn) handleLink() error {
	op, _ := text(c.f.op)
	if !c.link.linked && string(op) != "link" && string(op) != "error" {
		return errors.New("link comes first")
	}
	switch string(op) {
	case "link":
		return c.joinLink()
	case "demands":
		return c.handleDemands()
	case "markers":
		return c.handleMarkers()
	case "event":
		return c.handleLinkEvent()
	case "error":
		c.log.Warn("another router refuses what it was sent", "code", word(c.f.code), "message", word(c.f.message))
		return nil
	}
	c.refuse(&c.dirty, c.f.ref, "unknown_op", "there is no such op")
	return nil
}

// joinLink makes the connection that of its router, and tells what is wanted and what was seen.
func (c *conn) joinLink() error {
	r, id := c.r, word(c.f.router)
	switch {
	case c.link.linked:
		return errors.New("link was said")
	case id == "" || len(id) > maxNameBytes:
		return errors.New("router: an id of 1 to 128 bytes is wanted")
	case id == r.o.ID:
		c.ws.Abort(&websocket.CloseError{Code: websocket.BadPolicy, Text: "this is the router itself"})
		return nil
	case c.f.protocol != nil && string(c.f.protocol) != "1":
		return errors.New("protocol: 1 is spoken here")
	}
	if !c.claim(id, linkPrefix+keyOf(id), "router") {
		c.ws.Abort(&websocket.CloseError{Code: websocket.BadPolicy, Text: "there is a link already"})
		return nil
	}
	defer r.mu.Unlock()
	c.link.router = id
	r.links.Add(1)
	c.link.linked = true
	c.log.Info("a router is linked", "remote", c.remote)
	if r.o.Window < LeastLinkWindow {
		c.log.Warn("events are kept for less time than the link may be away, and may be lost then", "window", r.o.Window, "least", LeastLinkWindow)
	}
	r.tellDemands(c, &c.dirty)
	c.tellMarkers()
	return nil
}

// tellMarkers tells which events were seen, by origin. Called under Router.mu.
func (c *conn) tellMarkers() {
	all := map[string][][2]uint64{}
	for i, s := range c.r.seen {
		if s != nil && len(s.ranges) > 0 {
			all[c.r.origins[i]] = s.pairs()
		}
	}
	b, _ := json.Marshal(all)
	c.say(&c.dirty, func(out []byte) []byte {
		return append(append(append(out, `{"op":"markers","markers":`...), b...), '}')
	})
}

// unlink takes a link off: what it demanded goes at once.
func (c *conn) unlink(why error) {
	r := c.r
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	r.mu.Lock()
	c.yield()
	r.links.Add(-1)
	r.mu.Unlock()
	c.log.Warn("the link to a router is lost", "reason", words(why))
	r.wanted()
}

// wanted has the links told what is demanded, soon. It may be called anywhere.
func (r *Router) wanted() {
	select {
	case r.demands <- struct{}{}:
	default:
	}
}

// tellAllDemands tells every link what is demanded now, where that has changed.
func (r *Router) tellAllDemands() {
	var d dirty
	r.mu.Lock()
	for _, c := range r.conns {
		if c.link != nil {
			r.tellDemands(c, &d)
		}
	}
	r.mu.Unlock()
	d.flush()
}

// tellDemands tells a link what is demanded here and behind the other links. Called under the lock.
func (r *Router) tellDemands(to *conn, d *dirty) {
	wants := [2]map[string][]string{{}, {}}
	paths := map[string][]string{}
	s := r.table.Snapshot()
	for t := range r.shareable {
		for dir := range wants {
			if r.leads(s, addressOf(t, dir == 1)) {
				wants[dir][t] = append(wants[dir][t], r.o.ID)
			}
		}
	}
	for _, c := range r.conns {
		if c.link == nil || c == to {
			continue
		}
		for dir := range wants {
			for t, ids := range c.link.wants[dir] {
				for _, id := range ids {
					// What came by the other router, or would come back to it, is none of its business.
					if path := c.link.paths[id]; id == to.link.router || slices.Contains(path, to.link.router) || slices.Contains(wants[dir][t], id) {
						continue
					} else if old := paths[id]; old == nil || len(path)+1 < len(old) {
						paths[id] = append([]string{r.o.ID}, path...)
					}
					wants[dir][t] = append(wants[dir][t], id)
				}
			}
		}
	}
	for dir := range wants {
		for _, ids := range wants[dir] {
			slices.Sort(ids)
		}
	}
	b, err := json.Marshal(struct {
		Op        string              `json:"op"`
		Requests  map[string][]string `json:"requests"`
		Responses map[string][]string `json:"responses"`
		Paths     map[string][]string `json:"paths,omitempty"`
	}{"demands", wants[0], wants[1], paths})
	if err != nil || bytes.Equal(b, to.link.told) {
		return
	}
	to.link.told = b
	to.say(d, func(out []byte) []byte { return append(out, b...) })
}

func isLink(h *routetable.Hop) bool {
	return h.Scheme == "event-conn" && strings.HasPrefix(h.Name, linkPrefix)
}

// handleDemands takes the whole of what the other router demands: what is missing now is withdrawn.
func (c *conn) handleDemands() error {
	r, f := c.r, &c.f
	var wants [2]map[string][]string
	paths := map[string][]string{}
	for dir, value := range [][]byte{f.requests, f.responses} {
		if !isNull(value) && json.Unmarshal(value, &wants[dir]) != nil {
			return errors.New("demands: types with lists of routers are wanted")
		}
		if len(wants[dir]) > maxLinkTypes {
			return errors.New("demands: too many types")
		}
	}
	if !isNull(f.paths) && json.Unmarshal(f.paths, &paths) != nil {
		return errors.New("paths: routers with lists of routers are wanted")
	}
	for dir := range wants {
		for t, ids := range wants[dir] {
			// A router that is reached by way of this one is none that is behind the link.
			ids = slices.DeleteFunc(ids, func(id string) bool { return id == r.o.ID || slices.Contains(paths[id], r.o.ID) })
			if wants[dir][t] = ids; len(ids) == 0 || t == "" || len(t) > maxTypeBytes {
				delete(wants[dir], t)
			}
			for _, id := range ids {
				if paths[id] == nil {
					paths[id] = []string{c.link.router}
				}
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	behind := false // a router is behind the link that was not
	for id := range paths {
		behind = behind || id != c.link.router && c.link.paths[id] == nil
	}
	c.link.wants, c.link.paths = wants, paths
	if c.link.marked {
		if err := r.linkRows(c); err != nil {
			return err
		}
		if behind { // a hub that was away is told of it only after it was linked
			r.replayTo(c)
		}
	}
	r.wanted()
	return nil
}

// linkRows makes the rows of a link what it demands. Called under the lock.
func (r *Router) linkRows(c *conn) error {
	have := map[string]bool{}
	var commands []admin.Command
	for _, row := range r.table.Snapshot().OfOrigin(c.origin) {
		name, _ := routetable.LiteralOf(row.Pattern)
		typ, response, _ := parseName(strings.TrimPrefix(name, "event:"))
		if _, wanted := c.link.wants[direction(response)][typ]; wanted {
			have[name] = true
			continue
		}
		commands = append(commands, admin.Unsubscribe{Origin: c.origin, Pattern: row.Pattern, Address: row.Address})
		c.subscriptions--
	}
	for dir := range c.link.wants {
		for t := range c.link.wants[dir] {
			name := addressOf(t, dir == 1)
			pattern, ok := routetable.QuotePattern(name)
			if have[name] || !ok {
				continue
			}
			commands = append(commands, admin.Subscribe{Origin: c.origin, Pattern: pattern, Address: c.address})
			c.subscriptions++
			r.unrouted.clear(t, dir == 1)
		}
	}
	var failed error
	r.core.DoAll(c.caller, commands, func(_ int, err error) { failed = errors.Join(failed, err) })
	return failed
}

// handleMarkers sends what the other router has not seen and demands, and has what comes from now on follow.
func (c *conn) handleMarkers() error {
	r := c.r
	var markers map[string][][2]uint64
	if json.Unmarshal(c.f.markers, &markers) != nil {
		return errors.New("markers: routers with ranges of numbers are wanted")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.linkRows(c); err != nil {
		return err
	}
	c.link.marked, c.link.markers = true, markers
	r.replayTo(c)
	return nil
}

// replayTo sends a link what is kept, was not seen by the other router when it was linked, and is demanded. Called under the lock.
func (r *Router) replayTo(c *conn) {
	v := linkView{chunks: r.ring.chunks, origins: r.origins, self: r.o.ID, client: c.ws.Client(), kinds: map[uint32]*kind{}, seen: map[uint32]*seen{}}
	if n := len(v.chunks); n > 0 {
		v.end = v.chunks[n-1].used
	}
	for _, k := range r.ring.kinds {
		if k == nil {
			continue
		}
		if _, wanted := c.link.wants[direction(k.response)][k.typ]; wanted {
			v.kinds[k.id] = k
		}
	}
	for i, id := range r.origins {
		v.seen[uint32(i)] = seenOf(c.link.markers[id])
		if id == c.link.router {
			v.skip = uint32(i)
		}
	}
	v.from = r.now() - r.ring.window
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.replayLink(&v)
	c.dirty.note(c)
}

// handleLinkEvent takes an event of another router, unless it was here.
func (c *conn) handleLinkEvent() error {
	r, f, e := c.r, &c.f, &c.e
	if err := f.event(e); err != nil {
		return err
	}
	origin := word(f.origin)
	seq, err := strconv.ParseUint(string(f.seq), 10, 64)
	switch {
	case origin == "" || len(origin) > maxNameBytes || err != nil || seq == 0:
		return errors.New("origin and seq: the router that an event came to first, and its number there, are wanted")
	case origin == r.o.ID:
		return nil // it has been here
	}
	c.received.Add(1)
	if r.publishFrom(c, origin, seq, e, &c.dirty) < 0 {
		c.log.Debug("an event of a type that may not cross came from another router", "type", string(e.typ))
		c.refuse(&c.dirty, f.ref, "not_shareable", "this type is not shareable here, and nobody behind this router demands it")
	}
	return nil
}

// originOf gives the number of a router whose events come here; 0 where there are too many. Called under the lock.
func (r *Router) originOf(id string) uint32 {
	if n := slices.Index(r.origins, id); n > 0 {
		return uint32(n)
	}
	if len(r.origins) >= maxOrigins {
		return 0
	}
	r.origins = append(slices.Clip(r.origins), id) // a link's replay may read the list
	r.seen = append(r.seen, &seen{})
	return uint32(len(r.origins) - 1)
}

// linkView is the events in the ring that another router has not seen, as frames for a link. Like view, it is read without the lock.
type linkView struct {
	chunks  []*chunk
	end     int // in the last of them
	at      int // in the first of them
	from    int64
	kinds   map[uint32]*kind
	seen    map[uint32]*seen
	skip    uint32 // the origin that the other router is itself
	origins []string
	self    string
	client  bool
}

// appendFrames appends frames until there are n bytes or no events are left.
func (v *linkView) appendFrames(b []byte, n int) []byte {
	var s stamp
	for len(v.chunks) > 0 && len(b) < n {
		c, end := v.chunks[0], 0
		if end = v.end; len(v.chunks) > 1 {
			end = c.used // it is full: nothing writes there any more
		}
		if v.at >= end {
			v.chunks, v.at = v.chunks[1:], 0
			continue
		}
		e := entryAt(c.b[v.at:])
		v.at += headBytes + len(e.body)
		k := v.kinds[e.kind]
		if k == nil || e.seq == 0 || e.at < v.from || v.skip != 0 && e.origin == v.skip || v.seen[e.origin].has(e.seq) {
			continue
		}
		var at int
		b, at = websocket.BeginFrame(b, v.client)
		b = appendLinkEvent(s.appendEvent(b, k.head, e.at, e.body, "", false), v.origin(e.origin), e.seq)
		b = websocket.EndFrame(b, at, true, v.client)
	}
	return b
}

func (v *linkView) origin(n uint32) string {
	if n == 0 {
		return v.self
	}
	return v.origins[n]
}

// appendLinkEvent adds what links have more to the frame of an event.
func appendLinkEvent(b []byte, origin string, seq uint64) []byte {
	b = appendText(append(b[:len(b)-1], `,"origin":`...), origin)
	b = strconv.AppendUint(append(b, `,"seq":`...), seq, 10)
	return append(b, '}')
}

// LinkState is another router that is linked.
type LinkState struct {
	Router    string   `json:"router"`
	Remote    string   `json:"remote"`
	Dialled   bool     `json:"dialled"`  // by this one
	Requests  []string `json:"requests"` // types that cross to it
	Responses []string `json:"responses"`
	Outbound  Outbound `json:"outbound"`
}

// Links tells of the routers that are linked, by id.
func (r *Router) Links() []LinkState {
	all := []LinkState{}
	r.mu.Lock()
	for _, c := range r.conns {
		if c.link != nil {
			all = append(all, LinkState{Router: c.link.router, Remote: c.remote, Dialled: c.link.dialled, Outbound: c.outbound()})
		}
	}
	r.mu.Unlock()
	s := r.table.Snapshot()
	for i := range all {
		all[i].Requests, all[i].Responses = subscriptions(s, linkPrefix+keyOf(all[i].Router))
	}
	slices.SortFunc(all, func(a, b LinkState) int { return strings.Compare(a.Router, b.Router) })
	return all
}

// Shareable gives the types that may cross to other routers, sorted.
func (r *Router) Shareable() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.shareable))
}

// Stall is how long a send may take before it is shown.
func (r *Router) Stall() time.Duration { return r.o.Stall }

// Window tells how many events are kept for replay, and in how many bytes.
func (r *Router) Window() (events, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ring.count, r.ring.bytes
}
