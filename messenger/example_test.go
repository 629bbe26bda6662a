package messenger_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/messenger"
	"github.com/fingerpost/fingerpost/routetable"
)

// A sender writes to a name; the table says where that is today.
func ExampleMessenger_Put() {
	ctx := context.Background()
	receiver, err := messenger.New(messenger.Options{Name: "receiver"})
	if err != nil {
		log.Fatal(err)
	}
	defer receiver.Close(ctx)
	ln, err := receiver.Listen(ctx, "amqp://~127.0.0.1:0", nil)
	if err != nil {
		log.Fatal(err)
	}

	sender, err := messenger.New(messenger.Options{Name: "sender"})
	if err != nil {
		log.Fatal(err)
	}
	defer sender.Close(ctx)
	sender.Routes().Add("COLOSSUS", "amqp://"+ln.Addr().String())

	tracker, err := sender.Put(ctx, &messenger.Message{Address: "COLOSSUS", Body: []byte("hello")})
	if err != nil {
		log.Fatal(err)
	}

	d, err := receiver.Get(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("to %s: %s\n", d.Message.Address, d.Message.Body)
	d.Accept()

	outcome, err := tracker.Wait(ctx)
	fmt.Println(outcome.State, err)
	// Output:
	// to COLOSSUS: hello
	// accepted <nil>
}

// Two rows for one name: a copy goes to each, and the tracker tells of both.
func ExampleTracker_Copies() {
	ctx := context.Background()
	sender, _ := messenger.New(messenger.Options{})
	defer sender.Close(ctx)
	answers := []func(*messenger.Delivery) error{
		(*messenger.Delivery).Accept,
		func(d *messenger.Delivery) error { return d.Reject(errors.New("out of paper")) },
	}
	for _, answer := range answers {
		receiver, _ := messenger.New(messenger.Options{})
		defer receiver.Close(ctx)
		ln, err := receiver.Listen(ctx, "amqp://~127.0.0.1:0", nil)
		if err != nil {
			log.Fatal(err)
		}
		sender.Routes().Add("PRINTERS", "amqp://"+ln.Addr().String())
		go func() {
			if d, err := receiver.Get(ctx); err == nil {
				answer(d)
			}
		}()
	}

	tracker, err := sender.Put(ctx, &messenger.Message{Address: "PRINTERS", Body: []byte("page 1")})
	if err != nil {
		log.Fatal(err)
	}
	outcome, err := tracker.Wait(ctx)
	var why *messenger.Error
	fmt.Println(outcome.State, errors.As(err, &why))
	fmt.Println(why.Condition, "-", why.Description)
	for _, c := range tracker.Copies() {
		fmt.Println(c.Outcome.State)
	}
	// Output:
	// rejected true
	// amqp:precondition-failed - out of paper
	// accepted
	// rejected
}

// Reply-to "~" is an address made for the connection that the request goes by.
func ExampleDelivery_Reply() {
	ctx := context.Background()
	server, _ := messenger.New(messenger.Options{})
	defer server.Close(ctx)
	ln, err := server.Listen(ctx, "amqp://~127.0.0.1:0", nil)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for {
			d, err := server.Get(ctx)
			if err != nil {
				return
			}
			d.Reply(ctx, &messenger.Message{Body: []byte("fine, thank you")})
			d.Accept()
		}
	}()

	client, _ := messenger.New(messenger.Options{})
	defer client.Close(ctx)
	client.Put(ctx, &messenger.Message{
		Address: "amqp://" + ln.Addr().String(), ReplyTo: "~", MessageID: "q1", Body: []byte("how are you?"),
	})
	d, err := client.Get(ctx)
	if err != nil {
		log.Fatal(err)
	}
	d.Accept()
	fmt.Println(d.IsReply(), d.Message.CorrelationID, string(d.Message.Body))
	// Output: true q1 fine, thank you
}

// A router passes messages on byte for byte, and answers when it has an answer.
func ExampleDelivery_Raw() {
	ctx := context.Background()
	last, _ := messenger.New(messenger.Options{})
	defer last.Close(ctx)
	lastAt, err := last.Listen(ctx, "amqp://~127.0.0.1:0", nil)
	if err != nil {
		log.Fatal(err)
	}

	router, _ := messenger.New(messenger.Options{})
	defer router.Close(ctx)
	router.Routes().Add("COLOSSUS", "amqp://"+lastAt.Addr().String())
	routerAt, err := router.Listen(ctx, "amqp://~127.0.0.1:0", nil)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		d, err := router.Get(ctx)
		if err != nil {
			return
		}
		tracker, err := router.Put(ctx, &messenger.Message{Address: d.Message.Address, Raw: d.Raw()})
		if err != nil {
			d.Reject(err)
			return
		}
		if _, err := tracker.Wait(ctx); err != nil {
			d.Reject(err)
			return
		}
		d.Accept()
	}()

	sender, _ := messenger.New(messenger.Options{})
	defer sender.Close(ctx)
	sender.Routes().Add("*", "amqp://"+routerAt.Addr().String())
	tracker, err := sender.Put(ctx, &messenger.Message{Address: "COLOSSUS", Subject: "two hops"})
	if err != nil {
		log.Fatal(err)
	}
	d, err := last.Get(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Message.Address, d.Message.Subject)
	d.Accept()
	outcome, _ := tracker.Wait(ctx)
	fmt.Println(outcome.State)
	// Output:
	// COLOSSUS two hops
	// accepted
}

// A name in no row, and one that is discarded.
func ExampleMessenger_Routes() {
	ctx := context.Background()
	m, _ := messenger.New(messenger.Options{})
	defer m.Close(ctx)
	m.Routes().Add("HAL9000", "null")

	tracker, err := m.Put(ctx, &messenger.Message{Address: "HAL9000"})
	if err != nil {
		log.Fatal(err)
	}
	outcome, _ := tracker.Wait(ctx)
	fmt.Println(outcome.State)

	_, err = m.Put(ctx, &messenger.Message{Address: "SKYNET"})
	fmt.Println(err, errors.Is(err, messenger.ErrNoRoute))
	// Output:
	// accepted
	// no route matches the address: "SKYNET" true
}

// A request goes through two routers, of which the first knows where the second is, and no more; its answer comes back by both.
func ExampleDelivery_Reply_routers() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	second, secondAddr := startRouter("")
	defer second.Stop(ctx)
	first, firstAddr := startRouter("DEEP-THOUGHT --> " + secondAddr)
	defer first.Stop(ctx)

	service, err := messenger.New(messenger.Options{Name: "service"})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close(ctx)
	if _, err := service.Subscribe(ctx, "amqp://"+secondAddr+"/DEEP-THOUGHT", nil); err != nil {
		log.Fatal(err)
	}
	client, err := messenger.New(messenger.Options{Name: "client"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	client.Routes().Add("*", "amqp://"+firstAddr)
	if _, err := client.Put(ctx, &messenger.Message{Address: "DEEP-THOUGHT", ReplyTo: "~", Body: []byte("what is 6 times 7?")}); err != nil {
		log.Fatal(err)
	}

	request, err := service.Get(ctx)
	if err != nil {
		log.Fatal(err)
	}
	request.Accept()
	if _, err := request.Reply(ctx, &messenger.Message{Body: []byte("42")}); err != nil {
		log.Fatal(err)
	}

	answer, err := client.Get(ctx)
	if err != nil {
		log.Fatal(err)
	}
	answer.Accept()
	fmt.Printf("%s %s, a reply: %v\n", request.Message.Body, answer.Message.Body, answer.IsReply())
	// Output:
	// what is 6 times 7? 42, a reply: true
}

// startRouter runs a router with a row, "" for none.
func startRouter(row string) (n *forwarder.Node, addr string) {
	table := routetable.New()
	if pattern, address, ok := strings.Cut(row, " --> "); ok {
		if _, err := table.Add(pattern, address); err != nil {
			log.Fatal(err)
		}
	}
	n = forwarder.New(admin.New(table, admin.Options{}), forwarder.Options{})
	at, err := n.Listen("127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	return n, at.String()
}
