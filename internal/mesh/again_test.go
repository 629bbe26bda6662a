package mesh

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/house/tube"
	"github.com/fingerpost/fingerpost/routetable"
)

// apart is a mesh of routers, each with a publisher and a subscriber.
type apart struct {
	t       *testing.T
	edges   [][2]int
	tubes   []*tube.Tube
	dirs    []string
	tables  []*routetable.Table
	routers []*router
	subs    []*client
	pubs    []*client
	sent    []int            // by publisher
	got     []map[string]int // by subscriber: how many of each publisher and topic
	inOrder bool             // they come by one way
}

func newApart(t *testing.T, n int, edges ...[2]int) *apart {
	a := &apart{t: t, edges: edges, routers: make([]*router, n), subs: make([]*client, n), pubs: make([]*client, n), sent: make([]int, n)}
	for range edges {
		a.tubes = append(a.tubes, tube.Lay(t))
	}
	for i := range n {
		a.dirs, a.tables, a.got = append(a.dirs, t.TempDir()), append(a.tables, routetable.New()), append(a.got, map[string]int{})
		a.begin(i)
	}
	for i := range n {
		a.join(i)
	}
	whole(a.routers, edges)
	for i := range n {
		a.attach(i)
	}
	for _, r := range a.routers {
		r.knows("topic:a", n)
		r.knows("topic:b/c", n)
	}
	return a
}

// begin starts a router, anew where it was there.
func (a *apart) begin(i int) {
	o := restOptions(a.dirs[i])
	o.Name = fmt.Sprintf("r%d", i)
	a.routers[i] = startRouterAs(a.t, a.tables[i], o, fmt.Sprintf("%016x", i+1))
	for k, e := range a.edges {
		if e[1] == i {
			a.tubes[k].Lead(a.routers[i].ws)
		}
	}
}

func (a *apart) join(i int) {
	a.t.Helper()
	for k, e := range a.edges {
		if e[0] != i {
			continue
		}
		if err := a.routers[i].m.Connect(PeerOptions{URL: "ws://" + a.tubes[k].Address(), As: fmt.Sprintf("r%d-%d", i, e[1]), Period: 20 * time.Millisecond}); err != nil {
			a.t.Fatal(err)
		}
	}
}

func (a *apart) attach(i int) {
	a.t.Helper()
	r := a.routers[i]
	sub := r.dial(fmt.Sprintf("sub%d", i), "ws")
	sub.identify(sub.name)
	if len(r.table.Snapshot().OfOrigin(originOf(sub.name))) < 3 { // else it is known what it has
		for _, topic := range []string{"a", "b/c"} {
			sub.admin(topic, "subscribe", "msg_from", "1e18")
		}
	}
	sub.react()
	a.subs[i], a.pubs[i] = sub, r.component(fmt.Sprintf("pub%d", i))
}

// publish has every router's publisher say something on both topics, by each QoS.
func (a *apart) publish() {
	a.t.Helper()
	for n := range 8 {
		for i, c := range a.pubs {
			f := &Frame{Type: Publish, Name: []byte([]string{"a", "b/c"}[n%2]), Data: appendHead(appendHead([]byte{0x82}, majorUint, uint64(i)), majorUint, uint64(a.sent[i]))}
			if f.Flags = []byte{0, 0, flagQoS1, 0, 0, flagQoS2, flagQoS2, flagQoS1}[n]; f.Flags != 0 {
				f.ID, f.HasID = newID(), true
			}
			c.send(f)
			c.barrier()
			a.sent[i]++
		}
	}
}

// expect has every subscriber get all that was published, of each publisher and topic in order.
func (a *apart) expect() {
	a.t.Helper()
	all := 0
	for _, n := range a.sent {
		all += n
	}
	for i, c := range a.subs {
		for a.count(i) < all {
			a.take(i, c.publish())
		}
	}
}

// take has a subscriber take a publish, which is to be the next of its publisher and topic.
func (a *apart) take(i int, f Frame) {
	a.t.Helper()
	c := a.subs[i]
	if f.QoS() != 0 {
		c.send(&Frame{Type: Ack, ID: f.ID})
	}
	from, err := readHead(f.Data[1:])
	number, err2 := readHead(f.Data[1+from.length:])
	if err != nil || err2 != nil || f.Flags&flagAgain != 0 || f.Flags == flagSlot {
		a.t.Fatalf("%s gets %+v", c.name, f)
	}
	key := fmt.Sprintf("%d %s", from.arg, f.Name)
	odd := map[string]int{"a": 0, "b/c": 1}[string(f.Name)]
	if want := 2*a.got[i][key] + odd; a.inOrder && int(number.arg) != want {
		a.t.Fatalf("%s gets %d of %s, want %d", c.name, number.arg, key, want)
	}
	if !a.inOrder {
		key += fmt.Sprint(number.arg)
		if a.got[i][key] > 0 {
			a.t.Fatalf("%s gets %s again", c.name, key)
		}
	}
	a.got[i][key]++
}

func (a *apart) count(i int) (n int) {
	for _, k := range a.got[i] {
		n += k
	}
	return n
}

func (a *apart) restart(i int) {
	a.t.Helper()
	for over := false; !over; { // what it has not acknowledged it gets again
		frames, _ := a.subs[i].barrier()
		over = true
		for _, b := range frames {
			var f Frame
			if parseEither(b, &f) == nil && f.Type == Publish {
				a.take(i, f)
				over = false
			}
		}
	}
	a.routers[i].stopOnce()
	a.begin(i)
	a.join(i)
	a.attach(i)
}

// What is published while routers are apart comes when they are together again: to every subscriber once and in order, whatever its QoS, over more than one
// router, and after one of them has begun anew.
func TestMissedBetweenRouters(t *testing.T) {
	for who, i := range map[string]int{"nobody": -1, "who connects": 1, "who is connected to": 2, "who is behind": 3} {
		t.Run(who+" begins anew", func(t *testing.T) {
			a := newApart(t, 4, [2]int{0, 1}, [2]int{1, 2}, [2]int{3, 2})
			a.inOrder = true
			a.publish()
			a.expect()
			for round := range 3 {
				a.tubes[1].Shut(true)
				for _, r := range a.routers {
					r.until("it knows of the cut", func() bool { return r.ways() == 1 })
				}
				a.publish()
				if round == 1 && i >= 0 {
					a.restart(i)
					for _, r := range a.routers {
						r.until("it knows who is left", func() bool { return r.ways() == 1 })
					}
					a.publish()
				}
				a.tubes[1].Shut(false)
				whole(a.routers, a.edges)
				a.publish()
				a.expect()
			}
			for _, c := range a.subs {
				c.quiet()
			}
		})
	}
}

// On a ring whose links are cut while much is on them, everything comes once.
func TestMissedOnARing(t *testing.T) {
	a := newApart(t, 3, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 0})
	for round := range 6 {
		a.publish()
		a.tubes[round%3].Shut(true)
		a.publish()
		a.tubes[(round+1)%3].Shut(true)
		a.publish()
		a.tubes[round%3].Shut(false)
		a.publish()
		a.tubes[(round+1)%3].Shut(false)
		a.publish()
		whole(a.routers, a.edges)
		a.expect()
	}
	for _, c := range a.subs {
		c.quiet()
	}
}

// A publish that a row has led to another topic is kept for that one too.
func TestMissedOfATopicThatARowLeadsTo(t *testing.T) {
	dir := t.TempDir()
	r := startRouter(t, restOptions(dir))
	r.table.Add("topic:a", "topic:b")
	bob, alice, carol := r.component("bob"), r.dial("alice", "ws"), r.component("carol", "a", "b")
	alice.identify("alice")
	alice.admin("b", "subscribe", "msg_from", "1e18")
	for i, flags := range []byte{0, flagQoS2} {
		bob.send(&Frame{Type: Publish, Flags: flags, ID: number(7), HasID: flags != 0, Name: []byte("a"), Data: []byte{0x81, byte(i)}})
	}
	bob.barrier()
	alice.react()
	for i := range 2 {
		f := alice.publish()
		if string(f.Name) != "b" || int(f.Data[1]) != i || f.QoS() != []byte{0, flagQoS2}[i] {
			t.Errorf("got %+v", f)
		}
		if f.QoS() != 0 {
			alice.send(&Frame{Type: Ack, ID: f.ID})
		}
	}
	alice.react()
	alice.quiet()
	for range 2 { // she has it of both, and has let go of none
		carol.publish()
	}
}

func FuzzMissed(f *testing.F) {
	f.Add([]byte("0 00000000000000aa\n1700000000000000000 b\n-1 c\nrubbish\n5 d"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all := parseMissed(text)
		if again := parseMissed(appendMissed(nil, all)); !maps.Equal(all, again) {
			t.Fatalf("%v, then %v", all, again)
		}
	})
}
