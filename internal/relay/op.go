package relay

import (
	"errors"
	"sync"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/websocket"
	"github.com/fingerpost/fingerpost/routetable"
)

// maxText bounds topic, id and ref, each as it is written in JSON. An op with a longer one is a bad_request that does not echo it.
const maxText = 4 << 10

// work is room for what a read brings: a reader holds it while it has something to do.
type work struct {
	scan    scanner
	ops     []op
	most    int    // of them, since they were cleared
	reply   []byte // the reply array of the message, without its end; empty: there is none
	asked   []asked
	touched []*Conn // that ops were queued for
	batch   *batch
	groups  []routetable.Group
	words   []byte
}

var works = sync.Pool{New: func() any { return &work{ops: make([]op, 0, maxOps), groups: make([]routetable.Group, 0, 8)} }}

func newWork(b *Broker) *work {
	w := works.Get().(*work)
	w.batch = b.newBatch()
	return w
}

// free gives the room back, with nothing of what was in it reachable.
func (w *work) free() {
	w.batch.free()
	w.batch = nil
	clear(w.ops[:w.most])
	w.most = 0
	clear(w.asked[:cap(w.asked)])
	w.scan.b = nil
	w.ops, w.reply, w.asked = w.ops[:0], w.reply[:0], w.asked[:0]
	if cap(w.reply) <= keepBuffer {
		works.Put(w)
	}
}

// asked is a topic whose role the connection changed itself, in the message that is being done.
type asked struct {
	plan *plan
	role role // as the reply has it

	after *routetable.Snapshot // what follows is of it
	is    role
	own   bool // its row is there
}

// take does a message.
func (c *Conn) take(w *work, m websocket.Message) {
	if c.b.o.received != nil {
		c.b.o.received(m.Data)
	}
	if !m.Text {
		w.general(nil, badRequest, "Messages are text frames")
		c.b.stats.bad.Add(1)
		c.commit(w)
		return
	}
	var err error
	w.ops, err = w.scan.scan(m.Data, w.ops[:0])
	w.most = max(w.most, len(w.ops))
	if err != nil {
		words := "Invalid JSON"
		switch {
		case errors.Is(err, errNoArray):
			words = "A message is an array of ops"
		case errors.Is(err, errTooMany):
			words = "More than 100 ops in a message"
		}
		w.general(nil, badRequest, words)
		c.b.stats.bad.Add(1)
		c.commit(w)
		return
	}
	for i := range w.ops {
		c.do(w, &w.ops[i])
	}
	c.receivedOps.Add(uint64(len(w.ops)))
	if len(w.reply) > 0 || len(w.asked) > 0 {
		c.commit(w)
	}
}

// do does an op.
func (c *Conn) do(w *work, o *op) {
	switch o.kind {
	case kindBad:
		w.batch.counts.result(kindBad, badRequest)
		w.general(o.ref, badRequest, "An op is an object with the text op")
		return
	case kindUnknown:
		w.batch.counts.result(kindUnknown, unknownOp)
		w.general(o.ref, unknownOp, "There is no such op")
		return
	}
	p, words := c.check(o)
	if words != "" {
		w.refuse(o, badRequest, words)
		return
	}
	p.grants(c)
	switch o.kind {
	case kindServe:
		c.serve(w, o, p)
	case kindUnserve:
		c.unserve(w, o, p)
	case kindCancel:
		c.cancel(w, o, p)
	default:
		if o.to != nil {
			c.respond(w, o, p)
		} else {
			c.request(w, o, p)
		}
	}
}

// check looks at the shape of an op; words say what is wrong with it.
func (c *Conn) check(o *op) (p *plan, words string) {
	switch {
	case len(o.ref) > maxText:
		return nil, "ref is too long"
	case !isText(o.topic):
		return nil, "topic is missing, empty or no text"
	case len(o.topic) > maxText:
		return nil, "topic is too long"
	}
	if o.kind < kindServe {
		switch {
		case !isText(o.id):
			return nil, "id is missing, empty or no text"
		case len(o.id) > maxText:
			return nil, "id is too long"
		}
	}
	if o.kind == kindHead || o.kind == kindBody {
		switch {
		case o.done != nil && o.done[0] != 't' && o.done[0] != 'f':
			return nil, "done is true or false"
		case o.to != nil && !isText(o.to):
			return nil, "to is empty or no text"
		case len(o.data) > c.b.o.MaxData:
			return nil, "data is too long"
		}
	}
	if p = c.planOf(o.topic); p == nil {
		return nil, "topic has half a surrogate pair in it"
	}
	return p, ""
}

// isText tells whether a field is a text that is not empty.
func isText(field []byte) bool { return len(field) > 2 && field[0] == '"' }

// request passes a head or a body to the active server.
func (c *Conn) request(w *work, o *op, p *plan) {
	if !p.ask {
		w.refuse(o, forbidden, "Missing P claim on topic")
		return
	}
	switch c.passActive(w, o, p); {
	case p.to != nil:
	case p.discards:
		c.discard(w, o)
	default:
		w.words = append(append(w.words[:0], `Nobody is serving \"`...), o.topic[1:len(o.topic)-1]...)
		w.refuse(o, unavailable, string(append(w.words, `\"`...)))
	}
}

// respond passes a head or a body to the client that its address names.
func (c *Conn) respond(w *work, o *op, p *plan) {
	if !p.serve {
		w.refuse(o, forbidden, "Missing S claim on topic")
		return
	}
	to, ok := c.returnTo(o.to, p)
	switch {
	case !ok:
		w.refuse(o, badRequest, "to is no address of this topic")
	case to == nil:
		c.later(w, o, clientGone)
	case to.bridge != nil:
		c.later(w, o, to.bridge.respond(o, p.address))
	default:
		c.pass(w, o, p, to)
	}
}

// cancel passes a cancel on, and is answered at once.
func (c *Conn) cancel(w *work, o *op, p *plan) {
	if !p.ask {
		w.refuse(o, forbidden, "Missing P claim on topic")
		return
	}
	o.to, o.data, o.done = nil, nil, nil // fields that others have
	c.passActive(w, o, p)
	w.ok(o, "")
}

// discard answers an op whose row is null as one that was taken.
func (c *Conn) discard(w *work, o *op) { c.later(w, o, codeNone) }

// later has an op answered behind the reply array, in a message of its own.
func (c *Conn) later(w *work, o *op, reason code) {
	c.pending.Add(1)
	w.words = appendTail(w.words[:0], o)
	w.batch.own.add(c, o.kind, w.words, 0, reason)
}

// passActive passes an op to the active server; p.to is nil where there is none. A server that was told meanwhile that it is active no more gets no
// request any more: another look finds who is.
func (c *Conn) passActive(w *work, o *op, p *plan) {
	for p.look(c, w); p.to != nil && !c.pass(w, o, p, p.to); p.look(c, w) {
	}
}

// pass queues an op for another connection, or for c itself; false: the plan is too old, and nothing was done.
func (c *Conn) pass(w *work, o *op, p *plan, to *Conn) bool {
	if n := len(w.touched); n == 0 || w.touched[n-1] != to {
		w.touched = append(w.touched, to)
	}
	if len(p.from) == 0 && o.to == nil {
		p.from = append(c.b.mint.issue([]byte(`,"from":"`), c.serial, c.domain, p.topic), '"')
	}
	counts := o.kind != kindCancel
	if counts {
		c.pending.Add(1)
	}
	n, reason, told, crowded := to.queue(c, o, p)
	c.crowded = c.crowded || crowded
	if told {
		c.b.roles.check(to, p.address)
	}
	if reason != codeNone && counts {
		c.pending.Add(-1)
	}
	switch {
	case reason == codeStale:
		return false
	case reason == codeNone && counts:
		c.pendingBytes.Add(int64(n))
	case reason != codeNone && counts:
		c.later(w, o, reason)
	}
	return true
}

// Bounds of what is on its way to one connection, of all senders together: from crowdedLine on each sender is read again only when nothing of
// its own is on its way, and beyond maxLine ops are busy at once.
const (
	crowdedLine = 16 << 20
	maxLine     = 256 << 20
)

// queue puts an op of another connection in c's line. n is the length of its frame; told: c was told first that it is active; crowded: its
// sender is to wait. The reason is codeStale where c's role may have changed since p looked.
func (c *Conn) queue(from *Conn, o *op, p *plan) (n int, reason code, told, crowded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.line
	response := o.to != nil
	switch {
	case c.over && response:
		return 0, clientGone, false, false
	case c.over:
		return 0, serverGone, false, false
	case l.bytes+len(o.data) > maxLine:
		return 0, busy, false, false
	}
	if !response && p.told != c.toldGeneration {
		if p.looked && p.generation != c.b.table.Snapshot().Generation() {
			return 0, codeStale, false, false
		}
		told = c.tellActive(p)
		p.told = c.toldGeneration
	}
	buf, place := l.at()
	before := len(*buf)
	*buf = appendPushed(*buf, o, p)
	n = len(*buf) - before
	entry := waiting{at: c.b.now.Load(), kind: o.kind, response: response, settle: o.settle}
	if o.kind != kindCancel && o.settle == nil {
		entry.from = from
	}
	l.add(entry, place, n, o)
	c.sent++
	return n, codeNone, told, l.bytes >= crowdedLine
}

// appendPushed appends the frame of an op as the other side gets it: a request op with from, a response op without anything of that.
func appendPushed(b []byte, o *op, p *plan) []byte {
	const data, done, end = len(`,"data":`), len(`,"done":true`), len(`}]`)
	begin, from := p.begins[o.kind], p.from
	if o.to != nil {
		from = nil
	}
	n := len(begin) + len(o.id) + len(from) + end
	hasData, isDone := o.data != nil, o.done != nil && o.done[0] == 't'
	if hasData {
		n += data + len(o.data)
	}
	if isDone {
		n += done
	}
	b = append(websocket.AppendHeader(b, true, n), begin...)
	b = append(append(b, o.id...), from...)
	if hasData {
		b = append(append(b, `,"data":`...), o.data...)
	}
	if isDone {
		b = append(b, `,"done":true`...)
	}
	return append(b, `}]`...)
}

// serve writes the row of a topic that c is to serve.
func (c *Conn) serve(w *work, o *op, p *plan) {
	if !p.serve {
		w.refuse(o, forbidden, "Missing S claim on topic")
		return
	}
	serves := c.b.table.Snapshot().Find(p.pattern, c.address, c.origin) != nil
	if !serves && c.serves() >= maxTopics {
		w.refuse(o, badRequest, "A connection serves at most 100 topics")
		return
	}
	c.asks(p, true)
	if !serves {
		c.command(admin.Subscribe{Origin: c.origin, Pattern: p.pattern, Address: c.address, Pick: routetable.PickFirst})
	}
	w.ok(o, c.ask(w, p).role.String())
}

// serves is how many topics c serves, active or not.
func (c *Conn) serves() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.served
}

// maxTopics is how many topics a connection serves.
const maxTopics = 100

// unserve takes the row of a topic away. Rows of operators stay. What came while c was active is before the reply: nothing is held.
func (c *Conn) unserve(w *work, o *op, p *plan) {
	if c.b.table.Snapshot().Find(p.pattern, c.address, c.origin) != nil {
		c.asks(p, false)
		c.command(admin.Unsubscribe{Origin: c.origin, Pattern: p.pattern, Address: c.address})
		c.ask(w, p).role = roleNone // whatever rows of others say
	}
	w.ok(o, "")
}

// command has the table edited. What it does not take is a fault of ours.
func (c *Conn) command(cmd admin.Command) {
	if _, err := c.b.core.Do(c.caller, cmd); err != nil {
		panic(fault{err})
	}
}

// ask notes which role the table gives c on a topic, to be told with the reply.
func (c *Conn) ask(w *work, p *plan) *asked {
	a := asked{plan: p}
	a.look(c, c.b.table.Snapshot(), &w.groups)
	a.role = a.is
	w.asked = append(w.asked, a)
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.told[p.address]
	t.own = a.own
	c.setTold(p.address, t)
	return &w.asked[len(w.asked)-1]
}

// ok adds an answer to the reply array. serve's has a role.
func (w *work) ok(o *op, role string) {
	w.batch.counts.result(o.kind, codeNone)
	w.words = appendTail(w.words[:0], o)
	w.reply = appendOK(w.next(), o.kind, w.words)
	if role != "" {
		w.reply = append(append(append(w.reply, `,"role":"`...), role...), '"')
	}
	w.reply = append(w.reply, '}')
}

// refuse adds an error to the reply array.
func (w *work) refuse(o *op, c code, words string) {
	w.batch.counts.result(o.kind, c)
	var room [256]byte
	w.reply = appendError(w.next(), o.kind, appendTail(room[:0], o), c, words)
}

// general adds an error that is not of one of the ops.
func (w *work) general(ref []byte, c code, words string) {
	w.reply = append(w.next(), `{"op":"error"`...)
	w.reply = appendCode(appendRef(w.reply, ref), c, words)
}

func (w *work) next() []byte {
	if len(w.reply) == 0 {
		return append(w.reply, '[')
	}
	return append(w.reply, ',')
}

// fault is a broken invariant: the connection ends with 1011.
type fault struct{ error }
