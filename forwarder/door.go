package forwarder

import (
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// managementAddress is the door's name: a link on it is always the door, whatever messages say.
const managementAddress = "$management"

// door is the outlet of requests to the door (admin:). One goroutine answers them, in order, so that a big one never holds up the
// data path.
type door struct {
	n     *Node
	queue chan *Copy
}

// maxRequests bounds what waits at the door.
const maxRequests = 4096

func (d *door) Present() bool { return true }
func (d *door) Busy() int     { return len(d.queue) }

// Deliver queues requests.
func (d *door) Deliver(batch []*Copy) (int, error) {
	for i, c := range batch {
		c.Message.keep()
		select {
		case d.queue <- c:
		default:
			return i, ErrBusy
		}
	}
	return len(batch), nil
}

// serve answers requests until the node stops.
func (d *door) serve() {
	for {
		select {
		case c := <-d.queue:
			reply, replyTo := d.n.core.Handle(c.in.conn.who(), c.Message.Payload)
			c.Settle(Outcome{Kind: wire.Accepted})
			if reply != nil && replyTo != "" {
				d.n.send(replyTo, reply)
			}
		case <-d.n.ctx.Done():
			return
		}
	}
}

// who is the caller at the other end, for commands.
func (c *conn) who() admin.Caller {
	c.lock()
	defer c.release()
	return c.caller
}

// doorPlanOf is the plan of every message on a link to the door.
func doorPlanOf(d *door) *plan {
	return &plan{address: managementAddress, found: true, roots: []int32{0}, groups: []planGroup{{targets: []planTarget{{
		outlet: d, hop: &routetable.Hop{Scheme: "admin", Text: "admin:", Key: "admin:"},
	}}}}}
}

// send sends a message of the node's own to an address.
func (n *Node) send(to string, payload []byte) {
	l := &inlink{c: n.self, target: to, hasTarget: true}
	d := newDelivery(n.self, nil, nil)
	d.Payload, d.owned = payload, true
	if wire.ScanHead(payload, &d.scan) != nil {
		d.recycle()
		return
	}
	var b batch
	n.self.lock()
	n.self.at = 0
	p := n.route(l, &d.Message, &n.self.groups)
	if !p.found || p.problem != "" || p.discarded || n.dispatch(d, p, &b) == 0 {
		d.recycle()
		n.count.unrouted.Add(1)
	}
	n.self.release()
	b.deliver(n)
}
