package proto

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// wireTypes are the messages of broker.proto in a dialect, as another implementation knows them.
func wireTypes(t testing.TB, d Dialect) map[string]protoreflect.MessageDescriptor {
	str, msg := descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	one, many := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL, descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	field := func(n int32, name string, kind descriptorpb.FieldDescriptorProto_Type, of string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &n, Type: &kind, Label: &one}
		if of != "" {
			f.TypeName = &of
		}
		return f
	}
	texts := func(name string, names ...string) *descriptorpb.DescriptorProto {
		m := &descriptorpb.DescriptorProto{Name: &name}
		for i, n := range names {
			m.Field = append(m.Field, field(int32(i+1), n, str, ""))
		}
		return m
	}
	yes := true
	mapOf := func(m *descriptorpb.DescriptorProto, n int32, name, entryName string) {
		value := field(2, "value", str, "")
		if d == D3 {
			value = field(2, "value", msg, ".google.protobuf.Value")
		}
		m.NestedType = append(m.NestedType, &descriptorpb.DescriptorProto{
			Name: &entryName, Field: []*descriptorpb.FieldDescriptorProto{field(1, "key", str, ""), value}, Options: &descriptorpb.MessageOptions{MapEntry: &yes},
		})
		f := field(n, name, msg, ".k."+m.GetName()+"."+entryName)
		f.Label = &many
		m.Field = append(m.Field, f)
	}
	event := texts("Event", "id", "parent_id")
	event.Field = append(event.Field, field(4, "type", str, ""), field(5, "Category", descriptorpb.FieldDescriptorProto_TYPE_INT32, ""),
		field(6, "create_time", descriptorpb.FieldDescriptorProto_TYPE_INT64, ""), field(7, "ttl", descriptorpb.FieldDescriptorProto_TYPE_INT64, ""),
		field(8, "context", msg, ".k.EventContext"), field(9, "source", msg, ".k.Component"), field(10, "target", msg, ".k.Component"),
		field(14, "content_type", str, ""), field(15, "content", descriptorpb.FieldDescriptorProto_TYPE_BYTES, ""))
	mapOf(event, 11, "params", "ParamsEntry")
	mapOf(event, 12, "values", "ValuesEntry")
	name := "MatchedEvent"
	m := &descriptorpb.DescriptorProto{Name: &name, Field: []*descriptorpb.FieldDescriptorProto{
		field(1, "event", msg, ".k.Event"), field(2, "route_id", descriptorpb.FieldDescriptorProto_TYPE_INT64, ""),
	}}
	mapOf(m, 3, "env", "EnvEntry")
	file, pkg, syntax := "k.proto", "k", "proto3"
	fd, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: &file, Package: &pkg, Syntax: &syntax, Dependency: []string{"google/protobuf/struct.proto"},
		MessageType: []*descriptorpb.DescriptorProto{event, m, texts("Component", "type", "app", "name", "hash", "id", "broker_id"),
			texts("EventContext", "platform", "virtual_environment", "app_deployment", "release_manifest")},
	}, fileOfStruct{})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]protoreflect.MessageDescriptor{"Event": fd.Messages().ByName("Event"), "MatchedEvent": fd.Messages().ByName("MatchedEvent")}
}

// fileOfStruct finds google.protobuf.Value, and nothing else.
type fileOfStruct struct{}

func (fileOfStruct) FindFileByPath(string) (protoreflect.FileDescriptor, error) {
	return structpb.File_google_protobuf_struct_proto, nil
}

func (fileOfStruct) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	return structpb.File_google_protobuf_struct_proto.Messages().ByName(name.Name()), nil
}

func sample() *Event {
	return &Event{
		ID: "i", ParentID: "p", Type: "io.kubefox.http", Category: Response, CreateTime: 1 << 60, TTL: 60_000_000_000,
		HasContext: true, Context: Context{"lab", "qa", "hello-main", ""},
		HasSource: true, Source: Component{"KubeFox", "hello", "frontend", "aaaa", "id", "b"},
		HasTarget: true, Target: Component{Type: "KubeFox", Name: "backend"},
		Params: []Entry{{"x", []byte(`"\u0026"`)}},
		Values: []Entry{{"list", []byte(`["a","b"]`)}, {"map", []byte(`{"k":["v","w"],"l":[]}`)}, {"n", []byte("1.5")}, {"none", []byte("null")}, {"two", []byte("2")}, {"yes", []byte("true")}},

		ContentType: "text/plain", Content: []byte("hello"),
	}
}

// What we write another implementation reads, in both dialects, and writes back what we read.
func TestEventsOnTheWire(t *testing.T) {
	for d, name := range map[Dialect]string{D4: "D4", D3: "D3"} {
		t.Run(name, func(t *testing.T) {
			types := wireTypes(t, d)
			want := sample()
			b := AppendMatched(nil, want, -1, []Entry{{"who", []byte(`"World"`)}}, d)
			m := dynamicpb.NewMessage(types["MatchedEvent"])
			if err := proto.Unmarshal(b, m); err != nil {
				t.Fatal(err)
			}
			if got := m.Get(types["MatchedEvent"].Fields().ByName("route_id")).Int(); got != -1 || len(m.GetUnknown()) > 0 {
				t.Errorf("route id %d, unknown %x", got, m.GetUnknown())
			}
			again, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			var back Matched
			var e Event
			if err := back.Parse(again); err != nil || back.RouteID != -1 || len(back.Env) != 1 || string(back.Env[0].Value) != `"World"` {
				t.Fatalf("%+v, %v", back, err)
			}
			seen, err := e.Parse(back.Event)
			if err != nil || seen != (Dialects{D3: d == D3, D4: d == D4}) {
				t.Fatalf("%v, %+v", err, seen)
			}
			compareEvents(t, &e, want)
		})
	}
}

// compareEvents compares maps by their decoded values.
func compareEvents(t *testing.T, got, want *Event) {
	t.Helper()
	decoded := func(list []Entry) map[string]any {
		m := map[string]any{}
		for _, x := range list {
			var v any
			if err := json.Unmarshal(x.Value, &v); err != nil {
				t.Errorf("%s: %v", x.Key, err)
			}
			m[x.Key] = v
		}
		return m
	}
	if !reflect.DeepEqual(decoded(got.Values), decoded(want.Values)) || !reflect.DeepEqual(decoded(got.Params), decoded(want.Params)) {
		t.Errorf("got %s %s, want %s %s", got.Params, got.Values, want.Params, want.Values)
	}
	g, w := *got, *want
	g.Params, g.Values, w.Params, w.Values = nil, nil, nil, nil
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got %+v, want %+v", g, w)
	}
}

func TestAge(t *testing.T) {
	b := AppendMatched(nil, sample(), 3, nil, D4)
	if !Age(b, 1_000_000_000) {
		t.Error("its life is over")
	}
	var e Event
	if _, err := e.Parse(EventOf(b)); err != nil || e.TTL != 59_000_000_000 || e.ID != "i" {
		t.Errorf("got %d, %v", e.TTL, err)
	}
	if Age(b, 59_000_000_000) {
		t.Error("its life is not over")
	}
}

func TestDialects(t *testing.T) {
	for _, text := range []string{`""`, `"2"`, "2", "23", "2e3", "[]", "[1,2]", `["a"]`, "{}", `{"a":["b"]}`, "true", "false", "null", "-1.5", "0"} {
		var seen Dialects
		if got, err := toJSON([]byte(text), &seen); err != nil || string(got) != text || seen.D3 {
			t.Errorf("%s: got %s, %v", text, got, err)
		}
		encoded := fromJSON([]byte(text))
		var v structpb.Value
		if err := proto.Unmarshal(encoded, &v); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		other, err := json.Marshal(v.AsInterface())
		if err != nil {
			t.Error(err)
		}
		seen = Dialects{}
		got, err := toJSON(encoded, &seen)
		if err != nil || !bytes.Equal(got, other) || seen.D4 {
			t.Errorf("%s: got %s, want %s, %v, %+v", text, got, other, err, seen)
		}
	}
	if got, err := toJSON(nil, &Dialects{}); err != nil || string(got) != "null" {
		t.Errorf("an empty value: %s, %v", got, err)
	}
	for _, bad := range []string{"x", "\x11", "\x1a\x05a", "\x2a\x02\x0a\x09", "\x11\x01\x00\x00\x00\x00\x00\xf8\x7f"} {
		if got, err := toJSON([]byte(bad), &Dialects{}); err == nil {
			t.Errorf("%q: got %s", bad, got)
		}
	}
}

// A value that is deeper than values are is a text for who speaks the other dialect: its reader would end the stream.
func TestDeepValues(t *testing.T) {
	for text, want := range map[string]string{
		`[[["a"]]]`: `[[["a"]]]`, `[[[["a"]]]]`: `"[[[[\"a\"]]]]"`, `{"a":{"b":["c"]}}`: `{"a":{"b":["c"]}}`, `{"a":{"b":{"c":{}}}}`: `"{\"a\":{\"b\":{\"c\":{}}}}"`,
	} {
		if got, err := toJSON(fromJSON([]byte(text)), &Dialects{}); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}

// Texts that are not UTF-8 make no event: who got it would end its stream.
func TestTextsThatAreNone(t *testing.T) {
	bad := "a\xff"
	for name, change := range map[string]func(*Event){
		"id": func(e *Event) { e.ID = bad }, "parent id": func(e *Event) { e.ParentID = bad }, "type": func(e *Event) { e.Type = bad }, "content type": func(e *Event) { e.ContentType = bad },
		"context": func(e *Event) { e.Context.Deployment = bad }, "source": func(e *Event) { e.Source.ID = bad }, "target": func(e *Event) { e.Target.BrokerID = bad },
		"key of a value": func(e *Event) { e.Values = []Entry{{bad, []byte("1")}} }, "value": func(e *Event) { e.Values = []Entry{{"a", []byte("\"\xff\"")}} },
		"param": func(e *Event) { e.Params = []Entry{{"a", []byte("2\xff")}} }, "trace state": func(e *Event) { e.Span = AppendSpan(nil, nil, nil, bad, 0) }, "span": func(e *Event) { e.Span = []byte(bad) },
	} {
		t.Run(name, func(t *testing.T) {
			e := sample()
			change(e)
			if _, err := new(Event).Parse(e.Append(nil, D4)); err == nil {
				t.Error("it was taken")
			}
		})
	}
	e := sample()
	e.Content, e.Span = []byte(bad), AppendSpan(nil, []byte("\xff"), []byte("\xff"), "é", 1)
	if _, err := e.Parse(e.Append(nil, D4)); err != nil {
		t.Errorf("bytes need not be a text: %v", err)
	}
}

// Whatever is read is written so that it is read as the same.
func FuzzEvent(f *testing.F) {
	f.Add(sample().Append(nil, D4))
	f.Add(sample().Append(nil, D3))
	request := sample()
	request.Category = Request
	f.Add(request.Append(nil, D4))
	f.Add(AppendMatched(nil, request, 1, nil, D4))
	f.Fuzz(func(t *testing.T, b []byte) {
		var e, again Event
		if _, err := e.Parse(b); err != nil {
			return
		}
		e.TTL = max(e.TTL, 0)
		for _, d := range []Dialect{D4, D3} {
			text := e.Append(nil, d)
			if _, err := again.Parse(text); err != nil {
				t.Fatalf("%x: %v", text, err)
			}
			if d == D4 && !bytes.Equal(again.Append(nil, D4), text) {
				t.Errorf("%+v became %+v", e, again)
			}
		}
		m := AppendMatched(nil, &e, 1, e.Params, D4)
		if !bytes.Equal(EventOf(m), e.Append(nil, D4)) {
			t.Error("the event is not in the matched event")
		}
		var x Matched
		if err := x.Parse(m); err != nil || x.RouteID != 1 || !bytes.Equal(x.Event, EventOf(m)) {
			t.Errorf("%+v, %v", x, err)
		}
		head, id := RequestHead(m)
		if (head != nil) != (e.Category == Request && e.ID != "") {
			t.Errorf("the head of %+v is %x", e, head)
		}
		if head != nil {
			if _, err := again.Parse(head); err != nil || id != e.ID || again.Source != e.Source || again.Context != e.Context || again.ParentID != e.ParentID || len(again.Values)+len(again.Content) > 0 {
				t.Errorf("the head of %+v is %+v, %v", e, again, err)
			}
		}
		Age(m, 1)
		RequestHead(b)
	})
}
