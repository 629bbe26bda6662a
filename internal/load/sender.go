package load

import (
	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// sender is one connection that sends. What it holds is guarded by the connection's lock.
type sender struct {
	endpoint
	index uint32
	to    []target
	turn  int // which target is next
	step  int
	slots []*slot // free
	n     uint64  // messages so far, for the schedule

	accepted, rejected, released, modified uint64
	going                                  bool
}

// target is one address that a sender sends to.
type target struct {
	link *engine.Link
	head []byte // before the stamp
	id   uint32
	seq  uint64
}

// slot is the memory of one message on its way.
type slot struct {
	engine.OutDelivery
	head []byte
}

func (r *runner) newSender(i int, c *amqp.Conn) *sender {
	s := &sender{endpoint: endpoint{c: c, r: r}, index: uint32(i), step: 1}
	slots := r.o.Window
	if r.o.Settled {
		slots = 16 // more than one only where a message goes in several frames
	}
	for range slots {
		m := &slot{head: make([]byte, 0, 512)}
		m.Context = m
		s.slots = append(s.slots, m)
	}
	return s
}

// plan lays out what the sender sends to: all addresses in turn on one link without a target, or its share of them on links of their own.
func (s *sender) plan(session *engine.Session, attach func(engine.AttachOptions, *engine.Session) (*engine.Link, error)) error {
	o := &s.r.o
	mode := uint8(engine.SenderUnsettled)
	if o.Settled {
		mode = engine.SenderSettled
	}
	n := o.Addresses
	if o.Anonymous {
		l, err := attach(engine.AttachOptions{Name: s.r.linkName("s", s.index, 0), Role: engine.RoleSender, SenderMode: mode, Source: &wire.Source{}, Target: &wire.Target{}, Context: s}, session)
		if err != nil {
			return err
		}
		for k := range n {
			s.to = append(s.to, target{link: l, id: uint32(k), head: appendHead(nil, s.r.address(k), o.Size)})
		}
		s.step = stride(n)
		s.turn = int(s.index) * n / o.Senders
		return nil
	}
	for k := range n {
		if n >= o.Senders && k%o.Senders != int(s.index) {
			continue
		}
		l, err := attach(engine.AttachOptions{
			Name: s.r.linkName("s", s.index, k), Role: engine.RoleSender, SenderMode: mode, Source: &wire.Source{},
			Target: &wire.Target{Address: s.r.address(k), HasAddress: true}, Context: s,
		}, session)
		if err != nil {
			return err
		}
		s.to = append(s.to, target{link: l, id: uint32(k), head: appendHead(nil, "", o.Size)})
	}
	return nil
}

// stride is a step that reaches all of n places and has neighbours far apart.
func stride(n int) int {
	step := max(n*5/13, 1)
	for gcd(step, n) != 1 {
		step++
	}
	return step
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// pump sends what schedule, credit, window and room allow. Called under the lock.
func (s *sender) pump() {
	if !s.going {
		return
	}
	o := &s.r.o
	now := s.r.clock()
	for len(s.slots) > 0 {
		at := now
		if o.Rate > 0 {
			if at = s.r.due(s.index, s.n); at > now {
				return
			}
		}
		t := &s.to[s.turn]
		if !t.link.CanSend() {
			return
		}
		m := s.slots[len(s.slots)-1]
		st := stamp{run: s.r.id, sender: s.index, address: t.id, seq: t.seq, at: at}
		m.head = st.append(append(m.head[:0], t.head...))
		switch t.link.Send(&m.OutDelivery, o.Settled, 0, m.head, s.r.filler) {
		case engine.Refused:
			return
		case engine.Complete:
			if !o.Settled {
				s.slots = s.slots[:len(s.slots)-1]
			}
		case engine.Partial:
			s.slots = s.slots[:len(s.slots)-1]
		}
		t.seq++
		s.n++
		if s.turn += s.step; s.turn >= len(s.to) {
			s.turn -= len(s.to)
		}
	}
}

func (s *sender) free(d *engine.OutDelivery) { s.slots = append(s.slots, d.Context.(*slot)) }

// Flow: a link may send more.
func (s *sender) Flow(*engine.Link) { s.pump() }

// BeforeFlush goes on with what outcomes have made room for.
func (s *sender) BeforeFlush() { s.pump() }

// Sent: a pre-settled message of several frames has left.
func (s *sender) Sent(d *engine.OutDelivery) {
	if d.Link() == nil {
		s.free(d)
	}
}

// Settled counts an outcome.
func (s *sender) Settled(d *engine.OutDelivery, kind wire.StateKind, _ []byte) {
	switch kind {
	case wire.Rejected:
		s.rejected++
	case wire.Released:
		s.released++
	case wire.Modified:
		s.modified++
	default:
		s.accepted++
	}
	s.free(d)
}

// answered is how many messages have an outcome.
func (s *sender) answered() uint64 { return s.accepted + s.rejected + s.released + s.modified }
