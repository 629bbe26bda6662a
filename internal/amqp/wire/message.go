package wire

import "fmt"

// Header is the header section (AMQP 1.0 part 3, 3.2.1).
type Header struct {
	Durable       bool
	HasDurable    bool
	Priority      uint8 // 4 if absent
	HasPriority   bool
	TTL           uint32 // milliseconds
	HasTTL        bool
	FirstAcquirer bool
	DeliveryCount uint32 // failed attempts before this one
}

const defaultPriority = 4

// Parse reads the header section that section begins with; rest is what follows it.
//
// Cost: about 50 ns, no allocation.
func (h *Header) Parse(section []byte) (rest []byte, err error) {
	*h = Header{Priority: defaultPriority}
	r := readComposite(section, 0, CodeHeader, "header", 5)
	h.Durable, h.HasDurable = r.boolean("durable")
	if v, ok := r.uint8("priority"); ok {
		h.Priority, h.HasPriority = v, true
	}
	h.TTL, h.HasTTL = r.uint32("ttl")
	h.FirstAcquirer, _ = r.boolean("first-acquirer")
	h.DeliveryCount, _ = r.uint32("delivery-count")
	return r.done(section)
}

// Append appends the section. Fields without Has, and the defaults of those that have none, are left out.
func (h *Header) Append(dst []byte) []byte {
	w := writeComposite(dst, CodeHeader)
	w.boolean(h.Durable, h.HasDurable || h.Durable)
	w.uint8(h.Priority, h.HasPriority)
	w.uint32(h.TTL, h.HasTTL)
	w.boolean(true, h.FirstAcquirer)
	w.uint32(h.DeliveryCount, h.DeliveryCount != 0)
	return w.done()
}

// Properties is the properties section (AMQP 1.0 part 3, 3.2.4).
type Properties struct {
	MessageID             any // uint64, UUID, []byte or string; nil if absent
	UserID                []byte
	To                    string
	HasTo                 bool
	Subject               string
	HasSubject            bool
	ReplyTo               string
	HasReplyTo            bool
	CorrelationID         any // as MessageID
	ContentType           Symbol
	ContentEncoding       Symbol
	AbsoluteExpiryTime    Timestamp
	HasAbsoluteExpiryTime bool
	CreationTime          Timestamp
	HasCreationTime       bool
	GroupID               string
	HasGroupID            bool
	GroupSequence         uint32
	HasGroupSequence      bool
	ReplyToGroupID        string
	HasReplyToGroupID     bool
}

// Parse reads the properties section that section begins with; rest is what follows it. It copies what it keeps.
func (p *Properties) Parse(section []byte) (rest []byte, err error) {
	*p = Properties{}
	r := readComposite(section, 0, CodeProperties, "properties", propertyFields)
	p.MessageID = messageID(&r, "message-id")
	p.UserID, _ = r.copied("user-id")
	p.To, p.HasTo = r.string("to")
	p.Subject, p.HasSubject = r.string("subject")
	p.ReplyTo, p.HasReplyTo = r.string("reply-to")
	p.CorrelationID = messageID(&r, "correlation-id")
	p.ContentType, _ = r.symbol("content-type")
	p.ContentEncoding, _ = r.symbol("content-encoding")
	p.AbsoluteExpiryTime, p.HasAbsoluteExpiryTime = r.timestamp("absolute-expiry-time")
	p.CreationTime, p.HasCreationTime = r.timestamp("creation-time")
	p.GroupID, p.HasGroupID = r.string("group-id")
	p.GroupSequence, p.HasGroupSequence = r.uint32("group-sequence")
	p.ReplyToGroupID, p.HasReplyToGroupID = r.string("reply-to-group-id")
	return r.done(section)
}

// messageID reads one of the four types of a message-id (AMQP 1.0 part 3, 3.2.11 to 3.2.14).
func messageID(r *reader, field string) any {
	at := r.i
	v := r.any(field)
	if !isMessageID(v) {
		r.fail(at, field, "not a message id")
		return nil
	}
	return v
}

func isMessageID(v any) bool {
	switch v.(type) {
	case nil, uint64, UUID, []byte, string:
		return true
	}
	return false
}

// Append appends the section. Text fields are written where they are not empty or their Has is set; an id that is of none of
// the four types is left out.
func (p *Properties) Append(dst []byte) []byte {
	w := writeComposite(dst, CodeProperties)
	id := func(v any) {
		if !isMessageID(v) {
			v = nil
		}
		w.any(v)
	}
	id(p.MessageID)
	w.binary(p.UserID, p.UserID != nil)
	w.string(p.To, p.HasTo || p.To != "")
	w.string(p.Subject, p.HasSubject || p.Subject != "")
	w.string(p.ReplyTo, p.HasReplyTo || p.ReplyTo != "")
	id(p.CorrelationID)
	w.symbol(p.ContentType, p.ContentType != "")
	w.symbol(p.ContentEncoding, p.ContentEncoding != "")
	w.timestamp(p.AbsoluteExpiryTime, p.HasAbsoluteExpiryTime)
	w.timestamp(p.CreationTime, p.HasCreationTime)
	w.string(p.GroupID, p.HasGroupID || p.GroupID != "")
	w.uint32(p.GroupSequence, p.HasGroupSequence || p.GroupSequence != 0)
	w.string(p.ReplyToGroupID, p.HasReplyToGroupID || p.ReplyToGroupID != "")
	return w.done()
}

// AppendDataMessage appends properties with an id, an address, a content type and a time, and one data section: what Message.Append makes of the same, without
// a Message. id is UTF-8. It allocates nothing while dst has room.
func AppendDataMessage(dst, id []byte, to string, contentType Symbol, created Timestamp, data []byte) []byte {
	w := writeComposite(dst, CodeProperties)
	w.wrote(appendVariable(w.b, fmtStr8, id))
	w.null() // user-id
	w.string(to, true)
	for range 3 { // subject, reply-to, correlation-id
		w.null()
	}
	w.symbol(contentType, true)
	w.null() // content-encoding
	w.null() // absolute-expiry-time
	w.timestamp(created, true)
	return appendVariable(appendDescriptor(w.done(), CodeData), fmtBin8, data)
}

// Message is a decoded message (AMQP 1.0 part 3, 3.2), for those who make or use one. What is forwarded stays as it is:
// decoding and encoding again does not give the same bytes. Of Data, Sequence and Value at most one is in use; a nil map is
// an absent section.
type Message struct {
	Header                *Header
	DeliveryAnnotations   Map
	MessageAnnotations    Map
	Properties            *Properties
	ApplicationProperties Map
	Data                  [][]byte // Parse: aliases the payload
	Sequence              []List
	Value                 any
	HasValue              bool // a value section is there; its value may be nil
	Footer                Map
}

// Parse reads a whole message. Data aliases payload; everything else is copied.
func (m *Message) Parse(payload []byte) error {
	*m = Message{}
	var s Sections
	if err := ScanMessage(payload, &s); err != nil {
		return err
	}
	if s.Header.Present() {
		m.Header = &Header{}
		if _, err := m.Header.Parse(s.Header.Of(payload)); err != nil {
			return shift(err, int(s.Header.Start))
		}
	}
	if s.Properties.Present() {
		m.Properties = &Properties{}
		if _, err := m.Properties.Parse(s.Properties.Of(payload)); err != nil {
			return shift(err, int(s.Properties.Start))
		}
	}
	for _, x := range []struct {
		span Span
		to   *Map
	}{
		{s.DeliveryAnnotations, &m.DeliveryAnnotations}, {s.MessageAnnotations, &m.MessageAnnotations},
		{s.ApplicationProperties, &m.ApplicationProperties}, {s.Footer, &m.Footer},
	} {
		if x.span.Present() {
			v, _, err := sectionValue(payload, int(x.span.Start))
			if err != nil {
				return err
			}
			*x.to = v.(Map) // ScanMessage saw a map
		}
	}
	return m.parseBody(payload, s.Body)
}

func (m *Message) parseBody(payload []byte, body Span) error {
	for i := int(body.Start); i < int(body.End); {
		code, v, _ := descriptor(payload, i)
		if code == CodeData {
			b, next, ok := variable(payload, v, fmtBin8)
			if !ok {
				return failed(v, badShort)
			}
			m.Data = append(m.Data, b)
			i = next
			continue
		}
		val, next, err := sectionValue(payload, i)
		if err != nil {
			return err
		}
		if code == CodeSequence {
			m.Sequence = append(m.Sequence, val.(List)) // ScanMessage saw a list
		} else {
			m.Value, m.HasValue = val, true
		}
		i = next
	}
	return nil
}

// sectionValue decodes the value of the section at i.
func sectionValue(payload []byte, i int) (v any, next int, err error) {
	_, i, _ = descriptor(payload, i)
	d := decoder{b: payload, depth: maxDepth, zero: maxZeroWidth}
	v, next, bad := d.value(i, 0)
	if bad != nil {
		return nil, 0, bad
	}
	return v, next, nil
}

// shift makes the offset of err one of the whole message.
func shift(err error, by int) error {
	if e, ok := err.(*DecodeError); ok {
		e.Offset += by
		e.Short = false
	}
	return err
}

// Append appends the whole message. An error names the section with something that cannot be encoded, and dst is then
// returned as it was.
func (m *Message) Append(dst []byte) ([]byte, error) {
	out := dst
	if m.Header != nil {
		out = m.Header.Append(out)
	}
	var err error
	section := func(name string, code byte, v any) {
		if err != nil {
			return
		}
		if out, err = AppendValue(appendDescriptor(out, code), v); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	if m.DeliveryAnnotations != nil {
		section("delivery annotations", CodeDeliveryAnnotations, m.DeliveryAnnotations)
	}
	if m.MessageAnnotations != nil {
		section("message annotations", CodeMessageAnnotations, m.MessageAnnotations)
	}
	if p := m.Properties; p != nil {
		if !isMessageID(p.MessageID) || !isMessageID(p.CorrelationID) {
			return dst, fmt.Errorf("properties: message-id %T or correlation-id %T is not an id", p.MessageID, p.CorrelationID)
		}
		out = p.Append(out)
	}
	if m.ApplicationProperties != nil {
		section("application properties", CodeApplicationProperties, m.ApplicationProperties)
	}
	for _, d := range m.Data {
		out = appendVariable(appendDescriptor(out, CodeData), fmtBin8, d)
	}
	for _, l := range m.Sequence {
		section("sequence", CodeSequence, l)
	}
	if m.HasValue || m.Value != nil {
		section("value", CodeValue, m.Value)
	}
	if m.Footer != nil {
		section("footer", CodeFooter, m.Footer)
	}
	if kinds := min(len(m.Data), 1) + min(len(m.Sequence), 1); kinds > 1 || kinds == 1 && (m.HasValue || m.Value != nil) {
		err = fmt.Errorf("message with more than one kind of body")
	}
	if err != nil {
		return dst, err
	}
	return out, nil
}
