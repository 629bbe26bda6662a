package mesh

import (
	"bytes"
	"encoding/binary"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// lane is the outlet of one twin for one name that was looked up, and of patterns each has its own.
type lane struct {
	t *twin
	laneKey
}

type laneKey struct {
	kind    laneKind
	name    string // the topic, the method, or what was looked up
	pattern string // of laneSpace
	own     bool   // name is that of a topic, as it was looked up
}

type laneKind uint8

const (
	laneTopic laneKind = iota // publishes by their topic, whoever subscribes to it and to all
	laneSpace                 // what is sent has the pattern as its topic
	laneCall                  // a method
	laneNode                  // a component that is named
)

// maxLanes is how many lanes a twin keeps. Beyond it they are made again when plans are.
const maxLanes = 1 << 12

// Outlet gives the outlet of a hop as a row leads there.
func (m *Mesh) Outlet(hop *routetable.Hop, row *routetable.Route, name string) forwarder.Outlet {
	if hop.Name == ownName {
		return m.answersTo(name)
	}
	t := m.known(hop.Name)
	if t == nil {
		return nil
	}
	pattern, byTopic := "", false
	if row != nil {
		pattern, byTopic = row.Pattern, isPlaced(row.Origin)
	}
	return t.lane(keyOf(pattern, name, byTopic))
}

// keyOf tells what a row and the name that it was found by mean to Rembus. An operator's row that leads to a peer from elsewhere makes a topic of
// the name. A router of our kind gets a publish by its topic, once, whatever the patterns behind it.
func keyOf(pattern, name string, byTopic bool) laneKey {
	if topic, ok := strings.CutPrefix(name, "topic:"); ok {
		space := strings.TrimPrefix(pattern, "topic:")
		if space != pattern && space != "*" && isSpace(space) && !byTopic {
			return laneKey{laneSpace, topic, space, true}
		}
		return laneKey{kind: laneTopic, name: topic, own: true}
	}
	if method, ok := strings.CutPrefix(name, "rpc:"); ok {
		return laneKey{kind: laneCall, name: method}
	}
	if target, ok := strings.CutPrefix(name, "node:"); ok {
		return laneKey{kind: laneNode, name: target}
	}
	return laneKey{kind: laneTopic, name: name}
}

func (t *twin) lane(k laneKey) *lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lanes[k]; l != nil {
		return l
	}
	if t.lanes == nil || len(t.lanes) >= maxLanes {
		t.lanes = map[laneKey]*lane{}
	}
	l := &lane{t, k}
	t.lanes[k] = l
	return l
}

// Present: a request goes to who is there. What is published to a component that keeps what it has is done with also where it is away.
func (l *lane) Present() bool {
	return l.t.open.Load() || l.t.named && l.kind < laneCall
}

// Busy is how many requests the twin has not answered.
func (l *lane) Busy() int { return int(l.t.outstanding.Load()) }

// IsAsked: of exposers that are equally busy the first is asked (rembus.md, 6.6).
func (l *lane) IsAsked() bool { return l.kind >= laneCall }

// Deliver sends copies.
func (l *lane) Deliver(batch []*forwarder.Copy) (int, error) {
	if l.kind >= laneCall {
		return l.ask(batch)
	}
	return l.publish(batch)
}

// publish sends what was published to a subscriber.
func (l *lane) publish(batch []*forwarder.Copy) (taken int, err error) {
	t := l.t
	var by *link
	now := time.Time{}
	t.mu.Lock()
	done := t.done[:0]
	if t.link == nil && !t.named {
		t.mu.Unlock()
		return 0, forwarder.ErrGone
	}
	for _, c := range batch {
		if s, ok := c.Message().Source().(*source); ok {
			by = s.link
		}
		keeps, bad, full := l.send(c, &now)
		if full {
			err = forwarder.ErrBusy
			t.m.count.dropped.Add(1)
			break
		}
		taken++
		switch {
		case bad != nil:
			defer c.Settle(*bad)
		case !keeps:
			done = append(done, c)
		}
	}
	t.trim()
	if t.m.rest != nil {
		t.m.rest.write()
		t.noteMark()
	}
	t.commit()
	t.done = nil
	t.mu.Unlock()
	forwarder.SettleAll(done, accepted)
	t.mu.Lock()
	t.done = done[:0]
	t.mu.Unlock()
	t.flush(by)
	return taken, err
}

// clogged tells whether the peer takes nothing, and much waits for it. Called under the twin's lock.
func (l *lane) clogged() bool {
	tr := l.t.link.t
	tr.Lock()
	defer tr.Unlock()
	return tr.Pending() >= l.t.m.o.HardQueue
}

// send sends one copy. keeps tells that its outcome comes later; bad is the outcome of one that a peer of Rembus cannot be given; full tells that there is no
// room for it. Called under the twin's lock.
func (l *lane) send(c *forwarder.Copy, now *time.Time) (keeps bool, bad *forwarder.Outcome, full bool) {
	t := l.t
	e, from, err := l.open(c)
	if err != "" {
		o := forwarder.Rejected(wire.CondNotAllowed, err)
		return false, &o, false
	}
	wanted := from == nil && !c.Message().Settled && l.kind != laneSpace // a sender of AMQP waits for the outcome: it is the ack
	stamp := l.stamp(c, &e, from)
	if from == t || from != nil && !from.reaches(t) || t.m.private.Load() && !t.m.mayHear(t, l.name) {
		return false, nil, false
	}
	full = t.full() || t.link != nil && l.clogged()
	if full && stamp != 0 && t.fallsBehind() {
		full = false // it is at rest, and goes out from there
	}
	switch {
	case full:
		return false, nil, true
	case t.isDue(stamp, wanted):
	case wanted && stamp == 0: // nobody has it, and it is not kept
		return false, &forwarder.Outcome{Kind: wire.Released}, false
	default:
		return false, nil, false
	}
	t.sent(stamp)
	f := l.frame(c, &e, from, wanted)
	if !wanted {
		c = nil
	} else {
		c.Keep()
	}
	t.put(l, &f, &e, c, stamp, now)
	return wanted, nil, false
}

// stamp is that of a copy as it is kept, 0 where it is not: what is found by a name that is no topic is no publish for those who come later. What rows have led
// to another topic is kept for that as well.
func (l *lane) stamp(c *forwarder.Copy, e *envelope, from *twin) int64 {
	s := l.t.m.rest
	switch {
	case s == nil || !l.own:
		return 0
	case from == nil:
		return s.recordCopy(copyKey{c.Serial(), l.name}, "", func() (*Frame, ID) {
			f := &Frame{Type: Publish, Name: []byte(l.name), Data: e.appendPayload(nil)}
			if !c.Message().Settled {
				f.Flags, f.HasID, f.ID = flagQoS1, true, serialID(c)
			}
			return f, ID{}
		})
	}
	if topic, ok := bytes.CutPrefix(e.to, []byte("topic:")); ok && string(topic) == l.name || c.Message().Tag() == 0 {
		return c.Message().Tag()
	}
	return s.recordCopy(copyKey{c.Serial(), l.name}, from.line, func() (*Frame, ID) { return l.led(e, from) })
}

// led is how a publish is kept that rows have led to another topic, and by which id routers know it there.
func (l *lane) led(e *envelope, from *twin) (f *Frame, id ID) {
	f = &Frame{Type: Publish, Flags: e.flags &^ flagAgain, Name: []byte(l.name), Data: e.appendPayload(nil)}
	if e.hasID {
		id, _ = MakeID(e.id)
		id = l.t.m.idFor(id, l.name)
	}
	if from.kin.Load() != 0 && f.Flags == flagSlot {
		f.Flags = 0
	}
	if f.Flags != 0 {
		f.HasID, f.ID, id = true, id, ID{}
	}
	return f, id
}

// frame is the head of what a subscriber gets: type, flags and id.
func (l *lane) frame(c *forwarder.Copy, e *envelope, from *twin, wanted bool) Frame {
	f := Frame{Type: Publish}
	if l.kind == laneTopic {
		f.ID, _ = MakeID(e.id)
		f.Flags, f.HasID = e.flags, e.hasID
		if from != nil && f.HasID && string(e.to[min(len("topic:"), len(e.to)):]) != l.name { // a row has led here from another topic
			f.ID = l.t.m.idFor(f.ID, l.name)
		}
	}
	kin, again := l.t.kin.Load() != 0, f.Flags&flagAgain
	f.Flags &^= flagAgain
	if from != nil && from.kin.Load() != 0 && f.Flags == flagSlot && !kin {
		f.Flags, f.HasID = 0, false // it has its id for routers alone
	}
	if kin && l.kind == laneTopic && f.Flags == 0 {
		f.Flags, f.HasID = flagSlot, true
	}
	if kin && from == nil {
		f.ID = l.t.m.idFor(serialID(c), l.name)
	}
	if wanted {
		if f.Flags, f.HasID = flagQoS1, true; !kin {
			f.ID = newID()
		}
	}
	if kin && f.HasID {
		f.Flags |= again
	}
	return f
}

// put sends a publish: on the wire, or behind what waits. c has its outcome; nil: nobody asks. Called under the lock.
func (t *twin) put(l *lane, f *Frame, e *envelope, c *forwarder.Copy, stamp int64, now *time.Time) {
	t.frame = l.appendPublish(t.frame[:0], f, e)
	if f.QoS() == 0 && len(t.out.waiting) == 0 {
		t.writeOwn()
		return
	}
	if now.IsZero() {
		*now = time.Now()
	}
	t.push(parcel{frame: bytes.Clone(t.frame), id: f.ID, qos: f.QoS(), copy: c, stamp: stamp}, *now)
}

// idFor is the id by which routers know a message that has reached one topic of several, whichever of them it is sent to.
func (m *Mesh) idFor(id ID, topic string) ID {
	h := uint64(14695981039346656037) // FNV-1a, the same everywhere
	for i := range len(topic) {
		h = (h ^ uint64(topic[i])) * 1099511628211
	}
	for i := range min(8, int(id.n)) {
		id.b[i] ^= byte(h >> (8 * i))
	}
	m.passes(id)
	return id
}

func serialID(c *forwarder.Copy) (id ID) {
	id, _ = MakeID(binary.LittleEndian.AppendUint64(nil, c.Serial()))
	return id
}

// appendPublish appends what the subscriber gets.
func (l *lane) appendPublish(b []byte, f *Frame, e *envelope) []byte {
	if f.Flags == 0 {
		b = appendType(b, 3, Publish, 0)
	} else {
		b = appendBytes(appendType(b, 4, Publish, f.Flags), f.ID.Bytes())
	}
	if l.kind == laneSpace {
		return e.appendSpacePayload(appendText(b, l.pattern), l.name)
	}
	return e.appendPayload(appendText(b, l.name))
}

// writeOwn puts the frame of the scratch buffer on the wire. Called under the lock.
func (t *twin) writeOwn() {
	if t.link.json.Load() {
		var f Frame
		if ParseFrame(t.frame, &f) == nil {
			t.write(&f, t.frame)
		}
		return
	}
	tr := t.link.t
	tr.Lock()
	tr.append(false, t.frame)
	tr.Unlock()
}

// open reads a copy, and tells who it comes from: nil is no peer of Rembus.
func (l *lane) open(c *forwarder.Copy) (e envelope, from *twin, bad string) {
	if s, ok := c.Message().Source().(*source); ok {
		if e.open(c.Message().Payload) != nil {
			return e, s.twin, "the message cannot be read"
		}
		return e, s.twin, ""
	}
	data, kind, ok := c.Message().Data()
	if !ok {
		return e, nil, "a peer of Rembus takes messages of one data section"
	}
	e.data, e.raw = data, kind != contentCBOR
	if !e.raw {
		if n, err := skipItem(data); err != nil || n != len(data) {
			return e, nil, "the data is not one item of CBOR, as its content-type says"
		}
	}
	return e, nil, ""
}

// mayHear tells whether a subscriber may be told what was published on a private topic. Admins may always.
func (m *Mesh) mayHear(t *twin, topic string) bool {
	return m.allowed(t.name, topic) || m.isAdmin(t.name)
}

func (m *Mesh) isAdmin(name string) bool { return (*m.admins.Load())[name] }

// ask gives requests to who is to run them.
func (l *lane) ask(batch []*forwarder.Copy) (int, error) {
	for i, c := range batch {
		s, ok := c.Message().Source().(*source)
		if !ok {
			taken, bad := l.askFor(c)
			switch {
			case bad != "":
				defer c.Settle(forwarder.Rejected(wire.CondNotAllowed, bad))
			case !taken:
				return i, forwarder.ErrGone
			default:
				defer c.Settle(accepted)
			}
			continue
		}
		var e envelope
		if e.open(c.Message().Payload) != nil {
			defer c.Settle(forwarder.Rejected(wire.CondDecodeError, "the message cannot be read"))
			continue
		}
		if s.twin == l.t && l.kind == laneCall || !s.twin.reaches(l.t) || !l.request(s, &e) {
			return i, forwarder.ErrGone
		}
		s.taken = true
		defer c.Settle(accepted)
	}
	return len(batch), nil
}

// request sends one; false where the twin is away.
func (l *lane) request(s *source, e *envelope) bool {
	id, _ := MakeID(e.id)
	f := Frame{Type: Request, ID: id, Name: []byte(l.name), Data: e.appendPayload(nil)}
	if l.kind == laneNode {
		f.Target, f.Name = f.Name, e.subject
	}
	asked := id
	asked.kind = idKind(e.flags)
	return l.t.ask(s.link, &f, &question{from: s.twin, id: asked, topic: string(f.Name), data: f.Data})
}
