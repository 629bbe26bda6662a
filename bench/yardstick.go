package main

import "github.com/fingerpost/fingerpost/internal/house/mix"

// yardstick is a lookup in NATS's list of subjects, of the exact and topic rows of a table of one size. The goals were set with other rows on
// another machine: how much longer it takes here says what both of that make of a goal.
type yardstick struct {
	walk
	there float64 // ns it took on the machine that the goals were set on
}

// newYardstick is the yardstick for tables of n rows.
func newYardstick(n int) yardstick {
	y := yardstick{there: 2_360}
	switch {
	case n <= 100:
		y.there = 266
	case n <= 10_000:
		y.there = 887
	}
	list := natsList(n)
	y.lookup = list.lookup
	for _, addr := range (mix.Mix{Rows: n}).Addresses(manyAddresses(n), 4, mix.ExactAndTopic) {
		y.addrs = append(y.addrs, list.address(addr))
	}
	return y
}
