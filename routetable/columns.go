package routetable

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ColumnSet is a set of columns.
type ColumnSet uint32

// The columns. Name is the operator's own name for a row; it is not one of DESIGN §2's and mostly empty.
const (
	ColPick ColumnSet = 1 << iota
	ColBalance
	ColWeight
	ColHashKey
	ColOrder
	ColFallback
	ColOptional
	ColWhen
	ColTimeout
	ColRetry
	ColDynamicHost
	ColNote
	ColName
)

// Names of picks and balances, by value.
var (
	pickNames    = [...]string{"all", "any", "first"}
	balanceNames = [...]string{"least-busy", "round-robin", "weighted", "hash"}
)

func (p Pick) String() string    { return nameOf(pickNames[:], int(p)) }
func (b Balance) String() string { return nameOf(balanceNames[:], int(b)) }

// MarshalText gives the name, for JSON.
func (p Pick) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// MarshalText gives the name, for JSON.
func (b Balance) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads the name.
func (p *Pick) UnmarshalText(text []byte) error {
	n, err := readName("pick", pickNames[:], string(text))
	*p = Pick(n)
	return err
}

// UnmarshalText reads the name.
func (b *Balance) UnmarshalText(text []byte) error {
	n, err := readName("balance", balanceNames[:], string(text))
	*b = Balance(n)
	return err
}

func nameOf(names []string, n int) string {
	if n < len(names) {
		return names[n]
	}
	return "?"
}

func readName(column string, names []string, text string) (int, error) {
	for i, name := range names {
		if name == text {
			return i, nil
		}
	}
	return 0, &RefusedError{What: "unknown " + column + " " + strconv.Quote(text), Where: column, Hint: "use " + strings.Join(names, ", ")}
}

// column is one column: how its text is read, whether a row has another value than the default, and its text.
type column struct {
	name   string
	set    ColumnSet
	parse  func(r *Route, value string) error
	isSet  func(r *Route) bool
	format func(r *Route) string
	copy   func(dst, src *Route)
}

// columns lists the columns in canonical order. ColName is last and not among ColumnNames.
var columns = []column{
	{"pick", ColPick,
		func(r *Route, v string) (err error) { return r.Pick.UnmarshalText([]byte(v)) },
		func(r *Route) bool { return r.Pick != PickAll },
		func(r *Route) string { return r.Pick.String() },
		func(d, s *Route) { d.Pick = s.Pick }},
	{"balance", ColBalance,
		func(r *Route, v string) (err error) { return r.Balance.UnmarshalText([]byte(v)) },
		func(r *Route) bool { return r.Balance != LeastBusy },
		func(r *Route) string { return r.Balance.String() },
		func(d, s *Route) { d.Balance = s.Balance }},
	{"weight", ColWeight,
		func(r *Route, v string) (err error) { r.Weight, err = parseInt("weight", v, 0, maxWeight); return },
		func(r *Route) bool { return r.Weight != 0 },
		func(r *Route) string { return strconv.Itoa(r.Weight) },
		func(d, s *Route) { d.Weight = s.Weight }},
	{"hash-key", ColHashKey,
		func(r *Route, v string) error { r.HashKey = v; return nil },
		func(r *Route) bool { return r.HashKey != "" },
		func(r *Route) string { return r.HashKey },
		func(d, s *Route) { d.HashKey = s.HashKey }},
	{"order", ColOrder,
		func(r *Route, v string) (err error) { r.Order, err = parseInt("order", v, -maxOrder, maxOrder); return },
		func(r *Route) bool { return r.Order != 0 },
		func(r *Route) string { return strconv.Itoa(r.Order) },
		func(d, s *Route) { d.Order = s.Order }},
	{"fallback", ColFallback,
		func(r *Route, v string) (err error) { r.Fallback, err = parseBool("fallback", v); return },
		func(r *Route) bool { return r.Fallback },
		func(r *Route) string { return strconv.FormatBool(r.Fallback) },
		func(d, s *Route) { d.Fallback = s.Fallback }},
	{"optional", ColOptional,
		func(r *Route, v string) (err error) { r.Optional, err = parseBool("optional", v); return },
		func(r *Route) bool { return r.Optional },
		func(r *Route) string { return strconv.FormatBool(r.Optional) },
		func(d, s *Route) { d.Optional = s.Optional }},
	{"when", ColWhen,
		func(r *Route, v string) error { r.When = v; return nil },
		func(r *Route) bool { return r.When != "" },
		func(r *Route) string { return r.When },
		func(d, s *Route) { d.When = s.When }},
	{"timeout", ColTimeout,
		func(r *Route, v string) (err error) { r.Timeout, err = parseTimeout(v); return },
		func(r *Route) bool { return r.Timeout != 0 },
		func(r *Route) string { return r.Timeout.String() },
		func(d, s *Route) { d.Timeout = s.Timeout }},
	{"retry", ColRetry,
		func(r *Route, v string) (err error) { r.Retry, err = parseRetry(v); return },
		func(r *Route) bool { return r.Retry >= 0 },
		func(r *Route) string { return strconv.Itoa(r.Retry) },
		func(d, s *Route) { d.Retry = s.Retry }},
	{"dynamic-host", ColDynamicHost,
		func(r *Route, v string) (err error) { r.DynamicHost, err = parseBool("dynamic-host", v); return },
		func(r *Route) bool { return r.DynamicHost },
		func(r *Route) string { return strconv.FormatBool(r.DynamicHost) },
		func(d, s *Route) { d.DynamicHost = s.DynamicHost }},
	{"note", ColNote,
		func(r *Route, v string) error { r.Note = v; return nil },
		func(r *Route) bool { return r.Note != "" },
		func(r *Route) string { return r.Note },
		func(d, s *Route) { d.Note = s.Note }},
	{"name", ColName,
		func(r *Route, v string) error { r.Name = v; return nil },
		func(r *Route) bool { return r.Name != "" },
		func(r *Route) string { return r.Name },
		func(d, s *Route) { d.Name = s.Name }},
}

// Bounds of the numbers in a row.
const (
	maxOrder  = 1<<31 - 1
	maxWeight = 1 << 20
	maxRetry  = 1 << 20
)

// ColumnNames lists the columns of DESIGN §2 that a row may name, in canonical order.
func ColumnNames() []string {
	var names []string
	for _, c := range columns {
		if c.set != ColName {
			names = append(names, c.name)
		}
	}
	return names
}

func findColumn(name string) *column {
	for i := range columns {
		if columns[i].name == name {
			return &columns[i]
		}
	}
	return nil
}

// SetColumn sets a column of op.Route from its text and marks it as named. The value of a boolean may be empty: true. Texts are those that
// FormatColumns gives; a retry may also be "none", a timeout is a Go duration.
func SetColumn(op *Op, name, value string) error {
	c := findColumn(name)
	if c == nil {
		return &RefusedError{What: "unknown column " + strconv.Quote(name), Hint: "the columns are " + strings.Join(ColumnNames(), ", ")}
	}
	if err := c.parse(&op.Route, value); err != nil {
		return err
	}
	op.Columns |= c.set
	return nil
}

// KV is a column's name and text.
type KV struct{ Key, Value string }

// FormatColumns gives the columns of r that have another value than the default, in canonical order, as text.
func FormatColumns(r *Route) []KV {
	var kvs []KV
	for i := range columns {
		if c := &columns[i]; c.isSet(r) {
			kvs = append(kvs, KV{c.name, c.format(r)})
		}
	}
	return kvs
}

// MarshalJSON gives the row with the column names of DESIGN §2: pattern, address, pick, order, fallback, optional and origin always, the
// others where they are not the default. The id is left out.
func (r *Route) MarshalJSON() ([]byte, error) {
	origin := r.Origin
	if origin == "" {
		origin = OriginOperator
	}
	return json.Marshal(struct {
		Pattern     string `json:"pattern"`
		Address     string `json:"address"`
		Pick        string `json:"pick"`
		Balance     string `json:"balance,omitempty"`
		Weight      int    `json:"weight,omitempty"`
		HashKey     string `json:"hash-key,omitempty"`
		Order       int    `json:"order"`
		Fallback    bool   `json:"fallback"`
		Optional    bool   `json:"optional"`
		When        string `json:"when,omitempty"`
		Timeout     string `json:"timeout,omitempty"`
		Retry       *int   `json:"retry,omitempty"`
		DynamicHost bool   `json:"dynamic-host,omitempty"`
		Origin      string `json:"origin"`
		Note        string `json:"note,omitempty"`
		Name        string `json:"name,omitempty"`
	}{
		r.Pattern, r.Address, r.Pick.String(), textIf(r.Balance != LeastBusy, r.Balance.String()), r.Weight, r.HashKey, r.Order,
		r.Fallback, r.Optional, r.When, textIf(r.Timeout != 0, r.Timeout.String()), retryPointer(r.Retry), r.DynamicHost, origin, r.Note, r.Name,
	})
}

func textIf(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

func retryPointer(n int) *int {
	if n < 0 {
		return nil
	}
	return &n
}

func parseInt(column, text string, low, high int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, &RefusedError{What: fmt.Sprintf("%q is not a number from %d to %d", text, low, high), Where: column}
	}
	return n, nil
}

func parseBool(column, text string) (bool, error) {
	switch text {
	case "", "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, &RefusedError{What: strconv.Quote(text) + " is neither true nor false", Where: column}
}

func parseTimeout(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, &RefusedError{What: strconv.Quote(text) + " is not a duration", Where: "timeout", Hint: "for example 500ms or 30s"}
	}
	return d, nil
}

func parseRetry(text string) (int, error) {
	if text == "none" || text == "" {
		return -1, nil
	}
	return parseInt("retry", text, 0, maxRetry)
}

// checkColumns refuses values that SetColumn would not have read.
func checkColumns(r *Route) error {
	switch {
	case int(r.Pick) >= len(pickNames):
		return &RefusedError{What: "unknown pick", Where: "pick"}
	case int(r.Balance) >= len(balanceNames):
		return &RefusedError{What: "unknown balance", Where: "balance"}
	case r.Weight < 0 || r.Weight > maxWeight:
		return &RefusedError{What: fmt.Sprintf("%d is not a number from 0 to %d", r.Weight, maxWeight), Where: "weight"}
	case r.Order < -maxOrder || r.Order > maxOrder:
		return &RefusedError{What: fmt.Sprintf("%d is not a number from %d to %d", r.Order, -maxOrder, maxOrder), Where: "order"}
	case r.Retry > maxRetry:
		return &RefusedError{What: fmt.Sprintf("%d is over %d", r.Retry, maxRetry), Where: "retry"}
	case r.Timeout < 0:
		return &RefusedError{What: "a timeout is not negative", Where: "timeout"}
	}
	for _, t := range []struct{ name, text string }{{"note", r.Note}, {"name", r.Name}, {"hash-key", r.HashKey}, {"origin", r.Origin}} {
		if len(t.text) > MaxTextBytes {
			return &RefusedError{What: "the text is longer than 64 KiB", Where: t.name}
		}
	}
	return nil
}

// sameColumns names a column of those in set in which a and b differ, or "".
func sameColumns(a, b *Route, set ColumnSet) string {
	for i := range columns {
		c := &columns[i]
		if set&c.set == 0 {
			continue
		}
		if c.isSet(a) != c.isSet(b) || c.isSet(a) && c.format(a) != c.format(b) {
			return c.name
		}
	}
	return ""
}

// namedColumns is the set of columns that the caller gave a value: those it says, and those of the row that are not zero.
func namedColumns(op *Op) ColumnSet {
	set := op.Columns
	if r := &op.Route; r.Pick == PickAll && r.Balance == LeastBusy && r.Weight == 0 && r.HashKey == "" && r.Order == 0 && !r.Fallback && !r.Optional &&
		r.When == "" && r.Timeout == 0 && (r.Retry == 0 || r.Retry == -1) && !r.DynamicHost && r.Note == "" && r.Name == "" {
		return set // most rows
	}
	for i := range columns {
		c := &columns[i]
		if c.isSet(&op.Route) && (c.set != ColRetry || op.Route.Retry != 0) {
			set |= c.set
		}
	}
	return set
}

// copyColumns copies the columns in set.
func copyColumns(dst, src *Route, set ColumnSet) {
	if set == 0 {
		return
	}
	for i := range columns {
		if set&columns[i].set != 0 {
			columns[i].copy(dst, src)
		}
	}
}
