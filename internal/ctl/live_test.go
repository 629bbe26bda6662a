package ctl

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	transport "github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/components"
	"github.com/fingerpost/fingerpost/internal/users"
	"github.com/fingerpost/fingerpost/routetable"
)

// startRouter starts a router in this process. Its users are named after their roles, with the password "secret".
func startRouter(t *testing.T) (core *admin.Core, host string) {
	core, _, host = startNode(t)
	return core, host
}

func startNode(t *testing.T) (core *admin.Core, n *forwarder.Node, host string) {
	t.Helper()
	core = admin.New(routetable.New(), admin.Options{Name: "r"})
	n = forwarder.New(core, forwarder.Options{
		DeliveryTimeout: time.Second,
		Access:          forwarder.Access{Users: roleUsers(t)},
	})
	addr, err := n.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		n.Stop(ctx)
	})
	return core, n, addr.String()
}

// startBroker gives the router a broker of components.
func startBroker(t *testing.T, core *admin.Core, n *forwarder.Node, file string) {
	t.Helper()
	o, err := components.ReadObjects(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := components.New(n, core, components.Options{Objects: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
}

// roleUsers are named after their roles.
func roleUsers(t *testing.T) *users.Directory {
	t.Helper()
	var f users.File
	for _, role := range []admin.Role{admin.RoleViewer, admin.RoleOperator, admin.RoleAdmin} {
		v, err := transport.MakeVerifiers(role.String(), "secret", transport.MinIterations)
		if err != nil {
			t.Fatal(err)
		}
		f.Users = append(f.Users, users.User{Name: role.String(), Role: role, Verifiers: v})
	}
	d, err := f.Directory()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The sessions of testdata/ctl/live are run on a router behind a socket; those of a viewer by one.
func TestLiveSessions(t *testing.T) {
	files, err := filepath.Glob("../../testdata/ctl/live/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sessions: %v", err)
	}
	objects, err := filepath.Abs("../../testdata/components/components.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		file, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			core, node, host := startNode(t)
			if _, err := core.Do(admin.Caller{}, admin.Subscribe{Pattern: "learned", Address: "link:7", Origin: "link:7"}); err != nil {
				t.Fatal(err)
			}
			user := "operator"
			if strings.HasPrefix(filepath.Base(file), "component") {
				startBroker(t, core, node, objects)
				user = "admin"
			}
			if strings.HasPrefix(filepath.Base(file), "viewer") {
				user = "viewer"
				if _, err := core.Table().Add("COLOSSUS", "amqp://user:secret@5.6.7.8:1234"); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("ROUTECTL_URL", "amqp://"+user+":secret@"+host)
			got := runSession(t, string(want), nil)
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("%s: %s", file, firstDifference(got, string(want)))
			}
		})
	}
}

func TestSendToAReceiver(t *testing.T) {
	core, host := startRouter(t)
	env := Env{Stdin: strings.NewReader(""), Getenv: func(string) string { return "" }}
	var got, errs bytes.Buffer
	env.Stdout, env.Stderr = &got, &errs
	attached := make(chan struct{}, 8)
	defer core.Table().OnChange(func(ch routetable.Change) {
		for _, r := range ch.Added {
			if r.Pattern == "ORDERS" {
				attached <- struct{}{}
			}
		}
	})()
	received := make(chan int)
	go func() {
		received <- Run(context.Background(), []string{"--url", host, "recv", "ORDERS", "--count", "3", "--timeout", "30s", "-o", "json"}, env)
	}()
	select {
	case <-attached:
	case <-time.After(20 * time.Second):
		t.Fatalf("no receiver: %s", errs.String())
	}
	var sent bytes.Buffer
	sender := env
	sender.Stdout, sender.Stderr = &sent, &sent
	if status := Run(context.Background(), []string{"--url", host, "send", "ORDERS", "one", "--property", "k=v"}, sender); status != 0 {
		t.Errorf("send: exit %d: %s", status, sent.String())
	}
	if status := Run(context.Background(), []string{"--url", host, "send", "ORDERS", "--count", "2"}, sender); status != 0 {
		t.Errorf("send of empty bodies: exit %d: %s", status, sent.String())
	}
	if status := <-received; status != 0 {
		t.Errorf("recv: exit %d: %s", status, errs.String())
	}
	want := `{"properties":{"to":"ORDERS"},"application-properties":{"k":"v"},"body":"one"}` + "\n" +
		strings.Repeat(`{"properties":{"to":"ORDERS"},"body":""}`+"\n", 2)
	if got.String() != want {
		t.Errorf("\n got %s\nwant %s", got.String(), want)
	}
	if want := strings.Repeat("accepted\n", 3); sent.String() != want {
		t.Errorf("got %q, want %q", sent.String(), want)
	}
}

// interrupter is an output that interrupts once something is said.
type interrupter struct {
	bytes.Buffer
	done context.CancelFunc
}

func (w *interrupter) Write(p []byte) (int, error) {
	w.done()
	return w.Buffer.Write(p)
}

func TestInterruptEndsARecv(t *testing.T) {
	_, host := startRouter(t)
	for _, c := range []struct {
		count  string
		status int
		text   string
	}{
		{"1", exitNo, "attached to X\nroutectl: interrupted: 0 of 1 messages\n"},
		{"0", exitDone, "attached to X\n"},
	} {
		run, done := context.WithCancel(context.Background())
		errs := interrupter{done: done}
		status := Run(run, []string{"--url", host, "recv", "X", "--count", c.count}, Env{
			Stdin: strings.NewReader(""), Stdout: &errs, Stderr: &errs, Getenv: func(string) string { return "" },
		})
		if status != c.status || errs.String() != c.text {
			t.Errorf("--count %s: got exit %d, %q, want %d, %q", c.count, status, errs.String(), c.status, c.text)
		}
	}
}

func TestRefusedLogin(t *testing.T) {
	_, host := startRouter(t)
	for _, argv := range [][]string{
		{"--url", "amqp://operator:wrong@" + host, "list"},
		{"--url", "amqp://operator:wrong@" + host, "send", "A"},
	} {
		var errs bytes.Buffer
		status := Run(context.Background(), argv, Env{Stdin: strings.NewReader(""), Stdout: &errs, Stderr: &errs, Getenv: func(string) string { return "" }})
		want := "routectl: amqp://" + host + ": authentication failed: check the user and the password (--url, --user, --password-file)\n"
		if status != exitUnreachable || errs.String() != want {
			t.Errorf("%v: got exit %d, %q, want %d, %q", argv, status, errs.String(), exitUnreachable, want)
		}
	}
}

// Routectl logs in by SCRAM where a router takes nothing else, and says what else may be at a port where it is not understood.
func TestLoginsAndPorts(t *testing.T) {
	core := admin.New(routetable.New(), admin.Options{Name: "r"})
	n := forwarder.New(core, forwarder.Options{Access: forwarder.Access{Users: roleUsers(t)}})
	t.Cleanup(func() { n.Stop(context.Background()) })
	addr, err := n.ListenWith(forwarder.ListenOptions{Address: "127.0.0.1:0", SASL: []string{"SCRAM-SHA-512"}})
	if err != nil {
		t.Fatal(err)
	}
	host := addr.String()
	mute, err := net.Listen("tcp", "127.0.0.1:0") // takes a connection and ends it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	go func() {
		for {
			c, err := mute.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	for _, c := range []struct {
		url    string
		status int
		want   string
	}{
		{"amqp://viewer:secret@" + host, exitDone, ""},
		{"amqp://viewer:wrong@" + host, exitUnreachable, "authentication failed: check the user and the password"},
		{"amqp://" + host, exitUnreachable, "it has [SCRAM-SHA-512]: give a user"},
		{"amqp://" + mute.Addr().String(), exitUnreachable, "the peer hung up: is that an AMQP 1.0 port, and one without TLS (amqps://)?"},
		{"ws://" + mute.Addr().String(), exitUnreachable, "the peer hung up: is that a port with WebSocket, and one without TLS (wss://)?"},
		{"ws://" + host, exitUnreachable, "the peer hung up: is that a port with WebSocket"},
		{"amqp://127.0.0.1:65536", exitUsage, `port "65536" is out of range`},
		{"amqp://127.0.0.1:0", exitUsage, `port "0" is out of range`},
	} {
		var out, errs bytes.Buffer
		status := Run(context.Background(), []string{"--url", c.url, "list"}, Env{
			Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" },
		})
		if status != c.status || !strings.Contains(errs.String(), c.want) || strings.Count(errs.String(), "\n") > 1 {
			t.Errorf("%s: got exit %d, %q, want %d, %q", c.url, status, errs.String(), c.status, c.want)
		}
	}
}

// Words that are no UTF-8 are bytes of a row, which is listed and found again, and no words of a message; nothing that is not to be seen
// reaches a terminal.
func TestWordsThatAreNoText(t *testing.T) {
	_, host := startRouter(t)
	ctl := func(argv ...string) (int, string) {
		var out bytes.Buffer
		status := Run(context.Background(), append([]string{"--url", "amqp://operator:secret@" + host}, argv...), Env{
			Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" },
		})
		return status, out.String()
	}
	for _, c := range []struct {
		argv   string
		status int
		want   string
	}{
		{"add a\xffb null --note n\xff\x1b[31m", exitDone, "1 added"},
		{"add \u202ec null", exitDone, "1 added"},
		{"list", exitDone, "PATTERN  ADDRESS  PICK  ORIGIN    NOTE\na\\xffb   null     all   operator  n\\xff\\x1b[31m\n\\u202ec  null     all   operator\n"},
		{"explain a\xffb", exitDone, "null"},
		{"explain x --property k=\xff", exitUsage, "not UTF-8"},
		{"send \xff", exitUsage, "not UTF-8"},
		{"send x y --link \xff", exitUsage, "not UTF-8"},
		{"send x y --property k=\xff", exitUsage, "not UTF-8"},
		{"recv \xff", exitUsage, "not UTF-8"},
		{"delete a\xffb null", exitDone, "1 removed"},
	} {
		if status, got := ctl(strings.Fields(c.argv)...); status != c.status || !strings.Contains(got, c.want) {
			t.Errorf("%q: got exit %d, %q, want %d, %q", c.argv, status, got, c.status, c.want)
		}
	}
}
