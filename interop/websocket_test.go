package interop

import (
	"slices"
	"strings"
	"testing"
)

// A foreign client over WebSocket, by both doors for it, and one over TCP understand each other.
func TestForeignClientsOverWebSocket(t *testing.T) {
	r := startRouter(t, "web", "", "--listen", "ws://127.0.0.1:0", "--http", "127.0.0.1:0")
	listener, ok := strings.CutPrefix(r.line(), "ready ")
	page, isHTTP := strings.CutPrefix(r.line(), "ready http://")
	if !ok || !strings.HasPrefix(listener, "ws://") || !isHTTP {
		t.Fatalf("got %q, %q", listener, page)
	}
	path := "ws://" + page + "/amqp"
	b := batchOf{id: "m", count: 12, sizes: []int{0, 1, 100, 5_000, 65_000, 70_000, 300_000}}
	for _, c := range []struct {
		name             string
		from, to, target string
	}{
		{"the listener to the path", listener, path, "a"},
		{"the path to the listener", path, listener, "b"},
		{"TCP to WebSocket", r.url(), path, "c"},
		{"WebSocket to TCP", listener, r.url(), "d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wait := receiveBy(t, rhea, c.to, c.target, b.count)
			b := b
			b.address, b.to = c.target, c.target
			if got := sendBy(t, rhea, c.from, b); slices.ContainsFunc(got, func(o string) bool { return o != "accepted" }) {
				t.Errorf("outcomes %v", got)
			}
			if got := wait(); !slices.Equal(got, b.want()) {
				t.Errorf("got %v\nwant %v", got, b.want())
			}
		})
	}
	for _, url := range []string{listener, "ws://" + page} {
		if out, stderr, status := r.tryCtl(t, "--url", url, "add", "X-"+url[len(url)-5:], "null"); status != 0 {
			t.Errorf("routectl --url %s: %d %s%s", url, status, out, stderr)
		}
	}
	if _, stderr, status := r.tryCtl(t, "--url", "ws://"+page+"/nowhere", "list"); status != 3 || strings.Count(stderr, "\n") != 1 {
		t.Errorf("a path where there is no WebSocket: %d %q", status, stderr)
	}
	f := readBench(t, r.ctl(t, "--url", listener, "bench", "-o", "json", "--warmup", "1ms", "--duration", "200ms")).Peer
	if f.Messages == 0 || f.Lost != 0 || f.Duplicates != 0 {
		t.Errorf("bench over WebSocket: %+v", f)
	}
}
