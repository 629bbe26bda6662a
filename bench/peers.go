package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/nats-io/nats-server/v2/server/gsl"

	"github.com/fingerpost/fingerpost/internal/house/mix"
	"github.com/fingerpost/fingerpost/routetable"
)

// matcher is one of those that are compared, filled with the exact and topic rows of a mix.
type matcher struct {
	name      string
	separator string                // of the parts of an address
	lookup    func(addr string) int // a lookup as its user does it; how many results, or groups of them
	rows      func(addr string) int // how many rows an address finds
}

// own is the routing table without its match cache.
func own(n int) matcher {
	snapshot := newTable(n, mix.ExactAndTopic).Snapshot()
	dst := make([]routetable.Group, 0, 64)
	return matcher{
		name: "own", separator: "/",
		lookup: func(addr string) int {
			dst = lookupUncached(snapshot, dst[:0], addr)
			return len(dst)
		},
		rows: func(addr string) (rows int) {
			for _, g := range lookupUncached(snapshot, nil, addr) {
				rows += len(g.Matches)
			}
			return rows
		},
	}
}

// natsList is the list of subjects that NATS keeps of a stream's consumers. The value of a subject is the row's address.
func natsList(n int) matcher {
	m := mix.Mix{Rows: n}
	list := gsl.NewSublist[string]()
	for i := range n {
		if r := m.Row(i); mix.ExactAndTopic(r.Kind) {
			check(list.Insert(subject(r.Pattern, ".", "*", ">"), r.Address))
		}
	}
	found := 0
	count := func(string) { found++ }
	lookup := func(addr string) int {
		found = 0
		list.Match(addr, count)
		return found
	}
	return matcher{name: "nats gsl", separator: ".", lookup: lookup, rows: lookup}
}

// mqttIndex is the index of an MQTT broker. The client of a subscription is the row's address.
func mqttIndex(n int) matcher {
	m := mix.Mix{Rows: n}
	index := mqtt.NewTopicsIndex()
	for i := range n {
		if r := m.Row(i); mix.ExactAndTopic(r.Kind) {
			index.Subscribe(r.Address, packets.Subscription{Filter: subject(r.Pattern, "/", "+", "#")})
		}
	}
	lookup := func(addr string) int { return len(index.Subscribers(addr).Subscriptions) }
	return matcher{name: "mochi", separator: "/", lookup: lookup, rows: lookup}
}

// subject is a pattern of exact or whole-segment parts in another syntax.
func subject(pattern, separator, one, rest string) string {
	topic := strings.HasPrefix(pattern, "topic:")
	parts := strings.Split(pattern, "/")
	for i, part := range parts {
		switch {
		case part == "%" || part == "*" && topic:
			parts[i] = one
		case part == "*" || part == "**":
			parts[i] = rest
		}
	}
	return strings.Join(parts, separator)
}

// sampled is how many addresses are checked to find the same number of rows in all.
const sampled = 2000

// measurePeers compares the table with two others on the rows that all three can hold.
func measurePeers(s settings) []line {
	var lines []line
	for _, n := range sizes(s.rows) {
		lines = append(lines, comparePeers(s, n)...)
	}
	return lines
}

func comparePeers(s settings, n int) []line {
	text, rows := textBytes(n, mix.ExactAndTopic)
	var matchers []matcher
	var grown []float64 // bytes a row
	for _, build := range []func(int) matcher{own, natsList, mqttIndex} {
		before := heap()
		matchers = append(matchers, build(n))
		grown = append(grown, (heap()-before)/rows)
	}
	addrs := mix.Mix{Rows: n}.Addresses(manyAddresses(n), 4, mix.ExactAndTopic)
	agree(matchers, addrs[:sampled])

	// No collection from here on: it would be paid by whoever's turn it is. That is to the good of those that allocate.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var turns []func() float64
	var perLookup []float64
	for _, m := range matchers {
		w := &walk{lookup: m.lookup}
		for _, addr := range addrs {
			w.addrs = append(w.addrs, m.address(addr))
		}
		perLookup = append(perLookup, w.allocsPerLookup())
		turns = append(turns, func() float64 { return w.nsPerLookup(s.turn) })
	}
	took := interleave(s.count, turns...)

	what := func(quantity string) string { return "exact and topic, " + thousands(int(rows)) + " rows: " + quantity }
	var lines []line
	for i, m := range matchers[1:] {
		lines = append(lines, newLine(what("lookup"), ns, took[0]).against(m.name, took[i+1]))
	}
	for i, m := range matchers[1:] {
		lines = append(lines, newLine(what("allocations"), allocs, perLookup[:1]).against(m.name, perLookup[i+1:i+2]))
	}
	if n < 10_000 {
		return lines // too small to tell the memory of a row
	}
	for i, m := range matchers[1:] {
		beyond := func(j int) []float64 { return []float64{grown[j] - text/rows} }
		lines = append(lines, newLine(what("memory of a row beyond its texts"), memory, beyond(0)).against(m.name, beyond(i+1)))
	}
	for i, m := range matchers[1:] {
		lines = append(lines, newLine(what("memory of a row and its texts"), memory, grown[:1]).against(m.name, grown[i+1:i+2]))
	}
	return lines
}

// address is addr in the matcher's syntax, in memory of its own.
func (m matcher) address(addr string) string {
	return strings.Join(strings.Split(addr, "/"), m.separator)
}

// agree checks that all find the same number of rows.
func agree(matchers []matcher, addrs []string) {
	for _, addr := range addrs {
		want := matchers[0].rows(addr)
		for _, m := range matchers[1:] {
			if got := m.rows(m.address(addr)); got != want {
				check(fmt.Errorf("%s finds %d rows in %s, %d in the own table", addr, got, m.name, want))
			}
		}
	}
}
