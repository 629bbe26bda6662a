package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// Idle is what connections and links cost that do nothing.
type Idle struct {
	Connections    int     `json:"connections,omitempty"`
	ConnectSeconds float64 `json:"connect_seconds,omitempty"` // for all of them
	ConnectCPU     float64 `json:"connect_cpu_seconds,omitempty"`
	PerConnection  float64 `json:"bytes_per_connection,omitempty"`

	Links         int     `json:"links,omitempty"`
	AttachSeconds float64 `json:"attach_seconds,omitempty"` // for all of them
	AttachCPU     float64 `json:"attach_cpu_seconds,omitempty"`
	PerLink       float64 `json:"bytes_per_link,omitempty"`
}

// linkConns is over how many connections idle links are spread.
const linkConns = 4

// RunIdle opens connections, and after they are closed links on four more, that do nothing, and measures the memory of process o.PID by each.
// Links receive, each from an address of its own, or send where o.Senders is not 0.
func RunIdle(ctx context.Context, o Options, connections, links int) (*Idle, error) {
	sends := o.Senders > 0
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	x := &Idle{Connections: connections, Links: links}
	if connections > 0 {
		if err := idleRun(ctx, o, func(ctx context.Context, r *runner) error { return x.connections(ctx, r) }); err != nil {
			return x, err
		}
	}
	if links > 0 {
		return x, idleRun(ctx, o, func(ctx context.Context, r *runner) error { return x.links(ctx, r, sends) })
	}
	return x, nil
}

func idleRun(parent context.Context, o Options, f func(context.Context, *runner) error) error {
	r := newRunner(o)
	var ctx context.Context
	ctx, r.cancel = context.WithCancelCause(parent)
	defer r.cancel(nil)
	defer r.close()
	return f(ctx, r)
}

// growth is what something costs a process.
type growth struct {
	usage
	took time.Duration
}

// grown is how much the process grew by f, its CPU meanwhile, and how long f took.
func (r *runner) grown(ctx context.Context, f func() error) (g growth, err error) {
	before, err := usageOf(r.o.PID)
	if err != nil {
		return g, err
	}
	began := time.Now()
	if err := f(); err != nil {
		return g, err
	}
	g.took = time.Since(began)
	sleep(ctx, r.o.Warmup) // so that it can put its house in order
	after, err := usageOf(r.o.PID)
	g.cpu, g.rss = after.cpu-before.cpu, after.rss-before.rss
	return g, err
}

// connectors is how many connections are opened at a time.
const connectors = 16

func (x *Idle) connections(ctx context.Context, r *runner) error {
	g, err := r.grown(ctx, func() error { return r.openIdle(ctx, x.Connections) })
	x.ConnectSeconds, x.ConnectCPU, x.PerConnection = g.took.Seconds(), g.cpu.Seconds(), float64(g.rss)/float64(x.Connections)
	return err
}

// openIdle opens n connections.
func (r *runner) openIdle(ctx context.Context, n int) error {
	var running sync.WaitGroup
	var mu sync.Mutex
	var failed error
	dial := direct(r.o.Dial)
	for w := range connectors {
		running.Go(func() {
			for i := w; i < n; i += connectors {
				c, err := dial(ctx, true, i, func(c *amqp.Conn) amqp.Owner { return &endpoint{c: c, r: r} })
				mu.Lock()
				if err == nil {
					r.conns = append(r.conns, c)
				} else if failed == nil {
					failed = fmt.Errorf("connection %d of %d: %w", i+1, n, err)
				}
				stop := failed != nil
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	running.Wait()
	return failed
}

func (x *Idle) links(ctx context.Context, r *runner, sends bool) error {
	if err := r.openIdle(ctx, linkConns); err != nil {
		return err
	}
	g, err := r.grown(ctx, func() error {
		for i, c := range r.conns {
			if err := r.attachIdle(c, i, x.Links, sends); err != nil {
				return err
			}
		}
		return r.wait(ctx)
	})
	x.AttachSeconds, x.AttachCPU, x.PerLink = g.took.Seconds(), g.cpu.Seconds(), float64(g.rss)/float64(x.Links)
	return err
}

// attachIdle attaches a connection's share of n links.
func (r *runner) attachIdle(c *amqp.Conn, conn, n int, sends bool) error {
	return r.attach(c, func(s *engine.Session, attach func(engine.AttachOptions, *engine.Session) (*engine.Link, error)) error {
		for k := conn; k < n; k += linkConns {
			name := fmt.Sprintf("%s/%d", r.name, k)
			o := engine.AttachOptions{Name: name, Role: engine.RoleReceiver, Source: &wire.Source{Address: name, HasAddress: true}, Target: &wire.Target{}}
			if sends {
				o = engine.AttachOptions{Name: name, Role: engine.RoleSender, Source: &wire.Source{}, Target: &wire.Target{}}
			}
			if _, err := attach(o, s); err != nil {
				return err
			}
		}
		return nil
	})
}
