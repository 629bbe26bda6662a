package components

import (
	"bytes"
	"errors"
	"strings"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/internal/components/proto"
	"github.com/fingerpost/fingerpost/internal/nats"
	"github.com/fingerpost/fingerpost/routetable"
)

// handle takes an event that came by NATS.
func (o *others) handle(in *inlet, f *Finder, m *nats.Message) {
	e := &proto.Event{}
	if _, err := e.Parse(bytes.Clone(m.Data)); err != nil {
		o.b.log.Warn("nats: a message that is no event", "subject", m.Subject)
		m.Done(true)
		return
	}
	if !m.At.IsZero() {
		e.TTL -= int64(max(o.b.o.Now().Sub(m.At), 0))
	}
	o.b.send(in, f, e, viaNATS, natsSender{o, m})
	in.flush()
}

// natsSender takes what became of an event that came by NATS.
type natsSender struct {
	o *others
	m *nats.Message
}

// maxTries is how many brokers an event is offered to.
const maxTries = 3

// again is in the header of an event that is offered to another broker, where NATS counts nothing.
var again = [2]string{"fingerpost-again", "1"}

// answer has the event offered to another broker where the last replica here has just gone and others serve the group; else a request is
// answered with the failure. An event goes nowhere again when its life is over.
func (s natsSender) answer(e *proto.Event, f *Failure) {
	if f != nil && (f.Code == codeComponentGone || f.Code == codeBrokerUnavailable) && e.TTL > 0 && s.offer(e, f) {
		return
	}
	s.m.Done(true)
	s.refuse(e, f)
}

// offer offers the event to another broker, where there may be one and it was not to too many.
func (s natsSender) offer(e *proto.Event, f *Failure) bool {
	switch {
	case s.m.Tries > 0 && s.m.Tries < maxTries && s.o.b.hasRows(e):
		s.m.Done(false)
		return true
	case s.o.b.o.Current && s.m.Header(again[0]) == "" && strings.HasPrefix(s.m.Subject, currentSubjects):
		err := s.o.nc.Post(s.m.Subject, e.ID, again, s.m.Data, func(err error) {
			if err != nil {
				s.refuse(e, f)
			}
		})
		return err == nil && s.o.nc.Ask() == nil
	}
	return false
}

// refuse answers a request with a failure.
func (s natsSender) refuse(e *proto.Event, f *Failure) {
	if f == nil || e.Category != proto.Request || f.Code == codeTimeout || e.Source.BrokerID == "" {
		return
	}
	s.o.publish(brokerSubjects+e.Source.BrokerID, s.o.b.errorEvent(e, f))
}

// hasRows tells whether others serve the target of an event.
func (b *Broker) hasRows(e *proto.Event) bool {
	return len(b.core.Table().Snapshot().LookupInto(nil, "comp:"+e.Target.Address(), nil)) > 0
}

func (o *others) publish(subject string, e *proto.Event) error {
	return o.nc.Publish(subject, e.ID, e.Append(nil, o.b.o.Between))
}

// Outlet finds the outlet of a subject. It is the broker's part of forwarder.Scheme.
func (o *others) Outlet(hop *routetable.Hop, _ *routetable.Route, _ string) forwarder.Outlet {
	if !strings.HasPrefix(hop.Name, o.b.groupSubjects()) {
		return nil
	}
	return subject{o, hop.Name}
}

// subject is a NATS subject as an outlet. Two of one name are equal.
type subject struct {
	o    *others
	name string
}

// Deliver publishes copies, but none that came by NATS, and none while NATS is away: it would have them later, and whoever waits is to know now.
func (s subject) Deliver(batch []*forwarder.Copy) (taken int, err error) {
	if !s.Present() {
		return 0, forwarder.ErrGone
	}
	if s.o.b.o.Current {
		defer s.o.nc.Ask()
	}
	for _, c := range batch {
		if _, back := c.Message().Source().(natsSource); back {
			return taken, forwarder.ErrGone
		}
		data, ok := s.o.b.tickets.data(c.Message())
		if !ok {
			c.Settle(forwarder.Rejected(wire.CondNotImplemented, "not an event of a component"))
			taken++
			continue
		}
		var e proto.Event
		event := proto.EventOf(data)
		if _, err := e.Parse(event); err != nil {
			return taken, forwarder.ErrGone
		}
		if s.o.b.o.Between != proto.D4 {
			event = e.Append(nil, s.o.b.o.Between)
		}
		if err := s.publish(c, e.ID, event); err != nil {
			return taken, forwarder.ErrGone
		}
		taken++
	}
	return taken, nil
}

// publish publishes a copy. It is accepted when NATS is to have it; where nothing is kept, when somebody takes the subject.
func (s subject) publish(c *forwarder.Copy, id string, event []byte) error {
	if !s.o.b.o.Current {
		err := s.o.nc.Publish(s.name, id, event)
		if err == nil {
			c.Settle(forwarder.Outcome{Kind: wire.Accepted})
		}
		return err
	}
	c.Keep()
	return s.o.nc.Post(s.name, id, [2]string{}, event, func(err error) {
		switch {
		case err == nil:
			c.Settle(forwarder.Outcome{Kind: wire.Accepted})
		case errors.Is(err, nats.ErrNobody):
			c.Settle(forwarder.Rejected(wire.CondNotFound, err.Error()))
		default:
			c.Settle(forwarder.Outcome{Kind: wire.Released})
		}
	})
}

// Present tells whether NATS is there.
func (s subject) Present() bool { return s.o.nc.Connected() }

// Busy is always none: what was published is NATS's.
func (s subject) Busy() int { return 0 }
