package relay

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/websocket"
)

// Bounds of what a connection may have on its way before its frames are not read for a while.
const (
	maxPending      = 256     // ops
	maxPendingBytes = 4 << 20 // of their frames
	maxOwnBytes     = 1 << 20 // answers that it does not read
)

// Conn is a connection. One goroutine, run, reads it.
type Conn struct {
	// Set at construction, never changed.
	b       *Broker
	serial  uint64
	domain  string
	key     string // its name
	hash    [sha256.Size]byte
	bridge  *bridge // of a stand-in for other wires, which has no socket; nil for all others
	address string  // relay-conn:<name>
	origin  string  // relay:<name>
	remote  string
	secure  bool
	since   time.Time
	caller  admin.Caller
	ws      *websocket.Conn
	room    chan struct{} // a signal for waiting

	// Owned by the reader.
	plans   map[string]*plan
	returns map[string]returnPath
	crowded bool // it sends to a line that is long
	stall   *time.Timer

	receivedOps  atomic.Uint64
	pending      atomic.Int32 // ops on their way
	pendingBytes atomic.Int64
	waiting      atomic.Bool // the reader waits for room
	stopped      atomic.Bool // a close of ours has begun: nothing is done any more
	failed       atomic.Bool // its socket has: the reader is to see that
	gone         atomic.Bool // it has ended: nobody finds it any more

	mu             sync.Mutex // guards what follows, and the writing side of ws; a leaf
	line           line
	told           map[string]told // by what its topics are looked up by
	toldGeneration uint64          // of told
	served         int             // topics
	over           bool            // nothing is queued any more
	late           bool            // it is on the broker's list
	outbox         *outbox         // answers to ops of line; nil: none wait
	answering      bool            // somebody brings them
	closing        int             // the code of a close that we began; 0: none
	sent           uint64          // ops
}

// name of a connection, in rows and for people.
func (c *Conn) name() string { return c.origin[len("relay:"):] }

// Output, Wrote and Trim are the websocket's Line. They are called under the lock.
func (c *Conn) Output(spare []byte) []byte { return c.line.output(spare) }

func (c *Conn) Wrote(n int) {
	c.line.wrote(n, func(w *waiting) { c.note(w, codeNone) })
	c.signalRoom()
}

func (c *Conn) Trim(rest []byte) int { return c.line.trim(rest) }

// release unlocks where the websocket has locked: by the writer's goroutine, and for pings and closes.
func (c *Conn) release() {
	if c.outbox == nil {
		c.unlock(nil)
		return
	}
	b := c.b.newBatch()
	c.unlock(b)
	b.run()
	b.free()
}

// lateLocked tells whether ops wait for the socket and nobody looks at the time yet.
func (c *Conn) lateLocked() bool {
	if c.late || c.over || len(c.line.ops) == c.line.first {
		return false
	}
	c.late = true
	return true
}

// run reads the connection until it ends.
func (c *Conn) run() {
	var w *work
	var err error
	for err == nil {
		var m websocket.Message
		var more bool
		if m, more, err = c.ws.Next(); err != nil {
			break
		}
		if c.stopped.Load() {
			continue
		}
		if w == nil {
			w = newWork(c.b)
		}
		if err = c.takeSafely(w, m); err != nil {
			break
		}
		if more && !c.isFull() && len(w.touched) < maxTouched {
			continue
		}
		c.finish(w)
		if !more {
			w.free()
			w = nil
		}
		c.waitForRoom()
	}
	if w != nil {
		c.letGo()
		c.finish(w)
		w.free()
	}
	c.end(err)
}

// maxTouched is how many turns between destinations are collected before they are written to.
const maxTouched = 256

// errFault ends a connection for a fault of ours.
var errFault = errors.New("an internal fault")

// takeSafely does a message; a fault of ours ends this connection and no other. Of what it was about nothing is told: it may be in the message.
func (c *Conn) takeSafely(w *work, m websocket.Message) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.b.stats.faults.Add(1)
			c.b.log.Error("an internal fault ended a relay connection", "connection", c.name(), "kind", fmt.Sprintf("%T", p))
			err = errFault
		}
	}()
	c.take(w, m)
	return nil
}

// letGo lets ops go on that were held behind a reply.
func (c *Conn) letGo() {
	c.mu.Lock()
	c.line.letGo()
	c.mu.Unlock()
}

// finish writes what messages brought, to every connection that it is for.
func (c *Conn) finish(w *work) {
	for i, d := range w.touched {
		if i == 0 || d != w.touched[i-1] {
			w.batch.write(d)
		}
	}
	clear(w.touched)
	w.touched = w.touched[:0]
	// The answers are known when the others are written to: they go with the own words, in one write.
	b := w.batch
	for b.done < len(b.dirty) {
		b.done++
		if d := b.dirty[b.done-1]; d != c {
			d.flush(b)
		}
	}
	b.write(c)
	b.run()
}

func (c *Conn) isFull() bool {
	bytes := c.pendingBytes.Load()
	return c.pending.Load() >= maxPending || bytes >= maxPendingBytes || c.crowded && bytes > 0
}

// waitForRoom keeps the reader from reading while too much of what the connection sent, or of what it was answered, is on its way.
func (c *Conn) waitForRoom() {
	for c.hasNoRoom() {
		c.waiting.Store(true)
		if c.hasNoRoom() {
			c.awaitRoom()
		}
		c.waiting.Store(false)
	}
	c.crowded = false
}

// awaitRoom waits for signalRoom, which runs when an op was answered, and when bytes were taken, and when the connection ends. A peer that takes none of
// its answers is asked nothing meanwhile: it is as silent as one that answers no ping.
func (c *Conn) awaitRoom() {
	long := 3 * c.b.o.PingEvery
	if c.stall == nil {
		c.stall = time.NewTimer(long)
	}
	c.stall.Reset(long)
	defer c.stall.Stop()
	took, _ := c.answersWait()
	for {
		select {
		case <-c.room:
			return
		case <-c.stall.C:
		}
		before, tooMuch := took, false
		if took, tooMuch = c.answersWait(); tooMuch && took == before {
			c.ws.Abort(websocket.ErrSilent)
			return
		}
		c.stall.Reset(long)
	}
}

// answersWait tells how much the socket has taken so far, and whether too much waits for it that is no op of others.
func (c *Conn) answersWait() (took uint64, tooMuch bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.line.took, !c.over && c.line.own() >= maxOwnBytes
}

func (c *Conn) hasNoRoom() bool {
	if c.stopped.Load() || c.failed.Load() {
		return false
	}
	if c.isFull() {
		return true
	}
	_, tooMuch := c.answersWait()
	return tooMuch
}

// aborted is the websocket's: it is called under the lock.
func (c *Conn) aborted() {
	c.failed.Store(true)
	c.signalRoom()
}

func (c *Conn) signalRoom() {
	if c.waiting.Load() {
		select {
		case c.room <- struct{}{}:
		default:
		}
	}
}

// end ends the connection: whoever waited for it hears of that, and its rows are withdrawn.
func (c *Conn) end(err error) {
	c.gone.Store(true)
	c.b.remove(c)
	if _, err := c.b.core.Do(c.caller, admin.Withdraw{Origin: c.origin}); err != nil {
		c.b.log.Error("the rows of a relay connection could not be withdrawn", "connection", c.name(), "error", err)
	}
	b := c.b.newBatch()
	c.mu.Lock()
	c.over = true
	for i := c.line.first; i < len(c.line.ops); i++ {
		w := &c.line.ops[i]
		reason := serverGone
		if w.response {
			reason = clientGone
		}
		c.note(w, reason)
	}
	c.line = line{}
	topics := make([]string, 0, len(c.told))
	for t := range c.told {
		topics = append(topics, t)
	}
	c.told, c.served = nil, 0
	code := c.closing
	c.unlock(b)
	b.run()
	b.free()
	c.plans, c.returns = nil, nil
	c.b.dropFrom(c)
	for _, t := range topics {
		c.b.roles.left(t)
	}
	if code == 0 && errors.Is(err, errFault) {
		code = websocket.InternalFail
	}
	c.b.log.Info("relay connection ended", "connection", c.name(), "reason", reasonOf(err), "since", time.Since(c.since).Round(time.Millisecond))
	c.ws.End(code, "")
}

// reasonOf says why a connection ended, without what the peer said.
func reasonOf(err error) string {
	var ce *websocket.CloseError
	if errors.As(err, &ce) {
		if ce.Remote {
			return fmt.Sprintf("closed by the peer with %d", ce.Code)
		}
		return fmt.Sprintf("closed with %d: %s", ce.Code, ce.Text)
	}
	return err.Error()
}

// close ends the connection with a code.
func (c *Conn) close(code int, text string) {
	c.mu.Lock()
	was := c.closing
	if was == 0 {
		c.closing = code
	}
	c.mu.Unlock()
	c.stopped.Store(true)
	if was == 0 {
		c.ws.Close(code, text)
		c.signalRoom()
	}
}

// expire answers the ops that wait since before with busy. It reports whether others wait still.
func (c *Conn) expire(before int64) (more bool) {
	b := c.b.newBatch()
	c.mu.Lock()
	l := &c.line
	if l.first < len(l.ops) && l.ops[l.first].at <= before {
		l.drop(func(w *waiting) bool {
			return w.at <= before && (w.from != nil || w.settle != nil || w.kind == kindCancel)
		}, func(w *waiting) { c.note(w, busy) })
	}
	more = !c.over && l.first < len(l.ops)
	c.late = more
	c.unlock(b)
	b.run()
	b.free()
	return more
}

// dropFrom drops what a connection that has ended had on its way here and was not begun.
func (c *Conn) dropFrom(from *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line.drop(func(w *waiting) bool { return w.from == from }, func(*waiting) {})
}
