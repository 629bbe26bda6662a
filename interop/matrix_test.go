package interop

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/Azure/go-amqp"
)

// Every client sends to every client through a router, bodies of any size, settled and unsettled.
func TestEveryClientToEveryClient(t *testing.T) {
	r := startRouter(t, "matrix", "")
	for _, pair := range pairsOf(allClients) {
		for _, settled := range []bool{false, true} {
			sender, receiver := pair[0], pair[1]
			name := sender + " to " + receiver
			if settled {
				name += ", settled"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := batchOf{id: "m", count: 6, sizes: []int{0, 1, 100, 64 << 10, 10 << 20, 5}, settled: settled}
				b.to = fmt.Sprintf("matrix/%s/%s/%v", sender, receiver, settled)
				b.address = b.to
				received := receiveBy(t, receiver, r.url(), b.to, b.count)
				want := "accepted"
				if settled {
					want = ""
				}
				outcomes := sendBy(t, sender, r.url(), b)
				sameMessages(t, receiver, received(), b.want())
				sameOutcomes(t, sender, outcomes, want)
			})
		}
	}
}

// Several links over several sessions of one connection, of each foreign client as sender and as receiver.
func TestSeveralLinksAndSessions(t *testing.T) {
	r := startRouter(t, "links", "")
	for _, pair := range pairsOf([]string{rhea, proton}) {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			t.Parallel()
			const links, count = 6, 300
			to := "links/" + pair[0] + "/" + pair[1]
			in := client(t, pair[1], "recv", "--url", r.url(), "--address", to, "--links", strconv.Itoa(links), "--sessions", "3", "--count", strconv.Itoa(links*count))
			waitReady(in)
			out := client(t, pair[0], "send", "--url", r.url(), "--address", to, "--to", to, "--links", strconv.Itoa(links), "--sessions", "3", "--count", strconv.Itoa(count), "--quiet")
			byLink := map[string]map[string]int{}
			for range links * count {
				e := nextMessage(in)
				if byLink[e.text("link")] == nil {
					byLink[e.text("link")] = map[string]int{}
				}
				byLink[e.text("link")][e.text("id")]++
			}
			if e := out.expect("done"); e.number("accepted") != count {
				t.Errorf("sender: got %v, want %d accepted", e, count)
			}
			if len(byLink) != links {
				t.Errorf("messages came on %d links, want %d", len(byLink), links)
			}
			for link, ids := range byLink {
				if len(ids) != count {
					t.Errorf("link %s got %d different messages, want %d", link, len(ids), count)
				}
			}
		})
	}
}

// A receiver's credit is all that it gets, and draining ends what is left of it.
func TestDrain(t *testing.T) {
	r := startRouter(t, "drain", "")
	for _, kind := range []string{rhea, proton} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := client(t, kind, "recv", "--url", r.url(), "--address", "drain/"+kind, "--credit", "5", "--drain")
			waitReady(p)
			if e := p.expect("drained"); e.number("received") != 0 {
				t.Errorf("got %v, want drained with nothing received", e)
			}
			p.expect("done")
			if status := p.wait(); status != 0 {
				t.Errorf("exit status %d", status)
			}
		})
	}
	t.Run(goAMQP, func(t *testing.T) {
		t.Parallel()
		receiver, err := dialGo(t, r.url()).NewReceiver(within(t), "drain/go", &amqp.ReceiverOptions{Credit: -1})
		if err != nil {
			t.Fatal(err)
		}
		sender, err := dialGo(t, r.url()).NewSender(within(t), "drain/go", nil)
		if err != nil {
			t.Fatal(err)
		}
		var receipts []amqp.SendReceipt
		send := func(n int) {
			receipt, err := sender.SendWithReceipt(within(t), amqp.NewMessage(bodyOf(n, 10)), nil)
			if err != nil {
				t.Fatal(err)
			}
			receipts = append(receipts, receipt)
		}
		take := func(n int) {
			for range n {
				m, err := receiver.Receive(within(t), nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := receiver.AcceptMessage(within(t), m); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := receiver.IssueCredit(3); err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			send(n)
		}
		take(3)
		if err := receiver.IssueCredit(10); err != nil {
			t.Fatal(err)
		}
		send(3)
		send(4)
		take(2)
		if err := receiver.DrainCredit(within(t), nil); err != nil {
			t.Fatalf("drain: %v", err)
		}
		if m := receiver.Prefetched(); m != nil {
			t.Errorf("got %v after the drain", gotOf(m))
		}
		// The link goes on after it.
		if err := receiver.IssueCredit(1); err != nil {
			t.Fatal(err)
		}
		send(5)
		take(1)
		for n, receipt := range receipts {
			if state, err := receipt.Wait(within(t)); err != nil || stateInWords(state) != "accepted" {
				t.Errorf("message %d: %v, %v", n, state, err)
			}
		}
	})
}

// Requests go to a name, with a dynamic reply address; replies find their way back.
func TestRequestsAndReplies(t *testing.T) {
	r := startRouter(t, "replies", "")
	for i, requester := range allClients {
		responder := allClients[(i+1)%len(allClients)]
		if responder == goAMQP {
			responder = rhea
		}
		t.Run(requester+" asks "+responder, func(t *testing.T) {
			t.Parallel()
			const count = 5
			to := "service/" + requester
			p := client(t, responder, "recv", "--url", r.url(), "--address", to, "--reply", "--quiet")
			waitReady(p)
			if requester == goAMQP {
				requestByGo(t, r, to, count)
				return
			}
			q := client(t, requester, "request", "--url", r.url(), "--to", to, "--count", strconv.Itoa(count), "--sizes", "0,100,70000")
			q.expect("attached")
			seen := map[string]bool{}
			for range count {
				e := q.expect("reply")
				n := e.number("n")
				size := []int{0, 100, 70000}[n%3]
				if e.text("correlation_id") != fmt.Sprintf("r-%d", n) || e.text("sha") != shaOf(bodyOf(n, size)) {
					t.Errorf("reply %v: want r-%d with %d bytes", e, n, size)
				}
				seen[e.text("correlation_id")] = true
			}
			if len(seen) != count {
				t.Errorf("replies to %d different requests, want %d", len(seen), count)
			}
			q.expect("done")
		})
	}
}

func requestByGo(t *testing.T, r *router, to string, count int) {
	t.Helper()
	session := dialGo(t, r.url())
	receiver, err := session.NewReceiver(within(t), "", &amqp.ReceiverOptions{DynamicAddress: true, Credit: 10})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := session.NewSender(within(t), to, nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range count {
		replyTo := receiver.Address()
		m := amqp.NewMessage(bodyOf(n, 100))
		m.Properties = &amqp.MessageProperties{To: &to, ReplyTo: &replyTo, CorrelationID: fmt.Sprintf("r-%d", n)}
		if o := sendOne(t, sender, m); o != "accepted" {
			t.Errorf("request %d: %s", n, o)
		}
		reply, err := receiver.Receive(within(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		receiver.AcceptMessage(within(t), reply)
		if g := gotOf(reply); reply.Properties == nil || reply.Properties.CorrelationID != fmt.Sprintf("r-%d", n) || g.sha != shaOf(bodyOf(n, 100)) {
			t.Errorf("reply to request %d: got %v", n, g)
		}
	}
}

// A receiver that settles second, after the router has: go-amqp waits for that.
func TestReceiverSettlesSecond(t *testing.T) {
	r := startRouter(t, "second", "")
	receiver, err := dialGo(t, r.url()).NewReceiver(within(t), "second", &amqp.ReceiverOptions{Credit: 10, SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := dialGo(t, r.url()).NewSender(within(t), "second", &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeUnsettled.Ptr()})
	if err != nil {
		t.Fatal(err)
	}
	for n, c := range []struct {
		settle func(*amqp.Message) error
		want   string
	}{
		{func(m *amqp.Message) error { return receiver.AcceptMessage(within(t), m) }, "accepted"},
		{func(m *amqp.Message) error {
			return receiver.RejectMessage(within(t), m, &amqp.Error{Condition: "amqp:precondition-failed"})
		}, "rejected amqp:precondition-failed"},
	} {
		receipt, err := sender.SendWithReceipt(within(t), amqp.NewMessage(bodyOf(n, 10)), nil)
		if err != nil {
			t.Fatal(err)
		}
		m, err := receiver.Receive(within(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		// go-amqp gives the error that the router echoes as its own.
		if err := c.settle(m); err != nil && "rejected "+refusal(err) != c.want {
			t.Errorf("settle: %v", err)
		}
		if state, err := receipt.Wait(within(t)); err != nil || stateInWords(state) != c.want {
			t.Errorf("got %v, %v, want %s", state, err, c.want)
		}
	}
}

// Receivers with the capability "queue" share what is sent; one without it gets a copy of all.
func TestCompetingConsumers(t *testing.T) {
	r := startRouter(t, "queue", "")
	const count = 200
	var sharing []*process
	for _, kind := range []string{rhea, proton} {
		p := client(t, kind, "recv", "--url", r.url(), "--address", "jobs", "--capability", "queue", "--window", "10")
		waitReady(p)
		sharing = append(sharing, p)
	}
	copies := receiveBy(t, proton, r.url(), "jobs", count)
	b := batchOf{address: "jobs", to: "jobs", id: "job", count: count, sizes: []int{10}}
	sameOutcomes(t, rhea, sendBy(t, rhea, r.url(), b), "accepted")
	sameMessages(t, "the receiver without the capability", copies(), b.want())
	// All were accepted, so each of the two has printed its own; the markers end them.
	var all []got
	for _, p := range sharing {
		p.stop()
		mine := 0
		for line := range p.lines {
			if e := (event{}); decodeEvent(line, &e) && e.text("event") == "message" {
				all = append(all, got{e.text("id"), e.text("to"), e.number("size"), e.text("sha")})
				mine++
			}
		}
		if mine == 0 {
			t.Errorf("%s got none of %d", p.name, count)
		}
	}
	sameMessages(t, "the two that share", all, b.want())
}

// A coordinator is refused on its link alone; the session goes on.
func TestCoordinatorIsRefused(t *testing.T) {
	r := startRouter(t, "transactions", rows("HAL9000", "null"))
	c := dialRaw(t, r.addr)
	if err := c.session(0); err != nil {
		t.Fatal(err)
	}
	c.write(0, composite(attach, str("txn"), uint32v(0), boolean(false), null, null, composite(source), composite(coordinator, sym("amqp:local-transactions")), null, null, uint32v(0)))
	f, err := c.await(detach)
	if err != nil {
		t.Fatal(err)
	}
	if got := condition(f.at(2)); got != "amqp:not-implemented" {
		t.Errorf("detach: got %q (%v), want amqp:not-implemented", got, f)
	}
	c.write(0, composite(detach, uint32v(0), boolean(true)))
	s := attachRaw(t, c, 0, 1, []byte("HAL9000"))
	if o := s.deliver(t, messageOf(batchOf{to: "HAL9000", id: "m", sizes: []int{1}}, 0)); o.state != "accepted" {
		t.Errorf("another link of the session: got %v, want accepted", o)
	}
}
