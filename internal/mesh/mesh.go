package mesh

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// Options of a Mesh. The zero value is usable.
type Options struct {
	Name    string // of this router, what the method rid answers; empty: that of the node
	Version string // what the method version answers, with "fingerpost_" before it

	EID uint64 // marks commands that were seen, 2^32 or more; 0: drawn by lot

	Policy        string            // how one of several exposers is chosen: first_up (empty), round_robin, less_busy
	Admins        []string          // names that may give privileged commands; nil: boss
	Tenants       map[string]string // pins by tenant ("." for names without one): with it a name may be registered
	Server        bool              // it relays nothing between peers: they reach what is here by other wires, and that reaches them (relay_rule)
	Authenticated bool              // nobody is taken who has not proven a name
	Overwrite     bool              // a second connection of a name ends the first; else it is refused
	AllowShutdown bool              // shutdown ends the process; else the listeners of the mesh alone
	Shutdown      func()            // ends the process
	Debug         func(on bool)     // sets the level of the log; nil: it stays

	// People reads admins and tenants as they are configured now; nil: they stay.
	People func() (admins []string, tenants map[string]string, err error)

	Keys   string            // directory of public keys and secrets; empty: those that are registered are kept in memory
	Acks   string            // directory that keeps what is not acknowledged; empty: it is forgotten with the router
	Rest   string            // directory that keeps what is published; empty: memory
	Grants *routetable.Table // who may use private topics; nil: a table in memory

	Retention      time.Duration // how long publishes are kept for components that come later; 0 is 24 h, negative not at all
	RetentionBytes int           // and how many bytes of them at most; 0 is 256 MiB. In memory at most 16 MiB

	AckTimeout       time.Duration // for an ack of a publish; 0 is 2 s
	SendRetries      int           // how often one is sent again; 0 is 10, -1 never
	RequestTimeout   time.Duration // for the answer of a method; 0 is 20 s
	ChallengeTimeout time.Duration // for the answer of a challenge; 0 is 3 s
	PingEvery        time.Duration // over WebSocket; 0 is 30 s

	Connections int // of peers; 0 is 10000

	MaxMessage int // bytes; 0 is 16 MiB less 16 KiB, which is the most
	HardQueue  int // bytes that may wait for one peer; 0 is 16 MiB
	HardCount  int // publishes that may wait for one peer's acks; 0 is 5000

	Origins []string // web pages that may connect; see websocket.Gate

	Log *slog.Logger // nil: no log
}

// maxMessage is a little less than what an inlet takes, for the envelope.
const maxMessage = 16<<20 - 16<<10

func (o Options) withDefaults(n *forwarder.Node) Options {
	o.Name = cmp.Or(o.Name, n.Name())
	o.Version = cmp.Or(o.Version, "devel")
	o.AckTimeout = cmp.Or(o.AckTimeout, 2*time.Second)
	o.SendRetries = max(cmp.Or(o.SendRetries, 10), 0)
	o.RequestTimeout = cmp.Or(o.RequestTimeout, 20*time.Second)
	o.ChallengeTimeout = cmp.Or(o.ChallengeTimeout, 3*time.Second)
	o.PingEvery = cmp.Or(o.PingEvery, 30*time.Second)
	o.MaxMessage = min(cmp.Or(o.MaxMessage, maxMessage), maxMessage)
	o.Connections = cmp.Or(o.Connections, 10_000)
	o.Retention = cmp.Or(o.Retention, 24*time.Hour)
	if o.RetentionBytes = cmp.Or(o.RetentionBytes, 256<<20); o.Rest == "" {
		o.RetentionBytes = min(o.RetentionBytes, 16<<20)
	}
	o.HardQueue = cmp.Or(o.HardQueue, 16<<20)
	o.HardCount = cmp.Or(o.HardCount, 5000)
	if o.Grants == nil {
		o.Grants = routetable.New()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Mesh is this router as Rembus sees it.
type Mesh struct {
	// Set at construction, never changed.
	o       Options
	node    *forwarder.Node
	core    *admin.Core
	table   *routetable.Table
	grants  *admin.Core // of the second table
	keys    *keyring
	rest    *rest  // nil: nothing is kept
	eid     uint64 // what this router marks commands with that it has seen
	mark    uint64 // what routers of our kind know it by, in this life
	started time.Time
	account *admin.Account
	names   names
	kin     *kin
	unwatch func() // ends the feed of names

	admins   atomic.Pointer[map[string]bool] // names; the map is not changed
	private  atomic.Bool                     // some topic is
	kinCount atomic.Int32                    // links to routers of our kind
	count    counters

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex // guards what follows
	twins     map[string]*twin
	links     map[*link]struct{}
	busy      map[*twin]struct{} // that the clock has to look at
	listeners []*listener
	tenants   map[string]string
	peers     map[string]bool                  // names of routers that we connect to
	doors     map[doorKey]*forwarder.Neighbour // that are to connect for AMQP
	stopping  bool

	own      *twin            // this router, as who answers for others than peers
	ownRow   sync.Once        // its row is there
	copiesMu sync.Mutex       // guards what follows
	copies   *forwarder.Inlet // of requests that others than peers have answered
	copyOf   source           // of copies

	seenMu sync.Mutex // guards what follows
	seen   recent     // commands that were flooded

	passedMu sync.Mutex // guards what follows
	passed   recent     // publishes of other routers
}

// counters are told by Counters.
type counters struct {
	published, requests, refused, badFrames, gaveUp, dropped, flooded, floodedTwice, replayed, behind atomic.Uint64
}

// New makes the mesh of a node. It handles the node's peer: hops from now on; Stop ends it.
func New(node *forwarder.Node, core *admin.Core, o Options) *Mesh {
	m := &Mesh{
		o: o.withDefaults(node), node: node, core: core, table: core.Table(), eid: cmp.Or(o.EID, newEID()), mark: newEID(), started: time.Now(),
		twins: map[string]*twin{}, links: map[*link]struct{}{}, busy: map[*twin]struct{}{}, peers: map[string]bool{}, doors: map[doorKey]*forwarder.Neighbour{},
	}
	schemes, err := admin.NewGrants([]string{"topic:*", "rpc:*", "node:*"})
	if err != nil {
		panic(err)
	}
	m.account = &admin.Account{Name: "mesh", Send: schemes}
	m.grants = admin.New(m.o.Grants, admin.Options{})
	m.keys = newKeyring(m.o.Keys)
	if m.o.Retention > 0 {
		m.rest = openRest(m.o.Rest, m.o.Retention, m.o.RetentionBytes, m.o.Log)
		m.rest.salt, _ = strconv.ParseUint(node.ID(), 16, 64)
	}
	cleanMarks(m.o.Acks, time.Unix(0, m.oldest()))
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.private.Store(m.o.Grants.Snapshot().Len() > 0)
	m.SetPeople(m.o.Admins, m.o.Tenants)
	m.kin = newKin(m)
	m.kin.keeps()
	m.o.Grants.OnChange(func(routetable.Change) {
		m.private.Store(m.o.Grants.Snapshot().Len() > 0)
		m.kin.regrant()
	})
	m.kin.clean()
	m.repick()
	m.own = newTwin(m, ownName)
	m.copies = m.inlet(&m.copyOf, true)
	m.names.wake, m.names.here = m.kin.wake, m.o.Server
	m.unwatch = m.names.watch(m.table)
	node.Handle("peer", m)
	m.running.Go(m.clock)
	m.running.Go(m.kin.run)
	return m
}

// SetPeople says who may give privileged commands from now on (nil: boss), and the pins by tenant with which names may be registered.
func (m *Mesh) SetPeople(admins []string, tenants map[string]string) {
	if admins == nil {
		admins = []string{"boss"}
	}
	set := map[string]bool{}
	for _, name := range admins {
		set[name] = true
	}
	m.admins.Store(&set)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tenants = tenants
}

// newEID draws the mark of a router. Its top bit is set: Rembus.jl wants marks of eight bytes (rembus.md, 6.2).
func newEID() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:]) | 1<<63
}

// newID makes an id of eight random bytes.
func newID() ID {
	var id ID
	id.n = 8
	rand.Read(id.b[:8])
	return id
}

// Counters are what the mesh counts, by name.
func (m *Mesh) Counters() map[string]uint64 {
	c := &m.count
	all := map[string]uint64{
		"meshPublished": c.published.Load(), "meshRequests": c.requests.Load(), "meshRefused": c.refused.Load(), "meshBadFrames": c.badFrames.Load(),
		"meshGaveUp": c.gaveUp.Load(), "meshDropped": c.dropped.Load(), "meshFlooded": c.flooded.Load(), "meshFloodedTwice": c.floodedTwice.Load(),
		"meshReplayed": c.replayed.Load(), "meshBehind": c.behind.Load(),
	}
	if m.rest != nil {
		m.rest.counters(all)
	}
	return all
}

// Peer is a component or router of Rembus, for people.
type Peer struct {
	Name      string
	Hop       string // as rows name it
	Router    bool
	Connected bool
	Remote    string // its address; empty: it is away
	Waiting   int    // publishes that it has not got, or not acknowledged
	Asked     int    // requests that it has not answered
}

// Peers gives those that are connected, and those that are away and have something coming, by name; at most so many.
func (m *Mesh) Peers(most int) []Peer {
	m.mu.Lock()
	twins := slices.Collect(maps.Values(m.twins))
	m.mu.Unlock()
	slices.SortFunc(twins, func(a, b *twin) int { return strings.Compare(a.name, b.name) })
	var all []Peer
	for _, t := range twins {
		if p := t.state(); len(all) < most && (p.Connected || p.Waiting > 0) {
			all = append(all, p)
		}
	}
	return all
}

func (t *twin) state() Peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := Peer{Name: t.name, Hop: hopOf(t.name), Router: t.relays.Load(), Connected: t.link != nil, Waiting: len(t.out.waiting), Asked: int(t.outstanding.Load())}
	if t.link != nil {
		p.Remote = t.link.from
	}
	return p
}

// oldest is the stamp before which nothing is kept.
func (m *Mesh) oldest() int64 {
	if m.rest == nil {
		return time.Now().UnixNano()
	}
	return time.Now().Add(-m.o.Retention).UnixNano()
}

// caller is who commands of the mesh come from.
func (m *Mesh) caller(from string) admin.Caller { return admin.Caller{User: from, Via: "mesh"} }

// twinOf gives the twin of a name, nil where there is none.
func (m *Mesh) twinOf(name string) *twin {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.twins[name]
}

// known gives the twin of a name; one that keeps what it has is made where it is not here, as after a restart.
func (m *Mesh) known(name string) *twin {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.twins[name]; t != nil || !isNamed(name) || badName(name) != "" {
		return t
	}
	t := newTwin(m, name)
	m.loadAcks(t)
	m.twins[name] = t
	return t
}

// clock looks at what has waited long enough: publishes without an ack, requests without an answer.
func (m *Mesh) clock() {
	every := max(min(m.o.AckTimeout, m.o.RequestTimeout)/8, time.Millisecond)
	t := time.NewTicker(min(every, 250*time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case now := <-t.C:
			if m.rest != nil {
				m.rest.sweep(now)
			}
			for _, tw := range m.busyTwins() {
				if !tw.tick(now) {
					m.idle(tw)
				}
			}
		}
	}
}

func (m *Mesh) busyTwins() []*twin {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]*twin, 0, len(m.busy))
	for t := range m.busy {
		list = append(list, t)
	}
	return list
}

// wake has the clock look at a twin. Called without its lock.
func (m *Mesh) wake(t *twin) {
	m.mu.Lock()
	m.busy[t] = struct{}{}
	m.mu.Unlock()
}

// idle has the clock leave a twin alone, unless it has something to wait for by now.
func (m *Mesh) idle(t *twin) {
	m.mu.Lock()
	delete(m.busy, t)
	m.mu.Unlock()
	if t.waits() {
		m.wake(t)
	}
}

// Stop ends the listeners and every connection, and waits for them.
func (m *Mesh) Stop(ctx context.Context) {
	m.stopListening()
	m.mu.Lock()
	m.stopping = true
	links := make([]*link, 0, len(m.links))
	for l := range m.links {
		links = append(links, l)
	}
	m.mu.Unlock()
	m.cancel()
	m.unwatch()
	for _, l := range links {
		l.t.close(goingAway, "the router is going away")
	}
	over := make(chan struct{})
	go func() { m.running.Wait(); close(over) }()
	select {
	case <-over:
	case <-ctx.Done():
		for _, l := range links {
			l.t.Abort(ctx.Err())
		}
		<-over
	}
	m.release()
}

// release gives back the copies that wait for peers.
func (m *Mesh) release() {
	m.mu.Lock()
	twins := make([]*twin, 0, len(m.twins))
	for _, t := range m.twins {
		twins = append(twins, t)
	}
	m.mu.Unlock()
	for _, t := range twins {
		m.saveAcks(t)
		t.giveUp()
	}
	if m.rest != nil {
		m.rest.close()
	}
}

// stopListening ends the listeners; connections live on.
func (m *Mesh) stopListening() {
	m.mu.Lock()
	listeners := slices.Clone(m.listeners)
	m.mu.Unlock()
	for _, l := range listeners {
		l.stop()
	}
}

var accepted = forwarder.Outcome{Kind: wire.Accepted}
