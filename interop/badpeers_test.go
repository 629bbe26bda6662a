package interop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
)

// badPeer is one way to break the protocol.
type badPeer struct {
	name string
	do   func(t *testing.T, c *rawConn)
	want []string // any of these verdicts; "closed" is the socket's end without a word
}

// opened begins a session on a greeted connection.
func opened(t *testing.T, c *rawConn) {
	t.Helper()
	if err := c.greet("bad-peer"); err != nil {
		t.Fatal(err)
	}
	if err := c.session(0); err != nil {
		t.Fatal(err)
	}
}

// linkTo attaches a sending link with handle 0 on channel 0.
func linkTo(t *testing.T, c *rawConn, to string) *rawSender {
	t.Helper()
	opened(t, c)
	return attachRaw(t, c, 0, 0, []byte(to))
}

func afterGreeting(what ...[]byte) func(*testing.T, *rawConn) {
	return func(t *testing.T, c *rawConn) {
		opened(t, c)
		for _, b := range what {
			c.bytes(b)
		}
	}
}

func sending(to string, what ...[]byte) func(*testing.T, *rawConn) {
	return func(t *testing.T, c *rawConn) {
		linkTo(t, c, to)
		for _, b := range what {
			c.bytes(b)
		}
	}
}

// saying sends bytes as the first of the connection, and no more.
func saying(what ...[]byte) func(*testing.T, *rawConn) {
	return func(t *testing.T, c *rawConn) {
		for _, b := range what {
			c.bytes(b)
		}
	}
}

// frameHeader is the start of a frame as a liar writes it.
func frameHeader(size uint32, doff, kind byte, channel uint16) []byte {
	b := binary.BigEndian.AppendUint32(nil, size)
	return append(b, doff, kind, byte(channel>>8), byte(channel))
}

// oneTransfer is a whole message on handle 0 of channel 0.
func oneTransfer(id uint32, message ...[]byte) []byte {
	return bytesOf(0, 0, append([][]byte{composite(transfer, uint32v(0), uint32v(id), binaryv([]byte{byte(id)}), uint32v(0))}, message...)...)
}

const framing = "close amqp:connection:framing-error"

var badPeers = []badPeer{
	{"a web browser", saying([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")), []string{"closed"}},
	{"zeros", saying(make([]byte, 4096)), []string{"closed"}},
	{"another version", saying([]byte("AMQP\x00\x02\x00\x00")), []string{"closed"}},
	{"AMQP 0-9-1", saying([]byte("AMQP\x00\x00\x09\x01")), []string{"closed"}},
	{"an unknown protocol id", saying([]byte("AMQP\x07\x01\x00\x00")), []string{"closed"}},
	{"an AMQP frame in place of SASL", saying(saslHeader, bytesOf(0, 0, composite(open, str("x")))), []string{"closed", framing}},
	{"an unknown SASL mechanism", saying(saslHeader, bytesOf(1, 0, composite(saslInit, sym("MAGIC")))), []string{"closed", "sasl outcome 1", "sasl outcome 3"}},
	{"a begin before open", saying(amqpHeader, bytesOf(0, 0, composite(begin, null, uint32v(0), uint32v(1), uint32v(1)))), []string{"close *"}},
	{"a truncated frame, then the end", func(t *testing.T, c *rawConn) {
		opened(t, c)
		c.bytes(bytesOf(0, 0, composite(flow, null, uint32v(1), uint32v(0), uint32v(1)))[:11])
		c.Conn.(*net.TCPConn).CloseWrite()
	}, []string{"closed", framing}},
	{"a size below that of a header", afterGreeting(frameHeader(7, 2, 0, 0)), []string{framing}},
	{"a size of nothing", afterGreeting(frameHeader(0, 2, 0, 0)), []string{framing}},
	{"a size of 4 GiB", afterGreeting(frameHeader(1<<32-1, 2, 0, 0), make([]byte, 1000)), []string{framing}},
	{"a size beyond the maximum", afterGreeting(frameHeader(64<<20, 2, 0, 0), make([]byte, 1000)), []string{framing}},
	{"a data offset of 1", afterGreeting(frameHeader(12, 1, 0, 0), []byte{0, 0x53, 0x12, 0x45}), []string{framing}},
	{"a data offset beyond the frame", afterGreeting(frameHeader(12, 200, 0, 0), []byte{0, 0x53, 0x12, 0x45}), []string{framing}},
	{"an unknown frame type", afterGreeting(bytesOf(9, 0, composite(flow))), []string{framing, "close amqp:not-implemented"}},
	{"an unknown performative", afterGreeting(bytesOf(0, 0, composite(0x99))), []string{"close *"}},
	{"a performative that is no list", afterGreeting(bytesOf(0, 0, described(attach, str("x")))), []string{"close amqp:decode-error", framing}},
	{"a list that is longer than its frame", afterGreeting(bytesOf(0, 0, []byte{0, 0x53, 0x12, 0xd0, 0, 1, 0, 0, 0, 0, 0, 9})), []string{"close amqp:decode-error", framing}},
	{"a performative of garbage", afterGreeting(bytesOf(0, 0, bytes.Repeat([]byte{0xee}, 64))), []string{"close amqp:decode-error", framing}},
	{"an attach without its name", afterGreeting(bytesOf(0, 0, composite(attach))), []string{"close *", "end *"}},
	{"a begin on a used channel", afterGreeting(bytesOf(0, 0, composite(begin, null, uint32v(0), uint32v(1), uint32v(1)))), []string{"close *", "end *"}},
	{"a begin on a channel beyond the maximum", afterGreeting(bytesOf(0, 65535, composite(begin, null, uint32v(0), uint32v(1), uint32v(1)))), []string{"close *"}},
	{"a frame on a channel that has no session", afterGreeting(bytesOf(0, 5, composite(flow, null, uint32v(1), uint32v(0), uint32v(1)))), []string{"close *", "end *"}},
	{"a second open", afterGreeting(bytesOf(0, 0, composite(open, str("x")))), []string{"close *"}},
	{"an attach on a handle in use", sending("HAL9000", bytesOf(0, 0, composite(attach, str("other"), uint32v(0), boolean(false), null, null, composite(source), composite(target, str("HAL9000")), null, null, uint32v(0)))),
		[]string{"end amqp:session:handle-in-use"}},
	{"an attach on a handle beyond the maximum", afterGreeting(bytesOf(0, 0, composite(attach, str("x"), uint32v(1<<32-1), boolean(false), null, null, composite(source), composite(target, str("HAL9000")), null, null, uint32v(0)))),
		[]string{"close *", "end *"}},
	{"a transfer on a handle that is not attached", afterGreeting(oneTransfer(0, described(dataSection, binaryv(nil)))), []string{"end amqp:session:unattached-handle"}},
	{"a flow on a handle that is not attached", afterGreeting(bytesOf(0, 0, composite(flow, null, uint32v(1), uint32v(0), uint32v(1), uint32v(7)))), []string{"end amqp:session:unattached-handle"}},
	{"a detach of a handle that is not attached", afterGreeting(bytesOf(0, 0, composite(detach, uint32v(9), boolean(true)))), []string{"end amqp:session:unattached-handle", "works"}},
	{"transfers beyond the credit", sending("nobody-knows-this-name", slices.Concat(manyTransfers(50)...)), []string{"detach amqp:link:transfer-limit-exceeded"}},
	{"a first transfer without a delivery id", sending("HAL9000", bytesOf(0, 0, composite(transfer, uint32v(0)), described(dataSection, binaryv(nil)))), []string{"end *", "close *", "detach *"}},
	{"a message of garbage", sending("HAL9000", oneTransfer(0, bytes.Repeat([]byte{0xee}, 100))), []string{"detach *", "rejected *", "accepted"}},
	{"a message that is cut short", sending("HAL9000", oneTransfer(0, []byte{0, 0x53, 0x73, 0xd0, 0, 0, 1})), []string{"detach *", "rejected *", "accepted"}},
	{"a message of no bytes", sending("HAL9000", oneTransfer(0)), []string{"detach *", "rejected *", "accepted"}},
	{"every disposition there can be", sending("HAL9000",
		bytesOf(0, 0, composite(disposition, boolean(true), uint32v(0), uint32v(1<<32-1), boolean(true), composite(accepted))),
		bytesOf(0, 0, composite(disposition, boolean(false), uint32v(0), uint32v(1<<32-1), boolean(true), composite(released))),
		bytesOf(0, 0, composite(disposition, boolean(true), uint32v(5), uint32v(4), boolean(true), composite(released)))), []string{"works", "end *", "close *"}},
	{"800 000 described types in the open", saying(amqpHeader, bytesOf(0, 0, []byte{0, 0x53, 0x10, 0xd0}, size32(800_000+4), []byte{0, 0, 0, 1}, make([]byte, 800_000))), []string{"close *", "closed"}},
	{"60 000 described types in an attach", afterGreeting(bytesOf(0, 0, []byte{0, 0x53, 0x12, 0xd0}, size32(60_000+4), []byte{0, 0, 0, 1}, make([]byte, 60_000))), []string{"close amqp:decode-error", framing}},
	{"800 000 described types as a body", nested([]byte{0, 0x53, 0x77}), []string{"accepted", "rejected *", "detach *"}},
	{"800 000 described types as message annotations", nested([]byte{0, 0x53, 0x72}), []string{"rejected *", "detach *", "close *", "accepted"}},
	{"800 000 lists in lists as a body", func(t *testing.T, c *rawConn) {
		s := linkTo(t, c, "HAL9000")
		message := []byte{0, 0x53, 0x77}
		for left := 800_000; left > 0; left -= 9 {
			message = append(append(append(message, 0xd0), size32(left+4)...), 0, 0, 0, 1)
		}
		s.send(append(message, 0x40), false)
	}, []string{"accepted", "rejected *", "detach *"}},
	{"an array of 4 billion nulls in an open", saying(amqpHeader, bytesOf(0, 0, []byte{0, 0x53, 0x10, 0xd0, 0, 0, 0, 32, 0, 0, 0, 6, 0xa1, 1, 'x', 0x40, 0x40, 0x40, 0x40, 0xf0, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})),
		[]string{"close *", "closed"}},
	{"a list of 4 billion elements in an attach", afterGreeting(bytesOf(0, 0, []byte{0, 0x53, 0x12, 0xd0, 0, 0, 0, 6, 0xff, 0xff, 0xff, 0xff, 0x43, 0x43})), []string{"close amqp:decode-error", framing}},
	{"an array of 4 billion nulls as a body", sending("HAL9000", oneTransfer(0, []byte{0, 0x53, 0x77, 0xf0, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0x40})), []string{"accepted", "rejected *", "detach *"}},
	{"an array of 4 billion nulls as capabilities", afterGreeting(bytesOf(0, 0, composite(attach, str("x"), uint32v(0), boolean(true), null, null,
		composite(source, str("X"), null, null, null, null, null, null, null, null, null, []byte{0xf0, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0x40}), composite(target)))), []string{"close *", "detach *"}},
	{"a request to the door that is garbage", sending("$management", oneTransfer(0, bytes.Repeat([]byte{0xee}, 100))), []string{"detach *", "rejected *", "accepted"}},
	{"a request to the door of 800 000 described types", func(t *testing.T, c *rawConn) {
		s := linkTo(t, c, "$management")
		s.send(append([]byte{0, 0x53, 0x77}, make([]byte, 800_000)...), false)
	}, []string{"detach *", "rejected *", "accepted"}},
}

func size32(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

func manyTransfers(n int) (all [][]byte) {
	for i := range n {
		all = append(all, oneTransfer(uint32(i), composite(propertiesSection, null, null, str("nobody-knows-this-name")), described(dataSection, binaryv(nil))))
	}
	return all
}

func nested(start []byte) func(*testing.T, *rawConn) {
	return func(t *testing.T, c *rawConn) {
		s := linkTo(t, c, "HAL9000")
		s.send(append(slices.Clone(start), make([]byte, 800_000)...), false)
	}
}

// Peers that break the protocol are told so on the level that they broke, or cut off. Nobody else notices.
func TestBadPeers(t *testing.T) {
	hop := listenRaw(t, nil)
	r := startRouter(t, "sturdy", rows("HAL9000", "null", "COLOSSUS", hop.url("")))
	bystander, err := dialGo(t, r.url()).NewSender(within(t), "COLOSSUS", nil)
	if err != nil {
		t.Fatal(err)
	}
	for n, p := range badPeers {
		t.Run(p.name, func(t *testing.T) {
			c := dialBare(t, r.addr)
			p.do(t, c)
			got := verdict(c)
			t.Logf("verdict: %s", got)
			if !slices.ContainsFunc(p.want, func(w string) bool {
				return got == w || strings.HasSuffix(w, "*") && strings.HasPrefix(got, strings.TrimSuffix(w, "*"))
			}) {
				t.Errorf("got %q, want one of %q", got, p.want)
			}
			receipt, err := bystander.SendWithReceipt(within(t), amqp.NewMessage(bodyOf(n, 10)), nil)
			if err != nil {
				t.Fatalf("the well-behaved client on another connection: %v", err)
			}
			if state, err := receipt.Wait(within(t)); err != nil || stateInWords(state) != "accepted" {
				t.Fatalf("the well-behaved client on another connection: %v, %v", state, err)
			}
			hop.wait(t, n+1)
		})
	}
}

// verdict reads what the router says to what was done: an error of a link, session or connection, an outcome, or the end of
// the socket. Where it says nothing, it must still answer: "works" is an answered end of the session.
func verdict(c *rawConn) string {
	deadline := time.Now().Add(patience)
	asked := false
	for {
		wait := time.Until(deadline)
		if !asked {
			wait = min(wait, 2*time.Second)
		}
		f, err := readAny(c, wait)
		switch {
		case err == nil:
		case isClosed(err):
			return "closed"
		case isTimeout(err) && !asked && c.in.Buffered() == 0:
			asked = true
			c.write(0, composite(end))
			continue
		default:
			return err.Error()
		}
		switch f.code {
		case saslOutcome:
			return fmt.Sprintf("sasl outcome %d", f.number(0))
		case detach:
			return "detach " + condition(f.at(2))
		case end:
			if asked && f.at(0) == nil {
				return "works"
			}
			return "end " + condition(f.at(0))
		case closing:
			said := "close " + condition(f.at(0))
			if _, err := c.read(patience); !isClosed(err) {
				return said + ", and then the socket stays open"
			}
			return said
		case disposition:
			if f.flag(0) {
				return readOutcome(f.at(4), f.flag(3)).String()
			}
		}
	}
}

// readAny is read, past protocol headers.
func readAny(c *rawConn, wait time.Duration) (*frame, error) {
	c.SetReadDeadline(time.Now().Add(wait))
	for {
		b, err := c.in.Peek(4)
		if err != nil {
			return nil, err
		}
		if string(b) != "AMQP" {
			return c.read(wait)
		}
		if _, err := c.in.Discard(8); err != nil {
			return nil, err
		}
	}
}

func isTimeout(err error) bool {
	n, ok := err.(net.Error)
	return ok && n.Timeout()
}
