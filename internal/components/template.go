package components

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// Template is text with {{ }} in it: Go's text/template without functions. .Vars.NAME and .Env.NAME are variables, .Secrets.NAME secrets.
type Template struct {
	tree     *parse.Tree
	fields   []field // all that it names
	required []string
}

// field is a two-part field, as Vars.sub.
type field struct{ kind, name string }

// Errors of templates.
var (
	errDefine = errors.New("a template may define no other")
	errLoop   = errors.New("a range in a range, or over a number")
)

// ParseTemplate reads a template; runs of blanks are one blank of it. Its loops are bounded by the variables: a range may not stand in another, or count.
func ParseTemplate(text string) (*Template, error) {
	if len(text) > maxRule {
		return nil, errRuleSize
	}
	text = strings.Join(strings.Fields(text), " ")
	t := &Template{tree: parse.New("rule")}
	set := map[string]*parse.Tree{}
	if _, err := t.tree.Parse(text, "{{", "}}", set); err != nil {
		return nil, plainError(err)
	}
	for name := range set {
		if name != "rule" {
			return nil, errDefine
		}
	}
	if t.tree.Root == nil {
		t.tree.Root = &parse.ListNode{}
	}
	if err := t.walk(t.tree.Root, true, false); err != nil {
		return nil, err
	}
	return t, nil
}

// plainError drops the place in front of an error of text/template, which means nothing in a text of one line, and behind it our own type.
func plainError(err error) error {
	text := err.Error()
	if _, after, ok := strings.Cut(text, `executing "rule" at `); ok {
		after, _, _ = strings.Cut(after, " in type ")
		return errors.New(after)
	}
	for _, prefix := range []string{"template: ", "rule:1: ", "rule:1:"} {
		text = strings.TrimPrefix(text, prefix)
	}
	return errors.New(text)
}

// walk collects the fields below n. top is whether it is outside of every if, range and with.
func (t *Template) walk(n parse.Node, top, inRange bool) (err error) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		for _, kid := range n.Nodes {
			if err = t.walk(kid, top, inRange); err != nil {
				return err
			}
		}
	case *parse.ActionNode:
		t.pipe(n.Pipe, top)
	case *parse.IfNode:
		return t.branch(&n.BranchNode, inRange)
	case *parse.WithNode:
		return t.branch(&n.BranchNode, inRange)
	case *parse.RangeNode:
		if inRange || counts(n.Pipe) {
			return errLoop
		}
		return t.branch(&n.BranchNode, true)
	case *parse.TemplateNode:
		return errDefine
	}
	return nil
}

func (t *Template) branch(n *parse.BranchNode, inRange bool) error {
	t.pipe(n.Pipe, false)
	if err := t.walk(n.List, false, inRange); err != nil {
		return err
	}
	return t.walk(n.ElseList, false, inRange)
}

// counts reports whether a pipe is a number, or a variable that may hold one.
func counts(p *parse.PipeNode) bool {
	for _, c := range p.Cmds {
		for _, a := range c.Args {
			if a.Type() != parse.NodeField && a.Type() != parse.NodeDot {
				return true
			}
		}
	}
	return false
}

func (t *Template) pipe(p *parse.PipeNode, top bool) {
	for _, c := range p.Cmds {
		for _, a := range c.Args {
			switch a := a.(type) {
			case *parse.FieldNode:
				t.field(a.Ident, top)
			case *parse.VariableNode:
				if a.Ident[0] == "$" {
					t.field(a.Ident[1:], false)
				}
			case *parse.PipeNode:
				t.pipe(a, top)
			}
		}
	}
}

func (t *Template) field(ident []string, top bool) {
	if len(ident) < 2 {
		return
	}
	f := field{ident[0], ident[1]}
	if f.kind == "Env" {
		f.kind = "Vars"
	}
	if !slices.Contains(t.fields, f) {
		t.fields = append(t.fields, f)
	}
	name := f.kind + "." + f.name
	if known := f.kind == "Vars" || f.kind == "Secrets"; top && known && len(ident) == 2 && !slices.Contains(t.required, name) {
		t.required = append(t.required, name)
	}
}

// variables are what a template names.
type variables struct{ Vars, Env, Secrets map[string]any }

// Required are the variables and secrets that the template names outside of every if, range and with: Vars.sub, Secrets.pw.
func (t *Template) Required() []string { return t.required }

// Resolve gives the text with the variables and secrets in their places. What is not there is "<nil>".
func (t *Template) Resolve(vars Vars, secrets map[string]string) (string, error) {
	if len(t.fields) == 0 && onlyText(t.tree.Root) {
		return strings.TrimSpace(t.tree.Root.String()), nil
	}
	data := variables{Vars: map[string]any{}, Secrets: map[string]any{}}
	for _, f := range t.fields {
		switch f.kind {
		case "Vars":
			data.Vars[f.name] = inTemplate(vars, f.name)
		case "Secrets":
			data.Secrets[f.name] = absent(nil)
			if s, ok := secrets[f.name]; ok {
				data.Secrets[f.name] = s
			}
		}
	}
	data.Env = data.Vars
	x, err := template.New("rule").AddParseTree("rule", t.tree)
	if err != nil {
		return "", err
	}
	var w boundedText
	if err := x.Execute(&w, data); err != nil {
		return "", plainError(err)
	}
	return strings.Join(strings.Fields(string(w.b)), " "), nil
}

func onlyText(l *parse.ListNode) bool {
	for _, n := range l.Nodes {
		if n.Type() != parse.NodeText {
			return false
		}
	}
	return true
}

// boundedText takes what a template writes, up to the longest rule.
type boundedText struct{ b []byte }

func (w *boundedText) Write(p []byte) (int, error) {
	if len(w.b)+len(p) > maxRule {
		return 0, errRuleSize
	}
	w.b = append(w.b, p...)
	return len(p), nil
}

// absent is a variable that is not there: false in an if, and "<nil>" as text.
type absent []string

func (absent) String() string { return "<nil>" }

// alternatives is an array: {^a$|^b$}.
type alternatives []string

func (a alternatives) String() string {
	quoted := make([]string, len(a))
	for i, s := range a {
		quoted[i] = "^" + regexp.QuoteMeta(s) + "$"
	}
	return "{" + strings.Join(quoted, "|") + "}"
}

// inTemplate is a variable as templates see it.
func inTemplate(vars Vars, name string) any {
	v, ok := vars[name]
	if !ok {
		return absent(nil)
	}
	switch v := v.(type) {
	case nil:
		return ""
	case []string:
		return alternatives(v)
	case []float64:
		list := make(alternatives, len(v))
		for i, n := range v {
			list[i] = fmt.Sprint(n)
		}
		return list
	}
	return v
}
