package components

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
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

// join notes a replica here, and what it registered; the first of a group begins to take the group's events, where NATS was there already.
func (o *others) join(id proto.Component, def *Component) {
	id.ID = ""
	o.mu.Lock()
	g := o.groups[id.Group()]
	if g == nil {
		g = &group{id: id}
		o.groups[id.Group()] = g
	}
	g.replicas++
	if g.def == nil || !sameDefinition(g.def, def) {
		g.def, g.told = def, time.Time{}
	}
	take := g.replicas == 1 && (o.begun || o.b.o.Current)
	o.mu.Unlock()
	o.poke()
	if take {
		o.b.start(func() { o.take(g) })
	}
}

// take begins to take the group's events; it tries until it can, or the group is gone.
func (o *others) take(g *group) {
	if !o.mayTake(g) {
		return
	}
	in, f, mu := o.b.newInletOf(natsSource{}), NewFinder(), &sync.Mutex{}
	handle := func(m *nats.Message) {
		mu.Lock()
		defer mu.Unlock()
		o.handle(in, f, m)
	}
	for {
		sub, err := o.subscribe(g, handle)
		if o.taken(g, sub, err) {
			return
		}
		select {
		case <-o.b.ctx.Done():
		case <-time.After(beat):
		}
	}
}

func (o *others) subscribe(g *group, handle func(*nats.Message)) (*nats.Subscription, error) {
	if o.b.o.Current {
		return o.nc.Subscribe(o.subject(&g.id), g.id.Group(), handle)
	}
	ctx, cancel := context.WithTimeout(o.b.ctx, opening)
	defer cancel()
	return o.nc.Consume(ctx, eventStream, g.id.Group(), o.subject(&g.id), 5*o.b.o.TTL, handle)
}

// mayTake tells whether nobody takes the group's events or is about to; then the caller is.
func (o *others) mayTake(g *group) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if g.replicas == 0 || g.taking || g.sub != nil {
		return false
	}
	g.taking = true
	return true
}

// taken notes the group's subscription, or that it failed; done is that it need not be tried again.
func (o *others) taken(g *group, sub *nats.Subscription, err error) (done bool) {
	o.mu.Lock()
	gone := g.replicas == 0 || o.b.ctx.Err() != nil
	if done = gone || err == nil; done {
		g.taking = false
	}
	if !gone {
		g.sub = sub
	}
	o.mu.Unlock()
	switch {
	case gone && sub != nil:
		sub.Stop()
	case !gone && err == nil:
		o.poke()
	case !gone:
		o.b.log.Warn("nats: the events of a group cannot be taken", "group", g.id.Group(), "error", err)
	}
	return done
}

// leave notes that a replica has gone; the last of a group ends what the first began.
func (o *others) leave(id proto.Component) {
	id.ID = ""
	o.mu.Lock()
	g := o.groups[id.Group()]
	var stop *nats.Subscription
	if g != nil {
		if g.replicas--; g.replicas == 0 {
			delete(o.groups, id.Group())
			stop = g.sub
		}
	}
	o.mu.Unlock()
	if stop != nil {
		stop.Stop()
		o.poke()
	}
}

func (o *others) stopAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, g := range o.groups {
		if g.sub != nil {
			g.sub.Stop()
		}
	}
}

func (o *others) poke() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// handle takes an event that came by NATS.
func (o *others) handle(in *inlet, f *Finder, m *nats.Message) {
	e := &proto.Event{}
	if _, err := e.Parse(bytes.Clone(m.Data)); err != nil {
		o.b.log.Warn("nats: a message that is no event", "subject", m.Subject)
		m.Done(true)
		return
	}
	if !m.At.IsZero() {
		e.TTL -= int64(max(o.b.o.Now().Sub(m.At), 0))
	}
	o.b.send(in, f, e, viaNATS, natsSender{o, m})
	in.flush()
}

// natsSender takes what became of an event that came by NATS.
type natsSender struct {
	o *others
	m *nats.Message
}

// maxTries is how many brokers an event is offered to.
const maxTries = 3

// again is in the header of an event that is offered to another broker, where NATS counts nothing.
var again = [2]string{"fingerpost-again", "1"}

// answer has the event offered to another broker where the last replica here has just gone and others serve the group; else a request is
// answered with the failure. An event goes nowhere again when its life is over.
func (s natsSender) answer(e *proto.Event, f *Failure) {
	if f != nil && (f.Code == codeComponentGone || f.Code == codeBrokerUnavailable) && e.TTL > 0 && s.offer(e, f) {
		return
	}
	s.m.Done(true)
	s.refuse(e, f)
}

// offer offers the event to another broker, where there may be one and it was not to too many.
func (s natsSender) offer(e *proto.Event, f *Failure) bool {
	switch {
	case s.m.Tries > 0 && s.m.Tries < maxTries && s.o.b.hasRows(e):
		s.m.Done(false)
		return true
	case s.o.b.o.Current && s.m.Header(again[0]) == "" && strings.HasPrefix(s.m.Subject, currentSubjects):
		err := s.o.nc.Post(s.m.Subject, e.ID, again, s.m.Data, func(err error) {
			if err != nil {
				s.refuse(e, f)
			}
		})
		return err == nil && s.o.nc.Ask() == nil
	}
	return false
}

// refuse answers a request with a failure.
func (s natsSender) refuse(e *proto.Event, f *Failure) {
	if f == nil || e.Category != proto.Request || f.Code == codeTimeout || e.Source.BrokerID == "" {
		return
	}
	s.o.publish(brokerSubjects+e.Source.BrokerID, s.o.b.errorEvent(e, f))
}

// hasRows tells whether others serve the target of an event.
func (b *Broker) hasRows(e *proto.Event) bool {
	return len(b.core.Table().Snapshot().LookupInto(nil, "comp:"+e.Target.Address(), nil)) > 0
}

func (o *others) publish(subject string, e *proto.Event) error {
	return o.nc.Publish(subject, e.ID, e.Append(nil, o.b.o.Between))
}

// Outlet finds the outlet of a subject. It is the broker's part of forwarder.Scheme.
func (o *others) Outlet(hop *routetable.Hop, _ *routetable.Route, _ string) forwarder.Outlet {
	if !strings.HasPrefix(hop.Name, o.b.groupSubjects()) {
		return nil
	}
	return subject{o, hop.Name}
}

// subject is a NATS subject as an outlet. Two of one name are equal.
type subject struct {
	o    *others
	name string
}

// Deliver publishes copies, but none that came by NATS, and none while NATS is away: it would have them later, and whoever waits is to know now.
func (s subject) Deliver(batch []*forwarder.Copy) (taken int, err error) {
	if !s.Present() {
		return 0, forwarder.ErrGone
	}
	if s.o.b.o.Current {
		defer s.o.nc.Ask()
	}
	for _, c := range batch {
		if _, back := c.Message().Source().(natsSource); back {
			return taken, forwarder.ErrGone
		}
		data, ok := s.o.b.tickets.data(c.Message())
		if !ok {
			c.Settle(forwarder.Rejected(wire.CondNotImplemented, "not an event of a component"))
			taken++
			continue
		}
		var e proto.Event
		event := proto.EventOf(data)
		if _, err := e.Parse(event); err != nil {
			return taken, forwarder.ErrGone
		}
		if s.o.b.o.Between != proto.D4 {
			event = e.Append(nil, s.o.b.o.Between)
		}
		if err := s.publish(c, e.ID, event); err != nil {
			return taken, forwarder.ErrGone
		}
		taken++
	}
	return taken, nil
}

// publish publishes a copy. It is accepted when NATS is to have it; where nothing is kept, when somebody takes the subject.
func (s subject) publish(c *forwarder.Copy, id string, event []byte) error {
	if !s.o.b.o.Current {
		err := s.o.nc.Publish(s.name, id, event)
		if err == nil {
			c.Settle(forwarder.Outcome{Kind: wire.Accepted})
		}
		return err
	}
	c.Keep()
	return s.o.nc.Post(s.name, id, [2]string{}, event, func(err error) {
		switch {
		case err == nil:
			c.Settle(forwarder.Outcome{Kind: wire.Accepted})
		case errors.Is(err, nats.ErrNobody):
			c.Settle(forwarder.Rejected(wire.CondNotFound, err.Error()))
		default:
			c.Settle(forwarder.Outcome{Kind: wire.Released})
		}
	})
}

// Present tells whether NATS is there.
func (s subject) Present() bool { return s.o.nc.Connected() }

// Busy is always none: what was published is NATS's.
func (s subject) Busy() int { return 0 }
