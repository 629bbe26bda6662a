package mesh

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"github.com/Azure/go-amqp"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// upstream is a router of another kind that the test speaks for.
func upstream(t *testing.T) (url string, conns chan *client) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns = make(chan *client, 10)
	o := Options{MaxMessage: maxMessage}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nc, already := websocket.Gate{}.Upgrade(w, r)
		if nc == nil {
			return
		}
		c := &client{t: t, name: "upstream", tr: newWebTransport(nc, already, false, &o), got: make(chan []byte, 1<<10)}
		conns <- c
		go func() {
			for {
				data, _, _, err := c.tr.next()
				if err != nil {
					c.err = err
					c.tr.end()
					close(c.got)
					return
				}
				c.got <- bytes.Clone(data)
			}
		}()
	})}
	over := make(chan struct{})
	go func() { srv.Serve(ln); close(over) }()
	t.Cleanup(func() { srv.Close(); <-over })
	return "ws://" + ln.Addr().String(), conns
}

func (c *client) answer(f Frame, status Status, data []byte) {
	c.send(&Frame{Type: Response, ID: f.ID, Status: status, Data: data})
}

// A router of another kind: we say our name and ports, take its topics, tell ours by setup, ask for publishes, and pass on commands with marks. After a loss all
// of it is said again.
func TestUpstreamOfAnotherKind(t *testing.T) {
	url, conns := upstream(t)
	r := startRouter(t, Options{})
	local := r.component("local", "mine")
	if err := r.m.Connect(PeerOptions{URL: url, As: "us", Period: 10 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		up := <-conns
		f := up.next()
		if f.Type != Identity || string(f.Name) != "us" || !isRouterMeta(f.Data) {
			t.Fatalf("round %d: got %+v", round, f)
		}
		up.answer(f, StatusOK, appendTexts(appendTexts([]byte{0x82}, []string{"theirs"}), []string{"news", "mine"}))
		f = up.next()
		c, err := parseCommand(f.Data)
		if err != nil || *c.Cmd != "setup" || !slices.Contains(c.Subscribers, "mine") || slices.Contains(c.Subscribers, "news") && round == 0 || c.Kin == 0 {
			t.Fatalf("round %d: got %+v, %v", round, c, err)
		}
		up.answer(f, StatusOK, nil)
		f = up.next()
		if c, err = parseCommand(f.Data); err != nil || *c.Cmd != "reactive" || c.Status == nil || !*c.Status {
			t.Fatalf("round %d: got %+v, %v", round, c, err)
		}
		up.answer(f, StatusOK, nil)
		r.knows("rpc:theirs", 1)
		r.knows("topic:news", 1)

		// A publish goes up where it is subscribed to, plain, and comes down.
		local.send(&Frame{Type: Publish, Name: []byte("news"), Data: []byte{0x80}})
		if f := up.next(); f.Type != Publish || f.Flags != 0 || string(f.Name) != "news" {
			t.Errorf("got %+v", f)
		}
		up.send(&Frame{Type: Publish, Name: []byte("mine"), Data: []byte{0x81, 1}})
		if f := local.publish(); string(f.Name) != "mine" {
			t.Errorf("got %+v", f)
		}

		// A request goes up, and its answer comes down.
		local.send(&Frame{Type: Request, ID: number(77), Name: []byte("theirs"), Data: []byte{0x80}})
		f = up.next()
		up.answer(f, StatusOK, []byte{5})
		if f := local.next(); f.ID != number(77) || f.Data[0] != 5 {
			t.Errorf("got %+v", f)
		}

		// A command is passed on with our mark; one that has it comes back to be dropped, as does one that came before by another way.
		local.admin("x", "subscribe")
		f = up.next()
		c, err = parseCommand(f.Data)
		if err != nil || *c.Cmd != "subscribe" || c.LookBack == nil || !slices.Equal(c.Marks, []uint64{r.m.eid}) || !slices.Equal(c.Touched, []string{"us"}) {
			t.Errorf("got %+v, %v", c, err)
		}
		if !strings.Contains(string(f.Data), "\x1b") {
			t.Errorf("the mark is not eight bytes wide: %x", f.Data)
		}
		up.send(&f)
		up.answer(f, StatusOK, nil)
		cmd := "subscribe"
		flood := Frame{Type: Admin, ID: number(500 + uint64(round)), Name: []byte("y"), Data: appendCommand(nil, &command{Cmd: &cmd, LookBack: new(float64), Marks: []uint64{1 << 63}})}
		up.send(&flood)
		up.send(&flood)
		passed := 0
		for range 3 { // the answers
			for f := up.next(); f.Type != Response; f = up.next() {
				t.Errorf("got %+v", f)
			}
		}
		frames, _ := local.barrier()
		for _, b := range frames {
			var f Frame
			if parseEither(b, &f) == nil && f.Type == Admin && string(f.Name) == "y" {
				passed++
			}
		}
		if passed != 1 {
			t.Errorf("a command that came twice is passed on %d times", passed)
		}
		if r.m.Counters()["meshFloodedTwice"] < 2 {
			t.Errorf("counters: %v", r.m.Counters())
		}
		local.admin("x", "unsubscribe")
		if c, _ := parseCommand(up.next().Data); c.Cmd == nil || *c.Cmd != "unsubscribe" {
			t.Errorf("got %+v", c)
		}
		up.tr.Abort(errClosed)
	}
}

// What a router of another kind tells by commands while its answer to our setup is on its way is newer than what it has exported.
func TestCommandsOvertakeSetup(t *testing.T) {
	url, conns := upstream(t)
	r := startRouter(t, Options{})
	if err := r.m.Connect(PeerOptions{URL: url, As: "us"}); err != nil {
		t.Fatal(err)
	}
	up := <-conns
	up.answer(up.next(), StatusOK, appendTexts(appendTexts([]byte{0x82}, []string{"m1", "m2"}), []string{"t1", "t2"}))
	setup := up.next()
	for i, c := range [][2]string{{"subscribe", "t3"}, {"unsubscribe", "t1"}, {"expose", "m3"}, {"unexpose", "m1"}} {
		up.send(&Frame{Type: Admin, ID: number(uint64(900 + i)), Name: []byte(c[1]), Data: appendCommand(nil, &command{Cmd: &c[0], Marks: []uint64{1 << 63}})})
		up.next()
	}
	up.answer(setup, StatusOK, nil)
	for up.next().Type != Admin { // reactive: the rows are written
	}
	for pattern, n := range map[string]int{"topic:t1": 0, "topic:t2": 1, "topic:t3": 1, "rpc:m1": 0, "rpc:m2": 1, "rpc:m3": 1} {
		r.knows(pattern, n)
	}
}

// A router that takes nobody without a proof has it; a name that is refused is said again later, and a refusal of our topics ends the connection.
func TestUpstreamThatRefuses(t *testing.T) {
	url, conns := upstream(t)
	r := startRouter(t, Options{})
	k := provers(t)["ecdsa"]
	if err := r.m.Connect(PeerOptions{URL: url, As: "us", Period: 10 * time.Millisecond, Key: k.key}); err != nil {
		t.Fatal(err)
	}
	up := <-conns
	up.answer(up.next(), StatusError, appendText(nil, "already connected"))
	if _, ok := <-up.got; ok {
		t.Error("the connection lives")
	}
	up = <-conns
	up.answer(up.next(), StatusChallenge, appendBytes(nil, []byte{1, 2, 3, 4}))
	f := up.next()
	text, _ := k.public(t)
	public, err := parsePublicKey(text)
	if err != nil || f.Type != Attestation || string(f.Name) != "us" || !public.proves([]byte{1, 2, 3, 4}, "us", f.Key) {
		t.Fatalf("got %+v, %v", f, err)
	}
	up.answer(f, StatusOK, nil)
	up.answer(up.next(), StatusError, nil)
	if _, ok := <-up.got; ok {
		t.Error("the connection lives")
	}
	<-conns
}

func TestPeersThatCannotBe(t *testing.T) {
	r := startRouter(t, Options{})
	for _, o := range []PeerOptions{{URL: "ws://h", As: ""}, {URL: "http://h", As: "a"}, {URL: "ws://", As: "a"}, {URL: "ws://u@h", As: "a"}, {URL: "ws://h", As: "a", Failovers: []string{"x"}}, {URL: "ws://h", As: "123"}} {
		if err := r.m.Connect(o); err == nil {
			t.Errorf("%+v is connected to", o)
		}
	}
}

// A failover is taken while the first router is away; when it is back, who came to us as their failover is sent back too.
func TestFailover(t *testing.T) {
	first := startRouter(t, Options{Name: "first"})
	second := startRouter(t, Options{Name: "second"})
	us := startRouter(t, Options{Name: "us"})
	if err := us.m.Connect(PeerOptions{URL: "ws://" + first.ws, As: "us", Failovers: []string{"ws://" + second.ws}, Period: 10 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	there := func(r *router) func() bool {
		return func() bool { t := r.m.twinOf("us"); return t != nil && t.open.Load() && t.kin.Load() != 0 }
	}
	first.until("we are there", there(first))
	guest := us.component("guest", "news")
	address := first.ws
	first.stopOnce()
	second.until("we are at the failover", there(second))
	pub := second.component("pub")
	second.knows("topic:news", 1)
	pub.send(&Frame{Type: Publish, Name: []byte("news"), Data: []byte{0x80}})
	guest.publish()

	again := startRouter(t, Options{Name: "first"})
	if _, err := again.m.Listen(ListenOptions{Address: address, WebSocket: true}); err != nil {
		t.Skipf("the port is somebody else's by now: %v", err)
	}
	second.m.twinOf("us").current().t.Abort(errClosed)
	again.until("we are back", there(again))
	if _, over := guest.barrier(); !over {
		t.Error("our guests are kept")
	}
}

// A router that takes nobody without a proof challenges first, and says to the identity no more than that, when the proof is there. We prove once, and tell our
// topics once, each time that we connect.
func TestUpstreamThatChallengesFirst(t *testing.T) {
	url, conns := upstream(t)
	r := startRouter(t, Options{})
	r.component("local", "mine")
	if err := r.m.Connect(PeerOptions{URL: url, As: "us", Period: 10 * time.Millisecond, Secret: "s3"}); err != nil {
		t.Fatal(err)
	}
	for round := range byte(3) {
		up := <-conns
		identity := up.next()
		up.send(&Frame{Type: Response, ID: connectionID, Status: StatusChallenge, Data: appendBytes(nil, []byte{1, 2, 3, round})})
		f := up.next()
		h := sha256.Sum256(plainText([]byte{1, 2, 3, round}, "s3"))
		if f.Type != Attestation || f.ID != connectionID || string(f.Name) != "us" || !bytes.Equal(f.Key, h[:]) {
			t.Fatalf("round %d: got %+v", round, f)
		}
		up.answer(f, StatusOK, nil)
		if round > 0 { // it may say so or not
			up.answer(identity, StatusOK, nil)
		}
		f = up.next()
		if c, err := parseCommand(f.Data); err != nil || *c.Cmd != "setup" || !slices.Contains(c.Subscribers, "mine") {
			t.Fatalf("round %d: got %+v, %v", round, c, err)
		}
		up.answer(f, StatusOK, nil)
		f = up.next()
		if c, err := parseCommand(f.Data); err != nil || *c.Cmd != "reactive" {
			t.Fatalf("round %d: got %+v, %v", round, c, err)
		}
		up.answer(f, StatusOK, nil)
		up.tr.Abort(errClosed)
	}
}

// Routers of our kind that take nobody without a proof are linked, over WebSocket and TCP, and again, and carry publishes and AMQP.
func TestLinkWithAProof(t *testing.T) {
	for _, scheme := range []string{"ws", "tcp"} {
		t.Run(scheme, func(t *testing.T) {
			keys := t.TempDir()
			if err := os.WriteFile(filepath.Join(keys, "us"), []byte("s3\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			hub, us := startRouter(t, Options{Name: "hub", Authenticated: true, Keys: keys}), startRouter(t, Options{Name: "us"})
			url := map[string]string{"ws": "ws://" + hub.ws, "tcp": "tcp://" + hub.tcp}[scheme]
			if err := us.m.Connect(PeerOptions{URL: url, As: "us", Period: 10 * time.Millisecond, Secret: "s3"}); err != nil {
				t.Fatal(err)
			}
			for round := range byte(3) {
				whole([]*router{hub, us}, [][2]int{{1, 0}})
				alice := us.component(fmt.Sprintf("alice%d", round), "news")
				bob := hub.dial(fmt.Sprintf("bob%d", round), "ws") // from this machine, and so without a proof
				hub.knows("topic:news", 1)
				bob.send(&Frame{Type: Publish, Name: []byte("news"), Data: []byte{0x81, round}})
				if f := alice.publish(); f.Data[1] != round {
					t.Errorf("got %x", f.Data)
				}
				told := sent(t, sender(t, hub.session(), "topic:news"), amqp.NewMessage([]byte{round}))
				f := alice.publish()
				alice.send(&Frame{Type: Ack, ID: f.ID})
				if err := <-told; err != nil || f.QoS() != flagQoS1 {
					t.Errorf("got %+v, %v", f, err)
				}
				alice.close()
				bob.close()
				hub.m.twinOf("us").current().t.Abort(errClosed)
				us.until("it has gone", func() bool { tw := us.m.twinOf("us"); return tw.kin.Load() == 0 })
			}
		})
	}
}
