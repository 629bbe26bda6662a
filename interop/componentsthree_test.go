package interop

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// brokerRouter is a router with a broker of components.
type brokerRouter struct {
	*process
	config           string
	nats, grpc, http string // HOST:PORT of each; nats is empty where it has no listener
}

const labObjects = `
platform: lab
adapters: [{name: httpsrv, type: HTTPAdapter, hash: debug, token: adapter-token}]
environments: {prod: {vars: {who: Universe}}}
virtualEnvironments: {prod: {environment: prod, release: {hello: {appDeployment: main}}}}
deployments:
  main:
    app: hello
    components:
      frontend: {hash: aaaaaaaaaaaa, routes: [{id: 3, rule: "Path('/hello/{x}')"}], dependencies: {backend: {type: KubeFox}}}
      backend: {hash: bbbbbbbbbbbb, defaultHandler: true, envVarSchema: {who: {required: true}}}
      own: {hash: cccccccccccc}
components:
  - {app: hello, name: frontend, hash: aaaaaaaaaaaa, token: frontend-token, dialect: FRONTEND}
  - {app: hello, name: backend, hash: bbbbbbbbbbbb, token: backend-token, dialect: BACKEND}
  - {app: hello, name: own, hash: cccccccccccc, token: own-token}
`

// startBroker runs a router with a broker; more is further lines of its configuration, with NATS. dialects are those of the frontend and the backend.
func startBroker(t *testing.T, name, dialects, more string) *brokerRouter {
	t.Helper()
	dir := t.TempDir()
	b := &brokerRouter{config: filepath.Join(dir, "router.yaml")}
	front, back, _ := strings.Cut(dialects, " ")
	for file, text := range map[string]string{
		"components.yaml": strings.NewReplacer("'", "`", "FRONTEND", front, "BACKEND", back).Replace(labObjects),
		"router.yaml":     "name: " + name + "\nlisteners: [{url: \"amqp://127.0.0.1:0\"}]\n" + more + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.run(t, name)
	return b
}

// brokerKeys are the configuration of a broker whose requests live so long.
func brokerKeys(ttl string) string {
	return "components: {file: components.yaml, grpc: \"127.0.0.1:0\", genesis: \"127.0.0.1:0\", ttl: " + ttl + "}\n"
}

// run starts it, also again.
func (b *brokerRouter) run(t *testing.T, name string) {
	t.Helper()
	b.process = start(t, "router "+name, routerProgram, "--config", b.config)
	b.nats = ""
	for b.http = ""; b.http == ""; {
		line := b.line()
		for prefix, to := range map[string]*string{"ready nats://": &b.nats, "ready grpc://": &b.grpc, "ready grpcs://": &b.grpc, "ready genesis+http://": &b.http} {
			if at, ok := strings.CutPrefix(line, prefix); ok {
				*to = at
			}
		}
	}
}

// get makes a request, and gives status and body.
func (b *brokerRouter) get(path string, headers ...string) (status int, text string, err error) {
	r, err := http.NewRequest("GET", "http://"+b.http+path, nil)
	if err != nil {
		return 0, "", err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	answer, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(got), err
}

// until makes a request again and again until the answer is as wanted.
func (b *brokerRouter) until(path, want string) {
	b.t.Helper()
	var got string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		status, text, err := b.get(path)
		if got = fmt.Sprintf("%d %s", status, text); err == nil && got == want {
			return
		}
	}
	b.t.Fatalf("%s %s: got %s, want %s\n%s", b.name, path, got, want, b.log)
}

// hello is the frontend, which asks the backend, which tells the variable of its environment. handled gets what the frontend has answered.
func helloKits(dialect, other string, handled *sync.Map) (frontend, backend kitOptions) {
	frontend = kitOptions{app: "hello", name: "frontend", hash: "aaaaaaaaaaaa", token: "frontend-token", dialect: dialect, handle: func(k *kit, e, m object) {
		answer := k.call(e, "backend")
		if answer == nil || textAt(answer, "type") == "io.kubefox.error" {
			k.respond(e, 502, fmt.Sprintf("backend: %s", body(answer)))
			return
		}
		text := fmt.Sprintf("%v %v %s", m["route_id"], k.value(e, "params", "x"), body(answer))
		handled.Store(fmt.Sprint(k.value(e, "params", "x")), true)
		k.respond(e, 200, text)
	}}
	backend = kitOptions{app: "hello", name: "backend", hash: "bbbbbbbbbbbb", token: "backend-token", dialect: other, handle: func(k *kit, e, m object) {
		k.respond(e, 200, fmt.Sprint(k.value(m, "env", "who")))
	}}
	return frontend, backend
}

// A request comes in at one router, its frontend is at another, and the backend of that at a third; kits of both dialects.
func TestComponentsAtThreeRouters(t *testing.T) {
	web := startBroker(t, "web", "D3 D4", brokerKeys("20s")+"nats: {listen: \"127.0.0.1:0\"}")
	one := startBroker(t, "one", "D3 D4", brokerKeys("20s")+"nats: nats://"+web.nats)
	two := startBroker(t, "two", "D3 D4", brokerKeys("20s")+"nats: nats://"+web.nats)
	var handled sync.Map
	frontend, backend := helloKits("D3", "D4", &handled)
	connectKit(t, one.grpc, frontend)
	connectKit(t, two.grpc, backend)
	web.until("/hello/a", "200 3 a Universe")
	two.until("/hello/b", "200 3 b Universe")
	one.until("/hello/c", "200 3 c Universe")
}
