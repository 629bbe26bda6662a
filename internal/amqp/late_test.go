package amqp

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// nobody is an owner that wants nothing.
type nobody struct{ engine.Handler }

func (nobody) Opened()         {}
func (nobody) Closed(error)    {}
func (nobody) AfterInput(bool) {}
func (nobody) BeforeFlush()    {}
func (nobody) TakeWork() Work  { return nil }

// A peer closes in order and hangs up before it can be answered. Whoever waited for the connection's lock meanwhile, its clock for one, finds it
// over: nothing of that ends the program, or changes how the connection ended.
func TestAClockThatComesLate(t *testing.T) {
	near, far := net.Pipe()
	c := NewConn(far, engine.Config{ContainerID: "late"}, nil, func(*Conn) Owner { return nobody{} })
	done := make(chan error, 1)
	go func() { done <- c.Serve() }()
	near.SetDeadline(time.Now().Add(20 * time.Second))
	say := func(b []byte) {
		if _, err := near.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	frame := func(b []byte, p interface{ Append([]byte) []byte }) []byte {
		b, start := wire.BeginFrame(b, wire.FrameAMQP, 0)
		return wire.EndFrame(p.Append(b), start)
	}
	say([]byte("AMQP\x00\x01\x00\x00"))
	if _, err := io.ReadFull(near, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	c.Lock()
	say(frame(frame(nil, &wire.Open{ContainerID: "x"}), &wire.Close{})) // the reader has it, and waits for the lock
	c.fail(errors.New("a write failed"))
	c.mu.Unlock()
	near.Close()
	err := <-done
	c.tick()
	c.Abort(errors.New("late"))
	if c.Err() != err {
		t.Errorf("it ended with %v, and says %v", err, c.Err())
	}
	if c.timer.Stop() {
		t.Error("its clock goes on")
	}
}
