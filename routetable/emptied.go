package routetable

import (
	"strings"
	"sync"
	"time"
)

// Bounds of what is remembered of patterns without rows. What is oldest goes first.
const (
	maxEmptied     = 10_000
	maxEmptiedWild = 256 // of them, those with wildcards: each is tried
)

// Emptied is a pattern that had rows and has none any more.
type Emptied struct {
	Pattern  string    `json:"pattern"`
	Revision uint64    `json:"revision"` // of the table when the last was gone
	At       time.Time `json:"at"`
}

// emptied is what the table remembers of patterns whose last row is gone, shared by its snapshots: it tells apart, where an address finds
// nothing, one that was never wired from one whose handler is gone. It does not outlive the process. Lookups do not touch it.
type emptied struct {
	mu    sync.Mutex // a leaf
	names map[string]Emptied
	order []Emptied // as they came; those that are another in names, or not there, are done with
	wild  []wildEmptied
}

type wildEmptied struct {
	Emptied
	p *pattern
}

// Emptied reports whether addr, which finds nothing, found rows once: the last pattern that fits it and whose rows are all gone.
func (s *Snapshot) Emptied(addr string) (e Emptied, ok bool) {
	m := s.emptied
	if m == nil || len(addr) > MaxTextBytes {
		return e, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok = m.names[addr]
	for i := len(m.wild) - 1; i >= 0; i-- {
		w := &m.wild[i]
		if (!ok || w.At.After(e.At)) && holdsLiterals(w.Pattern, addr) && w.p.match(addr) {
			return w.Emptied, true
		}
	}
	return e, ok
}

// note takes over what a change, which s holds, left without rows, and what has rows again.
func (m *emptied) note(s *Snapshot, c *Change) {
	if len(c.Removed)+len(c.Added) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.names)+len(m.wild) > 0 {
		for _, r := range c.Added {
			m.forget(r)
		}
	}
	now := time.Now()
	for _, r := range c.Removed[max(0, len(c.Removed)-maxEmptied):] {
		// The product's own names, such as reply addresses, come and go all the time.
		if !strings.HasPrefix(r.Pattern, "$") && !s.hasPattern(r.Pattern) {
			m.forget(r)
			m.add(r, Emptied{r.Pattern, c.Revision, now.Round(0)})
		}
	}
}

func (m *emptied) forget(r *Route) {
	if r.c.pattern.plain() {
		delete(m.names, r.Pattern)
		return
	}
	for i := range m.wild {
		if m.wild[i].Pattern == r.Pattern {
			m.wild = append(m.wild[:i], m.wild[i+1:]...)
			return
		}
	}
}

func (m *emptied) add(r *Route, e Emptied) {
	e.Pattern = strings.Clone(e.Pattern) // not to hold the chunk of its record
	if !r.c.pattern.plain() {
		p, err := compileChecked(e.Pattern)
		if err != nil {
			return
		}
		if len(m.wild) == maxEmptiedWild {
			m.wild = append(m.wild[:0], m.wild[1:]...)
		}
		m.wild = append(m.wild, wildEmptied{e, p})
		return
	}
	if m.names == nil {
		m.names = map[string]Emptied{}
	}
	m.names[e.Pattern] = e
	m.order = append(m.order, e)
	for len(m.names) > maxEmptied {
		if old := m.order[0]; m.names[old.Pattern] == old {
			delete(m.names, old.Pattern)
		}
		m.order = m.order[1:]
	}
	if len(m.order) > 2*maxEmptied {
		m.compact()
	}
}

// compact drops what is done with from the order.
func (m *emptied) compact() {
	kept := make([]Emptied, 0, len(m.names))
	for _, e := range m.order {
		if m.names[e.Pattern] == e {
			kept = append(kept, e)
		}
	}
	m.order = kept
}
