package forwarder_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// plain is a client that does next to nothing beside reading and writing frames, so that a profile of the process is one of the node.
type plain struct {
	nc  net.Conn
	in  []byte // what was read; from at on not handled
	at  int
	out []byte
}

const plainWindow = 1<<31 - 1

func dialPlain(b testing.TB, r *router, name string) *plain {
	nc, err := net.Dial("tcp", r.hop)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { nc.Close() })
	p := &plain{nc: nc, out: []byte("AMQP\x00\x01\x00\x00")}
	p.put((&wire.Open{ContainerID: name, MaxFrameSize: 64 << 10, ChannelMax: 1}).Append)
	p.put((&wire.Begin{IncomingWindow: plainWindow, OutgoingWindow: plainWindow, HandleMax: 1 << 20}).Append)
	return p
}

func (p *plain) put(performative func([]byte) []byte) {
	buf, start := wire.BeginFrame(p.out, wire.FrameAMQP, 0)
	p.out = wire.EndFrame(performative(buf), start)
}

func (p *plain) flush() {
	if len(p.out) > 0 {
		p.nc.Write(p.out)
		p.out = p.out[:0]
	}
}

// next gives the body of a frame that came; nil where the connection is over.
func (p *plain) next() (body []byte) {
	for {
		rest := p.in[p.at:]
		if len(rest) >= 8 {
			n := int(binary.BigEndian.Uint32(rest))
			if rest[0] == 'A' {
				n = 8
			}
			if len(rest) >= n {
				p.at += n
				return rest[8:n]
			}
		}
		p.flush()
		p.in = append(p.in[:0], rest...)
		n, err := p.nc.Read(p.in[len(p.in) : len(p.in)+64<<10])
		if err != nil {
			return nil
		}
		p.in, p.at = p.in[:len(p.in)+n], 0
	}
}

// hasMore tells whether a whole frame is there.
func (p *plain) hasMore() bool {
	rest := p.in[p.at:]
	return len(rest) >= 8 && int(binary.BigEndian.Uint32(rest)) <= len(rest)
}

// receive attaches to addresses, and accepts what comes; up is called when all links have credit.
func (p *plain) receive(addresses []string, up func()) {
	p.in = make([]byte, 0, 256<<10)
	for i, a := range addresses {
		p.put((&wire.Attach{Name: a, Handle: uint32(i), Role: wire.RoleReceiver, Source: &wire.Source{Address: a, HasAddress: true}, Target: &wire.Target{}}).Append)
		p.put((&wire.Flow{IncomingWindow: plainWindow, HasNextIncomingID: true, OutgoingWindow: plainWindow, Handle: uint32(i), HasHandle: true,
			HasDeliveryCount: true, LinkCredit: 1 << 30, HasLinkCredit: true}).Append)
	}
	attached, some, first, last := 0, false, uint32(0), uint32(0)
	for body := p.next(); body != nil; body = p.next() {
		switch code, _, _ := wire.PeekDescriptor(body); code {
		case wire.CodeAttach:
			if attached++; attached == len(addresses) {
				up()
			}
		case wire.CodeTransfer:
			var t wire.Transfer
			t.Parse(body)
			if !some {
				some, first = true, t.DeliveryID
			}
			last = t.DeliveryID
		}
		if some && !p.hasMore() {
			p.put((&wire.Disposition{Role: wire.RoleReceiver, First: first, Last: last, Settled: true, State: []byte(wire.EncodedAccepted)}).Append)
			some = false
		}
	}
}

// send sends n messages on an anonymous link, each of the payloads in turn, and returns when all are settled.
func (p *plain) send(n int, payloads [][]byte, turn int) {
	p.in = make([]byte, 0, 256<<10)
	p.put((&wire.Attach{Name: "s", Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{}, HasInitialDeliveryCount: true}).Append)
	sent, settled, most, window := uint32(0), 0, uint32(0), uint32(0)
	for body := p.next(); body != nil; body = p.next() {
		switch code, _, _ := wire.PeekDescriptor(body); code {
		case wire.CodeDisposition:
			var d wire.Disposition
			d.Parse(body)
			if settled += int(d.Last - d.First + 1); settled == n {
				return
			}
		case wire.CodeFlow:
			var f wire.Flow
			f.Parse(body)
			window = f.NextIncomingID + f.IncomingWindow
			if f.HasHandle {
				most = f.DeliveryCount + f.LinkCredit
			}
		}
		for ; !p.hasMore() && sent < uint32(n) && int32(most-sent) > 0 && int32(window-sent) > 0; sent++ {
			tag := binary.BigEndian.AppendUint32(nil, sent)
			t := wire.Transfer{DeliveryID: sent, HasDeliveryID: true, Tag: tag, HasTag: true, HasMessageFormat: true}
			p.out = wire.AppendTransferFrame(p.out, 0, &t, payloads[turn])
			turn = (turn + (len(payloads)*5/13 | 1)) % len(payloads)
		}
	}
}

// BenchmarkManyAddresses sends by anonymous links to addresses with a receiver each, unsettled: what it costs is mostly what has to come
// into the processor's cache for each message.
func BenchmarkManyAddresses(b *testing.B) {
	b.Run("2000", func(b *testing.B) { benchmarkMany(b, 2000) })
	b.Run("10000", func(b *testing.B) { benchmarkMany(b, 10_000) })
}

func benchmarkMany(b *testing.B, many int) {
	const ends = 16
	r := start(b, forwarder.Options{})
	names, payloads := make([][]string, ends), make([][]byte, many)
	for i := range many {
		a := fmt.Sprintf("bench/%d", i)
		names[i%ends] = append(names[i%ends], a)
		m := wire.Message{Properties: &wire.Properties{To: a, HasTo: true}, Data: [][]byte{make([]byte, 100)}}
		payloads[i], _ = m.Append(nil)
	}
	var attached, running, over sync.WaitGroup
	b.Cleanup(running.Wait) // when all are closed
	for i := range ends {
		attached.Add(1)
		p := dialPlain(b, r, fmt.Sprint("receiver ", i))
		running.Go(func() { p.receive(names[i], attached.Done) })
	}
	attached.Wait()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range ends {
		p := dialPlain(b, r, fmt.Sprint("sender ", i))
		over.Go(func() { p.send(b.N/ends+1, payloads, i*many/ends) })
	}
	over.Wait()
	b.StopTimer()
}
