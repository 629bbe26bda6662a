package events

// points are restart points: where those that went, components and receivers of AMQP, go on when they come back within the window. By who it is: the
// key of a component, or linkWho.
type points struct {
	window int64
	of     map[string]point
	order  []departure // the oldest first
}

type point struct{ from, until int64 }

type departure struct {
	who   string
	until int64
}

// maxPoints is how many are kept: who was gone for longest goes first, and has the whole window.
const maxPoints = 10_000

// linkWho is the key of a receiver: no component's has a colon.
func linkWho(who string) string { return "link:" + who }

// keep notes that somebody goes, who misses events from then on.
func (p *points) keep(who string, from, now int64) {
	if p.of == nil {
		p.of = map[string]point{}
	}
	x := point{from, now + p.window}
	p.of[who] = x
	p.order = append(p.order, departure{who, x.until})
	p.forget(now)
}

// at gives where somebody goes on: 0 is the whole window.
func (p *points) at(who string, now int64) int64 {
	if x := p.of[who]; x.until >= now {
		return x.from
	}
	return 0
}

// forget drops the points whose window is over, and those that are too many.
func (p *points) forget(now int64) {
	n := 0
	for n < len(p.order) && (p.order[n].until < now || len(p.order)-n > maxPoints) {
		if d := p.order[n]; p.of[d.who].until == d.until {
			delete(p.of, d.who)
		}
		n++
	}
	if n == len(p.order) {
		p.order = nil
		return
	}
	p.order = p.order[n:]
}
