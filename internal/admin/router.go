package admin

import "time"

// routerEntity is this node as an entity.
type routerEntity struct {
	c       *Core
	started time.Time
}

func (*routerEntity) Type() string { return "router" }

func (e *routerEntity) Attributes() []string {
	names := []string{"nodeId", "version", "uptime", "started", "revision", "generation", "rows"}
	if e.c.o.Counters != nil {
		names = append(names, sortedCounters(e.c.o.Counters())...)
	}
	return names
}

func (e *routerEntity) List() []Entity {
	s := e.c.table.Snapshot()
	x := Entity{
		"name": e.c.o.Name, "identity": "router/" + firstOf(e.c.o.NodeID, e.c.o.Name),
		"nodeId": e.c.o.NodeID, "version": e.c.o.Version,
		"uptime":   uint64(max(e.c.o.Now().Sub(e.started), 0) / time.Second), // seconds
		"started":  e.started.UTC().Format(time.RFC3339),
		"revision": s.Revision(), "generation": s.Generation(), "rows": uint64(s.Len()),
	}
	if e.c.o.Counters != nil {
		for name, n := range e.c.o.Counters() {
			x[name] = n
		}
	}
	return []Entity{x}
}
