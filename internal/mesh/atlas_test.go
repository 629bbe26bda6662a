package mesh

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is a mesh in memory: routers with an atlas each, and links that carry news in order.
type model struct {
	atlases []*atlas
	links   map[[2]int][][]news // what is on its way from the first to the second
	frames  int
	quiet   bool // nothing is sent
	handled map[int]int // fresh news, by router
}

func newModel(n int) *model {
	m := &model{links: map[[2]int][][]news{}, handled: map[int]int{}}
	for i := range n {
		m.atlases = append(m.atlases, newAtlas(uint64(1)<<63|uint64(i*7919%n+1)))
	}
	return m
}

func (m *model) neighbours(i int) (list []int) {
	for l := range m.links {
		if l[0] == i {
			list = append(list, l[1])
		}
	}
	slices.Sort(list)
	return list
}

func (m *model) send(from int, to []int, but int, list []news) {
	for _, j := range to {
		if j != but && len(list) > 0 && !m.quiet {
			m.links[[2]int{from, j}] = append(m.links[[2]int{from, j}], list)
			m.frames++
		}
	}
}

func (m *model) tell(i int, t thing, alive bool) {
	if n, ok := m.atlases[i].tell(t, alive); ok {
		m.send(i, m.neighbours(i), -1, []news{n})
	}
}

// connect links two routers: each tells all it knows to the other, and of the link to all.
func (m *model) connect(i, j int) {
	if _, there := m.links[[2]int{i, j}]; there || i == j {
		return
	}
	m.links[[2]int{i, j}], m.links[[2]int{j, i}] = nil, nil
	for _, e := range [][2]int{{i, j}, {j, i}} {
		m.send(e[0], []int{e[1]}, -1, m.atlases[e[0]].all())
		m.tell(e[0], thing{thingLink, linkName(m.atlases[e[1]].self)}, true)
	}
}

// cut ends a link, and what is on its way by it is lost.
func (m *model) cut(i, j int) {
	if _, there := m.links[[2]int{i, j}]; !there {
		return
	}
	delete(m.links, [2]int{i, j})
	delete(m.links, [2]int{j, i})
	for _, e := range [][2]int{{i, j}, {j, i}} {
		m.tell(e[0], thing{thingLink, linkName(m.atlases[e[1]].self)}, false)
	}
}

// step delivers what the nth busy link carries first; false where nothing is on its way.
func (m *model) step(n int) bool {
	var busy [][2]int
	for l, queue := range m.links {
		if len(queue) > 0 {
			busy = append(busy, l)
		}
	}
	if len(busy) == 0 {
		return false
	}
	slices.SortFunc(busy, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	l := busy[n%len(busy)]
	list := m.links[l][0]
	m.links[l] = m.links[l][1:]
	fresh := m.atlases[l[1]].hear(list)
	m.handled[l[1]] += len(fresh)
	m.send(l[1], m.neighbours(l[1]), l[0], fresh)
	return true
}

func (m *model) settle() {
	for m.step(0) {
	}
}

// reachable are the routers on the same side as i.
func (m *model) reachable(i int) map[int]bool {
	seen := map[int]bool{i: true}
	for list := []int{i}; len(list) > 0; list = list[1:] {
		for _, j := range m.neighbours(list[0]) {
			if !seen[j] {
				seen[j] = true
				list = append(list, j)
			}
		}
	}
	return seen
}

// publish follows a publish from router i to who subscribes to a topic, as routers pass it on: to the neighbours on the ways to all who have the topic but the one it came
// by, and each router takes it once. It gives how often each router took it.
func (m *model) publish(i int, t thing) map[int]int {
	index := map[uint64]int{}
	for j, a := range m.atlases {
		index[a.self] = j
	}
	took := map[int]int{}
	type hop struct{ at, from int }
	for queue := []hop{{i, -1}}; len(queue) > 0; queue = queue[1:] {
		h := queue[0]
		if took[h.at] > 0 {
			continue // its id is known
		}
		took[h.at]++
		a := m.atlases[h.at]
		ways := a.ways()
		next := map[int]bool{}
		for origin, w := range ways {
			if a.origins[origin][t].alive {
				next[index[w.by]] = true
			}
		}
		for j := range next {
			if j != h.from {
				queue = append(queue, hop{j, h.at})
			}
		}
	}
	return took
}

// check holds every router to what is true: it knows what everybody on its side has, and a publish reaches all who subscribe.
func (m *model) check(t *rapid.T, have map[int]map[thing]bool) {
	for i, a := range m.atlases {
		side := m.reachable(i)
		ways := a.ways()
		if len(ways) != len(side)-1 {
			t.Fatalf("router %d has ways to %d, and is connected to %d", i, len(ways), len(side)-1)
		}
		for j := range side {
			for _, topic := range []string{"a", "b"} {
				x := thing{thingTopic, topic}
				if got := m.atlases[i].origins[m.atlases[j].self][x].alive; got != have[j][x] {
					t.Fatalf("router %d knows that %d has %s: %v, want %v", i, j, topic, got, have[j][x])
				}
			}
		}
		took := m.publish(i, thing{thingTopic, "a"})
		for j := range side {
			if have[j][thing{thingTopic, "a"}] && took[j] != 1 {
				t.Fatalf("a publish at %d reaches %d %d times", i, j, took[j])
			}
		}
	}
}

// On any graph, through partitions and rejoins, tables converge and every subscriber that is connected gets a publish once.
func TestAtlasesConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 7).Draw(t, "routers")
		m := newModel(n)
		have := map[int]map[thing]bool{}
		for i := range n {
			have[i] = map[thing]bool{}
		}
		router := rapid.IntRange(0, n-1)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			i, j := router.Draw(t, "i"), router.Draw(t, "j")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1:
				m.connect(i, j)
			case 2:
				m.cut(i, j)
			case 3:
				x := thing{thingTopic, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "topic")}
				have[i][x] = !have[i][x]
				m.tell(i, x, have[i][x])
			default:
				for range j + 1 {
					m.step(rapid.IntRange(0, 9).Draw(t, "link"))
				}
			}
		}
		m.settle()
		m.check(t, have)
	})
}

// The graphs that people draw, and a command on each of 50 routers: handled once by each, and the frames that it takes.
func TestFloodOnFiftyRouters(t *testing.T) {
	const n = 50
	graphs := map[string]func(m *model){
		"line": func(m *model) {
			for i := range n - 1 {
				m.connect(i, i+1)
			}
		},
		"ring": func(m *model) {
			for i := range n {
				m.connect(i, (i+1)%n)
			}
		},
		"full": func(m *model) {
			for i := range n {
				for j := range i {
					m.connect(i, j)
				}
			}
		},
		"random": func(m *model) {
			for i := 1; i < n; i++ {
				m.connect(i, i*31%i)
				m.connect(i, i*17%n)
			}
		},
	}
	for _, name := range slices.Sorted(maps.Keys(graphs)) {
		m := newModel(n)
		m.quiet = true // who is linked to whom is known to all
		graphs[name](m)
		m.quiet = false
		for _, a := range m.atlases {
			for _, b := range m.atlases {
				b.hear(a.all())
			}
		}
		m.tell(0, thing{thingTopic, "news"}, true)
		m.settle()
		for i := 1; i < n; i++ {
			if m.handled[i] != 1 {
				t.Errorf("%s: router %d handles it %d times", name, i, m.handled[i])
			}
		}
		took := m.publish(n/2, thing{thingTopic, "news"})
		if took[0] != 1 {
			t.Errorf("%s: the publish reaches its subscriber %d times", name, took[0])
		}
		t.Logf("%s of %d routers: %d links, %d frames", name, n, len(m.links)/2, m.frames)
		if m.frames > len(m.links) {
			t.Errorf("%s: %d frames on %d links", name, m.frames, len(m.links)/2)
		}
	}
}

// News that are old, forged about ourselves, or too many change nothing.
func TestAtlasIsHardToFool(t *testing.T) {
	a := newAtlas(1)
	x := thing{thingTopic, "x"}
	a.tell(x, true)
	if fresh := a.hear([]news{{1, x, version{99, false}}}); len(fresh) > 0 || !a.origins[1][x].alive {
		t.Error("another tells us about ourselves")
	}
	a.hear([]news{{2, x, version{5, true}}})
	if fresh := a.hear([]news{{2, x, version{4, false}}, {2, x, version{5, false}}}); len(fresh) > 0 || !a.origins[2][x].alive {
		t.Error("old news are taken")
	}
	if fresh := a.hear([]news{{2, x, version{6, false}}}); len(fresh) != 1 || a.origins[2][x].alive {
		t.Error("new ones are not")
	}
	a.things = maxThings
	if fresh := a.hear([]news{{3, x, version{1, true}}}); len(fresh) > 0 {
		t.Error("there is no end to what it takes")
	}
	if fresh := a.hear([]news{{2, thing{thingLink, linkName(1)}, version{7, true}}}); len(fresh) > 0 || len(a.ways()) > 0 {
		t.Error("a link that one end alone tells of is one")
	}
	for _, name := range []string{"", "x", "000000000000000g", "00000000000000001", fmt.Sprintf("%016X", 0xabcdef)} {
		if _, ok := parseLinkName(name); ok {
			t.Errorf("%q is a link", name)
		}
	}
	if mark, ok := parseLinkName(linkName(0xfedcba9876543210)); !ok || mark != 0xfedcba9876543210 {
		t.Errorf("got %x", mark)
	}
}
