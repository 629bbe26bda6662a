package journal

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// disk is what the package asks of the system; tests put one in that fails or crashes at a chosen call.
type disk interface {
	mkdir(dir string) error // with its parents, durable; nothing where it is there
	open(name string, flag int) (file, error)
	list(dir string) ([]string, error) // names, without directories that are not in the place of a file of ours
	rename(from, to string) error
	remove(name string) error
	syncDir(dir string) error
	lock(name string) (held, error)          // an error that is ErrInUse where another has it
	holder(name string) (pid int, held bool) // of the lock; pid 0: not known
}

// held is a file that was opened.
type held interface {
	named(name string) bool // whether the name leads to it still: it was not removed, nor moved, nor another put in its place
	Close() error
}

type file interface {
	held
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Datasync() error // the bytes and the size, not the times
	Sync() error
	Size() (int64, error)
}

func join(dir, name string) string { return filepath.Join(dir, name) }

// system is the disk of the operating system.
type system struct{}

type systemFile struct{ *os.File }

func (f systemFile) Datasync() error { return datasync(f.File) }

func (f systemFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f systemFile) named(name string) bool {
	there, err := os.Stat(name)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	here, err := f.Stat()
	return err != nil || os.SameFile(there, here)
}

func (system) open(name string, flag int) (file, error) {
	f, err := openRegular(name, flag)
	if err != nil {
		return nil, err
	}
	return systemFile{f}, nil
}

// openRegular opens a regular file, and nothing else: to open a pipe could take for ever.
func openRegular(name string, flag int) (*os.File, error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, &os.PathError{Op: "open", Path: name, Err: errNotRegular}
	}
	return os.OpenFile(name, flag, 0o600)
}

var errNotRegular = errors.New("not a regular file")

func (system) list(dir string) ([]string, error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range all {
		if _, _, ours := parseName(e.Name()); ours || !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (system) rename(from, to string) error { return os.Rename(from, to) }
func (system) remove(name string) error     { return os.Remove(name) }
func (system) syncDir(dir string) error     { return syncDir(dir) }

func (s system) mkdir(dir string) error {
	dir = filepath.Clean(dir)
	parent := filepath.Dir(dir)
	switch info, err := os.Stat(dir); {
	case err == nil && !info.IsDir():
		return errors.New("not a directory")
	case err == nil:
		// An earlier start may have been killed between making it and this. The parent may be closed to us: then it is not ours to keep.
		_ = syncDir(parent)
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	if parent != dir {
		if err := s.mkdir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(parent)
}

func (system) lock(name string) (held, error) {
	f, err := openRegular(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := flock(f, true); err != nil {
		f.Close()
		return nil, err
	}
	// The pid is for people only: that it cannot be written does not matter, the writes behind will say so.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
	}
	return systemFile{f}, nil
}

func (system) holder(name string) (pid int, held bool) {
	f, err := openRegular(name, os.O_RDONLY)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	if !errors.Is(flock(f, false), ErrInUse) {
		return 0, false
	}
	var text [20]byte
	n, _ := f.ReadAt(text[:], 0)
	pid, _ = strconv.Atoi(strings.TrimSpace(string(text[:n])))
	return pid, true
}

// place makes the file name of dir as fill writes it, or leaves it as it was: a temporary file, synced, renamed, and the directory synced.
// renamed says that the new file has the name, which is durable only where err is nil.
func place(d disk, dir, name string, fill func(f file) error) (renamed bool, err error) {
	temporary := join(dir, name+temporarySuffix)
	f, err := d.open(temporary, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return false, err
	}
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = d.rename(temporary, join(dir, name))
	}
	if err != nil {
		_ = d.remove(temporary) // else the next Open does
		return false, err
	}
	return true, d.syncDir(dir)
}

// load reads a whole file.
func load(d disk, name string) ([]byte, error) {
	f, err := d.open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}
