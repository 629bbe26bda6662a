package events

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/websocket"
	"github.com/fingerpost/fingerpost/routetable"
)

func TestTypesAreOpaque(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, c := w.join("A / % * $1 Ü"), w.join("C")
		types := []string{"*", "%", `a\\b`, "$1", "ü", " ", "a/b", "req/T", "event:req/T", "glob:*", `\u0000`, `\"`, strings.Repeat("x", maxTypeBytes), "😀"}
		for i, typ := range types {
			a.say(fmt.Sprintf(`{"op":"subscribe","ref":%d,"type":"%s","direction":"request","from_time":"now"}`, i, typ))
			a.wants(fmt.Sprintf("subscribed %d", i))
		}
		for i, typ := range types {
			c.say(fmt.Sprintf(`{"op":"event","id":"%d","type":"%s"}`, i, typ))
			a.wants(fmt.Sprint(i))
		}
		if got := w.component("A / % * $1 Ü"); len(got.Requests) != len(types) {
			t.Errorf("%d of %d types are shown: %q", len(got.Requests), len(types), got.Requests)
		}
		for i, typ := range types {
			a.say(fmt.Sprintf(`{"op":"unsubscribe","ref":%d,"type":"%s","direction":"request"}`, i, typ))
			a.wants(fmt.Sprintf("unsubscribed %d", i))
		}
		for _, typ := range []string{"", strings.Repeat("x", maxTypeBytes+1)} {
			a.say(fmt.Sprintf(`{"op":"subscribe","type":"%s","direction":"request"}`, typ))
			a.wants("error bad_request")
		}
	})
}

// Half of a surrogate pair is no text: two types, names or ids that differ would be one.
func TestHalfOfASurrogatePairIsNoText(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := w.dial()
		p.say(`{"op":"hello","name":"\ud800"}`, `{"op":"hello","name":"\\\ud83d\ude00"}`)
		p.wants("error bad_request", "welcome")
		for _, s := range []string{`\ud800`, `\udc00`, `a\udbffb`, `\ud83d\ud83d\ude00`, `\ud83d\n`, `\ud83d\u0041`} {
			p.say(fmt.Sprintf(`{"op":"subscribe","ref":1,"type":"%s","direction":"request"}`, s), fmt.Sprintf(`{"op":"event","ref":2,"id":"1","type":"%s"}`, s),
				fmt.Sprintf(`{"op":"event","ref":3,"id":"%s","type":"T"}`, s), fmt.Sprintf(`{"op":"types","ref":4,"shareable":["T","%s"]}`, s),
				fmt.Sprintf(`{"op":"event","ref":5,"id":"1","type":"T","data":"%s"}`, s))
			p.wants("error 1 bad_request", "error 2 bad_request", "error 3 bad_request", "error 4 bad_request", "accepted 5")
		}
		p.say(`{"op":"subscribe","ref":1,"type":"\\ud800\ud83d\ude00\ufffd","direction":"request"}`, `{"op":"event","id":"1","type":"\\ud800😀\ufffd"}`)
		p.wants("subscribed 1", "1")
	})
}

// Who waits for an answer to what cannot be read has it, where its ref came first.
func TestTheRefOfWhatCannotBeRead(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a := w.dial()
		a.say(`{"op":"hello","ref":1,"name":"A","name":"B"}`, `{"op":"hello","name":"A"}`, `{"op":"event","ref":2,"id":"1","type":"T","data":`+strings.Repeat("[", 600)+strings.Repeat("]", 600)+`}`,
			`{"op":"event","ref":3,"id":"1","id":"2","type":"T"}`, `{"op":"event","ref":4,`, `{"op":"event","ref":{"a":`, `{"op":"event","data":1,,"ref":5}`)
		a.wants("error 1 bad_request", "welcome", "error 2 bad_request", "error 3 bad_request", "error 4 bad_request", "error bad_request", "error bad_request")
	})
}

// A response is what its receivers take it for.
func TestTheStatusOfAResponse(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a := w.join("A", "res/T")
		a.say(`{"op":"event","ref":1,"id":"1","type":"T","response":{"status":"OK","status":"NONE"}}`, `{"op":"event","ref":2,"id":"2","type":"T","response":{"status":"OK","st\u0061tus":"OK"}}`,
			`{"op":"event","ref":3,"id":"3","type":"T","response":{"\u0073tatus":"\u004fK"}}`)
		a.wants("error 1 bad_request", "error 2 bad_request", "3", "accepted 3")
	})
}

func TestWhatIsSaidOutOfPlace(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := w.dial()
		p.say(`{"op":"event","ref":"r","id":"1","type":"T"}`, `{"op":"hello"}`, `{"op":"hello","name":""}`, `{"op":"hello","name":7}`, `{"op":"hello","name":"A","protocol":2}`,
			`{"op":"hello","name":"A","restart":"maybe"}`, `{"op":"hello","name":"A","ref":[1,{"a":2}]}`, `{"op":"hello","name":"A"}`)
		p.wants("error r bad_request", "error bad_request", "error bad_request", "error bad_request", "error bad_request", "error bad_request", "welcome [1 map[a:2]]", "error bad_request")
		p.say(`{"op":"dance","ref":1}`, `{}`, `{"op":"subscribe","ref":2,"type":"T","direction":"sideways"}`, `{"op":"subscribe","ref":3,"direction":"request"}`,
			`{"op":"health","status":"FINE"}`, `{"op":"health","status":"OK","exceptions":{}}`, `{"op":"types","ref":4,"shareable":"T"}`, `{"op":"unsubscribe","ref":5,"type":"T","direction":"request"}`,
			fmt.Sprintf(`{"op":"dance","ref":%q}`, strings.Repeat("x", 300)))
		p.wants("error 1 unknown_op", "error unknown_op", "error 2 bad_request", "error 3 bad_request", "error bad_request", "error bad_request", "error 4 bad_request", "unsubscribed 5", "error bad_request")
		late := w.dial()
		time.Sleep(11 * time.Second)
		if ce, ok := late.ended().(*websocket.CloseError); !ok || ce.Code != 1008 {
			t.Errorf("who says no hello ended by %v", late.ended())
		}
	})
}

func TestWhatAnAccountMayNot(t *testing.T) {
	grants := func(patterns ...string) *admin.Grants {
		g, err := admin.NewGrants(patterns)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	inWorld(t, Options{}, func(w *world) {
		ours, theirs := net.Pipe()
		p := &peer{w: w, nc: ours, ws: websocket.New(ours, nil, true, websocket.Options{})}
		w.r.Serve(theirs, nil, &Account{Names: grants("Mail*"), Subscribe: grants("event:req/*"), Send: grants("event:res/*"), Shareable: grants()})
		w.peers = append(w.peers, p)
		go p.read()
		p.say(`{"op":"hello","name":"Other"}`, `{"op":"hello","name":"Mail"}`, subscribe("req/T", `"now"`), subscribe("res/T", `"now"`), request("1", "T"), answered("2", "T"),
			`{"op":"types","ref":1,"shareable":["T"]}`)
		p.wants("error unauthorized", "welcome", "subscribed req/T", "error res/T unauthorized", "error unauthorized", "error 1 not_shareable")
	})
}

// A component that subscribes to a hundred thousand types hurts nobody, and leaves nothing behind.
func TestAHundredThousandSubscriptions(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, b, c := w.join("A"), w.join("B", "req/T"), w.join("C")
		n := 100_000
		if underRace {
			n = 5_000
		}
		for i := range n {
			a.ws.Lock()
			a.ws.Append(true, []byte(fmt.Sprintf(`{"op":"subscribe","type":"T%d","direction":"request","from_time":"now"}`, i)))
			if i%100 == 0 {
				a.ws.Flush()
			}
			a.ws.Unlock()
			if i%(n/5) == 0 {
				synctest.Wait()
				c.say(request(fmt.Sprint(i), "T"))
				b.wants(fmt.Sprint(i))
			}
		}
		a.say()
		if got := a.take(); len(got) != n {
			t.Errorf("%d answers", len(got))
		}
		c.say(request("x", fmt.Sprint("T", n-1)))
		a.wants("x")
		a.cut()
		c.say(request("y", "T"))
		b.wants("y")
	})
}

// One that floods with what is no frame fills its own line with errors, and is disconnected when it does not read them.
func TestAFloodHurtsItsSenderOnly(t *testing.T) {
	inWorld(t, Options{HardBytes: 100_000}, func(w *world) {
		a, b, c := w.join("A"), w.join("B", "req/T"), w.join("C")
		a.pause()
		for range 5000 {
			a.ws.Lock()
			a.ws.Append(true, []byte(`{"op":"nonsense"}`))
			a.ws.Flush()
			a.ws.Unlock()
		}
		c.say(request("1", "T"))
		b.wants("1")
		time.Sleep(3 * time.Second)
		if w.component("A").Connected {
			t.Error("it is still there")
		}
	})
}

// FuzzConversation has a component, or another router, say anything: nobody panics, and all of it is withdrawn in the end.
func FuzzConversation(f *testing.F) {
	f.Add(false, "hello\n"+strings.Join(frames, "\n"))
	f.Add(true, `{"op":"link","router":"X","protocol":1}`+"\n"+`{"op":"demands","requests":{"T":["X","Y"]},"responses":{"T":["R"]},"paths":{"Y":["X","Y"]}}`+"\n"+
		`{"op":"markers","markers":{"R":[[1,2],[5,9]]}}`+"\n"+`{"op":"event","id":"1","type":"T","data":1,"origin":"X","seq":5,"time":"x"}`+"\n"+`{"op":"error","code":"c"}`)
	f.Fuzz(converse)
}

// converse says the lines of a text to a router, as a component or as another router.
func converse(t *testing.T, isLink bool, text string) {
	r := New(admin.New(routetable.New(), admin.Options{}), Options{ID: "R"})
	var b []byte
	say := func(line string) {
		var at int
		b, at = websocket.BeginFrame(b, true)
		b = websocket.EndFrame(append(b, line...), at, true, true)
	}
	if !isLink {
		say(`{"op":"hello","name":"A"}`)
	}
	for line := range strings.Lines(text) {
		say(strings.ToValidUTF8(line, "?"))
	}
	say(`{"op":"unsubscribe_all"}`)
	nc := &recording{left: b, closed: make(chan struct{})}
	if isLink {
		r.ServeLink(nc, nil, &Account{Link: true})
	} else {
		r.Serve(nc, nil, &Account{})
	}
	<-nc.closed
	r.Close()
	if n := r.table.Snapshot().Len(); n > 1 {
		t.Fatalf("%d rows are left", n)
	}
}

// recording is a peer that has said everything, and does not care what it is told: with no goroutine of its own, a fuzzer sees the same of one input
// each time, and need not take what the scheduler does for news.
type recording struct {
	net.Conn // nil: what is not here is not called
	left     []byte
	once     sync.Once
	closed   chan struct{}
}

func (c *recording) Read(b []byte) (n int, err error) {
	if len(c.left) == 0 {
		return 0, io.EOF
	}
	n = copy(b, c.left)
	c.left = c.left[n:]
	return n, nil
}

func (c *recording) Write(b []byte) (int, error)      { return len(b), nil }
func (c *recording) Close() error                     { c.once.Do(func() { close(c.closed) }); return nil }
func (c *recording) RemoteAddr() net.Addr             { return nil }
func (c *recording) SetReadDeadline(time.Time) error  { return nil }
func (c *recording) SetWriteDeadline(time.Time) error { return nil }
func (c *recording) SetDeadline(time.Time) error      { return nil }

// A ring of little memory drops the last event of a type to make room for the next: that one is kept, and found.
func TestTheEventThatMakesItsTypesLastOneGoIsKept(t *testing.T) {
	inWorld(t, Options{WindowBytes: 400 << 10}, func(w *world) {
		sender := w.join("S")
		for i := range 5 {
			sender.say(fmt.Sprintf(`{"op":"event","id":"%d","type":"T","data":%q}`, i, strings.Repeat("x", 300<<10)))
		}
		late := w.dial()
		late.say(`{"op":"hello","name":"L"}`, subscribe("req/T", ""))
		late.wants("welcome", "subscribed req/T +1", "4 replay")
	})
}
