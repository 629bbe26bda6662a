package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// filter says which rows list prints.
type filter struct {
	admin.RouteFilter
	counted bool // asks for the counters of rows too
}

func (f filter) takes(x *routetable.Route) bool { return f.Takes(x.Pattern, originOf(x)) }

// row is a row as list prints it.
type row struct {
	*routetable.Route
	count *rowCount // nil where nobody counts: of a file
}

// rowCount is what a router counted for a row since it made it, or started. The names are those of the management entity.
type rowCount struct {
	Matched   uint64 `json:"matched"`            // messages that the row was used for
	Copied    uint64 `json:"copied"`             // copies handed to the hop
	Delivered uint64 `json:"delivered"`          // of these accepted; of a null row, messages discarded
	Released  uint64 `json:"released"`           // released or modified, or gone on to another row
	Dropped   uint64 `json:"dropped"`            // rejected, not taken, or not sent in time
	LastUsed  string `json:"lastUsed,omitempty"` // RFC 3339, UTC; empty is never
}

// MarshalJSON gives the columns of the row, and behind them its counters where there are any.
func (x row) MarshalJSON() ([]byte, error) {
	text, err := x.Route.MarshalJSON()
	if err != nil || x.count == nil {
		return text, err
	}
	count, err := json.Marshal(x.count)
	if err != nil {
		return nil, err
	}
	return slices.Concat(bytes.TrimSuffix(text, []byte("}")), []byte(","), count[1:]), nil
}

func originOf(x *routetable.Route) string {
	if x.Origin == "" {
		return routetable.OriginOperator
	}
	return x.Origin
}

// reservedSchemes are the name spaces beside the plain one (DESIGN §3).
var reservedSchemes = []string{
	"link", "peer", "relay-conn", "event-conn", "grpc", "nats", "replay", "admin",
	"route", "topic", "rpc", "relay", "event", "web", "comp", "node",
}

func listCommand(r *run) *cobra.Command {
	var f filter
	c := &cobra.Command{
		Use:   "list",
		Short: "print the rows in table order",
		Long: `List prints the rows in table order. With -o wide, json and yaml a running router's rows come with what it counted for each since it made
the row, or started: messages matched; copies of them that were copied to the hop; of these, delivered (accepted), released (or gone on to
another row) and dropped (rejected, not taken, not sent in time); and when it was last used.`,
		Args: arguments(cobra.ExactArgs(0)),
		RunE: func(c *cobra.Command, _ []string) error {
			if f.Space != "" && f.Space != admin.PlainSpace && !slices.Contains(reservedSchemes, f.Space) {
				return usage("--space %q: plain, %s", f.Space, strings.Join(reservedSchemes, ", "))
			}
			ed, err := r.editor(c.Context(), true)
			if err != nil {
				return err
			}
			defer ed.close()
			f.counted, f.OfPattern = r.output != "table", c.Flags().Changed("pattern")
			rows, err := ed.rows(c.Context(), f)
			if err != nil {
				return err
			}
			if rows == nil {
				rows = []row{}
			}
			r.warnOfFiles(c.Context(), ed)
			return r.print(rows, func(p *printer) { drawRows(p, rows) })
		},
	}
	c.Flags().StringVar(&f.Pattern, "pattern", "", "only rows of this `PATTERN`, as text")
	c.Flags().StringVar(&f.Origin, "origin", "", "only rows of this `ORIGIN`, or of those below it")
	c.Flags().StringVar(&f.Space, "space", "", "only names of this `SPACE`: a scheme such as topic, or plain")
	return c
}

func drawRows(p *printer, rows []row) {
	if len(rows) == 0 {
		p.line("no rows")
		return
	}
	if p.wide {
		drawWideRows(p, rows)
		return
	}
	p.columns("PATTERN", "ADDRESS", "PICK", "ORIGIN", "NOTE")
	for _, x := range rows {
		pick := x.Pick.String()
		if x.Fallback {
			pick += ",fallback"
		}
		if x.Optional {
			pick += ",optional"
		}
		p.columns(patternCell(x.Pattern), x.Address, pick, originOf(x.Route), x.Note)
	}
}

// patternCell is a pattern in a column: that of the empty address is seen.
func patternCell(pattern string) string {
	if pattern == "" {
		return `""`
	}
	return pattern
}

// drawWideRows has the counters too, where the rows have them.
func drawWideRows(p *printer, rows []row) {
	counted := slices.ContainsFunc(rows, func(x row) bool { return x.count != nil })
	line := func(head []string, count []string, tail ...string) {
		if counted {
			head = append(head, count...)
		}
		p.columns(append(head, tail...)...)
	}
	line([]string{"PATTERN", "ADDRESS", "PICK", "ORDER", "ORIGIN"},
		[]string{"MATCHED", "COPIED", "DELIVERED", "RELEASED", "DROPPED", "LAST-USED"}, "COLUMNS", "NOTE")
	for _, x := range rows {
		line([]string{patternCell(x.Pattern), x.Address, x.Pick.String(), strconv.Itoa(x.Order), originOf(x.Route)},
			x.count.cells(), otherColumns(x.Route), x.Note)
	}
}

// cells are the counters as columns; of none they are empty.
func (c *rowCount) cells() []string {
	cells := make([]string, 6)
	if c == nil {
		return cells
	}
	for i, n := range [...]uint64{c.Matched, c.Copied, c.Delivered, c.Released, c.Dropped} {
		cells[i] = strconv.FormatUint(n, 10)
	}
	cells[5] = "never"
	if at, err := time.Parse(time.RFC3339Nano, c.LastUsed); err == nil {
		cells[5] = at.Format("2006-01-02 15:04:05Z")
	}
	return cells
}

// otherColumns are the columns that have no column of their own in the wide form, where they are set.
func otherColumns(x *routetable.Route) string {
	var parts []string
	for _, kv := range routetable.FormatColumns(x) {
		switch {
		case kv.Key == "pick", kv.Key == "order", kv.Key == "note", kv.Key == "origin":
		case kv.Value == "" || kv.Value == "true":
			parts = append(parts, kv.Key)
		case strings.ContainsAny(kv.Value, " \t;"):
			parts = append(parts, kv.Key+"="+strconv.Quote(kv.Value))
		default:
			parts = append(parts, kv.Key+"="+kv.Value)
		}
	}
	return strings.Join(parts, " ")
}

// readRows reads the lists of a QUERY answer into rows.
func readRows(body any) ([]row, error) {
	m, _ := body.(map[string]any)
	names, results := plainList(m["attributeNames"]), plainList(m["results"])
	columns := make([]string, len(names)) // empty for an attribute that is no column
	for i, name := range names {
		columns[i], _ = admin.ColumnName(fmt.Sprint(name))
	}
	rows := make([]row, 0, len(results))
	for _, one := range results {
		values := plainList(one)
		if len(values) != len(names) {
			return nil, unreachable("the answer to QUERY is not understood: %d values for %d attributes", len(values), len(names))
		}
		op := routetable.Op{Route: routetable.NewRoute("", "")}
		x := row{Route: &op.Route}
		for i, column := range columns {
			if column == "" {
				x.readCount(fmt.Sprint(names[i]), values[i])
			} else if err := readColumn(&op, column, values[i]); err != nil {
				return nil, err
			}
		}
		rows = append(rows, x)
	}
	return rows, nil
}

// counterNames are the attributes of a route that are counters.
var counterNames = []any{"matched", "copied", "delivered", "released", "dropped", "lastUsed"}

// readCount sets a counter of the row. A router that does not count gives null.
func (x *row) readCount(name string, v any) {
	if v == nil || !slices.Contains(counterNames, any(name)) {
		return
	}
	if x.count == nil {
		x.count = &rowCount{}
	}
	c, n := x.count, uint64(wholeOr(v, 0))
	switch name {
	case "matched":
		c.Matched = n
	case "copied":
		c.Copied = n
	case "delivered":
		c.Delivered = n
	case "released":
		c.Released = n
	case "dropped":
		c.Dropped = n
	case "lastUsed":
		c.LastUsed = fmt.Sprint(plain(v))
	}
}

// readColumn sets what one attribute of a route says of a column.
func readColumn(op *routetable.Op, column string, v any) error {
	if column == "" || v == nil {
		return nil
	}
	var text string
	switch v := v.(type) {
	case string:
		text = v
	case []byte: // text that is not UTF-8
		text = string(v)
	default:
		text = fmt.Sprint(plain(v))
	}
	switch column {
	case "pattern":
		op.Route.Pattern = text
	case "address":
		op.Route.Address = text
	case "origin":
		op.Route.Origin = text
	default:
		if text == "" || v == false || column == "weight" && text == "0" {
			return nil // the default
		}
		if err := routetable.SetColumn(op, column, text); err != nil {
			return unreachable("the answer to QUERY is not understood: %v", err)
		}
	}
	return nil
}

// plainList reads a list; go-amqp gives lists as they are, and arrays as Go slices.
func plainList(v any) []any {
	if list, ok := v.([]any); ok {
		return list
	}
	list, _ := plain(v).([]any)
	return list
}
