package forwarder

import (
	"bytes"

	"github.com/fingerpost/fingerpost/internal/amqp/wire"
)

// The loop guard: a message annotation with the ids of the nodes that a message has passed, toward dialled and mesh hops only.
const viaKey = "x-opt-via"

// passed tells whether the message has been at a node.
func (m *Message) passed(node string) bool {
	s := m.scan.MessageAnnotations
	if node == "" || s.End == s.Start {
		return false
	}
	raw, ok, err := wire.LookupAnnotation(s.Of(m.Payload), viaKey)
	// Ids are of fixed length and unguessable: one that is in the list's bytes is in the list.
	return err == nil && ok && bytes.Contains(raw, []byte(node))
}

// makeHead writes what goes before the bare message toward dialled hops: the sections as received, and this node added to x-opt-via.
func (d *delivery) makeHead(node string) {
	if d.plan.back {
		if to, ok := d.To(); !ok || string(to) != d.plan.address || d.marked {
			d.has().toward = d.plan.address
		}
	}
	if d.plan.meshed && d.had().stamp == (stamp{}) {
		d.has().stamp = d.conn.n.newStamp()
	}
	x := d.has()
	x.head = d.appendAnnotations(append(x.head[:0], d.scan.Header.Of(d.Payload)...), node)
}

// appendAnnotations appends the annotations as received, with node added to x-opt-via.
func (m *Message) appendAnnotations(dst []byte, node string) []byte {
	s := &m.scan
	dst = m.appendToward(dst)
	var ids wire.List
	section := s.MessageAnnotations.Of(m.Payload)
	if len(section) > 0 {
		if raw, ok, err := wire.LookupAnnotation(section, viaKey); err == nil && ok {
			if v, _, err := wire.ParseValue(raw, nil); err == nil {
				ids, _ = v.(wire.List)
			}
		}
	}
	raw, err := wire.AppendValue(nil, append(ids, node))
	if err != nil {
		return append(dst, section...)
	}
	if x := m.had(); x.stamp != (stamp{}) {
		section = appendWith(nil, section, wire.CodeMessageAnnotations, stampKey, x.stamp.encoded())
	}
	return appendWith(dst, section, wire.CodeMessageAnnotations, viaKey, raw)
}

// appendToward appends the delivery annotations as received, and where the reply goes.
func (m *Message) appendToward(dst []byte) []byte {
	section := m.scan.DeliveryAnnotations.Of(m.Payload)
	if m.had().toward == "" {
		return append(dst, section...)
	}
	raw, err := wire.AppendValue(nil, m.had().toward)
	if err != nil {
		return append(dst, section...)
	}
	return appendWith(dst, section, wire.CodeDeliveryAnnotations, towardKey, raw)
}

// findMarks finds out whether the message has annotations of nodes.
func (m *Message) findMarks() {
	annotations := m.scan.MessageAnnotations.Of(m.Payload)
	m.marked = hasAnnotation(annotations, viaKey) || hasAnnotation(annotations, stampKey) || hasAnnotation(m.scan.DeliveryAnnotations.Of(m.Payload), towardKey)
}

func hasAnnotation(section []byte, key string) bool {
	if len(section) == 0 {
		return false
	}
	_, ok, err := wire.LookupAnnotation(section, key)
	return ok && err == nil
}

// appendPlain appends the annotations as receivers get them: without those of nodes.
func (m *Message) appendPlain(dst []byte) []byte {
	s := &m.scan
	if !m.marked {
		return append(dst, m.Payload[s.Header.End:s.Bare]...)
	}
	dst = appendWith(dst, s.DeliveryAnnotations.Of(m.Payload), wire.CodeDeliveryAnnotations, towardKey, nil)
	annotations := s.MessageAnnotations.Of(m.Payload)
	if hasAnnotation(annotations, stampKey) {
		annotations = appendWith(nil, annotations, wire.CodeMessageAnnotations, stampKey, nil)
	}
	return appendWith(dst, annotations, wire.CodeMessageAnnotations, viaKey, nil)
}

// appendWith appends a section with another value, as encoded, for a key, nil for none; one that cannot be read stays as it is.
func appendWith(dst, section []byte, code uint64, key string, value []byte) []byte {
	out, err := wire.AppendMapWithEntry(dst, section, code, key, value)
	if err != nil {
		return append(dst, section...)
	}
	return out
}

// router is the id of the node at the other end; ok is false for a receiver that is none.
func (ln *line) router() (id string, ok bool) {
	if ln.dialled != nil {
		return ln.dialled.nodeID, true
	}
	if !ln.toRouter {
		return "", false
	}
	return ln.node, true
}

// property gives a message property for predicates and hashing: an application property, else a standard one by its specification name.
func (m *Message) property(name string) (string, bool) {
	var s wire.Sections
	if wire.ScanMessage(m.Payload, &s) != nil && (m.stream == nil || !s.PropertiesComplete) {
		return "", false
	}
	if p := s.ApplicationProperties; p.End > p.Start {
		if v, ok, err := wire.ApplicationProperty(p.Of(m.Payload), name); err == nil && ok {
			return v, true
		}
	}
	if p := s.Properties; p.End > p.Start {
		if v, ok, err := wire.StandardProperty(p.Of(m.Payload), name); err == nil && ok {
			return v, true
		}
	}
	return "", false
}
