package ctl

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/routetable"
)

func loadCommand(r *run) *cobra.Command {
	var o loadOptions
	c := &cobra.Command{
		Use:   "load FILE",
		Short: "load a table file, all of it or nothing",
		Long: `Load puts the rows of FILE ("-" is standard input; YAML or arrow form, by content) in place of the configured rows,
as one change, and the match mode with them: all, where FILE does not say. With --merge they join what is there, and the mode stays where FILE
does not say another.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, argv []string) error {
			return r.load(c.Context(), argv[0], o)
		},
	}
	c.Flags().BoolVar(&o.merge, "merge", false, "keep the rows that are there")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "say what would change, and change nothing")
	return c
}

func (r *run) load(ctx context.Context, name string, o loadOptions) error {
	o.source = name
	if r.env.Terminal {
		var last int
		o.progress = func(text string) {
			fmt.Fprintf(r.env.Stderr, "\rload: %-*s", last, text)
			last = utf8.RuneCountInString(text)
		}
		defer func() { fmt.Fprintf(r.env.Stderr, "\r%*s\r", len("load: ")+last, "") }()
	}
	o.say = func(text string) {
		if r.env.Terminal {
			fmt.Fprintln(r.env.Stderr) // the progress stays above
		}
		fmt.Fprintln(r.env.Stderr, "load: "+text)
	}
	o.tell("reading %s", inputName(name))
	f, err := r.readTable(name)
	if _, ok := errors.AsType[*routetable.FileError](err); ok {
		return no("load: %v", err)
	}
	if err != nil {
		return err
	}
	ed, err := r.editor(ctx, false)
	if err != nil {
		return err
	}
	defer ed.close()
	x, err := ed.load(ctx, f, o)
	if err != nil {
		return ofFile("load", err, inputName(name))
	}
	if o.progress != nil {
		o.progress("done")
	}
	return r.printResult(x)
}

// ofFile names the file in an error that tells a line alone: what is wrong shows only in the table that the file joins.
func ofFile(verb string, err error, name string) error {
	if f, ok := errors.AsType[*fault](err); ok && atLine.MatchString(f.text) {
		return &fault{status: f.status, text: verb + ": " + name + ": " + f.text, err: err}
	}
	return err
}

var atLine = regexp.MustCompile(`^line \d+, column \d+: `)

func inputName(arg string) string {
	if arg == "-" {
		return "standard input"
	}
	return arg
}
