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
			warnings, err := r.lint(c.Context(), argv)
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
			if err == nil && len(warnings) > 0 {
				return silentNo
			}
			return err
		},
	}
}

func (r *run) lint(ctx context.Context, argv []string) ([]routetable.Warning, error) {
	if len(argv) == 0 {
		ed, err := r.editor(ctx, true)
		if err != nil {
			return nil, err
		}
		defer ed.close()
		return ed.lint(ctx)
	}
	if r.file != "" {
		return nil, usage("lint: give FILE or --file, not both")
	}
	f, t, err := r.openTable(argv[0])
	if err != nil {
		return nil, err
	}
	return joinWarnings(f.Warnings, t.Snapshot().Lint()), nil
}

func (t *local) lint(context.Context) ([]routetable.Warning, error) {
	return joinWarnings(t.file.Warnings, t.table.Snapshot().Lint()), nil
}

func (t *remote) lint(ctx context.Context) ([]routetable.Warning, error) {
	a, err := t.ask(ctx, "LINT", nil)
	if err != nil {
		return nil, err
	}
	body, _ := a.body.(map[string]any)
	warnings := []routetable.Warning{}
	for _, v := range plainList(body["warnings"]) {
		m, _ := plain(v).(map[string]any)
		warnings = append(warnings, routetable.Warning{
			Pattern: fmt.Sprint(m["pattern"]), Address: fmt.Sprint(m["address"]), What: fmt.Sprint(m["what"]),
		})
	}
	return warnings, nil
}

// joinWarnings puts what the file's reader and the table said together, each once. The reader knows the lines.
func joinWarnings(lists ...[]routetable.Warning) []routetable.Warning {
	all := []routetable.Warning{}
	said := map[routetable.Warning]bool{}
	for _, list := range lists {
		for _, w := range list {
			same := w
			same.Line = 0
			if !said[same] {
				said[same] = true
				all = append(all, w)
			}
		}
	}
	return all
}
