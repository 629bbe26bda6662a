package interop

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/messenger"
)

// library is the client library in messenger.
const library = "messenger"

// startChain starts routers of which each but the last sends the names to the next. The first is the clients'.
func startChain(t testing.TB, n int, names ...string) []*router {
	t.Helper()
	var chain []*router
	for i := n; i > 0; i-- {
		var table []string
		if len(chain) > 0 {
			for _, name := range names {
				table = append(table, name, chain[0].url())
			}
		}
		chain = slices.Insert(chain, 0, startRouter(t, string(rune('A'+i-1)), rows(table...)))
	}
	return chain
}

// answerBy starts a client that answers requests to a name at a router, by the reply-to.
func answerBy(t testing.TB, kind, url, name string) {
	t.Helper()
	switch kind {
	case goAMQP:
		answerByGo(t, url, name)
	case library:
		answerByLibrary(t, url, name)
	default:
		waitReady(client(t, kind, "recv", "--url", url, "--address", name, "--reply", "--quiet"))
	}
}

func answerByGo(t testing.TB, url, name string) {
	t.Helper()
	session := dialGo(t, url)
	receiver, err := session.NewReceiver(within(t), name, &amqp.ReceiverOptions{Credit: 100})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := session.NewSender(within(t), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		for {
			m, err := receiver.Receive(ctx, nil)
			if err != nil {
				return
			}
			receiver.AcceptMessage(ctx, m)
			reply := amqp.NewMessage(m.GetData())
			reply.ApplicationProperties = m.ApplicationProperties
			reply.Properties = &amqp.MessageProperties{To: m.Properties.ReplyTo, CorrelationID: m.Properties.CorrelationID}
			sender.SendWithReceipt(ctx, reply, nil) // a Messenger takes answers when it has sent all requests; one that is refused is missed by who asked
		}
	}()
}

func answerByLibrary(t testing.TB, url, name string) {
	t.Helper()
	m, err := messenger.New(messenger.Options{Name: "service"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background()) // it answers for as long as the test takes
	var answering sync.WaitGroup
	t.Cleanup(func() { cancel(); answering.Wait(); m.Close(context.Background()) })
	if _, err := m.Subscribe(within(t), url+"/"+name, nil); err != nil {
		t.Fatal(err)
	}
	answering.Go(func() {
		for {
			d, err := m.Get(ctx)
			if err != nil {
				return
			}
			d.Accept()
			d.Reply(ctx, &messenger.Message{Body: d.Message.Body, Properties: d.Message.Properties})
		}
	})
}

// askBy sends requests with a dynamic reply address, and checks the answers.
func askBy(t *testing.T, kind string, r *router, name string, count int) {
	t.Helper()
	switch kind {
	case goAMQP:
		requestByGo(t, r, name, count)
		return
	case library:
		askByLibrary(t, r, name, count)
		return
	}
	q := client(t, kind, "request", "--url", r.url(), "--to", name, "--count", strconv.Itoa(count), "--sizes", "0,100,70000")
	q.expect("attached")
	seen := map[string]bool{}
	for range count {
		e := q.expect("reply")
		n := e.number("n")
		if size := []int{0, 100, 70000}[n%3]; e.text("correlation_id") != fmt.Sprintf("r-%d", n) || e.text("sha") != shaOf(bodyOf(n, size)) {
			t.Errorf("reply %v: want r-%d with %d bytes", e, n, size)
		}
		if e["message_annotations"] != nil && len(e["message_annotations"].(map[string]any)) > 0 || e["delivery_annotations"] != nil && len(e["delivery_annotations"].(map[string]any)) > 0 {
			t.Errorf("reply %v has annotations", e)
		}
		seen[e.text("correlation_id")] = true
	}
	if len(seen) != count {
		t.Errorf("replies to %d different requests, want %d", len(seen), count)
	}
	q.expect("done")
}

func askByLibrary(t *testing.T, r *router, name string, count int) {
	t.Helper()
	m, err := messenger.New(messenger.Options{Name: "requester"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(within(t))
	if _, err := m.Routes().Add(name, r.addr); err != nil {
		t.Fatal(err)
	}
	for n := range count {
		if _, err := m.Put(within(t), &messenger.Message{Address: name, ReplyTo: "~", CorrelationID: fmt.Sprintf("r-%d", n), Body: bodyOf(n, 100)}); err != nil {
			t.Fatal(err)
		}
		d, err := m.Get(within(t))
		if err != nil {
			t.Fatalf("no reply to request %d: %v", n, err)
		}
		if d.Message.CorrelationID != fmt.Sprintf("r-%d", n) || shaOf(d.Message.Body) != shaOf(bodyOf(n, 100)) {
			t.Errorf("reply to request %d: got %v with %d bytes", n, d.Message.CorrelationID, len(d.Message.Body))
		}
		d.Accept()
	}
}

// Requests and their replies go through two and three routers that dial nobody back, whoever asks and answers.
func TestRepliesThroughRouters(t *testing.T) {
	kinds := append(slices.Clone(allClients), library)
	var names []string
	for _, kind := range kinds {
		names = append(names, "answers/"+kind)
	}
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d routers", n), func(t *testing.T) {
			chain := startChain(t, n, names...)
			for i, kind := range kinds {
				answerBy(t, kind, chain[n-1].url(), names[i])
			}
			for i, kind := range kinds {
				for _, at := range []int{1, 2} {
					askBy(t, kind, chain[0], names[(i+at)%len(kinds)], 5)
				}
			}
			rows := chain[n-1].ctl(t, "list", "--origin", "link:")
			if want := n - 1; strings.Count(rows, "$reply/") != want {
				t.Errorf("the last router has rows\n%swant %d of $reply/", rows, want)
			}
			if table := chain[n-1].ctl(t, "store", "-"); strings.Contains(table, "$reply/") {
				t.Errorf("rows for replies are stored:\n%s", table)
			}
		})
	}
}

// Whatever a request and its answer hold arrives byte for byte, and no trace of the routers with it.
func TestRepliesByteForByte(t *testing.T) {
	chain := startChain(t, 3, "NAME")
	service := newRawReceiver(t, chain[2].addr, "NAME", 10)
	requester := newRawReceiver(t, chain[0].addr, "", 10)
	sender := newRawSender(t, chain[0].addr, nil)
	answers := newRawSender(t, chain[2].addr, nil)
	named := newRawSender(t, chain[2].addr, []byte(requester.name))
	head := join(
		composite(headerSection, boolean(true), ubyte(7)),
		described(deliveryAnnotationsSect, mapv(sym("x-opt-mine"), str("kept"))),
		described(messageAnnotationsSect, mapv(sym("x-opt-mine"), ulong(1<<40), sym("x-opt-more"), list(str("a"), null))),
	)
	bare := func(to []byte) []byte {
		return join(
			composite(propertiesSection, binaryv([]byte{1, 2, 0}), binaryv([]byte("user")), to, str("subject"), str(requester.name), ulong(77), sym("text/plain")),
			described(applicationPropertiesSect, mapv(str("k"), list(), str("n"), uint32v(0))),
			described(dataSection, binaryv(bodyOf(3, 3000))), described(dataSection, binaryv(nil)),
			described(footerSection, mapv(sym("x-opt-sum"), uint32v(9))),
		)
	}
	for _, c := range []struct {
		what     string
		by       *rawSender
		to       *rawReceiver
		sections [][]byte
	}{
		{"request", sender, service, [][]byte{head, bare(str("NAME"))}},
		{"request without annotations", sender, service, [][]byte{bare(str("NAME"))}},
		{"answer by to", answers, requester, [][]byte{head, bare(str(requester.name))}},
		{"answer by the link's target", named, requester, [][]byte{head, bare(null)}},
		{"answer by the link's target, without annotations", named, requester, [][]byte{bare(null)}},
		{"answer with the name of somebody in to", named, requester, [][]byte{bare(str("somebody"))}},
	} {
		sent := join(c.sections...)
		id, err := c.by.send(sent, false)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		d, err := c.to.receive(patience)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if o, err := c.by.outcome(id); err != nil || o.state != "accepted" {
			t.Fatalf("%s: got %v, %v, want accepted", c.what, o, err)
		}
		sameMessage(t, c.what, sent, d.payload, 0)
	}
}

// Qpid Messenger writes its own container id into reply-to; what is sent there comes over its own connection, and nowhere else.
func TestRepliesToAMessenger(t *testing.T) {
	chain := startChain(t, 1)
	r := chain[0]
	for _, kind := range []string{goAMQP, rhea, library} {
		answerBy(t, kind, r.url(), "answers/"+kind)
	}
	stranger := newRawSender(t, r.addr, nil)
	to := func(address string) string {
		return stranger.deliver(t, messageOf(batchOf{to: address, id: "m", sizes: []int{1}}, 0)).String()
	}
	for _, kind := range []string{goAMQP, rhea, library} {
		for _, name := range []string{"~", "~/", "~/replies", "~/#0"} {
			if got := to("amqp://alice/replies"); got != "rejected amqp:not-found" {
				t.Errorf("before alice asked: got %s, want rejected amqp:not-found", got)
			}
			p := client(t, proton, "messenger", "--url", r.url(), "--name", "alice", "--to", "answers/"+kind, "--reply-to", name, "--count", "3")
			sent := p.expect("sent").text("reply_to")
			for n := range 3 {
				if e := p.expect("reply"); e.text("correlation_id") != fmt.Sprintf("r-%d", n) || e.text("to") != sent {
					t.Errorf("%s, %s: got %v, want an answer to r-%d at %s", kind, name, e, n, sent)
				}
			}
			p.expect("done")
			if status := p.wait(); status != 0 {
				t.Errorf("exit status %d", status)
			}
			eventually(t, "no row for a client that is gone", func() bool { return !strings.Contains(r.ctl(t, "list"), "alice") })
		}
	}
}

// Of two clients with one container id the one that came first has the replies; the other's requests go on their way.
func TestTwoClientsWithOneContainerID(t *testing.T) {
	r := startRouter(t, "one", rows("NAME", "null"))
	ask := func(c *rawConn, s *rawSender, replyTo string) {
		m := join(composite(propertiesSection, str("1"), null, str("NAME"), null, str(replyTo)), described(dataSection, binaryv(nil)))
		if o := s.deliver(t, m); o.state != "accepted" {
			t.Errorf("got %v, want accepted", o)
		}
	}
	connect := func(container string) (*rawConn, *rawSender) {
		c := dialBare(t, r.addr)
		if err := c.greet(container); err != nil {
			t.Fatal(err)
		}
		if err := c.session(0); err != nil {
			t.Fatal(err)
		}
		return c, attachRaw(t, c, 0, 0, nil)
	}
	listed := func() []string {
		var found []string
		for line := range strings.Lines(r.ctl(t, "list")) {
			if strings.HasPrefix(line, "amqp://") {
				found = append(found, strings.Join(strings.Fields(line)[:2], " "))
			}
		}
		return found
	}
	first, firstSender := connect("alice")
	ask(first, firstSender, "amqp://alice/replies")
	want := listed()
	if len(want) != 1 {
		t.Fatalf("got rows %q, want one", want)
	}
	second, secondSender := connect("alice")
	for _, name := range []string{"amqp://alice/replies", "amqp://alice/others", "amqp://bob/replies"} {
		ask(second, secondSender, name)
	}
	third, thirdSender := connect("127.0.0.1:9")
	ask(third, thirdSender, "amqp://127.0.0.1:9/x")
	if got := listed(); !slices.Equal(got, want) {
		t.Errorf("got rows %q, want %q", got, want)
	}
	first.Close()
	eventually(t, "no row for the first", func() bool { return len(listed()) == 0 })
	ask(second, secondSender, "amqp://alice/others")
	if got := listed(); len(got) != 1 {
		t.Errorf("got rows %q, want one: the first is gone", got)
	}
	for n := range 200 {
		ask(second, secondSender, fmt.Sprintf("amqp://alice/%d", n))
	}
	if got := listed(); len(got) != 64 {
		t.Errorf("got %d rows, want 64", len(got))
	}
}

// The router in the middle is killed and comes back: requests are answered again, with no row made by hand.
func TestRepliesAfterTheMiddleIsKilled(t *testing.T) {
	end := startRouter(t, "C", "")
	answerBy(t, rhea, end.url(), "NAME")
	middle := startRouter(t, "B", rows("NAME", end.url()))
	first := startRouter(t, "A", rows("NAME", middle.url()))
	requestByGo(t, first, "NAME", 3)
	middle.kill()
	eventually(t, "no way back by the router that is gone", func() bool { return !strings.Contains(end.ctl(t, "list"), "$reply/") })
	startRouterOn(t, "B", middle.addr, rows("NAME", end.url()))
	requestByGo(t, first, "NAME", 3)
	if rows := end.ctl(t, "list", "--origin", "link"); strings.Count(rows, "$reply/") != 2 {
		t.Errorf("got rows\n%swant two for replies", rows)
	}
}

// However many requesters there are behind one router, they are one row at the next.
func TestRepliesToManyRequesters(t *testing.T) {
	const sessions = 10
	chain := startChain(t, 2, "NAME")
	answerByGo(t, chain[1].url(), "NAME")
	for range sessions {
		session := dialGo(t, chain[0].url())
		sender, err := session.NewSender(within(t), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := range requesters / sessions {
			ctx := within(t)
			r, err := session.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true})
			if err != nil {
				t.Fatal(err)
			}
			to, replyTo := "NAME", r.Address()
			m := amqp.NewMessage(nil)
			m.Properties = &amqp.MessageProperties{To: &to, ReplyTo: &replyTo, CorrelationID: uint64(n)}
			if err := sender.Send(ctx, m, nil); err != nil {
				t.Fatal(err)
			}
			answer, err := r.Receive(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.AcceptMessage(ctx, answer)
			if fmt.Sprint(answer.Properties.CorrelationID) != strconv.Itoa(n) {
				t.Fatalf("requester %d has the answer to %v", n, answer.Properties.CorrelationID)
			}
		}
	}
	for i, want := range []int{requesters, 1} {
		if rows := chain[i].ctl(t, "list"); strings.Count(rows, "$reply/") != want {
			t.Errorf("router %d has %d rows for replies, want %d", i+1, strings.Count(rows, "$reply/"), want)
		}
	}
}
