package mesh

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// errNotPermitted ends a connection that has to prove who it is, and has not.
var errNotPermitted = errors.New("the peer has not said who it is")

// handle does what a frame says. An error ends the connection; nothing is answered then.
func (l *link) handle(f *Frame) error {
	switch f.Type {
	case Publish:
		return l.handlePublish(f)
	case Request:
		return l.handleRequest(f)
	case Admin:
		return l.handleAdmin(f)
	case Response:
		l.handleResponse(f)
	case Ack:
		l.twin.Load().acked(l, f.ID)
	case Ack2:
		l.twin.Load().released(f.ID)
	case Identity:
		l.handleIdentity(f)
	case Attestation:
		l.handleAttestation(f)
	case Register:
		l.handleRegister(f)
	case Unregister:
		l.handleUnregister(f)
	}
	return nil
}

// permitted tells whether the peer may say anything but who it is: command_permitted.
func (l *link) permitted() bool {
	return !l.m.o.Authenticated || l.login.attested || l.loopback || l.dialled != nil
}

// mayUse tells whether a twin may use a topic: it is public, or the twin is among those that are allowed. Every router asks its own table.
func (m *Mesh) mayUse(t *twin, topic string) bool {
	if !m.private.Load() {
		return true
	}
	return m.allowed(t.name, topic)
}

// handlePublish acknowledges a publish and sends it to who is interested. One that is not allowed is dropped without a word.
func (l *link) handlePublish(f *Frame) error {
	if !l.permitted() {
		return errNotPermitted
	}
	t := l.twin.Load()
	topic := string(f.Name)
	if badName(topic) != "" || !l.m.mayUse(t, topic) {
		l.m.count.refused.Add(1)
		return nil
	}
	if f.QoS() == 0 {
		return l.passOn(t, f)
	}
	if f.QoS() == flagQoS1 || l.isNew(t, f.ID) {
		if err := l.passOn(t, f); err != nil {
			return err
		}
		l.flushNode() // whoever gets it has it in a file now, and so it may be acknowledged
		t.taken(f)
	}
	l.reply(&Frame{Type: Ack, ID: f.ID})
	return nil
}

// passOn sends a publish into the node.
func (l *link) passOn(t *twin, f *Frame) error {
	topic, again := string(f.Name), f.Flags&flagAgain
	if f.Flags &^= flagAgain; t.kin.Load() == 0 {
		again = 0 // others do not know it
	}
	f.HasID = f.Flags != 0
	if !l.isFirst(t, f.ID, f.HasID, again != 0) {
		return nil
	}
	e := envelope{hasID: f.HasID, flags: f.Flags | again, data: f.Data}
	l.m.count.published.Add(1)
	if l.topic != nil && string(l.topic) != topic {
		l.flushNode() // a peer gets what it is sent in the order that it came, whatever the topics
	}
	l.in.Tag = l.m.keep(l, t, f)
	id := f.ID
	if !f.HasID && l.m.kinCount.Load() > 0 {
		id, e.hasID = l.m.idOfStamp(l.in.Tag), true
	}
	e.id = id.Bytes()
	return l.sendTopic(f.Name, &e)
}

// isFirst tells whether a publish is to be taken: between routers each has an id, by which it is taken once, whatever the graph. again tells that it may have
// been here long ago.
func (l *link) isFirst(t *twin, id ID, hasID, again bool) bool {
	if !hasID || l.m.kinCount.Load() == 0 {
		return true
	}
	isNew := l.m.passes(id)
	if t.kin.Load() == 0 {
		return true
	}
	return isNew && !(again && l.m.rest != nil && l.m.rest.has(id))
}

// idOfStamp gives an id to a publish that has none; 0 is the stamp of what is not kept.
func (m *Mesh) idOfStamp(stamp int64) ID {
	id := randomID()
	if stamp != 0 {
		id = m.rest.idAt(stamp)
	}
	m.passes(id)
	return id
}

// keep has a publish that is sent on be kept for who comes later, and gives its stamp. by is as in record.
func (m *Mesh) keep(by *link, t *twin, f *Frame) int64 {
	s := m.rest
	if s == nil || m.o.Server { // nothing goes from one component of a server to another
		return 0
	}
	if t.kin.Load() != 0 && f.Flags == flagSlot { // it has its id for routers alone
		plain := *f
		plain.Flags, plain.HasID = 0, false
		return s.record(by, t.line, &plain, f.ID)
	}
	return s.record(by, t.line, f, ID{})
}

// say publishes what the router itself has to say of a twin, as if that had said it.
func (l *link) say(t *twin, topic string, data []byte) {
	l.flushNode()
	l.copyOf.twin = t
	l.m.sayBy(l.copies, l, t, topic, data)
}

// sayBy publishes by an inlet, as if t had said it; of nobody it is not kept here, which the lanes do, as with what comes over AMQP. by is the link that it is
// due to, if any.
func (m *Mesh) sayBy(in *forwarder.Inlet, by *link, t *twin, topic string, data []byte) {
	in.Tag = 0
	if t != nil {
		in.Tag = m.keep(by, t, &Frame{Type: Publish, Name: []byte(topic), Data: data})
	}
	if m.rest != nil {
		m.rest.write()
		defer m.rest.landed(by)
	}
	if in.Send(m.appendSaid(nil, topic, data, in.Tag), nil) == nil {
		in.Flush()
	}
}

// appendSaid appends the envelope of what the router itself publishes: between routers it has an id, as every publish.
func (m *Mesh) appendSaid(b []byte, topic string, data []byte, stamp int64) []byte {
	e := envelope{data: data}
	if m.kinCount.Load() > 0 {
		id := m.idOfStamp(stamp)
		e.id, e.hasID = id.Bytes(), true
	}
	return appendEnvelope(b, "topic:", []byte(topic), &e)
}

// taken keeps the id of a publish that is sent on.
func (t *twin) taken(f *Frame) {
	if f.QoS() != flagQoS2 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.note(0, f.ID.Bytes())
	t.commit()
}

// released takes an ack2.
func (t *twin) released(id ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.in.release(id) {
		t.note(lineReleased, id.Bytes())
		t.commit()
	}
}

func (l *link) isNew(t *twin, id ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.in.take(id)
}

// sendTopic sends a publish into the node.
func (l *link) sendTopic(topic []byte, e *envelope) error {
	at := len(l.arena)
	l.arena = appendEnvelope(l.arena, "topic:", topic, e)
	l.pending = true
	name := at + nameAt(e)
	l.topic = l.arena[name : name+len(topic)]
	return l.in.Send(l.arena[at:len(l.arena):len(l.arena)], nil)
}

// nameAt is where the name of a topic stands in its envelope.
func nameAt(e *envelope) int {
	n := 12 + 1 + 1 + 5 + len("topic:")
	if e.hasID {
		n += 1 + len(e.id)
	}
	return n
}

// handleRequest has one who exposes the method run it, or a component that is named.
func (l *link) handleRequest(f *Frame) error {
	if !l.permitted() {
		return errNotPermitted
	}
	l.flushNode() // what was published before comes before
	t, topic := l.twin.Load(), string(f.Name)
	l.m.count.requests.Add(1)
	if bad := badName(topic); bad != "" {
		l.refuse(f.ID, StatusError, "bad topic: "+bad)
		return nil
	}
	if !l.m.mayUse(t, topic) {
		l.refuse(f.ID, StatusError, "unauthorized")
		return nil
	}
	if f.Target != nil {
		return l.direct(f, t, topic)
	}
	if answer, ok := l.m.builtin(topic); ok {
		l.respond(f.ID, StatusOK, answer)
		return nil
	}
	if status, words := l.m.implementor(t, topic); status != StatusOK {
		l.refuse(f.ID, status, words)
		return nil
	}
	return l.request("rpc:", f.Name, f)
}

// request sends a request into the node. Where nobody takes it, the asker is told.
func (l *link) request(scheme string, name []byte, f *Frame) error {
	e := &envelope{id: f.ID.Bytes(), hasID: true, flags: byte(f.ID.kind), data: f.Data}
	if f.Target != nil {
		e.subject = f.Name
	}
	if l.m.isForeign(scheme + string(name)) {
		return l.requestOfOthers(scheme, name, f, e)
	}
	b := appendEnvelope(nil, scheme, name, e)
	l.source.taken = false
	err := l.in.Send(b, nil)
	l.in.Flush()
	if err == nil && !l.source.taken {
		l.refuse(f.ID, StatusMethodAway, string(f.Name)+": method unavailable")
	}
	return err
}

// requestOfOthers is request where the rows lead to others than peers: they are given an address for the answer. Where nobody takes the message, the asker is
// told when that is known.
func (l *link) requestOfOthers(scheme string, name []byte, f *Frame, e *envelope) error {
	q := &question{from: l.twin.Load(), id: f.ID, topic: string(f.Name), data: append([]byte(nil), f.Data...)}
	id, ok := l.m.await(q)
	if !ok {
		l.refuse(f.ID, StatusMethodAway, q.topic+": too many requests wait")
		return nil
	}
	e.replyTo, e.correlation = l.m.answerPrefix()+hex.EncodeToString(id.Bytes()), id.Bytes()
	l.source.taken = false
	m, asker := l.m, q.from
	err := l.in.Send(appendEnvelope(nil, scheme, name, e), func(o forwarder.Outcome) {
		if o.Kind != wire.Accepted && m.own.answered(id) != nil {
			asker.send(nil, &Frame{Type: Response, ID: q.id, Status: StatusMethodAway, Data: appendText(nil, q.topic+": method unavailable")})
		}
	})
	l.in.Flush()
	if l.source.taken { // a peer had it after all
		m.own.answered(id)
	}
	return err
}

// direct sends a request to the component that it names.
func (l *link) direct(f *Frame, t *twin, topic string) error {
	target := string(f.Target)
	switch status := l.m.targetState(t, target, topic); status {
	case StatusOK:
		return l.request("node:", f.Target, f)
	case StatusNoMethod:
		l.refuse(f.ID, status, topic+": method unknown")
	case StatusLoopback:
		// Its own method: the router has none but the built-ins.
		if answer, ok := l.m.builtin(topic); ok {
			l.respond(f.ID, StatusOK, answer)
			return nil
		}
		l.refuse(f.ID, StatusNoMethod, topic+": method unknown")
	default:
		l.refuse(f.ID, status, target)
	}
	return nil
}

// builtin answers the methods that every router has.
func (m *Mesh) builtin(topic string) (answer []byte, ok bool) {
	switch topic {
	case "rid":
		return appendText(nil, m.o.Name), true
	case "version":
		return appendText(nil, "fingerpost_"+m.o.Version), true
	case "uptime":
		return appendText(nil, fmt.Sprintf("up for %d seconds", int(time.Since(m.started).Seconds()))), true
	}
	return nil, false
}

// implementor tells whether somebody can take a request for a method, else the status that its asker gets and words (find_implementor).
func (m *Mesh) implementor(t *twin, topic string) (Status, string) {
	var room [4]routetable.Group
	groups := m.table.Snapshot().LookupInto(room[:0], "rpc:"+topic, nil)
	if len(groups) == 0 || m.o.Server && !m.isForeign("rpc:"+topic) {
		return StatusNoMethod, topic + ": method unknown"
	}
	own := false
	for i := range groups {
		for j := range groups[i].Matches {
			hop := groups[i].Matches[j].Hop
			if hop == nil {
				continue
			}
			if hop.Scheme != "peer" {
				return StatusOK, ""
			}
			switch other := m.twinOf(hop.Name); {
			case other == t:
				own = true
			case other != nil && other.open.Load() && t.reaches(other):
				return StatusOK, ""
			}
		}
	}
	if own {
		return StatusLoopback, topic + ": method loopback"
	}
	return StatusMethodAway, topic + ": method unavailable"
}

// meets tells whether two twins are of one tenant. A link to a router is of the tenant of its name.
func (t *twin) meets(o *twin) bool { return t.tenant == o.tenant }

// reaches tells whether what a twin says may go to another. A server relays nothing (relay_rule).
func (t *twin) reaches(o *twin) bool { return !t.m.o.Server && t.meets(o) }

// targetState tells whether a request that names a component can go there (manage_target).
func (m *Mesh) targetState(t *twin, target, topic string) Status {
	if badName(target) != "" || m.o.Server && !m.isForeign("node:"+target) {
		return StatusNoTarget
	}
	var room [2]routetable.Group
	groups := m.table.Snapshot().LookupInto(room[:0], "node:"+target, nil)
	status := StatusNoTarget
	for i := range groups {
		for j := range groups[i].Matches {
			hop := groups[i].Matches[j].Hop
			if hop == nil {
				continue
			}
			other := m.twinOf(hop.Name)
			switch {
			case hop.Scheme == "peer" && (other == nil || !other.open.Load()):
				if status == StatusNoTarget {
					status = StatusTargetDown
				}
			case other == t && hop.Scheme == "peer":
				return StatusLoopback
			default:
				status = StatusOK
			}
		}
	}
	if status == StatusOK && !m.isKnown(topic) {
		return StatusNoMethod
	}
	return status
}

// isKnown tells whether anybody has the method.
func (m *Mesh) isKnown(topic string) bool {
	if _, ok := m.builtin(topic); ok {
		return true
	}
	var room [2]routetable.Group
	return len(m.table.Snapshot().LookupInto(room[:0], "rpc:"+topic, nil)) > 0
}

// handleResponse takes an answer to who has asked. Those to commands that were passed on have nobody who has.
func (l *link) handleResponse(f *Frame) {
	t := l.twin.Load()
	if l.dialled != nil && l.dialled.answer(l, f) {
		return
	}
	q := t.answered(f.ID)
	if q == nil {
		return
	}
	if q.answers != nil {
		q.answers(f)
		if q.isCopied(f) {
			l.m.copyRequest(q)
		}
		return
	}
	answer := *f
	answer.ID = q.id
	q.from.send(l, &answer)
	if q.isCopied(f) {
		l.say(q.from, q.topic, q.data) // the subscribers of the topic get the arguments, but who has asked
	}
}

// handleIdentity takes a name.
func (l *link) handleIdentity(f *Frame) {
	if l.dialled != nil {
		l.refuse(f.ID, StatusError, "already identified")
		return
	}
	name := cleanName(string(f.Name))
	key, err := l.m.keys.find(name)
	if badName(name) != "" {
		key, err = nil, nil
	}
	if err != nil {
		l.m.o.Log.Error("the key of a component cannot be read", "component", name, "error", err)
	}
	l.step(f, l.login.identity(name, key, err, nonce()))
}

// handleAttestation takes a proof.
func (l *link) handleAttestation(f *Frame) {
	name := cleanName(string(f.Name))
	key, err := (*key)(nil), error(nil)
	if badName(name) == "" {
		key, err = l.m.keys.find(name)
	}
	l.step(f, l.login.attest(name, key, err, f.Key))
}

// step answers a step of the login.
func (l *link) step(f *Frame, r reply) {
	switch {
	case r.named:
		if reason := l.m.name(l, f.Data); reason != "" {
			l.login.name, l.login.attested = "", false
			l.refuse(f.ID, StatusError, reason)
			return
		}
		if l.alarm != nil {
			l.alarm.Stop()
		}
		l.respond(f.ID, StatusOK, l.m.exports(l.twin.Load()))
		l.m.arrived(l.twin.Load(), l)
	case r.status == StatusChallenge:
		l.respond(f.ID, StatusChallenge, appendBytes(nil, r.proof))
	default:
		l.refuse(f.ID, r.status, r.reason)
		l.ending = r.close
	}
}

// handleRegister keeps a public key under a name.
func (l *link) handleRegister(f *Frame) {
	name := cleanName(string(f.Name))
	l.m.mu.Lock()
	pin, known := l.m.tenants[tenantOf(name)]
	l.m.mu.Unlock()
	taken := false
	if badName(name) == "" {
		key, err := l.m.keys.find(name)
		taken = key != nil || err != nil
	}
	status, reason := l.login.mayRegister(name, pin, string(f.Pin), known, taken)
	if status == StatusOK {
		if err := l.m.keys.add(name, f.Key, f.KeyType); err != nil {
			l.m.o.Log.Warn("a key is not taken", "component", name, "error", err)
			status, reason = StatusError, "the key is not taken"
		}
	}
	if status != StatusOK {
		l.refuse(f.ID, status, reason)
		return
	}
	l.m.o.Log.Info("a component is registered", "component", name, "from", l.from)
	l.respond(f.ID, StatusOK, nil)
}

// handleUnregister forgets the key of who asks.
func (l *link) handleUnregister(f *Frame) {
	if !l.login.attested {
		l.refuse(f.ID, StatusError, "invalid operation")
		return
	}
	if err := l.m.keys.remove(l.login.name); err != nil {
		l.m.o.Log.Error("a key cannot be removed", "component", l.login.name, "error", err)
		l.refuse(f.ID, StatusError, "the key cannot be removed")
		return
	}
	l.respond(f.ID, StatusOK, nil)
}
