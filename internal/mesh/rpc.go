package mesh

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp/wire"
	"github.com/fingerpost/fingerpost/routetable"
)

// Requests between AMQP and Rembus. A message of AMQP whose rows lead to a method is a request, accepted when who exposes it was sent it; its answer goes
// to the reply-to, with the correlation-id or else the message-id, and the status of Rembus in the application property rembus-status (0 is success, 70
// that none came in time). A request of Rembus whose rows lead elsewhere is a message with a reply-to of ours; what is sent there is the answer, of the
// status in rembus-status, success where it has none.
//
// Bodies are those of publishes, but that an answer is one value and no array: one byte string is the data as it is.

const statusProperty = "rembus-status"

// StatusTimeout is what those are told over AMQP whose request nobody has answered in time. In Rembus it is never sent.
const StatusTimeout Status = 70

// askFor sends the request that a message of AMQP is; false where the twin is away.
func (l *lane) askFor(c *forwarder.Copy) (taken bool, bad string) {
	e, _, bad := l.open(c)
	if bad != "" {
		return true, bad
	}
	var m wire.Message
	if err := m.Parse(c.Message().Payload); err != nil {
		return true, "the message cannot be read"
	}
	f := Frame{Type: Request, ID: newID(), Name: []byte(l.name), Data: e.appendPayload(nil)}
	if l.kind == laneNode {
		if m.Properties == nil || badName(m.Properties.Subject) != "" {
			return true, "a request to a component has the method as its subject"
		}
		f.Target, f.Name = f.Name, []byte(m.Properties.Subject)
	}
	q := &question{topic: string(f.Name), data: f.Data, answers: func(*Frame) {}}
	if p := m.Properties; p != nil && p.HasReplyTo {
		to, correlation := p.ReplyTo, p.CorrelationID
		if correlation == nil {
			correlation = p.MessageID
		}
		q.answers = func(f *Frame) { l.t.m.answer(to, correlation, f) }
	}
	return l.t.ask(nil, &f, q), ""
}

// answer sends the answer to a request of AMQP.
func (m *Mesh) answer(to string, correlation any, f *Frame) {
	a := wire.Message{
		Properties:            &wire.Properties{To: to, HasTo: true, CorrelationID: correlation, ContentType: contentCBOR},
		ApplicationProperties: wire.Map{{Key: statusProperty, Value: uint32(f.Status)}},
		Data:                  [][]byte{append([]byte(nil), f.Data...)},
	}
	if h, err := readHead(f.Data); err == nil && h.major == majorBytes && !h.indef {
		a.Properties.ContentType, a.Data[0] = "", a.Data[0][h.length:]
	}
	if payload, err := a.Append(nil); err == nil {
		m.node.Send(to, payload)
	}
}

// What others than peers are asked is answered by this router, a twin of no component's name: its row is that of the addresses for answers.
const ownName = "."

// maxAwaited bounds the answers that are waited for.
const maxAwaited = 100_000

// answerPrefix begins the addresses for answers; an id of ours ends them, which nobody can guess.
func (m *Mesh) answerPrefix() string { return "$reply/" + m.node.ID() + "/rembus/" }

// isForeign tells whether an address leads to others than peers too.
func (m *Mesh) isForeign(address string) bool {
	var room [4]routetable.Group
	groups := m.table.Snapshot().LookupInto(room[:0], address, nil)
	for i := range groups {
		for j := range groups[i].Matches {
			if hop := groups[i].Matches[j].Hop; hop != nil && hop.Scheme != "peer" && hop.Scheme != "null" {
				return true
			}
		}
	}
	return false
}

// await notes a request that goes to others than peers, and gives the id that its answer has; ok is false where too many wait.
func (m *Mesh) await(q *question) (id ID, ok bool) {
	m.ownRow.Do(func() {
		pattern, _ := routetable.QuotePattern(m.answerPrefix())
		row := routetable.NewRoute(pattern+"*", hopOf(ownName))
		m.do("", admin.Setup{Origin: originOf(ownName) + "n", Routes: []routetable.Route{row}})
	})
	return m.own.await(q)
}

func (t *twin) await(q *question) (id ID, ok bool) {
	t.mu.Lock()
	ok = len(t.asked) < maxAwaited
	if ok {
		id.n = maxID
		rand.Read(id.b[:])
		t.keep(id, q)
	}
	t.mu.Unlock()
	if ok {
		t.m.wake(t)
	}
	return id, ok
}

// answers is the outlet of one address for answers.
type answers struct {
	m  *Mesh
	id ID
}

func (m *Mesh) answersTo(name string) forwarder.Outlet {
	text, ok := strings.CutPrefix(name, m.answerPrefix())
	raw, err := hex.DecodeString(text)
	if !ok || err != nil || len(raw) != maxID {
		return nil
	}
	id, _ := MakeID(raw)
	return answers{m, id}
}

func (answers) Present() bool { return true }
func (answers) Busy() int     { return 0 }

// Deliver takes an answer: the first is the one, and who asked gets it.
func (a answers) Deliver(batch []*forwarder.Copy) (int, error) {
	for _, c := range batch {
		f, bad := readAnswer(c.Message())
		if bad != "" {
			defer c.Settle(forwarder.Rejected(wire.CondNotAllowed, bad))
			continue
		}
		q := a.m.own.answered(a.id)
		if q == nil {
			defer c.Settle(forwarder.Rejected(wire.CondNotFound, "nobody waits for this answer"))
			continue
		}
		f.ID = q.id
		q.from.send(nil, f)
		if q.isCopied(f) {
			a.m.copyRequest(q)
		}
		defer c.Settle(accepted)
	}
	return len(batch), nil
}

// readAnswer makes the answer of Rembus that a message is.
func readAnswer(m *forwarder.Message) (f *Frame, bad string) {
	data, kind, ok := m.Data()
	if !ok {
		return nil, "an answer of Rembus is one data section"
	}
	f = &Frame{Type: Response}
	if text, ok := m.Property(statusProperty); ok {
		status, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, statusProperty + " is no status"
		}
		f.Status = Status(status)
	}
	if kind != contentCBOR {
		f.Data = appendBytes(nil, data)
		return f, ""
	}
	if n, err := skipItem(data); err != nil || n != len(data) {
		return nil, "the data is not one item of CBOR, as its content-type says"
	}
	f.Data = append([]byte(nil), data...)
	return f, ""
}

// isCopied tells whether the subscribers of the topic get the arguments, by the answer. One router of our kind sees to it, that where the request was made.
func (q *question) isCopied(f *Frame) bool {
	return f.Status == StatusOK && (q.from == nil || q.from.kin.Load() == 0)
}

// copyRequest sends the arguments of a request that was done to the subscribers of its topic, as a link does.
func (m *Mesh) copyRequest(q *question) {
	m.copiesMu.Lock()
	defer m.copiesMu.Unlock()
	m.copyOf.twin = q.from
	m.sayBy(m.copies, nil, q.from, q.topic, q.data)
}
