package relay

import "sync/atomic"

const (
	kinds   = int(kindUnserve) + 1
	results = int(unknownOp) + 1
)

// tally is what a batch counts, to be added at once.
type tally struct {
	ops [kinds][results]uint32
	any bool
}

func (t *tally) result(k kind, c code) {
	t.ops[k][c]++
	t.any = true
}

// stats are what a broker counts.
type stats struct {
	ops      [kinds][results]atomic.Uint64
	connects atomic.Uint64 // that were taken
	refused  atomic.Uint64 // that were not
	faults   atomic.Uint64
	bad      atomic.Uint64 // whole messages
}

func (s *stats) add(t *tally) {
	if !t.any {
		return
	}
	t.any = false
	for k := range t.ops {
		for c, n := range t.ops[k] {
			if n > 0 {
				s.ops[k][c].Add(uint64(n))
				t.ops[k][c] = 0
			}
		}
	}
}

// Stats is what the relay tells of itself.
type Stats struct {
	Connections int
	Topics      int // that are served, by connection: two that serve one topic are two
	Pending     int // ops without an answer
	Connects    uint64
	Refused     uint64 // connections that were refused before the upgrade
	Faults      uint64 // connections closed with 1011
	BadMessages uint64
	Ops         []OpCount
}

// OpCount is how many ops had a result.
type OpCount struct {
	Op, Result string
	Count      uint64
}

// Stats tells what there is and what was.
func (b *Broker) Stats() Stats {
	s := Stats{Connects: b.stats.connects.Load(), Refused: b.stats.refused.Load(), Faults: b.stats.faults.Load(), BadMessages: b.stats.bad.Load()}
	for _, c := range b.all() {
		s.Connections++
		s.Pending += int(max(c.pending.Load(), 0))
		c.mu.Lock()
		s.Topics += c.served
		c.mu.Unlock()
	}
	for k := range b.stats.ops {
		for c := range b.stats.ops[k] {
			if n := b.stats.ops[k][c].Load(); n > 0 {
				name := "other"
				if k := kind(k); k >= kindHead {
					name = k.String()
				}
				s.Ops = append(s.Ops, OpCount{name, code(c).String(), n})
			}
		}
	}
	return s
}
