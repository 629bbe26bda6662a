package mesh

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// kin is what a router knows of others of its kind, and the rows that come of it. Two routers find each other out by a key of setup, and of its answer, that
// others ignore; from then on they tell each other news (atlas.go) by a command of their own, and no longer what the protocol's commands say of topics. Rows of
// what another router has lead to the neighbour on the way to it, with the hops as their order; their origin is peer:NEIGHBOUR/MARK.
type kin struct {
	m *Mesh

	mu     sync.Mutex // guards what follows; held while rows are written and news sent
	atlas  *atlas
	near   map[uint64][]*twin // neighbours, by their mark; the first is used
	placed map[uint64]place   // where rows of other routers lead
	missed missed             // who has missed something

	learned map[string]bool // patterns that routers of other kinds are to be told of: they began (true) or ended

	wake      chan struct{}
	regranted atomic.Bool // who may use private topics has changed
}

// place is where the rows of a router lead.
type place struct {
	name string // of the neighbour's twin
	hops int
}

func newKin(m *Mesh) *kin {
	return &kin{m: m, atlas: newAtlas(m.mark), near: map[uint64][]*twin{}, placed: map[uint64]place{}, wake: make(chan struct{}, 1)}
}

// keeps has others know who this router is, and that what it missed can be sent to it again.
func (k *kin) keeps() {
	k.missed = openMissed(k.m)
	if s := k.m.rest; s != nil && badName(k.m.self()) == "" {
		k.atlas.tell(thing{thingNode, k.m.self()}, true)
	}
}

// isPlaced tells whether a row's origin is that of another router's things.
func isPlaced(origin string) bool {
	if !strings.HasPrefix(origin, "peer:") {
		return false
	}
	_, ok := parseLinkName(origin[strings.LastIndexByte(origin, '/')+1:])
	return ok
}

// clean takes away what a former life of this router has placed.
func (k *kin) clean() {
	stale := map[string]bool{}
	for r := range k.m.table.Snapshot().Routes() {
		if isPlaced(r.Origin) {
			stale[r.Origin] = true
		}
	}
	for origin := range stale {
		k.m.do("", admin.Withdraw{Origin: origin})
	}
}

// regrant has the rows of other routers be written anew: others may use private topics now.
func (k *kin) regrant() {
	k.regranted.Store(true)
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run tells neighbours what changes here.
func (k *kin) run() {
	for {
		select {
		case <-k.m.ctx.Done():
			return
		case <-k.wake:
		}
		k.mu.Lock()
		if k.regranted.Swap(false) {
			for origin, p := range k.placed {
				k.placeAll(p, origin)
			}
		}
		k.tell(nil, k.own())
		learned := k.learned
		k.learned = nil
		k.mu.Unlock()
		for pattern, alive := range learned {
			k.m.announce(pattern, alive)
		}
	}
}

// own gives news of what has changed here, and notes what others are to be told of. Called under the lock.
func (k *kin) own() (list []news) {
	own, learned := k.m.names.changes()
	for pattern, alive := range own {
		if t, ok := thingOf(pattern); ok {
			if n, ok := k.atlas.tell(t, alive); ok {
				list = append(list, n)
			}
		}
	}
	if k.learned == nil {
		k.learned = learned
	}
	maps.Copy(k.learned, learned)
	return list
}

// unsay notes that routers of other kinds are to be told that rows have gone of which a command told them. Called under the lock.
func (k *kin) unsay(gone []*routetable.Route) {
	n := &k.m.names
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range gone {
		if isAnnounced(r.Pattern) && n.rows[r.Pattern] == 0 {
			k.learned[r.Pattern] = false
		}
	}
}

// thingOf gives the topic or method that a pattern of the table is.
func thingOf(pattern string) (t thing, ok bool) {
	if topic, ok := strings.CutPrefix(pattern, "topic:"); ok {
		return thing{thingTopic, topic}, badName(topic) == ""
	}
	method, ok := unquoted(pattern)
	return thing{thingMethod, method}, ok && badName(method) == ""
}

// tell sends news to every neighbour but one. Called under the lock.
func (k *kin) tell(but *twin, list []news) {
	if len(list) == 0 {
		return
	}
	for _, twins := range k.near {
		if t := twins[0]; t != but {
			k.send(t, list)
		}
	}
}

// maxTold is how many bytes of names go into one message.
const maxTold = 256 << 10

func (k *kin) send(t *twin, list []news) {
	for len(list) > 0 {
		n, size := 0, 0
		for n < len(list) && n < maxListed && size < maxTold {
			size += len(list[n].name) + 32
			n++
		}
		t.send(nil, &Frame{Type: Admin, ID: newID(), Name: []byte("__config__"), Data: appendNews(nil, k.m.mark, list[:n])})
		list = list[n:]
	}
}

// up takes in a neighbour of our kind, and tells it all.
func (k *kin) up(t *twin, mark uint64) {
	if mark == 0 || mark == k.m.mark {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.kin.Swap(mark) == mark {
		return
	}
	k.m.kinCount.Add(1)
	k.near[mark] = append(k.near[mark], t)
	said, _ := k.m.do(t.name, admin.Setup{Origin: originOf(t.name) + "c"}) // by commands, before it knew us
	list := k.own()
	k.unsay(said.Removed)
	if n, ok := k.atlas.tell(thing{thingLink, linkName(mark)}, true); ok {
		list = append(list, n)
	}
	k.tell(t, list)
	k.send(t, k.atlas.all())
	k.place(nil, true)
}

// down forgets a neighbour that has gone.
func (k *kin) down(t *twin) {
	mark := t.kin.Swap(0)
	if mark == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	node := k.atlas.nodes[mark]
	k.m.kinCount.Add(-1)
	var left []*twin
	for _, o := range k.near[mark] {
		if o != t {
			left = append(left, o)
		}
	}
	if k.near[mark] = left; len(left) == 0 {
		delete(k.near, mark)
		if n, ok := k.atlas.tell(thing{thingLink, linkName(mark)}, false); ok {
			k.tell(nil, []news{n})
		}
	}
	k.place(nil, true)
	if since := k.missed.since[node]; since != 0 {
		t.leaveToReplay(since)
	}
}

// hear takes news of a neighbour, passes on what is new, and writes the rows.
func (k *kin) hear(t *twin, list []news) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fresh := k.atlas.hear(list)
	k.m.count.flooded.Add(uint64(len(fresh)))
	k.m.count.floodedTwice.Add(uint64(len(list) - len(fresh)))
	k.tell(t, fresh)
	graph := false
	for _, n := range fresh {
		graph = graph || n.kind == thingLink
	}
	k.place(fresh, graph)
}

// place writes the rows of other routers: all of those whose way is another now, where the graph may have changed, and of the others what fresh tells. Called under
// the lock.
func (k *kin) place(fresh []news, graph bool) {
	moved := map[uint64]bool{}
	if graph {
		moved = k.move()
	}
	var commands []admin.Command
	for _, n := range fresh {
		if p, ok := k.placed[n.origin]; ok && !moved[n.origin] {
			if n.kind == thingNode {
				k.resend(n.origin)
			}
			commands = k.placeOne(commands, p, n)
		}
	}
	if len(commands) > 0 {
		k.m.do("", admin.Together{Commands: commands})
	}
}

// move finds the ways anew, and writes the rows of routers whose way is another. It tells which those are.
func (k *kin) move() (moved map[uint64]bool) {
	moved = map[uint64]bool{}
	ways := k.atlas.ways()
	for origin, p := range k.placed {
		if w, ok := ways[origin]; !ok || k.near[w.by] == nil || k.near[w.by][0].name != p.name || w.hops != p.hops {
			k.m.do(p.name, admin.Withdraw{Origin: placedOrigin(p, origin)})
			delete(k.placed, origin)
			if !ok || !k.isNear(p.name) {
				k.missed.begins(k.atlas.nodes[origin])
			}
		}
	}
	for origin, w := range ways {
		if _, ok := k.placed[origin]; !ok && k.near[w.by] != nil {
			p := place{k.near[w.by][0].name, w.hops}
			k.placed[origin], moved[origin] = p, true
			k.placeAll(p, origin)
			k.resend(origin)
		}
	}
	k.missed.save()
	if len(k.atlas.origins) > 4*len(ways)+64 {
		k.atlas.forget(func(origin uint64) bool { _, ok := ways[origin]; return ok })
	}
	return moved
}

// isNear tells whether a twin is a neighbour still.
func (k *kin) isNear(name string) bool {
	for _, twins := range k.near {
		if slices.ContainsFunc(twins, func(t *twin) bool { return t.name == name }) {
			return true
		}
	}
	return false
}

// resend has a router that can be reached be sent what it has missed. The neighbour on the way has to keep what it is sent, to know what it has had.
func (k *kin) resend(origin uint64) {
	node, t := k.atlas.nodes[origin], k.m.twinOf(k.placed[origin].name)
	if node == "" || t == nil || k.atlas.nodes[t.kin.Load()] == "" {
		return
	}
	if since := k.missed.of(node); since != 0 {
		t.again(since, origin)
	}
}

// caughtUp notes that routers behind a twin have got what they missed. Called without the lock.
func (k *kin) caughtUp(t *twin, origins map[uint64]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for origin := range origins {
		if p, ok := k.placed[origin]; ok && p.name == t.name {
			k.missed.ends(k.atlas.nodes[origin])
		}
	}
	k.missed.save()
}

func placedOrigin(p place, origin uint64) string { return originOf(p.name) + linkName(origin) }

// placeAll writes all rows of a router.
func (k *kin) placeAll(p place, origin uint64) {
	var rows []routetable.Route
	for t, v := range k.atlas.origins[origin] {
		if r, ok := k.row(p, origin, t); ok && v.alive {
			rows = append(rows, r)
		}
	}
	k.m.do(p.name, admin.Setup{Origin: placedOrigin(p, origin), Routes: rows})
}

// placeOne adds the command that writes one row of a router, or takes it away.
func (k *kin) placeOne(commands []admin.Command, p place, n news) []admin.Command {
	r, ok := k.row(p, n.origin, n.thing)
	switch {
	case !ok:
		return commands
	case n.alive:
		return append(commands, admin.Assert{Route: r})
	}
	return append(commands, admin.Unsubscribe{Origin: r.Origin, Pattern: r.Pattern, Address: r.Address})
}

// row makes the row of a thing of another router, ok is false where there is none: the neighbour on the way there has to be among those that may use a private
// topic, by what this router knows itself.
func (k *kin) row(p place, origin uint64, t thing) (r routetable.Route, ok bool) {
	switch t.kind {
	case thingTopic:
		r, ok = interest(p.name, t.name, 0), true
	case thingMethod:
		r, ok = k.m.implementation(p.name, t.name)
	}
	ok = ok && (!k.m.private.Load() || k.m.allowed(p.name, t.name))
	r.Origin, r.Order = placedOrigin(p, origin), p.hops
	return r, ok
}

// announce tells routers of another kind of a topic or method that came or went here otherwise than by a command that they are sent too.
func (m *Mesh) announce(pattern string, alive bool) {
	t, ok := thingOf(pattern)
	if !ok {
		return
	}
	name := map[bool]string{true: "subscribe", false: "unsubscribe"}[alive]
	if t.kind == thingMethod {
		name = map[bool]string{true: "expose", false: "unexpose"}[alive]
	}
	c := &command{Cmd: &name, Marks: []uint64{m.eid}}
	if name == "subscribe" {
		c.LookBack = new(float64)
	}
	f := &Frame{ID: newID(), Name: []byte(t.name)}
	for _, n := range m.neighbours(nil) {
		if n.relays.Load() && n.kin.Load() == 0 {
			c.Touched = append(c.Touched, n.name)
			n.send(nil, &Frame{Type: Admin, ID: f.ID, Name: f.Name, Data: appendCommand(nil, c)})
		}
	}
}

// passes tells whether a publish with an id has not been here before.
func (m *Mesh) passes(id ID) bool {
	m.passedMu.Lock()
	defer m.passedMu.Unlock()
	return m.passed.take(floodKey{id: id.bare()})
}

// randomID is an id for a publish between routers: it tells publishes apart, and is no secret.
func randomID() ID {
	var id ID
	id.n = 8
	binary.LittleEndian.PutUint64(id.b[:8], rand.Uint64())
	return id
}
