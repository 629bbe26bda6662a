// Command hello is two components in one program: a frontend, which asks a backend whom to greet.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/fingerpost/fingerpost/messenger/component"
)

func main() {
	broker := "127.0.0.1:6060"
	if len(os.Args) > 1 {
		broker = os.Args[1]
	}
	connect := func(name, hash string, handle func(context.Context, *component.Component, *component.Request) (*component.Response, error)) *component.Component {
		c, err := component.Connect(context.Background(), component.Options{
			Broker: broker, Platform: "lab", App: "hello", Name: name, Hash: hash, Token: name + "-token", Handle: handle,
		})
		if err != nil {
			log.Fatal(err)
		}
		return c
	}
	connect("backend", "bbbbbbb", func(_ context.Context, _ *component.Component, r *component.Request) (*component.Response, error) {
		return &component.Response{Content: []byte(fmt.Sprint(r.Env["who"]))}, nil
	})
	frontend := connect("frontend", "aaaaaaa", func(ctx context.Context, c *component.Component, r *component.Request) (*component.Response, error) {
		who, err := c.Call(ctx, r, "backend", &component.Request{})
		if err != nil {
			return nil, err
		}
		return &component.Response{ContentType: "text/plain", Content: []byte("Hello " + string(who.Content) + "!\n")}, nil
	})
	fmt.Println("connected")
	log.Fatal(frontend.Wait())
}
