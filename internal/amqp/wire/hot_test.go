package wire

import (
	"bytes"
	"reflect"
	"testing"
)

// FuzzFastIsSlow holds the straight-line halves of the hot parsers to the ones that take everything.
func FuzzFastIsSlow(f *testing.F) {
	t := Transfer{Handle: 1, DeliveryID: 300, HasDeliveryID: true, Tag: []byte{1}, HasTag: true, HasMessageFormat: true, HasSettled: true, More: true}
	f.Add(t.Append(nil))
	fl := Flow{HasNextIncomingID: true, HasHandle: true, Handle: 300, HasDeliveryCount: true, HasLinkCredit: true, HasAvailable: true, Drain: true, Echo: true}
	f.Add(fl.Append(nil))
	d := Disposition{Role: true, First: 1, Last: 300, Settled: true, State: []byte(EncodedAccepted), Batchable: true}
	f.Add(d.Append(nil))
	f.Add([]byte("\x00\x53\x14\xc0\x0c\x0b\x43\x40\x40\x40\x40\x40\x40\x40\x42\x40\x42"))
	f.Add([]byte("\x00\x53\x15\xd0\x00\x00\x00\x10\x00\x00\x00\x05\x41\x43\x40\x40\x00\xa3\x01x\xa1\x01a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = bytes.Clone(b)
		for _, code := range []byte{CodeTransfer, CodeFlow, CodeDisposition} {
			if len(b) > 3 && b[0] == 0 && b[1] == fmtSmallUlong {
				b[2] = code // every body is tried as each of the three
			}
			var fast, slow any
			var end int
			var rest []byte
			var err error
			switch code {
			case CodeTransfer:
				var x, y Transfer
				end = x.parseFast(b)
				rest, err = y.parseSlow(b)
				fast, slow = x, y
			case CodeFlow:
				var x, y Flow
				end = x.parseFast(b)
				rest, err = y.parseSlow(b)
				fast, slow = x, y
			case CodeDisposition:
				var x, y Disposition
				end = x.parseFast(b)
				rest, err = y.parseSlow(b)
				fast, slow = x, y
			}
			if end != 0 && (err != nil || end != len(b)-len(rest) || !reflect.DeepEqual(fast, slow)) {
				t.Fatalf("0x%x: fast %+v up to %d\nslow %+v up to %d, %v", code, fast, end, slow, len(b)-len(rest), err)
			}
		}
	})
}
