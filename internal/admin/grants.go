package admin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fingerpost/fingerpost/routetable"
)

// Account is what a client may do, whoever it has proven to be.
type Account struct {
	Name    string
	Role    Role
	Send    *Grants // what it may send to
	Receive *Grants // what it may receive from
}

// Grants are the addresses that a client may name (DESIGN §4). Nil are all plain names, and no scheme. Grants are not changed once they
// are made.
type Grants struct {
	table   *routetable.Table // a row for each pattern; nil: plain names
	schemes []string          // all of whose names are allowed
}

// NewGrants makes grants of patterns, in the dialects of the table: "orders/*", "topic:orders.#", "glob:eu/{a,b}". As in the table, a pattern fits names of a
// scheme only where it begins with that scheme. No pattern is no address.
func NewGrants(patterns []string) (*Grants, error) {
	g := &Grants{table: routetable.New()}
	for _, p := range patterns {
		if _, err := g.table.Add(p, routetable.NullAddress); err != nil {
			return nil, fmt.Errorf("pattern %q: %w", p, err)
		}
	}
	return g, nil
}

// GrantsOfSchemes are all plain names, and all names of some schemes.
func GrantsOfSchemes(schemes ...string) *Grants { return &Grants{schemes: schemes} }

// Allow tells whether an address may be named. Addresses made for replies always may: nobody can guess them.
func (g *Grants) Allow(address string) bool {
	if strings.HasPrefix(address, replyPrefix) {
		return true
	}
	if g != nil && g.table != nil {
		var found [1]routetable.Group
		return len(g.table.Snapshot().LookupInto(found[:0], address, nil)) > 0
	}
	if strings.IndexByte(address, ':') < 0 { // most have no scheme: nothing to look up
		return true
	}
	scheme, reserved := routetable.ReservedScheme(address)
	return !reserved || g != nil && slices.Contains(g.schemes, scheme)
}

// replyPrefix begins the addresses that are made for dynamic sources.
const replyPrefix = "$reply/"
