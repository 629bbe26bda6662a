package forwarder

import "sync/atomic"

// connClass is what a connection is for.
type connClass uint8

const (
	connClient    connClass = iota // of a client, straight over TCP or TLS
	connWebSocket                  // of a client, over WebSocket
	connRouter                     // of another of our kind, which dialled
	connHop                        // to a hop, which we dialled
	connClasses
)

var connClassNames = [connClasses]string{"client", "websocket", "router", "hop"}

func (k connClass) String() string { return connClassNames[k] }

// linkClass is what a link is for.
type linkClass uint8

const (
	linkSender     linkClass = iota // a client sends, to a target
	linkAnonymous                   // a client sends, to whatever its messages say
	linkManagement                  // a client sends to the door
	linkReceiver                    // a client receives
	linkHop                         // to a hop
	linkInlet                       // the way in of a connection of another protocol
	linkClasses
)

var linkClassNames = [linkClasses]string{"sender", "anonymous", "management", "receiver", "hop", "inlet"}

func (k linkClass) String() string { return linkClassNames[k] }

func (l *inlink) class() linkClass {
	switch {
	case l.inlet:
		return linkInlet
	case l.door:
		return linkManagement
	case l.hasTarget:
		return linkSender
	}
	return linkAnonymous
}

func (ln *line) class() linkClass {
	if ln.dialled != nil {
		return linkHop
	}
	return linkReceiver
}

// classCounters count by class.
type classCounters struct {
	connections [connClasses]atomic.Int64  // open now
	links       [linkClasses]atomic.Int64  // open now; those to hops are not among them
	received    [linkClasses]atomic.Uint64 // messages
	copies      [linkClasses]atomic.Uint64 // handed to a link
}

func sumOf(counts []atomic.Uint64) (n uint64) {
	for i := range counts {
		n += counts[i].Load()
	}
	return n
}

// connCounts is what a connection adds to the node's counters with the next flush.
type connCounts struct {
	received, copies [linkClasses]uint32
	outcomes         [outcomeKinds]uint32
}

// addCounts adds them. Called under the lock.
func (c *conn) addCounts() {
	x := &c.counts
	if *x == (connCounts{}) {
		return
	}
	by := &c.n.count.by
	for i := range linkClasses {
		addTo(&by.received[i], x.received[i])
		addTo(&by.copies[i], x.copies[i])
	}
	for i, n := range x.outcomes {
		addTo(&c.n.count.outcomes[i], n)
	}
	*x = connCounts{}
}

// addTo adds what is mostly nothing.
func addTo(to *atomic.Uint64, n uint32) {
	if n > 0 {
		to.Add(uint64(n))
	}
}

// countMessage notes a message that came in. Called under the lock.
func (l *inlink) countMessage() {
	l.messages++
	l.c.received++
	l.c.counts.received[l.class()]++
	if l.door {
		l.c.n.count.management.Add(1)
	}
}

// countCopy notes a copy that is handed to the link. Called under the lock.
func (ln *line) countCopy(cp *Copy) {
	ln.sent++
	ln.c.sent++
	if cp.in.conn == ln.n.self {
		ln.n.count.managementAnswers.Add(1)
		return
	}
	ln.c.counts.copies[ln.class()]++
	if ln.dialled != nil {
		ln.dialled.count.copies.Add(1)
	}
}

// maxHopSeries bounds the hops that have counters of their own; the others share one. A hop keeps its own for as long as the node runs.
const maxHopSeries = 100

// otherSeries is the name of what shares a counter.
const otherSeries = "other"

// hopCount is what the node counts for one hop.
type hopCount struct {
	name   string
	copies atomic.Uint64
}

// hopCountFor gives the counters of a hop. Called with n.mu.
func (n *Node) hopCountFor(name string) *hopCount {
	if h := n.hopCounts[name]; h != nil {
		return h
	}
	if len(n.hopCounts) >= maxHopSeries {
		return &n.otherHops
	}
	h := &hopCount{name: name}
	n.hopCounts[name] = h
	return h
}

// join lists a connection that has opened. Called under its lock.
func (n *Node) join(c *conn) {
	c.class = connClient
	switch {
	case c.dialled != nil:
		c.class = connHop
	case c.peerID != "":
		c.class = connRouter
	case c.c.Transport()[0] == 'w':
		c.class = connWebSocket
	}
	c.since = now()
	n.count.by.connections[c.class].Add(1)
	n.mu.Lock()
	n.conns[c.id] = c
	n.mu.Unlock()
}

// leave takes a connection off the list. Called under its lock.
func (n *Node) leave(c *conn) {
	n.mu.Lock()
	_, there := n.conns[c.id]
	delete(n.conns, c.id)
	n.mu.Unlock()
	if there {
		n.count.by.connections[c.class].Add(-1)
	}
}
