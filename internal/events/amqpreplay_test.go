package events_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/routetable"
)

// from attaches a receiver that asks for a replay by a filter.
func (n *node) from(address string, value any) (*amqp.Receiver, error) {
	return n.session.NewReceiver(n.t.Context(), address, &amqp.ReceiverOptions{Filters: []amqp.LinkFilter{amqp.NewLinkFilter("from_time", 0, value)}})
}

func (n *node) mustFrom(address string, value any) *amqp.Receiver {
	n.t.Helper()
	r, err := n.from(address, value)
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

// got is an event as a receiver has it.
type got struct {
	ID     string `json:"id"`
	Time   string `json:"time"`
	Type   string `json:"type"`
	Replay bool   `json:"replay"`
}

func (n *node) event(r *amqp.Receiver) (e got) {
	n.t.Helper()
	if err := json.Unmarshal(n.receive(r).GetData(), &e); err != nil {
		n.t.Fatal(err)
	}
	return e
}

func (n *node) wants(r *amqp.Receiver, want string) {
	n.t.Helper()
	var ids []string
	for range strings.Fields(want) {
		e := n.event(r)
		if e.Replay {
			e.ID += "*"
		}
		ids = append(ids, e.ID)
	}
	if got := strings.Join(ids, " "); got != want {
		n.t.Errorf("got %s, want %s", got, want)
	}
}

// A receiver has what came before, from a time on, and then what comes.
func TestReceiversWithFromTime(t *testing.T) {
	n := startNode(t)
	c := n.component(`{"op":"hello","name":"C"}`)
	var times []time.Time
	for i := range 3 {
		say(c, fmt.Sprintf(`{"op":"event","id":"%d","type":"T","ref":1}`, i+1))
		var a struct{ Time time.Time }
		if err := json.Unmarshal([]byte(n.read(c)), &a); err != nil {
			t.Fatal(err)
		}
		times = append(times, a.Time)
	}
	say(c, `{"op":"event","id":"answer","type":"T","response":{"status":"OK"},"ref":1}`)
	n.read(c)
	second := times[1].Format(time.RFC3339Nano)
	later := times[2].Add(1)
	property := &amqp.ReceiverOptions{Properties: map[string]any{"from_time": second}}
	byProperty, err := n.session.NewReceiver(t.Context(), "event:req/T", property)
	if err != nil {
		t.Fatal(err)
	}
	unsettled, err := n.session.NewReceiver(t.Context(), "event:req/T", &amqp.ReceiverOptions{
		RequestedSenderSettleMode: amqp.SenderSettleModeUnsettled.Ptr(), Properties: map[string]any{"from_time": ""}})
	if err != nil {
		t.Fatal(err)
	}
	receivers := []struct {
		r    *amqp.Receiver
		want string
	}{
		{n.mustFrom("event:req/T", ""), "1* 2* 3* live"},
		{n.mustFrom("event:req/T", "restart"), "1* 2* 3* live"},
		{n.mustFrom("event:req/T", second), "2* 3* live"},
		{n.mustFrom("event:req/T", times[0].Truncate(time.Millisecond)), "1* 2* 3* live"},
		{n.mustFrom("event:req/T", later.Format(time.RFC3339Nano)), "live"},
		{n.mustFrom("event:req/T", "now"), "live"},
		{n.mustFrom("event:req/T", "2199-01-01T00:00:00Z"), "live"},
		{n.receiver("event:req/T"), "live"},
		{byProperty, "2* 3* live"},
		{unsettled, "1* 2* 3* live"},
		{n.mustFrom("event:res/T", ""), "answer*"},
		{n.mustFrom("event:req/Never", ""), ""},
	}
	if err := n.send("event:req/T", `{"id":"live"}`); err != nil {
		t.Fatal(err)
	}
	for i, x := range receivers {
		t.Log(i)
		n.wants(x.r, x.want)
	}
}

// Where no event ever comes to, nobody waits.
func TestNamesThatNothingIsReceivedFrom(t *testing.T) {
	n := startNode(t)
	for _, x := range []struct{ address, want string }{
		{"event:", "event:req/TYPE"}, {"event:T", "event:req/TYPE"}, {"event:foo/T", "event:req/TYPE"}, {"event:req", "event:req/TYPE"}, {"event:res/", "event:req/TYPE"},
		{"event:*", "event:req/TYPE"}, {"event:req/" + strings.Repeat("T", 1025), "1024 bytes"}, {"EVENT:req/T", "small letters"}, {"null", "discard"},
	} {
		if _, err := n.session.NewReceiver(t.Context(), x.address, nil); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%.50s: %v", x.address, err)
		}
	}
	for _, address := range []string{"event:req/null", "NULL", "null/", "events:T"} {
		if _, err := n.session.NewReceiver(t.Context(), address, nil); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestFromTimeThatIsRefused(t *testing.T) {
	n := startNode(t)
	for _, x := range []struct {
		address string
		value   any
		want    string
	}{
		{"event:req/T", "yesterday", "from_time"}, {"event:req/T", int64(7), "from_time"}, {"event:T", "now", "event:req/TYPE"},
	} {
		if _, err := n.from(x.address, x.value); err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), "invalid-field") {
			t.Errorf("%s from %v: %v", x.address, x.value, err)
		}
	}
	shared := &amqp.ReceiverOptions{SourceCapabilities: []string{"queue"}, Properties: map[string]any{"from_time": "now"}}
	if _, err := n.session.NewReceiver(t.Context(), "event:req/T", shared); err == nil || !strings.Contains(err.Error(), "no replay") {
		t.Errorf("shared: %v", err)
	}
	if _, err := n.from("plain", "yesterday"); err != nil {
		t.Errorf("a filter on a plain address: %v", err)
	}
}

// E-11 and E-12 over AMQP: receivers attach while events flow, and have no gap and no double.
func TestE11ReceiversAttachWhileEventsFlow(t *testing.T) {
	n := startNode(t)
	c := n.component(`{"op":"hello","name":"C"}`)
	const total = 1500
	defer flow(c, total)()
	for range 4 {
		r, err := n.session.NewReceiver(t.Context(), "event:req/T", &amqp.ReceiverOptions{Credit: 50, Filters: []amqp.LinkFilter{amqp.NewLinkFilter("from_time", 0, "")}})
		if err != nil {
			t.Fatal(err)
		}
		live := false
		for want := range total {
			e := n.event(r)
			if e.ID != fmt.Sprint(want) || live && e.Replay {
				t.Fatalf("got %s, replayed %v, want %d", e.ID, e.Replay, want)
			}
			live = !e.Replay
		}
		r.Close(t.Context())
	}
}

// A replay of much goes by the receiver's credit, and large events in several frames.
func TestAReplayOfLargeEvents(t *testing.T) {
	n := startNode(t)
	c := n.component(`{"op":"hello","name":"C"}`)
	for i := range 20 {
		say(c, fmt.Sprintf(`{"op":"event","ref":1,"id":"%d","type":"T","data":"%s"}`, i, strings.Repeat("x", 300_000)))
		n.read(c)
	}
	r := n.mustFrom("event:req/T", "")
	for i := range 20 {
		if e := n.event(r); e.ID != fmt.Sprint(i) {
			t.Fatalf("got %s, want %d", e.ID, i)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if m, err := r.Receive(short, nil); err == nil {
		t.Errorf("one more: %.60s", m.GetData())
	}
}

// Every event tells its time by an annotation, which is where a receiver goes on that comes back: whoever sent the event, and again or not.
func TestAReceiverGoesOnWhereItWas(t *testing.T) {
	n := startNode(t)
	c := n.component(`{"op":"hello","name":"C"}`)
	r := n.mustFrom("event:req/T", "now")
	s, err := n.session.NewSender(t.Context(), "event:req/T", nil)
	if err != nil {
		t.Fatal(err)
	}
	m := amqp.NewMessage([]byte(`{"id":"1"}`))
	m.Annotations = amqp.Annotations{"x-opt-event-time": "a lie", "x-opt-other": "kept"}
	if err := s.Send(t.Context(), m, nil); err != nil {
		t.Fatal(err)
	}
	first := n.receive(r)
	if first.Annotations["x-opt-other"] != "kept" {
		t.Errorf("annotations %v", first.Annotations)
	}
	r.Close(t.Context())
	say(c, `{"op":"event","id":"2","type":"T","ref":1}`)
	n.read(c)
	if err := n.send("event:req/T", `{"id":"3"}`); err != nil {
		t.Fatal(err)
	}
	at := first.Annotations["x-opt-event-time"]
	n.wants(n.mustFrom("event:req/T", at), "1* 2* 3*")
	second := n.receive(n.mustFrom("event:req/T", "")) // the first, again
	if second.Annotations["x-opt-event-time"] != at || second.Properties.MessageID != "1" {
		t.Errorf("again: %v %v, want %v", second.Annotations, second.Properties.MessageID, at)
	}
}

// Events that wait for a receiver beyond the hard limit cost it its link: it comes back for the rest, and misses nothing. Others do not notice. It is the
// same for one that an operator's row leads events to.
func TestAReceiverPastTheHardLimit(t *testing.T) {
	for name, c := range map[string]struct{ row, address, back string }{
		"of events":      {"", "event:req/T", "restart"},
		"of a name":      {"route:mail", "mail", ""},
		"of other types": {"event:req/U", "event:req/U", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := startNodeWith(t, forwarder.Options{SoftQueue: 100, HardQueue: 200})
			if c.row != "" {
				if _, err := n.table.Add("event:req/T", c.row); err != nil {
					t.Fatal(err)
				}
			}
			n.pastTheHardLimit(c.address, c.back)
		})
	}
}

func (n *node) pastTheHardLimit(address, back string) {
	t := n.t
	c := n.component(`{"op":"hello","name":"C"}`)
	shop := n.dial("shop")
	alice, err := shop.session.NewReceiver(t.Context(), address, &amqp.ReceiverOptions{Name: "alice", Credit: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := alice.IssueCredit(50); err != nil {
		t.Fatal(err)
	}
	bob := n.receiver("event:req/T")
	const total = 300
	const atOnce = 50 // bob keeps up
	for from := 0; from < total; from += atOnce {
		for i := from; i < from+atOnce; i++ {
			say(c, fmt.Sprintf(`{"op":"event","id":"%d","type":"T"}`, i))
		}
		for i := from; i < from+atOnce; i++ {
			if e := n.event(bob); e.ID != fmt.Sprint(i) {
				t.Fatalf("bob got %s, want %d", e.ID, i)
			}
		}
	}
	next, last := 0, ""
	for {
		m, err := alice.Receive(t.Context(), nil)
		if err != nil {
			if !strings.Contains(err.Error(), "resource-limit-exceeded") || !strings.Contains(err.Error(), "from_time") {
				t.Errorf("detached: %v", err)
			}
			break
		}
		var e got
		if json.Unmarshal(m.GetData(), &e); e.ID != fmt.Sprint(next) {
			t.Fatalf("alice got %s, want %d", e.ID, next)
		}
		last = m.Annotations["x-opt-event-time"].(string)
		alice.AcceptMessage(t.Context(), m)
		next++
	}
	if next != 50 {
		t.Errorf("alice got %d events before the end", next)
	}
	from := next
	if back == "" {
		from, back = next-1, last // inclusive: the last of before comes again
	}
	again, err := shop.session.NewReceiver(t.Context(), "event:req/T", &amqp.ReceiverOptions{Name: "alice", Credit: 100, Properties: map[string]any{"from_time": back}})
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < total; i++ {
		if e := n.event(again); e.ID != fmt.Sprint(i) {
			t.Fatalf("alice got %s, want %d", e.ID, i)
		}
	}
	if got := n.forwarder.Counters(); got["behind"] != 1 || got["eventsMissed"] != 0 {
		t.Errorf("%d receivers are counted, and %d events", got["behind"], got["eventsMissed"])
	}
}

// A hop that takes nothing cannot be told that it misses events: they are counted.
func TestAHopPastTheHardLimit(t *testing.T) {
	n := startNodeWith(t, forwarder.Options{SoftQueue: 50, HardQueue: 100})
	var cancel func()
	n.grace, cancel = context.WithCancel(t.Context())
	cancel()
	const hop = "amqp://127.0.0.1:1/away"
	if _, err := n.table.Add("event:req/T", hop); err != nil {
		t.Fatal(err)
	}
	tap := routetable.NewRoute("event:req/T", "amqp://127.0.0.1:1/tap")
	tap.Optional = true // it may miss what it likes
	if _, err := n.table.Apply(routetable.Op{Verb: routetable.VerbAdd, Route: tap, Columns: routetable.ColOptional}); err != nil {
		t.Fatal(err)
	}
	c := n.component(`{"op":"hello","name":"C"}`)
	for range 200 {
		say(c, `{"op":"event","id":"1","type":"T"}`)
	}
	say(c, `{"op":"event","id":"1","type":"T","ref":1}`)
	n.read(c)
	got := n.forwarder.Missed()
	if len(got) != 1 || got[0].Hop != hop || got[0].Count != 101 || n.forwarder.Counters()["eventsMissed"] != 101 {
		t.Errorf("missed: %v, %d", got, n.forwarder.Counters()["eventsMissed"])
	}
}

// E-14: whoever subscribes clears the entry, a receiver and an operator as well; one who only looks on does not.
func TestE14ARowClearsWhatWasUnrouted(t *testing.T) {
	n := startNode(t)
	c := n.component(`{"op":"hello","name":"C"}`)
	unrouted := func(want ...string) {
		t.Helper()
		var got []string
		for _, u := range n.events.Unrouted() {
			got = append(got, u.Type)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("unrouted: got %q, want %q", got, want)
		}
	}
	for _, typ := range []string{"Queue", "Received", "Replayed", "Row", "Tap"} {
		say(c, fmt.Sprintf(`{"op":"event","ref":1,"id":"1","type":"%s"}`, typ))
		n.read(c)
	}
	unrouted("Queue", "Received", "Replayed", "Row", "Tap")
	n.receiver("event:req/Received")
	n.mustFrom("event:req/Replayed", "now")
	if _, err := n.session.NewReceiver(t.Context(), "event:req/Queue", &amqp.ReceiverOptions{SourceCapabilities: []string{"queue"}}); err != nil {
		t.Fatal(err)
	}
	unrouted("Row", "Tap")
	if _, err := n.table.Add("event:req/R*", "null"); err != nil {
		t.Fatal(err)
	}
	tap := routetable.NewRoute("event:req/Tap", "event:req/Received")
	tap.Optional = true
	if _, err := n.table.Apply(routetable.Op{Verb: routetable.VerbAdd, Route: tap, Columns: routetable.ColOptional}); err != nil {
		t.Fatal(err)
	}
	unrouted("Tap")
}

// What rows lead on to a name is in its replay, too, in its place: who comes back misses nothing of it.
func TestAReplayOfWhatRowsLeadOn(t *testing.T) {
	n := startNode(t)
	for pattern, address := range map[string]string{"event:req/A": "event:req/B", "event:req/C": "route:on", "on": "event:req/B", "event:req/D": "event:res/B"} {
		if _, err := n.table.Add(pattern, address); err != nil {
			t.Fatal(err)
		}
	}
	c := n.component(`{"op":"hello","name":"C"}`)
	for i, typ := range []string{"A", "B", "C", "D", "A"} {
		say(c, fmt.Sprintf(`{"op":"event","ref":1,"id":"%d","type":"%s"}`, i, typ))
		n.read(c)
	}
	r := n.mustFrom("event:req/B", "")
	say(c, `{"op":"event","ref":1,"id":"5","type":"C"}`)
	n.read(c)
	n.wants(r, "0* 1* 2* 4* 5")
	say(c, `{"op":"subscribe","ref":2,"type":"B","direction":"request"}`)
	if got := n.read(c); !strings.Contains(got, `"replaying":5`) {
		t.Errorf("got %s", got)
	}
	for _, want := range []string{`"type":"A","direction":"request"`, `"id":"1"`, `"type":"C"`, `"id":"4"`, `"id":"5"`} {
		if got := n.read(c); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if m := n.receive(n.mustFrom("event:req/B", "")); *m.Properties.To != "event:req/A" || !strings.Contains(string(m.GetData()), `"type":"A"`) {
		t.Errorf("got %s to %s", m.GetData(), *m.Properties.To)
	}
}
