package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/house/leaks"
	"github.com/fingerpost/fingerpost/internal/users"
	"github.com/fingerpost/fingerpost/routetable"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// router is a node on a free port.
type router struct {
	t     testing.TB
	node  *forwarder.Node
	table *routetable.Table
	url   string
	hop   string // host:port
}

func start(t testing.TB, o forwarder.Options, rows ...string) *router {
	t.Helper()
	table := routetable.New()
	for _, r := range rows {
		pattern, address, _ := strings.Cut(r, " --> ")
		if _, err := table.Add(pattern, address); err != nil {
			t.Fatal(err)
		}
	}
	n := forwarder.New(admin.New(table, admin.Options{}), o)
	addr, err := n.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		n.Stop(ctx)
		if err := n.ConsistencyCheck(); err != nil {
			t.Error(err)
		}
	})
	return &router{t: t, node: n, table: table, url: "amqp://" + addr.String(), hop: addr.String()}
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (r *router) session() *amqp.Session { return r.sessionBy(nil) }

func (r *router) sessionBy(o *amqp.ConnOptions) *amqp.Session {
	r.t.Helper()
	c, err := amqp.Dial(within(r.t), r.url, o)
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

func (r *router) receiver(address string, o *amqp.ReceiverOptions) *amqp.Receiver {
	r.t.Helper()
	rcv, err := r.session().NewReceiver(within(r.t), address, o)
	if err != nil {
		r.t.Fatal(err)
	}
	return rcv
}

func (r *router) sender(target string) *amqp.Sender {
	r.t.Helper()
	s, err := r.session().NewSender(within(r.t), target, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func message(to, body string) *amqp.Message {
	m := amqp.NewMessage([]byte(body))
	if to != "" {
		m.Properties = &amqp.MessageProperties{To: &to}
	}
	return m
}

func (r *router) take(rcv *amqp.Receiver) *amqp.Message {
	r.t.Helper()
	m, err := rcv.Receive(within(r.t), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := rcv.AcceptMessage(within(r.t), m); err != nil {
		r.t.Fatal(err)
	}
	return m
}

// outcome sends a message and names its outcome.
func (r *router) outcome(s *amqp.Sender, m *amqp.Message) string {
	receipt, err := s.SendWithReceipt(within(r.t), m, nil)
	if err != nil {
		return err.Error()
	}
	state, err := receipt.Wait(within(r.t))
	if err != nil {
		return err.Error()
	}
	name := fmt.Sprintf("%T", state)
	return name[strings.LastIndex(name, ".State")+len(".State"):]
}

// condition is the condition of a rejection, "" for none.
func condition(err error) string {
	var e *amqp.Error
	if errors.As(err, &e) {
		return string(e.Condition)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func TestEveryReceiverOnANameGetsACopy(t *testing.T) {
	r := start(t, forwarder.Options{})
	a, b := r.receiver("COLOSSUS", nil), r.receiver("COLOSSUS", nil)
	s := r.sender("")
	got := make(chan string, 2)
	for _, rcv := range []*amqp.Receiver{a, b} {
		go func() { m := r.take(rcv); got <- *m.Properties.To + " " + string(m.GetData()) }()
	}
	if err := s.Send(within(t), message("COLOSSUS", "hello"), nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if g := <-got; g != "COLOSSUS hello" {
			t.Errorf("got %q", g)
		}
	}
}

// A row may lead to a name that nobody serves: the sender hears which.
func TestARefusalNamesWhatNobodyServes(t *testing.T) {
	r := start(t, forwarder.Options{}, "ALIAS --> rpc:sum", "OUTER --> route:INNER", "INNER --> rpc:product")
	s := r.sender("")
	for to, name := range map[string]string{"ALIAS": "rpc:sum", "OUTER": "rpc:product"} {
		err := s.Send(within(t), message(to, "x"), nil)
		if want := fmt.Sprintf("the address %q leads to %q, which no route matches", to, name); condition(err) != "amqp:not-found" || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestUnroutedAddressesAreTalliedByReason(t *testing.T) {
	r := start(t, forwarder.Options{}, "COLOSSUS --> null", "x/* --> null")
	for _, pattern := range []string{"COLOSSUS", "x/*"} {
		if _, err := r.table.DeletePattern(pattern); err != nil {
			t.Fatal(err)
		}
	}
	s := r.sender("")
	for _, to := range []string{"COLOSSUS", "COLOSSUS", "x/1", "MULTIVAC"} {
		if got := condition(s.Send(within(t), message(to, "x"), nil)); got != "amqp:not-found" {
			t.Errorf("to %q: got %q", to, got)
		}
	}
	if got, want := tallied(r), []string{"MULTIVAC not wired 1", "x/1 handler gone 1", "COLOSSUS handler gone 2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if c := r.node.Counters(); c["handlerGone"] != 3 || c["notWired"] != 1 || c["unrouted"] != 4 {
		t.Errorf("got %v", c)
	}
}

// A topic without a subscriber takes a message that a row leads there, and nobody gets it: the tally says so.
func TestATopicWithoutASubscriberIsTallied(t *testing.T) {
	r := start(t, forwarder.Options{}, "COLOSSUS --> topic:T", "HAL9000 --> null")
	s := r.sender("")
	for _, to := range []string{"COLOSSUS", "HAL9000"} {
		if err := s.Send(within(t), message(to, "x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := tallied(r), []string{"COLOSSUS nobody reads 1"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A row that is optional is no route, also where it leads nowhere: to null, or to a topic without a subscriber.
func TestOptionalRowsThatLeadNowhereAreNoRoute(t *testing.T) {
	r := start(t, forwarder.Options{})
	anyTap := append(pick(routetable.PickAny), optional...)
	r.rows(row{"COLOSSUS", "topic:T", optional}, row{"HAL9000", "null", optional}, row{"SKYNET", "null", anyTap}, row{"MULTIVAC", "route:HAL9000", nil},
		row{"GUARDIAN", "null", optional}, row{"GUARDIAN", "topic:T", nil}, row{"EMERAC", "null", anyTap}, row{"EMERAC", "route:GUARDIAN", pick(routetable.PickAny)})
	s := r.sender("")
	for _, to := range []string{"COLOSSUS", "HAL9000", "SKYNET", "MULTIVAC"} {
		if err := s.Send(within(t), message(to, "x"), nil); condition(err) != "amqp:not-found" {
			t.Errorf("%s: got %v", to, err)
		}
	}
	for _, to := range []string{"GUARDIAN", "EMERAC"} {
		if err := s.Send(within(t), message(to, "x"), nil); err != nil {
			t.Errorf("%s, which has a row that counts: got %v", to, err)
		}
	}
}

func tallied(r *router) (all []string) {
	for _, x := range r.node.Unrouted() {
		all = append(all, fmt.Sprintf("%s %s %d", x.Address, x.Reason, x.Count))
	}
	return all
}

// A row may lead to a receiver that is not attached: that is what the sender and the tally are told, whether or not a tap takes a copy.
func TestARowToALinkThatNobodyReads(t *testing.T) {
	r := start(t, forwarder.Options{}, "COLOSSUS --> link:backup", "HAL9000 --> link:77", "SKYNET --> route:NOBODY")
	r.rows(row{"HAL9000", "route:TAP", optional}, row{"SKYNET", "route:TAP", optional})
	tap := r.receiver("TAP", nil)
	s := r.sender("")
	err := s.Send(within(t), message("COLOSSUS", "x"), nil)
	if want := `the address "COLOSSUS" leads to "link:backup", where nobody is`; condition(err) != "amqp:not-found" || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := s.Send(within(t), message("HAL9000", "x"), nil); condition(err) != "amqp:not-found" {
		t.Errorf("where a tap takes it: %v", err)
	}
	r.take(tap)
	if err := s.Send(within(t), message("SKYNET", "x"), nil); condition(err) != "amqp:not-found" {
		t.Errorf("where a tap takes it, and a name has no row: %v", err)
	}
	r.take(tap)
	if got, want := tallied(r), []string{"SKYNET not wired 1", "HAL9000 nobody reads 1", "COLOSSUS nobody reads 1"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for address, want := range map[string]bool{"link:backup": true, "link:77": true, "amqp://127.0.0.1:1": false, "null": false, "TAP": false, "route:TAP": false, "route:HAL9000": false, "topic:x": true, "bad://": false} {
		if got := r.node.Unread(address); got != want {
			t.Errorf("%s: unread is %v", address, got)
		}
	}
}

func TestAnAddressThatIsTooLongIsToldTheLimit(t *testing.T) {
	row := strings.Repeat("r", 300)
	r := start(t, forwarder.Options{}, "* --> null", row+" --> null")
	s := r.sender("")
	if err := s.Send(within(t), message(strings.Repeat("a", 64<<10), "x"), nil); err != nil {
		t.Errorf("64 KiB: %v", err)
	}
	err := s.Send(within(t), message(strings.Repeat("a", 64<<10+1), "x"), nil)
	if condition(err) != "amqp:not-found" || !strings.Contains(err.Error(), "longer than 64 KiB (65537 bytes)") {
		t.Errorf("one byte more: %v", err)
	}
	for _, pattern := range []string{"*", row} {
		if _, err := r.table.DeletePattern(pattern); err != nil {
			t.Fatal(err)
		}
	}
	if got := condition(s.Send(within(t), message(row, "x"), nil)); got != "amqp:not-found" {
		t.Errorf("without a row: %s", got)
	}
	if c := r.node.Counters(); c["handlerGone"] != 1 {
		t.Errorf("got %v", c)
	}
}

func TestWhatASenderIsTold(t *testing.T) {
	r := start(t, forwarder.Options{DeliveryTimeout: 200 * time.Millisecond}, "HAL9000 --> null", "LOST --> amqp://127.0.0.1:1", "$1x --> null")
	s := r.sender("")
	for _, c := range []struct{ to, want string }{
		{"HAL9000", ""},
		{"MULTIVAC", "amqp:not-found"},
		{"", "amqp:not-found"},
		{"web:secret", "amqp:unauthorized-access"},
	} {
		if got := condition(s.Send(within(t), message(c.to, "x"), nil)); got != c.want {
			t.Errorf("to %q: got %q, want %q", c.to, got, c.want)
		}
	}
	if got := r.outcome(s, message("LOST", "x")); got != "Released" {
		t.Errorf("a hop that is away: got %s", got)
	}
	if got := r.node.Counters()["discarded"]; got != 1 {
		t.Errorf("discarded %d, want 1", got)
	}
	if got := condition(r.sender("NOWHERE").Send(within(t), message("", "x"), nil)); got != "amqp:not-found" {
		t.Errorf("link target without a route: got %q", got)
	}
}

func TestATargetedLinkWaitsForARow(t *testing.T) {
	r := start(t, forwarder.Options{})
	s := r.sender("LATER")
	sent := make(chan error, 1)
	go func() { sent <- s.Send(within(t), message("", "x"), nil) }()
	rcv := r.receiver("LATER", nil)
	if m := r.take(rcv); string(m.GetData()) != "x" {
		t.Errorf("got %q", m.GetData())
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	for range 50 {
		go func() { sent <- s.Send(within(t), message("", "y"), nil) }()
		r.take(rcv)
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	}
}

func TestReceiversOfAQueueShare(t *testing.T) {
	r := start(t, forwarder.Options{})
	o := &amqp.ReceiverOptions{SourceCapabilities: []string{"queue"}}
	a, b := r.receiver("JOBS", o), r.receiver("JOBS", o)
	s := r.sender("JOBS")
	count := make(chan int, 2)
	ctx, cancel := context.WithCancel(t.Context())
	for _, rcv := range []*amqp.Receiver{a, b} {
		go func() {
			n := 0
			for {
				m, err := rcv.Receive(ctx, nil)
				if err != nil {
					count <- n
					return
				}
				rcv.AcceptMessage(ctx, m)
				n++
			}
		}()
	}
	for range 100 {
		if err := s.Send(within(t), message("", "job"), nil); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	x, y := <-count, <-count
	if x+y != 100 || x < 20 || y < 20 {
		t.Errorf("shares %d and %d", x, y)
	}
}

func TestAChainTranslatesAtEachHop(t *testing.T) {
	last := start(t, forwarder.Options{})
	middle := start(t, forwarder.Options{}, "A --> amqp://"+last.hop)
	first := start(t, forwarder.Options{}, "A --> amqp://"+middle.hop, "A --> amqp://"+last.hop+"/B")
	a, b := last.receiver("A", nil), last.receiver("B", nil)
	s := first.sender("")
	got := make(chan string, 3)
	take := func(rcv *amqp.Receiver) {
		m := last.take(rcv)
		got <- fmt.Sprintf("%s %s %v", *m.Properties.To, m.GetData(), m.Annotations["x-opt-via"])
	}
	go take(a) // by way of the middle
	go take(a) // straight, to the target B but with its own address, which comes first
	_ = b
	if err := s.Send(within(t), message("A", "hello"), nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if g := <-got; !strings.HasPrefix(g, "A hello") {
			t.Errorf("got %q", g)
		}
	}
}

func TestALoopOfTwoEnds(t *testing.T) {
	a := start(t, forwarder.Options{})
	b := start(t, forwarder.Options{}, "X --> amqp://"+a.hop)
	if _, err := a.table.Add("X", "amqp://"+b.hop); err != nil {
		t.Fatal(err)
	}
	if got := condition(a.sender("").Send(within(t), message("X", "round"), nil)); got != "fingerpost:loop" {
		t.Errorf("got %q", got)
	}
}

func TestManagementAndReplies(t *testing.T) {
	r := start(t, forwarder.Options{})
	s := r.session()
	replies, err := s.NewReceiver(within(t), "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		t.Fatal(err)
	}
	door, err := s.NewSender(within(t), "$management", nil)
	if err != nil {
		t.Fatal(err)
	}
	reply := replies.Address()
	m := &amqp.Message{
		Properties:            &amqp.MessageProperties{ReplyTo: &reply, MessageID: "m1"},
		ApplicationProperties: map[string]any{"operation": "CREATE", "type": "route"},
		Value:                 map[string]any{"pattern": "SKYNET", "address": "null"},
	}
	if err := door.Send(within(t), m, nil); err != nil {
		t.Fatal(err)
	}
	got := r.take(replies)
	if got.ApplicationProperties["statusCode"] != int32(201) || got.Properties.CorrelationID != "m1" {
		t.Fatalf("got %v, correlation %v", got.ApplicationProperties, got.Properties.CorrelationID)
	}
	if err := r.sender("").Send(within(t), message("SKYNET", "x"), nil); err != nil {
		t.Error(err)
	}
}

func TestAReceiverThatGoesGivesBackWhatItHad(t *testing.T) {
	r := start(t, forwarder.Options{})
	rcv := r.receiver("X", &amqp.ReceiverOptions{Credit: -1})
	s := r.sender("")
	sent := make(chan string, 1)
	go func() { sent <- r.outcome(s, message("X", "x")) }()
	for r.node.Counters()["received"] == 0 {
		time.Sleep(time.Millisecond)
	}
	rcv.Close(within(t))
	if got := <-sent; got != "Released" {
		t.Errorf("got %s", got)
	}
}

// A first group whose first hop is not there goes to the next one at once, and an any group to those that are.
func TestAHopThatIsAwayIsSkipped(t *testing.T) {
	last := start(t, forwarder.Options{})
	r := start(t, forwarder.Options{})
	for _, pick := range []routetable.Pick{routetable.PickFirst, routetable.PickAny} {
		name := pick.String()
		for _, address := range []string{"amqp://127.0.0.1:1", "amqp://" + last.hop} {
			if _, err := r.table.Add(name, address, routetable.WithPick(pick)); err != nil {
				t.Fatal(err)
			}
		}
		rcv := last.receiver(name, nil)
		s := r.sender("")
		for range 4 {
			done := make(chan string, 1)
			go func() { done <- r.outcome(s, message(name, "x")) }()
			last.take(rcv)
			if got := <-done; got != "Accepted" {
				t.Errorf("pick %s: got %s", name, got)
			}
		}
	}
}

// Links to targets that nobody uses any more are closed, and made again when somebody does.
func TestIdleLinksToHopsGo(t *testing.T) {
	last := start(t, forwarder.Options{})
	r := start(t, forwarder.Options{IdleLink: 20 * time.Millisecond}, "z/* --> amqp://"+last.hop+"/$1")
	last.table.Add("*", "null")
	s := r.sender("")
	for range 2 {
		for i := range 20 {
			if got := r.outcome(s, message(fmt.Sprintf("z/%d", i), "x")); got != "Accepted" {
				t.Fatalf("z/%d: %s", i, got)
			}
		}
		r.until("no line is left", func() bool { return r.node.Lines() == 0 })
	}
}

// So are lines to a hop that is away; then the hop itself is forgotten, and a message that a plan still leads there by finds it again.
func TestIdleHopsGo(t *testing.T) {
	r := start(t, forwarder.Options{IdleLink: 20 * time.Millisecond, DeliveryTimeout: 50 * time.Millisecond}, "A --> amqp://127.0.0.1:1")
	s := r.sender("")
	for range 3 {
		if got := r.outcome(s, message("A", "x")); got != "Released" {
			t.Fatal(got)
		}
		r.until("no hop is left", func() bool { return r.node.Peers() == 0 && r.node.Lines() == 0 })
	}
	r.counts("A", "amqp://127.0.0.1:1", "matched 3 copied 3 delivered 0 released 0 dropped 3")
}

// until waits for what comes to be true by itself.
func (r *router) until(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not yet: %s", what)
		}
	}
}

// A hop with user and password is logged in to; a wrong password is a hop that is away, and nobody sees it.
func TestAHopWithALogin(t *testing.T) {
	last := start(t, forwarder.Options{Access: forwarder.Access{Users: people(t, users.User{Name: "alice"}, users.User{Name: "bob"})}})
	r := start(t, forwarder.Options{Hops: forwarder.Hops{TableCredentials: true}}, "A --> amqp://alice:s3cret@"+last.hop)
	r.rows(row{"B", "amqp://alice:guess@" + last.hop, []routetable.Column{routetable.WithTimeout(300 * time.Millisecond)}})
	last.table.Add("*", "null")
	s := r.sender("")
	if got := r.outcome(s, message("A", "x")); got != "Accepted" {
		t.Errorf("right password: %s", got)
	}
	if got := r.outcome(s, message("B", "x")); got != "Released" {
		t.Errorf("wrong password: %s", got)
	}
	// The same users can log in as clients, and have their role at the door.
	c, err := amqp.Dial(within(t), last.url, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain("bob", "s3cret")})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := amqp.Dial(within(t), last.url, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain("bob", "guess")}); err == nil {
		t.Error("a wrong password was let in")
	}
}

// Many links wait for rows while the table changes fast: one whose row comes goes on soon, and the node is not busy with the others.
func TestLinksWaitThroughManyEdits(t *testing.T) {
	r := start(t, forwarder.Options{})
	s := r.session()
	sent := make(chan error, 100)
	for i := range cap(sent) {
		snd, err := s.NewSender(within(t), fmt.Sprintf("LATER-%d", i), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // all the edits are made meanwhile
		t.Cleanup(cancel)
		go func() { sent <- snd.Send(ctx, message("", "x"), nil) }()
	}
	r.until("all wait", func() bool { return r.node.Counters()["unrouted"] == uint64(cap(sent)) })
	for i := range 2000 {
		r.rows(row{fmt.Sprintf("other-%d", i), "null", nil})
		r.table.DeletePattern(fmt.Sprintf("other-%d", i))
		if i == 1000 {
			r.rows(row{"LATER-7", "null", nil})
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	r.rows(row{"LATER-*", "null", nil})
	for range cap(sent) - 1 {
		if err := <-sent; err != nil {
			t.Error(err)
		}
	}
	r.counts("LATER-7", "null", "matched 1 copied 0 delivered 1 released 0 dropped 0")
	r.counts("LATER-*", "null", "matched 99 copied 0 delivered 99 released 0 dropped 0")
}

// A receiver that says that its address is a pattern gets what fits it, as by a row that an operator wrote; its row goes with it.
func TestReceiversOnPatterns(t *testing.T) {
	r := start(t, forwarder.Options{})
	pattern := &amqp.ReceiverOptions{SourceCapabilities: []string{"fingerpost:pattern"}}
	all, one, text := r.receiver("eu/*", pattern), r.receiver("glob:{eu,us}/1", pattern), r.receiver("eu/*", nil)
	s := r.sender("")
	for _, to := range []string{"eu/1", "us/1", "eu/2", "eu/*"} {
		go func() { s.Send(within(t), message(to, to), nil) }()
		var want []*amqp.Receiver
		switch to {
		case "eu/1":
			want = []*amqp.Receiver{all, one}
		case "us/1":
			want = []*amqp.Receiver{one}
		case "eu/2":
			want = []*amqp.Receiver{all}
		case "eu/*":
			want = []*amqp.Receiver{all, text}
		}
		for i, rcv := range want {
			if got := string(r.take(rcv).GetData()); got != to {
				t.Errorf("receiver %d of %s got %s", i, to, got)
			}
		}
	}
	all.Close(within(t))
	r.until("its row is gone", func() bool { return r.table.Snapshot().Len() == 2 })
	for address, want := range map[string]string{"glob:[": "amqp:not-allowed", "null": "amqp:not-allowed", "$man*": "amqp:not-allowed"} {
		if _, err := r.session().NewReceiver(within(t), address, pattern); conditionOf(err) != want {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
	}
}
