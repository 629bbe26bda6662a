package interop

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fingerpost/fingerpost/internal/house/certs"
)

// broker is a router with components, over TLS.
type broker struct {
	*router
	t       *testing.T
	dir     string
	ca      *certs.Authority
	grpc    string // HOST:PORT
	genesis string // https://HOST:PORT
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	b := &broker{t: t, dir: t.TempDir(), ca: certs.New(t)}
	b.write("ca.crt", b.ca.PEM)
	b.certify()
	objects, err := os.ReadFile("../testdata/components/components.yaml")
	if err != nil {
		t.Fatal(err)
	}
	b.write("components.yaml", objects)
	b.write("router.yaml", []byte(`
nats: "off"
components:
  file: components.yaml
  grpc: 127.0.0.1:0
  tls: {cert: router.crt, key: router.key}
  genesis: 127.0.0.1:0
  genesisTLS: {cert: router.crt, key: router.key}
`))
	b.begin()
	return b
}

func (b *broker) path(name string) string { return filepath.Join(b.dir, name) }

func (b *broker) write(name string, text []byte) {
	b.t.Helper()
	if err := os.WriteFile(b.path(name), text, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// certify gives the router another certificate.
func (b *broker) certify() {
	b.t.Helper()
	cert, key := b.ca.Issue(b.t, "router")
	b.write("router.key", key)
	b.write("router.crt", cert)
}

// begin starts the router, again after it was killed.
func (b *broker) begin() {
	b.t.Helper()
	b.router = startRouter(b.t, "broker", "", "--state", b.path("state"), "--config", b.path("router.yaml"))
	for _, l := range []struct {
		prefix string
		at     *string
	}{{"ready grpcs://", &b.grpc}, {"ready genesis+", &b.genesis}} {
		var ok bool
		if *l.at, ok = strings.CutPrefix(b.line(), l.prefix); !ok {
			b.t.Fatalf("no %s", l.prefix)
		}
	}
}

// hello starts two components in Node.
func (b *broker) hello() *process {
	b.t.Helper()
	p := start(b.t, "components in Node", nodeProgram, filepath.Join(clients, "components", "hello.mjs"), b.grpc, b.path("ca.crt"))
	if got := p.line(); got != "connected" {
		b.t.Fatalf("got %q", got)
	}
	return p
}

func (b *broker) pool() *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(b.ca.PEM)
	return &tls.Config{RootCAs: pool, NextProtos: []string{"h2"}}
}

// get is the status and the body of a request.
func (b *broker) get(path string, headers ...string) string {
	b.t.Helper()
	r, err := http.NewRequest("GET", b.genesis+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{TLSClientConfig: b.pool(), ForceAttemptHTTP2: true, DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport, Timeout: patience}).Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return fmt.Sprintf("%d %s %s", answer.StatusCode, answer.Header.Get("X-By"), strings.TrimSpace(string(body)))
}

func (b *broker) check(what string, want map[string]string) {
	b.t.Helper()
	for path, want := range want {
		if got := b.get(path); got != want {
			b.t.Errorf("%s: %s: got %q, want %q", what, path, got, want)
		}
	}
}

// serial is the number of the certificate that a listener shows.
func (b *broker) serial(address string) string {
	c, err := tls.Dial("tcp", address, b.pool())
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// Components in Node answer requests; what they throw, and what there is not, comes back as a failure.
func TestComponentsInNode(t *testing.T) {
	b := newBroker(t)
	b.hello()
	b.check("at first", map[string]string{
		"/prod/hello":                            "201 node Hello Universe!",
		"/qa/hello?kf-ve=qa&kf-dep=hello-main":   "201 node Hello World!",
		"/qa/hello":                              "404  route not found",
		"/prod/hello?kf-ve=qa":                   "400  invalid: event context is invalid",
		"/prod/hello?fail=1":                     "500  unexpected error: as you wish",
		"/prod/hello?of=nobody":                  "502  component mismatch",
		"/qa/hello?kf-ve=qa&kf-dep=hello-none":   `404  not found: AppDeployment "hello-none" not found`,
		"/qa/hello?kf-ve=none&kf-dep=hello-main": `404  not found: VirtualEnvironment "none" not found`,
	})
	// Another certificate is shown from the next connection on; streams that are there go on.
	old, genesis := b.serial(b.grpc), strings.TrimPrefix(b.genesis, "https://")
	b.certify()
	eventually(t, "both listeners show the new certificate", func() bool { return b.serial(b.grpc) != old && b.serial(genesis) != old })
	b.check("with another certificate", map[string]string{"/prod/hello": "201 node Hello Universe!"})
}

const nextDeployment = `
environments: {prod: {vars: {who: Everybody, sub: prod}, secrets: {key: {file: secret.txt}}}}
deployments:
  hello-next:
    app: hello
    components:
      frontend: {hash: aaaaaaa, routes: [{id: 0, rule: "PathPrefix(` + "`/{{.Vars.sub}}/next`" + `)"}], dependencies: {backend: {type: KubeFox}}}
      backend: {hash: bbbbbbb, defaultHandler: true, envVarSchema: {who: {required: true}}}
`

// What operators put survives that the router is killed, at the same revision, with who did it; the file is read again beside it.
func TestObjectsSurviveAKilledRouter(t *testing.T) {
	b := newBroker(t)
	b.write("next.yaml", []byte(nextDeployment))
	b.write("secret.txt", []byte("very-secret-indeed"))
	b.ctl(t, "component", "put", "-f", b.path("next.yaml"))
	b.ctl(t, "component", "release", "prod", "hello=hello-next")
	b.write("bad.yaml", []byte("environments: {prod: {vars: {sub: prod}}}"))
	if _, stderr, status := b.tryCtl(t, "component", "put", "-f", b.path("bad.yaml")); status != 1 || !strings.Contains(stderr, "VarNotFound AppDeployment hello-next $.spec.components.backend.envVarSchema.who") {
		t.Errorf("got %d %s", status, stderr)
	}
	list, history := b.ctl(t, "component", "list", "-o", "json"), b.ctl(t, "history")
	if !strings.Contains(history, " 1 object   component release prod hello=hello-next\n") || !strings.Contains(history, "127.0.0.1:") {
		t.Errorf("history: %s", history)
	}
	b.kill()
	b.begin()
	if again := b.ctl(t, "component", "list", "-o", "json"); again != list {
		t.Errorf("got %s, want %s", again, list)
	}
	if again := b.ctl(t, "history"); again != history {
		t.Errorf("got %s, want %s", again, history)
	}
	p := b.hello()
	b.check("in its next life", map[string]string{"/prod/next/x": "201 node Hello Everybody!", "/prod/hello": "404  route not found"})

	objects, err := os.ReadFile(b.path("components.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	b.write("components.yaml", []byte(strings.Replace(string(objects), "who: World", "who: Reloaded", 1)))
	b.cmd.Process.Signal(syscall.SIGHUP)
	eventually(t, "the file is read again", func() bool { return b.get("/qa/hello?kf-ve=qa&kf-dep=hello-main") == "201 node Hello Reloaded!" })
	b.check("after a reload", map[string]string{"/prod/next/x": "201 node Hello Everybody!"})

	b.ctl(t, "rollback", "0")
	eventually(t, "the rollback is followed", func() bool { return b.get("/prod/hello") == "201 node Hello Universe!" })
	b.check("after the rollback", map[string]string{"/prod/next/x": "404  route not found"})
	p.stop()
	if got := b.get("/prod/hello"); got != "502  component gone" {
		t.Errorf("without components: got %q", got)
	}
	b.stop()
	filepath.WalkDir(b.path("state"), func(path string, d os.DirEntry, err error) error {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), "very-secret") {
			t.Errorf("%s has a secret in it", path)
		}
		return nil
	})
	if strings.Contains(b.log.String()+list+history, "very-secret") {
		t.Error("a secret was told")
	}
}

// The components of the README answer as it says.
func TestTheComponentsOfTheReadme(t *testing.T) {
	script := block(t, "## Components", "sh")
	var want []string
	for line := range strings.Lines(script) {
		if command, comment, ok := strings.Cut(line, "# "); ok && strings.HasPrefix(command, "curl ") {
			answer, _, _ := strings.Cut(strings.TrimSpace(comment), ": ")
			want = append(want, answer)
		}
	}
	var got []string
	for line := range strings.Lines(newStage(t).play(script)) {
		for _, answer := range want {
			if strings.HasPrefix(line, answer) {
				got = append(got, answer)
				break
			}
		}
	}
	if len(want) < 5 || strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("got %q, the README says %q", got, want)
	}
}
