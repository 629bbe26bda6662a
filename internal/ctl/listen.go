package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/go-amqp"

	"github.com/fingerpost/fingerpost/messenger"
)

// listens tells whether an address asks to listen, as in Messenger: its host begins with "~".
func listens(address string) bool {
	rest := address
	if _, after, ok := strings.Cut(address, "://"); ok {
		rest = after
	}
	return strings.HasPrefix(rest, "~")
}

// recvListening receives as a node that routers dial: it listens where "amqp://~HOST:PORT" says, takes what comes for any name, accepts it
// and prints it like recv.
func (r *run) recvListening(ctx context.Context, o recvOptions) error {
	m, err := messenger.New(messenger.Options{})
	if err != nil {
		return err
	}
	defer m.Close(context.WithoutCancel(ctx))
	ln, err := m.Listen(ctx, o.address, nil)
	if err != nil {
		return no("listen on %s: %s", o.address, oneLine(err.Error()))
	}
	fmt.Fprintf(r.env.Stderr, "listening on %s\n", ln.Addr())
	wait := ctx
	if o.timeout > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	p := r.stream()
	for got := 0; o.count == 0 || got < o.count; got++ {
		d, err := m.Get(wait)
		if err != nil && wait.Err() != nil {
			if o.count == 0 {
				return nil
			}
			return no("receive on %s: %d of %d messages", o.address, got, o.count)
		}
		if err != nil {
			return no("receive on %s: %s", o.address, oneLine(err.Error()))
		}
		view := viewDelivery(d)
		if err := p.item(view, view.text(r.output == "wide")); err != nil {
			return err
		}
		if err := d.Accept(); err != nil && !errors.Is(err, messenger.ErrLost) {
			return err
		}
	}
	return nil
}

// viewDelivery shows the whole message, or its body alone where the printing side cannot read the rest.
func viewDelivery(d *messenger.Delivery) messageView {
	var m amqp.Message
	if err := m.UnmarshalBinary(d.Raw()); err == nil {
		return viewMessage(&m)
	}
	v := messageView{Properties: map[string]any{"to": d.Message.Address}, Body: plain(d.Message.Body)}
	if d.Message.Value != nil {
		v.Body = fmt.Sprint(d.Message.Value)
	}
	return v
}
