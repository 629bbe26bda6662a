package app

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
)

// A router is ready when it has said so, and not any more while it lets what is in flight settle; it is alive all the time.
func TestARouterIsReadyUntilItsEndBegins(t *testing.T) {
	config := Config{Listeners: []Listener{{URL: "amqp://127.0.0.1:0"}}, HTTP: HTTP{Listen: "127.0.0.1:0"}, ShutdownGrace: Duration(20 * time.Second)}
	var ready strings.Builder
	a, err := Start(func() (Config, error) { return config, nil }, slog.New(slog.DiscardHandler), &ready)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	status := func(path string) int {
		r, err := client.Get("http://" + a.http.Addr().String() + path)
		if err != nil {
			t.Error(err)
			return 0
		}
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
		return r.StatusCode
	}
	if got := status("/readyz"); got != http.StatusOK {
		t.Errorf("ready: %d", got)
	}
	url, _, _ := strings.Cut(strings.TrimPrefix(ready.String(), "ready "), "\n")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := amqp.Dial(ctx, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := session.NewReceiver(ctx, "A", nil)
	if err != nil {
		t.Fatal(err)
	}
	sender, err := session.NewSender(ctx, "A", nil)
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := sender.SendWithReceipt(ctx, amqp.NewMessage([]byte("x")), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := receiver.Receive(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); a.Stop() }()
	for a.ready.Load() {
		<-time.After(time.Millisecond)
	}
	if got := status("/readyz"); got != http.StatusServiceUnavailable {
		t.Errorf("readiness at the end: %d", got)
	}
	if got := status("/healthz"); got != http.StatusOK {
		t.Errorf("alive at the end: %d", got)
	}
	if err := receiver.AcceptMessage(ctx, m); err != nil {
		t.Error(err)
	}
	if _, err := receipt.Wait(ctx); err != nil {
		t.Error(err)
	}
	<-stopped
}
