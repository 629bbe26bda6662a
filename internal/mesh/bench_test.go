package mesh

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

// BenchmarkPublish is one publisher of 100-byte payloads, QoS 0, through a router to subscribers, over WebSocket on loopback. The clients are part of what is
// measured; ns/copy is wall time for all of it.
func BenchmarkPublish(b *testing.B) {
	for _, n := range []int{1, 16} {
		b.Run(fmt.Sprintf("%d subscribers", n), func(b *testing.B) { benchPublish(b, n) })
	}
}

func benchPublish(b *testing.B, n int) {
	r := startRouter(b, Options{})
	var subs []*client
	for i := range n {
		subs = append(subs, r.component(fmt.Sprintf("sub%d", i), "t"))
	}
	pub := r.component("pub")
	frame := AppendFrame(nil, &Frame{Type: Publish, Name: []byte("t"), Data: append([]byte{0x81, 0x58, 98}, make([]byte, 98)...)})
	const window = 256
	b.ReportAllocs()
	b.ResetTimer()
	for sent := 0; sent < b.N; {
		batch := min(window, b.N-sent)
		pub.tr.Lock()
		for range batch {
			pub.tr.append(false, frame)
		}
		pub.tr.Flush()
		pub.tr.Unlock()
		for _, s := range subs {
			for range batch {
				<-s.got
			}
		}
		sent += batch
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/copy")
}

// BenchmarkCopy is what a copy costs in the router alone: from the parsed frame to the buffer of the peer's socket, which nothing takes.
func BenchmarkCopy(b *testing.B) {
	for _, n := range []int{1, 16} {
		b.Run(fmt.Sprintf("%d subscribers", n), func(b *testing.B) { deliverTo(b, n, func(l *link, f *Frame) { run(b, l, f) }) })
	}
}

func run(b *testing.B, l *link, f *Frame) {
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if err := l.handlePublish(f); err != nil {
			b.Fatal(err)
		}
		if i%64 == 63 {
			l.flushNode()
		}
	}
	l.flushNode()
}

// deliverTo has n subscribers whose frames go nowhere, and a link to publish by.
func deliverTo(t testing.TB, n int, do func(l *link, f *Frame)) {
	r := startRouter(t, Options{})
	var twins []*twin
	for i := range n {
		c := r.component(fmt.Sprintf("sub%d", i), "t")
		c.barrier()
		tw := r.m.twinOf(c.name)
		tw.mu.Lock()
		tw.link = &link{m: r.m, t: &sink{transport: tw.link.t}}
		tw.mu.Unlock()
		twins = append(twins, tw)
	}
	pub := r.component("pub")
	pub.barrier()
	l := r.m.twinOf("pub").current()
	l.setReading() // nobody is flushed: the reader is at it
	var f Frame
	frame := AppendFrame(nil, &Frame{Type: Publish, Name: []byte("t"), Data: append([]byte{0x81, 0x58, 98}, make([]byte, 98)...)})
	if err := ParseFrame(frame, &f); err != nil {
		t.Fatal(err)
	}
	do(l, &f)
	for _, tw := range twins {
		if tw.current().t.(*sink).frames == 0 {
			t.Error("nothing was sent")
		}
	}
}

// sink takes frames and forgets them.
type sink struct {
	transport
	frames int
	last   []byte
}

func (s *sink) Lock()   {}
func (s *sink) Unlock() {}
func (s *sink) Flush()  {}
func (s *sink) append(_ bool, message []byte) {
	s.frames++
	s.last = append(s.last[:0], message...)
}
func (s *sink) Pending() int { return 0 }

func TestACopyAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	deliverTo(t, 4, func(l *link, f *Frame) {
		one := func() {
			for range 64 {
				if err := l.handlePublish(f); err != nil {
					t.Fatal(err)
				}
			}
			l.flushNode()
		}
		one()
		if n := testing.AllocsPerRun(50, one); n > 1 {
			t.Errorf("%v allocations for 64 publishes to 4", n)
		}
	})
}

// BenchmarkRequest is a request and its answer through a router, over WebSocket on loopback; p50 is told.
func BenchmarkRequest(b *testing.B) {
	r := startRouter(b, Options{})
	exposer, caller := r.component("exposer"), r.component("caller")
	exposer.admin("m", "expose")
	caller.barrier()
	over := make(chan struct{})
	go func() {
		defer close(over)
		var f Frame
		for m := range exposer.got {
			if ParseFrame(m, &f) == nil && f.Type == Request {
				exposer.send(&Frame{Type: Response, ID: f.ID, Data: f.Data})
			}
		}
	}()
	took := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for i := range b.N {
		began := time.Now()
		caller.send(&Frame{Type: Request, ID: number(uint64(i + 1000)), Name: []byte("m"), Data: []byte{0x80}})
		<-caller.got
		took = append(took, time.Since(began))
	}
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	runtime.KeepAlive(over)
	exposer.tr.Abort(errClosed)
	<-over
}
