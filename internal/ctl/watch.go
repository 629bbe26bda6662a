package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/go-amqp"
	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/routetable"
)

// event is one message of a watch. Lists that an event of its kind does not have are absent.
type event struct {
	Event      string              `json:"event"` // watching, change, missed or snapshot
	Revision   uint64              `json:"revision,omitempty"`
	Generation uint64              `json:"generation"`
	Author     *author             `json:"author,omitempty"`
	Match      string              `json:"match,omitempty"`
	Rows       []*differenceRow    `json:"rows,omitempty"` // of a change: added, removed or changed
	Objects    []objectDifference  `json:"objects,omitempty"`
	Table      []*routetable.Route `json:"table,omitempty"` // of a snapshot
	Last       bool                `json:"last,omitempty"`  // of a snapshot: there are no more rows
}

type author struct {
	User    string `json:"user"`
	From    string `json:"from"`
	Command string `json:"command"`
	At      string `json:"at"`
}

func watchCommand(r *run) *cobra.Command {
	var snapshot bool
	c := &cobra.Command{
		Use:   "watch",
		Short: "print the changes of the running table as they happen",
		Long: `Watch prints each change of the table, rows that are learned from links and peers included, until it is interrupted (rows that only bring
answers to calls, $reply/…, with -o wide and json only):

  REVISION  + PATTERN --> ADDRESS   new, or as it is
  REVISION  - PATTERN --> ADDRESS   gone, or as it was
  REVISION  = PATTERN --> ADDRESS   a row of the table as it is (--snapshot, and after "missed")

It never holds the router up. Where it falls behind, it says what it missed from, prints the table as it is, and goes on. With -o wide each
change says who asked for it, and how; -o json gives an object a line.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return r.watch(c.Context(), snapshot) },
	}
	c.Flags().BoolVar(&snapshot, "snapshot", false, "print the rows that are there first")
	return c
}

func (r *run) watch(ctx context.Context, snapshot bool) error {
	if r.file != "" {
		return usage("watch: a file does not change by itself: give --url")
	}
	m, err := r.manager(ctx)
	if err != nil {
		return err
	}
	defer m.close()
	a, err := (&remote{caller: m}).ask(ctx, "WATCH", map[string]any{"snapshot": snapshot})
	if err != nil {
		return err
	}
	own, _ := routetable.QuotePattern(m.replyTo())
	body, _ := a.body.(map[string]any)
	first := event{Event: "watching", Revision: uint64(wholeOr(body["revision"], 0)), Generation: uint64(wholeOr(body["generation"], 0)), Match: stringOf(body, "match")}
	p := r.stream()
	for x := first; ; {
		if err := r.printEvent(p, x); err != nil {
			return err
		}
		msg, err := m.receive(ctx)
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		if x, err = readEvent(msg, own); err != nil {
			return err
		}
	}
}

// receive takes the next message that is not an answer to a call.
func (m *manager) receive(ctx context.Context) (*amqp.Message, error) {
	msg, err := m.receiver.Receive(ctx, nil)
	if err == nil {
		err = m.receiver.AcceptMessage(ctx, msg)
	}
	if err != nil {
		return nil, m.failed(err, callTimeout)
	}
	return msg, nil
}

func (r *run) printEvent(p *stream, x event) error {
	text := strings.TrimSuffix(x.text(r.output == "wide"), "\n")
	if text == "" && p.form != "json" && p.form != "yaml" {
		return nil
	}
	return p.item(x, text)
}

// text is the event for people, a line a row.
func (x event) text(wide bool) string {
	at := fmt.Sprintf("%d  ", x.Revision)
	switch x.Event {
	case "watching":
		return at + "watching"
	case "missed":
		return fmt.Sprintf("missed what came after generation %d: the table as it is follows", x.Generation)
	case "snapshot":
		var table difference
		for _, row := range x.Table {
			if wide || !isReply(row) {
				table.Rows = append(table.Rows, differenceRow{After: row})
			}
		}
		var b strings.Builder
		for line := range strings.Lines(table.text()) {
			b.WriteString(at + "=" + strings.TrimPrefix(line, "+"))
		}
		return b.String()
	}
	d := difference{Objects: x.Objects}
	for _, row := range x.Rows {
		if !wide && row.isReply() {
			continue
		}
		d.Rows = append(d.Rows, *row)
	}
	var b strings.Builder
	if x.Match != "" {
		b.WriteString(at + "match: " + x.Match + "\n")
	}
	for line := range strings.Lines(d.text()) {
		b.WriteString(at + line)
	}
	if x.Author != nil && wide {
		who := revision{User: x.Author.User, From: x.Author.From}.who()
		b.WriteString(at + "# by " + who + ": " + x.Author.Command + "\n")
	}
	return b.String()
}

// isReply tells whether a row only brings the answers to somebody's calls: routectl itself makes such a row each time it runs.
func isReply(r *routetable.Route) bool { return r != nil && strings.HasPrefix(r.Pattern, "$reply/") }

func (d *differenceRow) isReply() bool { return isReply(d.Before) || isReply(d.After) }

// readEvent reads a message of a watch. The row that brings the events is left out of snapshots.
func readEvent(msg *amqp.Message, own string) (event, error) {
	m, _ := msg.Value.(map[string]any)
	x := event{
		Event: stringOf(msg.Value, "event"), Revision: uint64(wholeOr(m["revision"], 0)), Generation: uint64(wholeOr(m["generation"], 0)),
		Match: stringOf(msg.Value, "match"), Last: m["last"] == true,
	}
	switch x.Event {
	case "change", "missed", "snapshot":
	default:
		return x, unreachable("a message of the watch is not understood: event %q", x.Event)
	}
	if a, ok := m["author"].(map[string]any); ok {
		who := readRevision(a)
		x.Author = &author{User: who.User, From: who.From, Command: who.Command, At: who.At}
	}
	for _, part := range []struct{ list, change string }{{"removed", "removed"}, {"updated", "changed"}, {"added", "added"}} {
		for _, v := range plainList(m[part.list]) {
			one, _ := v.(map[string]any)
			row := &differenceRow{Change: part.change}
			before, after := one["before"], one["after"]
			switch part.change {
			case "removed":
				before, after = v, nil
			case "added":
				before, after = nil, v
			}
			var err error
			if row.Before, err = readRow(before); err == nil {
				row.After, err = readRow(after)
			}
			if err != nil {
				return x, err
			}
			x.Rows = append(x.Rows, row)
		}
	}
	x.Objects = readObjectDifferences(m["objects"])
	for _, v := range plainList(m["rows"]) {
		row, err := readRow(v)
		if err != nil {
			return x, err
		}
		if row != nil && (own == "" || row.Pattern != own) {
			x.Table = append(x.Table, row)
		}
	}
	return x, nil
}
