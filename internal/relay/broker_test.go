package relay

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/websocket"
	"github.com/fingerpost/fingerpost/routetable"
)

func serveOf(topic string) string { return fmt.Sprintf(`[{"op":"serve","topic":%q,"ref":"s"}]`, topic) }
func servedAs(topic, role string) string {
	return fmt.Sprintf(`[{"op":"serve:ok","topic":%q,"ref":"s","role":%q}]`, topic, role)
}
func roleIs(topic, role string) string {
	return fmt.Sprintf(`[{"op":"role","topic":%q,"role":%q}]`, topic, role)
}

// address gives the relay-conn: address of the n-th connection that is open.
func (h *harness) address(n int) string { return h.b.all()[n].address }
func (h *harness) origin(n int) string  { return h.b.all()[n].origin }

func TestWhoComesIn(t *testing.T) {
	h := newHarness(t, Options{})
	bare := New(h.core, Options{})
	t.Cleanup(func() { bare.Stop(t.Context()) })
	get := func(path string) (int, string) {
		res, err := http.Get("http://" + h.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text)
	}
	for path, want := range map[string]int{
		"/api/acme/relay/connect": 401, "/api/acme/relay/connect?token=": 401, "/api/acme/relay/connect?token=x": 401, "/api/acme/relay/connect?token=none": 403,
		"/api/other/relay/connect?token=full": 403, "/api/nobody/relay/connect?token=full": 404, "/api/nobody/relay/connect?token=x": 401,
		"/api/acme/relay/connect?token=full": 426,
	} {
		if got, text := get(path); got != want {
			t.Errorf("%s: %d %s, want %d", path, got, text, want)
		}
	}
	h.b.SetKeys(nil)
	if got, text := get("/api/acme/relay/connect?token=full"); got != 404 || !strings.Contains(text, "relay: {keys: FILE}") || !strings.Contains(text, "--relay-keys") {
		t.Errorf("without keys: %d %s", got, text)
	}
}

// Roles are what the table says, whoever wrote it.
func TestRolesFollowTheTable(t *testing.T) {
	h := newHarness(t, Options{})
	a, b, c := h.dial("full"), h.dial("full"), h.dial("full")
	a.send(serveOf("echo"))
	a.expect(servedAs("echo", "active"))
	b.send(serveOf("echo"))
	b.expect(servedAs("echo", "standby"))

	set := routetable.NewRoute("relay:acme/echo", h.address(1))
	set.Order = -1
	h.do(admin.Set{Route: set, Columns: routetable.ColOrder, Origin: h.origin(1)})
	b.expect(roleIs("echo", "active"))
	a.expect(roleIs("echo", "standby"))

	mine := routetable.NewRoute("relay:acme/echo", h.address(2))
	mine.Pick, mine.Order = routetable.PickFirst, -2
	h.do(admin.Add{Route: mine, Columns: routetable.ColPick | routetable.ColOrder})
	c.expect(roleIs("echo", "active"))
	b.expect(roleIs("echo", "standby"))
	a.quiet()

	h.do(admin.Delete{Pattern: "relay:acme/echo", Address: h.address(1), Origin: h.origin(1)})
	b.expect(roleIs("echo", "none"))

	c.send(`[{"op":"unserve","topic":"echo","ref":"u"}]`) // the row is the operator's
	c.expect(`[{"op":"unserve:ok","topic":"echo","ref":"u"}]`)
	c.quiet()
	h.do(admin.Delete{Pattern: "relay:acme/echo", Address: h.address(2)})
	c.expect(roleIs("echo", "none"))
	a.expect(roleIs("echo", "active"))

	all := routetable.NewRoute("relay:acme/*", h.address(2))
	all.Pick, all.Order = routetable.PickFirst, -5
	h.do(admin.Add{Route: all, Columns: routetable.ColPick | routetable.ColOrder})
	c.expect(roleIs("echo", "active"))
	a.expect(roleIs("echo", "standby"))
	h.do(admin.DeletePattern{Pattern: "relay:acme/*"})
	a.expect(roleIs("echo", "active"))
	c.expect(roleIs("echo", "none"))
	for _, p := range []*testPeer{a, b, c} {
		p.quiet()
	}
}

// A connection that did not ask for a topic is told that it is active before the first request that comes of that.
func TestTheRoleComesBeforeTheRequest(t *testing.T) {
	h := newHarness(t, Options{})
	s, c := h.dial("server"), h.dial("client")
	h.do(admin.Add{Route: routetable.NewRoute("relay:acme/jobs/*", h.address(0))})
	h.settled()
	c.send(`[{"op":"head","topic":"jobs/1","id":"r","done":true,"ref":"1"}]`)
	s.expect(roleIs("jobs/1", "active"), `[{"op":"head","topic":"jobs/1","id":"r","from":"$","done":true}]`)
	c.expect(`[{"op":"head:ok","topic":"jobs/1","id":"r","ref":"1"}]`)
	c.send(`[{"op":"body","topic":"jobs/1","id":"r","done":true,"ref":"2"}]`)
	s.expect(`[{"op":"body","topic":"jobs/1","id":"r","from":"$","done":true}]`)
	c.expect(`[{"op":"body:ok","topic":"jobs/1","id":"r","ref":"2"}]`)
	h.do(admin.DeletePattern{Pattern: "relay:acme/jobs/*"})
	s.expect(roleIs("jobs/1", "none"))
	c.send(`[{"op":"body","topic":"jobs/1","id":"r","ref":"3"}]`)
	c.expect(`[{"op":"body:error","topic":"jobs/1","id":"r","ref":"3","code":"unavailable"}]`)
}

// Rows of operators: null discards, a name leads on, another domain's connection is nobody.
func TestRowsOfOperators(t *testing.T) {
	h := newHarness(t, Options{})
	s, c := h.dial("server"), h.dial("client")
	h.dial("other")
	s.send(serveOf("b"))
	s.expect(servedAs("b", "active"))
	h.do(admin.Add{Route: routetable.NewRoute("relay:acme/null", "null")})
	h.do(admin.Add{Route: routetable.NewRoute("relay:acme/a", "relay:acme/b")})
	h.do(admin.Add{Route: routetable.NewRoute("relay:acme/cross", h.address(2))})
	h.do(admin.Add{Route: routetable.NewRoute("relay:acme/away", "relay-conn:000000-1")})
	h.settled()
	c.send(`[{"op":"head","topic":"null","id":"1","ref":"1"},{"op":"head","topic":"cross","id":"1","ref":"2"},{"op":"head","topic":"away","id":"1","ref":"3"}]`)
	c.expect(`[{"op":"head:error","topic":"cross","id":"1","ref":"2","code":"unavailable"},{"op":"head:error","topic":"away","id":"1","ref":"3","code":"unavailable"}]`,
		`[{"op":"head:ok","topic":"null","id":"1","ref":"1"}]`)
	c.send(`[{"op":"head","topic":"a","id":"1","ref":"4"}]`)
	s.expect(roleIs("a", "active"), `[{"op":"head","topic":"a","id":"1","from":"$"}]`)
}

// Topics are any text: none is taken for a pattern, for another one, or for one of another domain.
func TestTopicsAreAnyText(t *testing.T) {
	h := newHarness(t, Options{})
	s, c := h.dial("full"), h.dial("full")
	topics := []string{"*", "%", `\`, `\*`, "a*", "$1", "a/b", "../other/x", " ", "null", "glob:x", "żółw 🐢", "\x00", `"q"`, "relay:acme/x", "A", "a"}
	for i, topic := range topics {
		raw := string(appendText(nil, topic))
		s.send(`[{"op":"serve","topic":` + raw + `}]`)
		s.expect(`[{"op":"serve:ok","topic":` + raw + `,"role":"active"}]`)
		if n := h.table.Snapshot().Len(); n != i+1 {
			t.Fatalf("%q: %d rows", topic, n)
		}
	}
	for _, topic := range topics {
		raw := string(appendText(nil, topic))
		c.send(`[{"op":"head","topic":` + raw + `,"id":"1"}]`)
		s.expect(`[{"op":"head","topic":` + raw + `,"id":"1","from":"$"}]`)
		c.expect(`[{"op":"head:ok","topic":` + raw + `,"id":"1"}]`)
	}
	for _, raw := range []string{`"aa"`, `"**"`, `"\\\\"`, `"x"`, `"\u0041\u0041"`} {
		c.send(`[{"op":"head","topic":` + raw + `,"id":"1"}]`)
		c.expect(`[{"op":"head:error","topic":` + raw + `,"id":"1","code":"unavailable"}]`)
	}
	c.send(`[{"op":"head","topic":"\u0041","id":"\u0031","ref":"\u0031"}]`) // one text is one topic, however it is written
	s.expect(`[{"op":"head","topic":"A","id":"1","from":"$"}]`)
	c.expect(`[{"op":"head:ok","topic":"A","id":"1","ref":"1"}]`)
	c.send(`[{"op":"head","topic":"\ud800","id":"1"}]`)
	c.expect(`[{"op":"head:error","topic":"\ud800","id":"1","code":"bad_request"}]`)
}

func TestLimitsOfText(t *testing.T) {
	h := newHarness(t, Options{MaxData: 10, MaxMessage: 1 << 20})
	c := h.dial("full")
	long := strings.Repeat("x", maxText)
	c.send(`[{"op":"head","topic":"`+long+`","id":"1","ref":"1"},{"op":"head","topic":"t","id":"`+long+`","ref":"2"},{"op":"head","topic":"t","id":"1","ref":"`+long+`"}]`,
		`[{"op":"head","topic":"t","id":"1","ref":[1,{"a":"b"}],"data":"12345678"},{"op":"head","topic":"t","id":"1","data":"123456789"}]`,
		`[{"op":"head","topic":["t"],"id":{},"ref":null}]`)
	c.expect(`[{"op":"head:error","id":"1","ref":"1","code":"bad_request"},{"op":"head:error","topic":"t","ref":"2","code":"bad_request"},{"op":"head:error","topic":"t","id":"1","code":"bad_request"}]`,
		`[{"op":"head:error","topic":"t","id":"1","ref":[1,{"a":"b"}],"code":"unavailable"},{"op":"head:error","topic":"t","id":"1","code":"bad_request"}]`,
		`[{"op":"head:error","ref":null,"code":"bad_request"}]`)
	for opcode, want := range map[byte]int{0x81: websocket.TooBig, 0xc1: websocket.BadProtocol} {
		c := h.dial("full")
		c.nc.Write(maskedFrame(opcode, strings.Repeat(" ", 1<<20+1)))
		if got := c.closed(); got != want {
			t.Errorf("closed with %d, want %d", got, want)
		}
	}
}

// A connection that reads nothing: its ops wait, are answered busy after the time, and are not delivered; a cancel is dropped.
func TestBusy(t *testing.T) {
	h := newHarness(t, Options{Busy: time.Second})
	s, c := h.dial("server"), h.dial("client")
	s.send(serveOf("t"))
	s.expect(servedAs("t", "active"))
	part := strings.Repeat("x", 64<<10)
	fill := func() (taken int) {
		for i := 0; ; i++ {
			c.send(fmt.Sprintf(`[{"op":"body","topic":"t","id":"f","data":"%s","ref":%d}]`, part, i))
			got := c.next()
			if bytes.Contains(got, []byte(`"busy"`)) {
				return i
			}
		}
	}
	taken := fill()
	c.send(`[{"op":"body","topic":"t","id":"late","data":1,"ref":"1"},{"op":"cancel","topic":"t","id":"late","ref":"2"}]`)
	c.expect(`[{"op":"cancel:ok","topic":"t","id":"late","ref":"2"}]`, `[{"op":"body:error","topic":"t","id":"late","ref":"1","code":"busy"}]`)
	for i := 0; i <= taken; i++ { // the first that was busy was begun
		if got := s.next(); !bytes.HasPrefix(got, []byte(`[{"op":"body","topic":"t","id":"f"`)) || len(got) < len(part) {
			t.Fatalf("part %d of %d: %.100s", i, taken, got)
		}
	}
	c.send(`[{"op":"body","topic":"t","id":"then","ref":"3"}]`)
	s.expect(`[{"op":"body","topic":"t","id":"then","from":"$"}]`)
	c.expect(`[{"op":"body:ok","topic":"t","id":"then","ref":"3"}]`)
}

// A fault of ours ends one connection with 1011. Nothing of the message is logged.
func TestFault(t *testing.T) {
	var mu sync.Mutex
	var log bytes.Buffer
	o := Options{Log: slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil)), received: func(m []byte) {
		if bytes.Contains(m, []byte("fault")) {
			panic("fault: " + string(m))
		}
	}}
	h := newHarness(t, o)
	c, d := h.dial("full"), h.dial("full")
	c.send(serveOf("t"))
	c.expect(servedAs("t", "active"))
	c.send(`[{"op":"head","topic":"fault","id":"secret-id","data":"secret-data"}]`)
	if code := c.closed(); code != websocket.InternalFail {
		t.Errorf("closed with %d", code)
	}
	d.send(`[{"op":"head","topic":"t","id":"1","ref":"1"}]`)
	d.expect(`[{"op":"head:error","topic":"t","id":"1","ref":"1","code":"unavailable"}]`)
	mu.Lock()
	defer mu.Unlock()
	if text := log.String(); strings.Contains(text, "secret") || !strings.Contains(text, "kind=string") {
		t.Errorf("the log:\n%s", text)
	}
	if n := h.b.Stats().Faults; n != 1 {
		t.Errorf("%d faults", n)
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

// Rights that are taken while a connection is there.
func TestKeysChange(t *testing.T) {
	h := newHarness(t, Options{})
	a, b, c := h.dial("full"), h.dial("server"), h.dial("client")
	a.send(serveOf("t"))
	a.expect(servedAs("t", "active"))
	b.send(serveOf("t"))
	b.expect(servedAs("t", "standby"))
	h.keys(strings.Replace(testKeys, `"P": ["*"], "S": ["*"]`, `"P": ["x"]`, 1))
	a.expect(roleIs("t", "none"))
	b.expect(roleIs("t", "active"))
	a.send(`[{"op":"head","topic":"t","id":"1","ref":"1"},{"op":"serve","topic":"t","ref":"2"},{"op":"head","topic":"x","id":"1","ref":"3"}]`)
	a.expect(`[{"op":"head:error","topic":"t","id":"1","ref":"1","code":"forbidden"},{"op":"serve:error","topic":"t","ref":"2","code":"forbidden"},{"op":"head:error","topic":"x","id":"1","ref":"3","code":"unavailable"}]`)
	h.keys(strings.Replace(testKeys, `"token": "client"`, `"token": "another"`, 1))
	if code := c.closed(); code != websocket.BadPolicy {
		t.Errorf("closed with %d", code)
	}
	a.send(serveOf("t"))
	a.expect(servedAs("t", "standby"))
}

// What serves, answers and unserves tell of roles is what holds, however the table is edited meanwhile.
func TestRolesUnderEdits(t *testing.T) {
	h := newHarness(t, Options{})
	const peers, rounds = 4, 60
	all := make([]*testPeer, peers)
	for i := range all {
		all[i] = h.dial("full")
	}
	addresses := make([]string, peers)
	for i := range addresses {
		addresses[i] = h.address(i)
	}
	var running sync.WaitGroup
	stop := make(chan struct{})
	running.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			r := routetable.NewRoute("relay:acme/t", addresses[i%peers])
			r.Pick, r.Order = routetable.PickFirst, -1
			h.core.Do(h.ops, admin.Add{Route: r, Columns: routetable.ColPick | routetable.ColOrder})
			h.core.Do(h.ops, admin.Delete{Pattern: "relay:acme/t", Address: r.Address})
		}
	})
	var serving sync.WaitGroup
	believes := make([]string, peers)
	for i, p := range all {
		serving.Go(func() {
			for n := range rounds {
				op := "serve"
				if n%3 == 2 {
					op = "unserve"
				}
				p.send(fmt.Sprintf(`[{"op":%q,"topic":"t","ref":%d},{"op":"body","topic":"t","id":"1","ref":"b"}]`, op, n))
				p.follow(&believes[i], fmt.Sprintf(`"ref":%d`, n))
			}
		})
	}
	serving.Wait()
	close(stop)
	running.Wait()
	h.settled()
	active := 0
	for i, p := range all {
		p.send(`[{"op":"unserve","topic":"end","ref":"end"}]`)
		p.follow(&believes[i], `"ref":"end"`)
		c := h.b.all()[i]
		var room []routetable.Group
		is := h.b.roleOf(h.table.Snapshot(), c, "relay:acme/t", "relay:acme/t", &room).String()
		if believes[i] == "" {
			believes[i] = "none"
		}
		if is != believes[i] {
			t.Errorf("%s is %s, and was told %s", c.name(), is, believes[i])
		}
		if is == "active" {
			active++
		}
	}
	if active > 1 {
		t.Errorf("%d are active", active)
	}
}

// follow reads messages up to one with the mark, and keeps what they say of the role on t.
func (p *testPeer) follow(believes *string, mark string) {
	for {
		_, m, err := p.frame()
		if err != nil {
			p.h.Error(err)
			return
		}
		for part := range strings.SplitSeq(string(m), "},{") {
			switch {
			case strings.Contains(part, `"unserve:ok","topic":"t"`):
				*believes = "none"
			case strings.Contains(part, `"role":"`):
				_, rest, _ := strings.Cut(part, `"role":"`)
				*believes, _, _ = strings.Cut(rest, `"`)
			}
		}
		if strings.Contains(string(m), mark) {
			return
		}
	}
}

// flood has a peer ask for answers that it does not read, until it is not read any more. The peer's own error comes at the end.
func (p *testPeer) flood(conn *Conn, ops int) (sent chan error) {
	p.h.Helper()
	sent = make(chan error, 1)
	list := strings.TrimSuffix(strings.Repeat(`{"op":"unserve","topic":"t","ref":"0123456789"},`, 100), ",")
	frame := masked("[" + list + "]")
	go func() {
		var err error
		for i := 0; i < ops && err == nil; i += 100 {
			_, err = p.nc.Write(frame)
		}
		sent <- err
	}()
	for deadline := time.Now().Add(20 * time.Second); !conn.waiting.Load() && !conn.gone.Load() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	return sent
}

// A client that reads nothing of its answers is not read for long, and goes on when it reads.
func TestAClientThatReadsNothing(t *testing.T) {
	h := newHarness(t, Options{})
	c := h.dial("full")
	const n = 200_000
	conn := h.b.all()[0]
	sent := c.flood(conn, n)
	conn.mu.Lock()
	if own := conn.line.own(); own < maxOwnBytes || own > maxOwnBytes+100<<10 {
		t.Errorf("%d bytes of answers wait", own)
	}
	conn.mu.Unlock()
	got := 0
	for got < n {
		got += bytes.Count(c.next(), []byte(`"unserve:ok"`))
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// A server that is not read, because it reads nothing of its answers, frees its topics when it goes, and when it takes nothing for too long.
func TestAPeerThatIsNotReadFreesItsTopics(t *testing.T) {
	for name, of := range map[string]struct {
		ping time.Duration
		end  func(*testPeer)
	}{
		"it goes":          {0, func(p *testPeer) { p.nc.Close() }},
		"it takes nothing": {500 * time.Millisecond, func(*testPeer) {}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, Options{PingEvery: of.ping})
			a := h.dial("full")
			a.send(serveOf("kept"))
			a.expect(servedAs("kept", "active"))
			conn := h.b.all()[0]
			sent := a.flood(conn, 1_000_000)
			of.end(a)
			for deadline := time.Now().Add(20 * time.Second); h.table.Snapshot().Len() > 0 && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			if n := h.table.Snapshot().Len(); n > 0 {
				t.Errorf("%d rows are left", n)
			}
			a.nc.Close()
			<-sent
		})
	}
}

// Who begins a message that is too long is told so by its header. That what it still sends is read first is a test of the websocket's.
func TestTheSenderOfATooLongMessageIsTold(t *testing.T) {
	h := newHarness(t, Options{MaxMessage: 64 << 10})
	c := h.dial("client")
	frame := masked(strings.Repeat(" ", 8<<20))
	if _, err := c.nc.Write(frame[:100]); err != nil {
		t.Fatal(err)
	}
	if code := c.closed(); code != websocket.TooBig {
		t.Errorf("got %d, want %d", code, websocket.TooBig)
	}
}

// What came before a frame that ends the connection is done and answered.
func TestWhatCameBeforeABadFrameIsAnswered(t *testing.T) {
	for name, bad := range map[string]struct {
		frame []byte
		code  int
	}{
		"no UTF-8":      {maskedFrame(0x81, "[\xff]"), websocket.BadText},
		"reserved bits": {maskedFrame(0xc1, "[]"), websocket.BadProtocol},
		"no mask":       {[]byte("\x81\x02[]"), websocket.BadProtocol},
		"too long":      {maskedFrame(0x81, strings.Repeat(" ", 65<<10))[:20], websocket.TooBig},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, Options{MaxMessage: 64 << 10})
			c := h.dial("full")
			if _, err := c.nc.Write(append(masked(serveOf("t")), bad.frame...)); err != nil {
				t.Fatal(err)
			}
			c.expect(servedAs("t", "active"))
			if code := c.closed(); code != bad.code {
				t.Errorf("closed with %d, want %d", code, bad.code)
			}
		})
	}
}

// A request that came before an unserve was done is before its reply; none is behind it.
func TestNoRequestComesBehindTheReplyToAnUnserve(t *testing.T) {
	h := newHarness(t, Options{})
	s, next, c := h.dial("server"), h.dial("server"), h.dial("client")
	s.send(serveOf("t"))
	s.expect(servedAs("t", "active"))
	next.send(serveOf("t"))
	next.expect(servedAs("t", "standby"))
	h.settled()
	server := h.b.all()[0]

	editing, edited := make(chan struct{}), make(chan struct{})
	defer h.table.OnChange(func(ch routetable.Change) { // holds up all edits behind that of x
		if len(ch.Added) > 0 && ch.Added[0].Pattern == "x" {
			close(editing)
			<-edited
		}
	})()
	done := make(chan error)
	go func() {
		_, err := h.core.Do(h.ops, admin.Add{Route: routetable.NewRoute("x", "y")})
		done <- err
	}()
	<-editing
	s.send(`[{"op":"unserve","topic":"t","ref":"u"}]`)
	h.eventually("the unserve waits for the table", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return server.told["relay:acme/t"].asking
	})
	c.send(`[{"op":"head","topic":"t","id":"1","ref":"1"}]`)
	h.eventually("the request is on its way", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return server.sent == 1
	})
	close(edited)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s.expect(`[{"op":"head","topic":"t","id":"1","from":"$"}]`, `[{"op":"unserve:ok","topic":"t","ref":"u"}]`)
	c.expect(`[{"op":"head:ok","topic":"t","id":"1","ref":"1"}]`)
	next.expect(roleIs("t", "active"))
	s.quiet()
}

// A request that was looked up before its server was told otherwise goes to who is active now.
func TestARequestIsLookedUpAgainWhenRolesChange(t *testing.T) {
	h, s, from, w := newServed(t)
	p := from.planOf([]byte(`"t"`))
	p.look(from, w)
	server := p.to
	s.send(`[{"op":"unserve","topic":"t","ref":"u"}]`)
	s.expect(`[{"op":"unserve:ok","topic":"t","ref":"u"}]`)
	o := op{kind: kindHead, topic: []byte(`"t"`), id: []byte(`"1"`)}
	if from.pass(w, &o, p, server) || from.pending.Load() != 0 {
		t.Error("the op was queued for a server that has unserved")
	}
	s.quiet()
	next := h.dial("server")
	next.send(serveOf("t"))
	next.expect(servedAs("t", "active"))
	from.passActive(w, &o, p)
	from.finish(w)
	next.expect(`[{"op":"head","topic":"t","id":"1","from":"$"}]`)
	s.quiet()
}

// What becomes of a role while a serve is being done is told behind its reply, and before the requests that follow from it.
func TestARoleThatChangesDuringAServe(t *testing.T) {
	h := newHarness(t, Options{})
	a, b, c := h.dial("server"), h.bare("server"), h.dial("client")
	a.send(serveOf("t"))
	a.expect(servedAs("t", "active"))
	w := newWork(h.b)
	defer w.free()
	o := op{kind: kindServe, topic: []byte(`"t"`)}
	b.do(w, &o)
	a.send(`[{"op":"unserve","topic":"t","ref":"u"}]`)
	a.expect(`[{"op":"unserve:ok","topic":"t","ref":"u"}]`)
	h.settled()
	c.send(`[{"op":"head","topic":"t","id":"1"}]`)
	h.eventually("the request is in the line", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.sent == 1
	})
	b.commit(w)
	b.mu.Lock()
	got := string(b.line.buf)
	b.mu.Unlock()
	reply, role, head := strings.Index(got, `"role":"standby"`), strings.Index(got, `"role":"active"`), strings.Index(got, `"head"`)
	if reply < 0 || role < reply || head < role {
		t.Errorf("got %q", got)
	}
}

// A topic that leads to another has its server lose its role with that of the other.
func TestRolesFollowNamesOfTopics(t *testing.T) {
	h := newHarness(t, Options{})
	s, c := h.dial("server"), h.dial("client")
	h.do(admin.Add{Route: routetable.NewRoute("relay:acme/a", "relay:acme/b")})
	s.send(serveOf("b"))
	s.expect(servedAs("b", "active"))
	c.send(`[{"op":"head","topic":"a","id":"1","ref":"1"}]`)
	s.expect(roleIs("a", "active"), `[{"op":"head","topic":"a","id":"1","from":"$"}]`)
	s.send(`[{"op":"unserve","topic":"b","ref":"u"}]`)
	s.expect(`[{"op":"unserve:ok","topic":"b","ref":"u"}]`, roleIs("a", "none"))
	s.quiet()
}

// An op of steady state costs no allocation.
func TestOpsAllocateNothing(t *testing.T) {
	_, s, from, w := newServed(t)
	m := websocket.Message{Text: true, Data: []byte(`[{"op":"head","topic":"t","id":"1","data":{"a":1},"ref":"1"},{"op":"body","topic":"t","id":"1","done":true,"ref":"2"}]`)}
	go io.Copy(io.Discard, s.nc)
	step := func() {
		from.take(w, m)
		from.finish(w)
	}
	for range 100 {
		step()
	}
	if n := testing.AllocsPerRun(1000, step); n > allocationsAllowed {
		t.Errorf("%v allocations for two ops and their answers", n)
	}
}

// A peer that is silent and answers no ping is closed, and its topics are free.
func TestASilentPeerFreesItsTopics(t *testing.T) {
	h := newHarness(t, Options{PingEvery: time.Second})
	a, b := h.dial("full"), h.dial("full")
	a.send(serveOf("t"))
	a.expect(servedAs("t", "active")) // and says nothing more
	b.send(serveOf("t"))
	for told := ""; told != "active"; {
		opcode, m, err := b.frame()
		if err != nil {
			t.Fatal(err)
		}
		if opcode == 9 {
			b.nc.Write(maskedFrame(0x8a, string(m)))
			continue
		}
		_, rest, _ := strings.Cut(string(m), `"role":"`)
		told, _, _ = strings.Cut(rest, `"`)
	}
	if n := h.table.Snapshot().Len(); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// What a sender that ends had on its way, and that was not begun, is not delivered; what waited for a server that ends is answered.
func TestWhatIsOnItsWayWhenOneEnds(t *testing.T) {
	h := newHarness(t, Options{})
	s, a, b := h.dial("server"), h.dial("client"), h.dial("client")
	s.send(serveOf("t"))
	s.expect(servedAs("t", "active"))
	part := strings.Repeat("x", 64<<10)
	server := h.b.all()[0]
	waits := func() (n int) {
		server.mu.Lock()
		defer server.mu.Unlock()
		return len(server.line.ops) - server.line.first
	}
	answered := func(wait time.Duration) bool {
		a.nc.SetReadDeadline(time.Now().Add(wait))
		_, err := a.in.Peek(1)
		return err == nil
	}
	for i := 0; ; i++ { // until a part waits for room
		a.send(fmt.Sprintf(`[{"op":"body","topic":"t","id":"a","data":"%s","ref":%d}]`, part, i))
		for waits() == 0 && !answered(time.Millisecond) {
		}
		if !answered(3 * time.Second) {
			break
		}
		a.next()
	}
	b.send(`[{"op":"body","topic":"t","id":"b","data":1,"ref":"b"},{"op":"unserve","topic":"x","ref":"u"}]`)
	b.expect(`[{"op":"unserve:ok","topic":"x","ref":"u"}]`)
	b.nc.Close()
	h.eventually("the op of a client that has gone leaves the line", func() bool { return waits() == 1 })
	c := h.dial("client")
	c.send(`[{"op":"body","topic":"t","id":"c","data":1,"ref":"c"}]`)
	h.eventually("two ops in the line, a's last and c's", func() bool { return waits() == 2 })
	s.nc.Close()
	c.expect(`[{"op":"body:error","topic":"t","id":"c","ref":"c","code":"server_gone"}]`)
	if m := a.next(); !bytes.Contains(m, []byte(`"server_gone"`)) {
		t.Errorf("got %s", m)
	}
}
