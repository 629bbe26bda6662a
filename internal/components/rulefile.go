package components

import (
	"fmt"
	"net/http"
	"net/url"

	"gopkg.in/yaml.v3"
)

// RuleFile is a file of rules and variables, to try them out.
type RuleFile struct {
	Vars   Vars
	Routes []RuleText
}

// RuleText is a route as written.
type RuleText struct {
	ID   int    `yaml:"id"`
	Rule string `yaml:"rule"`
}

// Compile compiles the rules, in their order. The error is a *RuleError.
func (f *RuleFile) Compile() ([]*Rule, error) {
	rules := make([]*Rule, 0, len(f.Routes))
	for _, t := range f.Routes {
		r, err := CompileRule(t.ID, t.Rule, f.Vars)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// ParseRuleFile reads {vars: {...}, routes: [{id: 0, rule: "..."}]}. Other keys are not looked at.
func ParseRuleFile(text []byte) (*RuleFile, error) {
	var file struct {
		Vars   map[string]any `yaml:"vars"`
		Routes []RuleText     `yaml:"routes"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	f := &RuleFile{Vars: Vars{}, Routes: file.Routes}
	for name, x := range file.Vars {
		v, err := valueOf(x)
		if err != nil {
			return nil, fmt.Errorf("vars.%s: %w", name, err)
		}
		f.Vars[name] = v
	}
	return f, nil
}

// EventFile is an event to try rules on: a request, or a type with values.
type EventFile struct {
	Method  string         `yaml:"method"`
	URL     string         `yaml:"url"`
	Host    string         `yaml:"host"` // where it is not the URL's
	Headers [][]string     `yaml:"headers"`
	Type    string         `yaml:"type"` // of a request: where neither query nor headers name one
	Values  map[string]any `yaml:"values"`
}

// ParseEventFile reads {method, url, host, headers: [[k, v]], type} or {type, values}. Other keys are not looked at.
func ParseEventFile(text []byte) (*View, error) {
	var e EventFile
	if err := yaml.Unmarshal(text, &e); err != nil {
		return nil, err
	}
	return e.View()
}

// View is what rules see of the event.
func (e *EventFile) View() (*View, error) {
	if e.URL != "" || e.Method != "" {
		r, err := e.request()
		if err != nil {
			return nil, err
		}
		q := MapRequest(r)
		if q.Type == typeHTTP && e.Type != "" {
			q.Type = e.Type
		}
		return &q.View, nil
	}
	v := &View{Type: e.Type}
	for name, x := range e.Values {
		value, err := valueOf(x)
		if err != nil {
			return nil, fmt.Errorf("values.%s: %w", name, err)
		}
		v.set(name, value)
	}
	return v, nil
}

func (e *EventFile) request() (*http.Request, error) {
	u, err := url.Parse(e.URL)
	if err != nil {
		return nil, err
	}
	r := &http.Request{Method: e.Method, URL: u, Host: u.Host, Header: http.Header{}}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	if e.Host != "" {
		r.Host = e.Host
	}
	for i, h := range e.Headers {
		if len(h) != 2 {
			return nil, fmt.Errorf("headers[%d]: write [name, value]", i)
		}
		if http.CanonicalHeaderKey(h[0]) == "Host" {
			r.Host = h[1]
			continue
		}
		r.Header.Add(h[0], h[1])
	}
	return r, nil
}
