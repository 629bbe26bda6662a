package ctl

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

func TestListShowsWhatTheRouterCounted(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 5e8, time.UTC)
	d := newDoor(t, admin.RoleViewer)
	d.core = admin.New(routetable.New(), admin.Options{
		Name: "r",
		RowCounters: func(r *routetable.Route) admin.RowCounters {
			if r.Pattern == "GUARDIAN" {
				return admin.RowCounters{}
			}
			return admin.RowCounters{Matched: 12345, Copied: 12340, Delivered: 12000, Released: 40, Dropped: 3, LastUsed: at}
		},
	})
	for _, pattern := range []string{"COLOSSUS", "GUARDIAN"} {
		if _, err := d.core.Table().Add(pattern, "amqp://h", routetable.WithNote("an arm")); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ form, want string }{
		{"table", "" +
			"PATTERN   ADDRESS   PICK  ORIGIN    NOTE\n" +
			"COLOSSUS  amqp://h  all   operator  an arm\n" +
			"GUARDIAN  amqp://h  all   operator  an arm\n"},
		{"wide", "" +
			"PATTERN   ADDRESS   PICK  ORDER  ORIGIN    MATCHED  COPIED  DELIVERED  RELEASED  DROPPED  LAST-USED             COLUMNS  NOTE\n" +
			"COLOSSUS  amqp://h  all   0      operator  12345    12340   12000      40        3        2026-11-30 12:00:00Z           an arm\n" +
			"GUARDIAN  amqp://h  all   0      operator  0        0       0          0         0        never                          an arm\n"},
		{"yaml", `- pattern: COLOSSUS
  address: amqp://h
  pick: all
  order: 0
  fallback: false
  optional: false
  origin: operator
  note: an arm
  matched: 12345
  copied: 12340
  delivered: 12000
  released: 40
  dropped: 3
  lastUsed: "2026-11-30T12:00:00.5Z"
- pattern: GUARDIAN
  address: amqp://h
  pick: all
  order: 0
  fallback: false
  optional: false
  origin: operator
  note: an arm
  matched: 0
  copied: 0
  delivered: 0
  released: 0
  dropped: 0
`},
	} {
		var out, errs bytes.Buffer
		r := &run{
			env:  Env{Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }},
			open: func(context.Context) (editor, error) { return &remote{caller: d}, nil },
		}
		if status := r.run(context.Background(), []string{"list", "-o", c.form}); status != 0 || out.String() != c.want {
			t.Errorf("-o %s: exit status %d: %s\n got %s\nwant %s", c.form, status, &errs, &out, c.want)
		}
	}
}

func TestColumnsHoldWhateverIsInTheCells(t *testing.T) {
	var p printer
	for _, row := range [][]string{{"A", "B"}, {"", "empty"}, {"é", "wide"}, {"a\xffb", "bytes"}, {"a\tb\n", "controls"}, {"\u009b31m", "C1"}, {"longer than all", "z"}} {
		p.columns(row...)
	}
	want := `A                B
                 empty
é                wide
a\xffb           bytes
a\tb\n           controls
\u009b31m        C1
longer than all  z
`
	if got := string(p.bytes()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
