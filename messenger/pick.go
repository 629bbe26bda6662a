package messenger

import (
	"hash/fnv"
	"math/rand/v2"

	"github.com/fingerpost/fingerpost/routetable"
)

// picker chooses the rows of a group that a message goes by: its hops are present, or down, or busy as this messenger knows them.
type picker struct {
	m        *Messenger
	property func(string) (string, bool)
}

// choose gives the matches that are followed.
func (p *picker) choose(g *routetable.Group) []routetable.Match {
	switch {
	case g.Pick == routetable.PickAll || len(g.Matches) < 2:
		return g.Matches
	case g.Pick == routetable.PickFirst:
		for i := range g.Matches {
			if p.present(&g.Matches[i]) {
				return g.Matches[i : i+1]
			}
		}
		return g.Matches[:1] // it waits
	}
	return p.balance(g)
}

// balance gives one row of the lowest order that has one that is present.
func (p *picker) balance(g *routetable.Group) []routetable.Match {
	for lo := 0; lo < len(g.Matches); {
		hi := lo
		var live []int
		for ; hi < len(g.Matches) && g.Matches[hi].Route.Order == g.Matches[lo].Route.Order; hi++ {
			if p.present(&g.Matches[hi]) {
				live = append(live, hi)
			}
		}
		if len(live) > 0 {
			i := p.among(g, live)
			return g.Matches[i : i+1]
		}
		lo = hi
	}
	return g.Matches[:1]
}

// among gives one of the rows by the group's balance.
func (p *picker) among(g *routetable.Group, live []int) int {
	switch g.Balance {
	case routetable.RoundRobin:
		return live[int(p.m.turn.Add(1)-1)%len(live)]
	case routetable.Weighted:
		total := 0
		for _, i := range live {
			total += max(g.Matches[i].Route.Weight, 1)
		}
		at := rand.N(total)
		for _, i := range live {
			if at -= max(g.Matches[i].Route.Weight, 1); at < 0 {
				return i
			}
		}
	case routetable.Hash:
		// The row with the highest hash of key and address: when one goes, only its share moves.
		key, _ := p.property(g.HashKey)
		best, most := live[0], uint64(0)
		for _, i := range live {
			h := fnv.New64a()
			h.Write([]byte(key))
			h.Write([]byte{0})
			h.Write([]byte(g.Matches[i].Result))
			if v := h.Sum64(); v >= most {
				best, most = i, v
			}
		}
		return best
	}
	best, least := live[0], -1
	for _, i := range live {
		if n := p.busy(&g.Matches[i]); least < 0 || n < least {
			best, least = i, n
		}
	}
	return best
}

// present tells whether a row's hop can be expected to take a copy: it was not found down when it was last tried. A name always is.
func (p *picker) present(m *routetable.Match) bool {
	if m.Hop == nil {
		return false
	}
	switch m.Hop.Scheme {
	case "amqp", "amqps":
		ep := p.m.known(m.Hop)
		return ep == nil || !ep.down.Load()
	case "link":
		p.m.mu.Lock()
		defer p.m.mu.Unlock()
		return p.m.links[m.Hop.Name] != nil
	}
	return true
}

// busy is how many copies are with the hop's peer.
func (p *picker) busy(m *routetable.Match) int {
	if m.Hop.Scheme != "amqp" && m.Hop.Scheme != "amqps" {
		return 0
	}
	ep := p.m.known(m.Hop)
	if ep == nil {
		return 0
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	n := 0
	for _, ln := range ep.lines {
		n += ln.queue.len() + ln.inFlight
	}
	return n
}
