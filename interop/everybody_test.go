package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	events "github.com/fingerpost/fingerpost/messenger/event"
	"github.com/fingerpost/fingerpost/messenger/relay"
)

// rembusSubscriber is a component of Rembus, in Python, that subscribes and stays.
const rembusSubscriber = `
import asyncio, sys
sys.path.insert(0, 'rembus')
from component import Component
async def main():
    c = await Component.connect(sys.argv[1], 'reader')
    await c.subscribe('news/*')
    await c.reactive()
    print('subscribed', flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
`

// everybody is what a page tells of who is at a router, as class and name, and what it says of rows and events.
type everybody struct {
	Components []struct{ Name string }
	Links      []struct{ Router string }
	AMQP       []struct {
		Class, Address string
		Outbound       *struct{ Depth int }
	}
	Peers  []struct{ Class, Name, Remote string }
	Hops   []struct{ Hop string }
	Shared []struct {
		Type     string
		Handlers []string
	}
	Unread []string
	Data   struct {
		Statuses []struct{ Name, Class, Status string }
	}
}

func readPage(t *testing.T, url string) (v everybody) {
	t.Helper()
	q, err := http.NewRequestWithContext(within(t), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return v
}

// The pages tell of everybody who is at a router, whatever they speak.
func TestThePagesTellOfEverybody(t *testing.T) {
	t.Parallel()
	objects, err := filepath.Abs("../testdata/components/components.yaml")
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(relayFiles(t), "keys.json")
	config := filepath.Join(t.TempDir(), "router.yaml")
	text := fmt.Sprintf("{nats: 'off', components: {file: %q, grpc: '127.0.0.1:0'}, relay: {keys: %q}}", objects, keys)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := startRouter(t, "everybody", "", "--http", "127.0.0.1:0", "--listen", "rembus+ws://127.0.0.1:0", "--config", config)
	ready := map[string]string{}
	for range 3 {
		scheme, address, _ := strings.Cut(strings.TrimPrefix(r.line(), "ready "), "://")
		ready[scheme] = address
	}
	page := ready["http"]
	startEvents(t, "other", "events: {links: [{url: 'ws://"+page+"/router/link'}]}")
	for _, name := range []string{"Mail", "Audit"} {
		m := newManager(t, page, name)
		m.Request("Order", func(context.Context, *events.Event) (*events.Response, error) { return nil, nil })
		runManager(t, m)
		if _, err := m.Put(t.Context(), &events.Event{ID: name, Type: "Lost"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := start(t, "components in Node", nodeProgram, filepath.Join(clients, "components", "hello.mjs"), ready["grpc"]).line(); got != "connected" {
		t.Fatalf("components: %q", got)
	}
	if got := start(t, "a subscriber of Rembus", pythonProgram, "-c", rembusSubscriber, "ws://"+ready["rembus+ws"]).line(); got != "subscribed" {
		t.Fatalf("Rembus: %q", got)
	}
	server, err := relay.Connect(t.Context(), relay.Options{URL: "ws://" + page, Domain: "acme", Token: relayToken(t, "server")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	client(t, rhea, "recv", "--url", r.url(), "--address", "event:req/Order").expect("attached")
	r.ctl(t, "add", "event:req/Order", "route:nobody")
	r.ctl(t, "add", "event:req/Order", "topic:news/orders")

	for verb, want := range map[string]string{"unrouted": "2 event:req/Lost not wired", "status": "eventsUnrouted 2"} {
		if got := strings.Join(strings.Fields(r.ctl(t, verb)), " "); !strings.Contains(got, want) {
			t.Errorf("%s tells %s", verb, got)
		}
	}

	var v everybody
	eventually(t, "the other router is linked", func() bool {
		v = readPage(t, "http://"+page+"/topology")
		return len(v.Links) == 1
	})
	var got []string
	for _, c := range v.Components {
		got = append(got, "component "+c.Name)
	}
	for _, l := range v.AMQP {
		if l.Class == "receiver" && l.Outbound != nil {
			got = append(got, "receiver "+l.Address)
		}
	}
	for _, p := range v.Peers {
		name, _, _ := strings.Cut(p.Name, "@")
		if p.Remote != "" {
			got = append(got, p.Class+" "+name)
		}
	}
	slices.Sort(got)
	if want := []string{"component Audit", "component Mail", "grpc hello/backend", "grpc hello/frontend", "receiver event:req/Order", "relay acme", "rembus reader"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(v.Shared) != 1 || len(v.Shared[0].Handlers) != 5 {
		t.Errorf("shared: %v", v.Shared)
	}
	if !slices.Equal(v.Unread, []string{"route:nobody"}) {
		t.Errorf("unread: %q", v.Unread)
	}
	got = got[:0]
	for _, s := range readPage(t, "http://"+page+"/health").Data.Statuses {
		got = append(got, s.Class)
	}
	if want := []string{"component", "component", "receiver", "grpc", "grpc"}; !slices.Equal(got, want) {
		t.Errorf("health: got %q, want %q", got, want)
	}
}
