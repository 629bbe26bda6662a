package ctl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// filter says which rows list prints. Empty fields take all.
type filter struct {
	pattern string // as text
	origin  string // the origin itself, or what begins with it and a slash
	space   string // a reserved scheme, or "plain" for names without one
}

func (f filter) takes(x *routetable.Route) bool {
	if f.pattern != "" && x.Pattern != f.pattern {
		return false
	}
	origin := originOf(x)
	if o := strings.TrimSuffix(f.origin, "/"); o != "" && origin != o && !strings.HasPrefix(origin, o+"/") {
		return false
	}
	return f.space == "" || spaceOf(x.Pattern) == f.space
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

func spaceOf(pattern string) string {
	if scheme, ok := routetable.ReservedScheme(pattern); ok {
		return scheme
	}
	return "plain"
}

func listCommand(r *run) *cobra.Command {
	var f filter
	c := &cobra.Command{
		Use:   "list",
		Short: "print the rows in table order",
		Args:  arguments(cobra.ExactArgs(0)),
		RunE: func(c *cobra.Command, _ []string) error {
			if f.space != "" && f.space != "plain" && !slices.Contains(reservedSchemes, f.space) {
				return usage("--space %q: plain, %s", f.space, strings.Join(reservedSchemes, ", "))
			}
			ed, err := r.editor(c.Context(), true)
			if err != nil {
				return err
			}
			defer ed.close()
			rows, err := ed.rows(c.Context(), f)
			if err != nil {
				return err
			}
			if rows == nil {
				rows = []*routetable.Route{}
			}
			r.warnOfFiles(c.Context(), ed)
			return r.print(rows, func(p *printer) { drawRows(p, rows) })
		},
	}
	c.Flags().StringVar(&f.pattern, "pattern", "", "only rows of this `PATTERN`, as text")
	c.Flags().StringVar(&f.origin, "origin", "", "only rows of this `ORIGIN`, or of those below it")
	c.Flags().StringVar(&f.space, "space", "", "only names of this `SPACE`: a scheme such as topic, or plain")
	return c
}

func drawRows(p *printer, rows []*routetable.Route) {
	if len(rows) == 0 {
		p.line("no rows")
		return
	}
	if p.wide {
		p.columns("PATTERN", "ADDRESS", "PICK", "ORDER", "ORIGIN", "COLUMNS", "NOTE")
	} else {
		p.columns("PATTERN", "ADDRESS", "PICK", "ORIGIN", "NOTE")
	}
	for _, x := range rows {
		if p.wide {
			p.columns(x.Pattern, x.Address, x.Pick.String(), strconv.Itoa(x.Order), originOf(x), otherColumns(x), x.Note)
			continue
		}
		pick := x.Pick.String()
		if x.Fallback {
			pick += ",fallback"
		}
		if x.Optional {
			pick += ",optional"
		}
		p.columns(x.Pattern, x.Address, pick, originOf(x), x.Note)
	}
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
func readRows(body any) ([]*routetable.Route, error) {
	m, _ := body.(map[string]any)
	names, results := plainList(m["attributeNames"]), plainList(m["results"])
	columns := make([]string, len(names)) // empty for an attribute that is no column
	for i, name := range names {
		columns[i], _ = admin.ColumnName(fmt.Sprint(name))
	}
	rows := make([]*routetable.Route, 0, len(results))
	for _, one := range results {
		values := plainList(one)
		if len(values) != len(names) {
			return nil, unreachable("the answer to QUERY is not understood: %d values for %d attributes", len(values), len(names))
		}
		op := routetable.Op{Route: routetable.NewRoute("", "")}
		for i, column := range columns {
			if err := readColumn(&op, column, values[i]); err != nil {
				return nil, err
			}
		}
		rows = append(rows, &op.Route)
	}
	return rows, nil
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
