package messenger_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// broker is a peer that is not a messenger: queues by name, for as many links as want them. What was sent to a target, or by the
// anonymous terminus to that address, goes to the first receiver whose source has that name.
type broker struct {
	t    testing.TB
	l    *amqp.Listener
	over sync.WaitGroup

	mu      sync.Mutex // of all its connections, and what follows
	queues  map[string]*brokerQueue
	users   []string // who logged in
	targets []string // of links, in order; "-" for the anonymous terminus
	refuse  map[string]*engine.LinkError
	dynamic int
	conns   map[*brokerConn]struct{}
	crossed bool // a message went from one connection to another
}

type brokerQueue struct {
	waiting [][]byte
	links   []*engine.Link
}

type brokerConn struct {
	b     *broker
	c     *amqp.Conn
	parts []byte
}

// newBroker listens at address (a free port of loopback where it is empty). With a password, PLAIN is wanted.
func newBroker(t testing.TB, address, password string) *broker {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := amqp.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{t: t, l: l, queues: map[string]*brokerQueue{}, refuse: map[string]*engine.LinkError{}, conns: map[*brokerConn]struct{}{}}
	cfg := engine.Config{ContainerID: "broker"}
	if password != "" {
		cfg.RequireSASL = true
		cfg.Mechanisms = []engine.Mechanism{amqp.Plain(func(user, p string) bool { return p == password })}
	}
	b.over.Go(func() {
		l.Serve(func(nc net.Conn) *amqp.Conn {
			return amqp.NewConn(nc, cfg, &b.mu, func(c *amqp.Conn) amqp.Owner { return &brokerConn{b: b, c: c} })
		}, nil)
	})
	t.Cleanup(b.stop)
	return b
}

func (b *broker) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	b.l.Close(ctx)
	b.over.Wait()
}

// cut ends every connection without a word.
func (b *broker) cut() {
	b.mu.Lock()
	conns := make([]*brokerConn, 0, len(b.conns))
	for c := range b.conns {
		conns = append(conns, c)
	}
	b.mu.Unlock()
	for _, c := range conns {
		c.c.Abort(fmt.Errorf("cut"))
		<-c.c.Done()
	}
}

func (b *broker) addr() string { return b.l.Addr().String() }

func (b *broker) queue(name string) *brokerQueue {
	q := b.queues[name]
	if q == nil {
		q = &brokerQueue{}
		b.queues[name] = q
	}
	return q
}

func (q *brokerQueue) pump() {
	for _, l := range q.links {
		for len(q.waiting) > 0 && l.CanSend() {
			if l.Send(&engine.OutDelivery{}, false, 0, nil, q.waiting[0]) == engine.Refused {
				break
			}
			q.waiting = q.waiting[1:]
		}
	}
}

func (c *brokerConn) Opened() {
	c.b.conns[c] = struct{}{}
	c.b.users = append(c.b.users, c.c.Engine.User())
}
func (c *brokerConn) Closed(error) { delete(c.b.conns, c) }

func (c *brokerConn) Attached(l *engine.Link) {
	r := l.Remote()
	if l.IsSender() {
		source := *r.Source
		if err := c.b.refuse[source.Address]; err != nil {
			l.Refuse(err)
			return
		}
		if source.Dynamic {
			c.b.dynamic++
			source.Address, source.HasAddress = fmt.Sprintf("tmp-%d", c.b.dynamic), true
		}
		l.Context = source.Address
		q := c.b.queue(source.Address)
		q.links = append(q.links, l)
		l.Accept(&source, r.Target, 0, engine.AttachOptions{})
		return
	}
	target := "-"
	if r.Target.HasAddress {
		target = r.Target.Address
	}
	c.b.targets = append(c.b.targets, target)
	if err := c.b.refuse[target]; err != nil {
		l.Refuse(err)
		return
	}
	l.Context = target
	l.Accept(r.Source, r.Target, 100, engine.AttachOptions{})
}

func (c *brokerConn) Detached(l *engine.Link, _ error) {
	name, _ := l.Context.(string)
	if q := c.b.queues[name]; q != nil && l.IsSender() {
		for i := range q.links {
			if q.links[i] == l {
				q.links = append(q.links[:i:i], q.links[i+1:]...)
				break
			}
		}
	}
}

func (c *brokerConn) Transfer(d *engine.InDelivery, payload []byte, last bool) {
	c.parts = append(c.parts, payload...)
	if !last {
		return
	}
	raw := c.parts
	c.parts = nil
	name := d.Link().Context.(string)
	if name == "-" {
		var s wire.Sections
		if err := wire.ScanHead(raw, &s); err != nil {
			c.b.t.Error(err)
		}
		name = string(s.ToText(raw))
	}
	q := c.b.queue(name)
	q.waiting = append(q.waiting, raw)
	c.b.crossed = true
	q.pump()
	d.Link().Grant(100)
	if !d.Settled {
		d.SettleAs(wire.Accepted)
	}
}

func (c *brokerConn) Flow(l *engine.Link)                                 { c.b.queue(l.Context.(string)).pump() }
func (c *brokerConn) Aborted(*engine.InDelivery)                          {}
func (c *brokerConn) RemoteSettled(*engine.InDelivery, []byte)            {}
func (c *brokerConn) Sent(*engine.OutDelivery)                            {}
func (c *brokerConn) Settled(*engine.OutDelivery, wire.StateKind, []byte) {}
func (c *brokerConn) InDropped(*engine.InDelivery)                        {}
func (c *brokerConn) OutDropped(*engine.OutDelivery, bool)                {}
func (c *brokerConn) AfterInput(bool)                                     {}
func (c *brokerConn) BeforeFlush()                                        {}

// TakeWork has what was sent by other connections written.
func (c *brokerConn) TakeWork() amqp.Work {
	if !c.b.crossed {
		return nil
	}
	c.b.crossed = false
	var w flush
	for o := range c.b.conns {
		w = append(w, o.c)
	}
	return w
}

type flush []*amqp.Conn

func (w flush) Run() {
	for _, c := range w {
		c.Do(func() {})
	}
}
