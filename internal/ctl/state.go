package ctl

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/journal"
)

func stateCommand(r *run) *cobra.Command {
	c := &cobra.Command{
		Use:   "state check|repair DIR",
		Short: "look after a router's state directory",
		Args:  arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			return usage("state: give check DIR or repair DIR")
		},
	}
	c.AddCommand(
		&cobra.Command{
			Use:   "check DIR",
			Short: "read a state directory and say whether a router starts from it; changes nothing",
			Long: `Check reads all files of the directory that a router's --state names, and changes nothing. Exit status 1 says that something is damaged;
"state repair" makes what is left of it usable.`,
			Args: arguments(cobra.ExactArgs(1)),
			RunE: func(_ *cobra.Command, argv []string) error { return r.state(argv[0], journal.Check) },
		},
		&cobra.Command{
			Use:   "repair DIR",
			Short: "make a damaged state directory usable, with what can be read of it",
			Long: `Repair keeps what can be read of a damaged state directory, puts the rest aside, and says what it did. The router that uses the directory
has to be stopped.`,
			Args: arguments(cobra.ExactArgs(1)),
			RunE: func(_ *cobra.Command, argv []string) error { return r.state(argv[0], journal.Repair) },
		},
	)
	return c
}

// stateView is a report on a state directory, as it is printed.
type stateView struct {
	Directory string      `json:"directory"`
	OK        bool        `json:"ok"`
	InUse     bool        `json:"in-use"`
	Files     []stateFile `json:"files"`
	Done      []string    `json:"done,omitempty"`
}

type stateFile struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Bytes   int64  `json:"bytes"`
	Entries int    `json:"entries"`
	First   uint64 `json:"first-generation,omitempty"`
	Last    uint64 `json:"last-generation,omitempty"`
	Problem string `json:"problem,omitempty"`
	Note    string `json:"note,omitempty"`
}

// state looks at a directory and prints what was found.
func (r *run) state(dir string, look func(dir string, v journal.Values) (*journal.Report, error)) error {
	if r.file != "" {
		return usage("state: --file is a table file; the state directory is an argument")
	}
	x, err := look(dir, journal.Values{admin.NodeValue: func(value []byte) error {
		_, err := admin.ParseNodeID(value)
		return err
	}})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usage("%s: no such directory", dir)
	case errors.Is(err, syscall.ENOTDIR):
		return usage("%s: not a directory", dir)
	case err != nil:
		return no("%v", err)
	}
	v := stateView{Directory: x.Dir, OK: x.OK, InUse: x.Held, Files: []stateFile{}, Done: x.Done}
	for _, f := range x.Files {
		v.Files = append(v.Files, stateFile{
			Name: f.Name, Kind: f.Kind, Bytes: f.Bytes, Entries: f.Entries, First: f.First, Last: f.Last, Problem: f.Problem, Note: f.Note,
		})
	}
	err = r.print(v, func(p *printer) {
		for line := range strings.Lines(x.String()) {
			p.line(strings.TrimSuffix(line, "\n"))
		}
	})
	if err == nil && !x.OK {
		return silentNo
	}
	return err
}
