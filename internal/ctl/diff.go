package ctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// difference is what leads from one table to another. Where it comes from a router, viewers see addresses masked.
type difference struct {
	From  any             `json:"from"` // a revision, or the name of a file
	To    any             `json:"to"`
	Match []string        `json:"match,omitempty"` // before and after, where they differ
	Rows  []differenceRow `json:"rows"`

	Objects []objectDifference `json:"objects,omitempty"`
}

// objectDifference is an object of components that is another.
type objectDifference struct {
	Name   string `json:"name"`
	Change string `json:"change"` // added, removed or changed
}

type differenceRow struct {
	Change string            `json:"change"` // added, removed, changed or moved
	Before *routetable.Route `json:"before,omitempty"`
	After  *routetable.Route `json:"after,omitempty"`
}

func diffCommand(r *run) *cobra.Command {
	return &cobra.Command{
		Use:   "diff FILE|REV [REV]",
		Short: "show what differs between the table and a file, or between two revisions",
		Long: `Diff shows what loading FILE ("-" is standard input) would change, what changed since the revision REV, or between two
revisions. With --file it compares that table file with FILE. What is all digits is a revision (a file of that name is ./12).

  - PATTERN --> ADDRESS   gone, or as it was
  + PATTERN --> ADDRESS   new, or as it is
  > PATTERN --> ADDRESS   in another place

Exit status 1 says that there is a difference.`,
		Args: arguments(cobra.RangeArgs(1, 2)),
		RunE: func(c *cobra.Command, argv []string) error { return r.diff(c.Context(), argv) },
	}
}

func (r *run) diff(ctx context.Context, argv []string) error {
	var revisions []uint64
	for _, a := range argv {
		if n, err := strconv.ParseUint(a, 10, 64); err == nil && strings.Trim(a, "0123456789") == "" {
			revisions = append(revisions, n)
		}
	}
	switch {
	case len(revisions) > 0 && r.file != "":
		return usage("diff %s: a file has no revisions: use --url, or ./%s for a file of that name", argv[0], argv[0])
	case len(revisions) != len(argv) && len(argv) > 1:
		return usage("diff: give one file, or one or two revisions")
	}
	var f *routetable.File
	if len(revisions) == 0 {
		var err error
		if f, err = r.readTable(argv[0]); err != nil {
			if _, ok := errors.AsType[*routetable.FileError](err); ok {
				return usage("%v", err)
			}
			return err
		}
	}
	ed, err := r.editor(ctx, true)
	if err != nil {
		return err
	}
	defer ed.close()
	var x difference
	if f != nil {
		x, err = ed.diffFile(ctx, argv[0], f)
	} else {
		x, err = ed.diff(ctx, revisions)
	}
	if err != nil {
		return err
	}
	err = r.print(x, func(p *printer) {
		for line := range strings.Lines(x.text()) {
			p.line(strings.TrimSuffix(line, "\n"))
		}
		if x.empty() {
			p.line("no difference")
		}
	})
	if err == nil && !x.empty() {
		return silentNo
	}
	return err
}

func (x difference) empty() bool { return len(x.Rows)+len(x.Objects) == 0 && len(x.Match) == 0 }

// text is the difference for people.
func (x difference) text() string {
	var d routetable.Diff
	if len(x.Match) == 2 {
		d.MatchDiffer = true
		for i, name := range x.Match {
			d.Match[i], _ = routetable.ParseMatchMode(name)
		}
	}
	for _, r := range x.Rows {
		d.Rows = append(d.Rows, routetable.Difference{Before: r.Before, After: r.After, Moved: r.Change == "moved"})
	}
	for _, o := range x.Objects {
		change := routetable.ObjectChange{Name: o.Name, Before: "before", After: "after"}
		switch o.Change {
		case "added":
			change.Before = ""
		case "removed":
			change.After = ""
		}
		d.Objects = append(d.Objects, change)
	}
	var b bytes.Buffer
	d.WriteText(&b, false)
	return b.String()
}

func (t *remote) diff(ctx context.Context, revisions []uint64) (difference, error) {
	arguments := map[string]any{"a": revisions[0]}
	if len(revisions) > 1 {
		arguments["b"] = revisions[1]
	}
	return t.readDiff(ctx, arguments)
}

func (t *remote) diffFile(ctx context.Context, name string, f *routetable.File) (difference, error) {
	session, err := t.upload(ctx, f, loadOptions{mode: "diff", source: name})
	if err != nil {
		return difference{}, err
	}
	x, err := t.readDiff(ctx, map[string]any{"session": session})
	if err != nil {
		t.abort(ctx, session)
		return x, ofFile("diff", inFile(err, f), inputName(name))
	}
	return x, nil
}

// readDiff reads the pages of a DIFF.
func (t *remote) readDiff(ctx context.Context, arguments map[string]any) (difference, error) {
	x := difference{Rows: []differenceRow{}}
	for {
		a, err := t.ask(ctx, "DIFF", arguments)
		if err != nil {
			return x, err
		}
		m, _ := a.body.(map[string]any)
		x.From, x.To = plain(m["from"]), plain(m["to"])
		if list := plainList(m["match"]); len(list) == 2 && x.Match == nil {
			x.Match = []string{fmt.Sprint(list[0]), fmt.Sprint(list[1])}
		}
		x.Objects = readObjectDifferences(m["objects"])
		rows := plainList(m["rows"])
		for _, v := range rows {
			one, _ := v.(map[string]any)
			row := differenceRow{Change: fmt.Sprint(plain(one["change"]))}
			if row.Before, err = readRow(one["before"]); err == nil {
				row.After, err = readRow(one["after"])
			}
			if err != nil {
				return x, err
			}
			x.Rows = append(x.Rows, row)
		}
		if m["next"] == nil || len(rows) == 0 {
			return x, nil
		}
		arguments = map[string]any{"diff": m["diff"], "offset": m["next"]}
	}
}

func readObjectDifferences(v any) (list []objectDifference) {
	for _, x := range plainList(v) {
		m, _ := x.(map[string]any)
		list = append(list, objectDifference{stringOf(m, "name"), stringOf(m, "change")})
	}
	return list
}

// readRow reads a row from the map of its attributes; nil where there is none.
func readRow(v any) (*routetable.Route, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, nil
	}
	op := routetable.Op{Route: routetable.NewRoute("", "")}
	for name, value := range m {
		column, _ := admin.ColumnName(name)
		if name == "name" {
			column = name
		}
		if err := readColumn(&op, column, value); err != nil {
			return nil, err
		}
	}
	return &op.Route, nil
}

func (t *local) diff(context.Context, []uint64) (difference, error) {
	return difference{}, usage("diff: a file has no revisions: use --url")
}

func (t *local) diffFile(_ context.Context, name string, f *routetable.File) (difference, error) {
	s := t.table.Snapshot()
	d, err := s.DiffFile(f)
	if err != nil {
		return difference{}, usage("%s: %v", inputName(name), err)
	}
	x := difference{From: filepath.Clean(t.name), To: inputName(name), Rows: []differenceRow{}}
	if d.MatchDiffer {
		x.Match = []string{d.Match[0].String(), d.Match[1].String()}
	}
	for _, r := range d.Rows {
		row := differenceRow{Change: "changed", Before: r.Before, After: r.After}
		switch {
		case r.Before == nil:
			row.Change = "added"
		case r.After == nil:
			row.Change = "removed"
		case r.Moved:
			row.Change = "moved"
		}
		x.Rows = append(x.Rows, row)
	}
	return x, nil
}
