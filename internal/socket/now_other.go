//go:build !linux || race

package socket

import "syscall"

// The race detector takes a write and a read of the system for an order of what is done before and after.
func read(fd int, p []byte) (int, error) { return syscall.Read(fd, p) }

func write(fd int, p []byte) (int, error) { return syscall.Write(fd, p) }
