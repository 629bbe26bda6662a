package admin

import "github.com/fingerpost/fingerpost/routetable"

// Unsubscribe takes back one Subscribe: the row of its origin. One that is not there is done with.
type Unsubscribe struct {
	Origin  string
	Pattern string
	Address string
}

func (Unsubscribe) operation() string { return "UNSUBSCRIBE" }
func (Unsubscribe) role() Role        { return RoleNone }

func (c Unsubscribe) plan(*routetable.Snapshot) ([]routetable.Op, error) {
	if !routetable.Learned(c.Origin) {
		return nil, refuse(StatusBadRequest, "UNSUBSCRIBE: origin %q is not one of learned rows", c.Origin)
	}
	return []routetable.Op{{Verb: routetable.VerbDelete, Route: routetable.NewRoute(c.Pattern, c.Address), Origin: c.Origin}}, nil
}
