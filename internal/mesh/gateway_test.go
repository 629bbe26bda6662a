package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// gatewayOf serves a router's gateway, and gives what makes requests of it.
func gatewayOf(t *testing.T, r *router) (ask func(method, path, body string) (status int, answer string)) {
	t.Helper()
	server := httptest.NewServer(r.m.Gateway(false))
	t.Cleanup(server.Close)
	return func(method, path, body string) (int, string) {
		q, err := http.NewRequest(method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		w, err := server.Client().Do(q)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer w.Body.Close()
		if got := w.Header.Get("Access-Control-Allow-Origin"); got != "*" {
			t.Errorf("%s %s: pages may read it: %q", method, path, got)
		}
		b, err := io.ReadAll(w.Body)
		if err != nil {
			t.Error(err)
		}
		return w.StatusCode, string(b)
	}
}

// answers has a component answer each request: with its arguments, or with a status where the method is fail.
func (c *client) answers() {
	go func() {
		for b := range c.got {
			var f Frame
			if ParseFrame(b, &f) != nil || f.Type != Request || string(f.Name) == "slow" {
				continue
			}
			a := &Frame{Type: Response, ID: f.ID, Data: f.Data}
			if string(f.Name) == "fail" {
				a.Status, a.Data = StatusException, appendText(nil, "it went wrong")
			}
			c.send(a)
		}
	}()
}

func TestCallsByHTTP(t *testing.T) {
	t.Parallel()
	r := startRouter(t, Options{RequestTimeout: 3 * time.Second})
	ask := gatewayOf(t, r)
	exposer := r.component("aaa/bbb/sensor-1")
	for _, method := range []string{"echo", "fail", "slow"} {
		exposer.admin(method, "expose")
	}
	exposer.answers()
	sub := r.component("sub", "echo")
	for _, c := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"GET", "/echo", `[1,"x",[null,2.5]]`, 200, `[1,"x",[null,2.5]]`},
		{"GET", "/echo", `{"x":1}`, 200, `{"x":1}`},
		{"GET", "/echo", ``, 200, `[]`},
		{"GET", "/fail", `[1]`, 403, `"it went wrong"`},
		{"GET", "/slow", `[1]`, 403, `"request timeout"`},
		{"POST", "/", `{"id":1,"method":"echo","params":[1]}`, 200, `{"jsonrpc":"2.0","id":1,"result":[1]}`},
		{"POST", "/", `{"id":1,"method":"echo","params":{"y":[2]}}`, 200, `{"jsonrpc":"2.0","id":1,"result":{"y":[2]}}`},
		{"POST", "/", `{"id":1,"method":"aaa/bbb/sensor-1/echo","params":[1]}`, 200, `{"jsonrpc":"2.0","id":1,"result":[1]}`},
		{"POST", "/", `{"id":1,"method":"aaa/bbb/sensor-2/echo"}`, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"aaa/bbb/sensor-2"}}`},
		{"POST", "/", `[{"id":1,"method":"echo","params":[1]},{"id":2,"method":"fail"},{"id":"slow","method":"slow"},{"id":3,"method":"echo","params":[3]}]`, 200,
			`[{"jsonrpc":"2.0","id":1,"result":[1]},{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"it went wrong"}},` +
				`{"jsonrpc":"2.0","id":"slow","error":{"code":-32000,"message":"request timeout"}},{"jsonrpc":"2.0","id":3,"result":[3]}]`},
	} {
		if status, answer := ask(c.method, c.path, c.body); status != c.status || answer != c.answer {
			t.Errorf("%s %s %s: got %d %s, want %d %s", c.method, c.path, c.body, status, answer, c.status, c.answer)
		}
	}
	for i := range 8 { // of each call that was done, the arguments go to the subscribers of its topic
		if i < 3 && string(sub.publish().Name) != "echo" {
			t.Error("the subscriber gets something else")
		}
	}
}

// What is too long, in a body or in the answers, is refused; a batch is bounded.
func TestLongRequestsByHTTP(t *testing.T) {
	r := startRouter(t, Options{MaxMessage: 10_000, HardQueue: 30_000})
	ask := gatewayOf(t, r)
	exposer := r.component("exposer")
	exposer.admin("echo", "expose")
	exposer.answers()
	long := `["` + strings.Repeat("x", 9000) + `"]`
	if status, answer := ask("GET", "/echo", long); status != 200 || answer != long {
		t.Errorf("got %d, %d bytes", status, len(answer))
	}
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/echo", `["` + strings.Repeat("x", 10_000) + `"]`, 413},
		{"POST", "/t", `["` + strings.Repeat("x", 10_000) + `"]`, 413},
		{"POST", "/", strings.Repeat(" ", 10_001), 413},
		{"POST", "/t", `[` + strings.Repeat("1e9,", 2000) + `1]`, 403}, // longer as CBOR
		{"POST", "/t", strings.Repeat("[", 5000) + strings.Repeat("]", 5000), 403},
	} {
		if status, _ := ask(c.method, c.path, c.body); status != c.status {
			t.Errorf("%s %s: got %d, want %d", c.method, c.path, status, c.status)
		}
	}
	x := &exchange{limit: 10}
	for i := range uint64(2) {
		x.expect(number(i))
		x.append(false, AppendFrame(nil, &Frame{Type: Response, ID: number(i), Data: appendText(nil, "1234567")}))
	}
	if a, b := x.answer(number(0)), x.answer(number(1)); a.status != StatusOK || b.status != StatusError {
		t.Errorf("got %+v, %+v", a, b)
	}
	many := "[" + strings.TrimSuffix(strings.Repeat("1,", maxBatch+1), ",") + "]"
	if _, _, err := parseCalls([]byte(many)); err == nil {
		t.Error("a batch has no bound")
	}
}

// A router that ends does not wait for the answers of methods, nor takes more requests than it may.
func TestRequestsByHTTPEndWithTheRouter(t *testing.T) {
	r := startRouter(t, Options{Connections: 3})
	ask := gatewayOf(t, r)
	exposer := r.component("exposer")
	exposer.admin("slow", "expose")
	over := make(chan int, 3)
	for range 3 {
		go func() { status, _ := ask("GET", "/slow", ""); over <- status }()
	}
	for range 3 {
		exposer.next()
	}
	if status, _ := ask("GET", "/rid", ""); status != 503 {
		t.Errorf("one too many: got %d", status)
	}
	r.stopOnce()
	for range 3 {
		if status := <-over; status != 403 {
			t.Errorf("got %d", status)
		}
	}
}

// Who goes away is not waited for.
func TestAVisitorThatLeaves(t *testing.T) {
	r := startRouter(t, Options{})
	exposer := r.component("exposer")
	exposer.admin("slow", "expose")
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.m.Gateway(false).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/slow", nil))
	}()
	f := exposer.next()
	cancel()
	<-over
	exposer.send(&Frame{Type: Response, ID: f.ID, Data: []byte{1}}) // nobody is there to have it
	if f := exposer.ask(&Frame{Type: Request, Name: []byte("rid"), Data: []byte{0x80}}); f.Status != StatusOK {
		t.Errorf("got %+v", f)
	}
}

func TestWhoIsOfThisMachine(t *testing.T) {
	for _, c := range []struct {
		from, host, header string
		want               bool
	}{
		{"127.0.0.1:9", "127.0.0.1:8080", "", true},
		{"[::1]:9", "[::1]:8080", "", true},
		{"[::ffff:127.0.0.1]:9", "localhost", "", true},
		{"10.0.0.1:9", "localhost", "", false},
		{"127.0.0.1:9", "rebound.example:8080", "", false},
		{"127.0.0.1:9", "localhost", "Origin: https://page.example", false},
		{"127.0.0.1:9", "localhost", "Sec-Fetch-Site: cross-site", false},
		{"127.0.0.1:9", "localhost", "X-Forwarded-For: 10.0.0.1", false},
		{"nonsense", "localhost", "", false},
	} {
		q := httptest.NewRequest("GET", "/admin/shutdown", nil)
		q.RemoteAddr, q.Host = c.from, c.host
		if key, value, ok := strings.Cut(c.header, ": "); ok {
			q.Header.Set(key, value)
		}
		if got := isOfThisMachine(q); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestCredentials(t *testing.T) {
	for header, want := range map[string]string{
		"Basic Zm9vOmJhcg==": "foo|bar|true", "basic Zm9vOmJhcg==": "foo|bar|true", "Zm9vOmJhcg==": "foo|bar|true", "Basic Zm9v": "foo||true", "Basic Zm9vOg==": "foo||true",
		"Basic YTpiOmM=": "a|b:c|true", "Basic": "||false", "Bearer Zm9v": "||false", "Basic Zm9v x": "||false", "Basic %": "||false",
	} {
		name, secret, ok := credentials(header)
		if got := fmt.Sprintf("%s|%s|%v", name, secret, ok); got != want {
			t.Errorf("%q: got %s, want %s", header, got, want)
		}
	}
}

func FuzzCredentials(f *testing.F) {
	f.Add("Basic Zm9vOmJhcg==")
	f.Fuzz(func(t *testing.T, header string) {
		if name, _, ok := credentials(header); strings.Contains(name, ":") || !ok && name != "" {
			t.Errorf("%q: %q", header, name)
		}
	})
}

func FuzzCalls(f *testing.F) {
	f.Add([]byte(`[{"jsonrpc":"2.0","id":1,"method":"a/b","params":[1,{"x":2.5}]},{"method":"t","params":{"__type__":16}}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		calls, batch, err := parseCalls(body)
		if err != nil {
			return
		}
		for i := range calls {
			if c := &calls[i]; c.err == nil {
				if n, err := skipItem(c.frame.Data); err != nil || n != len(c.frame.Data) || c.frame.HasID != (c.id != nil) {
					t.Fatalf("%q: %+v, %v", body, c.frame, err)
				}
			}
			if text := appendRPCError(nil, calls[i].id, codeFailed, "x"); !json.Valid(text) {
				t.Fatalf("%q: the answer is %q", body, text)
			}
		}
		if !batch && len(calls) != 1 {
			t.Fatalf("%q: %d calls", body, len(calls))
		}
	})
}
