package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/routetable"
)

func lintCommand(r *run) *cobra.Command {
	return &cobra.Command{
		Use:   "lint [FILE]",
		Short: "point out what is allowed in a table and probably not meant",
		Long: `Lint points out shadowed rows, rows that lead to one hop twice, $N without a group, unreachable fallbacks, name cycles, open hosts and
patterns that are looked at for every address.
Exit status 1 says that there is something. With FILE, or with --file, it needs no router; else it looks at the running table.`,
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, argv []string) error {
			warnings, more, err := r.lint(c.Context(), argv)
			if err != nil {
				return err
			}
			err = r.print(warnings, func(p *printer) {
				for _, w := range warnings {
					p.line(w.String())
				}
				if len(warnings) == 0 {
					p.line("nothing to say")
				}
			})
			if more > 0 {
				fmt.Fprintf(r.env.Stderr, "lint: and %d more: routectl store FILE, then routectl lint FILE, has all\n", more)
			}
			if err == nil && len(warnings) > 0 {
				return silentNo
			}
			return err
		},
	}
}

// lint gives the warnings, and how many more there are than a router tells.
func (r *run) lint(ctx context.Context, argv []string) (warnings []routetable.Warning, more int, err error) {
	if len(argv) == 0 {
		ed, err := r.editor(ctx, true)
		if err != nil {
			return nil, 0, err
		}
		defer ed.close()
		return ed.lint(ctx)
	}
	if r.file != "" {
		return nil, 0, usage("lint: give FILE or --file, not both")
	}
	f, t, err := r.openTable(argv[0])
	if err != nil {
		return nil, 0, err
	}
	return routetable.JoinWarnings(f.Warnings, t.Snapshot().Lint()), 0, nil
}

func (t *local) lint(context.Context) ([]routetable.Warning, int, error) {
	return routetable.JoinWarnings(t.file.Warnings, t.table.Snapshot().Lint()), 0, nil
}

func (t *remote) lint(ctx context.Context) (warnings []routetable.Warning, more int, err error) {
	a, err := t.ask(ctx, "LINT", nil)
	if err != nil {
		return nil, 0, err
	}
	body, _ := a.body.(map[string]any)
	warnings = []routetable.Warning{}
	for _, v := range plainList(body["warnings"]) {
		m, _ := plain(v).(map[string]any)
		warnings = append(warnings, routetable.Warning{
			Pattern: fmt.Sprint(m["pattern"]), Address: fmt.Sprint(m["address"]), What: fmt.Sprint(m["what"]),
		})
	}
	return warnings, int(wholeOr(body["more"], 0)), nil
}
