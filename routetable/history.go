package routetable

import (
	"errors"
	"time"
)

// Author says who asks for a change, and how: what the history keeps beside what it did.
type Author struct {
	User    string    // empty is unknown
	From    string    // from where: "127.0.0.1:4711", "file:default.yaml", "signal"; empty is this process
	Command string    // the command as a person would type it: "add COLOSSUS amqp://5.6.7.8:1234"; empty is made from the ops
	At      time.Time // zero is now
}

// Revision is one entry of the history.
type Revision struct {
	Revision uint64 // after the change
	At       time.Time
	User     string
	From     string
	Command  string
	Added    int
	Removed  int
	Updated  int
}

// Difference is a configured row that two tables do not have in common, or have with other columns, origin or place.
type Difference struct {
	Before *Route // nil: the row is only in the second table
	After  *Route // nil: the row is only in the first
	Moved  bool   // the columns are the same, the place among the others is not
}

// Diff is what leads from one table to another.
type Diff struct {
	Rows        []Difference // in table order of the second table; rows that are gone stand where they stood in the first
	Match       [2]MatchMode // before and after
	MatchDiffer bool
}

// Empty reports whether there is no difference.
func (d *Diff) Empty() bool { return len(d.Rows) == 0 && !d.MatchDiffer }

var errNoHistory = errors.New("no history")

// ApplyAs is Apply with an author for the history.
func (t *Table) ApplyAs(a Author, ops ...Op) (Change, error) { return t.Apply(ops...) }

// History returns at most limit entries (0: all) older than the revision before (0: from the newest), newest first.
func (t *Table) History(before uint64, limit int) []Revision { return nil }

// Diff compares the configured rows of two revisions that the history still reaches. The revision now is always reached.
func (t *Table) Diff(a, b uint64) (*Diff, error) { return nil, errNoHistory }

// DiffFile compares the configured rows of the table with those of a file: what loading the file would change.
func (s *Snapshot) DiffFile(f *File) (*Diff, error) { return nil, errNoHistory }

// Rollback makes the configured rows and the match mode those of an earlier revision, as a new change.
func (t *Table) Rollback(a Author, revision uint64) (Change, error) { return Change{}, errNoHistory }
