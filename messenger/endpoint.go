package messenger

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/routetable"
)

// endpoint is a peer that hops name: scheme, host, port and credentials. It is dialled when something waits for it, again with
// back-off when it goes away while something waits, and kept.
type endpoint struct {
	// Set at construction, never changed.
	m    *Messenger
	hop  routetable.Hop // of the first row that named it; its name counts for nothing
	text string         // without name and credentials
	down atomic.Bool    // the last try failed, or the connection broke

	mu      sync.Mutex // the lock of its connections; guards what follows
	lines   map[lineKey]*line
	subs    map[*subLink]struct{}
	c       *conn // nil while away
	lastErr error // of the last try
	running bool  // a goroutine dials, or waits for the connection to end
	closed  bool
}

type lineKey struct {
	target string
	noName bool
}

// The back-off between tries.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = 5 * time.Second
)

// maxLines is how many lines an endpoint keeps for later when they have nothing to do.
const maxLines = 1000

// endpoint gives the endpoint of a hop.
func (m *Messenger) endpoint(hop *routetable.Hop) (*endpoint, error) {
	key := fmt.Sprintf("%s|%q|%q|%t%t|%s|%d", hop.Scheme, hop.User, hop.Password, hop.HasUser, hop.HasPass, hop.Host, hop.Port)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return nil, ErrClosed
	}
	ep := m.endpoints[key]
	if ep == nil {
		ep = &endpoint{m: m, hop: *hop, lines: map[lineKey]*line{}, subs: map[*subLink]struct{}{}}
		ep.text = hop.Scheme + "://" + ep.address()
		m.endpoints[key] = ep
	}
	return ep, nil
}

// known gives the endpoint of a hop if there is one.
func (m *Messenger) known(hop *routetable.Hop) *endpoint {
	key := fmt.Sprintf("%s|%q|%q|%t%t|%s|%d", hop.Scheme, hop.User, hop.Password, hop.HasUser, hop.HasPass, hop.Host, hop.Port)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.endpoints[key]
}

func (ep *endpoint) address() string {
	return net.JoinHostPort(ep.hop.Host, strconv.Itoa(int(ep.hop.Port)))
}

// line gives the line to a target; noName is the anonymous terminus.
func (ep *endpoint) line(k lineKey) *line {
	ep.mu.Lock()
	ln := ep.lines[k]
	if ln != nil {
		ep.mu.Unlock()
		return ln
	}
	if len(ep.lines) >= maxLines {
		ep.dropIdle()
	}
	ln = &line{m: ep.m, ep: ep, target: k.target, noName: k.noName, mu: &ep.mu, c: ep.c, gone: ep.closed}
	ep.lines[k] = ln
	ep.unlock()
	return ln
}

// dropIdle forgets the lines that have nothing to do.
func (ep *endpoint) dropIdle() {
	for k, ln := range ep.lines {
		if ln.queue.len() > 0 || ln.inFlight > 0 {
			continue
		}
		delete(ep.lines, k)
		ln.retired = true
		if l := ln.l; l != nil {
			l.Detach(nil)
		}
	}
}

func (ep *endpoint) unlock() {
	if ep.c != nil {
		ep.c.c.Release()
		return
	}
	ep.mu.Unlock()
}

// want sees to it that somebody connects. Called under the lock.
func (ep *endpoint) want() {
	if ep.running || ep.closed || !ep.m.start() {
		return
	}
	ep.running = true
	go ep.run()
}

// wanted tells whether something waits for a connection.
func (ep *endpoint) wanted() bool {
	if len(ep.subs) > 0 {
		return true
	}
	for _, ln := range ep.lines {
		if ln.queue.len() > 0 {
			return true
		}
	}
	return false
}

// run keeps the endpoint connected while something waits for it. It is started by want.
func (ep *endpoint) run() {
	defer ep.m.running.Done()
	pause := time.Duration(0)
	for {
		connected, err := ep.connect()
		ep.mu.Lock()
		ep.down.Store(true)
		ep.lastErr = public(err)
		if ep.m.ctx.Err() == nil && err != nil {
			ep.m.log.Warn("hop away", "hop", ep.text, "error", err)
		}
		if isFinal(err) {
			ep.refused(err)
		}
		if ep.m.ctx.Err() != nil || !ep.wanted() {
			ep.running = false
			ep.mu.Unlock()
			return
		}
		ep.mu.Unlock()
		if connected {
			pause = 0
		}
		pause = min(max(2*pause, firstPause), mostPause)
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ep.m.ctx.Done():
		}
		timer.Stop()
	}
}

// isFinal tells whether trying again is no use without somebody changing something.
func isFinal(err error) bool {
	return errors.Is(err, ErrInsecurePlain) || errors.Is(err, engine.ErrAuthentication) || errors.Is(err, engine.ErrNoMechanism)
}

// refused gives up all that waits. Called under the lock.
func (ep *endpoint) refused(err error) {
	err = public(err)
	for _, ln := range ep.lines {
		ln.giveUpAll(Outcome{State: Released, Err: err})
	}
	for s := range ep.subs {
		s.fail(err)
	}
}

// connect dials, and stays until the connection is over.
func (ep *endpoint) connect() (connected bool, err error) {
	h := &ep.hop
	o := amqp.DialOptions{
		Address: ep.address(),
		User:    h.User, Password: h.Password, PLAIN: h.HasUser && h.HasPass,
		Engine: ep.m.engineConfig(), Lock: &ep.mu, AllowInsecurePlain: ep.m.o.AllowInsecurePlain,
	}
	if !h.HasUser && ep.m.o.User != "" {
		o.User, o.Password, o.PLAIN = ep.m.o.User, ep.m.o.Password, true
	}
	o.Engine.Hostname = h.Host
	switch {
	case h.Scheme == "amqps":
		o.TLS = ep.m.tlsConfig(h.Host)
	case o.PLAIN && !ep.m.o.AllowInsecurePlain && !isLoopback(h.Host):
		return false, ErrInsecurePlain
	}
	ctx, cancel := context.WithTimeout(ep.m.ctx, amqp.HandshakeTimeout)
	defer cancel()
	ac, err := amqp.Dial(ctx, o, func(ac *amqp.Conn) amqp.Owner { return &conn{m: ep.m, c: ac, ep: ep} })
	if err != nil {
		return false, err
	}
	select {
	case <-ac.Done():
	case <-ep.m.ctx.Done():
		ac.Close(nil)
		select {
		case <-ac.Done():
		case <-ep.m.abort:
			ac.Abort(ErrClosed)
			<-ac.Done()
		}
	}
	return true, ac.Err()
}

func (m *Messenger) tlsConfig(host string) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if m.o.TLS != nil {
		c = m.o.TLS.Clone()
	}
	if c.ServerName == "" {
		c.ServerName = host
	}
	return c
}

// isLoopback tells whether a host is this one by its text: no name but localhost is looked up.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// opened: the peer is there. Called under the lock.
func (ep *endpoint) opened(c *conn) {
	ep.c = c
	ep.lastErr = nil
	ep.down.Store(false)
	for _, ln := range ep.lines {
		ln.c = c
		ln.pump()
	}
	for s := range ep.subs {
		s.attach(c)
	}
}

// lost: the connection is over; its links were reported detached. Called under the lock.
func (ep *endpoint) lost(c *conn) {
	if ep.c != c {
		return
	}
	ep.c = nil
	ep.down.Store(true)
	for _, ln := range ep.lines {
		ln.c = nil
	}
}

// end gives up all that waits, for good.
func (ep *endpoint) end() {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.closed = true
	for _, ln := range ep.lines {
		ln.end(Outcome{State: Released, Err: ErrClosed})
	}
	for s := range ep.subs {
		s.fail(ErrClosed)
	}
}
