package socket

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
)

// What the scheduler is not told of reads and writes as what it is.
func TestReadAndWriteDoNotWait(t *testing.T) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fds[0])
	for _, fd := range fds {
		if err := syscall.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int{1, 100, 32 << 10, 32<<10 + 1} {
		out, in := bytes.Repeat([]byte{byte(size)}, size), make([]byte, size)
		if n, err := write(fds[0], out); n != size || err != nil {
			t.Fatalf("%d bytes: wrote %d, %v", size, n, err)
		}
		if n, err := read(fds[1], in); n != size || err != nil || !bytes.Equal(in, out) {
			t.Fatalf("%d bytes: read %d, %v", size, n, err)
		}
		if n, err := read(fds[1], in); n > 0 || !errors.Is(err, syscall.EAGAIN) {
			t.Errorf("nothing there: read %d, %v", n, err)
		}
	}
	if n, err := write(fds[0], nil); n != 0 || err != nil {
		t.Errorf("nothing to write: wrote %d, %v", n, err)
	}
	syscall.Close(fds[1])
	if n, err := read(fds[0], make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("at the end: read %d, %v", n, err)
	}
	if n, err := write(fds[0], []byte{1}); n > 0 || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("nobody there: wrote %d, %v", n, err)
	}
}
