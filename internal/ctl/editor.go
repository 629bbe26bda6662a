package ctl

import (
	"context"

	"github.com/fingerpost/fingerpost/routetable"
)

// editor is one table to work on: a running router's, or a file's.
type editor interface {
	// apply makes the edits as one change, or none of them. ifRevision, where not nil, is what the table must be at.
	apply(ctx context.Context, edits []edit, ifRevision *uint64) (result, error)

	// load puts the rows of f in place of the table's (or, with merge, beside them). A dry run says what would change.
	load(ctx context.Context, f *routetable.File, o loadOptions) (result, error)

	// store gives the table as store writes it; with all, the rows bound to a live connection are among its comments.
	store(ctx context.Context, all bool) (*routetable.File, error)

	rows(ctx context.Context, f filter) ([]*routetable.Route, error)
	explain(ctx context.Context, q question) (explanation, error)
	close()
}

// edit is one writing verb: an operation of the management type "table", with its arguments.
type edit struct {
	operation string
	arguments map[string]any
}

// loadOptions say how a load is done. progress, where not nil, is told how many bytes of how many were sent.
type loadOptions struct {
	merge    bool
	dryRun   bool
	progress func(sent, total int)
}

// result is what a change did.
type result struct {
	Revision uint64   `json:"revision,omitempty"` // a file has none
	Added    int      `json:"added"`
	Removed  int      `json:"removed"`
	Updated  int      `json:"updated"`
	Note     string   `json:"note,omitempty"` // why nothing changed
	Warnings []string `json:"warnings"`
	DryRun   bool     `json:"dry-run,omitempty"`
}
