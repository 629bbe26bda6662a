package mesh

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
)

// receiver attaches a receiver of AMQP to a topic.
func receiver(t testing.TB, s *amqp.Session, address string) *amqp.Receiver {
	t.Helper()
	r, err := s.NewReceiver(within(t), address, &amqp.ReceiverOptions{SettlementMode: amqp.ReceiverSettleModeFirst.Ptr()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sender(t testing.TB, s *amqp.Session, address string) *amqp.Sender {
	t.Helper()
	snd, err := s.NewSender(within(t), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return snd
}

// sent sends in the background and gives what becomes of it.
func sent(t testing.TB, snd *amqp.Sender, m *amqp.Message) chan error {
	told := make(chan error, 1)
	go func() { told <- snd.Send(within(t), m, nil) }()
	return told
}

func next(t testing.TB, r *amqp.Receiver) *amqp.Message {
	t.Helper()
	m, err := r.Receive(within(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What is sent over AMQP at one end of a line of routers comes out at the other as it was, whichever side connected, over WebSocket and over TCP, and its sender has
// the outcome that its receiver gave, and not before.
func TestAMQPAcrossRouters(t *testing.T) {
	for _, scheme := range []string{"ws", "tcp"} {
		for _, up := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, up %t", scheme, up), func(t *testing.T) { amqpAcrossRouters(t, scheme, up) })
		}
	}
}

func amqpAcrossRouters(t *testing.T, scheme string, up bool) {
	routers := lineOf(t, 3, scheme)
	from, to := routers[0], routers[2]
	if !up {
		from, to = to, from
	}
	rcv := receiver(t, to.session(), "topic:orders/new")
	from.knows("topic:orders/new", 1)
	if _, err := from.table.Add("orders", "topic:orders/new"); err != nil {
		t.Fatal(err)
	}
	snd := sender(t, from.session(), "orders")
	for _, body := range [][]byte{[]byte("small"), bytes.Repeat([]byte("large"), 1<<20)} {
		text := "text"
		told := sent(t, snd, &amqp.Message{Value: text, ApplicationProperties: map[string]any{"k": "v"}, Properties: &amqp.MessageProperties{MessageID: "7"}})
		m := next(t, rcv)
		if m.Value != text || m.Properties.MessageID != "7" || m.ApplicationProperties["k"] != "v" || len(m.Annotations) > 0 {
			t.Errorf("got %+v", m)
		}
		select {
		case err := <-told:
			t.Fatalf("the sender has its outcome before the receiver gave one: %v", err)
		default:
		}
		rcv.AcceptMessage(within(t), m)
		if err := <-told; err != nil {
			t.Error(err)
		}

		told = sent(t, snd, amqp.NewMessage(body))
		m = next(t, rcv)
		if !bytes.Equal(m.GetData(), body) {
			t.Errorf("%d bytes came, not the %d that were sent", len(m.GetData()), len(body))
		}
		rcv.RejectMessage(within(t), m, &amqp.Error{Condition: "no:good"})
		var refused *amqp.Error
		if err := <-told; !errors.As(err, &refused) || refused.Condition != "no:good" {
			t.Errorf("the sender is told %v", err)
		}
	}

	// A component at the far end acknowledges, and that is the outcome.
	alice := to.component("alice", "orders/new")
	rcv.Close(within(t))
	to.knows("topic:orders/new", 1)
	told := sent(t, snd, amqp.NewMessage([]byte{0xde, 0xad}))
	f := alice.publish()
	if f.QoS() != flagQoS1 || fmt.Sprintf("%x", f.Data) != "8142dead" {
		t.Errorf("the component gets %+v", f)
	}
	select {
	case err := <-told:
		t.Errorf("it is accepted before the component says so: %v", err)
	default:
	}
	alice.send(&Frame{Type: Ack, ID: f.ID})
	if err := <-told; err != nil {
		t.Error(err)
	}
}

// lineOf is a line of routers whose links speak over WebSocket or TCP.
func lineOf(t *testing.T, n int, scheme string) []*router {
	t.Helper()
	var routers []*router
	var edges [][2]int
	for i := range n {
		r := startRouter(t, Options{Name: fmt.Sprintf("r%d", i)})
		if routers = append(routers, r); i == 0 {
			continue
		}
		at := routers[i-1].ws
		if scheme == "tcp" {
			at = routers[i-1].tcp
		}
		if err := r.m.Connect(PeerOptions{URL: scheme + "://" + at, As: fmt.Sprintf("r%d", i), Period: 20 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		edges = append(edges, [2]int{i, i - 1})
	}
	whole(routers, edges)
	return routers
}

// On every graph a message comes to each receiver once, and its sender has the outcome of all.
func TestAMQPOnEveryGraph(t *testing.T) {
	for name, edges := range graphs {
		t.Run(name, func(t *testing.T) {
			routers := meshOf(t, 4, edges...)
			var receivers []*amqp.Receiver
			for _, r := range routers {
				receivers = append(receivers, receiver(t, r.session(), "topic:news"))
			}
			for _, r := range routers {
				r.knows("topic:news", 4)
			}
			const each = 5
			for i, r := range routers {
				snd := sender(t, r.session(), "topic:news")
				for j := range each {
					told := sent(t, snd, amqp.NewMessage([]byte{byte(i), byte(j)}))
					for k, rcv := range receivers {
						m := next(t, rcv)
						if !bytes.Equal(m.GetData(), []byte{byte(i), byte(j)}) {
							t.Errorf("%d sends %d, and %d gets %x", i, j, k, m.GetData())
						}
						rcv.AcceptMessage(within(t), m)
					}
					if err := <-told; err != nil {
						t.Errorf("%d sends %d: %v", i, j, err)
					}
				}
			}
			repeats := uint64(0)
			for _, r := range routers {
				repeats += r.node.Counters()["repeats"]
			}
			if hasRing := len(edges) >= len(routers); hasRing != (repeats > 0) {
				t.Errorf("%d messages came by two ways", repeats)
			}
			for i, rcv := range receivers {
				if m := rcv.Prefetched(); m != nil {
					t.Errorf("%d gets %x too", i, m.GetData())
				}
			}
		})
	}
}
