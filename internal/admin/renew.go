package admin

import (
	"maps"
	"slices"
	"strings"

	"github.com/fingerpost/fingerpost/routetable"
)

// Renew puts rows of an adapter in the place of those of some origins, as one change: the routes of components when what they are deployed in
// changes. Where the objects that the rows are made of change with them, these are part of the change.
type Renew struct {
	Withdraw []string // origins, or prefixes of origins that end in a slash
	Rows     []routetable.Route

	Objects    map[string]string // texts by name; the empty text takes an object away
	Words      string            // of who asked for other objects, for the history
	IfRevision *uint64           // the revision that who asked saw; nil is any
}

func (Renew) operation() string { return "RENEW" }
func (Renew) role() Role        { return RoleNone }

func (c Renew) plan(s *routetable.Snapshot) ([]routetable.Op, error) {
	if c.IfRevision != nil {
		if err := atRevision(s, *c.IfRevision); err != nil {
			return nil, err
		}
	}
	ops := make([]routetable.Op, 0, len(c.Objects)+len(c.Withdraw)+len(c.Rows))
	for _, name := range slices.Sorted(maps.Keys(c.Objects)) {
		ops = append(ops, routetable.Op{Verb: routetable.VerbObject, Object: name, Text: c.Objects[name]})
	}
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
