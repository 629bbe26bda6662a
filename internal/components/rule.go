package components

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fingerpost/fingerpost/routetable"
)

// Rule is the rule of a component's route, resolved with the variables of an environment and compiled.
type Rule struct {
	ID       int
	Resolved string   // its text with the variables in their places
	Priority int      // the rule with the highest is tried first
	Required []string // variables that it cannot do without: Vars.sub
	Missing  []string // those of them that the environment lacks: the rule takes part in nothing

	when *routetable.When
}

// The stages at which a rule may be refused.
const (
	StageTemplateParse   = "template-parse"
	StageTemplateResolve = "template-resolve"
	StageRuleParse       = "rule-parse"
)

// RuleError says why a rule was refused.
type RuleError struct {
	ID    int
	Stage string
	Err   error
}

func (e *RuleError) Error() string { return fmt.Sprintf("route %d: %s: %v", e.ID, e.Stage, e.Err) }
func (e *RuleError) Unwrap() error { return e.Err }

// maxRule is the longest text of a rule, as written and resolved.
const maxRule = 16 << 10

var errRuleSize = errors.New("longer than 16 KiB")

// CompileRule compiles the rule of the route with the id. The error is a *RuleError.
//
// The text is a template without functions (see Template), and what comes of it a predicate (routetable.CompileWhen): runs of blanks count as one, in
// strings too.
func CompileRule(id int, text string, vars Vars) (*Rule, error) {
	t, err := ParseTemplate(text)
	if err != nil {
		return nil, &RuleError{id, StageTemplateParse, err}
	}
	r := &Rule{ID: id, Required: t.Required()}
	if r.Resolved, err = t.Resolve(vars, nil); err != nil {
		return nil, &RuleError{id, StageTemplateResolve, err}
	}
	r.Priority = priority(r.Resolved)
	if r.when, err = routetable.CompileWhen(r.Resolved); err != nil {
		return nil, &RuleError{id, StageRuleParse, err}
	}
	for _, name := range r.Required {
		if !vars.has(name) {
			r.Missing = append(r.Missing, name)
		}
	}
	return r, nil
}

// priority is the length of a rule in bytes, where every {...} counts as {}: from a { that is neither first nor behind a backslash, to the first }.
func priority(text string) int {
	n := 0
	for i := 0; i < len(text); i++ {
		n++
		if text[i] != '{' || i == 0 || text[i-1] == '\\' {
			continue
		}
		if end := strings.IndexByte(text[i:], '}'); end > 0 {
			n++
			i += end
		}
	}
	return n
}

// topOrder is the order of a rule without priority: rows come by falling priority.
const topOrder = maxRule

// rows are the rows that send the events of a space (see space) that the rule fits to an address. A rule that lacks a variable has none.
func (r *Rule) rows(space, address, origin string) []routetable.Route {
	if len(r.Missing) > 0 {
		return nil
	}
	var rows []routetable.Route
	for _, pattern := range r.when.Cover(space) {
		row := routetable.NewRoute(pattern, address)
		row.When, row.Origin, row.Order = r.Resolved, origin, topOrder-r.Priority
		rows = append(rows, row)
	}
	return rows
}

// Conflict is two routes whose rules take the same events: the first gets them.
type Conflict struct{ First, Second *Rule }

// conflicts finds rules that are equal, by their text. The rules are in the order in which they are tried where they have one priority.
func conflicts(rules []*Rule) []Conflict {
	var found []Conflict
	seen := map[string]*Rule{}
	for _, r := range rules {
		if first := seen[r.Resolved]; first != nil {
			found = append(found, Conflict{first, r})
		} else if len(r.Missing) == 0 {
			seen[r.Resolved] = r
		}
	}
	return found
}

// Vars are the variables of an environment, by name.
type Vars map[string]Value

// has tells whether there is a variable "Vars.x". Secrets never are.
func (v Vars) has(name string) bool {
	name, ok := strings.CutPrefix(name, "Vars.")
	_, there := v[name]
	return ok && there
}
