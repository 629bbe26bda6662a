package amqp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/internal/house/certs"
)

// logins are alice's, made with few iterations.
func logins(t testing.TB) *amqp.Logins {
	t.Helper()
	v, err := amqp.MakeVerifiers("alice", "s3crét", amqp.MinIterations)
	if err != nil {
		t.Fatal(err)
	}
	return amqp.NewLogins([]byte("pepper"), map[string][]amqp.Verifier{"alice": v})
}

func mechanisms(t testing.TB, l *amqp.Logins, names ...string) (all []engine.Mechanism) {
	t.Helper()
	for _, name := range names {
		if name == "PLAIN" {
			all = append(all, amqp.Plain(l.Check))
			continue
		}
		m, ok := l.SCRAM(name)
		if !ok {
			t.Fatalf("no %s", name)
		}
		all = append(all, m)
	}
	return all
}

func TestPasswordLogins(t *testing.T) {
	l := logins(t)
	for _, c := range []struct {
		name, offered  string
		user, password string
		only           []string
		mech           wire.Symbol
		want           error
	}{
		{"SCRAM-SHA-1", "SCRAM-SHA-1", "alice", "s3crét", nil, "SCRAM-SHA-1", nil},
		{"SCRAM-SHA-512", "SCRAM-SHA-512", "alice", "s3crét", nil, "SCRAM-SHA-512", nil},
		{"SCRAM-SHA-256 is preferred", "PLAIN SCRAM-SHA-1 SCRAM-SHA-512 SCRAM-SHA-256", "alice", "s3crét", nil, "SCRAM-SHA-256", nil},
		{"one that was asked for", "PLAIN SCRAM-SHA-256", "alice", "s3crét", []string{"PLAIN"}, "PLAIN", nil},
		{"a wrong password", "SCRAM-SHA-256", "alice", "secret", nil, "", engine.ErrAuthentication},
		{"a wrong password in PLAIN", "PLAIN", "alice", "secret", nil, "", engine.ErrAuthentication},
		{"nobody", "SCRAM-SHA-256", "mallory", "s3crét", nil, "", engine.ErrAuthentication},
		{"nobody in PLAIN", "PLAIN", "mallory", "s3crét", nil, "", engine.ErrAuthentication},
		{"no mechanism in common", "SCRAM-SHA-1", "alice", "s3crét", []string{"PLAIN"}, "", engine.ErrNoMechanism},
	} {
		address, _ := serve(t, engine.Config{Mechanisms: mechanisms(t, l, strings.Fields(c.offered)...), RequireSASL: true})
		conn, err := dial(t, amqp.DialOptions{Address: address, PLAIN: true, User: c.user, Password: c.password, Mechanisms: c.only})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
			continue
		}
		if err != nil {
			continue
		}
		conn.Lock()
		if got := conn.Engine.Mechanism(); got != c.mech {
			t.Errorf("%s: by %s, want %s", c.name, got, c.mech)
		}
		conn.Release()
	}
}

// A server that takes any password, and does not know it, is not who it should be.
func TestAServerThatDoesNotKnowThePasswordIsNoServer(t *testing.T) {
	impostor := engine.Mechanism{Name: "SCRAM-SHA-256", Start: func() engine.Exchange { return &yesMan{} }}
	address, _ := serve(t, engine.Config{Mechanisms: []engine.Mechanism{impostor}, RequireSASL: true})
	_, err := dial(t, amqp.DialOptions{Address: address, PLAIN: true, User: "alice", Password: "s3crét"})
	if !errors.Is(err, engine.ErrAuthentication) || !strings.Contains(err.Error(), "has not proven") {
		t.Errorf("got %v", err)
	}
}

type yesMan struct{ steps int }

func (y *yesMan) Step(response []byte) ([]byte, string, bool, error) {
	if y.steps++; y.steps == 1 {
		_, nonce, _ := strings.Cut(string(response), "r=")
		return []byte("r=" + nonce + "x,s=c2FsdHNhbHQ=,i=4096"), "", false, nil
	}
	return nil, "alice", true, nil
}

// What a client sees of a name that nobody has is what it sees of one that somebody has: a salt that stays, and as many iterations.
func TestANameThatNobodyHasLooksLikeOneThatSomebodyHas(t *testing.T) {
	verifiers := map[string][]amqp.Verifier{}
	for _, user := range []string{"alice", "bob"} {
		v, err := amqp.MakeVerifiers(user, "secret", amqp.MinIterations)
		if err != nil {
			t.Fatal(err)
		}
		verifiers[user] = v
	}
	first := func(l *amqp.Logins, user string) (salt, rest string) {
		m, _ := l.SCRAM("SCRAM-SHA-256")
		challenge, _, done, err := m.Start().Step([]byte("n,,n=" + user + ",r=abcdefgh"))
		if done || err != nil {
			t.Fatalf("%s: %v, %v", user, done, err)
		}
		parts := strings.Split(string(challenge), ",")
		return parts[1], parts[2]
	}
	l := amqp.NewLogins([]byte("pepper"), verifiers)
	again := amqp.NewLogins([]byte("pepper"), verifiers)
	salt, rest := first(l, "mallory")
	if s, r := first(again, "mallory"); s != salt || r != rest {
		t.Errorf("after a restart mallory has %s %s, before %s %s", s, r, salt, rest)
	}
	known, knownRest := first(l, "alice")
	if len(known) != len(salt) || knownRest != rest {
		t.Errorf("alice has %s %s, nobody %s %s", known, knownRest, salt, rest)
	}
	if other, _ := first(l, "trudy"); other == salt {
		t.Error("two names that nobody has share a salt")
	}
}

func TestVerifiersAsText(t *testing.T) {
	made, err := amqp.MakeVerifiers("alice", "secret", 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(made) != 3 {
		t.Fatalf("%d verifiers", len(made))
	}
	for _, v := range made {
		if got, err := amqp.ParseVerifier(v.String()); err != nil || got.String() != v.String() || got.Iterations != amqp.DefaultIterations {
			t.Errorf("%s: got %v, %v", v, got, err)
		}
	}
	good := made[0].String()
	for _, bad := range []string{
		"", "x", "PLAIN" + good[len("SCRAM-SHA-256"):], strings.Replace(good, "$50000:", "$1:", 1), strings.Replace(good, "$50000:", "$999999999:", 1),
		strings.Replace(good, "SHA-256", "SHA-512", 1), good[:len(good)-4], good + "$", strings.Replace(good, ":", ";", 1),
	} {
		if v, err := amqp.ParseVerifier(bad); err == nil {
			t.Errorf("%q: got %v", bad, v)
		}
	}
	for _, bad := range []string{"", "a\x00b"} {
		if _, err := amqp.MakeVerifiers("alice", bad, 0); err == nil {
			t.Errorf("password %q is taken", bad)
		}
	}
}

func FuzzVerifier(f *testing.F) {
	v, err := amqp.MakeVerifiers("alice", "secret", 0)
	if err != nil {
		f.Fatal(err)
	}
	for _, v := range v {
		f.Add(v.String())
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := amqp.ParseVerifier(text)
		if err != nil {
			return
		}
		if again, err := amqp.ParseVerifier(v.String()); err != nil || again.String() != v.String() {
			t.Errorf("%q: %v, then %v, %v", text, v, again, err)
		}
	})
}

// A guard is asked before a step of a login by password is looked at, and before nothing else.
func TestWhatIsAGuess(t *testing.T) {
	frame := func(appendTo func([]byte) []byte) string {
		b, start := wire.BeginFrame(nil, wire.FrameSASL, 0)
		return string(wire.EndFrame(appendTo(b), start))
	}
	login := func(m wire.Symbol) string {
		i := wire.SASLInit{Mechanism: m, InitialResponse: []byte("x"), HasInitialResponse: true}
		return frame(i.Append)
	}
	answer := wire.SASLResponse{Response: []byte("x")}
	const header = "AMQP\x03\x01\x00\x00"
	for _, c := range []struct {
		name, before, said string
		want               bool
	}{
		{"the plain header", "", "AMQP\x00\x01\x00\x00", false},
		{"the SASL header", "", header, false},
		{"a login behind the header", "", header + login("PLAIN"), true},
		{"PLAIN", header, login("PLAIN"), true},
		{"SCRAM", header, login("SCRAM-SHA-256"), true},
		{"an unknown mechanism", header, login("X"), true},
		{"ANONYMOUS", header, login("ANONYMOUS"), false},
		{"EXTERNAL", header, login("EXTERNAL"), false},
		{"an answer", header, frame(answer.Append), true},
		{"a part of a frame", header, login("PLAIN")[:20], false},
		{"after the login", header + login("ANONYMOUS"), login("PLAIN"), false},
	} {
		e := engine.NewConn(engine.Config{Mechanisms: []engine.Mechanism{amqp.Anonymous()}}, engine.NoHandler{})
		if _, err := e.Input([]byte(c.before)); err != nil {
			t.Fatal(err)
		}
		if got := e.Guesses([]byte(c.said)); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}

// FuzzLogin gives two answers to every mechanism: nobody gets in by them, and nothing breaks.
func FuzzLogin(f *testing.F) {
	l := logins(f)
	all := append(mechanisms(f, l, "SCRAM-SHA-256", "SCRAM-SHA-1", "SCRAM-SHA-512"), amqp.Plain(func(user, password string) bool { return false }), amqp.External("carol", nil))
	f.Add([]byte("n,,n=alice,r=abc"), []byte("c=biws,r=abc,p=AAAA"))
	f.Add([]byte("\x00alice\x00secret"), []byte(""))
	f.Add([]byte("p=tls-unique,a=bob,n=alice,r=abc,m=1"), []byte("e=other-error"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		for _, m := range all {
			x := m.Start()
			for _, response := range [][]byte{a, b, b} {
				_, user, done, err := x.Step(response)
				if done && err == nil && user != "carol" {
					t.Fatalf("%s: %q, %q: in as %q", m.Name, a, b, user)
				}
				if done || err != nil {
					break
				}
			}
		}
	})
}

func TestTheGuardSlowsGuessersDown(t *testing.T) {
	guesser := &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 1}
	neighbour := &net.TCPAddr{IP: net.ParseIP("192.0.2.2"), Port: 1}
	g := amqp.NewGuard()
	now := time.Unix(1_700_000_000, 0)
	for range 10 {
		if wait, ok := g.Pause(guesser, now); wait != 0 || !ok {
			t.Fatalf("a few mistakes cost %v, %v", wait, ok)
		}
		g.Failed(guesser, now)
	}
	looked := 0
	for {
		wait, ok := g.Pause(guesser, now)
		if !ok {
			break
		}
		if want := time.Duration(looked) * 250 * time.Millisecond; wait != want {
			t.Fatalf("guess %d waits %v, want %v", looked, wait, want)
		}
		looked++
	}
	if looked == 0 || looked > 30 {
		t.Errorf("%d guesses in the queue", looked)
	}
	if wait, ok := g.Pause(neighbour, now); wait != 0 || !ok {
		t.Errorf("a neighbour waits %v, %v", wait, ok)
	}
	if n, ok := g.Tell(guesser, now); n != 10 || !ok {
		t.Errorf("told of %d, %v", n, ok)
	}
	if _, ok := g.Tell(guesser, now.Add(time.Second)); ok {
		t.Error("told twice in a second")
	}
	later := now.Add(time.Hour)
	if wait, ok := g.Pause(guesser, later); wait != 0 || !ok {
		t.Errorf("an hour later: %v, %v", wait, ok)
	}
	for i := range 30_000 { // of as many addresses: memory is bounded
		g.Failed(&net.TCPAddr{IP: net.IPv4(10, byte(i>>16), byte(i>>8), byte(i))}, later)
	}
	six := func(text string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(text)} }
	for range 10 {
		g.Failed(six("2001:db8::1"), later)
	}
	g.Pause(six("2001:db8::1"), later)
	if wait, _ := g.Pause(six("2001:db8::2"), later); wait == 0 {
		t.Error("the rest of the /64 is not slowed down")
	}
}

// serveTLS listens with TLS; a client with a certificate has EXTERNAL.
func serveTLS(t *testing.T, c *tls.Config, o amqp.ListenOptions) string {
	t.Helper()
	o.TLS = c
	ln, err := amqp.ListenWith("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ln.Serve(func(nc net.Conn) *amqp.Conn {
			cfg := engine.Config{ContainerID: "server", Mechanisms: []engine.Mechanism{amqp.Anonymous()}}
			if user := amqp.CertificateUser(nc); user != "" {
				cfg.Mechanisms = append(cfg.Mechanisms, amqp.External(user, nil))
			}
			return amqp.NewConn(nc, cfg, nil, func(*amqp.Conn) amqp.Owner { return quiet{} })
		}, nil)
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		ln.Close(ctx)
		<-done
	})
	return ln.Addr().String()
}

func TestTLSAndCertificates(t *testing.T) {
	ca, stranger := certs.New(t), certs.New(t)
	over := make(chan error, 16)
	address := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.Pair(t, "server")}, ClientCAs: ca.Pool, ClientAuth: tls.VerifyClientCertIfGiven},
		amqp.ListenOptions{Over: func(_ net.Conn, err error) { over <- err }})
	for _, c := range []struct {
		name   string
		config *tls.Config
		mech   wire.Symbol
		err    string
	}{
		{"TLS", &tls.Config{RootCAs: ca.Pool}, "", ""},
		{"a certificate", &tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{ca.Pair(t, "carol")}}, "EXTERNAL", ""},
		{"a server that is not trusted", &tls.Config{RootCAs: stranger.Pool}, "", "certificate"},
		{"a client that is not trusted", &tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{stranger.Pair(t, "carol")}}, "", "certificate"},
	} {
		c.config.ServerName = "127.0.0.1"
		conn, err := dial(t, amqp.DialOptions{Address: address, TLS: c.config})
		if (c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.err)
			continue
		}
		if err != nil {
			if err := <-over; err == nil {
				t.Errorf("%s: the listener is told of no error", c.name)
			}
			continue
		}
		conn.Lock()
		if got := conn.Engine.Mechanism(); got != c.mech {
			t.Errorf("%s: by %q, want %q", c.name, got, c.mech)
		}
		conn.Release()
	}
}

// A client that connects and says nothing holds up neither others nor the listener's end.
func TestASilentClientOfTLSHoldsNobodyUp(t *testing.T) {
	ca := certs.New(t)
	address := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.Pair(t, "server")}}, amqp.ListenOptions{})
	mute, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	if _, err := dial(t, amqp.DialOptions{Address: address, TLS: &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1"}}); err != nil {
		t.Fatal(err)
	}
}

// A half-open handshake ends by the clock.
func TestAHandshakeHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		c := amqp.NewConn(ours, engine.Config{}, nil, func(*amqp.Conn) amqp.Owner { return quiet{} })
		began := time.Now()
		if err := c.Serve(); !errors.Is(err, amqp.ErrHandshakeTimeout) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took < amqp.HandshakeTimeout || took > amqp.HandshakeTimeout+3*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

func TestARefusedConnectionIsToldWhy(t *testing.T) {
	address, _ := serve(t, engine.Config{Refuse: &engine.ConnectionError{Condition: wire.CondResourceLimitExceeded, Text: "full"}})
	c, err := dial(t, amqp.DialOptions{Address: address})
	if err == nil { // the open came, the close after it
		<-c.Done()
		err = c.Err()
	}
	var ce *engine.ConnectionError
	if !errors.As(err, &ce) || !ce.Remote || ce.Condition != wire.CondResourceLimitExceeded {
		t.Errorf("got %v", err)
	}
}
