package wire_test

import (
	"testing"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// dataFrame is what a client sends for a 100-byte body: transfer, header, properties with message-id and to, one data section.
func dataFrame() []byte {
	t := wire.Transfer{Handle: 1, DeliveryID: 70000, HasDeliveryID: true, Tag: []byte{0, 0, 0, 9}, HasTag: true,
		HasMessageFormat: true, HasSettled: true}
	return wire.AppendTransferFrame(nil, 3, &t, message())
}

func message() []byte {
	m := wire.Message{
		Header:     &wire.Header{Durable: true, HasDurable: true},
		Properties: &wire.Properties{MessageID: "m-1234", To: "orders/europe/central", HasTo: true, Subject: "new"},
		Data:       [][]byte{make([]byte, 100)},
	}
	b, err := m.Append(nil)
	if err != nil {
		panic(err)
	}
	return b
}

func annotated() []byte {
	b, err := wire.AppendMapWithEntry(nil, nil, wire.CodeMessageAnnotations, "x-opt-first", []byte{0x41})
	for _, k := range []string{"x-opt-second", "x-opt-via"} {
		if err == nil {
			b, err = wire.AppendMapWithEntry(nil, b, wire.CodeMessageAnnotations, k, []byte("\xa1\x03abc"))
		}
	}
	if err != nil {
		panic(err)
	}
	return b
}

func flowBody() []byte {
	f := wire.Flow{NextIncomingID: 1000, HasNextIncomingID: true, IncomingWindow: 4096, NextOutgoingID: 70000, OutgoingWindow: 4096,
		Handle: 1, HasHandle: true, DeliveryCount: 70000, HasDeliveryCount: true, LinkCredit: 500, HasLinkCredit: true}
	return f.Append(nil)
}

func dispositionBody() []byte {
	d := wire.Disposition{Role: wire.RoleReceiver, First: 70000, Last: 70100, Settled: true, State: []byte(wire.EncodedAccepted)}
	return d.Append(nil)
}

func findTo(frame []byte, t *wire.Transfer, s *wire.Sections) ([]byte, error) {
	h, err := wire.ParseFrameHeader(frame)
	if err != nil {
		return nil, err
	}
	payload, err := t.Parse(frame[int(h.DataOffset)*4 : h.Size])
	if err != nil {
		return nil, err
	}
	if err := wire.ScanHead(payload, s); err != nil {
		return nil, err
	}
	return s.ToText(payload), nil
}

// hot are the functions of the data path: none may allocate.
func hot(tb testing.TB) []struct {
	name string
	run  func()
} {
	var (
		frame, payload, ann     = dataFrame(), message(), annotated()
		flow, disposition       = flowBody(), dispositionBody()
		t                       wire.Transfer
		f                       wire.Flow
		d                       wire.Disposition
		s                       wire.Sections
		h                       wire.Header
		out                     = make([]byte, 0, 1024)
		send                    = wire.Transfer{Handle: 1, DeliveryID: 70000, HasDeliveryID: true, Tag: []byte{0, 0, 0, 9}, HasTag: true, HasMessageFormat: true, HasSettled: true}
		more                    = wire.Transfer{Handle: 1, More: true}
		headerOfFrame, bodyOnly = frame[:8], frame[8:]
	)
	check := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := wire.ScanMessage(payload, &s); err != nil {
		tb.Fatal(err)
	}
	head, props := s.Header.Of(payload), s.Properties.Of(payload)
	app, err := wire.AppendMapWithEntry(nil, nil, wire.CodeApplicationProperties, "n", []byte{0x54, 0xfe})
	check(err)
	return []struct {
		name string
		run  func()
	}{
		{"TransferFindTo", func() {
			to, err := findTo(frame, &t, &s)
			if err != nil || len(to) != 21 {
				tb.Fatal(to, err)
			}
		}},
		{"FrameHeader", func() { _, err := wire.ParseFrameHeader(headerOfFrame); check(err) }},
		{"Transfer", func() { _, err := t.Parse(bodyOnly); check(err) }},
		{"ScanHead", func() { check(wire.ScanHead(payload, &s)) }},
		{"ScanMessage", func() { check(wire.ScanMessage(payload, &s)) }},
		{"Header", func() { _, err := h.Parse(head); check(err) }},
		{"Flow", func() { _, err := f.Parse(flow); check(err) }},
		{"Disposition", func() { _, err := d.Parse(disposition); check(err) }},
		{"PeekState", func() {
			if wire.PeekState(d.State) == wire.Unknown {
				tb.Fatal("unknown")
			}
		}},
		{"PeekDescriptor", func() { _, _, err := wire.PeekDescriptor(bodyOnly); check(err) }},
		{"LookupAnnotation", func() {
			if _, ok, err := wire.LookupAnnotation(ann, "x-opt-via"); !ok || err != nil {
				tb.Fatal(ok, err)
			}
		}},
		{"LookupProperty", func() {
			if _, ok, err := wire.LookupProperty(props, "subject"); !ok || err != nil {
				tb.Fatal(ok, err)
			}
		}},
		{"AppendApplicationProperty", func() {
			if _, ok, err := wire.AppendApplicationProperty(out[:0], app, "n"); !ok || err != nil {
				tb.Fatal(ok, err)
			}
		}},
		{"AppendMapWithEntry", func() {
			_, err := wire.AppendMapWithEntry(out[:0], ann, wire.CodeMessageAnnotations, "x-opt-via", []byte{0x41})
			check(err)
		}},
		{"AppendTransferHeader", func() { wire.AppendTransferHeader(out[:0], 3, &send) }},
		{"AppendTransferHeaderMore", func() { wire.AppendTransferHeader(out[:0], 3, &more) }},
		{"AppendDisposition", func() { d.Append(out[:0]) }},
		{"AppendFlow", func() { f.Append(out[:0]) }},
		{"AppendHeader", func() { h.Append(out[:0]) }},
		{"SkipValue", func() { _, err := wire.SkipValue(ann); check(err) }},
	}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	for _, c := range hot(t) {
		c.run() // those behind it use what it parsed
		if n := testing.AllocsPerRun(100, c.run); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}

func BenchmarkHot(b *testing.B) {
	for _, c := range hot(b) {
		c.run()
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.run()
			}
		})
	}
}

func BenchmarkTransferFindTo(b *testing.B) {
	frame := dataFrame()
	var t wire.Transfer
	var s wire.Sections
	b.ReportAllocs()
	for b.Loop() {
		if _, err := findTo(frame, &t, &s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMessageParse(b *testing.B) {
	payload := message()
	b.ReportAllocs()
	for b.Loop() {
		var m wire.Message
		if err := m.Parse(payload); err != nil {
			b.Fatal(err)
		}
	}
}
