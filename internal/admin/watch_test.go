package admin_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// watching is a watcher that keeps a copy of the table by what it is told.
type watching struct {
	t          *testing.T
	w          *admin.Watch
	rows       map[string]string // identity → row
	generation uint64
	paging     bool // between missed, or the answer, and the last page
	log        []string
}

func watch(t *testing.T, core *admin.Core, caller admin.Caller, arguments wire.Map) *watching {
	t.Helper()
	r := core.Answer(caller, encode(t, wire.Message{
		Properties:            &wire.Properties{MessageID: "id", ReplyTo: "back", HasReplyTo: true},
		ApplicationProperties: wire.Map{{Key: "operation", Value: "WATCH"}, {Key: "type", Value: "table"}, {Key: "name", Value: "main"}},
		HasValue:              true, Value: arguments,
	}))
	if r.Watch == nil {
		t.Fatalf("no watch: %s", r.Message)
	}
	t.Cleanup(r.Watch.Close)
	var m wire.Message
	if err := m.Parse(r.Message); err != nil {
		t.Fatal(err)
	}
	g, _ := m.Value.(wire.Map).Get("generation")
	return &watching{t: t, w: r.Watch, rows: map[string]string{}, generation: g.(uint64)}
}

// take reads one message; false where there is none.
func (x *watching) take() bool {
	x.t.Helper()
	b, mark := x.w.Next()
	if b == nil {
		return false
	}
	var m wire.Message
	if err := m.Parse(b); err != nil {
		x.t.Fatal(err)
	}
	if m.Properties.To != "back" || m.Properties.CorrelationID != any("id") {
		x.t.Errorf("got to %q, correlation id %v", m.Properties.To, m.Properties.CorrelationID)
	}
	body := m.Value.(wire.Map)
	x.log = append(x.log, toJSON(body))
	get := func(key string) any { v, _ := body.Get(key); return v }
	list := func(key string) wire.List { l, _ := get(key).(wire.List); return l }
	event, _ := m.ApplicationProperties.Get("event")
	switch event {
	case "missed":
		x.rows, x.paging = map[string]string{}, true
		if from := get("generation").(uint64); from > x.generation {
			x.t.Errorf("missed from %d, and was at %d", from, x.generation)
		}
		return true
	case "snapshot":
		if g := get("generation").(uint64); g < x.generation {
			x.t.Errorf("a snapshot of generation %d behind %d", g, x.generation)
		}
		for _, r := range list("rows") {
			x.put(r.(wire.Map))
		}
		if get("last") == any(true) {
			x.paging, x.generation = false, get("generation").(uint64)
		}
	case "change":
		g := get("generation").(uint64)
		if g <= x.generation || x.paging {
			x.t.Errorf("a change of generation %d behind %d (paging %v)", g, x.generation, x.paging)
		}
		x.generation = g
		for _, r := range list("removed") {
			x.drop(r.(wire.Map))
		}
		for _, r := range list("updated") {
			before, _ := r.(wire.Map).Get("before")
			after, _ := r.(wire.Map).Get("after")
			x.drop(before.(wire.Map))
			x.put(after.(wire.Map))
		}
		for _, r := range list("added") {
			x.put(r.(wire.Map))
		}
	default:
		x.t.Errorf("event %v", event)
	}
	if !x.paging && mark != x.generation {
		x.t.Errorf("mark %d, want %d", mark, x.generation)
	}
	return true
}

func (x *watching) put(row wire.Map) {
	id, _ := row.Get("identity")
	if old, ok := x.rows[id.(string)]; ok {
		x.t.Errorf("row %v is told twice: %s", id, old)
	}
	x.rows[id.(string)] = toJSON(row)
}

func (x *watching) drop(row wire.Map) {
	id, _ := row.Get("identity")
	if _, ok := x.rows[id.(string)]; !ok {
		x.t.Errorf("row %v goes and was not there", id)
	}
	delete(x.rows, id.(string))
}

// same compares the copy with the table.
func (x *watching) same(core *admin.Core) {
	x.t.Helper()
	for x.take() {
	}
	var got, want []string
	for _, r := range x.rows {
		got = append(got, r)
	}
	y := watch(x.t, core, anAdmin, wire.Map{{Key: "snapshot", Value: true}})
	for y.take() {
	}
	want = slices.Collect(maps.Values(y.rows))
	y.w.Close()
	slices.Sort(got)
	slices.Sort(want)
	if len(want) != core.Table().Snapshot().Len() {
		x.t.Fatalf("a snapshot of %d rows, the table has %d", len(want), core.Table().Snapshot().Len())
	}
	if !slices.Equal(got, want) {
		x.t.Errorf("the copy is another table:\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
	if x.generation != core.Table().Generation() {
		x.t.Errorf("got generation %d, want %d", x.generation, core.Table().Generation())
	}
}

func TestWatchTellsEveryChangeInOrder(t *testing.T) {
	core := admin.New(routetable.New(), admin.Options{})
	w := watch(t, core, anAdmin, nil)
	if w.take() {
		t.Error("something is told before anything happened")
	}
	must(t, core, admin.Add{Route: routetable.NewRoute("A", "amqp://u:p@a")})
	must(t, core, admin.Add{Route: routetable.NewRoute("A", "amqp://u:p@a")}) // already there
	must(t, core, admin.Replace{Route: routetable.NewRoute("A", "amqp://b"), Columns: routetable.ColPick})
	must(t, core, admin.Subscribe{Pattern: "L", Address: "link:7", Origin: "link:7"})
	must(t, core, admin.Withdraw{Origin: "link:7"})
	select {
	case <-w.w.Ready():
	default:
		t.Error("a watch with changes is not ready")
	}
	w.same(core)
	if len(w.log) != 4 {
		t.Errorf("got %d messages, want 4: %s", len(w.log), strings.Join(w.log, "\n"))
	}
}

func must(t *testing.T, core *admin.Core, cmd admin.Command) {
	t.Helper()
	if _, err := core.Do(anAdmin, cmd); err != nil {
		t.Fatal(err)
	}
}

func TestViewersWatchMaskedAddresses(t *testing.T) {
	core := admin.New(routetable.New(), admin.Options{})
	must(t, core, admin.Add{Route: routetable.NewRoute("A", "amqp://u:secret@a")})
	w := watch(t, core, admin.Caller{User: "v", Role: admin.RoleViewer}, wire.Map{{Key: "snapshot", Value: true}})
	must(t, core, admin.Replace{Route: routetable.NewRoute("A", "amqp://u:secret@b")})
	must(t, core, admin.Delete{Pattern: "A", Address: "amqp://u:secret@b"})
	for w.take() {
	}
	if all := strings.Join(w.log, "\n"); strings.Contains(all, "secret") || strings.Count(all, "amqp://***@") < 4 {
		t.Errorf("got %s", all)
	}
}

// A watcher that takes nothing holds a bounded part of what happens, is told that it missed something, and then what the table is.
func TestSlowWatcherMissesAndGoesOn(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(core *admin.Core)
	}{
		{"by many changes", func(core *admin.Core) {
			for i := range 600 {
				must(t, core, admin.Add{Route: routetable.NewRoute(fmt.Sprintf("A%d", i), "amqp://a")})
			}
		}},
		{"by one large change", func(core *admin.Core) {
			f := &routetable.File{}
			for i := range 2500 {
				r := routetable.NewRoute(fmt.Sprintf("A%d", i), "amqp://a")
				r.Note = strings.Repeat("n", 2000)
				f.Routes = append(f.Routes, r)
			}
			must(t, core, admin.Load{File: f})
		}},
		{"by long texts", func(core *admin.Core) {
			for i := range 100 {
				must(t, core, admin.Add{Route: routetable.NewRoute(fmt.Sprintf("A%d", i)+strings.Repeat("x", 60_000), "amqp://a")})
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			core := admin.New(routetable.New(), admin.Options{})
			must(t, core, admin.Add{Route: routetable.NewRoute("FIRST", "amqp://first")})
			w := watch(t, core, anAdmin, nil)
			must(t, core, admin.Add{Route: routetable.NewRoute("SECOND", "amqp://second")})
			w.rows = map[string]string{} // of FIRST it does not know
			if !w.take() {
				t.Fatal("nothing told")
			}
			c.do(core)
			w.take()
			if want := `{"event":"missed","generation":2}`; w.log[1] != want {
				t.Fatalf("got %s, want %s", w.log[1], want)
			}
			w.take() // some of the snapshot
			must(t, core, admin.Add{Route: routetable.NewRoute("LATER", "amqp://later")})
			must(t, core, admin.Delete{Pattern: "FIRST", Address: "amqp://first"})
			w.same(core)
		})
	}
}

func TestMissedMessagesAreToldAgainAsASnapshot(t *testing.T) {
	core := admin.New(routetable.New(), admin.Options{})
	w := watch(t, core, anAdmin, nil)
	must(t, core, admin.Add{Route: routetable.NewRoute("A", "amqp://a")})
	must(t, core, admin.Add{Route: routetable.NewRoute("B", "amqp://b")})
	w.w.Next() // lost on the way
	w.w.Missed(w.w.Mark())
	w.same(core)
	if want := `{"event":"missed","generation":0}`; w.log[0] != want {
		t.Errorf("got %s, want %s", w.log[0], want)
	}
}

// Whatever happens, and whatever is lost, the copy that a watcher keeps becomes the table.
func TestWatchersCopyFollowsTheTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		core := admin.New(routetable.New(), admin.Options{})
		w := watch(t, core, anAdmin, wire.Map{{Key: "snapshot", Value: true}})
		mark := w.w.Mark()
		for range 400 {
			name, host := fmt.Sprintf("N%d", random.IntN(30)), fmt.Sprintf("amqp://h%d", random.IntN(3))
			switch random.IntN(12) {
			case 0, 1, 2, 3:
				core.Do(anAdmin, admin.Add{Route: routetable.NewRoute(name, host)})
			case 4:
				core.Do(anAdmin, admin.Delete{Pattern: name, Address: host})
			case 5:
				r := routetable.NewRoute(name, host)
				r.Note = host
				core.Do(anAdmin, admin.Replace{Route: r, Columns: routetable.ColNote})
			case 6:
				core.Do(anAdmin, admin.Insert{Route: routetable.NewRoute(name, host), Before: true, Anchor: "N1"})
			case 7:
				origin := fmt.Sprintf("link:%d", random.IntN(4))
				core.Do(anAdmin, admin.Subscribe{Pattern: name, Address: origin, Origin: origin})
			case 8:
				core.Do(anAdmin, admin.Withdraw{Origin: fmt.Sprintf("link:%d", random.IntN(4))})
			case 9:
				if random.IntN(20) == 0 {
					w.w.Missed(mark)
				}
			default:
				for range random.IntN(4) {
					w.take()
				}
			}
		}
		w.same(core)
		w.w.Close()
	}
}

func TestWatchesAreBounded(t *testing.T) {
	core := admin.New(routetable.New(), admin.Options{})
	request := encode(t, wire.Message{
		Properties:            &wire.Properties{ReplyTo: "back", HasReplyTo: true},
		ApplicationProperties: wire.Map{{Key: "operation", Value: "WATCH"}},
	})
	var open []*admin.Watch
	for {
		r := core.Answer(anAdmin, request)
		if r.Watch == nil {
			if got := statusDescription(t, r.Message); got != "WATCH: 64 watch already, no more are taken" {
				t.Errorf("got %q", got)
			}
			break
		}
		open = append(open, r.Watch)
	}
	if len(open) != 64 {
		t.Errorf("got %d watches", len(open))
	}
	open[0].Close()
	open[0].Close()
	r := core.Answer(anAdmin, request)
	if r.Watch == nil {
		t.Error("no room after one was closed")
	}
	if r := core.Answer(anAdmin, request); r.Watch != nil {
		t.Error("a second close made room again")
	}
	for _, w := range append(open, r.Watch) {
		w.Close()
	}
	if r := core.Answer(admin.Caller{}, request); r.Watch != nil {
		t.Error("a caller without a role watches")
	}
	noReply := encode(t, wire.Message{ApplicationProperties: wire.Map{{Key: "operation", Value: "WATCH"}}})
	if r := core.Answer(anAdmin, noReply); r.Watch != nil || r.Message != nil {
		t.Error("a watch without reply-to")
	}
}

func statusDescription(t *testing.T, message []byte) string {
	t.Helper()
	var m wire.Message
	if err := m.Parse(message); err != nil {
		t.Fatal(err)
	}
	s, _ := m.ApplicationProperties.Get("statusDescription")
	text, _ := s.(string)
	return text
}
