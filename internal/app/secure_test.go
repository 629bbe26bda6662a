package app

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/internal/admin"
	transport "github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/users"
)

// authority signs the certificates of a test.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key, a.pem = a.make("authority", true)
	return a
}

func (a *authority) make(name string, isCA bool) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		a.t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour),
		IsCA: isCA, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer, form.KeyUsage = form, key, x509.KeyUsageCertSign
	}
	der, err := x509.CreateCertificate(rand.Reader, form, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue gives a certificate and its key as PEM.
func (a *authority) issue(name string) (cert, key []byte) {
	a.t.Helper()
	_, k, cert := a.make(name, false)
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// keep writes a file as an editor does, by a new one in its place.
func (d *desk) keep(name string, text []byte) string {
	d.Helper()
	d.replace(name, string(text))
	return d.path(name)
}

// start starts a router with the configuration of a file.
func (d *desk) start(file string) (a *App, address string) {
	d.Helper()
	var ready bytes.Buffer
	a, err := Start(func() (Config, error) { return ReadConfig(file) }, slog.New(slog.NewTextHandler(d.log, nil)), &ready)
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(a.Stop)
	first, _, _ := strings.Cut(strings.TrimPrefix(ready.String(), "ready "), "\n")
	return a, first
}

// login connects, by PLAIN where there is a user, and gives the serial number of the router's certificate.
func login(url, user, password string, pool *x509.CertPool) (serial string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	o := &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous(), TLSConfig: &tls.Config{RootCAs: pool, VerifyConnection: func(s tls.ConnectionState) error {
		serial = s.PeerCertificates[0].SerialNumber.String()
		return nil
	}}}
	if user != "" {
		o.SASLType = amqp.SASLTypePlain(user, password)
	}
	c, err := amqp.Dial(ctx, url, o)
	if err == nil {
		c.Close()
	}
	return serial, err
}

func usersFile(t testing.TB, passwords map[string]string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users.yaml")
	role := admin.RoleAdmin
	for name, password := range passwords {
		made, err := transport.MakeVerifiers(name, password, transport.MinIterations)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := users.Put(path, users.Edit{Name: name, Role: &role, Verifiers: []string{made[0].String()}}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Certificates and users change while the router runs; bad ones change nothing and are told of.
func TestSecretsAreReadAgain(t *testing.T) {
	d := newDesk(t)
	ca := newAuthority(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.pem)
	cert, key := ca.issue("router")
	d.keep("tls.crt", cert)
	d.keep("tls.key", key)
	d.keep("users.yaml", usersFile(t, map[string]string{"alice": "one"}))
	file := d.keep("router.yaml", []byte(`
listeners: [{url: "amqps://127.0.0.1:0", tls: {cert: tls.crt, key: tls.key}}]
users: users.yaml
`))
	a, url := d.start(file)
	before, err := login(url, "alice", "one", pool)
	if err != nil {
		t.Fatal(err)
	}

	d.keep("tls.crt", []byte("nonsense"))
	d.keep("users.yaml", []byte("users: [{nme: alice}]"))
	d.eventually("both are refused", func() bool {
		c := a.counters()
		return c["certificatesRefused"] == 1 && c["usersRefused"] == 1
	})
	if now, err := login(url, "alice", "one", pool); err != nil || now != before {
		t.Errorf("after bad files: %s, %v; before %s", now, err, before)
	}
	for _, want := range []string{"tls.crt", `unknown key \"nme\"`, "stays in force"} {
		if !strings.Contains(d.log.String(), want) {
			t.Errorf("the log has no %q", want)
		}
	}

	cert, key = ca.issue("router")
	d.keep("tls.key", key)
	d.keep("tls.crt", cert)
	d.keep("users.yaml", usersFile(t, map[string]string{"alice": "two", "bob": "three"}))
	d.eventually("both are taken", func() bool {
		now, err := login(url, "bob", "three", pool)
		return err == nil && now != before
	})
	if _, err := login(url, "alice", "one", pool); err == nil {
		t.Error("the old password is taken")
	}
	if _, err := login(url, "alice", "two", pool); err != nil {
		t.Errorf("the new password: %v", err)
	}
}

func TestReloadChangesWhatItCanAndNamesTheRest(t *testing.T) {
	d := newDesk(t)
	d.keep("users.yaml", usersFile(t, map[string]string{"alice": "one"}))
	d.keep("more.yaml", usersFile(t, map[string]string{"bob": "two"}))
	d.write("a.yaml", "routes: [{pattern: A, address: amqp://one}]")
	write := func(text string) string {
		return d.keep("router.yaml", []byte("tables: [a.yaml]\nlisteners: [{url: amqp://127.0.0.1:0}]\n"+text))
	}
	file := write("users: users.yaml")
	a, url := d.start(file)
	if _, err := login(url, "alice", "one", nil); err != nil {
		t.Fatal(err)
	}
	write("users: more.yaml\nname: other\nlimits: {linkCredit: 7, connections: 1}")
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := login(url, "alice", "one", nil); err == nil {
		t.Error("alice is still let in")
	}
	if _, err := login(url, "bob", "two", nil); err != nil {
		t.Errorf("bob: %v", err)
	}
	if !strings.Contains(d.log.String(), `needs a restart" keys="name limits"`) {
		t.Errorf("the log does not name what needs a restart:\n%s", d.log)
	}
	for _, bad := range []string{
		"users: none.yaml", "users: more.yaml\nhops: [{url: amqp://h, user: u, passwordFile: none}]", "users: more.yaml\nlisteners: []",
		"users: more.yaml\nhops: [{url: amqps://h, ca: a.yaml}]",
	} {
		write(bad)
		if err := a.Reload(); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: got %v", bad, err)
		}
		if _, err := login(url, "bob", "two", nil); err != nil {
			t.Errorf("after a bad reload bob: %v", err)
		}
	}
	write("")
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := login(url, "bob", "two", nil); err == nil {
		t.Error("bob is let in where there are no users")
	}
}

func TestWhatIsWrongWithListenersAndHops(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t)
	cert, key := ca.issue("router")
	_, otherKey := ca.issue("router")
	for name, text := range map[string][]byte{"c.crt": cert, "c.key": key, "other.key": otherKey, "ca.crt": ca.pem, "password": []byte("x\n"), "empty": nil, "users.yaml": []byte("users: []")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"listeners: [{url: amqps://h:1, tls: {cert: c.crt, key: c.key}}]", ""},
		{"listeners: [{url: amqps://h:1, tls: {cert: c.crt, key: c.key, clientCA: ca.crt}, sasl: [EXTERNAL]}]", ""},
		{"listeners: [{url: amqps://h:1}]", "line 1: column 13: listeners[0].tls: "},
		{"listeners: [{url: amqps://h:1, tls: {cert: c.crt}}]", "line 1: column 37: listeners[0].tls: "},
		{"listeners: [{url: amqp://h:1, tls: {cert: c.crt, key: c.key}}]", "line 1: column 36: listeners[0].tls: "},
		{"listeners: [{url: amqps://h:1, tls: {cert: none, key: c.key}}]", "line 1: column 44: listeners[0].tls.cert: open "},
		{"listeners: [{url: amqps://h:1, tls: {cert: c.crt, key: none}}]", "line 1: column 56: listeners[0].tls.key: open "},
		{"listeners: [{url: amqps://h:1, tls: {cert: c.crt, key: other.key}}]", "private key does not match"},
		{"listeners: [{url: amqps://h:1, tls: {cert: c.crt, key: c.key, clientCA: c.key}}]", "no certificate in it"},
		{"listeners: [{url: amqp://h:1, sasl: [EXTERNAL]}]", "line 1: column 38: listeners[0].sasl[0]: EXTERNAL needs"},
		{"listeners: [{url: amqp://h:1, sasl: [PLAIN]}]", "PLAIN needs users"},
		{"listeners: [{url: amqp://h:1, sasl: [SCRAM-SHA-256]}]", "SCRAM-SHA-256 needs users"},
		{"users: users.yaml\nlisteners: [{url: amqp://h:1, sasl: [PLAIN]}]", "PLAIN would show"},
		{"users: users.yaml\nlisteners: [{url: amqp://h:1, sasl: [PLAIN], allowInsecurePlain: true}]", ""},
		{"users: users.yaml\nlisteners: [{url: amqp://localhost:1, sasl: [PLAIN]}]", ""},
		{"listeners: [{url: amqp://h:1, sasl: [plain]}]", `no mechanism "plain"`},
		{"listeners: [{url: amqp://h:1, sasl: [ANONYMOUS, ANONYMOUS]}]", "is there twice"},
		{"users: none", "line 1: column 8: users: open "},
		{"users: c.crt", "line 1: column 8: users: "},
		{"hops: [{url: amqps://h, user: u, passwordFile: password, ca: ca.crt, failover: [amqps://b]}]", ""},
		{"hops: [{url: amqps://h, cert: c.crt, key: c.key}]", ""},
		{"hops: [{url: amqps://h, cert: c.crt}]", "cert and key go together"},
		{"hops: [{url: amqp://h, ca: ca.crt}]", "has no TLS"},
		{"hops: [{url: amqp://u:p@h}]", "and nothing more"},
		{"hops: [{url: topic:x}]", "is no peer"},
		{"hops: [{url: amqp://h, user: u}]", "no passwordFile"},
		{"hops: [{url: amqp://h, user: u, passwordFile: empty}]", "line 1: column 47: hops[0].passwordFile: "},
		{"hops: [{url: amqps://h, failover: [amqp://b]}]", "has no TLS, and"},
		{"hops: [{url: amqp://h}, {url: amqp://H:5672}]", "line 1: column 31: hops[1].url: amqp://h is there already"},
		{"limits: {connections: -1}", "line 1: column 23: limits.connections: "},
	} {
		file := filepath.Join(dir, "router.yaml")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := ReadConfig(file)
		if err == nil {
			err = Check(config)
		}
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %s", c.text, err, c.want)
		case err != nil && !strings.HasPrefix(err.Error(), file+": line "):
			t.Errorf("%s: %v does not say where", c.text, err)
		case err != nil && strings.Contains(err.Error(), "u:p"):
			t.Errorf("%s: %v shows a password", c.text, err)
		}
	}
}

// amqpOverHTTPS connects at /amqp.
func amqpOverHTTPS(address string, pool *x509.CertPool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	plain, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer plain.Close()
	nc, err := transport.DialWebSocket(ctx, tls.Client(plain, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"}), address, "/amqp")
	if err != nil {
		return err
	}
	c, err := amqp.NewConn(ctx, nc, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	if err == nil {
		c.Close()
	}
	return err
}

// The HTTP listener with a certificate: everything on it is over TLS, AMQP too, and a new certificate is taken without a restart.
func TestHTTPOverTLS(t *testing.T) {
	d := newDesk(t)
	ca := newAuthority(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.pem)
	cert, key := ca.issue("router")
	d.keep("tls.crt", cert)
	d.keep("tls.key", key)
	text := `http: {listen: "127.0.0.1:0", tls: {cert: tls.crt, key: tls.key}}`
	file := d.keep("router.yaml", []byte(text))
	a, url := d.start(file)
	if !strings.HasPrefix(url, "https://127.0.0.1:") {
		t.Fatalf("ready %s", url)
	}
	get := func(url string) (serial, body string, err error) {
		c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
		r, err := c.Get(url)
		if err != nil {
			return "", "", err
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if r.TLS != nil {
			serial = r.TLS.PeerCertificates[0].SerialNumber.String()
		}
		return serial, string(text), err
	}
	before, body, err := get(url + "/readyz")
	if err != nil || body != "ready\n" {
		t.Fatalf("got %q, %v", body, err)
	}
	if _, body, err := get(strings.Replace(url, "https", "http", 1) + "/readyz"); err == nil && strings.Contains(body, "ready") {
		t.Error("it is answered without TLS, too")
	}
	if err := amqpOverHTTPS(strings.TrimPrefix(url, "https://"), pool); err != nil {
		t.Errorf("/amqp: %v", err)
	}
	cert, key = ca.issue("router")
	d.keep("tls.key", key)
	d.keep("tls.crt", cert)
	d.eventually("the new certificate is taken", func() bool { now, _, err := get(url + "/readyz"); return err == nil && now != before })
	d.keep("router.yaml", []byte(`http: {listen: "127.0.0.1:0"}`))
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(d.log.String(), `needs a restart" keys=http`) {
		t.Errorf("the log does not say that TLS ends with a restart:\n%s", d.log)
	}
	if _, _, err := get(url + "/readyz"); err != nil {
		t.Errorf("after the reload: %v", err)
	}
}
