package amqp_test

import (
	"io"
	"net"
	"testing"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// TestDialToAPeerThatClosesAtOnce: an orderly close in place of an open is an error of the dial, not a connection that is nil.
func TestDialToAPeerThatClosesAtOnce(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		buf, start := wire.BeginFrame([]byte("AMQP\x00\x01\x00\x00"), wire.FrameAMQP, 0)
		cl := wire.Close{}
		nc.Write(wire.EndFrame(cl.Append(buf), start))
		io.Copy(io.Discard, nc)
	}()
	if c, err := dial(t, amqp.DialOptions{Address: ln.Addr().String()}); err == nil {
		t.Errorf("dial gave %v and no error", c)
	}
}
