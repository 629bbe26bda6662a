package amqp

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/socket"
)

// HandshakeTimeout is how long a peer may take from connect to open.
const HandshakeTimeout = 10 * time.Second

// ErrHandshakeTimeout ends a connection whose peer did not open in time.
var ErrHandshakeTimeout = errors.New("the peer did not open the connection in time")

// Owner is who a connection belongs to: the handler of its engine, and what it wants to do without the lock.
type Owner interface {
	engine.Handler

	// AfterInput is called by the reader, without the lock, after a part of the frames of one read was handled; more says that the
	// next part comes at once. Payloads that Transfer was given are valid until it returns for the last.
	AfterInput(more bool)

	// BeforeFlush is called under the lock, before output is taken from the engine.
	BeforeFlush()

	// TakeWork is called under the lock before it is released; what it returns (nil for nothing) is run after that.
	TakeWork() Work
}

// Waiter is an Owner that may want to have no more input for now.
type Waiter interface {
	// AwaitRoom is called by the reader, without the lock and after the work, and returns when there may be input again, at the latest
	// when quit is closed.
	AwaitRoom(quit <-chan struct{})
}

// Work is what is left to do once a connection's lock is released: mostly to tell other connections.
type Work interface{ Run() }

// Conn is a socket with an engine. Lock guards Engine; Release writes what came out and unlocks.
type Conn struct {
	Engine *engine.Conn

	// Set at construction, never changed.
	nc     net.Conn
	guard  *Guard        // of a server end: slows logins down where many have failed; nil: nobody does
	quit   chan struct{} // closed by fail
	owner  Owner
	waiter Waiter        // the owner, where it is one
	ready  chan struct{} // closed when the peer has opened
	done   chan struct{} // closed when Serve has returned

	in socket.Reader // owned by the reader

	mu       *sync.Mutex // guards what follows, and Engine
	w        socket.Writer
	flushing bool
	midRead  bool // the reader is between two parts of a read: it flushes after the last
	opened   bool
	closing  bool // Close was called
	over     bool // the socket is gone: nothing is written any more
	cause    error
	timer    *time.Timer
}

// NewConn puts an engine on a socket. mu is the lock to use, nil for one of its own: connections of one destination that
// follow each other share a lock, so that the destination's line is always under the same one. newOwner is called once.
func NewConn(nc net.Conn, cfg engine.Config, mu *sync.Mutex, newOwner func(*Conn) Owner) *Conn {
	if mu == nil {
		mu = &sync.Mutex{}
	}
	c := &Conn{nc: nc, mu: mu, ready: make(chan struct{}), done: make(chan struct{}), quit: make(chan struct{})}
	c.in.Init(nc, max(leastBuffer, 2*int(cfg.MaxFrameSize)))
	c.w.Init(nc, mu, source{c})
	c.owner = newOwner(c)
	c.waiter, _ = c.owner.(Waiter)
	c.Engine = engine.NewConn(cfg, handler{c.owner, c})
	return c
}

// leastBuffer is the least size of a read; a buffer holds two of the largest frames.
const leastBuffer = 128 << 10

// handler passes the engine's callbacks to the owner and keeps the connection's own state in step.
type handler struct {
	Owner
	c *Conn
}

func (h handler) Opened() {
	h.c.opened = true
	close(h.c.ready)
	h.Owner.Opened()
	h.c.timer.Reset(time.Millisecond) // the peer's idle time-out is known now
}

// Received passes on what the owner may want to hear.
func (h handler) Received(d *engine.OutDelivery, state []byte) {
	if p, ok := h.Owner.(engine.Progress); ok {
		p.Received(d, state)
	}
}

// Ready is closed when the peer has opened; Done when the connection is over.
func (c *Conn) Ready() <-chan struct{} { return c.ready }
func (c *Conn) Done() <-chan struct{}  { return c.done }

// Err is why the connection is over; valid after Done.
func (c *Conn) Err() error { return c.cause }

// RemoteAddr is the peer's address, LocalAddr ours.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }
func (c *Conn) LocalAddr() net.Addr  { return c.nc.LocalAddr() }

// Mutex is the connection's lock; Release is how it is given back after Lock.
func (c *Conn) Mutex() *sync.Mutex { return c.mu }

// Lock takes the connection's lock.
func (c *Conn) Lock() { c.mu.Lock() }

// Do runs f under the lock and releases it.
func (c *Conn) Do(f func()) {
	c.mu.Lock()
	f()
	c.Release()
}

// Serve reads until the connection is over, and returns why: nil after an orderly close. It is called once.
func (c *Conn) Serve() error {
	c.mu.Lock()
	c.timer = time.AfterFunc(HandshakeTimeout, c.tick)
	if c.Engine.Client() {
		c.Engine.Start()
	}
	c.Release()

	err := c.readLoop()

	c.mu.Lock()
	c.flush() // the close, or the header that tells what we speak
	c.over = true
	c.w.Stop() // no further writer is started: those that are there are waited for
	c.mu.Unlock()
	c.lingerClose()
	c.timer.Stop()
	c.nc.Close()
	c.w.Wait()

	c.mu.Lock()
	c.cause = err
	c.Engine.Terminate(err)
	work := c.owner.TakeWork()
	c.mu.Unlock()
	if work != nil {
		work.Run()
	}
	c.in.Free()
	close(c.done)
	return err
}

func (c *Conn) readLoop() error {
	for {
		if n, err := c.in.Fill(); n == 0 {
			return c.readError(err)
		}
		if err := c.guarded(); err != nil {
			return err
		}
		used, err := c.input(c.in.Bytes())
		if c.waiter != nil {
			c.waiter.AwaitRoom(c.quit)
		}
		c.in.Use(used)
		if err != nil {
			var ce *engine.ConnectionError
			if errors.As(err, &ce) && ce.Remote && ce.Condition == "" {
				return nil
			}
			return err
		}
		if rest := c.in.Bytes(); len(rest) > 0 {
			c.in.Room(c.need(rest))
		}
	}
}

// partSize is about how much of a read is handled under one hold of the lock. What the messages of one part touch stays in the
// processor's cache until they are with their receivers' engines: by whole reads of small messages it would not.
const partSize = 8 << 10

// input handles what was read, part by part. What is to be written goes out after the last.
func (c *Conn) input(p []byte) (used int, err error) {
	for more := true; more; {
		c.mu.Lock()
		var n int
		n, err = c.Engine.InputSome(p[used:], partSize)
		used += n
		more = err == nil && n >= partSize
		if c.midRead = more; more {
			c.mu.Unlock()
			c.owner.AfterInput(true)
			continue
		}
		if c.guard != nil && errors.Is(err, engine.ErrAuthentication) {
			c.guard.Failed(c.nc.RemoteAddr(), time.Now())
		}
		c.flush()
		work := c.owner.TakeWork()
		c.mu.Unlock()
		c.owner.AfterInput(false)
		if work != nil {
			work.Run()
		}
	}
	return used, err
}

// guarded waits until what the peer said in a login may be looked at. Called by the reader, who alone moves a server's engine on before
// it has opened.
func (c *Conn) guarded() error {
	if c.guard == nil || !c.guesses() {
		return nil
	}
	pause, ok := c.guard.Pause(c.nc.RemoteAddr(), time.Now())
	if !ok {
		return ErrTooManyLogins
	}
	if pause == 0 {
		return nil
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.quit:
		return c.readError(io.EOF)
	}
}

// guesses tells whether what was read may hold a guess.
func (c *Conn) guesses() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.opened && c.Engine.Guesses(c.in.Bytes())
}

// SetGuard has a server end ask a guard before it looks at a login. It is called before Serve.
func (c *Conn) SetGuard(g *Guard) { c.guard = g }

// readError says why reading ended: what the engine or Shutdown had in mind, before what the socket says.
func (c *Conn) readError(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.cause != nil:
		return c.cause
	case err == nil || errors.Is(err, io.EOF):
		return io.EOF
	}
	return err
}

func (c *Conn) need(p []byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Engine.Need(p)
}

// tick runs on the connection's timer: the handshake limit first, idle timeouts later.
func (c *Conn) tick() {
	c.mu.Lock()
	if c.over { // it waited for the lock while Serve ended
		c.mu.Unlock()
		return
	}
	if !c.opened {
		c.fail(ErrHandshakeTimeout)
		c.mu.Unlock()
		return
	}
	next, err := c.Engine.Tick(time.Now())
	c.w.Idle()
	if err != nil {
		c.flush()
		c.fail(err)
		c.mu.Unlock()
		return
	}
	c.timer.Reset(min(next, time.Hour))
	c.Release()
}

// fail ends the connection from this side; the reader wakes and cleans up. One whose reader is done ends as it is. Called under the lock.
func (c *Conn) fail(err error) {
	if c.over {
		return
	}
	if c.cause == nil {
		c.cause = err
		close(c.quit)
	}
	c.nc.SetReadDeadline(time.Unix(1, 0))
}

// Abort ends the connection at once, for err.
func (c *Conn) Abort(err error) {
	c.mu.Lock()
	c.fail(err)
	c.mu.Unlock()
}

// closeWait is how long a peer may take to answer a close.
const closeWait = 2 * time.Second

// Close closes the connection in order: it sends a close with e (which may be nil) and waits a little for the peer's.
func (c *Conn) Close(e *engine.ConnectionError) {
	c.mu.Lock()
	c.CloseLocked(e)
	c.Release()
}

// CloseLocked is Close for who holds the lock.
func (c *Conn) CloseLocked(e *engine.ConnectionError) {
	if !c.closing {
		c.closing = true
		c.Engine.Close(closeError(e))
		c.nc.SetReadDeadline(time.Now().Add(closeWait))
	}
}
