package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	transport "github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/internal/house/journal"
	"github.com/fingerpost/fingerpost/internal/users"
	"github.com/fingerpost/fingerpost/routetable"
)

// people are users whose password is s3cret.
func people(t testing.TB, list ...users.User) *users.Directory {
	t.Helper()
	f := users.File{}
	for _, u := range list {
		var err error
		if u.Verifiers, err = transport.MakeVerifiers(u.Name, "s3cret", transport.MinIterations); err != nil {
			t.Fatal(err)
		}
		f.Users = append(f.Users, u)
	}
	d, err := f.Directory()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// loginAs connects as a user.
func (r *router) loginAs(user string) *amqp.Conn {
	r.t.Helper()
	c, err := amqp.Dial(within(r.t), r.url, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(user, "s3cret")})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

func sessionOf(t testing.TB, c *amqp.Conn) *amqp.Session {
	t.Helper()
	s, err := c.NewSession(within(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// conditionOf is the condition of what go-amqp got back.
func conditionOf(err error) string {
	var le *amqp.LinkError
	var ce *amqp.ConnError
	var ae *amqp.Error
	switch {
	case errors.As(err, &le) && le.RemoteErr != nil:
		return string(le.RemoteErr.Condition)
	case errors.As(err, &ce) && ce.RemoteErr != nil:
		return string(ce.RemoteErr.Condition)
	case errors.As(err, &ae):
		return string(ae.Condition)
	case err == nil:
		return ""
	}
	return err.Error()
}

const forbidden = "amqp:unauthorized-access"

func TestUsersNameWhatTheirListsAllow(t *testing.T) {
	r := start(t, forwarder.Options{Access: forwarder.Access{Users: people(t,
		users.User{Name: "alice", Send: []string{"orders", "eu/*", "topic:prices"}, Receive: []string{"news"}},
		users.User{Name: "bob", Send: []string{}},
		users.User{Name: "carol", Role: admin.RoleViewer},
		users.User{Name: "dave", Role: admin.RoleOperator, Receive: []string{}},
	)}}, "orders --> null", "eu/1 --> null", "us/1 --> null", "* --> null")
	pattern := &amqp.ReceiverOptions{SourceCapabilities: []string{"fingerpost:pattern"}}
	for user, want := range map[string]string{"alice": forbidden, "carol": forbidden, "dave": ""} {
		if _, err := sessionOf(t, r.loginAs(user)).NewReceiver(within(t), "news/*", pattern); conditionOf(err) != want {
			t.Errorf("%s receives on a pattern: %v, want %q", user, err, want)
		}
	}
	for _, c := range []struct{ user, address, send, receive string }{
		{"alice", "orders", "", forbidden}, {"alice", "eu/1", "", forbidden}, {"alice", "us/1", forbidden, forbidden}, {"alice", "news", forbidden, ""},
		{"alice", "topic:prices", "", forbidden}, {"alice", "topic:orders", forbidden, forbidden}, {"alice", "link:1", forbidden, forbidden},
		{"alice", "$management", forbidden, "amqp:not-allowed"},
		{"bob", "orders", forbidden, ""}, {"bob", "topic:a", forbidden, forbidden},
		{"carol", "orders", "", ""}, {"carol", "topic:a", forbidden, forbidden}, {"carol", "$management", "", "amqp:not-allowed"},
		{"", "orders", "", ""}, {"", "topic:a", "", ""}, {"", "event:req/E", "", ""}, {"", "link:1", forbidden, forbidden}, {"", "$management", "", "amqp:not-allowed"},
	} {
		var s *amqp.Session
		if c.user == "" {
			s = r.session()
		} else {
			s = sessionOf(t, r.loginAs(c.user))
		}
		_, err := s.NewSender(within(t), c.address, nil)
		if got := conditionOf(err); got != c.send {
			t.Errorf("%s sends to %s: %q, want %q", c.user, c.address, got, c.send)
		}
		_, err = s.NewReceiver(within(t), c.address, nil)
		if got := conditionOf(err); got != c.receive {
			t.Errorf("%s receives from %s: %q, want %q", c.user, c.address, got, c.receive)
		}
	}
	if got := r.node.Counters()["unauthorized"]; got == 0 {
		t.Error("nothing was counted")
	}
}

// verdict sends a message and gives its outcome, with the condition of a rejection.
func (r *router) verdict(s *amqp.Sender, m *amqp.Message) string {
	r.t.Helper()
	receipt, err := s.SendWithReceipt(within(r.t), m, nil)
	if err != nil {
		return err.Error()
	}
	state, err := receipt.Wait(within(r.t))
	if err != nil {
		return err.Error()
	}
	name := fmt.Sprintf("%T", state)
	name = name[strings.LastIndex(name, ".State")+len(".State"):]
	if rejected, ok := state.(*amqp.StateRejected); ok && rejected.Error != nil {
		name += " " + string(rejected.Error.Condition)
	}
	return name
}

// On a link without a target the address of each message counts, and the one that it is found by: the name in an amqp URL is a name.
func TestEachMessageOfAnAnonymousLinkIsLookedAt(t *testing.T) {
	r := start(t, forwarder.Options{Access: forwarder.Access{Users: people(t, users.User{Name: "alice", Send: []string{"orders", "new"}})}},
		"orders --> null", "other --> null")
	s, err := sessionOf(t, r.loginAs("alice")).NewSender(within(t), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time from memory
		for _, c := range []struct{ to, want string }{
			{"orders", "Accepted"}, {"other", "Rejected " + forbidden}, {"nowhere", "Rejected " + forbidden}, {"new", "Rejected amqp:not-found"},
			{"amqp://somewhere/orders", "Accepted"}, {"amqp://somewhere/other", "Rejected " + forbidden}, {"topic:x", "Rejected " + forbidden},
			{"$reply/1/2", "Rejected amqp:not-found"},
		} {
			if got := r.verdict(s, message(c.to, "x")); !strings.HasPrefix(got, c.want) {
				t.Errorf("to %s: %s, want %s", c.to, got, c.want)
			}
		}
	}
}

// A message that waits for a row is not let through by a row that the client may not use.
func TestAWaitingMessageIsLookedAtAgain(t *testing.T) {
	r := start(t, forwarder.Options{Access: forwarder.Access{Users: people(t, users.User{Name: "alice", Send: []string{"later", "b"}})}})
	s, err := sessionOf(t, r.loginAs("alice")).NewSender(within(t), "later", nil)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan string, 1)
	go func() { sent <- r.verdict(s, message("b", "x")) }()
	r.until("it waits", func() bool { return r.node.Counters()["unrouted"] == 1 })
	r.node.SetAccess(forwarder.Access{Users: people(t, users.User{Name: "alice", Send: []string{"later"}})})
	r.rows(row{"b", "null", nil})
	if got := <-sent; !strings.HasPrefix(got, "Rejected "+forbidden) {
		t.Errorf("got %s", got)
	}
}

func TestAChangeOfUsersReachesThoseWhoAreThere(t *testing.T) {
	may := func(list ...users.User) forwarder.Access { return forwarder.Access{Users: people(t, list...)} }
	alice := users.User{Name: "alice", Send: []string{"a", "b"}, Receive: []string{"a", "b"}}
	r := start(t, forwarder.Options{Access: may(alice, users.User{Name: "bob"})}, "b --> null")
	conn := r.loginAs("alice")
	s := sessionOf(t, conn)
	keeps, err := s.NewReceiver(within(t), "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	loses, err := s.NewReceiver(within(t), "b", nil)
	if err != nil {
		t.Fatal(err)
	}
	to, err := s.NewSender(within(t), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	bob := r.loginAs("bob")

	alice.Send, alice.Receive = []string{"a"}, []string{"a"}
	r.node.SetAccess(may(alice))
	if _, err := loses.Receive(within(t), nil); conditionOf(err) != forbidden {
		t.Errorf("the receiver that may not: %v", err)
	}
	if got := r.verdict(to, message("b", "x")); !strings.HasPrefix(got, "Rejected "+forbidden) {
		t.Errorf("the sender that may not: %s", got)
	}
	go to.Send(within(t), message("a", "x"), nil)
	if _, err := keeps.Receive(within(t), nil); err != nil {
		t.Errorf("the receiver that may: %v", err)
	}
	select {
	case <-bob.Done():
		if got := conditionOf(bob.Err()); got != forbidden {
			t.Errorf("bob is told %q", got)
		}
	case <-within(t).Done():
		t.Error("bob is gone from the file and still here")
	}
}

func TestAConnectionTooManyIsToldSo(t *testing.T) {
	var log journal.Journal
	r := start(t, forwarder.Options{Access: forwarder.Access{Limits: forwarder.Limits{Connections: 2}}, Log: slog.New(slog.NewTextHandler(&log, nil))}, "a --> null")
	mustSender(t, r.session(), "a")
	second, err := amqp.Dial(within(t), r.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	third, err := amqp.Dial(within(t), r.url, nil)
	if err == nil {
		select {
		case <-third.Done():
			err = third.Err()
		case <-within(t).Done():
			t.Fatal("the third connection lives")
		}
	}
	if got := conditionOf(err); got != "amqp:resource-limit-exceeded" {
		t.Errorf("the third connection: %q", got)
	}
	if got := r.verdict(mustSender(t, sessionOf(t, second), "a"), message("", "x")); got != "Accepted" {
		t.Errorf("the others: %s", got)
	}
	second.Close()
	r.until("there is room again", func() bool {
		c, err := amqp.Dial(within(t), r.url, nil)
		if err != nil {
			return false
		}
		defer c.Close()
		_, err = c.NewSession(within(t), nil)
		return err == nil
	})
	if r.node.Counters()["connectionsRefused"] == 0 {
		t.Error("nothing was counted")
	}
	if !log.Has("a connection is refused: there are as many as limits.connections") {
		t.Errorf("the log does not tell: %s", log.String())
	}
}

// Who is there when the end begins is served on; nobody new comes in.
func TestAtTheEndNobodyNewIsTaken(t *testing.T) {
	r := start(t, forwarder.Options{}, "a --> null")
	snd := mustSender(t, r.session(), "a")
	r.node.StopListening()
	if got := r.verdict(snd, message("", "x")); got != "Accepted" {
		t.Errorf("who is there: %s", got)
	}
	if c, err := amqp.Dial(within(t), r.url, nil); err == nil {
		c.Close()
		t.Error("somebody new was taken")
	}
}

func mustSender(t testing.TB, s *amqp.Session, target string) *amqp.Sender {
	t.Helper()
	snd, err := s.NewSender(within(t), target, nil)
	if err != nil {
		t.Fatal(err)
	}
	return snd
}

func TestALinkTooManyIsRefusedAlone(t *testing.T) {
	r := start(t, forwarder.Options{Access: forwarder.Access{Limits: forwarder.Limits{Links: 2}}}, "a --> null")
	conn, err := amqp.Dial(within(t), r.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	one, two := sessionOf(t, conn), sessionOf(t, conn)
	keeps := mustSender(t, one, "a")
	goes := mustSender(t, two, "a")
	if _, err := two.NewSender(within(t), "a", nil); conditionOf(err) != "amqp:resource-limit-exceeded" {
		t.Errorf("got %v", err)
	}
	if err := goes.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	mustSender(t, two, "a")
	if got := r.verdict(keeps, message("", "x")); got != "Accepted" {
		t.Error(got)
	}
	if got := r.node.Counters()["linksRefused"]; got != 1 {
		t.Errorf("counted %d", got)
	}
}

// Many connections at once, more than the limit and more than there would be descriptors for by far: the router goes on.
func TestAStormOfConnections(t *testing.T) {
	const limit, storm = 50, 400
	r := start(t, forwarder.Options{Access: forwarder.Access{Limits: forwarder.Limits{Connections: limit}}}, "a --> null")
	witness := r.sender("a")
	var wait sync.WaitGroup
	conns := make(chan net.Conn, storm)
	for range storm {
		wait.Go(func() {
			if c, err := net.Dial("tcp", r.hop); err == nil {
				c.Write([]byte("AMQP\x00\x01\x00\x00"))
				conns <- c
			}
		})
	}
	wait.Wait()
	close(conns)
	for range 10 {
		if got := r.verdict(witness, message("", "x")); got != "Accepted" {
			t.Fatal(got)
		}
	}
	r.until("many were refused", func() bool { return r.node.Counters()["connectionsRefused"] >= storm-limit-100 })
	for c := range conns {
		c.Close()
	}
	r.until("they are gone", func() bool { return r.node.Counters()["connections"] == 1 })
	mustSender(t, r.session(), "a")
}

// On a listener that says so receivers share a plain name, but for those that ask for copies.
func TestReceiversShareByTheListener(t *testing.T) {
	r := start(t, forwarder.Options{})
	addr, err := r.node.ListenWith(forwarder.ListenOptions{Address: "127.0.0.1:0", Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	by := &router{t: t, node: r.node, table: r.table, url: "amqp://" + addr.String()}
	for _, c := range []struct {
		what, address string
		options       *amqp.ReceiverOptions
		want          routetable.Pick
	}{
		{"nothing", "A", nil, routetable.PickAny}, {"a queue", "B", &amqp.ReceiverOptions{SourceCapabilities: []string{"queue"}}, routetable.PickAny},
		{"a topic", "C", &amqp.ReceiverOptions{SourceCapabilities: []string{"topic"}}, routetable.PickAll}, {"a name of a scheme", "topic:D", nil, routetable.PickAll},
	} {
		by.receiver(c.address, c.options)
		groups := r.table.Lookup(c.address)
		if len(groups) != 1 || groups[0].Pick != c.want {
			t.Errorf("a receiver that asks for %s: got %v, want %v", c.what, groups, c.want)
		}
	}
	r.receiver("E", nil)
	if groups := r.table.Lookup("E"); len(groups) != 1 || groups[0].Pick != routetable.PickAll {
		t.Errorf("by another listener: got %v", groups)
	}
}

func TestAnAddressOfItsOwnIsDialledByDirectListenersOnly(t *testing.T) {
	last := start(t, forwarder.Options{DeliveryTimeout: 100 * time.Millisecond}, "inbox --> null")
	r := start(t, forwarder.Options{DeliveryTimeout: time.Second}, "known --> null")
	addr, err := r.node.ListenWith(forwarder.ListenOptions{Address: "127.0.0.1:0", Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	direct := &router{t: t, node: r.node, table: r.table, url: "amqp://" + addr.String()}
	url := "amqp://" + last.hop + "/inbox"
	for _, c := range []struct {
		by           *router
		target, want string
	}{
		{r, url, "Rejected amqp:not-found"}, {direct, url, "Accepted"}, {r, url, "Rejected amqp:not-found"},
		{direct, "amqp://" + last.hop + "/outbox", "R"}, {r, "amqp://" + last.hop + "/outbox", "Rejected amqp:not-found"},
		{direct, "nowhere", "Rejected amqp:not-found"}, {direct, "amqp://x:y", "Rejected amqp:not-found"},
	} {
		if got := r.verdict(c.by.sender(""), message(c.target, "x")); !strings.HasPrefix(got, c.want) {
			t.Errorf("anonymous link, to %s: %s, want %s", c.target, got, c.want)
		}
		if got := r.verdict(c.by.sender(c.target), message("", "x")); !strings.HasPrefix(got, c.want) {
			t.Errorf("link on %s: %s, want %s", c.target, got, c.want)
		}
	}
}

func hopOf(t testing.TB, address string) *routetable.Hop {
	t.Helper()
	h, err := routetable.ParseHop(address)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHopsLogInByTheConfigurationOnly(t *testing.T) {
	last := start(t, forwarder.Options{Access: forwarder.Access{Users: people(t, users.User{Name: "alice", Send: []string{"A", "B"}})}}, "* --> null")
	addr, err := last.node.ListenWith(forwarder.ListenOptions{Address: "127.0.0.1:0", SASL: []string{"SCRAM-SHA-512", "PLAIN"}})
	if err != nil {
		t.Fatal(err)
	}
	hop := "amqp://" + addr.String()
	r := start(t, forwarder.Options{Hops: forwarder.Hops{By: map[string]*forwarder.Hop{
		forwarder.HopKey(hopOf(t, hop)): {User: "alice", Password: "s3cret", HasPassword: true},
	}}}, "A --> "+hop+"/A")
	r.rows(row{"B", "amqp://alice:s3cret@" + last.hop + "/A", []routetable.Column{routetable.WithTimeout(300 * time.Millisecond)}})
	s := r.sender("")
	if got := r.verdict(s, message("A", "x")); got != "Accepted" {
		t.Errorf("by the configuration: %s", got)
	}
	if got := r.verdict(s, message("B", "x")); got != "Released" {
		t.Errorf("by the table: %s", got)
	}
	r.node.SetHops(forwarder.Hops{TableCredentials: true})
	r.until("the table's are used", func() bool { return r.verdict(s, message("B", "x")) == "Accepted" })
}

// The hop's own place is away: another stands in, the next in the list where that is away too, until the first is back.
func TestAnotherPlaceStandsIn(t *testing.T) {
	second := start(t, forwarder.Options{}, "A --> null")
	own, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := own.Addr().String()
	own.Close() // it is away
	r := start(t, forwarder.Options{ReturnEvery: 20 * time.Millisecond, Hops: forwarder.Hops{By: map[string]*forwarder.Hop{
		forwarder.HopKey(hopOf(t, address)): {Failover: []*routetable.Hop{hopOf(t, "amqp://127.0.0.1:2"), hopOf(t, second.url)}},
	}}}, "A --> "+address)
	s := r.sender("")
	if got := r.verdict(s, message("A", "x")); got != "Accepted" {
		t.Error(got)
	}
	if got := second.node.Counters()["received"]; got != 1 {
		t.Errorf("the one that stands in got %d", got)
	}
	first := start(t, forwarder.Options{}, "A --> null")
	if _, err := first.node.ListenWith(forwarder.ListenOptions{Address: address}); err != nil {
		t.Fatal(err)
	}
	r.until("the first is used again", func() bool {
		return r.verdict(s, message("A", "x")) == "Accepted" && first.node.Counters()["received"] > 0
	})
}

func TestAGuesserIsToldNothingAndSlowedDown(t *testing.T) {
	r := start(t, forwarder.Options{Access: forwarder.Access{Users: people(t, users.User{Name: "alice"})}})
	told := map[string]bool{}
	for i := range 12 {
		user := "alice"
		if i%2 == 0 {
			user = fmt.Sprintf("nobody-%d", i)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		_, err := amqp.Dial(ctx, r.url, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(user, "guess")})
		cancel()
		if err == nil {
			t.Fatal("a guess was right")
		}
		told[err.Error()] = true
	}
	if len(told) != 1 {
		t.Errorf("a guesser tells users from others by: %v", told)
	}
	if got := r.node.Counters()["loginsFailed"]; got < 10 {
		t.Errorf("%d failures counted", got)
	}
	mustSender(t, r.session(), "$management")
	r.loginAs("alice") // the right password comes through, in a while
}

// glutton sends a message that is larger than the peer takes, and notes how its link ends.
type glutton struct {
	engine.NoHandler
	c     *transport.Conn
	link  *engine.Link
	size  int
	ended chan error
}

func (g *glutton) Opened() {
	s, err := g.c.Engine.Begin()
	if err != nil {
		panic(err)
	}
	g.link, _ = s.Attach(engine.AttachOptions{
		Name: "glutton", Role: engine.RoleSender, SenderMode: engine.SenderMixed,
		Source: &wire.Source{}, Target: &wire.Target{Address: "a", HasAddress: true},
	})
}
func (g *glutton) Attached(*engine.Link)              {}
func (g *glutton) Detached(_ *engine.Link, err error) { g.ended <- err }
func (g *glutton) Flow(l *engine.Link) {
	if g.size > 0 {
		l.Send(&engine.OutDelivery{}, false, 0, nil, make([]byte, g.size))
		g.size = 0
	}
}
func (g *glutton) AfterInput(bool)          {}
func (g *glutton) BeforeFlush()             {}
func (g *glutton) TakeWork() transport.Work { return nil }

func TestAMessageThatIsTooLargeEndsItsLink(t *testing.T) {
	r := start(t, forwarder.Options{MaxMessage: 10_000}, "a --> null")
	witness := r.sender("a")
	g := &glutton{size: 200_000, ended: make(chan error, 1)}
	c, err := transport.Dial(within(t), transport.DialOptions{Address: r.hop}, func(c *transport.Conn) transport.Owner {
		g.c = c
		return g
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { c.Close(nil); <-c.Done() }()
	select {
	case err := <-g.ended:
		var le *engine.LinkError
		if !errors.As(err, &le) || le.Condition != wire.CondMessageSizeExceeded {
			t.Errorf("got %v", err)
		}
	case <-within(t).Done():
		t.Fatal("the link lives")
	}
	if got := r.node.Counters()["tooLarge"]; got != 1 {
		t.Errorf("counted %d", got)
	}
	if got := r.verdict(witness, message("", "x")); got != "Accepted" {
		t.Errorf("the others: %s", got)
	}
}

// A look-up in a list of a thousand patterns allocates nothing; it is made once for each plan.
func TestListsCostAMessageNothing(t *testing.T) {
	patterns := []string{"a"}
	for i := range 999 {
		patterns = append(patterns, fmt.Sprintf("*x%d*", i))
	}
	g, err := admin.NewGrants(patterns)
	if err != nil {
		t.Fatal(err)
	}
	if got := testing.AllocsPerRun(100, func() { g.Allow("a"); g.Allow("$reply/1/2"); g.Allow("other") }); got > 0 {
		t.Errorf("%v allocations in a look-up", got)
	}
	var nobody *admin.Grants
	if got := testing.AllocsPerRun(100, func() { nobody.Allow("a"); nobody.Allow("topic:a") }); got > 0 {
		t.Errorf("%v allocations where there is no list", got)
	}
}

// A peer that is slow to open is waited for as long as any hop.
func TestADirectHopIsWaitedFor(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := ln.Accept(); err == nil {
			accepted <- c
		}
	}()
	r := start(t, forwarder.Options{DeliveryTimeout: 700 * time.Millisecond})
	addr, err := r.node.ListenWith(forwarder.ListenOptions{Address: "127.0.0.1:0", Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	direct := &router{t: t, node: r.node, table: r.table, url: "amqp://" + addr.String()}
	began := time.Now()
	got := r.verdict(direct.sender(""), message("amqp://"+ln.Addr().String()+"/x", ""))
	if took := time.Since(began); got != "Released" || took < 700*time.Millisecond {
		t.Errorf("got %s after %v, want Released after the delivery timeout", got, took)
	}
	(<-accepted).Close()
	ln.Close()
}
