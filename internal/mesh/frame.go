package mesh

import (
	"encoding/hex"
	"errors"
	"fmt"
)

// Type is what a message of Rembus is: the low four bits of its first element (rembus.md, 2).
type Type uint8

// The types that come over WebSocket and TCP. Those of ZeroMQ, and the unassigned, are refused.
const (
	Identity    Type = 0
	Publish     Type = 1
	Request     Type = 2
	Admin       Type = 3
	Response    Type = 4
	Ack         Type = 5
	Ack2        Type = 6
	Unregister  Type = 9
	Register    Type = 10
	Attestation Type = 11
)

var typeNames = map[Type]string{
	Identity: "identity", Publish: "publish", Request: "rpc", Admin: "admin", Response: "response", Ack: "ack", Ack2: "ack2",
	Unregister: "unregister", Register: "register", Attestation: "attestation",
}

func (t Type) String() string {
	if name := typeNames[t]; name != "" {
		return name
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// The flags of a publish.
const (
	flagQoS1  = 0x10 // it is acknowledged
	flagQoS2  = 0x30 // and the acknowledgement too
	flagSlot  = 0x40 // the id has a time bucket of the sender's
	flagAgain = 0x80 // between routers of our kind: it may have been here long ago
	qosMask   = 0x30
)

// Status is that of a response.
type Status uint64

// The statuses (rembus.md, 2).
const (
	StatusOK             Status = 0
	StatusError          Status = 10
	StatusChallenge      Status = 11
	StatusException      Status = 40
	StatusNoMethod       Status = 42
	StatusMethodAway     Status = 43
	StatusLoopback       Status = 44
	StatusNoTarget       Status = 45
	StatusTargetDown     Status = 46
	StatusUnknownCommand Status = 47
	StatusNameTaken      Status = 60
)

// maxID is the longest id: one of 128 bits, as rembus.js has it.
const maxID = 16

// ID is a message's id, opaque: it goes back as it came. How it was written matters in JSON only.
type ID struct {
	n    uint8
	kind idKind
	b    [maxID]byte
}

type idKind uint8

const (
	idBytes  idKind = iota // CBOR
	idNumber               // a JSON number: eight bytes, little-endian
	idDigits               // a JSON string of that number
	idText                 // another JSON string, its bytes
)

// MakeID makes an id of at most 16 bytes.
func MakeID(b []byte) (id ID, ok bool) {
	if len(b) > maxID {
		return id, false
	}
	id.n = uint8(copy(id.b[:], b))
	return id, true
}

// Bytes are those of the id.
func (id *ID) Bytes() []byte { return id.b[:id.n] }

// same reports whether two ids have the same bytes, however they were written.
func (id ID) bare() ID { id.kind = idBytes; return id }

func (id ID) String() string { return hex.EncodeToString(id.Bytes()) }

// Frame is one message, parsed as far as a router has to know it. Its slices are those of what was parsed.
type Frame struct {
	Type   Type
	Flags  byte // of a publish
	ID     ID
	HasID  bool   // a publish without flags has none
	Name   []byte // the topic; of identity, register and attestation the component's name
	Target []byte // of a request: whose method is meant; nil is anybody's
	Status Status // of a response

	// Data is one well-formed CBOR item, as it came: what is published, arguments, a result; the map of an admin message. Of an identity and
	// an attestation it is the map of listening ports. Nil where there was none.
	Data []byte

	Pin     []byte // register
	Key     []byte // register: the public key; attestation: the proof
	KeyType uint64 // register: 1 RSA, 2 ECDSA
}

// QoS is the quality of service of a publish: 0, flagQoS1 or flagQoS2.
func (f *Frame) QoS() byte { return f.Flags & qosMask }

// FrameError says why bytes are no message. The connection ends.
type FrameError struct {
	Offset int
	What   string
}

func (e *FrameError) Error() string { return fmt.Sprintf("rembus: byte %d: %s", e.Offset, e.What) }

// parser reads the elements of a frame one after the other.
type parser struct {
	b    []byte
	at   int
	left int // elements
	err  error
}

func (p *parser) fail(err error) {
	if p.err == nil {
		p.err = &FrameError{p.at, err.Error()}
	}
}

func (p *parser) next(what string) (rest []byte, ok bool) {
	if p.err != nil {
		return nil, false
	}
	if p.left == 0 {
		p.fail(errors.New(what + " is missing"))
		return nil, false
	}
	p.left--
	return p.b[p.at:], true
}

func (p *parser) step(what string, n int, err error) {
	if err != nil {
		p.fail(fmt.Errorf("%s: %w", what, err))
		return
	}
	p.at += n
}

func (p *parser) text(what string) (text []byte) {
	if b, ok := p.next(what); ok {
		var n int
		var err error
		text, n, err = readText(b)
		p.step(what, n, err)
	}
	return text
}

func (p *parser) bytes(what string) (bytes []byte) {
	if b, ok := p.next(what); ok {
		var n int
		var err error
		bytes, n, err = readBytes(b)
		p.step(what, n, err)
	}
	return bytes
}

func (p *parser) number(what string) (v uint64) {
	if b, ok := p.next(what); ok {
		var n int
		var err error
		v, n, err = readUint(b)
		p.step(what, n, err)
	}
	return v
}

func (p *parser) item(what string) []byte {
	b, ok := p.next(what)
	if !ok {
		return nil
	}
	n, err := skipItem(b)
	p.step(what, n, err)
	if err != nil {
		return nil
	}
	return b[:n]
}

func (p *parser) id(f *Frame) {
	id, ok := MakeID(p.bytes("the id"))
	if !ok {
		p.fail(fmt.Errorf("an id is longer than %d bytes", maxID))
	}
	f.ID, f.HasID = id, true
}

// optional is the item that may follow, nil where there is none.
func (p *parser) optional(what string) []byte {
	if p.left == 0 {
		return nil
	}
	return p.item(what)
}

// ParseFrame reads one message of CBOR, all of b, into f. It allocates nothing.
//
//	[type | flags<<4, …]     an array of known length, its elements as rembus.md, 2, has them
//
// Elements behind those that are known are skipped, as the one that rembus.js adds to unregister. The error is a *FrameError.
func ParseFrame(b []byte, f *Frame) error {
	*f = Frame{}
	h, err := readHead(b)
	if err != nil || h.major != majorArray || h.indef || h.arg > 23 {
		return &FrameError{0, "a message is an array of known length, at most 23"}
	}
	p := parser{b: b, at: h.length, left: int(h.arg)}
	kind := p.number("the type")
	if kind > 0xff {
		p.fail(errors.New("the type is larger than a byte"))
	}
	f.Type, f.Flags = Type(kind&15), byte(kind&0xf0)
	p.body(f)
	for p.err == nil && p.left > 0 {
		p.item("an element")
	}
	if p.err == nil && p.at != len(b) {
		p.fail(errors.New("there is more than the message"))
	}
	return p.err
}

// body reads what follows the type.
func (p *parser) body(f *Frame) {
	switch f.Type {
	case Publish:
		if f.Flags != 0 {
			p.id(f)
		}
		f.Name = p.text("the topic")
		f.Data = p.item("the data")
		return
	case Identity, Request, Admin, Response, Ack, Ack2, Unregister, Register, Attestation:
		p.id(f)
	default:
		p.fail(fmt.Errorf("%s is not known here", f.Type))
	}
	switch f.Type {
	case Identity:
		f.Name = p.text("the name")
		f.Data = p.optional("the map of ports")
	case Request:
		f.Name = p.text("the topic")
		f.Target = p.target()
		f.Data = p.item("the data")
	case Admin:
		f.Name = p.text("the topic")
		f.Data = p.adminMap()
	case Response:
		f.Status = Status(p.number("the status"))
		f.Data = p.optional("the data")
	case Register:
		f.Name, f.Pin, f.Key = p.text("the name"), p.text("the pin"), p.bytes("the key")
		f.KeyType = p.number("the type of the key")
	case Attestation:
		f.Name, f.Key = p.text("the name"), p.bytes("the proof")
		f.Data = p.optional("the map of ports")
	}
}

// target reads a text or null.
func (p *parser) target() []byte {
	if p.err == nil && p.left > 0 && p.at < len(p.b) && (p.b[p.at] == cborNull || p.b[p.at] == cborUndef) {
		p.item("the target")
		return nil
	}
	return p.text("the target")
}

func (p *parser) adminMap() []byte {
	b := p.item("the map of the command")
	if p.err == nil && b[0]>>5 != majorMap {
		p.fail(errors.New("an admin message has a map"))
	}
	return b
}

func appendType(b []byte, elements int, t Type, flags byte) []byte {
	return appendHead(appendHead(b, majorArray, uint64(elements)), majorUint, uint64(flags)|uint64(t))
}

// AppendFrame appends the message as CBOR, data as it is (null where there is none).
func AppendFrame(b []byte, f *Frame) []byte {
	data := f.Data
	if data == nil {
		data = nullItem
	}
	id := f.ID.Bytes()
	switch f.Type {
	case Publish:
		if f.Flags == 0 {
			b = appendType(b, 3, Publish, 0)
		} else {
			b = appendBytes(appendType(b, 4, Publish, f.Flags), id)
		}
		return append(appendText(b, f.Name), data...)
	case Request:
		b = appendText(appendBytes(appendType(b, 5, Request, 0), id), f.Name)
		if f.Target == nil {
			b = append(b, cborNull)
		} else {
			b = appendText(b, f.Target)
		}
		return append(b, data...)
	case Admin:
		return append(appendText(appendBytes(appendType(b, 4, Admin, 0), id), f.Name), data...)
	case Response:
		b = appendBytes(appendType(b, 4, Response, 0), id)
		return append(appendHead(b, majorUint, uint64(f.Status)), data...)
	case Identity:
		n := 3
		if f.Data != nil {
			n++
		}
		return append(appendText(appendBytes(appendType(b, n, Identity, 0), id), f.Name), f.Data...)
	case Attestation:
		n := 4
		if f.Data != nil {
			n++
		}
		b = appendText(appendBytes(appendType(b, n, Attestation, 0), id), f.Name)
		return append(appendBytes(b, f.Key), f.Data...)
	case Register:
		b = appendText(appendBytes(appendType(b, 6, Register, 0), id), f.Name)
		return appendHead(appendBytes(appendText(b, f.Pin), f.Key), majorUint, f.KeyType)
	}
	return appendBytes(appendType(b, 2, f.Type, 0), id) // ack, ack2, unregister
}

var nullItem = []byte{cborNull}
