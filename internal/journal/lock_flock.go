//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package journal

import (
	"os"
	"syscall"
)

// flock takes the lock of an open file, which ends with the file or the process; ErrInUse where another has it.
func flock(f *os.File, exclusive bool) error {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	for {
		switch err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); err {
		case syscall.EINTR:
		case syscall.EWOULDBLOCK:
			return ErrInUse
		default:
			return os.NewSyscallError("flock", err)
		}
	}
}
