package ctl

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/routetable"
)

func storeCommand(r *run) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "store FILE",
		Short: "write the table to a file",
		Long: `Store writes the configured and the named learned rows to FILE, whole or not at all: YAML where it ends in .yaml or
.yml, else the arrow form; "-" is standard output, in YAML. With --all rows that are bound to a live connection are there as
comments.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, argv []string) error {
			ed, err := r.editor(c.Context(), true)
			if err != nil {
				return err
			}
			defer ed.close()
			f, err := ed.store(c.Context(), all)
			if err != nil {
				return err
			}
			var text bytes.Buffer
			if err := writeForm(&text, f, argv[0] == "-" || isYAML(argv[0])); err != nil {
				return no("store: %v", err)
			}
			if argv[0] == "-" {
				if _, err := r.env.Stdout.Write(text.Bytes()); err != nil {
					return no("store: %v", err)
				}
				return nil
			}
			if err := writeFileAtomic(argv[0], text.Bytes()); err != nil {
				return no("store: %v", err)
			}
			x := stored{File: argv[0], Rows: len(f.Routes)}
			return r.print(x, func(p *printer) { p.line("stored " + plural(x.Rows, "row") + " in " + x.File) })
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also the rows bound to a live connection, as comments")
	return c
}

type stored struct {
	File string `json:"file"`
	Rows int    `json:"rows"`
}

func isYAML(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml":
		return true
	}
	return false
}

func writeForm(w *bytes.Buffer, f *routetable.File, yaml bool) error {
	if yaml {
		return f.WriteYAML(w)
	}
	return f.WriteArrow(w)
}

// writeFileAtomic replaces a file by one with this content, or leaves it as it was: temporary file beside it, fsync,
// rename, fsync of the directory. A symbolic link stays one; the mode of the file stays.
func writeFileAtomic(name string, content []byte) (err error) {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		name = real
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(name); err == nil {
		if !info.Mode().IsRegular() {
			return &fs.PathError{Op: "write", Path: name, Err: errors.New("not a regular file")}
		}
		mode = info.Mode().Perm()
	}
	dir := filepath.Dir(name)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(name)+".*")
	if err != nil {
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			p.Op, p.Path = "write", name
		}
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	if _, err = tmp.Write(content); err != nil {
		return err
	}
	if err = tmp.Chmod(mode); err != nil {
		return err
	}
	if err = tmp.Sync(); err != nil {
		return err
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), name); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
