package components

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Problem is what keeps a deployment from working in an environment.
type Problem struct {
	Causes  []Cause `yaml:"causes"`
	Message string  `yaml:"message"`
	Type    string  `yaml:"type"`
}

// Cause is where a problem comes from.
type Cause struct {
	Kind               string `yaml:"kind"`
	Name               string `yaml:"name"`
	ObservedGeneration int    `yaml:"observedGeneration,omitempty"`
	Path               string `yaml:"path,omitempty"`
	Value              string `yaml:"value,omitempty"`
}

// The types of problems.
const (
	varNotFound        = "VarNotFound"
	varWrongType       = "VarWrongType"
	dependencyNotFound = "DependencyNotFound"
	dependencyInvalid  = "DependencyInvalid"
	parseError         = "ParseError"
	routeConflict      = "RouteConflict"
)

// problemText is problems as YAML.
func problemText(list []Problem) string {
	text, err := yaml.Marshal(list)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// finding collects the problems of a deployment in an environment.
type finding struct {
	adapters   map[string]*HTTPAdapter
	deployment string
	d          *Deployment
	vars       Vars
	secrets    map[string]Secret
	found      []Problem
}

func (f *finding) add(kind, message string, c Cause) {
	f.found = append(f.found, Problem{[]Cause{c}, message, kind})
}

// at is a cause in the deployment.
func (f *finding) at(component, rest string) Cause {
	return Cause{Kind: "AppDeployment", Name: f.deployment, ObservedGeneration: 1, Path: "$.spec.components." + component + "." + rest}
}

// problems are those of a deployment in an environment, in a fixed order.
func (f *finding) problems(rules map[string][]*Rule) []Problem {
	used := map[string]bool{}
	for _, name := range sortedKeys(f.d.Components) {
		c := f.d.Components[name]
		f.schema(name, c)
		for i, r := range rules[name] {
			for _, v := range r.Missing {
				v = strings.TrimPrefix(v, "Vars.")
				at := f.at(name, fmt.Sprintf("routes[%d].%s", i, v))
				f.add(varNotFound, fmt.Sprintf("variable %q is missing", v), at)
			}
		}
		f.dependencies(name, c, used)
	}
	for _, name := range sortedKeys(used) {
		f.adapter(name, f.adapters[name])
	}
	return f.found
}

func (f *finding) schema(name string, c *Component) {
	for _, v := range sortedKeys(c.EnvVarSchema) {
		s := c.EnvVarSchema[v]
		at := f.at(name, "envVarSchema."+v)
		x, there := f.vars[v]
		switch {
		case !there && s.Required:
			f.add(varNotFound, fmt.Sprintf("variable %q is missing", v), at)
		case there && !hasType(x, s.Type):
			at.Value = kindOf(x)
			f.add(varWrongType, fmt.Sprintf("variable %q is of type %s, not %s", v, kindOf(x), s.Type), at)
		}
	}
}

// kindOf is the type of a variable as schemas call it.
func kindOf(v Value) string {
	switch v.(type) {
	case bool:
		return "Boolean"
	case float64:
		return "Number"
	case []string, []float64:
		return "Array"
	}
	return "String"
}

func hasType(v Value, want string) bool {
	return want == "" || want == "String" || strings.EqualFold(kindOf(v), want)
}

func (f *finding) dependencies(name string, c *Component, used map[string]bool) {
	for _, dep := range sortedKeys(c.Dependencies) {
		at := f.at(name, "dependencies."+dep)
		switch kind := c.Dependencies[dep].Type; kind {
		case typeKubeFox, "":
			if f.d.Components[dep] == nil {
				f.add(dependencyNotFound, fmt.Sprintf("component %q is not part of the deployment", dep), at)
			}
		case typeHTTPAdapter:
			if f.adapters[dep] == nil {
				f.add(dependencyNotFound, fmt.Sprintf("there is no HTTPAdapter %q", dep), at)
			} else {
				used[dep] = true
			}
		default:
			at.Value = kind
			f.add(dependencyInvalid, fmt.Sprintf("a dependency of type %q is not supported", kind), at)
		}
	}
}

// adapter checks the templates of an adapter that the deployment uses.
func (f *finding) adapter(name string, a *HTTPAdapter) {
	f.adapterText(name, "$.spec.url", a.URL)
	for _, h := range sortedKeys(a.Headers) {
		f.adapterText(name, "$.spec.headers."+h, a.Headers[h])
	}
}

func (f *finding) adapterText(name, path, text string) {
	at := Cause{Kind: "HTTPAdapter", Name: name, ObservedGeneration: 1, Path: path}
	t, err := ParseTemplate(text)
	if err != nil {
		f.add(parseError, err.Error(), at)
		return
	}
	for _, v := range t.Required() {
		_, secret := f.secrets[strings.TrimPrefix(v, "Secrets.")]
		if !f.vars.has(v) && !(secret && strings.HasPrefix(v, "Secrets.")) {
			f.add(varNotFound, fmt.Sprintf("variable %q is missing", v), at)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
