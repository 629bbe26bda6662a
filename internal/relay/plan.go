package relay

import (
	"fmt"
	"strings"

	"github.com/fingerpost/fingerpost/routetable"
)

// plan is what a connection knows of a topic that it names: it is kept for the next op. Owned by the reader.
type plan struct {
	topic   string
	address string // relay:<domain>/<topic>
	pattern string // the one that fits it alone

	keys       *Keys // that ask and serve are of
	ask, serve bool

	begins [kindCancel + 1][]byte // what an op is passed on with, up to its id
	from   []byte                 // the address that servers get, as a member, once it was issued

	looked     bool
	generation uint64 // of the table
	to         *Conn  // the active one; nil: nobody
	discards   bool   // a null row is first
	told       uint64 // of to, when it was last known to know that it is active; 0: never
}

// The most that a connection keeps of these: they are made anew.
const (
	maxPlans  = 128
	maxReturn = 1024
)

// planOf gives the plan of a topic, as it is written in JSON; nil where no text can be that.
func (c *Conn) planOf(raw []byte) *plan {
	if p := c.plans[string(raw)]; p != nil {
		return p
	}
	text, whole := unescape(nil, raw[1:len(raw)-1])
	if !whole {
		return nil
	}
	p := newPlan(c.domain, string(text), raw)
	if c.plans == nil || len(c.plans) >= maxPlans {
		c.plans = map[string]*plan{}
	}
	c.plans[string(raw)] = p
	return p
}

// newPlan makes the plan of a topic, written as raw.
func newPlan(domain, topic string, raw []byte) *plan {
	p := &plan{topic: topic, address: addressOf(domain, topic)}
	for _, k := range [...]kind{kindHead, kindBody, kindCancel} {
		p.begins[k] = fmt.Appendf(nil, `[{"op":"%s","topic":%s,"id":`, k, raw)
	}
	p.pattern, _ = routetable.QuotePattern(p.address) // a name of relay: always has one
	return p
}

// addressOf is what a topic is looked up by. No domain has a slash.
func addressOf(domain, topic string) string { return "relay:" + domain + "/" + topic }

// grants fills in what the connection's key may on the topic.
func (p *plan) grants(c *Conn) {
	keys := c.b.keys.Load()
	if p.keys == keys {
		return
	}
	p.keys, p.ask, p.serve = keys, false, false
	if k := keys.of(c); k != nil {
		p.ask, p.serve = k.ask.has(p.topic), k.serve.has(p.topic)
	}
}

// look finds the connection that is active on the topic.
func (p *plan) look(c *Conn, w *work) {
	s := c.b.table.Snapshot()
	if p.looked && p.generation == s.Generation() && (p.to == nil || !p.to.gone.Load()) {
		return
	}
	p.looked, p.generation, p.told = true, s.Generation(), 0
	p.to, p.discards = c.b.active(s, p.address, c.domain, &w.groups)
}

// maxNames bounds how many names one after the other lead to a connection, as in the node.
const maxNames = 8

// active finds the first connection that is present among the rows of an address; discards: a null row comes before one. Nothing crosses from
// one domain to another, and what leads out of the relay is not followed.
func (b *Broker) active(s *routetable.Snapshot, address, domain string, room *[]routetable.Group) (to *Conn, discards bool) {
	return b.follow(s, address, domain, room, maxNames)
}

func (b *Broker) follow(s *routetable.Snapshot, address, domain string, room *[]routetable.Group, names int) (to *Conn, discards bool) {
	first := len(*room)
	*room = s.LookupInto(*room, address, nil)
	groups := (*room)[first:]
	defer func() {
		clear((*room)[first:])
		*room = (*room)[:first]
	}()
	for i := range groups {
		for j := range groups[i].Matches {
			m := &groups[i].Matches[j]
			if m.Hop == nil || m.Route.Optional {
				continue
			}
			switch m.Hop.Scheme {
			case "null":
				return nil, true
			case "relay-conn":
				if c := b.named(m.Hop.Name); c != nil && c.domain == domain {
					return c, false
				}
			case "relay":
				if names > 0 && strings.HasPrefix(m.Hop.Name, domain+"/") {
					if !b.aliased.Load() {
						b.aliased.Store(true)
					}
					if to, discards := b.follow(s, m.Hop.Text, domain, room, names-1); to != nil || discards {
						return to, discards
					}
				}
			}
		}
	}
	return nil, false
}

// stands tells whether rows of its own or of operators name a connection for a topic, so that it is in line where another one is active.
func (b *Broker) stands(s *routetable.Snapshot, c *Conn, address, pattern string, room *[]routetable.Group) bool {
	if s.Find(pattern, c.address, c.origin) != nil || s.Find(pattern, c.address, routetable.OriginOperator) != nil {
		return true
	}
	groups := s.LookupInto((*room)[:0], address, nil)
	defer clear(groups)
	for i := range groups {
		for j := range groups[i].Matches {
			if h := groups[i].Matches[j].Hop; h != nil && h.Text == c.address {
				return true
			}
		}
	}
	return false
}

// returnPath is where an address that a server answers to leads, as it was checked. Owned by the reader.
type returnPath struct {
	plan *plan
	to   *Conn // nil: that connection has ended
}

// returnTo gives the connection that an address was issued to; ok is false where it was not, for the topic.
func (c *Conn) returnTo(raw []byte, p *plan) (to *Conn, ok bool) {
	if r, known := c.returns[string(raw)]; known && r.plan == p {
		if r.to.gone.Load() {
			return nil, true
		}
		return r.to, true
	}
	text, escaped := raw[1:len(raw)-1], false
	for _, b := range text {
		escaped = escaped || b == '\\'
	}
	if escaped {
		text, _ = unescape(nil, text)
	}
	serial, ok := c.b.mint.connection(text, c.domain, p.topic)
	if !ok {
		return nil, false
	}
	if to = c.b.numbered(serial); to == nil {
		return nil, true
	}
	if c.returns == nil || len(c.returns) >= maxReturn {
		c.returns = map[string]returnPath{}
	}
	c.returns[string(raw)] = returnPath{p, to}
	return to, true
}
