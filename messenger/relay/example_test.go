package relay_test

import (
	"context"
	"fmt"
	"log"

	"github.com/fingerpost/fingerpost/messenger/relay"
)

// One program serves a topic, and another sends it a request. Both may be the same.
func Example() {
	ctx := context.Background()
	c, err := relay.Connect(ctx, relay.Options{URL: "ws://127.0.0.1:8080", Domain: "acme", Token: "secret"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	_, err = c.Serve(ctx, "echo", func(_ context.Context, r *relay.Request) error {
		if err := r.Respond(r.Head); err != nil {
			return err
		}
		for part, err := range r.Body() {
			if err != nil {
				return err
			}
			if err := r.Send(part); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	response, err := c.Request(ctx, "echo", relay.String("hello"), relay.Parts(relay.String("a"), relay.String("b")))
	if err != nil {
		log.Fatal(err) // a *relay.Error: its Code says what became of the request
	}
	fmt.Println(string(response.Head))
	for part, err := range response.Body() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(part))
	}
}
