//go:build !linux

package ctl

import (
	"errors"
	"os"
)

// hideInput is offered on Linux only: elsewhere a password is read as from any other input.
func hideInput(*os.File) (restore func(), err error) {
	return nil, errors.New("not offered here")
}
