package messenger

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestCredentialsAreStripped(t *testing.T) {
	for _, x := range []struct{ address, want string }{
		{"COLOSSUS", "COLOSSUS"},
		{"amqp://h:5/q", "amqp://h:5/q"},
		{"amqp://u:p@h:5/q", "amqp://h:5/q"},
		{"amqp://u@h/q", "amqp://h/q"},
		{"amqp://:@h/q", "amqp://h/q"},
		{"amqp://@h", "amqp://h"},
		{"u:p@h/q", "h/q"},
		{"amqp://u:p@[::1]:5/q", "amqp://[::1]:5/q"},
		{"amqp://u:p@~[::1]:5", "amqp://~[::1]:5"},
		{"amqp://u:p@~h/q", "amqp://~h/q"},
		{"amqp://u:p%2Fw%40@h/q", "amqp://h/q"},
		{"amqp://u:p@ss@h/q", "amqp://h/q"},
		{"AMQPS://u:p@h/a@b/c", "AMQPS://h/a@b/c"},
		{"amqp://h/a@b", "amqp://h/a@b"},
		{"amqp://h:5/a@b", "amqp://h:5/a@b"},
		{"amqp://[::1]/a@b", "amqp://[::1]/a@b"},
		{"http://u:p@h/", "http://h/"},
		{"topic:a@b", "topic:a@b"},
		{"orders:eu/bob@example.com", "orders:eu/bob@example.com"},
	} {
		if got, err := stripUserinfo(x.address); got != x.want || err != nil {
			t.Errorf("%q: got %q %v, want %q", x.address, got, err, x.want)
		}
	}
}

func TestAPasswordWithARawSlashIsRefused(t *testing.T) {
	var ae *AddressError
	if got, err := stripUserinfo("amqp://u:p/w@h/q"); !errors.As(err, &ae) || strings.Contains(err.Error(), "p/w") {
		t.Errorf("got %q %v", got, err)
	}
}

func FuzzStripUserinfo(f *testing.F) {
	for _, s := range []string{"amqp://u:p@h/q", "u:p/w@h", "amqp://[::1]:5/a@b", "~x@y", "a://b@c@d/e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		got, err := stripUserinfo(address)
		if err != nil {
			return
		}
		again, err := stripUserinfo(got)
		if strings.Count(got, "@") > strings.Count(address, "@") || len(got) > len(address) {
			t.Errorf("%q grew to %q", address, got)
		}
		if err == nil && strings.Contains(got, "://") && strings.HasPrefix(address, got[:strings.Index(got, "://")+3]) && again != got {
			t.Errorf("%q: %q, then %q", address, got, again)
		}
	})
}

func TestListenAddresses(t *testing.T) {
	for _, x := range []struct {
		address, want string
		secure        bool
	}{
		{"amqp://~127.0.0.1:6666", "127.0.0.1:6666", false},
		{"~127.0.0.1", "127.0.0.1:5672", false},
		{"127.0.0.1:0/name", "127.0.0.1:0", false},
		{"amqps://~[::1]", "[::1]:5671", true},
		{"AMQP://~[::]:1", "[::]:1", false},
		{"http://~h", "", false},
		{"amqp://~u:p@h", "", false},
		{"amqp://~", "", false},
		{"amqp://~::1", "", false},
		{"amqp://~h:x", "", false},
		{"amqp://~h:", "", false},
	} {
		got, secure, err := listenAddress(x.address)
		if got != x.want || secure != x.secure || (err == nil) != (x.want != "") {
			t.Errorf("%q: got %q %v %v, want %q %v", x.address, got, secure, err, x.want, x.secure)
		}
		if err != nil && strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: the error shows credentials: %v", x.address, err)
		}
	}
}

func TestTTLCountsDownWhileACopyWaits(t *testing.T) {
	start := time.Now()
	e, err := (&Message{Address: "a", ReplyTo: "~", TTL: 10 * time.Second, Body: []byte("b"), Annotations: map[string]any{"k": "v"}}).encode(start)
	if err != nil {
		t.Fatal(err)
	}
	head, body := e.parts(start.Add(4*time.Second), "$reply/1/2")
	m, err := decode(append(head, body...))
	if err != nil {
		t.Fatal(err)
	}
	if m.TTL != 6*time.Second || m.ReplyTo != "$reply/1/2" || string(m.Body) != "b" || m.Annotations["k"] != "v" || m.Address != "a" {
		t.Errorf("got %+v", m)
	}
}

func TestWhatCannotBeEncoded(t *testing.T) {
	for name, m := range map[string]*Message{
		"a body and a value":        {Body: []byte("x"), Value: 1},
		"a property of a Go type":   {Properties: map[string]any{"x": struct{}{}}},
		"a message-id that is none": {MessageID: 1.5},
		"raw bytes that are none":   {Raw: []byte("hello")},
	} {
		if _, err := m.encode(time.Now()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
