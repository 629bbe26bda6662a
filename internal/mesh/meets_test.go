package mesh

import (
	"bytes"
	"testing"

	"github.com/Azure/go-amqp"
)

// What was kept while the router was a broker does not go from one component to another when it is a server.
func TestAServerGivesNothingOfWhatABrokerKept(t *testing.T) {
	dir := t.TempDir()
	r := startRouter(t, restOptions(dir))
	bob := r.component("bob")
	bob.send(publishOf("t", 1))
	bob.barrier()
	r.stopOnce()
	o := restOptions(dir)
	o.Server = true
	r = startRouter(t, o)
	alice := r.dial("alice", "ws")
	alice.identify("alice")
	alice.admin("t", "subscribe", "msg_from", "1e18")
	if err := sender(t, r.session(), "topic:t").Send(within(t), amqp.NewMessage([]byte{7}), nil); err != nil {
		t.Fatal(err)
	}
	alice.react()
	f := alice.publish()
	if len(f.Data) != 3 || f.Data[2] != 7 {
		t.Errorf("got %x", f.Data)
	}
	alice.send(&Frame{Type: Ack, ID: f.ID})
	alice.quiet()
}

// Who was away when a request was made gets its arguments too, whoever answered it.
func TestMissedArgumentsOfRequests(t *testing.T) {
	r := startRouter(t, Options{})
	alice, caller, adder := r.dial("alice", "ws"), r.component("caller"), r.component("adder")
	alice.identify("alice")
	for _, method := range []string{"sum", "add"} {
		alice.admin(method, "subscribe", "msg_from", "1e18")
	}
	adder.admin("add", "expose")
	r.table.Add("rpc:sum", "route:sums")
	s := r.session()
	requests := receiver(t, s, "sums")
	caller.send(&Frame{Type: Request, ID: number(1), Name: []byte("sum"), Data: []byte{0x81, 1}})
	m := next(t, requests)
	requests.AcceptMessage(within(t), m)
	if err := sender(t, s, *m.Properties.ReplyTo).Send(within(t), amqp.NewMessage([]byte{5}), nil); err != nil {
		t.Fatal(err)
	}
	caller.response()
	caller.send(&Frame{Type: Request, ID: number(2), Name: []byte("add"), Data: []byte{0x81, 2}})
	adder.send(&Frame{Type: Response, ID: adder.request().ID, Data: []byte{0xf6}})
	caller.response()
	caller.barrier()
	alice.react()
	for n := byte(1); n <= 2; n++ {
		if f := alice.publish(); f.Data[1] != n {
			t.Errorf("got %x, want %d", f.Data, n)
		}
	}
	alice.quiet()
}

// Arguments of requests reach the subscribers at other routers, of each request once, wherever who asks and who answers are.
func TestArgumentsOfRequestsAcrossRouters(t *testing.T) {
	routers := meshOf(t, 3, [2]int{0, 1}, [2]int{1, 2})
	adder := routers[1].component("adder")
	adder.admin("add", "expose")
	var hears []*client
	for _, r := range routers {
		r.knows("rpc:add", 1)
		hears = append(hears, r.component("hears", "add"))
	}
	for _, r := range routers {
		r.knows("topic:add", 3)
	}
	n := byte(0)
	for i, r := range routers {
		caller := r.component("caller")
		for range 2 {
			n++
			caller.send(&Frame{Type: Request, ID: number(uint64(n)), Name: []byte("add"), Data: []byte{0x81, n}})
			adder.send(&Frame{Type: Response, ID: adder.request().ID, Data: []byte{0xf6}})
			caller.response()
			for j, c := range hears {
				if f := c.publish(); f.Data[1] != n {
					t.Fatalf("request %d from %d: at %d, got %x", n, i, j, f.Data)
				}
			}
		}
	}
	for _, c := range hears {
		c.quiet()
	}
}

// That components come and go is told at every router, each time.
func TestComponentsComeAndGoAcrossRouters(t *testing.T) {
	routers := meshOf(t, 2, [2]int{0, 1})
	hears := routers[1].component("hears", "component_info")
	routers[0].knows("topic:component_info", 1)
	for range 3 {
		c := routers[0].component("other")
		for _, want := range []string{"connection_up", "connection_down"} {
			if f := hears.publish(); !bytes.Contains(f.Data, []byte(want)) {
				t.Errorf("got %q, want %s", f.Data, want)
			}
			c.close()
		}
		routers[0].until("it has gone", func() bool { return !routers[0].m.twinOf("other").open.Load() })
	}
}

// A message that rows send to two topics goes to both at another router. One that is sent there by an address of AMQP too, for the same topic, is the same.
func TestTwoWaysToOneRouter(t *testing.T) {
	routers := lineOf(t, 2, "ws")
	s := routers[1].session()
	address, err := routers[1].node.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	receivers := map[string]*amqp.Receiver{}
	for _, topic := range []string{"topic:a", "topic:b", "topic:c"} {
		receivers[topic] = receiver(t, s, topic)
		routers[0].knows(topic, 1)
		routers[0].table.Add("x", topic)
	}
	for _, topic := range []string{"topic:a", "topic:c"} {
		routers[0].table.Add("x", "amqp://"+address.String()+"/"+topic)
	}
	snd := sender(t, routers[0].session(), "x")
	for i := range byte(3) {
		told := sent(t, snd, amqp.NewMessage([]byte{i}))
		for topic, rcv := range receivers {
			m := next(t, rcv)
			if got := m.GetData(); !bytes.Equal(got, []byte{i}) {
				t.Errorf("%s: got %x, want %d", topic, got, i)
			}
			rcv.AcceptMessage(within(t), m)
		}
		if err := <-told; err != nil {
			t.Error(err)
		}
	}
}

// A publish that a row leads from one topic to another goes to the subscribers of both, at every router of a ring, once.
func TestOnePublishToTwoTopics(t *testing.T) {
	routers := meshOf(t, 3, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 0})
	var hears []*client
	for _, r := range routers {
		hears = append(hears, r.component("hears", "a", "b"))
	}
	for _, r := range routers {
		r.knows("topic:a", 3)
		r.knows("topic:b", 3)
	}
	routers[0].table.Add("topic:a", "topic:b")
	pub := routers[0].component("pub")
	for i, flags := range []byte{0, flagQoS1, flagQoS2} {
		pub.send(&Frame{Type: Publish, Flags: flags, ID: number(uint64(50 + i)), HasID: flags != 0, Name: []byte("a"), Data: []byte{0x81, byte(i)}})
		for j, c := range hears {
			got := map[string]bool{}
			for range 2 {
				f := c.publish()
				if f.Data[1] != byte(i) {
					t.Fatalf("%d: at %d, got %+v", i, j, f)
				}
				got[string(f.Name)] = true
				if f.QoS() != 0 {
					c.send(&Frame{Type: Ack, ID: f.ID})
				}
			}
			if !got["a"] || !got["b"] {
				t.Errorf("%d: at %d, got %v", i, j, got)
			}
		}
	}
	for _, c := range hears {
		c.quiet()
	}
}
