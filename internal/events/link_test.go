package events

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// net of routers, linked in memory.
type routers struct {
	t *testing.T
	w []*world

	mu  sync.Mutex // guards what follows
	way map[string]*wireOf
}

// wireOf is what a link goes over: it can be cut, and mended.
type wireOf struct {
	to *Router

	mu   sync.Mutex // guards what follows
	down bool
	conn net.Conn
}

// dial is how routers dial each other here.
func (x *routers) dial(_ context.Context, url string, o websocket.DialOptions) (*websocket.Conn, error) {
	x.mu.Lock()
	wire := x.way[url]
	x.mu.Unlock()
	wire.mu.Lock()
	defer wire.mu.Unlock()
	if wire.down {
		return nil, errDown
	}
	ours, theirs := net.Pipe()
	wire.conn = ours
	wire.to.ServeLink(theirs, nil, &Account{Link: true})
	return websocket.New(ours, nil, true, o.Conn), nil
}

var errDown = errors.New("the wire is down")

// inRouters runs f with n routers, R1 and so on.
func inRouters(t *testing.T, n int, f func(x *routers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := &routers{t: t, way: map[string]*wireOf{}}
		for i := range n {
			w := &world{t: t}
			w.start(Options{ID: fmt.Sprint("R", i+1)})
			w.r.dialer = x.dial
			x.w = append(x.w, w)
		}
		f(x)
		for _, w := range x.w {
			w.r.Close()
			for _, p := range w.peers {
				p.cut()
			}
			w.check()
		}
	})
}

// link has router a dial router b.
func (x *routers) link(a, b int) *wireOf {
	wire := &wireOf{}
	wire.to = x.w[b-1].r
	url := fmt.Sprintf("ws://%d-%d", a, b)
	x.mu.Lock()
	x.way[url] = wire
	x.mu.Unlock()
	x.w[a-1].r.Dial(Link{URL: url})
	time.Sleep(time.Second)
	return wire
}

func (w *wireOf) cut() {
	w.mu.Lock()
	w.down = true
	w.conn.Close()
	w.mu.Unlock()
	synctest.Wait()
}

func (w *wireOf) mend() {
	w.mu.Lock()
	w.down = false
	w.mu.Unlock()
	time.Sleep(6 * time.Second)
}

// shares is a component that has declared types to be shareable.
func (w *world) shares(name string, types string, subscriptions ...string) *peer {
	w.t.Helper()
	p := w.join(name)
	p.say(fmt.Sprintf(`{"op":"types","ref":1,"shareable":[%s]}`, types))
	p.wants("ok 1")
	for _, s := range subscriptions {
		p.say(subscribe(s, `"now"`))
		p.wants("subscribed " + s)
	}
	return p
}

func TestE30AShareableEventCrossesOnce(t *testing.T) {
	inRouters(t, 2, func(x *routers) {
		x.link(1, 2)
		a, b := x.w[0].shares("A", `"T"`, "req/T"), x.w[1].shares("B", `"T"`, "req/T")
		a.say(request("1", "T"))
		a.wants("1")
		got := b.take()
		if len(got) != 1 || read(got[0]).Via != "R1" || read(got[0]).ID != "1" {
			t.Fatalf("got %q", got)
		}
		b.say(request("2", "T"))
		a.wants("2")
		b.wants("2")
		if s, ok := x.w[0].r.table.Snapshot().OfOrigin("event:@R2"), true; len(s) != 1 || !ok || s[0].Address != "event-conn:@R2" {
			t.Errorf("rows of the link: %v", s)
		}
		c := x.w[1].join("C")
		c.say(subscribe("req/T", ""))
		c.wants("subscribed req/T +2", "1 replay", "2 replay")
	})
}

func TestE31WhatIsNotShareableStays(t *testing.T) {
	inRouters(t, 2, func(x *routers) {
		x.link(1, 2)
		a, b := x.w[0].join("A", "req/T"), x.w[1].shares("B", `"T"`, "req/T", "req/U")
		a.say(request("1", "T"), request("2", "U"))
		a.wants("1")
		b.wants()
		if u := x.w[0].r.Unrouted(); len(u) != 1 || u[0].Type != "U" {
			t.Errorf("unrouted: %+v", u)
		}
	})
}

func TestE32AnAnswerFindsItsWayBack(t *testing.T) {
	inRouters(t, 2, func(x *routers) {
		x.link(1, 2)
		a, b := x.w[0].shares("A", `"T"`, "res/T"), x.w[1].shares("B", `"T"`, "req/T")
		a.say(request("1", "T"))
		b.wants("1")
		b.say(answered("1", "T"))
		a.wants("1")
		b.wants()
	})
}

func TestE33DemandsAreSentAgainAndCanBeWithdrawn(t *testing.T) {
	inRouters(t, 2, func(x *routers) {
		x.link(1, 2)
		a, b := x.w[0].shares("A", `"T"`), x.w[1].shares("B", `"T"`)
		a.say(request("1", "T"))
		b.say(subscribe("req/T", `"now"`))
		a.say(request("2", "T"))
		b.wants("subscribed req/T", "2")
		b.say(unsubscribe("req/T"))
		b.wants("unsubscribed req/T")
		if rows := x.w[0].r.table.Snapshot().OfOrigin("event:@R2"); len(rows) != 0 {
			t.Errorf("the demand is left: %v", rows)
		}
		a.say(request("3", "T"))
		b.say(subscribe("req/T", ""))
		b.wants("subscribed req/T +1", "2 replay")
	})
}

func ids(frames []string) (all []string) {
	for _, f := range frames {
		all = append(all, read(f).ID)
	}
	return all
}

func TestE34WhatWasSentWhileTheLinkWasDownComes(t *testing.T) {
	inRouters(t, 2, func(x *routers) {
		wire := x.link(1, 2)
		a, b := x.w[0].shares("A", `"T"`), x.w[1].shares("B", `"T"`, "req/T")
		a.say(request("before", "T"))
		b.wants("before")
		wire.cut()
		var want []string
		for i := range 10 {
			a.say(request(fmt.Sprint(i), "T"))
			want = append(want, fmt.Sprint(i))
		}
		time.Sleep(5 * time.Second)
		wire.mend()
		if got := ids(b.take()); !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
		a.say(request("after", "T"))
		b.wants("after")
	})
}

func TestE35WhatTheWindowHasLeftIsMissing(t *testing.T) {
	inRouters(t, 2, func(x *routers) {
		wire := x.link(1, 2)
		a, b := x.w[0].shares("A", `"T"`), x.w[1].shares("B", `"T"`, "req/T")
		wire.cut()
		a.say(request("old", "T"))
		time.Sleep(35 * time.Second)
		a.say(request("new", "T"))
		wire.mend()
		if got := ids(b.take()); !slices.Equal(got, []string{"new"}) {
			t.Errorf("got %v", got)
		}
	})
}

// Everything that is cached comes where the other router has forgotten what it had seen.
func TestE34EverythingComesWhereNothingIsKnown(t *testing.T) {
	inRouters(t, 2, func(x *routers) {
		a := x.w[0].shares("A", `"T"`)
		a.say(request("1", "T"), request("2", "T"))
		b := x.w[1].shares("B", `"T"`, "req/T")
		x.link(2, 1)
		if got := ids(b.take()); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("got %v", got)
		}
	})
}

// A hub that was away knows who is behind it only after it is linked: they get what came meanwhile all the same, once.
func TestE34WhatWasSentWhileAHubWasAwayComes(t *testing.T) {
	inRouters(t, 4, func(x *routers) {
		a, b := x.w[0].shares("A", `"T"`), x.w[1].shares("B", `"T"`, "req/T")
		x.link(1, 3)
		x.link(2, 3)
		a.say(request("before", "T"))
		b.wants("before")
		x.way["ws://1-3"].cut()
		x.way["ws://2-3"].cut()
		a.say(request("1", "T"), request("2", "T"))
		x.link(1, 4) // another life of the hub
		x.link(2, 4)
		a.say(request("3", "T"))
		b.wants("1", "2", "3")
		x.link(1, 2)
		b.wants()
	})
}

func TestE36ARouterThatIsGoneDemandsNothing(t *testing.T) {
	inRouters(t, 2, func(x *routers) {
		wire := x.link(1, 2)
		a := x.w[0].shares("A", `"T"`)
		x.w[1].shares("B", `"T"`, "req/T")
		a.say(request("1", "T"))
		if u := x.w[0].r.Unrouted(); len(u) != 0 {
			t.Errorf("unrouted: %+v", u)
		}
		wire.cut()
		a.say(request("2", "T"))
		if u := x.w[0].r.Unrouted(); len(u) != 1 || u[0].State != "HANDLER GONE" || u[0].Drops != 1 {
			t.Errorf("unrouted: %+v", u)
		}
	})
}

// Over a line, a ring, and a hub that has no components, each event comes once to each, and demands that go leave nothing behind.
func TestRoutersInAnyGraph(t *testing.T) {
	for _, g := range []struct {
		name  string
		n     int
		links [][2]int
	}{
		{"a line", 4, [][2]int{{1, 2}, {2, 3}, {3, 4}}},
		{"a ring", 4, [][2]int{{1, 2}, {2, 3}, {3, 4}, {4, 1}}},
		{"all to all", 4, [][2]int{{1, 2}, {1, 3}, {1, 4}, {2, 3}, {2, 4}, {3, 4}}},
		{"a star", 4, [][2]int{{2, 1}, {3, 1}, {4, 1}}},
		{"a ring with a tail", 4, [][2]int{{1, 2}, {2, 3}, {3, 4}, {4, 2}}},
	} {
		t.Run(g.name, func(t *testing.T) {
			inRouters(t, g.n, func(x *routers) {
				var wires []*wireOf
				for _, l := range g.links {
					wires = append(wires, x.link(l[0], l[1]))
				}
				first, last := x.w[0], x.w[g.n-1]
				a, b := first.shares("A", `"T"`, "res/T"), last.shares("B", `"T"`, "req/T")
				time.Sleep(time.Second)
				for i := range 20 {
					a.say(request(fmt.Sprint(i), "T"))
				}
				got := b.take()
				if len(got) != 20 {
					t.Fatalf("%d of 20 came", len(got))
				}
				for i, f := range got {
					if e := read(f); e.ID != fmt.Sprint(i) || e.Via != "R1" {
						t.Errorf("as number %d came %s", i, f)
					}
				}
				b.say(answered("1", "T"))
				a.wants("1")
				b.say(unsubscribe("req/T"))
				wires[0].cut() // demands that came by others are not kept alive in a circle
				time.Sleep(time.Second)
				a.say(unsubscribe("res/T"))
				time.Sleep(time.Second)
				for i, w := range x.w {
					for _, o := range []string{"R1", "R2", "R3", "R4"} {
						if rows := w.r.table.Snapshot().OfOrigin("event:@" + o); len(rows) != 0 {
							t.Errorf("R%d still has rows for %s: %s", i+1, o, rows[0].Pattern)
						}
					}
				}
			})
		})
	}
}

// router is the other end of a link, to say what routers of ours do not.
func (w *world) router() *peer {
	p := &peer{w: w}
	ours, theirs := net.Pipe()
	p.nc, p.ws = ours, websocket.New(ours, nil, true, websocket.Options{})
	w.r.ServeLink(theirs, nil, &Account{Link: true})
	w.peers = append(w.peers, p)
	go p.read()
	return p
}

// E-31 at the other end: a router takes no event of a type that may not cross, whoever sends it.
func TestE31ALinkBringsOnlyWhatMayCross(t *testing.T) {
	inRouters(t, 1, func(x *routers) {
		w := x.w[0]
		a := w.join("A", "req/Own", "req/Shared")
		p := w.router()
		p.say(`{"op":"link","router":"X"}`, `{"op":"demands","requests":{"Own":["X"],"Other":["X"]},"responses":{}}`, `{"op":"markers","markers":{}}`)
		p.wants("link", "demands", "markers")
		from := func(p *peer, seq int, typ string) {
			p.say(fmt.Sprintf(`{"op":"event","id":"%s","type":"%s","origin":"X","seq":%d}`, typ, typ, seq))
		}
		from(p, 1, "Own")
		from(p, 2, "Other")
		p.wants("error not_shareable", "error not_shareable")
		a.say(`{"op":"types","ref":1,"shareable":["Shared"]}`)
		a.wants("ok 1")
		p.wants("demands")
		from(p, 3, "Shared")
		a.wants("Shared")
		other := w.router()
		other.say(`{"op":"link","router":"Y"}`, `{"op":"demands","requests":{"Other":["Y"]},"responses":{}}`, `{"op":"markers","markers":{}}`)
		other.wants("link", "demands", "markers")
		p.wants("demands")
		from(p, 4, "Other")
		other.wants("Other")
		if n := w.r.ring.count; n != 2 {
			t.Errorf("%d events are kept", n)
		}
	})
}

func TestALinkToItselfAndOddFrames(t *testing.T) {
	inRouters(t, 1, func(x *routers) {
		p := x.w[0].router()
		p.say(`{"op":"demands","requests":{}}`, `{"op":"link"}`, `{"op":"link","router":"X","protocol":2}`, `{"op":"link","router":"X","protocol":1}`)
		p.wants("link", "error bad_request", "error bad_request", "error bad_request", "demands", "markers")
		p.say(`{"op":"demands","requests":[]}`, `{"op":"markers","markers":{"R1":[[5,1],[1,"x"]]}}`, `{"op":"event","id":"1","type":"T"}`, `{"op":"event","id":"1","type":"T","origin":"X","seq":0}`,
			`{"op":"dance"}`, `{"op":"event","id":"1","type":"T","origin":"R1","seq":7}`, `{"op":"error","code":"x","message":"y"}`)
		p.wants("error bad_request", "error bad_request", "error bad_request", "error bad_request", "error unknown_op")
		if x.w[0].r.ring.count != 0 {
			t.Error("an event of its own came back")
		}
	})
}
