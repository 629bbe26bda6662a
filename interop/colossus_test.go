package interop

import (
	"fmt"
	"testing"

	"github.com/Azure/go-amqp"
)

// sendersTable is the table of the seed's Sender: everything goes to the Router.
func sendersTable(router string) string {
	return rows("COLOSSUS", router, "GUARDIAN", router, "HAL9000", router, "SKYNET", router, "MULTIVAC", router)
}

// The seed's story, with foreign receivers: a Sender that knows the Router alone, and a Router that knows where names are.
func TestColossus(t *testing.T) {
	firstArm, firstAddr := serveBy(t, rhea)
	secondArm, secondAddr := serveBy(t, proton)
	guardian, guardianAddr := serveBy(t, proton)
	skynet, skynetAddr := serveBy(t, rhea)
	router := startRouter(t, "router", rows(
		"COLOSSUS", firstAddr, "COLOSSUS", "amqp://"+secondAddr, "GUARDIAN", guardianAddr, "HAL9000", "null", "SKYNET", skynetAddr))
	sender := startRouter(t, "sender", sendersTable(router.addr))

	for _, kind := range allClients {
		for _, anonymous := range []bool{false, true} {
			name := kind + " on a link to the name"
			if anonymous {
				name = kind + " on an anonymous link"
			}
			t.Run(name, func(t *testing.T) {
				batch := func(to string) batchOf {
					b := batchOf{address: to, to: to, id: fmt.Sprintf("%s-%s-%v", to, kind, anonymous), count: 5, sizes: []int{100, 0, 1000}}
					if anonymous {
						b.address = ""
					}
					return b
				}
				b := batch("COLOSSUS")
				sameOutcomes(t, "COLOSSUS", sendBy(t, kind, sender.url(), b), "accepted")
				sameMessages(t, "the first arm", messagesOf(firstArm, b.count), b.want())
				sameMessages(t, "the second arm", messagesOf(secondArm, b.count), b.want())

				b = batch("GUARDIAN")
				sameOutcomes(t, "GUARDIAN", sendBy(t, kind, sender.url(), b), "accepted")
				sameMessages(t, "GUARDIAN", messagesOf(guardian, b.count), b.want())

				b = batch("SKYNET")
				sameOutcomes(t, "SKYNET", sendBy(t, kind, sender.url(), b), "accepted")
				sameMessages(t, "SKYNET", messagesOf(skynet, b.count), b.want())

				sameOutcomes(t, "HAL9000", sendBy(t, kind, sender.url(), batch("HAL9000")), "accepted")
				if anonymous {
					sameOutcomes(t, "DEEP-THOUGHT, known to nobody", sendBy(t, kind, sender.url(), batch("DEEP-THOUGHT")), "rejected amqp:not-found")
				}
			})
		}
	}
	// Nothing came twice, and nothing of HAL9000: the next that each gets is the marker.
	for name, arm := range map[string][]*process{"COLOSSUS": {firstArm, secondArm}, "GUARDIAN": {guardian}, "SKYNET": {skynet}} {
		b := batchOf{to: name, id: "marker", count: 1, sizes: []int{1}}
		sameOutcomes(t, name, sendBy(t, goAMQP, sender.url(), b), "accepted")
		for _, p := range arm {
			sameMessages(t, p.name+" of "+name, messagesOf(p, 1), b.want())
		}
	}
}

// A name that the Sender knows and the Router does not is refused by the Router, end to end. The Sender's link to the Router
// has a target or none, as its row says: on one with a target the Router may wait for a row, so the time-out is short.
func TestTheSecondNodeRefuses(t *testing.T) {
	router := startRouter(t, "router", rows("HAL9000", "null"))
	sender := startRouter(t, "sender", rows("MULTIVAC", router.addr, "HAL9000", router.addr))
	session := dialGo(t, sender.url())
	s, err := session.NewSender(within(t), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]string{"HAL9000": "accepted", "MULTIVAC": "rejected amqp:not-found"} {
		m := amqp.NewMessage([]byte("x"))
		m.Properties = &amqp.MessageProperties{To: &to}
		if o := sendOne(t, s, m); o != want {
			t.Errorf("%s: got %q, want %q", to, o, want)
		}
	}
}

// The same story with bare frames: every byte of the message at both places is the byte that was sent.
func TestColossusByteForByte(t *testing.T) {
	first, second := listenRaw(t, nil), listenRaw(t, nil)
	router := startRouter(t, "router", rows("COLOSSUS", first.url(""), "COLOSSUS", second.url("named")))
	sender := startRouter(t, "sender", sendersTable(router.addr))
	attached := newRawReceiver(t, router.addr, "COLOSSUS", 100)
	s := newRawSender(t, sender.addr, nil)
	for n, message := range oddMessages("COLOSSUS") {
		id, err := s.send(message.bytes, false)
		if err != nil {
			t.Fatalf("%s: %v", message.name, err)
		}
		d, err := attached.receive(patience)
		if err != nil {
			t.Fatalf("%s: attached receiver: %v", message.name, err)
		}
		sameMessage(t, message.name+", attached receiver", message.bytes, d.payload, 0)
		if o, err := s.outcome(id); err != nil || o.state != "accepted" || !o.settled {
			t.Fatalf("%s: outcome: got %v, settled %v, %v; want accepted and settled", message.name, o, o.settled, err)
		}
		sameMessage(t, message.name+", first arm", message.bytes, first.wait(t, n+1)[n].payload, 2)
		sameMessage(t, message.name+", second arm", message.bytes, second.wait(t, n+1)[n].payload, 2)
	}
	for _, d := range second.all() {
		if d.target != "named" && d.target != "COLOSSUS" {
			t.Errorf("target of the second arm's link: got %q, want named (or the name itself)", d.target)
			break
		}
	}
	for _, s := range []*rawServer{first, second} {
		if extra := len(s.all()) - len(oddMessages("COLOSSUS")); extra != 0 {
			t.Errorf("receiver %s has %d messages more than were sent", s.addr, extra)
		}
	}
}
