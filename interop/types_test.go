package interop

import (
	"bytes"
	"testing"
)

// oddMessage is a message that a codec may trip over.
type oddMessage struct {
	name  string
	bytes []byte
}

// wide is a list in its widest form.
func wide(items ...[]byte) []byte {
	body := join(items...)
	n := len(body) + 4
	return append([]byte{0xd0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n), 0, 0, 0, byte(len(items))}, body...)
}

// named is a section whose descriptor is a symbol.
func named(name string, value []byte) []byte { return join([]byte{0}, sym(name), value) }

// long is a section whose descriptor is a full ulong.
func long(code byte, value []byte) []byte {
	return join([]byte{0, 0x80, 0, 0, 0, 0, 0, 0, 0, code}, value)
}

// values is one of every type, in every encoding (AMQP 1.0 part 1, 1.6).
var values = map[string][]byte{
	"null": {0x40}, "true": {0x41}, "false": {0x42}, "boolean": {0x56, 1},
	"ubyte": {0x50, 200}, "ushort": {0x60, 1, 2}, "uint0": {0x43}, "smalluint": {0x52, 7}, "uint": {0x70, 0, 0, 0, 7},
	"ulong0": {0x44}, "smallulong": {0x53, 7}, "ulong": {0x80, 0, 0, 0, 0, 0, 0, 0, 7},
	"byte": {0x51, 0xff}, "short": {0x61, 0xff, 1}, "smallint": {0x54, 0xfe}, "int": {0x71, 0, 0, 0, 1}, "smalllong": {0x55, 0xfe},
	"long": {0x81, 0, 0, 0, 0, 0, 0, 0, 1}, "float": {0x72, 0x7f, 0xc0, 0, 1}, "double": {0x82, 0x7f, 0xf8, 0, 0, 0, 0, 0, 1},
	"decimal32": {0x74, 1, 2, 3, 4}, "decimal64": {0x84, 1, 2, 3, 4, 5, 6, 7, 8}, "decimal128": append([]byte{0x94}, bytes.Repeat([]byte{9}, 16)...),
	"char": {0x73, 0, 1, 0xf6, 0}, "timestamp": {0x83, 0x80, 0, 0, 0, 0, 0, 0, 0}, "uuid": append([]byte{0x98}, bytes.Repeat([]byte{7}, 16)...),
	"vbin8": {0xa0, 2, 0, 255}, "vbin32": {0xb0, 0, 0, 0, 2, 0, 255}, "str8": {0xa1, 2, 0xc3, 0xa9}, "str32": {0xb1, 0, 0, 0, 1, 'x'},
	"sym8": {0xa3, 1, 's'}, "sym32": {0xb3, 0, 0, 0, 1, 's'}, "list0": {0x45}, "list8": {0xc0, 2, 1, 0x40}, "list32": {0xd0, 0, 0, 0, 5, 0, 0, 0, 1, 0x40},
	"map8": {0xc1, 3, 2, 0x41, 0x42}, "map32": {0xd1, 0, 0, 0, 6, 0, 0, 0, 2, 0x41, 0x42},
	"map with equal keys":   {0xc1, 5, 4, 0x43, 0x40, 0x43, 0x41},
	"array8 of uint":        {0xe0, 10, 2, 0x70, 0, 0, 0, 1, 0, 0, 0, 2},
	"array32 of symbol":     {0xf0, 0, 0, 0, 9, 0, 0, 0, 2, 0xa3, 1, 'a', 1, 'b'},
	"array of null":         {0xe0, 2, 3, 0x40},
	"array of true":         {0xe0, 2, 3, 0x41},
	"array of list0":        {0xe0, 2, 2, 0x45},
	"array of list":         {0xe0, 6, 2, 0xc0, 1, 0, 1, 0},
	"array of array":        {0xe0, 11, 1, 0xf0, 0, 0, 0, 5, 0, 0, 0, 0, 0x40},
	"array of described":    {0xe0, 6, 1, 0x00, 0x53, 9, 0x50, 1},
	"array of char":         {0xe0, 6, 1, 0x73, 0, 0, 0, 'x'},
	"array with no element": {0xe0, 2, 0, 0x70},
	"described":             {0x00, 0xa3, 1, 'd', 0x45},
	"described by list":     {0x00, 0xc0, 2, 1, 0x40, 0x41},
	"described twice":       {0x00, 0x53, 1, 0x00, 0x53, 2, 0x40},
	"a source, as a value":  {0x00, 0x53, 0x28, 0x45},
}

// oddMessages are legal messages to a name. The annotations are such as clients really send, and such as they hardly do.
func oddMessages(to string) []oddMessage {
	props := composite(propertiesSection, null, null, str(to))
	data := described(dataSection, binaryv([]byte("body")))
	header := func(v []byte) []byte { return described(headerSection, v) }
	annotations := func(v []byte) []byte { return described(messageAnnotationsSect, v) }
	all := []oddMessage{
		{"properties and data", join(props, data)},
		{"empty header", join(header(list()), props, data)},
		{"header with every field", join(header(list(boolean(true), ubyte(9), null, boolean(true), uint32v(3))), props, data)},
		{"header as a wide list with trailing nulls", join(header(wide([]byte{0x42}, ubyte(4), null, null, null)), props, data)},
		{"delivery annotations", join(described(0x71, mapv(sym("x-a"), ulong(1), ulong(77), str("v"))), props, data)},
		{"message annotations with ulong keys", join(annotations(mapv(ulong(1), str("a"), sym("x-b"), list(null, boolean(true)))), props, data)},
		{"empty message annotations", join(annotations(mapv()), props, data)},
		{"message annotations as a wide map", join(annotations([]byte{0xd1, 0, 0, 0, 9, 0, 0, 0, 2, 0xa3, 1, 'k', 0x52, 5}), props, data)},
		{"message annotations of 300 keys", join(annotations(manyKeys(300)), props, data)},
		{"every property", join(composite(propertiesSection, []byte{0x98, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, binaryv([]byte{0, 1}), str(to), str("subject"),
			str("reply"), ulong(5), sym("text/plain"), sym("gzip"), []byte{0x83, 0, 0, 4, 0, 0, 0, 0, 0}, []byte{0x83, 0, 0, 0, 0, 0, 0, 0, 9}, str("group"), uint32v(7), str("rg")), data)},
		{"properties as a wide list", join(described(propertiesSection, wide(str("id"), null, str(to), null, null, null)), data)},
		{"address as str32", join(composite(propertiesSection, null, null, append([]byte{0xb1, 0, 0, 0, byte(len(to))}, to...)), data)},
		{"a footer", join(props, data, described(0x78, mapv(sym("crc"), uint32v(1), ulong(3), binaryv([]byte{1, 2}))))},
		{"three data sections", join(props, data, described(dataSection, binaryv(nil)), data)},
		{"two sequences", join(props, composite(0x76, str("a"), null), composite(0x76))},
		{"empty data", join(props, described(dataSection, binaryv(nil)))},
		{"every section", join(header(list(boolean(true))), described(0x71, mapv(sym("d"), null)), annotations(mapv(sym("m"), boolean(false))), props,
			described(0x74, mapv(str("k"), str("v"))), data, described(0x78, mapv(sym("f"), null)))},
		{"section descriptors as symbols", join(named("amqp:header:list", list(boolean(true))), named("amqp:message-annotations:map", mapv(sym("m"), ulong(1))),
			named("amqp:properties:list", list(null, null, str(to))), named("amqp:application-properties:map", mapv(str("k"), ulong(1))), named("amqp:data:binary", binaryv([]byte("x"))))},
		{"section descriptors as long ulongs", join(long(0x72, mapv(sym("m"), ulong(1))), long(0x73, list(null, null, str(to))), long(0x77, str("x")))},
	}
	every := [][]byte{}
	for _, name := range sortedKeys(values) {
		v := values[name]
		all = append(all, oddMessage{"amqp-value " + name, join(props, described(valueSection, v))})
		every = append(every, str(name), v)
	}
	return append(all,
		oddMessage{"application properties of every type", join(props, described(0x74, mapv(every...)), data)},
		oddMessage{"message annotations of every type", join(annotations(mapv(symbolKeys(every)...)), props, data)},
		oddMessage{"a list of every type", join(props, described(0x76, list(every...)))},
	)
}

func symbolKeys(keysAndValues [][]byte) [][]byte {
	out := make([][]byte, len(keysAndValues))
	for i, b := range keysAndValues {
		if out[i] = b; i%2 == 0 {
			out[i] = sym(string(b[2:]))
		}
	}
	return out
}

func manyKeys(n int) []byte {
	var all [][]byte
	for i := range n {
		all = append(all, ulong(uint64(i+1000)), uint32v(uint32(i)))
	}
	return mapv(all...)
}

// Every type in every encoding passes a router untouched, on a link to the name, to a dialled hop and to an attached receiver.
func TestEveryTypePasses(t *testing.T) {
	hop := listenRaw(t, nil)
	r := startRouter(t, "types", rows("TYPES", hop.url("types")))
	attached := newRawReceiver(t, r.addr, "TYPES", 1000)
	s := newRawSender(t, r.addr, []byte("TYPES"))
	for n, m := range oddMessages("TYPES") {
		id, err := s.send(m.bytes, false)
		if err != nil {
			t.Fatalf("%s: %v", m.name, err)
		}
		d, err := attached.receive(patience)
		if err != nil {
			t.Fatalf("%s: attached receiver: %v", m.name, err)
		}
		sameMessage(t, m.name+", attached receiver", m.bytes, d.payload, 0)
		if o, err := s.outcome(id); err != nil || o.state != "accepted" {
			t.Fatalf("%s: got %v, %v, want accepted", m.name, o, err)
		}
		sameMessage(t, m.name+", dialled hop", m.bytes, hop.wait(t, n+1)[n].payload, 1)
	}
}

// Bodies of any size pass untouched, settled and unsettled.
func TestBodiesOfAnySizePass(t *testing.T) {
	hop := listenRaw(t, nil)
	r := startRouter(t, "sizes", rows("SIZES", hop.url("sizes")))
	attached := newRawReceiver(t, r.addr, "SIZES", 1000)
	s := newRawSender(t, r.addr, []byte("SIZES"))
	count := 0
	for _, size := range []int{0, 1, 100, 1000, 4095, 4096, 4097, 64 << 10, 1 << 20, 10 << 20} {
		for _, settled := range []bool{false, true} {
			sent := messageOf(batchOf{to: "SIZES", id: "m", sizes: []int{size}}, count)
			count++
			id, err := s.send(sent, settled)
			if err != nil {
				t.Fatal(err)
			}
			d, err := attached.receive(patience)
			if err != nil {
				t.Fatalf("body of %d bytes: attached receiver: %v", size, err)
			}
			sameMessage(t, "attached receiver", sent, d.payload, 0)
			have := hop.wait(t, count)[count-1]
			sameMessage(t, "dialled hop", sent, have.payload, 1)
			if d.settled != settled || have.settled != settled {
				t.Errorf("body of %d bytes: sent settled %v; the attached receiver got settled %v, the hop %v", size, settled, d.settled, have.settled)
			}
			if settled {
				continue
			}
			if o, err := s.outcome(id); err != nil || o.state != "accepted" {
				t.Errorf("body of %d bytes: outcome %v, %v", size, o, err)
			}
		}
	}
}
