package interop

import (
	"encoding/json"
	"testing"
	"time"
)

// check compares what became of every message with where it went: what was accepted is at every place.
func (f *flowing) check(t *testing.T, places map[string]map[int]int) {
	t.Helper()
	states := map[string]int{}
	for n, one := range f.flights {
		state := one.outcome
		if state == "" {
			state = "no outcome"
		}
		states[state]++
		if state != "accepted" {
			continue
		}
		for place, got := range places {
			if got[n] == 0 {
				t.Errorf("message %d was accepted, and %s does not have it", n, place)
			}
		}
	}
	t.Logf("outcomes: %v", states)
	if states["accepted"] < len(f.flights)/2 {
		t.Errorf("got outcomes %v, want most accepted", states)
	}
	for state := range states {
		if state != "accepted" && state != "modified" && state != "released" && (state != "no outcome" || f.err == nil) {
			t.Errorf("got outcome %q %d times", state, states[state])
		}
	}
}

// received counts the messages of a flow at a place.
func (s *rawServer) received() map[int]int {
	got := map[int]int{}
	for _, d := range s.all() {
		got[numberOf(d)]++
	}
	return got
}

// The connection to a hop is cut again and again. What was accepted is there; what came twice says so.
func TestCutConnections(t *testing.T) {
	cutUnderLoad(t, startRouter(t, "cut", ""), "COLOSSUS", 5)
}

func cutUnderLoad(t *testing.T, r *router, name string, cuts int) {
	t.Helper()
	shaky, steady := listenRaw(t, nil), listenRaw(t, nil)
	r.ctl(t, "add", name, shaky.url(""))
	r.ctl(t, "add", name, steady.url(""))
	flow := startFlow(newRawSender(t, r.addr, []byte(name)), name, 1000)
	for range cuts {
		had := len(shaky.all())
		shaky.wait(t, had+20)
		shaky.cut()
	}
	if _, err := flow.finish(); err != nil {
		t.Fatal(err)
	}
	flow.check(t, map[string]map[int]int{"the shaky place": shaky.received(), "the steady place": steady.received()})
	seen := map[int]bool{}
	for _, d := range shaky.all() {
		n := numberOf(d)
		if seen[n] && deliveryCount(t, d.payload) == 0 {
			t.Errorf("message %d came again with a delivery-count of 0", n)
		}
		seen[n] = true
	}
	for n, times := range steady.received() {
		if times > 1 {
			t.Errorf("the steady place got message %d %d times", n, times)
		}
	}
}

// deliveryCount is in the header of a message, its fifth field.
func deliveryCount(t *testing.T, payload []byte) uint64 {
	t.Helper()
	all, err := sections(payload)
	if err != nil {
		t.Fatal(err)
	}
	if all[0].code != headerSection {
		return 0
	}
	v, _, err := decode(all[0].raw)
	if err != nil {
		t.Fatal(err)
	}
	fields, _ := v.(tagged).value.([]any)
	return (&frame{fields: fields}).number(4)
}

// The router is killed in the middle. What it had said to be accepted is at the receivers.
func TestTheRouterIsKilled(t *testing.T) {
	one, two := listenRaw(t, nil), listenRaw(t, nil)
	r := startRouter(t, "mortal", rows("COLOSSUS", one.url(""), "COLOSSUS", two.url("")))
	flow := startFlow(newRawSender(t, r.addr, []byte("COLOSSUS")), "COLOSSUS", 1<<30)
	two.wait(t, 500)
	r.kill()
	if _, err := flow.finish(); err == nil {
		t.Fatal("the sender did not notice")
	}
	flow.check(t, map[string]map[int]int{"the first place": one.received(), "the second place": two.received()})
}

// A foreign receiver is killed in the middle: the sender is told, the other receivers get all that was accepted, and the
// dead one's row is gone.
func TestAReceiverIsKilled(t *testing.T) {
	for _, kind := range []string{rhea, proton} {
		t.Run(kind, func(t *testing.T) {
			steady := listenRaw(t, nil)
			r := startRouter(t, "receivers", rows("COLOSSUS", steady.url("")))
			p := client(t, kind, "recv", "--url", r.url(), "--address", "COLOSSUS")
			waitReady(p)
			flow := startFlow(newRawSender(t, r.addr, []byte("COLOSSUS")), "COLOSSUS", 1000)
			for range 200 {
				nextMessage(p)
			}
			p.cmd.Process.Kill()
			eventually(t, "the row of the dead receiver is gone", func() bool {
				var all []map[string]any
				json.Unmarshal([]byte(r.ctl(t, "list", "--pattern", "COLOSSUS", "-o", "json")), &all)
				return len(all) == 1
			})
			had := len(steady.all())
			steady.wait(t, had+100)
			if _, err := flow.finish(); err != nil {
				t.Fatal(err)
			}
			flow.check(t, map[string]map[int]int{"the steady place": steady.received()})
		})
	}
}

// A hop that is not there yet: messages wait for it, in order, and are accepted when it has come.
func TestAHopComesLate(t *testing.T) {
	gone := listenRaw(t, nil)
	addr := gone.addr
	gone.stop()
	r := startRouter(t, "early", rows("COLOSSUS", addr))
	s := newRawSender(t, r.addr, []byte("COLOSSUS"))
	b := batchOf{to: "COLOSSUS", id: "m", count: 20, sizes: []int{10}}
	for n := range b.count {
		if _, err := s.send(messageOf(b, n), false); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	late := listenRawOn(t, addr, nil)
	for n, d := range late.wait(t, b.count) {
		if g := gotRaw(t, d.payload); g != b.want()[n] {
			t.Errorf("message %d: got %v, want %v", n, g, b.want()[n])
		}
	}
	for n := range b.count {
		if o, err := s.outcome(uint32(n)); err != nil || o.state != "accepted" {
			t.Errorf("message %d: %v, %v", n, o, err)
		}
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the hop was found after %v", took)
	}
}
