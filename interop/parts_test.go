package interop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestPartsThatComeTogether writes frames of messages in several parts with one write: the router may use what lies side by side as it lies. The
// messages arrive as they were sent, whatever stands between their parts.
func TestPartsThatComeTogether(t *testing.T) {
	router := startRouter(t, "router", "")
	receivers := map[string]*rawReceiver{}
	for _, name := range []string{"a", "b"} {
		receivers[name] = newRawReceiver(t, router.addr, name, 1000)
	}
	c := dialRaw(t, router.addr)
	if err := c.session(0); err != nil {
		t.Fatal(err)
	}
	senders := map[string]*rawSender{"a": attachRaw(t, c, 0, 0, []byte("a")), "b": attachRaw(t, c, 0, 1, []byte("b"))}
	rnd := rand.New(rand.NewPCG(1, 2))
	message := func(n int) []byte {
		body := make([]byte, n)
		for i := range body {
			body[i] = byte(rnd.Uint32())
		}
		return join([]byte{0, 0x53, dataSection, 0xb0}, binary.BigEndian.AppendUint32(nil, uint32(n)), body)
	}
	next := uint32(0)
	// frame is that of a part of a message on a link.
	frame := func(to string, part []byte, first, more bool) []byte {
		handle := senders[to].handle
		if !first {
			return bytesOf(0, 0, composite(transfer, uint32v(handle), null, null, null, null, boolean(more)), part)
		}
		id := next
		next++
		return bytesOf(0, 0, composite(transfer, uint32v(handle), uint32v(id), binaryv([]byte{byte(id)}), uint32v(0), boolean(true), boolean(more)), part)
	}
	whole, cutAt := func(to string, m []byte) []byte { return frame(to, m, true, false) }, 5000
	for _, x := range []struct {
		name  string
		write func(a, b []byte) [][]byte // each is one write
	}{
		{"side by side", func(a, b []byte) [][]byte {
			return [][]byte{join(frame("a", a[:cutAt], true, true), frame("a", a[cutAt:], false, false), whole("b", b))}
		}},
		{"a message between them", func(a, b []byte) [][]byte {
			return [][]byte{join(frame("a", a[:cutAt], true, true), whole("b", b), frame("a", a[cutAt:], false, false))}
		}},
		{"three parts", func(a, b []byte) [][]byte {
			return [][]byte{join(frame("a", a[:cutAt], true, true), frame("a", a[cutAt:cutAt+7], false, true), frame("a", a[cutAt+7:], false, false), whole("b", b))}
		}},
		{"two messages at once", func(a, b []byte) [][]byte {
			return [][]byte{join(frame("a", a[:cutAt], true, true), frame("b", b[:3], true, true), frame("b", b[3:], false, false), frame("a", a[cutAt:], false, false))}
		}},
		{"two writes", func(a, b []byte) [][]byte {
			return [][]byte{frame("a", a[:cutAt], true, true), join(frame("a", a[cutAt:], false, false), whole("b", b))}
		}},
		{"a frame between them", func(a, b []byte) [][]byte {
			return [][]byte{join(frame("a", a[:cutAt], true, true), bytesOf(0, 0), frame("a", a[cutAt:], false, false), whole("b", b))}
		}},
	} {
		for _, size := range []int{5100, 9000, 40_000} {
			t.Run(fmt.Sprint(x.name, " ", size), func(t *testing.T) {
				a, b := message(size), message(20+rnd.IntN(10))
				for _, w := range x.write(a, b) {
					if err := c.bytes(w); err != nil {
						t.Fatal(err)
					}
				}
				for name, want := range map[string][]byte{"a": a, "b": b} {
					d, err := receivers[name].receive(patience)
					if err != nil {
						t.Fatalf("receiver %s: %v", name, err)
					}
					if !bytes.Equal(d.payload, want) {
						t.Errorf("receiver %s got another message: %d bytes, want %d", name, len(d.payload), len(want))
					}
				}
			})
		}
	}
}
