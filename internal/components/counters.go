package components

import (
	"strings"
	"sync/atomic"
)

// counters are told by Counters.
type counters struct {
	requests, events, connects, refused atomic.Uint64
	failures                            [len(failureCodes)]atomic.Uint64 // as in failureCodes
}

// failureCodes are the codes of failures, in the order in which they are counted; the last is also for those that are not known.
var failureCodes = [...]int{
	codeBrokerMismatch, codeBrokerUnavailable, codeComponentGone, codeComponentMismatch, codeContentTooLarge, codeInvalid, codeNotFound,
	codeRouteNotFound, codeTimeout, codeUnauthorized, codeUnknownContentType, codeUnsupportedAdapter, codeUnexpected,
}

// fail counts a request, of HTTP or of a component, that is answered with a failure. Who passes on a failure that came as an event does not
// count it again.
func (c *counters) fail(f *Failure) {
	for i, code := range failureCodes {
		if f.Code == code || i == len(failureCodes)-1 {
			c.failures[i].Add(1)
			return
		}
	}
}

// Counters are what the broker counts, by name.
func (b *Broker) Counters() map[string]uint64 {
	c := &b.count
	b.streams.mu.Lock()
	open := len(b.streams.all)
	b.streams.mu.Unlock()
	all := map[string]uint64{
		"componentStreams": uint64(open), "componentConnects": c.connects.Load(), "componentsRefused": c.refused.Load(),
		"componentRequests": c.requests.Load(), "componentEvents": c.events.Load(),
	}
	for i, code := range failureCodes {
		all["componentFailed"+camel(failures[code].Msg)] = c.failures[i].Load()
	}
	return all
}

// camel makes "route not found" RouteNotFound.
func camel(words string) string {
	var b strings.Builder
	for word := range strings.FieldsSeq(words) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}
