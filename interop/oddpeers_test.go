package interop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// oddity is what a test of an odd peer has: a router on which HAL9000 is discarded and COLOSSUS leads to a listening peer.
type oddity struct {
	*router
	hop *rawServer
}

// oddPeers keep to the protocol in ways that few do. Each case has a connection of its own.
var oddPeers = []struct {
	name string
	do   func(t *testing.T, o *oddity)
}{
	{"all that opens a link is said at once", pipelined},
	{"an open that says everything, and hears who the router is", talkativeOpen},
	{"frames with extended headers, and empty ones", extendedHeaders},
	{"channels and handles in any order", anyChannel},
	{"a channel and a handle are used again", usedAgain},
	{"transfer ids and delivery ids wrap", wrapping},
	{"windows as large as can be, and none", windows},
	{"flows that want an echo", echoes},
	{"a peer that takes frames of 512 bytes", smallFrames},
	{"a name too long for the peer's own frames", longNameInSmallFrames},
	{"names of links", linkNames},
	{"a name that another connection has", sameNameElsewhere},
	{"a name that this connection has", stolenName},
	{"a link that is detached but not closed, attached again", notClosed},
	{"resumed deliveries", resumed},
	{"filters", filters},
	{"a source that asks for what there is not", sourceThatWantsMore},
	{"a sender with its own ideas of outcomes", restrictedOutcomes},
	{"addresses made for a while", lifetimes},
	{"a message cut at every byte", everyCut},
	{"transfers that say everything", talkativeTransfers},
	{"aborted deliveries", abortedDeliveries},
	{"deliveries of two links, frame by frame", interleaved},
	{"settled without a word", settledWithoutAWord},
	{"settled by what is no outcome", noOutcome},
}

func TestOddPeers(t *testing.T) {
	hop := listenRaw(t, nil)
	o := &oddity{startRouter(t, "patient", rows("HAL9000", "null", "COLOSSUS", hop.url(""))), hop}
	for _, p := range oddPeers {
		t.Run(p.name, func(t *testing.T) { p.do(t, o) })
	}
}

// said is a small message.
func said(to, id string, size int) []byte {
	return messageOf(batchOf{to: to, id: id, sizes: []int{size}}, 0)
}

// works holds a link to what every link can: a message is accepted.
func works(t *testing.T, s *rawSender) {
	t.Helper()
	if o := s.deliver(t, said("HAL9000", "works", 10)); o.state != "accepted" {
		t.Errorf("a message is told %v, want accepted", o)
	}
}

// session dials and begins a session on channel 0.
func (o *oddity) session(t *testing.T) *rawConn {
	t.Helper()
	c := dialRaw(t, o.addr)
	if err := c.session(0); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *rawConn) must(t *testing.T, code uint64) *frame {
	t.Helper()
	f, err := c.await(code)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// receiving attaches a receiver with that source on handle 0 and gives the answer.
func receiving(t *testing.T, c *rawConn, name string, src []byte) *frame {
	t.Helper()
	c.write(0, composite(attach, str(name), uint32v(0), boolean(true), null, null, src, composite(target)))
	return c.must(t, attach)
}

func credit(c *rawConn, n uint32) {
	c.write(0, composite(flow, uint32v(0), uint32v(1<<31-1), uint32v(0), uint32v(1<<31-1), uint32v(0), uint32v(0), uint32v(n)))
}

// sourceOf is the source in an attach.
func sourceOf(f *frame) *frame {
	d, _ := f.at(5).(tagged)
	fields, _ := d.value.([]any)
	return &frame{fields: fields}
}

func pipelined(t *testing.T, o *oddity) {
	link := join(
		bytesOf(0, 0, composite(open, str("hasty"))),
		bytesOf(0, 0, composite(begin, null, uint32v(0), uint32v(100), uint32v(100))),
		bytesOf(0, 0, composite(attach, str("hasty"), uint32v(0), boolean(false), null, null, composite(source), composite(target, str("HAL9000")), null, null, uint32v(0))))
	for name, first := range map[string][]byte{
		"with SASL":    join(saslHeader, bytesOf(1, 0, composite(saslInit, sym("ANONYMOUS"), binaryv(nil), str("localhost"))), amqpHeader),
		"without SASL": amqpHeader,
	} {
		c := dialBare(t, o.addr)
		c.bytes(join(first, link))
		for _, code := range []uint64{open, begin, attach} {
			for f := (*frame)(nil); f == nil || f.code != code; {
				var err error
				if f, err = readAny(c, patience); err != nil {
					t.Fatalf("%s: waiting for %#x: %v", name, code, err)
				}
			}
		}
		works(t, &rawSender{c: c, window: 100, outcomes: map[uint32]outcome{}})
	}
}

func talkativeOpen(t *testing.T, o *oddity) {
	c := dialBare(t, o.addr)
	c.bytes(amqpHeader)
	if _, err := c.header(); err != nil {
		t.Fatal(err)
	}
	const idle = 400 * time.Millisecond
	c.write(0, composite(open, str("talkative"), str("a.host.of.another.name"), uint32v(1<<32-1), []byte{0x60, 0, 0}, uint32v(uint32(idle.Milliseconds())),
		sym("en-US"), sym("de-DE"), sym("ANONYMOUS-RELAY"), sym("SOLE-CONNECTION-PER-CONTAINER"), mapv(sym("product"), str("odd"), sym("x"), list(null, mapv(str("deep"), ulong(1))))))
	f := c.must(t, open)
	properties, _ := f.at(9).(pairs)
	for _, want := range []any{symbol("product"), symbol("version")} {
		if !slices.Contains(properties, want) {
			t.Errorf("the router's open has no %v: %v", want, properties)
		}
	}
	if f.text(0) == "" || !strings.Contains(fmt.Sprintf("%s", f.at(7)), "ANONYMOUS-RELAY") {
		t.Errorf("the router's open: %v", f)
	}
	// Nothing happens, and the router speaks again and again; how often is the engine's test.
	for range 6 {
		c.SetReadDeadline(time.Now().Add(patience))
		if _, err := c.in.Discard(8); err != nil {
			t.Fatalf("no empty frame: %v", err)
		}
	}
	if err := c.session(0); err != nil {
		t.Fatal(err)
	}
	works(t, attachRaw(t, c, 0, 0, []byte("HAL9000")))
}

func extendedHeaders(t *testing.T, o *oddity) {
	extended := func(b []byte) []byte {
		b = slices.Insert(slices.Clone(b), 8, []byte{1, 2, 3, 4, 5, 6, 7, 8}...)
		b[4] = 4
		binary.BigEndian.PutUint32(b, uint32(len(b)))
		return b
	}
	empty := []byte{0, 0, 0, 8, 2, 0, 0, 0}
	c := o.session(t)
	c.bytes(join(empty, empty, extended(empty)))
	c.bytes(extended(bytesOf(0, 0, composite(attach, str("x"), uint32v(0), boolean(false), null, null, composite(source), composite(target, str("HAL9000")), null, null, uint32v(0)))))
	c.must(t, attach)
	c.bytes(extended(oneTransfer(0, said("HAL9000", "m", 10))))
	if f := c.must(t, disposition); readOutcome(f.at(4), true).state != "accepted" {
		t.Errorf("got %v", f)
	}
}

func anyChannel(t *testing.T, o *oddity) {
	c := dialRaw(t, o.addr)
	for _, channel := range []uint16{700, 3, 0, 1023} {
		if err := c.session(channel); err != nil {
			t.Fatal(err)
		}
		var sent uint32
		for _, handle := range []uint32{9, 0, 65535, 300} {
			s := attachRaw(t, c, channel, handle, []byte("HAL9000"))
			s.next, s.sent = sent, sent
			works(t, s)
			sent = s.sent
		}
	}
}

func usedAgain(t *testing.T, o *oddity) {
	c := dialRaw(t, o.addr)
	for range 3 {
		if err := c.session(5); err != nil {
			t.Fatal(err)
		}
		var sent uint32
		for range 3 {
			s := attachRaw(t, c, 5, 2, []byte("HAL9000"))
			s.next, s.sent = sent, sent
			works(t, s)
			sent = s.sent
			c.write(5, composite(detach, uint32v(2), boolean(true)))
			c.must(t, detach)
		}
		c.write(5, composite(end))
		c.must(t, end)
	}
}

func wrapping(t *testing.T, o *oddity) {
	c := dialRaw(t, o.addr)
	const almost = 1<<32 - 3
	c.write(0, composite(begin, null, uint32v(almost), uint32v(1<<32-1), uint32v(1<<32-1)))
	c.must(t, begin)
	c.write(0, composite(attach, str("wrap"), uint32v(0), boolean(false), null, null, composite(source), composite(target, str("COLOSSUS")), null, null, uint32v(almost)))
	c.must(t, attach)
	s := &rawSender{c: c, next: almost, sent: almost, count: almost, window: 100, outcomes: map[uint32]outcome{}}
	for i := range 8 {
		if got := s.deliver(t, said("COLOSSUS", fmt.Sprint("wrap", i), 100)); got.state != "accepted" {
			t.Errorf("delivery %d: %v", i, got)
		}
	}
}

func windows(t *testing.T, o *oddity) {
	c := dialRaw(t, o.addr)
	c.write(0, composite(begin, null, uint32v(0), uint32v(0), uint32v(1<<32-1))) // takes no transfer for now
	c.must(t, begin)
	receiving(t, c, "r", composite(source, str("windows")))
	c.write(0, composite(flow, uint32v(0), uint32v(0), uint32v(0), uint32v(1<<32-1), uint32v(0), uint32v(0), uint32v(1<<32-1)))
	s := newRawSender(t, o.addr, []byte("windows"))
	id, err := s.send(said("windows", "m", 10), false)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := c.read(200 * time.Millisecond); err == nil && f.code == transfer {
		t.Errorf("a transfer into a window of 0: %v", f)
	}
	c.write(0, composite(flow, uint32v(0), uint32v(1<<32-1), uint32v(0), uint32v(0))) // all that can be
	c.must(t, transfer)
	c.write(0, composite(disposition, boolean(true), uint32v(0), null, boolean(true), composite(accepted)))
	if got, err := s.outcome(id); err != nil || got.state != "accepted" {
		t.Errorf("got %v, %v", got, err)
	}
}

func echoes(t *testing.T, o *oddity) {
	c := o.session(t)
	s := attachRaw(t, c, 0, 0, []byte("HAL9000"))
	works(t, s)
	window := [][]byte{uint32v(0), uint32v(100), uint32v(1), uint32v(100)}
	for range 100 {
		c.write(0, composite(flow, append(slices.Clone(window), null, null, null, null, null, boolean(true))...))
	}
	f := c.must(t, flow)
	for f.at(4) != nil { // credit for the link
		f = c.must(t, flow)
	}
	if f.number(0) != 1 {
		t.Errorf("the echo of the session: %v", f)
	}
	c.write(0, composite(flow, append(slices.Clone(window), uint32v(0), uint32v(1), uint32v(0), null, null, boolean(true))...))
	for f = c.must(t, flow); f.at(4) == nil; {
		f = c.must(t, flow)
	}
	if f.number(5) != 1 || f.number(6) == 0 || f.flag(9) {
		t.Errorf("the echo of the link: %v", f)
	}
}

// greetWith opens without SASL, with that largest frame.
func (o *oddity) greetWith(t *testing.T, maxFrame uint32) *rawConn {
	t.Helper()
	c := dialBare(t, o.addr)
	c.bytes(join(amqpHeader, bytesOf(0, 0, composite(open, str("small"), null, uint32v(maxFrame)))))
	if _, err := c.header(); err != nil {
		t.Fatal(err)
	}
	c.must(t, open)
	if err := c.session(0); err != nil {
		t.Fatal(err)
	}
	return c
}

func smallFrames(t *testing.T, o *oddity) {
	c := o.greetWith(t, 512)
	receiving(t, c, "r", composite(source, str("small")))
	credit(c, 10)
	message := said("small", "m", 10_000)
	s := newRawSender(t, o.addr, []byte("small"))
	id, err := s.send(message, false)
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for more := true; more; {
		f := c.must(t, transfer)
		if f.size > 512 {
			t.Fatalf("a frame of %d bytes", f.size)
		}
		got, more = append(got, f.payload...), f.flag(5)
	}
	sameMessage(t, "the receiver", message, got, 0)
	c.write(0, composite(disposition, boolean(true), uint32v(0), null, boolean(true), composite(accepted)))
	if out, err := s.outcome(id); err != nil || out.state != "accepted" {
		t.Errorf("got %v, %v", out, err)
	}
}

// The answer to an attach repeats its name. Where that does not fit into a frame of the peer's, the session ends for it.
func longNameInSmallFrames(t *testing.T, o *oddity) {
	c := o.greetWith(t, 512)
	c.write(0, composite(attach, str(strings.Repeat("n", 600)), uint32v(0), boolean(true), null, null, composite(source, str("x")), composite(target)))
	f, err := c.read(patience)
	if err != nil || f.code != end || f.size > 512 || condition(f.at(0)) != "amqp:frame-size-too-small" {
		t.Fatalf("got %v, %v, want the end of the session", f, err)
	}
	c.write(0, composite(end))
	if err := c.session(0); err != nil {
		t.Fatal(err)
	}
	works(t, attachRaw(t, c, 0, 0, []byte("HAL9000")))
}

func linkNames(t *testing.T, o *oddity) {
	c := o.session(t)
	for i, name := range []string{strings.Repeat("long ", 6_000), "", "snow ☃, a slash / and a zero \x00", "amqp://looks.like:1/an address"} {
		c.write(0, composite(attach, str(name), uint32v(uint32(i)), boolean(false), null, null, composite(source), composite(target, str("HAL9000")), null, null, uint32v(0)))
		if f := c.must(t, attach); f.text(0) != name || f.at(6) == nil {
			t.Errorf("name %.40q is answered by %.40q, %v", name, f.text(0), f.at(6))
		}
	}
}

func sameNameElsewhere(t *testing.T, o *oddity) {
	var links []*rawSender
	for range 3 { // the container has the same name, too
		links = append(links, attachRaw(t, o.session(t), 0, 0, []byte("HAL9000")))
	}
	for _, s := range links {
		works(t, s)
	}
}

func stolenName(t *testing.T, o *oddity) {
	c := o.session(t)
	name := func(handle uint32) []byte {
		return composite(attach, str("mine"), uint32v(handle), boolean(false), null, null, composite(source), composite(target, str("HAL9000")), null, null, uint32v(0))
	}
	c.write(0, name(0))
	c.must(t, attach)
	c.write(0, composite(attach, str("mine"), uint32v(7), boolean(true), null, null, composite(source, str("x")), composite(target))) // the other direction is another link
	if f := c.must(t, attach); f.at(5) == nil {
		t.Errorf("the same name in the other direction: %v", f)
	}
	c.write(0, name(1))
	if f := c.must(t, detach); condition(f.at(2)) != "amqp:link:stolen" {
		t.Errorf("the older link is told %v", f)
	}
	f := c.must(t, attach)
	c.write(0, composite(detach, uint32v(0), boolean(true)))
	works(t, &rawSender{c: c, handle: 1, theirs: f.number(1), window: 100, outcomes: map[uint32]outcome{}})
}

// The router keeps nothing of a link that is gone: it answers closed, and the link that comes by the same name is a new one.
func notClosed(t *testing.T, o *oddity) {
	c := o.session(t)
	for i := range 3 {
		answer := receiving(t, c, "kept", composite(source, str("kept"), uint32v(2), sym("never")))
		if answer.at(7) != nil {
			t.Errorf("an unsettled map: %v", answer)
		}
		credit(c, 10)
		if _, err := newRawSender(t, o.addr, []byte("kept")).send(said("kept", "m", 10), true); err != nil {
			t.Fatal(err)
		}
		c.must(t, transfer)
		c.write(0, composite(detach, uint32v(0), boolean(false)))
		if f := c.must(t, detach); !f.flag(1) || f.at(2) != nil {
			t.Errorf("round %d: a detach that does not close is answered by %v", i, f)
		}
	}
	eventually(t, "its row is gone", func() bool { return !strings.Contains(o.ctl(t, "list"), "kept") })
}

// What a peer believes to be unsettled is not known here: such deliveries are ignored (AMQP 1.0 part 2, 2.7.5), and those that are new are not.
func resumed(t *testing.T, o *oddity) {
	c := o.session(t)
	unsettled := mapv(binaryv([]byte("old")), composite(received, uint32v(0), ulong(0)))
	c.write(0, composite(attach, str("again"), uint32v(0), boolean(false), null, null, composite(source), composite(target, str("COLOSSUS")), unsettled, boolean(true), uint32v(0)))
	if f := c.must(t, attach); f.at(7) != nil || f.at(6) == nil {
		t.Errorf("the answer: %v", f)
	}
	c.must(t, flow)
	had := len(o.hop.all())
	resume := func(id uint32, settled, more, aborted bool, payload []byte) {
		c.write(0, composite(transfer, uint32v(0), uint32v(id), binaryv([]byte("old")), uint32v(0), boolean(settled), boolean(more), null, null, boolean(true), boolean(aborted)), payload)
	}
	resume(0, false, false, false, said("COLOSSUS", "old", 10))
	resume(1, true, false, false, nil)
	resume(2, false, true, false, said("COLOSSUS", "old", 10)[:9])
	resume(2, false, false, false, said("COLOSSUS", "old", 10)[9:])
	resume(3, false, false, true, nil)
	c.bytes(bytesOf(0, 0, composite(transfer, uint32v(0), uint32v(4), binaryv([]byte("new")), uint32v(0)), said("COLOSSUS", "new", 10)))
	if f := c.must(t, disposition); f.number(1) != 4 || readOutcome(f.at(4), true).state != "accepted" {
		t.Errorf("got %v, want delivery 4 accepted", f)
	}
	for _, d := range o.hop.wait(t, had+1)[had:] {
		if g := gotRaw(t, d.payload); g.id != "new-0" {
			t.Errorf("the hop got %v", g)
		}
	}
}

// Filters are not offered: the answer shows none (AMQP 1.0 part 3, 3.5.3), and every message comes.
func filters(t *testing.T, o *oddity) {
	for name, filter := range map[string][]byte{
		"selector": mapv(sym("jms-selector"), []byte{0x00, 0xa3, 28, 'a', 'p', 'a', 'c', 'h', 'e', '.', 'o', 'r', 'g', ':', 's', 'e', 'l', 'e', 'c', 't', 'o', 'r', '-', 'f', 'i', 'l', 't', 'e', 'r', ':', 's', 0xa1, 10, 'c', 'o', 'l', 'o', 'r', '=', '\'', 'x', 'y', '\''}),
		"no-local": mapv(sym("no-local"), described(0x0000468C00000003, list())),
		"unknown":  mapv(sym("a"), described(0xdeadbeef, mapv()), sym("b"), null),
	} {
		c := o.session(t)
		answer := sourceOf(receiving(t, c, name, composite(source, str("f/"+name), null, null, null, null, null, null, filter)))
		if answer.at(7) != nil || answer.text(0) != "f/"+name {
			t.Errorf("%s: the answer's source is %v", name, answer.fields)
		}
		credit(c, 10)
		s := newRawSender(t, o.addr, []byte("f/"+name))
		if _, err := s.send(said("f/"+name, "m", 10), true); err != nil {
			t.Fatal(err)
		}
		c.must(t, transfer)
	}
}

// A source is answered by what there is: no durability, gone with its link, none of the capabilities that nobody knows.
func sourceThatWantsMore(t *testing.T, o *oddity) {
	c := o.session(t)
	outcomes := []byte{0xf0, 0, 0, 0, 21 + 5, 0, 0, 0, 1, 0xb3, 0, 0, 0, 18}
	outcomes = append(outcomes, "amqp:accepted:list"...)
	binary.BigEndian.PutUint32(outcomes[1:], uint32(len(outcomes)-5))
	asked := composite(source, str("wishes"), uint32v(2), sym("never"), uint32v(3600), null, null, sym("copy"), null, composite(released), outcomes, sym("shared"))
	answer := sourceOf(receiving(t, c, "wishes", asked))
	if got := answer.fields; answer.text(0) != "wishes" || answer.number(1) != 0 || answer.at(2) != symbol("link-detach") || answer.number(3) != 0 || answer.at(10) != nil {
		t.Errorf("the answer's source is %v", got)
	}
	credit(c, 1)
	s := newRawSender(t, o.addr, []byte("wishes"))
	if _, err := s.send(said("wishes", "m", 10), true); err != nil {
		t.Fatal(err)
	}
	c.must(t, transfer)
}

// A sender may list the outcomes that it knows; it is told the truth all the same.
func restrictedOutcomes(t *testing.T, o *oddity) {
	c := o.session(t)
	src := composite(source, str("here"), uint32v(1), sym("never"), uint32v(5), null, null, null, null, composite(released), sym("amqp:released:list"))
	c.write(0, composite(attach, str("restricted"), uint32v(0), boolean(false), ubyte(0), ubyte(1), src, composite(target, str("HAL9000"), uint32v(2), sym("never"), uint32v(9)), null, null, uint32v(0), ulong(5),
		sym("x"), sym("y"), mapv(sym("z"), ulong(1))))
	f := c.must(t, attach)
	d, _ := f.at(6).(tagged)
	fields, _ := d.value.([]any)
	if tgt := (&frame{fields: fields}); tgt.text(0) != "HAL9000" || tgt.number(1) != 0 || tgt.number(3) != 0 {
		t.Errorf("the answer's target is %v", tgt.fields)
	}
	works(t, &rawSender{c: c, theirs: f.number(1), window: 100, outcomes: map[uint32]outcome{}})
}

func lifetimes(t *testing.T, o *oddity) {
	seen := map[string]bool{}
	for policy := uint64(0x2b); policy <= 0x2e; policy++ {
		c := o.session(t)
		properties := mapv(sym("lifetime-policy"), composite(policy), sym("supported-dist-modes"), sym("copy"))
		answer := sourceOf(receiving(t, c, "dynamic", composite(source, null, null, null, null, boolean(true), properties)))
		address := answer.text(0)
		if want := (pairs{symbol("lifetime-policy"), tagged{uint64(0x2b), []any{}}}); address == "" || seen[address] || !answer.flag(4) || !reflect.DeepEqual(answer.at(5), want) {
			t.Errorf("policy %#x: the answer's source is %v", policy, answer.fields)
		}
		seen[address] = true
		credit(c, 1)
		s := newRawSender(t, o.addr, nil)
		id, err := s.send(said(address, "m", 10), false)
		if err != nil {
			t.Fatal(err)
		}
		c.must(t, transfer)
		c.write(0, composite(disposition, boolean(true), uint32v(0), null, boolean(true), composite(accepted)))
		if got, err := s.outcome(id); err != nil || got.state != "accepted" {
			t.Errorf("policy %#x: %v, %v", policy, got, err)
		}
		c.write(0, composite(detach, uint32v(0), boolean(true)))
		c.must(t, detach)
		if got := s.deliver(t, said(address, "m", 10)); got.String() != "rejected amqp:not-found" {
			t.Errorf("policy %#x: the address outlives its link: %v", policy, got)
		}
	}
}

func everyCut(t *testing.T, o *oddity) {
	s := newRawSender(t, o.addr, []byte("COLOSSUS"))
	message := said("COLOSSUS", "cut", 60)
	had := len(o.hop.all())
	for size := range len(message) {
		s.c.maxFrame = uint32(size + 1 + 64)
		if got := s.deliver(t, message); got.state != "accepted" {
			t.Fatalf("parts of %d bytes: %v", size+1, got)
		}
	}
	for size, d := range o.hop.wait(t, had+len(message))[had:] {
		sameMessage(t, fmt.Sprintf("parts of %d bytes", size+1), message, d.payload, 1)
	}
}

func talkativeTransfers(t *testing.T, o *oddity) {
	s := newRawSender(t, o.addr, []byte("COLOSSUS"))
	message := said("COLOSSUS", "talk", 60)
	had := len(o.hop.all())
	if err := s.pumpUntil("credit", func() bool { return s.credit > 0 }); err != nil {
		t.Fatal(err)
	}
	full := func(id uint32, tag string, settled, more bool, payload []byte) {
		s.c.write(0, composite(transfer, uint32v(0), uint32v(id), binaryv([]byte(tag)), uint32v(7), boolean(settled), boolean(more), ubyte(0), composite(received, uint32v(0), ulong(3)), boolean(false), boolean(false), boolean(true)), payload)
	}
	whole := strings.Repeat("t", 32)
	full(0, whole, false, false, message)
	full(1, "", false, true, nil) // an empty tag, nothing in the first frame, in one of the middle, and in the last
	full(1, "", false, true, message[:20])
	full(1, "", false, true, nil)
	full(1, "", false, true, message[20:])
	full(1, "", false, false, nil)
	full(2, "x", false, true, message[:20])
	full(2, "x", true, false, message[20:]) // settled by its last frame
	s.next = 3
	s.sent, s.count = 8, 3
	for id := range uint32(2) {
		if got, err := s.outcome(id); err != nil || got.state != "accepted" {
			t.Errorf("delivery %d: %v, %v", id, got, err)
		}
	}
	for n, d := range o.hop.wait(t, had+3)[had:] {
		sameMessage(t, fmt.Sprint("message ", n), message, d.payload, 1)
	}
	works(t, s)
}

// Aborted deliveries go nowhere and use no credit up for good.
func abortedDeliveries(t *testing.T, o *oddity) {
	s := newRawSender(t, o.addr, []byte("COLOSSUS"))
	had := len(o.hop.all())
	part := said("COLOSSUS", "aborted", 60)[:30]
	for i := range 3000 {
		if err := s.pumpUntil("credit and a window", func() bool { return s.credit > 0 && s.window > 2 }); err != nil {
			t.Fatalf("after %d aborted deliveries: %v", i, err)
		}
		settled := boolean(i%2 == 1)
		first := composite(transfer, uint32v(0), uint32v(s.next), binaryv([]byte("a")), uint32v(0), settled, boolean(true))
		last := composite(transfer, uint32v(0), null, null, null, settled, boolean(i%3 == 0), null, null, null, boolean(true))
		if i%5 == 0 { // in its first frame
			first = composite(transfer, uint32v(0), uint32v(s.next), binaryv([]byte("a")), uint32v(0), settled, null, null, null, null, boolean(true))
			last = nil
		}
		s.c.write(0, first, part)
		s.sent, s.window = s.sent+1, s.window-1
		if last != nil {
			s.c.write(0, last, part)
			s.sent, s.window = s.sent+1, s.window-1
		}
		s.next, s.count, s.credit = s.next+1, s.count+1, s.credit-1
	}
	if got := s.deliver(t, said("COLOSSUS", "whole", 60)); got.state != "accepted" {
		t.Errorf("got %v", got)
	}
	if all := o.hop.wait(t, had+1)[had:]; len(all) != 1 || gotRaw(t, all[0].payload).id != "whole-0" {
		t.Errorf("the hop got %d messages", len(all))
	}
}

func interleaved(t *testing.T, o *oddity) {
	c := o.session(t)
	a, b := attachRaw(t, c, 0, 0, []byte("COLOSSUS")), attachRaw(t, c, 0, 1, []byte("COLOSSUS"))
	if err := b.pumpUntil("credit", func() bool { return b.credit > 0 }); err != nil {
		t.Fatal(err)
	}
	had := len(o.hop.all())
	one, two := said("COLOSSUS", "one", 50), said("COLOSSUS", "two", 50)
	half := func(handle, id uint32, more bool, payload []byte) {
		c.write(0, composite(transfer, uint32v(handle), uint32v(id), binaryv([]byte{byte(id)}), uint32v(0), null, boolean(more)), payload)
	}
	half(0, 0, true, one[:40])
	half(1, 1, true, two[:10])
	half(0, 0, true, one[40:45])
	half(1, 1, false, two[10:])
	half(0, 0, false, one[45:])
	for _, id := range []uint32{0, 1} {
		if got, err := a.outcome(id); b.outcomes[id].state != "accepted" && (err != nil || got.state != "accepted") {
			t.Errorf("delivery %d: %v, %v", id, got, err)
		}
	}
	all := o.hop.wait(t, had+2)[had:]
	if !bytes.HasSuffix(all[0].payload, two[len(two)-20:]) || !bytes.HasSuffix(all[1].payload, one[len(one)-20:]) {
		t.Errorf("the hop got %v and %v", gotRaw(t, all[0].payload), gotRaw(t, all[1].payload))
	}
}

// A receiver that settles without a word has taken the message.
func settledWithoutAWord(t *testing.T, o *oddity) {
	c := o.session(t)
	receiving(t, c, "mute", composite(source, str("mute")))
	credit(c, 10)
	s := newRawSender(t, o.addr, []byte("mute"))
	var ids []uint32
	for range 3 {
		id, err := s.send(said("mute", "m", 10), false)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		c.must(t, transfer)
	}
	c.write(0, composite(disposition, boolean(true), uint32v(0), uint32v(2), boolean(false), composite(received, uint32v(0), ulong(5)))) // no outcome
	c.write(0, composite(disposition, boolean(true), uint32v(1), null, boolean(false), composite(accepted)))                             // unsettled yet
	c.write(0, composite(disposition, boolean(true), uint32v(0), uint32v(2), boolean(true)))                                             // nothing but settled
	for _, id := range ids {
		got, err := s.outcome(id)
		for err == nil && got.state == "received" {
			delete(s.outcomes, id)
			got, err = s.outcome(id)
		}
		if err != nil || got.state != "accepted" {
			t.Errorf("delivery %d: got %v, %v", id, got, err)
		}
	}
}

// A state that is no outcome, such as one of a transaction that there is not, is refused in the receiver's place.
func noOutcome(t *testing.T, o *oddity) {
	c := o.session(t)
	receiving(t, c, "odd", composite(source, str("odd")))
	credit(c, 10)
	s := newRawSender(t, o.addr, []byte("odd"))
	for n, state := range [][]byte{composite(0x34, binaryv([]byte("txn")), composite(accepted)), composite(0x33, binaryv([]byte("txn"))), described(0xbad, mapv())} {
		id, err := s.send(said("odd", "m", 10), false)
		if err != nil {
			t.Fatal(err)
		}
		c.must(t, transfer)
		c.write(0, composite(disposition, boolean(true), uint32v(uint32(n)), null, boolean(true), state))
		if got, err := s.outcome(id); err != nil || got.String() != "rejected amqp:not-implemented" {
			t.Errorf("state %d: got %v, %v", n, got, err)
		}
	}
}

// A peer that has room for few links in a session is given as many sessions as it takes, also where all its links are attached at once.
func TestAHopWithFewHandles(t *testing.T) {
	for _, links := range []int{1, 3} {
		hop := listenRaw(t, nil)
		addr := hop.addr
		hop.stop()
		var table string
		const names = 8
		for i := range names {
			table += fmt.Sprintf("NAME-%d --> amqp://%s/n%d\n", i, addr, i)
		}
		r := startRouter(t, "many", table)
		var senders []*rawSender
		for i := range names {
			name := fmt.Sprint("NAME-", i)
			s := newRawSender(t, r.addr, []byte(name))
			if _, err := s.send(said(name, "m", 10), false); err != nil {
				t.Fatal(err)
			}
			senders = append(senders, s)
		}
		few := listenRawWith(t, addr, &rawServer{links: links})
		for i, s := range senders {
			if o, err := s.outcome(0); err != nil || o.state != "accepted" {
				t.Errorf("%d links a session: NAME-%d: %v, %v", links, i, o, err)
			}
		}
		few.wait(t, names)
	}
}

// A peer that ends the session of all links where it does not like one, again and again, does not hold the others up.
func TestAHopThatEndsItsSession(t *testing.T) {
	hop := listenRawWith(t, "127.0.0.1:0", &rawServer{fatal: "bad"})
	r := startRouter(t, "apart", rows("BAD", hop.url("bad"), "GOOD", hop.url("good"), "FINE", hop.url("fine")))
	attaches := func(target string) int {
		hop.mu.Lock()
		defer hop.mu.Unlock()
		return hop.attached[target]
	}
	good, fine, bad := newRawSender(t, r.addr, []byte("GOOD")), newRawSender(t, r.addr, []byte("FINE")), newRawSender(t, r.addr, []byte("BAD"))
	good.deliver(t, said("GOOD", "m", 10))
	fine.deliver(t, said("FINE", "m", 10))
	if _, err := bad.send(said("BAD", "m", 10), false); err != nil {
		t.Fatal(err)
	}
	others := func() {
		for _, s := range []*rawSender{good, fine} {
			if o := s.deliver(t, said("GOOD", "m", 10)); o.state != "accepted" {
				t.Errorf("a message to another target: %v", o)
			}
		}
	}
	eventually(t, "the bad link was tried twice", func() bool {
		others()
		return attaches("bad") >= 2
	})
	others()
	if g, f := attaches("good"), attaches("fine"); g > 2 || f > 2 {
		t.Errorf("the other links were attached %d and %d times, want twice at most", g, f)
	}
}
