package forwarder

import (
	"maps"
	"slices"
	"strings"

	"github.com/fingerpost/fingerpost/routetable"
)

// Stats is what a node counts, in series whose number is bounded: for metrics.
type Stats struct {
	Connections map[string]int64  // open now, by class
	Links       map[string]int64  // open now, by class
	Received    map[string]uint64 // messages, by the class of the link they came by
	Copies      map[string]uint64 // by the class of the link they were handed to
	Routes      []RouteStats      // the first 100 configured rows that were used, then one for all others
	Hops        []HopStats        // the first 100 that were dialled, then one for all others
}

// RouteStats are the counters of a row.
type RouteStats struct {
	Pattern, Address                              string // "other" for all that have no series of their own
	Matched, Copied, Delivered, Released, Dropped uint64
}

// HopStats are of a peer that the node dials.
type HopStats struct {
	Hop       string // "other" for all that have no series of their own
	Copies    uint64
	Connected int // connections that are open
	Waiting   int // copies queued, and sent without an outcome
}

// maxRouteSeries bounds the rows that have metrics of their own.
const maxRouteSeries = 100

// routeName is how a row is called in metrics.
type routeName struct{ pattern, address string }

func nameOf(r *routetable.Route) routeName {
	return routeName{label(r.Pattern), label(routetable.MaskUserinfo(r.Address))}
}

// maxLabel is the most of a text that a series is named by.
const maxLabel = 200

// label makes a text fit for a metric: patterns and addresses are bytes, and may be long.
func label(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxLabel)], "\ufffd")
}

// newCount makes the counters of a row. The first rows that somebody configured have series of their own while they are there. Called with mu.
func (c *rowCounts) newCount(r *routetable.Route) *rowCount {
	if !routetable.Configured(r.Origin) || len(c.series) >= maxRouteSeries {
		return &rowCount{sum: &c.other}
	}
	if c.series == nil {
		c.series = map[uint64]routeName{}
	}
	c.series[r.ID] = nameOf(r)
	return &rowCount{}
}

// stats gives the series. Rows that are called the same share one.
func (c *rowCounts) stats() []RouteStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]RouteStats, 0, len(c.series)+1)
	at := map[routeName]int{}
	add := func(name routeName, r *rowCount) {
		i, ok := at[name]
		if !ok {
			i = len(all)
			at[name] = i
			all = append(all, RouteStats{Pattern: name.pattern, Address: name.address})
		}
		x := &all[i]
		x.Matched += r.matched.Load()
		x.Copied += r.copied.Load()
		x.Delivered += r.delivered.Load()
		x.Released += r.released.Load()
		x.Dropped += r.dropped.Load()
	}
	for _, id := range slices.Sorted(maps.Keys(c.series)) {
		if r := c.of[id]; r != nil {
			add(c.series[id], r)
		}
	}
	add(routeName{otherSeries, otherSeries}, &c.other)
	return all
}

// Stats gives the node's counters. It takes no connection's lock.
func (n *Node) Stats() Stats {
	s := Stats{
		Connections: map[string]int64{}, Links: map[string]int64{}, Received: map[string]uint64{}, Copies: map[string]uint64{},
		Routes: n.rows.stats(), Hops: n.hopStats(),
	}
	by := &n.count.by
	for k := range connClasses {
		s.Connections[k.String()] = by.connections[k].Load()
	}
	for k := range linkClasses {
		if k == linkHop {
			s.Copies[k.String()] = by.copies[k].Load()
			continue
		}
		s.Links[k.String()] = by.links[k].Load()
		if k == linkReceiver {
			s.Copies[k.String()] = by.copies[k].Load()
		} else {
			s.Received[k.String()] = by.received[k].Load()
		}
	}
	return s
}

// hopStats adds up the peers that share a name, or have none of their own.
func (n *Node) hopStats() []HopStats {
	n.mu.Lock()
	stats := make(map[*hopCount]*HopStats, len(n.hopCounts)+1)
	for _, h := range n.hopCounts {
		stats[h] = &HopStats{Hop: h.name, Copies: h.copies.Load()}
	}
	stats[&n.otherHops] = &HopStats{Hop: otherSeries, Copies: n.otherHops.copies.Load()}
	peers := slices.Collect(maps.Values(n.peers))
	n.mu.Unlock()
	for _, p := range peers {
		h := stats[p.count]
		if h == nil {
			continue // came after
		}
		if p.up.Load() {
			h.Connected++
		}
		for _, ln := range p.all() {
			h.Waiting += ln.Busy()
		}
	}
	all := make([]HopStats, 0, len(stats))
	for _, h := range stats {
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b HopStats) int { return strings.Compare(a.Hop, b.Hop) })
	return all
}

// endpointText names the peer of a hop, without a password and without a target.
func endpointText(h *routetable.Hop) string {
	text := routetable.MaskUserinfo(h.Text)
	if i := strings.Index(text, "://"); i >= 0 {
		if j := strings.IndexByte(text[i+3:], '/'); j >= 0 {
			text = text[:i+3+j]
		}
	}
	return label(text)
}
