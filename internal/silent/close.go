package silent

import (
	"net"
	"net/http"
	"sync"
)

// Close has a server that is shut down close the connections on which no request has begun. Shutdown alone waits 5 s for each of them, and
// browsers open such connections in advance. It is called before the server serves, and takes its ConnState.
func Close(s *http.Server) {
	c := &conns{open: map[net.Conn]struct{}{}}
	s.ConnState = c.seen
	s.RegisterOnShutdown(c.end)
}

type conns struct {
	mu    sync.Mutex // guards what follows
	open  map[net.Conn]struct{}
	ended bool
}

func (c *conns) seen(nc net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state != http.StateNew {
		delete(c.open, nc)
		return
	}
	if c.ended { // it was accepted before the listener was closed
		nc.Close()
		return
	}
	c.open[nc] = struct{}{}
}

func (c *conns) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for nc := range c.open {
		nc.Close()
	}
}
