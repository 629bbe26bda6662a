package interop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/house/tube"
	events "github.com/fingerpost/fingerpost/messenger/event"
)

// seenBy is a component that notes what it handles.
type seenBy struct {
	mu    sync.Mutex
	ids   map[string]bool
	twice int
}

func (s *seenBy) handle(_ context.Context, e *events.Event) (*events.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids[e.ID] {
		s.twice++
	}
	s.ids[e.ID] = true
	return nil, nil
}

func (s *seenBy) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[id]
}

// sent is an event that the first router has accepted.
type sent struct {
	id string
	at time.Time
}

// Two linked routers, a component on each, and a sender. Connections are cut and routers killed; nothing that was accepted is missing, but where the failure
// matrix says so: what a router that died had not passed on.
func TestEventsChaos(t *testing.T) {
	first, second, link := tube.Lay(t), tube.Lay(t), tube.Lay(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "first.yaml")
	text := fmt.Sprintf("events: {links: [{url: 'ws://%s/router/link'}]}", link.Address())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	startOne := func(name string, args ...string) (*router, string) {
		r := startRouter(t, name, "", append(args, "--http", "127.0.0.1:0")...)
		page, _ := strings.CutPrefix(r.line(), "ready http://")
		return r, page
	}
	b, pageB := startOne("second")
	second.Lead(pageB)
	link.Lead(pageB)
	a, pageA := startOne("first", "--config", config)
	first.Lead(pageA)

	near, far := &seenBy{ids: map[string]bool{}}, &seenBy{ids: map[string]bool{}}
	nearM, farM, sender := newManager(t, first.Address(), "Near"), newManager(t, second.Address(), "Far"), newManager(t, first.Address(), "Sender")
	nearM.Request("T", near.handle)
	farM.Request("T", far.handle)
	farM.Shareable("T")
	sender.Shareable("T")
	for _, m := range []*events.Manager{nearM, farM, sender} {
		runManager(t, m)
	}
	ready := func(m *events.Manager) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := m.Ready(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var all []sent
	n := 0
	put := func(d time.Duration) {
		for until := time.Now().Add(d); time.Now().Before(until); {
			id := fmt.Sprint(n)
			n++
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if _, err := sender.Put(ctx, &events.Event{ID: id, Type: "T"}); err == nil {
				all = append(all, sent{id, time.Now()})
			}
			cancel()
		}
	}
	// linked waits until what is put at the first router arrives at the second.
	linked := func() {
		t.Helper()
		eventually(t, "events cross", func() bool {
			put(time.Millisecond)
			return len(all) > 0 && far.has(all[len(all)-1].id)
		})
	}
	type span struct{ from, to time.Time }
	var deaths []span
	linked()
	for _, harm := range []string{"near", "far", "link", "link", "near", "second dies", "far", "link", "first dies", "near", "link"} {
		put(200 * time.Millisecond)
		began := time.Now()
		switch harm {
		case "near":
			first.Cut()
			ready(nearM)
			ready(sender)
		case "far":
			second.Cut()
			ready(farM)
		case "link":
			link.Cut()
			put(300 * time.Millisecond) // while it is down
		case "second dies":
			b.kill()
			b, pageB = startOne("second again")
			second.Lead(pageB)
			link.Lead(pageB)
			ready(farM)
			linked()
			deaths = append(deaths, span{began, time.Now()})
		case "first dies":
			a.kill()
			a, pageA = startOne("first again", "--config", config)
			first.Lead(pageA)
			ready(nearM)
			ready(sender)
			linked()
			deaths = append(deaths, span{began, time.Now()})
		}
	}
	linked()
	for name, s := range map[string]*seenBy{"near": near, "far": far} {
		if len(all) > 0 {
			eventually(t, name+" has the last", func() bool { return s.has(all[len(all)-1].id) })
		}
		missing := 0
		for _, e := range all {
			if s.has(e.id) {
				continue
			}
			missing++
			allowed := false
			for _, d := range deaths {
				allowed = allowed || e.at.After(d.from.Add(-time.Second)) && e.at.Before(d.to)
			}
			if !allowed {
				t.Errorf("%s never had %s, accepted at %v", name, e.id, e.at.Format("15:04:05.000"))
			}
		}
		s.mu.Lock()
		t.Logf("%s: %d accepted, %d missing, all of them around the death of a router; %d handled twice", name, len(all), missing, s.twice)
		s.mu.Unlock()
	}
	for _, d := range deaths {
		t.Logf("a router was dead or alone from %s to %s", d.from.Format("15:04:05.000"), d.to.Format("15:04:05.000"))
	}
}
