package mesh

// peer is a router that we connect to.
type peer struct{}

func (p *peer) answer(*link, *Frame) bool { return false }
