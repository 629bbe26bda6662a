package admin

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/routetable"
)

const routeType = "route"

// rowAttributes are the attributes of a route that are not columns. They cannot be set.
var rowAttributes = []string{"position", "revision", "matched", "copied", "delivered", "released", "dropped", "lastUsed"}

// routeKind is the rows of the table as entities.
type routeKind struct{ c *Core }

func (routeKind) typeName() string { return routeType }

func (routeKind) attributes() []string {
	names := slices.Clone(entityAttributes)
	for _, column := range columnTable().names {
		names = append(names, columnTable().attribute[column])
	}
	return append(names, rowAttributes...)
}

func (routeKind) operations() []string { return []string{"CREATE", "READ", "UPDATE", "DELETE"} }

// rowIdentity names a row for as long as its pattern, address and origin are what they are: the table's own id, which
// a replace in place keeps, and a hash of the three. An address counts by its normal form.
func rowIdentity(r *routetable.Route) string {
	h := fnv.New32a()
	for _, s := range [...]string{r.Pattern, addressKey(r.Address), originOf(r)} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	return fmt.Sprintf("%s/%d-%08x", routeType, r.ID, h.Sum32())
}

// addressKey is the form of an address in which two are the same or not.
func addressKey(address string) string {
	if h, err := routetable.ParseHop(address); err == nil {
		return h.Key
	}
	return address
}

// reader gives the attributes of a row one by one; position is asked for only where it is needed.
func (k routeKind) reader(caller Caller, r *routetable.Route, position func() int) func(name string) any {
	var counters *RowCounters
	count := func(value func(*RowCounters) any) any {
		if k.c.o.RowCounters == nil {
			return nil // nobody counts
		}
		if counters == nil {
			x := k.c.o.RowCounters(r)
			counters = &x
		}
		return value(counters)
	}
	return func(name string) any {
		switch name {
		case "name":
			return r.Name
		case "identity":
			return rowIdentity(r)
		case "type":
			return routeType
		case "pattern":
			return r.Pattern
		case "address":
			if caller.Role < RoleOperator {
				return routetable.MaskUserinfo(r.Address)
			}
			return r.Address
		case "pick":
			return r.Pick.String()
		case "balance":
			return r.Balance.String()
		case "weight":
			return int64(r.Weight)
		case "hashKey", "hash-key":
			return r.HashKey
		case "order":
			return int64(r.Order)
		case "fallback":
			return r.Fallback
		case "optional":
			return r.Optional
		case "when":
			return r.When
		case "timeout":
			if r.Timeout == 0 {
				return nil
			}
			return r.Timeout.String()
		case "retry":
			if r.Retry < 0 {
				return nil
			}
			return int64(r.Retry)
		case "dynamicHost", "dynamic-host":
			return r.DynamicHost
		case "origin":
			return originOf(r)
		case "note":
			return r.Note
		case "position":
			return int64(position())
		case "revision":
			return k.c.rowRevision(r)
		case "matched":
			return count(func(c *RowCounters) any { return c.Matched })
		case "copied":
			return count(func(c *RowCounters) any { return c.Copied })
		case "delivered":
			return count(func(c *RowCounters) any { return c.Delivered })
		case "released":
			return count(func(c *RowCounters) any { return c.Released })
		case "dropped":
			return count(func(c *RowCounters) any { return c.Dropped })
		case "lastUsed":
			return count(func(c *RowCounters) any {
				if c.LastUsed.IsZero() {
					return nil
				}
				return c.LastUsed.UTC().Format(time.RFC3339Nano)
			})
		}
		return nil
	}
}

func originOf(r *routetable.Route) string {
	if r.Origin == "" {
		return routetable.OriginOperator
	}
	return r.Origin
}

// entity gives all attributes of a row.
func (k routeKind) entity(caller Caller, s *routetable.Snapshot, r *routetable.Route) Entity {
	read := k.reader(caller, r, func() int { return s.Position(r) + 1 })
	e := Entity{}
	for _, name := range k.attributes() {
		e[name] = read(name)
	}
	return e
}

// find gives the row of an identity, or the first with that name.
func (k routeKind) find(s *routetable.Snapshot, name, identity string) (*routetable.Route, error) {
	if identity != "" {
		digits, _, _ := strings.Cut(strings.TrimPrefix(identity, routeType+"/"), "-")
		if id, err := strconv.ParseUint(digits, 10, 64); err == nil && id != 0 {
			if r := s.Row(id); r != nil && rowIdentity(r) == identity {
				return r, nil
			}
		}
		return nil, notFound(routeType, name, identity)
	}
	if name != "" {
		if r := s.Named(name); r != nil {
			return r, nil
		}
	}
	return nil, notFound(routeType, name, identity)
}

func (k routeKind) read(caller Caller, name, identity string) (Entity, error) {
	s := k.c.table.Snapshot()
	r, err := k.find(s, name, identity)
	if err != nil {
		return nil, err
	}
	return k.entity(caller, s, r), nil
}

// create is the verb add. An equal row that is there already is answered with 200 and is left as it is.
func (k routeKind) create(caller Caller, name string, attributes args) (answer, error) {
	a := answer{}.with("revision", k.c.table.Revision())
	if err := attributes.settable(nil); err != nil {
		return a, err
	}
	op, err := attributes.row(false)
	if err != nil {
		return a, err
	}
	if name == "" {
		if name, err = attributes.text("name"); err != nil {
			return a, err
		}
	}
	if name != "" {
		if r, err := k.find(k.c.table.Snapshot(), name, ""); err == nil && (r.Pattern != op.Route.Pattern || r.Address != op.Route.Address) {
			return a, refuse(StatusConflict, "name %q is that of %s", name, rowIdentity(r))
		}
		op.Route.Name = name
		op.Columns |= routetable.ColName
	}
	ch, err := k.c.Do(caller, Add{Route: op.Route, Columns: op.Columns})
	a = a.with("revision", k.revisionAfter(ch, err))
	if err != nil {
		return a, err
	}
	s := k.c.table.Snapshot()
	if len(ch.Added) > 0 {
		a.status, a.body = StatusCreated, map[string]any(k.entity(caller, s, ch.Added[0]))
		return a, nil
	}
	a.status, a.text = StatusOK, ch.Note
	a.body = map[string]any{}
	if r := s.Find(op.Route.Pattern, op.Route.Address, routetable.OriginOperator); r != nil {
		a.body = map[string]any(k.entity(caller, s, r))
	}
	return a, nil
}

// revisionAfter gives the revision that the answer to a change carries.
func (k routeKind) revisionAfter(ch routetable.Change, err error) uint64 {
	if err != nil {
		return k.c.table.Revision()
	}
	return ch.Revision
}

// update is the verb set.
func (k routeKind) update(caller Caller, name, identity string, changes args) (answer, error) {
	a := answer{}.with("revision", k.c.table.Revision())
	s := k.c.table.Snapshot()
	r, err := k.find(s, name, identity)
	if err != nil {
		return a, err
	}
	current := k.reader(caller, r, func() int { return -1 })
	if err := changes.settable(current); err != nil {
		return a, err
	}
	op := routetable.Op{Route: routetable.NewRoute(r.Pattern, r.Address)}
	if err := changes.columns(&op); err != nil {
		return a, err
	}
	if changes.has("name") {
		if op.Route.Name, err = changes.text("name"); err != nil {
			return a, err
		}
		op.Columns |= routetable.ColName
	}
	if op.Columns != 0 {
		ch, err := k.c.Do(caller, Set{Route: op.Route, Columns: op.Columns, Origin: learnedOrigin(r)})
		a = a.with("revision", k.revisionAfter(ch, err))
		if err != nil {
			return a, err
		}
	}
	s = k.c.table.Snapshot()
	after := s.Row(r.ID)
	if after == nil {
		return a, notFound(routeType, name, identity)
	}
	a.status, a.body = StatusOK, map[string]any(k.entity(caller, s, after))
	return a, nil
}

// learnedOrigin is the origin that an edit of a learned row must name.
func learnedOrigin(r *routetable.Route) string {
	if routetable.Learned(originOf(r)) {
		return r.Origin
	}
	return ""
}

// remove is the verb delete.
func (k routeKind) remove(caller Caller, name, identity string) (answer, error) {
	a := answer{}.with("revision", k.c.table.Revision())
	r, err := k.find(k.c.table.Snapshot(), name, identity)
	if err != nil {
		return a, err
	}
	ch, err := k.c.Do(caller, Delete{Pattern: r.Pattern, Address: r.Address, Origin: learnedOrigin(r)})
	a = a.with("revision", k.revisionAfter(ch, err))
	if err != nil {
		return a, err
	}
	a.status, a.body = StatusNoContent, map[string]any{}
	return a, nil
}

// settable refuses attributes that no route has, or that cannot be set. With current, the values of an existing row,
// one that is sent back as it is does not matter: tools read an entity, change a value and send all of it.
func (a args) settable(current func(name string) any) error {
	for _, name := range sortedNames(a) {
		switch name {
		case "type", "identity", "name":
			continue
		}
		column, isColumn := ColumnName(name)
		if isColumn && (current == nil || !slices.Contains(identityColumns, column)) {
			continue
		}
		readOnly := isColumn || slices.Contains(rowAttributes, name)
		if !readOnly {
			return refuse(StatusBadRequest, "%s: no such attribute of type %s", name, routeType)
		}
		if current == nil || name == "position" || slices.Contains(rowAttributes, name) {
			if current != nil {
				continue // counters move on between the read and the update
			}
			return refuse(StatusBadRequest, "%s: cannot be set", name)
		}
		was, _ := scalarText(current(name))
		if got, ok := scalarText(a[name]); !ok || got != was {
			return refuse(StatusBadRequest, "%s: cannot be changed: delete the row and create another", name)
		}
	}
	return nil
}
