package ctl

import (
	"os"
	"syscall"
	"unsafe"
)

// hideInput has a terminal show nothing of what is typed, until restore.
func hideInput(f *os.File) (restore func(), err error) {
	var was syscall.Termios
	if err := terminal(f, syscall.TCGETS, &was); err != nil {
		return nil, err
	}
	hidden := was
	hidden.Lflag &^= syscall.ECHO
	hidden.Lflag |= syscall.ICANON | syscall.ISIG
	if err := terminal(f, syscall.TCSETS, &hidden); err != nil {
		return nil, err
	}
	return func() { terminal(f, syscall.TCSETS, &was) }, nil
}

func terminal(f *os.File, request uintptr, t *syscall.Termios) error {
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(t))); e != 0 {
		return e
	}
	return nil
}
