package mesh

import (
	"encoding/binary"
	"errors"
)

// An envelope is the AMQP message by which something of Rembus crosses the node. Its payload is verbatim:
//
//	properties: message-id (the id, binary), to (topic:T, rpc:T, node:N), subject (of a direct request the topic), reply-to and correlation-id (of a
//	request to others than peers), content-type
//	application properties: rembus-flags (ubyte), where there are any
//	data
//
// The content-type is application/cbor. Only an array of one byte string, written the shortest way, is those bytes without one: that is what AMQP
// clients send and get (DESIGN §8, bodies across systems). The fields stand in this layout always, so that our own outlets need no parser.
type envelope struct {
	to          []byte
	subject     []byte
	id          []byte
	hasID       bool
	flags       byte
	replyTo     string // of a request to others than peers
	correlation []byte // with it
	raw         bool   // data is the one argument, a byte string; else it is the payload
	data        []byte
}

const (
	contentCBOR   = "application/cbor"
	flagsProperty = "rembus-flags"
)

// oneByteString tells whether a payload is an array of one byte string, written the shortest way, and gives its content.
func oneByteString(payload []byte) (content []byte, ok bool) {
	if len(payload) < 2 || payload[0] != majorArray<<5|1 {
		return nil, false
	}
	h, err := readHead(payload[1:])
	if err != nil || h.major != majorBytes || h.indef {
		return nil, false
	}
	content = payload[1+h.length:]
	shortest := h.arg < 24 && h.length == 1 || h.arg >= 24 && h.arg <= 0xff && h.length == 2 || h.arg > 0xff && h.arg <= 0xffff && h.length == 3 || h.arg > 0xffff && h.arg <= 0xffffffff && h.length == 5
	return content, shortest && uint64(len(content)) == h.arg
}

// appendEnvelope appends the message of an envelope whose to is scheme and name. The payload is e.data, raw is found out.
func appendEnvelope(b []byte, scheme string, name []byte, e *envelope) []byte {
	data, raw := oneByteString(e.data)
	if !raw {
		data = e.data
	}
	b = append(b, 0x00, 0x53, 0x73, 0xd0, 0, 0, 0, 0, 0, 0, 0, 7)
	at := len(b)
	if e.hasID {
		b = append(append(b, 0xa0, byte(len(e.id))), e.id...)
	} else {
		b = append(b, 0x40)
	}
	b = append(b, 0x40) // user-id
	b = appendStr(b, scheme, name)
	if e.subject == nil {
		b = append(b, 0x40)
	} else {
		b = appendStr(b, "", e.subject)
	}
	if e.replyTo == "" {
		b = append(b, 0x40, 0x40) // reply-to, correlation-id
	} else {
		b = append(append(appendStr(b, "", []byte(e.replyTo)), 0xa0, byte(len(e.correlation))), e.correlation...)
	}
	if raw {
		b = append(b, 0x40)
	} else {
		b = append(append(b, 0xa3, byte(len(contentCBOR))), contentCBOR...)
	}
	binary.BigEndian.PutUint32(b[at-8:], uint32(len(b)-at+4))
	if e.flags != 0 {
		b = append(b, 0x00, 0x53, 0x74, 0xc1, byte(1+2+len(flagsProperty)+2), 2, 0xa1, byte(len(flagsProperty)))
		b = append(append(b, flagsProperty...), 0x50, e.flags)
	}
	b = append(b, 0x00, 0x53, 0x75, 0xb0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

func appendStr(b []byte, scheme string, name []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, 0xb1), uint32(len(scheme)+len(name)))
	return append(append(b, scheme...), name...)
}

var errEnvelope = errors.New("no envelope")

// open reads what appendEnvelope wrote. It is for messages that came by an inlet of ours.
func (e *envelope) open(b []byte) error {
	*e = envelope{}
	if len(b) < 14 || b[2] != 0x73 {
		return errEnvelope
	}
	at := 12
	switch b[at] {
	case 0xa0:
		n := int(b[at+1])
		e.id, e.hasID = b[at+2:at+2+n], true
		at += 2 + n
	default:
		at++
	}
	at++ // user-id
	str := func() []byte {
		n := int(binary.BigEndian.Uint32(b[at+1:]))
		s := b[at+5 : at+5+n]
		at += 5 + n
		return s
	}
	e.to = str()
	if b[at] == 0x40 {
		at++
	} else {
		e.subject = str()
	}
	if b[at] == 0x40 {
		at += 2
	} else {
		e.replyTo = string(str())
		n := int(b[at+1])
		e.correlation = b[at+2 : at+2+n]
		at += 2 + n
	}
	if b[at] == 0x40 {
		e.raw = true
		at++
	} else {
		at += 2 + int(b[at+1])
	}
	if b[at+2] == 0x74 {
		at += 5 + int(b[at+4])
		e.flags = b[at-1]
	}
	e.data = b[at+8:]
	return nil
}

// appendPayload appends what the envelope carries as Rembus has it.
func (e *envelope) appendPayload(b []byte) []byte {
	if e.raw {
		return appendBytes(append(b, majorArray<<5|1), e.data)
	}
	return append(b, e.data...)
}

// appendSpacePayload appends the payload of a delivery to a pattern: the topic, then the arguments (rembus.md, 6.5). A payload that is no array is one
// argument.
func (e *envelope) appendSpacePayload(b []byte, topic string) []byte {
	if e.raw {
		return appendBytes(appendText(append(b, majorArray<<5|2), topic), e.data)
	}
	h, err := readHead(e.data)
	switch {
	case err != nil || h.major != majorArray:
		return append(appendText(append(b, majorArray<<5|2), topic), e.data...)
	case h.indef:
		return append(appendText(append(b, e.data[0]), topic), e.data[h.length:]...)
	}
	return append(appendText(appendHead(b, majorArray, h.arg+1), topic), e.data[h.length:]...)
}
