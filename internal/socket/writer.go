package socket

import (
	"net"
	"sync"
	"syscall"
)

// Source is what a Writer takes bytes from. All but Release are called with the lock held, and must not unlock it.
type Source interface {
	// Output gives the next bytes to write, nil where there are none. spare is an empty buffer to append them to; one that Output gives instead
	// comes back as the next spare.
	Output(spare []byte) []byte

	// Wrote is told that the socket has taken n bytes more.
	Wrote(n int)

	// Failed is told that writing failed. Nothing is written any more.
	Failed(err error)

	// Release is called by the Writer's goroutine with the lock held, to unlock it as the owner does.
	Release()
}

// Trimmer is a Source that takes back what the socket has not begun.
type Trimmer interface {
	// Trim is given the end of an Output that the socket did not take, and tells how much of it has to be written all the same: 1 to
	// len(rest) bytes. The others are the Source's again, to be given another time or never.
	Trim(rest []byte) int
}

// Writer is the sending side of a connection: one buffer is written while the Source fills another. Who holds the lock and calls Flush writes what
// the socket takes at once; the rest is left to a goroutine that lives while the peer is slower than we are. All is guarded by the lock.
type Writer struct {
	nc      net.Conn
	raw     syscall.RawConn // nil where bytes do not go straight to a socket (TLS)
	mu      *sync.Mutex
	src     Source
	trimmer Trimmer // the source, where it is one
	writeFn func(uintptr) bool

	tried   []byte // argument and results of writeOnce
	n       int
	err     error
	spare   []byte // written out, to be filled again
	out     []byte // being written
	rest    []byte // of out: owned by the goroutine
	running bool   // the goroutine owns the socket's sending side
	over    bool   // Stop was called
	busy    bool   // something was written since Idle
	writers sync.WaitGroup
}

// Init has w write to nc what src gives; mu is the lock.
func (w *Writer) Init(nc net.Conn, mu *sync.Mutex, src Source) {
	w.nc, w.raw, w.mu, w.src = nc, Raw(nc), mu, src
	w.trimmer, _ = src.(Trimmer)
	w.writeFn = w.writeOnce
}

// Flush writes what the source has, as far as the socket takes it. Called with the lock.
func (w *Writer) Flush() {
	if w.running || w.over || !w.try() {
		return
	}
	w.running = true
	w.writers.Add(1)
	go w.run()
}

// try writes until the source has no more or the socket takes no more; then there is a rest. Called with the lock.
func (w *Writer) try() (more bool) {
	for {
		out := w.src.Output(w.spare)
		if out == nil {
			return false
		}
		w.spare, w.busy = nil, true
		n := w.write(out)
		if n > 0 {
			w.src.Wrote(n) // may give the source room to go on
		}
		if n < len(out) {
			rest := out[n:]
			if w.trimmer != nil && w.raw != nil {
				if keep := w.trimmer.Trim(rest); keep < len(rest) {
					w.out, w.rest = nil, rest[:keep] // its memory is in use behind that
					return true
				}
			}
			w.out, w.rest = out, rest
			return true
		}
		w.spare = out[:0]
	}
}

// write tries a write that does not wait.
func (w *Writer) write(b []byte) int {
	if w.raw == nil {
		return 0
	}
	w.tried = b
	err := w.raw.Write(w.writeFn)
	w.tried = nil
	if err != nil || w.err != nil {
		return 0 // the goroutine meets the error, or waits where the socket is full
	}
	return max(w.n, 0)
}

func (w *Writer) writeOnce(fd uintptr) bool {
	w.n, w.err = write(int(fd), w.tried)
	return true
}

// run is the goroutine. It is started by Flush alone and waited for by Wait.
func (w *Writer) run() {
	defer w.writers.Done()
	for more := true; more; {
		_, err := w.nc.Write(w.rest)
		w.mu.Lock()
		if err != nil {
			w.src.Failed(err) // running stays true: nothing more is written
			w.mu.Unlock()
			return
		}
		if w.out != nil {
			w.spare = w.out[:0]
		}
		n := len(w.rest)
		w.out, w.rest = nil, nil
		w.src.Wrote(n)
		more = w.try()
		w.running = more
		w.src.Release()
	}
}

// Idle forgets the spare buffer where nothing was written since the last call: it is for a clock. Called with the lock.
func (w *Writer) Idle() {
	if !w.busy {
		w.spare = nil
	}
	w.busy = false
}

// Stop has Flush write no more. What a goroutine is at goes on. Called with the lock.
func (w *Writer) Stop() { w.over = true }

// Wait waits for the goroutine, after Stop. A write deadline bounds it.
func (w *Writer) Wait() { w.writers.Wait() }
