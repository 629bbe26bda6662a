package messenger_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/messenger"
	"github.com/fingerpost/fingerpost/routetable"
)

func TestEveryTrackerEndsWhateverBreaks(t *testing.T) {
	b := newBroker(t, "", "")
	alice := newMessenger(t, messenger.Options{MaxOutgoing: 50})
	sub, err := alice.Subscribe(within(t), "amqp://"+b.addr()+"/q", nil)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	seen := map[string]bool{}
	var got sync.WaitGroup
	got.Go(func() {
		for {
			d, err := alice.Get(ctx)
			if err != nil {
				return
			}
			seen[string(d.Message.Body)] = true
			d.Accept() // ErrLost where the connection was cut
		}
	})
	count := map[messenger.State]int{}
	for i := range 600 {
		if i%100 == 50 {
			b.cut()
		}
		tr := put(t, alice, &messenger.Message{Address: "amqp://" + b.addr() + "/q", Body: fmt.Appendf(nil, "%d", i)})
		if i%3 == 0 {
			o, err := wait(t, tr)
			count[o.State]++
			if o.State != messenger.Accepted && !errors.Is(err, messenger.ErrInDoubt) {
				t.Errorf("message %d: %v %v", i, o.State, err)
			}
		}
	}
	// All slots are free again: every tracker has ended.
	for range 50 {
		put(t, alice, &messenger.Message{Address: "amqp://" + b.addr() + "/q"})
	}
	if count[messenger.Accepted] < 150 {
		t.Errorf("outcomes %v", count)
	}
	cancel()
	got.Wait()
	must(t, sub.Close(within(t)))
}

func TestAPeerEndsTheSession(t *testing.T) {
	b := newBroker(t, "", "")
	alice := newMessenger(t, messenger.Options{})
	sub, err := alice.Subscribe(within(t), "amqp://"+b.addr()+"/other", nil)
	must(t, err)
	wait(t, put(t, alice, &messenger.Message{Address: "amqp://" + b.addr() + "/q"}))
	b.mu.Lock()
	c := anyConn(b)
	b.queues["other"].links[0].Session().End(&engine.SessionError{Condition: "amqp:internal-error"})
	c.c.Release()
	select {
	case <-sub.Done():
	case <-within(t).Done():
		t.Fatal("the subscription was not told")
	}
	if o, err := wait(t, put(t, alice, &messenger.Message{Address: "amqp://" + b.addr() + "/q"})); o.State != messenger.Accepted {
		t.Errorf("on the next session: %v %v", o.State, err)
	}
}

func TestManyNamesAtOneEndpoint(t *testing.T) {
	b := newBroker(t, "", "")
	alice := newMessenger(t, messenger.Options{})
	add(t, alice, "*", "amqp://"+b.addr()+"/$1")
	for i := range 2500 {
		if o, err := wait(t, put(t, alice, &messenger.Message{Address: fmt.Sprint("n", i)})); o.State != messenger.Accepted {
			t.Fatalf("name %d: %v %v", i, o.State, err)
		}
	}
}

func TestPicks(t *testing.T) {
	b1, b2 := newMessenger(t, messenger.Options{}), newMessenger(t, messenger.Options{})
	hop1, hop2 := listen(t, b1), listen(t, b2)
	away := "amqp://" + freePort(t)
	receivers := map[*messenger.Messenger]string{b1: "1", b2: "2"}
	for _, x := range []struct {
		name  string
		cols  []routetable.Column
		hops  []string
		fixed string // where all go; empty: to both
	}{
		{"first", []routetable.Column{routetable.WithPick(routetable.PickFirst)}, []string{hop1, hop2}, "1"},
		{"first that is there", []routetable.Column{routetable.WithPick(routetable.PickFirst)}, []string{away, hop2}, "2"},
		{"any by turns", []routetable.Column{routetable.WithPick(routetable.PickAny), routetable.WithBalance(routetable.RoundRobin)}, []string{hop1, hop2}, ""},
		{"any of those that are there", []routetable.Column{routetable.WithPick(routetable.PickAny)}, []string{away, hop2}, "2"},
		{"any by weight", []routetable.Column{routetable.WithPick(routetable.PickAny), routetable.WithBalance(routetable.Weighted)}, []string{hop1, hop2}, ""},
		{"any by hash", []routetable.Column{routetable.WithPick(routetable.PickAny), routetable.WithBalance(routetable.Hash)}, []string{hop1, hop2}, "same"},
	} {
		t.Run(x.name, func(t *testing.T) {
			alice := newMessenger(t, messenger.Options{DeliveryTimeout: 20 * time.Second})
			// Whoever is away is found out.
			if tr, err := alice.Put(within(t), &messenger.Message{Address: away, TTL: 100 * time.Millisecond}); err == nil {
				wait(t, tr)
			}
			for _, hop := range x.hops {
				if _, err := alice.Routes().Add("X", hop, x.cols...); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			var mu sync.Mutex
			got := map[string]int{}
			var getting sync.WaitGroup
			for b, name := range receivers {
				getting.Go(func() {
					for {
						d, err := b.Get(ctx)
						if err != nil {
							return
						}
						mu.Lock()
						got[name]++
						mu.Unlock()
						d.Accept()
					}
				})
			}
			for range 40 {
				if o, err := wait(t, put(t, alice, &messenger.Message{Address: "X", GroupID: "g"})); o.State != messenger.Accepted {
					t.Fatal(err)
				}
			}
			cancel()
			getting.Wait()
			switch x.fixed {
			case "":
				if got["1"] == 0 || got["2"] == 0 || got["1"]+got["2"] != 40 {
					t.Errorf("got %v, want both", got)
				}
			case "same":
				if len(got) != 1 {
					t.Errorf("got %v, want one", got)
				}
			default:
				if got[x.fixed] != 40 {
					t.Errorf("got %v, want all at %s", got, x.fixed)
				}
			}
		})
	}
}

func TestPredicatesSeeTheMessage(t *testing.T) {
	alice, bob := newMessenger(t, messenger.Options{}), newMessenger(t, messenger.Options{})
	url := listen(t, bob)
	for pattern, when := range map[string]string{"A": `Property("colour", "red")`, "B": `Property("subject", "s")`} {
		if _, err := alice.Routes().Add(pattern, url, routetable.WithWhen(when)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, alice, &messenger.Message{Address: "A", Properties: map[string]any{"colour": "red"}})
	put(t, alice, &messenger.Message{Address: "B", Subject: "s"})
	for range 2 {
		must(t, get(t, bob).Accept())
	}
	for _, a := range []string{"A", "B"} {
		if _, err := alice.Put(within(t), &messenger.Message{Address: a}); !errors.Is(err, messenger.ErrNoRoute) {
			t.Errorf("%s without the property: %v", a, err)
		}
	}
}

// certificate makes a certificate for 127.0.0.1, and the roots that trust it.
func certificate(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	must(t, err)
	parsed, err := x509.ParseCertificate(der)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, pool
}

func TestTLSAndLogin(t *testing.T) {
	t.Parallel()
	server, roots := certificate(t)
	bob := newMessenger(t, messenger.Options{})
	if _, err := bob.Listen(within(t), "amqps://~127.0.0.1:0", nil); err == nil {
		t.Error("a TLS listener without a certificate")
	}
	ln, err := bob.Listen(within(t), "amqps://~127.0.0.1:0", &messenger.ListenOptions{
		TLS: server, Authenticate: func(user, password string) bool { return user == "alice" && password == "secret" },
	})
	must(t, err)
	hop := ln.Addr().String()

	alice := newMessenger(t, messenger.Options{TLS: &tls.Config{RootCAs: roots}})
	tr := put(t, alice, &messenger.Message{Address: "amqps://alice:secret@" + hop, Body: []byte("x")})
	d := get(t, bob)
	if d.Message.Address != "amqps://"+hop {
		t.Errorf("to %q", d.Message.Address)
	}
	must(t, d.Accept())
	if _, err := wait(t, tr); err != nil {
		t.Error(err)
	}
	if o, err := wait(t, put(t, alice, &messenger.Message{Address: "amqps://alice:guess@" + hop})); !errors.Is(err, messenger.ErrAuthentication) {
		t.Errorf("a wrong password: %v %v", o.State, err)
	}
	if o, err := wait(t, put(t, alice, &messenger.Message{Address: "amqps://" + hop})); o.State != messenger.Released || err == nil {
		t.Errorf("no password: %v %v", o.State, err)
	}

	dave := newMessenger(t, messenger.Options{TLS: &tls.Config{RootCAs: roots}, User: "alice", Password: "secret"})
	tr = put(t, dave, &messenger.Message{Address: "amqps://" + hop})
	must(t, get(t, bob).Accept())
	if _, err := wait(t, tr); err != nil {
		t.Errorf("a login of the options: %v", err)
	}

	carol := newMessenger(t, messenger.Options{DeliveryTimeout: 8 * time.Second}) // a first try fits in, on a busy machine too
	var unknown x509.UnknownAuthorityError
	if o, err := wait(t, put(t, carol, &messenger.Message{Address: "amqps://alice:secret@" + hop})); !errors.As(err, &unknown) {
		t.Errorf("a certificate that nobody vouches for: %v %v", o.State, err)
	}
}

func TestAListenerCloses(t *testing.T) {
	alice, bob := newMessenger(t, messenger.Options{}), newMessenger(t, messenger.Options{})
	ln, err := bob.Listen(within(t), "127.0.0.1:0", nil)
	must(t, err)
	tr := put(t, alice, &messenger.Message{Address: ln.Addr().String()})
	d := get(t, bob)
	must(t, ln.Close(within(t)))
	if err := d.Accept(); !errors.Is(err, messenger.ErrLost) {
		t.Errorf("accept: %v, want ErrLost", err)
	}
	if o, err := wait(t, tr); !errors.Is(err, messenger.ErrInDoubt) {
		t.Errorf("outcome %v %v", o.State, err)
	}
	if _, err := net.DialTimeout("tcp", ln.Addr().String(), time.Second); err == nil {
		t.Error("the port is still open")
	}
}
