package nats

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/house/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func open(t *testing.T, o Options) *Conn {
	t.Helper()
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A stream's message is taken once, again where it was not done, and outlives the server where it has a directory.
func TestStream(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := Open(Options{Dir: dir, Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	s := Stream{Name: "S", Subjects: []string{"s.>"}, MaxAge: time.Hour, MaxBytes: 1 << 20}
	if err := c.EnsureStream(ctx, s); err != nil {
		t.Fatal(err)
	}
	got := make(chan *Message, 10)
	take := func(c *Conn) *Subscription {
		sub, err := c.Consume(ctx, "S", "g", "s.a", time.Hour, func(m *Message) { got <- m })
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	sub := take(c)
	if err := c.Publish("s.a", "1", []byte("one")); err != nil {
		t.Fatal(err)
	}
	m := <-got
	if string(m.Data) != "one" || m.Header("ce_id") != "1" || m.Tries != 1 || time.Since(m.At) > time.Minute {
		t.Errorf("got %+v", m)
	}
	m.Done(false)
	if m = <-got; m.Tries != 2 {
		t.Errorf("got %+v", m)
	}
	m.Done(true)
	sub.Stop()
	if err := c.Publish("s.a", "2", []byte("two")); err != nil {
		t.Fatal(err)
	}
	c.Close()
	c = open(t, Options{Dir: dir, Name: "a"})
	sub = take(c)
	if m = <-got; string(m.Data) != "two" {
		t.Errorf("after a restart: %+v", m)
	}
	m.Done(true)
	sub.Stop()
}

// One has the server, another connects; a bucket tells the other of each change, and forgets what is old.
func TestBucket(t *testing.T) {
	a := open(t, Options{URL: "embedded://127.0.0.1:0", Name: "a"})
	b := open(t, Options{URL: a.URL(), Name: "b"})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	one, err := a.Bucket(ctx, "B", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.Bucket(ctx, "B", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Put(ctx, "component/k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 10)
	done := make(chan struct{})
	watching, stop := context.WithCancel(ctx)
	go func() {
		defer close(done)
		other.Watch(watching, func(k string, v []byte) { got <- k + "=" + string(v) })
	}()
	if x := <-got; x != "component/k=v" {
		t.Errorf("got %s", x)
	}
	if err := one.Delete(ctx, "component/k"); err != nil {
		t.Fatal(err)
	}
	if x := <-got; x != "component/k=" {
		t.Errorf("got %s", x)
	}
	stop()
	<-done
}

func TestSubscribe(t *testing.T) {
	a := open(t, Options{})
	if a.URL() != "" || !a.Connected() {
		t.Errorf("a server in the process: %q, %v", a.URL(), a.Connected())
	}
	got := make(chan *Message, 1)
	sub, err := a.Subscribe("x", "q", func(m *Message) { got <- m })
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Publish("x", "i", []byte("y")); err != nil {
		t.Fatal(err)
	}
	if m := <-got; string(m.Data) != "y" || m.Header("ce_id") != "i" || !m.At.IsZero() {
		t.Errorf("got %+v", m)
	}
	sub.Stop()
}

func TestRefused(t *testing.T) {
	for url, want := range map[string]string{"http://x": "write embedded", "": "", "embedded": "", "embedded://h:1": "", "nats://a:1,nats://b:1": "", "nats://a,x": "write embedded"} {
		err := CheckURL(url)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", url, err)
		}
	}
	if _, err := Open(Options{URL: "embedded://127.0.0.1"}); err == nil {
		t.Error("listened without a port")
	}
}

// A server that is asked for streams and closes has ended all that it began to make: leaks.Main finds what is left of them.
func TestCloseWhileStreamsAreMade(t *testing.T) {
	for range 5 {
		c, err := Open(Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			name := fmt.Sprintf("S%d", i)
			if err := c.nc.PublishRequest("$JS.API.STREAM.CREATE."+name, "nobody", []byte(`{"name":"`+name+`","subjects":["`+name+`"],"storage":"memory","retention":"limits","num_replicas":1}`)); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
	}
}

// What is posted is told of: whether somebody takes it, in the order it was posted in.
func TestPost(t *testing.T) {
	c := open(t, Options{Name: "a"})
	taken := make(chan string, 10)
	sub, err := c.Subscribe("p.taken", "q", func(m *Message) { taken <- m.Header("ce_id") + m.Header("x") + string(m.Data) })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Stop()
	fates := make(chan string, 100)
	for _, subject := range []string{"p.none", "p.taken", "p.none", "p.taken", "p.taken", "p.none"} {
		if err := c.Post(subject, subject, [2]string{"x", "1"}, []byte("data"), func(err error) { fates <- fmt.Sprint(subject, " ", err) }); err != nil {
			t.Fatal(err)
		}
	}
	c.Ask()
	var list []string
	for range 6 {
		list = append(list, <-fates)
	}
	if want := "p.none X, p.taken <nil>, p.none X, p.taken <nil>, p.taken <nil>, p.none X"; strings.Join(list, ", ") != strings.ReplaceAll(want, "X", ErrNobody.Error()) {
		t.Errorf("got %s", list)
	}
	for range 3 {
		if got := <-taken; got != "p.taken1data" {
			t.Errorf("got %s", got)
		}
	}
	c.posts.mu.Lock()
	if n := len(c.posts.waiting); n > 0 {
		t.Errorf("%d wait", n)
	}
	c.posts.mu.Unlock()
	// What is not known when the connection ends is told of as well.
	c.Post("p.taken", "last", [2]string{}, nil, func(err error) { fates <- fmt.Sprint(err) })
	c.Close()
	if got := <-fates; got != ErrLost.Error() {
		t.Errorf("got %s", got)
	}
}

// A server of one's own takes and keeps messages of the largest size that is asked for.
func TestLargestMessage(t *testing.T) {
	const most = 10 << 20
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c := open(t, Options{Name: "a", MaxMessage: most})
	if err := c.EnsureStream(ctx, Stream{Name: "S", Subjects: []string{"s.>"}, MaxAge: time.Hour, MaxBytes: 4 * most}); err != nil {
		t.Fatal(err)
	}
	got := make(chan int, 1)
	sub, err := c.Consume(ctx, "S", "g", "s.a", time.Hour, func(m *Message) { got <- len(m.Data); m.Done(true) })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Stop()
	if err := c.Publish("s.a", "1", make([]byte, most-1000)); err != nil {
		t.Fatal(err)
	}
	select {
	case n := <-got:
		if n != most-1000 {
			t.Errorf("got %d bytes", n)
		}
	case <-ctx.Done():
		t.Error("the message does not come")
	}
}
