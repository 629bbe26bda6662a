package components

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// Edit is a change of the objects that operators put, which is done whole or not at all.
type Edit struct {
	Put        string   // objects, in the form of components.yaml
	Delete     []string // names of objects: see ObjectName
	IfRevision *uint64  // the revision that the caller saw; nil is any
	DryRun     bool
}

// Edited is what an edit did.
type Edited struct {
	routetable.Change
	Warnings []Problem // that are there and refuse nothing
}

// maxPut is the longest text of an edit.
const maxPut = 4 << 20

// Edit changes the objects that operators put. Objects and the rows that follow from them are one change of the table: a request goes by what was
// there before it, or by what is there after it. Problems that were not there before refuse it.
func (b *Broker) Edit(who admin.Caller, x Edit) (Edited, error) {
	puts, role, err := x.puts(b.now.Load().file.dir)
	if err != nil {
		return Edited{}, admin.Refuse(admin.StatusBadRequest, "%v", err)
	}
	if err := who.May(role, "a change of objects with secrets or identities"); role == admin.RoleAdmin && err != nil {
		return Edited{}, err
	}
	if err := who.May(role, "a change of objects"); err != nil {
		return Edited{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now.Load()
	table := b.core.Table().Snapshot()
	if want := x.IfRevision; want != nil && *want != table.Revision() {
		return Edited{}, admin.Refuse(admin.StatusConflict, "the table is at revision %d, not %d (read it again)", table.Revision(), *want)
	}
	held := table.Objects()
	next, changes, note, err := x.apply(now, held, puts)
	if err != nil {
		return Edited{}, err
	}
	s := b.situation(now.file, next)
	for name := range changes {
		if err := s.left[name]; err != nil {
			return Edited{}, admin.Refuse(admin.StatusBadRequest, "%v", err)
		}
	}
	for _, name := range heldOrder(next) {
		if err := s.left[name]; err != nil && now.left[name] == nil {
			return Edited{}, admin.Refuse(admin.StatusConflict, "%s needs what this takes away: %v", name, err)
		}
	}
	worse := newProblems(s.problems(), now.problems())
	if refused := slices.DeleteFunc(slices.Clone(worse), func(p Problem) bool { return p.Type == routeConflict }); len(refused) > 0 {
		return Edited{}, &admin.Error{Status: admin.StatusBadRequest, Text: "refused: " + problemWords(refused), Err: &ProblemsError{refused}}
	}
	out := Edited{Warnings: worse}
	if x.DryRun || len(changes) == 0 {
		out.Revision, out.Note = b.core.Table().Revision(), note
		out.Objects = changesOf(held, changes)
		return out, nil
	}
	out.Change, err = b.replace(who, s, admin.Renew{Objects: changes, Words: words(changes), IfRevision: x.IfRevision})
	out.Note = note
	return out, err
}

// ProblemsError is why a change of objects was refused.
type ProblemsError struct{ Problems []Problem }

func (e *ProblemsError) Error() string { return problemWords(e.Problems) }

// puts takes the text apart, and says which role its objects need.
func (x *Edit) puts(dir string) (texts map[string]string, role admin.Role, err error) {
	if len(x.Put) > maxPut {
		return nil, 0, fmt.Errorf("%d bytes: at most %d in one change", len(x.Put), maxPut)
	}
	part, err := parsePart([]byte(x.Put))
	if err != nil {
		return nil, 0, err
	}
	role = admin.RoleOperator
	if len(part.Adapters)+len(part.Components) > 0 || part.sendSecrets() {
		role = admin.RoleAdmin
	}
	for _, s := range part.secrets() {
		if s.written() {
			return nil, 0, errors.New("a secret that is put would be kept in the journal: write {file: NAME} or {env: NAME} for it")
		}
		if s != (Secret{}) {
			role = admin.RoleAdmin // it reads the router's files and environment
		}
	}
	if texts, err = splitObjects([]byte(x.Put)); err != nil {
		return nil, 0, err
	}
	for name, text := range texts {
		if _, err := parseHeld(name, text, dir); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", name, err)
		}
	}
	return texts, role, nil
}

// sendSecrets tells whether there is an adapter that has secrets in what it sends: to a place that who puts it chose.
func (o *Objects) sendSecrets() bool {
	all := slices.Collect(maps.Values(o.HTTPAdapters))
	for _, m := range o.Manifests {
		if m != nil {
			all = slices.AppendSeq(all, maps.Values(m.HTTPAdapters))
		}
	}
	return slices.ContainsFunc(all, func(a *HTTPAdapter) bool {
		return a != nil && strings.Contains(strings.Join(slices.Collect(maps.Values(a.Headers)), "\n")+a.URL, "Secrets")
	})
}

// apply gives the objects after the edit, and those that it makes others.
func (x *Edit) apply(now *situation, held, puts map[string]string) (next, changes map[string]string, note string, err error) {
	next, changes = maps.Clone(held), map[string]string{}
	if next == nil {
		next = map[string]string{}
	}
	var notes []string
	for _, name := range x.Delete {
		switch _, file := now.file.texts[name]; {
		case held[name] != "":
			delete(next, name)
			changes[name] = ""
			if file {
				notes = append(notes, "the file's "+name+" is in force again")
			}
		case file:
			return nil, nil, "", admin.Refuse(admin.StatusConflict, "%s is the file's: take it out of there", name)
		default:
			notes = append(notes, "there is no "+name)
		}
	}
	for name, text := range puts {
		if held[name] == text {
			notes = append(notes, name+" is so already")
			delete(changes, name)
		} else {
			changes[name] = text
		}
		next[name] = text
	}
	slices.Sort(notes)
	return next, changes, strings.Join(notes, "; "), nil
}

// words is an edit as one would type it.
func words(changes map[string]string) string {
	var parts, puts, deletes []string
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		switch release, is := releaseWords(name, changes[name]); {
		case changes[name] == "":
			deletes = append(deletes, name)
		case is:
			parts = append(parts, release)
		default:
			puts = append(puts, name)
		}
	}
	if len(puts) > 0 {
		parts = append(parts, "component put "+strings.Join(puts, " "))
	}
	if len(deletes) > 0 {
		parts = append(parts, "component delete "+strings.Join(deletes, " "))
	}
	return strings.Join(parts, "; ")
}

// releaseWords are the words of a release that is put.
func releaseWords(name, text string) (words string, is bool) {
	rest, is := strings.CutPrefix(name, "release/")
	environment, app, ok := strings.Cut(rest, "/")
	var r Release
	if !is || !ok || yaml.Unmarshal([]byte(text), &r) != nil {
		return "", false
	}
	words = "component release " + environment + " " + app + "=" + r.AppDeployment
	if r.Version != "" {
		words += "@" + r.Version
	}
	return words, true
}

func changesOf(held, changes map[string]string) (list []routetable.ObjectChange) {
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		list = append(list, routetable.ObjectChange{Name: name, Before: held[name], After: changes[name]})
	}
	return list
}

// problems are those of what is released, and what can be told of objects that are not.
func (s *situation) problems() []Problem {
	list := slices.Clone(s.released.problems)
	o := s.objects
	for _, name := range sortedKeys(o.VirtualEnvironments) {
		if e := o.VirtualEnvironments[name].Environment; o.Environments[e] == nil {
			at := Cause{Kind: "VirtualEnvironment", Name: name, Path: "$.spec.environment", Value: e}
			list = append(list, Problem{[]Cause{at}, fmt.Sprintf("Environment %q not found", e), "EnvironmentNotFound"})
		}
	}
	for _, name := range sortedKeys(o.Deployments) {
		list = append(list, s.deploymentProblems(name, o.Deployments[name])...)
	}
	return list
}

// deploymentProblems are those that a deployment has in every environment.
func (s *situation) deploymentProblems(name string, d *Deployment) []Problem {
	adapters := s.objects.HTTPAdapters
	for _, m := range s.objects.Manifests {
		adapters = mergedMap(adapters, m.HTTPAdapters)
	}
	f := finding{adapters: adapters, deployment: name, d: d}
	for _, component := range sortedKeys(d.Components) {
		c := d.Components[component]
		for i, r := range c.Routes {
			at := f.at(component, fmt.Sprintf("routes[%d]", i))
			if _, err := ParseTemplate(r.Rule); err != nil {
				f.add(parseError, err.Error(), at)
			} else if _, err := CompileRule(r.ID, r.Rule, nil); err != nil && !strings.Contains(r.Rule, "{{") {
				f.add(parseError, err.Error(), at)
			}
		}
		f.dependencies(component, c, map[string]bool{})
	}
	return f.found
}

// newProblems are those of a list that are not in another.
func newProblems(list, old []Problem) (fresh []Problem) {
	known := map[string]bool{}
	for _, p := range old {
		known[p.words()] = true
	}
	for _, p := range list {
		if w := p.words(); !known[w] {
			known[w] = true
			fresh = append(fresh, p)
		}
	}
	return fresh
}

// words is the problem on a line.
func (p *Problem) words() string {
	at := p.Causes[0]
	return fmt.Sprintf("%s %s %s %s: %s", p.Type, at.Kind, at.Name, at.Path, p.Message)
}

// maxProblemWords is how many problems a refusal names.
const maxProblemWords = 10

func problemWords(list []Problem) string {
	var parts []string
	for i := range list {
		if i == maxProblemWords {
			parts = append(parts, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		parts = append(parts, list[i].words())
	}
	return strings.Join(parts, "; ")
}

// Object is an object in force, or one that an operator put and that is not.
type Object struct {
	Name   string // KIND/NAME
	Origin string // file or operator
	Over   bool   // it is an operator's and lies over one of the file
	Text   string // YAML; secrets that are written in the file are hidden
	Why    string // it is not in force; empty: it is
}

// Objects lists all objects, in the order of their names.
func (b *Broker) Objects() []Object {
	s := b.now.Load()
	var list []Object
	for name, text := range s.held {
		x := Object{Name: name, Origin: routetable.OriginOperator, Text: text}
		_, x.Over = s.file.texts[name]
		if err := s.left[name]; err != nil {
			x.Why = err.Error()
		}
		list = append(list, x)
	}
	for name, text := range s.file.texts {
		if _, over := s.held[name]; !over {
			list = append(list, Object{Name: name, Origin: "file", Text: text})
		}
	}
	slices.SortFunc(list, func(a, b Object) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
