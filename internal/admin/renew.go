package admin

import (
	"strings"

	"github.com/fingerpost/fingerpost/routetable"
)

// Renew puts rows of an adapter in the place of those of some origins, as one change: the routes of components when what they are deployed in
// changes.
type Renew struct {
	Withdraw []string // origins, or prefixes of origins that end in a slash
	Rows     []routetable.Route
}

func (Renew) operation() string { return "RENEW" }
func (Renew) role() Role        { return RoleNone }

func (c Renew) plan(*routetable.Snapshot) ([]routetable.Op, error) {
	ops := make([]routetable.Op, 0, len(c.Withdraw)+len(c.Rows))
	for _, origin := range c.Withdraw {
		if !routetable.Learned(strings.TrimSuffix(origin, "/")) {
			return nil, refuse(StatusBadRequest, "RENEW: origin %q is not one of learned rows", origin)
		}
		ops = append(ops, routetable.Op{Verb: routetable.VerbWithdraw, Origin: origin})
	}
	for _, r := range c.Rows {
		if !routetable.Learned(r.Origin) {
			return nil, refuse(StatusBadRequest, "RENEW: origin %q is not one of learned rows", r.Origin)
		}
		ops = append(ops, routetable.Op{Verb: routetable.VerbAdd, Route: r, Columns: routetable.ColPick | routetable.ColOrder})
	}
	return ops, nil
}
