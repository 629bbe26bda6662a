package routetable

import "slices"

// OfOrigin returns the rows of one learned origin, in table order.
func (s *Snapshot) OfOrigin(origin string) []*Route {
	var rows []*Route
	for _, w := range s.index.keys.get(uint32(hashText(kindOrigin, origin) >> 32)) {
		if rec := s.record(uint32(w)); rec != nil && rec.origin() == origin {
			rows = append(rows, s.routeOf(rec.slot()))
		}
	}
	slices.SortFunc(rows, compareRoutes)
	return rows
}
