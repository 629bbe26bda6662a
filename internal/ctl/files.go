package ctl

import (
	"context"
	"fmt"
	"time"
)

// fileWarner is an editor whose table is held to files.
type fileWarner interface {
	// fileWarnings says which files hold something else than the rows in force, and why.
	fileWarnings(ctx context.Context) []string
}

// fileWarnings asks the router for its table files. One that knows none has none.
func (t *remote) fileWarnings(ctx context.Context) []string {
	a, err := t.do(ctx, call{
		operation: "QUERY", name: "self", kind: "org.amqp.management", properties: map[string]any{"entityType": "file"},
		body: map[string]any{"attributeNames": []any{"error", "loaded"}},
	})
	if err != nil {
		return nil
	}
	m, _ := a.body.(map[string]any)
	var warnings []string
	for _, one := range plainList(m["results"]) {
		values := plainList(one)
		if len(values) != 2 {
			continue
		}
		if text, _ := values[0].(string); text != "" {
			loaded, _ := values[1].(string)
			warnings = append(warnings, oneLine(text)+" ("+inForce(loaded, time.Now())+")")
		}
	}
	return warnings
}

// inForce says since when the rows of a file are there: with its date where that is not today.
func inForce(loaded string, now time.Time) string {
	at, err := time.Parse(time.RFC3339, loaded)
	if err != nil {
		return "the rows of before are in force"
	}
	at = at.In(now.Location())
	form := time.TimeOnly
	if at.Format(time.DateOnly) != now.Format(time.DateOnly) {
		form = time.DateTime
	}
	return "the rows of " + at.Format(form) + " are in force"
}

// warnOfFiles prints a line on standard error for each file that is not in force.
func (r *run) warnOfFiles(ctx context.Context, ed editor) {
	w, ok := ed.(fileWarner)
	if !ok {
		return
	}
	for _, text := range w.fileWarnings(ctx) {
		fmt.Fprintln(r.env.Stderr, "warning: "+text)
	}
}
