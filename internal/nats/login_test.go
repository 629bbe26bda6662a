package nats_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/fingerpost/fingerpost/internal/house/certs"
	"github.com/fingerpost/fingerpost/internal/nats"
)

// open opens a connection until the test ends.
func open(t *testing.T, o nats.Options) *nats.Conn {
	t.Helper()
	c, err := nats.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// connected waits until there is a connection.
func connected(c *nats.Conn) bool {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if c.Connected() {
			return true
		}
	}
	return false
}

// logged is closed at the first line that says that there is no connection.
type logged struct {
	once sync.Once
	c    chan struct{}
}

func (l *logged) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("cannot connect")) {
		l.once.Do(func() { close(l.c) })
	}
	return len(line), nil
}

// refused tells whether the server does not take the login.
func refused(t *testing.T, o nats.Options) bool {
	t.Helper()
	l := &logged{c: make(chan struct{})}
	o.Log = slog.New(slog.NewTextHandler(l, nil))
	c := open(t, o)
	select {
	case <-l.c:
	case <-time.After(20 * time.Second):
		return false
	}
	return !c.Connected()
}

// A server in this process asks for what it was told; with authorities, for certificates too.
func TestLoginAtOurServer(t *testing.T) {
	ca, other := certs.New(t), certs.New(t)
	pair := func(a *certs.Authority, both bool) *tls.Config {
		c := &tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{a.Pair(t, "x")}}
		if both {
			c.ClientCAs, c.ClientAuth = ca.Pool, tls.RequireAndVerifyClientCert
		}
		return c
	}
	for name, x := range map[string]struct{ server, good, bad nats.Options }{
		"a user":         {nats.Options{Login: nats.Login{User: "u", Password: "p"}}, nats.Options{Login: nats.Login{User: "u", Password: "p"}}, nats.Options{Login: nats.Login{User: "u", Password: "q"}}},
		"a token":        {nats.Options{Login: nats.Login{Token: "t"}}, nats.Options{Login: nats.Login{Token: "t"}}, nats.Options{}},
		"a certificate":  {nats.Options{TLS: pair(ca, true)}, nats.Options{TLS: pair(ca, false)}, nats.Options{TLS: pair(other, false)}},
		"no certificate": {nats.Options{TLS: pair(ca, true)}, nats.Options{TLS: pair(ca, false)}, nats.Options{TLS: &tls.Config{RootCAs: ca.Pool}}},
		"a stranger":     {nats.Options{TLS: pair(other, true)}, nats.Options{TLS: &tls.Config{RootCAs: other.Pool, Certificates: []tls.Certificate{ca.Pair(t, "x")}}}, nats.Options{TLS: pair(ca, false)}},
	} {
		t.Run(name, func(t *testing.T) {
			x.server.URL, x.server.Name = "embedded://127.0.0.1:0", "server"
			s := open(t, x.server)
			if !connected(s) {
				t.Error("the server's own connection is refused")
			}
			// The first URL is one of nobody.
			x.good.URL, x.bad.URL = "nats://127.0.0.1:1,"+s.URL(), s.URL()
			if !connected(open(t, x.good)) {
				t.Error("refused")
			}
			if !refused(t, x.bad) {
				t.Error("taken")
			}
		})
	}
}

// runForeign runs a server that is configured by itself.
func runForeign(t *testing.T, o *server.Options) (url string) {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return "nats://" + s.Addr().String()
}

func key(t *testing.T, pair nkeys.KeyPair, err error) (nkeys.KeyPair, string, []byte) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return pair, public, seed
}

func TestNKey(t *testing.T) {
	pair, err := nkeys.CreateUser()
	_, public, seed := key(t, pair, err)
	pair, err = nkeys.CreateUser()
	_, _, stranger := key(t, pair, err)
	url := runForeign(t, &server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}})
	dir := t.TempDir()
	for name, s := range map[string][]byte{"good": seed, "bad": stranger, "none": []byte("x")} {
		os.WriteFile(filepath.Join(dir, name), s, 0o600)
	}
	if !connected(open(t, nats.Options{URL: url, Login: nats.Login{NKey: filepath.Join(dir, "good")}})) {
		t.Error("refused")
	}
	if !refused(t, nats.Options{URL: url, Login: nats.Login{NKey: filepath.Join(dir, "bad")}}) {
		t.Error("a stranger was taken")
	}
	if _, err := nats.Open(nats.Options{URL: url, Login: nats.Login{NKey: filepath.Join(dir, "none")}}); err == nil {
		t.Error("a seed that is none was taken")
	}
}

func TestCredentials(t *testing.T) {
	pair, err := nkeys.CreateOperator()
	operator, operatorKey, _ := key(t, pair, err)
	pair, err = nkeys.CreateAccount()
	account, accountKey, _ := key(t, pair, err)
	pair, err = nkeys.CreateUser()
	_, userKey, seed := key(t, pair, err)
	must := func(text string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	accountText := must(jwt.NewAccountClaims(accountKey).Encode(operator))
	userText := must(jwt.NewUserClaims(userKey).Encode(account))
	resolver := &server.MemAccResolver{}
	if err := resolver.Store(accountKey, accountText); err != nil {
		t.Fatal(err)
	}
	url := runForeign(t, &server.Options{TrustedKeys: []string{operatorKey}, AccountResolver: resolver})
	file := filepath.Join(t.TempDir(), "creds")
	text, err := jwt.FormatUserConfig(userText, seed)
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(file, text, 0o600)
	if !connected(open(t, nats.Options{URL: url, Login: nats.Login{Credentials: file}})) {
		t.Error("refused")
	}
	if !refused(t, nats.Options{URL: url}) {
		t.Error("taken without")
	}
}

// A server of others that is away is waited for.
func TestServerThatComesLater(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := ln.Addr().String()
	ln.Close()
	c := open(t, nats.Options{URL: "nats://" + at})
	if c.Connected() {
		t.Error("connected to nothing")
	}
	open(t, nats.Options{URL: "embedded://" + at})
	if !connected(c) {
		t.Error("not connected")
	}
}

// Three servers are one: what is kept by one is with all, and stays when one goes.
func TestCluster(t *testing.T) {
	ca := certs.New(t)
	var at, routes []string
	for range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, ln.Addr().String())
		routes = append(routes, "nats://"+ln.Addr().String())
		ln.Close()
	}
	var all []*nats.Conn
	for i := range 3 {
		all = append(all, open(t, nats.Options{
			Name: fmt.Sprint("s", i), Dir: t.TempDir(), Login: nats.Login{User: "u", Password: "p"}, Cluster: nats.Cluster{Listen: at[i], Routes: routes},
			TLS: &tls.Config{RootCAs: ca.Pool, ClientCAs: ca.Pool, ClientAuth: tls.RequireAndVerifyClientCert, Certificates: []tls.Certificate{ca.Pair(t, "s")}},
		}))
	}
	bucket := func(c *nats.Conn, do func(ctx context.Context, b *nats.Bucket) error) {
		t.Helper()
		var err error
		for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			var b *nats.Bucket
			if b, err = c.Bucket(ctx, "B", time.Hour); err == nil {
				err = do(ctx, b)
			}
			cancel()
			if err == nil {
				return
			}
		}
		t.Fatal(err)
	}
	bucket(all[0], func(ctx context.Context, b *nats.Bucket) error { return b.Put(ctx, "k", []byte("v")) })
	all[0].Close()
	bucket(all[2], func(ctx context.Context, b *nats.Bucket) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		got := ""
		err := b.Watch(ctx, func(k string, v []byte) { got = k + string(v); cancel() })
		if err == nil && got != "kv" {
			err = fmt.Errorf("got %q", got)
		}
		return err
	})
}
