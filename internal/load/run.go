package load

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
)

// Run puts load on the peer and gives what was measured, and after that the same of a relay where one is asked for. When ctx ends, the
// measurement ends with what there is. An error beside a result says why a run was over before its time.
func Run(ctx context.Context, o Options) (*Result, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	x := &Result{
		Senders: o.Senders, Receivers: o.Receivers, Addresses: o.Addresses, Size: o.Size, Settled: o.Settled, Anonymous: o.Anonymous,
		Window: o.Window, Rate: o.Rate,
	}
	if x.Peer, err = measure(ctx, o, direct(o.Dial)); err != nil {
		return x, err
	}
	if len(o.RelayCommand) > 0 && ctx.Err() == nil {
		if x.Relay, err = runRelay(ctx, o); err != nil {
			return x, fmt.Errorf("relay: %w", err)
		}
		x.compare()
	}
	return x, nil
}

// runner is one measurement.
type runner struct {
	// Set at construction, never changed.
	o      Options
	id     uint32
	name   string
	filler []byte // the rest of every body
	began  time.Time

	wanted int           // links
	up     atomic.Int64  // links that are there
	upped  chan struct{} // up has changed
	first  int64         // when the first message is due
	from   atomic.Int64  // messages that are due from here on
	until  atomic.Int64  // and before this are measured

	ending atomic.Bool
	cancel context.CancelCauseFunc

	senders   []*sender
	receivers []*receiver
	conns     []*amqp.Conn
}

// ErrLost says that a connection or a link ended before the run did.
var ErrLost = errors.New("the peer ended it")

func newRunner(o Options) *runner {
	r := &runner{o: o, began: time.Now(), upped: make(chan struct{}, 1), filler: make([]byte, o.Size-min(o.Size, stampSize))}
	var id [4]byte
	rand.Read(id[:])
	r.id = binary.BigEndian.Uint32(id[:])
	if r.name = o.Address; r.name == "" {
		r.name = "bench-" + hex.EncodeToString(id[:])
	}
	r.from.Store(math.MaxInt64)
	r.until.Store(math.MaxInt64)
	return r
}

func randomName() string {
	var b [6]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// clock is the time since the run began, in nanoseconds. It never goes back.
func (r *runner) clock() int64 { return int64(time.Since(r.began)) }

// due is when a sender's n-th message is to leave. It does not wait for anything: a peer that stops is charged with all that should have
// gone meanwhile.
func (r *runner) due(sender uint32, n uint64) int64 {
	place := float64(n)*float64(r.o.Senders) + float64(sender)
	return r.first + int64(place*1e9/r.o.Rate)
}

func (r *runner) address(k int) string {
	if r.o.Addresses == 1 {
		return r.name
	}
	return fmt.Sprintf("%s/%d", r.name, k)
}

func (r *runner) linkName(end string, index uint32, k int) string {
	return fmt.Sprintf("%s%d-%d-%08x", end, index, k, r.id)
}

func (r *runner) linkUp() {
	r.up.Add(1)
	select {
	case r.upped <- struct{}{}:
	default:
	}
}

// lost ends the run, unless it is over.
func (r *runner) lost(what string, err error) {
	if r.ending.Load() {
		return
	}
	if err == nil || errors.Is(err, io.EOF) {
		r.cancel(fmt.Errorf("%s: %w", what, ErrLost))
		return
	}
	r.cancel(fmt.Errorf("%s: %w: %w", what, ErrLost, err))
}

func measure(parent context.Context, o Options, dial connect) (*Figures, error) {
	r := newRunner(o)
	var ctx context.Context
	ctx, r.cancel = context.WithCancelCause(parent)
	defer r.cancel(nil)
	defer r.close()
	if err := r.open(ctx, dial); err != nil {
		return nil, r.why(ctx, parent, err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer r.ending.Store(true)
	r.start(ctx, &running)
	f, err := r.watch(ctx)
	if err != nil {
		return nil, err
	}
	r.stop()
	r.drain(ctx)
	r.ending.Store(true)
	r.count(f)
	if parent.Err() == nil && ctx.Err() != nil {
		return f, context.Cause(ctx)
	}
	return f, nil
}

// why prefers what ended the run to what it looked like from the inside.
func (r *runner) why(ctx, parent context.Context, err error) error {
	if parent.Err() == nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// open makes the connections and their links: receivers first, so that nothing is without a route.
func (r *runner) open(ctx context.Context, dial connect) error {
	for i := range r.o.Receivers {
		var x *receiver
		c, err := dial(ctx, true, i, func(c *amqp.Conn) amqp.Owner { x = r.newReceiver(i, c); return x })
		if err != nil {
			return err
		}
		r.conns, r.receivers = append(r.conns, c), append(r.receivers, x)
		if !r.o.relayed {
			if err := r.attach(c, x.plan); err != nil {
				return err
			}
		}
	}
	if err := r.wait(ctx); err != nil {
		return err
	}
	for i := range r.o.Senders {
		var s *sender
		c, err := dial(ctx, false, i, func(c *amqp.Conn) amqp.Owner { s = r.newSender(i, c); return s })
		if err != nil {
			return err
		}
		r.conns, r.senders = append(r.conns, c), append(r.senders, s)
		select {
		case <-c.Ready():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := r.attach(c, s.plan); err != nil {
			return err
		}
	}
	if r.o.relayed {
		r.wanted *= 2 // the receiving ends
	}
	return r.wait(ctx)
}

// attach opens a session and lets plan attach links to it.
func (r *runner) attach(c *amqp.Conn, plan func(*engine.Session, func(engine.AttachOptions, *engine.Session) (*engine.Link, error)) error) error {
	c.Lock()
	defer c.Release()
	session, err := c.Engine.Begin()
	if err != nil {
		return err
	}
	return plan(session, func(o engine.AttachOptions, s *engine.Session) (*engine.Link, error) {
		r.wanted++
		return s.Attach(o)
	})
}

// wait waits until all links that were asked for are there.
func (r *runner) wait(ctx context.Context) error {
	for r.up.Load() < int64(r.wanted) {
		select {
		case <-r.upped:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// start lets the senders go, and with a rate has somebody look at the schedule.
func (r *runner) start(ctx context.Context, running *sync.WaitGroup) {
	r.first = r.clock()
	for _, s := range r.senders {
		s.c.Do(func() { s.going = true })
	}
	if r.o.Rate > 0 {
		running.Go(func() { r.pace(ctx) })
	}
}

// paceGrain is the longest that the pacer sleeps, so that it sees the end.
const paceGrain = 10 * time.Millisecond

// pace has the senders look at their schedules, each when its next message is due.
func (r *runner) pace(ctx context.Context) {
	p := newPacer()
	defer p.done()
	for ctx.Err() == nil && !r.ending.Load() {
		next := int64(math.MaxInt64)
		for _, s := range r.senders {
			s.c.Lock()
			if r.due(s.index, s.n) <= r.clock() {
				s.pump()
			}
			next = min(next, r.due(s.index, s.n))
			s.c.Release()
		}
		wait := time.Duration(next - r.clock())
		if wait <= 0 { // a sender is behind, for want of credit: its outcomes will have it go on
			wait = time.Duration(1e9 / r.o.Rate)
		}
		p.sleep(max(min(wait, paceGrain), time.Microsecond))
	}
}

// watch lets the load run and measures it from the end of the warm-up on.
func (r *runner) watch(ctx context.Context) (*Figures, error) {
	sleep(ctx, r.o.Warmup)
	r.from.Store(r.clock())
	a, err := r.sample()
	if err != nil {
		return nil, err
	}
	sleep(ctx, r.o.Duration)
	b, err := r.sample()
	if err != nil {
		return nil, err
	}
	r.until.Store(b.at)
	return figures(a, b, &r.o), nil
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// sample is how far a run is.
type sample struct {
	at             int64
	sent, answered uint64
	copies, fresh  uint64
	usage
}

func (r *runner) sample() (x sample, err error) {
	if x.usage, err = usageOf(r.o.PID); err != nil {
		return x, err
	}
	for _, s := range r.senders {
		s.c.Lock()
		x.sent += s.n
		x.answered += s.answered()
		s.c.Mutex().Unlock()
	}
	for _, y := range r.receivers {
		y.c.Lock()
		x.copies += y.copies
		x.fresh += y.fresh
		y.c.Mutex().Unlock()
	}
	x.at = r.clock()
	return x, nil
}

func (r *runner) stop() {
	for _, s := range r.senders {
		s.c.Do(func() { s.going = false })
	}
}

// How long the end of a run waits for what is on its way, after the last of it that came.
const (
	drainGrace = time.Second
	drainLook  = 5 * time.Millisecond
)

// drain waits until everything that was sent has arrived and has its outcome, or nothing more comes.
func (r *runner) drain(ctx context.Context) {
	grace := drainGrace
	if ctx.Err() != nil {
		grace /= 4
	}
	var last sample
	moved := time.Now()
	for time.Since(moved) < grace {
		x, err := r.sample()
		if err != nil {
			return
		}
		if x.fresh >= x.sent*r.fan() && (r.o.Settled || x.answered == x.sent) {
			return
		}
		if x.fresh != last.fresh || x.answered != last.answered {
			last, moved = x, time.Now()
		}
		time.Sleep(drainLook)
	}
}

func (r *runner) fan() uint64 { return r.o.fan() }

// count puts what became of all messages into the figures.
func (r *runner) count(f *Figures) {
	var hist Histogram
	var fresh uint64
	for _, s := range r.senders {
		s.c.Lock()
		f.Sent += s.n
		f.Accepted += s.accepted
		f.Rejected += s.rejected
		f.Released += s.released
		f.Modified += s.modified
		s.c.Mutex().Unlock()
	}
	for _, x := range r.receivers {
		x.c.Lock()
		fresh += x.fresh
		f.Duplicates += x.duplicates
		f.Strays += x.strays
		hist.Merge(&x.hist)
		x.c.Mutex().Unlock()
	}
	if want := (f.Sent - f.Rejected - f.Released - f.Modified) * r.fan(); want > fresh {
		f.Lost = want - fresh
	}
	if !r.o.Settled {
		f.Unanswered = f.Sent - f.Accepted - f.Rejected - f.Released - f.Modified
	}
	f.Latency = hist.latency()
}

// close ends the connections in order.
func (r *runner) close() {
	r.ending.Store(true)
	for _, c := range r.conns {
		c.Close(nil)
	}
	for _, c := range r.conns {
		<-c.Done()
	}
}
