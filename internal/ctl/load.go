package ctl

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/routetable"
)

func loadCommand(r *run) *cobra.Command {
	var o loadOptions
	c := &cobra.Command{
		Use:   "load FILE",
		Short: "load a table file, all of it or nothing",
		Long: `Load puts the rows of FILE ("-" is standard input; YAML or arrow form, by content) in place of the configured rows,
as one change. With --merge they join them.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, argv []string) error {
			f, err := r.readTable(argv[0])
			if _, ok := errors.AsType[*routetable.FileError](err); ok {
				return no("load: %v", err)
			}
			if err != nil {
				return err
			}
			ed, err := r.editor(c.Context(), false)
			if err != nil {
				return err
			}
			defer ed.close()
			if r.env.Terminal {
				o.progress = func(sent, total int) {
					fmt.Fprintf(r.env.Stderr, "\rload: %d of %d kB", sent>>10, total>>10)
					if sent == total {
						fmt.Fprintln(r.env.Stderr)
					}
				}
			}
			x, err := ed.load(c.Context(), f, o)
			if err != nil {
				return err
			}
			return r.printResult(x)
		},
	}
	c.Flags().BoolVar(&o.merge, "merge", false, "keep the rows that are there")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "say what would change, and change nothing")
	return c
}

func inputName(arg string) string {
	if arg == "-" {
		return "standard input"
	}
	return arg
}
