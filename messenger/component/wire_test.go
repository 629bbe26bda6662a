package component

import (
	"testing"

	"github.com/fingerpost/fingerpost/internal/components/proto"
)

// Whatever comes, a component makes a request and a response of it or refuses it.
func FuzzEvent(f *testing.F) {
	e := &proto.Event{ID: "i", ParentID: "p", Type: "t", Category: proto.Request, TTL: 5, CreateTime: 6, HasContext: true, Context: proto.Context{Platform: "a"}, HasSource: true,
		Source: proto.Component{Type: "k", Name: "n"}, Values: []proto.Entry{{Key: "statusCode", Value: []byte("1")}}, ContentType: "x", Content: []byte("y")}
	f.Add(proto.AppendMatched(nil, e, 3, e.Values, proto.D4))
	e.Type, e.Content = proto.TypeError, []byte(`{"code": 1, "msg": "m"}`)
	f.Add(proto.AppendMatched(nil, e, -1, e.Values, proto.D3))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMatched(b)
		if err != nil {
			return
		}
		if r := m.request(); r.ID != m.ID || r.RouteID != int(m.route) {
			t.Errorf("%+v became %+v", m, r)
		}
		if r, err := responseOf(&m.Event); (r == nil) != (err != nil) {
			t.Errorf("got %+v and %v", r, err)
		}
	})
}
