package ctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/internal/amqp"
	"github.com/fingerpost/fingerpost/internal/load"
)

// benchOptions are the flags of bench.
type benchOptions struct {
	load.Options
	self, relay, goals bool
	rows, count        int
	connections, links int
}

// defaultGoals are the sizes of the product's table where the flags do not say others.
func (o *benchOptions) defaultGoals(c *cobra.Command) {
	set := func(name string, v *int, n int) {
		if !c.Flags().Changed(name) {
			*v = n
		}
	}
	set("rows", &o.rows, 1_000_000)
	set("idle-connections", &o.connections, 10_000)
	set("idle-links", &o.links, 100_000)
	if !c.Flags().Changed("duration") {
		o.Duration = 2 * time.Second
	}
	o.count = max(o.count, 1)
}

// relayCommand is the hidden verb that is the relay of a bench.
const relayCommand = "bench-relay"

func benchCommand(r *run) *cobra.Command {
	var o benchOptions
	c := &cobra.Command{
		Use:   "bench",
		Short: "measure messages a second, CPU, latency and losses through a router, or any AMQP 1.0 peer",
		Long: `Bench sends and receives messages and prints what was measured. Receivers attach first, all to one address, or to their shares of --addresses;
messages carry their sequence numbers, so what is lost or comes twice is counted, and the time when they were meant to leave, so that with --rate a
peer that stops for a while is charged with all the messages that should have gone meanwhile. CPU and memory are those of --pid, or of the router
that --self starts. --relay measures a process that only copies bytes between the same two ends, and prints the ratio: no router can be much
faster. Ctrl-C ends a run with what there is. Exit status 1 where copies were lost or came twice.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if o.goals {
				o.defaultGoals(c)
			}
			for _, name := range []string{"senders", "receivers", "addresses", "window", "credit", "duration", "pid"} { // 0 is "not said" further down
				if f := c.Flags().Lookup(name); f.Changed && (f.Value.String() == "0" || f.Value.String() == "0s") {
					return usage("bench: %s: more than 0", name)
				}
			}
			if o.self && (c.Flags().Changed("url") || o.PID != 0) {
				return usage("--self: the router is started here: leave --url and --pid out")
			}
			return r.bench(c.Context(), o)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Size, "size", 100, "`BYTES` of a body; at least 33")
	f.BoolVar(&o.Settled, "settled", false, "send settled: no outcomes")
	f.IntVar(&o.Window, "window", 1000, "messages without an outcome that each sender may have")
	f.IntVar(&o.Credit, "credit", 2000, "credit of each receiving link")
	f.IntVar(&o.Senders, "senders", 1, "connections that send")
	f.IntVar(&o.Receivers, "receivers", 1, "connections that receive")
	f.IntVar(&o.Addresses, "addresses", 1, "addresses; of more than one each receiver has its share")
	f.StringVar(&o.Address, "address", "", "the `NAME`; of several addresses what stands before /0, /1, ...; by default one that nobody else has")
	f.BoolVar(&o.Anonymous, "anonymous", false, "send by links without a target: the address is in the messages")
	f.Float64Var(&o.Rate, "rate", 0, "messages a second of all senders together; 0 is as many as there is room for")
	f.DurationVar(&o.Duration, "duration", 5*time.Second, "how long to measure")
	f.DurationVar(&o.Warmup, "warmup", 500*time.Millisecond, "how long to wait before that")
	f.IntVar(&o.PID, "pid", 0, "the router's process, on this machine, for its CPU and memory")
	f.BoolVar(&o.self, "self", false, "start a router for the run: the program router beside this one, or in PATH")
	f.IntVar(&o.rows, "rows", 0, "with --self, `ROWS` in its table that no message matches")
	f.BoolVar(&o.relay, "relay", false, "measure a relay of bytes too")
	f.IntVar(&o.connections, "idle-connections", 0, "measure `N` connections that do nothing, in place of traffic")
	f.IntVar(&o.links, "idle-links", 0, "measure `N` links that do nothing, on four connections")
	f.BoolVar(&o.goals, "goals", false, "measure the product's own table, against its goals, as Markdown")
	f.IntVar(&o.count, "count", 5, "with --goals, repetitions, of which the median counts")
	return c
}

func benchRelayCommand(r *run) *cobra.Command {
	return &cobra.Command{
		Use: relayCommand, Hidden: true, Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return load.Relay(r.env.Stdin, r.env.Stdout) },
	}
}

func (r *run) bench(ctx context.Context, o benchOptions) error {
	if o.relay || o.goals {
		self, err := os.Executable()
		if err != nil {
			return no("relay: %v", err)
		}
		o.RelayCommand = []string{self, relayCommand}
	}
	if o.goals {
		return r.benchGoals(ctx, o)
	}
	stop, err := r.benchPeer(&o)
	if err != nil {
		return err
	}
	defer stop()
	if o.connections > 0 || o.links > 0 {
		return r.benchIdle(ctx, o)
	}
	x, err := load.Run(ctx, o.Options)
	if err != nil && (x == nil || x.Peer == nil) {
		return r.benchFailed(err)
	}
	if printed := r.print(x, func(p *printer) { drawBench(p, x) }); printed != nil {
		return printed
	}
	if err != nil {
		return r.benchFailed(err)
	}
	if x.Peer.Lost > 0 || x.Peer.Duplicates > 0 {
		return silentNo
	}
	return nil
}

// benchPeer says where to dial, and starts a router where one is asked for; stop ends it.
func (r *run) benchPeer(o *benchOptions) (stop func(), err error) {
	if o.self {
		program, err := load.FindRouter()
		if err != nil {
			return nil, no("--self: %v", err)
		}
		router, err := load.StartRouter(program, o.rows)
		if err != nil {
			return nil, no("--self: %v", err)
		}
		o.Dial.Address, o.PID = router.Address, router.PID
		return router.Stop, nil
	}
	at, err := r.endpoint()
	if err != nil {
		return nil, err
	}
	o.Dial, err = at.engineDial()
	return func() {}, err
}

// engineDial is how our own engine reaches the endpoint.
func (e endpoint) engineDial() (amqp.DialOptions, error) {
	u, err := url.Parse(e.addr)
	if err != nil {
		return amqp.DialOptions{}, usage("--url: not a URL")
	}
	return amqp.DialOptions{Address: u.Host, TLS: e.tls, WebSocket: e.path, PLAIN: e.hasUser && e.password != "", User: e.user, Password: e.password, AllowInsecurePlain: e.showing}, nil
}

func (r *run) benchFailed(err error) error {
	if bad, ok := errors.AsType[*load.OptionError](err); ok {
		return usage("bench: %v", bad)
	}
	if _, ok := err.(*net.OpError); ok || strings.Contains(err.Error(), "connection refused") {
		at, e := r.endpoint()
		if e != nil {
			return e
		}
		return at.explain(context.Background(), err)
	}
	return no("bench: %s", oneLine(err.Error()))
}

func (r *run) benchIdle(ctx context.Context, o benchOptions) error {
	if o.PID == 0 {
		return usage("--idle-connections, --idle-links: whose memory? Give --pid or --self")
	}
	o.Senders = 0
	o.Warmup = max(o.Warmup, 2*time.Second)
	x, err := load.RunIdle(ctx, o.Options, o.connections, o.links)
	if err != nil {
		return r.benchFailed(err)
	}
	return r.print(x, func(p *printer) {
		p.columns("WHAT", "NUMBER", "SECONDS", "CPU-SECONDS", "BYTES-EACH")
		if x.Connections > 0 {
			p.columns("connections", fmt.Sprint(x.Connections), fmt.Sprintf("%.2f", x.ConnectSeconds), fmt.Sprintf("%.2f", x.ConnectCPU), fmt.Sprintf("%.0f", x.PerConnection))
		}
		if x.Links > 0 {
			p.columns("links", fmt.Sprint(x.Links), fmt.Sprintf("%.2f", x.AttachSeconds), fmt.Sprintf("%.2f", x.AttachCPU), fmt.Sprintf("%.0f", x.PerLink))
		}
	})
}

// drawBench prints a result as a table: what was asked for, then a line for each thing that carried it.
func drawBench(p *printer, x *load.Result) {
	kind := "unsettled, window " + fmt.Sprint(x.Window)
	if x.Settled {
		kind = "pre-settled"
	}
	if x.Anonymous {
		kind += ", anonymous links"
	}
	if x.Rate > 0 {
		kind += fmt.Sprintf(", %.0f messages/s", x.Rate)
	}
	p.line(fmt.Sprintf("%d → %d, %s, %d bytes, %s", x.Senders, x.Receivers, addresses(x.Addresses), x.Size, kind))
	p.columns("BY", "MESSAGES/S", "COPIES/S", "MB/S", "µS/MESSAGE", "µS/COPY", "CPU", "RSS", "P50", "P99", "P99.9", "MAX")
	drawFigures(p, "peer", x.Peer)
	if x.Relay != nil {
		drawFigures(p, "relay", x.Relay)
	}
	if q := x.Ratio; q != nil {
		p.columns("ratio", "", "", "", times(q.PerMsg), times(q.PerCopy), "", "", times(q.P50), times(q.P99))
	}
	f := x.Peer
	p.line("")
	p.line(fmt.Sprintf("sent %d, lost %d, duplicates %d, of others %d", f.Sent, f.Lost, f.Duplicates, f.Strays))
	if !x.Settled {
		p.line(fmt.Sprintf("accepted %d, rejected %d, released %d, modified %d, no outcome %d", f.Accepted, f.Rejected, f.Released, f.Modified, f.Unanswered))
	}
}

func drawFigures(p *printer, name string, f *load.Figures) {
	cpu, msg, copied, rss := "", "", "", ""
	if f.PerMsg > 0 {
		msg, copied, cpu = fmt.Sprintf("%.3f", f.PerMsg), fmt.Sprintf("%.3f", f.PerCopy), fmt.Sprintf("%.0f%%", f.CPU)
	}
	if f.RSS > 0 {
		rss = fmt.Sprintf("%.0fM", float64(f.RSS)/(1<<20))
	}
	var l load.Latency
	if f.Latency != nil {
		l = *f.Latency
	}
	p.columns(name, fmt.Sprintf("%.0f", f.PerSecond), fmt.Sprintf("%.0f", f.CopiesPer), fmt.Sprintf("%.1f", f.MBPer), msg, copied, cpu, rss,
		micros(l.P50), micros(l.P99), micros(l.P999), micros(l.Max))
}

// micros writes a time that is given in microseconds.
func micros(us float64) string {
	if us >= 10_000 {
		return fmt.Sprintf("%.1fms", us/1000)
	}
	return fmt.Sprintf("%.0fµs", us)
}

func times(x float64) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f×", x)
}

// benchGoals measures the product's table. A line is printed when it is measured.
func (r *run) benchGoals(ctx context.Context, o benchOptions) error {
	program, err := load.FindRouter()
	if err != nil {
		return no("--goals: %v", err)
	}
	s := load.Suite{
		Program: program, RelayCommand: o.RelayCommand, Count: o.count, Duration: o.Duration,
		Rows: o.rows, Connections: o.connections, Links: o.links,
	}
	isTable := r.output == "table" || r.output == "wide"
	if isTable {
		fmt.Fprintln(r.env.Stdout, load.MarkdownHead)
		s.Done = func(l load.Line) { fmt.Fprintln(r.env.Stdout, l.Markdown()) }
	}
	lines, err := s.Run(ctx)
	if !isTable {
		if printed := r.print(lines, nil); printed != nil {
			return printed
		}
	}
	switch {
	case err != nil:
		return no("bench: %s", oneLine(err.Error()))
	case slices.ContainsFunc(lines, func(l load.Line) bool { return !l.Held }):
		return silentNo
	}
	return nil
}

func addresses(n int) string {
	if n == 1 {
		return "1 address"
	}
	return fmt.Sprintf("%d addresses", n)
}
