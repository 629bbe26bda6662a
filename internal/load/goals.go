package load

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Line is one line of the product's table: a figure, the median of its repetitions, and the goal that it is held to.
type Line struct {
	What   string    `json:"what"`
	Unit   string    `json:"unit"` // µs, ×, B, s
	Values []float64 `json:"values"`
	Median float64   `json:"median"`
	Goal   float64   `json:"goal"`           // at most
	Here   float64   `json:"here,omitempty"` // the goal for a machine as fast as this one, where that is slower than the one it was set on
	Beside string    `json:"beside,omitempty"`
	Held   bool      `json:"held"`
}

// Suite measures the product against its goals.
type Suite struct {
	Program      string        // the router
	RelayCommand []string      // see Options
	Count        int           // repetitions
	Duration     time.Duration // of each
	Rows         int           // of the large table
	Connections  int           // idle
	Links        int           // idle

	Done func(Line) // told of each line when it is measured
}

// measured is a kind of run and the figures that it gives.
type measured struct {
	what    string
	rows    bool // with the large table
	o       Options
	relay   bool
	figures []figure
}

type figure struct {
	name, unit string
	goal       float64
	of         func(x *Result) float64
}

// yardstick is the figure that tells how fast this machine is, in times of the CPU.
const yardstick = "CPU of a message in a relay"

func perMessage(x *Result) float64 { return x.Peer.PerMsg }
func perCopy(x *Result) float64    { return x.Peer.PerCopy }

// relayThere is the CPU time, in µs, that a relay took for a message of 100 B on the machine that the goals were set on.
const relayThere = 0.069

// mixed is the kind of run whose goal is a multiple of the one-to-one run's.
const mixed = "16 → 16 over 10,000 addresses, anonymous links, unsettled"

func (s *Suite) runs() []measured {
	cpu := func(goal float64) []figure { return []figure{{"CPU of a message", "µs", goal, perMessage}} }
	fan := func(goal float64) []figure { return []figure{{"CPU of a copy", "µs", goal, perCopy}} }
	return []measured{
		{what: "1 → 1, 100 B, pre-settled", o: Options{Size: 100, Settled: true}, relay: true, figures: append(cpu(.8),
			figure{yardstick, "µs", 0, func(x *Result) float64 { return x.Relay.PerMsg }})},
		{what: "1 → 1, 100 B, unsettled, window 1000", o: Options{Size: 100}, figures: cpu(1.2)},
		{what: "1 → 16, 100 B, pre-settled", o: Options{Size: 100, Settled: true, Receivers: 16}, figures: fan(.3)},
		{what: "1 → 16, 100 B, unsettled", o: Options{Size: 100, Receivers: 16}, figures: fan(.45)},
		{what: "1 → 1, 1 KiB, pre-settled", o: Options{Size: 1 << 10, Settled: true}, figures: cpu(1.6)},
		{what: "1 → 1, 64 KiB, pre-settled", o: Options{Size: 64 << 10, Settled: true}, relay: true, figures: []figure{
			{"CPU of a byte, by the relay's", "×", 1.5, func(x *Result) float64 { return x.Ratio.PerCopy }},
		}},
		{what: mixed, rows: true, o: Options{Size: 100, Senders: 16, Receivers: 16, Addresses: 10_000, Anonymous: true, Warmup: 5 * time.Second}, figures: []figure{
			{"CPU of a message, by that of 1 → 1", "×", 1.5, perMessage},
		}},
		{what: "1 → 1, 100 B, unsettled, 10,000 messages/s", o: Options{Size: 100, Rate: 10_000}, relay: true, figures: []figure{
			{"median latency, by the relay's", "×", 1.3, func(x *Result) float64 { return x.Ratio.P50 }},
			{"latency of 99 in 100, by the relay's", "×", 1.3, func(x *Result) float64 { return x.Ratio.P99 }},
		}},
	}
}

// Run measures line by line. Where ctx ends, the lines that are whole are given.
func (s *Suite) Run(ctx context.Context) (lines []Line, err error) {
	put := func(l Line) {
		lines = append(lines, l)
		if s.Done != nil {
			s.Done(l)
		}
	}
	base := 0.0   // CPU of an unsettled message of 1 → 1
	slower := 1.0 // than the machine that the goals were set on
	for i, m := range s.runs() {
		got, err := s.repeat(ctx, m)
		if err != nil {
			return lines, fmt.Errorf("%s: %w", m.what, err)
		}
		if i == 0 {
			slower = max(1, got[1].Median/relayThere)
			got = got[:1]
		}
		for j, l := range got {
			l = l.onSlower(slower)
			if m.what == mixed {
				l = l.divided(base)
			}
			if i == 1 && j == 0 {
				base = l.Median
			}
			put(l)
		}
	}
	idle, err := s.idle(ctx)
	for _, l := range idle {
		put(l)
	}
	return lines, err
}

// repeat runs one kind of run, all repetitions on one router.
func (s *Suite) repeat(ctx context.Context, m measured) ([]Line, error) {
	rows := 0
	if m.rows {
		rows = s.Rows
	}
	router, err := StartRouter(s.Program, rows)
	if err != nil {
		return nil, err
	}
	defer router.Stop()
	o := m.o
	o.Dial.Address, o.PID, o.Duration = router.Address, router.PID, s.Duration
	if m.relay {
		o.RelayCommand = s.RelayCommand
	}
	values := make([][]float64, len(m.figures))
	var speed, lost []float64
	for range s.Count {
		x, err := Run(ctx, o)
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		for i, f := range m.figures {
			values[i] = append(values[i], f.of(x))
		}
		speed = append(speed, x.Peer.PerSecond)
		lost = append(lost, float64(x.Peer.Lost+x.Peer.Duplicates))
	}
	var lines []Line
	for i, f := range m.figures {
		l := newLine(m.what+": "+f.name, f.unit, f.goal, values[i])
		if o.Rate == 0 {
			l.Beside = fmt.Sprintf("%.0f messages/s", median(speed))
		}
		if n := slices.Max(lost); n > 0 {
			l.Beside += fmt.Sprintf(", up to %.0f copies lost", n)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// idle measures what does nothing, each repetition on a router of its own: memory that was used once is not given back at once.
func (s *Suite) idle(ctx context.Context) ([]Line, error) {
	var perConn, perLink, attach, cpu []float64
	for range s.Count {
		for _, n := range [][2]int{{s.Connections, 0}, {0, s.Links}} {
			x, err := s.idleOnce(ctx, n[0], n[1])
			if err == nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				return nil, fmt.Errorf("%d idle connections, %d links: %w", n[0], n[1], err)
			}
			if n[0] > 0 {
				perConn = append(perConn, x.PerConnection)
			} else {
				perLink, attach, cpu = append(perLink, x.PerLink), append(attach, x.AttachSeconds), append(cpu, x.AttachCPU)
			}
		}
	}
	attached := newLine(fmt.Sprintf("%d idle receiving links, a row each: all attached", s.Links), "s", 2, attach)
	attached.Beside = fmt.Sprintf("%.2f s of CPU", median(cpu))
	return []Line{
		newLine(fmt.Sprintf("%d idle connections: memory of each", s.Connections), "B", 20<<10, perConn),
		newLine(fmt.Sprintf("%d idle receiving links, a row each: memory of each", s.Links), "B", 2<<10, perLink),
		attached,
	}, nil
}

func (s *Suite) idleOnce(ctx context.Context, connections, links int) (*Idle, error) {
	router, err := StartRouter(s.Program, 0)
	if err != nil {
		return nil, err
	}
	defer router.Stop()
	o := Options{PID: router.PID, Warmup: 2 * time.Second}
	o.Dial.Address = router.Address
	return RunIdle(ctx, o, connections, links)
}

func newLine(what, unit string, goal float64, values []float64) Line {
	m := median(values)
	return Line{What: what, Unit: unit, Values: values, Median: m, Goal: goal, Held: m <= goal}
}

// onSlower judges times of the CPU by how much slower the machine is.
func (l Line) onSlower(times float64) Line {
	if l.Unit == "µs" && times > 1 {
		l.Here = l.Goal * times
		l.Held = l.Median <= l.Here
	}
	return l
}

// divided gives the line as a multiple of base.
func (l Line) divided(base float64) Line {
	values := slices.Clone(l.Values)
	for i := range values {
		values[i] = over(values[i], base)
	}
	d := newLine(l.What, l.Unit, l.Goal, values)
	d.Beside = fmt.Sprintf("%.2f µs; %s", l.Median, l.Beside)
	return d
}

func median(values []float64) float64 {
	v := slices.Clone(values)
	slices.Sort(v)
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Markdown writes a line as a row of a table with the columns what, value, least – most, goal, verdict.
func (l Line) Markdown() string {
	verdict := "held"
	if !l.Held {
		verdict = "**missed**"
	}
	if l.Beside != "" {
		verdict += ", " + l.Beside
	}
	goal := l.amount(l.Goal)
	if l.Here > 0 {
		goal += ", here " + l.amount(l.Here)
	}
	return fmt.Sprintf("| %s | %s | %s – %s | ≤ %s | %s |", l.What, l.amount(l.Median), l.amount(slices.Min(l.Values)), l.amount(slices.Max(l.Values)), goal, verdict)
}

// MarkdownHead is what stands above the rows.
const MarkdownHead = "| what | value | least – most | goal | verdict |\n|---|---|---|---|---|"

func (l Line) amount(v float64) string {
	if l.Unit == "B" {
		return fmt.Sprintf("%.1f KiB", v/1024)
	}
	return fmt.Sprintf("%.2f %s", v, l.Unit)
}
