package ctl

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/routetable"
)

func testCommand(r *run) *cobra.Command {
	return &cobra.Command{
		Use:   "test FILE",
		Short: "check the expect list of a table file",
		Long: `Test looks the addresses of FILE's expect list up in FILE's rows and compares the hops, as sets of canonical text.
Exit status 1 says that one differs. It needs no router. With --file TABLE the rows are those of TABLE, and FILE may be left out.`,
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, argv []string) error {
			name := r.file
			if len(argv) > 0 {
				name = argv[0]
			}
			if name == "" {
				return usage("test: give FILE, or --file TABLE")
			}
			f, t, err := r.openTable(name)
			if err != nil {
				return err
			}
			if r.file != "" && r.file != name {
				if _, t, err = r.openTable(r.file); err != nil {
					return err
				}
			}
			v := tested{File: name, Expectations: len(f.Expect), Failures: []testFailure{}}
			for _, x := range routetable.CheckExpect(t.Snapshot(), f.Expect) {
				v.Failures = append(v.Failures, testFailure{
					Line: x.Expect.Line, Address: x.Expect.Address, Expected: filled(x.Expect.Hops), Got: filled(x.Got), What: x.Msg,
				})
			}
			if err := r.print(v, func(p *printer) { drawTested(p, v) }); err != nil {
				return err
			}
			if len(v.Failures) > 0 {
				return silentNo
			}
			return nil
		},
	}
}

// tested is what a run of an expect list found.
type tested struct {
	File         string        `json:"file"`
	Expectations int           `json:"expectations"`
	Failures     []testFailure `json:"failures"`
}

type testFailure struct {
	Line     int      `json:"line,omitempty"`
	Address  string   `json:"address"`
	Expected []string `json:"expected"`
	Got      []string `json:"got"`
	What     string   `json:"what,omitempty"`
}

func filled(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func drawTested(p *printer, v tested) {
	for _, x := range v.Failures {
		where := v.File
		if x.Line > 0 {
			where = fmt.Sprintf("%s:%d", v.File, x.Line)
		}
		p.line(fmt.Sprintf("%s: %q: got %s, expected %s", where, x.Address, hopList(x.Got), hopList(x.Expected)))
	}
	if v.Expectations == 0 {
		p.line("nothing to test: the file has no expect list")
		return
	}
	p.line(fmt.Sprintf("%d of %s hold", v.Expectations-len(v.Failures), plural(v.Expectations, "expectation")))
}

func hopList(hops []string) string {
	if len(hops) == 0 {
		return "no hop"
	}
	return strings.Join(hops, " ")
}

// openTable reads a table file for a verb that needs no router. What is wrong with it is usage: the answer no means
// something else there.
func (r *run) openTable(name string) (*routetable.File, *routetable.Table, error) {
	f, err := r.readTable(name)
	if _, ok := errors.AsType[*routetable.FileError](err); ok {
		return nil, nil, usage("%v", err)
	}
	if err != nil {
		return nil, nil, err
	}
	t := routetable.New()
	if _, err := t.LoadFile(f, routetable.LoadReplace); err != nil {
		return nil, nil, usage("%s: %v", inputName(name), err)
	}
	return f, t, nil
}
