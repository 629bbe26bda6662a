package interop

import "testing"

// The foreign clients understand each other without a router between them: what they say of a message can be compared.
func TestClientsAgreeAmongThemselves(t *testing.T) {
	for _, server := range []string{rhea, proton} {
		for _, sender := range allClients {
			t.Run(sender+" to "+server, func(t *testing.T) {
				t.Parallel()
				p, addr := serveBy(t, server)
				b := batchOf{address: "X", to: "COLOSSUS", id: "m", count: 4, sizes: []int{0, 1, 100, 70_000}}
				sameOutcomes(t, sender, sendBy(t, sender, "amqp://"+addr, b), "accepted")
				sameMessages(t, server, messagesOf(p, b.count), b.want())
			})
		}
	}
}

// The peer of bare frames understands the foreign clients.
func TestTheRawPeerAgreesWithTheClients(t *testing.T) {
	for _, sender := range allClients {
		t.Run(sender, func(t *testing.T) {
			t.Parallel()
			s := listenRaw(t, nil)
			b := batchOf{address: "X", to: "COLOSSUS", id: "m", count: 3, sizes: []int{0, 100, 300_000}}
			sameOutcomes(t, sender, sendBy(t, sender, s.url(""), b), "accepted")
			var have []got
			for _, d := range s.wait(t, b.count) {
				have = append(have, gotRaw(t, d.payload))
				if d.target != "X" {
					t.Errorf("target: got %q, want X", d.target)
				}
			}
			sameMessages(t, "the raw peer", have, b.want())
		})
	}
	for _, server := range []string{rhea, proton} {
		t.Run("to "+server, func(t *testing.T) {
			t.Parallel()
			p, addr := serveBy(t, server)
			s := newRawSender(t, addr, []byte("X"))
			b := batchOf{to: "COLOSSUS", id: "m", count: 2, sizes: []int{5, 200_000}}
			for n := range b.count {
				if o := s.deliver(t, messageOf(b, n)); o.state != "accepted" {
					t.Errorf("outcome: got %v, want accepted", o)
				}
			}
			sameMessages(t, server, messagesOf(p, b.count), b.want())
		})
	}
}
