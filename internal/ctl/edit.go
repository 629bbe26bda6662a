package ctl

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// columnFlag is one of the COLUMNS of add, insert, set and replace.
type columnFlag struct {
	name, argument, usage string
	bare                  bool // may be given without a value, meaning true
}

var columnFlags = []columnFlag{
	{name: "pick", argument: "all|any|first", usage: "how the rows of the group are used"},
	{name: "balance", argument: "MODE", usage: "for pick any: least-busy, round-robin, weighted or hash"},
	{name: "weight", argument: "N", usage: "for balance weighted: parts; 0, as where none is given, counts as 1"},
	{name: "hash-key", argument: "PROPERTY", usage: "for balance hash: the property that is hashed"},
	{name: "order", argument: "N", usage: "table order is order, then position"},
	{name: "fallback", usage: "use the row only where no other matches", bare: true},
	{name: "optional", usage: "a tap: a copy that never counts", bare: true},
	{name: "when", argument: "PREDICATE", usage: "use the row only for messages that satisfy this"},
	{name: "timeout", argument: "DURATION", usage: "delivery timeout, where it differs from the node's"},
	{name: "retry", argument: "N", usage: "retry limit, where it differs from the node's"},
	{name: "dynamic-host", usage: "the row may take its host from the message", bare: true},
	{name: "note", argument: "TEXT", usage: "free text for people"},
}

// bareValue is the value of a flag that may be given without one. What it may be the column says.
type bareValue string

func (v *bareValue) String() string { return string(*v) }
func (v *bareValue) Type() string   { return "bool" } // which has the help show the flag alone
func (v *bareValue) Set(s string) error {
	*v = bareValue(s)
	return nil
}

// addColumnFlags registers the column flags; columns gives those that were set, by their management names.
func addColumnFlags(f *pflag.FlagSet) (columns func() map[string]any) {
	for _, c := range columnFlags {
		usage := c.usage
		if c.argument != "" {
			usage += " (`" + c.argument + "`)"
		}
		if c.bare {
			f.Var(new(bareValue), c.name, usage)
			f.Lookup(c.name).NoOptDefVal = "true"
		} else {
			f.String(c.name, "", usage)
		}
	}
	return func() map[string]any {
		m := map[string]any{}
		for _, c := range columnFlags {
			if f.Changed(c.name) {
				m[admin.AttributeName(c.name)] = text(f.Lookup(c.name).Value.String())
			}
		}
		return m
	}
}

// editCommands are the writing verbs. Each makes one edit and gives it to sink: r.edit applies it, an apply file
// collects it.
func editCommands(sink func(context.Context, edit) error) []*cobra.Command {
	verb := func(use, short, operation string, argCount cobra.PositionalArgs, words func(argv []string) (map[string]any, error)) *cobra.Command {
		return &cobra.Command{
			Use: use, Short: short, Args: arguments(argCount),
			RunE: func(c *cobra.Command, argv []string) error {
				m, err := words(argv)
				if err != nil {
					return err
				}
				if f := c.Flags().Lookup("origin"); f != nil && f.Changed {
					m["origin"] = text(f.Value.String())
				}
				e := edit{operation: operation, arguments: m}
				if f := c.Flags().Lookup("dry-run"); f != nil {
					e.dryRun = f.Value.String() == "true"
				}
				if err := e.check(); err != nil {
					return err
				}
				return sink(c.Context(), e)
			},
		}
	}

	var addColumns, insertColumns, setColumns, replaceColumns func() map[string]any
	add := verb("add PATTERN ADDRESS", "append a row", "ADD", cobra.ExactArgs(2), func(argv []string) (map[string]any, error) {
		return rowArguments(argv, addColumns()), nil
	})
	addColumns = addColumnFlags(add.Flags())

	var before, after, anchorAddress string
	insert := verb("insert PATTERN ADDRESS --before|--after PATTERN", "put a row before or after another", "INSERT", cobra.ExactArgs(2), func(argv []string) (map[string]any, error) {
		m := rowArguments(argv, insertColumns())
		switch {
		case (before == "") == (after == ""):
			return nil, usage("insert: give --before PATTERN or --after PATTERN, and not both")
		case before != "":
			m["before"] = text(before)
		default:
			m["after"] = text(after)
		}
		if anchorAddress != "" {
			m["anchorAddress"] = text(anchorAddress)
		}
		return m, nil
	})
	insertColumns = addColumnFlags(insert.Flags())
	insert.Flags().StringVar(&before, "before", "", "put it before the first row of this `PATTERN`")
	insert.Flags().StringVar(&after, "after", "", "put it after the last row of this `PATTERN`")
	insert.Flags().StringVar(&anchorAddress, "address", "", "of the rows of that pattern, the one with this `ADDRESS`")

	set := verb("set PATTERN ADDRESS --COLUMN VALUE...", "change columns of a row", "SET", cobra.ExactArgs(2), func(argv []string) (map[string]any, error) {
		columns := setColumns()
		if len(columns) == 0 {
			return nil, usage("set: no column given: name what changes, as in --pick any")
		}
		return rowArguments(argv, columns), nil
	})
	setColumns = addColumnFlags(set.Flags())
	addOrigin(set)

	replace := verb("replace PATTERN ADDRESS", "replace the first row of the pattern in place, or add one", "REPLACE", cobra.ExactArgs(2), func(argv []string) (map[string]any, error) {
		return rowArguments(argv, replaceColumns()), nil
	})
	replaceColumns = addColumnFlags(replace.Flags())

	replaceAll := verb("replace-all PATTERN ADDRESS...", "replace all rows of the pattern", "REPLACE-ALL", cobra.MinimumNArgs(2), func(argv []string) (map[string]any, error) {
		addresses := make([]any, 0, len(argv)-1)
		for _, a := range argv[1:] {
			addresses = append(addresses, text(a))
		}
		return map[string]any{"pattern": text(argv[0]), "addresses": addresses}, nil
	})
	del := verb("delete PATTERN ADDRESS", "delete one row", "DELETE-ROUTE", cobra.ExactArgs(2), func(argv []string) (map[string]any, error) {
		return rowArguments(argv, nil), nil
	})
	addOrigin(del)
	deletePattern := verb("delete-pattern PATTERN", "delete all rows of a pattern", "DELETE-PATTERN", cobra.ExactArgs(1), func(argv []string) (map[string]any, error) {
		return map[string]any{"pattern": text(argv[0])}, nil
	})
	addOrigin(deletePattern)
	clearAll := verb("clear", "delete all configured rows, or those of an origin", "CLEAR", cobra.ExactArgs(0), func([]string) (map[string]any, error) {
		return map[string]any{}, nil
	})
	addOrigin(clearAll)
	for _, c := range []*cobra.Command{deletePattern, clearAll} {
		c.Flags().Bool("dry-run", false, "say what would go, and change nothing")
	}

	return []*cobra.Command{add, insert, set, replace, replaceAll, del, deletePattern, clearAll}
}

// completeColumns has the shell know the values of columns that have a few only.
func completeColumns(c *cobra.Command) {
	for flag, values := range flagValues {
		if c.Flags().Lookup(flag) != nil {
			c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

var flagValues = map[string][]string{
	"pick":    {"all", "any", "first"},
	"balance": {"least-busy", "round-robin", "weighted", "hash"},
}

// addOrigin gives a verb the flag that turns it to the rows of one origin, learned ones too.
func addOrigin(c *cobra.Command) {
	c.Flags().String("origin", "", "act on the rows of this `ORIGIN`, learned ones too")
}

// text is an argument as management takes it: a string, or binary where it is not UTF-8 (patterns are bytes).
func text(s string) any {
	if !utf8.ValidString(s) {
		return []byte(s)
	}
	return s
}

// carried refuses an address that no AMQP message or link can have.
func carried(verb, address string) error {
	if !utf8.ValidString(address) {
		return usage("%s: the address %q is not UTF-8: AMQP has no such address", verb, address)
	}
	return nil
}

func rowArguments(argv []string, columns map[string]any) map[string]any {
	m := map[string]any{"pattern": text(argv[0]), "address": text(argv[1])}
	for k, v := range columns {
		m[k] = v
	}
	return m
}

// check finds what is wrong with the edit's own words before anything is opened: that is usage, not a refused change.
func (e edit) check() error {
	if _, err := admin.ParseCommand(e.operation, e.arguments); err != nil {
		return e.wrong(err)
	}
	if when, ok := e.arguments["when"].(string); ok && when != "" {
		if _, err := routetable.CompileWhen(when); err != nil {
			return e.wrong(err)
		}
	}
	return nil
}

func (e edit) wrong(err error) error {
	return usage("%s: %v", verbOf(e.operation), err)
}

// edit applies one edit and prints what it did.
func (r *run) edit(ctx context.Context, e edit) error {
	ed, err := r.editor(ctx, false)
	if err != nil {
		return err
	}
	defer ed.close()
	x, err := ed.apply(ctx, []edit{e}, applyOptions{dryRun: e.dryRun})
	if err != nil {
		return err
	}
	return r.printResult(x)
}

func (r *run) printResult(x result) error {
	if x.Warnings == nil {
		x.Warnings = []string{}
	}
	return r.print(x, func(p *printer) {
		for _, w := range x.Warnings {
			p.line("warning: " + w)
		}
		p.line(x.summary())
	})
}

// summary is a result in one line.
func (x result) summary() string {
	var parts []string
	for _, n := range []struct {
		n    int
		what string
	}{{x.Added, "added"}, {x.Updated, "changed"}, {x.Removed, "removed"}} {
		if n.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.n, n.what))
		}
	}
	if len(x.Objects) > 0 {
		parts = append(parts, plural(len(x.Objects), "object")+" changed")
	}
	if len(parts) == 0 {
		parts = append(parts, "nothing changed")
	}
	s := strings.Join(parts, ", ")
	if x.Note != "" {
		s += ": " + x.Note
	}
	if x.DryRun {
		return "dry run: " + s
	}
	if x.Revision == 0 {
		return s
	}
	return fmt.Sprintf("%s (revision %d)", s, x.Revision)
}
