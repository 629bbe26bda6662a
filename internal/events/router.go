package events

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/websocket"
	"github.com/fingerpost/fingerpost/routetable"
)

// Options of a Router. Zero is the default of each.
type Options struct {
	ID          string        // of this router, as it is told to components and other routers
	Window      time.Duration // how long events are kept for replay; 0 is 30 s
	WindowBytes int           // and how many bytes of them at most; 0 is 256 MiB
	Soft        int           // events that wait for a component from which it is slow; 0 is 800, or Hard where that is less
	Hard        int           // at which it is disconnected; 0 is 5000
	HardBytes   int           // or at so many bytes; 0 is 64 MiB
	Stall       time.Duration // a send that takes longer is shown; 0 is 5 s
	HealthEvery time.Duration // between health checks; 0 is 10 s
	HealthLimit int           // checks without an answer; after one more a component is in ERROR, after half as many in WARNING; 0 is 3
	InfoEvery   time.Duration // between log lines that count the window; 0 is a minute

	Restart map[string][]string // by name of a component: the command that starts it again, with its arguments; no shell is asked
	Origins []string            // web pages that may connect: see websocket.Gate

	// Authorize tells who a request is, and what it may. Nil: whoever asks from this machine may everything, nobody else may anything.
	Authorize func(r *http.Request) (*Account, error)

	Log *slog.Logger // nil: no log
}

// Account is what a component, or a router, may do. A nil list is everything.
type Account struct {
	Name      string
	Names     *admin.Grants // names of components that it may use
	Subscribe *admin.Grants // addresses: event:req/TYPE, event:res/TYPE
	Send      *admin.Grants // the same
	Shareable *admin.Grants // types that it may have cross to other routers, as addresses event:req/TYPE
	Link      bool          // it may be another router
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	num := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	def(&o.Window, 30*time.Second)
	def(&o.Stall, 5*time.Second)
	def(&o.HealthEvery, 10*time.Second)
	def(&o.InfoEvery, time.Minute)
	num(&o.WindowBytes, 256<<20)
	num(&o.Hard, 5000)
	num(&o.Soft, min(800, o.Hard))
	num(&o.HardBytes, 64<<20)
	num(&o.HealthLimit, 3)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Router gives the events of a node their order.
type Router struct {
	// Set at construction, never changed.
	o     Options
	log   *slog.Logger
	core  *admin.Core
	table *routetable.Table
	began time.Time // the clock counts from it, whatever becomes of the wall clock
	stop  chan struct{}

	demands chan struct{} // what is demanded may have changed
	dialer  func(ctx context.Context, url string, o websocket.DialOptions) (*websocket.Conn, error)
	unwatch func()
	links   atomic.Int32 // routers that are linked
	present sync.Map     // the keys of conns

	running  sync.WaitGroup
	counters counters

	mu        sync.Mutex // the sequencer: an event is stamped, kept, looked up and queued under it, and a subscription made
	last      int64      // the last stamp
	taken     uint64     // events
	nowhere   uint64     // events that nobody had subscribed to
	copies    uint64     // queued for components and routers; what the node sends on is the node's
	ring      ring
	kinds     [2]map[string]*kind // requests and responses that are in the ring, by type
	leading   map[*kind]struct{}  // of these, those that rows lead on to other names
	open      map[*conn]struct{}  // connections, whether or not they have a name
	conns     map[string]*conn    // those that have, by key
	joined    uint64              // counts comings and goings of conns: plans from before are made anew
	records   map[string]*record  // by key
	points    points
	unrouted  tally
	shareable map[string]bool
	origins   []string // routers whose events came here, by number; this one is 0. What is in it does not change
	seen      []*seen  // of each, but of this one
	ownSeq    uint64   // of the last shareable event that came to this router first
	groups    []routetable.Group
	frame     []byte // scratch, as body and sent are
	body      []byte
	linkFrame []byte
	sent      []byte
	inlet     *forwarder.Inlet // for hops that are not ours; nil: there is no node
	node      *forwarder.Node  // the same
	stamp     stamp
	stopping  bool
	kept      bool // the row of the ring is there
}

// New makes the event router of a node. Close ends it.
func New(core *admin.Core, o Options) *Router {
	o = o.withDefaults()
	r := &Router{
		o: o, log: o.Log, core: core, table: core.Table(), began: time.Now(), stop: make(chan struct{}),
		open: map[*conn]struct{}{}, conns: map[string]*conn{}, records: map[string]*record{}, shareable: map[string]bool{},
		kinds: [2]map[string]*kind{{}, {}}, leading: map[*kind]struct{}{},
		ring:    ring{window: int64(o.Window), max: o.WindowBytes},
		points:  points{window: int64(o.Window)},
		demands: make(chan struct{}, 1), dialer: websocket.Dial, ownSeq: uint64(time.Now().UnixMicro()), // numbers rise over a restart too
		origins: []string{o.ID}, seen: []*seen{nil},
	}
	r.unwatch = r.table.OnChange(r.noteChange)
	r.ring.forget = r.forgetKind
	r.running.Go(r.loop)
	return r
}

// keepEvents makes the row that has events kept, when there is a use for it. Called under the lock.
func (r *Router) keepEvents() {
	if r.kept {
		return
	}
	row := routetable.NewRoute("event:*", ringAddress)
	row.Origin, row.Optional, row.Note = routetable.OriginSystem, true, "events are kept for replay"
	if _, err := r.table.Apply(routetable.Op{Verb: routetable.VerbAdd, Route: row, Columns: routetable.ColOptional}); err != nil {
		r.log.Error("events are not kept for replay: the row could not be made", "error", err)
		return
	}
	r.kept = true
}

// ringAddress is the hop that keeps events.
const ringAddress = "replay:ring"

// Close sends all components away, to come back later, and waits for them to be gone.
func (r *Router) Close() {
	r.mu.Lock()
	if !r.stopping {
		r.stopping = true
		close(r.stop)
	}
	open := slices.Collect(maps.Keys(r.open))
	r.mu.Unlock()
	for _, c := range open {
		c.ws.Close(closeGoingAway, "the router stops")
	}
	r.running.Wait()
	r.unwatch()
}

// noteChange has links told where a change of the table may change what is demanded here.
func (r *Router) noteChange(ch routetable.Change) {
	if r.links.Load() == 0 {
		return
	}
	for _, list := range [][]*routetable.Route{ch.Added, ch.Removed, ch.Updated} {
		for _, row := range list {
			if !strings.HasPrefix(row.Origin, "event:"+linkPrefix) {
				r.wanted()
				return
			}
		}
	}
}

// list gives the components that are connected. Called under the lock.
func (r *Router) list() []*conn {
	all := make([]*conn, 0, len(r.conns))
	for _, c := range r.conns {
		all = append(all, c)
	}
	return all
}

// start takes a place among what Close waits for; false when the router is stopping.
func (r *Router) start() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return false
	}
	r.running.Add(1)
	return true
}

// enter lists a connection, which Close then closes, and waits for; false when the router is stopping.
func (r *Router) enter(c *conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return false
	}
	r.running.Add(1)
	r.open[c] = struct{}{}
	return true
}

// exit is the last that a connection does.
func (r *Router) exit(c *conn) {
	r.mu.Lock()
	delete(r.open, c)
	r.mu.Unlock()
	r.running.Done()
}

// now is the router's clock: Unix nanoseconds that go on evenly from when it was made.
func (r *Router) now() int64 { return r.began.UnixNano() + int64(time.Since(r.began)) }

// keyOf gives a component's name as it stands in addresses and origins.
func keyOf(name string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}
