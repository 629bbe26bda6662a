package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/routetable"
)

// receiver attaches a receiver of AMQP to a topic.
func receiver(t testing.TB, s *amqp.Session, address string) *amqp.Receiver {
	t.Helper()
	r, err := s.NewReceiver(within(t), address, &amqp.ReceiverOptions{Credit: 10})
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

// A request over AMQP is answered across routers, whoever connected to whom.
func TestRepliesAcrossRouters(t *testing.T) {
	routers := lineOf(t, 3, "ws")
	for _, way := range [][2]int{{0, 2}, {2, 0}} {
		from, to := routers[way[0]], routers[way[1]]
		topic := fmt.Sprintf("topic:ask%d", way[0])
		server, client := to.session(), from.session()
		requests := receiver(t, server, topic)
		from.knows(topic, 1)
		answers, err := client.NewReceiver(within(t), "", &amqp.ReceiverOptions{DynamicAddress: true})
		if err != nil {
			t.Fatal(err)
		}
		address := answers.Address()
		told := sent(t, sender(t, client, topic), &amqp.Message{Data: [][]byte{{1}}, Properties: &amqp.MessageProperties{ReplyTo: &address}})
		m := next(t, requests)
		requests.AcceptMessage(within(t), m)
		if err := <-told; err != nil {
			t.Fatal(err)
		}
		told = sent(t, sender(t, server, *m.Properties.ReplyTo), amqp.NewMessage([]byte{2}))
		if m = next(t, answers); m.GetData()[0] != 2 {
			t.Errorf("got %x", m.GetData())
		}
		answers.AcceptMessage(within(t), m)
		if err := <-told; err != nil {
			t.Error(err)
		}
	}
}

// A router looks at its own grants, whatever those before let pass, and trusts nothing that they say: what a neighbour may not send is rejected, over AMQP too,
// and nothing private goes to one that may not hear it.
func TestGrantsAtEveryHop(t *testing.T) {
	routers := lineOf(t, 3, "ws")
	boss := routers[1].component("boss")
	rcv := receiver(t, routers[2].session(), "topic:secret")
	first, last := routers[0].component("first", "secret"), routers[2].component("last")
	routers[0].knows("topic:secret", 2)
	routers[2].knows("topic:secret", 2)
	snd := sender(t, routers[0].session(), "topic:secret")
	back := sender(t, routers[1].session(), "topic:secret")
	passes := func(snd *amqp.Sender, b byte) {
		t.Helper()
		told := sent(t, snd, amqp.NewMessage([]byte{b}))
		m := next(t, rcv)
		if m.GetData()[0] != b {
			t.Errorf("got %x, not %x", m.GetData(), b)
		}
		rcv.AcceptMessage(within(t), m)
		f := first.publish()
		first.send(&Frame{Type: Ack, ID: f.ID})
		if !bytes.Equal(f.Data, []byte{0x81, 0x41, b}) {
			t.Errorf("got %x, not %x", f.Data, b)
		}
		if err := <-told; err != nil {
			t.Error(err)
		}
	}
	passes(snd, 1)
	passes(back, 2)

	boss.admin("secret", "private_topic")
	routers[1].knows("topic:secret", 0) // nobody may hear it
	var refused *amqp.Error
	boss.admin("secret", "authorize", "cid", `"r2"`) // of the link to the last router
	routers[1].knows("topic:secret", 1)
	told := sent(t, snd, amqp.NewMessage([]byte{4}))
	f := first.publish()
	first.send(&Frame{Type: Ack, ID: f.ID})
	if err := <-told; !errors.As(err, &refused) || refused.Condition != amqp.ErrCondUnauthorizedAccess {
		t.Errorf("what a neighbour may not send: %v", err)
	}
	// Frames of Rembus are dropped without a word, commands refused, methods of those who may not have them are none.
	first.send(&Frame{Type: Publish, Name: []byte("secret"), Data: []byte{0x81, 5}})
	first.admin("secret", "expose")
	routers[1].until("it is known", func() bool {
		routers[1].m.kin.mu.Lock()
		defer routers[1].m.kin.mu.Unlock()
		for _, things := range routers[1].m.kin.atlas.origins {
			if things[thing{thingMethod, "secret"}].alive {
				return true
			}
		}
		return false
	})
	if f := boss.ask(&Frame{Type: Request, Name: []byte("secret"), Data: []byte{0x80}}); f.Status != StatusError {
		t.Errorf("status %d", f.Status)
	}
	for r := range routers[1].table.Snapshot().Routes() {
		if r.Pattern == "rpc:secret" {
			t.Errorf("there is %s → %s", r.Pattern, r.Address)
		}
	}
	last.send(&Frame{Type: Publish, Name: []byte("secret"), Data: []byte{0x81, 6}}) // comes to the receiver beside it, and to the router in between, which does not pass it on
	m := next(t, rcv)
	rcv.AcceptMessage(within(t), m)
	if !bytes.Equal(m.GetData(), []byte{0x81, 6}) {
		t.Errorf("got %x", m.GetData())
	}
	marker := routers[1].component("marker", "marker")
	routers[2].knows("topic:marker", 1)
	last.send(&Frame{Type: Publish, Name: []byte("marker"), Data: []byte{0x80}})
	marker.publish() // and so what was sent before has come to the router in between

	boss.admin("secret", "authorize", "cid", `"r1"`) // of the link to the first router
	routers[1].knows("topic:secret", 2)
	passes(snd, 7)
	passes(back, 8)
	first.quiet()
}

// When a link is cut, what was with the neighbour is in doubt, and its sender told so; when it is back, messages go there again.
func TestALinkThatIsCutWithMessagesOnIt(t *testing.T) {
	routers := lineOf(t, 2, "ws")
	rcv := receiver(t, routers[1].session(), "topic:t")
	routers[0].knows("topic:t", 1)
	snd := sender(t, routers[0].session(), "topic:t")
	told := sent(t, snd, amqp.NewMessage([]byte{1}))
	m := next(t, rcv)
	for _, c := range routers[0].node.Connections() {
		if c.NodeID == routers[1].node.ID() {
			routers[0].node.CloseConnection(fmt.Sprint(c.ID))
		}
	}
	again := next(t, rcv) // by the connection that is opened anew
	rcv.AcceptMessage(within(t), m)
	rcv.AcceptMessage(within(t), again)
	if err := <-told; err != nil || again.Header.DeliveryCount != 1 {
		t.Errorf("%v, delivery-count %d", err, again.Header.DeliveryCount)
	}

	receipt, err := snd.SendWithReceipt(within(t), amqp.NewMessage([]byte{2}), nil)
	if err != nil {
		t.Fatal(err)
	}
	next(t, rcv)
	routers[1].stopNow()
	state, err := receipt.Wait(within(t))
	if _, ok := state.(*amqp.StateModified); !ok || err != nil {
		t.Errorf("got %T, %v, and nobody has accepted it", state, err)
	}
}

// A router that comes back, with the id that it had, has its messages taken as new ones.
func TestMessagesAfterARestart(t *testing.T) {
	far := startRouter(t, Options{Name: "far"})
	rcv := receiver(t, far.session(), "topic:t")
	for life := range byte(3) {
		r := startRouterAs(t, routetable.New(), Options{Name: "near"}, "00112233445566aa")
		r.join(far, "near")
		r.knows("topic:t", 1)
		told := sent(t, sender(t, r.session(), "topic:t"), amqp.NewMessage([]byte{life}))
		m := next(t, rcv)
		if got := m.GetData(); !bytes.Equal(got, []byte{life}) {
			t.Errorf("got %x in life %d", got, life)
		}
		rcv.AcceptMessage(within(t), m)
		if err := <-told; err != nil {
			t.Error(err)
		}
		r.stopOnce()
		far.until("it has gone", func() bool { return !far.m.twinOf("near").open.Load() })
	}
}

// stopNow stops a router that waits for nobody.
func (r *router) stopNow() {
	r.once.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r.m.Stop(ctx)
		r.node.Stop(ctx)
	})
}

// Whatever answers a key, little of it is read.
func FuzzDoor(f *testing.F) {
	f.Add([]byte{doorByte})
	f.Add([]byte{tcpShort, 1, 0x80, doorByte})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		err := awaitDoor(r)
		if read := len(b) - r.Len(); read > 2*257 || err == nil && b[read-1] != doorByte {
			t.Fatalf("%x: %d bytes are read, %v", b, read, err)
		}
	})
}
