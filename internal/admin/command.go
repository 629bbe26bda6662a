package admin

import (
	"slices"
	"strings"

	"github.com/fingerpost/fingerpost/routetable"
)

// Command is a request to edit the table, named by the word of the protocol that it came by. A command knows what it
// wants, not what the table holds: Plan turns it into ops.
type Command interface {
	// operation is the command's word, for refusals.
	operation() string
	// role is what a caller needs. Commands of adapters need none: their adapter has checked its own grants.
	role() Role
	plan(s *routetable.Snapshot) ([]routetable.Op, error)
}

// Add appends a row.
type Add struct {
	Route   routetable.Route
	Columns routetable.ColumnSet // see routetable.Op
}

// Insert puts a row before or after another.
type Insert struct {
	Route         routetable.Route
	Columns       routetable.ColumnSet
	Before        bool
	Anchor        string // a pattern
	AnchorAddress string // empty: see routetable.Op
}

// Set changes the named columns of a row: a configured one, or a learned one of Origin.
type Set struct {
	Route   routetable.Route
	Columns routetable.ColumnSet
	Origin  string
}

// Replace replaces the first row of a pattern in place, else adds the row.
type Replace struct {
	Route   routetable.Route
	Columns routetable.ColumnSet
}

// ReplaceAll replaces all rows of a pattern.
type ReplaceAll struct {
	Pattern   string
	Addresses []string
}

// Delete deletes one row: a configured one, or a learned one of Origin.
type Delete struct {
	Pattern, Address, Origin string
}

// DeletePattern deletes the rows of a pattern.
type DeletePattern struct {
	Pattern, Origin string
}

// Clear deletes all configured rows, or the rows of Origin.
type Clear struct {
	Origin string
}

// Load puts the rows of a table file in place of the configured rows, or beside them.
type Load struct {
	File   *routetable.File
	Mode   routetable.LoadMode
	Source string // the name of the file, for the history; may be empty
}

// Apply makes several commands one change. IfRevision, where not nil, is the revision that the caller saw.
type Apply struct {
	Commands   []Command
	IfRevision *uint64
}

// Subscribe says that messages to Pattern go to Address from now on: an attached receiver, a peer, a component. The
// row lasts until its Origin is withdrawn.
type Subscribe struct {
	Origin  string
	Pattern string // of its space, wildcards and all: a name goes through routetable.QuotePattern first
	Address string
	Pick    routetable.Pick
}

// Unsubscribe takes a row of Subscribe away.
type Unsubscribe struct {
	Origin, Pattern, Address string
}

// Withdraw takes away the rows of an origin, or of all origins below a prefix that ends in a slash.
type Withdraw struct {
	Origin string
}

func (Add) operation() string           { return "ADD" }
func (Insert) operation() string        { return "INSERT" }
func (Set) operation() string           { return "SET" }
func (Replace) operation() string       { return "REPLACE" }
func (ReplaceAll) operation() string    { return "REPLACE-ALL" }
func (Delete) operation() string        { return "DELETE-ROUTE" }
func (DeletePattern) operation() string { return "DELETE-PATTERN" }
func (Clear) operation() string         { return "CLEAR" }
func (Load) operation() string          { return "LOAD" }
func (Apply) operation() string         { return "APPLY" }
func (Subscribe) operation() string     { return "SUBSCRIBE" }
func (Unsubscribe) operation() string   { return "UNSUBSCRIBE" }
func (Withdraw) operation() string      { return "WITHDRAW" }

func (Add) role() Role           { return RoleOperator }
func (Insert) role() Role        { return RoleOperator }
func (Set) role() Role           { return RoleOperator }
func (Replace) role() Role       { return RoleOperator }
func (ReplaceAll) role() Role    { return RoleOperator }
func (Delete) role() Role        { return RoleOperator }
func (DeletePattern) role() Role { return RoleOperator }
func (Clear) role() Role         { return RoleOperator }
func (Load) role() Role          { return RoleOperator }
func (Subscribe) role() Role     { return RoleNone }
func (Unsubscribe) role() Role   { return RoleNone }

func (c Apply) role() Role {
	role := RoleOperator
	for _, x := range c.Commands {
		role = max(role, x.role())
	}
	return role
}

// role of a Withdraw: a learned origin is its adapter's; a configured one is the operator's.
func (c Withdraw) role() Role {
	if routetable.Learned(strings.TrimSuffix(c.Origin, "/")) {
		return RoleNone
	}
	return RoleOperator
}

// Plan turns a command into the ops that do it on a table like s. It is pure.
func Plan(cmd Command, s *routetable.Snapshot) ([]routetable.Op, error) {
	return cmd.plan(s)
}

func (c Add) plan(*routetable.Snapshot) ([]routetable.Op, error) {
	return []routetable.Op{{Verb: routetable.VerbAdd, Route: c.Route, Columns: c.Columns}}, nil
}

func (c Insert) plan(*routetable.Snapshot) ([]routetable.Op, error) {
	return []routetable.Op{{
		Verb: routetable.VerbInsert, Route: c.Route, Columns: c.Columns,
		Before: c.Before, Anchor: c.Anchor, AnchorAddress: c.AnchorAddress,
	}}, nil
}

func (c Set) plan(*routetable.Snapshot) ([]routetable.Op, error) {
	return []routetable.Op{{Verb: routetable.VerbSet, Route: c.Route, Columns: c.Columns, Origin: c.Origin}}, nil
}

func (c Replace) plan(*routetable.Snapshot) ([]routetable.Op, error) {
	return []routetable.Op{{Verb: routetable.VerbReplace, Route: c.Route, Columns: c.Columns}}, nil
}

func (c ReplaceAll) plan(*routetable.Snapshot) ([]routetable.Op, error) {
	return []routetable.Op{{Verb: routetable.VerbReplaceAll, Route: routetable.NewRoute(c.Pattern, ""), Addresses: c.Addresses}}, nil
}

func (c Delete) plan(*routetable.Snapshot) ([]routetable.Op, error) {
	return []routetable.Op{{Verb: routetable.VerbDelete, Route: routetable.NewRoute(c.Pattern, c.Address), Origin: c.Origin}}, nil
}

func (c DeletePattern) plan(*routetable.Snapshot) ([]routetable.Op, error) {
	return []routetable.Op{{Verb: routetable.VerbDeletePattern, Route: routetable.NewRoute(c.Pattern, ""), Origin: c.Origin}}, nil
}

func (c Clear) plan(*routetable.Snapshot) ([]routetable.Op, error) {
	return []routetable.Op{{Verb: routetable.VerbClear, Origin: c.Origin}}, nil
}

func (c Load) plan(*routetable.Snapshot) ([]routetable.Op, error) {
	return []routetable.Op{c.File.Op(c.Mode)}, nil
}

func (c Apply) plan(s *routetable.Snapshot) ([]routetable.Op, error) {
	// Checked here for its words, which a batch of ops would put a number before; the table checks it again.
	if want := c.IfRevision; want != nil {
		if err := atRevision(s, *want); err != nil {
			return nil, err
		}
	}
	var ops []routetable.Op
	for i, x := range c.Commands {
		more, err := x.plan(s)
		if err != nil {
			return nil, refuse(StatusBadRequest, "op %d: %v", i+1, err)
		}
		ops = append(ops, more...)
	}
	if c.IfRevision == nil || len(ops) == 0 {
		return ops, nil
	}
	ops = slices.Clone(ops)
	ops[0].IfRevision = c.IfRevision
	return ops, nil
}

func (c Subscribe) plan(*routetable.Snapshot) ([]routetable.Op, error) { return one(c.op()) }

func (c Subscribe) op() (routetable.Op, error) {
	if !routetable.Learned(c.Origin) {
		return routetable.Op{}, refuse(StatusBadRequest, "SUBSCRIBE: origin %q is not one of learned rows", c.Origin)
	}
	r := routetable.NewRoute(c.Pattern, c.Address)
	r.Origin, r.Pick = c.Origin, c.Pick
	return routetable.Op{Verb: routetable.VerbAdd, Route: r, Columns: routetable.ColPick}, nil
}

func (c Unsubscribe) plan(*routetable.Snapshot) ([]routetable.Op, error) {
	if !routetable.Learned(c.Origin) {
		return nil, refuse(StatusBadRequest, "UNSUBSCRIBE: origin %q is not one of learned rows", c.Origin)
	}
	return []routetable.Op{{Verb: routetable.VerbDelete, Route: routetable.NewRoute(c.Pattern, c.Address), Origin: c.Origin}}, nil
}

func (c Withdraw) plan(*routetable.Snapshot) ([]routetable.Op, error) { return one(c.op()) }

func (c Withdraw) op() (routetable.Op, error) {
	if strings.TrimSuffix(c.Origin, "/") == "" {
		return routetable.Op{}, refuse(StatusBadRequest, "WITHDRAW: origin: missing")
	}
	return routetable.Op{Verb: routetable.VerbWithdraw, Origin: c.Origin}, nil
}

func one(op routetable.Op, err error) ([]routetable.Op, error) {
	if err != nil {
		return nil, err
	}
	return []routetable.Op{op}, nil
}
