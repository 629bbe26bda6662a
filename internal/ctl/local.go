package ctl

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// local is a table file with no router. Each change is written back at once, whole.
type local struct {
	name  string
	file  *routetable.File // as read; it keeps comments and the expect list
	yaml  bool             // the form of the file, which an edit keeps
	table *routetable.Table
}

// openLocal reads a table file. One that is not there is an empty table, unless mustExist.
func openLocal(name string, mustExist bool) (editor, error) {
	f, err := routetable.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && !mustExist {
		return &local{name: name, file: &routetable.File{}, yaml: isYAML(name), table: routetable.New()}, nil
	}
	if err != nil {
		return nil, usage("--file: %v", err)
	}
	t := routetable.New()
	if _, err := t.LoadFile(f, routetable.LoadReplace); err != nil {
		return nil, usage("--file: %s: %v", name, err)
	}
	return &local{name: name, file: f, yaml: f.InYAML(isYAML(name)), table: t}, nil
}

func (t *local) close() {}

func (t *local) apply(_ context.Context, edits []edit, o applyOptions) (result, error) {
	if o.ifRevision != nil {
		return result{}, usage("--if-revision: a file has no revisions: use --url")
	}
	cmd := admin.Apply{}
	for _, e := range edits {
		c, err := admin.ParseCommand(e.operation, e.arguments)
		if err != nil {
			return result{}, usage("%v", err)
		}
		cmd.Commands = append(cmd.Commands, c)
	}
	return t.do(cmd, o.dryRun)
}

// do runs a command on the table and writes the file where that changed something.
func (t *local) do(cmd admin.Command, dryRun bool) (result, error) {
	ops, err := admin.Plan(cmd, t.table.Snapshot())
	if err != nil {
		return result{}, no("%v", err)
	}
	if len(ops) == 0 {
		return result{Note: "nothing to do"}, nil
	}
	ch, err := t.table.Apply(ops...)
	if err != nil {
		return result{}, no("%v", err)
	}
	x := resultOf(ch)
	x.DryRun = dryRun
	if dryRun {
		return x, nil
	}
	if _, err := os.Stat(t.name); err == nil && !ch.Changed() {
		return x, nil
	}
	return x, t.save()
}

func resultOf(ch routetable.Change) result {
	x := result{
		Note: admin.ShortNote(ch.Note), Added: len(ch.Added), Removed: len(ch.Removed), Updated: len(ch.Updated),
	}
	for _, w := range ch.Warnings {
		x.Warnings = append(x.Warnings, w.String())
	}
	return x
}

// save writes the table back in the form that the file has. Lines of rows that did not change stay as they are.
func (t *local) save() error {
	f := t.table.Snapshot().File(false)
	f.Keep(t.file)
	var text bytes.Buffer
	if err := writeForm(&text, f, t.yaml); err != nil {
		return no("%s: %v", t.name, err)
	}
	if err := writeFileAtomic(t.name, text.Bytes()); err != nil {
		return no("%v", err)
	}
	t.file = f
	return nil
}

func (t *local) load(_ context.Context, f *routetable.File, o loadOptions) (result, error) {
	cmd := admin.Load{File: f}
	if o.merge {
		cmd.Mode = routetable.LoadMerge
	}
	if !o.dryRun && !o.merge {
		t.file = t.loaded(f)
	}
	x, err := t.do(cmd, o.dryRun)
	said := map[string]bool{}
	for _, text := range x.Warnings {
		said[text] = true
	}
	for _, w := range f.Warnings {
		if text := w.String(); !said[text] {
			said[text] = true
			x.Warnings = append(x.Warnings, text)
		}
	}
	return x, err
}

// loaded is what is kept of the files when f replaces the rows: the expectations of the one that has some, f before
// the one that was there, and the comments of the one that was there.
func (t *local) loaded(f *routetable.File) *routetable.File {
	if len(t.file.Routes)+len(t.file.Expect) == 0 {
		return f
	}
	kept := *f
	kept.Keep(t.file)
	if len(f.Expect) > 0 {
		kept.Expect = f.Expect
	}
	return &kept
}

// readTable reads a table file, or standard input for "-". What is wrong in it is a *routetable.FileError.
func (r *run) readTable(name string) (*routetable.File, error) {
	var f *routetable.File
	var err error
	if name == "-" {
		f, err = routetable.ReadTable(inputName(name), r.env.Stdin)
	} else if err = checkRegular(name); err == nil {
		f, err = routetable.ReadFile(name)
	}
	if _, ok := errors.AsType[*routetable.FileError](err); ok || err == nil {
		return f, err
	}
	if name == "-" {
		return nil, no("read standard input: %v", err)
	}
	return nil, usage("%v", err)
}

func (t *local) explain(_ context.Context, q question) (explanation, error) {
	x := t.table.Snapshot().Explain(q.address, q.target, admin.PropertyReader(q.properties))
	return explanationOf(x), nil
}

func (t *local) rows(_ context.Context, f filter) ([]row, error) {
	var rows []row
	for r := range t.table.Snapshot().Routes() {
		if f.takes(r) {
			rows = append(rows, row{Route: r})
		}
	}
	return rows, nil
}

func (t *local) store(_ context.Context, all bool) (*routetable.File, error) {
	f := t.table.Snapshot().File(all)
	f.Keep(t.file)
	return f, nil
}
