//go:build heavy

package interop

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/house/certs"
	"github.com/fingerpost/fingerpost/internal/nats"
)

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

// natsServer is Debian's NATS: with TLS, certificates of clients and a user, and JetStream on disk.
type natsServer struct {
	*process
	at, dir   string
	authority *certs.Authority
}

func newNATSServer(t *testing.T) *natsServer {
	t.Helper()
	s := &natsServer{at: freeAddr(t), dir: t.TempDir(), authority: certs.New(t)}
	cert, key := s.authority.Issue(t, "nats")
	host, port, _ := net.SplitHostPort(s.at)
	for name, text := range map[string]string{
		"ca.pem": string(s.authority.PEM), "cert.pem": string(cert), "key.pem": string(key), "password": "s3cret\n",
		"nats.conf": fmt.Sprintf("host: %q\nport: %s\nmax_payload: 8MB\njetstream {store_dir: %q}\nauthorization {user: router, password: s3cret}\n"+
			"tls {cert_file: %q, key_file: %q, ca_file: %q, verify: true}\n", host, port, s.path("store"), s.path("cert.pem"), s.path("key.pem"), s.path("ca.pem")),
	} {
		if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *natsServer) path(name string) string { return filepath.Join(s.dir, name) }

// forget has it keep nothing: it has no JetStream.
func (s *natsServer) forget(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(s.path("nats.conf"))
	if err == nil {
		err = os.WriteFile(s.path("nats.conf"), regexp.MustCompile(`jetstream .*\n`).ReplaceAll(text, nil), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// run starts it; who connects waits for it.
func (s *natsServer) run(t *testing.T) {
	t.Helper()
	s.process = start(t, "nats-server", "nats-server", "-c", s.path("nats.conf"))
}

// keys are those of a router that uses it. The first URL is one of nobody.
func (s *natsServer) keys(t *testing.T) string {
	return fmt.Sprintf("nats: {url: \"tls://%s,tls://%s\", user: router, passwordFile: %q, tls: {ca: %q, cert: %q, key: %q}}\n",
		freeAddr(t), s.at, s.path("password"), s.path("ca.pem"), s.path("cert.pem"), s.path("key.pem"))
}

// registered waits until the bucket of registrations has a key.
func (s *natsServer) registered(t *testing.T, key string) {
	t.Helper()
	pair := s.authority.Pair(t, "test")
	c, err := nats.Open(nats.Options{URL: "tls://" + s.at, Name: "test", Login: nats.Login{User: "router", Password: "s3cret"}, TLS: &tls.Config{RootCAs: s.authority.Pool, Certificates: []tls.Certificate{pair}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	bucket, err := c.Bucket(ctx, "COMPONENTS", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	there := false
	bucket.Watch(ctx, func(k string, value []byte) {
		if k == key && value != nil {
			there = true
			cancel()
		}
	})
	if !there {
		t.Errorf("the bucket has no %s", key)
	}
}

// Routers over a NATS of others: one is killed under load, NATS is started anew, the router comes back. With today's subjects NATS keeps nothing.
func TestComponentsOverDebiansNATS(t *testing.T) {
	const ttl = 4 * time.Second
	for _, x := range []struct {
		n       int
		current bool
	}{{2, false}, {3, false}, {3, true}} {
		n := x.n
		t.Run(fmt.Sprint(n, " routers, current ", x.current), func(t *testing.T) {
			server, keys := newNATSServer(t), brokerKeys("4s")
			if x.current {
				server.forget(t)
				keys = strings.Replace(keys, "ttl:", "subjects: current, ttl:", 1)
			}
			server.run(t)
			var list []*brokerRouter
			for i := range n {
				list = append(list, startBroker(t, fmt.Sprint("r", i), "D3 D4", keys+server.keys(t)))
			}
			var handled sync.Map
			frontend, backend := helloKits("D3", "D4", &handled)
			for _, b := range list[1:] {
				connectKit(t, b.grpc, frontend)
				connectKit(t, b.grpc, backend)
			}
			list[0].until("/hello/first", "200 3 first Universe")
			if !x.current {
				server.registered(t, "component/hello-frontend-aaaaaaa")
			}
			killed := list[n-1]
			r := list[0].load(t, 80, ttl, &handled, map[int]func(){
				20: killed.kill,
				40: func() {
					killed.run(t, "again")
					connectKit(t, killed.grpc, frontend)
					connectKit(t, killed.grpc, backend)
				},
				60: func() { server.stop(); server.run(t) },
			})
			if r.ok.Load() < 60 {
				t.Errorf("only %d were answered\n%s", r.ok.Load(), list[0].log)
			}
			list[0].until("/hello/last", "200 3 last Universe")
			if !x.current {
				server.registered(t, "component/hello-frontend-aaaaaaa")
			}
		})
	}
}
