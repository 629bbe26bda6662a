package interop

import (
	"fmt"
	"testing"

	"github.com/fingerpost/fingerpost/messenger"
)

// The client library is the seed's Sender, with a table of its own, and one of the receivers that listen.
func TestTheLibraryAtBothEnds(t *testing.T) {
	receiver, err := messenger.New(messenger.Options{Name: "arm"})
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close(within(t))
	listener, err := receiver.Listen(within(t), "amqp://~127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	foreign, foreignAddr := serveBy(t, proton)
	r := startRouter(t, "router", rows("COLOSSUS", listener.Addr().String(), "COLOSSUS", foreignAddr, "HAL9000", "null"))
	sender, err := messenger.New(messenger.Options{Name: "sender"})
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close(within(t))
	for _, name := range []string{"COLOSSUS", "HAL9000", "MULTIVAC"} {
		if _, err := sender.Routes().Add(name, r.addr); err != nil {
			t.Fatal(err)
		}
	}
	b := batchOf{to: "COLOSSUS", id: "m", count: 4, sizes: []int{0, 100, 70_000, 3}}
	put := func(to string, n int) *messenger.Tracker {
		tracker, err := sender.Put(within(t), &messenger.Message{Address: to, MessageID: fmt.Sprintf("m-%d", n), Body: bodyOf(n, b.sizes[n]), Properties: map[string]any{"n": int64(n)}})
		if err != nil {
			t.Fatalf("put to %s: %v", to, err)
		}
		return tracker
	}
	var trackers []*messenger.Tracker
	for n := range b.count {
		trackers = append(trackers, put("COLOSSUS", n))
	}
	var have []got
	for range b.count {
		d, err := receiver.Get(within(t))
		if err != nil {
			t.Fatalf("the library has %d messages: %v", len(have), err)
		}
		have = append(have, got{fmt.Sprint(d.Message.MessageID), d.Message.Address, len(d.Message.Body), shaOf(d.Message.Body)})
		if err := d.Accept(); err != nil {
			t.Error(err)
		}
	}
	sameMessages(t, "the library", have, b.want())
	sameMessages(t, proton, messagesOf(foreign, b.count), b.want())
	for n, tracker := range append(trackers, put("HAL9000", 0)) {
		if o, err := tracker.Wait(within(t)); err != nil || o.Err != nil {
			t.Errorf("message %d: %v, %v", n, o, err)
		}
	}
	o, _ := put("MULTIVAC", 0).Wait(within(t))
	if refused := as[*messenger.Error](o.Err); refused == nil || refused.Condition != "amqp:not-found" {
		t.Errorf("MULTIVAC: got %v, want rejected amqp:not-found", o)
	}
}
