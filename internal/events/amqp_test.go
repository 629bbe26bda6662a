package events_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/events"
	"github.com/fingerpost/fingerpost/internal/house/journal"
	"github.com/fingerpost/fingerpost/internal/websocket"
	"github.com/fingerpost/fingerpost/routetable"
)

// node is a node with events, an AMQP client, and a place for components.
type node struct {
	t         *testing.T
	table     *routetable.Table
	events    *events.Router
	forwarder *forwarder.Node
	session   *amqp.Session
	url       string
	log       journal.Journal
	address   string          // of its AMQP listener
	grace     context.Context // what waits for hops has until this is over, at the end
}

func startNode(t *testing.T) *node { return startNodeWith(t, forwarder.Options{}) }

func startNodeWith(t *testing.T, o forwarder.Options) *node {
	t.Helper()
	return startNodeOf(t, o, events.Options{})
}

func startNodeOf(t *testing.T, o forwarder.Options, eo events.Options) *node {
	t.Helper()
	n := &node{t: t, table: routetable.New()}
	core := admin.New(n.table, admin.Options{})
	f := forwarder.New(core, o)
	eo.ID, eo.Log = f.ID(), slog.New(slog.NewTextHandler(&n.log, nil))
	n.events = events.New(core, eo)
	n.events.Attach(f)
	n.forwarder = f
	address, err := f.ListenWith(forwarder.ListenOptions{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	n.address = address.String()
	web := httptest.NewServer(n.events.Handler())
	n.url = "ws" + strings.TrimPrefix(web.URL, "http")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	n.grace = ctx
	conn, err := amqp.Dial(ctx, "amqp://"+address.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n.session, err = conn.NewSession(ctx, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		n.events.Close()
		f.Stop(n.grace)
		web.Close()
		cancel()
	})
	return n
}

// component says hello and more frames, and reads an answer to each.
func (n *node) component(frames ...string) *websocket.Conn {
	n.t.Helper()
	c, err := websocket.Dial(n.t.Context(), n.url+"/router/manager", websocket.DialOptions{Conn: websocket.Options{MaxMessage: 5 << 20}})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { c.End(websocket.Normal, "") })
	for _, f := range frames {
		say(c, f)
		n.read(c)
	}
	return c
}

// flow has a component say so many events of type T, which are numbered, beside what the test does. wait waits for the last.
func flow(c *websocket.Conn, total int) (wait func()) {
	var saying sync.WaitGroup
	saying.Go(func() {
		for i := range total {
			say(c, fmt.Sprintf(`{"op":"event","id":"%d","type":"T"}`, i))
		}
	})
	return saying.Wait
}

func say(c *websocket.Conn, f string) {
	c.Lock()
	c.Append(true, []byte(f))
	c.Flush()
	c.Unlock()
}

func (n *node) read(c *websocket.Conn) string {
	n.t.Helper()
	m, _, err := c.Next()
	if err != nil {
		n.t.Fatal(err)
	}
	return string(m.Data)
}

func (n *node) send(address, body string) error {
	n.t.Helper()
	s, err := n.session.NewSender(n.t.Context(), address, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	defer s.Close(n.t.Context())
	return s.Send(n.t.Context(), amqp.NewMessage([]byte(body)), nil)
}

func (n *node) receiver(address string) *amqp.Receiver {
	n.t.Helper()
	r, err := n.session.NewReceiver(n.t.Context(), address, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

func (n *node) receive(r *amqp.Receiver) *amqp.Message {
	n.t.Helper()
	m, err := r.Receive(n.t.Context(), nil)
	if err != nil {
		n.t.Fatal(err)
	}
	r.AcceptMessage(n.t.Context(), m)
	return m
}

func TestEventsCrossBetweenAMQPAndComponents(t *testing.T) {
	n := startNode(t)
	c := n.component(`{"op":"hello","name":"C"}`, `{"op":"subscribe","type":"Order","direction":"request","from_time":"now"}`)
	link := n.receiver("event:req/Order")
	if err := n.send("event:req/Order", `{"id":"1","data":{"n":1}}`); err != nil {
		t.Fatal(err)
	}
	if got := n.read(c); !strings.Contains(got, `"id":"1","data":{"n":1}`) || !strings.Contains(got, `"type":"Order","direction":"request"`) {
		t.Errorf("the component got %.300s", got)
	}
	if got := string(n.receive(link).GetData()); got != `{"id":"1","data":{"n":1}}` {
		t.Errorf("the receiver got %s", got)
	}
	say(c, `{"op":"event","id":"2","type":"Order","data":{"n":2}}`)
	if got := n.read(c); !strings.Contains(got, `"id":"2"`) {
		t.Errorf("the component got %.300s", got)
	}
	m := n.receive(link)
	if got := string(m.GetData()); !strings.HasPrefix(got, `{"type":"Order","time":"20`) || !strings.HasSuffix(got, `"id":"2","data":{"n":2}}`) {
		t.Errorf("the receiver got %s", got)
	}
	if m.Properties.MessageID != "2" || *m.Properties.ContentType != "application/json" || *m.Properties.To != "event:req/Order" || m.Properties.CreationTime == nil {
		t.Errorf("properties %+v", m.Properties)
	}
}

// A row leads a plain name to an event; the event's own rows lead on to more than components.
func TestRowsOfOperatorsLeadToEventsAndOn(t *testing.T) {
	n := startNode(t)
	for _, row := range [][2]string{{"orders", "event:req/Order"}, {"orders", "route:audit"}, {"event:req/Order", "route:copies"}, {"event:req/Order", "event:req/Also"}} {
		if _, err := n.table.Add(row[0], row[1]); err != nil {
			t.Fatal(err)
		}
	}
	c := n.component(`{"op":"hello","name":"C"}`, `{"op":"subscribe","type":"Also","direction":"request"}`)
	copies, audit, also := n.receiver("copies"), n.receiver("audit"), n.receiver("event:req/Also")
	sent := make(chan error, 1)
	go func() { // each is accepted when audit has it
		for i := range 3 {
			if err := n.send("orders", fmt.Sprintf(`{"id":"%d"}`, i)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := range 3 {
		if got := n.read(c); !strings.Contains(got, `"type":"Order","direction":"request"`) || !strings.Contains(got, fmt.Sprintf(`"id":"%d"`, i)) {
			t.Errorf("the component got %.300s", got)
		}
		for name, r := range map[string]*amqp.Receiver{"copies": copies, "audit": audit, "also": also} {
			if got := string(n.receive(r).GetData()); got != fmt.Sprintf(`{"id":"%d"}`, i) {
				t.Errorf("%s got %s as number %d", name, got, i)
			}
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// Of a group with pick first the component gets an event while it is there, then the next row does.
func TestAComponentThatAnotherStandsInFor(t *testing.T) {
	n := startNode(t)
	for _, address := range []string{"event-conn:C", "route:spare"} {
		row := routetable.NewRoute("event:req/T", address)
		row.Pick = routetable.PickFirst
		if _, err := n.table.Apply(routetable.Op{Verb: routetable.VerbAdd, Route: row, Columns: routetable.ColPick}); err != nil {
			t.Fatal(err)
		}
	}
	spare := n.receiver("spare")
	c := n.component(`{"op":"hello","name":"C"}`)
	if err := n.send("event:req/T", `{"id":"1"}`); err != nil {
		t.Fatal(err)
	}
	if got := n.read(c); !strings.Contains(got, `"id":"1"`) {
		t.Errorf("the component got %.300s", got)
	}
	c.End(websocket.Normal, "")
	for until := time.Now().Add(20 * time.Second); n.events.Components()[0].Connected && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if err := n.send("event:req/T", `{"id":"2"}`); err != nil {
		t.Fatal(err)
	}
	if got := string(n.receive(spare).GetData()); got != `{"id":"2"}` {
		t.Errorf("the spare got %s", got)
	}
}

func TestMessagesThatAreNoEventsAreRejected(t *testing.T) {
	n := startNode(t)
	c := n.component(`{"op":"hello","name":"C"}`, `{"op":"subscribe","type":"T","direction":"request"}`)
	if _, err := n.table.Add("straight", "event-conn:C"); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ address, body, want string }{
		{"event:req/T", `nonsense`, "JSON"}, {"event:req/T", `[]`, "JSON"}, {"event:req/T", `{"type":"U"}`, "event:req/U"},
		{"event:req/T", `{"response":{"status":"OK"}}`, "event:res/T"}, {"event:res/T", `{}`, "event:req/T"}, {"event:T", `{}`, "event:req/TYPE"},
		{"straight", `{}`, "by their names"}, {"event:req/T", "{\"data\":\"\xff\"}", "UTF-8"},
	} {
		if err := n.send(x.address, x.body); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%.100s to %s: %v", x.body, x.address, err)
		}
	}
	if log := n.log.String(); !strings.Contains(log, " address=event:T ") {
		t.Errorf("no address as it was sent to: %s", log)
	}
	if err := n.send("event:req/T", `{}`); err != nil {
		t.Error(err)
	}
	if got := n.read(c); !strings.Contains(got, `"type":"T"`) || !strings.Contains(got, `"data":null`) {
		t.Errorf("the component got %.300s", got)
	}
}

// What one read of a sender brings is more than the limits: who takes it as it comes is neither slow nor sent away.
func TestABurstIsNoBacklog(t *testing.T) {
	t.Run("with both limits", func(t *testing.T) { burst(t, events.Options{Soft: 20, Hard: 100}) })
	t.Run("with the hard limit", func(t *testing.T) { burst(t, events.Options{Hard: 100}) })
}

func burst(t *testing.T, o events.Options) {
	n := startNodeOf(t, forwarder.Options{}, o)
	a := n.component(`{"op":"hello","name":"A"}`, `{"op":"subscribe","type":"T","direction":"request"}`)
	c := n.component(`{"op":"hello","name":"C"}`)
	const total = 600
	c.Lock()
	for i := range total {
		c.Append(true, fmt.Appendf(nil, `{"op":"event","id":"%d","type":"T"}`, i))
	}
	c.Flush()
	c.Unlock()
	for i := range total {
		if got := n.read(a); !strings.Contains(got, fmt.Sprintf(`"id":"%d"`, i)) {
			t.Fatalf("event %d is %s", i, got)
		}
	}
	if log := n.log.String(); strings.Contains(log, "slow") {
		t.Error(log)
	}
}

// An event of more than 1 MiB, which a component may send, comes to AMQP too, live and in a replay.
func TestALargeEventComesToAMQP(t *testing.T) {
	n := startNode(t)
	c := n.component(`{"op":"hello","name":"C"}`)
	live := n.receiver("event:req/T")
	event := `"id":"1","type":"T","data":"` + strings.Repeat("x", 3<<20) + `"}`
	say(c, `{"op":"event","ref":1,`+event)
	if got := n.read(c); !strings.Contains(got, "accepted") {
		t.Fatal(got)
	}
	again, err := n.session.NewReceiver(t.Context(), "event:req/T", &amqp.ReceiverOptions{Properties: map[string]any{"from_time": ""}})
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*amqp.Receiver{"live": live, "again": again} {
		if got := n.receive(r).GetData(); len(got) < 3<<20 {
			t.Errorf("%s: %d bytes", name, len(got))
		}
	}
}

// Whatever inlet an event comes by, all see one order.
func TestE09OneOrderForAMQPAndComponents(t *testing.T) {
	n := startNode(t)
	c := n.component(`{"op":"hello","name":"C"}`, `{"op":"subscribe","type":"T","direction":"request"}`)
	link := n.receiver("event:req/T")
	const each = 200
	done := make(chan error, 2)
	go func() {
		for i := range each {
			if err := n.send("event:req/T", fmt.Sprintf(`{"id":"amqp-%d"}`, i)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	sender := n.component(`{"op":"hello","name":"S"}`)
	go func() {
		for i := range each {
			say(sender, fmt.Sprintf(`{"op":"event","id":"edri-%d","type":"T"}`, i))
		}
		done <- nil
	}()
	id := func(s string) string {
		_, s, _ = strings.Cut(s, `"id":"`)
		s, _, _ = strings.Cut(s, `"`)
		return s
	}
	for i := range 2 * each {
		if a, b := id(n.read(c)), id(string(n.receive(link).GetData())); a != b {
			t.Fatalf("number %d: the component got %s, the receiver %s", i, a, b)
		}
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Rows count the events that the router gives to components itself, and those that the node gives to others, once each.
func TestRowsCountEvents(t *testing.T) {
	n := startNode(t)
	row := routetable.NewRoute("event:req/One", "event-conn:C")
	row.Pick = routetable.PickAny
	if _, err := n.table.Apply(routetable.Op{Verb: routetable.VerbAdd, Route: row, Columns: routetable.ColPick}); err != nil {
		t.Fatal(err)
	}
	c := n.component(`{"op":"hello","name":"C"}`, `{"op":"subscribe","type":"Here","direction":"request"}`, `{"op":"subscribe","type":"Both","direction":"request"}`)
	link := n.receiver("event:req/Both")
	for range 3 {
		for _, typ := range []string{"Here", "Both", "One"} {
			say(c, `{"op":"event","id":"1","type":"`+typ+`"}`)
			n.read(c)
		}
		n.receive(link)
	}
	want := "event:req/Both → event-conn:C 3 3 3\nevent:req/Here → event-conn:C 3 3 3\nevent:req/One → event-conn:C 3 3 3\n"
	got := ""
	for until := time.Now().Add(20 * time.Second); got != want && time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		var lines []string
		for r := range n.table.Snapshot().Routes() {
			if x := n.forwarder.RowCounters(r); r.Address == "event-conn:C" {
				lines = append(lines, fmt.Sprintf("%s → %s %d %d %d\n", r.Pattern, r.Address, x.Matched, x.Copied, x.Delivered))
			}
		}
		slices.Sort(lines)
		got = strings.Join(lines, "")
	}
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
