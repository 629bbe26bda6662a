package socket_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fingerpost/fingerpost/internal/house/leaks"
	"github.com/fingerpost/fingerpost/internal/socket"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if far, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if near, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close(); near.Close() })
	return near, far
}

// layered hides that a connection is a socket.
type layered struct{ net.Conn }

// source gives numbered bytes, a chunk at a time.
type source struct {
	mu          sync.Mutex
	w           socket.Writer
	left, chunk int
	next        byte
	wrote       int
	failed      error
}

func (s *source) Output(b []byte) []byte {
	n := min(s.left, s.chunk)
	if n == 0 {
		return nil
	}
	for range n {
		b = append(b, s.next)
		s.next++
	}
	s.left -= n
	return b
}

func (s *source) Wrote(n int)      { s.wrote += n }
func (s *source) Failed(err error) { s.failed = err }
func (s *source) Release()         { s.w.Flush(); s.mu.Unlock() }

type trimmer struct{ *source }

// Trim keeps a byte.
func (s trimmer) Trim(rest []byte) int {
	s.left += len(rest) - 1
	s.next -= byte(len(rest) - 1)
	return 1
}

func TestEveryByteIsWrittenOnceAndInOrder(t *testing.T) {
	for _, c := range []struct {
		name          string
		layered, trim bool
	}{{"a socket", false, false}, {"a socket, trimmed", false, true}, {"a layer", true, false}} {
		near, far := pair(t)
		if c.layered {
			near = layered{near}
		}
		const total = 20 << 20
		s := &source{left: total, chunk: 100_000}
		if c.trim {
			s.w.Init(near, &s.mu, trimmer{s})
		} else {
			s.w.Init(near, &s.mu, s)
		}
		s.mu.Lock()
		s.w.Flush()
		s.mu.Unlock()
		var r socket.Reader
		r.Init(far, 1000)
		far.SetDeadline(time.Now().Add(20 * time.Second))
		want := byte(0)
		for got := 0; got < total; {
			if _, err := r.Fill(); err != nil {
				t.Fatalf("%s: after %d bytes: %v", c.name, got, err)
			}
			for _, b := range r.Bytes() {
				if b != want {
					t.Fatalf("%s: byte %d is %d, want %d", c.name, got, b, want)
				}
				want++
			}
			got += len(r.Bytes())
			r.Use(len(r.Bytes()))
		}
		s.mu.Lock()
		s.w.Stop()
		s.mu.Unlock()
		s.w.Wait()
		if s.wrote != total || s.failed != nil {
			t.Errorf("%s: wrote %d of %d, %v", c.name, s.wrote, total, s.failed)
		}
	}
}

func TestAFailedWriteIsToldOnce(t *testing.T) {
	near, far := pair(t)
	far.Close()
	s := &source{left: 64 << 20, chunk: 1 << 20}
	s.w.Init(near, &s.mu, s)
	s.mu.Lock()
	s.w.Flush()
	s.w.Flush()
	s.mu.Unlock()
	s.w.Wait()
	if s.failed == nil {
		t.Error("nobody was told")
	}
}

// A frame of any length is put together in the buffer, whatever came before it, and its length costs nothing before it comes.
func TestRoomGrowsWithWhatCame(t *testing.T) {
	for _, isLayered := range []bool{false, true} {
		near, far := pair(t)
		if isLayered {
			near = layered{near}
		}
		near.SetDeadline(time.Now().Add(20 * time.Second))
		var r socket.Reader
		r.Init(near, 4096)
		long := bytes.Repeat([]byte("0123456789"), 100_000)
		go func() {
			far.Write([]byte("first"))
			far.Write(long)
			far.Write([]byte("last"))
			far.Close()
		}()
		for _, want := range []string{"first", string(long), "last"} {
			for len(r.Bytes()) < len(want) {
				r.Room(len(want))
				if _, err := r.Fill(); err != nil {
					t.Fatal(err)
				}
			}
			if got := string(r.Bytes()[:len(want)]); got != want {
				t.Fatalf("got %.20q, want %.20q", got, want)
			}
			r.Use(len(want))
		}
		if n, err := r.Fill(); n != 0 || err != io.EOF {
			t.Errorf("at the end: %d, %v", n, err)
		}
		r.Push([]byte("again"))
		if string(r.Bytes()) != "again" {
			t.Errorf("got %q", r.Bytes())
		}
		r.Room(1 << 40)
		r.Free()
	}
}

// A stream of frames of half the buffer has a longer one in a while, and not one longer than it needs.
func TestRoomGrowsWithWhatIsMoved(t *testing.T) {
	near, far := pair(t)
	near.SetDeadline(time.Now().Add(20 * time.Second))
	var r socket.Reader
	r.Init(near, 64<<10)
	frame := make([]byte, 40_000)
	go func() {
		for range 100 * len(frame) / 25_000 { // no frame ends with a write for long
			far.Write(frame[:25_000])
		}
		far.Close()
	}()
	most := 0
	for n := 0; n < 100; {
		for len(r.Bytes()) < len(frame) {
			r.Room(len(frame))
			if _, err := r.Fill(); err != nil {
				t.Fatalf("after %d frames: %v", n, err)
			}
		}
		for len(r.Bytes()) >= len(frame) {
			most = max(most, cap(r.Bytes()))
			r.Use(len(frame))
			n++
		}
	}
	if most < 160_000 || most > 256<<10 {
		t.Errorf("frames of %d bytes came to a buffer of %d", len(frame), most)
	}
}

func TestBuffersAreAsLongAsAsked(t *testing.T) {
	for _, n := range []int{0, 1, 4096, 4097, 32 << 10, 1 << 26, 1<<26 + 1} {
		b := socket.Get(n)
		if len(*b) < n || len(*b) > max(4096, 2*n) {
			t.Errorf("%d bytes: got %d", n, len(*b))
		}
		socket.Put(b)
	}
}
