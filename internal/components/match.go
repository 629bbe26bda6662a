package components

import (
	"strings"
	"unsafe"

	"github.com/fingerpost/fingerpost/routetable"
)

// space is the beginning of the addresses of the events of a deployment in an environment. Events that name neither are in the space
// of both empty, where what is released is found.
func (k contextKey) space() string { return "web:" + k.name() + "/" }

// Found is the route that an event goes to.
type Found struct {
	Row       *routetable.Route
	Params    []routetable.Capture // what its placeholders took: of a name that occurs twice the last counts
	Suffix    string               // what a PathPrefix left of the path
	HasSuffix bool
}

// Finder is room to look for the routes of events, one after the other. Not for concurrent use.
type Finder struct {
	view     *View
	property func(string) (string, bool) // of view
	address  []byte
	groups   []routetable.Group
	params   []routetable.Capture
}

// NewFinder makes a finder.
func NewFinder() *Finder {
	f := &Finder{}
	f.property = func(name string) (string, bool) { return f.view.property(name) }
	return f
}

// Find looks for the first row of the space that the event fits. What is found is good until the next Find.
func (f *Finder) Find(s *routetable.Snapshot, space string, v *View) (found Found, ok bool) {
	f.view = v
	f.address = append(append(f.address[:0], space...), strings.Trim(v.Path, "/")...)
	address := unsafe.String(unsafe.SliceData(f.address), len(f.address)) // a lookup keeps no address: it copies it
	f.groups = s.LookupInto(f.groups[:0], address, f.property)
	for _, g := range f.groups {
		for i := range g.Matches {
			if r := g.Matches[i].Route; !r.Optional && r.Predicate() != nil {
				found.Row = r
				found.Params, found.Suffix, found.HasSuffix = r.Predicate().Capture(f.params[:0], f.property)
				f.params = found.Params
				return found, true
			}
		}
	}
	return found, false
}

// RuleSet is rules in a table of their own, to try them out.
type RuleSet struct {
	Conflicts []Conflict

	table *routetable.Table
	rules map[string]*Rule // by the origin of their rows
}

// NewRuleSet makes a table of rules; where they have one priority the earlier is tried first.
func NewRuleSet(rules []*Rule) (*RuleSet, error) {
	s := &RuleSet{Conflicts: conflicts(rules), table: routetable.New(), rules: map[string]*Rule{}}
	var ops []routetable.Op
	for i, r := range rules {
		origin := originOf("rules", "", "", i)
		s.rules[origin] = r
		for _, row := range r.rows(contextKey{}.space(), "comp:rules", origin) {
			ops = append(ops, routetable.Op{Verb: routetable.VerbAdd, Route: row})
		}
	}
	_, err := s.table.Apply(ops...)
	return s, err
}

// Match tells which rule takes the event.
func (s *RuleSet) Match(v *View) (*Rule, Found, bool) {
	f, ok := NewFinder().Find(s.table.Snapshot(), contextKey{}.space(), v)
	if !ok {
		return nil, f, false
	}
	return s.rules[f.Row.Origin], f, true
}

// View is what rules see of an event. An event that came by no HTTP request has no method, host or path.
type View struct {
	Type         string
	Target       string // the name of the component that the event is for; empty: any
	Method, Host string
	Path         string // decoded
	Header       map[string][]string
	Query        map[string][]string

	HasMethod, HasHost, HasPath bool
}

// property is what the predicates of routetable.CompileWhen ask for.
func (v *View) property(name string) (string, bool) {
	switch name {
	case "type":
		return v.Type, true
	case "target":
		return v.Target, v.Target != ""
	case "method":
		return v.Method, v.HasMethod
	case "host":
		return v.Host, v.HasHost
	case "path":
		return v.Path, v.HasPath
	}
	values := v.Query
	key, ok := strings.CutPrefix(name, "query:")
	if !ok {
		values = v.Header
		key, ok = strings.CutPrefix(name, "header:")
	}
	if list := values[key]; ok && len(list) > 0 {
		return routetable.JoinValues(list), true
	}
	return "", false
}

// set takes a value of an event that rules see.
func (v *View) set(name string, x Value) {
	switch x := x.(type) {
	case string:
		switch name {
		case "method":
			v.Method, v.HasMethod = x, true
		case "host":
			v.Host, v.HasHost = x, true
		case "path":
			v.Path, v.HasPath = x, true
		}
	case map[string][]string:
		switch name {
		case "header":
			v.Header = x
		case "queryParam":
			v.Query = x
		}
	}
}
