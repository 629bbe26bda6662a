package components

import "strings"

// ComponentID tells a component, or one replica of it: Id is the replica's.
type ComponentID struct {
	Type, App, Name, Hash, ID, BrokerID string
}

// shortHash is the beginning of a hash that names have.
func shortHash(h string) string { return h[:min(len(h), 7)] }

// group is the key of a component's replicas: app, name and short hash, empty parts left out.
func (c *ComponentID) group() string {
	parts := make([]string, 0, 3)
	for _, p := range []string{c.App, c.Name, shortHash(c.Hash)} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, "-")
}

// key is the key of a replica.
func (c *ComponentID) key() string { return c.group() + "-" + c.ID }

// address is the component's name in addresses: app/name@hash.
func (c *ComponentID) address() string {
	s := c.Name + "@" + shortHash(c.Hash)
	if c.App != "" {
		s = c.App + "/" + s
	}
	return s
}

// subject is the component's part of NATS subjects: app.name.hash.
func (c *ComponentID) subject() string {
	s := c.Name + "." + shortHash(c.Hash)
	if c.App != "" {
		s = c.App + "." + s
	}
	return s
}

func (c *ComponentID) complete() bool {
	return c.Type != "" && c.Name != "" && c.Hash != "" && c.ID != "" && c.BrokerID != ""
}

func (c *ComponentID) nameOnly() bool {
	return c.Type != "" && c.Name != "" && c.Hash == "" && c.ID == "" && c.BrokerID == ""
}
