package forwarder

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// A message of more than streamFrom bytes cuts through (DESIGN §5, streaming): it is looked up by what has come of it, and each copy is sent
// as far as it has come. Message.Payload is its first part, kept to the end; what follows is kept until the slowest copy has it.
//
// Its sender may be ahead of the slowest copy that counts by streamRoom: the window of its session is narrowed to that. Where it is further
// ahead in spite of it (what was on its way when it was told), its connection is not read for a while. An optional copy that lags by more
// is aborted, and so is any that takes nothing for Options.StalledAfter.
const (
	streamFrom = 1 << 20
	streamRoom = 4 << 20  // of all streams of a session
	streamMost = 24 << 20 // of one: what the buffers of two sockets hold comes in any case

	// maxWhole bounds what has to be held whole: requests to the door, and what routing looks at of any message.
	maxWhole = 16 << 20

	chunkSize = 64 << 10
)

// stream is a message that is still coming in, or has copies that are still going out.
type stream struct {
	// Set at construction, never changed.
	c       *conn
	l       *inlink
	session *engine.Session

	// Under the lock of c.
	d       *delivery // nil: it was answered
	frame   int       // bytes of the largest frame so far
	verdict *Outcome  // the outcome, told when all of it has come
	arrived bool      // whole, for who holds that lock

	fullAt atomic.Int64 // Unix nanoseconds: since then the sender may send nothing for want of room; 0 it may

	mu     sync.Mutex // a leaf; guards what follows
	first  []byte     // Message.Payload
	chunks []*chunk
	base   int // where chunks[0] begins in the message
	end    int // as far as it has come
	pace   int // as far as all copies that count are
	tails  []*tail
	made   bool // the copies are made: what all of them have is let go
	whole  bool
	dead   bool  // taken back, or with an outcome other than accepted before it was whole
	owed   bool  // it is dead, and the sender is told when it has sent the rest, or stops
	cameAt int64 // Unix nanoseconds: when the last of it came
	freed  int   // bytes that the pace has gone on since the sender was told of room
	due    bool  // attend is going to be called
}

type chunk [chunkSize]byte

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// tail is the place of one copy in a stream. Its mutex is the stream's.
type tail struct {
	s       *stream
	cp      *Copy // nil: it is over
	ln      *line // where it is queued, or sent
	tap     bool
	at      int
	movedAt int64  // Unix nanoseconds: when it last took something, or there came to be something to take
	begun   bool   // some of it is with the peer
	dry     bool   // it has all that has come
	done    bool   // it has all
	cut     bool   // it lags too far
	limit   uint64 // bytes that its receiver takes; 0 no limit
	large   bool   // there are more than that
}

var _ engine.Source = (*tail)(nil)

// cutsThrough makes a stream of the message whose parts the link has, where they are large and complete enough. Called under the lock.
func (c *conn) cutsThrough(l *inlink, in *engine.InDelivery) bool {
	if l.door || len(l.parts) <= streamFrom {
		return false
	}
	var scan wire.Sections
	err, _ := wire.ScanMessage(l.parts, &scan).(*wire.DecodeError)
	if (err == nil || err.Short) && !scan.PropertiesComplete {
		return false
	}
	first := l.parts
	s := &stream{c: c, l: l, session: l.l.Session(), first: first, base: len(first), end: len(first), frame: l.frame, cameAt: c.clock()}
	l.parts, l.stream = nil, s
	c.streams = append(c.streams, s)
	if c.room == nil {
		c.room = make(chan struct{}, 1)
	}
	c.n.addStream(s)
	c.n.count.streamed.Add(1)
	c.message(l, in, first, true, s)
	c.rewindow(s.session)
	return true
}

// part takes a part of a message behind its first. Called under the lock.
func (c *conn) part(l *inlink, in *engine.InDelivery, payload []byte, last bool) {
	l.frame = max(l.frame, len(payload))
	if s := l.stream; s != nil {
		s.frame = max(s.frame, len(payload))
		s.take(in, payload, last)
		return
	}
	l.parts = append(l.parts, payload...)
	switch {
	case last:
		parts := l.parts
		l.parts = nil
		c.message(l, in, parts, true, nil)
	case c.cutsThrough(l, in):
	case len(l.parts) > maxWhole:
		l.parts = nil
		l.l.Detach(&engine.LinkError{Condition: wire.CondMessageSizeExceeded, Text: "more than 16 MiB of a request, or before the body of a message"})
	}
}

// take adds what came of the stream. Called under the lock of c.
func (s *stream) take(in *engine.InDelivery, payload []byte, last bool) {
	if last {
		s.l.stream = nil
	}
	d := s.d
	if d == nil {
		return // its copies are over: the rest is thrown away
	}
	attend := s.add(payload, last, s.c.clock())
	if last {
		s.arrived = true
		s.over()
		if in.Settled {
			d.in = nil
		}
	} else {
		s.c.rewindow(s.session)
	}
	if attend {
		s.wantAttention(s.c)
	}
	if last && s.verdict != nil {
		d.answer(*s.verdict)
	}
}

// add keeps a part, and says whether a copy waits for it, or lags too far.
func (s *stream) add(p []byte, last bool, at int64) (attend bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cameAt = at
	if s.owed {
		s.owed = !last
		return false // nobody gets it
	}
	before := s.end
	for len(p) > 0 {
		n := s.end - s.base
		if n == len(s.chunks)*chunkSize {
			s.chunks = append(s.chunks, chunks.Get().(*chunk))
		}
		k := copy(s.chunks[n/chunkSize][n%chunkSize:], p)
		p = p[k:]
		s.end += k
	}
	s.whole = last
	for _, t := range s.tails {
		if t.at == before {
			t.movedAt = at
		}
		t.cut = t.cut || t.tap && s.end-t.at > streamRoom && t.at < s.pace
		t.large = t.limit > 0 && uint64(s.end) > t.limit
		attend = attend || t.dry || t.cut || t.large
	}
	s.letGo()
	return attend
}

// letGo lets go of what all copies have, and says whether the sender can go on by it. Called under the mutex.
func (s *stream) letGo() (room bool) {
	if len(s.tails) == 0 && (s.dead || s.whole && s.made) {
		for _, c := range s.chunks {
			chunks.Put(c)
		}
		s.chunks, s.first = nil, nil
		return false
	}
	if !s.made {
		return false
	}
	least, pace := s.end, s.end
	for _, t := range s.tails {
		least = min(least, t.at)
		if !t.tap {
			pace = min(pace, t.at)
		}
	}
	n := 0
	for n < len(s.chunks) && s.base+chunkSize <= least {
		chunks.Put(s.chunks[n])
		s.base += chunkSize
		n++
	}
	if n > 0 {
		m := copy(s.chunks, s.chunks[n:])
		clear(s.chunks[m:])
		s.chunks = s.chunks[:m]
	}
	s.freed += max(pace-s.pace, 0)
	s.pace = pace
	return !s.whole && s.freed > 0 && (s.freed >= streamRoom/8 || s.fullAt.Load() != 0)
}

// held is how far the sender is ahead.
func (s *stream) held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end - s.pace
}

// rewindow sets how much a session's sender may send. Called under the lock.
func (c *conn) rewindow(session *engine.Session) {
	held, frame, streams := 0, 512, 0
	for _, s := range c.streams {
		if s.session == session {
			streams++
			h := s.held()
			held += h
			frame = max(frame, s.frame)
			if h > streamMost {
				c.ahead.Store(true)
			}
		}
	}
	window := uint32(math.MaxUint32)
	if streams > 0 {
		window = uint32(max(streamRoom-held, 0) / frame)
		if window == 0 && held < streamRoom {
			window = 1
		}
	}
	session.SetWindow(window)
	at := c.clock()
	for _, s := range c.streams {
		if s.session == session {
			s.mayCome(window > 0, at)
		}
	}
	select {
	case c.room <- struct{}{}:
	default:
	}
}

// mayCome notes whether the sender may send.
func (s *stream) mayCome(may bool, at int64) {
	full := s.fullAt.Load()
	switch {
	case may && full != 0:
		s.fullAt.Store(0)
		s.mu.Lock()
		s.cameAt = at
		s.mu.Unlock()
	case !may && full == 0:
		s.fullAt.Store(at)
	}
}

// AwaitRoom has the reader wait where a sender is too far ahead of the slowest copy. What it waits for comes within Options.StalledAfter.
func (c *conn) AwaitRoom(quit <-chan struct{}) {
	for c.ahead.Load() {
		far := false
		c.lock()
		for _, s := range c.streams {
			far = far || s.held() > streamMost
		}
		c.ahead.Store(far)
		c.release()
		if !far {
			return
		}
		select {
		case <-c.room:
		case <-quit:
			return
		}
	}
}

// over takes the stream off the list of those that come in. Called under the lock of c.
func (s *stream) over() {
	for i, x := range s.c.streams {
		if x == s {
			s.c.streams = append(s.c.streams[:i], s.c.streams[i+1:]...)
			s.c.rewindow(s.session)
			return
		}
	}
}

// wantAttention has attend called once the lock of c is released.
func (s *stream) wantAttention(c *conn) {
	s.mu.Lock()
	due := s.due
	s.due = true
	s.mu.Unlock()
	if !due {
		w := c.toDo()
		w.streams = append(w.streams, s)
	}
}

// attend does what concerns other connections: copies that wait get what has come, those that lag or have lost their message are ended,
// and the sender may go on. Called without a lock.
func (s *stream) attend() {
	type found struct {
		t          *tail
		cut, large bool
	}
	var few [8]found
	all := few[:0]
	s.mu.Lock()
	s.due = false
	dead := s.dead
	if dead {
		s.letGo()
	}
	for _, t := range s.tails {
		if dead || t.cut || t.dry || t.large {
			all = append(all, found{t, t.cut, t.large})
		}
	}
	tell := s.freed > 0 && !s.whole
	s.freed = 0
	s.mu.Unlock()
	for _, x := range all {
		switch {
		case dead:
			x.t.drop(fateAborted, modifiedFailed())
		case x.cut:
			x.t.drop(fateBusy, modifiedFailed())
		case x.large:
			x.t.drop(fateSent, tooLarge())
		default:
			x.t.feed()
		}
	}
	if tell {
		s.c.lock()
		s.c.rewindow(s.session)
		s.c.release()
	}
}

// makeTails gives each copy its place. Called under the lock of c, before an outlet has any.
func (s *stream) makeTails(d *delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tails, s.made = nil, true
	for i := range d.copies {
		c := &d.copies[i]
		t := &tail{s: s, cp: c, tap: c.tap}
		c.has().tail = t
		s.tails = append(s.tails, t)
	}
	s.letGo()
}

// forgetTails: no copy was sent, and the message waits for other rows.
func (s *stream) forgetTails() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tails {
		t.cp = nil
	}
	s.tails, s.made, s.pace = nil, false, 0
}

// Ready tells what there is for the copy.
func (t *tail) Ready(n int) (k int, more bool) {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	k = min(n, s.end-t.at)
	more = !s.whole || t.at+k < s.end
	t.dry, t.done = k == 0 && more, !more
	return k, more
}

// Append gives the next k bytes.
func (t *tail) Append(dst []byte, k int) []byte {
	s := t.s
	s.mu.Lock()
	if t.at < len(s.first) {
		n := min(k, len(s.first)-t.at)
		dst = append(dst, s.first[t.at:t.at+n]...)
		t.at += n
		k -= n
	}
	for k > 0 {
		i := t.at - s.base
		n := min(k, chunkSize-i%chunkSize)
		dst = append(dst, s.chunks[i/chunkSize][i%chunkSize:][:n]...)
		t.at += n
		k -= n
	}
	t.ln.sent++
	t.movedAt = t.ln.c.clock()
	room := s.letGo()
	s.mu.Unlock()
	if room {
		s.wantAttention(t.ln.c)
	}
	return dst
}

// queuedIn notes where the copy waits.
func (t *tail) queuedIn(ln *line) {
	t.s.mu.Lock()
	t.ln = ln
	t.s.mu.Unlock()
}

// begin notes that the copy is going to be sent, from a place in the message; false: there is no message any more.
func (t *tail) begin(ln *line, from int) bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.s.dead || t.cut {
		return false
	}
	t.ln, t.begun, t.at, t.movedAt, t.limit = ln, true, from, ln.c.clock(), ln.l.MaxMessage()
	return true
}

// refused takes begin back.
func (t *tail) refused() {
	t.s.mu.Lock()
	t.begun, t.at = false, 0
	t.s.mu.Unlock()
}

// sending tells whether some of the copy is still to be sent.
func (t *tail) sending() bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return !t.done
}

// mayBegin tells whether the copy can still go to some hop: none has any of it, and there is a message.
func (t *tail) mayBegin() bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return !t.begun && !t.cut && !t.s.dead
}

// end takes the copy's place away, and says whether the sender can go on by it.
func (t *tail) end() (room bool) {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	t.cp = nil
	for i, x := range s.tails {
		if x == t {
			s.tails = append(s.tails[:i], s.tails[i+1:]...)
			break
		}
	}
	return s.letGo()
}

// over ends the place of a copy that was begun, and gives its outcome: who has not got all of it has not accepted it. Called under the lock
// of its line.
func (t *tail) over(c *conn, o Outcome) Outcome {
	t.s.mu.Lock()
	begun, done := t.begun, t.done
	t.s.mu.Unlock()
	if !begun {
		return o
	}
	if !done && o.Kind == wire.Accepted {
		o = modifiedFailed()
	}
	if t.end() {
		t.s.wantAttention(c)
	}
	return o
}

// feed goes on with a copy that had all that had come.
func (t *tail) feed() {
	t.s.mu.Lock()
	ln := t.ln
	t.s.mu.Unlock()
	ln.mu.Lock()
	if cp := t.copy(); cp != nil && ln.l != nil {
		ln.l.Continue(&cp.out)
	}
	ln.unlock()
}

// copy is the tail's copy, nil where it is over.
func (t *tail) copy() *Copy {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.cp
}

// drop ends a copy whose hop may not have had its say: what has begun is aborted, what has not is taken out of the line.
func (t *tail) drop(why fate, o Outcome) {
	t.s.mu.Lock()
	ln := t.ln
	t.s.mu.Unlock()
	if ln == nil {
		return // on its way to a line, which will see
	}
	ln.mu.Lock()
	t.s.mu.Lock()
	cp, begun := t.cp, t.begun && t.ln == ln
	t.s.mu.Unlock()
	var out []*Copy
	switch {
	case cp == nil:
	case begun:
		cp.out.Abort()
		cp.fate = why
		ln.over(cp, o)
		ln.pump()
	default:
		out = ln.takeOut(nil, func(x *Copy) bool {
			if x != cp {
				return false
			}
			cp.fate, cp.outcome = why, Outcome{Kind: wire.Released}
			return true
		})
	}
	ln.unlock()
	ln.n.settle(out)
}

// offerStream sends a copy of a stream, as far as it has come, from a place in the message.
func (ln *line) offerStream(cp *Copy, settled bool, head []byte, from int) bool {
	t := cp.had().tail
	if !t.begin(ln, from) {
		cp.fate = fateAborted
		ln.over(cp, Outcome{Kind: wire.Released})
		return true
	}
	cp.out.Context = cp
	r := ln.l.SendStream(&cp.out, settled, cp.in.Format, head, t)
	switch r {
	case engine.Refused:
		t.refused()
	case engine.Partial:
		ln.sending = t
	}
	return ln.handed(cp, settled, r)
}

// holdsBack tells whether the sender is to wait for its outcome, which is until all of the message has come: there are senders that look for an
// outcome only from then on, and wait for ever for one that came before. Any other outcome than accepted ends the stream: who still gets it, gets no
// more. Called under the lock of c.
func (s *stream) holdsBack(o Outcome) bool {
	if s.arrived || s.d == nil {
		return false
	}
	dead := s.isDead()
	if dead && s.verdict != nil {
		return true // what ended it is the outcome
	}
	s.verdict = &o
	if o.Kind != wire.Accepted || dead {
		s.stop(true)
		return true
	}
	s.mu.Lock()
	s.made = true // also where there are no copies
	s.letGo()
	s.mu.Unlock()
	return true
}

func (s *stream) isDead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

// die: nothing more of it goes out, and its sender is told nothing more by it. Called under the lock of c.
func (s *stream) die() {
	s.d = nil
	s.stop(false)
}

// stop: nothing more of it goes out, and what still comes is thrown away. Called under the lock of c.
func (s *stream) stop(owed bool) {
	s.mu.Lock()
	s.dead, s.owed = true, owed
	s.mu.Unlock()
	s.over()
	s.wantAttention(s.c)
}

// abort: the sender took the message back, or is gone. Copies that have begun are aborted, the others vanish. Called under the lock of c.
func (s *stream) abort() {
	d, l := s.d, s.l
	l.stream = nil
	if d == nil {
		return
	}
	s.c.n.count.aborted.Add(1)
	d.in = nil
	s.die()
	l.forgetWaiting(d)
	if d.counting == 0 && !d.answered {
		d.answer(Outcome{Kind: wire.Released})
	}
}

func tooLarge() Outcome {
	return rejected(wire.CondMessageSizeExceeded, "the message is larger than the receiver takes")
}

// check ends copies that take nothing, and a message of which nothing comes. over says that there is nothing left to look after.
// Called by the node's clock, without a lock.
func (s *stream) check(at int64) (over bool) {
	var stalled []*tail
	s.mu.Lock()
	waitedFor := false
	for _, t := range s.tails {
		waitedFor = waitedFor || t.begun
	}
	full := s.fullAt.Load()
	waitedFor = waitedFor && full != 0 && at-full >= int64(s.c.n.options.StalledAfter) // the others hold these up
	for _, t := range s.tails {
		if s.dead || t.stalls(at) || waitedFor && !t.begun && !t.tap {
			stalled = append(stalled, t)
		}
	}
	dead := s.dead
	over = (dead || s.whole) && !s.owed && len(s.tails) == 0
	silent := !dead && !s.whole && full == 0 && at-s.cameAt >= int64(s.c.n.options.DeliveryTimeout)
	late := s.owed && at-s.cameAt >= int64(s.c.n.options.StalledAfter)
	s.mu.Unlock()
	for _, t := range stalled {
		if dead {
			t.drop(fateAborted, modifiedFailed())
		} else {
			t.drop(fateStalled, modifiedFailed())
		}
	}
	if silent || late {
		s.c.lock()
		s.giveUp()
		s.c.release()
	}
	return over
}

// giveUp tells the sender of a message that does not go on. Called under the lock of c.
func (s *stream) giveUp() {
	d, o := s.d, s.verdict
	if d == nil || s.arrived {
		return
	}
	if o == nil || o.Kind == wire.Accepted {
		failed := modifiedFailed()
		o = &failed
		s.c.n.count.aborted.Add(1)
	}
	s.l.forgetWaiting(d)
	s.die()
	d.answer(*o)
}

// stalls tells whether the copy has something to take and takes nothing. Called under the mutex.
func (t *tail) stalls(at int64) bool {
	return t.begun && !t.done && (t.at < t.s.end || t.s.whole) && at-t.movedAt >= int64(t.s.c.n.options.StalledAfter)
}

func (n *Node) addStream(s *stream) {
	n.mu.Lock()
	n.streams[s] = struct{}{}
	n.mu.Unlock()
}

// checkStreams looks at the streams at a tick of the node's clock.
func (n *Node) checkStreams(at int64) {
	n.mu.Lock()
	streams := make([]*stream, 0, len(n.streams))
	for s := range n.streams {
		streams = append(streams, s)
	}
	n.mu.Unlock()
	for _, s := range streams {
		if s.check(at) {
			n.mu.Lock()
			delete(n.streams, s)
			n.mu.Unlock()
		}
	}
}
