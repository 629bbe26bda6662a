//go:build !race

package socket

import (
	"syscall"
	"unsafe"
)

// brief is the most bytes of a read or a write that the scheduler need not know of. The sockets never block, so that such a call is over in a few
// microseconds: to announce it would cost as much again, and one that takes 20 µs loses its processor to another thread.
const brief = 32 << 10

// read is read(2) of a socket that does not block.
func read(fd int, p []byte) (int, error) {
	if len(p) == 0 || len(p) > brief {
		return syscall.Read(fd, p)
	}
	return result(syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p))))
}

// write is write(2) of a socket that does not block.
func write(fd int, p []byte) (int, error) {
	if len(p) == 0 || len(p) > brief {
		return syscall.Write(fd, p)
	}
	return result(syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p))))
}

func result(n, _ uintptr, errno syscall.Errno) (int, error) {
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}
