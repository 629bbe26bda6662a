package forwarder_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/forwarder"
)

// chain starts nodes of which each but the last sends NAME to the next; the first is the clients'.
func chain(t *testing.T, n int) []*router {
	t.Helper()
	nodes := []*router{start(t, forwarder.Options{})}
	for range n - 1 {
		nodes = slices.Insert(nodes, 0, start(t, forwarder.Options{}, "NAME --> "+nodes[0].hop))
	}
	return nodes
}

// rowsOf lists a node's rows with a prefix of their pattern.
func rowsOf(r *router, prefix string) (rows []string) {
	for row := range r.table.Snapshot().Routes() {
		if strings.HasPrefix(row.Pattern, prefix) {
			rows = append(rows, fmt.Sprintf("%s --> %s %s", row.Pattern, row.Address, row.Origin))
		}
	}
	return rows
}

// service answers requests on NAME at a node, until the test ends. how says what it puts into the answers' to: "" the reply-to, on an
// anonymous link; "target" nothing, on a link to the reply-to.
func service(r *router, how string) {
	r.t.Helper()
	s := r.session()
	rcv, err := s.NewReceiver(within(r.t), "NAME", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	anonymous, err := s.NewSender(within(r.t), "", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx := within(r.t)
	go func() {
		for {
			m, err := rcv.Receive(ctx, nil)
			if err != nil {
				return
			}
			rcv.AcceptMessage(ctx, m)
			reply := amqp.NewMessage(m.GetData())
			reply.Properties = &amqp.MessageProperties{CorrelationID: m.Properties.MessageID, To: m.Properties.ReplyTo}
			to := anonymous
			if how == "target" {
				reply.Properties.To = nil
				if to, err = s.NewSender(ctx, *m.Properties.ReplyTo, nil); err != nil {
					return
				}
			}
			if err := to.Send(ctx, reply, nil); err != nil {
				return
			}
		}
	}()
}

// requester is a client with a dynamic address.
type requester struct {
	r       *router
	sender  *amqp.Sender
	replies *amqp.Receiver
}

func newRequester(r *router) *requester {
	r.t.Helper()
	s := r.session()
	rcv, err := s.NewReceiver(within(r.t), "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		r.t.Fatal(err)
	}
	sender, err := s.NewSender(within(r.t), "", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return &requester{r, sender, rcv}
}

func (q *requester) ask(id string) *amqp.Message {
	q.r.t.Helper()
	m := message("NAME", "of "+id)
	reply := q.replies.Address()
	m.Properties.ReplyTo, m.Properties.MessageID = &reply, id
	if err := q.sender.Send(within(q.r.t), m, nil); err != nil {
		q.r.t.Fatal(err)
	}
	answer := q.r.take(q.replies)
	if answer.Properties.CorrelationID != id || string(answer.GetData()) != "of "+id {
		q.r.t.Errorf("the answer to %s: got correlation-id %v and body %q", id, answer.Properties.CorrelationID, answer.GetData())
	}
	if answer.DeliveryAnnotations != nil || answer.Annotations != nil {
		q.r.t.Errorf("the answer to %s has annotations of nodes: %v %v", id, answer.DeliveryAnnotations, answer.Annotations)
	}
	return answer
}

func TestRepliesGoBackAlongTheChain(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4} {
		for _, how := range []string{"", "target"} {
			t.Run(fmt.Sprintf("%d nodes, answers by %q", n, how), func(t *testing.T) {
				nodes := chain(t, n)
				service(nodes[n-1], how)
				var clients []*requester
				for range 3 {
					clients = append(clients, newRequester(nodes[0]))
				}
				for i := range 6 {
					clients[i%3].ask(fmt.Sprint("request ", i))
				}
				for i, r := range nodes[1:] {
					want := min(i+1, 2) // the neighbour's own link, and a row for the requesters' node
					if rows := rowsOf(r, "$reply/"); len(rows) != want {
						t.Errorf("node %d: got rows %q, want %d", i+2, rows, want)
					}
				}
			})
		}
	}
}

// dialAs connects a client that says which node or container it is.
func (r *router) dialAs(node, container string) *amqp.Session {
	r.t.Helper()
	o := &amqp.ConnOptions{ContainerID: container, SASLType: amqp.SASLTypeAnonymous()}
	if node != "" {
		o.Properties = map[string]any{"fingerpost-node-id": node}
	}
	return r.sessionBy(o)
}

// attachAs attaches a receiver for the replies of a node, as another node does.
func attachAs(t *testing.T, s *amqp.Session, address, key string) (*amqp.Receiver, error) {
	t.Helper()
	return s.NewReceiver(within(t), address, &amqp.ReceiverOptions{
		SourceCapabilities: []string{"fingerpost:pattern"}, Properties: map[string]any{"fingerpost-reply-key": key},
	})
}

const aNode, anotherNode = "00000000000000aa", "00000000000000bb"

func TestNobodyGetsTheRepliesOfAnother(t *testing.T) {
	nodes := chain(t, 2)
	service(nodes[1], "")
	q := newRequester(nodes[0])
	q.ask("1")
	own, far := nodes[1].node.ID(), nodes[0].node.ID()
	for _, c := range []struct{ what, node, address, key string }{
		{"a client", "", "$reply/" + far + "/*", ""},
		{"a client with the address of another", "", q.replies.Address(), ""},
		{"one that says it is the other node", far, "$reply/" + far + "/*", "guessed"},
		{"one that says it is the other node, without a key", far, "$reply/" + far + "/*", ""},
		{"one that says it is this node", own, "$reply/" + own + "/*", "guessed"},
		{"another node", aNode, "$reply/" + far + "/*", "guessed"},
		{"a node with a wider pattern", aNode, "$reply/*", "guessed"},
		{"a node whose id is a pattern", "00000000000000*/", "$reply/00000000000000*//*", "guessed"},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := nodes[1].dialAs(c.node, "")
			if _, err := attachAs(t, s, c.address, c.key); err == nil {
				t.Errorf("%s was attached", c.address)
			}
			// It says that it brings requests of the others: that counts for nothing without a link for its own replies, nor where the others have theirs.
			sender, err := s.NewSender(within(t), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			m := message("NOWHERE", "")
			reply := q.replies.Address()
			m.Properties.ReplyTo = &reply
			if err := sender.Send(within(t), m, nil); condition(err) != "amqp:not-found" {
				t.Errorf("got %v", err)
			}
			q.ask("after " + c.what)
			if rows := rowsOf(nodes[1], "$reply/"); len(rows) != 1 {
				t.Errorf("got rows %q, want that of the node alone", rows)
			}
		})
	}
}

// The first to bring a node's requests has the way back; another connection cannot take it while it is in use.
func TestTheFirstWayBackStays(t *testing.T) {
	r := start(t, forwarder.Options{})
	sink := r.receiver("NAME", nil)
	bring := func(node, requester string) {
		s := r.dialAs(node, "")
		if _, err := attachAs(t, s, "$reply/"+node+"/*", "key of "+node); err != nil {
			t.Fatal(err)
		}
		sender, err := s.NewSender(within(t), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		m, reply := message("NAME", ""), "$reply/"+requester+"/x"
		m.Properties.ReplyTo = &reply
		go r.take(sink)
		if err := sender.Send(within(t), m, nil); err != nil {
			t.Fatal(err)
		}
	}
	far := "00000000000000ff"
	bring(aNode, far)
	want := rowsOf(r, "$reply/"+far)
	if len(want) != 1 {
		t.Fatalf("got rows %q, want one", want)
	}
	bring(anotherNode, far)
	if rows := rowsOf(r, "$reply/"+far); !slices.Equal(rows, want) {
		t.Errorf("got rows %q, want %q", rows, want)
	}
	// Where the node itself comes, its own link is the way.
	if _, err := attachAs(t, r.dialAs(far, ""), "$reply/"+far+"/*", "key"); err != nil {
		t.Fatal(err)
	}
	if rows := rowsOf(r, "$reply/"+far); len(rows) != 1 || rows[0] == want[0] {
		t.Errorf("got rows %q, want the node's own", rows)
	}
	bring("00000000000000cc", "00000000000000dd")
	r.node.SweepReplies(29 * time.Minute)
	if rows := rowsOf(r, "$reply/00000000000000dd"); len(rows) != 1 {
		t.Errorf("got rows %q, want one", rows)
	}
	r.node.SweepReplies(31 * time.Minute)
	if rows := rowsOf(r, "$reply/00000000000000dd"); len(rows) != 0 {
		t.Errorf("got rows %q half an hour later, want none", rows)
	}
}

// A node that says it brings requests of ten thousand others gets a bounded number of rows, those of the latest, and all go with it.
func TestWaysBackAreBounded(t *testing.T) {
	const many, most = 10_000, 1000
	r := start(t, forwarder.Options{}, "NAME --> null")
	s := r.dialAs(aNode, "")
	if _, err := attachAs(t, s, "$reply/"+aNode+"/*", "key"); err != nil {
		t.Fatal(err)
	}
	sender, err := s.NewSender(within(t), "", &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeSettled.Ptr()})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(n int) {
		m, reply := message("NAME", ""), fmt.Sprintf("$reply/%016x/x", n)
		m.Properties.ReplyTo = &reply
		if err := sender.Send(within(t), m, nil); err != nil {
			t.Fatal(err)
		}
	}
	for n := range many {
		ask(0x1000) // used all the time
		ask(0x2000 + n)
	}
	last := fmt.Sprintf("$reply/%016x/*", 0x2000+many-1)
	eventually(t, "the last way back", func() bool { return len(rowsOf(r, last)) == 1 })
	rows := rowsOf(r, "$reply/")
	if len(rows) > most+1 {
		t.Errorf("got %d rows, want at most %d", len(rows), most+1)
	}
	if len(rowsOf(r, "$reply/0000000000001000/")) != 1 {
		t.Error("the way that is used all the time was given up")
	}
	if err := s.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no way back to a node that is gone", func() bool { return len(rowsOf(r, "$reply/")) == 0 })
}

// The replies of a node go on after its connection broke, without a request in between.
func TestRepliesAfterAReconnect(t *testing.T) {
	nodes := chain(t, 3)
	service(nodes[2], "")
	q := newRequester(nodes[0])
	q.ask("before")
	for i, r := range nodes[:2] {
		r.node.CutPeers()
		eventually(t, "the link for replies again", func() bool { return len(rowsOf(nodes[i+1], "$reply/"+r.node.ID())) == 1 })
		q.ask(fmt.Sprint("after cut ", i))
	}
}

// What a node does not know is rejected, at once where the address was its own.
func TestUnknownReplyAddresses(t *testing.T) {
	r := start(t, forwarder.Options{})
	own := "$reply/" + r.node.ID() + "/000000000000000000000000"
	for _, c := range []struct{ target, to string }{{"", own}, {"", "$reply/" + aNode + "/x"}, {own, ""}, {own, own}} {
		err := r.sender(c.target).Send(within(t), message(c.to, ""), nil)
		if condition(err) != "amqp:not-found" || !strings.Contains(err.Error(), "$reply/") {
			t.Errorf("target %q, to %q: got %v, want amqp:not-found with the address", c.target, c.to, err)
		}
	}
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(20 * time.Second); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		}
	}
}
