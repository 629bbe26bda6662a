package events

import (
	"slices"
	"time"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// segmentBytes is about how much is written at once, and so how finely what waits is counted.
const segmentBytes = 32 << 10

// segment is a part of what waits for a component: frames, or a replay whose frames are made when their turn comes.
type segment struct {
	frames []byte
	events int
	first  int64 // when the first event in it came; 0 is none
	replay view
	link   *linkView // a replay for another router
}

// outbox is all that waits for a component, in order: answers, replays and live events. The connection's lock guards it.
//
// Invariant: depth is the events in queue, replays not counted, and in writing.
type outbox struct {
	queue   []segment
	writing segment  // given to the socket, which has not taken all of it
	left    int      // bytes of it
	spares  [][]byte // to be filled again
	depth   int
	bytes   int
	since   time.Time // the socket took something last, or was given something when it had nothing
	sent    uint64    // events that the socket has taken
}

// tail gives the segment that frames are appended to.
func (o *outbox) tail() *segment {
	if n := len(o.queue); n > 0 && !o.queue[n-1].isReplay() && len(o.queue[n-1].frames) < segmentBytes {
		return &o.queue[n-1]
	}
	var s segment
	if n := len(o.spares); n > 0 {
		s.frames, o.spares = o.spares[n-1], o.spares[:n-1]
	}
	o.queue = append(o.queue, s)
	return &o.queue[len(o.queue)-1]
}

// push puts an event's frame behind the rest.
func (o *outbox) push(frame []byte, at int64) {
	s := o.tail()
	s.frames = append(s.frames, frame...)
	o.bytes += len(frame)
	o.count(at)
}

// count says that what was put last is an event.
func (o *outbox) count(at int64) {
	s := &o.queue[len(o.queue)-1]
	if s.first == 0 {
		s.first = at
	}
	s.events++
	o.depth++
}

// say puts a message that is no event behind the rest.
func (o *outbox) say(write func([]byte) []byte, client bool) {
	s := o.tail()
	n := len(s.frames)
	b, at := websocket.BeginFrame(s.frames, client)
	s.frames = websocket.EndFrame(write(b), at, true, client)
	o.bytes += len(s.frames) - n
}

// replay puts a replay behind the rest.
func (o *outbox) replay(v view) {
	if len(v.places) > 0 {
		o.queue = append(o.queue, segment{replay: v})
	}
}

// replayLink queues a replay for a link. It takes the place of one that is not done.
func (o *outbox) replayLink(v *linkView) {
	for i := range o.queue {
		if l := o.queue[i].link; l != nil {
			*l = *v
			return
		}
	}
	if len(v.chunks) > 0 {
		o.queue = append(o.queue, segment{link: v})
	}
}

// isReplay tells whether there are events of a replay to come.
func (s *segment) isReplay() bool {
	return len(s.replay.places) > 0 || s.link != nil && len(s.link.chunks) > 0
}

// Output gives the socket what is next.
func (o *outbox) Output(spare []byte) []byte {
	for len(o.queue) > 0 {
		s := &o.queue[0]
		out := s.frames
		switch {
		case len(s.replay.places) > 0:
			o.writing = segment{first: s.replay.at(0).at}
			out = s.replay.appendFrames(spare[:0], segmentBytes)
		case s.isReplay():
			o.writing = segment{}
			out = s.link.appendFrames(spare[:0], segmentBytes)
		default: // never empty: then spare would be kept, and given back
			o.writing = *s
			o.bytes -= len(out)
			o.keep(spare)
		}
		if !s.isReplay() {
			o.queue = slices.Delete(o.queue, 0, 1)
		}
		if len(out) > 0 {
			o.writing.frames, o.left, o.since = nil, len(out), time.Now()
			return out
		}
	}
	if cap(o.queue) > maxQueue {
		o.queue = nil
	}
	return nil
}

// maxQueue is how many segments the list keeps room for.
const maxQueue = 16

// maxSpares is how many buffers are kept: what one read of a sender fills.
const maxSpares = 4

// keep has a buffer used again.
func (o *outbox) keep(b []byte) {
	if cap(b) > 0 && cap(b) <= 4*segmentBytes && len(o.spares) < maxSpares {
		o.spares = append(o.spares, b[:0])
	}
}

// Wrote is told what the socket took.
func (o *outbox) Wrote(n int) {
	o.left -= n
	o.since = time.Now()
	if o.left == 0 {
		o.depth -= o.writing.events
		o.sent += uint64(o.writing.events)
		o.writing = segment{}
	}
}

// idle gives buffers back where nothing waits: it is for a clock.
func (o *outbox) idle() {
	if o.empty() {
		o.spares, o.queue = nil, nil
	}
}

// empty tells whether the socket has taken everything.
func (o *outbox) empty() bool { return o.left == 0 && len(o.queue) == 0 }

// stalled tells how long the socket has taken nothing of what it was given.
func (o *outbox) stalled(now time.Time) time.Duration {
	if o.left == 0 {
		return 0
	}
	return now.Sub(o.since)
}

// undelivered is when the first event came that the socket has not taken to the end; 0 where there is none.
func (o *outbox) undelivered() int64 {
	if o.left > 0 && o.writing.first != 0 {
		return o.writing.first
	}
	for i := range o.queue {
		if s := &o.queue[i]; len(s.replay.places) > 0 {
			return s.replay.at(0).at
		} else if s.first != 0 {
			return s.first
		}
	}
	return 0
}
