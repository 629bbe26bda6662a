package mesh

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// twin stands for who is, or was, at the other end of a connection: a component or a router. A named one outlives its connections.
type twin struct {
	// Set at construction, never changed.
	m      *Mesh
	name   string
	tenant string
	named  bool
	line   string // the name as it stands in lines of what is kept

	open        atomic.Bool                         // it has a connection
	relays      atomic.Bool                         // it is a router, which passes on what others say
	kin         atomic.Uint64                       // its mark, where it is one of our kind
	outstanding atomic.Int64                        // requests that it has not answered
	neighbour   atomic.Pointer[forwarder.Neighbour] // by which AMQP goes there; nil: it is no router of our kind, or takes none

	mu       sync.Mutex // guards what follows; the lock of link's transport may be taken under it
	link     *link      // nil: it is away
	reactive bool       // it wants publishes
	boxes
	log     boxLog           // of the boxes
	noted   int64            // the mark that log has
	replay  *replay          // it is catching up; nil: it has
	covered int64            // up to here it has got what it was to get, by a replay
	asked   map[ID]*question // requests that it has not answered, by the id that it knows
	lanes   map[laneKey]*lane
	alarmed bool // something has begun to wait, and the clock does not know

	// Scratch of Deliver.
	frame []byte
	done  []*forwarder.Copy
}

func newTwin(m *Mesh, name string) *twin {
	return &twin{m: m, name: name, tenant: tenantOf(name), named: isNamed(name), line: escapeName(name)}
}

// question is a request that waits for its answer.
type question struct {
	from    *twin // who asked; nil: answer is
	id      ID    // as it was asked
	topic   string
	data    []byte // the arguments
	until   time.Time
	answers func(f *Frame) // takes the answer, or that there is none in time; nil: it goes to from
}

// send has a frame written behind what was sent before. by is the connection whose reader says so: it flushes when it has no more; nil flushes at once.
func (t *twin) send(by *link, f *Frame) {
	t.mu.Lock()
	t.sendLocked(f)
	t.mu.Unlock()
	t.flush(by)
}

// sendLocked is send without the flush. Called under the lock.
func (t *twin) sendLocked(f *Frame) {
	t.frame = AppendFrame(t.frame[:0], f)
	t.write(f, t.frame)
	t.trim()
}

// write puts a frame on the wire; text is the same, as CBOR. Called under the lock.
func (t *twin) write(f *Frame, text []byte) {
	l := t.link
	if l == nil {
		return
	}
	l.t.Lock()
	l.write(f, text)
	clogged := l.t.Pending() > 2*t.m.o.HardQueue // publishes are dropped before that: these are answers
	l.t.Unlock()
	if clogged {
		l.t.Abort(errClogged)
	}
}

// trim lets go of a large scratch buffer. Called under the lock.
func (t *twin) trim() {
	if cap(t.frame) > 64<<10 {
		t.frame = nil
	}
}

// flush writes what was sent, now or when by's reader has no more.
func (t *twin) flush(by *link) {
	if by != nil && by.later(t) {
		return
	}
	t.mu.Lock()
	l, alarmed := t.link, t.alarmed
	t.alarmed = false
	t.mu.Unlock()
	if l != nil {
		l.flush()
	}
	if alarmed {
		t.m.wake(t)
	}
}

// push has a publish sent in its turn. Called under the lock.
func (t *twin) push(p parcel, now time.Time) {
	p.kin = t.kin.Load() != 0
	t.out.push(p)
	if p.isKept() {
		t.note(lineWaits, p.frame)
	}
	t.pump(now)
}

// pump sends what may go. Called under the lock.
func (t *twin) pump(now time.Time) {
	if t.link == nil || !t.reactive {
		return
	}
	for p := t.out.next(now, t.m.retries()); p != nil; p = t.out.next(now, t.m.retries()) {
		t.transmit(p)
		t.alarmed = t.alarmed || p.qos != 0
	}
}

// transmit writes a parcel. Called under the lock.
func (t *twin) transmit(p *parcel) {
	var f Frame
	if ParseFrame(p.frame, &f) != nil {
		return
	}
	if p.sent && t.out.tries == 1 && (p.kin || t.kin.Load() != 0) { // it is long since, maybe
		f.Flags |= flagAgain
		t.sendLocked(&f)
		return
	}
	t.write(&f, p.frame)
}

// full tells whether no more publishes can wait. Called under the lock.
func (t *twin) full() bool {
	return len(t.out.waiting) >= t.m.o.HardCount || t.out.bytes >= t.m.o.HardQueue
}

// acked takes an ack.
func (t *twin) acked(by *link, id ID) {
	t.mu.Lock()
	p, ok := t.out.acked(id)
	if ok {
		t.noteAcked(&p)
		if p.qos == flagQoS2 {
			t.sendLocked(&Frame{Type: Ack2, ID: p.id})
		}
		t.pump(time.Now())
	}
	behind := t.replay != nil && len(t.out.waiting) < t.m.o.HardCount/4
	t.mu.Unlock()
	if ok && p.copy != nil {
		p.copy.Settle(accepted)
	}
	if behind {
		t.catchUp()
	}
	t.flush(by)
}

// noteAcked has a publish be forgotten, before the peer is told so. Called under the lock.
func (t *twin) noteAcked(p *parcel) {
	if p.isKept() {
		t.note(lineAcked, p.id.Bytes())
		t.commit()
	}
}

func (m *Mesh) retries() retryPolicy { return retryPolicy{m.o.AckTimeout, m.o.SendRetries} }

// tick does what is due, and tells whether there is more to wait for.
func (t *twin) tick(now time.Time) (waits bool) {
	t.mu.Lock()
	var lost *parcel
	var late []*question
	if t.link != nil {
		var again *parcel
		if again, lost = t.out.due(now, t.m.retries()); again != nil {
			t.transmit(again)
		}
		if lost != nil {
			t.noteAcked(lost)
		}
		if t.replay != nil && !t.replay.busy {
			t.m.running.Go(t.catchUp)
		}
		t.pump(now)
	}
	for id, q := range t.asked {
		if now.After(q.until) {
			delete(t.asked, id)
			t.outstanding.Add(-1)
			if q.answers != nil {
				late = append(late, q)
			}
		}
	}
	waits = t.waitsLocked()
	t.mu.Unlock()
	if lost != nil {
		t.m.count.gaveUp.Add(1)
	}
	t.flush(nil)
	for _, q := range late {
		q.answers(&Frame{Type: Response, Status: StatusTimeout, Data: appendText(nil, q.topic+": no answer in time")})
	}
	if lost != nil && lost.copy != nil {
		lost.copy.Settle(doubtful)
	}
	return waits
}

// doubtful is the outcome of what was sent and never acknowledged: the peer may have had it.
var doubtful = forwarder.Outcome{Kind: wire.Modified, State: &wire.State{Kind: wire.Modified, DeliveryFailed: true}}

// waits tells whether the clock has something to do for the twin.
func (t *twin) waits() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waitsLocked()
}

func (t *twin) waitsLocked() bool { return len(t.asked) > 0 || t.out.tries > 0 || t.replay != nil }

// ask sends a request, and keeps who is to have the answer. An id that is out already is another's: then it goes by one of ours. ok is false where the
// twin is away.
func (t *twin) ask(by *link, f *Frame, q *question) (ok bool) {
	t.mu.Lock()
	if t.link == nil {
		t.mu.Unlock()
		return false
	}
	id := f.ID.bare()
	if _, taken := t.asked[id]; taken || id.n == 0 {
		id = newID()
	}
	t.alarmed = t.alarmed || len(t.asked) == 0
	t.keep(id, q)
	sent := *f
	sent.ID = id
	t.sendLocked(&sent)
	t.mu.Unlock()
	t.flush(by)
	return true
}

// keep notes a question under the id of its answer. Called under the lock.
func (t *twin) keep(id ID, q *question) {
	if t.asked == nil {
		t.asked = map[ID]*question{}
	}
	q.until = time.Now().Add(t.m.o.RequestTimeout)
	t.asked[id] = q
	t.outstanding.Add(1)
}

// answered takes the question that an answer is for, nil where nobody has asked.
func (t *twin) answered(id ID) *question {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.asked[id.bare()]
	if q != nil {
		delete(t.asked, id.bare())
		t.outstanding.Add(-1)
	}
	return q
}

// attach gives the twin a connection.
func (t *twin) attach(l *link, reactive, router bool) {
	t.mu.Lock()
	t.link, t.reactive = l, reactive
	t.relays.Store(router)
	t.out.interrupted()
	t.mu.Unlock()
	t.open.Store(true)
}

// detach takes the connection away; false where the twin has another by now.
func (t *twin) detach(l *link) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.link != l {
		return false
	}
	t.link, t.reactive, t.replay = nil, false, nil
	t.out.interrupted()
	t.open.Store(false)
	return true
}

// setReactive has publishes sent to the twin, or not.
func (t *twin) setReactive(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reactive = on; on {
		t.pump(time.Now())
	} else {
		t.replay = nil
	}
}

// giveUp gives back what waits for the twin.
func (t *twin) giveUp() {
	t.mu.Lock()
	parcels := t.out.clear()
	t.mu.Unlock()
	for _, p := range parcels {
		if p.copy != nil {
			p.copy.Settle(forwarder.Outcome{Kind: wire.Released})
		}
	}
}
