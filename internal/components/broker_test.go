package components

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/components/proto"
)

// hello serves the deployment hello-main: the frontend asks the backend whom to greet.
func (x *testBroker) hello(d proto.Dialect) (f, b *standin) {
	fw, bw := frontend, backend
	fw.d, bw.d = d, d
	f, b = x.connect(fw), x.connect(bw)
	b.handler = func(r *received) { b.respond(r, 200, strings.Trim(r.env["who"], `"`), nil) }
	f.handler = func(r *received) {
		answer := f.request(f.child(&r.Event, "backend"))
		f.respond(r, 201, "Hello "+string(answer.Content)+"!", map[string][]string{"X-Route": {fmt.Sprint(r.route), "twice"}})
	}
	return f, b
}

func TestHello(t *testing.T) {
	for d, name := range map[proto.Dialect]string{proto.D4: "D4", proto.D3: "D3"} {
		t.Run(name, func(t *testing.T) {
			x := startBroker(t, Options{})
			x.b.hint.Store(int32(d))
			x.hello(d)
			code, body, h := x.do("GET", "/prod/hello", "")
			if code != 201 || body != "Hello Universe!" || fmt.Sprint(h["X-Route"]) != "[0 twice]" || h.Get("Content-Type") != "text/plain" {
				t.Errorf("a released route: %d %s %v", code, body, h)
			}
			if h.Get("Kubefox-Virtual-Environment") != "prod" || h.Get("Kubefox-App-Deployment") != "hello-main" || h.Get("Kubefox-Platform") != "lab" || h.Get("Kubefox-Event-Id") == "" || h.Get("Kubefox-Adapter") == "" {
				t.Errorf("headers: %v", h)
			}
			for _, c := range []struct{ path, headers, want string }{
				{"/qa/hello", "", "404 route not found"},
				{"/qa/hello?kf-ve=qa&kf-dep=hello-main", "", "201 Hello World!"},
				{"/qa/hello", "kf-ve=qa,kf-dep=hello-main", "201 Hello World!"},
				{"/qa/hello", "Kubefox-Virtual-Environment=qa,kubefox-app-deployment=hello-main", "201 Hello World!"},
				{"/qa/hello?kfe=qa&kfd=hello-main", "", "201 Hello World!"},
				{"/prod/hello?kf-ve=qa&kf-dep=hello-main", "", "404 route not found"},
				{"/qa/hello", "kf-ve=qa", "400 invalid: event context is invalid"},
				{"/qa/hello", "kf-dep=hello-main", "400 invalid: event context is invalid"},
				{"/qa/hello", "kf-ve=none,kf-dep=hello-main", `404 not found: VirtualEnvironment "none" not found`},
				{"/qa/hello", "kf-ve=qa,kf-dep=none", `404 not found: AppDeployment "none" not found`},
				{"/prod/hello?kf-type=foo.bar", "", "201 Hello Universe!"},
			} {
				headers := strings.FieldsFunc(c.headers, func(r rune) bool { return r == ',' || r == '=' })
				if got := x.get(c.path, headers...); got != c.want {
					t.Errorf("%s %s: got %s, want %s", c.path, c.headers, got, c.want)
				}
			}
		})
	}
}

// What a component gets: route id, params, suffix, values, env, ttl, ids.
func TestWhatAComponentGets(t *testing.T) {
	x := startBroker(t, Options{})
	f := x.connect(frontend)
	done := make(chan string, 1)
	go func() {
		_, body, _ := x.do("POST", "/prod/thing/a/b?q=1&kf-sample=1", "body", "Content-Type", "text/x", "X-A", "1", "X-A", "2", "Host", "Shop:1")
		done <- body
	}()
	r := f.takes(0)
	if r.route != 1 || string(r.Content) != "body" || r.ContentType != "text/x" || r.Type != typeHTTP || r.Category != proto.Request || len(r.ID) != 36 {
		t.Errorf("%+v", r)
	}
	for key, want := range map[string]string{
		"url": `"http://Shop:1/prod/thing/a/b?kf-sample=1\u0026q=1"`, "host": `"shop:1"`, "path": `"/prod/thing/a/b"`, "method": `"POST"`, "pathSuffix": `"a/b"`, "queryParam": `{"kf-sample":["1"],"q":["1"]}`,
	} {
		if got, _ := proto.Find(r.Values, key); string(got) != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
	if header, _ := proto.Find(r.Values, "header"); !strings.Contains(string(header), `"X-A":["1","2"]`) || strings.Contains(string(header), "Host") {
		t.Errorf("header: %s", header)
	}
	if p, _ := proto.Find(r.Params, "x"); string(p) != `"thing"` || r.env["subPath"] != `"prod"` || len(r.env) != 1 {
		t.Errorf("params %s, env %v", r.Params, r.env)
	}
	if r.TTL <= 0 || r.TTL > int64(time.Minute) || !r.Source.IsComplete() || r.Target.Hash != "aaaaaaaaaaaa" || r.Target.ID != "" || !strings.Contains(string(r.Span), "kf=1") {
		t.Errorf("%+v", r.Event)
	}
	f.respond(r, 200, "done", nil)
	if got := <-done; got != "done" {
		t.Errorf("got %s", got)
	}
}

// A header may have any bytes; the texts of an event are UTF-8.
func TestHeadersThatAreNoText(t *testing.T) {
	x := startBroker(t, Options{})
	f := x.connect(frontend)
	f.handler = func(r *received) { f.respond(r, 200, r.ContentType+" "+r.Type, nil) }
	got := x.get("/prod/hello", "Content-Type", "a\xff", "Kf-Type", "b\xff", "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate", "c\xff")
	if got != "200 a\uFFFD b\uFFFD" {
		t.Errorf("got %s", got)
	}
}

// What routing takes out of an event is there once, whatever the sender gave.
func TestValuesOfRouting(t *testing.T) {
	x := startBroker(t, Options{})
	f, b := x.connect(frontend), x.connect(backend)
	f.handler = func(r *received) { f.respond(r, 200, fmt.Sprintf("%s %s", r.Params, r.Values), nil) }
	e := b.child(&proto.Event{TTL: int64(10 * time.Second), Context: proto.Context{Platform: "lab", Environment: "qa", Deployment: "hello-main"}}, "frontend")
	twice := func(key string) []proto.Entry {
		return []proto.Entry{{Key: key, Value: []byte("1")}, {Key: key, Value: []byte("2")}}
	}
	e.Params, e.Values = twice("x"), append(twice("pathSuffix"), proto.Entry{Key: "path", Value: []byte(`"/qa/thing/rest"`)})
	if got := string(b.request(e).Content); got != `[{x "thing"}] [{path "/qa/thing/rest"} {pathSuffix "rest"}]` {
		t.Errorf("got %s", got)
	}
}

func errorOf(e *proto.Event) string {
	if e.Type != proto.TypeError {
		return "no error: " + e.Type
	}
	f := failureOf(e.Content)
	return fmt.Sprintf("%d %s", f.HTTP, f)
}

// Events of components: each refusal is an error event to a request, and nothing to others.
func TestEventsOfComponents(t *testing.T) {
	x := startBroker(t, Options{})
	f, b := x.connect(frontend), x.connect(backend)
	b.handler = func(r *received) { b.respond(r, 200, fmt.Sprint(r.route), nil) }
	base := &proto.Event{ID: proto.NewID(), TTL: int64(10 * time.Second), Context: proto.Context{Platform: "lab", Environment: "qa", Deployment: "hello-main"}}
	for _, c := range []struct {
		name   string
		change func(e *proto.Event)
		want   string
	}{
		{"the default handler", func(*proto.Event) {}, "ok -1"},
		{"a target by name and all", func(e *proto.Event) { e.Target = b.id; e.Target.BrokerID = x.b.id.ID }, "ok -1"},
		{"its own routes are not the target's", func(e *proto.Event) { e.Values = []proto.Entry{{Key: "path", Value: []byte(`"/qa/hello"`)}} }, "ok -1"},
		{"no context", func(e *proto.Event) { e.Context.Environment, e.Context.Deployment = "", "" }, "400 invalid: event target is invalid"},
		{"no context and no target", func(e *proto.Event) { e.Context = proto.Context{Platform: "lab"}; e.HasTarget = false }, "400 invalid: genesis event source is not a genesis adapter"},
		{"half a context", func(e *proto.Event) { e.Context.Environment = "" }, "400 invalid: event context is invalid"},
		{"half a target", func(e *proto.Event) { e.Target.Hash = "x" }, "400 invalid: event target is invalid"},
		{"a target that is not deployed", func(e *proto.Event) { e.Target.Name = "other" }, "502 component mismatch"},
		{"an adapter that nobody depends on", func(e *proto.Event) { e.Target = proto.Component{Type: typeHTTPAdapter, Name: "none"} }, "502 component mismatch"},
		{"an environment that is not there", func(e *proto.Event) { e.Context.Environment = "none" }, `404 not found: VirtualEnvironment "none" not found`},
		{"no target, and no route", func(e *proto.Event) { e.HasTarget = false }, "404 route not found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := f.child(base, "backend")
			c.change(e)
			answer := f.request(e)
			got := "ok " + string(answer.Content)
			if answer.Type == proto.TypeError {
				got = errorOf(answer)
				if answer.ParentID != e.ID || answer.Source != x.b.id || answer.Context != e.Context || answer.Target.ID != f.id.ID || answer.TTL <= 0 {
					t.Errorf("the error event: %+v", answer)
				}
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	for _, quiet := range []func(e *proto.Event){
		func(e *proto.Event) { e.Category = proto.Message; e.Target.Name = "other" }, // fails
		func(e *proto.Event) { e.TTL = 0 },                                           // is over
		func(e *proto.Event) { e.Category = proto.Response },                         // has no whole target
		func(e *proto.Event) { e.Type, e.Category, e.Target = proto.TypeTelemetry, proto.Message, x.b.id },
	} {
		e := f.child(base, "backend")
		quiet(e)
		f.write(e)
	}
	if answer := f.request(f.child(base, "backend")); string(answer.Content) != "-1" {
		t.Errorf("after quiet ones: %+v", answer)
	}
	if f.mu.Lock(); len(f.got) > 0 {
		t.Errorf("got %+v", f.got[0])
	}
	f.mu.Unlock()
}

// A group that nobody serves is told at once.
func TestNobodyServes(t *testing.T) {
	x := startBroker(t, Options{})
	start := time.Now()
	if got := x.get("/prod/hello"); got != "502 component gone" || time.Since(start) > 10*time.Second {
		t.Errorf("got %s after %v", got, time.Since(start))
	}
}

func TestExpired(t *testing.T) {
	x := startBroker(t, Options{TTL: 200 * time.Millisecond})
	x.connect(frontend)
	if got := x.get("/prod/hello"); got != "503 time out" {
		t.Errorf("got %s", got)
	}
	if c := x.b.Counters(); c["componentFailedTimeOut"] != 1 || c["componentStreams"] != 1 || c["componentConnects"] != 1 {
		t.Errorf("counted %v", c)
	}
	y := startBroker(t, Options{TTL: 200 * time.Millisecond, ExpiredStatus: 504})
	y.connect(frontend)
	if got := y.get("/prod/hello"); got != "504 time out" {
		t.Errorf("got %s", got)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(x.http, "http://")) // by a client that does not say all
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST /prod/hello HTTP/1.1\r\nHost: lab\r\nContent-Length: 9\r\n\r\nhalf")
	conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || answer.StatusCode != 503 {
		t.Errorf("half a body: got %v, %v", answer, err)
	}
}

// A client that has said all before its request is answered is not told that it was.
func TestClientThatEndsFirst(t *testing.T) {
	x := startBroker(t, Options{})
	f := x.connect(frontend)
	conn, err := net.Dial("tcp", strings.TrimPrefix(x.http, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /prod/hello HTTP/1.1\r\nHost: lab\r\n\r\n")
	f.takes(0)
	conn.(*net.TCPConn).CloseWrite()
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if got, err := io.ReadAll(conn); err != nil || len(got) > 0 {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestLargeEvents(t *testing.T) {
	x := startBroker(t, Options{})
	f := x.connect(frontend)
	f.handler = func(r *received) { f.respond(r, 200, string(r.Content), nil) }
	for _, size := range []int{600 << 10, 5 << 20} {
		large := strings.Repeat("x", size)
		if code, body, _ := x.do("POST", "/prod/hello", large); code != 200 || body != large {
			t.Errorf("%d bytes: %d, %d bytes", size, code, len(body))
		}
	}
	if code, body, _ := x.do("POST", "/prod/hello", strings.Repeat("x", 5<<20+1)); code != 413 || body != "content too large" {
		t.Errorf("too large: %d %s", code, body)
	}
}

// A response that is too large is a failure for who waits, at once: a request that came in, and a component.
func TestResponsesThatAreTooLarge(t *testing.T) {
	x := startBroker(t, Options{})
	f, b := x.connect(frontend), x.connect(backend)
	b.handler = func(r *received) { b.respond(r, 200, strings.Repeat("x", 5<<20+1), nil) }
	f.handler = func(r *received) {
		if value, _ := proto.Find(r.Values, "queryParam"); strings.Contains(string(value), "call") {
			answer := f.request(f.child(&r.Event, "backend"))
			f.respond(r, 200, answer.Type+" "+string(answer.Content), nil)
			return
		}
		f.respond(r, 200, strings.Repeat("x", 5<<20+1), nil)
	}
	for path, want := range map[string]string{
		"/prod/hello":      "413 content too large",
		"/prod/hello?call": `200 io.kubefox.error {"code":5,"grpcCode":8,"httpCode":413,"msg":"content too large"}`,
	} {
		if got := x.get(path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

// What a component says of a connection that is not its own is left out.
func TestFieldsOfTheConnection(t *testing.T) {
	x := startBroker(t, Options{})
	f := x.connect(frontend)
	f.handler = func(r *received) {
		f.respond(r, 200, "body", map[string][]string{
			"Transfer-Encoding": {"chunked"}, "content-length": {"9"}, "Connection": {"X-A"}, "Trailer": {"X-B"}, "Trailer:X-C": {"1"}, "Upgrade": {"h2c"}, "X-A": {"a\r\nX-D: 1", "\x00\x7fé"},
			"Kubefox-Event-Id": {"forged"}, "kubefox-platform": {"forged"},
		})
	}
	_, body, h := x.do("GET", "/prod/hello", "")
	for _, name := range []string{"Transfer-Encoding", "Trailer", "Trailer:X-C", "Upgrade", "X-D"} {
		if h[name] != nil {
			t.Errorf("%s: %q", name, h[name])
		}
	}
	if len(h["Kubefox-Event-Id"]) != 1 || h.Get("Kubefox-Event-Id") == "forged" || fmt.Sprint(h["Kubefox-Platform"]) != "[lab]" {
		t.Errorf("what the router says of itself: %v", h)
	}
	if body != "body" || h.Get("Content-Length") != "4" || fmt.Sprintf("%q", h["X-A"]) != `["a  X-D: 1" "é"]` || h.Get("Connection") == "X-A" {
		t.Errorf("%q %v", body, h)
	}
}

// OPTIONS of all, which has no path, is routed as any other request.
func TestOptionsOfAll(t *testing.T) {
	x := startBroker(t, Options{Objects: objects(t, strings.Replace(lab, "All() && Path(`/{{.Vars.subPath}}/hello`)", "Method(`OPTIONS`)", 1))})
	f := x.connect(frontend)
	f.handler = func(r *received) { f.respond(r, 200, "options", nil) }
	c, err := net.Dial("tcp", strings.TrimPrefix(x.http, "http://"))
	x.must(err)
	defer c.Close()
	fmt.Fprint(c, "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if text, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(text), "options") {
		t.Errorf("%s, %v", text, err)
	}
}

// Two replicas share what comes; one that ends leaves the rest to the other.
func TestReplicas(t *testing.T) {
	x := startBroker(t, Options{})
	counts := map[string]int{}
	var all []*standin
	for range 2 {
		f := x.connect(frontend)
		f.handler = func(r *received) { f.respond(r, 200, f.id.ID, nil) }
		all = append(all, f)
	}
	for range 20 {
		counts[x.get("/prod/hello")]++
	}
	if len(counts) != 2 {
		t.Errorf("not shared: %v", counts)
	}
	all[0].stream.CloseSend()
	all[0].end()
	for range 5 {
		if got := x.get("/prod/hello"); got != "200 "+all[1].id.ID {
			t.Errorf("got %s", got)
		}
	}
}

// The newer of two streams of one replica has it, and the older is told.
func TestSecondStream(t *testing.T) {
	x := startBroker(t, Options{})
	w := frontend
	w.id = "replica1"
	first := x.connect(w)
	second := x.connect(w)
	second.handler = func(r *received) { second.respond(r, 200, "second", nil) }
	if got := first.end(); got != "Aborted another stream has the same id" {
		t.Errorf("the older: %s", got)
	}
	if got := x.get("/prod/hello"); got != "200 second" {
		t.Errorf("got %s", got)
	}
}

// A component that never reads has a line of its own: others go on, and what does not fit is refused.
func TestComponentThatNeverReads(t *testing.T) {
	x := startBroker(t, Options{Queue: 10, TTL: 5 * time.Second}) // for the bodies to come in, too
	lazy := x.begin(frontend)
	close(lazy.ended)
	lazy.write(&proto.Event{
		ID: proto.NewID(), Type: proto.TypeRegister, Category: proto.Request, TTL: 1, HasContext: true, Context: proto.Context{Platform: "lab"},
		HasSource: true, Source: lazy.id, ContentType: "application/json", Content: []byte(`{"type":"KubeFox"}`),
	})
	large := strings.Repeat("x", 128<<10)
	answers := make(chan int, 40)
	for range 40 {
		go func() { code, _, _ := x.do("POST", "/prod/hello", large); answers <- code }()
	}
	b := x.connect(backend)
	b.handler = func(r *received) { b.respond(r, 200, "well", nil) }
	base := &proto.Event{ID: proto.NewID(), TTL: int64(10 * time.Second), Context: proto.Context{Platform: "lab", Environment: "qa", Deployment: "hello-main"}}
	if answer := b.request(b.child(base, "backend")); string(answer.Content) != "well" {
		t.Errorf("another component: %+v", answer)
	}
	for range 40 {
		if code := <-answers; code != 502 && code != 503 {
			t.Errorf("got %d", code)
		}
	}
}

// An adapter of the deployment is called by the broker.
func TestHTTPAdapter(t *testing.T) {
	outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/away") {
			http.Redirect(w, r, "/base/home", http.StatusFound)
			return
		}
		w.Header().Set("X-Seen", r.Header.Get("X-A")+" "+r.Method+" "+r.URL.String())
		w.WriteHeader(202)
	}))
	defer outside.Close()
	text := strings.Replace(lab, "http://127.0.0.1:9000/base", outside.URL+"/base?k=v", 1)
	text = strings.Replace(text, "{{.Vars.who}}", "{{.Vars.who}} {{.Secrets.pw}}", 1)
	x := startBroker(t, Options{Objects: objects(t, text)})
	f := x.connect(frontend)
	base := &proto.Event{ID: proto.NewID(), TTL: int64(10 * time.Second), Context: proto.Context{Platform: "lab", Environment: "qa", Deployment: "hello-main"}}
	call := func(path string) *proto.Event {
		e := f.child(base, "echo")
		e.Target.Type, e.Type = typeHTTPAdapter, typeHTTP
		e.Values = []proto.Entry{{Key: "url", Value: jsonText("http://ignored" + path)}, {Key: "method", Value: []byte(`"POST"`)}}
		return f.request(e)
	}
	answer := call("/sub/path?a=1")
	header, _ := proto.Find(answer.Values, "header")
	if statusOf(answer) != 202 || !strings.Contains(string(header), `"X-Seen":["World hidden POST /base/sub/path?a=1\u0026k=v"]`) {
		t.Errorf("%d %s %+v", statusOf(answer), header, answer)
	}
	for path, want := range map[string]string{"/../../x": "/base/x", "/a/../../%2e%2e/./x/": "/base/x/", "": "/base", "/a%2f..%2fx": "/base/a%2f..%2fx"} {
		header, _ := proto.Find(call(path).Values, "header")
		if !strings.Contains(string(header), " POST "+want+"?k=v") {
			t.Errorf("%s: got %s, want %s", path, header, want)
		}
	}
	if answer = call("/away"); statusOf(answer) != 302 {
		t.Errorf("a redirect: %d", statusOf(answer))
	}
	outside.Close()
	if got := errorOf(call("/x")); !strings.HasPrefix(got, "500 unexpected error: http request failed: ") || strings.Contains(got, "base") {
		t.Errorf("an adapter that is away: %s", got)
	}
}

// Objects change while events flow: a release moves, goes and comes back, and nobody reconnects.
func TestReleaseMoves(t *testing.T) {
	x := startBroker(t, Options{})
	x.hello(proto.D4)
	want := func(text string) {
		t.Helper()
		if got := x.get("/prod/hello"); got != text {
			t.Errorf("got %s, want %s", got, text)
		}
	}
	want("201 Hello Universe!")
	rows := x.core.Table().Snapshot().Len()
	x.edit("releases: {prod: {hello: {}}}")
	want("404 route not found")
	x.edit("", "release/prod/hello")
	want("201 Hello Universe!")
	x.edit("environments: {prod: {vars: {who: All, subPath: prod}}}")
	want("201 Hello All!")
	if err := x.refused("environments: {prod: {vars: {subPath: prod}}}"); !strings.Contains(err, "VarNotFound AppDeployment hello-main $.spec.components.backend.envVarSchema.who: ") {
		t.Errorf("without a variable: %s", err)
	}
	want("201 Hello All!")
	x.must(x.b.Use(objects(t, strings.Replace(lab, "who: Universe, ", "", 1))))
	want("201 Hello All!")
	if err := x.refused("", "environment/prod"); !strings.Contains(err, "VarNotFound") {
		t.Errorf("the file's environment lacks a variable: %s", err)
	}
	x.must(x.b.Use(objects(t, lab)))
	x.edit("", "environment/prod")
	x.must(x.b.Use(objects(t, strings.Replace(lab, "who: Universe, ", "", 1))))
	if got := x.get("/prod/hello"); !strings.HasPrefix(got, "400 invalid: ") || !strings.Contains(got, "type: VarNotFound") {
		t.Errorf("without a variable: %s", got)
	}
	x.b.forgetBefore(time.Now().Add(time.Hour))
	if n := x.core.Table().Snapshot().Len(); n > rows {
		t.Errorf("%d rows, %d at first", n, rows)
	}
}

// A component whose deployment gives it no routes brings them.
func TestRoutesOfTheRegistration(t *testing.T) {
	text := strings.Replace(lab, "routes: [{id: 0, rule: \"All() && Path(`/{{.Vars.subPath}}/hello`)\"}, {id: 1, rule: \"PathPrefix(`/{{.Vars.subPath}}/{x}`)\"}],", "", 1)
	x := startBroker(t, Options{Objects: objects(t, text)})
	if got := x.get("/prod/hello"); got != "404 route not found" {
		t.Errorf("before: %s", got)
	}
	w := frontend
	w.def = &Component{Type: typeKubeFox, Routes: []ComponentRoute{{ID: 4, Rule: "Path(`/{{.Vars.subPath}}/hello`)"}}}
	f := x.connect(w)
	f.handler = func(r *received) { f.respond(r, 200, fmt.Sprint(r.route), nil) }
	if got := x.get("/prod/hello"); got != "200 4" {
		t.Errorf("after: %s", got)
	}
}

// An adapter of the platform brings requests over gRPC.
func TestExternalAdapter(t *testing.T) {
	for d, name := range map[proto.Dialect]string{proto.D4: "D4", proto.D3: "D3"} {
		t.Run(name, func(t *testing.T) {
			x := startBroker(t, Options{})
			w := httpsrv
			w.d = d
			a := x.connect(w)
			f := x.connect(frontend) // speaks D4
			f.handler = func(r *received) { f.respond(r, 200, fmt.Sprint(r.route), nil) }
			f.write(&proto.Event{HasContext: true, Context: proto.Context{Platform: "lab"}, HasSource: true, Source: f.id, Category: proto.Message, Values: []proto.Entry{{Key: "a", Value: []byte("1")}}})
			e := a.child(&proto.Event{TTL: int64(10 * time.Second), Context: proto.Context{Platform: "lab"}}, "")
			e.HasTarget, e.Values = false, []proto.Entry{{Key: "path", Value: []byte(`"/prod/hello"`)}, {Key: "method", Value: []byte(`"GET"`)}}
			f.settled()
			if answer := a.request(e); string(answer.Content) != "0" || statusOf(answer) != 200 {
				t.Errorf("got %+v", answer)
			}
		})
	}
}

// settled waits until the broker has taken what the component said before.
func (s *standin) settled() {
	s.t.Helper()
	e := s.child(&proto.Event{TTL: int64(10 * time.Second), Context: proto.Context{Platform: "lab", Environment: "none", Deployment: "none"}}, "x")
	s.request(e)
}

func TestForgedEventsEndTheStream(t *testing.T) {
	for name, change := range map[string]func(*proto.Event){
		"no context":      func(e *proto.Event) { e.HasContext = false },
		"no source":       func(e *proto.Event) { e.HasSource = false },
		"another id":      func(e *proto.Event) { e.Source.ID = "other" },
		"a broker id":     func(e *proto.Event) { e.Source.BrokerID = "b" },
		"another name":    func(e *proto.Event) { e.Source.Name = "backend" },
		"other platforms": func(e *proto.Event) { e.Context.Platform = "x" },
		"a bad value":     func(e *proto.Event) { e.Values = []proto.Entry{{Key: "a", Value: []byte("\x1a\x7f")}} },
		"a bad text":      func(e *proto.Event) { e.ContentType = "a\xff" },
	} {
		t.Run(name, func(t *testing.T) {
			x := startBroker(t, Options{})
			f, b := x.connect(frontend), x.connect(backend)
			e := f.child(&proto.Event{TTL: 1e9, Context: proto.Context{Platform: "lab", Environment: "qa", Deployment: "hello-main"}}, "backend")
			change(e)
			f.write(e)
			if got := f.end(); got != "PermissionDenied component unauthorized" {
				t.Errorf("got %s", got)
			}
			b.settled()
		})
	}
}

// A registration without a life is answered: the component waits for that before anything else.
func TestRegistrationWithoutTTL(t *testing.T) {
	x := startBroker(t, Options{})
	w, answered := frontend, make(chan struct{})
	w.ttl = -1
	s := x.begin(w)
	go func() { defer close(answered); s.register(w) }()
	select {
	case <-answered:
	case <-time.After(20 * time.Second):
		t.Fatal("no answer")
	}
}

func TestWhoMayConnect(t *testing.T) {
	x := startBroker(t, Options{})
	for name, change := range map[string]func(*who){
		"another platform": func(w *who) { w.platform = "other" },
		"a wrong token":    func(w *who) { w.token = "backend-token" },
		"no token":         func(w *who) { w.token = "" },
		"another hash":     func(w *who) { w.hash = "aaaaaaaaaaab" },
		"another type":     func(w *who) { w.kind = "HTTPAdapter" },
		"another app":      func(w *who) { w.app = "other" },
		"an id of a row":   func(w *who) { w.id = "$1" },
		"an id of many":    func(w *who) { w.id = "%" },
		"a long id":        func(w *who) { w.id = strings.Repeat("a", 129) },
		"no app":           func(w *who) { w.app = "" },
		"no such name":     func(w *who) { w.name = "none" },
	} {
		t.Run(name, func(t *testing.T) {
			w := frontend
			change(&w)
			s := x.begin(w)
			s.register(w)
			if got := s.end(); got != "PermissionDenied component unauthorized" {
				t.Errorf("got %s", got)
			}
		})
	}
	if c := x.b.Counters(); c["componentsRefused"] != 11 || c["componentConnects"] != 0 {
		t.Errorf("counted %v", c)
	}
}

// Each pod of an adapter has a token of its own, and a component several while they are changed.
func TestSeveralTokens(t *testing.T) {
	more := `adapters:
  - {name: httpsrv, hash: debug, pod: pod-2, token: token-2}
  - {name: httpsrv, hash: debug, pod: pod-2, token: token-3}
  - {name: httpsrv, hash: debug, pod: pod-4, app: hello, token: adapter-token}
`
	x := startBroker(t, Options{Objects: objects(t, strings.Replace(lab, "adapters:\n", more, 1))})
	for _, c := range []struct {
		pod, token string
		may        bool
	}{
		{"pod-1", "adapter-token", true}, {"pod-2", "token-2", true}, {"pod-2", "token-3", true},
		{"pod-1", "token-2", false}, {"pod-2", "adapter-token", false}, {"pod-3", "adapter-token", false}, {"", "token-2", false}, {"pod-4", "adapter-token", false},
	} {
		w := httpsrv
		w.pod, w.token = c.pod, c.token
		s := x.begin(w)
		if err := s.register(w); (err == nil) != c.may {
			t.Errorf("%s with %s: %v", c.pod, c.token, err)
		}
	}
}

// A component that ends when it is sent values of the other dialect gets those of its own when it comes again.
func TestDialectThatWasNotUnderstood(t *testing.T) {
	x := startBroker(t, Options{})
	g := make(chan *received, 1)
	first := &stream{b: x.b, id: proto.Component{App: "hello", Name: "frontend", Hash: "aaaaaaaaaaaa"}}
	e := &proto.Event{ID: "i", Type: typeHTTP, Category: proto.Request, TTL: 1, Values: []proto.Entry{{Key: "n", Value: []byte("1.5")}}}
	d4 := proto.AppendMatched(nil, e, 0, nil, proto.D4)
	if got := first.inDialect(d4); &got[0] != &d4[0] {
		t.Error("the first stream is not sent D4")
	}
	first.tried = true
	first.guess() // it ended
	w := frontend
	w.d = proto.D3
	f := x.connect(w) // the stand-in minds values of the other dialect
	f.handler = func(r *received) { g <- r; f.respond(r, 200, "", nil) }
	if got := x.get("/prod/hello"); got != "200 " {
		t.Errorf("got %s", got)
	}
	if r := <-g; !r.seen.D3 || r.seen.D4 {
		t.Errorf("got %+v", r.seen)
	}
}

// The first event has to be the registration, and the metadata whole.
func TestBadBeginnings(t *testing.T) {
	x := startBroker(t, Options{})
	for name, change := range map[string]func(e *proto.Event){
		"no registration": func(e *proto.Event) { e.Type = typeHTTP },
		"no request":      func(e *proto.Event) { e.Category = proto.Message },
		"no JSON":         func(e *proto.Event) { e.Content = []byte("x") },
		"another type":    func(e *proto.Event) { e.ContentType = "text/plain" },
		"forged":          func(e *proto.Event) { e.Source.ID = "x" },
	} {
		t.Run(name, func(t *testing.T) {
			s := x.begin(frontend)
			e := &proto.Event{
				ID: proto.NewID(), Type: proto.TypeRegister, Category: proto.Request, TTL: 1e9, HasContext: true, Context: proto.Context{Platform: "lab"},
				HasSource: true, Source: s.id, ContentType: "application/json", Content: []byte(`{"type":"KubeFox"}`),
			}
			change(e)
			s.write(e)
			_, s.err = s.recv()
			close(s.ended)
			if got := s.end(); got != "PermissionDenied component unauthorized" {
				t.Errorf("got %s", got)
			}
		})
	}
	t.Run("metadata given twice", func(t *testing.T) {
		stream, stop := dialStream(t, x.grpc, "app", "hello", "component", "frontend", "hash", "aaaaaaaaaaaa", "id", "1", "id", "2", "platform", "lab", "token", "frontend-token", "type", "KubeFox")
		defer stop()
		var f frame
		if err := stream.RecvMsg(&f); err == nil || !strings.Contains(err.Error(), "component unauthorized") {
			t.Errorf("got %v", err)
		}
	})
}
