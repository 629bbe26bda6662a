package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/house/leaks"
	"github.com/fingerpost/fingerpost/internal/websocket"
	"github.com/fingerpost/fingerpost/messenger/relay"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// scripted is a relay whose side of every conversation is written in the test.
type scripted struct {
	t     *testing.T
	url   string
	conns chan *far
	paths chan string
}

// far is the relay's end of a connection.
type far struct {
	t    *testing.T
	c    *websocket.Conn
	said chan string // what the client said; closed with the connection
}

func newScripted(t *testing.T) *scripted {
	s := &scripted{t: t, conns: make(chan *far, 10), paths: make(chan string, 10)}
	var order sync.Mutex
	over := make(chan struct{}, 100)
	n := make(chan struct{}, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.paths <- r.URL.EscapedPath() + "?" + r.URL.RawQuery
		if r.URL.Query().Get("token") == "bad" {
			http.Error(w, "no such key", http.StatusUnauthorized)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/api/nope/") {
			http.NotFound(w, r)
			return
		}
		order.Lock() // the client makes one connection after the other: they come by conns in that order
		nc, already := (websocket.Gate{}).Upgrade(w, r)
		f := &far{t: t, c: websocket.New(nc, already, false, websocket.Options{MaxMessage: 1 << 20}), said: make(chan string, 10_000)}
		n <- struct{}{}
		s.conns <- f
		order.Unlock()
		go func() { f.serve(); over <- struct{}{} }()
	}))
	s.url = srv.URL
	t.Cleanup(func() {
		srv.Close()
		for range len(n) {
			<-over
		}
	})
	return s
}

func (f *far) serve() {
	for {
		m, _, err := f.c.Next()
		if err != nil {
			close(f.said)
			f.c.End(0, "")
			return
		}
		f.said <- string(m.Data)
	}
}

// connect gives a client and the relay's end of its connection.
func (s *scripted) connect(o relay.Options) (*relay.Client, *far) {
	s.t.Helper()
	o.URL, o.Domain = s.url, "acme"
	if o.RetryAfter == 0 {
		o.RetryAfter = time.Millisecond
	}
	c, err := relay.Connect(s.t.Context(), o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c, s.next()
}

func (s *scripted) next() *far {
	s.t.Helper()
	select {
	case f := <-s.conns:
		return f
	case <-time.After(20 * time.Second):
		s.t.Fatal("nobody connects")
	}
	return nil
}

// hear gives the next message of the client, as it is; want is what it must match: "#" is a ref, which is given.
func (f *far) hear(want string) (ref string) {
	f.t.Helper()
	select {
	case got, ok := <-f.said:
		if !ok {
			f.t.Fatalf("the connection is over, wanted %s", want)
		}
		m := regexp.MustCompile(`^` + strings.ReplaceAll(regexp.QuoteMeta(want), "#", `(\d+)`) + `$`).FindStringSubmatch(got)
		if m == nil {
			f.t.Fatalf("the client said %.300s, wanted %s", got, want)
		}
		if len(m) > 1 {
			return m[1]
		}
	case <-time.After(20 * time.Second):
		f.t.Fatalf("the client says nothing, wanted %s", want)
	}
	return ""
}

// silent checks that the client has said nothing that was not heard.
func (f *far) silent() {
	f.t.Helper()
	select {
	case got, ok := <-f.said:
		if ok {
			f.t.Errorf("the client said %s", got)
		}
	default:
	}
}

func (f *far) say(format string, args ...any) {
	f.c.Lock()
	f.c.Append(true, fmt.Appendf(nil, format, args...))
	f.c.Flush()
	f.c.Unlock()
}

// ok answers the op with that ref.
func (f *far) ok(kind, ref string) {
	f.say(`[{"op":"%s:ok","topic":"t","id":"1","ref":%q}]`, kind, ref)
}

// asked starts a request and gives what becomes of it.
func asked(t *testing.T, c *relay.Client, head string, body relay.Body) chan result {
	results := make(chan result, 1)
	go func() {
		r, err := c.Request(t.Context(), "t", raw(head), body)
		results <- result{r, err}
	}()
	return results
}

type result struct {
	r   *relay.Response
	err error
}

func raw(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

func collect(b relay.Body) (text string, err error) {
	for p, err := range b {
		if err != nil {
			return text, err
		}
		text += string(p) + ";"
	}
	return text, nil
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	if relay.CodeOf(err) != code {
		t.Errorf("got %v, want the code %s", err, code)
	}
}

func TestARequest(t *testing.T) {
	s := newScripted(t)
	c, f := s.connect(relay.Options{Token: "a b&c"})
	if got := <-s.paths; got != "/api/acme/relay/connect?token=a+b%26c" {
		t.Errorf("connected to %s", got)
	}
	results := asked(t, c, `{"n": 1.00, "s":"\u00e9<"}`, relay.Parts(raw(`"a"`), raw(`null`)))
	f.ok("head", f.hear(`[{"op":"head","topic":"t","id":"1","ref":"#","data":{"n": 1.00, "s":"\u00e9<"}}]`))
	f.ok("body", f.hear(`[{"op":"body","topic":"t","id":"1","ref":"#","data":"a"}]`))
	f.hear(`[{"op":"body","topic":"t","id":"1","ref":"#","data":null}]`)
	f.hear(`[{"op":"body","topic":"t","id":"1","ref":"#","done":true}]`)
	f.say(`[{"op":"head","topic":"other","id":"1","data":0},{"op":"head","topic":"t","id":"2","data":0},{"op":"head","topic":"t","id":"1","data":{"x": 1e2}}]`)
	got := <-results
	if got.err != nil || string(got.r.Head) != `{"x": 1e2}` {
		t.Fatalf("got %+v", got)
	}
	f.say(`[{"op":"body","topic":"t","id":"1","data":1.0},{"op":"body","topic":"t","id":"1","data":null}]`)
	f.say(`[{"op":"body","topic":"t","id":"1","data":"last","done":true},{"op":"body","topic":"t","id":"1","data":"late"}]`)
	if text, err := collect(got.r.Body()); text != `1.0;null;"last";` || err != nil {
		t.Errorf("got %s, %v", text, err)
	}
	if _, err := got.r.Next(); err != io.EOF {
		t.Error(err)
	}
	got.r.Close()
	f.silent()
}

func TestARequestOfAHeadAlone(t *testing.T) {
	c, f := newScripted(t).connect(relay.Options{})
	results := asked(t, c, "", nil)
	f.hear(`[{"op":"head","topic":"t","id":"1","ref":"#","done":true}]`)
	f.say(`[{"op":"head","topic":"t","id":"1","done":true}]`)
	got := <-results
	if got.err != nil || got.r.Head != nil {
		t.Fatalf("got %+v", got)
	}
	if text, err := collect(got.r.Body()); text != "" || err != nil {
		t.Errorf("got %s, %v", text, err)
	}
	f.silent()
}

func TestRequestsThatFail(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer string
		code   string
	}{
		{"unavailable", `[{"op":"head:error","topic":"t","id":"1","ref":"1","code":"unavailable","message":"nobody"}]`, relay.Unavailable},
		{"the body is refused later", `[{"op":"head:ok","topic":"t","id":"1","ref":"1"},{"op":"body:error","topic":"t","id":"1","ref":"2","code":"server_gone"}]`, relay.ServerGone},
		{"busy", `[{"op":"body:error","topic":"t","id":"1","ref":"2","code":"busy"}]`, relay.Busy},
		{"the relay says what is no message", `{}`, relay.Closed},
	} {
		s := newScripted(t)
		client, f := s.connect(relay.Options{})
		results := asked(t, client, "1", relay.Parts(raw("2")))
		f.hear(`[{"op":"head","topic":"t","id":"1","ref":"#","data":1}]`)
		f.hear(`[{"op":"body","topic":"t","id":"1","ref":"#","data":2}]`)
		f.say("%s", c.answer)
		got := <-results
		if relay.CodeOf(got.err) != c.code {
			t.Errorf("%s: %v", c.name, got.err)
		}
	}
}

func TestTheWindow(t *testing.T) {
	c, f := newScripted(t).connect(relay.Options{Window: 3})
	asked(t, c, "0", relay.Parts(raw("1"), raw("2"), raw("3")))
	var refs []string
	refs = append(refs, f.hear(`[{"op":"head","topic":"t","id":"1","ref":"#","data":0}]`))
	for i := 1; i <= 2; i++ {
		refs = append(refs, f.hear(fmt.Sprintf(`[{"op":"body","topic":"t","id":"1","ref":"#","data":%d}]`, i)))
	}
	// Another request goes on meanwhile, and answers in between do not open the window.
	asked(t, c, `"other"`, nil)
	f.hear(`[{"op":"head","topic":"t","id":"2","ref":"#","data":"other","done":true}]`)
	f.silent()
	f.ok("body", refs[2])
	f.hear(`[{"op":"body","topic":"t","id":"1","ref":"#","data":3}]`)
	f.silent()
	f.ok("head", refs[0])
	f.hear(`[{"op":"body","topic":"t","id":"1","ref":"#","done":true}]`)
	f.say(`[{"op":"head","topic":"t","id":"1","done":true},{"op":"head","topic":"t","id":"2","done":true}]`)
}

func TestATimeoutCancels(t *testing.T) {
	c, f := newScripted(t).connect(relay.Options{Timeout: 50 * time.Millisecond})
	got := <-asked(t, c, "0", nil)
	wantCode(t, got.err, relay.Timeout)
	f.hear(`[{"op":"head","topic":"t","id":"1","ref":"#","data":0,"done":true}]`)
	f.hear(`[{"op":"cancel","topic":"t","id":"1","ref":"#"}]`)
}

func TestAContextCancels(t *testing.T) {
	c, f := newScripted(t).connect(relay.Options{})
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	type key struct{}
	results := make(chan result, 1)
	go func() {
		r, err := c.Request(context.WithValue(ctx, key{}, 1), "t", nil, nil)
		results <- result{r, err}
	}()
	f.hear(`[{"op":"head","topic":"t","id":"1","ref":"#","done":true}]`)
	f.say(`[{"op":"head","topic":"t","id":"1"},{"op":"body","topic":"t","id":"1","data":1}]`)
	got := <-results
	if got.err != nil {
		t.Fatal(got.err)
	}
	if p, err := got.r.Next(); string(p) != "1" || err != nil {
		t.Errorf("%s, %v", p, err)
	}
	cancel(why)
	_, err := got.r.Next()
	wantCode(t, err, relay.Cancelled)
	if !errors.Is(err, why) {
		t.Error(err)
	}
	f.hear(`[{"op":"cancel","topic":"t","id":"1","ref":"#"}]`)
	_, err = c.Request(ctx, "t", nil, nil)
	wantCode(t, err, relay.Cancelled)
	f.silent()
}

func TestABodyThatFailsCancels(t *testing.T) {
	c, f := newScripted(t).connect(relay.Options{})
	got := <-asked(t, c, "0", relay.FromReader(io.MultiReader(strings.NewReader("some"), broken{})))
	wantCode(t, got.err, relay.Cancelled)
	if !errors.Is(got.err, errBroken) {
		t.Error(got.err)
	}
	f.hear(`[{"op":"head","topic":"t","id":"1","ref":"#","data":0}]`)
	f.hear(`[{"op":"body","topic":"t","id":"1","ref":"#","data":"some"}]`)
	f.hear(`[{"op":"cancel","topic":"t","id":"1","ref":"#"}]`)
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

func TestNoJSONIsNotSent(t *testing.T) {
	c, f := newScripted(t).connect(relay.Options{})
	long := strings.Repeat("x", 16<<20)
	for _, head := range []string{`1}],"op":"x"`, "\"\xff\"", " ", `"` + long + `"`} {
		_, err := c.Request(t.Context(), "t", raw(head), nil)
		wantCode(t, err, relay.BadRequest)
	}
	_, err := c.Request(t.Context(), "\xff", nil, nil)
	wantCode(t, err, relay.BadRequest)
	_, err = c.Serve(t.Context(), "\xff", nil)
	wantCode(t, err, relay.BadRequest)
	wantCode(t, c.Unserve(t.Context(), "\xff"), relay.BadRequest)
	f.silent()
}

// A handler that says no JSON hears of it, and nothing else ends.
func TestAHandlerThatSaysNoJSON(t *testing.T) {
	s := newScripted(t)
	c, f := s.connect(relay.Options{})
	b := s.serving(c, f, func(_ context.Context, r *relay.Request) error {
		wantCode(t, r.Respond(raw("\"\xff\"")), relay.BadRequest)
		wantCode(t, r.Send(raw("1,2")), relay.BadRequest)
		return r.Send(raw("1"))
	})
	f.say(`[{"op":"head","topic":"t","id":"x","from":"A","done":true}]`)
	b.hear(`[{"op":"head","topic":"t","id":"x","to":"A","ref":"#"}]`)
	b.hear(`[{"op":"body","topic":"t","id":"x","to":"A","ref":"#","data":1}]`)
	b.hear(`[{"op":"body","topic":"t","id":"x","to":"A","ref":"#","done":true}]`)
}

// A response that ends early ends the request: the rest of its body stays here.
func TestAResponseThatEndsFirst(t *testing.T) {
	c, f := newScripted(t).connect(relay.Options{})
	more := make(chan struct{})
	results := asked(t, c, "0", func(yield func(json.RawMessage, error) bool) {
		if yield(raw("1"), nil) {
			<-more
			yield(raw("2"), nil)
		}
	})
	f.hear(`[{"op":"head","topic":"t","id":"1","ref":"#","data":0}]`)
	f.hear(`[{"op":"body","topic":"t","id":"1","ref":"#","data":1}]`)
	f.say(`[{"op":"head","topic":"t","id":"1","data":"enough","done":true}]`)
	if got := <-results; got.err != nil || string(got.r.Head) != `"enough"` {
		t.Errorf("%+v", got)
	}
	f.hear(`[{"op":"cancel","topic":"t","id":"1","ref":"#"}]`)
	close(more)
}

func TestAResponseThatNobodyReads(t *testing.T) {
	for _, hold := range []time.Duration{-1, 50 * time.Millisecond} {
		c, f := newScripted(t).connect(relay.Options{Buffer: 1000, Hold: hold})
		results := asked(t, c, "0", nil)
		f.hear(`[{"op":"head","topic":"t","id":"1","ref":"#","data":0,"done":true}]`)
		f.say(`[{"op":"head","topic":"t","id":"1"}]`)
		got := <-results
		for range 3 {
			f.say(`[{"op":"body","topic":"t","id":"1","data":"%s"}]`, strings.Repeat("x", 400))
		}
		f.hear(`[{"op":"cancel","topic":"t","id":"1","ref":"#"}]`)
		_, err := got.r.Next()
		wantCode(t, err, relay.Busy)
		// The others go on.
		results = asked(t, c, "1", nil)
		f.hear(`[{"op":"head","topic":"t","id":"2","ref":"#","data":1,"done":true}]`)
		f.say(`[{"op":"head","topic":"t","id":"2","done":true}]`)
		if got := <-results; got.err != nil {
			t.Error(got.err)
		}
	}
}

func TestAResponseThatIsReadSlowly(t *testing.T) {
	c, f := newScripted(t).connect(relay.Options{Buffer: 1000, Hold: 10 * time.Second})
	results := asked(t, c, "0", nil)
	f.hear(`[{"op":"head","topic":"t","id":"1","ref":"#","data":0,"done":true}]`)
	f.say(`[{"op":"head","topic":"t","id":"1"}]`)
	for range 100 {
		f.say(`[{"op":"body","topic":"t","id":"1","data":"%s"}]`, strings.Repeat("x", 400))
	}
	f.say(`[{"op":"body","topic":"t","id":"1","done":true}]`)
	got := <-results
	n := 0
	for _, err := range got.r.Body() {
		if n++; err != nil {
			t.Fatal(n, err)
		}
	}
	if n != 100 {
		t.Errorf("%d parts", n)
	}
}

// serving serves t and answers the relay's part of that. It gives the connection of the responses.
func (s *scripted) serving(c *relay.Client, f *far, h relay.Handler) (back *far) {
	t := s.t
	t.Helper()
	done := make(chan error, 1)
	go func() {
		role, err := c.Serve(t.Context(), "t", h)
		if err == nil && role != relay.Active {
			err = fmt.Errorf("role %s", role)
		}
		done <- err
	}()
	f.say(`[{"op":"serve:ok","topic":"t","ref":%q,"role":"active"}]`, f.hear(`[{"op":"serve","topic":"t","ref":"#"}]`))
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return s.next()
}

func TestServe(t *testing.T) {
	s := newScripted(t)
	c, f := s.connect(relay.Options{})
	b := s.serving(c, f, func(_ context.Context, r *relay.Request) error {
		if r.From != "A.b" || r.Topic != "t" {
			t.Errorf("from %s, topic %s", r.From, r.Topic)
		}
		if err := r.Respond(r.Head); err != nil {
			return err
		}
		for p, err := range r.Body() {
			if err != nil {
				return err
			}
			if err := r.Send(p); err != nil {
				return err
			}
		}
		return nil
	})
	f.say(`[{"op":"head","topic":"t","id":"x","from":"A.b","data":{"a": 1}},{"op":"body","topic":"t","id":"x","from":"A.b","data":"p"}]`)
	b.hear(`[{"op":"head","topic":"t","id":"x","to":"A.b","ref":"#","data":{"a": 1}}]`)
	b.hear(`[{"op":"body","topic":"t","id":"x","to":"A.b","ref":"#","data":"p"}]`)
	f.say(`[{"op":"body","topic":"t","id":"x","from":"A.b","data":"q","done":true}]`)
	b.hear(`[{"op":"body","topic":"t","id":"x","to":"A.b","ref":"#","data":"q"}]`)
	b.hear(`[{"op":"body","topic":"t","id":"x","to":"A.b","ref":"#","done":true}]`)

	done := make(chan error, 1)
	go func() { done <- c.Unserve(t.Context(), "t") }()
	f.say(`[{"op":"unserve:ok","topic":"t","ref":%q}]`, f.hear(`[{"op":"unserve","topic":"t","ref":"#"}]`))
	if err := <-done; err != nil {
		t.Error(err)
	}
	f.say(`[{"op":"head","topic":"t","id":"y","from":"A.b","done":true}]`)
	b.hear(`[{"op":"head","topic":"t","id":"y","to":"A.b","ref":"#","data":{"error":{"code":"unavailable","message":"the topic is not served here any more"}},"done":true}]`)
}

func TestHandlersThatFail(t *testing.T) {
	errs := make(chan error, 10)
	s := newScripted(t)
	c, f := s.connect(relay.Options{Concurrent: 1})
	c.OnError(func(err error) { errs <- err })
	what := make(chan struct{})
	b := s.serving(c, f, func(ctx context.Context, r *relay.Request) error {
		switch string(r.Head) {
		case "1":
			return &relay.Error{Code: "no_such_file", Message: `there is no "x"`}
		case "2":
			return errors.New("a secret of ours")
		case "3":
			r.Send(raw("1"))
			return &relay.Error{Code: "broke", Message: "half way"}
		}
		close(what)
		<-ctx.Done()
		what <- struct{}{}
		return r.Send(raw("too late"))
	})
	f.say(`[{"op":"head","topic":"t","id":"x","from":"A","data":1,"done":true}]`)
	b.hear(`[{"op":"head","topic":"t","id":"x","to":"A","ref":"#","data":{"error":{"code":"no_such_file","message":"there is no \"x\""}},"done":true}]`)
	f.say(`[{"op":"head","topic":"t","id":"y","from":"A","data":2,"done":true}]`)
	b.hear(`[{"op":"head","topic":"t","id":"y","to":"A","ref":"#","data":{"error":{"code":"internal","message":"the server failed"}},"done":true}]`)
	if err := <-errs; !strings.Contains(err.Error(), "a secret of ours") {
		t.Error(err)
	}
	f.say(`[{"op":"head","topic":"t","id":"z","from":"A","data":3,"done":true}]`)
	b.hear(`[{"op":"head","topic":"t","id":"z","to":"A","ref":"#"}]`)
	b.hear(`[{"op":"body","topic":"t","id":"z","to":"A","ref":"#","data":1}]`)
	b.hear(`[{"op":"body","topic":"t","id":"z","to":"A","ref":"#","data":{"error":{"code":"broke","message":"half way"}},"done":true}]`)
}

func TestHandlersAreCancelled(t *testing.T) {
	for _, c := range []struct{ name, say, code string }{
		{"by the client", `[{"op":"cancel","topic":"t","id":"x","from":"A"}]`, relay.Cancelled},
		{"since the client is gone", `[{"op":"head:error","topic":"t","id":"x","ref":"2","code":"client_gone"}]`, relay.ClientGone},
		{"with the connection", `{}`, relay.Closed},
	} {
		s := newScripted(t)
		client, f := s.connect(relay.Options{NoReconnect: true, Concurrent: 1})
		got := make(chan error, 1)
		b := s.serving(client, f, func(ctx context.Context, r *relay.Request) error {
			r.Respond(nil)
			<-ctx.Done()
			got <- context.Cause(ctx)
			return r.Send(raw("too late"))
		})
		f.say(`[{"op":"head","topic":"t","id":"x","from":"A"},{"op":"body","topic":"t","id":"x","from":"A","data":7}]`)
		b.hear(`[{"op":"head","topic":"t","id":"x","to":"A","ref":"2"}]`)
		f.say(`[{"op":"head","topic":"t","id":"more","from":"B","done":true}]`)
		b.hear(`[{"op":"head","topic":"t","id":"more","to":"B","ref":"#","data":{"error":{"code":"busy","message":"the server has too many requests"}},"done":true}]`)
		f.say("%s", c.say)
		if err := <-got; relay.CodeOf(err) != c.code {
			t.Errorf("%s: %v", c.name, err)
		}
		f.silent()
	}
}

// A client may use an id again when its request is over, whether the handler is or not.
func TestAnIDThatComesAgain(t *testing.T) {
	s := newScripted(t)
	c, f := s.connect(relay.Options{})
	end := make(chan struct{})
	b := s.serving(c, f, func(ctx context.Context, r *relay.Request) error {
		if string(r.Head) == "1" {
			<-ctx.Done()
			<-end
			return r.Send(raw("too late"))
		}
		return r.Respond(r.Head)
	})
	f.say(`[{"op":"head","topic":"t","id":"x","from":"A","data":1},{"op":"cancel","topic":"t","id":"x","from":"A"}]`)
	f.say(`[{"op":"head","topic":"t","id":"x","from":"A","data":2,"done":true}]`)
	b.hear(`[{"op":"head","topic":"t","id":"x","to":"A","ref":"#","data":2}]`)
	b.hear(`[{"op":"body","topic":"t","id":"x","to":"A","ref":"#","done":true}]`)
	for range 100 { // answered: again at once
		f.say(`[{"op":"head","topic":"t","id":"x","from":"A","data":3,"done":true}]`)
		b.hear(`[{"op":"head","topic":"t","id":"x","to":"A","ref":"#","data":3}]`)
		b.hear(`[{"op":"body","topic":"t","id":"x","to":"A","ref":"#","done":true}]`)
	}
	close(end)
	if err := c.Idle(t.Context()); err != nil {
		t.Error(err)
	}
	b.silent()
}

func TestABodyThatTheHandlerDoesNotRead(t *testing.T) {
	s := newScripted(t)
	c, f := s.connect(relay.Options{Buffer: 100, Hold: -1})
	got := make(chan error, 1)
	read := make(chan struct{})
	s.serving(c, f, func(_ context.Context, r *relay.Request) error {
		<-read
		_, err := r.Next()
		got <- err
		return nil
	})
	f.say(`[{"op":"head","topic":"t","id":"x","from":"A"},{"op":"body","topic":"t","id":"x","from":"A","data":"%s"}]`, strings.Repeat("x", 100))
	results := asked(t, c, "1", nil)
	f.hear(`[{"op":"head","topic":"t","id":"1","ref":"#","data":1,"done":true}]`)
	f.say(`[{"op":"head","topic":"t","id":"1","done":true}]`)
	if got := <-results; got.err != nil { // what comes is handled in order: the body was
		t.Error(got.err)
	}
	close(read)
	wantCode(t, <-got, relay.Busy)
}

// What comes after a stream is lost does not count as its rest.
func TestALostBodyHasNoRest(t *testing.T) {
	s := newScripted(t)
	c, f := s.connect(relay.Options{Buffer: 100, Hold: -1})
	got, read := make(chan string, 1), make(chan struct{})
	b := s.serving(c, f, func(_ context.Context, r *relay.Request) error {
		if _, err := r.Next(); err != nil {
			t.Error(err)
		}
		r.Respond(nil)
		<-read
		text, err := collect(r.Body())
		got <- text + relay.CodeOf(err)
		return nil
	})
	f.say(`[{"op":"head","topic":"t","id":"x","from":"A"},{"op":"body","topic":"t","id":"x","from":"A","data":0}]`)
	b.hear(`[{"op":"head","topic":"t","id":"x","to":"A","ref":"#"}]`)
	for _, part := range []string{"1", strings.Repeat("1", 100), "2"} {
		f.say(`[{"op":"body","topic":"t","id":"x","from":"A","data":%s}]`, part)
	}
	f.say(`[{"op":"body","topic":"t","id":"x","from":"A","done":true}]`)
	results := asked(t, c, "1", nil)
	f.hear(`[{"op":"head","topic":"t","id":"1","ref":"#","data":1,"done":true}]`)
	f.say(`[{"op":"head","topic":"t","id":"1","done":true}]`)
	<-results
	close(read)
	if got := <-got; got != relay.Busy {
		t.Errorf("got %s", got)
	}
}

// A handler that waits for the relay to take its response does not keep the answer from coming, however full its request's body is.
func TestAFullBodyDoesNotKeepAnswersAway(t *testing.T) {
	s := newScripted(t)
	c, f := s.connect(relay.Options{Buffer: 1000, Hold: time.Minute, Window: 2})
	b := s.serving(c, f, func(_ context.Context, r *relay.Request) error {
		r.Respond(nil)
		for p, err := range r.Body() {
			if err != nil {
				return err
			}
			if err := r.Send(p); err != nil {
				return err
			}
		}
		return nil
	})
	f.say(`[{"op":"head","topic":"t","id":"1","from":"A"}]`)
	part := strings.Repeat("x", 500)
	for range 12 {
		f.say(`[{"op":"body","topic":"t","id":"1","from":"A","data":%q}]`, part)
	}
	f.say(`[{"op":"body","topic":"t","id":"1","from":"A","done":true}]`)
	b.ok("head", b.hear(`[{"op":"head","topic":"t","id":"1","to":"A","ref":"#"}]`))
	for range 12 {
		b.ok("body", b.hear(`[{"op":"body","topic":"t","id":"1","to":"A","ref":"#","data":"`+part+`"}]`))
	}
	b.hear(`[{"op":"body","topic":"t","id":"1","to":"A","ref":"#","done":true}]`)
}

func TestReconnect(t *testing.T) {
	s := newScripted(t)
	c, f := s.connect(relay.Options{})
	roles, errs := make(chan string, 10), make(chan error, 10)
	c.OnRole(func(topic string, role relay.Role) { roles <- topic + " " + string(role) })
	c.OnError(func(err error) { errs <- err })
	s.serving(c, f, func(context.Context, *relay.Request) error { return nil })
	f.say(`[{"op":"role","topic":"t","role":"standby"}]`)
	if got := <-roles; got != "t standby" {
		t.Error(got)
	}
	results := asked(t, c, "1", nil)
	f.hear(`[{"op":"head","topic":"t","id":"1","ref":"#","data":1,"done":true}]`)
	f.c.Close(websocket.InternalFail, "")
	got := <-results
	wantCode(t, got.err, relay.Closed)
	wantCode(t, <-errs, relay.Closed)
	f = s.next()
	f.say(`[{"op":"serve:ok","topic":"t","ref":%q,"role":"active"}]`, f.hear(`[{"op":"serve","topic":"t","ref":"#"}]`))
	if got := <-roles; got != "t active" {
		t.Error(got)
	}
	results = asked(t, c, "2", nil)
	f.hear(`[{"op":"head","topic":"t","id":"2","ref":"#","data":2,"done":true}]`)
	c.Close()
	got = <-results
	wantCode(t, got.err, relay.Closed)
	_, err := c.Request(t.Context(), "t", nil, nil)
	wantCode(t, err, relay.Closed)
	_, err = c.Serve(t.Context(), "t", nil)
	wantCode(t, err, relay.Closed)
	if len(errs) != 0 {
		t.Errorf("a close that was meant is told as %v", <-errs)
	}
}

// Idle waits for the responses that are under way.
func TestIdle(t *testing.T) {
	s := newScripted(t)
	c, f := s.connect(relay.Options{})
	if err := c.Idle(t.Context()); err != nil {
		t.Error(err)
	}
	begun, end := make(chan struct{}), make(chan struct{})
	b := s.serving(c, f, func(context.Context, *relay.Request) error { close(begun); <-end; return nil })
	f.say(`[{"op":"head","topic":"t","id":"1","from":"A","done":true}]`)
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Idle(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	idle := make(chan error, 1)
	go func() { idle <- c.Idle(t.Context()) }()
	close(end)
	b.hear(`[{"op":"head","topic":"t","id":"1","to":"A","ref":"#","done":true}]`)
	if err := <-idle; err != nil {
		t.Error(err)
	}
}

func TestConnectIsRefused(t *testing.T) {
	s := newScripted(t)
	_, err := relay.Connect(t.Context(), relay.Options{URL: s.url, Domain: "acme", Token: "bad"})
	wantCode(t, err, relay.Forbidden)
	if strings.Contains(err.Error(), "token") || strings.Count(err.Error(), "no such key") != 1 {
		t.Error(err)
	}
	_, err = relay.Connect(t.Context(), relay.Options{URL: s.url, Domain: "nope", Token: "good"})
	wantCode(t, err, relay.Forbidden)
	for _, o := range []relay.Options{{}, {URL: "amqp://x", Domain: "d"}, {URL: "ws://x"}, {URL: "::", Domain: "d"}} {
		if _, err := relay.Connect(t.Context(), o); err == nil {
			t.Errorf("%+v connects", o)
		}
	}
}

func TestServeIsRefused(t *testing.T) {
	c, f := newScripted(t).connect(relay.Options{})
	done := make(chan error, 1)
	go func() { _, err := c.Serve(t.Context(), "t", nil); done <- err }()
	f.say(`[{"op":"serve:error","topic":"t","ref":%q,"code":"forbidden","message":"Missing S"}]`, f.hear(`[{"op":"serve","topic":"t","ref":"#"}]`))
	err := <-done
	wantCode(t, err, relay.Forbidden)
	if !strings.Contains(err.Error(), "Missing S") {
		t.Error(err)
	}
}
