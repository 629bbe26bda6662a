package interop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/house/tube"
	events "github.com/fingerpost/fingerpost/messenger/event"
)

// eventRouter is one of several, at an address that outlives it.
type eventRouter struct {
	*router
	name, config string
	door         *tube.Tube
	got          *seenBy
}

func (e *eventRouter) run(t *testing.T) {
	t.Helper()
	e.router = startRouter(t, e.name, "", "--http", "127.0.0.1:0", "--config", e.config)
	page, _ := strings.CutPrefix(e.line(), "ready http://")
	e.door.Lead(page)
}

// layEventRouters starts routers, a component at each, that are linked: dials[i] are those that router i dials.
func layEventRouters(t *testing.T, dials ...[]int) (all []*eventRouter, components []*events.Manager) {
	t.Helper()
	dir := t.TempDir()
	for i := range dials {
		name := fmt.Sprintf("r%d", i)
		all = append(all, &eventRouter{name: name, config: filepath.Join(dir, name+".yaml"), door: tube.Lay(t), got: &seenBy{ids: map[string]bool{}}})
	}
	for i, e := range all {
		var links []string
		for _, j := range dials[i] {
			links = append(links, fmt.Sprintf("{url: 'ws://%s/router/link'}", all[j].door.Address()))
		}
		text := fmt.Sprintf("events: {links: [%s]}", strings.Join(links, ", "))
		if err := os.WriteFile(e.config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		e.run(t)
		m := newManager(t, e.door.Address(), "C")
		m.Request("T", e.got.handle)
		m.Shareable("T")
		runManager(t, m)
		components = append(components, m)
	}
	return all, components
}

// Events cross any graph of routers once. One that dies between others is missed only by those that have no other way, until it is there again.
func TestEventsOverGraphsOfRouters(t *testing.T) {
	for _, c := range []struct {
		name   string
		dials  [][]int
		dies   int
		around bool // there is another way
	}{
		{"line", [][]int{{1}, {2}, {}}, 1, false},
		{"ring", [][]int{{1}, {2}, {3}, {0}}, 1, true},
		{"hub", [][]int{{}, {0}, {0}, {0}}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, components := layEventRouters(t, c.dials...)
			from, n := (c.dies+1)%len(all), 0
			put := func() (id string) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				n++
				id = fmt.Sprint(n)
				if _, err := components[from].Put(ctx, &events.Event{ID: id, Type: "T"}); err != nil {
					t.Fatal(err)
				}
				return id
			}
			arrives := func(id string, but int) {
				t.Helper()
				for i, e := range all {
					if i != but {
						eventually(t, fmt.Sprintf("%s arrives at %d", id, i), func() bool { return e.got.has(id) })
					}
				}
			}
			for i, e := range all { // their demands have come here
				eventually(t, fmt.Sprintf("events arrive at %d", i), func() bool { return e.got.has(put()) })
			}
			all[c.dies].kill()
			var missed []string
			for range 5 {
				id := put()
				missed = append(missed, id)
				if c.around {
					arrives(id, c.dies)
				}
			}
			all[c.dies].run(t)
			for _, id := range append(missed, put()) {
				arrives(id, -1)
			}
			for i, e := range all {
				if e.got.twice > 0 && i != c.dies && i != from {
					t.Errorf("%d events came twice to %d", e.got.twice, i)
				}
			}
		})
	}
}
