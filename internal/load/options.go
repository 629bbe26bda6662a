package load

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
)

// Options of a run.
type Options struct {
	Dial amqp.DialOptions // the peer

	Size      int    // bytes of a body; the least is that of the stamp in it, 33
	Settled   bool   // sent settled: no outcomes, no window
	Window    int    // messages without an outcome that a sender may have; 0 is 1000
	Credit    int    // of each receiving link; 0 is 2000
	Senders   int    // connections that send; 0 is 1
	Receivers int    // connections that receive; 0 is 1
	Addresses int    // 1: every receiver gets a copy of everything. More, and at least one a receiver: each has its share. 0 is 1
	Address   string // the name; of more than one what stands before "/0", "/1", …. Empty: one of its own
	Anonymous bool   // one link without a target for each sender, and the address in each message

	Rate     float64       // messages a second, of all senders together; 0 is as many as there is room for
	Warmup   time.Duration // before the measurement, or before idle memory is looked at; 0 is half a second
	Duration time.Duration // of the measurement; 0 is 5 s
	PID      int           // the process to measure; 0 is none

	RelayCommand []string // starts a relay (Relay); empty: none is measured

	relayed bool // behind a relay: senders attach to receivers as they are
}

// OptionError says which option cannot be.
type OptionError struct{ text string }

func (e *OptionError) Error() string { return e.text }

func optionErrorf(format string, a ...any) error { return &OptionError{fmt.Sprintf(format, a...)} }

func (o Options) withDefaults() (Options, error) {
	for _, v := range []*int{&o.Senders, &o.Receivers, &o.Addresses} {
		if *v == 0 {
			*v = 1
		}
	}
	if o.Window == 0 {
		o.Window = 1000
	}
	if o.Credit == 0 {
		o.Credit = 2000
	}
	if o.Warmup == 0 {
		o.Warmup = 500 * time.Millisecond
	}
	if o.Duration == 0 {
		o.Duration = 5 * time.Second
	}
	for name, v := range map[string]int{"senders": o.Senders, "receivers": o.Receivers} {
		if v < 1 || v > 10_000 {
			return o, optionErrorf("%s: %d is out of range: 1 to 10000", name, v)
		}
	}
	switch {
	case o.Size < 0 || o.Size > 64<<20:
		return o, optionErrorf("size: %d is out of range: 0 to 64 MiB", o.Size)
	case o.Window < 1 || o.Window > 1<<20 || o.Credit < 1 || o.Credit > 1<<20:
		return o, optionErrorf("window and credit: 1 to 1048576")
	case o.Addresses < 1 || o.Addresses > 1_000_000:
		return o, optionErrorf("addresses: %d is out of range: 1 to 1000000", o.Addresses)
	case o.Addresses > 1 && o.Addresses < o.Receivers:
		return o, optionErrorf("addresses: %d for %d receivers: 1, or at least as many as there are receivers", o.Addresses, o.Receivers)
	case o.Rate < 0 || o.Rate > 1e9:
		return o, optionErrorf("rate: 0 to 1000000000 messages a second")
	case o.Duration < 0 || o.Warmup < 0:
		return o, optionErrorf("durations cannot be negative")
	}
	o.Size = max(o.Size, stampSize)
	return o, nil
}

// fan is how many receivers get each message.
func (o *Options) fan() uint64 {
	if o.Addresses > 1 {
		return 1
	}
	return uint64(o.Receivers)
}

// connect opens a connection of one end of the load. Through a relay both ends are ours: the receiving one is the server.
type connect func(ctx context.Context, receives bool, index int, newOwner func(*amqp.Conn) amqp.Owner) (*amqp.Conn, error)

// direct connects to the peer.
func direct(o amqp.DialOptions) connect {
	return func(ctx context.Context, _ bool, _ int, newOwner func(*amqp.Conn) amqp.Owner) (*amqp.Conn, error) {
		one := o
		one.Engine.ContainerID = "fingerpost-bench-" + randomName()
		return amqp.Dial(ctx, one, newOwner)
	}
}

// viaRelay connects the two ends of each pair by way of a relay.
func viaRelay(address string) connect {
	return func(ctx context.Context, receives bool, index int, newOwner func(*amqp.Conn) amqp.Owner) (*amqp.Conn, error) {
		nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		if _, err := nc.Write(relayHello(receives, index)); err != nil {
			nc.Close()
			return nil, err
		}
		c := amqp.NewConn(nc, engine.Config{ContainerID: "fingerpost-bench", Client: !receives}, nil, newOwner)
		go c.Serve()
		return c, nil
	}
}
