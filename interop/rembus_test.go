package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/house/certs"
)

// startRembus runs a router with listeners of Rembus; more is more of its configuration. It gives the URLs of the listeners, in order, as clients have them.
func startRembus(t testing.TB, name, more string, listeners ...string) (r *router, urls []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".yaml")
	text := "name: " + name + "\nlisteners: [" + strings.Join(listeners, ", ") + "]\n" + more
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r = &router{process: start(t, "router "+name, routerProgram, "--config", file)}
	for range listeners {
		url, ok := strings.CutPrefix(r.line(), "ready ")
		if !ok {
			t.Fatalf("router %s is not ready: it printed %q", name, url)
		}
		if addr, ok := strings.CutPrefix(url, "amqp://"); ok {
			r.addr = addr
		}
		urls = append(urls, strings.TrimPrefix(url, "rembus+"))
	}
	return r, urls
}

func listener(scheme, more string) string {
	return fmt.Sprintf("{url: '%s://127.0.0.1:0'%s}", scheme, more)
}

// Components of Rembus whose bytes are made by other libraries: what they are promised, they get.
func TestRembusComponents(t *testing.T) {
	t.Parallel() // it waits for acks that do not come
	_, urls := startRembus(t, "hub", "mesh: {tenants: {'.': '112233'}, ackTimeout: 3s, sendRetries: 3}", listener("rembus+ws", ""), listener("rembus+tcp", ""))
	checks(t, append(urls, "112233")...)
}

// The same under TLS.
func TestRembusComponentsUnderTLS(t *testing.T) {
	t.Parallel() // it waits for acks that do not come
	ca, dir := certs.New(t), t.TempDir()
	cert, key := ca.Issue(t, "hub")
	for name, text := range map[string][]byte{"cert": cert, "key": key, "ca": ca.PEM} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tls := fmt.Sprintf(", tls: {cert: '%s/cert', key: '%s/key'}", dir, dir)
	_, urls := startRembus(t, "hub", "mesh: {tenants: {'.': '112233'}, ackTimeout: 3s, sendRetries: 3}", listener("rembus+wss", tls), listener("rembus+tls", tls))
	checks(t, append(urls, "112233", filepath.Join(dir, "ca"))...)
}

// checks runs the checks of a broker.
func checks(t *testing.T, args ...string) {
	t.Helper()
	p := start(t, "rembus checks", pythonProgram, append([]string{"rembus/checks.py"}, args...)...)
	n := 0
	for l := p.line(); l != "done"; l = p.line() {
		n++
	}
	if n < 20 {
		t.Errorf("%d checks", n)
	}
}

// Two routers in a mesh, with components of other libraries at each.
func TestRembusAcrossRouters(t *testing.T) {
	_, hub := startRembus(t, "hub", "", listener("rembus+ws", ""))
	_, leaf := startRembus(t, "leaf", fmt.Sprintf("mesh: {peers: [{url: '%s', as: leaf}]}", hub[0]), listener("rembus+ws", ""))
	for _, urls := range [][]string{{hub[0], leaf[0]}, {leaf[0], hub[0]}} {
		p := start(t, "rembus across", pythonProgram, append([]string{"rembus/across.py"}, urls...)...)
		for _, want := range []string{"publishes", "topic spaces", "requests", "withdrawals", "done"} {
			if got := p.line(); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	}
}

// The README's two routers and components, as written.
func TestTheMeshOfTheReadme(t *testing.T) {
	out := newStage(t).play(block(t, "## Join a Rembus mesh", "sh"))
	for _, want := range []string{"news/* ['news/today', 'hello', 42]\n", "3\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("got %q, want %q", out, want)
		}
	}
}

// Components of Rembus and those who ask by HTTP.
func TestRembusByHTTP(t *testing.T) {
	keys := t.TempDir()
	if err := os.WriteFile(filepath.Join(keys, "keeper"), []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	more := fmt.Sprintf("http: {listen: '127.0.0.1:0'}\nmesh: {keys: '%s', admins: [keeper], httpSubscribe: true}", keys)
	r, urls := startRembus(t, "hub", more, listener("rembus+ws", ""))
	web := strings.TrimPrefix(r.line(), "ready ")
	p := start(t, "rembus by http", pythonProgram, "rembus/gateway.py", urls[0], web, "s3cret")
	for _, want := range []string{"publishes", "requests", "JSON-RPC", "commands", "configuration", "done"} {
		if got := p.line(); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

// A router that is killed knows afterwards what components have sent, and what is on its way to them.
func TestRembusAfterAKill(t *testing.T) {
	state := "state: " + t.TempDir()
	r, urls := startRembus(t, "hub", state, listener("rembus+ws", ""))
	p := start(t, "rembus components", pythonProgram, "rembus/killed.py", urls[0])
	if got := p.line(); got != "sent" {
		t.Fatalf("got %q", got)
	}
	r.kill()
	startRembus(t, "hub", state, "{url: 'rembus+"+urls[0]+"'}")
	fmt.Fprintln(p.stdin, "it is there again")
	if got := p.line(); got != "done" {
		t.Fatalf("got %q", got)
	}
}
