package ctl

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/routetable"
)

func lintCommand(r *run) *cobra.Command {
	return &cobra.Command{
		Use:   "lint FILE",
		Short: "point out what is allowed in a table file and probably not meant",
		Long: `Lint points out shadowed rows, $N without a group, unreachable fallbacks, name cycles and open hosts.
Exit status 1 says that there is something. It needs no router.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, argv []string) error {
			f, t, err := r.openTable(argv[0])
			if err != nil {
				return err
			}
			warnings := joinWarnings(f.Warnings, t.Snapshot().Lint())
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

// joinWarnings puts what the file's reader and the table said together, each once. The reader knows the lines.
func joinWarnings(lists ...[]routetable.Warning) []routetable.Warning {
	all := []routetable.Warning{}
	for _, list := range lists {
		for _, w := range list {
			if !slices.ContainsFunc(all, func(x routetable.Warning) bool {
				return x.Pattern == w.Pattern && x.Address == w.Address && x.What == w.What
			}) {
				all = append(all, w)
			}
		}
	}
	return all
}
