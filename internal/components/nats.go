package components

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/components/proto"
	"github.com/fingerpost/fingerpost/internal/nats"
	"github.com/fingerpost/fingerpost/routetable"
)

// Names in NATS.
const (
	groupSubjects   = "evt.js."  // of component groups: kept until a replica of the group has the event
	currentSubjects = "evt.cmp." // of the same, with Options.Current: nothing is kept
	brokerSubjects  = "evt.brk."
	eventStream     = "EVENTS"
	registrations   = "COMPONENTS" // bucket: what components registered
	servings        = "SERVING"    // bucket: which groups each broker has replicas of
)

// registrationLife is how long the bucket keeps a registration that is not told again.
const registrationLife = 12 * time.Hour

// Times of the bucket of servings: a broker that says nothing for so long serves nothing.
const (
	beat     = 2 * time.Second
	lifeless = 5 * beat
	opening  = 4 * time.Second // for an answer of NATS: servers that have no leader yet give none
)

// others is what other brokers are told, and tell. It keeps no routes: the groups that they serve are rows. With Options.Current nobody tells anything: there is
// a row for every group, and the server of NATS says when nobody takes its events.
type others struct {
	b       *Broker
	nc      *nats.Conn
	changed chan struct{} // of room one: the groups here are others

	// Owned by run.
	known, serving *nats.Bucket

	mu     sync.Mutex // guards what follows; never held while NATS or the table is asked
	groups map[string]*group
	begun  bool                 // the stream was there once: groups are taken as they come
	seen   map[string]time.Time // brokers, and when they said something last
}

// group is a component group with replicas here.
type group struct {
	id       proto.Component
	def      *Component // what the last one registered
	told     time.Time  // when others were told of it
	replicas int
	taking   bool               // its subscription is made
	sub      *nats.Subscription // nil: there is none
}

// natsSource marks what came by NATS: it does not go back there.
type natsSource struct{}

// joinNATS connects the broker to others, when NATS is there.
func (b *Broker) joinNATS(nc *nats.Conn) error {
	o := &others{b: b, nc: nc, changed: make(chan struct{}, 1), groups: map[string]*group{}, seen: map[string]time.Time{}}
	in, f, mu := b.newInletOf(natsSource{}), NewFinder(), &sync.Mutex{}
	sub, err := nc.Subscribe(brokerSubjects+b.id.ID, "broker-"+b.id.ID, func(m *nats.Message) {
		mu.Lock()
		defer mu.Unlock()
		o.handle(in, f, m)
	})
	if err != nil {
		return fmt.Errorf("nats: %w", err)
	}
	b.others = o
	b.node.Handle("nats", o)
	b.start(func() { defer sub.Stop(); o.run() })
	return nil
}

// run tells others, and is told, until the broker ends. What fails is begun anew: NATS may have lost what it kept.
func (o *others) run() {
	for said := ""; !o.b.o.Current; {
		err := o.session()
		if o.b.ctx.Err() != nil {
			break
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			o.b.log.Warn("nats: other brokers cannot be told", "error", err)
		}
		o.forgetLifeless()
		select {
		case <-o.b.ctx.Done():
		case <-time.After(beat):
		}
	}
	<-o.b.ctx.Done()
	o.stopAll()
	if o.serving == nil || !o.nc.Connected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := o.serving.Delete(ctx, o.b.id.ID); err != nil {
		o.b.log.Debug("nats: others could not be told of the end", "error", err)
	}
}

// session makes what is not there, takes the events of all groups here, and tells and listens until something fails.
func (o *others) session() error {
	if err := o.open(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(o.b.ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { o.watch(ctx, o.serving, o.noteServing) })
	watching.Go(func() { o.watch(ctx, o.known, o.noteRegistration) })
	o.takeAll()
	return o.tell(ctx)
}

// open finds the stream and the buckets.
func (o *others) open() (err error) {
	ctx, cancel := context.WithTimeout(o.b.ctx, opening)
	defer cancel()
	if err = o.nc.EnsureStream(ctx, nats.Stream{Name: eventStream, Subjects: []string{groupSubjects + ">"}, MaxAge: 72 * time.Hour, MaxBytes: 1 << 30}); err != nil {
		return fmt.Errorf("stream %s: %w", eventStream, err)
	}
	if o.known, err = o.nc.Bucket(ctx, registrations, registrationLife); err != nil {
		return fmt.Errorf("bucket %s: %w", registrations, err)
	}
	if o.serving, err = o.nc.Bucket(ctx, servings, lifeless); err != nil {
		return fmt.Errorf("bucket %s: %w", servings, err)
	}
	return nil
}

// watch follows a bucket.
func (o *others) watch(ctx context.Context, bucket *nats.Bucket, changed func(key string, value []byte)) {
	for ctx.Err() == nil {
		if err := bucket.Watch(ctx, changed); err != nil && ctx.Err() == nil {
			o.b.log.Warn("nats: a bucket cannot be watched", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(beat):
		}
	}
}

// takeAll takes the events of all groups anew, and has others told of them again.
func (o *others) takeAll() {
	var stop []*nats.Subscription
	o.mu.Lock()
	o.begun = true
	for _, g := range o.groups {
		if g.sub != nil {
			stop = append(stop, g.sub)
		}
		g.sub, g.told = nil, time.Time{}
		o.b.start(func() { o.take(g) })
	}
	o.mu.Unlock()
	for _, s := range stop {
		s.Stop()
	}
}

// tell tells others, now and then and when that changes, which groups have replicas here, and forgets brokers that say nothing. It returns when that fails.
func (o *others) tell(ctx context.Context) error {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		if err := o.putRegistrations(ctx); err != nil {
			return err
		}
		if err := o.put(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-o.changed:
		case <-tick.C:
			o.forgetLifeless()
		}
	}
}

// subject is that of a group.
func (o *others) subject(c *proto.Component) string { return o.b.groupSubjects() + c.Subject() }

func (b *Broker) groupSubjects() string {
	if b.o.Current {
		return currentSubjects
	}
	return groupSubjects
}

// groupRows are the rows of all groups that there may be, where no broker tells of its own.
func (b *Broker) groupRows(o *Objects) (rows []routetable.Route) {
	if b.o.NATS == nil || !b.o.Current {
		return nil
	}
	for _, id := range o.groups() {
		if r, ok := groupRow(id.Address(), currentSubjects+id.Subject(), groupsOrigin); ok {
			rows = append(rows, r)
		}
	}
	return rows
}

// groupsOrigin is the origin of groupRows.
const groupsOrigin = "nats:groups"

// groupRow is the row of a group's subject.
func groupRow(address, subject, origin string) (r routetable.Route, ok bool) {
	pattern, ok := routetable.QuotePattern("comp:" + address)
	r = routetable.NewRoute(pattern, "nats:"+subject)
	r.Origin, r.Pick, r.Order = origin, routetable.PickAny, 10
	return r, ok
}

// serves is a group as brokers tell of it.
type serves struct {
	Address string `json:"address"`
	Subject string `json:"subject"`
}

func (o *others) put(ctx context.Context) error {
	o.mu.Lock()
	list := []serves{}
	for _, g := range o.groups {
		if g.sub != nil {
			list = append(list, serves{g.id.Address(), o.subject(&g.id)})
		}
	}
	o.mu.Unlock()
	slices.SortFunc(list, func(a, b serves) int { return strings.Compare(a.Address, b.Address) })
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lifeless)
	defer cancel()
	return o.serving.Put(ctx, o.b.id.ID, text)
}

// noteServing makes rows of what another broker serves.
func (o *others) noteServing(broker string, value []byte) {
	if broker == o.b.id.ID {
		return
	}
	var list []serves
	if value != nil && (len(value) > 1<<20 || json.Unmarshal(value, &list) != nil) {
		return
	}
	origin := "nats:" + broker
	command := admin.Renew{Withdraw: []string{origin}}
	for _, s := range list {
		if !strings.HasPrefix(s.Subject, groupSubjects) {
			continue
		}
		if r, ok := groupRow(s.Address, s.Subject, origin); ok {
			command.Rows = append(command.Rows, r)
		}
	}
	o.mu.Lock()
	if o.seen[broker] = time.Now(); value == nil {
		delete(o.seen, broker)
	}
	o.mu.Unlock()
	if o.isAsserted(&command) {
		return
	}
	if _, err := o.b.core.Do(caller, command); err != nil {
		o.b.log.Warn("rows of another broker could not be made", "broker", broker, "error", err)
	}
}

// isAsserted tells whether the rows are there already.
func (o *others) isAsserted(command *admin.Renew) bool {
	s := o.b.core.Table().Snapshot()
	for _, r := range command.Rows {
		if s.Find(r.Pattern, r.Address, r.Origin) == nil {
			return false
		}
	}
	return s.Origins()[command.Withdraw[0]] == len(command.Rows)
}

// forgetLifeless takes away the rows of brokers that have said nothing for long.
func (o *others) forgetLifeless() {
	var gone []string
	o.mu.Lock()
	for broker, at := range o.seen {
		if time.Since(at) > lifeless {
			gone = append(gone, broker)
		}
	}
	o.mu.Unlock()
	for _, broker := range gone {
		o.b.log.Warn("another broker has gone", "broker", broker)
		o.noteServing(broker, nil)
	}
}

// registered is a registration as the bucket has it.
type registered struct {
	App        string     `json:"app,omitempty"`
	Name       string     `json:"name"`
	Hash       string     `json:"hash"`
	Definition *Component `json:"definition"`
}

// putRegistrations keeps for all brokers what the components here registered, again before the bucket forgets it.
func (o *others) putRegistrations(ctx context.Context) error {
	var due []group
	o.mu.Lock()
	for _, g := range o.groups {
		if time.Since(g.told) > registrationLife/2 {
			due = append(due, group{id: g.id, def: g.def})
			g.told = time.Now()
		}
	}
	o.mu.Unlock()
	for _, g := range due {
		text, err := json.Marshal(registered{g.id.App, g.id.Name, g.id.Hash, g.def})
		if err != nil {
			return err
		}
		kind := "component/"
		if g.id.Type != typeKubeFox {
			kind = "adapter/"
		}
		ctx, cancel := context.WithTimeout(ctx, lifeless)
		err = o.known.Put(ctx, kind+g.id.Group(), text)
		cancel()
		if err != nil {
			return fmt.Errorf("registration of %s: %w", g.id.Group(), err)
		}
	}
	return nil
}

// noteRegistration takes up what a component registered at another broker.
func (o *others) noteRegistration(_ string, value []byte) {
	var r registered
	if value == nil || len(value) > 1<<20 || json.Unmarshal(value, &r) != nil || r.Definition == nil {
		return
	}
	id := proto.Component{App: r.App, Name: r.Name, Hash: r.Hash}
	if o.b.registry.note(&id, r.Definition) && r.Definition.Routes != nil {
		if err := o.b.refresh(); err != nil {
			o.b.log.Warn("routes of a registration could not be used", "component", id.Group(), "error", err)
		}
	}
}

func (o *others) poke() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}
