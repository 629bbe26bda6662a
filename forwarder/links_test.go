package forwarder_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// rawClient is a client that writes frames as they are, many at once, and reads what comes.
type rawClient struct {
	t   testing.TB
	nc  net.Conn
	buf []byte // to be written
	in  []byte // read and not looked at
}

// dialRaw connects, and opens a session on channel 0.
func dialRaw(t testing.TB, r *router) *rawClient {
	t.Helper()
	nc, err := net.Dial("tcp", r.hop)
	if err != nil {
		t.Fatal(err)
	}
	nc.SetDeadline(time.Now().Add(5 * time.Minute))
	t.Cleanup(func() { nc.Close() })
	c := &rawClient{t: t, nc: nc, buf: []byte("AMQP\x00\x01\x00\x00")}
	open := wire.Open{ContainerID: "raw", MaxFrameSize: 1 << 16, ChannelMax: 10}
	c.frame(open.Append)
	begin := wire.Begin{IncomingWindow: 1 << 20, OutgoingWindow: 1 << 20, HandleMax: 1<<32 - 1}
	c.frame(begin.Append)
	c.flush()
	if _, err := io.ReadFull(nc, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	c.want(wire.CodeOpen)
	c.want(wire.CodeBegin)
	return c
}

// frame adds a frame to what flush writes, all in one write.
func (c *rawClient) frame(appendTo func([]byte) []byte) {
	buf, start := wire.BeginFrame(c.buf, wire.FrameAMQP, 0)
	c.buf = wire.EndFrame(appendTo(buf), start)
}

func (c *rawClient) flush() {
	c.t.Helper()
	if _, err := c.nc.Write(c.buf); err != nil {
		c.t.Fatal(err)
	}
	c.buf = c.buf[:0]
}

// attach adds an attach of a receiver.
func (c *rawClient) attach(handle uint32, name, address string) {
	a := wire.Attach{Name: name, Handle: handle, Role: engine.RoleReceiver, Source: &wire.Source{Address: address, HasAddress: true}, Target: &wire.Target{}}
	c.frame(a.Append)
}

// next gives the performative of the next frame, and what is behind the frame's header.
func (c *rawClient) next() (code uint64, body []byte) {
	c.t.Helper()
	for len(c.in) < 8 || len(c.in) < int(binary.BigEndian.Uint32(c.in)) {
		more := make([]byte, 64<<10)
		n, err := c.nc.Read(more)
		if err != nil {
			c.t.Fatal(err)
		}
		c.in = append(c.in, more[:n]...)
	}
	size := int(binary.BigEndian.Uint32(c.in))
	body, c.in = c.in[8:size:size], c.in[size:]
	code, _, err := wire.PeekDescriptor(body)
	if err != nil {
		c.t.Fatal(err)
	}
	return code, body
}

func (c *rawClient) want(code uint64) []byte {
	c.t.Helper()
	got, body := c.next()
	if got != code {
		c.t.Fatalf("got performative %#x, want %#x", got, code)
	}
	return body
}

// skip reads n frames and does not look at them.
func (c *rawClient) skip(n int) {
	c.t.Helper()
	buf := make([]byte, 256<<10)
	have := copy(buf, c.in)
	c.in = nil
	for {
		at := 0
		for n > 0 && have-at >= 8 {
			size := int(binary.BigEndian.Uint32(buf[at:]))
			if have-at < size {
				break
			}
			at += size
			n--
		}
		have = copy(buf, buf[at:have])
		if n == 0 {
			c.in = append(c.in, buf[:have]...)
			return
		}
		k, err := c.nc.Read(buf[have:])
		if err != nil {
			c.t.Fatal(err)
		}
		have += k
	}
}

// attachMany attaches receivers with handles from 0, each to what address says, and waits for the answers.
func (c *rawClient) attachMany(n int, address func(i int) string) {
	c.t.Helper()
	for i := range n {
		c.attach(uint32(i), fmt.Sprintf("link-%d", i), address(i))
	}
	done := make(chan struct{})
	go func() { // the node stops reading a client that does not read
		defer close(done)
		c.nc.Write(c.buf)
	}()
	c.skip(n)
	<-done
	c.buf = c.buf[:0]
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

func own(i int) string  { return fmt.Sprintf("a/b/%d", i) }
func same(i int) string { return "news" }

// detach adds a detach.
func (c *rawClient) detach(handle uint32) {
	d := wire.Detach{Handle: handle, Closed: true}
	c.frame(d.Append)
}

// attachAnonymous attaches a sender that names no target, and waits for the answer.
func (c *rawClient) attachAnonymous(handle uint32) {
	c.t.Helper()
	a := wire.Attach{Name: fmt.Sprintf("sender-%d", handle), Handle: handle, Role: engine.RoleSender, Source: &wire.Source{}, Target: &wire.Target{}, HasInitialDeliveryCount: true}
	c.frame(a.Append)
	c.flush()
	c.want(wire.CodeAttach)
	c.want(wire.CodeFlow)
}

// transfer adds a settled message.
func (c *rawClient) transfer(handle, id uint32, to string) {
	m := wire.Message{Properties: &wire.Properties{To: to, HasTo: true}, Data: [][]byte{[]byte(to)}}
	payload, err := m.Append(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	t := wire.Transfer{Handle: handle, DeliveryID: id, HasDeliveryID: true, Tag: []byte{byte(id)}, HasTag: true, Settled: true, HasSettled: true}
	c.frame(func(b []byte) []byte { return append(t.Append(b), payload...) })
}

// credit adds a flow that gives a link credit, before anything was sent on the session.
func (c *rawClient) credit(handle, n uint32) {
	f := wire.Flow{HasNextIncomingID: true, IncomingWindow: 1 << 20, OutgoingWindow: 1 << 20, Handle: handle, HasHandle: true, LinkCredit: n, HasLinkCredit: true}
	c.frame(f.Append)
}

// frames describes the next n frames, but for flows: the name of an attach and whether it is taken, the handle of a detach and its error,
// the handle of a transfer.
func (c *rawClient) frames(n int) (list []string) {
	c.t.Helper()
	for len(list) < n {
		code, body := c.next()
		var text string
		switch code {
		case wire.CodeFlow:
			continue
		case wire.CodeAttach:
			var a wire.Attach
			c.parse(a.Parse(body))
			text = "attach " + a.Name
			if a.Source == nil {
				text += " refused"
			}
		case wire.CodeDetach:
			var d wire.Detach
			c.parse(d.Parse(body))
			text = fmt.Sprintf("detach %d", d.Handle)
			if d.Error != nil {
				text += " " + string(d.Error.Condition)
			}
		case wire.CodeTransfer:
			var t wire.Transfer
			c.parse(t.Parse(body))
			text = fmt.Sprintf("transfer %d", t.Handle)
		default:
			text = fmt.Sprintf("%#x", code)
		}
		list = append(list, text)
	}
	return list
}

func (c *rawClient) parse(_ []byte, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// TestWhatOneWriteHolds has a client say in one write what depends on its own words before: answers come in the order of what was asked, and
// a message finds the receiver that attached just before it.
func TestWhatOneWriteHolds(t *testing.T) {
	for _, x := range []struct {
		name string
		say  func(c *rawClient)
		want []string
		rows int
	}{
		{"a receiver, its credit and a message to it", func(c *rawClient) {
			c.attach(1, "r1", "X")
			c.credit(1, 10)
			c.transfer(0, 0, "X")
		}, []string{"attach r1", "transfer 1"}, 1},
		{"a message before its receiver finds nobody", func(c *rawClient) {
			c.transfer(0, 0, "X")
			c.attach(1, "r1", "X")
			c.credit(1, 10)
			c.transfer(0, 1, "X")
		}, []string{"attach r1", "transfer 1"}, 1},
		{"a receiver that detaches at once leaves no row", func(c *rawClient) {
			c.attach(1, "r1", "X")
			c.detach(1)
			c.attach(1, "r1", "Y")
		}, []string{"attach r1", "detach 1", "attach r1"}, 1},
		{"one is refused among others", func(c *rawClient) {
			c.attach(1, "r1", "X")
			c.attach(2, "r2", "$secret")
			c.attach(3, "r3", "Y")
			c.credit(3, 1)
			c.transfer(0, 0, "Y")
		}, []string{"attach r1", "attach r2 refused", "detach 2 amqp:not-allowed", "attach r3", "transfer 3"}, 2},
		{"the second of a name takes the place of the first", func(c *rawClient) {
			c.attach(1, "r1", "X")
			c.attach(2, "r1", "X")
			c.credit(2, 5)
			c.transfer(0, 0, "X")
		}, []string{"attach r1", "detach 1 amqp:link:stolen", "attach r1", "transfer 2"}, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := start(t, forwarder.Options{})
			c := dialRaw(t, r)
			c.attachAnonymous(0)
			x.say(c)
			c.flush()
			if got := c.frames(len(x.want)); !slices.Equal(got, x.want) {
				t.Errorf("got %q\nwant %q", got, x.want)
			}
			c.sync(9)
			if n := r.table.Snapshot().Len(); n != x.rows {
				t.Errorf("the table has %d rows, want %d", n, x.rows)
			}
		})
	}
}

// sync waits until the node has done all that was said: the answer to one more link.
func (c *rawClient) sync(handle uint32) {
	c.t.Helper()
	c.attach(handle, "sync", "sync")
	c.detach(handle)
	c.flush()
	if got := c.frames(2); got[0] != "attach sync" {
		c.t.Errorf("got %q", got)
	}
}

// TestManyLinksComeAndGo attaches many links, detaches a third in the same write, and breaks the connection: the answers come in order and
// the rows are those of the links that are there.
func TestManyLinksComeAndGo(t *testing.T) {
	const n = 3000
	r := start(t, forwarder.Options{})
	empty := make(chan struct{}, 1)
	r.table.OnChange(func(c routetable.Change) {
		if len(c.Removed) > 0 && r.table.Snapshot().Len() == 0 {
			select {
			case empty <- struct{}{}:
			default:
			}
		}
	})
	c := dialRaw(t, r)
	var want []string
	for i := range uint32(n) {
		c.attach(i, fmt.Sprint("link-", i), own(int(i%(n/2))))
		want = append(want, fmt.Sprint("attach link-", i))
		if i%3 == 2 {
			c.detach(i - 1)
			want = append(want, "detach")
		}
	}
	c.flush()
	got := c.frames(len(want))
	for i := range want {
		if strings.HasPrefix(want[i], "attach") && got[i] != want[i] || got[i][:6] != want[i][:6] {
			t.Fatalf("frame %d: got %q, want %q", i, got[i], want[i])
		}
	}
	if rows := r.table.Snapshot().Len(); rows != n-n/3 {
		t.Errorf("%d rows, want %d", rows, n-n/3)
	}
	c.nc.Close()
	select {
	case <-empty:
	case <-within(t).Done():
		t.Fatalf("%d rows are left of a connection that is gone", r.table.Snapshot().Len())
	}
}

// TestLinksComeAndGoUnderLoad has clients attach and detach while others send to the same addresses.
func TestLinksComeAndGoUnderLoad(t *testing.T) {
	r := start(t, forwarder.Options{})
	var running sync.WaitGroup
	for k := range 3 {
		c := dialRaw(t, r)
		c.attachAnonymous(0)
		running.Go(func() {
			for round := range uint32(50) {
				for i := range uint32(20) {
					c.attach(i+1, fmt.Sprintf("r-%d-%d", k, i), own(int(i)))
				}
				c.transfer(0, round, own(int(round%20)))
				for i := range uint32(20) {
					c.detach(i + 1)
				}
				if _, err := c.nc.Write(c.buf); err != nil {
					t.Error(err)
					return
				}
				c.buf = c.buf[:0]
			}
		})
		running.Go(func() { // answers, and new credit
			if n := len(c.frames(50 * 40)); n != 50*40 {
				t.Error(n)
			}
		})
	}
	running.Wait()
	if n := r.table.Snapshot().Len(); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// mostPerLink is what an idle receiver may cost in memory, its row and all: measured 560 bytes on amd64.
const mostPerLink = 800

func TestAnIdleLinkIsCheap(t *testing.T) {
	const n = 20_000
	r := start(t, forwarder.Options{})
	c := dialRaw(t, r)
	before := heapBytes()
	c.attachMany(n, own)
	c.buf = nil
	if per := float64(heapBytes()-before) / n; per > mostPerLink {
		t.Errorf("an idle link takes %.0f bytes, more than %d", per, mostPerLink)
	} else {
		t.Logf("%.0f bytes a link", per)
	}
}

func BenchmarkAttach(b *testing.B) {
	for _, x := range []struct {
		name    string
		address func(int) string
	}{{"own-address", own}, {"one-address", same}} {
		b.Run(x.name, func(b *testing.B) {
			r := start(b, forwarder.Options{})
			const most = 25_000
			var clients []*rawClient
			for left := b.N; left > 0; left -= most {
				clients = append(clients, dialRaw(b, r))
			}
			before := heapBytes()
			b.ReportAllocs()
			b.ResetTimer()
			left := b.N
			for k, c := range clients {
				n := min(left, most)
				c.attachMany(n, func(i int) string { return x.address(i + k*most) })
				left -= n
			}
			b.StopTimer()
			for _, c := range clients {
				c.buf = nil
			}
			b.ReportMetric(float64(heapBytes()-before)/float64(b.N), "heap-B/link")
			for _, c := range clients {
				c.nc.Close()
			}
		})
	}
}
