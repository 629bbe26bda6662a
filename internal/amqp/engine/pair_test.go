package engine_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// end is one end of a connection in memory, with a log of what its handler heard.
type end struct {
	t       testing.TB
	conn    *engine.Conn
	log     []string
	onOpen  func()
	onLink  func(*engine.Link)
	onFlow  func(*engine.Link)
	onMsg   func(d *engine.InDelivery, whole []byte)
	onPart  func(d *engine.InDelivery) // of what is not whole, in place of keeping it
	partial map[*engine.Link][]byte
	got     [][]byte
	quiet   bool
}

func (e *end) note(format string, a ...any) {
	if !e.quiet {
		e.log = append(e.log, fmt.Sprintf(format, a...))
	}
}

func (e *end) Opened() {
	e.note("opened %s", e.conn.Remote().ContainerID)
	if e.onOpen != nil {
		e.onOpen()
	}
}
func (e *end) Attached(l *engine.Link) {
	e.note("attached %s", l.Name())
	if e.onLink != nil {
		e.onLink(l)
	}
}
func (e *end) Detached(l *engine.Link, err error) { e.note("detached %s: %v", l.Name(), err) }
func (e *end) Transfer(d *engine.InDelivery, p []byte, last bool) {
	l := d.Link()
	if d.First && last {
		e.message(d, p)
		return
	}
	if e.onPart != nil {
		e.onPart(d)
		return
	}
	if d.First {
		e.partial[l] = nil
	}
	e.partial[l] = append(e.partial[l], p...)
	if last {
		e.message(d, e.partial[l])
	}
}

func (e *end) message(d *engine.InDelivery, p []byte) {
	if e.onMsg != nil {
		e.onMsg(d, p)
		return
	}
	e.got = append(e.got, bytes.Clone(p))
}
func (e *end) Aborted(d *engine.InDelivery) { e.note("aborted %d", d.ID) }
func (e *end) RemoteSettled(d *engine.InDelivery, state []byte) {
	e.note("remote settled %d %d", d.ID, wire.PeekState(state))
}
func (e *end) Sent(*engine.OutDelivery) { e.note("sent") }
func (e *end) Settled(d *engine.OutDelivery, k wire.StateKind, _ []byte) {
	e.note("settled %v %d", d.Context, k)
}
func (e *end) Flow(l *engine.Link) {
	if e.onFlow != nil {
		e.onFlow(l)
	}
}
func (e *end) InDropped(d *engine.InDelivery)            { e.note("in dropped %d", d.ID) }
func (e *end) OutDropped(d *engine.OutDelivery, ok bool) { e.note("out dropped %v %v", d.Context, ok) }
func (e *end) Closed(err error)                          { e.note("closed: %v", err) }

// pair is two ends joined by memory.
type pair struct{ client, server *end }

func newPair(t testing.TB, cc, sc engine.Config) *pair {
	p := &pair{client: &end{t: t, partial: map[*engine.Link][]byte{}}, server: &end{t: t, partial: map[*engine.Link][]byte{}}}
	cc.Client = true
	if cc.ContainerID == "" {
		cc.ContainerID = "alice"
	}
	if sc.ContainerID == "" {
		sc.ContainerID = "bob"
	}
	p.client.conn = engine.NewConn(cc, p.client)
	p.server.conn = engine.NewConn(sc, p.server)
	p.client.conn.Start()
	return p
}

// run moves bytes both ways until nothing is left to say, chunk bytes at a time (0: all that there is).
func (p *pair) run() error {
	for {
		a, err := move(p.client.conn, p.server.conn)
		if err != nil {
			return err
		}
		b, err := move(p.server.conn, p.client.conn)
		if err != nil {
			return err
		}
		if !a && !b {
			return nil
		}
	}
}

func move(from, to *engine.Conn) (bool, error) {
	out := from.Output(nil)
	if len(out) == 0 {
		return false, nil
	}
	used, err := to.Input(out)
	if err == nil && used != len(out) {
		err = fmt.Errorf("input took %d of %d bytes", used, len(out))
	}
	from.Wrote(len(out))
	return true, err
}

func (p *pair) mustRun(t testing.TB) {
	t.Helper()
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
}

func acceptAll(credit uint32) func(*engine.Link) {
	return func(l *engine.Link) {
		if l.Local() {
			return
		}
		l.Accept(l.Remote().Source, l.Remote().Target, credit, engine.AttachOptions{})
	}
}

func (p *pair) sender(t testing.TB, credit uint32) *engine.Link {
	t.Helper()
	p.server.onLink = acceptAll(credit)
	p.mustRun(t)
	s, err := p.client.conn.Begin()
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Attach(engine.AttachOptions{Name: "l", Role: engine.RoleSender, SenderMode: engine.SenderMixed,
		Source: &wire.Source{}, Target: &wire.Target{Address: "q", HasAddress: true}})
	if err != nil {
		t.Fatal(err)
	}
	p.mustRun(t)
	return l
}
