package components

import (
	"errors"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/internal/components/proto"
	"github.com/fingerpost/fingerpost/internal/grpc"
	"github.com/fingerpost/fingerpost/routetable"
)

// conduit is what a stream needs of gRPC.
type conduit interface {
	Start(o grpc.Owner)
	Flush()
	Pause()
	Resume()
}

// stream is the stream of one replica of a component: an outlet of the node, and the owner of a gRPC stream. What is read is handled in the goroutine
// that reads the connection; what is queued is written when the socket takes it, by whoever flushes.
type stream struct {
	// Set at construction, never changed.
	b      *Broker
	id     proto.Component // BrokerID is empty: as the component tells of itself
	key    string          // of hops: grpc:KEY
	grpc   conduit
	fixed  bool          // the dialect is a setting
	def    *Component    // what it registered
	joined bool          // other brokers are told; set before it reads
	over   chan struct{} // closed with reason

	writing atomic.Bool // somebody is about to flush

	// Owned by who reads.
	in     *inlet
	finder *Finder

	mu      sync.Mutex // guards what follows; a leaf, also below the lock of the connection
	reason  error
	queue   []outgoing
	next    int // of queue
	bytes   int
	sending outgoing  // is with gRPC
	begun   time.Time // since then
	owed    owed
	done    []settled // copies whose senders are to be told
	spare   []settled
	dialect proto.Dialect
	learned bool // it has shown its dialect
	unsaid  bool // it was written to before it showed its dialect, and has said nothing since
	tried   bool // it was sent values
	held    int  // events of its own without outcome
	paused  bool // it sends no more until there are less
	isLater bool // in Broker.later; guarded by that
}

// settled is a copy and what became of it.
type settled struct {
	copy    *forwarder.Copy
	outcome forwarder.Outcome
}

func newStream(b *Broker, g conduit) *stream {
	return &stream{b: b, grpc: g, over: make(chan struct{})}
}

// outgoing is a MatchedEvent on its way to a component.
type outgoing struct {
	copy *forwarder.Copy // nil: of the broker's own
	msg  []byte          // owned
	at   time.Time       // when its ttl was what it says
}

// Bounds of a stream's line, in bytes.
const maxQueueBytes = 64 << 20

// Deliver queues copies. It is the outlet's part of forwarder.Outlet.
func (s *stream) Deliver(batch []*forwarder.Copy) (taken int, err error) {
	for _, c := range batch {
		data, ok := s.b.tickets.data(c.Message())
		if !ok {
			c.Settle(forwarder.Rejected(wire.CondNotImplemented, "not an event of a component"))
			taken++
			continue
		}
		c.Keep()
		if err := s.put(outgoing{copy: c, msg: data, at: s.b.o.Now()}); err != nil {
			s.write()
			return taken, err
		}
		taken++
	}
	s.write()
	return taken, nil
}

// write writes what was put, once for all who put something at the same time: the first lets those go on that can, and the others leave it to that one.
func (s *stream) write() {
	if !s.writing.CompareAndSwap(false, true) {
		return
	}
	runtime.Gosched()
	s.writing.Store(false)
	s.grpc.Flush()
}

// put queues a MatchedEvent in dialect D4, which it copies. Who puts flushes.
func (s *stream) put(x outgoing) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.reason != nil:
		return forwarder.ErrGone
	case len(s.queue)-s.next >= s.b.o.Queue || s.bytes+len(x.msg) > maxQueueBytes && s.bytes > 0:
		return forwarder.ErrBusy
	}
	x.msg = append([]byte(nil), x.msg...)
	s.queue = append(s.queue, x)
	s.bytes += len(x.msg)
	return nil
}

// Present tells whether the stream is open.
func (s *stream) Present() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason == nil
}

// Busy tells how many events wait for it.
func (s *stream) Busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.queue) - s.next
	if s.sending.msg != nil {
		n++
	}
	return n
}

// Next gives the next event whose life is not over. It is the stream's part of grpc.Owner.
func (s *stream) Next() (m []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.next < len(s.queue) && s.reason == nil {
		x := s.queue[s.next]
		s.queue[s.next] = outgoing{}
		if s.next++; s.next == len(s.queue) {
			s.queue, s.next = s.queue[:0], 0
		}
		if now := s.b.o.Now(); proto.Age(x.msg, int64(now.Sub(x.at))) {
			s.sending, s.begun = x, now
			s.tried = s.tried || x.copy != nil
			return s.inDialect(x.msg), true
		}
		s.finish(x, forwarder.Expired())
	}
	return nil, false
}

// finish notes what became of an event. mu is held.
func (s *stream) finish(x outgoing, o forwarder.Outcome) {
	s.bytes -= len(x.msg)
	if x.copy != nil {
		s.done = append(s.done, settled{x.copy, o})
	}
}

// Sent is the stream's part of grpc.Owner.
func (s *stream) Sent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owed.add(s.sending.msg, s.begun)
	s.finish(s.sending, forwarder.Outcome{Kind: wire.Accepted})
	s.sending = outgoing{}
}

// Settle tells the node what became of copies. It is the stream's part of grpc.Owner.
func (s *stream) Settle() {
	s.mu.Lock()
	done := s.done
	s.done, s.spare = s.spare, nil
	s.mu.Unlock()
	for i := range done {
		done[i].copy.Settle(done[i].outcome)
		done[i] = settled{}
	}
	s.mu.Lock()
	s.spare = done[:0]
	s.mu.Unlock()
}

// inDialect is a MatchedEvent in the stream's dialect. mu is held.
func (s *stream) inDialect(msg []byte) []byte {
	if !s.learned {
		if d, ok := s.b.guesses.Load(s.id.Group()); ok && !s.unsaid {
			s.dialect, _ = d.(proto.Dialect)
		} else if !s.unsaid {
			s.dialect = proto.Dialect(s.b.hint.Load())
		}
		s.unsaid = true
	}
	d := s.dialect
	if d == proto.D4 {
		return msg
	}
	var m proto.Matched
	var e proto.Event
	if m.Parse(msg) != nil {
		return msg
	}
	if _, err := e.Parse(m.Event); err != nil {
		return msg
	}
	return proto.AppendMatched(nil, &e, m.RouteID, m.Env, d)
}

// heard notes that the component said something, and the dialect of its values where there were any.
func (s *stream) heard(seen proto.Dialects) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsaid = false
	if s.fixed || seen.D3 == seen.D4 {
		s.learned = s.learned || s.fixed
		return
	}
	s.dialect, s.learned = proto.D4, true
	if seen.D3 {
		s.dialect = proto.D3
	}
	s.b.hint.Store(int32(s.dialect))
}

// guess notes, at the end of the stream, which dialect the component's next one is likely to speak: one that was sent values and ended without a word did not
// understand them.
func (s *stream) guess() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.learned || !s.unsaid || !s.tried || errors.Is(s.reason, errReplaced) || errors.Is(s.reason, errShutdown) {
		return
	}
	other := proto.D3
	if s.dialect == proto.D3 {
		other = proto.D4
	}
	s.b.guesses.Store(s.id.Group(), other)
}

// giveBack releases what was not written. It is called when gRPC takes no more.
func (s *stream) giveBack() {
	s.mu.Lock()
	if s.sending.msg != nil {
		s.finish(s.sending, forwarder.Outcome{Kind: wire.Released})
	}
	for _, x := range s.queue[s.next:] {
		s.finish(x, forwarder.Outcome{Kind: wire.Released})
	}
	s.queue, s.next, s.sending = nil, 0, outgoing{}
	s.mu.Unlock()
	s.Settle()
}

// end ends the stream; the first reason counts.
func (s *stream) end(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == nil {
		s.reason = reason
		close(s.over)
	}
}

// hold notes an event without outcome; with too many the component is to wait. A response is owed no more.
func (s *stream) hold(e *proto.Event) {
	s.mu.Lock()
	if e.Category == proto.Response {
		delete(s.owed.all, e.ParentID)
	}
	s.held++
	pause := s.held >= s.b.o.Queue && !s.paused
	s.paused = s.paused || pause
	s.mu.Unlock()
	if pause {
		s.grpc.Pause()
	}
}

// release notes an outcome. It may be called under a lock of the node.
func (s *stream) release() {
	s.mu.Lock()
	s.held--
	resume := s.paused && s.held < s.b.o.Queue/2+1
	s.mu.Unlock()
	if resume {
		s.b.later.add(s)
	}
}

// goOn writes what was queued, and lets the component go on where it had to wait.
func (s *stream) goOn() {
	s.mu.Lock()
	resume := s.paused && s.held < s.b.o.Queue/2+1
	if resume {
		s.paused = false
	}
	s.mu.Unlock()
	if resume {
		s.grpc.Resume()
	}
	s.grpc.Flush()
}

// later is the streams that are to go on, where that was found out under a lock.
type later struct {
	wake chan struct{} // of room one

	mu   sync.Mutex // a leaf
	list []*stream
}

func (l *later) add(s *stream) {
	l.mu.Lock()
	if !s.isLater {
		s.isLater = true
		l.list = append(l.list, s)
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// goOn has streams go on until the broker ends.
func (b *Broker) goOn() {
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-b.later.wake:
		}
		b.later.mu.Lock()
		list := b.later.list
		b.later.list = nil
		for _, s := range list {
			s.isLater = false
		}
		b.later.mu.Unlock()
		for _, s := range list {
			s.goOn()
		}
	}
}

// streams are the streams by key: the scheme grpc. It tells which are there, not who gets what.
type streams struct {
	mu  sync.Mutex
	all map[string]*stream // by key
}

// Outlet finds the stream of a hop.
func (x *streams) Outlet(hop *routetable.Hop, _ *routetable.Route, _ string) forwarder.Outlet {
	if s := x.get(hop.Name); s != nil {
		return s
	}
	return nil
}

func (x *streams) get(key string) *stream {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.all[key]
}

// put puts a stream in the place of the one with the same key, which it gives back.
func (x *streams) put(s *stream) (old *stream) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.all == nil {
		x.all = map[string]*stream{}
	}
	old = x.all[s.key]
	x.all[s.key] = s
	return old
}

// remove takes the stream out, unless another has its place.
func (x *streams) remove(s *stream) (removed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.all[s.key] != s {
		return false
	}
	delete(x.all, s.key)
	return true
}

// end ends all streams.
func (x *streams) end(reason error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.all {
		s.end(reason)
	}
}

var errReplaced = errors.New("another stream has taken its place")

// Stream is the stream of a replica, for people.
type Stream struct {
	Hop     string // as rows name it
	Name    string // of the component, and of the replica
	Remote  string
	Waiting int // events that it has not taken
	Full    bool
}

// Streams gives those that are open, by hop; at most so many.
func (b *Broker) Streams(most int) []Stream {
	b.streams.mu.Lock()
	list := slices.Collect(maps.Values(b.streams.all))
	b.streams.mu.Unlock()
	slices.SortFunc(list, func(x, y *stream) int { return strings.Compare(x.key, y.key) })
	all := make([]Stream, 0, min(len(list), most))
	for _, s := range list[:cap(all)] {
		x := Stream{Hop: "grpc:" + s.key, Name: s.id.Address() + "/" + s.id.ID, Waiting: s.Busy()}
		x.Full = x.Waiting >= b.o.Queue
		if r, ok := s.grpc.(interface{ RemoteAddr() net.Addr }); ok {
			x.Remote = r.RemoteAddr().String()
		}
		all = append(all, x)
	}
	return all
}
