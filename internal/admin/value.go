package admin

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// What tools send is read by kind, not by type: a number of any width, a symbol for a string, text for a number. The
// functions below answer false for anything that cannot be read so.

// textOf reads a string, a symbol, or text sent as binary.
func textOf(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	rv := reflect.ValueOf(v)
	if rv.IsValid() && rv.Kind() == reflect.String {
		return rv.String(), true
	}
	return "", false
}

// scalarText reads anything that has one canonical text: strings, numbers, booleans.
func scalarText(v any) (string, bool) {
	if s, ok := textOf(v); ok {
		return s, true
	}
	rv := reflect.ValueOf(v)
	switch rv.Kind() {
	case reflect.Bool:
		return strconv.FormatBool(rv.Bool()), true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(rv.Int(), 10), true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.FormatUint(rv.Uint(), 10), true
	case reflect.Float32:
		return strconv.FormatFloat(rv.Float(), 'g', -1, 32), true
	case reflect.Float64:
		return strconv.FormatFloat(rv.Float(), 'g', -1, 64), true
	}
	return "", false
}

// countOf reads a whole number from zero up, of any width or as decimal text.
func countOf(v any) (uint64, bool) {
	if s, ok := textOf(v); ok {
		n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
		return n, err == nil
	}
	rv := reflect.ValueOf(v)
	switch rv.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return uint64(max(rv.Int(), 0)), rv.Int() >= 0
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return rv.Uint(), true
	case reflect.Float32, reflect.Float64:
		f := rv.Float()
		if f < 0 || f != math.Trunc(f) || f > 1<<53 {
			return 0, false
		}
		return uint64(f), true
	}
	return 0, false
}

// boolOf reads a boolean, or the text of one.
func boolOf(v any) (bool, bool) {
	if b, ok := v.(bool); ok {
		return b, true
	}
	if s, ok := textOf(v); ok {
		b, err := strconv.ParseBool(strings.ToLower(strings.TrimSpace(s)))
		return b, err == nil
	}
	return false, false
}

// args are the named arguments of a request. Its readers say what is wrong in the words of the request; an argument
// that is absent or null reads as the zero value.
type args map[string]any

func (a args) has(name string) bool { return a[name] != nil }

func (a args) text(name string) (string, error) {
	v := a[name]
	if v == nil {
		return "", nil
	}
	if s, ok := scalarText(v); ok {
		return s, nil
	}
	return "", refuse(StatusBadRequest, "%s: must be a string, got %s", name, kindOf(v))
}

func (a args) count(name string) (n uint64, given bool, err error) {
	v := a[name]
	if v == nil {
		return 0, false, nil
	}
	if n, ok := countOf(v); ok {
		return n, true, nil
	}
	return 0, false, refuse(StatusBadRequest, "%s: must be a whole number from 0 up, got %s", name, show(v))
}

func (a args) flag(name string) (bool, error) {
	v := a[name]
	if v == nil {
		return false, nil
	}
	if b, ok := boolOf(v); ok {
		return b, nil
	}
	return false, refuse(StatusBadRequest, "%s: must be true or false, got %s", name, show(v))
}

// kindOf names the kind of a value in AMQP's words, for refusals.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case []byte:
		return "binary"
	}
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Map:
		return "a map"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Float32, reflect.Float64:
		return "a fraction"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a number"
	}
	return fmt.Sprintf("%T", v)
}

// show is kindOf, or the value itself where it is short.
func show(v any) string {
	if s, ok := scalarText(v); ok && len(s) <= 64 {
		return strconv.Quote(s)
	}
	return kindOf(v)
}

// Arguments are the named arguments of an operation of a provider.
type Arguments = args

// Text reads a text; none is empty.
func (a args) Text(name string) (string, error) { return a.text(name) }

// Count reads a whole number, and tells whether there is one.
func (a args) Count(name string) (n uint64, given bool, err error) { return a.count(name) }

// Flag reads a boolean; none is false.
func (a args) Flag(name string) (bool, error) { return a.flag(name) }

// Texts reads a list of texts; none is empty.
func (a args) Texts(name string) (list []string, err error) {
	v := a[name]
	if v == nil {
		return nil, nil
	}
	rv := reflect.ValueOf(v)
	if _, isText := textOf(v); isText || rv.Kind() != reflect.Slice && rv.Kind() != reflect.Array {
		return nil, refuse(StatusBadRequest, "%s: must be a list of strings, got %s", name, kindOf(v))
	}
	for i := range rv.Len() {
		s, ok := scalarText(rv.Index(i).Interface())
		if !ok {
			return nil, refuse(StatusBadRequest, "%s: item %d must be a string, got %s", name, i+1, kindOf(rv.Index(i).Interface()))
		}
		list = append(list, s)
	}
	return list, nil
}
