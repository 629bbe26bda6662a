package routetable

import "iter"

// Snapshot is the table at one moment, immutable. Every lookup of a message should use the same one.
type Snapshot struct {
	generation   uint64
	revision     uint64
	match        MatchMode
	dynamicHosts bool // captures may supply whole hosts in every row

	rows  []*Route // in table order
	index index
	whens int // rows with a predicate
}

// Generation counts all changes.
func (s *Snapshot) Generation() uint64 { return s.generation }

// Revision counts the changes of configured rows and of the match mode.
func (s *Snapshot) Revision() uint64 { return s.revision }

// Match is the match mode of the plain name space.
func (s *Snapshot) Match() MatchMode { return s.match }

// Len is the number of rows.
func (s *Snapshot) Len() int { return len(s.rows) }

// HasWhen reports whether any row has a predicate, so that a lookup needs the message's properties.
func (s *Snapshot) HasWhen() bool { return s.whens > 0 }

// Routes gives the rows in table order.
func (s *Snapshot) Routes() iter.Seq[*Route] {
	return func(yield func(*Route) bool) {
		for _, r := range s.rows {
			if !yield(r) {
				return
			}
		}
	}
}

// Row returns the row with the id, or nil. It looks at every row: it is for people's questions, not for messages.
func (s *Snapshot) Row(id uint64) *Route {
	for _, r := range s.rows {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// ChangedSince reports whether what addr finds may be another than it was at an earlier generation. A false yes is possible.
//
// A cache of what an address led to keeps the generation it was made at and asks this at each use for every name that was looked up.
func (s *Snapshot) ChangedSince(generation uint64, addr string) bool {
	return generation != s.generation
}
