package amqp

import (
	"net"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// Release writes what the engine has to say, unlocks, and runs the owner's work.
func (c *Conn) Release() {
	if !c.midRead {
		c.flush()
	}
	c.Pause()
}

// Pause unlocks and runs the owner's work. Who calls it sees to a Release soon: nothing is written before.
func (c *Conn) Pause() {
	work := c.owner.TakeWork()
	c.mu.Unlock()
	if work != nil {
		work.Run()
	}
}

// flush tries one write that does not block; a writer goroutine takes over what the socket did not take. Called under the lock.
func (c *Conn) flush() {
	c.owner.BeforeFlush()
	c.flushing = true
	c.w.Flush()
	c.flushing = false
}

// source is the connection as what its writer takes bytes from.
type source struct{ c *Conn }

func (s source) Output(spare []byte) []byte {
	if !s.c.flushing { // the writer goroutine's
		s.c.owner.BeforeFlush()
	}
	return s.c.Engine.Output(spare)
}

func (s source) Wrote(n int)      { s.c.Engine.Wrote(n) } // may give links room to go on
func (s source) Failed(err error) { s.c.fail(err) }
func (s source) Release()         { s.c.Release() }

// halfCloser is a socket, or TLS on one, that can say that no more is sent and be read on.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// lingerClose gives a last frame (a close, mostly) a chance to reach the peer before the socket goes: where it still sends, a reset would overtake it.
func (c *Conn) lingerClose() {
	c.nc.SetWriteDeadline(time.Now().Add(closeWait))
	c.mu.Lock()
	told := c.cause == nil
	c.mu.Unlock()
	c.w.Wait() // bounded by the deadline
	if half, ok := c.nc.(halfCloser); ok && told {
		half.CloseWrite()
		half.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		var scrap [4096]byte
		for range 64 {
			if n, err := half.Read(scrap[:]); n == 0 || err != nil {
				return
			}
		}
	}
}

func closeError(e *engine.ConnectionError) *wire.Error {
	if e == nil {
		return nil
	}
	return &wire.Error{Condition: e.Condition, Description: e.Text}
}
