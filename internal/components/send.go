package components

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/internal/components/proto"
)

// via is where an event came from.
type via uint8

const (
	viaStream via = iota
	viaRequest
	viaNATS
)

// sender takes what became of an event.
type sender interface {
	// answer is called once, from any goroutine, perhaps under a lock of the node: it may only enqueue. f is nil where the event is with its target.
	answer(e *proto.Event, f *Failure)
}

// send routes an event and brings it on its way. e and all that it aliases stay as they are until from has its answer.
func (b *Broker) send(in *inlet, f *Finder, e *proto.Event, how via, from sender) {
	start := b.o.Now()
	b.count.events.Add(1)
	r, failure := b.route(e, how, f)
	if failure != nil && failure.Code == codeContentTooLarge && e.Category == proto.Response {
		b.log.Warn("a response is too large", "component", e.Source.Key(), "bytes", len(e.Content), "limit", b.o.MaxEvent)
		become(e, failure)
		r, failure = b.route(e, how, f)
	}
	took := int64(b.o.Now().Sub(start))
	if failure == nil && e.TTL <= took {
		failure = fail(codeTimeout, "")
	}
	if failure != nil {
		from.answer(e, failure)
		return
	}
	e.TTL -= took
	if r.adapter != nil {
		b.call(r.adapter, e, from)
		return
	}
	if e.Category == proto.Response || e.Target.IsComplete() {
		if b.sendDirect(in, e, r, from) {
			return
		}
	}
	in.send(e, r, from)
}

// sendDirect brings an event to the replica that it names, where that is here. Such addresses are made for one request.
func (b *Broker) sendDirect(in *inlet, e *proto.Event, r routed, from sender) (sent bool) {
	if e.Target.BrokerID == b.id.ID && e.Target.ID == b.web.ID && e.Category == proto.Response {
		b.waiting.answer(e)
		from.answer(e, nil)
		return true
	}
	if o := b.others; o != nil && e.Category == proto.Response && e.Target.BrokerID != b.id.ID {
		if o.publish(brokerSubjects+e.Target.BrokerID, e) != nil {
			return false
		}
		from.answer(e, nil)
		return true
	}
	s := b.streams.get(e.Target.Key())
	if s == nil {
		return false
	}
	in.msg = proto.AppendMatched(in.msg[:0], e, r.id, r.env, proto.D4)
	if s.put(outgoing{msg: in.msg, at: b.o.Now()}) != nil {
		return false
	}
	in.wrote(s)
	from.answer(e, nil)
	return true
}

// inlet is a way into the node, with its room. Not for concurrent use.
type inlet struct {
	b   *Broker
	in  *forwarder.Inlet
	msg []byte // a MatchedEvent
	buf []byte // a message

	direct []*stream // have events that are not written yet
	sent   bool      // into the node
}

// wrote notes that a stream is to be flushed.
func (x *inlet) wrote(s *stream) {
	if !slices.Contains(x.direct, s) {
		x.direct = append(x.direct, s)
	}
}

// flush brings what was sent on its way.
func (x *inlet) flush() {
	if x.sent {
		x.sent = false
		x.in.Flush()
	}
	for i, s := range x.direct {
		s.write()
		x.direct[i] = nil
	}
	x.direct = x.direct[:0]
}

func (b *Broker) newInlet(window int) *inlet { return b.makeInlet(window, nil) }

// newInletOf is the way in for what came from elsewhere.
func (b *Broker) newInletOf(source any) *inlet { return b.makeInlet(b.o.Queue, source) }

func (b *Broker) makeInlet(window int, source any) *inlet {
	account := &admin.Account{Name: "components", Send: admin.GrantsOfSchemes("comp")}
	return &inlet{b: b, in: b.node.NewInlet(forwarder.InletOptions{Account: account, Window: window, Source: source})}
}

// contentType is that of a message whose data is a MatchedEvent in dialect D4.
const contentType = "application/vnd.kubefox.matched-event"

// inlineEvent is up to which size an event is in its message. A larger one is kept here, and the message has a ticket for it.
const inlineEvent = 512 << 10

// send has the table find the target's replicas.
func (x *inlet) send(e *proto.Event, r routed, from sender) {
	x.msg = proto.AppendMatched(x.msg[:0], e, r.id, r.env, proto.D4)
	data, ticket := x.msg, ""
	if len(data) > inlineEvent {
		ticket = x.b.tickets.put(bytes.Clone(data))
		data = nil
	}
	h := wire.Header{TTL: uint32(min(e.TTL/int64(time.Millisecond)+1, 1<<32-1)), HasTTL: true}
	p := wire.Properties{To: "comp:" + e.Target.Address(), Subject: ticket, ContentType: contentType}
	x.buf = appendData(p.Append(h.Append(x.buf[:0])), data)
	err := x.in.Send(x.buf, func(o forwarder.Outcome) {
		x.b.tickets.drop(ticket)
		from.answer(e, failureOfOutcome(o))
	})
	if err != nil {
		x.b.tickets.drop(ticket)
		from.answer(e, asFailure(err))
		return
	}
	x.sent = true
	if cap(x.msg) > inlineEvent {
		x.msg, x.buf = nil, nil
	}
}

// appendData appends a data section (AMQP 1.0 part 3, 3.2.6).
func appendData(b, data []byte) []byte {
	b = append(b, 0x00, 0x53, 0x75)
	if len(data) < 256 {
		b = append(b, 0xa0, byte(len(data)))
	} else {
		n := len(data)
		b = append(b, 0xb0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return append(b, data...)
}

// failureOfOutcome is what an outcome means for the sender of an event.
func failureOfOutcome(o forwarder.Outcome) *Failure {
	switch {
	case o.Kind == wire.Accepted:
		return nil
	case o.State != nil && o.State.Error != nil && o.State.Error.Condition == "fingerpost:expired":
		return fail(codeTimeout, "")
	case o.Kind == wire.Rejected:
		return fail(codeComponentGone, "")
	}
	return fail(codeBrokerUnavailable, "")
}

// tickets are events that are too large for a message of the node, until they have their outcome.
type tickets struct {
	next atomic.Uint64
	mu   sync.Mutex
	kept map[string][]byte
}

func (t *tickets) put(msg []byte) (ticket string) {
	ticket = strconv.FormatUint(t.next.Add(1), 10)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept == nil {
		t.kept = map[string][]byte{}
	}
	t.kept[ticket] = msg
	return ticket
}

func (t *tickets) drop(ticket string) {
	if ticket == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.kept, ticket)
}

// data is the MatchedEvent of a message.
func (t *tickets) data(m *forwarder.Message) (msg []byte, ok bool) {
	data, kind, ok := m.Data()
	if !ok || kind != contentType {
		return nil, false
	}
	if len(data) > 0 {
		return data, proto.EventOf(data) != nil
	}
	ticket, _ := m.Property("subject")
	t.mu.Lock()
	defer t.mu.Unlock()
	data, ok = t.kept[ticket]
	return data, ok
}

// errorEvent is the answer to a request that failed.
func (b *Broker) errorEvent(e *proto.Event, f *Failure) *proto.Event {
	b.count.fail(f)
	answer := &proto.Event{
		ID: proto.NewID(), ParentID: e.ID, Span: e.Span, Category: proto.Response, CreateTime: b.o.Now().UnixNano(), TTL: e.TTL,
		HasContext: e.HasContext, Context: e.Context, HasSource: true, Source: b.id, HasTarget: true, Target: e.Source,
	}
	become(answer, f)
	return answer
}

// become makes an event one that tells of a failure.
func become(e *proto.Event, f *Failure) {
	body, err := json.Marshal(f)
	if err != nil {
		body = nil
	}
	e.Type, e.Values, e.ContentType, e.Content = proto.TypeError, nil, "application/json; charset=UTF-8", body
}
