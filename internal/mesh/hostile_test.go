package mesh

import (
	"fmt"
	"net"
	"testing"
	"time"
)

// A peer that asks and asks and never reads its answers is closed; nobody else notices.
func TestAPeerThatDoesNotRead(t *testing.T) {
	r := startRouter(t, Options{HardQueue: 64 << 10})
	alice := r.component("alice", "t")
	nc, err := net.Dial("tcp", r.tcp)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.(*net.TCPConn).SetReadBuffer(4 << 10) // what it does not read is soon enough
	request := AppendFrame(nil, &Frame{Type: Request, ID: number(1), Name: []byte("version"), Data: []byte{0x80}})
	request = append(appendTCPHeader(nil, len(request)), request...)
	var batch []byte
	for range 1000 {
		batch = append(batch, request...)
	}
	nc.SetWriteDeadline(time.Now().Add(time.Minute))
	for end := time.Now().Add(time.Minute); ; {
		if _, err := nc.Write(batch); err != nil {
			if time.Now().After(end) {
				t.Fatal("it is not closed")
			}
			break
		}
	}
	alice.barrier()
	r.forgets(1)
}

// A subscriber that does not read loses publishes, which are counted, and holds up neither who publishes nor other subscribers.
func TestASlowSubscriber(t *testing.T) {
	r := startRouter(t, Options{HardQueue: 64 << 10})
	alice := r.component("alice", "t")
	nc, err := net.Dial("tcp", r.tcp)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for i, f := range []*Frame{{Type: Identity, Name: []byte("slow")}, adminFrame("t", "subscribe"), adminFrame("__config__", "reactive", "status", "true")} {
		f.ID = number(uint64(i))
		b := AppendFrame(nil, f)
		if _, err := nc.Write(append(appendTCPHeader(nil, len(b)), b...)); err != nil {
			t.Fatal(err)
		}
	}
	r.until("the slow one is reactive", func() bool {
		tw := r.m.twinOf("slow")
		if tw == nil {
			return false
		}
		tw.mu.Lock()
		defer tw.mu.Unlock()
		return tw.reactive
	})
	bob := r.component("bob")
	payload := append([]byte{0x81, 0x59, 0x40, 0}, make([]byte, 0x4000)...)
	n := 0
	for ; r.m.count.dropped.Load() == 0; n++ {
		if n > 10_000 {
			t.Fatal("nothing is dropped")
		}
		bob.send(&Frame{Type: Publish, Name: []byte("t"), Data: payload})
		if f := alice.publish(); len(f.Data) != len(payload) {
			t.Fatalf("got %d bytes", len(f.Data))
		}
	}
	t.Logf("%d publishes of 16 KiB before one is dropped", n)
}

// Who claims names without end is told no by limits of what is kept, or has them; the others live on.
func TestAPeerThatClaimsEverything(t *testing.T) {
	r := startRouter(t, Options{})
	alice := r.component("alice", "t")
	c := r.dial("claims", "tcp")
	c.identify("claims")
	for i := range 2000 {
		c.send(func() *Frame {
			f := adminFrame(fmt.Sprintf("topic%d/*", i), "subscribe")
			f.ID = number(uint64(i))
			return f
		}())
	}
	c.admin("**", "subscribe")
	c.close()
	r.component("bob").send(&Frame{Type: Publish, Name: []byte("t"), Data: []byte{0x80}})
	alice.publish()
}

func (c *client) close() { c.tr.close(normalClosure, "") }
