package forwarder_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
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
