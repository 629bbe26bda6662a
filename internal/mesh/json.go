package mesh

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// object is a message of JSON. The two implementations do not speak the same one; what either writes is read (rembus.md, 2.1).
type object struct {
	ID     json.RawMessage `json:"id"`
	Method *string         `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// typed are the keys of params, result or error that tell what the message is, and what it says.
type typed struct {
	JuliaType  *uint64
	PythonType *uint64
	CID        *string
	Meta       json.RawMessage
	Data       json.RawMessage
	Status     *uint64
	Pin        string
	KeyValue   string
	KeyType    uint64
	Signature  string
}

// typedOf reads the keys as they are written: encoding/json takes "Type" for "type", and here that is the name of an argument.
func typedOf(m json.RawMessage) (t typed, err error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(m, &keys); err != nil {
		return t, err
	}
	for key, to := range map[string]any{
		"__type__": &t.JuliaType, "type": &t.PythonType, "cid": &t.CID, "meta": &t.Meta, "data": &t.Data, "sts": &t.Status,
		"pin": &t.Pin, "key_val": &t.KeyValue, "key_type": &t.KeyType, "signature": &t.Signature,
	} {
		if v, ok := keys[key]; ok {
			if err := json.Unmarshal(v, to); err != nil {
				return t, err
			}
		}
	}
	return t, nil
}

// kind is the type that is told. Params with a "type" that is none are an object of the sender's.
func (t *typed) kind() (kind uint64, ok bool) {
	switch {
	case t.JuliaType != nil:
		return *t.JuliaType, true
	case t.PythonType == nil:
		return 0, false
	}
	kind = *t.PythonType
	return kind, kind <= 0xff
}

// ParseJSON reads one message of JSON into f, which owns its slices. Data is made CBOR: the smallest integers, floats of eight bytes.
func ParseJSON(b []byte, f *Frame) error {
	*f = Frame{}
	var o object
	if err := decodeJSON(b, &o); err != nil {
		return &FrameError{0, err.Error()}
	}
	var err error
	if f.ID, f.HasID, err = parseJSONID(o.ID); err == nil {
		switch {
		case o.Method != nil:
			err = o.call(f)
		case present(o.Result):
			err = o.answer(f, o.Result)
		case present(o.Error):
			err = o.answer(f, o.Error)
		default:
			err = errors.New("an object has a method, a result or an error")
		}
	}
	if err != nil {
		return &FrameError{0, err.Error()}
	}
	return nil
}

func present(m json.RawMessage) bool { return len(m) > 0 && !bytes.Equal(m, []byte("null")) }

// decodeJSON decodes b, which is one object and no more.
func decodeJSON(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(v); err != nil {
		return errors.New("no JSON object of a message")
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is more than one object")
	}
	return nil
}

// call reads what has a method.
func (o *object) call(f *Frame) error {
	f.Name = []byte(*o.Method)
	if len(o.Params) > 0 && o.Params[0] == '{' {
		t, err := typedOf(o.Params)
		if kind, ok := t.kind(); ok && err == nil {
			return o.typedCall(f, &t, kind)
		}
	}
	var err error
	f.Type = Publish
	if f.HasID {
		f.Type = Request
		if i := strings.LastIndexByte(*o.Method, '/'); i > 0 {
			f.Target, f.Name = f.Name[:i], f.Name[i+1:]
		}
	}
	if len(o.Params) > 0 && o.Params[0] != '[' && o.Params[0] != '{' && present(o.Params) {
		return errors.New("params are an array or an object")
	}
	f.Data, err = cborOf(o.Params)
	return err
}

func (o *object) typedCall(f *Frame, t *typed, kind uint64) (err error) {
	f.Type = Type(kind)
	switch {
	case kind > 0xff:
		return unknownType(kind)
	case kind >= 16 && kind&15 == 0:
		f.Type, f.Flags = Publish, byte(kind)
		f.Data, err = cborOf(t.Data)
	case f.Type == Identity && t.CID != nil:
		f.Name = []byte(*t.CID)
		if present(t.Meta) {
			f.Data, err = cborOf(t.Meta)
		}
	case f.Type == Admin && present(t.Data): // the map, else its keys are among the others
		f.Data, err = cborOf(t.Data)
	case f.Type == Admin:
		f.Data, err = cborWithout(o.Params, "type", "__type__")
	case f.Type == Unregister:
	case f.Type == Register:
		f.Pin, f.KeyType = []byte(t.Pin), t.KeyType
		f.Key, err = base64.StdEncoding.DecodeString(t.KeyValue)
	case f.Type == Attestation:
		f.Key, err = base64.StdEncoding.DecodeString(t.Signature)
	default:
		return unknownType(kind)
	}
	if err == nil && !f.HasID {
		err = errors.New("the id is missing")
	}
	return err
}

func unknownType(kind uint64) error { return fmt.Errorf("type %d is not known here", kind) }

// answer reads a result or an error.
func (o *object) answer(f *Frame, m json.RawMessage) error {
	t, err := typedOf(m)
	if err != nil {
		return errors.New("a result or error of Rembus is an object with a type")
	}
	kind, ok := t.kind()
	ok = ok && kind <= 0xff
	switch f.Type = Type(kind); {
	case !f.HasID:
		return errors.New("the id is missing")
	case ok && (f.Type == Ack || f.Type == Ack2):
		return nil
	case !ok || f.Type != Response || t.Status == nil:
		return errors.New("a result or error of Rembus has type 4, 5 or 6")
	}
	f.Status = Status(*t.Status)
	f.Data, err = cborOf(t.Data)
	return err
}

// parseJSONID reads an id: a number of 64 bits, as a number or as text; or another text of at most 16 bytes.
func parseJSONID(m json.RawMessage) (id ID, ok bool, err error) {
	if !present(m) {
		return id, false, nil
	}
	kind, text := idNumber, string(m)
	if m[0] == '"' {
		if err := json.Unmarshal(m, &text); err != nil {
			return id, false, err
		}
		kind = idDigits
	}
	if v, err := strconv.ParseUint(text, 10, 64); err == nil && strconv.FormatUint(v, 10) == text {
		id.n, id.kind = 8, kind
		binary.LittleEndian.PutUint64(id.b[:], v)
		return id, true, nil
	}
	if digits, found := strings.CutPrefix(text, "x:"); found && kind == idDigits {
		if b, err := hex.DecodeString(digits); err == nil {
			id, ok = MakeID(b)
			return id, ok, badID(ok)
		}
	}
	id, ok = MakeID([]byte(text))
	id.kind = idText
	ok = ok && kind == idDigits
	return id, ok, badID(ok)
}

func badID(ok bool) error {
	if ok {
		return nil
	}
	return fmt.Errorf("an id is a number of 64 bits, or a text of at most %d bytes", maxID)
}

// cborOf makes CBOR of a JSON value; of none, null.
func cborOf(m json.RawMessage) ([]byte, error) {
	if len(m) == 0 {
		return nullItem, nil
	}
	return cborWithout(m)
}

// cborWithout is cborOf of a value; where it is an object, without some of its keys.
func cborWithout(m json.RawMessage, keys ...string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(m))
	d.UseNumber()
	return appendCBOR(nil, d, 0, keys)
}

// appendCBOR appends the next value of d.
func appendCBOR(b []byte, d *json.Decoder, depth int, without []string) ([]byte, error) {
	tok, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := tok.(type) {
	case json.Delim:
		if depth >= maxDepth {
			return nil, errDepth
		}
		if v == '[' {
			return appendCBORItems(b, d, depth, majorArray, nil)
		}
		return appendCBORItems(b, d, depth, majorMap, without)
	case string:
		return appendText(b, v), nil
	case json.Number:
		return appendNumber(b, v)
	case bool:
		if v {
			return append(b, cborTrue), nil
		}
		return append(b, cborFalse), nil
	}
	return append(b, cborNull), nil
}

func appendCBORItems(b []byte, d *json.Decoder, depth int, major byte, without []string) ([]byte, error) {
	// The count is known at last: the items are written behind the longest head, and moved to it.
	start := len(b)
	b = append(b, make([]byte, 9)...)
	count := uint64(0)
	for d.More() {
		from := len(b)
		var err error
		left := false
		if major == majorMap {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			name, _ := key.(string)
			b = appendText(b, name)
			left = slices.Contains(without, name)
		}
		if b, err = appendCBOR(b, d, depth+1, nil); err != nil {
			return nil, err
		}
		if left {
			b = b[:from]
			continue
		}
		count++
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	items := b[start+9:]
	b = appendHead(b[:start], major, count)
	n := copy(b[len(b):cap(b)], items)
	return b[:len(b)+n], nil
}

// appendNumber appends an integer as one, at any length that is sensible, and anything else as a float.
func appendNumber(b []byte, n json.Number) ([]byte, error) {
	s := string(n)
	if v, err := strconv.ParseUint(s, 10, 64); err == nil {
		return appendHead(b, majorUint, v), nil
	}
	if v, err := strconv.ParseInt(s, 10, 64); err == nil {
		return appendHead(b, majorNegInt, uint64(-1-v)), nil
	}
	if !strings.ContainsAny(s, ".eE") && len(s) <= maxBigBytes {
		if v, ok := new(big.Int).SetString(s, 10); ok {
			tag := uint64(2)
			if v.Sign() < 0 {
				tag = 3
				v.Not(v)
			}
			return appendBytes(appendHead(b, majorTag, tag), v.Bytes()), nil
		}
	}
	f, err := n.Float64()
	if err != nil {
		return nil, errors.New("a number is out of range")
	}
	return appendFloat(b, f), nil
}
