package admin

import (
	"maps"
	"slices"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// handleExplain answers what the table does with an address: the map is INTERFACE.md's object, key by key.
func (c *Core) handleExplain(caller Caller, a args) (answer, error) {
	address, err := a.text("address")
	if err != nil {
		return answer{}, err
	}
	target, err := a.text("target")
	if err != nil {
		return answer{}, err
	}
	properties, err := a.properties("properties")
	if err != nil {
		return answer{}, err
	}
	x := c.table.Snapshot().Explain(address, target, PropertyReader(properties))
	if c.o.Choose != nil {
		c.o.Choose(x)
	}
	return answer{status: StatusOK, body: explanationMap(x, caller.Role < RoleOperator)}, nil
}

// PropertyReader makes what the table asks for the properties of a message. It is never nil: a message without
// properties satisfies predicates such as !Property(…).
func PropertyReader(properties map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := properties[name]
		return v, ok
	}
}

// properties reads a map of names to scalars by their canonical text.
func (a args) properties(name string) (map[string]string, error) {
	if a[name] == nil {
		return nil, nil
	}
	m, ok := a[name].(map[string]any)
	if !ok {
		return nil, refuse(StatusBadRequest, "%s: must be a map, got %s", name, kindOf(a[name]))
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		if out[k], ok = scalarText(v); !ok {
			return nil, refuse(StatusBadRequest, "%s: %s: must be a scalar, got %s", name, k, kindOf(v))
		}
	}
	return out, nil
}

func explanationMap(x *routetable.Explanation, masked bool) map[string]any {
	matches := make([]any, len(x.Matches))
	for i, m := range x.Matches {
		address, result := m.Address, m.Result
		if masked {
			address, result = routetable.MaskUserinfo(address), routetable.MaskUserinfo(result)
		}
		one := map[string]any{
			"pattern": m.Pattern, "address": address, "captures": listOf(m.Captures), "result": result,
			"pick": m.Pick.String(), "group": int64(m.Group), "fallback": m.Fallback, "optional": m.Optional, "used": m.Used,
		}
		if m.Problem != "" {
			one["problem"] = m.Problem
		} else {
			one["hop"] = m.Hop
		}
		if m.Why != "" {
			one["why"] = m.Why
		}
		if m.Route.When != "" {
			one["when"], one["origin"] = m.Route.When, m.Route.Origin
		}
		if m.Depth > 0 {
			one["depth"] = int64(m.Depth)
		}
		if m.Nowhere != "" {
			one["nowhere"] = m.Nowhere
		}
		if m.Chosen != nil {
			one["chosen"] = *m.Chosen
		}
		matches[i] = one
	}
	body := map[string]any{"address": x.Address, "revision": x.Revision, "matches": matches, "hops": listOf(x.Hops)}
	if x.Routed != "" {
		body["routed"] = x.Routed
	}
	if e := x.Emptied; e != nil {
		body["emptied"] = map[string]any{"pattern": e.Pattern, "revision": e.Revision, "at": wire.Timestamp(e.At.UnixMilli())}
	}
	if len(x.Near) > 0 {
		body["near"] = listOf(x.Near)
	}
	return body
}

func sortedCounters(m map[string]uint64) []string { return slices.Sorted(maps.Keys(m)) }
