package mesh

import (
	"cmp"
	"slices"
)

// atlas is what a router knows of all routers of its kind: what each has (topics that are subscribed to there, methods that are exposed) and whom it is
// linked to. It is pure. Each router tells of itself alone, by news that carry its mark and a number that only grows: the latest of a name wins, in
// whatever order and however often news come, so that all who are connected come to know the same. A router that starts anew has another mark.
//
// Where a router's things are reached is found on the graph of the links that both ends tell of: the way of the fewest hops, of equal ones that of the
// lowest marks. On such ways each hop is nearer to the goal than the one before, so nothing goes round in a ring.
type atlas struct {
	self    uint64
	counter uint64
	origins map[uint64]map[thing]version
	things  int
	graph   map[uint64]map[uint64]bool // who says that it is linked to whom
	nodes   map[uint64]string          // who each is that tells
}

// thing is something that a router has: a topic, a method, or a link to another router.
type thing struct {
	kind thingKind
	name string // of a link: the mark of the other end, as linkName has it
}

type thingKind uint8

const (
	thingTopic thingKind = iota
	thingMethod
	thingLink
	thingNode // who it is, in all its lives: told by those that keep what is published
)

// version is the latest that is known of a thing.
type version struct {
	number uint64
	alive  bool
}

// news is one sentence of a router about itself.
type news struct {
	origin uint64
	thing
	version
}

// way is how another router is reached.
type way struct {
	by   uint64 // the neighbour
	hops int
}

// maxThings bounds what is known: a peer that claims every name is told no to.
const maxThings = 1 << 20

func newAtlas(self uint64) *atlas {
	return &atlas{self: self, origins: map[uint64]map[thing]version{self: {}}, graph: map[uint64]map[uint64]bool{}, nodes: map[uint64]string{}}
}

// tell changes what this router has itself, and gives the news for its neighbours; ok is false where there are none.
func (a *atlas) tell(t thing, alive bool) (n news, ok bool) {
	if a.origins[a.self][t].alive == alive {
		return n, false
	}
	a.counter++
	n = news{a.self, t, version{a.counter, alive}}
	a.put(n)
	return n, true
}

func (a *atlas) put(n news) {
	things := a.origins[n.origin]
	if things == nil {
		things = map[thing]version{}
		a.origins[n.origin] = things
	}
	if _, known := things[n.thing]; !known {
		a.things++
	}
	things[n.thing] = n.version
	if n.kind == thingNode {
		a.nodes[n.origin] = n.name
	}
	if n.kind != thingLink {
		return
	}
	if to, ok := parseLinkName(n.name); ok {
		if a.graph[n.origin] == nil {
			a.graph[n.origin] = map[uint64]bool{}
		}
		a.graph[n.origin][to] = n.alive
	}
}

// hear takes news from a neighbour, and gives those that are new, for the others. Nobody tells us about ourselves.
func (a *atlas) hear(list []news) (fresh []news) {
	for _, n := range list {
		old, known := a.origins[n.origin][n.thing]
		if n.origin == a.self || known && n.number <= old.number || !known && a.things >= maxThings {
			continue
		}
		a.put(n)
		fresh = append(fresh, n)
	}
	return fresh
}

// all is everything that is known, for a neighbour that is new.
func (a *atlas) all() []news {
	var list []news
	for origin, things := range a.origins {
		for t, v := range things {
			list = append(list, news{origin, t, v})
		}
	}
	slices.SortFunc(list, func(x, y news) int {
		return cmp.Or(cmp.Compare(x.origin, y.origin), cmp.Compare(x.number, y.number))
	})
	return list
}

// ways finds how each router that can be reached is reached.
func (a *atlas) ways() map[uint64]way {
	ways := map[uint64]way{a.self: {}}
	for ring := []uint64{a.self}; len(ring) > 0; {
		var next []uint64
		for _, at := range ring {
			for _, to := range a.neighboursOf(at) {
				w := way{ways[at].by, ways[at].hops + 1}
				if at == a.self {
					w.by = to
				}
				old, found := ways[to]
				if !found {
					next = append(next, to)
				}
				if !found || old.hops == w.hops && w.by < old.by {
					ways[to] = w
				}
			}
		}
		slices.Sort(next)
		ring = next
	}
	delete(ways, a.self)
	return ways
}

// neighboursOf gives the other ends of links of which both ends tell.
func (a *atlas) neighboursOf(at uint64) (list []uint64) {
	for to, says := range a.graph[at] {
		if says && a.graph[to][at] {
			list = append(list, to)
		}
	}
	slices.Sort(list)
	return list
}

// forget drops routers that cannot be reached and are not in keep.
func (a *atlas) forget(keep func(origin uint64) bool) {
	for origin, things := range a.origins {
		if origin != a.self && !keep(origin) {
			a.things -= len(things)
			delete(a.origins, origin)
			delete(a.graph, origin)
			delete(a.nodes, origin)
		}
	}
}

// linkName is the name of the thing that a link is, by the mark of its other end.
func linkName(mark uint64) string {
	const digits = "0123456789abcdef"
	var b [16]byte
	for i := range b {
		b[i] = digits[mark>>(60-4*i)&15]
	}
	return string(b[:])
}

func parseLinkName(name string) (mark uint64, ok bool) {
	if len(name) != 16 {
		return 0, false
	}
	for i := 0; i < 16; i++ {
		c := name[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		default:
			return 0, false
		}
		mark = mark<<4 | uint64(c)
	}
	return mark, true
}
