package routetable

import (
	"errors"
	"fmt"
	"time"
)

// Verb is what an Op does to the table.
type Verb uint8

// The verbs. What each does is written at the Table method of the same name.
const (
	VerbAdd Verb = iota
	VerbInsert
	VerbSet
	VerbReplace
	VerbReplaceAll
	VerbDelete
	VerbDeletePattern
	VerbClear
	VerbWithdraw
	VerbLoad
	VerbMatch
	VerbRollback
	VerbObject
)

var verbNames = [...]string{"add", "insert", "set", "replace", "replace-all", "delete", "delete-pattern", "clear", "withdraw", "load", "match", "rollback", "object"}

func (v Verb) String() string {
	if int(v) < len(verbNames) {
		return verbNames[v]
	}
	return fmt.Sprintf("verb(%d)", uint8(v))
}

// LoadMode says what a load does with the rows that are there.
type LoadMode uint8

// The load modes.
const (
	LoadReplace LoadMode = iota // drop the rows of the same kind, then add
	LoadMerge                   // keep them; a row that exists takes the file's columns
)

// MatchMode says how patterns compete in the plain name space.
type MatchMode uint8

// The match modes. The zero value is every matching row.
const (
	MatchAll   MatchMode = iota // every matching row
	MatchFirst                  // the rows of the first matching pattern, as in Messenger
)

func (m MatchMode) String() string {
	if m == MatchFirst {
		return "first"
	}
	return "all"
}

// ParseMatchMode reads "all" or "first".
func ParseMatchMode(text string) (MatchMode, error) {
	switch text {
	case "all":
		return MatchAll, nil
	case "first":
		return MatchFirst, nil
	}
	return 0, &RefusedError{What: fmt.Sprintf("match mode %q", text), Hint: "use all or first"}
}

// Op is one table edit. Which fields count depends on Verb; the others are ignored.
type Op struct {
	Verb  Verb
	Route Route // pattern, address, columns, origin; ID and Name may be left empty

	// Columns names the columns that the caller gave a value. For add, insert and replace a column of Route that is
	// not zero counts as named too; only a zero value that is meant (retry 0, order 0) needs its bit.
	Columns ColumnSet

	Before        bool   // insert: before the anchor, else after it
	Anchor        string // insert: the anchor's pattern
	AnchorAddress string // insert: the anchor's address; empty is the first row of the pattern for Before, else the last

	Addresses []string // replace-all

	// Origin: delete, delete-pattern, clear and set reach learned rows of exactly this origin; withdraw takes an origin,
	// or a prefix of origins if it ends with "/"; load makes rows of it (empty is operator).
	Origin string

	Routes   []Route     // load
	compiled []*compiled // load: of Routes, where they come from a file; used where they are still true
	once     bool        // load: no row is there twice, as long as compiled is true of all
	Mode     LoadMode    // load
	Match    MatchMode   // match; load where SetMatch
	SetMatch bool        // load: also set the match mode

	To uint64 // rollback: the revision whose rows come back

	Object, Text string // object: its name, and the text that it is to have; an empty text takes it away

	IfRevision *uint64 // the revision that the caller saw; another one is a ConflictError
}

// Change is what an Apply did. Its routes are immutable and shared.
type Change struct {
	Revision   uint64 // after the change
	Generation uint64 // after the change
	Added      []*Route
	Removed    []*Route
	Updated    []*Route       // as they are now
	Before     []*Route       // as the rows of Updated were, in the same order
	Objects    []ObjectChange // in the order of their names
	MatchSet   bool           // the match mode changed
	Note       string         // why nothing was done, or what else was ("already there", "nothing to delete")
	Warnings   []Warning

	moved []*Route // rows of which only the position is another
}

// Changed reports whether the table is another than before.
func (c Change) Changed() bool {
	return len(c.Added)+len(c.Removed)+len(c.Updated)+len(c.Objects) > 0 || c.MatchSet
}

// ErrNotFound says that the row that was to be set, or the anchor of an insert, is not there: list the table.
var ErrNotFound = errors.New("no such row")

// RefusedError says that an edit asks for something that no table may hold. The table is as it was.
type RefusedError struct {
	What  string // what is wrong
	Where string // in which field, or at which line and column; may be empty
	Hint  string // what to do; may be empty
}

func (e *RefusedError) Error() string {
	s := e.What
	if e.Where != "" {
		s = e.Where + ": " + s
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// ConflictError says that the edit would be fine on another table: the row exists with other columns, or the revision
// that the caller saw has passed. Read the table again.
type ConflictError struct {
	What     string
	Hint     string
	Revision uint64 // of the table now
}

func (e *ConflictError) Error() string {
	if e.Hint != "" {
		return e.What + " (" + e.Hint + ")"
	}
	return e.What
}

// Warning is something in a table that is allowed and probably not meant.
type Warning struct {
	Line    int    `json:"line,omitempty"` // in the file that it was read from, if any
	Pattern string `json:"pattern"`
	Address string `json:"address"`
	What    string `json:"what"`
}

// String is the warning in a line for people, in which long texts are cut.
func (w Warning) String() string {
	s := fmt.Sprintf("%s --> %s: %s", arrowField(shown(w.Pattern)), arrowField(shown(MaskUserinfo(w.Address))), shown(w.What))
	if w.Line > 0 {
		s = fmt.Sprintf("line %d: %s", w.Line, s)
	}
	return s
}

// maxShown is the most of a text, which may have 64 KiB, that a line for people has of it.
const maxShown = 300

func shown(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return cut(s, maxShown) + "…"
}

// JoinWarnings puts lists together, each warning once: what the reader of a file says with its line, and the table without, is one.
func JoinWarnings(lists ...[]Warning) []Warning {
	all := []Warning{}
	said := map[Warning]bool{}
	for _, list := range lists {
		for _, w := range list {
			same := w
			if same.Line = 0; !said[same] {
				said[same] = true
				all = append(all, w)
			}
		}
	}
	return all
}

// Column sets one column of an op, for Add and the other short forms.
type Column func(*Op)

// WithPick sets the pick.
func WithPick(p Pick) Column { return func(o *Op) { o.Route.Pick = p; o.Columns |= ColPick } }

// WithBalance sets the balance.
func WithBalance(b Balance) Column {
	return func(o *Op) { o.Route.Balance = b; o.Columns |= ColBalance }
}

// WithWeight sets the weight, in parts.
func WithWeight(n int) Column { return func(o *Op) { o.Route.Weight = n; o.Columns |= ColWeight } }

// WithHashKey sets the property that balance hash uses.
func WithHashKey(k string) Column {
	return func(o *Op) { o.Route.HashKey = k; o.Columns |= ColHashKey }
}

// WithOrder sets the order.
func WithOrder(n int) Column { return func(o *Op) { o.Route.Order = n; o.Columns |= ColOrder } }

// WithFallback sets whether the row is a fallback.
func WithFallback(b bool) Column {
	return func(o *Op) { o.Route.Fallback = b; o.Columns |= ColFallback }
}

// WithOptional sets whether the row is optional.
func WithOptional(b bool) Column {
	return func(o *Op) { o.Route.Optional = b; o.Columns |= ColOptional }
}

// WithWhen sets the predicate.
func WithWhen(text string) Column { return func(o *Op) { o.Route.When = text; o.Columns |= ColWhen } }

// WithTimeout sets the delivery timeout.
func WithTimeout(d time.Duration) Column {
	return func(o *Op) { o.Route.Timeout = d; o.Columns |= ColTimeout }
}

// WithRetry sets the number of retries; -1 is none set.
func WithRetry(n int) Column { return func(o *Op) { o.Route.Retry = n; o.Columns |= ColRetry } }

// WithDynamicHost lets the row take its host from the message.
func WithDynamicHost(b bool) Column {
	return func(o *Op) { o.Route.DynamicHost = b; o.Columns |= ColDynamicHost }
}

// WithNote sets the note.
func WithNote(s string) Column { return func(o *Op) { o.Route.Note = s; o.Columns |= ColNote } }

// WithOrigin sets who asserts the row: for add, insert and replace the row's origin, for the other verbs the origin of
// the learned rows that are meant.
func WithOrigin(origin string) Column {
	return func(o *Op) { o.Route.Origin = origin; o.Origin = origin }
}

// WithRevision makes the edit a compare-and-set: it is done only at that revision.
func WithRevision(revision uint64) Column { return func(o *Op) { o.IfRevision = &revision } }

// OpError says which op of a batch was refused.
type OpError struct {
	Op   int // from 0
	Verb Verb
	Err  error
}

func (e *OpError) Error() string { return fmt.Sprintf("op %d, %s: %v", e.Op+1, e.Verb, e.Err) }

func (e *OpError) Unwrap() error { return e.Err }
