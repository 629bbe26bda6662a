package tube

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Tube listens on a port of loopback and passes bytes on to a place that may move.
type Tube struct {
	ln net.Listener

	mu     sync.Mutex // guards what follows
	to     string
	isShut bool
	conns  []net.Conn
}

// Lay gives a tube that ends with the test.
func Lay(t testing.TB) *Tube {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &Tube{ln: ln}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() { u.pass(near) })
		}
	})
	t.Cleanup(func() { ln.Close(); u.Shut(true); running.Wait() })
	return u
}

// Address is where it listens.
func (u *Tube) Address() string { return u.ln.Addr().String() }

func (u *Tube) pass(near net.Conn) {
	defer near.Close()
	u.mu.Lock()
	to, shut := u.to, u.isShut
	u.mu.Unlock()
	if shut {
		return
	}
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	if !u.add(near, far) {
		return
	}
	done := make(chan struct{})
	go func() {
		io.Copy(far, near)
		far.Close()
		close(done)
	}()
	io.Copy(near, far)
	near.Close()
	<-done
}

// add notes what goes through; false: the tube was shut meanwhile.
func (u *Tube) add(conns ...net.Conn) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.isShut {
		u.conns = append(u.conns, conns...)
	}
	return !u.isShut
}

// Lead ends what goes through, and has what comes go to another place.
func (u *Tube) Lead(to string) {
	u.mu.Lock()
	u.to = to
	u.mu.Unlock()
	u.Cut()
}

// Cut ends what goes through; the next may come.
func (u *Tube) Cut() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.conns {
		c.Close()
	}
	u.conns = nil
}

// Shut ends what goes through, and lets nothing through until it is opened again.
func (u *Tube) Shut(on bool) {
	u.mu.Lock()
	u.isShut = on
	u.mu.Unlock()
	u.Cut()
}
