package interop

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// rawServer is a receiver that listens: it takes any link, gives credit and keeps every message as the bytes that came.
type rawServer struct {
	addr   string
	ln     net.Listener
	credit uint32
	links  int    // that a session may have, by its handle-max; 0 no limit
	fatal  string // a target for which it ends the whole session

	forgets bool // keeps no message

	// answer gives the state that a delivery is settled with; nil is accepted. An answer of nil leaves it unsettled.
	answer func(*rawDelivery) []byte

	mu         sync.Mutex // guards what follows
	deliveries []*rawDelivery
	changed    chan struct{} // closed and replaced at every change
	conns      []*rawConn
	attached   map[string]int // links, by target
	failures   []error
	wg         sync.WaitGroup
}

// listenRaw starts a listening receiver. It ends with the test, which fails where a connecting peer broke the protocol.
func listenRaw(t testing.TB, answer func(*rawDelivery) []byte) *rawServer {
	t.Helper()
	return listenRawOn(t, "127.0.0.1:0", answer)
}

func listenRawOn(t testing.TB, addr string, answer func(*rawDelivery) []byte) *rawServer {
	t.Helper()
	return listenRawWith(t, addr, &rawServer{answer: answer})
}

// listenRawWith starts one whose credit (0: 500), links and answer are set.
func listenRawWith(t testing.TB, addr string, s *rawServer) *rawServer {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s.addr, s.ln, s.changed = ln.Addr().String(), ln, make(chan struct{})
	if s.credit == 0 {
		s.credit = 500
	}
	s.wg.Go(s.accept)
	t.Cleanup(func() {
		s.stop()
		for _, err := range s.failures {
			t.Errorf("receiver %s: %v", s.addr, err)
		}
	})
	return s
}

// url is the address of a route to it.
func (s *rawServer) url(name string) string {
	if name == "" {
		return "amqp://" + s.addr
	}
	return "amqp://" + s.addr + "/" + name
}

// stop ends the listener and cuts its connections.
func (s *rawServer) stop() {
	s.ln.Close()
	s.cut()
	s.wg.Wait()
}

// cut cuts every connection; the peer may connect again.
func (s *rawServer) cut() {
	s.mu.Lock()
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

func (s *rawServer) accept() {
	for {
		c, err := s.ln.Accept()
		if err != nil {
			return
		}
		rc := newRawConn(c)
		s.mu.Lock()
		s.conns = append(s.conns, rc)
		s.mu.Unlock()
		s.wg.Go(func() {
			defer c.Close()
			if err := s.serve(rc); err != nil && !isClosed(err) {
				s.mu.Lock()
				s.failures = append(s.failures, err)
				s.mu.Unlock()
			}
		})
	}
}

// all gives what was received so far.
func (s *rawServer) all() []*rawDelivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deliveries[:len(s.deliveries):len(s.deliveries)]
}

// wait waits until there are n messages and gives them all.
func (s *rawServer) wait(t testing.TB, n int) []*rawDelivery {
	t.Helper()
	timeout := time.After(patience)
	for {
		s.mu.Lock()
		got, changed := s.deliveries, s.changed
		s.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("receiver %s has %d messages after %v, want %d", s.addr, len(got), patience, n)
		}
	}
}

func (s *rawServer) keep(d *rawDelivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliveries = append(s.deliveries, d)
	close(s.changed)
	s.changed = make(chan struct{})
}

// rawIn is an incoming link of a listening receiver.
type rawIn struct {
	name, target string
	hasTo        bool
	first        *frame
	parts        []byte
	count, given uint32
}

// rawSessionIn is a session of a listening receiver.
type rawSessionIn struct {
	next  uint32 // next incoming transfer id
	links map[uint64]*rawIn
	ended bool // by this end
}

// serve does the server's side of one connection.
func (s *rawServer) serve(c *rawConn) error {
	h, err := c.header()
	if err != nil {
		return err
	}
	if string(h) == string(saslHeader) {
		c.bytes(saslHeader)
		c.bytes(bytesOf(1, 0, composite(saslMechanisms, sym("ANONYMOUS"))))
		if _, err := c.await(saslInit); err != nil {
			return err
		}
		c.bytes(bytesOf(1, 0, composite(saslOutcome, ubyte(0))))
		if h, err = c.header(); err != nil {
			return err
		}
	}
	if string(h) != string(amqpHeader) {
		return fmt.Errorf("protocol header is % x", h)
	}
	c.bytes(amqpHeader)
	c.write(0, composite(open, str("raw-"+s.addr), null, uint32v(64<<10)))
	sessions := map[uint16]*rawSessionIn{}
	for {
		f, err := c.read(10 * time.Minute)
		if err != nil {
			return err
		}
		ss := sessions[f.channel]
		switch f.code {
		case open:
		case begin:
			sessions[f.channel] = &rawSessionIn{next: uint32(f.number(1)), links: map[uint64]*rawIn{}}
			c.write(f.channel, composite(begin, []byte{0x60, byte(f.channel >> 8), byte(f.channel)}, uint32v(0), uint32v(1<<31-1), uint32v(1<<31-1), uint32v(uint32(s.links)-1)))
		case end:
			delete(sessions, f.channel)
			if ss == nil || !ss.ended {
				c.write(f.channel, composite(end))
			}
		case closing:
			c.write(0, composite(closing))
			if e := condition(f.at(0)); e != "" {
				return fmt.Errorf("the peer closed with an error: %v", f.fields)
			}
			return nil
		default:
			if ss == nil {
				return fmt.Errorf("no such session: %v", f)
			}
			if ss.ended {
				continue
			}
			if err := s.session(c, ss, f); err != nil {
				return err
			}
		}
	}
}

// session handles the frames of a session.
func (s *rawServer) session(c *rawConn, ss *rawSessionIn, f *frame) error {
	switch f.code {
	case attach:
		return s.attach(c, ss, f)
	case detach:
		if ss.links[f.number(0)] != nil {
			delete(ss.links, f.number(0))
			c.write(f.channel, composite(detach, uint32v(uint32(f.number(0))), boolean(true)))
		}
	case flow:
		if f.flag(9) {
			s.grant(c, ss, f.channel, uint32(f.number(4)), ss.links[f.number(4)])
		}
	case transfer:
		ss.next++
		return s.transfer(c, ss, f)
	}
	return nil
}

// attach answers a link: any target is taken, and a receiver gets a link that never sends.
func (s *rawServer) attach(c *rawConn, ss *rawSessionIn, f *frame) error {
	handle := f.number(1)
	if s.links > 0 && handle >= uint64(s.links) {
		return fmt.Errorf("handle %d is above handle-max", handle)
	}
	if ss.links[handle] != nil {
		return fmt.Errorf("handle %d is attached twice", handle)
	}
	isReceiver := f.flag(2)
	to, hasTo := addressOf(f.at(6))
	s.mu.Lock()
	if s.attached == nil {
		s.attached = map[string]int{}
	}
	s.attached[to]++
	s.mu.Unlock()
	if s.fatal != "" && to == s.fatal {
		ss.ended = true
		return c.write(f.channel, composite(end, composite(errorCode, sym("amqp:precondition-failed"))))
	}
	in := &rawIn{name: f.text(0), target: to, hasTo: hasTo}
	ss.links[handle] = in
	tgt := composite(target)
	if hasTo {
		tgt = composite(target, str(to))
	}
	fields := [][]byte{str(in.name), uint32v(uint32(handle)), boolean(!isReceiver), ubyte(2), ubyte(0), composite(source), tgt}
	if isReceiver {
		fields = append(fields, null, null, uint32v(0))
	}
	c.write(f.channel, composite(attach, fields...))
	if !isReceiver {
		s.grant(c, ss, f.channel, uint32(handle), in)
	}
	return nil
}

// grant gives a link its full credit.
func (s *rawServer) grant(c *rawConn, ss *rawSessionIn, channel uint16, handle uint32, in *rawIn) {
	if in == nil {
		return
	}
	in.given = s.credit
	c.write(channel, composite(flow, uint32v(ss.next), uint32v(1<<31-1), uint32v(0), uint32v(1<<31-1), uint32v(handle), uint32v(in.count), uint32v(in.given)))
}

func (s *rawServer) transfer(c *rawConn, ss *rawSessionIn, f *frame) error {
	in := ss.links[f.number(0)]
	if in == nil {
		return fmt.Errorf("transfer on a link that is not attached: %v", f)
	}
	if in.first == nil {
		if in.given == 0 {
			return fmt.Errorf("transfer beyond credit: %v", f)
		}
		in.first, in.parts = f, nil
		in.given--
		in.count++
	}
	in.parts = append(in.parts, f.payload...)
	if f.flag(9) {
		in.first = nil // aborted
		return nil
	}
	if f.flag(5) {
		return nil
	}
	d := &rawDelivery{payload: in.parts, settled: in.first.flag(4) || f.flag(4), id: in.first.number(1), link: in.name, target: in.target, hasTo: in.hasTo, peer: c, at: time.Now()}
	in.first, in.parts = nil, nil
	state := composite(accepted)
	if s.answer != nil {
		state = s.answer(d)
	}
	if !s.forgets {
		s.keep(d)
	}
	if !d.settled && state != nil {
		c.write(f.channel, composite(disposition, boolean(true), uint32v(uint32(d.id)), uint32v(uint32(d.id)), boolean(true), state))
	}
	if in.given <= s.credit/2 {
		s.grant(c, ss, f.channel, uint32(f.number(0)), in)
	}
	return nil
}
