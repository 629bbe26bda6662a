//go:build unix

package app

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A secret that is no file any more, such as a pipe, is refused like other bad content; it holds up nothing: not the other secrets, not a
// reload, not the end.
func TestASecretThatIsAPipeHoldsUpNothing(t *testing.T) {
	d := newDesk(t)
	ca := newAuthority(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.pem)
	cert, key := ca.issue("router")
	for name, text := range map[string][]byte{
		"tls.crt": cert, "tls.key": key, "ca.crt": ca.pem, "hop.crt": cert, "hop.key": key, "hop.pw": []byte("secret\n"),
		"users.yaml": usersFile(t, map[string]string{"alice": "one"}),
	} {
		d.keep(name, text)
	}
	file := d.keep("router.yaml", []byte(`
listeners: [{url: "amqps://127.0.0.1:0", tls: {cert: tls.crt, key: tls.key, clientCA: ca.crt}}]
users: users.yaml
hops:
  - {url: "amqps://h", user: u, passwordFile: hop.pw, ca: ca.crt, cert: hop.crt, key: hop.key}
`))
	a, url := d.start(file)
	for i, name := range []string{"tls.crt", "ca.crt", "hop.pw"} {
		t.Run(name, func(t *testing.T) {
			was, err := os.ReadFile(d.path(name))
			if err != nil {
				t.Fatal(err)
			}
			pipe(t, d.path(name))
			refused := within(t, func() error { return a.Reload() })
			if refused == nil || !strings.Contains(refused.Error(), name+": not a regular file") || !strings.Contains(refused.Error(), "router.yaml: line ") {
				t.Errorf("reload: got %v", refused)
			}
			d.eventually("it is looked at", func() bool { return strings.Contains(d.log.String(), name+": not a regular file") })
			bob := strings.Repeat("x", i+1)
			d.keep("users.yaml", usersFile(t, map[string]string{"bob": bob}))
			d.eventually("another secret is taken", func() bool { _, err := login(url, "bob", bob, pool); return err == nil })
			d.keep(name, was)
			if err := within(t, func() error { return a.Reload() }); err != nil {
				t.Error(err)
			}
		})
	}
	pipe(t, d.path("tls.crt"))
	within(t, func() error { return Check(a.config) })
	within(t, func() error { a.Stop(); return nil })
}

// pipe puts a named pipe that nobody writes to in the place of a file.
func pipe(t *testing.T, path string) {
	t.Helper()
	made := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(made, 0o600); err != nil {
		t.Skip(err)
	}
	if err := os.Rename(made, path); err != nil {
		t.Fatal(err)
	}
}

// within calls f, which has to come back.
func within(t *testing.T, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("it does not come back")
		return nil
	}
}
