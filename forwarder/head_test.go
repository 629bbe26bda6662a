package forwarder

import (
	"bytes"
	"testing"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// requestOf is a message with a reply-to, and with annotations of nodes where marked.
func requestOf(replyTo string, marked bool) []byte {
	m := wire.Message{Properties: &wire.Properties{To: "NAME", HasTo: true, ReplyTo: replyTo, HasReplyTo: true}, Data: [][]byte{{1, 2, 3}}}
	payload, _ := m.Append(nil)
	if !marked {
		return payload
	}
	text, _ := wire.AppendValue(nil, "$reply/00000000000000aa/x")
	head, _ := wire.AppendMapWithEntry(nil, nil, wire.CodeDeliveryAnnotations, towardKey, text)
	ids, _ := wire.AppendValue(nil, wire.List{"00000000000000bb"})
	head, _ = wire.AppendMapWithEntry(head, nil, wire.CodeMessageAnnotations, viaKey, ids)
	return append(head, payload...)
}

// Whatever a message holds: what goes toward nodes and toward receivers has the same bare message behind it, and receivers get no annotations
// of nodes.
func FuzzHeads(f *testing.F) {
	for _, marked := range []bool{false, true} {
		f.Add(requestOf("$reply/00000000000000aa/x", marked))
		f.Add(requestOf("amqp://alice/replies", marked))
		f.Add(requestOf("", marked))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		m := Message{Payload: payload}
		if wire.ScanHead(payload, &m.scan) != nil {
			return
		}
		m.findMarks()
		if id, ok := replyNode(m.answersTo()); ok && !isNodeID(id) {
			t.Errorf("node %q", id)
		}
		for _, s := range []wire.Span{m.scan.DeliveryAnnotations, m.scan.MessageAnnotations} {
			if s.Present() {
				if _, _, err := wire.ParseValue(s.Of(payload), nil); err != nil {
					return // nonsense is passed on as nonsense
				}
			}
		}
		plain := m.appendPlain(append([]byte(nil), m.scan.Header.Of(payload)...))
		m.has().toward = "$reply/00000000000000cc/y"
		toward := m.appendAnnotations(append([]byte(nil), m.scan.Header.Of(payload)...), "00000000000000dd")
		for _, head := range [][]byte{plain, toward} {
			whole := append(head[:len(head):len(head)], payload[m.scan.Bare:]...)
			var got wire.Sections
			if err := wire.ScanHead(whole, &got); err != nil {
				t.Fatalf("% x: %v", whole, err)
			}
			if !bytes.Equal(whole[got.Bare:], payload[m.scan.Bare:]) {
				t.Errorf("the bare message is another")
			}
		}
	})
}

// Looking at the reply-to of a message allocates nothing.
func TestTheWayBackOfAMessageCostsNoMemory(t *testing.T) {
	paths := map[string]*path{"00000000000000aa": {}}
	m := Message{Payload: requestOf("$reply/00000000000000aa/x", true)}
	if err := wire.ScanHead(m.Payload, &m.scan); err != nil {
		t.Fatal(err)
	}
	found := 0
	n := testing.AllocsPerRun(100, func() {
		m.findMarks()
		if id, ok := replyNode(m.answersTo()); ok && paths[string(id)] != nil {
			found++
		}
		m.has().plain = m.appendPlain(append(m.had().plain[:0], m.scan.Header.Of(m.Payload)...))
	})
	if n != 0 || found == 0 || !m.marked {
		t.Errorf("%v allocations, found %d times, marked %v", n, found, m.marked)
	}
}

func TestReplyNode(t *testing.T) {
	for address, want := range map[string]string{
		"$reply/00112233445566ff/x": "00112233445566ff", "$reply/00112233445566ff/": "", "$reply/00112233445566ff": "", "$reply/00112233445566f/xx": "",
		"$reply/00112233445566fg/x": "", "$reply/00112233445566FF/x": "", "$REPLY/00112233445566ff/x": "", "": "", "$reply//x": "",
		"$reply/00112233445566ff/*": "00112233445566ff",
	} {
		if id, _ := replyNode([]byte(address)); string(id) != want && !(want == "" && id != nil && !isNodeID(id)) {
			t.Errorf("%s: got %q, want %q", address, id, want)
		}
	}
}
