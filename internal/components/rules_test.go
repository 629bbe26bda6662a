package components

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// vector is a case of testdata/components/rules.yaml.
type vector struct {
	ID     string         `yaml:"id"`
	Vars   map[string]any `yaml:"vars"`
	Routes []struct {
		ID       int     `yaml:"id"`
		Rule     string  `yaml:"rule"`
		Resolved *string `yaml:"resolved"`
		Priority *int    `yaml:"priority"`
		Error    string  `yaml:"error"`
	} `yaml:"routes"`
	Request vectorRequest `yaml:"request"`
	Expect  struct {
		Match        bool              `yaml:"match"`
		RouteID      int               `yaml:"route_id"`
		Params       map[string]string `yaml:"params"`
		PathSuffix   *string           `yaml:"path_suffix"`
		RequiredVars []string          `yaml:"required_vars"`
		Event        *vectorEvent      `yaml:"event"`
	} `yaml:"expect"`
}

type vectorRequest struct {
	Method  string         `yaml:"method"`
	URL     string         `yaml:"url"`
	Host    string         `yaml:"host"`
	Headers [][2]string    `yaml:"headers"`
	Type    string         `yaml:"type"`
	Values  map[string]any `yaml:"values"`
}

type vectorEvent struct {
	Type    string `yaml:"type"`
	Context struct {
		Environment string `yaml:"virtual_environment"`
		Deployment  string `yaml:"app_deployment"`
	} `yaml:"context"`
	Values struct {
		Header map[string][]string `yaml:"header"`
		Query  map[string][]string `yaml:"queryParam"`
		Host   string              `yaml:"host"`
		Method string              `yaml:"method"`
		Path   string              `yaml:"path"`
		URL    string              `yaml:"url"`
	} `yaml:"values"`
}

func vectors(t testing.TB) []vector {
	text, err := os.ReadFile("../../testdata/components/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := yaml.Unmarshal(text, &file); err != nil || len(file.Vectors) < 100 {
		t.Fatalf("%d vectors, %v", len(file.Vectors), err)
	}
	return file.Vectors
}

// event is the vector's event.
func (q *vectorRequest) event(t *testing.T) Request {
	if q.URL == "" {
		return Request{View: View{Type: q.Type}}
	}
	u, err := url.Parse(q.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := &http.Request{Method: q.Method, URL: u, Host: u.Host, Header: http.Header{}}
	if q.Host != "" {
		r.Host = q.Host
	}
	for _, h := range q.Headers {
		r.Header.Add(h[0], h[1])
	}
	return MapRequest(r)
}

func TestRuleVectors(t *testing.T) {
	for _, v := range vectors(t) {
		t.Run(v.ID, func(t *testing.T) {
			vars := Vars{}
			for name, x := range v.Vars {
				var err error
				if vars[name], err = valueOf(x); err != nil {
					t.Fatal(err)
				}
			}
			rules := v.compile(t, vars)
			set, err := NewRuleSet(rules)
			if err != nil {
				t.Fatal(err)
			}
			v.check(t, rules, set)
		})
	}
}

// compile compiles the rules of the vector that are not refused, and checks what each comes to.
func (v *vector) compile(t *testing.T, vars Vars) (rules []*Rule) {
	for _, want := range v.Routes {
		r, err := CompileRule(want.ID, want.Rule, vars)
		if want.Error != "" {
			stage := strings.Replace(want.Error, "panic", StageRuleParse, 1)
			var refused *RuleError
			if !errors.As(err, &refused) || refused.Stage != stage || refused.ID != want.ID {
				t.Errorf("%s: got %v, want %s", want.Rule, err, stage)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", want.Rule, err)
			continue
		}
		if want.Resolved != nil && r.Resolved != *want.Resolved {
			t.Errorf("%s: resolved to %s, want %s", want.Rule, r.Resolved, *want.Resolved)
		}
		if want.Priority != nil && r.Priority != *want.Priority {
			t.Errorf("%s: priority %d, want %d", want.Rule, r.Priority, *want.Priority)
		}
		rules = append(rules, r)
	}
	return rules
}

func (v *vector) check(t *testing.T, rules []*Rule, set *RuleSet) {
	q := v.Request.event(t)
	if want := v.Expect.Event; want != nil {
		got := *want
		got.Type, got.Context.Environment, got.Context.Deployment = q.Type, q.Context.Environment, q.Context.Deployment
		x := &got.Values
		x.Host, x.Method, x.Path, x.URL, x.Header, x.Query = q.Host, q.Method, q.Path, q.URL, q.Header, q.Query
		if x.Query == nil {
			x.Query = map[string][]string{}
		}
		if !reflect.DeepEqual(got, *want) {
			t.Errorf("the event: got %+v, want %+v", got, *want)
		}
	}
	var required []string
	for _, r := range rules {
		for _, name := range r.Required {
			if !slices.Contains(required, name) {
				required = append(required, name)
			}
		}
	}
	if want := v.Expect.RequiredVars; want != nil && !slices.Equal(required, want) {
		t.Errorf("required %v, want %v", required, want)
	}
	r, f, ok := set.Match(&q.View)
	if ok != v.Expect.Match {
		t.Fatalf("match: got %v, want %v", ok, v.Expect.Match)
	}
	if !ok {
		return
	}
	params := map[string]string{}
	for _, c := range f.Params {
		params[c.Name] = c.Value
	}
	if r.ID != v.Expect.RouteID || len(params)+len(v.Expect.Params) > 0 && !reflect.DeepEqual(params, v.Expect.Params) {
		t.Errorf("got route %d with %v, want %d with %v", r.ID, params, v.Expect.RouteID, v.Expect.Params)
	}
	if want := v.Expect.PathSuffix; want != nil && (!f.HasSuffix || f.Suffix != *want) || want == nil && f.HasSuffix {
		t.Errorf("suffix %q, %v, want %v", f.Suffix, f.HasSuffix, want)
	}
}

// What the observed matcher gets wrong is put right here.
func TestRulesDecidedOtherwise(t *testing.T) {
	for _, c := range []struct {
		name, rule, url string
		match           bool
		params, suffix  string
	}{
		{"the root by Path", "Path(`/`)", "http://h/", true, "map[]", ""},
		{"a quantifier", "Path(`/o/{id:[0-9]{2}}`)", "http://h/o/42", true, "map[id:42]", ""},
		{"a quantifier with two bounds", "Path(`/o/{id:[0-9]{2,3}}/x`)", "http://h/o/4242/x", false, "map[]", ""},
		{"colons", "Path(`/t/{h:[0-9]+:[0-9]+}`)", "http://h/t/12:30", true, "map[h:12:30]", ""},
		{"alternatives are grouped", "Path(`/{lang:en|de}/x`)", "http://h/english/x", false, "map[]", ""},
		{"an array in a path fits", "Path(`/{{.Vars.list}}/x`)", "http://h/a.b/x", true, "map[]", ""},
		{"an array in a path fits nothing else", "Path(`/{{.Vars.list}}/x`)", "http://h/axb/x", false, "map[]", ""},
		{"an array in a host", "Host(`{{.Vars.list}}.h`)", "http://c.h/", true, "map[]", ""},
		{"a variable that is missing", "Path(`/{{.Vars.none}}`)", "http://h/%3Cnil%3E", false, "map[]", ""},
		{"what a failed alternative took is not kept", "Path(`/{x}`) && Method(`PUT`) || Path(`/{y}`)", "http://h/1", true, "map[y:1]", ""},
		{"what a negated test took is not kept", "!(PathPrefix(`/{x}`) && Method(`PUT`))", "http://h/1", true, "map[]", ""},
		{"the suffix of a failed alternative", "PathPrefix(`/a`) && Method(`PUT`) || Path(`/a/b`)", "http://h/a/b", true, "map[]", ""},
		{"a comment", "Path(`/a`) /* why */ && All()", "http://h/a", true, "map[]", ""},
		{"two paths", "Path(`/a`) || PathPrefix(`/b`)", "http://h/b/c/d", true, "map[]", "c/d"},
		{"stars and percent signs", "PathPrefix(`/a*b%`)", "http://h/a*b%25/c", true, "map[]", "c"},
		{"a star is no wildcard", "PathPrefix(`/a*b`)", "http://h/axb", false, "map[]", ""},
		{"a backslash", "Path(`/a\\b`)", "http://h/a%5Cb", true, "map[]", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := CompileRule(0, c.rule, Vars{"list": []string{"a.b", "c"}})
			if err != nil {
				t.Fatal(err)
			}
			set, err := NewRuleSet([]*Rule{r})
			if err != nil {
				t.Fatal(err)
			}
			q := (&vectorRequest{Method: "GET", URL: c.url}).event(t)
			_, f, ok := set.Match(&q.View)
			params := map[string]string{}
			for _, p := range f.Params {
				params[p.Name] = p.Value
			}
			if ok != c.match || fmt.Sprint(params) != c.params || f.Suffix != c.suffix {
				t.Errorf("got %v %v %q", ok, params, f.Suffix)
			}
		})
	}
	for _, text := range []string{"Path(`/o/x{id}`)", "Path(`/o/{id}x`)", "Path(`/{a}{b}`)", "Path(`/{a:(}`)", "Any()", "Path('a')", "Path(`/a`) & All()",
		"{{range .Vars.l}}{{range $.Vars.l}}{{end}}{{end}}", "{{range 1000000000}}{{end}}", `{{define "x"}}{{template "x"}}{{end}}{{template "x"}}`, strings.Repeat("x", maxRule+1)} {
		if _, err := CompileRule(0, text, nil); err == nil {
			t.Errorf("%.60s: not refused", text)
		}
	}
}

func TestConflicts(t *testing.T) {
	var rules []*Rule
	for i, text := range []string{"Path(`/{{.Vars.a}}`)", "All()", "Path(`/x`)", "Path(`/{{.Vars.none}}`)", "Path(`/{{.Vars.none}}`)"} {
		r, err := CompileRule(i, text, Vars{"a": "x"})
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	set, err := NewRuleSet(rules)
	if err != nil || len(set.Conflicts) != 1 || set.Conflicts[0].First.ID != 0 || set.Conflicts[0].Second.ID != 2 {
		t.Errorf("got %+v, %v", set.Conflicts, err)
	}
	q := (&vectorRequest{Method: "GET", URL: "http://h/x"}).event(t)
	if r, _, ok := set.Match(&q.View); !ok || r.ID != 0 {
		t.Errorf("got %+v, %v: the first of two equal rules takes the event", r, ok)
	}
}

// stupid finds the rule by trying all.
func stupid(rules []*Rule, v *View) *Rule {
	var best *Rule
	for _, r := range rules {
		if len(r.Missing) == 0 && r.when.Match(v.property) && (best == nil || r.Priority > best.Priority) {
			best = r
		}
	}
	return best
}

// Whatever is a rule finds the event that it fits by its patterns, and no text does harm.
func FuzzRule(f *testing.F) {
	for _, v := range vectors(f) {
		for _, r := range v.Routes {
			f.Add(r.Rule, v.Request.URL)
		}
	}
	f.Fuzz(func(t *testing.T, text, address string) {
		r, err := CompileRule(0, text, Vars{"sub": "qa", "hosts": []string{"a", "b"}, "n": 3.0, "b": true, "alt": "(a|b)", "rule": "Path(`/qa`)"})
		if err != nil {
			return
		}
		all, err := CompileRule(1, "All()", nil)
		if err != nil {
			t.Fatal(err)
		}
		rules := []*Rule{r, all}
		set, err := NewRuleSet(rules)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		v := &View{Type: typeHTTP, Method: "GET", Path: address, HasMethod: true, HasPath: true}
		if u, err := url.Parse(address); err == nil && u.Host != "" {
			v.Host, v.HasHost, v.Path, v.Query = u.Host, true, u.Path, u.Query()
		}
		if len(v.Path) > 60<<10 {
			return
		}
		want := stupid(rules, v)
		got, _, _ := set.Match(v)
		if got != want {
			t.Errorf("%q on %q: got %+v, want %+v", text, v.Path, got, want)
		}
	})
}

// A request finds its rule among 10 000, each with a literal path prefix of its own.
func BenchmarkMatchOf10000(b *testing.B) {
	const prefix, all = "PathPrefix(`/shop-%d/jobs`)", "Type(`http`) && Method(`GET`) && PathPrefix(`/shop-%d/jobs/{job:[a-z0-9]+}`)"
	for _, c := range []struct {
		name, form string
		used       int // of the routes: with all of them each request waits for memory some twenty times
	}{{"prefix/used=100", prefix, 100}, {"prefix/used=10000", prefix, 10_000}, {"all/used=100", all, 100}, {"all/used=10000", all, 10_000}} {
		b.Run(c.name, func(b *testing.B) {
			set, views := thousands(b, c.form)
			views = views[:c.used]
			f, snapshot := NewFinder(), set.table.Snapshot()
			for i := range views { // the table makes its rows when they are first found
				f.Find(snapshot, "web://", &views[i])
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, ok := f.Find(snapshot, "web://", &views[i%len(views)]); !ok {
					b.Fatal("not found")
				}
				i += 7919
			}
		})
	}
}

// thousands are 10 000 rules, and an event for each.
func thousands(t testing.TB, form string) (*RuleSet, []View) {
	var rules []*Rule
	var views []View
	for i := range 10_000 {
		r, err := CompileRule(i, fmt.Sprintf(form, i), nil)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
		views = append(views, View{Type: typeHTTP, Method: "GET", Path: fmt.Sprintf("/shop-%d/jobs/a17/log", i), HasMethod: true, HasPath: true})
	}
	set, err := NewRuleSet(rules)
	if err != nil {
		t.Fatal(err)
	}
	return set, views
}
