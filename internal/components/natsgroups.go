package components

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/components/proto"
	"github.com/fingerpost/fingerpost/internal/nats"
)

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
	durable := strings.ReplaceAll(g.id.Group(), ".", "=") // it may have no dots
	return o.nc.Consume(ctx, eventStream, durable, o.subject(&g.id), 5*o.b.o.TTL, handle)
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
