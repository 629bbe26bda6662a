package wire

import "testing"

// A server that answers with the fields of a source where a target belongs is understood, as long as those too many are null.
func TestSurplusNullsOfATerminus(t *testing.T) {
	a := Attach{Name: "l", Source: &Source{}, Target: &Target{Address: "q", HasAddress: true}}
	whole := a.Append(nil)
	if _, err := new(Attach).Parse(whole); err != nil {
		t.Fatal(err)
	}
	target := func(surplus ...byte) []byte {
		fields := []byte{0xa1, 1, 'q', 0x40, 0x40, 0x40, 0x40, 0x40, 0x40}
		fields = append(fields, surplus...)
		return append([]byte{0x00, 0x53, 0x29, 0xc0, byte(len(fields) + 1), byte(7 + len(surplus))}, fields...)
	}
	attach := func(target []byte) []byte {
		fields := append([]byte{0xa1, 1, 'l', 0x43, 0x41, 0x40, 0x40, 0x00, 0x53, 0x28, 0x45}, target...)
		fields = append(fields, 0x40, 0x40, 0x43)
		return append([]byte{0x00, 0x53, 0x12, 0xc0, byte(len(fields) + 1), 10}, fields...)
	}
	var got Attach
	if _, err := got.Parse(attach(target(0x40, 0x40, 0x40, 0x40))); err != nil || got.Target.Address != "q" || !got.HasInitialDeliveryCount {
		t.Errorf("four nulls too many: %v, %+v", err, got.Target)
	}
	if _, err := got.Parse(attach(target(0x41))); err == nil {
		t.Error("a field too many that says something was passed over")
	}
}
