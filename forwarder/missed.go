package forwarder

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// Missed is a hop that did not get all messages that have their place in an order, as events have, and that cannot be told so. What attached here is
// told, by the end of its link.
type Missed struct {
	Hop   string
	Count uint64
	Last  time.Time
}

// maxMissed bounds the hops that are told apart.
const maxMissed = 100

// missedSayEvery is how often the log tells of a hop that goes on missing messages.
const missedSayEvery = 5 * time.Second

// missedTally counts them by hop.
type missedTally struct {
	mu  sync.Mutex // guards what follows; a leaf
	of  map[string]*missedHop
	new bool // there may be something to tell
}

type missedHop struct {
	Missed
	told   uint64
	toldAt time.Time
}

// note counts a copy.
func (t *missedTally) note(hop string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[hop] == nil && len(t.of) >= maxMissed {
		hop = otherSeries
	}
	x := t.of[hop]
	if x == nil {
		x = &missedHop{Missed: Missed{Hop: hop}}
		if t.of == nil {
			t.of = map[string]*missedHop{}
		}
		t.of[hop] = x
	}
	x.Count++
	x.Last, t.new = at, true
}

// toTell gives the hops that the log is to tell of now, with what they missed since the last time.
func (t *missedTally) toTell(now time.Time) (all []Missed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.new {
		return nil
	}
	t.new = false
	for _, x := range t.of {
		switch {
		case x.Count == x.told:
		case now.Sub(x.toldAt) < missedSayEvery:
			t.new = true
		default:
			all = append(all, Missed{x.Hop, x.Count - x.told, x.Last})
			x.told, x.toldAt = x.Count, now
		}
	}
	return all
}

// missed counts a copy of an order that did not reach its hop. Called under the lock of d.conn.
func (n *Node) missed(cp *Copy) {
	t := cp.planned()
	if t.optional || cp.outcome.Kind == wire.Accepted {
		return
	}
	if ln := t.line; ln != nil && ln.tells() && (cp.fate == fateBusy || cp.fate == fateGone) {
		return // its link ends by it, or did
	}
	n.count.eventsMissed.Add(1)
	n.lacking.note(label(routetable.MaskUserinfo(t.hop.Text)), time.Unix(0, cp.in.conn.clock()))
}

// tellMissed has the log tell of hops that miss messages.
func (n *Node) tellMissed() {
	for _, x := range n.lacking.toTell(time.Now()) {
		n.log.Warn("events did not reach a hop that rows lead them to: it takes too few, or is away", "hop", x.Hop, "events", x.Count)
	}
}

// Missed gives the hops that did not get all events, by name.
func (n *Node) Missed() []Missed {
	t := &n.lacking
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Missed, 0, len(t.of))
	for _, x := range t.of {
		all = append(all, x.Missed)
	}
	slices.SortFunc(all, func(a, b Missed) int { return cmp.Compare(a.Hop, b.Hop) })
	return all
}
