package events

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/fingerpost/fingerpost/routetable"
)

// maxShareable bounds the types that may cross to other routers.
const maxShareable = 10_000

// handleTypes takes which types may cross to other routers: all that are named, or none.
func (c *conn) handleTypes() {
	f := &c.f
	var values []json.RawMessage
	if json.Unmarshal(f.shareable, &values) != nil {
		c.refuse(&c.dirty, f.ref, "bad_request", "shareable: a list of types is wanted")
		return
	}
	types := make([]string, 0, len(values))
	for _, value := range values {
		t, err := typeOf(value)
		if err != nil {
			c.refuse(&c.dirty, f.ref, "bad_request", "shareable: "+err.Error())
			return
		}
		if !allowed(c.account.Shareable, addressOf(string(t), false)) {
			c.refuse(&c.dirty, f.ref, "not_shareable", "not allowed to be shareable: "+string(t))
			return
		}
		types = append(types, string(t))
	}
	if !c.r.share(types) {
		c.refuse(&c.dirty, f.ref, "bad_request", "there are too many shareable types")
		return
	}
	c.answer(&c.dirty, "ok", f.ref, "")
}

// share notes types that may cross to other routers.
func (r *Router) share(types []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh := 0
	for _, t := range types {
		if !r.shareable[t] {
			fresh++
		}
	}
	if len(r.shareable)+fresh > maxShareable {
		return false
	}
	for _, t := range types {
		r.shareable[t] = true
	}
	r.wanted()
	return true
}

// crosses tells whether an event may come by a link: its type is shareable here, or a router behind another link demands it. Called under the lock.
func (r *Router) crosses(from *conn, e *event) bool {
	if r.shareable[string(e.typ)] {
		return true
	}
	if k := r.kinds[direction(e.response)][string(e.typ)]; k != nil {
		return slices.ContainsFunc(r.planOf(k).links, func(c *conn) bool { return c != from })
	}
	r.groups = r.table.Snapshot().LookupInto(r.groups[:0], addressOf(string(e.typ), e.response), nil)
	for i := range r.groups {
		for j := range r.groups[i].Matches {
			if h := r.groups[i].Matches[j].Hop; isLink(h) && h.Name != from.key {
				return true
			}
		}
	}
	return false
}

// subscriptions gives what the table leads to a component.
func subscriptions(s *routetable.Snapshot, key string) (requests, responses []string) {
	requests, responses = []string{}, []string{}
	for _, row := range s.OfOrigin("event:" + key) {
		name, ok := routetable.LiteralOf(row.Pattern)
		if t, isRequest := strings.CutPrefix(name, "event:req/"); ok && isRequest {
			requests = append(requests, t)
		} else if t, isResponse := strings.CutPrefix(name, "event:res/"); ok && isResponse {
			responses = append(responses, t)
		}
	}
	slices.Sort(requests)
	slices.Sort(responses)
	return requests, responses
}
