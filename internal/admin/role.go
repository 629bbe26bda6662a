package admin

import "fmt"

// Role says what a caller may do at the door. Each role includes the ones before it.
type Role uint8

// The roles. The zero value may do nothing.
const (
	RoleNone     Role = iota
	RoleViewer        // reads; userinfo in addresses is masked
	RoleOperator      // edits the table, sees addresses as written
	RoleAdmin         // everything
)

// String gives the name that configuration files use.
func (r Role) String() string {
	switch r {
	case RoleNone:
		return "none"
	case RoleViewer:
		return "viewer"
	case RoleOperator:
		return "operator"
	case RoleAdmin:
		return "admin"
	}
	return fmt.Sprintf("Role(%d)", uint8(r))
}

// ParseRole reads the name of a role; the empty name is RoleNone.
func ParseRole(name string) (Role, error) {
	switch name {
	case "", "none":
		return RoleNone, nil
	case "viewer":
		return RoleViewer, nil
	case "operator":
		return RoleOperator, nil
	case "admin":
		return RoleAdmin, nil
	}
	return RoleNone, fmt.Errorf("no such role: %q (none, viewer, operator, admin)", name)
}

// Caller is who asks, and from where. In-process adapters fill Via only. The history keeps User, and Remote or else Via.
type Caller struct {
	User   string // the authenticated name; empty for ANONYMOUS
	Remote string // host:port of the connection, for logs, errors and the history
	Via    string // the inlet: "link:7", "mesh", "relay", "file:default.yaml", "signal"
	Role   Role
}

// May answers nil, or the refusal of what needs the role.
func (c Caller) May(role Role, what string) error { return c.may(role, what) }

// may answers nil, or why the caller may not do what needs role (401 for one nobody knows, 403 for the others).
func (c Caller) may(role Role, what string) error {
	if c.Role >= role {
		return nil
	}
	if c.Role == RoleNone && c.User == "" {
		return refuse(StatusUnauthorized, "%s needs role %s: not authenticated", what, role)
	}
	return refuse(StatusForbidden, "%s needs role %s, this caller has %s", what, role, c.Role)
}
