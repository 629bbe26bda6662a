package forwarder

import (
	"slices"
	"strings"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/engine"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// grants say what a client may name: plain names always, reserved schemes where they are listed (DESIGN §4).
type grants struct {
	schemes []string
}

func defaultGrants() grants { return grants{schemes: []string{"topic", "event"}} }

// grantsOfPeer are those of a node that we dialled.
func grantsOfPeer() grants { return defaultGrants() }

func (g grants) may(address string) bool {
	scheme, reserved := routetable.ReservedScheme(address)
	return !reserved || slices.Contains(g.schemes, scheme)
}

// maySend looks at the message's own address.
func (g grants) maySend(m *Message) bool {
	to, ok := m.To()
	if !ok {
		return true
	}
	for _, b := range to { // most addresses have no colon: nothing to look up
		if b == ':' {
			return g.may(string(to))
		}
	}
	return true
}

// mayName tells whether a sender may attach to its target.
func (c *conn) mayName(in *inlink) *engine.LinkError {
	if !in.hasTarget {
		return nil
	}
	if in.target == managementAddress {
		if c.caller.Role == admin.RoleNone {
			return &engine.LinkError{Condition: wire.CondUnauthorizedAccess, Text: "this client has no role at the door"}
		}
		return nil
	}
	if !c.grants.may(in.target) {
		return &engine.LinkError{Condition: wire.CondUnauthorizedAccess, Text: "this client may not name an address of that scheme"}
	}
	return nil
}

// mayReceive tells whether a receiver may attach to an address.
func (c *conn) mayReceive(address string, dynamic bool) *engine.LinkError {
	switch {
	case dynamic:
		return nil
	case strings.HasPrefix(address, "$"):
		return &engine.LinkError{Condition: wire.CondNotAllowed, Text: "names that begin with $ are the router's own"}
	case !c.grants.may(address):
		return &engine.LinkError{Condition: wire.CondUnauthorizedAccess, Text: "this client may not name an address of that scheme"}
	}
	return nil
}
