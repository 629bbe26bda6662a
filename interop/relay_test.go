package interop

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/house/certs"
	"github.com/fingerpost/fingerpost/internal/websocket"
)

// relayRouter is a router with a relay, and the keys of the conformance driver.
type relayRouter struct {
	*router
	web string // ws:// or wss://HOST:PORT
}

func relayFiles(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "testdata", "relay"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "ws")); err != nil {
		t.Fatalf("%v: make parts installs it", err)
	}
	return dir
}

func startRelay(t testing.TB, args ...string) *relayRouter {
	t.Helper()
	keys := filepath.Join(relayFiles(t), "keys.json")
	r := &relayRouter{router: startRouter(t, "relay", "", append([]string{"--http", "127.0.0.1:0", "--relay-keys", keys}, args...)...)}
	scheme, addr, ok := strings.Cut(strings.TrimPrefix(r.line(), "ready http"), "://")
	if !ok {
		t.Fatal("the router has no HTTP listener")
	}
	r.web = "ws" + scheme + "://" + addr
	return r
}

// drive runs the conformance driver on a router. No case may fail, of those that must and of those that should.
func (r *relayRouter) drive(t *testing.T, args ...string) {
	t.Helper()
	dir := relayFiles(t)
	args = append([]string{filepath.Join(dir, "driver.mjs"), "--url", r.web, "--strict", "--cases", "cases.yaml", "--cases", "more.yaml"}, args...)
	cmd := exec.Command(nodeProgram, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil {
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "ok ") && !strings.HasPrefix(line, "skip ") {
				t.Log(strings.TrimSpace(line))
			}
		}
		t.Fatalf("the conformance driver: %v", err)
	}
	if !strings.Contains(text, "must: ") || strings.Contains(text, "must: 0 passed") {
		t.Fatalf("the conformance driver has checked nothing:\n%s", text)
	}
}

func TestRelayConformance(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	r.drive(t)
	for _, want := range []string{"relay_connections 0", `relay_ops_total{op="head",result="ok"}`, `relay_ops_total{op="body",result="unavailable"}`, "relay_refused_connections_total"} {
		if page := httpGet(t, "http"+strings.TrimPrefix(r.web, "ws")+"/metrics"); !strings.Contains(page, "fingerpost_"+want) {
			t.Errorf("/metrics does not tell of %s", want)
		}
	}
}

func httpGet(t testing.TB, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return string(text)
}

// relayPeer is a client or a server of the relay.
type relayPeer struct {
	t  testing.TB
	ws *websocket.Conn
}

func (r *relayRouter) dial(t testing.TB, token string, tlsConfig *tls.Config) *relayPeer {
	t.Helper()
	return r.dialIn(t, "acme", token, tlsConfig)
}

func (r *relayRouter) dialIn(t testing.TB, domain, token string, tlsConfig *tls.Config) *relayPeer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := websocket.Dial(ctx, r.web+"/api/"+domain+"/relay/connect?token="+token, websocket.DialOptions{TLS: tlsConfig})
	if err != nil {
		t.Fatal(err)
	}
	p := &relayPeer{t, c}
	t.Cleanup(func() { c.End(websocket.Normal, "") })
	return p
}

func (p *relayPeer) send(ops string) {
	p.ws.Lock()
	p.ws.Append(true, []byte(ops))
	p.ws.Flush()
	p.ws.Unlock()
}

// expect reads a message with all these in it.
func (p *relayPeer) expect(parts ...string) {
	p.t.Helper()
	timer := time.AfterFunc(patience, func() { p.ws.Abort(os.ErrDeadlineExceeded) })
	defer timer.Stop()
	m, _, err := p.ws.Next()
	if err != nil {
		p.t.Fatalf("wanted %q: %v", parts, err)
	}
	for _, part := range parts {
		if !strings.Contains(string(m.Data), part) {
			p.t.Fatalf("got %s, without %s", m.Data, part)
		}
	}
}

const serveEcho, roleActive, roleStandby, roleNone = `[{"op":"serve","topic":"echo","ref":"1"}]`, `"role":"active"`, `"role":"standby"`, `"role":"none"`

// What an operator does by routectl shows at once as roles, and learned rows show in the views.
func TestRelayRolesByRoutectl(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	a, b := r.dial(t, "cf-full-7Jq2", nil), r.dial(t, "cf-full-7Jq2", nil)
	a.send(serveEcho)
	a.expect(`"serve:ok"`, roleActive)
	b.send(serveEcho)
	b.expect(`"serve:ok"`, roleStandby)
	var rows []struct{ Pattern, Address, Pick, Origin string }
	if err := json.Unmarshal([]byte(r.ctl(t, "list", "--pattern", "relay:acme/echo", "-o", "json")), &rows); err != nil || len(rows) != 2 {
		t.Fatalf("%v: %+v", err, rows)
	}
	first, second := rows[0], rows[1]
	if first.Pick != "first" || first.Address != "relay-conn:"+strings.TrimPrefix(first.Origin, "relay:") {
		t.Errorf("the row of a serve: %+v", first)
	}
	if out := r.ctl(t, "list", "--origin", first.Origin); !strings.Contains(out, "relay:acme/echo") || strings.Contains(out, second.Address) {
		t.Errorf("list --origin:\n%s", out)
	}
	if out := r.ctl(t, "connections"); !strings.Contains(out, "relay") || strings.Contains(out, "cf-full-7Jq2") {
		t.Errorf("connections:\n%s", out)
	}
	r.ctl(t, "set", first.Pattern, second.Address, "--order", "-1", "--origin", second.Origin)
	b.expect(`"op":"role"`, roleActive)
	a.expect(`"op":"role"`, roleStandby)
	r.ctl(t, "delete", first.Pattern, second.Address, "--origin", second.Origin)
	b.expect(roleNone)
	a.expect(roleActive)
	r.ctl(t, "insert", first.Pattern, second.Address, "--before", first.Pattern, "--pick", "first")
	b.expect(roleActive)
	a.expect(roleStandby)
	r.ctl(t, "delete", first.Pattern, second.Address)
	b.expect(roleNone)
	a.expect(roleActive)
	r.ctl(t, "add", "relay:acme/*", second.Address, "--pick", "first", "--order", "-1")
	b.expect(roleActive)
	a.expect(roleStandby)
	if strings.Contains(r.log.String(), "cf-full-7Jq2") {
		t.Error("a token is in the log")
	}
}

// The HTTP listener has TLS, whose certificate is read again when it changes; keys too, and bad ones leave the old in force.
func TestRelayOverTLSWithKeysThatChange(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), certs.New(t)
	write := func(name string, text []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name+".new"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	issue := func() {
		cert, key := ca.Issue(t, "router")
		write("router.key", key)
		write("router.crt", cert)
	}
	issue()
	keys, err := os.ReadFile(filepath.Join(relayFiles(t), "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	write("keys.json", keys)
	write("router.yaml", []byte("listeners: [{url: \"amqp://127.0.0.1:0\"}]\nhttp: {listen: 127.0.0.1:0, tls: {cert: router.crt, key: router.key}}\nrelay: {keys: keys.json}\n"))
	p := start(t, "router", routerProgram, "--config", filepath.Join(dir, "router.yaml"))
	p.line()
	addr, ok := strings.CutPrefix(p.line(), "ready https://")
	if !ok {
		t.Fatal("no HTTPS")
	}
	r := &relayRouter{router: &router{process: p}, web: "wss://" + addr}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	config := &tls.Config{RootCAs: pool, ServerName: "localhost"}
	s, c := r.dial(t, "cf-server-Lw0e", config), r.dial(t, "cf-client-b91X", config)
	s.send(serveEcho)
	s.expect(`"serve:ok"`, roleActive)
	for i := range 20 {
		c.send(fmt.Sprintf(`[{"op":"body","topic":"echo","id":"r","data":"%s","ref":%d}]`, strings.Repeat("x", i*20_000), i))
		s.expect(`"op":"body"`)
		c.expect(`"body:ok"`, fmt.Sprintf(`"ref":%d`, i))
	}
	write("keys.json", []byte(`{"keys": {"a": {"token": "cf-server-Lw0e"`))
	eventually(t, "bad keys are refused", func() bool { return strings.Contains(p.log.String(), "refused: what was before stays in force") })
	c.send(`[{"op":"head","topic":"echo","id":"r","ref":"after"}]`)
	s.expect(`"op":"head"`)
	c.expect(`"head:ok"`)
	write("keys.json", []byte(strings.Replace(string(keys), `"token": "cf-client-b91X"`, `"token": "another"`, 1)))
	if _, _, err := c.ws.Next(); !closedWith(err, websocket.BadPolicy) {
		t.Errorf("the connection of a key that is gone: %v", err)
	}
	serial := func() string {
		nc, err := tls.Dial("tcp", addr, config)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		return nc.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	was := serial()
	issue()
	eventually(t, "the new certificate is shown", func() bool { return serial() != was })
	s.send(serveEcho)
	s.expect(`"serve:ok"`)
}

func closedWith(err error, code int) bool {
	ce, ok := errors.AsType[*websocket.CloseError](err)
	return ok && ce.Code == code
}
