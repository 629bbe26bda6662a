package component_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/components"
	"github.com/fingerpost/fingerpost/internal/house/leaks"
	"github.com/fingerpost/fingerpost/messenger/component"
	"github.com/fingerpost/fingerpost/routetable"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// router is a broker of the components of testdata/components/components.yaml.
func router(t *testing.T) (broker *components.Broker, grpc, http string) {
	t.Helper()
	objects, err := components.ReadObjects("../../testdata/components/components.yaml")
	if err != nil {
		t.Fatal(err)
	}
	core := admin.New(routetable.New(), admin.Options{})
	node := forwarder.New(core, forwarder.Options{})
	b, err := components.New(node, core, components.Options{Objects: objects, TTL: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.Listen("127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	g, err := b.ListenHTTP("127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { s.Serve() })
	serving.Go(func() { g.Serve() })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		g.Close(ctx)
		b.Close()
		s.Close(ctx)
		node.Stop(ctx)
		serving.Wait()
	})
	return b, s.Addr().String(), "http://" + g.Addr().String()
}

func connect(t *testing.T, broker, name, hash string, handle func(context.Context, *component.Component, *component.Request) (*component.Response, error)) *component.Component {
	t.Helper()
	c, err := component.Connect(t.Context(), component.Options{Broker: broker, Platform: "lab", App: "hello", Name: name, Hash: hash, Token: name + "-token", Handle: handle})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s %s", r.StatusCode, r.Header.Get("X-Seen"), body)
}

// A request goes to one component, which asks another.
func TestComponents(t *testing.T) {
	_, grpc, http := router(t)
	connect(t, grpc, "backend", "bbbbbbb", func(_ context.Context, _ *component.Component, r *component.Request) (*component.Response, error) {
		switch string(r.Content) {
		case "fail":
			return nil, errors.New("no luck")
		case "none":
			return nil, &component.Error{HTTP: 404, Msg: "not found", Cause: "nobody"}
		}
		return &component.Response{Content: fmt.Appendf(nil, "%d %s", r.RouteID, r.Env["who"])}, nil
	})
	connect(t, grpc, "frontend", "aaaaaaa", func(ctx context.Context, c *component.Component, r *component.Request) (*component.Response, error) {
		query, _ := r.Values["queryParam"].(map[string]any)
		body := fmt.Sprint(query["q"])
		answer, err := c.Call(ctx, r, "backend", &component.Request{Content: []byte(strings.Trim(body, "[]")), Values: map[string]any{"n": 1}})
		if err != nil {
			return nil, err
		}
		return &component.Response{Status: 201, Header: map[string][]string{"X-Seen": {r.Text("method") + " " + r.Text("path")}}, Content: answer.Content}, nil
	})
	for path, want := range map[string]string{
		"/prod/hello":                           "201 GET /prod/hello -1 Universe",
		"/qa/hello?kf-ve=qa&kf-dep=hello-main":  "201 GET /qa/hello -1 World",
		"/prod/hello?q=fail":                    "500  unexpected error: no luck",
		"/prod/hello?q=none":                    "404  not found: nobody",
		"/prod/other":                           "404  route not found",
		"/prod/hello?kf-ve=qa&kf-dep=none":      "404  not found: AppDeployment \"none\" not found",
		"/prod/hello?kf-ve=prod&kf-dep=hello-m": "404  not found: AppDeployment \"hello-m\" not found",
	} {
		if got := get(t, http+path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestRefused(t *testing.T) {
	b, grpc, _ := router(t)
	_, err := component.Connect(t.Context(), component.Options{Broker: grpc, Platform: "lab", App: "hello", Name: "frontend", Hash: "aaaaaaa", Token: "x"})
	if err == nil || !strings.Contains(err.Error(), "component unauthorized") {
		t.Errorf("got %v", err)
	}
	c := connect(t, grpc, "frontend", "aaaaaaa", nil)
	b.Close()
	if err := c.Wait(); !errors.Is(err, io.EOF) {
		t.Errorf("the broker ended: got %v", err)
	}
}
