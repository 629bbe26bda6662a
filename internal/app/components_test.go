package app

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

const componentsFile = `
platform: lab
environments: {prod: {vars: {sub: prod}}}
virtualEnvironments: {prod: {environment: prod, release: {hello: {appDeployment: main}}}}
deployments: {main: {app: hello, components: {web: {hash: aaaa, routes: [{id: 0, rule: "PathPrefix('/{{.Vars.sub}}')"}]}}}}
`

// A router with a broker of components: its listeners, its file read again, a bad one refused.
func TestComponents(t *testing.T) {
	d := newDesk(t)
	good := strings.ReplaceAll(componentsFile, "'", "`")
	d.write("components.yaml", good)
	config := Config{
		State: d.path("state"), NATS: NATS{Listen: "127.0.0.1:0"}, HTTP: HTTP{Listen: "127.0.0.1:0"},
		Components: Components{File: d.path("components.yaml"), GRPC: "127.0.0.1:0", Genesis: "127.0.0.1:0"},
	}
	var ready bytes.Buffer
	a, err := Start(func() (Config, error) { return config, nil }, slog.New(slog.NewTextHandler(d.log, nil)), &ready)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	if got := ready.String(); !strings.Contains(got, "ready grpc://127.0.0.1:") || !strings.Contains(got, "ready genesis+http://127.0.0.1:") {
		t.Errorf("got %q", got)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path, want string) {
		t.Helper()
		r, err := client.Get("http://" + a.components.genesis.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Status[:4]+string(body) != want {
			t.Errorf("%s: got %s %s, %v; want %s", path, r.Status, body, err, want)
		}
	}
	get("/prod/x", "502 component gone")
	get("/other", "404 route not found")
	d.write("components.yaml", strings.Replace(good, "sub: prod", "sub: other", 1))
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	get("/other", "502 component gone")
	wantCounters(t, client, a, "component_requests_total 3", "component_events_total 3", "component_streams 0", `component_failures_total{reason="component_gone"} 2`, `component_failures_total{reason="route_not_found"} 1`)
	d.write("components.yaml", "platform: lab\ncolour: red\n")
	if err := a.Reload(); err == nil || !strings.Contains(err.Error(), "colour") {
		t.Errorf("got %v", err)
	}
	get("/other", "502 component gone")
	if err := Check(config); err == nil || !strings.Contains(err.Error(), "colour") {
		t.Errorf("check: got %v", err)
	}
}

// wantCounters looks for lines of /metrics, where all that is counted is told in words of its own.
func wantCounters(t *testing.T, client *http.Client, a *App, lines ...string) {
	t.Helper()
	r, err := client.Get("http://" + a.http.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	page, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range lines {
		if !strings.Contains(string(page), "\nfingerpost_"+want+"\n") {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	for line := range strings.Lines(string(page)) {
		if strings.Contains(line, " The counter ") {
			t.Errorf("no help: %s", line)
		}
	}
}

// Requests come in by HTTP/2 and by HTTP/1.1 where there is a certificate.
func TestRequestsOverTLS(t *testing.T) {
	d, ca := newDesk(t), newAuthority(t)
	cert, key := ca.issue("router")
	files := "{cert: " + d.keep("cert.pem", cert) + ", key: " + d.keep("key.pem", key) + "}"
	d.write("components.yaml", strings.ReplaceAll(componentsFile, "'", "`"))
	d.write("router.yaml", "nats: off\nlisteners: [{url: \"amqp://127.0.0.1:0\"}]\ncomponents: {file: components.yaml, genesis: \"127.0.0.1:0\", genesisTLS: "+files+"}\n")
	a, _ := d.start(d.path("router.yaml"))
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	for version, set := range map[string]func(*http.Protocols, bool){"HTTP/2.0": (*http.Protocols).SetHTTP2, "HTTP/1.1": (*http.Protocols).SetHTTP1} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, Protocols: new(http.Protocols)}
		set(transport.Protocols, true)
		r, err := (&http.Client{Transport: transport}).Get("https://" + a.components.genesis.Addr().String() + "/other")
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil || r.Proto != version || r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: got %s %s, %v", version, r.Proto, r.Status, err)
		}
		r.Body.Close()
		transport.CloseIdleConnections()
	}
}

func TestComponentsConfiguration(t *testing.T) {
	for text, want := range map[string]string{
		"{grpc: '127.0.0.1:1'}":                      "components.grpc: it needs components.file",
		"{file: c.yaml, genesis: x}":                 "components.genesis",
		"{file: c.yaml, expiredStatus: 200}":         "components.expiredStatus",
		"{file: c.yaml, subjects: old}":              "components.subjects",
		"{file: c.yaml, ttl: -1s}":                   "components.ttl",
		"{file: c.yaml, maxEvent: 1GiB}":             "components.maxEvent",
		"{file: c.yaml, queue: -1}":                  "components.queue",
		"{file: c.yaml, tokenReview: {url: x}}":      "components.tokenReview.url",
		"{file: c.yaml, tokenReview: {urls: x}}":     "urls",
		"{}\nnats: http://x":                         "line 2: column 7: nats",
		"{}\nnats: {urls: x}":                        `unknown key "urls"`,
		"{}\nnats: {url: nats://a, listen: 'b:1'}":   "nats.listen: it is for a server of one's own",
		"{}\nnats: {listen: b}":                      "nats.listen",
		"{}\nnats: {routes: [nats://a:1]}":           "nats.routes: they need cluster",
		"{}\nnats: {cluster: ':1', routes: [a]}":     "nats.routes[0]",
		"{}\nnats: {url: nats://a, user: x}":         "nats.user: a user needs a password",
		"{}\nnats: {tokenEnv: A, nkey: b}":           "nats.nkey: one login is enough",
		"{}\nnats: {nkey: b}":                        "nats.nkey: a server of one's own",
		"{}\nnats: {tls: {ca: b}}":                   "nats.tls: a server of one's own needs cert and key",
		"{}\nnats: {url: nats://a, tls: {key: b}}":   "nats.tls: cert and key",
		"{}\nnats: {replicas: 7}":                    "nats.replicas",
		"{file: /nowhere/c.yaml, grpc: '1.2.3.4:1'}": "no such file",
	} {
		c, err := parseConfig([]byte("components: " + text))
		if err == nil {
			err = Check(c)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
