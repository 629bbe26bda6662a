package relay

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/websocket"
	"github.com/fingerpost/fingerpost/routetable"
)

// Options of a broker. The zero value is usable.
type Options struct {
	Busy        time.Duration // until an op that was not taken fails; 0 is 30 s
	MaxData     int           // bytes of data in an op; 0 is 1 MiB
	MaxMessage  int           // bytes of a message; 0 is 16 MiB
	Connections int           // at most; 0 is 20,000
	PingEvery   time.Duration // silence before a peer is asked whether it is there; 0 is 30 s. One that says nothing for twice as long more is closed
	Origins     []string      // web pages that may connect: see websocket.Gate

	Log *slog.Logger // nil: no log

	received func([]byte) // of tests: called with each message
}

func (o Options) withDefaults() Options {
	if o.Busy == 0 {
		o.Busy = 30 * time.Second
	}
	if o.MaxData == 0 {
		o.MaxData = 1 << 20
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = 16 << 20
	}
	if o.Connections == 0 {
		o.Connections = 20_000
	}
	if o.PingEvery == 0 {
		o.PingEvery = 30 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Broker is the relay: an http.Handler that takes connections, and what they have in common.
type Broker struct {
	// Set at construction, never changed.
	core   *admin.Core
	table  *routetable.Table
	o      Options
	log    *slog.Logger
	mint   *mint
	prefix string // of the names of connections: a name of another process is none here
	roles  *roles
	cancel context.CancelFunc

	keys   atomic.Pointer[Keys]   // nil: there are none
	bridge atomic.Pointer[bridge] // nil: there is none
	now    atomic.Int64           // the clock: Unix nanoseconds, at the last tick
	stats  stats
	serial atomic.Uint64

	aliased atomic.Bool // a topic has led to another once: a change of one topic's rows may be one of others' roles

	running sync.WaitGroup // the broker's own goroutines
	reading sync.WaitGroup // connections

	mu       sync.RWMutex // guards what follows; a leaf
	conns    map[uint64]*Conn
	lateList []*Conn // whose lines have ops that the socket did not take
	stopping bool
}

// New makes a broker on the table behind core. Stop ends it.
func New(core *admin.Core, o Options) *Broker {
	o = o.withDefaults()
	b := &Broker{core: core, table: core.Table(), o: o, log: o.Log, mint: newMint(), conns: map[uint64]*Conn{}}
	var tag [3]byte
	rand.Read(tag[:])
	b.prefix = hex.EncodeToString(tag[:]) + "-"
	b.now.Store(time.Now().UnixNano())
	b.roles = newRoles(b)
	var ctx context.Context
	ctx, b.cancel = context.WithCancel(context.Background())
	unwatch := b.table.OnChange(b.roles.note)
	b.running.Go(func() { defer unwatch(); b.roles.run(ctx) })
	b.running.Go(func() { b.clock(ctx) })
	return b
}

// clock looks at the ops that wait, and tells the time.
func (b *Broker) clock(ctx context.Context) {
	t := time.NewTicker(max(min(250*time.Millisecond, b.o.Busy/8), time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			b.now.Store(now.UnixNano())
			b.expire(now.Add(-b.o.Busy).UnixNano())
			if x := b.bridge.Load(); x != nil {
				x.forget(now.Add(-maxReplyWait))
			}
		}
	}
}

// watch has the clock look at a connection.
func (b *Broker) watch(c *Conn) {
	b.mu.Lock()
	b.lateList = append(b.lateList, c)
	b.mu.Unlock()
}

func (b *Broker) expire(before int64) {
	b.mu.Lock()
	list := b.lateList
	b.lateList = nil
	b.mu.Unlock()
	list = slices.DeleteFunc(list, func(c *Conn) bool { return !c.expire(before) })
	b.mu.Lock()
	b.lateList = append(b.lateList, list...)
	b.mu.Unlock()
}

// dropFrom has a sender that has ended forgotten where ops wait.
func (b *Broker) dropFrom(from *Conn) {
	if from.pending.Load() == 0 {
		return
	}
	b.mu.RLock()
	list := slices.Clone(b.lateList)
	b.mu.RUnlock()
	for _, c := range list {
		c.dropFrom(from)
	}
}

// SetKeys puts keys in force: nil is none. Who has no key any more is closed with 1008, and rows of topics that a key may not serve any
// more are withdrawn; what it may ask counts from the next op on.
func (b *Broker) SetKeys(k *Keys) {
	b.keys.Store(k)
	for _, c := range b.all() {
		key := k.of(c)
		if key == nil {
			c.close(websocket.BadPolicy, "the key is no longer good")
			continue
		}
		c.withdrawUnserved(key)
	}
}

// withdrawUnserved takes the rows of topics that a key may not serve.
func (c *Conn) withdrawUnserved(key *Key) {
	for _, address := range c.topics() {
		if key.serve.has(address[len("relay:")+len(c.domain)+1:]) {
			continue
		}
		pattern, _ := routetable.QuotePattern(address)
		if _, err := c.b.core.Do(c.caller, admin.Unsubscribe{Origin: c.origin, Pattern: pattern, Address: c.address}); err != nil {
			c.b.log.Error("a row could not be withdrawn", "origin", c.origin, "error", err)
		}
	}
}

// ServeHTTP takes a connection: GET /api/{domain}/relay/connect?token=….
func (b *Broker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	domain := r.PathValue("domain")
	key, status, text := b.admit(domain, r.URL.Query().Get("token"))
	if status != 0 {
		b.stats.refused.Add(1)
		http.Error(w, text, status)
		return
	}
	nc, already := websocket.Gate{Origins: b.o.Origins, Speaks: "the relay"}.Upgrade(w, r)
	if nc == nil {
		b.stats.refused.Add(1)
		return
	}
	b.start(nc, already, key, r.TLS != nil)
}

// admit finds the key of a connection, or tells why it may not come in.
func (b *Broker) admit(domain, token string) (key *Key, status int, text string) {
	keys := b.keys.Load()
	if keys == nil {
		return nil, http.StatusNotFound, "there is no relay here: configure relay: {keys: FILE}, or start the router with --relay-keys FILE"
	}
	switch key = keys.find(token); {
	case key == nil:
		return nil, http.StatusUnauthorized, "no such token: ?token=…"
	case !keys.domains[domain]:
		return nil, http.StatusNotFound, "no such domain"
	case !key.Relay:
		return nil, http.StatusForbidden, "the key has no claim to the relay"
	case key.Domain != domain:
		return nil, http.StatusForbidden, "the key is of another domain"
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.stopping || len(b.conns) >= b.o.Connections {
		return nil, http.StatusServiceUnavailable, "too many connections, or none any more: come again"
	}
	return key, 0, ""
}

// start makes a connection and has it read, by a goroutine that Stop waits for.
func (b *Broker) start(nc net.Conn, already []byte, key *Key, secure bool) {
	c := b.newConn(nc, already, key, secure)
	if c == nil {
		return
	}
	b.stats.connects.Add(1)
	b.log.Info("relay connection", "connection", c.name(), "key", c.key, "domain", c.domain, "remote", c.remote)
	go func() {
		defer b.reading.Done()
		c.run()
	}()
	if b.keys.Load().of(c) == nil { // the keys have changed since
		c.close(websocket.BadPolicy, "the key is no longer good")
	}
}

// newConn makes a connection that others find, and that Stop waits for; nil where the broker is stopping.
func (b *Broker) newConn(nc net.Conn, already []byte, key *Key, secure bool) *Conn {
	c := &Conn{
		b: b, serial: b.serial.Add(1), domain: key.Domain, key: key.Name, hash: key.hash, remote: nc.RemoteAddr().String(), secure: secure,
		since: time.Now(), room: make(chan struct{}, 1), toldGeneration: 1,
	}
	name := b.prefix + strconv.FormatUint(c.serial, 10)
	c.address, c.origin = "relay-conn:"+name, "relay:"+name
	c.caller = admin.Caller{Remote: c.remote, Via: "relay"}
	c.line.layered = secure
	c.ws = websocket.New(nc, already, false, websocket.Options{
		MaxMessage: b.o.MaxMessage, PingEvery: b.o.PingEvery, PongWait: 2 * b.o.PingEvery, Mutex: &c.mu, Line: c, Release: c.release, Aborted: c.aborted,
	})
	b.mu.Lock()
	if b.stopping {
		b.mu.Unlock()
		c.ws.End(websocket.GoingAway, "")
		return nil
	}
	b.conns[c.serial] = c
	b.reading.Add(1)
	b.mu.Unlock()
	return c
}

func (b *Broker) remove(c *Conn) {
	b.mu.Lock()
	delete(b.conns, c.serial)
	b.mu.Unlock()
}

// numbered gives a connection by its number; nil where it has ended.
func (b *Broker) numbered(serial uint64) *Conn {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if c := b.conns[serial]; c != nil {
		return c
	}
	if x := b.bridge.Load(); x != nil {
		return x.numbered(serial)
	}
	return nil
}

// named gives a connection by the name that rows have for it.
func (b *Broker) named(name string) *Conn {
	text, ok := strings.CutPrefix(name, b.prefix)
	serial, err := strconv.ParseUint(text, 10, 64)
	if !ok || err != nil || text[0] == '0' || text[0] == '+' {
		return nil
	}
	return b.numbered(serial)
}

// all gives the connections in the order in which they came.
func (b *Broker) all() []*Conn {
	b.mu.RLock()
	list := make([]*Conn, 0, len(b.conns))
	for _, c := range b.conns {
		list = append(list, c)
	}
	b.mu.RUnlock()
	slices.SortFunc(list, func(x, y *Conn) int { return int(int64(x.serial) - int64(y.serial)) })
	return list
}

// Stop closes all connections, gives their peers until ctx ends to say goodbye, and waits for them.
func (b *Broker) Stop(ctx context.Context) {
	b.mu.Lock()
	b.stopping = true
	b.mu.Unlock()
	for _, c := range b.all() {
		c.close(websocket.GoingAway, "the router stops")
	}
	over := make(chan struct{})
	go func() { b.reading.Wait(); close(over) }()
	select {
	case <-over:
	case <-ctx.Done():
		for _, c := range b.all() {
			c.ws.Abort(ctx.Err())
		}
		<-over
	}
	b.cancel()
	b.running.Wait()
}

// Connection is a connection that is open, for people.
type Connection struct {
	Name     string
	Key      string
	Domain   string
	Remote   string
	Secure   bool
	Since    time.Time
	Topics   int // that it serves
	Pending  int // ops of its own without an answer
	Waiting  int // ops of others that its socket has not taken
	Received uint64
	Sent     uint64 // ops
}

// Connections gives the connections that are open, oldest first.
func (b *Broker) Connections() []Connection {
	var list []Connection
	for _, c := range b.all() {
		c.mu.Lock()
		list = append(list, Connection{
			Name: c.name(), Key: c.key, Domain: c.domain, Remote: c.remote, Secure: c.secure, Since: c.since, Topics: c.served,
			Pending: int(max(c.pending.Load(), 0)), Waiting: len(c.line.ops) - c.line.first, Received: c.receivedOps.Load(), Sent: c.sent,
		})
		c.mu.Unlock()
	}
	return list
}

// CloseConnection closes a connection by its name, and reports whether there was one.
func (b *Broker) CloseConnection(name string) bool {
	c := b.named(name)
	if c != nil {
		c.close(websocket.GoingAway, "closed by an operator")
	}
	return c != nil
}
