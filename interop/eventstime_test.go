package interop

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	events "github.com/fingerpost/fingerpost/messenger/event"
)

// A receiver in Go asks for what came before, as a filter or as a property, by a text or a timestamp.
func TestAGoReceiverWithFromTime(t *testing.T) {
	r, page := startEvents(t, "events", "")
	shop := newManager(t, page, "Shop")
	runManager(t, shop)
	put := func(id string) time.Time {
		at, err := shop.Put(t.Context(), &events.Event{ID: id, Type: "T"})
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	put("1")
	second := put("2")
	put("3")
	c, err := amqp.Dial(within(t), r.url(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := c.NewSession(within(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	filter := func(v any) *amqp.ReceiverOptions {
		return &amqp.ReceiverOptions{Filters: []amqp.LinkFilter{amqp.NewLinkFilter("from_time", 0, v)}}
	}
	property := func(v any) *amqp.ReceiverOptions {
		return &amqp.ReceiverOptions{Properties: map[string]any{"from_time": v}}
	}
	text := second.UTC().Format(time.RFC3339Nano)
	for name, o := range map[string]struct {
		o    *amqp.ReceiverOptions
		want []string
	}{
		"a text in a filter":     {filter(text), []string{"2", "3"}},
		"a text in a property":   {property(text), []string{"2", "3"}},
		"all, in a filter":       {filter(""), []string{"1", "2", "3"}},
		"all, in a property":     {property("restart"), []string{"1", "2", "3"}},
		"a time before them all": {property(second.Add(-time.Hour)), []string{"1", "2", "3"}},
		"nothing":                {filter("now"), nil},
		"the future":             {property(second.Add(time.Hour)), nil},
	} {
		rcv, err := s.NewReceiver(within(t), "event:req/T", o.o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		live := fmt.Sprint("live at ", name)
		put(live)
		var got []string
		for len(got) == 0 || got[len(got)-1] != live {
			m, err := rcv.Receive(within(t), nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var e struct {
				ID     string
				Replay bool
			}
			if err := json.Unmarshal(m.GetData(), &e); err != nil || e.Replay == (e.ID == live) {
				t.Errorf("%s: %v in %s", name, err, m.GetData())
			}
			if got = append(got, e.ID); len(e.ID) > 1 && e.Replay {
				got = got[:len(got)-1] // of the cases before
			}
		}
		if want := append(o.want, live); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		if err := rcv.Close(within(t)); err != nil {
			t.Fatal(err)
		}
	}
}
