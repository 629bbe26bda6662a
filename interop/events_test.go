package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	events "github.com/fingerpost/fingerpost/messenger/event"
)

// startEvents runs a router with components, and gives it with the address of its HTTP listener.
func startEvents(t *testing.T, name, config string) (*router, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	r := startRouter(t, name, "", "--http", "127.0.0.1:0", "--config", file)
	page, ok := strings.CutPrefix(r.line(), "ready http://")
	if !ok {
		t.Fatal("there is no HTTP listener")
	}
	return r, page
}

func managerURL(page string) string { return "ws://" + page + "/router/manager" }

// heardFrame is what the Python component prints.
type heardFrame struct {
	Op, Type, Direction, ID, Time string
	Replay                        bool
	Response                      *struct{ Status string }
}

func (p *process) heard() (s heardFrame) {
	p.t.Helper()
	line := p.line()
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		p.t.Fatalf("%q: %v", line, err)
	}
	return s
}

func startComponent(t *testing.T, page, name string, args ...string) *process {
	t.Helper()
	return start(t, "component "+name, pythonProgram, append([]string{filepath.Join(clients, "events", "component.py"), "--url", managerURL(page), "--name", name}, args...)...)
}

// runManager runs a manager of the Go package until the test ends.
func runManager(t *testing.T, m *events.Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	ready, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if err := m.Ready(ready); err != nil {
		t.Fatal(err)
	}
}

func newManager(t *testing.T, page, name string) *events.Manager {
	t.Helper()
	m, err := events.New(events.Options{URL: managerURL(page), Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A component in Python and one in Go speak with each other, and the table shows what they subscribed to.
func TestAComponentInPython(t *testing.T) {
	r, page := startEvents(t, "events", "")
	python := startComponent(t, page, "Mail Service", "--answer", "SendMail")
	if got := python.heard(); got.Op != "subscribed" {
		t.Fatalf("got %+v", got)
	}
	answers := make(chan *events.Event, 10)
	shop := newManager(t, page, "Shop")
	shop.Response("SendMail", func(_ context.Context, e *events.Event) (*events.Response, error) {
		answers <- e
		return nil, nil
	})
	runManager(t, shop)
	if _, err := shop.Put(t.Context(), &events.Event{ID: "1", Type: "SendMail", Data: json.RawMessage(`{"to":"ada"}`)}); err != nil {
		t.Fatal(err)
	}
	if got := python.heard(); got.ID != "1" || got.Direction != "request" {
		t.Errorf("got %+v", got)
	}
	select {
	case a := <-answers:
		if a.ID != "1" || string(a.Response.Data) != `{"by": "Mail Service"}` {
			t.Errorf("got %+v %s", a, a.Response.Data)
		}
	case <-time.After(patience):
		t.Fatal("no answer")
	}
	if list := r.ctl(t, "connections"); !strings.Contains(list, "event:Mail%20Service") || !strings.Contains(list, "component") {
		t.Errorf("the connections are\n%s", list)
	}
	if s := r.ctl(t, "status", "-o", "wide"); !strings.Contains(s, "componentsDisconnected") || !strings.Contains(s, "eventBytesKept") {
		t.Errorf("the status is\n%s", s)
	}
	rows := r.ctl(t, "list")
	for _, want := range []string{"event:req/SendMail", "event-conn:Mail%20Service", "event:Mail%20Service", "event:res/SendMail", "event-conn:Shop", "replay:ring"} {
		if !strings.Contains(rows, want) {
			t.Errorf("no %s in\n%s", want, rows)
		}
	}
}

// A receiver that is no component asks for what came before, by a filter of its source.
func TestAForeignReceiverWithFromTime(t *testing.T) {
	r, page := startEvents(t, "events", "")
	shop := newManager(t, page, "Shop")
	runManager(t, shop)
	var second time.Time
	for i := range 3 {
		at, err := shop.Put(t.Context(), &events.Event{ID: strconv.Itoa(i + 1), Type: "T"})
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			second = at
		}
	}
	recv := client(t, rhea, "recv", "--url", r.url(), "--address", "event:req/T", "--from", second.Format(time.RFC3339Nano), "--count", "3")
	recv.expect("attached")
	recv.expect("ready")
	for i, want := range []string{"2", "3", "4"} {
		if i == 2 {
			if _, err := shop.Put(t.Context(), &events.Event{ID: want, Type: "T"}); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprint(recv.expect("message")["id"]); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	refused := client(t, rhea, "recv", "--url", r.url(), "--address", "event:req/T", "--from", "yesterday")
	if got := fmt.Sprint(refused.next()); !strings.Contains(got, "invalid-field") {
		t.Errorf("got %s", got)
	}
}

// A component that is killed is started again by the router's action, and gets what came while it was away.
func TestE26AKilledComponentIsStartedAgain(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "again.log")
	script := filepath.Join(dir, "again.sh")
	component := filepath.Join(clients, "events", "component.py")
	// The second life ends by itself when it has seen everything.
	text := fmt.Sprintf("#!/bin/sh\n[ \"$EDRI_COMPONENT\" = Mail ] && [ -n \"$EDRI_FROM_TIME\" ] || exit 1\n"+
		"echo $$ >%s/pid\nexec timeout 60 %s %s --url \"$1\" --name Mail --listen T >%s 2>&1\n", dir, pythonProgram, component, log)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		text, _ := os.ReadFile(filepath.Join(dir, "pid"))
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			syscall.Kill(pid, syscall.SIGTERM) // timeout passes it on
		}
	})
	// The address is not known before the router runs: the script is told by a file.
	r, page := startEvents(t, "events", fmt.Sprintf("events: {restart: [{name: Mail, command: [/bin/sh, -c, 'exec %s \"$(cat %s/url)\"']}]}", script, dir))
	if err := os.WriteFile(filepath.Join(dir, "url"), []byte(managerURL(page)), 0o600); err != nil {
		t.Fatal(err)
	}
	mail := startComponent(t, page, "Mail", "--restart", "router", "--listen", "T")
	mail.heard()
	sender := newManager(t, page, "Sender")
	runManager(t, sender)
	put := func(id string) {
		t.Helper()
		if _, err := sender.Put(t.Context(), &events.Event{ID: id, Type: "T"}); err != nil {
			t.Fatal(err)
		}
	}
	put("1")
	if got := mail.heard(); got.ID != "1" {
		t.Errorf("got %+v", got)
	}
	mail.cmd.Process.Kill()
	<-mail.ended
	eventually(t, "the router knows", func() bool { return strings.Contains(r.log.String(), "a component is lost") }) // what it writes before that is handed over
	put("2")
	put("3")
	eventually(t, "the second life has 2 and 3", func() bool {
		text, _ := os.ReadFile(log)
		return strings.Contains(string(text), `"id": "2"`) && strings.Contains(string(text), `"id": "3"`)
	})
	if text, _ := os.ReadFile(log); strings.Contains(string(text), `"id": "1"`) {
		t.Errorf("what was handed over came again:\n%s", text)
	}
}
