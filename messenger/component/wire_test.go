package component

import (
	"reflect"
	"testing"
)

func FuzzEvent(f *testing.F) {
	e := &event{id: "i", parent: "p", typ: "t", category: request, ttl: 5, created: 6, context: evContext{"a", "b", "c", "d"}, source: identity{"k", "a", "n", "h", "i", "b"},
		values: []entry{{"v", []byte("1")}}, contentType: "x", content: []byte("y")}
	f.Add(bytesField(nil, 1, e.append(nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMatched(b)
		if err != nil {
			return
		}
		m.request()
		m.response()
		m.params = nil // which only the broker writes
		again, err := parseMatched(bytesField(nil, 1, m.event.append(nil)))
		if err != nil {
			t.Fatal(err)
		}
		if len(m.append(nil)) > 0 && !reflect.DeepEqual(m.append(nil), again.append(nil)) {
			t.Errorf("%+v became %+v", m, again)
		}
	})
}
