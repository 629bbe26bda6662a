package amqp

import (
	"bytes"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// noted is an owner that tells of each part of a read.
type noted struct {
	nobody
	c     *Conn
	parts chan part
}

// part is the end of one: more are to come, and a Release of somebody else's writes nothing.
type part struct{ more, holds bool }

func (o *noted) AfterInput(more bool) {
	o.c.Lock()
	p := part{more, o.c.midRead}
	o.c.Release()
	o.parts <- p
}

// A read is handled in parts of 8 KiB, and the owner hears which is the last. What others have to say meanwhile is written after that one.
func TestAReadIsHandledInParts(t *testing.T) {
	near, far := net.Pipe()
	near.SetDeadline(time.Now().Add(20 * time.Second))
	o := &noted{parts: make(chan part)}
	c := NewConn(far, engine.Config{ContainerID: "parts"}, nil, func(c *Conn) Owner { o.c = c; return o })
	done := make(chan error, 1)
	go func() { done <- c.Serve() }()
	go func() { // all that comes, up to the end
		for p := make([]byte, 4096); ; {
			if _, err := near.Read(p); err != nil {
				return
			}
		}
	}()
	open, start := wire.BeginFrame([]byte("AMQP\x00\x01\x00\x00"), wire.FrameAMQP, 0)
	open = (&wire.Open{ContainerID: "x"}).Append(open)
	open = wire.EndFrame(open, start)
	beat := []byte("\x00\x00\x00\x08\x02\x00\x00\x00")
	// One byte of it is read first, the rest at once.
	if _, err := near.Write(append(open, bytes.Repeat(beat, 3*partSize/len(beat))...)); err != nil {
		t.Fatal(err)
	}
	got := []part{<-o.parts}
	for got[len(got)-1].more {
		got = append(got, <-o.parts)
	}
	if want := []part{{true, true}, {true, true}, {true, true}, {false, false}}; !slices.Equal(got, want) {
		t.Errorf("parts %v, want %v", got, want)
	}
	near.Close()
	<-done
}
