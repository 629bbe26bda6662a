package interop

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// cable lies between two parties: it passes on what they say, frame by frame, and does them harm at the frame that a trap names.
type cable struct {
	addr string
	ln   net.Listener
	wg   sync.WaitGroup

	mu      sync.Mutex // guards what follows
	to      string
	strands map[*strand]struct{}
	trap    *trap
	closed  bool
	said    []byte // by who connected first
	first   *strand
}

// place says where of a frame a trap springs.
type place int

const (
	before place = iota
	middle
	after
)

func (p place) String() string { return [...]string{"before", "in the middle of", "after"}[p] }

// trap springs once, at the nth frame that it is for.
type trap struct {
	up     bool // frames toward where the cable leads
	code   uint64
	more   bool // only transfers that are not the last of their delivery
	at     place
	nth    int32
	spring func(*strand)

	seen   atomic.Int32
	sprung atomic.Bool
}

func (x *trap) catches(up bool, body []byte) bool {
	if x == nil || x.up != up || x.sprung.Load() || codeOf(body) != x.code {
		return false
	}
	if x.more {
		v, _, err := decode(body)
		d, _ := v.(tagged)
		fields, _ := d.value.([]any)
		if err != nil || !(&frame{fields: fields}).flag(5) {
			return false
		}
	}
	return x.seen.Add(1) == x.nth && !x.sprung.Swap(true)
}

// codeOf is the descriptor of a frame's performative, 0 where it has none.
func codeOf(body []byte) uint64 {
	if len(body) < 3 || body[0] != 0 {
		return 0
	}
	switch {
	case body[1] == 0x53:
		return uint64(body[2])
	case body[1] == 0x80 && len(body) >= 10:
		return binary.BigEndian.Uint64(body[2:])
	}
	return 0
}

// keepSaid is how much of the first connection a cable remembers.
const keepSaid = 16 << 10

// layCable leads to an address. It ends with the test.
func layCable(t testing.TB, to string) *cable {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{addr: ln.Addr().String(), ln: ln, to: to, strands: map[*strand]struct{}{}}
	c.wg.Go(c.accept)
	t.Cleanup(c.close)
	return c
}

func (c *cable) close() {
	c.ln.Close()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cut()
	c.wg.Wait()
}

// set lays a trap in the cable, nil for none.
func (c *cable) set(x *trap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trap = x
}

func (c *cable) lead(to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to = to
}

// cut cuts every connection through the cable; the next may come.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.strands {
		s.cut()
	}
}

func (c *cable) accept() {
	for {
		near, err := c.ln.Accept()
		if err != nil {
			return
		}
		c.wg.Go(func() { c.join(near) })
	}
}

// join makes a strand of a connection that came, and stays until it is over.
func (c *cable) join(near net.Conn) {
	c.mu.Lock()
	to := c.to
	c.mu.Unlock()
	far, err := net.DialTimeout("tcp", to, patience)
	if err != nil {
		near.Close()
		return
	}
	s := &strand{near: near.(*net.TCPConn), far: far.(*net.TCPConn), hole: make(chan struct{})}
	c.mu.Lock()
	c.strands[s] = struct{}{}
	if c.first == nil {
		c.first = s
	}
	closed := c.closed
	c.mu.Unlock()
	if closed {
		s.cut()
	}
	var wg sync.WaitGroup
	wg.Go(func() { c.pass(s, true) })
	wg.Go(func() { c.pass(s, false) })
	wg.Wait()
	c.mu.Lock()
	delete(c.strands, s)
	c.mu.Unlock()
	s.cut()
}

// strand is one connection through a cable.
type strand struct {
	near, far *net.TCPConn
	holed     sync.Once
	hole      chan struct{} // closed: nothing passes any more
}

func (s *strand) cut() { s.near.Close(); s.far.Close() }

// reset cuts without a word: what is under way is lost with it.
func (s *strand) reset() {
	s.near.SetLinger(0)
	s.far.SetLinger(0)
	s.cut()
}

// swallow takes everything from now on and passes nothing, then cuts.
func (s *strand) swallow(d time.Duration) {
	s.holed.Do(func() { close(s.hole) })
	time.AfterFunc(d, s.cut)
}

// pass carries one direction.
func (c *cable) pass(s *strand, up bool) {
	from, to := s.near, s.far
	if !up {
		from, to = to, from
	}
	defer s.cut()
	write := func(b []byte) bool {
		if isDone(s.hole) {
			return true
		}
		_, err := to.Write(b)
		return err == nil
	}
	buf := make([]byte, 64<<10)
	for {
		f, err := readWhole(from, buf)
		if err != nil {
			return
		}
		var x *trap
		c.mu.Lock()
		if len(f) > 8 {
			x = c.trap
		}
		if up && s == c.first && len(c.said) < keepSaid {
			c.said = append(c.said, f...)
		}
		c.mu.Unlock()
		if x == nil || !x.catches(up, f[8:]) {
			if !write(f) {
				return
			}
			continue
		}
		cutAt := [...]int{before: 0, middle: len(f) / 2, after: len(f)}[x.at]
		write(f[:cutAt])
		x.spring(s)
		if !write(f[cutAt:]) {
			return
		}
	}
}

// readWhole reads a frame or a protocol header.
func readWhole(from io.Reader, buf []byte) ([]byte, error) {
	if _, err := io.ReadFull(from, buf[:8]); err != nil {
		return nil, err
	}
	if string(buf[:4]) == "AMQP" {
		return buf[:8], nil
	}
	size := int(binary.BigEndian.Uint32(buf))
	if size < 8 || size > 2<<20 {
		return nil, fmt.Errorf("a frame of %d bytes", size)
	}
	if size > len(buf) {
		buf = append(make([]byte, 0, size), buf[:8]...)
	}
	_, err := io.ReadFull(from, buf[8:size])
	return buf[:size], err
}
