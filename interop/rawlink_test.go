package interop

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"
)

// rawSender is a sending link of bare frames, used from one goroutine. It honours credit and window.
type rawSender struct {
	c        *rawConn
	channel  uint16
	handle   uint32
	theirs   uint64 // the peer's handle of the link
	next     uint32 // delivery id
	sent     uint32 // transfers in the session
	count    uint32 // delivery count of the link
	credit   uint32
	window   uint32 // transfers that the peer takes
	outcomes map[uint32]outcome
	detached *frame

	onOutcome func(id uint32, o outcome) // if not nil; the outcome is then not kept
}

// outcome is what a disposition said.
type outcome struct {
	state     string
	condition string
	settled   bool
	value     any
}

func (o outcome) String() string {
	if o.condition != "" {
		return o.state + " " + o.condition
	}
	return o.state
}

var stateNames = map[uint64]string{received: "received", accepted: "accepted", rejected: "rejected", released: "released", modified: "modified"}

func readOutcome(state any, settled bool) outcome {
	d, _ := state.(tagged)
	code, _ := d.descriptor.(uint64)
	name := stateNames[code]
	if name == "" {
		name = fmt.Sprintf("state %v", state)
	}
	return outcome{state: name, condition: condition(state), settled: settled, value: state}
}

// newRawSender connects and attaches. A to of nil is the anonymous terminus.
func newRawSender(t testing.TB, addr string, to []byte) *rawSender {
	t.Helper()
	c := dialRaw(t, addr)
	if err := c.session(0); err != nil {
		t.Fatal(err)
	}
	return attachRaw(t, c, 0, 0, to)
}

// attachRaw attaches a sending link on a session that was begun.
func attachRaw(t testing.TB, c *rawConn, channel uint16, handle uint32, to []byte) *rawSender {
	t.Helper()
	s, err := tryAttach(c, channel, handle, to, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tryAttach attaches a sending link with a receiver mode: 0 is first, 1 is second.
func tryAttach(c *rawConn, channel uint16, handle uint32, to []byte, mode byte) (*rawSender, error) {
	s := &rawSender{c: c, channel: channel, handle: handle, window: 100, outcomes: map[uint32]outcome{}}
	tgt := composite(target)
	if to != nil {
		tgt = composite(target, str(string(to)))
	}
	name := fmt.Sprintf("raw-sender-%d-%d", channel, handle)
	c.write(channel, composite(attach, str(name), uint32v(handle), boolean(false), ubyte(2), ubyte(mode), composite(source, str("raw")), tgt, null, null, uint32v(0)))
	f, err := c.await(attach)
	if err != nil {
		return nil, err
	}
	s.theirs = f.number(1)
	if f.at(6) == nil {
		f, err := c.await(detach)
		return nil, fmt.Errorf("the link was refused: %v %v", f, err)
	}
	return s, nil
}

// pump takes one frame in.
func (s *rawSender) pump(wait time.Duration) error {
	f, err := s.c.read(wait)
	if err != nil {
		return err
	}
	switch f.code {
	case flow:
		next := uint32(0)
		if f.at(0) != nil {
			next = uint32(f.number(0))
		}
		s.window = uint32(max(int32(next+uint32(f.number(1))-s.sent), 0)) // less than was sent: the window was narrowed
		if f.at(4) != nil && f.number(4) == s.theirs {
			s.credit = uint32(f.number(5)) + uint32(f.number(6)) - s.count
		}
	case disposition:
		if !f.flag(0) {
			break
		}
		last := f.number(1)
		if f.at(2) != nil {
			last = f.number(2)
		}
		for id := f.number(1); id <= last; id++ {
			if o := readOutcome(f.at(4), f.flag(3)); s.onOutcome != nil {
				s.onOutcome(uint32(id), o)
			} else {
				s.outcomes[uint32(id)] = o
			}
		}
	case detach:
		if f.number(0) == s.theirs {
			s.detached = f
		}
	case end, closing:
		return fmt.Errorf("the peer ended it: %v", f)
	}
	return nil
}

func (s *rawSender) pumpUntil(what string, done func() bool) error {
	deadline := time.Now().Add(patience)
	for !done() {
		if err := s.pump(time.Until(deadline)); err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
	}
	return nil
}

// send writes one delivery, in as many frames as it takes, when there is credit for it.
func (s *rawSender) send(message []byte, settled bool) (id uint32, err error) {
	if err := s.pumpUntil("credit", func() bool { return s.credit > 0 || s.detached != nil }); err != nil {
		return 0, err
	}
	if s.detached != nil {
		return 0, fmt.Errorf("the link was detached: %v", s.detached)
	}
	id = s.next
	s.next++
	s.credit--
	s.count++
	tag := binary.BigEndian.AppendUint32(nil, id)
	room := int(s.c.maxFrame) - 64
	for first := true; first || len(message) > 0; first = false {
		if err := s.pumpUntil("window", func() bool { return s.window > 0 }); err != nil {
			return 0, err
		}
		part := message[:min(room, len(message))]
		message = message[len(part):]
		more := boolean(len(message) > 0)
		fields := [][]byte{uint32v(s.handle), null, null, null, null, more}
		if first {
			fields = [][]byte{uint32v(s.handle), uint32v(id), binaryv(tag), uint32v(0), boolean(settled), more}
		}
		if err := s.c.write(s.channel, composite(transfer, fields...), part); err != nil {
			return 0, err
		}
		s.window--
		s.sent++
	}
	return id, nil
}

// outcome waits for what became of a delivery.
func (s *rawSender) outcome(id uint32) (outcome, error) {
	err := s.pumpUntil(fmt.Sprintf("the outcome of delivery %d", id), func() bool { _, ok := s.outcomes[id]; return ok })
	return s.outcomes[id], err
}

// deliver sends one message unsettled and gives its outcome.
func (s *rawSender) deliver(t testing.TB, message []byte) outcome {
	t.Helper()
	id, err := s.send(message, false)
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.outcome(id)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// rawReceiver is a receiving link of bare frames; it accepts what it gets.
type rawReceiver struct {
	c     *rawConn
	name  string // its address, as the peer granted it
	parts []byte
	first *frame
}

// rawDelivery is one message as it came.
type rawDelivery struct {
	payload []byte
	settled bool
	id      uint64
	link    string // the link's name and target address, of a listening peer
	target  string
	hasTo   bool // the target has an address
	peer    *rawConn
	at      time.Time // when it was whole
}

// newRawReceiver attaches a receiver on the address, or where that is empty on one that the router makes, and gives it credit.
func newRawReceiver(t testing.TB, addr, from string, credit uint32, capabilities ...string) *rawReceiver {
	t.Helper()
	c := dialRaw(t, addr)
	if err := c.session(0); err != nil {
		t.Fatal(err)
	}
	src := [][]byte{str(from)}
	if from == "" {
		src = [][]byte{null, null, null, null, boolean(true)}
	}
	if len(capabilities) > 0 {
		src = append(src, null, null, null, null, null, null, null, null, null, sym(capabilities[0]))
	}
	c.write(0, composite(attach, str("raw-receiver"), uint32v(0), boolean(true), ubyte(2), ubyte(0), composite(source, src...), composite(target, str("raw"))))
	f, err := c.await(attach)
	if err != nil {
		t.Fatal(err)
	}
	name, ok := addressOf(f.at(5))
	if !ok {
		f, err := c.await(detach)
		t.Fatalf("receiver on %s was refused: %v %v", from, f, err)
	}
	c.write(0, composite(flow, uint32v(0), uint32v(1<<31-1), uint32v(0), uint32v(1<<31-1), uint32v(0), uint32v(0), uint32v(credit)))
	return &rawReceiver{c: c, name: name}
}

// collect takes a transfer, and gives the message where it is whole.
func (r *rawReceiver) collect(f *frame) *rawDelivery {
	if r.first == nil {
		r.first, r.parts = f, nil
	}
	r.parts = append(r.parts, f.payload...)
	if f.flag(9) {
		r.first = nil // aborted
		return nil
	}
	if f.flag(5) {
		return nil
	}
	d := &rawDelivery{payload: r.parts, settled: r.first.flag(4) || f.flag(4), id: r.first.number(1), at: time.Now()}
	r.first = nil
	return d
}

// receive gives the next message and accepts it.
func (r *rawReceiver) receive(wait time.Duration) (*rawDelivery, error) {
	deadline := time.Now().Add(wait)
	for {
		f, err := r.c.read(time.Until(deadline))
		if err != nil {
			return nil, err
		}
		switch f.code {
		case transfer:
			d := r.collect(f)
			if d == nil {
				continue
			}
			if !d.settled {
				r.c.write(0, composite(disposition, boolean(true), uint32v(uint32(d.id)), uint32v(uint32(d.id)), boolean(true), composite(accepted)))
			}
			return d, nil
		case detach, end, closing:
			return nil, fmt.Errorf("the peer ended it: %v", f)
		}
	}
}
