package ctl

import (
	"context"

	"github.com/fingerpost/fingerpost/routetable"
)

// editor is one table to work on: a running router's, or a file's.
type editor interface {
	// apply makes the edits as one change, or none of them.
	apply(ctx context.Context, edits []edit, o applyOptions) (result, error)

	// load puts the rows of f in place of the table's (or, with merge, beside them). A dry run says what would change.
	load(ctx context.Context, f *routetable.File, o loadOptions) (result, error)

	// store gives the table as store writes it; with all, the rows bound to a live connection are among its comments.
	store(ctx context.Context, all bool) (*routetable.File, error)

	// history lists at most limit changes, newest first; rollback goes back to a revision. A file has neither.
	history(ctx context.Context, limit int) ([]revision, error)
	rollback(ctx context.Context, to uint64, ifRevision *uint64) (result, error)

	// diff compares a revision with another, or with the table now; diffFile compares the table with a file.
	diff(ctx context.Context, revisions []uint64) (difference, error)
	diffFile(ctx context.Context, name string, f *routetable.File) (difference, error)

	// lint says what in the table is probably not meant, and how much more of it there is.
	lint(ctx context.Context) (warnings []routetable.Warning, more int, err error)

	rows(ctx context.Context, f filter) ([]row, error)
	explain(ctx context.Context, q question) (explanation, error)
	close()
}

// edit is one writing verb: an operation of the management type "table", with its arguments.
type edit struct {
	operation string
	arguments map[string]any
	dryRun    bool // asked for by the verb itself
}

// applyOptions say how edits are made.
type applyOptions struct {
	ifRevision *uint64 // where not nil, what the table must be at
	dryRun     bool    // say what would change, and change nothing
}

// loadOptions say how a load is done.
type loadOptions struct {
	merge    bool
	dryRun   bool
	source   string            // the name of the file, for the history
	progress func(text string) // where not nil, is told what goes on
	say      func(text string) // where not nil, is told what a person has to know at once

	mode string // of the session, where it is not by merge
}

// result is what a change did.
type result struct {
	Revision uint64   `json:"revision,omitempty"` // a file has none
	Added    int      `json:"added"`
	Removed  int      `json:"removed"`
	Updated  int      `json:"updated"`
	Note     string   `json:"note,omitempty"` // why nothing changed
	Warnings []string `json:"warnings"`

	Objects []objectDifference `json:"objects,omitempty"`
	DryRun  bool               `json:"dry-run,omitempty"`
}
