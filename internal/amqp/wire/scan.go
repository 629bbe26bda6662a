package wire

import "math"

// Span is a part of a payload: payload[Start:End]. The zero Span is an absent one.
type Span struct{ Start, End uint32 }

func span(start, end int) Span { return Span{uint32(start), uint32(end)} }

// Of gives the bytes; nil where the span is absent.
func (p Span) Of(payload []byte) []byte {
	if p.End == 0 {
		return nil
	}
	return payload[p.Start:p.End:p.End]
}

// Present tells whether there is such a part.
func (p Span) Present() bool { return p.End != 0 }

// Sections tells where the sections of a message are (AMQP 1.0 part 3, 3.2). A section's span begins with its descriptor.
type Sections struct {
	Header                Span
	DeliveryAnnotations   Span
	MessageAnnotations    Span
	Properties            Span
	ApplicationProperties Span // ScanMessage only
	Body                  Span // ScanMessage only: all data or sequence sections, or the value
	Footer                Span // ScanMessage only

	// Bare is where what comes after header and annotations begins: the bare message and its footer. It is the length of the
	// payload where neither was met.
	Bare int

	To    Span // the text of properties.to
	HasTo bool

	// HeadComplete tells that the scan met the properties or something behind them: what it found up to there is all there
	// is, whatever payload is still to come.
	HeadComplete bool

	// PropertiesComplete tells the same of all properties: ScanMessage met the body or the footer.
	PropertiesComplete bool
}

// ToText gives the text of properties.to, aliasing payload; nil where there is none.
func (s *Sections) ToText(payload []byte) []byte {
	if !s.HasTo {
		return nil
	}
	return payload[s.To.Start:s.To.End:s.To.End]
}

// ScanHead locates the sections up to the properties, and `to` in these. It is what routing needs, and looks at nothing
// behind it: the payload may be the first part of a longer message, cut anywhere in or after the application properties.
//
// A payload cut earlier gives an error with Short set, or none and HeadComplete false where it is cut between sections.
// Sections out of order, a `to` that is no string and more than 13 properties are errors.
//
// Cost: about 45 ns for a message with header and properties; no allocation.
func ScanHead(payload []byte, s *Sections) error {
	return scan(payload, s, false)
}

// ScanMessage locates all sections of a whole message and checks their order. It does not look into annotations,
// application properties and bodies. A message without a body is not an error. A payload that is the first part of a message gives an
// error with Short set, where it is not cut between sections, and what was located before.
func ScanMessage(payload []byte, s *Sections) error {
	return scan(payload, s, true)
}

func scan(payload []byte, s *Sections, whole bool) error {
	*s = Sections{Bare: len(payload)}
	if uint64(len(payload)) > math.MaxUint32 {
		return failed(0, "message of 4 GiB or more")
	}
	last := uint64(0)
	for i := 0; i < len(payload); {
		var code uint64
		v, bad := i+3, ""
		if v < len(payload) && payload[i] == fmtDescribed && payload[i+1] == fmtSmallUlong {
			code = uint64(payload[i+2])
		} else if code, v, bad = descriptorSlow(payload, i); bad != "" {
			return failed(v, bad)
		}
		if code < CodeHeader || code > CodeFooter {
			return failed(i, "not a section of a message")
		}
		if !follows(last, code) {
			return failed(i, "section out of order")
		}
		last = code
		if code >= CodeProperties && !s.HeadComplete {
			s.HeadComplete = true
			s.Bare = i
		}
		if code > CodeProperties {
			if !whole {
				return nil
			}
			s.PropertiesComplete = code > CodeApplicationProperties
		}
		var end int
		if code == CodeProperties {
			end, bad = s.scanProperties(payload, v)
			v = end
		} else if end = shortSection(code, payload, v); end == 0 {
			if bad = sectionType(code, payload, v); bad == "" {
				end, bad = skip(payload, v)
				v = end
			}
		}
		if bad != "" {
			return failed(v, bad)
		}
		switch code {
		case CodeHeader:
			s.Header = span(i, end)
		case CodeDeliveryAnnotations:
			s.DeliveryAnnotations = span(i, end)
		case CodeMessageAnnotations:
			s.MessageAnnotations = span(i, end)
		case CodeProperties:
			s.Properties = span(i, end)
			if !whole {
				return nil
			}
		case CodeApplicationProperties:
			s.ApplicationProperties = span(i, end)
		case CodeFooter:
			s.Footer = span(i, end)
		default:
			if !s.Body.Present() {
				s.Body.Start = uint32(i)
			}
			s.Body.End = uint32(end)
		}
		i = end
	}
	return nil
}

// follows tells whether a section may come after the one before it (0: it is the first). Data and sequence sections may be
// repeated, and there is one kind of body.
func follows(last, code uint64) bool {
	switch last {
	case CodeData, CodeSequence:
		return code == last || code == CodeFooter
	case CodeValue:
		return code == CodeFooter
	}
	return code > last
}

// shortSection gives the end of a header or an annotations section of the 8-bit form, and 0 for anything else, right or wrong.
func shortSection(code uint64, b []byte, v int) (end int) {
	want := byte(fmtMap8)
	if code == CodeHeader {
		want = fmtList8
	}
	if code >= CodeProperties || v+2 >= len(b) || b[v] != want {
		return 0
	}
	size, count := int(b[v+1]), int(b[v+2])
	if end = v + 2 + size; end > len(b) || count >= size || (want == fmtMap8 && count&1 != 0) {
		return 0
	}
	return end
}

// sectionType checks that the value at v is of the type of its section, or that it is not there yet.
func sectionType(code uint64, b []byte, v int) (bad string) {
	if v >= len(b) {
		return badShort
	}
	ok := true
	switch c := b[v]; code {
	case CodeHeader, CodeSequence:
		ok = c == fmtList8 || c == fmtList0 || c == fmtList32
	case CodeData:
		ok = c == fmtBin8 || c == fmtBin32
	case CodeValue:
	default:
		ok = c == fmtMap8 || c == fmtMap32
	}
	if !ok {
		return "section of the wrong type"
	}
	return ""
}

const propertyFields = 13

// scanProperties finds `to` in the properties list at i. Where bad is not empty, end is where it is bad.
func (s *Sections) scanProperties(b []byte, i int) (end int, bad string) {
	at := i
	i, count, end, bad := listHead(b, i)
	if bad != "" {
		return at, bad
	}
	if count > propertyFields {
		return at, "more properties than defined"
	}
	if count < 3 {
		return end, ""
	}
	in := b[:end]
	for range 2 { // message-id, user-id
		if i < end && in[i] == fmtNull {
			i++
		} else if i+1 < end && in[i] == fmtStr8 && int(in[i+1]) < end-i-1 {
			i += 2 + int(in[i+1])
		} else if i, bad = skip(in, i); bad != "" {
			return i, inList(bad)
		}
	}
	if i < end && in[i] == fmtNull {
		return end, ""
	}
	var text []byte
	next, ok := 0, false
	if i+1 < end && in[i] == fmtStr8 && int(in[i+1]) < end-i-1 {
		next, ok = i+2+int(in[i+1]), true
		text = in[i+2 : next]
	} else {
		text, next, ok = variable(in, i, fmtStr8)
	}
	switch {
	case !ok:
		if next, bad = skip(in, i); bad != "" {
			return next, inList(bad)
		}
		return i, "properties: to: not a string"
	case !isUTF8(text):
		return i, "properties: to: string is not UTF-8"
	}
	s.To, s.HasTo = span(next-len(text), next), true
	return end, ""
}

// inList makes of a value that reaches beyond its list something that more input does not cure.
func inList(bad string) string {
	if bad == badShort {
		return "field longer than what it is in"
	}
	return bad
}

// OneData gives the content of a body that is one data section, aliasing it; ok is false for any other body. body is what ScanMessage found.
func OneData(body []byte) (data []byte, ok bool) {
	code, v, bad := descriptor(body, 0)
	if bad != "" || code != CodeData {
		return nil, false
	}
	data, next, ok := variable(body, v, fmtBin8)
	return data, ok && next == len(body)
}
