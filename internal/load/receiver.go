package load

import (
	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// receiver is one connection that receives. What it holds is guarded by the connection's lock.
type receiver struct {
	endpoint
	index  uint32
	credit uint32
	now    int64 // the time, as of this read; 0 not looked at yet
	hint   int   // where the stamp was in the last message

	copies, fresh, duplicates, strays uint64
	hist                              Histogram
}

// inlet is a link that messages come by.
type inlet struct {
	streams []stream // by sender
	at      int64    // of the message that comes in
	counts  bool     // it is one of ours, and new
}

func (r *runner) newReceiver(i int, c *amqp.Conn) *receiver {
	return &receiver{endpoint: endpoint{c: c, r: r}, index: uint32(i), credit: uint32(r.o.Credit)}
}

// plan attaches to the receiver's addresses: to the only one, or to its share.
func (x *receiver) plan(session *engine.Session, attach func(engine.AttachOptions, *engine.Session) (*engine.Link, error)) error {
	o := &x.r.o
	for k := range o.Addresses {
		if o.Addresses >= o.Receivers && o.Addresses > 1 && k%o.Receivers != int(x.index) {
			continue
		}
		_, err := attach(engine.AttachOptions{
			Name: x.r.linkName("r", x.index, k), Role: engine.RoleReceiver, SenderMode: engine.SenderMixed, Credit: x.credit,
			Source: &wire.Source{Address: x.r.address(k), HasAddress: true}, Target: &wire.Target{}, Context: x.newInlet(),
		}, session)
		if err != nil {
			return err
		}
	}
	return nil
}

func (x *receiver) newInlet() *inlet { return &inlet{streams: make([]stream, x.r.o.Senders)} }

// Attached takes the answer to a link of ours. Behind a relay there is no router: the sender's link comes as it is.
func (x *receiver) Attached(l *engine.Link) {
	if !l.Local() {
		l.Context = x.newInlet()
		l.Accept(l.Remote().Source, l.Remote().Target, x.credit, engine.AttachOptions{})
	}
	x.r.linkUp()
}

// Transfer counts a copy, and accepts it where its sender waits for that.
func (x *receiver) Transfer(d *engine.InDelivery, payload []byte, last bool) {
	l := d.Link()
	in := l.Context.(*inlet)
	if d.First {
		var s stamp
		in.counts = false
		switch {
		case !s.find(payload, &x.hint) || s.run != x.r.id || int(s.sender) >= len(in.streams):
			x.strays++
		case in.streams[s.sender].take(s.seq):
			in.at, in.counts = s.at, true
		default:
			x.duplicates++
		}
	}
	if !last {
		return
	}
	x.copies++
	if in.counts {
		x.fresh++
		x.latency(in.at)
	}
	if !d.Settled {
		d.SettleAs(wire.Accepted)
	}
	if l.Credit() <= x.credit/2 {
		l.Grant(x.credit)
	}
}

// latency counts a message that was meant to leave while the run is measured.
func (x *receiver) latency(at int64) {
	if x.now == 0 {
		x.now = x.r.clock()
	}
	if at >= x.r.from.Load() && at < x.r.until.Load() {
		x.hist.Add(x.now - at)
	}
}

// AfterInput has the clock looked at again with the next read.
func (x *receiver) AfterInput(bool) { x.now = 0 }
