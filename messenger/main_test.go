package messenger_test

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/messenger"
)

// TestMain fails where a goroutine of ours outlives the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if left := leaked(5 * time.Second); left != "" {
			os.Stderr.WriteString("goroutines left:\n" + left + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

// leaked gives the stacks of goroutines of ours that are still there after a while.
func leaked(patience time.Duration) string {
	over := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		var left []string
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		for _, g := range strings.Split(string(buf), "\n\n") {
			if strings.Contains(g, "fingerpost/internal/amqp") || strings.Contains(g, "fingerpost/messenger.") {
				left = append(left, g)
			}
		}
		if len(left) == 0 {
			return ""
		}
		select {
		case <-tick.C:
		case <-over:
			return strings.Join(left, "\n\n")
		}
	}
}

// within is a context for one step of a test.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// newMessenger makes a messenger that is closed with the test.
func newMessenger(t testing.TB, o messenger.Options) *messenger.Messenger {
	t.Helper()
	m, err := messenger.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Errorf("close %s: %v", m.Name(), err)
		}
	})
	return m
}

// listen opens a free port and gives its address.
func listen(t testing.TB, m *messenger.Messenger) string {
	t.Helper()
	ln, err := m.Listen(within(t), "amqp://~127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	return "amqp://" + ln.Addr().String()
}

func add(t testing.TB, m *messenger.Messenger, pattern, address string) {
	t.Helper()
	if _, err := m.Routes().Add(pattern, address); err != nil {
		t.Fatal(err)
	}
}

func put(t testing.TB, m *messenger.Messenger, msg *messenger.Message) *messenger.Tracker {
	t.Helper()
	tr, err := m.Put(within(t), msg)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func get(t testing.TB, m *messenger.Messenger) *messenger.Delivery {
	t.Helper()
	d, err := m.Get(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func wait(t testing.TB, tr *messenger.Tracker) (messenger.Outcome, error) {
	t.Helper()
	o, err := tr.Wait(within(t))
	if o.State == messenger.Pending {
		t.Fatal("no outcome:", err)
	}
	return o, err
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
