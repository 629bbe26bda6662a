package interop

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/internal/house/certs"
	"github.com/fingerpost/fingerpost/messenger"
)

// fortress is a router with TLS and users: alice (password s3cret) may send to orders, carol has a certificate.
type fortress struct {
	*router
	dir string
	ca  *certs.Authority
}

func (f *fortress) path(name string) string { return filepath.Join(f.dir, name) }

// at gives the URL of the router for a user with the password s3cret; an empty one is nobody.
func (f *fortress) at(user string) string {
	if user != "" {
		user += ":s3cret@"
	}
	return "amqps://" + user + f.addr
}

func (f *fortress) write(t testing.TB, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(f.path(name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// userAdd runs routectl user add.
func (f *fortress) userAdd(t testing.TB, password string, args ...string) {
	t.Helper()
	p := start(t, "routectl user add", routectlProgram, append([]string{"user", "add", "--users", f.path("users.yaml"), "--iterations", "4096"}, args...)...)
	fmt.Fprintln(p.stdin, password)
	p.stdin.Close()
	if status := p.wait(); status != 0 {
		t.Fatalf("routectl user add %q: exit status %d", args, status)
	}
}

func newFortress(t testing.TB, sasl, more string) *fortress {
	t.Helper()
	f := &fortress{dir: t.TempDir(), ca: certs.New(t)}
	for _, name := range []string{"router", "carol", "mallory"} {
		cert, key := f.ca.Issue(t, name)
		f.write(t, name+".crt", cert)
		f.write(t, name+".key", key)
	}
	f.write(t, "ca.crt", f.ca.PEM)
	f.userAdd(t, "s3cret", "alice", "--send", "orders", "--receive", "orders", "--role", "admin")
	f.userAdd(t, "", "carol", "--no-password")
	config := "listeners:\n  - {url: \"amqps://127.0.0.1:0\", tls: {cert: router.crt, key: router.key, clientCA: ca.crt}, sasl: [" + sasl + "]}\nusers: users.yaml\n" + more
	f.write(t, "router.yaml", []byte(config))
	p := start(t, "router", routerProgram, "--config", f.path("router.yaml"))
	addr, ok := strings.CutPrefix(p.line(), "ready amqps://")
	if !ok {
		t.Fatal("the router is not ready")
	}
	f.router = &router{process: p, addr: addr}
	t.Setenv("INTEROP_CA", f.path("ca.crt"))
	return f
}

// as has the foreign clients show a certificate.
func (f *fortress) as(t *testing.T, name string) {
	t.Setenv("INTEROP_CERT", f.path(name+".crt"))
	t.Setenv("INTEROP_KEY", f.path(name+".key"))
}

func TestForeignClientsLogInOverTLS(t *testing.T) {
	f := newFortress(t, "PLAIN, EXTERNAL, SCRAM-SHA-256", "")
	for _, kind := range []string{rhea, proton} {
		t.Run(kind+" by PLAIN", func(t *testing.T) {
			wait := receiveBy(t, kind, f.at("alice"), "orders", 3)
			b := batchOf{address: "orders", to: "orders", id: kind, count: 3, sizes: []int{10, 100_000}}
			sameOutcomes(t, kind, sendBy(t, kind, f.at("alice"), b), "accepted")
			sameMessages(t, kind, wait(), b.want())
			refusedSend(t, kind, f.at("alice"), "other", "amqp:unauthorized-access")
			refusedLogin(t, kind, strings.Replace(f.at("alice"), "s3cret", "guess", 1))
			refusedLogin(t, kind, f.at("mallory"))
		})
		t.Run(kind+" by EXTERNAL", func(t *testing.T) {
			f.as(t, "carol")
			wait := receiveBy(t, kind, f.at(""), "news", 1)
			b := batchOf{address: "news", to: "news", id: kind, count: 1, sizes: []int{10}}
			sameOutcomes(t, kind, sendBy(t, kind, f.at(""), b), "accepted")
			sameMessages(t, kind, wait(), b.want())
			f.as(t, "mallory") // signed by the same authority, and no user
			refusedLogin(t, kind, f.at(""))
		})
	}
}

// refusedSend attaches a sender that is refused.
func refusedSend(t testing.TB, kind, url, address, condition string) {
	t.Helper()
	p := client(t, kind, "send", "--url", url, "--address", address, "--to", address, "--count", "1")
	if e := p.expect("error"); e.text("condition") != condition {
		t.Errorf("%s to %s: got %v, want %s", kind, address, e, condition)
	}
	p.wait()
}

// refusedLogin connects in vain.
func refusedLogin(t testing.TB, kind, url string) {
	t.Helper()
	p := client(t, kind, "send", "--url", url, "--address", "orders", "--to", "orders", "--count", "1")
	p.expect("error")
	p.wait()
}

func TestSCRAMFromAForeignClient(t *testing.T) {
	f := newFortress(t, "SCRAM-SHA-256, SCRAM-SHA-1, SCRAM-SHA-512", "")
	for _, mechanism := range []string{"SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		for _, c := range []struct{ user, password, want string }{
			{"alice", "s3cret", "opened"}, {"alice", "guess", "refused"}, {"mallory", "s3cret", "refused"}, {"carol", "s3cret", "refused"},
		} {
			p := client(t, proton, "scram", "--url", f.at(""), "--user", c.user, "--password", c.password, "--mechanism", mechanism)
			e := p.expect(c.want)
			if c.want == "refused" && e.text("at") != "outcome 1" {
				t.Errorf("%s as %s: refused at %v", mechanism, c.user, e)
			}
			p.wait()
		}
	}
}

func TestGoClientsLogInOverTLS(t *testing.T) {
	f := newFortress(t, "PLAIN, EXTERNAL", "")
	f.write(t, "password", []byte("s3cret\n"))
	carol, err := tls.LoadX509KeyPair(f.path("carol.crt"), f.path("carol.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		sasl amqp.SASLType
		cert []tls.Certificate
		ok   bool
	}{
		{"PLAIN", amqp.SASLTypePlain("alice", "s3cret"), nil, true},
		{"a wrong password", amqp.SASLTypePlain("alice", "guess"), nil, false},
		{"EXTERNAL", amqp.SASLTypeExternal(""), []tls.Certificate{carol}, true},
		{"EXTERNAL for another", amqp.SASLTypeExternal("alice"), []tls.Certificate{carol}, false},
		{"EXTERNAL without a certificate", amqp.SASLTypeExternal(""), nil, false},
		{"ANONYMOUS", amqp.SASLTypeAnonymous(), nil, false},
	} {
		conn, err := amqp.Dial(within(t), f.at(""), &amqp.ConnOptions{SASLType: c.sasl, TLSConfig: &tls.Config{RootCAs: f.ca.Pool, Certificates: c.cert}})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil {
			conn.Close()
		}
	}
	old := &tls.Config{RootCAs: f.ca.Pool, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	if _, err := amqp.Dial(within(t), f.at(""), &amqp.ConnOptions{SASLType: amqp.SASLTypePlain("alice", "s3cret"), TLSConfig: old}); err == nil {
		t.Error("TLS 1.1 is taken")
	}
	for _, c := range []struct {
		args   string
		status int
	}{
		{"--user alice --password-file password --ca ca.crt list", 0},
		{"--user alice --password-file password list", 3}, // the authority is not the system's
		{"--user alice --password-file ca.crt --ca ca.crt list", 3},
		{"--cert carol.crt --key carol.key --ca ca.crt send news hello --settled", 0},
		{"--cert carol.crt --key carol.key --ca ca.crt list", 1}, // no role
	} {
		args := []string{"--url", f.at("")}
		for _, a := range strings.Fields(c.args) {
			if _, err := os.Stat(f.path(a)); err == nil {
				a = f.path(a)
			}
			args = append(args, a)
		}
		p := start(t, "routectl", routectlProgram, args...)
		if status := p.wait(); status != c.status {
			t.Errorf("routectl %s: exit status %d, want %d\n%s", c.args, status, c.status, p.log)
		}
	}
}

// A router dials another by TLS, and logs in by SCRAM, as its configuration says; and the library does.
func TestRoutersAndTheLibraryLogInOverTLS(t *testing.T) {
	last := newFortress(t, "SCRAM-SHA-512, EXTERNAL", "")
	last.write(t, "password", []byte("s3cret\n"))
	last.write(t, "t.routes", []byte("BY-PASSWORD --> amqps://"+last.addr+"/orders\nBY-CERTIFICATE --> amqps://localhost:"+portOf(last.addr)+"/news\n"))
	last.write(t, "first.yaml", []byte("tables: [t.routes]\nlisteners: [{url: \"amqp://127.0.0.1:0\"}]\nhops:\n"+
		"  - {url: \"amqps://127.0.0.1:1\", user: x, passwordFile: password, ca: ca.crt}\n"+
		"  - {url: \"amqps://"+last.addr+"\", user: alice, passwordFile: password, ca: ca.crt}\n"+
		"  - {url: \"amqps://localhost:"+portOf(last.addr)+"\", cert: carol.crt, key: carol.key, ca: ca.crt}\n"))
	p := start(t, "first router", routerProgram, "--config", last.path("first.yaml"))
	addr, _ := strings.CutPrefix(p.line(), "ready amqp://")

	pair, err := tls.LoadX509KeyPair(last.path("carol.crt"), last.path("carol.key"))
	if err != nil {
		t.Fatal(err)
	}
	inbox := func(user string, o messenger.Options, address string) *messenger.Messenger {
		t.Helper()
		m, err := messenger.New(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			m.Close(ctx)
		})
		if _, err := m.Subscribe(within(t), user+last.addr+"/"+address, nil); err != nil {
			t.Fatalf("subscribe to %s: %v", address, err)
		}
		return m
	}
	orders := inbox("amqps://"+url.UserPassword("alice", "s3cret").String()+"@", messenger.Options{TLS: &tls.Config{RootCAs: last.ca.Pool}}, "orders")
	news := inbox("amqps://", messenger.Options{TLS: &tls.Config{RootCAs: last.ca.Pool, Certificates: []tls.Certificate{pair}}}, "news")
	for i, c := range []struct {
		name string
		to   *messenger.Messenger
	}{{"BY-PASSWORD", orders}, {"BY-CERTIFICATE", news}} {
		sender, err := dialGo(t, "amqp://"+addr).NewSender(within(t), c.name, nil)
		if err != nil {
			t.Fatal(err)
		}
		sent := make(chan string, 1)
		go func() { sent <- sendOne(t, sender, amqp.NewMessage([]byte{byte(i)})) }()
		d, err := c.to.Get(within(t))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := d.Accept(); err != nil {
			t.Fatal(err)
		}
		if got := <-sent; got != "accepted" {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
