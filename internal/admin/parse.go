package admin

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fingerpost/fingerpost/routetable"
)

// maxApplyOps bounds one APPLY; a larger change is a load.
const maxApplyOps = 100_000

// AttributeName gives the name that a column of the table has inside $management: camel case.
func AttributeName(column string) string {
	var b strings.Builder
	upper := false
	for _, r := range column {
		switch {
		case r == '-':
			upper = true
		case upper:
			b.WriteString(strings.ToUpper(string(r)))
			upper = false
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// ColumnName gives the column that has this name inside $management. The table's own name (hash-key) is taken too.
func ColumnName(attribute string) (column string, ok bool) {
	column, ok = columnTable().column[attribute]
	return column, ok
}

// identityColumns are the columns that make a row that row.
var identityColumns = []string{"pattern", "address", "origin"}

// columnTable is the columns by both of their names, and in the order of DESIGN §2: pattern, address, the others,
// origin, note. It never changes.
var columnTable = sync.OnceValue(func() (t struct {
	names     []string          // of columns, in order
	attribute map[string]string // column → attribute
	column    map[string]string // either → column
}) {
	t.names = []string{"pattern", "address"}
	for _, c := range routetable.ColumnNames() {
		if c != "note" {
			t.names = append(t.names, c)
		}
	}
	t.names = append(t.names, "origin", "note")
	t.attribute, t.column = map[string]string{}, map[string]string{}
	for _, c := range t.names {
		t.attribute[c] = AttributeName(c)
		t.column[c], t.column[t.attribute[c]] = c, c
	}
	return t
})

// ParseCommand reads a command from the operation of a management request on the table and its arguments. It is how
// routectl and a router agree on what a command means.
func ParseCommand(operation string, arguments map[string]any) (Command, error) {
	a := args(arguments)
	cmd, err := parseCommand(strings.ToUpper(operation), a)
	if err != nil {
		return nil, err
	}
	ifRevision, given, err := a.count("ifRevision")
	if err != nil {
		return nil, err
	}
	if !given {
		return cmd, nil
	}
	if batch, ok := cmd.(Apply); ok {
		batch.IfRevision = &ifRevision
		return batch, nil
	}
	return Apply{Commands: []Command{cmd}, IfRevision: &ifRevision}, nil
}

// commandArguments are the arguments of commands that are no columns.
var commandArguments = []string{
	"operation", "verb", "type", "name", "identity", "ifRevision", "dryRun",
	"before", "after", "anchorAddress", "addresses", "ops",
}

// known refuses what is no argument of any command: a column with a typing error must not be lost in silence.
func (a args) known() error {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if _, ok := ColumnName(name); !ok && !slices.Contains(commandArguments, name) {
			return refuse(StatusBadRequest, "%s: no such argument", name)
		}
	}
	return nil
}

func parseCommand(operation string, a args) (Command, error) {
	if err := a.known(); err != nil {
		return nil, err
	}
	switch operation {
	case "ADD":
		op, err := a.row(false)
		return Add{Route: op.Route, Columns: op.Columns}, err
	case "INSERT":
		return a.insert()
	case "SET":
		return a.set()
	case "REPLACE":
		op, err := a.row(false)
		return Replace{Route: op.Route, Columns: op.Columns}, err
	case "REPLACE-ALL":
		return a.replaceAll()
	case "DELETE-ROUTE", "DELETE":
		pattern, address, err := a.patternAndAddress()
		if err != nil {
			return nil, err
		}
		origin, err := a.text("origin")
		return Delete{Pattern: pattern, Address: address, Origin: origin}, err
	case "DELETE-PATTERN":
		pattern, err := a.required("pattern")
		if err != nil {
			return nil, err
		}
		origin, err := a.text("origin")
		return DeletePattern{Pattern: pattern, Origin: origin}, err
	case "CLEAR":
		origin, err := a.text("origin")
		return Clear{Origin: origin}, err
	case "WITHDRAW":
		origin, err := a.required("origin")
		return Withdraw{Origin: origin}, err
	case "APPLY":
		return a.batch()
	}
	return nil, refuse(StatusNotImplemented, "%s: no such command", operation)
}

// required reads a text that must be there; it may be empty.
func (a args) required(name string) (string, error) {
	if a[name] == nil {
		return "", refuse(StatusBadRequest, "%s: missing", name)
	}
	return a.text(name)
}

func (a args) patternAndAddress() (pattern, address string, err error) {
	if pattern, err = a.required("pattern"); err != nil {
		return "", "", err
	}
	if v, there := a["address"]; there && v == nil {
		return pattern, routetable.NullAddress, nil // a null address discards
	}
	address, err = a.required("address")
	return pattern, address, err
}

// row reads pattern, address and the columns given. Where anyOrigin is not set, the row is the operator's.
func (a args) row(anyOrigin bool) (routetable.Op, error) {
	pattern, address, err := a.patternAndAddress()
	if err != nil {
		return routetable.Op{}, err
	}
	op := routetable.Op{Route: routetable.NewRoute(pattern, address)}
	if origin, err := a.text("origin"); err != nil {
		return op, err
	} else if origin != "" && origin != routetable.OriginOperator && !anyOrigin {
		return op, refuse(StatusBadRequest, "origin: rows made here are the operator's; %q is written by what asserts it", origin)
	}
	if a.has("name") {
		if op.Route.Name, err = a.text("name"); err != nil {
			return op, err
		}
		op.Columns |= routetable.ColName
	}
	err = a.columns(&op)
	return op, err
}

// columns sets what is given in a on op. Null means the column's default.
func (a args) columns(op *routetable.Op) error {
	for _, column := range columnTable().names {
		if slices.Contains(identityColumns, column) {
			continue
		}
		v, there := a[columnTable().attribute[column]]
		if !there {
			v, there = a[column]
		}
		if !there {
			continue
		}
		if err := setColumn(op, column, v); err != nil {
			return err
		}
	}
	return nil
}

// setColumn sets one column of op from a value of a request.
func setColumn(op *routetable.Op, column string, v any) error {
	if v == nil {
		return resetColumn(op, column)
	}
	text, ok := scalarText(v)
	if !ok {
		return refuse(StatusBadRequest, "%s: got %s", AttributeName(column), kindOf(v))
	}
	if _, isText := textOf(v); column == "timeout" && !isText {
		text += "ms" // a number is milliseconds, as everywhere in AMQP
	}
	if err := routetable.SetColumn(op, column, text); err != nil {
		return &Error{Status: StatusBadRequest, Text: err.Error(), Err: err}
	}
	return nil
}

// resetColumn names a column with its default value.
func resetColumn(op *routetable.Op, column string) error {
	blank := routetable.NewRoute("", "")
	r := &op.Route
	switch column {
	case "pick":
		r.Pick, op.Columns = blank.Pick, op.Columns|routetable.ColPick
	case "balance":
		r.Balance, op.Columns = blank.Balance, op.Columns|routetable.ColBalance
	case "weight":
		r.Weight, op.Columns = blank.Weight, op.Columns|routetable.ColWeight
	case "hash-key":
		r.HashKey, op.Columns = blank.HashKey, op.Columns|routetable.ColHashKey
	case "order":
		r.Order, op.Columns = blank.Order, op.Columns|routetable.ColOrder
	case "fallback":
		r.Fallback, op.Columns = blank.Fallback, op.Columns|routetable.ColFallback
	case "optional":
		r.Optional, op.Columns = blank.Optional, op.Columns|routetable.ColOptional
	case "when":
		r.When, op.Columns = blank.When, op.Columns|routetable.ColWhen
	case "timeout":
		r.Timeout, op.Columns = blank.Timeout, op.Columns|routetable.ColTimeout
	case "retry":
		r.Retry, op.Columns = blank.Retry, op.Columns|routetable.ColRetry
	case "dynamic-host":
		r.DynamicHost, op.Columns = blank.DynamicHost, op.Columns|routetable.ColDynamicHost
	case "note":
		r.Note, op.Columns = blank.Note, op.Columns|routetable.ColNote
	default:
		return refuse(StatusBadRequest, "%s: cannot be null", AttributeName(column))
	}
	return nil
}

func (a args) insert() (Command, error) {
	op, err := a.row(false)
	if err != nil {
		return nil, err
	}
	c := Insert{Route: op.Route, Columns: op.Columns}
	if a.has("before") == a.has("after") {
		return nil, refuse(StatusBadRequest, "before, after: give one of them, the pattern of a row")
	}
	side := "after"
	if c.Before = a.has("before"); c.Before {
		side = "before"
	}
	if c.Anchor, err = a.text(side); err != nil {
		return nil, err
	}
	c.AnchorAddress, err = a.text("anchorAddress")
	return c, err
}

func (a args) set() (Command, error) {
	op, err := a.row(true)
	if err != nil {
		return nil, err
	}
	if op.Columns == 0 {
		return nil, refuse(StatusBadRequest, "no column given: name what changes")
	}
	origin, err := a.text("origin")
	return Set{Route: op.Route, Columns: op.Columns, Origin: origin}, err
}

func (a args) replaceAll() (Command, error) {
	pattern, err := a.required("pattern")
	if err != nil {
		return nil, err
	}
	list, ok := a["addresses"].([]any)
	if !ok {
		return nil, refuse(StatusBadRequest, "addresses: must be a list of strings, got %s", kindOf(a["addresses"]))
	}
	c := ReplaceAll{Pattern: pattern}
	for _, v := range list {
		if v == nil {
			v = routetable.NullAddress
		}
		address, ok := textOf(v)
		if !ok {
			return nil, refuse(StatusBadRequest, "addresses: must be a list of strings, got %s in it", kindOf(v))
		}
		c.Addresses = append(c.Addresses, address)
	}
	if len(c.Addresses) == 0 {
		return nil, refuse(StatusBadRequest, "addresses: empty: use DELETE-PATTERN to take all rows away")
	}
	return c, nil
}

func (a args) batch() (Command, error) {
	list, ok := a["ops"].([]any)
	if !ok {
		return nil, refuse(StatusBadRequest, "ops: must be a list of maps, got %s", kindOf(a["ops"]))
	}
	if len(list) > maxApplyOps {
		return nil, refuse(StatusTooLarge, "ops: %d: at most %d in one APPLY: use a load", len(list), maxApplyOps)
	}
	c := Apply{Commands: make([]Command, 0, len(list))}
	for i, v := range list {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, refuse(StatusBadRequest, "op %d: must be a map, got %s", i+1, kindOf(v))
		}
		word, err := args(m).text("operation")
		if err == nil && word == "" {
			word, err = args(m).text("verb")
		}
		if err != nil {
			return nil, refuse(StatusBadRequest, "op %d: %v", i+1, err)
		}
		switch word = strings.ToUpper(word); word {
		case "":
			return nil, refuse(StatusBadRequest, "op %d: operation: missing", i+1)
		case "APPLY":
			return nil, refuse(StatusBadRequest, "op %d: APPLY inside of APPLY", i+1)
		}
		cmd, err := parseCommand(word, m)
		if err != nil {
			status, _ := statusOf(err)
			return nil, refuse(status, "op %d: %s: %v", i+1, word, err)
		}
		c.Commands = append(c.Commands, cmd)
	}
	return c, nil
}
