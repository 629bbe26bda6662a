package components

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/fingerpost/fingerpost/internal/components/proto"
)

// routed is where an event goes: its target is in the event.
type routed struct {
	id      int64 // of the route; -1 the default handler
	env     []proto.Entry
	adapter *adapterCall // a place outside, to be called from here
}

// route checks an event and finds its target, which it puts into the event, as it does with the context of a request that named none.
//
// Rows and objects change in one step each, one after the other: an event that came between looks again.
//
// The checks and their order are those of the wire's description: life, source, target, context, then the objects that the context names.
func (b *Broker) route(e *proto.Event, how via, f *Finder) (routed, *Failure) {
	if failure := b.validate(e, how); failure != nil {
		return routed{}, failure
	}
	for {
		turn := b.turns.Load()
		r, failure := b.find(e, f)
		if failure != errMissed {
			return r, failure
		}
		if turn&1 == 0 && b.turns.Load() == turn {
			return b.unmatched(e)
		}
		b.awaitTurn()
	}
}

// awaitTurn returns when the change that is under way is done.
func (b *Broker) awaitTurn() {
	b.mu.Lock()
	defer b.mu.Unlock()
}

// errMissed says that no route of the rows as they are fits an event.
var errMissed = fail(codeRouteNotFound, "")

// unmatched is where an event goes that no route fits: one that names its target to the default handler of that one.
func (b *Broker) unmatched(e *proto.Event) (routed, *Failure) {
	if !e.HasTarget {
		return routed{}, errMissed
	}
	c, failure := b.context(contextOf(e))
	if failure != nil {
		return routed{}, failure
	}
	x := c.component(e.Target.Name)
	if x == nil {
		return routed{}, fail(codeComponentMismatch, "")
	}
	if e.Target.Hash == "" {
		e.Target.App, e.Target.Hash = c.app, x.Hash
	}
	return routed{id: -1, env: c.env[e.Target.Name]}, c.partners(b, e)
}

func contextOf(e *proto.Event) contextKey {
	return contextKey{e.Context.Environment, e.Context.Deployment, e.Context.Manifest}
}

// partners refuses an event whose source and target do not both belong to the context.
func (x *pairing) partners(b *Broker, e *proto.Event) *Failure {
	if !x.has(&e.Target) || !x.has(&e.Source) && !b.isAdapter(&e.Source) {
		return fail(codeComponentMismatch, "")
	}
	return nil
}

// find finds the target of an event; errMissed says that there is no route.
func (b *Broker) find(e *proto.Event, f *Finder) (routed, *Failure) {
	if e.Context.Environment == "" {
		return b.routeReleased(e, f)
	}
	c, failure := b.context(contextOf(e))
	if failure != nil {
		return routed{}, failure
	}
	if e.Category == proto.Response {
		if !c.has(&e.Target) && !b.isAdapter(&e.Target) {
			return routed{}, fail(codeComponentMismatch, "")
		}
		return routed{env: c.env[e.Target.Name]}, nil
	}
	if e.HasTarget && e.Target.Type != typeKubeFox {
		return b.routeAdapter(e, c)
	}
	r, failure := b.routeRules(e, c, f)
	if failure == nil {
		failure = c.partners(b, e)
	}
	return r, failure
}

func (b *Broker) validate(e *proto.Event, how via) *Failure {
	x := &e.Context
	switch {
	case e.TTL <= 0:
		return fail(codeTimeout, "")
	case !e.HasSource || !e.Source.IsComplete():
		return fail(codeInvalid, "event source is invalid")
	case e.Category == proto.Response && !(e.HasTarget && e.Target.IsComplete()):
		return fail(codeInvalid, "response target is missing required attribute")
	case how == viaNATS && e.Target.BrokerID != "" && e.Target.BrokerID != b.id.ID:
		return fail(codeBrokerMismatch, "")
	case how != viaNATS && e.HasTarget && e.Target != (proto.Component{}) && !e.Target.IsNameOnly() && !e.Target.IsComplete():
		return fail(codeInvalid, "event target is invalid")
	case x.Platform != b.now.Load().objects.Platform, (x.Environment == "") != (x.Deployment == ""), x.Manifest != "" && x.Environment == "":
		return fail(codeInvalid, "event context is invalid")
	case len(e.Content) > b.o.MaxEvent:
		return fail(codeContentTooLarge, "")
	}
	e.HasTarget = e.HasTarget && e.Target != proto.Component{}
	return nil
}

// routeReleased finds the target of a request that names no context, by what is released.
func (b *Broker) routeReleased(e *proto.Event, f *Finder) (routed, *Failure) {
	switch {
	case e.Category == proto.Response:
		return routed{}, fail(codeInvalid, "event context is invalid")
	case e.HasTarget:
		return routed{}, fail(codeInvalid, "event target is invalid")
	case !b.isAdapter(&e.Source):
		return routed{}, fail(codeInvalid, "genesis event source is not a genesis adapter")
	}
	found, ok := f.Find(b.core.Table().Snapshot(), "web://", viewOf(e))
	r := b.now.Load().released.route(found.Row)
	if !ok || r == nil {
		return routed{}, errMissed
	}
	if failure := r.in.failure(); failure != nil {
		return routed{}, failure
	}
	e.Context.Environment, e.Context.Deployment, e.Context.Manifest = r.in.environment, r.in.deployment, r.in.manifest
	return take(e, r, found), nil
}

// routeRules finds the target by the rules of the context; of an event that names its target by the rules of that one.
func (b *Broker) routeRules(e *proto.Event, c *pairing, f *Finder) (routed, *Failure) {
	v := viewOf(e)
	if e.HasTarget {
		v.Target = e.Target.Name
	}
	found, ok := f.Find(b.core.Table().Snapshot(), c.space(), v)
	if r := routeOf(c.routes, found.Row); ok && r != nil && (!e.HasTarget || e.Target.Hash == "" || e.Target.Hash == r.target.Hash) {
		replica := e.Target
		out := take(e, r, found)
		if replica.IsComplete() && replica.Hash == r.target.Hash {
			e.Target = replica
		}
		return out, nil
	}
	return routed{}, errMissed
}

// take gives the event the target of a route, and what its placeholders took.
func take(e *proto.Event, r *boundRoute, found Found) routed {
	e.Target, e.HasTarget = r.target, true
	for _, p := range found.Params {
		e.Params = setValue(e.Params, p.Name, jsonText(p.Value))
	}
	if found.HasSuffix {
		e.Values = setValue(e.Values, "pathSuffix", jsonText(found.Suffix))
	}
	return routed{id: int64(r.ID), env: r.in.env[r.name]}
}

// setValue sets a value. Of a key that occurs twice readers take the last: one that the sender gave is taken out.
func setValue(list []proto.Entry, key string, text []byte) []proto.Entry {
	list = slices.DeleteFunc(list, func(x proto.Entry) bool { return x.Key == key })
	return append(list, proto.Entry{Key: strings.Clone(key), Value: text})
}

// jsonText is a text as JSON.
func jsonText(s string) []byte { return appendJSON(make([]byte, 0, len(s)+2), s) }

// appendJSON appends a text as JSON.
func appendJSON(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, _ := json.Marshal(s) // a string is never refused
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// isAdapter reports whether a component is one that requests come in by: of the platform, or the listener here.
func (b *Broker) isAdapter(c *proto.Component) bool {
	if c.Type != typeHTTPAdapter {
		return false
	}
	if c.ID == b.web.ID || c.Name == b.web.Name && c.Hash == b.web.Hash {
		return true
	}
	for i := range b.now.Load().objects.Adapters {
		if a := &b.now.Load().objects.Adapters[i]; a.Type == c.Type && cleanName(a.Name) == c.Name && a.Hash == c.Hash {
			return true
		}
	}
	return false
}

// viewOf is what rules see of an event.
func viewOf(e *proto.Event) *View {
	if v, ok := e.View.(*View); ok {
		return v
	}
	v := &View{Type: e.Type}
	for _, x := range e.Values {
		switch x.Key {
		case "method", "host", "path", "header", "queryParam":
			if value, err := parseValue(x.Value); err == nil {
				v.set(x.Key, value)
			}
		}
	}
	return v
}
