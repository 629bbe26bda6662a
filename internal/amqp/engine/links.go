package engine

// Links calls f for every link of the connection that both ends have attached, in no order.
func (c *Conn) Links(f func(*Link)) {
	for _, s := range c.byLocal {
		for _, l := range s.links {
			if l != nil && l.answered && l.hasRemote && !l.gone {
				f(l)
			}
		}
	}
}
