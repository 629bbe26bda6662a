package events

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// counters are what a router counts.
type counters struct {
	slow        atomic.Uint64 // times that one came to its soft limit
	disconnects atomic.Uint64 // that one came to its hard limit
	connects    atomic.Uint64 // components, and routers that were linked
}

// Stats is what the router tells of itself.
type Stats struct {
	Components int // that are connected
	Links      int // routers that are
	Slow       int // of both, past the soft limit now
	Waiting    int // events that wait for them
	Kept       int // events in the ring
	KeptBytes  int // its memory

	Events      uint64 // that were taken
	Unrouted    uint64 // of them, that nobody had subscribed to
	Copies      uint64 // of them, queued for components and routers
	Slowed      uint64 // times that one of these came to the soft limit
	Disconnects uint64 // and to the hard limit
	Connects    uint64
	Evicted     uint64 // events that left the ring because their window was over
	Dropped     uint64 // for want of memory
}

// Stats tells what there is and what was.
func (r *Router) Stats() Stats {
	n := &r.counters
	s := Stats{Slowed: n.slow.Load(), Disconnects: n.disconnects.Load(), Connects: n.connects.Load()}
	r.mu.Lock()
	s.Events, s.Unrouted, s.Copies = r.taken, r.nowhere, r.copies
	s.Kept, s.KeptBytes, s.Evicted, s.Dropped = r.ring.count, r.ring.bytes, r.ring.evicted, r.ring.dropped
	all := r.list()
	r.mu.Unlock()
	for _, c := range all {
		if c.link == nil {
			s.Components++
		} else {
			s.Links++
		}
		c.mu.Lock()
		s.Waiting += c.out.depth
		if c.slow {
			s.Slow++
		}
		c.mu.Unlock()
	}
	return s
}

// Counters gives the counters by name, as the router entity shows them.
func (r *Router) Counters() map[string]uint64 {
	s := r.Stats()
	return map[string]uint64{
		"components": uint64(s.Components), "eventLinks": uint64(s.Links), "events": s.Events, "eventsUnrouted": s.Unrouted, "eventCopies": s.Copies,
		"componentsSlowed": s.Slowed, "componentsDisconnected": s.Disconnects, "eventsKept": uint64(s.Kept), "eventBytesKept": uint64(s.KeptBytes),
		"eventsEvicted": s.Evicted, "eventsForgotten": s.Dropped,
	}
}

// Connection is the connection of a component, or of another router.
type Connection struct {
	Name      string // event:KEY, of a router event:@KEY: the origin of its rows
	Component string // its name; of a router its id
	Router    bool
	Remote    string
	User      string // of its token
	Since     time.Time
	Rows      int    // subscriptions, or types that are demanded
	Received  uint64 // events that it sent
	Sent      uint64 // events that its socket took, replays not counted
}

// Connections tells of those that are there, by name.
func (r *Router) Connections() []Connection {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Connection, 0, len(r.conns))
	for _, key := range slices.Sorted(maps.Keys(r.conns)) {
		c := r.conns[key]
		x := Connection{
			Name: c.origin, Component: c.name, Router: c.link != nil, Remote: c.remote, User: c.account.Name,
			Since: c.since, Rows: c.subscriptions, Received: c.received.Load(),
		}
		c.mu.Lock()
		x.Sent = c.out.sent
		c.mu.Unlock()
		if c.link != nil {
			x.Rows = len(c.link.wants[0]) + len(c.link.wants[1])
		}
		all = append(all, x)
	}
	return all
}

// CloseConnection sends a component or router away, by the name of its connection; false: there is none. It may come back.
func (r *Router) CloseConnection(name string) bool {
	key, ok := strings.CutPrefix(name, "event:")
	if !ok {
		return false
	}
	r.mu.Lock()
	c := r.conns[key]
	r.mu.Unlock()
	if c == nil {
		return false
	}
	c.ws.Abort(errOperator)
	return true
}
