package components

import (
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// stream is the stream of one replica of a component: an outlet of the node. Three goroutines: one reads (read), one writes (write), and gRPC's own
// waits for the end.
type stream struct {
	// Set at construction, never changed.
	b      *Broker
	id     ComponentID // BrokerID is empty: as the component tells of itself
	key    string      // of hops: grpc:KEY
	grpc   grpc.ServerStream
	fixed  bool          // the dialect is a setting
	joined bool          // other brokers are told; set before it reads
	wake   chan struct{} // of room one: there is something to write
	over   chan struct{} // closed with reason

	mu      sync.Mutex // guards what follows; a leaf
	reason  error
	queue   []outgoing
	bytes   int
	sending int // taken from queue, and not yet written
	dialect dialect
	learned bool // it has shown its dialect
	unsaid  bool // it was sent values before it showed its dialect, and has said nothing since
	held    int  // events of its own without outcome
	room    *sync.Cond
}

func newStream(b *Broker, g grpc.ServerStream) *stream {
	s := &stream{b: b, grpc: g, wake: make(chan struct{}, 1), over: make(chan struct{})}
	s.room = sync.NewCond(&s.mu)
	return s
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
			return taken, err
		}
		taken++
	}
	return taken, nil
}

// put queues a MatchedEvent in dialect D4, which it copies.
func (s *stream) put(x outgoing) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.reason != nil:
		return forwarder.ErrGone
	case len(s.queue) >= s.b.o.Queue || s.bytes+len(x.msg) > maxQueueBytes && s.bytes > 0:
		return forwarder.ErrBusy
	}
	x.msg = append([]byte(nil), x.msg...)
	s.queue = append(s.queue, x)
	s.bytes += len(x.msg)
	select {
	case s.wake <- struct{}{}:
	default:
	}
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
	return len(s.queue) + s.sending
}

// write writes what is queued until the stream ends. What it did not write goes back.
func (s *stream) write() {
	var list []outgoing
	for {
		select {
		case <-s.over:
			s.giveBack(nil)
			return
		case <-s.wake:
		}
		s.mu.Lock()
		list, s.queue = s.queue, list[:0]
		s.sending = len(list)
		s.mu.Unlock()
		for i := range list {
			if err := s.send(&list[i]); err != nil {
				s.end(err)
				s.giveBack(list[i:])
				return
			}
			list[i] = outgoing{}
		}
	}
}

// send writes one event, unless its life is over.
func (s *stream) send(x *outgoing) error {
	outcome := forwarder.Outcome{Kind: wire.Accepted}
	var err error
	if age(x.msg, int64(s.b.o.Now().Sub(x.at))) {
		err = s.grpc.SendMsg(frame(s.inDialect(x.msg)))
	} else {
		outcome = forwarder.Expired()
	}
	s.mu.Lock()
	s.bytes -= len(x.msg)
	s.sending--
	s.mu.Unlock()
	if err == nil && x.copy != nil {
		x.copy.Settle(outcome)
	}
	return err
}

// inDialect is a MatchedEvent in the stream's dialect.
func (s *stream) inDialect(msg []byte) []byte {
	s.mu.Lock()
	if !s.learned {
		if d := dialect(s.b.hint.Load()); !s.fixed && !s.unsaid {
			s.dialect = d
		}
		s.unsaid = true
	}
	d := s.dialect
	s.mu.Unlock()
	if d == dialect4 {
		return msg
	}
	var m matched
	var e Event
	if m.parse(msg) != nil {
		return msg
	}
	if _, err := e.parse(m.Event); err != nil {
		return msg
	}
	return appendMatched(nil, &e, m.RouteID, m.Env, d)
}

// heard notes that the component said something, and the dialect of its values where there were any.
func (s *stream) heard(seen dialects) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsaid = false
	if s.fixed || seen.d3 == seen.d4 {
		s.learned = s.learned || s.fixed
		return
	}
	s.dialect, s.learned = dialect4, true
	if seen.d3 {
		s.dialect = dialect3
	}
	s.b.hint.Store(int32(s.dialect))
}

// giveBack releases what was not written.
func (s *stream) giveBack(list []outgoing) {
	s.mu.Lock()
	list = append(list, s.queue...)
	s.queue, s.bytes, s.sending = nil, 0, 0
	s.mu.Unlock()
	for _, x := range list {
		if x.copy != nil {
			x.copy.Settle(forwarder.Outcome{Kind: wire.Released})
		}
	}
}

// end ends the stream; the first reason counts.
func (s *stream) end(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == nil {
		s.reason = reason
		close(s.over)
		s.room.Broadcast()
	}
}

// hold waits until the stream may have another event without outcome; false says that it has ended.
func (s *stream) hold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.held >= s.b.o.Queue && s.reason == nil {
		s.room.Wait()
	}
	s.held++
	return s.reason == nil
}

func (s *stream) release() {
	s.mu.Lock()
	s.held--
	s.room.Signal()
	s.mu.Unlock()
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
