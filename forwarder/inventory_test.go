package forwarder_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/forwarder"
)

// until waits for a condition that other goroutines bring about.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestANodeTellsWhatIsConnected(t *testing.T) {
	far := start(t, forwarder.Options{Name: "far"}, "B --> null")
	r := start(t, forwarder.Options{Name: "near"}, "A --> amqp://"+far.hop+"/B", "Z --> null")
	conn, err := amqp.Dial(within(t), r.url, &amqp.ConnOptions{ContainerID: "alice", SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		t.Fatal(err)
	}
	session, err := conn.NewSession(within(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.NewReceiver(within(t), "IN", &amqp.ReceiverOptions{Credit: 7, Name: "r"}); err != nil {
		t.Fatal(err)
	}
	targeted, err := session.NewSender(within(t), "A", &amqp.SenderOptions{Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	anonymous, err := session.NewSender(within(t), "", &amqp.SenderOptions{Name: "any"})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := targeted.Send(within(t), amqp.NewMessage([]byte("x")), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []string{"NOWHERE", "NOWHERE", "ELSEWHERE", "NOWHERE"} {
		m := amqp.NewMessage([]byte("x"))
		m.Properties = &amqp.MessageProperties{To: &to}
		if err := anonymous.Send(within(t), m, nil); err == nil {
			t.Fatalf("%s is accepted", to)
		}
	}

	cs := r.node.Connections()
	if len(cs) != 2 || cs[0].Class != "client" || cs[0].Container != "alice" || cs[0].Links != 3 || cs[0].Received != 7 || cs[0].Mechanism != "ANONYMOUS" ||
		cs[0].Role != "admin" || cs[0].Transport != "tcp" || cs[1].Class != "hop" || cs[1].Container != "far" || cs[1].Sent != 3 || cs[1].NodeID != far.node.ID() {
		t.Errorf("connections %+v", cs)
	}
	if cs := far.node.Connections(); len(cs) != 1 || cs[0].Class != "router" || cs[0].Received != 3 {
		t.Errorf("connections of the other %+v", cs)
	}
	var links []string
	for _, l := range r.node.Links() {
		switch {
		case l.Class == "hop":
			l.Name = ""
		case strings.Contains(l.Name, "/replies/"):
			l.Name = "replies" // of the other node, for those behind it
		}
		links = append(links, fmt.Sprintf("%s %s %s %d", l.Name, l.Class, l.Address, l.Messages))
	}
	if got := strings.Join(links, ", "); got != "any anonymous  4, r receiver IN 0, s sender A 3,  hop B 3, replies anonymous  0" {
		t.Errorf("links %s", got)
	}
	if hs := r.node.Hops(); len(hs) != 1 || hs[0].Hop != "amqp://"+far.hop || hs[0].State != "connected" || hs[0].Copies != 3 || hs[0].Links != 1 || hs[0].Waiting != 0 {
		t.Errorf("hops %+v", hs)
	}
	us := r.node.Unrouted()
	if len(us) != 2 || us[0].Address != "NOWHERE" || us[0].Count != 3 || us[0].Reason != "not wired" || us[1].Address != "ELSEWHERE" || us[0].Last.Before(us[0].First) {
		t.Errorf("unrouted %+v", us)
	}

	s := r.node.Stats()
	if s.Connections["client"] != 1 || s.Connections["hop"] != 1 || s.Links["receiver"] != 1 || s.Links["sender"] != 1 || s.Links["anonymous"] != 1 ||
		s.Received["sender"] != 3 || s.Received["anonymous"] != 4 || s.Copies["hop"] != 3 {
		t.Errorf("stats %+v", s)
	}
	if c := r.node.Counters(); c["received"] != 7 || c["copies"] != 3 {
		t.Errorf("counters %v", c)
	}
	if len(s.Routes) != 2 || s.Routes[0].Pattern != "A" || s.Routes[0].Matched != 3 || s.Routes[0].Delivered != 3 || s.Routes[1].Pattern != "other" {
		t.Errorf("routes %+v", s.Routes)
	}
	if len(s.Hops) != 2 || s.Hops[0].Copies != 3 || s.Hops[0].Connected != 1 || s.Hops[1].Hop != "other" {
		t.Errorf("hops %+v", s.Hops)
	}

	if !r.node.CloseConnection(fmt.Sprint(cs[0].ID)) || r.node.CloseConnection("999999") || r.node.CloseConnection("x") {
		t.Error("a connection that is there is closed, and no other")
	}
	<-conn.Done()
	until(t, "the connection is off the list", func() bool {
		s := r.node.Stats()
		return len(r.node.Connections()) == 1 && s.Connections["client"] == 0 && s.Links["receiver"] == 0 && s.Links["sender"] == 0 && s.Links["anonymous"] == 0
	})
}

// However many rows, hops and unrouted addresses there are, what is told of them is bounded, and nothing is left out of the sums.
func TestSeriesAreBounded(t *testing.T) {
	r := start(t, forwarder.Options{DeliveryTimeout: 50 * time.Millisecond})
	const rows = 250
	for i := range rows {
		if _, err := r.table.Add(fmt.Sprintf("N%d", i), "null"); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := amqp.Dial(within(t), r.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	session, err := conn.NewSession(within(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	sender, err := session.NewSender(within(t), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	send := func(to string) {
		m := amqp.NewMessage([]byte("x"))
		m.Properties = &amqp.MessageProperties{To: &to}
		sender.Send(within(t), m, nil)
	}
	for i := range rows {
		send(fmt.Sprintf("N%d", i))
	}
	for i := range 1200 {
		send(fmt.Sprintf("lost%d", i))
	}
	total := func() (n, other uint64, series int) {
		for _, x := range r.node.Stats().Routes {
			n += x.Matched
			if x.Pattern == "other" {
				other = x.Matched
			}
		}
		return n, other, len(r.node.Stats().Routes)
	}
	if n, other, series := total(); n != rows || other != rows-100 || series != 101 {
		t.Errorf("%d messages in %d series, %d of them in other", n, series, other)
	}
	us := r.node.Unrouted()
	if len(us) != 1000 || us[0].Address != "lost1199" || us[999].Address != "lost200" {
		t.Errorf("%d unrouted, from %s to %s", len(us), us[0].Address, us[len(us)-1].Address)
	}
	// A row that goes makes room for another, and one that changes is called anew.
	if _, err := r.table.Delete("N0", "null"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.table.Add("new", "null"); err != nil {
		t.Fatal(err)
	}
	send("new")
	patterns := map[string]bool{}
	for _, x := range r.node.Stats().Routes {
		patterns[x.Pattern] = true
	}
	if patterns["N0"] || !patterns["new"] || len(patterns) != 101 {
		t.Errorf("%d series, N0 %v, new %v", len(patterns), patterns["N0"], patterns["new"])
	}
}
