package amqp

import (
	"net"
	"syscall"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// Release writes what the engine has to say, unlocks, and runs the owner's work.
func (c *Conn) Release() {
	c.flush()
	work := c.owner.TakeWork()
	c.mu.Unlock()
	if work != nil {
		work.Run()
	}
}

// flush tries one write that does not block; a writer goroutine takes over what the socket did not take. Called under the lock.
func (c *Conn) flush() {
	c.owner.BeforeFlush()
	for !c.writing && !c.over {
		out := c.Engine.Output(c.spare)
		if out == nil {
			return
		}
		c.spare, c.busy = nil, true
		n := 0
		if c.raw != nil {
			n = c.tryWrite(out)
		}
		if n < len(out) {
			c.rest = out[n:]
			c.writing = true
			c.writers.Add(1)
			go c.write()
			if n > 0 {
				c.Engine.Wrote(n)
			}
			return
		}
		c.spare = out[:0]
		c.Engine.Wrote(n) // may give links room to go on
	}
}

func (c *Conn) tryWrite(b []byte) int {
	c.wbuf = b
	err := c.raw.Write(c.writeFn)
	c.wbuf = nil
	if err != nil || c.werr != nil {
		return 0 // the writer meets the error, or waits where the socket is full
	}
	return c.wn
}

func (c *Conn) writeOnce(fd uintptr) bool {
	c.wn, c.werr = syscall.Write(int(fd), c.wbuf)
	if c.wn < 0 {
		c.wn = 0
	}
	return true
}

// write is the writer goroutine: it lives while the peer is slower than we are. It is started by flush alone and
// waited for by Serve.
func (c *Conn) write() {
	defer c.writers.Done()
	for {
		buf := c.rest
		_, err := c.nc.Write(buf)
		c.mu.Lock()
		if err != nil {
			c.fail(err) // writing stays true: nothing more is written
			c.mu.Unlock()
			return
		}
		c.Engine.Wrote(len(buf))
		c.owner.BeforeFlush()
		c.rest = c.Engine.Output(buf[:0])
		if c.rest == nil {
			c.spare = buf[:0]
			c.writing = false
			c.Release()
			return
		}
		work := c.owner.TakeWork()
		c.mu.Unlock()
		if work != nil {
			work.Run()
		}
	}
}

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
	c.writers.Wait() // bounded by the deadline
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
