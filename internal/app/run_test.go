package app

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/house/journal"
)

// A whole router: it is started, its table file changes, its configuration is read again, and it ends.
func TestARouterFollowsItsFiles(t *testing.T) {
	d := newDesk(t)
	d.write("a.yaml", "routes: [{pattern: A, address: amqp://one}]")
	d.write("b.yaml", "routes: [{pattern: B, address: amqp://two}]")
	config := Config{
		Listeners: []Listener{{URL: "amqp://127.0.0.1:0"}}, HTTP: HTTP{Listen: "127.0.0.1:0"},
		Tables: []string{d.path("a.yaml")},
	}
	var ready bytes.Buffer
	a, err := Start(func() (Config, error) { return config, nil }, slog.New(slog.NewTextHandler(d.log, nil)), &ready)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	d.table, d.files = a.table, a.files
	if got := ready.String(); strings.Count(got, "ready amqp://127.0.0.1:") != 1 || strings.Count(got, "ready http://127.0.0.1:") != 1 {
		t.Errorf("got %q", got)
	}
	d.replace("a.yaml", "routes: [{pattern: A, address: amqp://three}]")
	d.wantRows("A>amqp://three")

	config.Tables = append(config.Tables, d.path("b.yaml"))
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	d.wantRows("A>amqp://three B>amqp://two")
	d.replace("b.yaml", "routes: [")
	d.eventually("b.yaml is refused", func() bool { return a.files.list()[1].err != nil })
	if err := a.Reload(); err == nil || !strings.Contains(err.Error(), "b.yaml: line 1") {
		t.Errorf("got %v", err)
	}

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + a.http.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`fingerpost_table_file_ok{file="a.yaml"} 1`, `fingerpost_table_file_ok{file="b.yaml"} 0`,
		`fingerpost_table_file_errors_total{file="b.yaml"} 1`, "fingerpost_table_rows 2", "fingerpost_messages_received_total 0",
	} {
		if !strings.Contains(string(page), want+"\n") {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`fingerpost_[a-z_]+`).FindAllString(string(readme), -1)
	for _, name := range names {
		if !strings.Contains(string(page), "\n# TYPE "+name+" ") {
			t.Errorf("the README has %s, /metrics has not", name)
		}
	}
	if len(names) < 10 {
		t.Errorf("the README names %d metrics only", len(names))
	}
	config.Tables = []string{d.path("a.yaml")}
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	d.wantRows("A>amqp://three")
}

func TestABadTableAtStartIsABadConfiguration(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("routes: [{pattern: A}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{bad, bad + ".none"} {
		config := Config{Listeners: []Listener{{URL: "amqp://127.0.0.1:0"}}, Tables: []string{path}}
		var log journal.Journal
		_, err := Start(func() (Config, error) { return config, nil }, slog.New(slog.NewTextHandler(&log, nil)), io.Discard)
		if ce, ok := err.(*ConfigError); !ok || !strings.Contains(ce.Error(), path+": ") {
			t.Errorf("Start: got %v", err)
		}
		if log.String() != "" {
			t.Errorf("the error is told twice:\n%s", &log)
		}
		err = Check(config)
		if ce, ok := err.(*ConfigError); !ok || !strings.Contains(ce.Error(), path+": ") {
			t.Errorf("Check: got %v", err)
		}
	}
}

// Content that was loaded is not loaded again after a restart, so that edits last; where the state was taken back to before that, it is.
func TestARestartLoadsWhatTheStateDoesNotHold(t *testing.T) {
	d := newDesk(t)
	d.write("a.yaml", "routes: [{pattern: A, address: amqp://one}, {pattern: B, address: amqp://two}]")
	config := Config{Listeners: []Listener{{URL: "amqp://127.0.0.1:0"}}, State: d.path("state"), Tables: []string{d.path("a.yaml")}}
	run := func(do func(a *App)) {
		t.Helper()
		a, err := Start(func() (Config, error) { return config, nil }, slog.New(slog.NewTextHandler(d.log, nil)), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Stop()
		d.table, d.files = a.table, a.files
		do(a)
	}
	run(func(a *App) {
		d.wantRows("A>amqp://one B>amqp://two")
		if _, err := a.table.Delete("B", "amqp://two"); err != nil {
			t.Fatal(err)
		}
	})
	run(func(*App) { d.wantRows("A>amqp://one") })

	files, err := filepath.Glob(filepath.Join(d.path("state"), "table.*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of the table: %v", err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	run(func(*App) { d.wantRows("A>amqp://one B>amqp://two") })
}

// A port that somebody else has is told with what to do, whichever listener wants it.
func TestAPortThatIsTakenIsTold(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	taken := other.Addr().String()
	for _, c := range []struct {
		name, want string
		config     Config
	}{
		{"of clients", "listeners[0].url: listen", Config{Listeners: []Listener{{URL: "amqp://" + taken}}}},
		{"of Rembus", "listeners[0].url: listen", Config{Listeners: []Listener{{URL: "rembus+ws://" + taken}}}},
		{"of HTTP", "http.listen: listen", Config{HTTP: HTTP{Listen: taken}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := Start(func() (Config, error) { return c.config, nil }, slog.New(slog.DiscardHandler), io.Discard)
			if err == nil {
				a.Stop()
				t.Fatal("it started")
			}
			var bad *ConfigError
			if !strings.Contains(err.Error(), taken+": the port is taken") || !strings.Contains(err.Error(), c.want) || errors.As(err, &bad) {
				t.Errorf("got %v", err)
			}
		})
	}
}
