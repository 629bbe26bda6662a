package ctl

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/internal/components"
)

func ruleCommand(r *run) *cobra.Command {
	c := &cobra.Command{
		Use:   "rule",
		Short: "try the rules of components' routes",
		Args:  arguments(cobra.ExactArgs(0)),
		RunE: func(*cobra.Command, []string) error {
			return usage("rule: give match: routectl rule match --help tells more")
		},
	}
	c.AddCommand(ruleMatchCommand(r))
	return c
}

// ruleQuestion is the flags of rule match.
type ruleQuestion struct {
	rules, request, event string
	headers               []string
}

func ruleMatchCommand(r *run) *cobra.Command {
	var q ruleQuestion
	c := &cobra.Command{
		Use:   "match --rules FILE (--request 'GET http://host/path' [--header 'K: V']... | --event FILE)",
		Short: "tell which component route takes a request or an event",
		Long: `Match compiles the rules of a file, {vars: {...}, routes: [{id: 0, rule: "..."}]}, and tells which route takes a request, or the event of a
file: {method, url, host, headers: [[k, v]], type} or {type, values}. It needs no router. The rule with the highest priority is tried first, of
equal ones the first of the file. A rule whose required variable is missing takes part in nothing; that is said on standard error, and so are equal rules.
Exit status: 0 a route takes it, 1 none does, 2 a rule is refused.`,
		Args: arguments(cobra.ExactArgs(0)),
		RunE: func(*cobra.Command, []string) error { return r.ruleMatch(&q) },
	}
	f := c.Flags()
	f.StringVar(&q.rules, "rules", "", "the rules, a `FILE`; - is standard input")
	f.StringVar(&q.request, "request", "", "a `REQUEST`: method and URL")
	f.StringArrayVar(&q.headers, "header", nil, "a header of the request, `'K: V'`; may be repeated")
	f.StringVar(&q.event, "event", "", "the event, a `FILE`; - is standard input")
	return c
}

// ruleMatched is the answer.
type ruleMatched struct {
	Match    bool              `json:"match"`
	RouteID  int               `json:"route_id"`
	Priority int               `json:"priority"`
	Params   map[string]string `json:"params"`
	Suffix   string            `json:"path_suffix"`
}

func (r *run) ruleMatch(q *ruleQuestion) error {
	if q.rules == "" || (q.request == "") == (q.event == "") {
		return usage("rule match: give --rules FILE, and one of --request and --event")
	}
	if q.event != "" && len(q.headers) > 0 {
		return usage("rule match: --header goes with --request")
	}
	set, err := r.ruleSet(q.rules)
	if err != nil {
		return err
	}
	view, err := r.ruleEvent(q)
	if err != nil {
		return err
	}
	rule, found, ok := set.Match(view)
	if !ok {
		if err := r.print(struct {
			Match bool `json:"match"`
		}{}, func(p *printer) { p.line("no route takes it") }); err != nil {
			return err
		}
		return silentNo
	}
	m := ruleMatched{Match: true, RouteID: rule.ID, Priority: rule.Priority, Params: map[string]string{}, Suffix: found.Suffix}
	for _, c := range found.Params {
		m.Params[c.Name] = c.Value
	}
	return r.print(m, func(p *printer) { drawRule(p, m, rule, found.HasSuffix) })
}

func drawRule(p *printer, m ruleMatched, rule *components.Rule, hasSuffix bool) {
	p.line(fmt.Sprintf("route %d, priority %d: %s", m.RouteID, m.Priority, cell(rule.Resolved)))
	names := make([]string, 0, len(m.Params))
	for name := range m.Params {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		p.line("param " + cell(name) + "=" + cell(m.Params[name]))
	}
	if hasSuffix {
		p.line("path suffix " + cell(m.Suffix))
	}
}

// ruleSet reads and compiles the rules of a file.
func (r *run) ruleSet(name string) (*components.RuleSet, error) {
	text, err := r.readInput(name)
	if err != nil {
		return nil, err
	}
	file, err := components.ParseRuleFile(text)
	if err != nil {
		return nil, usage("%s: %v", inputName(name), err)
	}
	rules, err := file.Compile()
	if refused, ok := errors.AsType[*components.RuleError](err); ok {
		return nil, usage("%s: route %d: refused at %s: %v", inputName(name), refused.ID, refused.Stage, refused.Err)
	}
	if err != nil {
		return nil, usage("%s: %v", inputName(name), err)
	}
	for _, rule := range rules {
		if len(rule.Missing) > 0 {
			fmt.Fprintf(r.env.Stderr, "warning: route %d takes part in nothing: missing %s\n", rule.ID, strings.Join(rule.Missing, ", "))
		}
	}
	set, err := components.NewRuleSet(rules)
	if err != nil {
		return nil, usage("%s: %v", inputName(name), err)
	}
	for _, c := range set.Conflicts {
		fmt.Fprintf(r.env.Stderr, "warning: routes %d and %d have the same rule: %d never gets anything\n", c.First.ID, c.Second.ID, c.Second.ID)
	}
	return set, nil
}

// ruleEvent reads what the rules are tried on.
func (r *run) ruleEvent(q *ruleQuestion) (*components.View, error) {
	if q.event != "" {
		text, err := r.readInput(q.event)
		if err != nil {
			return nil, err
		}
		v, err := components.ParseEventFile(text)
		if err != nil {
			return nil, usage("%s: %v", inputName(q.event), err)
		}
		return v, nil
	}
	method, url, ok := strings.Cut(strings.TrimSpace(q.request), " ")
	if !ok {
		method, url = "GET", method
	}
	e := components.EventFile{Method: method, URL: strings.TrimSpace(url)}
	if !strings.Contains(e.URL, "://") {
		return nil, usage("--request %q: give 'METHOD http://host/path'", q.request)
	}
	for _, h := range q.headers {
		k, v, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(k) == "" {
			return nil, usage("--header %q: give 'K: V'", h)
		}
		e.Headers = append(e.Headers, []string{strings.TrimSpace(k), strings.TrimSpace(v)})
	}
	v, err := e.View()
	if err != nil {
		return nil, usage("--request %q: %v", q.request, err)
	}
	return v, nil
}
