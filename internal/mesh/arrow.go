package mesh

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"time"
)

// A data frame is a stream of Arrow (IPC streaming format, version 1): messages, each a header in a flatbuffer and a body. The first is the schema, those that follow
// have rows, by column, or the values of columns that are written as numbers (dictionaries). Where JSON is wanted it is an array of rows, each an object.
//
//	stream  = *message [end]
//	message = %xFFFFFFFF length(int32) header(length bytes) body
//	end     = %xFFFFFFFF %x00000000
//
// Columns are numbers, booleans, texts, bytes (as base64), dates and times (as ISO 8601), and null. Others, and compressed ones, are errArrow.

var errArrow = errors.New("the data frame cannot be read")

const (
	maxRows   = 64 << 20 // bytes of JSON up to the end of a data frame
	maxGrowth = 64       // and how many for each of the frame: the names of columns are in every row
	maxValues = 1 << 20  // of a dictionary
)

// The types of headers, and of columns.
const (
	arrowSchema, arrowDictionary, arrowRecords = 1, 2, 3

	arrowNull, arrowInt, arrowFloat, arrowBinary, arrowText, arrowBool, arrowDate, arrowTime = 1, 2, 3, 4, 5, 6, 8, 10
	arrowLargeBinary, arrowLargeText                                                         = 19, 20
)

// flat is a table of a flatbuffer. What lies outside of it is zero.
type flat struct {
	b  []byte
	at int
}

// number reads size bytes, little-endian.
func (f flat) number(at, size int) uint64 {
	if at < 0 || size < 0 || at > len(f.b)-size {
		return 0
	}
	var raw [8]byte
	copy(raw[:], f.b[at:at+size])
	return binary.LittleEndian.Uint64(raw[:])
}

// field is where a field of the table is; 0 where there is none.
func (f flat) field(n int) int {
	vtable := f.at - int(int32(f.number(f.at, 4)))
	if 4+2*n+2 > int(f.number(vtable, 2)) {
		return 0
	}
	if offset := int(f.number(vtable+4+2*n, 2)); offset != 0 {
		return f.at + offset
	}
	return 0
}

func (f flat) get(n, size int, otherwise uint64) uint64 {
	if at := f.field(n); at != 0 {
		return f.number(at, size)
	}
	return otherwise
}

func (f flat) table(n int) (flat, bool) {
	at := f.field(n)
	return f.follow(at), at != 0
}

func (f flat) follow(at int) flat { return flat{f.b, at + int(f.number(at, 4))} }

// vector gives the first element of a vector, and how many it has, of so many bytes each.
func (f flat) vector(n, size int) (first, length int) {
	t, ok := f.table(n)
	if !ok {
		return 0, 0
	}
	length = int(f.number(t.at, 4))
	return t.at + 4, min(length, max(0, len(f.b)-t.at-4)/size)
}

func (f flat) text(n int) []byte {
	first, length := f.vector(n, 1)
	if first < 0 || first+length > len(f.b) {
		return nil
	}
	return f.b[first : first+length]
}

// arrowColumn is a column of the schema.
type arrowColumn struct {
	name       []byte // as JSON
	kind       int
	size       int // bytes of a number, or of an offset of texts
	signed     bool
	unit       int   // of dates and times
	dictionary int64 // -1: none
	index      *arrowColumn
}

// arrowFrame is a stream that is read.
type arrowFrame struct {
	columns      []arrowColumn
	dictionaries map[int64][][]byte // values, as JSON
	rows         int
	limit        int // of what is appended to
}

// appendRows appends the rows of a stream as JSON.
func appendRows(b, stream []byte) ([]byte, error) {
	a := arrowFrame{limit: min(maxRows, len(b)+maxGrowth*len(stream))}
	b = append(b, '[')
	for len(stream) > 0 {
		header, body, rest, err := nextArrow(stream)
		if err != nil {
			return nil, err
		}
		if header.b == nil {
			break
		}
		if b, err = a.take(b, header, body); err != nil {
			return nil, err
		}
		stream = rest
	}
	if a.columns == nil {
		return nil, errArrow
	}
	return append(b, ']'), nil
}

// nextArrow cuts the first message off; its header is empty at the end.
func nextArrow(b []byte) (header flat, body, rest []byte, err error) {
	length := int64(-1)
	if len(b) >= 8 && binary.LittleEndian.Uint32(b) == math.MaxUint32 {
		length = int64(int32(binary.LittleEndian.Uint32(b[4:])))
		b = b[8:]
	}
	if length < 0 || length > int64(len(b)) {
		return header, nil, nil, errArrow
	}
	if length == 0 {
		return header, nil, nil, nil
	}
	f := flat{b: b[:length]}
	f = f.follow(0)
	size := int64(f.get(3, 8, 0))
	if size < 0 || size > int64(len(b))-length {
		return header, nil, nil, errArrow
	}
	return f, b[length : length+size], b[length+size:], nil
}

// take does what a message says.
func (a *arrowFrame) take(b []byte, message flat, body []byte) ([]byte, error) {
	t, ok := message.table(2)
	kind := message.get(1, 1, 0)
	switch {
	case !ok || (kind == arrowSchema) != (a.columns == nil):
		return nil, errArrow
	case kind == arrowSchema:
		return b, a.schema(t)
	case kind == arrowDictionary:
		return b, a.dictionary(t, body)
	case kind == arrowRecords:
		return a.records(b, t, body)
	}
	return nil, errArrow
}

func (a *arrowFrame) schema(t flat) error {
	if t.get(0, 2, 0) != 0 { // big-endian
		return errArrow
	}
	a.columns, a.dictionaries = []arrowColumn{}, map[int64][][]byte{}
	first, n := t.vector(1, 4)
	for i := range n {
		f := t.follow(first + 4*i)
		c, err := columnOf(f)
		if err != nil {
			return err
		}
		if d, ok := f.table(4); ok {
			c.dictionary = int64(d.get(0, 8, 0))
			index, _ := d.table(1)
			c.index = &arrowColumn{kind: arrowInt, size: int(index.get(0, 4, 32)) / 8, signed: index.get(1, 1, 1) != 0, dictionary: -1}
			if !c.isText() || c.index.size < 1 || c.index.size > 8 {
				return errArrow
			}
		}
		a.columns = append(a.columns, c)
	}
	return nil
}

func columnOf(f flat) (c arrowColumn, err error) {
	t, _ := f.table(3)
	c = arrowColumn{name: append(appendJSONText(nil, f.text(0)), ':'), kind: int(f.get(2, 1, 0)), dictionary: -1}
	switch c.kind {
	case arrowNull, arrowBool:
	case arrowInt:
		c.size, c.signed = int(t.get(0, 4, 0))/8, t.get(1, 1, 0) != 0
	case arrowFloat:
		c.size = 2 << min(t.get(0, 2, 0), 2)
	case arrowBinary, arrowText:
		c.size = 4
	case arrowLargeBinary, arrowLargeText:
		c.size = 8
	case arrowDate:
		c.unit = int(t.get(0, 2, 1))
		c.size = 4 << min(c.unit, 1)
	case arrowTime:
		c.size, c.unit = 8, int(t.get(0, 2, 0))
	default:
		return c, errArrow
	}
	if c.size < 0 || c.size > 8 || c.kind == arrowInt && c.size == 0 {
		return c, errArrow
	}
	return c, nil
}

// arrowValues are the values of a column.
type arrowValues struct {
	c              *arrowColumn
	n              int
	valid, at, raw []byte
}

// batch gives the values of columns, and how many rows there are.
func batch(columns []*arrowColumn, t flat, body []byte) (all []arrowValues, rows int, err error) {
	if _, compressed := t.table(3); compressed {
		return nil, 0, errArrow
	}
	length := t.get(0, 8, 0)
	if length > maxRows {
		return nil, 0, errArrow
	}
	first, n := t.vector(2, 16)
	buffer := func() (b []byte) {
		if n--; n < 0 {
			err = errArrow
			return nil
		}
		at, size := t.number(first, 8), t.number(first+8, 8)
		first += 16
		if at > uint64(len(body)) || size > uint64(len(body))-at {
			err = errArrow
			return nil
		}
		return body[at : at+size]
	}
	for _, c := range columns {
		v := arrowValues{c: c, n: int(length)}
		if c.kind != arrowNull {
			v.valid = buffer()
			if c.isText() {
				v.at = buffer()
			}
			v.raw = buffer()
		}
		all = append(all, v)
	}
	return all, int(length), err
}

func (c *arrowColumn) isText() bool {
	return c.kind == arrowBinary || c.kind == arrowText || c.kind == arrowLargeBinary || c.kind == arrowLargeText
}

func (a *arrowFrame) dictionary(t flat, body []byte) error {
	id := int64(t.get(0, 8, 0))
	records, ok := t.table(1)
	for i := range a.columns {
		c := a.columns[i]
		if !ok || c.index == nil || c.dictionary != id {
			continue
		}
		c.index = nil
		all, n, err := batch([]*arrowColumn{&c}, records, body)
		if t.get(2, 1, 0) == 0 { // not what is to be added
			a.dictionaries[id] = nil
		}
		if err != nil || n > maxValues-len(a.dictionaries[id]) {
			return errArrow
		}
		for i := range n {
			value, err := a.value(nil, &all[0], i)
			if err != nil {
				return err
			}
			a.dictionaries[id] = append(a.dictionaries[id], value)
		}
		return nil
	}
	return errArrow
}

func (a *arrowFrame) records(b []byte, t flat, body []byte) ([]byte, error) {
	columns := make([]*arrowColumn, len(a.columns))
	for i := range a.columns {
		if columns[i] = &a.columns[i]; columns[i].index != nil {
			columns[i] = columns[i].index
		}
	}
	all, n, err := batch(columns, t, body)
	for i := 0; i < n && err == nil; i++ {
		if a.rows++; a.rows > 1 {
			b = append(b, ',')
		}
		b = append(b, '{')
		for k := range all {
			if k > 0 {
				b = append(b, ',')
			}
			b = append(b, a.columns[k].name...)
			if b, err = a.cell(b, &a.columns[k], &all[k], i); err != nil {
				return nil, err
			}
		}
		if b = append(b, '}'); len(b) > a.limit {
			return nil, errArrow
		}
	}
	return b, err
}

// cell appends a value of a row.
func (a *arrowFrame) cell(b []byte, c *arrowColumn, v *arrowValues, i int) ([]byte, error) {
	if c.index == nil || !v.is(i) {
		return a.value(b, v, i)
	}
	n, ok := v.number(i)
	if values := a.dictionaries[c.dictionary]; ok && n < uint64(len(values)) {
		return append(b, values[n]...), nil
	}
	return nil, errArrow
}

// is tells whether there is a value.
func (v *arrowValues) is(i int) bool {
	return v.c.kind != arrowNull && (len(v.valid) == 0 || i/8 < len(v.valid) && v.valid[i/8]>>(i%8)&1 != 0)
}

// number gives a value as it is written, with the sign that it has.
func (v *arrowValues) number(i int) (n uint64, ok bool) {
	size := v.c.size
	if len(v.raw)/size <= i {
		return 0, false
	}
	n = flat{b: v.raw}.number(i*size, size)
	if shift := 64 - 8*size; v.c.signed || v.c.kind == arrowDate || v.c.kind == arrowTime {
		n = uint64(int64(n<<shift) >> shift)
	}
	return n, true
}

// value appends a value as JSON.
func (a *arrowFrame) value(b []byte, v *arrowValues, i int) ([]byte, error) {
	switch {
	case !v.is(i):
		return append(b, "null"...), nil
	case v.c.kind == arrowBool:
		if i/8 >= len(v.raw) {
			return nil, errArrow
		}
		return strconv.AppendBool(b, v.raw[i/8]>>(i%8)&1 != 0), nil
	case v.c.isText():
		return v.text(b, i)
	}
	n, ok := v.number(i)
	switch {
	case !ok:
		return nil, errArrow
	case v.c.kind == arrowFloat:
		return appendFinite(b, n, v.c.size), nil
	case v.c.kind == arrowDate || v.c.kind == arrowTime:
		return v.time(b, int64(n)), nil
	case v.c.signed:
		return strconv.AppendInt(b, int64(n), 10), nil
	}
	return strconv.AppendUint(b, n, 10), nil
}

func (v *arrowValues) text(b []byte, i int) ([]byte, error) {
	at, size := flat{b: v.at}, v.c.size
	if len(v.at)/size < i+2 {
		return nil, errArrow
	}
	from, to := at.number(i*size, size), at.number((i+1)*size, size)
	if from > to || to > uint64(len(v.raw)) {
		return nil, errArrow
	}
	if v.c.kind == arrowText || v.c.kind == arrowLargeText {
		return appendJSONText(b, v.raw[from:to]), nil
	}
	return append(base64.StdEncoding.AppendEncode(append(b, '"'), v.raw[from:to]), '"'), nil
}

// appendFinite appends a floating-point number; what JSON has none for is null.
func appendFinite(b []byte, n uint64, size int) []byte {
	x, bits := math.Float64frombits(n), 64
	switch size {
	case 2:
		x, bits = halfFloat(uint16(n)), 32
	case 4:
		x, bits = float64(math.Float32frombits(uint32(n))), 32
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, x, 'g', -1, bits)
}

func (v *arrowValues) time(b []byte, n int64) []byte {
	if v.c.kind == arrowDate && v.c.unit == 0 {
		return time.Unix(0, 0).UTC().AddDate(0, 0, int(n)).AppendFormat(b, `"2006-01-02"`)
	}
	layout, at := `"2006-01-02T15:04:05.999999999"`, time.Time{}
	switch {
	case v.c.kind == arrowDate:
		layout, at = `"2006-01-02"`, time.UnixMilli(n)
	case v.c.unit == 0:
		at = time.Unix(n, 0)
	case v.c.unit == 1:
		at = time.UnixMilli(n)
	case v.c.unit == 2:
		at = time.UnixMicro(n)
	default:
		at = time.Unix(0, n)
	}
	return at.UTC().AppendFormat(b, layout)
}
