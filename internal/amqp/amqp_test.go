package amqp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/internal/house/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// quiet is an owner that accepts links and does nothing with them.
type quiet struct{}

func (quiet) Opened() {}
func (quiet) Attached(l *engine.Link) {
	if !l.Local() {
		l.Accept(l.Remote().Source, l.Remote().Target, 10, engine.AttachOptions{})
	}
}
func (quiet) Detached(*engine.Link, error)                        {}
func (quiet) Transfer(*engine.InDelivery, []byte, bool)           {}
func (quiet) Aborted(*engine.InDelivery)                          {}
func (quiet) RemoteSettled(*engine.InDelivery, []byte)            {}
func (quiet) Sent(*engine.OutDelivery)                            {}
func (quiet) Settled(*engine.OutDelivery, wire.StateKind, []byte) {}
func (quiet) Flow(*engine.Link)                                   {}
func (quiet) InDropped(*engine.InDelivery)                        {}
func (quiet) OutDropped(*engine.OutDelivery, bool)                {}
func (quiet) Closed(error)                                        {}
func (quiet) AfterInput(bool)                                     {}
func (quiet) BeforeFlush()                                        {}
func (quiet) TakeWork() amqp.Work                                 { return nil }

func serve(t *testing.T, cfg engine.Config) (address string, ended chan error) {
	t.Helper()
	ln, err := amqp.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 16)
	done := make(chan struct{})
	cfg.ContainerID = "server"
	go func() {
		defer close(done)
		ln.Serve(func(nc net.Conn) *amqp.Conn {
			return amqp.NewConn(nc, cfg, nil, func(*amqp.Conn) amqp.Owner { return quiet{} })
		}, func(_ *amqp.Conn, err error) { ended <- err })
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		ln.Close(ctx)
		<-done
	})
	return ln.Addr().String(), ended
}

func dial(t *testing.T, o amqp.DialOptions) (*amqp.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	o.Engine.ContainerID = "client"
	c, err := amqp.Dial(ctx, o, func(*amqp.Conn) amqp.Owner { return quiet{} })
	if err == nil {
		t.Cleanup(func() { c.Close(nil); <-c.Done() })
	}
	return c, err
}

func TestLogins(t *testing.T) {
	verify := func(user, password string) bool { return user == "alice" && password == "secret" }
	open, _ := serve(t, engine.Config{})
	both, _ := serve(t, engine.Config{Mechanisms: []engine.Mechanism{amqp.Anonymous(), amqp.Plain(verify)}})
	saslOnly, _ := serve(t, engine.Config{Mechanisms: []engine.Mechanism{amqp.Anonymous()}, RequireSASL: true})
	plainOnly, _ := serve(t, engine.Config{Mechanisms: []engine.Mechanism{amqp.Plain(verify)}, RequireSASL: true})
	for _, c := range []struct {
		name string
		o    amqp.DialOptions
		want error
		mech wire.Symbol
	}{
		{"no SASL", amqp.DialOptions{Address: open}, nil, ""},
		{"no SASL where it is offered", amqp.DialOptions{Address: both}, nil, ""},
		{"ANONYMOUS where SASL is required", amqp.DialOptions{Address: saslOnly}, nil, "ANONYMOUS"},
		{"PLAIN", amqp.DialOptions{Address: both, PLAIN: true, User: "alice", Password: "secret"}, nil, "PLAIN"},
		{"PLAIN with a wrong password", amqp.DialOptions{Address: both, PLAIN: true, User: "alice", Password: "guess"}, engine.ErrAuthentication, ""},
		{"PLAIN where it is not offered", amqp.DialOptions{Address: saslOnly, PLAIN: true, User: "alice", Password: "secret"}, engine.ErrNoMechanism, ""},
		{"ANONYMOUS where it is not offered", amqp.DialOptions{Address: plainOnly}, engine.ErrNoMechanism, ""},
	} {
		conn, err := dial(t, c.o)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
			continue
		}
		if err == nil {
			conn.Lock()
			if got := conn.Engine.Mechanism(); got != c.mech {
				t.Errorf("%s: mechanism %q, want %q", c.name, got, c.mech)
			}
			conn.Release()
		}
	}
}

// What is not AMQP 1.0 is answered with the header of what is, and closed.
func TestStrangersAreTurnedAway(t *testing.T) {
	address, _ := serve(t, engine.Config{})
	for _, hello := range []string{"GET / HTTP/1.1\r\n\r\n", "AMQP\x00\x00\x09\x01", "AMQP\x02\x01\x00\x00"} {
		nc, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		nc.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(nc, hello)
		got, err := io.ReadAll(nc)
		if string(got) != "AMQP\x00\x01\x00\x00" || err != nil {
			t.Errorf("%q: got %q, %v", hello, got, err)
		}
		nc.Close()
	}
}

func TestASilentPeerIsClosedAndASpeakingOneKept(t *testing.T) {
	t.Parallel()
	address, ended := serve(t, engine.Config{IdleTimeout: 2 * time.Second}) // long enough for who speaks to be heard
	kept, err := dial(t, amqp.DialOptions{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	io.WriteString(nc, "AMQP\x00\x01\x00\x00")
	o := wire.Open{ContainerID: "mute", MaxFrameSize: 512}
	b, start := wire.BeginFrame(nil, wire.FrameAMQP, 0)
	nc.Write(wire.EndFrame(o.Append(b), start))
	select {
	case err := <-ended:
		var ce *engine.ConnectionError
		if !errors.As(err, &ce) || ce.Condition != wire.CondResourceLimitExceeded {
			t.Errorf("got %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the silent peer is still connected")
	}
	select {
	case <-kept.Done():
		t.Errorf("the peer that sends heartbeats was closed: %v", kept.Err())
	default:
	}
}
