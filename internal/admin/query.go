package admin

import (
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/fingerpost/fingerpost/routetable"
)

// maxPageRows bounds the results of one QUERY: some clients refuse longer lists than 65 536, and an answer is one
// message. maxPageBytes bounds it where rows are long.
const (
	maxPageRows  = 10_000
	maxPageBytes = 4 << 20
)

// handleQuery answers rows of attributes over the entities of a type, or of all types. The answer's properties are
// snapshot, for the next page, and total, the number of entities. A page may be shorter than asked for. Where the request
// names a pattern, an origin or a space, of the routes only those are answered.
func (c *Core) handleQuery(caller Caller, q request) (answer, error) {
	if err := caller.may(RoleViewer, "QUERY"); err != nil {
		return answer{}, err
	}
	body := args{}
	var wanted []any
	switch b := q.body.(type) {
	case nil:
	case map[string]any:
		body = args(b)
		switch names := b["attributeNames"].(type) {
		case nil:
		case []any:
			wanted = names
		default:
			return answer{}, refuse(StatusBadRequest, "attributeNames: must be a list of strings, got %s", kindOf(names))
		}
	case []any:
		wanted = b
	default:
		return answer{}, refuse(StatusBadRequest, "QUERY: the body must be a map with attributeNames, got %s", kindOf(b))
	}
	for _, name := range []string{"entityType", "offset", "count", "snapshot", "pattern", "origin", "space"} {
		if _, there := q.properties[name]; !there && body[name] != nil {
			q.properties[name] = body[name]
		}
	}
	offset, _, err := q.properties.count("offset")
	if err != nil {
		return answer{}, err
	}
	count, given, err := q.properties.count("count")
	if err != nil {
		return answer{}, err
	}
	if !given || count > maxPageRows {
		count = maxPageRows
	}
	kinds, err := c.selectKinds(q)
	if err != nil {
		return answer{}, err
	}
	names, err := attributeNames(wanted, kinds)
	if err != nil {
		return answer{}, err
	}
	h, err := c.hold(q.properties)
	if err != nil {
		return answer{}, err
	}
	routes, err := routesAsked(h.s, q.properties)
	if err != nil {
		return answer{}, err
	}
	results, total := c.page(caller, kinds, routes, names, clampInt(offset), int(count))
	a := answer{status: StatusOK, body: map[string]any{"attributeNames": listOf(names), "results": results}}
	return a.with("snapshot", h.token()).with("total", uint64(total)), nil
}

// asked are routes that a QUERY is about, in table order.
type asked struct {
	s    *routetable.Snapshot
	n    int
	from func(i int) iter.Seq[*routetable.Route]
}

// routesAsked gives all routes, or those of the pattern, the origin and the space that the request names.
func routesAsked(s *routetable.Snapshot, properties args) (asked, error) {
	f := RouteFilter{OfPattern: properties.has("pattern")}
	for name, field := range map[string]*string{"pattern": &f.Pattern, "origin": &f.Origin, "space": &f.Space} {
		text, err := properties.text(name)
		if err != nil {
			return asked{}, err
		}
		*field = text
	}
	if f == (RouteFilter{}) {
		return asked{s, s.Len(), s.RoutesFrom}, nil
	}
	if rows, ok := s.RowsOf(f.Pattern, maxPageRows); ok && f.OfPattern {
		rows = slices.DeleteFunc(slices.Clone(rows), func(r *routetable.Route) bool { return !f.Takes(r.Pattern, originOf(r)) })
		return asked{s, len(rows), func(i int) iter.Seq[*routetable.Route] { return slices.Values(rows[i:]) }}, nil
	}
	n, from := s.Where(f.Takes)
	return asked{s, n, from}, nil
}

// RouteFilter says which routes a QUERY is about.
type RouteFilter struct {
	OfPattern bool // those of Pattern alone, as text
	Pattern   string
	Origin    string // the origin itself, or what begins with it and a slash or a colon; empty: any
	Space     string // a reserved scheme, or PlainSpace; empty: any
}

// PlainSpace is the space of names without a reserved scheme.
const PlainSpace = "plain"

// Takes tells whether a row of a pattern and an origin is among them.
func (f RouteFilter) Takes(pattern, origin string) bool {
	if f.OfPattern && pattern != f.Pattern {
		return false
	}
	if rest, ok := strings.CutPrefix(origin, strings.TrimRight(f.Origin, "/:")); f.Origin != "" && !(ok && (rest == "" || rest[0] == '/' || rest[0] == ':')) {
		return false
	}
	if f.Space == "" {
		return true
	}
	scheme, ok := routetable.ReservedScheme(pattern)
	return ok && scheme == f.Space || !ok && f.Space == PlainSpace
}

func clampInt(n uint64) int { return int(min(n, math.MaxInt32)) }

// attributeNames reads what the request wants; nothing wanted is everything that the kinds have.
func attributeNames(wanted []any, kinds []kind) ([]string, error) {
	names := make([]string, 0, len(wanted))
	for _, w := range wanted {
		name, ok := textOf(w)
		if !ok {
			return nil, refuse(StatusBadRequest, "attributeNames: must be a list of strings, got %s in it", kindOf(w))
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		return names, nil
	}
	seen := map[string]bool{}
	for _, k := range kinds {
		for _, name := range k.attributes() {
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// page gives the results from offset on, over the kinds in their order, and how many there are in all.
func (c *Core) page(caller Caller, kinds []kind, routes asked, names []string, offset, count int) (results []any, total int) {
	results = []any{}
	room := maxPageBytes
	put := func(value func(name string) any) {
		if total++; total <= offset || len(results) >= count || room < 0 {
			return
		}
		values := make([]any, len(names))
		for i, name := range names {
			values[i] = value(name)
			room -= 8
			if s, ok := values[i].(string); ok {
				room -= len(s)
			}
		}
		results = append(results, values)
	}
	for _, k := range kinds {
		switch k := k.(type) {
		case routeKind:
			all := total + routes.n
			if all <= offset {
				total = all
				continue
			}
			i := max(offset-total, 0)
			total += i
			for r := range routes.from(i) {
				if len(results) >= count || room < 0 {
					break
				}
				put(k.reader(caller, r, func() int { return routes.s.Position(r) + 1 }))
			}
			total = all
		case listed:
			for _, e := range k.list(caller) {
				put(func(name string) any { return e[name] })
			}
		}
	}
	return results, total
}

// maskUserinfo hides the userinfo of an address.
func maskUserinfo(s string) string { return routetable.MaskUserinfo(s) }
