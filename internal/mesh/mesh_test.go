package mesh

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// meshOf starts routers r0… linked as edges say: the first of a pair connects to the second.
func meshOf(t *testing.T, n int, edges ...[2]int) []*router {
	t.Helper()
	var routers []*router
	for i := range n {
		routers = append(routers, startRouter(t, Options{Name: fmt.Sprintf("r%d", i)}))
	}
	for _, e := range edges {
		routers[e[0]].join(routers[e[1]], fmt.Sprintf("r%d", e[0]))
	}
	whole(routers, edges)
	return routers
}

// join connects to another router.
func (r *router) join(o *router, as string) {
	r.t.Helper()
	if err := r.m.Connect(PeerOptions{URL: "ws://" + o.ws, As: as, Period: 20 * time.Millisecond}); err != nil {
		r.t.Fatal(err)
	}
}

// whole waits until every router has its links, and a way to every other.
func whole(routers []*router, edges [][2]int) {
	for i, r := range routers {
		links := 0
		for _, e := range edges {
			if e[0] == i || e[1] == i {
				links++
			}
		}
		r.until(fmt.Sprintf("router %d has its links and a way to all", i), func() bool {
			r.m.kin.mu.Lock()
			n := len(r.m.kin.near)
			r.m.kin.mu.Unlock()
			return n == links && r.ways() == len(routers)-1
		})
	}
}

func (r *router) ways() int {
	r.m.kin.mu.Lock()
	defer r.m.kin.mu.Unlock()
	return len(r.m.kin.atlas.ways())
}

// knows waits until n rows have a pattern.
func (r *router) knows(pattern string, n int) {
	r.t.Helper()
	r.until(fmt.Sprintf("%s has %d rows", pattern, n), func() bool {
		r.m.names.mu.Lock()
		defer r.m.names.mu.Unlock()
		return r.m.names.rows[pattern] == n
	})
}

var graphs = map[string][][2]int{
	"line": {{0, 1}, {1, 2}, {2, 3}},
	"ring": {{0, 1}, {1, 2}, {2, 3}, {3, 0}},
	"full": {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}},
	"star": {{1, 0}, {2, 0}, {3, 0}},
}

// On every graph a publish anywhere comes to each subscriber once, plain or not, and a request to who exposes the method.
func TestMeshOfRouters(t *testing.T) {
	for name, edges := range graphs {
		t.Run(name, func(t *testing.T) {
			routers := meshOf(t, 4, edges...)
			var subs []*client
			for i, r := range routers {
				subs = append(subs, r.component(fmt.Sprintf("sub%d", i), "news"))
			}
			spacer := routers[3].component("spacer", "n*/x", "no/*")
			routers[3].component("exposer").admin("add", "expose")
			for _, r := range routers {
				r.knows("topic:news", 4)
				r.knows("rpc:add", 1)
				r.knows("topic:no/*", 1)
				r.knows("topic:n*/x", 1)
			}
			for i, r := range routers {
				pub := r.component(fmt.Sprintf("pub%d", i))
				for _, qos := range []byte{0, flagQoS1, flagQoS2} {
					id := number(uint64(100*i) + uint64(qos))
					pub.send(&Frame{Type: Publish, Flags: qos, ID: id, HasID: qos != 0, Name: []byte("news"), Data: []byte{0x81, byte(i)}})
					for j, s := range subs {
						f := s.publish()
						if string(f.Name) != "news" || f.Data[1] != byte(i) || f.Flags != qos {
							t.Errorf("from %d to %d: got %+v", i, j, f)
						}
						if qos != 0 {
							s.send(&Frame{Type: Ack, ID: f.ID})
						}
					}
				}
				pub.send(&Frame{Type: Publish, Name: []byte("no/x"), Data: []byte{0x80}})
				got := []string{string(spacer.publish().Name), string(spacer.publish().Name)}
				if slices.Sort(got); !slices.Equal(got, []string{"n*/x", "no/*"}) {
					t.Errorf("from %d: the patterns get %q", i, got)
				}
			}
			for _, s := range append(subs, spacer) {
				s.quiet()
			}
		})
	}
}

// publish gives the next publish.
func (c *client) publish() Frame {
	c.t.Helper()
	for {
		if f := c.next(); f.Type == Publish {
			return f
		}
	}
}

// quiet holds that no publish has come.
func (c *client) quiet() {
	c.t.Helper()
	frames, _ := c.barrier()
	for _, b := range frames {
		var f Frame
		if parseEither(b, &f) == nil && f.Type == Publish {
			c.t.Errorf("%s: %s comes too", c.name, show(b))
		}
	}
}

// A request is answered over three hops, by the nearest who can.
func TestRequestsAcrossRouters(t *testing.T) {
	routers := meshOf(t, 4, graphs["line"]...)
	far, near := routers[3].component("far"), routers[1].component("near")
	far.admin("m", "expose")
	for _, r := range routers {
		r.knows("rpc:m", 1)
	}
	caller := routers[0].component("caller")
	ask := func(who *client, n uint64) {
		t.Helper()
		caller.barrier()
		caller.send(&Frame{Type: Request, ID: number(n), Name: []byte("m"), Data: []byte{0x81, 1}})
		f := who.next()
		for f.Type != Request {
			f = who.next()
		}
		who.send(&Frame{Type: Response, ID: f.ID, Data: []byte{2}})
		if f := caller.next(); f.ID != number(n) || f.Status != StatusOK || f.Data[0] != 2 {
			t.Errorf("got %+v", f)
		}
	}
	ask(far, 1000)
	near.admin("m", "expose")
	routers[0].knows("rpc:m", 2)
	ask(near, 1001)
	near.admin("m", "unexpose")
	routers[0].knows("rpc:m", 1)
	ask(far, 1002)
	far.admin("m", "unexpose")
	routers[0].knows("rpc:m", 0)
	if f := caller.ask(&Frame{Type: Request, Name: []byte("m"), Data: []byte{0x80}}); f.Status != StatusNoMethod {
		t.Errorf("status %d", f.Status)
	}
}

// One of two subscribers behind a neighbour that leaves does not cut off the other.
func TestOneOfTwoLeaves(t *testing.T) {
	routers := meshOf(t, 3, graphs["line"][:2]...)
	a, b := routers[0].component("a", "news"), routers[0].component("b", "news")
	far := routers[1].component("c", "news")
	routers[2].knows("topic:news", 2) // of two routers
	a.admin("news", "unsubscribe")
	far.admin("news", "unsubscribe")
	routers[2].knows("topic:news", 1)
	routers[2].component("pub").send(&Frame{Type: Publish, Name: []byte("news"), Data: []byte{0x80}})
	b.publish()
	b.admin("news", "unsubscribe")
	routers[2].knows("topic:news", 0)
}

// A link of a ring that is cut leaves the other way; a router that is gone takes its rows with it, and what it has anew is known again.
func TestPartitionAndRejoin(t *testing.T) {
	edges := [][2]int{{0, 1}, {1, 2}, {2, 0}}
	routers := meshOf(t, 3, edges...)
	sub := routers[0].component("sub", "news")
	for _, r := range routers[1:] {
		r.knows("topic:news", 1)
	}
	pub := routers[2].component("pub")
	for round := range byte(3) {
		// The link between 2 and 0, which 2 made, is cut; it comes back by itself.
		routers[0].m.twinOf("r2").current().t.Abort(errClosed)
		pub.barrier()
		routers[2].until("there is a way", func() bool {
			pub.send(&Frame{Type: Publish, Name: []byte("news"), Data: []byte{0x81, round}})
			pub.barrier()
			routers[0].m.kin.mu.Lock()
			defer routers[0].m.kin.mu.Unlock()
			return len(sub.got) > 0
		})
		whole(routers, edges)
		for drained := false; !drained; {
			sub.barrier()
			drained = len(sub.got) == 0
		}
	}
	routers[1].stopOnce()
	routers[0].until("the router that ended is not known any more", func() bool { return routers[0].ways() == 1 })
	routers[2].until("the router that ended is not known any more", func() bool { return routers[2].ways() == 1 })
	pub.send(&Frame{Type: Publish, Name: []byte("news"), Data: []byte{0x81, 9}})
	if f := sub.publish(); f.Data[1] != 9 {
		t.Errorf("got %x", f.Data)
	}
	sub.quiet()
}

func (r *router) stopOnce() { r.once.Do(r.stop) }

// Many topics are known at the end of a line of three routers, and to one that comes later. How soon, the test logs (go test -v -run ManyTopics).
func TestManyTopicsAreKnown(t *testing.T) {
	topics := 10_000
	if raceDetector {
		topics = 1_000
	}
	routers := meshOf(t, 3, graphs["line"][:2]...)
	c := routers[0].component("c")
	list := `["t0"`
	for i := 1; i < topics; i++ {
		list += fmt.Sprintf(`,"t%d"`, i)
	}
	knows := func(r *router) {
		t.Helper()
		r.until("all are known", func() bool {
			r.m.names.mu.Lock()
			defer r.m.names.mu.Unlock()
			return len(r.m.names.rows) >= topics
		})
	}
	began := time.Now()
	c.admin("__config__", "setup", "subscribers", list+"]", "exposers", "[]")
	answered := time.Since(began)
	knows(routers[2])
	t.Logf("%d topics: answered in %v, known at the third router in %v", topics, answered, time.Since(began))
	late := startRouter(t, Options{Name: "late"})
	began = time.Now()
	late.join(routers[2], "late")
	knows(late)
	t.Logf("a router that comes later knows them in %v", time.Since(began))
}

// TestCommandsOfOneOfOurKind has a router say by commands what it has, before it is known for one of our kind and after: that is gone then, here and where it was
// passed on to.
func TestCommandsOfOneOfOurKind(t *testing.T) {
	r := startRouter(t, Options{})
	foreign := r.dial("foreign", "ws")
	foreign.ask(&Frame{Type: Identity, Name: []byte("foreign"), Data: []byte{0xa1, 0x62, 'w', 's', 1}})
	east := r.dial("east", "ws")
	east.ask(&Frame{Type: Identity, Name: []byte("east"), Data: []byte{0xa1, 0x62, 'w', 's', 1}})
	east.admin("before", "subscribe")
	r.knows("topic:before", 1)
	east.admin("__config__", "setup", "exposers", "[]", "subscribers", `["before"]`, "fingerpost", "7")
	east.admin("behind", "subscribe")
	for _, pattern := range []string{"topic:before", "topic:behind"} {
		r.knows(pattern, 0)
	}
	var told []string
	for len(told) < 2 {
		f := foreign.next()
		c, err := parseCommand(f.Data)
		if f.Type != Admin || err != nil {
			t.Fatalf("foreign got %v: %v", f, err)
		}
		told = append(told, *c.Cmd+" "+string(f.Name))
	}
	if want := []string{"subscribe before", "unsubscribe before"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
