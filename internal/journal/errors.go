package journal

import (
	"errors"
	"fmt"
)

// ErrInUse says that another process has the directory. End that one, or use another directory.
var ErrInUse = errors.New("is in use by another router")

// errClosed is what a journal gives after Close.
var errClosed = errors.New("the journal is closed")

// DamageError says that committed bytes cannot be read. Nothing was changed: look with Check, mend with Repair, or bring the
// files back from a copy.
type DamageError struct {
	Dir     string
	File    string // within Dir
	Offset  int64  // where the trouble begins
	Problem string

	kind    string
	number  uint64
	missing bool // the file is not there
	header  bool // only the header is damaged, as far as is known
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%s; to look: routectl state check %s; to mend: routectl state repair %s", e.what(), e.Dir, e.Dir)
}

// what is the error without advice.
func (e *DamageError) what() string {
	return fmt.Sprintf("%s: offset %d: %s", join(e.Dir, e.File), e.Offset, e.Problem)
}

// cannotMend is damage that a repair can do nothing about.
type cannotMend struct{ *DamageError }

func (e cannotMend) Error() string {
	return "refused, nothing in the directory can stand for this: bring the file back from a copy, or start with an empty directory: " + e.what()
}

func (e cannotMend) Unwrap() error { return e.DamageError }

// VersionError says that a file was written by a program with another format. The file may well be whole: use that program.
type VersionError struct {
	Dir     string
	File    string // within Dir
	Kind    string // "snapshot" or "journal"
	Version uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s: %s version %d: this program reads version %d; use the program that wrote it, or start with an empty directory",
		join(e.Dir, e.File), e.Kind, e.Version, version)
}
