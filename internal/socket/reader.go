package socket

import (
	"io"
	"net"
	"syscall"
)

// Reader reads a connection into a buffer that it holds only while there is something in it. It is owned by one goroutine.
type Reader struct {
	nc     net.Conn
	raw    syscall.RawConn // nil where bytes do not come straight from a socket (TLS)
	size   int
	readFn func(uintptr) bool

	bufp       *[]byte // nil while idle with nothing kept
	start, end int
	moved      int     // bytes that Room has moved in this buffer
	one        [1]byte // the first byte after a pause
	n          int
	err        error
}

// Init has r read nc by buffers of size bytes or more.
func (r *Reader) Init(nc net.Conn, size int) {
	r.nc, r.raw, r.size = nc, Raw(nc), size
	r.readFn = r.readOnce
}

// Raw is the socket below nc, where bytes go straight to one; else nil.
func Raw(nc net.Conn) syscall.RawConn {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

const easeSize = 256 << 10

// Bytes are those that were read and not used. They are valid until Use, Room, Fill or Free.
func (r *Reader) Bytes() []byte {
	if r.bufp == nil {
		return nil
	}
	return (*r.bufp)[r.start:r.end]
}

// Use drops the first n of Bytes.
func (r *Reader) Use(n int) {
	r.start += n
	if r.start == r.end {
		r.start, r.end = 0, 0
	}
}

// Room makes room for need bytes from the first of Bytes on. It moves them to the front of the buffer, and where that is too small to one of twice
// its size at most: what a peer says of a length costs no more than twice what it has sent. Where as much as the buffer holds was moved, and it
// holds less than four times need, it grows too, up to easeSize: a stream of long messages would be moved again and again.
func (r *Reader) Room(need int) {
	if r.bufp == nil {
		return
	}
	buf := *r.bufp
	if r.start+need <= len(buf) && r.start <= len(buf)/2 {
		return
	}
	have := r.end - r.start
	if r.moved += have; need > len(buf) && have > len(buf)/2 || len(buf) < easeSize && need > len(buf)/4 && r.moved > len(buf) {
		size := 2 * len(buf)
		if need > len(buf) {
			size = min(size, need)
		}
		bigger := Get(size)
		copy(*bigger, buf[r.start:r.end])
		Put(r.bufp)
		r.bufp, r.moved = bigger, 0
	} else {
		copy(buf, buf[r.start:r.end])
	}
	r.start, r.end = 0, r.end-r.start
}

// Fill waits for more bytes and tells how many came: none only with an error, io.EOF at the end. With nothing kept it waits without a buffer. There must be
// room (Room) where something is.
func (r *Reader) Fill() (int, error) {
	n, err := r.fill()
	switch {
	case n > 0:
		r.end += n
		return n, nil
	case err == nil:
		err = io.EOF
	}
	return 0, err
}

func (r *Reader) fill() (int, error) {
	if r.raw == nil {
		return r.fillLayered()
	}
	if r.bufp != nil && r.start == r.end && len(*r.bufp) > r.size<<1 {
		r.Free() // a long message is over
	}
	if err := r.raw.Read(r.readFn); err != nil {
		return 0, err
	}
	return max(r.n, 0), r.err
}

// fillLayered is fill where bytes do not come straight from a socket (TLS, WebSocket). It waits for the first byte alone, so that an idle
// connection holds no buffer here either; the others are mostly at hand then.
func (r *Reader) fillLayered() (int, error) {
	first := 0
	if r.end == 0 {
		r.Free()
		if n, err := r.nc.Read(r.one[:]); n == 0 {
			return 0, err
		}
		r.bufp = Get(r.size)
		(*r.bufp)[0] = r.one[0]
		first = 1
	}
	n, err := r.nc.Read((*r.bufp)[r.end+first:])
	if n+first > 0 {
		err = nil // it comes again
	}
	return n + first, err
}

func (r *Reader) readOnce(fd uintptr) bool {
	if r.bufp == nil {
		r.bufp = Get(r.size)
	}
	for {
		r.n, r.err = read(int(fd), (*r.bufp)[r.end:])
		switch r.err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			if r.end == 0 {
				r.Free()
			}
			return false
		}
		return true
	}
}

// Push puts bytes before what the connection gives: some that were read from it before.
func (r *Reader) Push(p []byte) {
	if len(p) == 0 {
		return
	}
	r.bufp = Get(max(r.size, len(p)))
	r.start, r.end = 0, copy(*r.bufp, p)
}

// Free gives the buffer back, with what is in it.
func (r *Reader) Free() {
	if r.bufp != nil {
		Put(r.bufp)
		r.bufp = nil
	}
	r.start, r.end, r.moved = 0, 0, 0
}
