package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/routetable"
)

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// session connects go-amqp.
func (r *router) session() *amqp.Session {
	r.t.Helper()
	a, err := r.node.Listen("127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := amqp.Dial(within(r.t), "amqp://"+a.String(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	s, err := c.NewSession(within(r.t), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// component connects one that has a name and is reactive.
func (r *router) component(name string, topics ...string) *client {
	r.t.Helper()
	c := r.dial(name, "ws")
	if f := c.identify(name); f.Status != StatusOK {
		r.t.Fatalf("%s: %d %s", name, f.Status, f.Data)
	}
	for _, topic := range topics {
		if f := c.admin(topic, "subscribe"); f.Status != StatusOK {
			r.t.Fatalf("%s: %d %s", topic, f.Status, f.Data)
		}
	}
	c.admin("__config__", "reactive", "status", "true")
	return c
}

// What AMQP clients and components send each other, by one row of an operator.
func TestAMQPMeetsRembus(t *testing.T) {
	r := startRouter(t, Options{})
	if _, err := r.table.Add("orders", "topic:orders/new"); err != nil {
		t.Fatal(err)
	}
	alice := r.component("alice", "orders/new", "orders/*")
	s := r.session()
	rcv, err := s.NewReceiver(within(t), "topic:orders/new", nil)
	if err != nil {
		t.Fatal(err)
	}

	// A publish is CBOR to a receiver of AMQP, byte for byte; one byte string alone is its bytes.
	bob := r.component("bob")
	for payload, want := range map[string]string{"82fa3f8ccccd01": "82fa3f8ccccd01 application/cbor", "8142dead": "dead ", "80": "80 application/cbor"} {
		bob.send(&Frame{Type: Publish, Name: []byte("orders/new"), Data: unhex(t, payload)})
		m, err := rcv.Receive(within(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		kind := ""
		if m.Properties.ContentType != nil {
			kind = *m.Properties.ContentType
		}
		if got := fmt.Sprintf("%x %s", m.GetData(), kind); got != want || *m.Properties.To != "topic:orders/new" {
			t.Errorf("%s: got %s to %s", payload, got, *m.Properties.To)
		}
		if got := alice.next(); !bytes.Equal(got.Data, unhex(t, payload)) || string(got.Name) != "orders/new" {
			t.Errorf("%s: the component gets %s %x", payload, got.Name, got.Data)
		}
		if got := alice.next(); string(got.Name) != "orders/*" {
			t.Errorf("%s: the component gets %s %x", payload, got.Name, got.Data)
		}
	}
	rcv.Close(within(t))

	// A sender of AMQP has its outcome when the component has acknowledged.
	snd, err := s.NewSender(within(t), "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	cborType := contentCBOR
	for _, c := range []struct {
		m    *amqp.Message
		want string // what the component gets; empty: nothing
	}{
		{amqp.NewMessage([]byte{0xde, 0xad}), "8142dead"},
		{&amqp.Message{Data: [][]byte{unhex(t, "820102")}, Properties: &amqp.MessageProperties{ContentType: &cborType}}, "820102"},
		{&amqp.Message{Data: [][]byte{unhex(t, "8201")}, Properties: &amqp.MessageProperties{ContentType: &cborType}}, ""},
		{&amqp.Message{Value: "text"}, ""},
	} {
		told := make(chan error, 1)
		go func() { told <- snd.Send(within(t), c.m, nil) }()
		if c.want == "" {
			var refused *amqp.Error
			if err := <-told; !errors.As(err, &refused) {
				t.Errorf("%+v: %v", c.m, err)
			}
			continue
		}
		f := alice.next()
		if fmt.Sprintf("%x", f.Data) != c.want || f.QoS() != flagQoS1 || string(f.Name) != "orders/new" {
			t.Errorf("got %+v, want %s", f, c.want)
		}
		select {
		case err := <-told:
			t.Errorf("it is accepted before the component says so: %v", err)
		default:
		}
		alice.send(&Frame{Type: Ack, ID: f.ID})
		if f := alice.next(); string(f.Name) != "orders/*" || f.Flags != 0 { // in its turn
			t.Errorf("got %+v", f)
		}
		if err := <-told; err != nil {
			t.Error(err)
		}
	}
}

// A publish that is never acknowledged comes 1 + 3 times, then the next; who sent it by AMQP is told.
func TestSentAgain(t *testing.T) {
	r := startRouter(t, Options{AckTimeout: 20 * time.Millisecond, SendRetries: 3})
	alice := r.component("alice", "t")
	bob := r.component("bob")
	bob.send(&Frame{Type: Publish, Flags: flagQoS1, ID: number(7), HasID: true, Name: []byte("t"), Data: []byte{0x80}})
	bob.send(&Frame{Type: Publish, Name: []byte("t"), Data: []byte{0x81, 1}})
	for range 4 {
		if f := alice.next(); f.ID != number(7) || f.Flags != flagQoS1 {
			t.Errorf("got %+v", f)
		}
	}
	if f := alice.next(); f.Flags != 0 || len(f.Data) != 2 {
		t.Errorf("got %+v", f)
	}
	if got := r.m.Counters()["meshGaveUp"]; got != 1 {
		t.Errorf("%d were given up", got)
	}
	snd, err := r.session().NewSender(within(t), "topic:t", nil)
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := snd.SendWithReceipt(within(t), amqp.NewMessage([]byte("x")), nil)
	if err != nil {
		t.Fatal(err)
	}
	state, err := receipt.Wait(within(t))
	if _, ok := state.(*amqp.StateModified); err != nil || !ok {
		t.Errorf("got %T, %v, and nobody has acknowledged", state, err)
	}
}

// A method that does not answer in time is forgotten; who is asked next is asked all the same, and a late answer is nobody's.
func TestSlowMethod(t *testing.T) {
	t.Parallel()
	r := startRouter(t, Options{RequestTimeout: 3 * time.Second})
	alice, bob := r.component("alice"), r.component("bob")
	alice.admin("add", "expose")
	bob.send(&Frame{Type: Request, ID: number(100), Name: []byte("add"), Data: []byte{0x80}})
	slow := alice.next()
	r.until("the request is forgotten", func() bool { return r.m.twinOf("alice").outstanding.Load() == 0 })
	alice.send(&Frame{Type: Response, ID: slow.ID, Data: []byte{1}})
	alice.barrier()
	bob.send(&Frame{Type: Request, ID: number(101), Name: []byte("add"), Data: []byte{0x80}})
	next := alice.next()
	alice.send(&Frame{Type: Response, ID: next.ID, Data: []byte{2}})
	for f := bob.next(); ; f = bob.next() {
		if f.Type != Response {
			continue
		}
		if f.ID != number(101) || f.Data[0] != 2 {
			t.Errorf("got %+v", f)
		}
		break
	}
}

// Two who ask one method by the same id have each its own answer.
func TestEqualIDs(t *testing.T) {
	r := startRouter(t, Options{})
	exposer, a, b := r.component("exposer"), r.component("a"), r.component("b")
	exposer.admin("add", "expose")
	var asked []Frame
	for i, c := range []*client{a, b} {
		c.barrier()
		c.send(&Frame{Type: Request, ID: number(7), Name: []byte("add"), Data: []byte{byte(i)}})
		asked = append(asked, exposer.next())
	}
	if asked[0].ID == asked[1].ID {
		t.Fatal("the exposer cannot tell them apart")
	}
	for i := len(asked) - 1; i >= 0; i-- {
		exposer.send(&Frame{Type: Response, ID: asked[i].ID, Data: asked[i].Data})
	}
	for i, c := range []*client{a, b} {
		if f := c.next(); f.ID != number(7) || f.Data[0] != byte(i) {
			t.Errorf("%d: got %+v", i, f)
		}
	}
}

// The policies: who of three is asked, of a method and of a pool; . is that those who have not answered yet do.
func TestPolicies(t *testing.T) {
	for policy, want := range map[string]string{"first_up": "aaa.a", "round_robin": "abc.ab", "less_busy": "abca.ab.a.abc"} {
		for _, target := range []string{"", "pool"} {
			t.Run(policy+" "+target, func(t *testing.T) { checkPolicy(t, policy, target, want) })
		}
	}
}

func checkPolicy(t *testing.T, policy, target, want string) {
	r := startRouter(t, Options{Policy: policy})
	caller := r.component("caller")
	exposers := []*client{r.component("pool@a"), r.component("pool@b"), r.component("pool@c")}
	for _, c := range exposers {
		c.admin("m", "expose")
	}
	var asked []func()
	got := ""
	for i := range want {
		if want[i] == '.' {
			for _, answer := range asked {
				answer()
			}
			asked, got = nil, got+"."
			continue
		}
		f := &Frame{Type: Request, ID: number(uint64(1000 + i)), Name: []byte("m"), Data: []byte{0x80}}
		if target != "" {
			f.Target = []byte(target)
		}
		caller.send(f)
		caller.barrier()
		for _, c := range exposers {
			frames, _ := c.barrier()
			for _, b := range frames {
				var f Frame
				if ParseFrame(b, &f) == nil && f.Type == Request {
					got += c.name[len("pool@"):]
					asked = append(asked, func() { c.answer(f, StatusOK, []byte{1}); c.barrier() })
				}
			}
		}
	}
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A second connection of a name ends the first, where the router is told so.
func TestOverwrite(t *testing.T) {
	r := startRouter(t, Options{Overwrite: true})
	first := r.component("a", "t")
	second := r.component("a")
	if _, over := first.barrier(); !over {
		t.Error("the first lives")
	}
	r.component("b").send(&Frame{Type: Publish, Name: []byte("t"), Data: []byte{0x80}})
	if f := second.next(); f.Type != Publish {
		t.Errorf("got %+v", f)
	}
}

// A router that is started again knows what named components have, and who may use what.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	begin := func() *router {
		table, err := routetable.Open(dir+"/table", nil)
		if err != nil {
			t.Fatal(err)
		}
		grants, err := routetable.Open(dir+"/grants", nil)
		if err != nil {
			t.Fatal(err)
		}
		r := startRouterOn(t, table, Options{Grants: grants, Acks: dir + "/acks"})
		t.Cleanup(func() { r.end(grants) })
		return r
	}
	r := begin()
	alice, boss := r.component("alice", "news", "secret"), r.component("boss")
	r.dial("nobody", "tcp").admin("news", "subscribe")
	alice.admin("add", "expose")
	boss.admin("secret", "authorize", "cid", `"alice"`)
	twice := &Frame{Type: Publish, Flags: flagQoS2, ID: number(4711), HasID: true, Name: []byte("news"), Data: []byte{0x81, 7}}
	boss.send(twice)
	if f := alice.publish(); f.ID != number(4711) {
		t.Errorf("got %+v", f)
	}
	r.end(r.m.o.Grants)

	r = begin()
	bob := r.component("bob")
	if f := bob.ask(&Frame{Type: Request, Name: []byte("add"), Data: []byte{0x80}}); f.Status != StatusMethodAway {
		t.Errorf("a method whose component is away: %d", f.Status)
	}
	alice = r.dial("alice", "ws")
	if f := alice.identify("alice"); f.Status != StatusOK {
		t.Fatal(f.Status)
	}
	alice.react()
	if f := alice.publish(); f.ID != number(4711) { // it was not acknowledged
		t.Errorf("got %+v", f)
	}
	alice.send(&Frame{Type: Ack, ID: number(4711)})
	again := r.component("boss")
	again.send(twice) // its ack was lost: it is not sent on again
	again.barrier()
	bob.send(&Frame{Type: Publish, Name: []byte("secret"), Data: []byte{0x81, 1}})
	bob.send(&Frame{Type: Publish, Name: []byte("news"), Data: []byte{0x81, 2}})
	if f := alice.publish(); string(f.Name) != "news" || f.Data[1] != 2 {
		t.Errorf("got %s %x", f.Name, f.Data)
	}
	bob.send(&Frame{Type: Request, ID: number(9), Name: []byte("add"), Data: []byte{0x80}})
	if f := alice.next(); f.Type != Request {
		t.Errorf("got %+v", f)
	}
	if f := bob.admin("secret", "subscribe"); f.Status != StatusError {
		t.Errorf("a private topic is not private any more: %d", f.Status)
	}
	rows := 0
	for range r.table.Snapshot().Routes() {
		rows++
	}
	if rows != 6 { // three names, two topics, a method
		t.Errorf("%d rows", rows)
	}
}

// end stops a router that has its tables on disk.
func (r *router) end(grants *routetable.Table) {
	r.once.Do(func() {
		r.stop()
		r.table.Close()
		grants.Close()
	})
}

// react has publishes come, and drops none that comes before the answer.
func (c *client) react() {
	f := adminFrame("__config__", "reactive", "status", "true")
	f.ID, f.HasID = c.id(), true
	c.send(f)
}

// crash has a router begin again from what another has on disk at this moment, as if that one had been killed.
func crash(t *testing.T, dir string, o Options) *router {
	t.Helper()
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	o.Acks = copied
	return startRouter(t, o)
}

// What was acknowledged to its sender and not by its subscriber is sent by the router that comes after a crash; what both have acknowledged is not, and what is
// sent again is not taken twice.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	o := Options{Acks: dir, AckTimeout: time.Hour}
	r := startRouter(t, o)
	sub, pub := r.component("sub", "t"), r.component("pub")
	for i, qos := range []byte{flagQoS1, flagQoS2, flagQoS1, flagQoS2, 0} {
		pub.send(&Frame{Type: Publish, Flags: qos, ID: number(uint64(i + 1)), HasID: qos != 0, Name: []byte("t"), Data: []byte{0x81, byte(i)}})
	}
	for i := range uint64(2) { // two are acknowledged, and the second ack2 of the publisher's is missing
		if f := sub.publish(); f.ID != number(i+1) {
			t.Fatalf("got %+v", f)
		}
		sub.send(&Frame{Type: Ack, ID: number(i + 1)})
	}
	if f := sub.next(); f.Type != Ack2 || f.ID != number(2) {
		t.Errorf("got %+v", f)
	}
	for range 4 {
		if f := pub.next(); f.Type != Ack {
			t.Errorf("got %+v", f)
		}
	}
	pub.send(&Frame{Type: Ack2, ID: number(4)})
	pub.barrier()

	r = crash(t, dir, o)
	sub, pub = r.dial("sub", "ws"), r.component("pub")
	sub.identify("sub")
	sub.admin("t", "subscribe")
	sub.react()
	pub.send(&Frame{Type: Publish, Flags: flagQoS2, ID: number(2), HasID: true, Name: []byte("t"), Data: []byte{0x81, 1}})
	for _, want := range []uint64{3, 4} {
		if f := sub.publish(); f.ID != number(want) || f.Data[1] != byte(want-1) {
			t.Errorf("got %+v, want %d", f, want)
		}
		sub.send(&Frame{Type: Ack, ID: number(want)})
	}
	pub.barrier()
	if f := sub.next(); f.Type != Ack2 {
		t.Errorf("got %+v", f)
	}
	sub.quiet()
}

// A file of what waits does not grow with what is done.
func TestFilesOfAcksStayShort(t *testing.T) {
	dir := t.TempDir()
	r := startRouter(t, Options{Acks: dir})
	sub, pub := r.component("sub", "t"), r.component("pub")
	data := appendBytes(nil, make([]byte, 100_000))
	for i := range uint64(30) {
		pub.send(&Frame{Type: Publish, Flags: flagQoS2, ID: number(i), HasID: true, Name: []byte("t"), Data: data})
		sub.send(&Frame{Type: Ack, ID: sub.publish().ID})
		sub.next()
		info, err := os.Stat(filepath.Join(dir, "sub"))
		if err == nil && info.Size() > longLog+4*int64(len(data)) {
			t.Fatalf("%d bytes", info.Size())
		}
	}
	r.until("the publisher's file has a line for each, and no more", func() bool { // the last is written when the subscriber has it
		b, _ := os.ReadFile(filepath.Join(dir, "pub"))
		return len(b) == 30*17
	})
}

// A large publish goes the same ways as a small one: to components here and behind another router, to receivers of AMQP, and to who comes later.
func TestLargeMessages(t *testing.T) {
	routers := meshOf(t, 2, [2]int{0, 1})
	r := routers[0]
	data := append([]byte{0x81, 0x5a, 0, 0x18, 0, 0}, bytes.Repeat([]byte("0123456789abcdef"), 3<<15)...)
	rcv, err := r.session().NewReceiver(within(t), "topic:t", nil)
	if err != nil {
		t.Fatal(err)
	}
	near, far := r.component("near", "t"), routers[1].component("far", "t")
	r.knows("topic:t", 3)
	bob := r.dial("bob", "tcp")
	bob.identify("bob")
	bob.send(&Frame{Type: Publish, Flags: flagQoS1, ID: number(1), HasID: true, Name: []byte("t"), Data: data})
	later := routers[1].dial("later", "tcp")
	for _, c := range []*client{near, far, later} {
		if c == later {
			later.identify("later")
			later.admin("t", "subscribe", "msg_from", "1e18")
			later.react()
		}
		f := c.publish()
		if !bytes.Equal(f.Data, data) {
			t.Errorf("%s gets %d bytes", c.name, len(f.Data))
		}
		c.send(&Frame{Type: Ack, ID: f.ID})
		c.barrier()
	}
	m, err := rcv.Receive(within(t), nil)
	if err != nil || !bytes.Equal(m.GetData(), data[6:]) {
		t.Errorf("AMQP: %v", err)
	}
	bob.barrier()
	bob.send(&Frame{Type: Publish, Name: []byte("t"), Data: append([]byte{0x5a, 1, 0, 0, 0}, make([]byte, 1<<24)...)})
	if _, over := bob.barrier(); !over {
		t.Error("more than 16 MiB are taken")
	}
}

// load_config takes admins and pins as they are configured now; where the configuration is bad, all stays.
func TestLoadConfig(t *testing.T) {
	var bad error
	r := startRouter(t, Options{People: func() ([]string, map[string]string, error) {
		return []string{"carol"}, map[string]string{".": "77"}, bad
	}})
	boss, carol := r.component("boss"), r.component("carol")
	may := func(c *client, want Status) {
		t.Helper()
		if f := c.admin("__config__", "broker_config"); f.Status != want {
			t.Errorf("%s: %d, want %d", c.name, f.Status, want)
		}
	}
	bad = errors.New("line 7")
	if f := boss.admin("__config__", "load_config"); f.Status != StatusError {
		t.Errorf("got %d", f.Status)
	}
	may(boss, StatusOK)
	bad = nil
	boss.admin("__config__", "load_config")
	may(boss, StatusError)
	may(carol, StatusOK)
	key, kind := provers(t)["rsa"].public(t)
	for pin, want := range map[string]Status{"78": StatusError, "77": StatusOK} {
		c := r.dial("new", "ws")
		if f := c.ask(&Frame{Type: Register, Name: []byte("new"), Pin: []byte(pin), Key: key, KeyType: kind}); f.Status != want {
			t.Errorf("pin %s: %d, want %d", pin, f.Status, want)
		}
	}
}

// Methods that were exposed before are chosen by the policy that the router has now.
func TestPolicyChanges(t *testing.T) {
	table := routetable.New()
	first := startRouterOn(t, table, Options{})
	for _, name := range []string{"one", "two"} {
		first.component(name).admin("m", "expose")
	}
	first.once.Do(first.stop)
	r := startRouterOn(t, table, Options{Policy: "round_robin"})
	var exposers []*client
	for _, name := range []string{"one", "two"} {
		exposers = append(exposers, r.component(name))
	}
	caller := r.component("caller")
	for i := range 4 {
		id := number(uint64(100 + i))
		caller.send(&Frame{Type: Request, ID: id, Name: []byte("m"), Data: []byte{0x80}})
		if f := exposers[i%2].next(); f.Type != Request {
			t.Fatalf("got %+v", f)
		}
		exposers[i%2].send(&Frame{Type: Response, ID: id, Data: []byte{0xf6}})
		caller.next()
	}
}
