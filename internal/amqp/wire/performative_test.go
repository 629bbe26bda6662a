package wire_test

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

type codec interface {
	Parse(body []byte) (rest []byte, err error)
	Append(dst []byte) []byte
}

func fresh(c codec) codec { return reflect.New(reflect.TypeOf(c).Elem()).Interface().(codec) }

var symbols = []wire.Symbol{"queue", "topic"}

// golden performatives, by hand from AMQP 1.0 part 2, 2.7 and 2.8; part 3, 3.2 and 3.5; part 5, 5.3.3.
var performatives = []struct {
	name  string
	value codec
	hex   string
}{
	{"open, least", &wire.Open{ContainerID: "A", MaxFrameSize: math.MaxUint32, ChannelMax: 65535}, "00 53 10 c0 04 01 a1 01 41"},
	{"open, all", &wire.Open{ContainerID: "A", Hostname: "h", MaxFrameSize: 65536, ChannelMax: 7, IdleTimeout: 200,
		OutgoingLocales: []wire.Symbol{"en"}, IncomingLocales: []wire.Symbol{"de"}, OfferedCapabilities: symbols[:1],
		DesiredCapabilities: symbols[1:], Properties: wire.Map{{wire.Symbol("p"), "v"}}},
		"00 53 10 c0 3c 0a a1 01 41 a1 01 68 70 00 01 00 00 60 00 07 52 c8" +
			"e0 05 01 a3 02 65 6e e0 05 01 a3 02 64 65 e0 08 01 a3 05 71 75 65 75 65 e0 08 01 a3 05 74 6f 70 69 63" +
			"c1 07 02 a3 01 70 a1 01 76"},
	{"begin, least", &wire.Begin{NextOutgoingID: 0, IncomingWindow: 1, OutgoingWindow: 256, HandleMax: math.MaxUint32},
		"00 53 11 c0 0a 04 40 43 52 01 70 00 00 01 00"},
	{"begin, an answer", &wire.Begin{RemoteChannel: 5, HasRemoteChannel: true, HandleMax: 0, OfferedCapabilities: symbols},
		"00 53 11 c0 18 06 60 00 05 43 43 43 43 e0 0e 02 a3 05 71 75 65 75 65 05 74 6f 70 69 63"},
	{"attach, refused", &wire.Attach{Name: "L", Handle: 0, Role: wire.RoleReceiver, SndSettleMode: wire.SenderMixed},
		"00 53 12 c0 06 03 a1 01 4c 43 41"},
	{"attach, sender", &wire.Attach{Name: "L", Handle: 1, SndSettleMode: wire.SenderUnsettled, RcvSettleMode: wire.ReceiverSecond,
		Source: &wire.Source{ExpiryPolicy: wire.ExpireSessionEnd}, Target: &wire.Target{Address: "q", HasAddress: true,
			ExpiryPolicy: wire.ExpireSessionEnd}, HasInitialDeliveryCount: true, MaxMessageSize: 1 << 20},
		"00 53 12 c0 24 0b a1 01 4c 52 01 42 50 00 50 01 00 53 28 45 00 53 29 c0 04 01 a1 01 71 40 40 43" +
			"80 00 00 00 00 00 10 00 00"},
	{"attach, to a coordinator", &wire.Attach{Name: "L", Coordinator: true, HasInitialDeliveryCount: true, SndSettleMode: 2},
		"00 53 12 c0 10 0a a1 01 4c 43 42 40 40 40 00 53 30 45 40 40 43"},
	{"flow of a session", &wire.Flow{IncomingWindow: 1, NextOutgoingID: 2, OutgoingWindow: 3}, "00 53 13 c0 08 04 40 52 01 52 02 52 03"},
	{"flow of a link", &wire.Flow{NextIncomingID: 0, HasNextIncomingID: true, IncomingWindow: 1, NextOutgoingID: 2, OutgoingWindow: 3,
		Handle: 0, HasHandle: true, DeliveryCount: 4, HasDeliveryCount: true, LinkCredit: 300, HasLinkCredit: true,
		Available: 0, HasAvailable: true, Drain: true, Echo: true}, "00 53 13 c0 13 0a 43 52 01 52 02 52 03 43 52 04 70 00 00 01 2c 43 41 41"},
	{"transfer, least", &wire.Transfer{}, "00 53 14 c0 02 01 43"},
	{"transfer", &wire.Transfer{Handle: 1, DeliveryID: 2, HasDeliveryID: true, Tag: []byte{9}, HasTag: true, HasMessageFormat: true,
		HasSettled: true, Settled: true, More: true}, "00 53 14 c0 0b 06 52 01 52 02 a0 01 09 43 41 41"},
	{"transfer, all", &wire.Transfer{Handle: 1, DeliveryID: 2, HasDeliveryID: true, Tag: []byte{}, HasTag: true, MessageFormat: 256,
		HasMessageFormat: true, HasSettled: true, RcvSettleMode: 1, HasRcvSettleMode: true, State: []byte(wire.EncodedAccepted),
		Resume: true, Aborted: true, Batchable: true},
		"00 53 14 c0 17 0b 52 01 52 02 a0 00 70 00 00 01 00 42 40 50 01 00 53 24 45 41 41 41"},
	{"disposition of one", &wire.Disposition{Role: wire.RoleReceiver, First: 7, Last: 7}, "00 53 15 c0 04 02 41 52 07"},
	{"disposition of many", &wire.Disposition{First: 7, Last: 9, Settled: true, State: []byte(wire.EncodedReleased), Batchable: true},
		"00 53 15 c0 0c 06 42 52 07 52 09 41 00 53 26 45 41"},
	{"detach", &wire.Detach{Handle: 3}, "00 53 16 c0 03 01 52 03"},
	{"detach with an error", &wire.Detach{Handle: 3, Closed: true, Error: &wire.Error{Condition: "a:b", Description: "d"}},
		"00 53 16 c0 12 03 52 03 41 00 53 1d c0 09 02 a3 03 61 3a 62 a1 01 64"},
	{"end", &wire.End{}, "00 53 17 45"},
	{"end with an error", &wire.End{Error: &wire.Error{Condition: "a", Info: wire.Map{}}}, "00 53 17 c0 0e 01 00 53 1d c0 08 03 a3 01 61 40 c1 01 00"},
	{"close", &wire.Close{}, "00 53 18 45"},
	{"error", &wire.Error{Condition: "a"}, "00 53 1d c0 04 01 a3 01 61"},
	{"source, all", &wire.Source{Address: "q", HasAddress: true, Durable: 2, ExpiryPolicy: wire.ExpireNever, Timeout: 9, Dynamic: true,
		DynamicNodeProperties: wire.Map{{wire.Symbol("l"), wire.Described{uint64(0x2b), wire.List{}}}}, DistributionMode: "move",
		Filter: wire.Map{}, DefaultOutcome: []byte(wire.EncodedReleased), Outcomes: []wire.Symbol{"o"}, Capabilities: []wire.Symbol{"c"}},
		"00 53 28 c0 33 0b a1 01 71 52 02 a3 05 6e 65 76 65 72 52 09 41 c1 08 02 a3 01 6c 00 53 2b 45 a3 04 6d 6f 76 65 c1 01 00" +
			"00 53 26 45 e0 04 01 a3 01 6f e0 04 01 a3 01 63"},
	{"target, empty address", &wire.Target{HasAddress: true, ExpiryPolicy: wire.ExpireSessionEnd}, "00 53 29 c0 03 01 a1 00"},
	{"sasl-mechanisms", &wire.SASLMechanisms{Mechanisms: []wire.Symbol{"PLAIN"}}, "00 53 40 c0 0b 01 e0 08 01 a3 05 50 4c 41 49 4e"},
	{"sasl-init", &wire.SASLInit{Mechanism: "X", InitialResponse: []byte{}, HasInitialResponse: true, Hostname: "h"},
		"00 53 41 c0 09 03 a3 01 58 a0 00 a1 01 68"},
	{"sasl-challenge", &wire.SASLChallenge{Challenge: []byte{1}}, "00 53 42 c0 04 01 a0 01 01"},
	{"sasl-response", &wire.SASLResponse{Response: []byte{}}, "00 53 43 c0 03 01 a0 00"},
	{"sasl-outcome", &wire.SASLOutcome{Code: wire.SASLAuth}, "00 53 44 c0 03 01 50 01"},
	{"header, empty", &wire.Header{Priority: 4}, "00 53 70 45"},
	{"header, all", &wire.Header{Durable: true, HasDurable: true, Priority: 9, HasPriority: true, TTL: 1000, HasTTL: true, FirstAcquirer: true,
		DeliveryCount: 1}, "00 53 70 c0 0c 05 41 50 09 70 00 00 03 e8 41 52 01"},
	{"properties, to", &wire.Properties{To: "q", HasTo: true}, "00 53 73 c0 06 03 40 40 a1 01 71"},
	{"properties, all", &wire.Properties{MessageID: uint64(1), UserID: []byte("u"), To: "t", HasTo: true, Subject: "s", HasSubject: true,
		ReplyTo: "r", HasReplyTo: true, CorrelationID: wire.UUID{}, ContentType: "c", ContentEncoding: "e",
		AbsoluteExpiryTime: 1, HasAbsoluteExpiryTime: true, CreationTime: 2, HasCreationTime: true, GroupID: "g", HasGroupID: true,
		GroupSequence: 3, HasGroupSequence: true, ReplyToGroupID: "G", HasReplyToGroupID: true},
		"00 53 73 c0 40 0d 53 01 a0 01 75 a1 01 74 a1 01 73 a1 01 72 98 00000000000000000000000000000000 a3 01 63 a3 01 65" +
			"83 0000000000000001 83 0000000000000002 a1 01 67 52 03 a1 01 47"},
}

func TestPerformativesAreEncodedAsTheSpecificationSays(t *testing.T) {
	for _, c := range performatives {
		want := unhex(t, c.hex)
		if got := c.value.Append([]byte("before")); !bytes.Equal(got, append([]byte("before"), want...)) {
			t.Errorf("%s: encode:\n got % x\nwant % x", c.name, got[6:], want)
		}
		got := fresh(c.value)
		rest, err := got.Parse(append(want, "rest"...))
		if err != nil || string(rest) != "rest" || !reflect.DeepEqual(got, c.value) {
			t.Errorf("%s: decode: got %+v, %q, %v", c.name, got, rest, err)
		}
		again := reflect.New(reflect.TypeOf(c.value).Elem())
		fill(again.Elem())
		if _, err := again.Interface().(codec).Parse(want); err != nil || !reflect.DeepEqual(again.Interface(), c.value) {
			t.Errorf("%s: decode over an old value: got %+v, %v", c.name, again.Interface(), err)
		}
		for n := range want {
			if _, err := got.Parse(want[:n]); err == nil {
				t.Errorf("%s: cut to %d bytes: no error", c.name, n)
			} else if de := err.(*wire.DecodeError); de.Offset > n {
				t.Errorf("%s: cut to %d bytes: offset %d", c.name, n, de.Offset)
			}
		}
	}
}

// fill sets every field that it can to something else than its zero value.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.String:
			f.SetString("old")
		case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			f.SetUint(77)
		case reflect.Int64:
			f.SetInt(77)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		}
	}
}

func TestOtherFormsOfPerformativesAreUnderstood(t *testing.T) {
	for _, c := range []struct {
		name, hex string
		want      codec
	}{
		{"symbolic descriptor", "00 a3 0d 616d71703a656e643a6c697374 45", &wire.End{}},
		{"long symbolic descriptor", "00 b3 00 00 00 0d 616d71703a656e643a6c697374 45", &wire.End{}},
		{"long numeric descriptor", "00 80 00 00 00 00 00 00 00 17 45", &wire.End{}},
		{"list8 of nothing", "00 53 17 c0 01 00", &wire.End{}},
		{"list32", "00 53 17 d0 00 00 00 05 00 00 00 01 40", &wire.End{}},
		{"one capability without an array", "00 53 11 c0 09 06 40 43 43 43 40 a3 01 71",
			&wire.Begin{HandleMax: math.MaxUint32, OfferedCapabilities: []wire.Symbol{"q"}}},
		{"capabilities as sym32", "00 53 11 c0 0f 06 40 43 43 43 40 e0 07 01 b3 00 00 00 01 71",
			&wire.Begin{HandleMax: math.MaxUint32, OfferedCapabilities: []wire.Symbol{"q"}}},
		{"no capabilities in an array", "00 53 11 c0 0a 06 40 43 43 43 40 e0 02 00 a3",
			&wire.Begin{HandleMax: math.MaxUint32, OfferedCapabilities: []wire.Symbol{}}},
		{"transfer in long forms", "00 53 14 d0 00 00 00 22 00 00 00 0b 70 00 00 00 01 70 00 00 00 02 b0 00 00 00 01 09 70 00 00 00 00 56 01 56 00 40 40 42 42 42",
			&wire.Transfer{Handle: 1, DeliveryID: 2, HasDeliveryID: true, Tag: []byte{9}, HasTag: true, HasMessageFormat: true, HasSettled: true, Settled: true}},
		{"transfer with explicit nulls", "00 53 14 c0 0c 0b 43 40 40 40 40 40 40 40 40 40 40", &wire.Transfer{}},
		{"disposition with an unknown state", "00 53 15 c0 11 05 41 43 40 40 00 a3 03 78 3a 79 c0 04 01 a1 01 61",
			&wire.Disposition{Role: true, State: unhex(t, "00 a3 03 78 3a 79 c0 04 01 a1 01 61")}},
		{"attach with an unsettled map", "00 53 12 c0 11 08 a1 01 4c 43 41 40 40 40 40 c1 05 02 a0 01 74 40",
			&wire.Attach{Name: "L", Role: true, SndSettleMode: 2, Unsettled: unhex(t, "c1 05 02 a0 01 74 40")}},
	} {
		got := fresh(c.want)
		if rest, err := got.Parse(unhex(t, c.hex)); err != nil || len(rest) != 0 || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, % x, %v", c.name, got, rest, err)
		}
	}
}

func TestMalformedPerformativesNameTheField(t *testing.T) {
	for _, c := range []struct {
		name  string
		value codec
		hex   string
		want  string
	}{
		{"not described", &wire.End{}, "45", "end: not a described value at offset 0"},
		{"another performative", &wire.End{}, "00 53 18 45", "end: wrong descriptor"},
		{"unknown symbol", &wire.End{}, "00 a3 01 78 45", "end: wrong descriptor"},
		{"not a list", &wire.End{}, "00 53 17 c1 01 00", "end: not a list at offset 3"},
		{"too many fields", &wire.End{}, "00 53 17 c0 03 02 40 40", "end: more fields than defined"},
		{"bytes left", &wire.End{}, "00 53 17 c0 03 01 40 40", "end: bytes left after the last field"},
		{"fewer bytes than fields", &wire.End{}, "00 53 17 c0 01 01", "end: count greater"},
		{"open without a container-id", &wire.Open{}, "00 53 10 45", "open: container-id: mandatory field is missing"},
		{"open with a null container-id", &wire.Open{}, "00 53 10 c0 02 01 40", "open: container-id: mandatory"},
		{"open with a symbol as container-id", &wire.Open{}, "00 53 10 c0 04 01 a3 01 41", "open: container-id: not a string at offset 6"},
		{"open, container-id not UTF-8", &wire.Open{}, "00 53 10 c0 04 01 a1 01 ff", "container-id: string is not UTF-8 at offset 8"},
		{"open, properties a list", &wire.Open{}, "00 53 10 c0 0d 0a a1 01 41 40 40 40 40 40 40 40 40 45", "open: properties: not a map"},
		{"begin without a window", &wire.Begin{}, "00 53 11 c0 04 03 40 43 43", "begin: outgoing-window: mandatory"},
		{"begin, channel a uint", &wire.Begin{}, "00 53 11 c0 06 04 43 43 43 43 40", "begin: remote-channel: not a ushort"},
		{"begin, capabilities of uint", &wire.Begin{}, "00 53 11 c0 0b 06 40 43 43 43 40 e0 03 01 52 01", "offered-capabilities: not an array of symbols"},
		{"attach without a role", &wire.Attach{}, "00 53 12 c0 05 02 a1 01 4c 43", "attach: role: mandatory"},
		{"attach, settle mode 3", &wire.Attach{}, "00 53 12 c0 08 04 a1 01 4c 43 41 50 03", "snd-settle-mode: value is not defined"},
		{"attach, source is a target", &wire.Attach{}, "00 53 12 c0 0c 06 a1 01 4c 43 41 40 40 00 53 29 45", "attach: source: wrong descriptor"},
		{"attach, address is a symbol", &wire.Attach{}, "00 53 12 c0 11 06 a1 01 4c 43 41 40 40 00 53 28 c0 04 01 a3 01 71", "attach: source: address: not a string"},
		{"attach, durable 3", &wire.Attach{}, "00 53 12 c0 11 06 a1 01 4c 43 41 40 40 00 53 28 c0 04 02 40 52 03", "source: durable: value is not defined"},
		{"attach, expiry-policy unknown", &wire.Attach{}, "00 53 12 c0 12 06 a1 01 4c 43 41 40 40 00 53 28 c0 05 03 40 40 a3 00", "source: expiry-policy: value is not defined"},
		{"attach, unsettled a list", &wire.Attach{}, "00 53 12 c0 0b 08 a1 01 4c 43 41 40 40 40 40 45", "unsettled: not a map"},
		{"flow without a window", &wire.Flow{}, "00 53 13 c0 04 03 40 43 43", "flow: outgoing-window: mandatory"},
		{"flow, null window", &wire.Flow{}, "00 53 13 c0 05 04 40 40 43 43", "flow: incoming-window: mandatory"},
		{"transfer without a handle", &wire.Transfer{}, "00 53 14 45", "transfer: handle: mandatory"},
		{"transfer, null handle", &wire.Transfer{}, "00 53 14 c0 02 01 40", "transfer: handle: mandatory"},
		{"transfer, handle a ulong", &wire.Transfer{}, "00 53 14 c0 02 01 44", "transfer: handle: not a uint at offset 6"},
		{"transfer, tag a string", &wire.Transfer{}, "00 53 14 c0 05 03 43 40 a1 00", "delivery-tag: not a binary"},
		{"transfer, state a boolean", &wire.Transfer{}, "00 53 14 c0 09 08 43 40 40 40 40 40 40 41", "state: not a described value"},
		{"transfer, rcv-settle-mode 2", &wire.Transfer{}, "00 53 14 c0 09 07 43 40 40 40 40 40 50 02", "rcv-settle-mode: value is not defined"},
		{"transfer, boolean 2", &wire.Transfer{}, "00 53 14 c0 07 05 43 40 40 40 56 02", "settled: not a boolean"},
		{"disposition without first", &wire.Disposition{}, "00 53 15 c0 02 01 41", "disposition: first: mandatory"},
		{"disposition, state longer than the list", &wire.Disposition{}, "00 53 15 c0 09 05 41 43 40 40 00 53 24 c0 05 00 00 00 00", "disposition: state: value cut short"},
		{"error without a condition", &wire.End{}, "00 53 17 c0 05 01 00 53 1d 45", "end: error: condition: mandatory"},
		{"sasl-mechanisms null", &wire.SASLMechanisms{}, "00 53 40 c0 02 01 40", "sasl-server-mechanisms: mandatory"},
		{"sasl-init without a mechanism", &wire.SASLInit{}, "00 53 41 45", "mechanism: mandatory"},
		{"sasl-outcome without a code", &wire.SASLOutcome{}, "00 53 44 45", "code: mandatory"},
		{"properties, message-id a uint", &wire.Properties{}, "00 53 73 c0 02 01 43", "message-id: not a message id"},
		{"properties, 14 fields", &wire.Properties{}, "00 53 73 c0 0f 0e 40 40 40 40 40 40 40 40 40 40 40 40 40 40", "more fields than defined"},
	} {
		b := unhex(t, c.hex)
		_, err := c.value.Parse(b)
		if de, ok := err.(*wire.DecodeError); !ok || !strings.Contains(err.Error(), c.want) || de.Offset > len(b) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestTextThatMayNotBeSentIsRepaired(t *testing.T) {
	e := wire.Error{Condition: "ü", Description: "a\xffb", Info: wire.Map{{struct{}{}, 1}}}
	var got wire.Error
	if _, err := got.Parse(e.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if got.Condition != "??" || got.Description != "a\uFFFDb" || got.Info != nil {
		t.Errorf("got %+v", got)
	}
	if s := e.Error(); s != "ü: a\xffb" {
		t.Errorf("text: %q", s)
	}
}

func TestPeekDescriptor(t *testing.T) {
	for _, c := range []struct {
		hex  string
		code uint64
		left int
	}{
		{"00 53 14 45", wire.CodeTransfer, 1},
		{"00 44 45", 0, 1},
		{"00 80 00 00 46 8c 00 00 00 04 45", 0x468c00000004, 1},
		{"00 a3 0d 616d71703a656e643a6c697374 45", wire.CodeEnd, 1},
	} {
		code, rest, err := wire.PeekDescriptor(unhex(t, c.hex))
		if err != nil || code != c.code || len(rest) != c.left {
			t.Errorf("%s: got 0x%x, % x, %v", c.hex, code, rest, err)
		}
	}
	for _, h := range []string{"", "00", "00 53", "45", "00 a3 01 78 45", "00 a1 01 78 45", "00 52 14 45", "00 00 53 14 45"} {
		if code, _, err := wire.PeekDescriptor(unhex(t, h)); err == nil {
			t.Errorf("%s: got 0x%x, want an error", h, code)
		}
	}
}

func TestFrames(t *testing.T) {
	want := unhex(t, "00 00 00 0c 02 01 00 05 00 53 18 45")
	b, start := wire.BeginFrame([]byte("xy"), wire.FrameSASL, 5)
	b = wire.EndFrame((&wire.Close{}).Append(b), start)
	if start != 2 || !bytes.Equal(b[2:], want) {
		t.Errorf("got % x at %d", b, start)
	}
	h, err := wire.ParseFrameHeader(want)
	if err != nil || h != (wire.FrameHeader{Size: 12, DataOffset: 2, Type: wire.FrameSASL, Channel: 5}) {
		t.Errorf("got %+v, %v", h, err)
	}
	for name, s := range map[string]string{
		"short": "00 00 00 08 02 00 00", "size 7": "00 00 00 07 02 00 00 00", "offset 1": "00 00 00 08 01 00 00 00",
		"offset beyond": "00 00 00 08 03 00 00 00", "size 0": "00 00 00 00 02 00 00 00",
	} {
		if h, err := wire.ParseFrameHeader(unhex(t, s)); err == nil {
			t.Errorf("%s: got %+v", name, h)
		}
	}
	ph, err := wire.ParseProtoHeader([]byte(wire.ProtoSASL + "more"))
	if err != nil || !ph.Is(wire.ProtoSASL) || ph.Is(wire.ProtoAMQP) || ph.String() != `"AMQP" id 3 version 1.0.0` {
		t.Errorf("got %v, %v", ph, err)
	}
	if _, err := wire.ParseProtoHeader([]byte("HTTP/1.1")); err == nil || err.(*wire.DecodeError).Short {
		t.Errorf("HTTP: got %v", err)
	}
	if _, err := wire.ParseProtoHeader([]byte("AM")); err == nil || !err.(*wire.DecodeError).Short {
		t.Errorf("AM: got %v", err)
	}
}

func TestTransferHeadersSayWhatTheTransferSays(t *testing.T) {
	tags := [][]byte{nil, {}, {1}, make([]byte, 32), make([]byte, 33), make([]byte, 300)}
	for bits := range 1 << 9 {
		on := func(i int) bool { return bits>>i&1 != 0 }
		for _, tag := range tags {
			want := wire.Transfer{Handle: 7, Tag: tag, HasTag: tag != nil, HasDeliveryID: on(0), HasMessageFormat: on(1), HasSettled: on(2),
				Settled: on(2) && on(3), More: on(4), HasRcvSettleMode: on(5), Resume: on(6), Aborted: on(7), Batchable: on(8)}
			if on(0) {
				want.DeliveryID = 1 << 20
			}
			if on(1) && on(3) {
				want.MessageFormat = 5
			}
			frame := wire.AppendTransferFrame([]byte("xy"), 0x102, &want, []byte("payload"))[2:]
			h, err := wire.ParseFrameHeader(frame)
			if err != nil || h != (wire.FrameHeader{Size: uint32(len(frame)), DataOffset: 2, Channel: 0x102}) {
				t.Fatalf("%+v: header %+v, %v", want, h, err)
			}
			var got wire.Transfer
			rest, err := got.Parse(frame[8:])
			if err != nil || string(rest) != "payload" || !reflect.DeepEqual(got, want) {
				t.Fatalf("got %+v, %q, %v\nwant %+v", got, rest, err, want)
			}
			if n := len(frame) - len("payload"); len(tag) <= wire.MaxTagSize && n > wire.MaxTransferHeader {
				t.Fatalf("%+v: header of %d bytes", want, n)
			}
			if head := wire.AppendTransferHeader(nil, 0x102, &want); int(head[3])|int(head[2])<<8 != len(head) {
				t.Fatalf("%+v: size of the header alone: % x", want, head)
			}
		}
	}
}

func TestStates(t *testing.T) {
	for _, c := range []struct {
		state wire.State
		hex   string
	}{
		{wire.State{}, ""},
		{wire.State{Kind: wire.Received, SectionNumber: 1, SectionOffset: 2}, "00 53 23 c0 05 02 52 01 53 02"},
		{wire.State{Kind: wire.Accepted}, "00 53 24 45"},
		{wire.State{Kind: wire.Rejected}, wireHex(wire.EncodedRejected)},
		{wire.State{Kind: wire.Rejected, Error: &wire.Error{Condition: "a"}}, "00 53 25 c0 0a 01 00 53 1d c0 04 01 a3 01 61"},
		{wire.State{Kind: wire.Released}, "00 53 26 45"},
		{wire.State{Kind: wire.Modified}, "00 53 27 45"},
		{wire.State{Kind: wire.Modified, DeliveryFailed: true, UndeliverableHere: true, Annotations: wire.Map{{wire.Symbol("x"), nil}}},
			"00 53 27 c0 0a 03 41 41 c1 05 02 a3 01 78 40"},
		{wire.State{Kind: wire.Declared, TxnID: []byte{1}}, "00 53 33 c0 04 01 a0 01 01"},
		{wire.State{Kind: wire.Transactional, TxnID: []byte{1}, Outcome: []byte(wire.EncodedAccepted)}, "00 53 34 c0 08 02 a0 01 01 00 53 24 45"},
	} {
		want := unhex(t, c.hex)
		if got := c.state.Append(nil); !bytes.Equal(got, want) {
			t.Errorf("%v: got % x, want % x", c.state.Kind, got, want)
		}
		var got wire.State
		if err := got.Parse(want); err != nil || !reflect.DeepEqual(got, c.state) || wire.PeekState(want) != c.state.Kind {
			t.Errorf("%v: got %+v, %v", c.state.Kind, got, err)
		}
		if len(want) > 0 && got.Parse(append(want, 0x40)) == nil {
			t.Errorf("%v: trailing byte: no error", c.state.Kind)
		}
	}
	for h, want := range map[string]wire.StateKind{
		"40": wire.StateNone, "00 a3 12 616d71703a61636365707465643a6c697374 45": wire.Accepted, "00 80 0000000000000026 45": wire.Released,
		"00 53 99 45": wire.Unknown, "00 a3 01 78 45": wire.Unknown, "41": wire.Unknown, "00": wire.Unknown,
	} {
		if got := wire.PeekState(unhex(t, h)); got != want {
			t.Errorf("%s: got %v, want %v", h, got, want)
		}
	}
	for _, h := range []string{"00", "00 53 24 c0 02 01 40", "00 53 23 45", "00 53 33 45", "00 53 99 c0 00"} {
		if err := new(wire.State).Parse(unhex(t, h)); err == nil {
			t.Errorf("%s: no error", h)
		}
	}
}

func wireHex(s string) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := range len(s) {
		b.WriteByte(digits[s[i]>>4])
		b.WriteByte(digits[s[i]&15])
	}
	return b.String()
}
