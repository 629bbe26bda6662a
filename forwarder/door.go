package forwarder

import (
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// managementAddress is the door's name: a link on it is always the door, whatever messages say.
const managementAddress = "$management"

// door is the outlet of requests to the door (admin:). Those of one connection are answered in order, and edits that follow each other share
// a sync of the disk; a big one holds up neither the data path nor the requests of others.
type door struct {
	n     *Node
	queue chan *conn // connections with requests that wait, each once

	mu      sync.Mutex // guards what follows; a leaf
	waiting map[*conn][]doorRequest
	count   int // of all waiting
	due     int // of these, what came before the node began to end
}

type doorRequest struct {
	copy *Copy
	due  bool
}

// The bounds of the door: what waits, and what is answered at once. Most of those that are answered may wait for a large load to be done.
const (
	maxRequests = 4096
	doorWorkers = 16
)

func newDoor(n *Node) *door {
	return &door{n: n, queue: make(chan *conn, maxRequests), waiting: map[*conn][]doorRequest{}}
}

func (d *door) Present() bool { return true }

// Busy is how many requests have to be answered before the node ends. Those that clients send while it ends do not hold it up.
func (d *door) Busy() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.due
}

// Deliver queues requests.
func (d *door) Deliver(batch []*Copy) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, c := range batch {
		if d.count >= maxRequests {
			return i, ErrBusy
		}
		c.in.keep()
		from := c.in.conn
		list, isWaiting := d.waiting[from]
		due := !d.n.draining.Load()
		d.waiting[from] = append(list, doorRequest{c, due})
		if d.count++; due {
			d.due++
		}
		if !isWaiting {
			d.queue <- from // has room: each in it has a request
		}
	}
	return len(batch), nil
}

// serve answers requests until the node stops.
func (d *door) serve() {
	for range doorWorkers - 1 {
		if d.n.start() {
			go func() { defer d.n.running.Done(); d.work() }()
		}
	}
	d.work()
}

func (d *door) work() {
	for {
		select {
		case from := <-d.queue:
			list := d.first(from)
			d.answer(from, list)
			d.next(from, len(list))
		case <-d.n.ctx.Done():
			return
		}
	}
}

// maxTogether is how many requests of one connection are taken at once: edits among them share a sync of the disk.
const maxTogether = 512

// first gives the requests of a connection that are answered next.
func (d *door) first(from *conn) (list []*Copy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range d.waiting[from][:min(len(d.waiting[from]), maxTogether)] {
		list = append(list, x.copy)
	}
	return list
}

// next takes the n requests that were answered out, and puts the connection in line again if it has more.
func (d *door) next(from *conn, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.waiting[from]
	for _, x := range list[:n] {
		if d.count--; x.due {
			d.due--
		}
	}
	clear(list[:n])
	if list = list[n:]; len(list) == 0 {
		delete(d.waiting, from)
		return
	}
	d.waiting[from] = list
	d.queue <- from
}

// answer answers requests of a connection.
func (d *door) answer(from *conn, list []*Copy) {
	messages := make([][]byte, len(list))
	for i, c := range list {
		messages[i] = c.in.Payload
	}
	d.n.core.AnswerAll(from.who(), messages, func(r admin.Reply) {
		c := list[0]
		list = list[1:]
		c.Settle(Outcome{Kind: wire.Accepted})
		if r.Message != nil && r.To != "" {
			d.n.send(r.To, r.Message, nil)
		}
		if r.Watch != nil {
			d.watch(r.Watch)
		}
	})
}

// who is the caller at the other end, for commands.
func (c *conn) who() admin.Caller {
	c.lock()
	defer c.release()
	return c.caller
}

// doorPlanOf is the plan of every message on a link to the door.
func doorPlanOf(d *door) *plan {
	return &plan{address: managementAddress, found: true, roots: []int32{0}, groups: []planGroup{{targets: []planTarget{{
		outlet: d, hop: &routetable.Hop{Scheme: "admin", Text: "admin:", Key: "admin:"},
	}}}}}
}

// The bounds of what is on its way to one watcher.
const (
	maxWatchMessages = 32
	maxWatchBytes    = 4 << 20
)

// watchPause is how long a watcher that did not take a message is left alone.
const watchPause = time.Second

// watch carries what a watch has to say, on a goroutine of its own.
func (d *door) watch(w *admin.Watch) {
	if !d.n.start() {
		w.Close()
		return
	}
	go func() {
		defer d.n.running.Done()
		defer w.Close()
		(&watcher{n: d.n, w: w, mark: w.Mark(), outcomes: make(chan watchOutcome, maxWatchMessages)}).run()
	}()
}

// watcher is the way to one watcher. It sends no more than the watcher takes: the rest waits, bounded, in w.
type watcher struct {
	n        *Node
	w        *admin.Watch
	outcomes chan watchOutcome // one for each message on its way; never full

	onWay int
	bytes int
	last  uint64 // number of the last message sent
	valid uint64 // messages up to this number count no more: what they said is said again
	mark  uint64 // what the watcher has for sure
}

type watchOutcome struct {
	number, mark uint64
	size         int
	kind         wire.StateKind
}

// run ends when the link that reply-to leads to is gone, or refuses, or the node stops.
func (x *watcher) run() {
	var pause <-chan time.Time
	for !x.n.draining.Load() {
		if pause == nil && !x.send() {
			return
		}
		select {
		case <-x.w.Ready():
		case <-pause:
			pause = nil
		case o := <-x.outcomes:
			x.onWay--
			x.bytes -= o.size
			switch {
			case o.kind == wire.Accepted:
				if o.number > x.valid {
					x.mark = o.mark
				}
			case o.kind == wire.Rejected || !x.n.leadsToLink(x.w.ReplyTo()):
				return
			case o.number > x.valid: // not taken in time: what it said is lost
				x.w.Missed(x.mark)
				x.valid = x.last
				pause = time.After(watchPause)
			}
		case <-x.n.ctx.Done():
			return
		}
	}
}

// send sends what there is, as far as there is room; false where nobody is there.
func (x *watcher) send() bool {
	for x.onWay < maxWatchMessages && x.bytes < maxWatchBytes {
		m, mark := x.w.Next()
		if m == nil {
			return true
		}
		x.last++
		o := watchOutcome{number: x.last, mark: mark, size: len(m)}
		ok := x.n.send(x.w.ReplyTo(), m, func(got Outcome) {
			o.kind = got.Kind
			x.outcomes <- o
		})
		if !ok {
			return false
		}
		x.onWay++
		x.bytes += o.size
	}
	return true
}

// leadsToLink tells whether an address still has a receiver here.
func (n *Node) leadsToLink(address string) bool {
	for _, g := range n.table.Lookup(address) {
		for _, m := range g.Matches {
			if m.Hop != nil && m.Hop.Scheme == "link" {
				return true
			}
		}
	}
	return false
}

// Send sends a message of the node's own to an address. It reports whether somebody gets it.
func (n *Node) Send(to string, payload []byte) bool { return n.send(to, payload, nil) }

// send sends a message of the node's own to an address. It reports whether somebody gets it; told, where not nil, hears what became of
// it then, under a lock: it may only enqueue.
func (n *Node) send(to string, payload []byte, told func(Outcome)) bool {
	l := &inlink{c: n.self, target: to, hasTarget: true}
	d := newDelivery(n.self, nil, nil)
	d.Payload, d.owned = payload, true
	d.has().told = told
	if wire.ScanHead(payload, &d.scan) != nil {
		d.recycle()
		return false
	}
	var b batch
	n.self.lock()
	p := n.route(l, &d.Message, &n.self.groups)
	sent := p.found && p.problem == "" && !p.discarded && n.dispatch(d, p, &b) > 0
	if !sent {
		d.recycle()
		n.count.managementUnanswered.Add(1)
	}
	n.self.release()
	b.deliver(n, false)
	return sent
}
