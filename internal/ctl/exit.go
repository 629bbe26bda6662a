package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// The exit statuses of routectl.
const (
	exitDone        = 0 // done, also where there was nothing to do
	exitNo          = 1 // the answer is no: no match, a difference, a refused change, a message that was not accepted
	exitUsage       = 2 // the command line asks for something that cannot be
	exitUnreachable = 3 // the router cannot be reached
)

// fault is an error with its exit status. An empty text prints nothing: the verb has said what there is to say.
type fault struct {
	status int
	text   string
	err    error
}

func (f *fault) Error() string { return f.text }
func (f *fault) Unwrap() error { return f.err }

func no(format string, args ...any) error {
	return &fault{status: exitNo, text: fmt.Sprintf(format, args...)}
}

func usage(format string, args ...any) error {
	return &fault{status: exitUsage, text: fmt.Sprintf(format, args...)}
}

func unreachable(format string, args ...any) error {
	return &fault{status: exitUnreachable, text: fmt.Sprintf(format, args...)}
}

// silentNo is the answer no from a verb that has printed why.
var silentNo = error(&fault{status: exitNo})

// statusOf gives the exit status of err. An error that is no fault is cobra's: a command line that it refused.
func statusOf(err error) int {
	if err == nil {
		return exitDone
	}
	if f, ok := errors.AsType[*fault](err); ok {
		return f.status
	}
	if errors.Is(err, context.Canceled) {
		return exitNo
	}
	return exitUsage
}

// oneLine folds what would break the promise of one line of error.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
