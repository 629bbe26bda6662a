package messenger

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// SubscribeOptions of one subscription. Nil and the zero value are usable.
type SubscribeOptions struct {
	// Dynamic asks the peer for an address of its making, as the name "#" does. Subscription.Address tells it.
	Dynamic bool

	// Prefetch is how many deliveries may be unsettled. 0 is that of the messenger.
	Prefetch int

	// Move asks for messages that nobody else gets (distribution mode move); Browse for copies (copy). Neither leaves it to the peer.
	Move, Browse bool

	// Capabilities the source is to have ("queue", "topic").
	Capabilities []string
}

// Subscription is a source that messages come from: one link for each hop that its address was routed to. It outlives connections: a
// link is attached again when its peer is back. It is over when it is closed, or when a peer ends a link or will not have it
// again; then Done is closed and Err tells why, and Close ends what is left of it at other hops.
type Subscription struct {
	// Set at construction, never changed.
	m       *Messenger
	options SubscribeOptions
	links   []*subLink
	ready   chan struct{} // closed when each link was attached once
	done    chan struct{}

	mu       sync.Mutex // guards what follows; a leaf
	waiting  int        // links that were not attached yet
	err      error
	finished bool
}

// subLink is the subscription at one hop.
type subLink struct {
	// Set at construction, never changed.
	sub    *Subscription
	ep     *endpoint
	hop    string
	source string

	// Guarded by the endpoint's lock.
	l       *engine.Link // nil while away
	known   bool         // it was attached once
	address string       // as granted
}

// Subscribe receives from an address, which is routed like that of a put: from all the hops that the table picks. It waits until every
// peer has answered, at most until ctx ends or for the delivery timeout. What comes is got by [Messenger.Get].
//
// The source asked for is the name in the hop (QUEUE in amqp://host/QUEUE). Where a row's hop has none, it is the address as it is. The
// name "#" asks for a dynamic source.
func (m *Messenger) Subscribe(ctx context.Context, address string, o *SubscribeOptions) (*Subscription, error) {
	if o == nil {
		o = &SubscribeOptions{}
	}
	if m.closing.Load() {
		return nil, ErrClosed
	}
	ways, err := m.route(address, func(string) (string, bool) { return "", false }, true)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	s := &Subscription{m: m, options: *o, ready: make(chan struct{}), done: make(chan struct{})}
	if s.options.Prefetch <= 0 {
		s.options.Prefetch = m.o.Prefetch
	}
	for i := range ways {
		l, err := s.at(&ways[i], address)
		if err != nil {
			return nil, fmt.Errorf("subscribe: %w", &HopError{Hop: ways[i].text, Err: err})
		}
		s.links = append(s.links, l)
	}
	if s.waiting = len(s.links); s.waiting == 0 {
		return nil, fmt.Errorf("subscribe: %w: the address is discarded", ErrNoRoute)
	}
	for _, l := range s.links {
		l.begin()
	}
	timer := time.NewTimer(m.o.DeliveryTimeout)
	defer timer.Stop()
	select {
	case <-s.ready:
		return s, nil
	case <-s.done:
		err = s.Err()
		s.Close(ctx)
		return nil, fmt.Errorf("subscribe: %w", err)
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = ErrNotSent
	case <-m.ctx.Done():
		err = ErrClosed
	}
	why := s.why()
	s.Close(ctx)
	return nil, fmt.Errorf("subscribe: %w", causedBy(err, why))
}

// at prepares the link at one hop.
func (s *Subscription) at(w *way, address string) (*subLink, error) {
	if w.err != nil {
		return nil, w.err
	}
	if w.hop.Scheme != "amqp" && w.hop.Scheme != "amqps" {
		return nil, fmt.Errorf("%w: a messenger does not subscribe to %s: hops", ErrNoRoute, w.hop.Scheme)
	}
	ep, err := s.m.endpoint(w.hop)
	if err != nil {
		return nil, err
	}
	l := &subLink{sub: s, ep: ep, hop: w.text, source: w.hop.Name}
	if !w.hop.HasName && !s.options.Dynamic {
		own, err := routetable.ParseHop(address)
		if err == nil && isEndpoint(address, own) {
			return nil, &AddressError{Address: w.text, What: "there is no name to subscribe to"}
		}
		l.source = address
	}
	return l, nil
}

// begin has the endpoint attach the link.
func (l *subLink) begin() {
	ep := l.ep
	ep.mu.Lock()
	if ep.closed {
		l.fail(ErrClosed)
		ep.unlock()
		return
	}
	ep.subs[l] = struct{}{}
	if ep.c != nil && ep.c.c.Engine.IsOpen() {
		l.attach(ep.c)
	}
	ep.want()
	ep.unlock()
}

// attach asks the peer for the link. Called under the endpoint's lock.
func (l *subLink) attach(c *conn) {
	o := &l.sub.options
	source, target := &wire.Source{Address: l.source, HasAddress: true}, &wire.Target{Address: l.source, HasAddress: true}
	if o.Dynamic || l.source == "#" {
		source, target = &wire.Source{Dynamic: true}, &wire.Target{}
	}
	switch {
	case o.Move:
		source.DistributionMode = "move"
	case o.Browse:
		source.DistributionMode = "copy"
	}
	for _, name := range o.Capabilities {
		source.Capabilities = append(source.Capabilities, wire.Symbol(name))
	}
	in := &inlink{c: c, prefetch: o.Prefetch, sub: l}
	el, err := c.attach(engine.AttachOptions{
		Role: engine.RoleReceiver, Source: source, Target: target,
		SenderMode: engine.SenderMixed, ReceiverMode: engine.ReceiverFirst,
		Credit: uint32(o.Prefetch), Context: in,
	})
	if err != nil {
		l.fail(public(err))
		return
	}
	in.l, l.l = el, el
}

// attached: the peer took the link. Called under the endpoint's lock.
func (l *subLink) attached(address string) {
	l.address = address
	if l.known {
		return
	}
	l.known = true
	s := l.sub
	s.mu.Lock()
	s.waiting--
	if s.waiting == 0 && !s.finished {
		close(s.ready)
	}
	s.mu.Unlock()
}

// detached: the link is gone. It comes back with the connection; where that is still there, the peer meant it.
func (l *subLink) detached(c *conn, err error) {
	l.l = nil
	if c.c.Engine.IsOpen() {
		l.fail(public(err))
	}
}

// fail ends the subscription for the error of one hop. Called under the endpoint's lock.
func (l *subLink) fail(err error) {
	delete(l.ep.subs, l)
	l.sub.finish(&HopError{Hop: l.hop, Err: err})
}

// finish closes Done, once.
func (s *Subscription) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		s.finished, s.err = true, err
		close(s.done)
	}
}

// why is what keeps the subscription from being attached.
func (s *Subscription) why() error {
	for _, l := range s.links {
		l.ep.mu.Lock()
		err, there := l.ep.lastErr, l.known
		l.ep.mu.Unlock()
		if !there && err != nil {
			return &HopError{Hop: l.hop, Err: err}
		}
	}
	return nil
}

// Address is the name of the source as the peer granted it last; of several, the first. For a dynamic one it is what to tell those who
// are to send to it by way of that peer.
func (s *Subscription) Address() string {
	l := s.links[0]
	l.ep.mu.Lock()
	defer l.ep.mu.Unlock()
	return l.address
}

// Done is closed when the subscription is over.
func (s *Subscription) Done() <-chan struct{} { return s.done }

// Err tells why it is over: [ErrClosed], or what the peer said. It is nil before.
func (s *Subscription) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the subscription. Deliveries of it that are not settled go back to their senders.
func (s *Subscription) Close(ctx context.Context) error {
	s.finish(ErrClosed)
	for _, l := range s.links {
		l.ep.mu.Lock()
		delete(l.ep.subs, l)
		if el := l.l; el != nil {
			l.l = nil
			el.Detach(nil)
		}
		l.ep.unlock()
	}
	return ctx.Err()
}
