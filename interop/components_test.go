package interop

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
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
		for prefix, to := range map[string]*string{"ready nats://": &b.nats, "ready grpc://": &b.grpc, "ready genesis+http://": &b.http} {
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

// loadResult is what became of requests.
type loadResult struct{ ok, failed, lost, late, odd atomic.Int64 }

// load makes requests at a broker, n in each of four lines, and calls after the one with that number in the first line.
func (b *brokerRouter) load(t *testing.T, n int, ttl time.Duration, handled *sync.Map, after map[int]func()) *loadResult {
	t.Helper()
	var r loadResult
	var lines sync.WaitGroup
	for line := range 4 {
		lines.Go(func() {
			for i := range n {
				name := fmt.Sprintf("%d-%d", line, i)
				start := time.Now()
				status, text, err := b.get("/hello/" + name)
				took := time.Since(start)
				switch _, there := handled.Load(name); {
				case err != nil || status != 200 && status != 502 && status != 503:
					r.odd.Add(1)
					t.Logf("%s: status %d %q %v", name, status, text, err)
				case status == 200 && (!there || text != "3 "+name+" Universe"):
					r.lost.Add(1)
				case status == 200:
					r.ok.Add(1)
				case took > ttl+5*time.Second:
					r.late.Add(1)
				default:
					r.failed.Add(1)
				}
				if f := after[i]; f != nil && line == 0 {
					f()
				}
			}
		})
	}
	lines.Wait()
	t.Logf("%d answered, %d failed in time", r.ok.Load(), r.failed.Load())
	if r.lost.Load() > 0 || r.late.Load() > 0 || r.odd.Load() > 0 {
		t.Errorf("%d answered by nobody, %d late, %d with no answer", r.lost.Load(), r.late.Load(), r.odd.Load())
	}
	return &r
}

// Of three routers whose servers of NATS are one, one is killed under load: the others go on.
func TestComponentsOfAClusterLoseARouter(t *testing.T) {
	const ttl = 4 * time.Second
	var at []string
	for range 3 {
		at = append(at, freeAddr(t))
	}
	var list []*brokerRouter
	for i := range 3 {
		nats := fmt.Sprintf("nats: {cluster: %q, routes: [\"nats://%s\", \"nats://%s\", \"nats://%s\"], user: r, passwordEnv: NATS_PASSWORD}\nstate: state", at[i], at[0], at[1], at[2])
		t.Setenv("NATS_PASSWORD", "s3cret")
		list = append(list, startBroker(t, fmt.Sprint("r", i), "D4 D3", brokerKeys("4s")+nats))
	}
	var handled sync.Map
	frontend, backend := helloKits("D4", "D3", &handled)
	for _, b := range list[1:] {
		connectKit(t, b.grpc, frontend)
		connectKit(t, b.grpc, backend)
	}
	list[0].until("/hello/first", "200 3 first Universe")
	r := list[0].load(t, 60, ttl, &handled, map[int]func(){20: func() { list[1].kill() }})
	if r.ok.Load() < 120 {
		t.Errorf("only %d were answered\n%s", r.ok.Load(), list[0].log)
	}
	list[0].until("/hello/last", "200 3 last Universe")
	list[1].run(t, "r1")
	connectKit(t, list[1].grpc, frontend)
	list[1].until("/hello/again", "200 3 again Universe")
}
