package ctl

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

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

// writeForm writes a table in one of the forms. It refuses what would not be read again.
func writeForm(w *bytes.Buffer, f *routetable.File, yaml bool) error {
	if !yaml {
		return f.WriteArrow(w)
	}
	if len(f.Routes) > routetable.MaxYAMLRows {
		return fmt.Errorf("a YAML table has at most %d rows: use the arrow form", routetable.MaxYAMLRows)
	}
	if err := f.WriteYAML(w); err != nil {
		return err
	}
	if w.Len() > routetable.MaxYAMLBytes {
		return fmt.Errorf("a YAML table is at most %d MiB: use the arrow form", routetable.MaxYAMLBytes>>20)
	}
	return nil
}

// writeFileAtomic replaces a file by one with this content, or leaves it as it was: temporary file beside it, fsync,
// rename, fsync of the directory. A symbolic link stays one, the file that it leads to is replaced; the mode of the
// file stays. The error names the file.
func writeFileAtomic(name string, content []byte) error {
	fail := func(err error) error {
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err
		} else if l, ok := errors.AsType[*os.LinkError](err); ok {
			err = l.Err
		}
		return &fs.PathError{Op: "write", Path: name, Err: err}
	}
	file, err := followLinks(name)
	if err != nil {
		return fail(err)
	}
	mode, exists := fs.FileMode(0), false
	if info, err := os.Stat(file); err == nil {
		if !info.Mode().IsRegular() {
			return fail(errors.New("not a regular file"))
		}
		mode, exists = info.Mode().Perm(), true
	}
	dir := filepath.Dir(file)
	tmp, err := createBeside(file, exists)
	if err != nil {
		return fail(err)
	}
	_, err = tmp.Write(content)
	if err == nil && exists {
		err = tmp.Chmod(mode)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return fail(err)
	}
	// The file is replaced; a directory that cannot be opened or synced (some file systems) does not undo that.
	if d, err := os.Open(dir); err == nil {
		defer d.Close()
		if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EINVAL) {
			return fail(err)
		}
	}
	return nil
}

// followLinks is the file that a name leads to, also where it is not there yet.
func followLinks(name string) (string, error) {
	if file, err := filepath.EvalSymlinks(name); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	for range 40 {
		to, err := os.Readlink(name)
		if err != nil {
			return name, nil // not there, or no link
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(name), to)
		}
		name = to
	}
	return "", errors.New("too many links")
}

// createBeside makes a temporary file in the directory of another: one for the owner alone where that one exists, else
// one with the mode of a new file.
func createBeside(file string, exists bool) (*os.File, error) {
	dir, base := filepath.Split(file)
	if len(base) > 200 {
		base = base[:200] // names are bounded
	}
	perm := fs.FileMode(0o600)
	if !exists {
		perm = 0o666
	}
	for try := 0; ; try++ {
		f, err := os.OpenFile(dir+"."+base+"."+rand.Text()[:8], os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
		if err == nil || !errors.Is(err, fs.ErrExist) || try == 100 {
			return f, err
		}
	}
}
