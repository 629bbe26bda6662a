package messenger_test

import (
	"context"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/house/leaks"
	"github.com/fingerpost/fingerpost/messenger"
)

func TestMain(m *testing.M) { leaks.Main(m) }

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
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
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
