package event_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/events"
	"github.com/fingerpost/fingerpost/internal/house/leaks"
	"github.com/fingerpost/fingerpost/messenger/event"
	"github.com/fingerpost/fingerpost/routetable"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// place is a router behind a listener whose connections can be cut.
type place struct {
	t      *testing.T
	events *events.Router
	url    string

	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (p *place) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	p.mu.Lock()
	p.conns = append(p.conns, c)
	p.mu.Unlock()
	return c, err
}

func (p *place) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func startPlace(t *testing.T, o events.Options) *place {
	t.Helper()
	p := &place{t: t, events: events.New(admin.New(routetable.New(), admin.Options{}), o)}
	var err error
	if p.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	p.url = "ws://" + p.Addr().String() + "/router/manager"
	srv := &http.Server{Handler: p.events.Handler()}
	var serving sync.WaitGroup
	serving.Go(func() { srv.Serve(p) })
	t.Cleanup(func() {
		p.events.Close()
		srv.Close()
		serving.Wait()
	})
	return p
}

// run starts a manager, which ends with the test.
func (p *place) run(m *event.Manager) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	p.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
	})
	p.ready(m)
}

func (p *place) ready(m *event.Manager) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := m.Ready(ctx); err != nil {
		p.t.Fatal(err)
	}
}

func manager(t *testing.T, o event.Options) *event.Manager {
	t.Helper()
	m, err := event.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// got gives what comes out of a channel.
func got[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came")
	}
	return v
}

func TestARequestIsAnswered(t *testing.T) {
	p := startPlace(t, events.Options{})
	mail, shop := manager(t, event.Options{URL: p.url, Name: "Mail"}), manager(t, event.Options{URL: p.url, Name: "Shop"})
	mail.Request("SendMail", func(_ context.Context, e *event.Event) (*event.Response, error) {
		return &event.Response{Status: event.OK, Data: json.RawMessage(`{"to":` + string(e.Data) + `}`)}, nil
	})
	answers := make(chan *event.Event, 1)
	shop.Response("SendMail", func(_ context.Context, e *event.Event) (*event.Response, error) {
		answers <- e
		return nil, nil
	})
	p.run(mail)
	p.run(shop)
	at, err := shop.Put(t.Context(), &event.Event{ID: "7", Type: "SendMail", Data: json.RawMessage(`"ada"`), Context: json.RawMessage(`{"key":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	a := got(t, answers)
	if a.ID != "7" || a.Response.Status != "OK" || string(a.Response.Data) != `{"to":"ada"}` || string(a.Data) != `"ada"` || string(a.Context) != `{"key":1}` || !a.Time.After(at) {
		t.Errorf("got %+v, answered %+v, sent %v", a, a.Response, at)
	}
}

// A manager whose connection is cut again and again handles every event of the window, in order, and none twice that it had finished.
func TestACutConnectionLosesNothing(t *testing.T) {
	p := startPlace(t, events.Options{})
	a := manager(t, event.Options{URL: p.url, Name: "A"})
	const n = 300
	var seen []string
	all := make(chan []string, 1)
	a.Request("T", func(_ context.Context, e *event.Event) (*event.Response, error) {
		if seen = append(seen, e.ID); len(seen) == n {
			all <- seen
		}
		return nil, nil
	})
	p.run(a)
	var want []string
	for i := range n {
		if i%30 == 0 {
			p.cut()
		}
		id := fmt.Sprint(i)
		want = append(want, id)
		put(t, p, id)
	}
	if got := got(t, all); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// put sends an event by a component that comes and goes for it.
func put(t *testing.T, p *place, id string) {
	t.Helper()
	s := manager(t, event.Options{URL: p.url, Name: "sender " + id})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	p.ready(s)
	if _, err := s.Put(t.Context(), &event.Event{ID: id, Type: "T"}); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-done
}

func TestHealthTellsWhatHandlersRaised(t *testing.T) {
	p := startPlace(t, events.Options{HealthEvery: 50 * time.Millisecond})
	a := manager(t, event.Options{URL: p.url, Name: "A", Health: func() (string, any) { return event.OK, map[string]int{"jobs": 3} }})
	a.Request("T", func(context.Context, *event.Event) (*event.Response, error) { panic("boom") })
	a.Request("U", func(context.Context, *event.Event) (*event.Response, error) { return nil, errors.New("no") })
	p.run(a)
	for _, typ := range []string{"T", "U"} {
		if err := a.Send(&event.Event{Type: typ}); err != nil {
			t.Fatal(err)
		}
	}
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c := p.events.Components()
		if len(c) == 1 && c[0].Raised == 2 && c[0].Health == "OK" && string(c[0].Vitals) == `{"jobs":3}` {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%+v", c)
		}
	}
}

func TestWhatNoManagerIsMadeOf(t *testing.T) {
	for _, o := range []event.Options{{}, {URL: "ws://h/router/manager"}, {Name: "A"}, {URL: "h:1", Name: "A"}, {URL: "http://h:1/router/manager", Name: "A"}, {URL: "ws:///x", Name: "A"}, {URL: "ws://h/", Name: "\xff"}} {
		if _, err := event.New(o); err == nil {
			t.Errorf("%+v makes one", o)
		}
	}
}

// What a router would refuse, or end the connection for, is not sent; who sends it hears why.
func TestEventsThatAreNone(t *testing.T) {
	p := startPlace(t, events.Options{})
	m := manager(t, event.Options{URL: p.url, Name: "A"})
	p.run(m)
	long := func(n int) string { return strings.Repeat("x", n) }
	text := func(n int) json.RawMessage { return json.RawMessage(`"` + long(n) + `"`) }
	for name, e := range map[string]event.Event{
		"no type": {}, "a long type": {Type: long(1025)}, "a type that is not UTF-8": {Type: "\xff"}, "a long id": {Type: "T", ID: long(129)}, "an id that is not UTF-8": {Type: "T", ID: "\xff"},
		"no JSON": {Type: "T", Data: json.RawMessage("{")}, "two values": {Type: "T", Data: json.RawMessage(`1,"id":2`)}, "data that is not UTF-8": {Type: "T", Data: json.RawMessage("\"\xff\"")},
		"a context that is not UTF-8": {Type: "T", Context: json.RawMessage("\"\xff\"")}, "no status": {Type: "T", Response: &event.Response{}}, "another status": {Type: "T", Response: &event.Response{Status: "MAYBE"}},
		"much": {Type: "T", Data: text(4 << 20)}, "deep data": {Type: "T", Data: json.RawMessage(strings.Repeat("[", 600) + strings.Repeat("]", 600))},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if _, err := m.Put(ctx, &e); err == nil || errors.Is(err, event.ErrAway) || ctx.Err() != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	if _, err := m.Put(t.Context(), &event.Event{Type: "T", Data: text(4<<20 - 1000)}); err != nil {
		t.Error(err)
	}
}

// A component goes on when something of what it says is refused, and tells of it.
func TestARefusalEndsNothing(t *testing.T) {
	grants, err := admin.NewGrants([]string{"event:req/T"})
	if err != nil {
		t.Fatal(err)
	}
	p := startPlace(t, events.Options{HealthEvery: 200 * time.Millisecond, Authorize: func(*http.Request) (*events.Account, error) { return &events.Account{Send: grants}, nil }})
	status := event.OK
	m := manager(t, event.Options{URL: p.url, Name: "A", Health: func() (string, any) { return status, math.NaN() }})
	m.Request("T", func(_ context.Context, e *event.Event) (*event.Response, error) {
		switch e.ID {
		case "1":
			return &event.Response{Status: "MAYBE"}, nil
		case "2":
			return &event.Response{Status: event.OK, Data: json.RawMessage("{")}, nil
		case "3": // not for this account to send
			return &event.Response{Status: event.OK}, nil
		}
		status = "FINE"
		return nil, nil
	})
	p.run(m)
	for _, id := range []string{"1", "2", "3", "4"} {
		if _, err := m.Put(t.Context(), &event.Event{ID: id, Type: "T"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Put(t.Context(), &event.Event{Type: "U"}); err == nil || !strings.Contains(err.Error(), "unauthorized") {
		t.Error(err)
	}
	want := []string{`\"MAYBE\"`, "unexpected end of JSON", "unauthorized", "vitals", "is no status"}
	for until := time.Now().Add(20 * time.Second); len(want) > 0; time.Sleep(10 * time.Millisecond) {
		c := p.events.Components()
		want = slices.DeleteFunc(want, func(w string) bool {
			return slices.ContainsFunc(c[0].Exceptions, func(x json.RawMessage) bool { return strings.Contains(string(x), w) })
		})
		if time.Now().After(until) {
			t.Fatalf("%q was not told: %s", want, c[0].Exceptions)
		}
	}
	if c := p.events.Components(); !c[0].Connected || c[0].Health != event.Error {
		t.Errorf("%+v", c)
	}
}

func TestWhatIsRefusedForGoodEndsRun(t *testing.T) {
	p := startPlace(t, events.Options{Authorize: func(*http.Request) (*events.Account, error) { return nil, errors.New("no") }})
	m := manager(t, event.Options{URL: p.url, Name: "A", Token: "wrong"})
	if err := m.Run(t.Context()); err == nil {
		t.Error("it ran")
	}
	if _, err := m.Put(t.Context(), &event.Event{Type: "T"}); !errors.Is(err, event.ErrAway) {
		t.Errorf("got %v", err)
	}
}

func TestWorkersEndBeforeRun(t *testing.T) {
	p := startPlace(t, events.Options{})
	m := manager(t, event.Options{URL: p.url, Name: "A"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	ended := false
	go func() { done <- m.Run(ctx) }()
	p.ready(m)
	m.Go(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		ended = true
		return nil
	})
	cancel()
	if err := got(t, done); err != nil || !ended {
		t.Errorf("Run gave %v, the worker ended: %v", err, ended)
	}
}
