package forwarder

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// Message is one message, shared by all its copies. It is immutable once a copy was handed to an outlet.
type Message struct {
	Payload []byte // as received: header and annotations, then the bare message
	Format  uint32 // message-format of the transfer
	Settled bool   // the sender wants no outcome

	owned  bool    // Payload is ours; else it lies in the reader's buffer and is gone after the batch
	marked bool    // it has annotations of nodes, which receivers do not get
	first  bool    // the header says that nobody had it before
	more   *more   // nil: none of it; once there, it stays with the memory
	stream *stream // of a message that cuts through: Payload is its first part
	buf    []byte  // memory for Payload, used again

	born  int64  // Unix nanoseconds: when it came
	until int64  // Unix nanoseconds: its life ends then; 0 never
	ttl   uint32 // of the header, milliseconds; 0 none
	tries uint32 // of the header: how often it was sent before

	scan wire.Sections
}

// more is what few messages have: those from and to other nodes, and those of inlets.
type more struct {
	head  []byte // what goes in front of the bare message toward other nodes, made when one is picked
	plain []byte // what goes there toward receivers, where the message is marked

	toward string // the address that it goes back to another node by; empty: its own
	as     string // the address that it is looked up by; empty: its own
	source any    // of the inlet that it came by
	tag    int64  // that its sender gave it there
	stamp  stamp  // by which nodes know it again; zero: it has none yet
	way    way    // by which it came, of a message that may come by another; zero: none

	told    func(Outcome) // of the node's own messages: gets the outcome, under the lock of conn; nil where nobody asks
	waiting int64         // Unix nanoseconds: on the link's waiting list until then
}

var noMore more // never written

// had is what the message has of it, to be read; has the same to be written.
func (m *Message) had() *more {
	if m.more == nil {
		return &noMore
	}
	return m.more
}

func (m *Message) has() *more {
	if m.more == nil {
		m.more = &more{}
	}
	return m.more
}

// To is the message's own address, as written; ok is false where it has none.
func (m *Message) To() (to []byte, ok bool) {
	return m.scan.ToText(m.Payload), m.scan.HasTo
}

// keep moves the payload out of the reader's buffer.
func (m *Message) keep() {
	if m.owned {
		return
	}
	if len(m.Payload) > maxKeptBuffer {
		m.buf = bigBuffer(len(m.Payload))
	}
	m.buf = append(m.buf[:0], m.Payload...)
	m.Payload, m.owned = m.buf, true
}

// Copy is one message on its way to one hop. There are as many as the sender's window times the hops of a fan-out: 112 bytes.
type Copy struct {
	in   *delivery          // set by the node before an outlet gets the copy
	line *line              // the outlet's, until it settles the copy
	out  engine.OutDelivery // the outlet's

	// Set by the node before an outlet gets the copy, and not changed while it has it.
	group, target int32     // of in.plan, and of the group
	row           *rowCount // of the target
	expires       int64     // Unix nanoseconds: not sent by then, it is given back
	droppable     bool      // a full hop drops it: it does not count, or nothing holds its sender back
	timed         bool      // its time with a receiver has a limit
	acquired      bool      // somebody had it before

	// Under the lock of in.conn.
	tap  bool // does not count: optional, or pre-settled and of a hop that is slow
	over bool // has its outcome

	// The outlet's, until it settles the copy.
	state    copyState
	inDoubt  bool // it was with a peer that went away
	fate     fate
	outcome  Outcome
	answerBy int64 // Unix nanoseconds: where timed, and sent

	rare *rarely // nil: none of it
}

// rarely is what few copies have.
type rarely struct {
	tail        *tail     // of a message that cuts through
	due         int64     // Unix nanoseconds: a receiver released it, it is tried again then; 0 at once
	releases    uint32    // times that it was tried again because it was released
	attempts    uint32    // times it was sent before, to a peer that went away
	tried       uint64    // any and first groups: the rows tried before the copy's own, of the first 63
	triedAround []triedOf // what tried is, of groups around the copy's own
}

// had is what the copy has of it, to be read.
func (c *Copy) had() *rarely {
	if c.rare == nil {
		return &noneOfIt
	}
	return c.rare
}

// has is the same to be written.
func (c *Copy) has() *rarely {
	if c.rare == nil {
		c.rare = &rarely{}
	}
	return c.rare
}

var noneOfIt rarely // never written

// Message is the message, shared by all its copies.
func (c *Copy) Message() *Message { return &c.in.Message }

// Hop is where the copy goes.
func (c *Copy) Hop() *routetable.Hop { return c.planned().hop }

type copyState uint8

const (
	copyQueued copyState = iota
	copySent             // some of it is with the peer
)

// fate tells why a copy without an outcome of a receiver's ended.
type fate uint8

const (
	fateSent    fate = iota // no such reason
	fateBusy                // the hop's line was full, or a hop that takes nothing had its share of the link's credit
	fateGone                // there is no such hop any more
	fateLate                // not sent in time
	fateExpired             // its ttl was over
	fateOverdue             // a receiver had it for too long
	fateStalled             // it took nothing of a message that cuts through
	fateAborted             // the message was taken back, or came to its end otherwise
)

// Outcome is what became of a copy.
type Outcome struct {
	Kind  wire.StateKind // Accepted, Rejected, Released or Modified
	State *wire.State    // the whole of it, where it says more than its kind
}

// delivery is a message that came in, until the last of its copies is done. The lock of conn guards it; the node's own messages
// come by Node.self.
//
// There are as many as are in flight, and one that ends is in no cache: what its end touches comes first, in a line with the outcome's ways.
type delivery struct {
	conn   *conn
	link   *inlink
	in     *engine.InDelivery // nil: no answer is wanted, or nobody is there to take it
	plan   *plan
	copies []Copy

	// Invariant: counting <= pending; answered where nothing counts any more.
	pending  int32 // copies without an outcome
	counting int32 // of these, those that the sender's outcome waits for

	serial   atomic.Uint32 // goes up when the memory is given back: what was seen of it before is another message's
	answered bool          // the sender has its outcome

	Message
	seq uint64  // among the messages of its link
	one [1]Copy // for copies, where one is enough
}

var deliveries = sync.Pool{New: func() any { return newMemory() }}

// bigBuffers are buffers for payloads of more than maxKeptBuffer and at most maxBigBuffer bytes.
var bigBuffers = sync.Pool{New: func() any { return new([]byte) }}

const maxBigBuffer = 1 << 20

// bigBuffer gives an empty buffer with room for n bytes.
func bigBuffer(n int) []byte {
	b := *bigBuffers.Get().(*[]byte)
	if cap(b) < n {
		b = make([]byte, 0, max(n, 4*maxKeptBuffer))
	}
	return b[:0]
}

func putBigBuffer(b []byte) {
	if c := cap(b); c > maxKeptBuffer && c <= maxBigBuffer {
		bigBuffers.Put(&b)
	}
}

// maxKeptBuffer is the largest buffer that stays with a pooled delivery.
const maxKeptBuffer = 8 << 10

func newDelivery(c *conn, l *inlink, in *engine.InDelivery) *delivery {
	d := deliveries.Get().(*delivery)
	d.conn, d.link, d.in = c, l, in
	return d
}

func newMemory() *delivery {
	d := &delivery{}
	d.copies = d.one[:0]
	return d
}

// recycle gives the memory back. Nothing may point to the delivery or its copies any more.
func (d *delivery) recycle() {
	clear(d.copies)
	if d.copies = d.copies[:0]; cap(d.copies) > 64 {
		d.copies = d.one[:0]
	}
	d.serial.Add(1)
	if cap(d.buf) > maxKeptBuffer {
		putBigBuffer(d.buf)
		d.buf = nil
	}
	d.Message.reset()
	d.conn, d.link, d.in, d.plan = nil, nil, nil, nil
	d.seq, d.pending, d.counting, d.answered = 0, 0, 0, false
	deliveries.Put(d)
}

// reset forgets the message. What was found in it, a scan writes anew.
func (m *Message) reset() {
	m.Payload, m.stream = nil, nil
	m.Settled, m.owned, m.marked, m.first = false, false, false, false
	m.Format, m.born, m.until, m.ttl, m.tries = 0, 0, 0, 0, 0
	if x := m.more; x != nil {
		*x = more{head: x.head[:0], plain: x.plain[:0]}
	}
}

func now() int64 { return time.Now().UnixNano() }
