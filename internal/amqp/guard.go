package amqp

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// ErrTooManyLogins ends a connection from where so many logins have failed that there is a queue of others.
var ErrTooManyLogins = errors.New("too many failed logins from there")

// Guard slows down whoever guesses passwords. An address may fail guardBurst times in a while; from then on what it says in a login by
// password is looked at every guardStep only, whatever the number of its connections, and it is turned away where it would have to wait
// for long. Others notice nothing, nor do other logins from there. An IPv6 address stands for its /64.
type Guard struct {
	mu    sync.Mutex // guards what follows
	hosts map[netip.Prefix]*guardHost
	told  int       // lines of log in this second
	since time.Time // its begin
}

type guardHost struct {
	failures int
	last     time.Time // failure
	next     time.Time // when something may be looked at again
	told     time.Time // when the log was last told
	untold   int       // failures since
}

const (
	guardBurst  = 10
	guardStep   = 250 * time.Millisecond
	guardForget = 5 * time.Minute
	guardQueue  = HandshakeTimeout / 2 // a wait of more is no use: the handshake would be over
	guardHosts  = 10_000               // remembered; beyond it others that failed long ago are forgotten
	guardTell   = 10 * time.Second     // between two lines of log about one host
	guardLines  = 10                   // of log in a second, about all
)

// NewGuard makes a guard.
func NewGuard() *Guard { return &Guard{hosts: map[netip.Prefix]*guardHost{}} }

func hostOf(a net.Addr) (netip.Prefix, bool) {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}, false
	}
	ip := t.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.Prefix(bits)
	return p, err == nil
}

// Pause tells how long to wait before something from there is looked at; false where that is too long.
func (g *Guard) Pause(from net.Addr, now time.Time) (time.Duration, bool) {
	host, ok := hostOf(from)
	if !ok {
		return 0, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.hosts[host]
	if h == nil || h.failures < guardBurst || now.Sub(h.last) > guardForget {
		return 0, true
	}
	if h.next.Before(now) {
		h.next = now
	}
	wait := h.next.Sub(now)
	if wait > guardQueue {
		return 0, false
	}
	h.next = h.next.Add(guardStep)
	return wait, true
}

// Failed notes a login that failed.
func (g *Guard) Failed(from net.Addr, now time.Time) {
	host, ok := hostOf(from)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.hosts[host]
	if h == nil {
		if len(g.hosts) >= guardHosts {
			g.forget()
		}
		h = &guardHost{}
		g.hosts[host] = h
	}
	if now.Sub(h.last) > guardForget {
		h.failures = 0
	}
	h.failures++
	h.untold++
	h.last = now
}

// forget makes room: it forgets the one of a few that failed longest ago.
func (g *Guard) forget() {
	var oldest netip.Prefix
	var at time.Time
	few := 8
	for p, h := range g.hosts {
		if at.IsZero() || h.last.Before(at) {
			oldest, at = p, h.last
		}
		if few--; few == 0 {
			break
		}
	}
	delete(g.hosts, oldest)
}

// Tell tells whether a failure from there is worth a line of log now, and how many it stands for.
func (g *Guard) Tell(from net.Addr, now time.Time) (failures int, ok bool) {
	host, known := hostOf(from)
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.hosts[host]
	if !known || h == nil {
		return 1, true
	}
	if now.Sub(g.since) >= time.Second {
		g.since, g.told = now, 0
	}
	if g.told >= guardLines || !h.told.IsZero() && now.Sub(h.told) < guardTell {
		return 0, false
	}
	g.told++
	h.told = now
	failures, h.untold = max(h.untold, 1), 0
	return failures, true
}
