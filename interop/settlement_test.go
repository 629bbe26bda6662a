package interop

import (
	"fmt"
	"testing"

	"github.com/Azure/go-amqp"
)

// tree gives the value at the field numbers and keys of a decoded state, nil where there is none.
func tree(v any, path ...any) any {
	for _, p := range path {
		if d, ok := v.(tagged); ok {
			v = d.value
		}
		switch k := p.(type) {
		case int:
			items, _ := v.([]any)
			if k >= len(items) {
				return nil
			}
			v = items[k]
		case string:
			m, _ := v.(pairs)
			v = nil
			for i := 0; i+1 < len(m); i += 2 {
				if m[i] == symbol(k) {
					v = m[i+1]
				}
			}
		}
	}
	return v
}

// What a sender is told of the copies of its message, as bytes on the wire.
func TestEachCopyIsToldOf(t *testing.T) {
	no := composite(rejected, composite(errorCode, sym("x:no"), str("not me")))
	again := composite(modified, boolean(true))
	for _, c := range []struct {
		name    string
		answers [][]byte
		want    string
		path    []any
	}{
		{"one rejects", [][]byte{composite(accepted), no}, "rejected x:no", []any{0, 2, "copies"}},
		{"one has it modified", [][]byte{composite(accepted), again}, "modified", []any{2, "x-opt-fingerpost-copies"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := ""
			for _, answer := range c.answers {
				s := listenRaw(t, func(*rawDelivery) []byte { return answer })
				table += fmt.Sprintf("A --> amqp://%s\n", s.addr)
			}
			r := startRouter(t, "copies", table)
			s := newRawSender(t, r.addr, nil)
			o := s.deliver(t, join(composite(propertiesSection, null, null, str("A")), described(dataSection, binaryv([]byte("x")))))
			if o.String() != c.want || !o.settled {
				t.Errorf("got %v, settled %v, want %s", o, o.settled, c.want)
			}
			copies, _ := tree(o.value, c.path...).([]any)
			if len(copies) != len(c.answers) {
				t.Fatalf("the copies are %v in %v", copies, o.value)
			}
			outcomes := map[any]bool{}
			for _, x := range copies {
				outcomes[tree(x, "outcome")] = true
				if hop, _ := tree(x, "hop").(string); len(hop) < len("amqp://") {
					t.Errorf("hop %q", hop)
				}
			}
			if !outcomes["accepted"] || len(outcomes) != 2 {
				t.Errorf("outcomes %v", outcomes)
			}
		})
	}
}

// A message that a peer had when its connection broke comes again, with a higher delivery-count, to the same peer.
func TestSentAgainAfterACut(t *testing.T) {
	cut := false
	server := listenRaw(t, func(d *rawDelivery) []byte {
		if !cut {
			cut = true
			d.peer.Close()
			return nil
		}
		return composite(accepted)
	})
	r := startRouter(t, "again", fmt.Sprintf("A --> amqp://%s\n", server.addr))
	s := newRawSender(t, r.addr, nil)
	head := composite(headerSection, boolean(true), ubyte(7), null, boolean(true))
	rest := join(composite(propertiesSection, null, null, str("A")), described(dataSection, binaryv([]byte("x"))))
	if o := s.deliver(t, join(head, rest)); o.state != "accepted" {
		t.Fatalf("got %v", o)
	}
	got := server.wait(t, 2)
	for i, want := range []struct {
		first any
		count any
	}{{true, nil}, {nil, uint64(1)}} {
		all, err := sections(got[i].payload)
		if err != nil || all[0].code != headerSection {
			t.Fatalf("message %d: %v", i, err)
		}
		v, _, _ := decode(all[0].raw)
		if first, count := tree(v, 3), tree(v, 4); first != want.first || count != want.count || tree(v, 0) != true || tree(v, 1) != uint64(7) {
			t.Errorf("message %d: header %v", i, v)
		}
	}
}

// Both ends of go-amqp in receiver mode second.
func TestModeSecondOfGoAMQP(t *testing.T) {
	r := startRouter(t, "second", "")
	receiver, err := dialGo(t, r.url()).NewReceiver(within(t), "A", &amqp.ReceiverOptions{SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := dialGo(t, r.url()).NewSender(within(t), "A", &amqp.SenderOptions{
		SettlementMode: amqp.SenderSettleModeUnsettled.Ptr(), RequestedReceiverSettleMode: amqp.ReceiverSettleModeSecond.Ptr()})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		receipt, err := sender.SendWithReceipt(within(t), amqp.NewMessage(bodyOf(i, 10)), nil)
		if err != nil {
			t.Fatal(err)
		}
		m, err := receiver.Receive(within(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := receiver.AcceptMessage(within(t), m); err != nil {
			t.Fatal(err)
		}
		state, err := receipt.Wait(within(t))
		if _, ok := state.(*amqp.StateAccepted); !ok || err != nil {
			t.Fatalf("message %d: %T, %v", i, state, err)
		}
	}
}

// A receiver in mode second as bytes: its outcome is unsettled, and the router's answer settles it.
func TestModeSecondOfARawReceiver(t *testing.T) {
	r := startRouter(t, "second", "")
	c := dialRaw(t, r.addr)
	if err := c.session(0); err != nil {
		t.Fatal(err)
	}
	c.write(0, composite(attach, str("raw"), uint32v(0), boolean(true), ubyte(2), ubyte(1), composite(source, str("A")), composite(target, str("raw"))))
	if f, err := c.await(attach); err != nil || f.number(4) != 1 {
		t.Fatalf("attach: %v %v", f, err)
	}
	c.write(0, composite(flow, uint32v(0), uint32v(1<<31-1), uint32v(0), uint32v(1<<31-1), uint32v(0), uint32v(0), uint32v(1)))
	s := newRawSender(t, r.addr, []byte("A"))
	id, err := s.send(described(dataSection, binaryv([]byte("x"))), false)
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.await(transfer)
	if err != nil {
		t.Fatal(err)
	}
	d := uint32(f.number(1))
	c.write(0, composite(disposition, boolean(true), uint32v(d), uint32v(d), boolean(false), composite(accepted)))
	f, err = c.await(disposition)
	if err != nil || f.flag(0) || f.number(1) != uint64(d) || !f.flag(3) {
		t.Errorf("the router's answer: %v %v", f, err)
	}
	if o, err := s.outcome(id); err != nil || o.state != "accepted" || !o.settled {
		t.Errorf("the sender's outcome: %v %v", o, err)
	}
}
