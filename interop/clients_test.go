package interop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/Azure/go-amqp"
)

// foreign are the clients that are programs of their own; goAMQP is the one in this process.
const (
	rhea   = "rhea"
	proton = "proton"
	goAMQP = "go-amqp"
)

var allClients = []string{goAMQP, rhea, proton}

// client runs a script of a foreign client: send, recv, serve, request or manage.
func client(t testing.TB, kind, script string, args ...string) *process {
	t.Helper()
	if kind == rhea {
		return start(t, "rhea "+script, nodeProgram, append([]string{"rhea/" + script + ".js"}, args...)...)
	}
	return start(t, "proton "+script, pythonProgram, append([]string{"proton/" + script + ".py"}, args...)...)
}

// within gives a context that ends when patience does.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// dialGo connects go-amqp.
func dialGo(t testing.TB, url string) *amqp.Session {
	t.Helper()
	conn, err := amqp.Dial(within(t), url, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous(), MaxFrameSize: 65536})
	if err != nil {
		t.Fatalf("dial %s: %v", url, err)
	}
	t.Cleanup(func() { conn.Close() })
	session, err := conn.NewSession(within(t), nil)
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	return session
}

// bodyOf is the data of message number n, as the clients make it.
func bodyOf(n, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i%251*7 + n)
	}
	return b
}

func shaOf(b []byte) string { h := sha256.Sum256(b); return hex.EncodeToString(h[:]) }

// got is a message at a receiver, as far as all clients can tell.
type got struct {
	id, to string
	size   int
	sha    string
}

func (g got) String() string {
	return fmt.Sprintf("%s to %q, %d bytes %.8s…", g.id, g.to, g.size, g.sha)
}

// batchOf is what a sender is to send: message n has size sizes[n mod len(sizes)].
type batchOf struct {
	address string // the link's target; "" is the anonymous terminus
	to      string
	id      string // of message n: id-n
	count   int
	sizes   []int
	settled bool
}

// want gives what a receiver must get of it.
func (b batchOf) want() []got {
	var all []got
	for n := range b.count {
		size := b.sizes[n%len(b.sizes)]
		all = append(all, got{fmt.Sprintf("%s-%d", b.id, n), b.to, size, shaOf(bodyOf(n, size))})
	}
	return all
}

// sendBy sends a batch by a client and gives the outcome of each, "" where it was settled.
func sendBy(t testing.TB, kind, url string, b batchOf) []string {
	t.Helper()
	if kind == goAMQP {
		return sendByGo(t, url, b)
	}
	args := []string{"--url", url, "--to", b.to, "--count", strconv.Itoa(b.count), "--id", b.id, "--sizes", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(b.sizes)), ","), "[]")}
	if b.address != "" {
		args = append(args, "--address", b.address)
	}
	if b.settled {
		args = append(args, "--settled")
	}
	p := client(t, kind, "send", args...)
	outcomes := make([]string, b.count)
	for {
		e := p.next()
		switch e.text("event") {
		case "outcome":
			outcomes[e.number("n")] = strings.TrimSpace(e.text("state") + " " + e.text("condition"))
			continue
		case "done":
		default:
			t.Fatalf("%s: %v", p.name, e)
		}
		if status := p.wait(); status != 0 {
			t.Fatalf("%s: exit status %d", p.name, status)
		}
		return outcomes
	}
}

func sendByGo(t testing.TB, url string, b batchOf) []string {
	t.Helper()
	session := dialGo(t, url)
	o := &amqp.SenderOptions{}
	if b.settled {
		o.SettlementMode = amqp.SenderSettleModeSettled.Ptr()
	}
	sender, err := session.NewSender(within(t), b.address, o)
	if err != nil {
		t.Fatalf("attach to %q: %v", b.address, err)
	}
	outcomes := make([]string, b.count)
	for n := range b.count {
		m := amqp.NewMessage(bodyOf(n, b.sizes[n%len(b.sizes)]))
		m.Properties = &amqp.MessageProperties{MessageID: fmt.Sprintf("%s-%d", b.id, n)}
		if b.to != "" {
			m.Properties.To = &b.to
		}
		m.ApplicationProperties = map[string]any{"n": int64(n)}
		if !b.settled {
			outcomes[n] = sendOne(t, sender, m)
		} else if err := sender.Send(within(t), m, nil); err != nil {
			t.Fatalf("send: %v", err)
		}
	}
	if err := sender.Close(within(t)); err != nil { // settled ones are on their way before the detach
		t.Fatal(err)
	}
	return outcomes
}

// sendOne sends by go-amqp and gives the outcome in words.
func sendOne(t testing.TB, sender *amqp.Sender, m *amqp.Message) string {
	t.Helper()
	receipt, err := sender.SendWithReceipt(within(t), m, nil)
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	state, err := receipt.Wait(within(t))
	if err != nil {
		t.Fatalf("outcome: %v", err)
	}
	return stateInWords(state)
}

func stateInWords(state amqp.DeliveryState) string {
	switch s := state.(type) {
	case *amqp.StateAccepted:
		return "accepted"
	case *amqp.StateRejected:
		if s.Error != nil {
			return "rejected " + string(s.Error.Condition)
		}
		return "rejected"
	case *amqp.StateReleased:
		return "released"
	case *amqp.StateModified:
		return "modified"
	}
	return fmt.Sprintf("%T", state)
}

// receiveBy attaches a client as receiver and gives a function that waits for count messages.
func receiveBy(t testing.TB, kind, url, address string, count int, args ...string) func() []got {
	t.Helper()
	if kind == goAMQP {
		return receiveByGo(t, url, address, count)
	}
	p := client(t, kind, "recv", append([]string{"--url", url, "--address", address, "--count", strconv.Itoa(count)}, args...)...)
	waitReady(p)
	return func() []got {
		t.Helper()
		return messagesOf(p, count)
	}
}

// waitReady waits until a receiving client has attached its links.
func waitReady(p *process) {
	p.t.Helper()
	for {
		switch e := p.next(); e.text("event") {
		case "ready":
			return
		case "error":
			p.t.Fatalf("%s: %v", p.name, e)
		}
	}
}

// messagesOf waits for count messages of a foreign client.
func messagesOf(p *process, count int) []got {
	p.t.Helper()
	var all []got
	for len(all) < count {
		switch e := p.next(); e.text("event") {
		case "message":
			all = append(all, got{e.text("id"), e.text("to"), e.number("size"), e.text("sha")})
		case "error":
			p.t.Fatalf("%s: %v", p.name, e)
		}
	}
	return all
}

func receiveByGo(t testing.TB, url, address string, count int) func() []got {
	t.Helper()
	receiver, err := dialGo(t, url).NewReceiver(within(t), address, &amqp.ReceiverOptions{Credit: 50})
	if err != nil {
		t.Fatalf("attach a receiver on %q: %v", address, err)
	}
	type result struct {
		all []got
		err error
	}
	done := make(chan result, 1)
	ctx := within(t)
	go func() {
		var r result
		for len(r.all) < count && r.err == nil {
			var m *amqp.Message
			if m, r.err = receiver.Receive(ctx, nil); r.err == nil {
				r.err = receiver.AcceptMessage(ctx, m)
				r.all = append(r.all, gotOf(m))
			}
		}
		done <- r
	}()
	return func() []got {
		t.Helper()
		r := <-done
		if r.err != nil {
			t.Fatalf("go-amqp has %d messages of %d: %v", len(r.all), count, r.err)
		}
		return r.all
	}
}

func gotOf(m *amqp.Message) got {
	data := m.GetData()
	g := got{size: len(data), sha: shaOf(data)}
	if p := m.Properties; p != nil {
		g.id = fmt.Sprint(p.MessageID)
		if p.To != nil {
			g.to = *p.To
		}
	}
	return g
}

// sameMessages compares what was received with what was sent, in any order.
func sameMessages(t testing.TB, who string, have, want []got) {
	t.Helper()
	count := map[got]int{}
	for _, g := range want {
		count[g]++
	}
	for _, g := range have {
		if count[g]--; count[g] < 0 {
			t.Errorf("%s got, but should not have: %v", who, g)
		}
	}
	for _, g := range want {
		if count[g] > 0 {
			count[g] = 0
			t.Errorf("%s did not get: %v", who, g)
		}
	}
}

// sameOutcomes checks that every outcome is as wanted.
func sameOutcomes(t testing.TB, who string, outcomes []string, want string) {
	t.Helper()
	for n, o := range outcomes {
		if o != want {
			t.Errorf("%s: outcome of message %d: got %q, want %q", who, n, o, want)
		}
	}
}

// refusal is the condition in go-amqp's error of a link, session or connection.
func refusal(err error) string {
	for _, remote := range []*amqp.Error{linkError(err), as[*amqp.Error](err)} {
		if remote != nil {
			return string(remote.Condition)
		}
	}
	return ""
}

func linkError(err error) *amqp.Error {
	if l := as[*amqp.LinkError](err); l != nil {
		return l.RemoteErr
	}
	return nil
}

func as[E error](err error) (e E) {
	errors.As(err, &e)
	return e
}

// serveBy starts a foreign receiver that listens, and gives its address.
func serveBy(t testing.TB, kind string, args ...string) (p *process, addr string) {
	t.Helper()
	p = client(t, kind, "serve", args...)
	return p, fmt.Sprintf("127.0.0.1:%d", p.expect("listening").number("port"))
}

// pairsOf gives every combination of two clients.
func pairsOf(kinds []string) (all [][2]string) {
	for _, a := range kinds {
		for _, b := range kinds {
			all = append(all, [2]string{a, b})
		}
	}
	return slices.Clip(all)
}
