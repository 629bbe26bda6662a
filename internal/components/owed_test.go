package components

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/components/proto"
)

// A replica whose stream ends leaves nobody waiting: a request that came in, one of another component, one that came by another broker.
func TestAStreamThatEndsBeforeItAnswers(t *testing.T) {
	list := together(t, 2, Options{TTL: 5 * time.Minute, MaxEvent: 1 << 20})
	here, there := list[0], list[1]
	f := here.connect(frontend)
	f.handler = func(r *received) { f.respond(r, 200, errorOf(f.request(f.child(&r.Event, "backend"))), nil) }
	for _, x := range []struct {
		at   *testBroker
		end  func(b *standin)
		want string
	}{
		{here, func(b *standin) {
			b.write(&proto.Event{ID: proto.NewID(), Category: proto.Response, Content: []byte(strings.Repeat("x", 2<<20))})
		}, "200 502 component gone: received message larger than max"},
		{here, func(b *standin) { b.stream.CloseSend() }, "200 502 component gone: its stream ended before it answered"},
		{there, func(b *standin) { b.stream.CloseSend() }, "200 502 component gone: its stream ended before it answered"},
	} {
		b := x.at.connect(backend)
		here.knows("hello/backend@bbbbbbb", 1)
		got := make(chan string, 1)
		go func() { got <- here.get("/prod/hello") }()
		b.takes(0)
		x.end(b)
		if got := <-got; got != x.want {
			t.Errorf("got %s, want %s", got, x.want)
		}
		b.end()
		here.knows("hello/backend@bbbbbbb", 0)
	}
	own := there.connect(frontend)
	there.knows("hello/frontend@aaaaaaa", 2)
	got := make(chan string, 1)
	go func() { got <- there.get("/prod/hello") }()
	own.takes(0)
	own.stream.CloseSend()
	if got := <-got; got != "502 component gone: its stream ended before it answered" {
		t.Errorf("got %s", got)
	}
}

// A stream in the place of another owes what that owed: the program is the same, and may answer yet.
func TestAStreamInheritsWhatItsForerunnerOwed(t *testing.T) {
	x := startBroker(t, Options{TTL: 5 * time.Minute})
	w := frontend
	w.id = "replica001"
	old := x.connect(w)
	got := make(chan string, 2)
	for range 2 {
		go func() { got <- x.get("/prod/hello") }()
	}
	first, _ := old.takes(0), old.takes(1)
	heir := x.connect(w)
	if status := old.end(); status != "Aborted another stream has the same id" {
		t.Errorf("ended with %s", status)
	}
	heir.respond(first, 200, "late", nil)
	if got := <-got; got != "200 late" {
		t.Errorf("got %s", got)
	}
	s := x.b.streams.get("hello-frontend-aaaaaaa-replica001")
	x.until("the stream owes what its forerunner did", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.owed.all) == 1 })
	heir.stream.CloseSend()
	if got := <-got; got != "502 component gone: its stream ended before it answered" {
		t.Errorf("got %s", got)
	}
}

// What nobody waits for any more is forgotten, responses and messages are not owed, and there is a bound.
func TestOwedIsBounded(t *testing.T) {
	var o owed
	at := time.Unix(1000, 0)
	add := func(e proto.Event, n int) {
		for i := range n {
			e.ID = fmt.Sprint(e.Category, e.TTL, "-", i)
			o.add(proto.AppendMatched(nil, &e, 0, nil, proto.D4), at)
		}
	}
	for _, c := range []proto.Category{0, proto.Message, proto.Response} {
		add(proto.Event{Category: c, TTL: int64(time.Minute)}, 1)
	}
	if len(o.all) != 0 {
		t.Errorf("%d are owed", len(o.all))
	}
	add(proto.Event{Category: proto.Request, TTL: 1}, fewOwed)
	at = at.Add(time.Second)
	add(proto.Event{Category: proto.Request, TTL: int64(time.Minute), Content: make([]byte, 2000)}, 10)
	if len(o.all) != 10 {
		t.Errorf("%d are owed, want 10", len(o.all))
	}
	for id, d := range o.all {
		if len(d.head) > 100 || !strings.Contains(string(d.head), id) || !d.until.Equal(at.Add(time.Minute)) {
			t.Errorf("%q until %v: %q", id, d.until, d.head)
		}
	}
	add(proto.Event{Category: proto.Request, TTL: int64(time.Hour)}, maxOwed)
	if len(o.all) != maxOwed {
		t.Errorf("%d are owed, want %d", len(o.all), maxOwed)
	}
}
