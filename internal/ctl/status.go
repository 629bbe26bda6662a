package ctl

import (
	"context"
	"fmt"
	"sort"

	"github.com/spf13/cobra"
)

// statusFirst are the attributes that stand first in a status; the counters follow by name.
var statusFirst = [...]string{"name", "nodeId", "version", "uptime", "revision", "generation", "rows"}

func statusCommand(r *run) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "show the router: name, revision of the table, what became of messages",
		Long: `Status prints the attributes of the router. Its counters: received, copies (handed to a hop); accepted, rejected, released, modified
(outcomes told to senders); discarded (the route is null); unrouted (no route), of those
refused handlerGone (there was one) and notWired; loops; problems (rows that cannot be reached); and pre-settled copies that
were dropped, by reason: droppedBusy, droppedGone, droppedLate, droppedRefused. Of events: events (taken), eventsUnrouted (of these, without a subscriber), eventCopies (queued for components
and routers), eventsKept and eventBytesKept (for replay), eventsEvicted (their window was over), eventsForgotten (for want of memory);
components and eventLinks (connected), componentsSlowed and componentsDisconnected (by the limits of what waits); behind (receivers
detached for that), eventsMissed (by hops, which cannot be told) and replayed (events that receivers got again). What $management does is in none of these: management
(requests), managementAnswers and managementUnanswered. Uptime is in seconds. Counters at 0 are shown with -o wide, json and yaml.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return r.status(c.Context()) },
	}
}

func (r *run) status(ctx context.Context) error {
	if r.file != "" {
		return usage("status: a file has none: give --url")
	}
	m, err := r.caller(ctx)
	if err != nil {
		return err
	}
	defer m.close()
	a, err := m.call(ctx, call{operation: "QUERY", name: "self", kind: "org.amqp.management", properties: map[string]any{"entityType": "router"}})
	if err != nil {
		return err
	}
	entity, err := firstEntity(a.body)
	if err != nil {
		return err
	}
	return r.print(entity, func(p *printer) {
		shown := map[string]bool{"identity": true, "type": true, "started": true}
		var names []string
		for _, name := range statusFirst {
			if !shown[name] {
				shown[name], names = true, append(names, name)
			}
		}
		rest := len(names)
		for name := range entity {
			if !shown[name] {
				names = append(names, name)
			}
		}
		sort.Strings(names[rest:])
		zero := 0
		for i, name := range names {
			if n, ok := whole(entity[name]); ok && n == 0 && i >= rest && !p.wide {
				zero++
				continue
			}
			p.columns(name, fmt.Sprint(entity[name]))
		}
		if zero > 0 {
			p.line(fmt.Sprintf("and %s at 0, which -o wide shows", plural(zero, "counter")))
		}
	})
}

// firstEntity makes a map of the first row of a QUERY's answer.
func firstEntity(body any) (map[string]any, error) {
	x, _ := plain(body).(map[string]any)
	names, _ := x["attributeNames"].([]any)
	rows, _ := x["results"].([]any)
	if len(rows) == 0 {
		return nil, no("status: the router tells nothing of itself")
	}
	row, _ := rows[0].([]any)
	if len(row) != len(names) {
		return nil, no("status: the answer of the router is malformed")
	}
	entity := map[string]any{}
	for i, name := range names {
		if s, ok := name.(string); ok && row[i] != nil {
			entity[s] = row[i]
		}
	}
	return entity, nil
}
