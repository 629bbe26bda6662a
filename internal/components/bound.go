package components

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/fingerpost/fingerpost/internal/components/proto"
	"github.com/fingerpost/fingerpost/routetable"
)

// bound is a deployment in an environment: rules resolved, problems found. It is immutable.
type bound struct {
	contextKey

	d        *Deployment
	app      string // of the deployment, cleaned
	vars     Vars
	secrets  map[string]Secret
	adapters map[string]*HTTPAdapter
	problems []Problem
	invalid  error // a rule was refused
	routes   []*boundRoute
	env      map[string][]proto.Entry // what each component is told of the environment, by its name
}

// boundRoute is a route of a component, in a deployment and an environment.
type boundRoute struct {
	*Rule
	in     *bound
	name   string // of the component
	when   string // of its rows
	target proto.Component
}

// bind makes a deployment work in an environment. notFound says which of the two is not there, or what one of them names.
func (o *Objects) bind(k contextKey) (b *bound, notFound error) {
	ve := o.VirtualEnvironments[k.environment]
	if ve == nil {
		return nil, fmt.Errorf("VirtualEnvironment %q not found", k.environment)
	}
	d := o.Deployments[k.deployment]
	if d == nil {
		return nil, fmt.Errorf("AppDeployment %q not found", k.deployment)
	}
	e := o.Environments[ve.Environment]
	if e == nil {
		return nil, fmt.Errorf("Environment %q not found", ve.Environment)
	}
	b = &bound{contextKey: k, d: d, app: cleanName(d.App), adapters: o.HTTPAdapters, env: map[string][]proto.Entry{}}
	if k.manifest == "" {
		b.vars, _ = varsOf(mergedMap(e.Vars, ve.Vars)) // checked when they were read
		b.secrets = mergedMap(e.Secrets, ve.Secrets)
	} else {
		m := o.Manifests[k.manifest]
		if m == nil {
			return nil, fmt.Errorf("ReleaseManifest %q not found", k.manifest)
		}
		b.vars, _ = varsOf(m.Vars)
		b.secrets, b.adapters = m.Secrets, m.HTTPAdapters
	}
	rules := b.bindRoutes()
	f := finding{adapters: b.adapters, deployment: k.deployment, d: d, vars: b.vars, secrets: b.secrets}
	b.problems = f.problems(rules)
	return b, nil
}

// bindRoutes compiles the routes of all components, in the order of the components' names.
func (b *bound) bindRoutes() map[string][]*Rule {
	rules := map[string][]*Rule{}
	for _, name := range sortedKeys(b.d.Components) {
		c := b.d.Components[name]
		target := b.d.id(name)
		for _, r := range c.Routes {
			rule, err := CompileRule(r.ID, r.Rule, b.vars)
			if err != nil {
				if b.invalid == nil {
					b.invalid = fmt.Errorf("component %s: %w", name, err)
				}
				continue
			}
			rules[name] = append(rules[name], rule)
			b.routes = append(b.routes, &boundRoute{Rule: rule, in: b, name: target.Name, target: target})
		}
		b.env[target.Name] = b.environmentOf(c)
	}
	return rules
}

// environmentOf is what a component is told of the environment: the variables of its schema, as JSON text; null is one that is not there.
func (b *bound) environmentOf(c *Component) []proto.Entry {
	var list []proto.Entry
	for _, name := range sortedKeys(c.EnvVarSchema) {
		text, err := json.Marshal(b.vars[name])
		if err != nil {
			text = []byte("null")
		}
		list = append(list, proto.Entry{Key: name, Value: text})
	}
	return list
}

// component finds a component of the deployment.
func (b *bound) component(name string) *Component {
	if c := b.d.Components[name]; c != nil {
		return c
	}
	for n, c := range b.d.Components {
		if cleanName(n) == name {
			return c
		}
	}
	return nil
}

// has reports whether a component is part of the deployment.
func (b *bound) has(c *proto.Component) bool {
	x := b.component(c.Name)
	return x != nil && c.App == b.app && x.Type == c.Type && x.Hash == c.Hash
}

// dependsOn reports whether some component of the deployment calls the adapter.
func (b *bound) dependsOn(kind, name string) bool {
	for _, c := range b.d.Components {
		if dep, ok := c.Dependencies[name]; ok && dep.Type == kind {
			return true
		}
	}
	return false
}

// rows are the rows of the routes, in a space, by origins of a kind. routes gets the route of each origin. Where the space is the context's own, an event
// that names its target finds that one's routes only.
func (b *bound) rows(kind, space string, routes map[string]*boundRoute) (rows []routetable.Route) {
	key := b.contextKey
	if kind == "release" {
		key.manifest = "" // an environment has one
	}
	for i, r := range b.routes {
		origin := originOf(kind, key.name(), r.target.Address(), i)
		more := r.Rule.rows(space, "comp:"+r.target.Address(), origin)
		if len(more) > 0 {
			routes[origin] = r
		}
		for j := range more {
			if kind == "context" {
				more[j].When = "(" + r.Resolved + ") && (!Property(`target`, `{}`) || Property(`target`, `" + r.name + "`))"
			}
			r.when = more[j].When
		}
		rows = append(rows, more...)
	}
	return rows
}

// route is that of a row; nil where the row is none of these.
func (r *released) route(row *routetable.Route) *boundRoute { return routeOf(r.routes, row) }

// routeOf is the route of a row. One that has the row's origin and another rule came later.
func routeOf(routes map[string]*boundRoute, row *routetable.Route) *boundRoute {
	if row == nil {
		return nil
	}
	if r := routes[row.Origin]; r != nil && r.when == row.When {
		return r
	}
	return nil
}

// released is what requests that name no context find.
type released struct {
	rows     []routetable.Route
	routes   map[string]*boundRoute // by origin
	problems []Problem              // apps that are left out, equal rules, and what contexts lack
}

// release binds all that is released: environment by environment, app by app, in the order of their names. An app with a rule that is refused, a deployment that
// is not available or an object that is not there is left out, and told.
func (o *Objects) release(bind func(contextKey) (*bound, error)) *released {
	r := &released{routes: map[string]*boundRoute{}}
	first := map[string]*boundRoute{}
	for _, ve := range sortedKeys(o.VirtualEnvironments) {
		releases := o.releasesOf(ve)
		for _, app := range sortedKeys(releases) {
			x := releases[app]
			name := x.AppDeployment
			b, err := bind(contextKey{ve, name, o.VirtualEnvironments[ve].Manifest})
			switch {
			case err != nil:
			case x.Version == "" && strings.EqualFold(o.Environments[o.VirtualEnvironments[ve].Environment].Policy, "stable"):
				err = errors.New("a stable environment needs the version of an app")
			case b.invalid != nil:
				err = b.invalid
			case !b.d.available():
				err = fmt.Errorf("AppDeployment %q is not available", name)
			}
			if err != nil {
				at := Cause{Kind: "VirtualEnvironment", Name: ve, Path: "$.spec.release.apps." + app, Value: name}
				r.problems = append(r.problems, Problem{[]Cause{at}, err.Error(), "ReleaseInvalid"})
				continue
			}
			r.problems = append(r.problems, b.problems...)
			r.conflicts(b, first)
			r.rows = append(r.rows, b.rows("release", contextKey{}.space(), r.routes)...)
		}
	}
	return r
}

// conflicts notes the routes of b whose rule an earlier route has already.
func (r *released) conflicts(b *bound, first map[string]*boundRoute) {
	for _, x := range b.routes {
		if len(x.Missing) > 0 {
			continue
		}
		o := first[x.Resolved]
		if o == nil {
			first[x.Resolved] = x
			continue
		}
		r.problems = append(r.problems, Problem{[]Cause{routeCause(o), routeCause(x)}, "the rules are equal: the first takes all", routeConflict})
	}
}

func routeCause(r *boundRoute) Cause {
	return Cause{
		Kind: "AppDeployment", Name: r.in.deployment, ObservedGeneration: 1, Value: r.in.environment + ": " + r.Resolved,
		Path: fmt.Sprintf("$.spec.components.%s.routes[%d]", r.name, r.ID),
	}
}

// cleanName is a name as identities have it: the base of a path, in lower case, "-" for all but a to z and 0 to 9, none of it at the ends, at
// most 63 characters.
func cleanName(s string) string {
	if s == "" {
		return ""
	}
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(path.Base(s)))
	clean = strings.TrimPrefix(strings.TrimSuffix(clean, "-"), "-")
	return clean[:min(len(clean), 63)]
}
