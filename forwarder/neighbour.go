package forwarder

import (
	"context"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net"
	"sync"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// Neighbour is another node of an adapter's, by a connection of AMQP that the adapter has one of them open to the other. Messages that came over AMQP
// go there over it, whatever the adapter speaks itself: settled end to end, and cut through. A link is for one name, its target, which is what they are
// looked up by at the other end; one that has been there by another way, to the same name, is accepted and goes no further.
type Neighbour struct{ p *peer }

// NeighbourOptions of a Neighbour. Name is needed.
type NeighbourOptions struct {
	Name string                                      // of its hop: that of peer:NAME
	Dial func(ctx context.Context) (net.Conn, error) // opens a connection; nil: the other end does, and Take is given it
	May  func(address string) bool                   // whether messages from there may be sent to an address; nil: to all
}

// Neighbourly is a Scheme some of whose hops are neighbours.
type Neighbourly interface {
	// Neighbour gives what a hop is, and the name that it is to look up; nil for a hop that is none.
	Neighbour(hop *routetable.Hop, name string) (*Neighbour, string)
}

// NewNeighbour makes a neighbour; Leave ends it.
func (n *Node) NewNeighbour(o NeighbourOptions) *Neighbour {
	hop := routetable.Hop{Scheme: "peer", Name: o.Name, Text: "peer:" + o.Name}
	p := &peer{
		n: n, endpoint: hop, neighbour: &o, key: fmt.Sprintf("neighbour %d", n.nextID.Add(1)), lines: map[lineKey]*line{},
		account: &admin.Account{Name: o.Name, Send: admin.GrantsOfSchemes("topic"), Receive: nobody()},
	}
	n.mu.Lock()
	p.count = n.hopCountFor(endpointText(&hop))
	n.peers[p.key] = p
	n.mu.Unlock()
	p.mu.Lock()
	p.want()
	p.mu.Unlock()
	return &Neighbour{p}
}

// line gives the line for a name, nil where the neighbour has left.
func (b *Neighbour) line(hop *routetable.Hop, name string) *line {
	return b.p.line(&routetable.Hop{Scheme: hop.Scheme, Name: name, HasName: true, Text: hop.Text, Key: hop.Key}, name, true)
}

// Take serves a connection that the other end has opened, until it ends or the node does.
func (b *Neighbour) Take(nc net.Conn) {
	p := b.p
	p.mu.Lock()
	free := !p.taken && p.leaving == 0 && p.n.start()
	p.taken = p.taken || free
	p.mu.Unlock()
	if !free {
		nc.Close()
		return
	}
	go p.serve(nc)
}

func (p *peer) serve(nc net.Conn) {
	defer p.n.running.Done()
	cfg := p.n.engineConfig()
	cfg.Mechanisms = []engine.Mechanism{amqp.Anonymous()}
	c := amqp.NewConn(nc, cfg, &p.mu, func(ac *amqp.Conn) amqp.Owner {
		return &conn{n: p.n, c: ac, id: p.n.nextID.Add(1), dialled: p}
	})
	stop := context.AfterFunc(p.n.ctx, func() { c.Close(nil) })
	err := c.Serve()
	stop()
	p.n.log.Debug("a neighbour's connection ended", "hop", p.endpoint.Text, "reason", reasonOf(err))
	p.mu.Lock()
	p.taken = false
	p.mu.Unlock()
	p.down.Store(true)
	for _, ln := range p.all() {
		ln.handOver()
	}
}

// Leave ends a neighbour: what is with it gets its outcomes, for as long as a delivery may wait; what is not goes back.
func (b *Neighbour) Leave() {
	p := b.p
	p.mu.Lock()
	if p.leaving == 0 {
		p.leaving = now() + int64(p.n.options.DeliveryTimeout)
	}
	p.mu.Unlock()
	p.leave(now())
}

// leave gives back what the lines have not sent. Where nothing that was sent waits for its outcome any more, or for too long, the connection is
// closed, and when that is over the neighbour given up.
func (p *peer) leave(at int64) {
	lines := p.all()
	busy := false
	for _, ln := range lines {
		busy = ln.leave() || busy
	}
	p.mu.Lock()
	switch c := p.c; {
	case c == nil:
		for _, ln := range lines {
			p.retire(ln)
		}
		p.giveUp()
	case !busy || at > p.leaving:
		c.c.Release()
		c.c.Close(nil)
		return
	}
	p.mu.Unlock()
}

// leave takes no more copies, and gives back those that were not sent. It reports whether some are with the peer.
func (ln *line) leave() (busy bool) {
	ln.mu.Lock()
	ln.gone.Store(true)
	var over []*Copy
	if ln.traffic != nil {
		away := ln.c == nil
		over = ln.takeOut(nil, func(cp *Copy) bool {
			cp.fate, cp.outcome = fateGone, Outcome{Kind: wire.Released}
			if cp.inDoubt {
				cp.outcome = modifiedFailed()
			}
			return away || !cp.inDoubt
		})
		ln.busy.Add(-int32(len(ln.later)))
		for _, cp := range ln.later {
			cp.fate, cp.outcome = fateGone, Outcome{Kind: wire.Released}
			over = append(over, cp)
		}
		ln.later = nil
	}
	busy = ln.busy.Load() > 0
	ln.unlock()
	ln.n.settle(over)
	return busy
}

// mayPass tells whether a neighbour may send by a plan. What it may changes without the table, and so it is asked each time.
func (c *conn) mayPass(l *inlink, address string) bool {
	if !l.isNeighbour() || c.dialled.neighbour.May == nil {
		return true
	}
	return c.dialled.neighbour.May(address)
}

// isNeighbour tells whether the link is one by which a neighbour sends.
func (l *inlink) isNeighbour() bool {
	return l.c.dialled != nil && l.c.dialled.neighbour != nil && !l.replies
}

// stampKey is the annotation, between nodes only, by which a message that comes by two ways is known again: 16 bytes, the id of the node that it came
// to first and its number there.
const stampKey = "x-opt-fingerpost-id"

type stamp [16]byte

// firstStamp is where the numbers begin: anywhere, as the node's id outlives the process, and neighbours remember what they have been brought.
func firstStamp() uint64 { return rand.Uint64() }

// newStamp makes the stamp of a message that has none.
func (n *Node) newStamp() (s stamp) {
	hex.Decode(s[:8], []byte(n.id))
	for i, number := 8, n.stamps.Add(1); i < 16; i++ {
		s[i] = byte(number >> (8 * (15 - i)))
	}
	return s
}

// readStamp finds the stamp of a message.
func (m *Message) readStamp() {
	const bin8 = 0xa0
	raw, ok, err := wire.LookupAnnotation(m.scan.MessageAnnotations.Of(m.Payload), stampKey)
	if ok && err == nil && len(raw) == 2+len(stamp{}) && raw[0] == bin8 {
		copy(m.has().stamp[:], raw[2:])
	}
}

func (s *stamp) encoded() []byte { return append([]byte{0xa0, byte(len(s))}, s[:]...) }

// way is a message on its way to a name, which it may come to by several links.
type way struct {
	stamp stamp
	name  uint64 // its hash
}

// repeats remembers what neighbours have brought, the latest of it.
type repeats struct {
	mu       sync.Mutex // guards what follows; a leaf
	new, old map[way]struct{}
}

// maxRepeats is how many are remembered at least.
const maxRepeats = 1 << 16

// take tells whether a message is new to a name.
func (r *repeats) take(w way) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.new[w]; ok {
		return false
	}
	if _, ok := r.old[w]; ok {
		return false
	}
	if r.new == nil || len(r.new) >= maxRepeats {
		r.old, r.new = r.new, map[way]struct{}{}
	}
	r.new[w] = struct{}{}
	return true
}

// forget has a message that was not taken be new when it comes again.
func (r *repeats) forget(w way) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.new, w)
	delete(r.old, w)
}

// isRepeat tells whether a message has come by another way already, to the same name: of a neighbour's, or by an amqp: hop of the node where it was
// stamped, which is a neighbour of some node then. One that is sent again may be one that was lost.
func (c *conn) isRepeat(l *inlink, d *delivery) bool {
	if !l.isNeighbour() && (c.peerID == "" || c.peerID == c.n.id || l.replies || l.door || !d.marked) {
		return false
	}
	if d.readStamp(); !l.isNeighbour() && !d.had().stamp.isOf(c.peerID) {
		d.has().stamp = stamp{}
	}
	if d.had().stamp == (stamp{}) {
		return false
	}
	w := way{stamp: d.had().stamp}
	if l.hasTarget {
		w.name = maphash.String(planSeed, l.target)
	} else if to, ok := d.To(); ok {
		w.name = maphash.Bytes(planSeed, to)
	}
	if d.tries == 0 && !c.n.repeats.take(w) {
		c.n.count.repeats.Add(1)
		return true
	}
	d.has().way = w
	return false
}

// isOf tells whether a node made the stamp.
func (s *stamp) isOf(node string) bool {
	var id [8]byte
	_, err := hex.Decode(id[:], []byte(node))
	return err == nil && id == [8]byte(s[:8])
}
