package proto

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Dialect is how the values of maps are written. Everything else on the wire is equal.
type Dialect uint8

const (
	D4 Dialect = iota // JSON text
	D3                // google.protobuf.Value
)

// Dialects are those that were seen.
type Dialects struct{ D3, D4 bool }

// toJSON gives the JSON text of a value of either dialect.
//
// A JSON text begins with one of " [ { t f n - or a digit; an encoded Value with the tag of one of its fields, 1 to 6, or it is empty. The tag of a
// list is also the digit 2, so JSON is tried first.
func toJSON(v []byte, seen *Dialects) ([]byte, error) {
	if len(v) > 0 {
		switch c := v[0]; {
		case c == 0x32 && !json.Valid(v):
		case c == '"' || c == '[' || c == '{' || c == 't' || c == 'f' || c == 'n' || c == '-' || c >= '0' && c <= '9':
			if !utf8.Valid(v) {
				return nil, errWire
			}
			seen.D4 = true
			return v, nil
		}
	}
	x, err := parseProtoValue(v, 0)
	if err != nil {
		return nil, err
	}
	seen.D3 = true
	text, err := json.Marshal(x)
	if err != nil { // a number that JSON has not: NaN
		return nil, errWire
	}
	return text, nil
}

// maxValueDepth is how deep values are: an object of lists of texts.
const maxValueDepth = 3

// parseProtoValue reads a google.protobuf.Value.
func parseProtoValue(b []byte, depth int) (x any, err error) {
	if depth > maxValueDepth {
		return nil, errWire
	}
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return nil, errWire
		}
		b = b[size:]
		size = protowire.ConsumeFieldValue(n, kind, b)
		if size < 0 {
			return nil, errWire
		}
		field := b[:size]
		b = b[size:]
		if x, err = protoField(n, kind, field, depth); err != nil {
			return nil, err
		}
	}
	return x, nil
}

func protoField(n protowire.Number, kind protowire.Type, b []byte, depth int) (any, error) {
	bytes := b
	if kind == protowire.BytesType {
		bytes, _ = protowire.ConsumeBytes(b)
	}
	switch {
	case n == 1 && kind == protowire.VarintType:
		return nil, nil
	case n == 2 && kind == protowire.Fixed64Type:
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), nil
	case n == 3 && kind == protowire.BytesType:
		return string(bytes), nil
	case n == 4 && kind == protowire.VarintType:
		v, _ := protowire.ConsumeVarint(b)
		return v != 0, nil
	case n == 5 && kind == protowire.BytesType:
		return protoStruct(bytes, depth)
	case n == 6 && kind == protowire.BytesType:
		list := []any{}
		err := fields(bytes, func(n protowire.Number, kind protowire.Type, b []byte, _ uint64) error {
			x, err := parseProtoValue(b, depth+1)
			if n == 1 && kind == protowire.BytesType {
				list = append(list, x)
			}
			return err
		})
		return list, err
	}
	return nil, errWire
}

func protoStruct(b []byte, depth int) (any, error) {
	m := map[string]any{}
	err := fields(b, func(n protowire.Number, kind protowire.Type, b []byte, _ uint64) error {
		if n != 1 || kind != protowire.BytesType {
			return nil
		}
		key, x := "", any(nil)
		err := fields(b, func(n protowire.Number, kind protowire.Type, b []byte, _ uint64) (err error) {
			switch {
			case kind != protowire.BytesType:
			case n == 1:
				key = string(b)
			case n == 2:
				x, err = parseProtoValue(b, depth+1)
			}
			return err
		})
		m[key] = x
		return err
	})
	return m, err
}

// fromJSON gives the google.protobuf.Value of a JSON text. What is no JSON, or deeper than values are, becomes a text.
func fromJSON(text []byte) []byte {
	var x any
	if json.Unmarshal(text, &x) != nil || !isShallow(x, maxValueDepth) {
		x = string(text)
	}
	return appendProtoValue(nil, x)
}

// isShallow tells whether a value has no values within it deeper than so many.
func isShallow(x any, depth int) bool {
	shallow := func(x any) bool { return isShallow(x, depth-1) }
	switch x := x.(type) {
	case []any:
		return depth > 0 && !slices.ContainsFunc(x, func(x any) bool { return !shallow(x) })
	case map[string]any:
		for _, x := range x {
			if !shallow(x) {
				return false
			}
		}
		return depth > 0
	}
	return depth >= 0
}

func appendProtoValue(b []byte, x any) []byte {
	switch x := x.(type) {
	case bool:
		b = protowire.AppendTag(b, 4, protowire.VarintType)
		return protowire.AppendVarint(b, protowire.EncodeBool(x))
	case float64:
		return protowire.AppendFixed64(protowire.AppendTag(b, 2, protowire.Fixed64Type), math.Float64bits(x))
	case string:
		return protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), x)
	case []any:
		var list []byte
		for _, e := range x {
			list = protowire.AppendBytes(protowire.AppendTag(list, 1, protowire.BytesType), appendProtoValue(nil, e))
		}
		return protowire.AppendBytes(protowire.AppendTag(b, 6, protowire.BytesType), list)
	case map[string]any:
		var list []byte
		for _, k := range slices.Sorted(maps.Keys(x)) {
			one := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), k)
			one = protowire.AppendBytes(protowire.AppendTag(one, 2, protowire.BytesType), appendProtoValue(nil, x[k]))
			list = protowire.AppendBytes(protowire.AppendTag(list, 1, protowire.BytesType), one)
		}
		return protowire.AppendBytes(protowire.AppendTag(b, 5, protowire.BytesType), list)
	}
	return append(b, 1<<3, 0)
}
