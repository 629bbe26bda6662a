package ctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/fingerpost/fingerpost/internal/components"
)

func componentCommand(r *run) *cobra.Command {
	c := &cobra.Command{
		Use:   "component",
		Short: "what the broker of components goes by: deployments, environments, releases",
		Long: `Component edits the objects of the router's broker of components: ` + strings.Join(components.Kinds(), ", ") + `
(AppDeployment, VirtualEnvironment and the like are understood too). A release is named VIRTUAL-ENVIRONMENT/APP. What is put here is kept with the table,
in its history, and lies over what components.yaml says under the same name until it is deleted; a reload of the file leaves it alone. An edit is
done whole, with the routes that follow from it, or refused with all that is wrong.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			return usage("component: give list, get, put, delete or release")
		},
	}
	c.AddCommand(componentListCommand(r), componentGetCommand(r), componentPutCommand(r), componentDeleteCommand(r), componentReleaseCommand(r))
	return c
}

// objectEdit is the flags of what edits objects.
type objectEdit struct {
	put        string
	deletes    []string
	dryRun     bool
	ifRevision uint64
	atRevision bool
}

func (x *objectEdit) flags(c *cobra.Command) {
	c.Flags().BoolVar(&x.dryRun, "dry-run", false, "say what would be done")
	c.Flags().Uint64Var(&x.ifRevision, "if-revision", 0, "refuse where the table is not at this `REVISION`")
	run := c.RunE
	c.RunE = func(c *cobra.Command, argv []string) error {
		x.atRevision = c.Flags().Changed("if-revision")
		return run(c, argv)
	}
}

// objectResult is what an edit of objects did.
type objectResult struct {
	Revision uint64             `json:"revision"`
	Objects  []objectDifference `json:"objects"`
	Note     string             `json:"note,omitempty"`
	DryRun   bool               `json:"dryRun,omitempty"`
	Warnings []string           `json:"warnings"`
}

func (r *run) editObjects(ctx context.Context, x *objectEdit) error {
	m, err := r.caller(ctx)
	if err != nil {
		return err
	}
	defer m.close()
	body := map[string]any{"put": x.put, "dryRun": x.dryRun}
	var deletes []any
	for _, name := range x.deletes {
		deletes = append(deletes, name)
	}
	if deletes != nil {
		body["delete"] = deletes
	}
	if x.atRevision {
		body["ifRevision"] = x.ifRevision
	}
	a, err := (&remote{caller: m}).do(ctx, call{operation: "EDIT-OBJECTS", kind: "object", name: "main", body: body})
	if err != nil {
		return withoutBroker(err)
	}
	done, _ := a.body.(map[string]any)
	out := objectResult{
		Revision: uint64(wholeOr(done["revision"], 0)), Objects: readObjectDifferences(done["objects"]), Note: stringOf(done, "note"), DryRun: x.dryRun,
		Warnings: []string{},
	}
	for _, w := range plainList(done["warnings"]) {
		out.Warnings = append(out.Warnings, fmt.Sprint(w))
	}
	return r.print(out, func(p *printer) { out.draw(p) })
}

func (x *objectResult) draw(p *printer) {
	for _, w := range x.Warnings {
		p.line("warning: " + cell(w))
	}
	for _, o := range x.Objects {
		p.line(cell(o.Name) + " " + o.Change)
	}
	if x.Note != "" {
		p.line(cell(x.Note))
	}
	switch {
	case x.DryRun:
		p.line(fmt.Sprintf("nothing was done: revision %d", x.Revision))
	default:
		p.line(fmt.Sprintf("revision %d", x.Revision))
	}
}

// withoutBroker says what it means that a router does not know objects.
func withoutBroker(err error) error {
	if f, ok := err.(*fault); ok && strings.Contains(f.text, "EDIT-OBJECTS: n") {
		return no("the router has no broker of components: components.file of its configuration makes one")
	}
	return err
}

func componentPutCommand(r *run) *cobra.Command {
	var x objectEdit
	var file string
	c := &cobra.Command{
		Use:   "put -f FILE",
		Short: "put the objects of a file, in the form of components.yaml, as one change",
		Long: `Put makes all objects of FILE (- is standard input) those of the router, in one step. The form is that of components.yaml, without the platform:

  deployments: {hello-v2: {app: hello, components: {frontend: {hash: aaaa, routes: [{id: 0, rule: "PathPrefix(` + "`/hello`" + `)"}]}}}}
  releases: {prod: {hello: {appDeployment: hello-v2}}}

Secrets and tokens are {file: NAME} or {env: NAME}, of the router's machine, and need the role admin.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return usage("component put: give -f FILE")
			}
			text, err := r.readInput(file)
			if err != nil {
				return err
			}
			x.put = string(text)
			return r.editObjects(c.Context(), &x)
		},
	}
	c.Flags().StringVarP(&file, "from", "f", "", "the objects, a `FILE`; - is standard input")
	x.flags(c)
	return c
}

func componentDeleteCommand(r *run) *cobra.Command {
	var x objectEdit
	c := &cobra.Command{
		Use:   "delete KIND NAME...",
		Short: "delete objects that were put",
		Args:  arguments(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, argv []string) error {
			for _, name := range argv[1:] {
				full, err := components.ObjectName(argv[0], name)
				if err != nil {
					return usage("component delete: %v", err)
				}
				x.deletes = append(x.deletes, full)
			}
			return r.editObjects(c.Context(), &x)
		},
	}
	x.flags(c)
	return c
}

func componentReleaseCommand(r *run) *cobra.Command {
	var x objectEdit
	c := &cobra.Command{
		Use:   "release VIRTUAL-ENVIRONMENT APP=DEPLOYMENT[@VERSION]...",
		Short: "release deployments of apps to an environment, in one step",
		Long: `Release has requests that name no deployment go to DEPLOYMENT from now on; requests that are under way go on by what they began with. "APP=" takes
the app's release away. "component delete release VIRTUAL-ENVIRONMENT/APP" brings back what components.yaml releases.`,
		Args: arguments(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, argv []string) error {
			apps := map[string]any{}
			for _, one := range argv[1:] {
				app, deployment, ok := strings.Cut(one, "=")
				if !ok || app == "" {
					return usage("component release: %q: give APP=DEPLOYMENT", one)
				}
				release := map[string]any{}
				deployment, version, _ := strings.Cut(deployment, "@")
				if deployment != "" {
					release["appDeployment"] = deployment
				}
				if version != "" {
					release["version"] = version
				}
				apps[app] = release
			}
			text, err := yaml.Marshal(map[string]any{"releases": map[string]any{argv[0]: apps}})
			if err != nil {
				return err
			}
			x.put = string(text)
			return r.editObjects(c.Context(), &x)
		},
	}
	x.flags(c)
	return c
}

// heldObject is an object of the broker.
type heldObject struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Origin  string `json:"origin"`
	Over    bool   `json:"over,omitempty"`    // an operator's, over one of the file
	Problem string `json:"problem,omitempty"` // it is not in force
	Text    string `json:"text,omitempty"`
}

func (r *run) objects(ctx context.Context) ([]heldObject, error) {
	m, err := r.caller(ctx)
	if err != nil {
		return nil, err
	}
	defer m.close()
	entities, err := queryEntities(ctx, m, "object")
	if err != nil {
		return nil, err
	}
	list := []heldObject{}
	for _, e := range entities {
		list = append(list, heldObject{e.text("kind"), e.text("object"), e.text("origin"), e["over"] == true, e.text("problem"), e.text("text")})
	}
	return list, nil
}

func componentListCommand(r *run) *cobra.Command {
	return &cobra.Command{
		Use:   "list [KIND]",
		Short: "list the objects: those of the file, and those that were put",
		Args:  arguments(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, argv []string) error {
			kind := ""
			if len(argv) > 0 {
				full, err := components.ObjectName(argv[0], "x")
				if err != nil {
					return usage("component list: %v", err)
				}
				kind, _, _ = strings.Cut(full, "/")
			}
			all, err := r.objects(c.Context())
			if err != nil {
				return err
			}
			list := []heldObject{}
			for _, o := range all {
				if kind == "" || o.Kind == kind {
					o.Text = ""
					list = append(list, o)
				}
			}
			return r.print(list, func(p *printer) { drawObjects(p, list) })
		},
	}
}

func drawObjects(p *printer, list []heldObject) {
	if len(list) == 0 {
		p.line("none")
		return
	}
	p.columns("KIND", "NAME", "ORIGIN", "STATE")
	for _, o := range list {
		state := ""
		switch {
		case o.Problem != "":
			state = "left out: " + o.Problem
		case o.Over:
			state = "over the file's"
		}
		p.columns(o.Kind, o.Name, o.Origin, state)
	}
}

func componentGetCommand(r *run) *cobra.Command {
	return &cobra.Command{
		Use:   "get KIND NAME",
		Short: "print an object, in the form that put takes; secrets that are written in components.yaml are hidden",
		Args:  arguments(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, argv []string) error {
			full, err := components.ObjectName(argv[0], argv[1])
			if err != nil {
				return usage("component get: %v", err)
			}
			all, err := r.objects(c.Context())
			if err != nil {
				return err
			}
			for _, o := range all {
				if o.Kind+"/"+o.Name == full {
					part, err := components.Part(full, o.Text)
					if err != nil {
						return no("%s: %v", full, err)
					}
					return r.print(o, func(p *printer) {
						for line := range strings.Lines(part) {
							p.line(strings.TrimSuffix(line, "\n"))
						}
					})
				}
			}
			return no("there is no %s", full)
		},
	}
}
