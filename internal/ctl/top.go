package ctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// topView is what top shows of one interval. Rates are by the second.
type topView struct {
	At          time.Time          `json:"at"`
	Seconds     float64            `json:"seconds"`
	Router      string             `json:"router"`
	Revision    uint64             `json:"revision"`
	Rows        uint64             `json:"rows"`
	Open        uint64             `json:"connections"`
	Rates       map[string]float64 `json:"rates"`
	Busiest     []topConnection    `json:"busiest"`
	Hops        []topHop           `json:"hops"`
	NewUnrouted []entity           `json:"unrouted"` // addresses with messages that went nowhere in the interval
}

type topConnection struct {
	ID        string  `json:"id"`
	Class     string  `json:"class"`
	Container string  `json:"container"`
	Remote    string  `json:"remote"`
	Links     uint64  `json:"links"`
	Received  float64 `json:"received"`
	Sent      float64 `json:"sent"`
}

type topHop struct {
	Hop     string  `json:"hop"`
	State   string  `json:"state"`
	Waiting uint64  `json:"waiting"`
	Copies  float64 `json:"copies"`
}

// topCounters are the counters of the router that top shows as rates.
var topCounters = [...]string{"received", "copies", "accepted", "rejected", "released", "modified", "unrouted", "discarded"}

// How much of a list top shows.
const topRows = 10

func topCommand(r *run) *cobra.Command {
	var every time.Duration
	var count int
	c := &cobra.Command{
		Use:   "top",
		Short: "show what the router does, again and again",
		Long: `Top shows, until Ctrl-C, messages and outcomes by the second, the busiest connections, the hops, and addresses whose messages went
nowhere. With -o json it prints an object a line.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond {
				return usage("--interval %v: at least 100ms", every)
			}
			if count < 0 {
				return usage("--count %d: a number from 1 on, or 0 for ever", count)
			}
			return r.top(c.Context(), every, count)
		},
	}
	c.Flags().DurationVar(&every, "interval", time.Second, "how long to wait between two looks")
	c.Flags().IntVar(&count, "count", 0, "end after `N` times; 0 is never")
	return c
}

// look is all that top asks the router for at once.
type look struct {
	at                            time.Time
	router                        entity
	connections, hops, nowhere    []entity
	received, sent, hopped, losts map[string]float64
}

func (r *run) top(ctx context.Context, every time.Duration, count int) error {
	m, err := r.caller(ctx)
	if err != nil {
		return err
	}
	defer m.close()
	before, err := lookAt(ctx, m)
	if err != nil {
		return err
	}
	p := r.stream()
	t := time.NewTicker(every)
	defer t.Stop()
	for n := 0; count == 0 || n < count; n++ {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		now, err := lookAt(ctx, m)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		v := between(before, now)
		before = now
		if err := p.item(v, r.drawTop(v)); err != nil {
			return err
		}
	}
	return nil
}

func lookAt(ctx context.Context, m caller) (x look, err error) {
	x.at = time.Now()
	var routers []entity
	for _, q := range []struct {
		kind string
		to   *[]entity
	}{{"router", &routers}, {"connection", &x.connections}, {"hop", &x.hops}, {"unrouted", &x.nowhere}} {
		if *q.to, err = queryEntities(ctx, m, q.kind); err != nil {
			return x, err
		}
	}
	if len(routers) == 0 {
		return x, no("top: the router tells nothing of itself")
	}
	x.router = routers[0]
	x.received, x.sent = numbers(x.connections, "name", "received"), numbers(x.connections, "name", "sent")
	x.hopped, x.losts = numbers(x.hops, "name", "copies"), numbers(x.nowhere, "address", "count")
	return x, nil
}

func numbers(list []entity, key, value string) map[string]float64 {
	m := make(map[string]float64, len(list))
	for _, e := range list {
		m[e.text(key)] = e.number(value)
	}
	return m
}

// between makes a view of two looks. A counter that went back is of a router that began anew.
func between(a, b look) *topView {
	seconds := max(b.at.Sub(a.at).Seconds(), 1e-3)
	rate := func(now, before float64) float64 { return max(now-before, 0) / seconds }
	v := &topView{
		At: b.at.UTC(), Seconds: seconds, Router: b.router.text("name"), Revision: uint64(b.router.number("revision")),
		Rows: uint64(b.router.number("rows")), Open: uint64(b.router.number("connections")), Rates: map[string]float64{},
		Busiest: []topConnection{}, Hops: []topHop{}, NewUnrouted: []entity{},
	}
	for name := range b.router {
		if slices.Contains(topCounters[:], name) || isDropped(name) {
			v.Rates[name] = rate(b.router.number(name), a.router.number(name))
		}
	}
	for _, e := range b.connections {
		id := e.text("name")
		v.Busiest = append(v.Busiest, topConnection{
			ID: id, Class: e.text("class"), Container: e.text("container"), Remote: e.text("remote"), Links: uint64(e.number("links")),
			Received: rate(b.received[id], a.received[id]), Sent: rate(b.sent[id], a.sent[id]),
		})
	}
	slices.SortStableFunc(v.Busiest, func(x, y topConnection) int { return cmp.Compare(y.Received+y.Sent, x.Received+x.Sent) })
	v.Busiest = v.Busiest[:min(len(v.Busiest), topRows)]
	for _, e := range b.hops {
		name := e.text("name")
		v.Hops = append(v.Hops, topHop{Hop: name, State: e.text("state"), Waiting: uint64(e.number("waiting")), Copies: rate(b.hopped[name], a.hopped[name])})
	}
	slices.SortStableFunc(v.Hops, func(x, y topHop) int { return cmp.Compare(y.Copies, x.Copies) })
	v.Hops = v.Hops[:min(len(v.Hops), topRows)]
	for _, e := range b.nowhere {
		if n := e.number("count") - a.losts[e.text("address")]; n > 0 && len(v.NewUnrouted) < topRows {
			v.NewUnrouted = append(v.NewUnrouted, entity{"address": e.text("address"), "reason": e.text("reason"), "count": uint64(n)})
		}
	}
	return v
}

// drawTop is a view as text; on a screen it stands where the one before stood.
func (r *run) drawTop(v *topView) string {
	p := &printer{}
	p.line(fmt.Sprintf("%s  %s  %d connections, %d rows, revision %d", v.At.Local().Format(time.TimeOnly), v.Router, v.Open, v.Rows, v.Revision))
	heads, cells := []string{}, []string{}
	for _, name := range topCounters {
		heads, cells = append(heads, name+"/s"), append(cells, perSecond(v.Rates[name]))
	}
	dropped := 0.0
	for name, n := range v.Rates {
		if isDropped(name) {
			dropped += n
		}
	}
	p.columns(append(heads, "dropped/s")...)
	p.columns(append(cells, perSecond(dropped))...)
	if len(v.Busiest) > 0 {
		p.line("")
		p.columns("CONNECTION", "CLASS", "CONTAINER", "REMOTE", "LINKS", "RECEIVED/S", "SENT/S")
	}
	for _, c := range v.Busiest {
		p.columns(c.ID, c.Class, c.Container, c.Remote, fmt.Sprint(c.Links), perSecond(c.Received), perSecond(c.Sent))
	}
	if len(v.Hops) > 0 {
		p.line("")
		p.columns("HOP", "STATE", "WAITING", "COPIES/S")
	}
	for _, h := range v.Hops {
		p.columns(h.Hop, h.State, fmt.Sprint(h.Waiting), perSecond(h.Copies))
	}
	if len(v.NewUnrouted) > 0 {
		p.line("")
		p.columns("NOWHERE", "MESSAGES", "REASON")
	}
	for _, e := range v.NewUnrouted {
		p.columns(e.text("address"), e.text("count"), e.text("reason"))
	}
	text := string(p.bytes())
	if r.env.Screen {
		return "\x1b[H\x1b[2J" + text
	}
	return text
}

// isDropped tells whether a counter is one of copies that went nowhere, by reason.
func isDropped(name string) bool { return strings.HasPrefix(name, "dropped") }

func perSecond(n float64) string {
	if n > 0 && n < 10 {
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}
