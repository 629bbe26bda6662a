package admin

import (
	"strings"

	"github.com/fingerpost/fingerpost/routetable"
)

// Assert says that there is a row of a learned origin, with its columns: what a peer exposes or subscribes to. A row that is there with other columns
// is put in the place of the old one.
type Assert struct {
	Route routetable.Route
}

// Setup says which rows a learned origin has: all at once, those that it does not name go. Rows that stay keep their place.
type Setup struct {
	Origin string
	Routes []routetable.Route // their origin is Origin
}

// Together makes several commands of adapters one change.
type Together struct {
	Commands []Command
}

func (Assert) operation() string { return "ASSERT" }
func (Setup) operation() string  { return "SETUP" }

func (Assert) role() Role { return RoleNone }
func (Setup) role() Role  { return RoleNone }

func (Together) operation() string { return "TOGETHER" }

func (c Together) role() (role Role) {
	for _, x := range c.Commands {
		role = max(role, x.role())
	}
	return role
}

func (c Together) plan(s *routetable.Snapshot) (ops []routetable.Op, err error) {
	for _, x := range c.Commands {
		more, err := x.plan(s)
		if err != nil {
			return nil, err
		}
		ops = append(ops, more...)
	}
	return ops, nil
}

func (c Assert) plan(s *routetable.Snapshot) ([]routetable.Op, error) {
	if err := learned(c.operation(), c.Route.Origin); err != nil {
		return nil, err
	}
	add := routetable.Op{Verb: routetable.VerbAdd, Route: c.Route}
	old := s.Find(c.Route.Pattern, c.Route.Address, c.Route.Origin)
	if old == nil {
		return []routetable.Op{add}, nil
	}
	if old.Pick == c.Route.Pick && old.Balance == c.Route.Balance && old.Order == c.Route.Order && old.Note == c.Route.Note && old.Fallback == c.Route.Fallback {
		return nil, nil
	}
	return []routetable.Op{{Verb: routetable.VerbDelete, Route: routetable.NewRoute(old.Pattern, old.Address), Origin: old.Origin}, add}, nil
}

func (c Setup) plan(s *routetable.Snapshot) ([]routetable.Op, error) {
	if err := learned(c.operation(), c.Origin); err != nil {
		return nil, err
	}
	old := s.OfOrigin(c.Origin)
	if len(old) == 0 && len(c.Routes) > 0 {
		return []routetable.Op{{Verb: routetable.VerbLoad, Mode: routetable.LoadMerge, Origin: c.Origin, Routes: c.Routes}}, nil
	}
	type row struct{ pattern, address string }
	wanted := map[row]bool{}
	for _, r := range c.Routes {
		wanted[row{r.Pattern, r.Address}] = true
	}
	var ops []routetable.Op
	for _, r := range old {
		if !wanted[row{r.Pattern, r.Address}] {
			ops = append(ops, routetable.Op{Verb: routetable.VerbDelete, Route: routetable.NewRoute(r.Pattern, r.Address), Origin: c.Origin})
		}
	}
	for _, r := range c.Routes {
		r.Origin = c.Origin
		more, err := Assert{r}.plan(s)
		if err != nil {
			return nil, err
		}
		ops = append(ops, more...)
	}
	return ops, nil
}

func learned(operation, origin string) error {
	if origin == "" || !routetable.Learned(strings.TrimSuffix(origin, "/")) {
		return refuse(StatusBadRequest, "%s: origin %q is not one of learned rows", operation, origin)
	}
	return nil
}
