package messenger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fingerpost/fingerpost/routetable"
)

// Put looks the message's address up and sends a copy to every hop that the table picks. It returns as soon as the copies are in
// their lines: the tracker tells what becomes of them. It waits, as long as ctx lets it, only where MaxOutgoing messages are
// on their way already.
//
// An address that no row matches is a hop itself where it says so: an amqp or amqps URL, or a host with a port. Any other is
// an error that wraps [ErrNoRoute] (use errors.Is). A message whose only row is null is discarded, and accepted. One copy goes to a hop, however many rows name it.
//
// The copies keep the address as it was put, so that the next node can translate it again; only user and password are taken out. A
// copy goes by a link whose target is the name in its hop (QUEUE in amqp://host/QUEUE), or by the peer's anonymous terminus
// where there is none. Copies for one hop go in the order of the puts. One that cannot be sent waits for the connection, the link
// and credit until the delivery timeout of its row or of the options, or until its ttl; a link that the peer refuses and credentials
// that it does not take end the wait at once. What comes back from a peer is not sent again: the tracker says so, and it is the
// application's to put again.
//
// Reply-to "~", or "~/" and anything, goes out as a dynamic address that the peer of each copy grants; replies come by Get.
//
// An error says that nothing was sent, but for the copies of optional rows where it is ErrNoRoute.
func (m *Messenger) Put(ctx context.Context, msg *Message) (*Tracker, error) {
	return m.put(ctx, msg, nil)
}

// put is Put, with where a message goes that no row matches.
func (m *Messenger) put(ctx context.Context, msg *Message, otherwise *way) (*Tracker, error) {
	now := time.Now()
	e, err := msg.encode(now)
	if err != nil {
		return nil, err
	}
	if err := m.takeSlot(ctx); err != nil {
		return nil, err
	}
	ways, err := m.route(msg.Address, e.property, otherwise == nil)
	if err != nil && otherwise != nil {
		ways, err = append(ways, *otherwise), nil
	}
	counted := 0
	for i := range ways {
		if !ways[i].optional {
			counted++
		}
	}
	t := &Tracker{m: m, done: make(chan struct{}), left: len(ways), counted: counted}
	if counted == 0 {
		if err == nil {
			t.outcome = Outcome{State: Accepted} // discarded
		} else {
			t.outcome = Outcome{State: Released, Err: err}
		}
		close(t.done)
	}
	if len(ways) == 0 {
		m.releaseSlot()
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	t.copies = make([]outCopy, len(ways))
	for i := range ways {
		w := &ways[i]
		t.copies[i] = outCopy{t: t, e: e, hop: w.text, optional: w.optional, expires: e.expires(now, w.timeout, m.o.DeliveryTimeout)}
	}
	for i := range ways {
		m.give(&t.copies[i], &ways[i], msg.Address)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// takeSlot waits for room in the store.
func (m *Messenger) takeSlot(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.closing.Load() {
		return ErrClosed
	}
	select {
	case m.slots <- struct{}{}:
		return nil
	default:
	}
	select {
	case m.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d messages are on their way: %w", cap(m.slots), ctx.Err())
	case <-m.ctx.Done():
		return ErrClosed
	}
}

// expires tells until when a copy may wait.
func (e *encoded) expires(now time.Time, row, all time.Duration) time.Time {
	if row == 0 {
		row = all
	}
	at := now.Add(row)
	if !e.deadline.IsZero() && e.deadline.Before(at) {
		return e.deadline
	}
	return at
}

// way is where one copy goes.
type way struct {
	hop      *routetable.Hop // nil: err tells why there is none
	text     string
	optional bool
	timeout  time.Duration // 0 is that of the options
	err      error
}

// route gives the ways of a message, one for each hop. The error, ErrNoRoute or one that wraps it, says that no way counts; ways that
// do not count may be there with it. No ways and no error: discard. Where itself is set, an address that no row matches may be a hop.
func (m *Messenger) route(address string, property func(string) (string, bool), itself bool) ([]way, error) {
	s := m.routes.Snapshot()
	var groupRoom [4]routetable.Group
	groups := s.LookupInto(groupRoom[:0], address, property)
	p := picker{m: m, property: property}
	var room [4]routetable.Candidate
	discarded := false
	counted := 0
	var ways []way
	for _, c := range s.Resolve(room[:0], groups, p.choose, property) {
		w := way{hop: c.Hop, optional: c.Optional, timeout: c.Timeout}
		switch c.End {
		case routetable.EndProblem:
			continue // counts as not there
		case routetable.EndTooDeep:
			w.text, w.err = c.Name, fmt.Errorf("%w: names lead too deep", ErrNoRoute)
		case routetable.EndEmpty:
			w.text, w.err = c.Name, ErrNoRoute
		default:
			if w.text = c.Hop.Text; c.Hop.Scheme == routetable.NullAddress {
				discarded = discarded || !c.Optional
				continue
			}
		}
		addWay(&ways, w)
	}
	for i := range ways {
		if !ways[i].optional {
			counted++
		}
	}
	if counted > 0 || discarded {
		return ways, nil
	}
	if !itself {
		return ways, ErrNoRoute
	}
	hop, err := routetable.ParseHop(address)
	if err == nil && isEndpoint(address, hop) {
		addWay(&ways, way{hop: hop, text: hop.Text})
		return ways, nil
	}
	shown := routetable.MaskUserinfo(address)
	if err != nil && authorityStart(address) > 0 {
		var refused *routetable.RefusedError
		what := err.Error()
		if errors.As(err, &refused) {
			what = refused.What
		}
		return ways, fmt.Errorf("%w: %w", ErrNoRoute, &AddressError{Address: shown, What: what})
	}
	return ways, fmt.Errorf("%w: %q", ErrNoRoute, shown)
}

// addWay adds a way, unless its hop has one already: then what counts beats what is optional.
func addWay(ways *[]way, w way) {
	for i := range *ways {
		o := &(*ways)[i]
		if w.hop != nil && o.hop != nil && o.hop.Key == w.hop.Key || w.hop == nil && o.hop == nil && o.text == w.text {
			o.optional = o.optional && w.optional
			return
		}
	}
	*ways = append(*ways, w)
}

// give puts a copy in its line.
func (m *Messenger) give(c *outCopy, w *way, address string) {
	if w.err != nil {
		c.settle(Outcome{State: Released, Err: w.err})
		return
	}
	for {
		ln, err := m.lineOf(w.hop, c.e, address)
		if err != nil {
			c.settle(Outcome{State: Released, Err: err})
			return
		}
		if ln.put(c) {
			return
		}
	}
}

// lineOf gives the line that leads to a hop. One without a name leads to the peer's anonymous terminus, where the message's own `to`
// counts; for an encoded message that has none, to a target named as it was put.
func (m *Messenger) lineOf(hop *routetable.Hop, e *encoded, address string) (*line, error) {
	switch hop.Scheme {
	case "amqp", "amqps":
		ep, err := m.endpoint(hop)
		if err != nil {
			return nil, err
		}
		k := lineKey{target: hop.Name}
		if !hop.HasName {
			if k.noName = e.sections.HasTo; !k.noName {
				if k.target, err = stripUserinfo(address); err != nil {
					return nil, err
				}
			}
		}
		return ep.line(k), nil
	case "link":
		m.mu.Lock()
		ln := m.links[hop.Name]
		m.mu.Unlock()
		if ln == nil {
			return nil, fmt.Errorf("%w: the receiver has gone", ErrNoRoute)
		}
		return ln, nil
	}
	return nil, fmt.Errorf("%w: a messenger does not reach %s: hops", ErrNoRoute, hop.Scheme)
}
