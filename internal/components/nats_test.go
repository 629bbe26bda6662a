package components

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/components/proto"
	"github.com/fingerpost/fingerpost/internal/nats"
)

// together starts brokers that share a NATS: the first has the server, the others connect to it.
func together(t *testing.T, n int, o Options) []*testBroker {
	var list []*testBroker
	url := "embedded://127.0.0.1:0"
	for i := range n {
		nc, err := nats.Open(nats.Options{URL: url, Name: fmt.Sprint("b", i)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		if i == 0 {
			url = nc.URL()
		}
		o.NATS = nc
		list = append(list, startBroker(t, o))
	}
	return list
}

// knows waits until the broker has a row for a component, or has none.
func (x *testBroker) knows(address string, rows int) {
	x.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		n := 0
		for _, g := range x.core.Table().Snapshot().LookupInto(nil, "comp:"+address, nil) {
			n += len(g.Matches)
		}
		if n == rows {
			return
		}
	}
	x.t.Fatalf("comp:%s has not %d rows", address, rows)
}

// The frontend is at one broker, the backend at another, requests come in at a third.
func TestThreeBrokers(t *testing.T) {
	list := together(t, 3, Options{TTL: 20 * time.Second})
	web, one, two := list[0], list[1], list[2]
	f, b := one.connect(frontend), two.connect(backend)
	b.handler = func(r *received) { b.respond(r, 200, strings.Trim(r.env["who"], `"`), nil) }
	f.handler = func(r *received) {
		answer := f.request(f.child(&r.Event, "backend"))
		f.respond(r, 200, fmt.Sprintf("%d %s", r.route, answer.Content), nil)
	}
	web.knows("hello/frontend@aaaaaaa", 1)
	one.knows("hello/backend@bbbbbbb", 1)
	for range 5 {
		if got := web.get("/prod/hello"); got != "200 0 Universe" {
			t.Errorf("got %s", got)
		}
	}
	// A failure at the far broker comes back.
	without := objects(t, lab)
	delete(without.Deployments, "hello-main")
	two.must(two.b.Use(without))
	base := &proto.Event{ID: proto.NewID(), TTL: int64(10 * time.Second), Context: proto.Context{Platform: "lab", Environment: "qa", Deployment: "hello-main"}}
	if got := errorOf(f.request(f.child(base, "backend"))); got != `404 not found: AppDeployment "hello-main" not found` {
		t.Errorf("got %s", got)
	}
	// A replica here is taken before those elsewhere; when the last one is gone everywhere that is told at once.
	own := web.connect(frontend)
	own.handler = func(r *received) { own.respond(r, 200, "here", nil) }
	for range 5 {
		if got := web.get("/prod/hello"); got != "200 here" {
			t.Errorf("got %s", got)
		}
	}
	own.stream.CloseSend()
	own.end()
	f.stream.CloseSend()
	f.end()
	web.knows("hello/frontend@aaaaaaa", 0)
	start := time.Now()
	if got := web.get("/prod/hello"); got != "502 component gone" || time.Since(start) > 10*time.Second {
		t.Errorf("got %s after %v", got, time.Since(start))
	}
}

// An event whose id is longer than headers may be comes to the other broker all the same.
func TestLongIDs(t *testing.T) {
	list := together(t, 2, Options{})
	f, b := list[0].connect(frontend), list[1].connect(backend)
	b.handler = func(r *received) { b.respond(r, 200, fmt.Sprint(len(r.ID)), nil) }
	list[0].knows("hello/backend@bbbbbbb", 1)
	e := f.child(&proto.Event{TTL: int64(20 * time.Second), Context: proto.Context{Platform: "lab", Environment: "qa", Deployment: "hello-main"}}, "backend")
	e.ID = strings.Repeat("a", 100_000)
	if got := string(f.request(e).Content); got != "100000" {
		t.Errorf("got %s", got)
	}
}

// A hash may have dots, which the names of consumers may not.
func TestHashWithDots(t *testing.T) {
	list := together(t, 2, Options{Objects: objects(t, strings.ReplaceAll(lab, "aaaaaaaaaaaa", "v1.2.34-x"))})
	w := frontend
	w.hash = "v1.2.34-x"
	f := list[0].connect(w)
	f.handler = func(r *received) { f.respond(r, 200, "there", nil) }
	list[1].knows("hello/frontend@v1.2.34", 1)
	if got := list[1].get("/prod/hello"); got != "200 there" {
		t.Errorf("got %s", got)
	}
}

// What a component registers at one broker another uses, where the deployment gives no routes; NATS keeps it.
func TestRegistrationsAreShared(t *testing.T) {
	text := strings.Replace(lab, "routes: [{id: 0, rule: \"All() && Path(`/{{.Vars.subPath}}/hello`)\"}, {id: 1, rule: \"PathPrefix(`/{{.Vars.subPath}}/{x}`)\"}],", "", 1)
	list := together(t, 2, Options{Objects: objects(t, text)})
	w := frontend
	w.def = &Component{Type: typeKubeFox, Routes: []ComponentRoute{{ID: 4, Rule: "Path(`/{{.Vars.subPath}}/hello`)"}}}
	f := list[0].connect(w)
	f.handler = func(r *received) { f.respond(r, 200, fmt.Sprint(r.route), nil) }
	list[1].knows("hello/frontend@aaaaaaa", 1)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got := list[1].get("/prod/hello")
		if got == "200 4" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %s", got)
		}
	}
}

// A broker is killed under load: every request is answered, by 200 or by a failure within its life, and the other replica takes over.
func TestABrokerIsKilled(t *testing.T) {
	list := together(t, 3, Options{TTL: 2 * time.Second})
	web, one, two := list[0], list[1], list[2]
	var handled sync.Map
	for _, x := range []*testBroker{one, two} {
		f := x.connect(frontend)
		f.handler = func(r *received) {
			handled.Store(r.ID, true)
			f.respond(r, 200, r.ID, nil)
		}
	}
	web.knows("hello/frontend@aaaaaaa", 2)
	var ok, failed, lost atomic.Int64
	var load sync.WaitGroup
	killed := make(chan struct{})
	for range 4 {
		load.Go(func() {
			for i := 0; i < 100; i++ {
				start := time.Now()
				code, body, _ := web.do("GET", "/prod/hello", "")
				if _, there := handled.Load(body); code == 200 && !there {
					lost.Add(1)
				}
				switch {
				case code == 200:
					ok.Add(1)
				case time.Since(start) > 8*time.Second:
					t.Errorf("a failure after %v", time.Since(start))
				default:
					failed.Add(1)
				}
				if i == 20 {
					select {
					case killed <- struct{}{}:
						one.b.o.NATS.Close() // the broker is cut off without a word
					default:
					}
				}
			}
		})
	}
	<-killed
	load.Wait()
	if got := web.get("/prod/hello"); lost.Load() > 0 || ok.Load() < 200 || !strings.HasPrefix(got, "200 ") {
		t.Errorf("%d ok, %d failed, %d lost, at the end %s", ok.Load(), failed.Load(), lost.Load(), got)
	}
	t.Logf("%d ok, %d failed", ok.Load(), failed.Load())
}

// With the subjects of today's brokers nothing is kept and nobody tells of its groups: events go to whoever takes the subject of theirs, which may be a broker of
// another kind; where nobody does that is told at once.
func TestCurrentSubjects(t *testing.T) {
	for d, name := range map[proto.Dialect]string{proto.D4: "D4", proto.D3: "D3"} {
		t.Run(name, func(t *testing.T) { takesPart(t, d) })
	}
}

func takesPart(t *testing.T, d proto.Dialect) {
	list := together(t, 2, Options{TTL: time.Minute, Current: true, Between: d})
	web, one := list[0], list[1]
	nc := web.b.o.NATS
	if got := web.get("/prod/hello"); got != "502 component gone" {
		t.Errorf("nobody takes the subject: got %s", got)
	}
	f := one.connect(frontend)
	f.handler = func(r *received) {
		e := f.child(&r.Event, "backend")
		e.Values = []proto.Entry{{Key: "who", Value: []byte(`"frontend"`)}}
		f.respond(r, 200, fmt.Sprintf("%d %s", r.route, errorOrContent(f.request(e))), nil)
	}
	web.until("the frontend's broker takes its events", func() bool { return web.get("/prod/hello") == "200 0 502 component gone" })

	// A broker of another kind has the backend.
	sub, err := nc.Subscribe("evt.cmp.hello.backend.bbbbbbb", "hello-backend-bbbbbbb", func(m *nats.Message) {
		var e proto.Event
		seen, err := e.Parse(m.Data)
		if err != nil || seen.D3 && d != proto.D3 || seen.D4 && d != proto.D4 || seen == (proto.Dialects{}) || m.Header("ce_id") != e.ID || e.Source.BrokerID != one.b.id.ID || e.Target.ID != "" {
			t.Errorf("%+v %v, header %s", e, err, m.Header("ce_id"))
		}
		answer := proto.Event{
			ID: proto.NewID(), ParentID: e.ID, Type: e.Type, Category: proto.Response, TTL: e.TTL, HasContext: true, Context: e.Context, HasTarget: true, Target: e.Source,
			HasSource: true, Source: proto.Component{Type: typeKubeFox, App: "hello", Name: "backend", Hash: "bbbbbbbbbbbb", ID: "replica001", BrokerID: "broker0001"}, Content: []byte("from afar"),
		}
		if err := nc.Publish("evt.brk."+e.Source.BrokerID, answer.ID, answer.Append(nil, d)); err != nil {
			t.Error(err)
		}
	})
	web.must(err)
	for range 5 {
		if got := web.get("/prod/hello"); got != "200 0 from afar" {
			t.Errorf("got %s", got)
		}
	}
	// An event of such a broker is for who takes the group's subject, or is refused with the reason.
	answers := make(chan proto.Event, 1)
	brk, err := nc.Subscribe("evt.brk.broker0001", "broker-broker0001", func(m *nats.Message) {
		var e proto.Event
		e.Parse(m.Data)
		answers <- e
	})
	web.must(err)
	request := proto.Event{
		ID: proto.NewID(), Type: typeHTTP, Category: proto.Request, TTL: int64(time.Minute), HasContext: true, Context: proto.Context{Platform: "lab", Environment: "prod", Deployment: "hello-main"},
		HasSource: true, Source: proto.Component{Type: typeHTTPAdapter, Name: "httpsrv", Hash: "debug", ID: "replica002", BrokerID: "broker0001"}, Values: []proto.Entry{{Key: "path", Value: []byte(`"/prod/hello"`)}},
	}
	for _, c := range []struct{ deployment, want string }{{"hello-main", "200 0 from afar"}, {"none", `404 not found: AppDeployment "none" not found`}} {
		request.Context.Deployment = c.deployment
		web.must(nc.Publish("evt.cmp.hello.frontend.aaaaaaa", request.ID, request.Append(nil, d)))
		e := <-answers
		got := "200 " + string(e.Content)
		if e.Type == proto.TypeError {
			got = errorOf(&e)
		}
		if got != c.want || e.ParentID != request.ID {
			t.Errorf("got %s, want %s: %+v", got, c.want, e)
		}
	}
	sub.Stop()
	brk.Stop()
	// The last replica goes: its subject is let go.
	f.stream.CloseSend()
	f.end()
	web.until("nobody takes the subject any more", func() bool { return web.get("/prod/hello") == "502 component gone" })
}

func errorOrContent(e *proto.Event) string {
	if e.Type == proto.TypeError {
		return errorOf(e)
	}
	return string(e.Content)
}

// While NATS is away nobody waits for it.
func TestNATSIsAway(t *testing.T) {
	for name, current := range map[string]bool{"JetStream": false, "current": true} {
		t.Run(name, func(t *testing.T) {
			list := together(t, 3, Options{TTL: 5 * time.Minute, Current: current})
			server, web, one := list[0], list[1], list[2]
			f := one.connect(frontend)
			f.handler = func(r *received) { f.respond(r, 200, "ok", nil) }
			web.knows("hello/frontend@aaaaaaa", 1)
			web.until("the frontend is there", func() bool { return web.get("/prod/hello") == "200 ok" })
			server.b.o.NATS.Close()
			web.until("NATS is away", func() bool { return !web.b.o.NATS.Connected() })
			if got := web.get("/prod/hello"); got != "502 broker unavailable" && got != "502 component gone" {
				t.Errorf("got %s", got)
			}
		})
	}
}
