package components

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/components/proto"
	"github.com/fingerpost/fingerpost/internal/nats"
	"github.com/fingerpost/fingerpost/routetable"
)

// Options of a broker. The zero value of each field but Objects works.
type Options struct {
	Objects       *Objects
	MaxEvent      int           // bytes of an event's content; 0 is 5 MiB
	TTL           time.Duration // of requests that come in; 0 is 60 s
	ExpiredStatus int           // of an HTTP request that was not answered within its ttl; 0 is 503
	Queue         int           // events in the line of one stream; 0 is 1000
	Verifiers     []Verifier    // how tokens that no identity of Objects lists are judged: the first that does not pass on decides
	NATS          *nats.Conn    // to other brokers; nil: there are none. It is not closed here
	Current       bool          // events go to other brokers by the subjects of today's brokers, which keep nothing; else by JetStream
	Between       proto.Dialect // of values on their way to other brokers; those that come may have either
	Hash          string        // of this build, for the broker's own name; empty is "fingerpost"
	Log           *slog.Logger  // nil: no log
	Now           func() time.Time
}

func (o Options) withDefaults() Options {
	if o.MaxEvent == 0 {
		o.MaxEvent = 5 << 20
	}
	if o.TTL == 0 {
		o.TTL = time.Minute
	}
	if o.ExpiredStatus == 0 {
		o.ExpiredStatus = 503
	}
	if o.Queue == 0 {
		o.Queue = 1000
	}
	if o.Hash == "" {
		o.Hash = "fingerpost"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Broker takes events of components and of HTTP requests, and brings each to the component whose route takes it.
type Broker struct {
	o    Options
	log  *slog.Logger
	node *forwarder.Node
	core *admin.Core
	id   proto.Component // the broker's own
	web  proto.Component // of the requests that come in here

	webKey string // its key

	inlets  sync.Pool // of *inlet
	finders sync.Pool // of *Finder
	tickets tickets
	waiting waiting
	later   later
	others  *others // nil: there are none
	streams streams
	count   counters
	hint    atomic.Int32 // the dialect that a stream spoke last
	guesses sync.Map     // dialects of groups whose streams have not shown theirs: as many as there are components

	now      atomic.Pointer[situation]
	contexts atomic.Pointer[map[contextKey]*pairing]
	registry registry

	turns          atomic.Uint64 // odd while rows change: see turn
	objectsChanged chan struct{} // to follow; holds one

	mu sync.Mutex // one change of objects, or of the rows of contexts, at a time; held while the table is edited

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	unwatch  func()     // ends noteChange
	starting sync.Mutex // guards closed, and that nothing starts behind it; a leaf
	closed   bool
}

// situation is the objects in force, and what is released by them. It is immutable.
type situation struct {
	file     *Objects
	held     map[string]string // objects that the table holds, by name
	objects  *Objects          // both
	left     map[string]error  // of held, what is not in objects, and why
	released *released
}

// pairing is a deployment in an environment that an event has named, with its rows in the table.
type pairing struct {
	*bound
	routes map[string]*boundRoute // by origin
	used   atomic.Int64           // Unix nanoseconds
}

// New makes a broker on a node, which does not listen yet. Close ends it.
func New(node *forwarder.Node, core *admin.Core, o Options) (*Broker, error) {
	o = o.withDefaults()
	b := &Broker{o: o, log: o.Log, node: node, core: core, later: later{wake: make(chan struct{}, 1)}}
	b.id = proto.Component{Type: typeBroker, Name: "broker", Hash: o.Hash, ID: randomID()}
	b.id.BrokerID = b.id.ID
	b.web = proto.Component{Type: typeHTTPAdapter, Name: "genesis", Hash: o.Hash, ID: randomID(), BrokerID: b.id.ID}
	b.webKey = b.web.Key()
	b.inlets.New = func() any { return b.newInlet(o.Queue) }
	b.finders.New = func() any { return NewFinder() }
	b.contexts.Store(&map[contextKey]*pairing{})
	b.now.Store(&situation{objects: &Objects{}, released: &released{}})
	b.objectsChanged = make(chan struct{}, 1)
	b.ctx, b.cancel = context.WithCancel(context.Background())
	node.Handle("grpc", &b.streams)
	if err := b.use(b.situation(o.Objects, core.Table().Snapshot().Objects())); err != nil {
		return nil, err
	}
	b.unwatch = core.Table().OnChange(b.noteChange)
	core.Register(objectEntity{b})
	b.start(b.follow)
	if o.NATS != nil {
		if err := b.joinNATS(o.NATS); err != nil {
			b.Close()
			return nil, err
		}
	}
	b.start(b.forget)
	b.start(b.goOn)
	return b, nil
}

// randomID is the id of a replica: ten characters.
func randomID() string { return strings.ToLower(rand.Text()[:10]) }

// start runs f in a goroutine that Close waits for; false says that the broker is closed.
func (b *Broker) start(f func()) bool {
	b.starting.Lock()
	defer b.starting.Unlock()
	if b.closed {
		return false
	}
	b.running.Go(f)
	return true
}

// Close ends all streams, and what is waiting for them. The listeners are closed by who made them.
func (b *Broker) Close() {
	b.starting.Lock()
	b.closed = true
	b.starting.Unlock()
	b.cancel()
	b.unwatch()
	b.streams.end(errShutdown)
	b.running.Wait()
}

// caller is who edits the table.
var caller = admin.Caller{Via: "components"}

// Use puts other objects of the file in force. Where one that an operator put does not go with them, nothing is changed.
func (b *Broker) Use(file *Objects) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now.Load()
	next := b.situation(file, now.held)
	for _, name := range heldOrder(now.held) {
		if err := next.left[name]; err != nil && now.left[name] == nil {
			return fmt.Errorf("%s, which an operator put, does not go with it: %w", name, err)
		}
	}
	return b.use(next)
}

// refresh makes the rows anew: components registered other routes.
func (b *Broker) refresh() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now.Load()
	return b.use(b.situation(now.file, now.held))
}

// follow puts the objects of the table in force when they are others: after a rollback.
func (b *Broker) follow() {
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-b.objectsChanged:
			b.mu.Lock()
			if held := b.core.Table().Snapshot().Objects(); !maps.Equal(held, b.now.Load().held) {
				if err := b.use(b.situation(b.now.Load().file, held)); err != nil {
					b.log.Error("objects of the table could not be put in force", "error", err)
				}
			}
			b.mu.Unlock()
		}
	}
}

// noteChange is told of each change of the table.
func (b *Broker) noteChange(c routetable.Change) {
	if len(c.Objects) > 0 {
		select {
		case b.objectsChanged <- struct{}{}:
		default:
		}
	}
}

// situation is what the objects of the file and those that the table holds make together.
func (b *Broker) situation(file *Objects, held map[string]string) *situation {
	s := &situation{file: file, held: held}
	s.objects, s.left = layer(file, held)
	s.released = s.objects.release(func(k contextKey) (*bound, error) { return b.bind(s.objects, k) })
	return s
}

// use puts a situation in force: rows of what was released go, and rows of what is released come, in one step. Requests that are under way go on by
// what was in force. mu is held.
func (b *Broker) use(next *situation) error {
	if _, err := b.replace(caller, next, admin.Renew{}); err != nil {
		return fmt.Errorf("rows of components: %w", err)
	}
	for name, err := range next.left {
		b.log.Error("an object is left out: it does not go with the others", "object", name, "error", err)
	}
	for _, p := range next.released.problems {
		b.log.Warn("a release has a problem", "type", p.Type, "message", p.Message, "where", p.Causes[0].Name+" "+p.Causes[0].Path)
	}
	return nil
}

// replace puts a situation in force, in one change of the table with what command says. mu is held.
func (b *Broker) replace(who admin.Caller, next *situation, command admin.Renew) (routetable.Change, error) {
	now := b.now.Load()
	for ve := range now.objects.VirtualEnvironments {
		if len(now.objects.releasesOf(ve)) > 0 {
			command.Withdraw = append(command.Withdraw, "release:"+contextKey{environment: ve}.name())
		}
	}
	for key := range *b.contexts.Load() {
		command.Withdraw = append(command.Withdraw, contextOrigin(key))
	}
	if rows := b.groupRows(next.objects); rows != nil {
		command.Withdraw = append(command.Withdraw, groupsOrigin)
		command.Rows = append(rows, next.released.rows...)
	} else {
		command.Rows = next.released.rows
	}
	defer b.turn()()
	c, err := b.core.Do(who, command)
	if err == nil {
		b.contexts.Store(&map[contextKey]*pairing{})
		b.now.Store(next)
	}
	return c, err
}

// turn begins a change of the rows, and gives what ends it: when the broker knows the routes of them. mu is held.
func (b *Broker) turn() (end func()) {
	b.turns.Add(1)
	return func() { b.turns.Add(1) }
}

func contextOrigin(k contextKey) string {
	return "context:" + k.name() + "/"
}

// bind is Objects.bind, with the routes that components registered where the deployment gives none.
func (b *Broker) bind(o *Objects, k contextKey) (*bound, error) {
	d := o.Deployments[k.deployment]
	if d == nil {
		return o.bind(k)
	}
	with := b.registry.complete(d)
	if with == d {
		return o.bind(k)
	}
	n := new(*o)
	put(&n.Deployments, map[string]*Deployment{k.deployment: with})
	return n.bind(k)
}

// maxContexts is how many contexts have rows at most.
const maxContexts = 1000

// context gives a deployment in an environment; at the first use it gets its rows.
func (b *Broker) context(k contextKey) (*pairing, *Failure) {
	if c := (*b.contexts.Load())[k]; c != nil {
		c.used.Store(b.o.Now().UnixNano())
		return c, c.failure()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := (*b.contexts.Load())[k]; c != nil {
		return c, c.failure()
	}
	x, err := b.bind(b.now.Load().objects, k)
	if err != nil {
		return nil, fail(codeNotFound, "%v", err)
	}
	c := &pairing{bound: x, routes: map[string]*boundRoute{}}
	c.used.Store(b.o.Now().UnixNano())
	command := admin.Renew{}
	if c.failure() == nil {
		command.Rows = x.rows("context", k.space(), c.routes)
	}
	next := maps.Clone(*b.contexts.Load())
	if len(next) >= maxContexts {
		oldest := oldestContext(next)
		command.Withdraw = append(command.Withdraw, contextOrigin(oldest))
		delete(next, oldest)
	}
	defer b.turn()()
	if _, err := b.core.Do(caller, command); err != nil {
		return nil, asFailure(err)
	}
	next[k] = c
	b.contexts.Store(&next)
	return c, c.failure()
}

func oldestContext(all map[contextKey]*pairing) (oldest contextKey) {
	var at int64 = 1<<63 - 1
	for k, c := range all {
		if t := c.used.Load(); t < at {
			oldest, at = k, t
		}
	}
	return oldest
}

// failure is why nothing works in the context; nil where it does.
func (x *bound) failure() *Failure {
	switch {
	case len(x.problems) > 0:
		return fail(codeInvalid, "%s", problemText(x.problems))
	case x.invalid != nil:
		return fail(codeUnexpected, "%v", x.invalid)
	}
	return nil
}

// contextLife is how long a context that nobody names keeps its rows.
const contextLife = 15 * time.Minute

// forget takes away the rows of contexts that nobody has named for long.
func (b *Broker) forget() {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-tick.C:
			b.forgetBefore(b.o.Now().Add(-contextLife))
		}
	}
}

func (b *Broker) forgetBefore(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := maps.Clone(*b.contexts.Load())
	command := admin.Renew{}
	for k, c := range next {
		if c.used.Load() < t.UnixNano() {
			command.Withdraw = append(command.Withdraw, contextOrigin(k))
			delete(next, k)
		}
	}
	if len(command.Withdraw) == 0 {
		return
	}
	defer b.turn()()
	b.contexts.Store(&next)
	if _, err := b.core.Do(caller, command); err != nil {
		b.log.Error("rows of components could not be taken away", "error", err)
	}
}

// Problems are those of what is released: apps that are left out, and why.
func (b *Broker) Problems() []Problem { return b.now.Load().released.problems }

var errShutdown = errors.New("the broker ends")

// registry is what components said of themselves when they registered, by name and hash.
type registry struct {
	mu    sync.Mutex
	known map[string]*Component // by app/name@hash, the whole hash
}

// note keeps a registration, and tells whether it says something else than the one before.
func (r *registry) note(c *proto.Component, def *Component) (changed bool) {
	key := c.App + "/" + c.Name + "@" + c.Hash
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.known[key]
	if r.known == nil {
		r.known = map[string]*Component{}
	}
	r.known[key] = def
	return old == nil || !sameDefinition(old, def)
}

func sameDefinition(a, b *Component) bool {
	return fmt.Sprintf("%+v", *a) == fmt.Sprintf("%+v", *b)
}

// with is the component with what it registered, where the deployment says nothing.
func (c *Component) with(def *Component) *Component {
	full := *c
	full.Routes, full.DefaultHandler = def.Routes, c.DefaultHandler || def.DefaultHandler
	if c.EnvVarSchema == nil {
		full.EnvVarSchema = def.EnvVarSchema
	}
	if c.Dependencies == nil {
		full.Dependencies = def.Dependencies
	}
	return &full
}

// complete gives the deployment with the routes, variables and dependencies that components registered, for those that it gives no routes.
func (r *registry) complete(d *Deployment) *Deployment {
	r.mu.Lock()
	defer r.mu.Unlock()
	var n *Deployment
	for name, c := range d.Components {
		def := r.known[cleanName(d.App)+"/"+cleanName(name)+"@"+c.Hash]
		if c.Routes != nil || def == nil {
			continue
		}
		if n == nil {
			n = new(*d)
			n.Components = maps.Clone(d.Components)
		}
		n.Components[name] = c.with(def)
	}
	if n == nil {
		return d
	}
	return n
}
