package main

import (
	"bytes"
	"fmt"

	"github.com/fingerpost/fingerpost/internal/house/mix"
	"github.com/fingerpost/fingerpost/routetable"
)

// newTable is a table of the rows of the kinds among the first n of the mix.
func newTable(n int, kinds func(mix.Kind) bool) *routetable.Table {
	m := mix.Mix{Rows: n}
	op := routetable.Op{Verb: routetable.VerbLoad, Routes: make([]routetable.Route, 0, n)}
	for i := range n {
		if r := m.Row(i); kinds(r.Kind) {
			op.Routes = append(op.Routes, routetable.NewRoute(r.Pattern, r.Address))
		}
	}
	t := routetable.New()
	_, err := t.Apply(op)
	check(err)
	return t
}

// arrowText is the mix as a table file in the arrow form.
func arrowText(n int) []byte {
	m := mix.Mix{Rows: n}
	var b bytes.Buffer
	for i := range n {
		r := m.Row(i)
		fmt.Fprintf(&b, "%s --> %s\n", r.Pattern, r.Address)
	}
	return b.Bytes()
}

// textBytes is the length of all texts of the rows of the kinds, and how many rows they are.
func textBytes(n int, kinds func(mix.Kind) bool) (text, rows float64) {
	m := mix.Mix{Rows: n}
	for i := range n {
		if r := m.Row(i); kinds(r.Kind) {
			text += float64(len(r.Pattern) + len(r.Address))
			rows++
		}
	}
	return text, rows
}

// lookupUncached is a lookup that does not ask the match cache first.
func lookupUncached(s *routetable.Snapshot, dst []routetable.Group, addr string) []routetable.Group {
	return s.LookupUncached(dst, addr, nil)
}
