package events

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/house/journal"
	"github.com/fingerpost/fingerpost/internal/websocket"
	"github.com/fingerpost/fingerpost/routetable"
)

// world is a router and its components, all in memory, with a clock that goes when everybody waits.
type world struct {
	t     *testing.T
	r     *Router
	log   *journal.Journal
	peers []*peer
}

// inWorld runs f with a router.
func inWorld(t *testing.T, o Options, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t}
		w.start(o)
		f(w)
		for _, p := range w.peers {
			p.resume()
		}
		w.r.Close()
		for _, p := range w.peers {
			p.cut()
		}
		w.check()
	})
}

func (w *world) start(o Options) {
	w.t.Helper()
	w.log = &journal.Journal{}
	o.Log = slog.New(slog.NewTextHandler(w.log, nil))
	if o.ID == "" {
		o.ID = "R"
	}
	w.r = New(admin.New(routetable.New(), admin.Options{}), o)
}

// check holds the router to its invariants: without components there are no subscriptions.
func (w *world) check() {
	w.t.Helper()
	if n := w.r.table.Snapshot().Len(); n > 1 { // that of the ring
		w.t.Errorf("%d rows are left", n)
	}
	if len(w.r.conns) != 0 {
		w.t.Errorf("%d components are left", len(w.r.conns))
	}
}

// peer is the other end of a connection.
type peer struct {
	w    *world
	nc   net.Conn
	ws   *websocket.Conn
	gate chan struct{} // of the test: not nil while it does not read

	mu   sync.Mutex
	held chan struct{} // the gate
	got  []string
	err  error
	over bool
}

// dial connects, and says nothing.
func (w *world) dial() *peer {
	ours, theirs := net.Pipe()
	p := &peer{w: w, nc: ours, ws: websocket.New(ours, nil, true, websocket.Options{MaxMessage: 8 << 20})}
	w.r.Serve(theirs, nil, &Account{Link: true})
	w.peers = append(w.peers, p)
	go p.read()
	return p
}

func (p *peer) read() {
	for {
		m, _, err := p.ws.Next()
		p.mu.Lock()
		if held := p.held; held != nil {
			p.mu.Unlock()
			<-held
			p.mu.Lock()
		}
		if err != nil {
			p.err, p.over = err, true
			p.mu.Unlock()
			p.ws.End(0, "")
			return
		}
		p.got = append(p.got, string(m.Data))
		p.mu.Unlock()
	}
}

// pause has it read nothing more: what is on its way stays there.
func (p *peer) pause() {
	if p.gate == nil {
		p.gate = make(chan struct{})
		p.mu.Lock()
		p.held = p.gate
		p.mu.Unlock()
	}
}

func (p *peer) resume() {
	if p.gate != nil {
		p.mu.Lock()
		p.held = nil
		p.mu.Unlock()
		close(p.gate)
		p.gate = nil
	}
}

// cut ends the connection without a word.
func (p *peer) cut() {
	p.resume()
	p.nc.Close()
	synctest.Wait()
}

// ended gives how the connection ended; nil where it has not.
func (p *peer) ended() error {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// say sends frames.
func (p *peer) say(frames ...string) {
	p.ws.Lock()
	for _, f := range frames {
		p.ws.Append(true, []byte(f))
	}
	p.ws.Flush()
	p.ws.Unlock()
	synctest.Wait()
}

// take gives all frames that have come, without health checks.
func (p *peer) take() (all []string) {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.got {
		if !strings.Contains(f, `"op":"health_check"`) {
			all = append(all, f)
		}
	}
	p.got = nil
	return all
}

// wants compares what has come with what should have: of events "id", "id replay", of others op, ref and what tells them apart.
func (p *peer) wants(want ...string) {
	p.w.t.Helper()
	var got []string
	for _, f := range p.take() {
		got = append(got, brief(f))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		p.w.t.Errorf("got  %q\nwant %q", got, want)
	}
}

// said is any frame of the router.
type said struct {
	Op, Code, Message, Time, Router, ID, Type, Direction, Check, Via string
	Ref                                                              any
	Replaying                                                        *int
	Replay                                                           bool
	Data, Response, Context                                          json.RawMessage
	Window, Soft, Hard                                               float64
	HealthEvery                                                      float64 `json:"health_every"`
}

func read(f string) (w said) {
	if err := json.Unmarshal([]byte(f), &w); err != nil {
		panic(fmt.Sprintf("%s: %v", f, err))
	}
	return w
}

func brief(f string) string {
	w := read(f)
	s := w.Op
	if w.Op == "event" {
		s = w.ID
	}
	if w.Ref != nil {
		s += fmt.Sprint(" ", w.Ref)
	}
	if w.Code != "" {
		s += " " + w.Code
	}
	if w.Replaying != nil && *w.Replaying > 0 {
		s += fmt.Sprint(" +", *w.Replaying)
	}
	if w.Replay {
		s += " replay"
	}
	return s
}

// join is a component that has said hello, and subscribed: "req/T" or "res/T", with from_time "now".
func (w *world) join(name string, subscriptions ...string) *peer {
	w.t.Helper()
	p := w.dial()
	p.say(fmt.Sprintf(`{"op":"hello","name":%q,"protocol":1}`, name))
	p.wants("welcome")
	for _, s := range subscriptions {
		p.say(subscribe(s, `"now"`))
		p.wants("subscribed " + s)
	}
	return p
}

// subscribe makes a frame of "req/T", whose ref is the same; from is JSON, or empty.
func subscribe(s, from string) string {
	if from != "" {
		from = `,"from_time":` + from
	}
	return fmt.Sprintf(`{"op":"subscribe","ref":%q,%s%s}`, s, ofType(s), from)
}

func unsubscribe(s string) string {
	return fmt.Sprintf(`{"op":"unsubscribe","ref":%q,%s}`, s, ofType(s))
}

func ofType(s string) string {
	d, typ, _ := strings.Cut(s, "/")
	return fmt.Sprintf(`"type":%q,"direction":%q`, typ, map[string]string{"req": "request", "res": "response"}[d])
}

// request is an event, answered one with a response.
func request(id, typ string) string {
	return fmt.Sprintf(`{"op":"event","id":%q,"type":%q,"data":{"n":1}}`, id, typ)
}

func answered(id, typ string) string {
	return fmt.Sprintf(`{"op":"event","id":%q,"type":%q,"data":{"n":1},"response":{"status":"OK","data":{"m":2}}}`, id, typ)
}

func TestE01EverybodyWhoSubscribedGetsAnEventOnce(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, b, c := w.join("A", "req/T"), w.join("B", "req/T"), w.join("C")
		c.say(request("1", "T"))
		a.wants("1")
		b.wants("1")
		c.wants()
	})
}

func TestE02DirectionIsWhetherThereIsAResponse(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, b, c := w.join("A", "req/T"), w.join("B", "res/T"), w.join("C")
		c.say(request("1", "T"), answered("2", "T"), `{"op":"event","id":"3","type":"T","data":{},"response":{"status":"NONE"}}`)
		got := read(a.take()[0])
		if got.Direction != "request" || got.Response != nil || string(got.Data) != `{"n":1}` {
			t.Errorf("got %+v", got)
		}
		got = read(b.take()[0])
		if got.ID != "2" || got.Direction != "response" || string(got.Response) != `{"status":"OK","data":{"m":2}}` {
			t.Errorf("got %+v", got)
		}
		c.say(request("4", "T"), answered("5", "T"))
		a.wants("4")
		b.wants("5")
	})
}

func TestE03BothDirections(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, c := w.join("A", "req/T", "res/T"), w.join("C")
		c.say(request("1", "T"), answered("2", "T"))
		a.wants("1", "2")
	})
}

func TestE04TwoNamesOfOneCodeBothGetAllEvents(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, b, c := w.join("Mail#1", "req/T"), w.join("Mail#2", "req/T"), w.join("C")
		c.say(request("1", "T"), request("2", "T"))
		a.wants("1", "2")
		b.wants("1", "2")
	})
}

func TestE05SubscribingTwiceIsOneSubscription(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, c := w.join("A", "req/T", "req/T"), w.join("C")
		c.say(request("1", "T"))
		a.wants("1")
		a.say(unsubscribe("req/T"))
		a.wants("unsubscribed req/T")
		c.say(request("2", "T"))
		a.wants()
	})
}

func TestE06ASenderGetsItsOwnEvents(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a := w.join("A", "req/T")
		a.say(request("1", "T"))
		a.wants("1")
	})
}

func TestE07UnsubscribingOneDirectionLeavesTheOther(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, c := w.join("A", "req/T", "res/T"), w.join("C")
		a.say(unsubscribe("req/T"))
		a.wants("unsubscribed req/T")
		c.say(request("1", "T"), answered("2", "T"))
		a.wants("2")
		a.say(unsubscribe("req/T"))
		a.wants("unsubscribed req/T")
	})
}

func TestE08UnsubscribeAllIsAnsweredAndCloses(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, c := w.join("A", "req/T", "res/T"), w.join("C")
		a.pause()
		c.say(request("1", "T"))
		a.say(`{"op":"unsubscribe_all","ref":9}`, request("never", "T"))
		c.say(request("2", "T"))
		a.resume()
		a.wants("1", "unsubscribed 9")
		if ce, ok := a.ended().(*websocket.CloseError); !ok || ce.Code != 1000 {
			t.Errorf("it ended by %v", a.ended())
		}
		if u := w.r.Unrouted(); len(u) != 1 || u[0].State != "HANDLER GONE" || u[0].Drops != 1 {
			t.Errorf("unrouted: %+v", u)
		}
	})
}

func TestE09EverybodySeesTheSameOrder(t *testing.T) {
	inWorld(t, Options{Hard: 1 << 20}, func(w *world) {
		all := []*peer{w.join("A", "req/T", "res/T"), w.join("B", "res/T", "req/T"), w.join("C", "req/T", "res/T")}
		const each = 3334
		var senders sync.WaitGroup
		for s := range 3 {
			p := w.join(fmt.Sprint("S", s))
			senders.Go(func() {
				for i := range each {
					f := request(fmt.Sprint(s, "-", i), "T")
					if i%3 == 0 {
						f = answered(fmt.Sprint(s, "-", i), "T")
					}
					p.ws.Lock()
					p.ws.Append(true, []byte(f))
					p.ws.Flush()
					p.ws.Unlock()
				}
			})
		}
		senders.Wait()
		want := all[0].take()
		if len(want) != 3*each {
			t.Fatalf("%d events of %d", len(want), 3*each)
		}
		for _, p := range all[1:] {
			if got := p.take(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Error("the order is another, or not all came")
			}
		}
		last := ""
		for _, f := range want {
			at := read(f).Time
			if at <= last {
				t.Fatalf("%s is not later than %s", at, last)
			}
			last = at
		}
	})
}

func TestE10OneThatStopsReadingDelaysNobody(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, b, c := w.join("A", "req/T"), w.join("B", "req/T"), w.join("C")
		a.pause()
		for i := range 700 {
			c.say(request(fmt.Sprint(i), "T"))
		}
		if got := b.take(); len(got) != 700 {
			t.Errorf("%d of 700 came", len(got))
		}
		a.resume()
		if got := a.take(); len(got) != 700 {
			t.Errorf("%d of 700 came late", len(got))
		}
	})
}

func TestE11AckThenReplayThenLive(t *testing.T) {
	inWorld(t, Options{Hard: 1 << 20}, func(w *world) {
		c := w.join("C")
		n := 5000
		if underRace {
			n = 1000
		}
		var joined sync.WaitGroup
		var late []*peer
		for i := range 20 {
			late = append(late, w.join(fmt.Sprint("L", i)))
		}
		joined.Go(func() {
			for i := range n {
				c.ws.Lock()
				c.ws.Append(true, []byte(request(fmt.Sprint(i), "T")))
				c.ws.Flush()
				c.ws.Unlock()
			}
		})
		for _, p := range late {
			joined.Go(func() {
				p.ws.Lock()
				p.ws.Append(true, []byte(subscribe("req/T", "")))
				p.ws.Flush()
				p.ws.Unlock()
			})
		}
		joined.Wait()
		for i, p := range late {
			got := p.take()
			first := read(got[0])
			if first.Op != "subscribed" {
				t.Fatalf("%d: first came %s", i, got[0])
			}
			for j, f := range got[1:] {
				if e := read(f); e.ID != fmt.Sprint(j) || e.Replay != (j < *first.Replaying) {
					t.Fatalf("%d: as number %d of %d replayed came %s", i, j, *first.Replaying, f)
				}
			}
			if len(got) != n+1 {
				t.Errorf("%d: %d of %d came", i, len(got)-1, n)
			}
		}
	})
}

func TestE12AcksAndEventsInterleaveInOrder(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a := w.join("A")
		a.say(request("1", "T"), subscribe("req/T", ""), request("2", "T"), answered("3", "T"), subscribe("res/T", ""), request("4", "T"), answered("5", "T"))
		a.wants("subscribed req/T +1", "1 replay", "2", "subscribed res/T +1", "3 replay", "4", "5")
	})
}

func TestE13AnEventThatNobodyHasIsNotWired(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		c := w.join("C")
		c.say(request("1", "Lost"))
		first := w.r.Unrouted()
		if len(first) != 1 || first[0].Type != "Lost" || first[0].Direction != "request" || first[0].State != "NOT WIRED" || first[0].Drops != 1 {
			t.Fatalf("unrouted: %+v", first)
		}
		c.say(request("2", "Lost"))
		second := w.r.Unrouted()
		if len(second) != 1 || second[0].Drops != 2 || second[0].LastDrop <= first[0].LastDrop {
			t.Errorf("unrouted: %+v, then %+v", first, second)
		}
	})
}

func TestE14AHandlerThatIsGone(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, c := w.join("A", "req/T"), w.join("C")
		a.cut()
		c.say(request("1", "T"))
		if u := w.r.Unrouted(); len(u) != 1 || u[0].State != "HANDLER GONE" {
			t.Errorf("unrouted: %+v", u)
		}
		w.join("B", "res/T")
		if u := w.r.Unrouted(); len(u) != 1 {
			t.Errorf("the other direction cleared it: %+v", u)
		}
		w.join("A2", "req/T")
		if u := w.r.Unrouted(); len(u) != 0 {
			t.Errorf("unrouted: %+v", u)
		}
	})
}

func TestE15WhatIsNoEventHurtsNobody(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, c := w.join("A", "req/T"), w.join("C")
		c.say(`{"op":"event","id":"1","type":"T","data":{"a":nan}}`, `{"op":"event","id":"1","type":"T","data":`, `nonsense`, `[1]`, `{"op":"event"}`,
			`{"op":"event","ref":5,"id":"1","type":7}`, `{"op":"event","id":"1","type":"T","response":{"status":"MAYBE"}}`, request("2", "T"))
		c.wants("error bad_request", "error bad_request", "error bad_request", "error bad_request", "error bad_request", "error 5 bad_request", "error bad_request")
		a.wants("2")
	})
}

func TestE16HealthIsNeverUnrouted(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.join("C")
		time.Sleep(time.Minute)
		if u := w.r.Unrouted(); len(u) != 0 {
			t.Errorf("unrouted: %+v", u)
		}
	})
}

func TestE20ReplayOfTheWholeWindow(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		c := w.join("C")
		c.say(request("1", "T"), answered("x", "T"), request("2", "T"), request("y", "U"), request("3", "T"))
		a := w.join("A")
		a.say(subscribe("req/T", ""))
		a.wants("subscribed req/T +3", "1 replay", "2 replay", "3 replay")
		a.say(subscribe("res/T", "null"))
		a.wants("subscribed res/T +1", "x replay")
	})
}

func TestE21ReplayFromATimeIsInclusive(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		b, c := w.join("B", "req/T"), w.join("C")
		c.say(request("1", "T"), request("2", "T"), request("3", "T"))
		second := read(b.take()[1]).Time
		a := w.join("A")
		a.say(subscribe("req/T", fmt.Sprintf("%q", second)))
		a.wants("subscribed req/T +2", "2 replay", "3 replay")
	})
}

func TestE22TheRestartPoint(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, c := w.join("A", "req/T"), w.join("C")
		c.say(request("1", "T"), request("2", "T"))
		handed := a.take()
		a.cut()
		c.say(request("3", "T"), request("4", "T"))
		a = w.join("A")
		a.say(subscribe("req/T", `"restart"`))
		a.wants("subscribed req/T +2", "3 replay", "4 replay")
		a.cut()
		a = w.join("A")
		a.say(subscribe("req/T", fmt.Sprintf("%q", read(handed[1]).Time)))
		a.wants("subscribed req/T +3", "2 replay", "3 replay", "4 replay")
	})
}

// A component that comes, and goes before it has subscribed, goes on where it was.
func TestE22TheRestartPointOutlivesAFalseStart(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, c := w.join("A", "req/T"), w.join("C")
		a.cut()
		c.say(request("1", "T"))
		w.join("A").cut()
		c.say(request("2", "T"))
		a = w.join("A")
		a.say(subscribe("req/T", `"restart"`))
		a.wants("subscribed req/T +2", "1 replay", "2 replay")
	})
}

// What was queued and not handed over is before the restart point, and comes again.
func TestE22TheRestartPointHasWhatWasNotHandedOver(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, c := w.join("A", "req/T"), w.join("C")
		a.pause()
		for i := range 500 {
			c.say(request(fmt.Sprint(i), "T"))
		}
		a.cut()
		had := a.take()
		a = w.join("A")
		a.say(subscribe("req/T", `"restart"`))
		got := a.take()[1:]
		if first := read(got[0]).ID; len(had)+len(got) < 500 || first != "0" && first != fmt.Sprint(len(had)) {
			t.Errorf("%d came before and %d after, from %s on", len(had), len(got), first)
		}
	})
}

func TestE23NothingIsReplayedPastTheWindow(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		c := w.join("C")
		c.say(request("1", "T"))
		time.Sleep(20 * time.Second)
		c.say(request("2", "T"))
		time.Sleep(11 * time.Second)
		a := w.join("A")
		a.say(subscribe("req/T", ""))
		a.wants("subscribed req/T +1", "2 replay")
		time.Sleep(20 * time.Second)
		a.say(subscribe("req/T", ""))
		a.wants("subscribed req/T")
		if n := w.r.ring.count; n != 0 {
			t.Errorf("%d events are kept", n)
		}
	})
}

func TestE24ANewRouterKnowsNothing(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		c := w.join("C")
		c.say(request("1", "T"))
		w.r.Close()
		if ce, ok := c.ended().(*websocket.CloseError); !ok || ce.Code != 1001 {
			t.Errorf("it ended by %v", c.ended())
		}
		w.start(Options{})
		a := w.join("A")
		a.say(subscribe("req/T", ""))
		a.wants("subscribed req/T")
		if len(w.r.Unrouted()) != 0 || len(w.r.Components()) != 1 {
			t.Errorf("%+v, %+v", w.r.Unrouted(), w.r.Components())
		}
	})
}

// component gives what the router knows of one.
func (w *world) component(name string) Component {
	w.t.Helper()
	for _, c := range w.r.Components() {
		if c.Name == name {
			return c
		}
	}
	w.t.Fatalf("%s is not known", name)
	return Component{}
}

// well answers health checks with OK.
func (p *peer) well() {
	p.say(`{"op":"health","check":"1","status":"OK","exceptions":[]}`)
}

func TestE25ASlowComponentIsShownAndGetsEverything(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, c := w.join("A", "req/T"), w.join("C")
		a.well()
		if x := w.component("A"); x.Health != "OK" || x.Outbound.Slow {
			t.Errorf("before: %+v", x)
		}
		a.pause()
		for i := range 1500 {
			c.say(request(fmt.Sprint(i), "T"))
		}
		if x := w.component("A"); x.Health != "WARNING" || !x.Outbound.Slow || x.Outbound.Depth < 800 || !w.log.Has("a component is slow") {
			t.Errorf("with a backlog: %+v", x)
		}
		a.resume()
		if got := a.take(); len(got) != 1500 {
			t.Errorf("%d of 1500 came", len(got))
		}
		if x := w.component("A"); x.Health != "OK" || x.Outbound.Slow || x.Outbound.Depth != 0 || x.Outbound.Sent != 1500 {
			t.Errorf("after: %+v", x)
		}
	})
}

func TestE26PastTheHardLimitItIsDisconnectedAndMissesNothing(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, c := w.join("A", "req/T"), w.join("C")
		a.pause()
		for i := range 6000 {
			c.say(request(fmt.Sprint(i), "T"))
		}
		time.Sleep(3 * time.Second) // it has two to read what is on its way
		if x := w.component("A"); x.Connected || x.Health != "WARNING" || len(x.Requests) != 0 {
			t.Errorf("%+v", x)
		}
		a.resume()
		seen := map[string]bool{}
		for _, f := range a.take() {
			seen[read(f).ID] = true
		}
		a = w.join("A")
		a.say(subscribe("req/T", `"restart"`))
		for _, f := range a.take()[1:] {
			seen[read(f).ID] = true
		}
		if len(seen) != 6000 {
			t.Errorf("%d of 6000 were seen", len(seen))
		}
	})
}

func TestE27AStalledSendIsShown(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, b, c := w.join("A", "req/T"), w.join("B", "req/T"), w.join("C")
		a.pause()
		c.say(request("1", "T"), request("2", "T"))
		c.say(request("3", "T"))
		time.Sleep(4 * time.Second)
		if x := w.component("A"); x.Outbound.StalledSeconds != nil {
			t.Errorf("too early: %v", *x.Outbound.StalledSeconds)
		}
		time.Sleep(2 * time.Second)
		if x := w.component("A"); x.Outbound.StalledSeconds == nil || *x.Outbound.StalledSeconds < 5 {
			t.Errorf("not stalled: %+v", x.Outbound)
		}
		if x := w.component("B"); x.Outbound.StalledSeconds != nil {
			t.Errorf("B too")
		}
		b.wants("1", "2", "3")
		a.resume()
		a.wants("1", "2", "3")
		if x := w.component("A"); x.Outbound.StalledSeconds != nil {
			t.Errorf("still")
		}
	})
}

// dying is a connection of a machine that may be no more: nothing comes from it, and what is sent to it fails.
type dying struct {
	net.Conn
	dead atomic.Bool
}

func (d *dying) Write(b []byte) (int, error) {
	if d.dead.Load() {
		return 0, io.ErrClosedPipe
	}
	return d.Conn.Write(b)
}

func TestE28ADeadComponentIsFoundInAnIdleSystem(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		ours, theirs := net.Pipe()
		p := &peer{w: w, nc: ours, ws: websocket.New(ours, nil, true, websocket.Options{})}
		w.peers = append(w.peers, p)
		dies := &dying{Conn: theirs}
		w.r.Serve(dies, nil, &Account{})
		go p.read()
		p.say(`{"op":"hello","name":"A"}`, subscribe("req/T", ""))
		p.wants("welcome", "subscribed req/T")
		dies.dead.Store(true)
		time.Sleep(9 * time.Second)
		if x := w.component("A"); !x.Connected {
			t.Error("nobody could know yet")
		}
		time.Sleep(2 * time.Second) // a health check is sent
		if x := w.component("A"); x.Connected || len(x.Requests) != 0 || x.Health != "WARNING" {
			t.Errorf("%+v", x)
		}
	})
}

func TestE29SilenceIsShownAndNeverDisconnects(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a := w.join("A", "req/T")
		a.well()
		health := func() string { return w.component("A").Health }
		for _, step := range []struct {
			after time.Duration
			want  string
		}{{19 * time.Second, "OK"}, {2 * time.Second, "WARNING"}, {18 * time.Second, "WARNING"}, {2 * time.Second, "ERROR"}, {10 * time.Minute, "ERROR"}} {
			time.Sleep(step.after)
			if got := health(); got != step.want {
				t.Errorf("after %v more: got %s, want %s", step.after, got, step.want)
			}
		}
		a.say(`{"op":"health","check":"2","status":"OK","exceptions":[{"type":"T","data":{},"error":"boom","trace":"at 1"}],"vitals":{"rss":1}}`)
		x := w.component("A")
		if x.Health != "OK" || x.Raised != 1 || len(x.Exceptions) != 1 || string(x.Vitals) != `{"rss":1}` || !x.Connected {
			t.Errorf("%+v", x)
		}
		a.say(`{"op":"health","check":"3","status":"WARNING","exceptions":[]}`)
		if got := health(); got != "WARNING" {
			t.Errorf("it says WARNING, and is shown as %s", got)
		}
	})
}

func TestE39ANameIsOneConnection(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a, c := w.join("A", "req/T"), w.join("C")
		b := w.dial()
		b.say(`{"op":"hello","name":"A"}`)
		b.wants("error name_in_use")
		c.say(request("1", "T"))
		a.wants("1")
		a.pause() // it answers no ping: as good as dead
		c.say(request("2", "T"), request("3", "T"))
		b.say(`{"op":"hello","ref":7,"name":"A"}`)
		time.Sleep(5 * time.Second)
		b.wants("welcome 7")
		b.say(subscribe("req/T", ""))
		b.wants("subscribed req/T +3", "1 replay", "2 replay", "3 replay")
		if x := w.component("A"); !x.Connected || len(x.Requests) != 1 {
			t.Errorf("%+v", x)
		}
	})
}

func TestE40TimesInTheFutureAndNoTimes(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		a := w.join("A")
		a.say(request("1", "T"), subscribe("req/T", `"2199-01-01T00:00:00Z"`), subscribe("res/T", `"yesterday"`), subscribe("res/T", `5`),
			subscribe("res/T", `"2000-01-01T00:00:00,5Z"`), subscribe("res/T", `"2000-01-01T1:00:00Z"`), subscribe("res/T", `"2000-01-01T00:00:00"`))
		a.wants("subscribed req/T", "error res/T bad_request", "error res/T bad_request", "error res/T bad_request", "error res/T bad_request", "error res/T bad_request")
		a.say(request("2", "T"))
		a.wants("2")
	})
}
