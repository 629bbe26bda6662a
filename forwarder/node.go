package forwarder

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// The limits of a hop's line where the options give none.
const (
	DefaultSoftQueue      = 800
	DefaultSoftQueueBytes = 16 << 20
	DefaultHardQueue      = 5000
	DefaultHardQueueBytes = 64 << 20
)

// Options of a node. The zero value is usable.
type Options struct {
	Name string // container id; empty: "fingerpost-" and a part of the node id
	ID   string // node id, 16 hexadecimal digits; empty: a random one

	LinkCredit      int           // messages a sender may have in flight on a link; 0 is 1000
	LinkBytes       int           // the same in bytes, by the mean size of the link's messages; 0 is 64 MiB
	SoftQueue       int           // messages in a hop's line from which links with that target get no more credit; 0 is 800
	SoftQueueBytes  int           // the same in bytes; 0 is 16 MiB
	HardQueue       int           // messages in a hop's line beyond which what does not count is dropped; 0 is 5000
	HardQueueBytes  int           // the same in bytes; 0 is 64 MiB
	DeliveryTimeout time.Duration // for copies not yet sent; 0 is 30 s
	FanOutTimeout   time.Duration // for a copy with its receiver, where it is not the only one; 0 is 5 minutes
	StalledAfter    time.Duration // a copy of a large message is ended when its receiver takes nothing of it for so long; 0 is 5 s
	ReturnEvery     time.Duration // how often a hop that another place stands in for is looked for in its own; 0 is 15 s
	IdleLink        time.Duration // how long the link to a hop's target is kept without traffic; 0 is a minute
	MaxFrame        uint32        // bytes; 0 is 64 KiB
	MaxMessage      uint64        // bytes; 0 is no limit: a large message cuts through
	Version         string        // told to peers
	Access          Access        // who may come in; SetAccess changes it
	Hops            Hops          // how hops are dialled; SetHops changes it

	Log *slog.Logger // nil: no log
}

func (o Options) withDefaults() Options {
	if o.LinkCredit == 0 {
		o.LinkCredit = 1000
	}
	if o.LinkBytes == 0 {
		o.LinkBytes = 64 << 20
	}
	if o.SoftQueue == 0 {
		o.SoftQueue = DefaultSoftQueue
	}
	if o.SoftQueueBytes == 0 {
		o.SoftQueueBytes = DefaultSoftQueueBytes
	}
	if o.FanOutTimeout == 0 {
		o.FanOutTimeout = 5 * time.Minute
	}
	if o.HardQueue == 0 {
		o.HardQueue = DefaultHardQueue
	}
	if o.HardQueueBytes == 0 {
		o.HardQueueBytes = DefaultHardQueueBytes
	}
	if o.DeliveryTimeout == 0 {
		o.DeliveryTimeout = 30 * time.Second
	}
	if o.StalledAfter == 0 {
		o.StalledAfter = 5 * time.Second
	}
	if o.ReturnEvery == 0 {
		o.ReturnEvery = 15 * time.Second
	}
	if o.IdleLink == 0 {
		o.IdleLink = time.Minute // a wildcard row can name a great many targets
	}
	if o.ID == "" {
		o.ID = NewID()
	}
	if o.Name == "" {
		o.Name = "fingerpost-" + o.ID[:8]
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// nodeIDProperty is the open property by which nodes know each other.
const nodeIDProperty = "fingerpost-node-id"

// capAnonymous is the capability of a peer that takes messages for any address on a link without one.
const capAnonymous = wire.Symbol("ANONYMOUS-RELAY")

// Node is a router: listeners, the links of their clients, and the lines to the hops that the table names.
type Node struct {
	options Options
	name    string
	id      string
	log     *slog.Logger
	table   *routetable.Table
	core    *admin.Core
	self    *conn // the inlet of the node's own messages
	door    *door
	nextID  atomic.Uint64
	count   counters
	rows    rowCounts
	shared  sharedPlans
	stamps  atomic.Uint64 // messages that were sent to neighbours first from here
	repeats repeats
	pruned  atomic.Uint64 // times that peers were given up: plans that point to their lines are made anew

	alarms  alarms
	replies replies

	doorPlan *plan

	access  atomic.Pointer[access]
	hops    atomic.Pointer[hops]
	guard   *amqp.Guard  // against guessed passwords
	sockets atomic.Int64 // of clients, with those that have not opened yet
	hosts   hosts

	// changedSince is routetable.Snapshot.ChangedSince; tests put another in its place.
	changedSince func(s *routetable.Snapshot, generation uint64, name string) bool

	draining atomic.Bool       // no more credit is given
	schemes  map[string]Scheme // outlets of other packages, by scheme
	changed  chan struct{}     // the table has changed
	turn     chan struct{}     // there are turns
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu        sync.Mutex // guards what follows; a leaf
	stopping  bool
	receivers map[uint64]*receiver // by id
	followers map[string]*follower // by who they are
	turns     []func()
	peers     map[string]*peer
	active    []*line            // of receivers: all that have copies, and some that had
	lines     map[*line]struct{} // of peers
	limited   map[*inlink]struct{}
	held      map[*inlink]struct{} // without credit for want of room
	listeners []*amqp.Listener
	streams   map[*stream]struct{}
	conns     map[uint64]*conn     // open, by id
	hopCounts map[string]*hopCount // by name
	otherHops hopCount

	lost    lostTally
	lacking missedTally
}

// New makes a node on a table whose commands go through core. Stop ends it.
func New(core *admin.Core, o Options) *Node {
	o = o.withDefaults()
	n := &Node{
		options: o, name: o.Name, id: o.ID, log: o.Log, table: core.Table(), core: core,
		changed: make(chan struct{}, 1), turn: make(chan struct{}, 1), schemes: map[string]Scheme{},
		receivers: map[uint64]*receiver{}, followers: map[string]*follower{}, peers: map[string]*peer{}, lines: map[*line]struct{}{},
		limited: map[*inlink]struct{}{}, held: map[*inlink]struct{}{}, streams: map[*stream]struct{}{},
		conns: map[uint64]*conn{}, hopCounts: map[string]*hopCount{}, otherHops: hopCount{name: otherSeries},
		rows: rowCounts{of: map[uint64]*rowCount{}}, changedSince: (*routetable.Snapshot).ChangedSince,
	}
	n.stamps.Store(firstStamp())
	n.guard = amqp.NewGuard()
	n.replies.init()
	n.access.Store(newAccess(o.Access))
	n.hops.Store(newHops(o.Hops))
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.alarms.sooner = make(chan struct{}, 1)
	n.self = &conn{n: n}
	n.door = newDoor(n)
	n.doorPlan = doorPlanOf(n.door)
	unwatch := n.table.OnChange(func(c routetable.Change) {
		n.rows.forget(c.Removed)
		n.rows.rename(c.Updated)
		n.poke()
	})
	n.running.Add(2)
	go func() { defer n.running.Done(); n.door.serve() }()
	go func() { defer n.running.Done(); defer unwatch(); n.loop() }()
	return n
}

// ID is the node's id, 16 hexadecimal digits.
func (n *Node) ID() string { return n.id }

// Name is the node's container id.
func (n *Node) Name() string { return n.name }

// peerCount is the number of peers that the node keeps.
func (n *Node) peerCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.peers)
}

func (n *Node) engineConfig() engine.Config {
	return engine.Config{
		ContainerID: n.name, MaxFrameSize: n.options.MaxFrame, MaxMessageSize: n.options.MaxMessage,
		OfferedCapabilities: []wire.Symbol{capAnonymous},
		Properties: wire.Map{
			{Key: wire.Symbol("product"), Value: "fingerpost"},
			{Key: wire.Symbol("version"), Value: n.options.Version},
			{Key: wire.Symbol(nodeIDProperty), Value: n.id},
		},
	}
}

func isLoopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

// start takes a place in the list of goroutines that Stop waits for; false when the node is stopping.
func (n *Node) start() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopping {
		return false
	}
	n.running.Add(1)
	return true
}

// StopListening takes no more connections; those that are there live on until Stop.
func (n *Node) StopListening() {
	n.mu.Lock()
	listeners := n.listeners
	n.mu.Unlock()
	for _, l := range listeners {
		l.Stop()
	}
}

// Stop takes no more connections, waits until what is in flight is settled or ctx ends, and closes everything.
func (n *Node) Stop(ctx context.Context) {
	n.mu.Lock()
	n.stopping = true
	listeners := n.listeners
	n.mu.Unlock()
	for _, l := range listeners {
		l.Stop()
	}
	n.draining.Store(true)
	n.drain(ctx)
	closing, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	var closed sync.WaitGroup // all at once: a mute client of each is waited for
	for _, l := range listeners {
		closed.Go(func() { l.Close(closing) })
	}
	closed.Wait()
	n.cancel()
	n.running.Wait()
}

// drain waits for the lines to be empty.
func (n *Node) drain(ctx context.Context) {
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for n.inFlight() > 0 {
		select {
		case <-t.C:
		case <-ctx.Done():
			n.log.Warn("the grace is over with messages in flight: their senders are told no outcome", "copies", n.inFlight())
			return
		}
	}
}

func (n *Node) inFlight() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	total := n.door.Busy()
	for ln := range n.lines {
		total += ln.Busy()
	}
	for _, ln := range n.active {
		total += ln.Busy()
	}
	return total
}

// loop is the node's clock: timeouts, links that wait for a row, peers to be closed. It does what has its turn, too.
func (n *Node) loop() {
	t := time.NewTicker(250 * time.Millisecond)
	defer t.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	changed := n.changed
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.alarms.sooner:
			n.ring(alarm)
			continue
		case <-alarm.C:
			n.ring(alarm)
			continue
		case <-n.turn:
			n.takeTurns()
			continue
		case <-rest.C:
			changed = n.changed
			continue
		case <-changed:
		case <-t.C:
			n.tick(now())
		}
		began := time.Now()
		if n.recheckLimited(began.UnixNano()) == 0 {
			continue
		}
		// However fast the table changes and however many links wait, looking at them takes a fifth of the time.
		changed = nil
		rest.Reset(min(4*time.Since(began), maxRest))
	}
}

// ring calls the lines whose alarm is due, and sets the timer to the next.
func (n *Node) ring(t *time.Timer) {
	at := now()
	for _, ln := range n.alarms.due(at) {
		ln.alarm(at)
	}
	if next := n.alarms.next(); next != 0 {
		t.Reset(time.Duration(max(next-now(), 0)))
	}
}

// maxRest is how long a link that waits for a row may be left alone after a change because others were looked at before.
const maxRest = 100 * time.Millisecond

// poke has the loop look at the waiting messages.
func (n *Node) poke() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

func (n *Node) tick(at int64) {
	n.mu.Lock()
	n.active = slices.DeleteFunc(n.active, (*line).unlist)
	lines := make([]*line, 0, len(n.lines)+len(n.active))
	for ln := range n.lines {
		lines = append(lines, ln)
	}
	lines = append(lines, n.active...)
	peers := make([]*peer, 0, len(n.peers))
	for _, p := range n.peers {
		peers = append(peers, p)
	}
	n.mu.Unlock()
	for _, ln := range lines {
		ln.check(at)
	}
	n.checkStreams(at)
	n.recheckHeld()
	n.replies.sweep(at)
	for _, p := range peers {
		p.tick(at)
	}
	n.rows.sweep(n.table)
	n.tellMissed()
	n.shared.sweep(n, at)
}

// list has the clock look at a receiver's line. Called when the line has got its first copy for long.
func (n *Node) list(ln *line) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !ln.listed.Swap(true) {
		n.active = append(n.active, ln)
	}
}

// unlist takes the mark off a line that has no copies; false where it has. One that gets a copy meanwhile is seen here, or finds the mark
// gone. Called under Node.mu.
func (ln *line) unlist() bool {
	if ln.busy.Load() > 0 {
		return false
	}
	ln.listed.Store(false)
	if ln.busy.Load() > 0 {
		ln.listed.Store(true)
		return false
	}
	return true
}

// watchLimited has a link looked at when the table changes. Called under the lock of its connection.
func (n *Node) watchLimited(l *inlink) {
	l.watched = true
	n.mu.Lock()
	n.limited[l] = struct{}{}
	n.mu.Unlock()
}

// recheckLimited looks at all links that wait, and returns how many there are.
func (n *Node) recheckLimited(at int64) int {
	n.mu.Lock()
	links := make([]*inlink, 0, len(n.limited))
	for l := range n.limited {
		links = append(links, l)
	}
	n.mu.Unlock()
	for _, l := range links {
		l.recheck(at)
	}
	return len(links)
}

// unwatch ends that. Called under the lock of the link's connection.
func (n *Node) unwatch(l *inlink) {
	l.watched = false
	n.mu.Lock()
	delete(n.limited, l)
	n.mu.Unlock()
}

func (n *Node) addLine(ln *line) {
	n.mu.Lock()
	n.lines[ln] = struct{}{}
	n.mu.Unlock()
}

func (n *Node) removeLine(ln *line) {
	n.mu.Lock()
	delete(n.lines, ln)
	n.mu.Unlock()
}

// receiver gives the receiver of a link: hop by its name; nil where there is none.
func (n *Node) receiver(name string) *receiver {
	id, err := strconv.ParseUint(name, 10, 64)
	if err != nil || name[0] == '0' {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.receivers[id]
}

// newReplyAddress makes a name for a dynamic source.
func (n *Node) newReplyAddress() string { return replyPrefix + n.id + "/" + randomID(12) }

// NewID makes a node id: 64 random bits.
func NewID() string { return randomID(8) }

func randomID(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b)
	return hex.EncodeToString(b)
}
