package ctl

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// revision is one entry of the table's history.
type revision struct {
	Revision uint64 `json:"revision"`
	At       string `json:"at"` // RFC 3339, UTC
	User     string `json:"user"`
	From     string `json:"from"`
	Command  string `json:"command"`
	Added    int    `json:"added"`
	Removed  int    `json:"removed"`
	Updated  int    `json:"updated"`
	Objects  int    `json:"objects,omitempty"` // that were made others
	Gone     bool   `json:"gone,omitempty"`    // there is no way back to it any more
}

// who is the user, and where from; a change of the router's own has neither.
func (x revision) who() string {
	switch {
	case x.User != "" && x.From != "":
		return x.User + " at " + x.From
	case x.User == "" && x.From == "":
		return "the router"
	}
	return x.User + x.From
}

// changes counts the rows that were added, removed and updated, and objects.
func (x revision) changes() string {
	rows := fmt.Sprintf("+%d -%d ~%d", x.Added, x.Removed, x.Updated)
	switch {
	case x.Objects == 0:
		return rows
	case x.Added+x.Removed+x.Updated == 0:
		return plural(x.Objects, "object")
	}
	return rows + ", " + plural(x.Objects, "object")
}

func historyCommand(r *run) *cobra.Command {
	limit := 50
	c := &cobra.Command{
		Use:   "history",
		Short: "list the changes of the table, newest first",
		Long: `History lists the changes of configured rows and of objects, newest first: the revision that each made, when, who asked for it and from where, how many rows it added (+), removed (-) and updated (~) and how many objects it made others,
and how.
The router keeps 10 000 of them, or 30 days. "diff REV" shows what changed since one of them, "rollback REV" goes back to it; those behind
whose number there is an "x" were followed by changes too large to be kept, and are listed only.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 1 || limit > 10_000 {
				return usage("--limit %d: a number from 1 to 10000", limit)
			}
			if r.file != "" {
				return usage("history: a file has none: give --url")
			}
			ed, err := r.editor(c.Context(), true)
			if err != nil {
				return err
			}
			defer ed.close()
			list, err := ed.history(c.Context(), limit)
			if err != nil {
				return err
			}
			return r.print(list, func(p *printer) { drawHistory(p, list) })
		},
	}
	c.Flags().IntVar(&limit, "limit", limit, "at most `N` changes")
	return c
}

func drawHistory(p *printer, list []revision) {
	if len(list) == 0 {
		p.line("no changes")
		return
	}
	p.columns("REVISION", "AT", "WHO", "CHANGES", "COMMAND")
	gone := false
	for _, x := range list {
		at := x.At
		if t, err := time.Parse(time.RFC3339Nano, x.At); err == nil && !p.wide {
			at = t.Format("2006-01-02 15:04:05Z")
		}
		number := strconv.FormatUint(x.Revision, 10)
		if x.Gone {
			number += " x"
			gone = true
		}
		p.columns(number, at, x.who(), x.changes(), x.Command)
	}
	if gone {
		p.line("x: there is no way back to it any more")
	}
}

func (t *remote) history(ctx context.Context, limit int) ([]revision, error) {
	list := []revision{}
	arguments := map[string]any{"limit": int32(limit)}
	for {
		a, err := t.ask(ctx, "HISTORY", arguments)
		if err != nil {
			return nil, err
		}
		page := plainList(a.body)
		for _, v := range page {
			m, _ := v.(map[string]any)
			list = append(list, readRevision(m))
		}
		next, more := whole(a.properties["next"])
		if limit -= len(page); !more || limit <= 0 || len(page) == 0 {
			return list, nil
		}
		arguments = map[string]any{"limit": int32(limit), "before": next}
	}
}

func readRevision(m map[string]any) revision {
	str := func(name string) string {
		if m[name] == nil {
			return ""
		}
		return fmt.Sprint(plain(m[name]))
	}
	gone, _ := m["gone"].(bool)
	return revision{
		Gone: gone, Revision: uint64(wholeOr(m["revision"], 0)), At: str("at"), User: str("user"), From: str("from"), Command: str("command"),
		Added: int(wholeOr(m["added"], 0)), Removed: int(wholeOr(m["removed"], 0)), Updated: int(wholeOr(m["updated"], 0)),
		Objects: int(wholeOr(m["objects"], 0)),
	}
}

func (t *local) history(context.Context, int) ([]revision, error) {
	return nil, usage("history: a file has none: give --url")
}

func rollbackCommand(r *run) *cobra.Command {
	var ifRevision uint64
	c := &cobra.Command{
		Use:   "rollback REV",
		Short: "make the configured rows those of an earlier revision, as a new change",
		Args:  arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, argv []string) error {
			to, err := strconv.ParseUint(argv[0], 10, 64)
			if err != nil {
				return usage("rollback %q: give the number of a revision: routectl history lists them", argv[0])
			}
			if r.file != "" {
				return usage("rollback: a file has no revisions: give --url")
			}
			var want *uint64
			if c.Flags().Changed("if-revision") {
				want = &ifRevision
			}
			ed, err := r.editor(c.Context(), true)
			if err != nil {
				return err
			}
			defer ed.close()
			x, err := ed.rollback(c.Context(), to, want)
			if err != nil {
				return err
			}
			return r.printResult(x)
		},
	}
	c.Flags().Uint64Var(&ifRevision, "if-revision", 0, "refuse where the table is not at this `REVISION`")
	return c
}

func (t *remote) rollback(ctx context.Context, to uint64, ifRevision *uint64) (result, error) {
	arguments := map[string]any{"revision": to}
	if ifRevision != nil {
		arguments["ifRevision"] = *ifRevision
	}
	a, err := t.ask(ctx, "ROLLBACK", arguments)
	if err != nil {
		return result{}, err
	}
	return readResult(a)
}

func (t *local) rollback(context.Context, uint64, *uint64) (result, error) {
	return result{}, usage("rollback: a file has no revisions: give --url")
}
