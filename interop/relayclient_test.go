package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/messenger/relay"
)

// client connects to the relay with a key of the conformance driver.
func (r *relayRouter) client(t *testing.T, key string, o relay.Options) *relay.Client {
	t.Helper()
	o.URL, o.Domain, o.Token = r.web, "acme", relayToken(t, key)
	c, err := relay.Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func relayToken(t testing.TB, key string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(relayFiles(t), "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	var keys struct {
		Keys map[string]struct{ Token string }
	}
	if err := json.Unmarshal(text, &keys); err != nil || keys.Keys[key].Token == "" {
		t.Fatalf("no key %s: %v", key, err)
	}
	return keys.Keys[key].Token
}

func echoParts(_ context.Context, q *relay.Request) error {
	if err := q.Respond(q.Head); err != nil {
		return err
	}
	for part, err := range q.Body() {
		if err != nil {
			return err
		}
		if err := q.Send(part); err != nil {
			return err
		}
	}
	return nil
}

// Many requests at a time over one connection, each of many parts, come back whole and in order.
func TestTheRelayClient(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	server, client := r.client(t, "server", relay.Options{}), r.client(t, "client", relay.Options{})
	if role, err := server.Serve(within(t), "echo", echoParts); role != relay.Active || err != nil {
		t.Fatal(role, err)
	}
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			var parts []json.RawMessage
			want := ""
			for j := range 40 {
				p := relay.String(fmt.Sprint(i, ".", j, strings.Repeat("x", rand.N(3000))))
				parts = append(parts, p)
				want += string(p)
			}
			response, err := client.Request(within(t), "echo", relay.String(fmt.Sprint(i)), relay.Parts(parts...))
			if err != nil {
				t.Error(err)
				return
			}
			got := ""
			for p, err := range response.Body() {
				if err != nil {
					t.Error(err)
				}
				got += string(p)
			}
			if got != want || string(response.Head) != fmt.Sprintf("%q", fmt.Sprint(i)) {
				t.Errorf("request %d: %d bytes, want %d", i, len(got), len(want))
			}
		})
	}
	all.Wait()
	if _, err := client.Request(within(t), "nobody", nil, nil); relay.CodeOf(err) != relay.Unavailable {
		t.Error(err)
	}
	if _, err := client.Serve(within(t), "echo", echoParts); relay.CodeOf(err) != relay.Forbidden {
		t.Error(err)
	}
	if _, err := relay.Connect(within(t), relay.Options{URL: r.web, Domain: "acme", Token: "wrong"}); relay.CodeOf(err) != relay.Forbidden {
		t.Error(err)
	}
}

// A standby is told that it is active, finishes nothing that was begun elsewhere, and what was begun is cancelled by its client.
func TestTheRelayClientTakesOver(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	first, second, client := r.client(t, "server", relay.Options{}), r.client(t, "server", relay.Options{}), r.client(t, "client", relay.Options{})
	began, ended := make(chan struct{}), make(chan error, 1)
	if _, err := first.Serve(within(t), "t", func(ctx context.Context, q *relay.Request) error {
		close(began)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	roles := make(chan relay.Role, 10)
	second.OnRole(func(_ string, role relay.Role) { roles <- role })
	if role, err := second.Serve(within(t), "t", echoParts); role != relay.Standby || err != nil {
		t.Fatal(role, err)
	}
	ctx, cancel := context.WithCancel(within(t))
	answered := make(chan error, 1)
	go func() { _, err := client.Request(ctx, "t", nil, nil); answered <- err }()
	<-began
	cancel()
	if err := <-answered; relay.CodeOf(err) != relay.Cancelled {
		t.Error(err)
	}
	if err := <-ended; relay.CodeOf(err) != relay.Cancelled {
		t.Errorf("the handler ended by %v", err)
	}
	if err := first.Unserve(within(t), "t"); err != nil {
		t.Error(err)
	}
	if role := <-roles; role != relay.Active {
		t.Error(role)
	}
	response, err := client.Request(within(t), "t", relay.String("x"), nil)
	if err != nil || string(response.Head) != `"x"` {
		t.Error(err)
	}
}

// The client comes back to a router that is started again, and serves its topics.
func TestTheRelayClientComesBack(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	roles := make(chan relay.Role, 10)
	server := r.client(t, "full", relay.Options{RetryAfter: 20 * time.Millisecond, RetryMost: 200 * time.Millisecond})
	server.OnRole(func(_ string, role relay.Role) { roles <- role })
	if _, err := server.Serve(within(t), "t", echoParts); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if _, err := server.Request(within(t), "t", nil, nil); relay.CodeOf(err) != relay.Closed {
		t.Error(err)
	}
	_, addr, _ := strings.Cut(r.web, "://")
	startRelay(t, "--http", addr)
	select {
	case role := <-roles:
		if role != relay.Active {
			t.Error(role)
		}
	case <-time.After(patience):
		t.Fatal("the topic is not served again")
	}
	response, err := server.Request(within(t), "t", relay.String("x"), nil)
	if err != nil || string(response.Head) != `"x"` {
		t.Error(err)
	}
}

// relayCtl runs routectl's verbs of the relay with the token in the environment.
func (r *relayRouter) relayCtl(t *testing.T, stdin string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.CommandContext(within(t), routectlProgram, append([]string{"--url", r.web, "relay", "--domain", "acme"}, args...)...)
	cmd.Env = append(os.Environ(), "ROUTECTL_RELAY_TOKEN="+relayToken(t, "full"))
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func (r *relayRouter) serveBy(t *testing.T, topic string, command ...string) *process {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(relayToken(t, "full")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "routectl relay serve", routectlProgram, append([]string{"--url", r.web, "relay", "serve", "--domain", "acme", "--token-file", token, topic, "--"}, command...)...)
	if l := p.line(); l != "serving "+topic+": active" {
		t.Fatalf("got %q", l)
	}
	return p
}

func TestRoutectlRelay(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	r.serveBy(t, "cat", "cat")
	r.serveBy(t, "sum", "sha256sum")
	r.serveBy(t, "head", "sh", "-c", `cat; printf '%s %s' "$RELAY_TOPIC" "$RELAY_HEAD"`)
	r.serveBy(t, "bad", "sh", "-c", "exit 7")
	r.serveBy(t, "half", "sh", "-c", "echo some; exit 7")
	r.serveBy(t, "date", "echo", "does not read")

	binary := make([]byte, 2<<20)
	rand.NewChaCha8([32]byte{1}).Read(binary)
	text := strings.Repeat("grüße, 世界\n", 20_000)
	file := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(file, binary, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, stdin string
		args        []string
		want        string
		status      int
		says        string
	}{
		{"text", text, []string{"request", "cat"}, text, 0, ""},
		{"bytes", "", []string{"request", "cat", file}, string(binary), 0, ""},
		{"a digest of a file", "", []string{"request", "sum", file}, fmt.Sprintf("%x  -\n", sha256.Sum256(binary)), 0, ""},
		{"a head", "body", []string{"request", "head", "--head", `{"a": [1,` + "\n" + `2]}`}, `{"a":[1,2]}` + "\nbody" + `head {"a":[1,2]}`, 0, ""},
		{"a head alone", "", []string{"request", "head", "--no-body", "--head", `"x"`}, "\"x\"\nhead \"x\"", 0, ""},
		{"a command that does not read", text, []string{"request", "date"}, "does not read\n", 0, ""},
		{"a command that fails", "", []string{"request", "bad"}, "", 1, "routectl: bad: failed: exit status 7\n"},
		{"a command that fails half way", "", []string{"request", "half"}, "some\n", 1, "routectl: half: failed: exit status 7\n"},
		{"nobody serves", "", []string{"request", "nobody"}, "", 1, "unavailable"},
		{"a wrong token", "", []string{"request", "cat", "--token", "wrong"}, "", 1, "forbidden"},
		{"an unknown domain", "", []string{"request", "cat", "--domain", "nope"}, "", 1, "404: no such domain"},
		{"another domain", "", []string{"request", "cat", "--domain", "other"}, "", 1, "forbidden"},
		{"no router", "", []string{"request", "cat", "--url", "ws://127.0.0.1:1"}, "", 3, "--url says where"},
	} {
		stdout, stderr, status := r.relayCtl(t, c.stdin, c.args...)
		if stdout != c.want || status != c.status || !strings.Contains(stderr, c.says) || c.status != 0 && strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: status %d, %d bytes %.100q, want %d bytes; %s", c.name, status, len(stdout), stdout, len(c.want), stderr)
		}
	}
}

// A command is killed when its client gives up, and routectl ends in order when it is told to, its role passing on.
func TestRoutectlRelayEnds(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	pid := filepath.Join(t.TempDir(), "pid")
	p := r.serveBy(t, "t", "sh", "-c", "echo $$ > "+pid+"; echo begun; exec sleep 1000")
	second := r.client(t, "server", relay.Options{})
	roles := make(chan relay.Role, 1)
	second.OnRole(func(_ string, role relay.Role) { roles <- role })
	if _, err := second.Serve(within(t), "t", echoParts); err != nil {
		t.Fatal(err)
	}
	client := r.client(t, "client", relay.Options{})
	response, err := client.Request(within(t), "t", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if part, err := response.Next(); string(part) != `"begun\n"` || err != nil {
		t.Fatal(string(part), err)
	}
	response.Close()
	text, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command is killed", func() bool { return !exists(strings.TrimSpace(string(text))) })
	if response, err = client.Request(within(t), "t", nil, nil); err != nil {
		t.Fatal(err)
	}
	if part, err := response.Next(); string(part) != `"begun\n"` || err != nil {
		t.Fatal(string(part), err)
	}
	p.stop()
	if part, err := response.Next(); err != nil {
		t.Error(err)
	} else if e, failed := relay.Failure(part); !failed || e.Message != "the server was interrupted" {
		t.Errorf("a request whose command is killed by the end of serve is told %s", part)
	}
	if status := p.wait(); status != 0 {
		t.Errorf("status %d: %s", status, p.log)
	}
	if role := <-roles; role != relay.Active {
		t.Error(role)
	}
}
