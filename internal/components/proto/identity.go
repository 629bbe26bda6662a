package proto

import "strings"

// Component tells a component, or one replica of it: ID is the replica's.
type Component struct {
	Type, App, Name, Hash, ID, BrokerID string
}

// shortHash is the beginning of a hash that names have.
func shortHash(h string) string { return h[:min(len(h), 7)] }

// IsPlain tells whether a text can be a part of rows and of NATS subjects: letters, digits, "-", "_" and ".", and no more than 128 of them.
func IsPlain(s string) bool {
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.') {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// IsHash tells whether a text can be a hash: it is plain, and what names have of it has no empty part between dots.
func IsHash(s string) bool { return IsPlain(s) && !strings.Contains("."+shortHash(s)+".", "..") }

// Group is the key of a component's replicas: app, name and short hash, empty parts left out.
func (c *Component) Group() string {
	parts := make([]string, 0, 3)
	for _, p := range []string{c.App, c.Name, shortHash(c.Hash)} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, "-")
}

// Key is the key of a replica.
func (c *Component) Key() string { return c.Group() + "-" + c.ID }

// Address is the component's name in addresses: app/name@hash.
func (c *Component) Address() string {
	s := c.Name + "@" + shortHash(c.Hash)
	if c.App != "" {
		s = c.App + "/" + s
	}
	return s
}

// Subject is the component's part of NATS subjects: app.name.hash.
func (c *Component) Subject() string {
	s := c.Name + "." + shortHash(c.Hash)
	if c.App != "" {
		s = c.App + "." + s
	}
	return s
}

// IsComplete tells whether all but the app is said.
func (c *Component) IsComplete() bool {
	return c.Type != "" && c.Name != "" && c.Hash != "" && c.ID != "" && c.BrokerID != ""
}

// IsNameOnly tells whether it is said by type and name, and no more.
func (c *Component) IsNameOnly() bool {
	return c.Type != "" && c.Name != "" && c.Hash == "" && c.ID == "" && c.BrokerID == ""
}
