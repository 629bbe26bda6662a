package components

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/internal/components/proto"
	"github.com/fingerpost/fingerpost/internal/grpc"
)

// owed are the requests that a replica was sent and has not answered, by id: when its stream ends, who waits for them is told at once.
//
// Nobody says when nobody waits any more, so those whose life is over are looked for when there are many.
type owed struct {
	all    map[string]debt
	enough int // at which it looks
}

// debt is one request, up to what routing looks at.
type debt struct {
	head  []byte // an Event without its values
	until time.Time
}

// Bounds of what a stream owes. Requests beyond are told of nothing.
const (
	maxOwed = 10_000
	fewOwed = 256
)

// add notes a MatchedEvent that appendMatched wrote, and that was sent; what is no request it leaves out. msg may be kept.
func (o *owed) add(msg []byte, at time.Time) {
	head, id := proto.RequestHead(msg)
	if head == nil {
		return
	}
	if len(o.all) >= max(o.enough, fewOwed) {
		for id, d := range o.all {
			if !d.until.After(at) {
				delete(o.all, id)
			}
		}
		o.enough = 2 * len(o.all)
	}
	if len(o.all) >= maxOwed {
		return
	}
	if o.all == nil {
		o.all = map[string]debt{}
	}
	if len(msg) > 1<<10 {
		head, id = bytes.Clone(head), strings.Clone(id)
	}
	o.all[id] = debt{head, at.Add(time.Duration(proto.TTLOf(msg)))}
}

// takeOwed takes what the stream owes from it.
func (s *stream) takeOwed() map[string]debt {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.owed.all
	s.owed.all = nil
	return all
}

// inherit gives the stream what the one owed whose place it has: the program is the same. It does not where it has ended itself.
func (s *stream) inherit(all map[string]debt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != nil {
		return false
	}
	if s.owed.all == nil {
		s.owed.all = all
		return true
	}
	for id, d := range all {
		s.owed.all[id] = d
	}
	return true
}

// failOwed tells who waits for the answers of a stream that has ended that there are none.
func (b *Broker) failOwed(s *stream) {
	all := s.takeOwed()
	if len(all) == 0 {
		return
	}
	if errors.Is(s.reason, errReplaced) {
		if heir := b.streams.get(s.key); heir != nil && heir != s && heir.inherit(all) {
			return
		}
	}
	failure := fail(codeComponentGone, "its stream ended before it answered")
	if status, told := errors.AsType[*grpc.Status](s.reason); told {
		failure = fail(codeComponentGone, "%s", status.Message)
	}
	in := b.inlets.Get().(*inlet)
	defer b.inlets.Put(in)
	for _, d := range all {
		var e proto.Event
		left := d.until.Sub(b.o.Now())
		if _, err := e.Parse(d.head); err != nil || left <= 0 {
			continue
		}
		e.TTL = int64(left)
		b.sendDirect(in, b.errorEvent(&e, failure), routed{}, nobody{})
	}
	in.flush()
}

// nobody wants to know what became of an event.
type nobody struct{}

func (nobody) answer(*proto.Event, *Failure) {}
