package forwarder_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// taster counts what comes, and gives new credit when the old is used up, not before: nothing but what it grants and what the
// session's window says tells the node to go on.
type taster struct {
	c      *amqp.Conn
	link   *engine.Link
	from   string
	credit uint32
	up     chan struct{}
	over   chan struct{}

	// Under the connection's lock.
	want, got int
	bytes     int
	used      uint32
}

func (x *taster) Opened() {
	s, err := x.c.Engine.Begin()
	if err != nil {
		panic(err)
	}
	x.link, _ = s.Attach(engine.AttachOptions{Name: "taster", Role: engine.RoleReceiver, SenderMode: engine.SenderMixed, Credit: x.credit,
		Source: &wire.Source{Address: x.from, HasAddress: true}, Target: &wire.Target{}})
}
func (x *taster) Attached(*engine.Link)        { close(x.up) }
func (x *taster) Detached(*engine.Link, error) {}
func (x *taster) Transfer(d *engine.InDelivery, p []byte, last bool) {
	if x.bytes += len(p); !last {
		return
	}
	if !d.Settled {
		d.SettleAs(wire.Accepted)
	}
	if x.used++; x.used == x.credit {
		x.used = 0
		x.link.Grant(x.credit)
	}
	if x.got++; x.got == x.want {
		close(x.over)
	}
}
func (x *taster) Aborted(*engine.InDelivery)                          {}
func (x *taster) RemoteSettled(*engine.InDelivery, []byte)            {}
func (x *taster) Sent(*engine.OutDelivery)                            {}
func (x *taster) Settled(*engine.OutDelivery, wire.StateKind, []byte) {}
func (x *taster) Flow(*engine.Link)                                   {}
func (x *taster) InDropped(*engine.InDelivery)                        {}
func (x *taster) OutDropped(*engine.OutDelivery, bool)                {}
func (x *taster) Closed(error)                                        {}
func (x *taster) AfterInput(bool)                                     {}
func (x *taster) BeforeFlush()                                        {}
func (x *taster) TakeWork() amqp.Work                                 { return nil }

// cell is one case of the matrix.
type cell struct {
	size, credit  int
	frame, window uint32
	settled       bool
}

func (c cell) String() string {
	return fmt.Sprintf("%d B, credit %d, frames of %d, window %d, settled %v", c.size, c.credit, c.frame, c.window, c.settled)
}

// matrix gives the cells: all, or every nth.
func matrix(nth int) (cells []cell) {
	i := 0
	for _, size := range []int{100, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20} {
		for _, credit := range []int{1, 10, 100, 1000, 10_000} {
			for _, frame := range []uint32{512, 4096, 64 << 10} {
				for _, window := range []uint32{1, 2, 16, 4096} {
					for _, settled := range []bool{true, false} {
						if i++; i%nth == 0 {
							cells = append(cells, cell{size, credit, frame, window, settled})
						}
					}
				}
			}
		}
	}
	return cells
}

// No body size, credit, frame size and window make delivery stop.
func TestNothingStalls(t *testing.T) {
	r := start(t, forwarder.Options{})
	for i, c := range matrix(matrixStep) {
		// A little more than the credit, so that it is used up and given anew; as many bytes as fill every buffer on the way.
		n := min(c.credit+10, max(3, matrixBytes/c.size))
		address := fmt.Sprintf("m%d", i)
		x := &taster{from: address, credit: uint32(c.credit), up: make(chan struct{}), over: make(chan struct{}), want: n}
		_, err := amqp.Dial(within(t), amqp.DialOptions{Address: r.hop, Engine: engine.Config{ContainerID: "taster", MaxFrameSize: c.frame, Window: c.window}},
			func(c *amqp.Conn) amqp.Owner { x.c = c; return x })
		if err != nil {
			t.Fatal(err)
		}
		<-x.up
		sent := r.floodOf(address, c.size, c.settled, n)
		select {
		case <-x.over:
		case <-time.After(30 * time.Second):
			x.c.Do(func() { t.Errorf("%v: %d of %d came, %d bytes; %d were sent", c, x.got, n, x.bytes, sent.Load()) })
		}
		x.c.Close(nil)
		<-x.c.Done()
	}
	if d := r.counter("droppedBusy"); d > 0 {
		t.Errorf("%d were dropped", d)
	}
}
