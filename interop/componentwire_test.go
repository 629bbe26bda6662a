package interop

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/structpb"
)

// kit is a component as a kit of upstream would speak: gRPC and protobuf by their own libraries, from the tables of the wire, in one of its dialects. Its
// messages are written and read as JSON.
type kit struct {
	t       *testing.T
	dialect string // D3 or D4
	id      object // source
	types   map[string]protoreflect.MessageDescriptor
	stream  grpc.ClientStream
	ended   chan struct{}
	err     error // with ended

	writing sync.Mutex
	mu      sync.Mutex // guards what follows
	calls   map[string]chan object
	handle  func(event object, matched object) // of what is no answer to a call; in a goroutine
}

// object is JSON.
type object = map[string]any

// textAt gives a field's text, down a path.
func textAt(o object, path ...string) string {
	for _, p := range path[:len(path)-1] {
		o, _ = o[p].(object)
	}
	s, _ := o[path[len(path)-1]].(string)
	return s
}

// kitTypes makes the messages of a dialect.
func kitTypes(t *testing.T, dialect string) map[string]protoreflect.MessageDescriptor {
	t.Helper()
	const text, number, message, bytes = descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_INT64,
		descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, descriptorpb.FieldDescriptorProto_TYPE_BYTES
	field := func(n int32, name string, kind descriptorpb.FieldDescriptorProto_Type, of string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &n, Type: &kind, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
		if of != "" {
			f.TypeName = &of
		}
		return f
	}
	texts := func(name string, fields ...string) *descriptorpb.DescriptorProto {
		m := &descriptorpb.DescriptorProto{Name: &name}
		for i, f := range fields {
			m.Field = append(m.Field, field(int32(i+1), f, text, ""))
		}
		return m
	}
	value := field(2, "value", text, "")
	if dialect == "D3" {
		value = field(2, "value", message, ".google.protobuf.Value")
	}
	withMap := func(m *descriptorpb.DescriptorProto, n int32, name, entry string) {
		m.NestedType = append(m.NestedType, &descriptorpb.DescriptorProto{
			Name: &entry, Field: []*descriptorpb.FieldDescriptorProto{field(1, "key", text, ""), value}, Options: &descriptorpb.MessageOptions{MapEntry: new(true)},
		})
		f := field(n, name, message, ".kubefox.proto.v1."+m.GetName()+"."+entry)
		f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		m.Field = append(m.Field, f)
	}
	event := &descriptorpb.DescriptorProto{Name: new("Event"), Field: []*descriptorpb.FieldDescriptorProto{
		field(1, "id", text, ""), field(2, "parent_id", text, ""), field(4, "type", text, ""), field(5, "category", descriptorpb.FieldDescriptorProto_TYPE_ENUM, ".kubefox.proto.v1.Category"),
		field(6, "create_time", number, ""), field(7, "ttl", number, ""), field(8, "context", message, ".kubefox.proto.v1.EventContext"),
		field(9, "source", message, ".kubefox.proto.v1.Component"), field(10, "target", message, ".kubefox.proto.v1.Component"),
		field(14, "content_type", text, ""), field(15, "content", bytes, ""),
	}}
	withMap(event, 11, "params", "ParamsEntry")
	withMap(event, 12, "values", "ValuesEntry")
	matched := &descriptorpb.DescriptorProto{Name: new("MatchedEvent"), Field: []*descriptorpb.FieldDescriptorProto{
		field(1, "event", message, ".kubefox.proto.v1.Event"), field(2, "route_id", number, ""),
	}}
	withMap(matched, 3, "env", "EnvEntry")
	category := &descriptorpb.EnumDescriptorProto{Name: new("Category")}
	for i, name := range []string{"UNKNOWN", "MESSAGE", "REQUEST", "RESPONSE"} {
		category.Value = append(category.Value, &descriptorpb.EnumValueDescriptorProto{Name: &name, Number: new(int32(i))})
	}
	f, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("kit.proto"), Package: new("kubefox.proto.v1"), Syntax: new("proto3"), Dependency: []string{"google/protobuf/struct.proto"},
		EnumType:    []*descriptorpb.EnumDescriptorProto{category},
		MessageType: []*descriptorpb.DescriptorProto{event, matched, texts("Component", "type", "app", "name", "hash", "id", "broker_id"), texts("EventContext", "platform", "virtual_environment", "app_deployment", "release_manifest")},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]protoreflect.MessageDescriptor{"Event": f.Messages().ByName("Event"), "MatchedEvent": f.Messages().ByName("MatchedEvent")}
}

// kitOptions say who a kit is.
type kitOptions struct {
	app, name, hash, token, kind, id, pod, dialect string

	tls      *tls.Config // nil: without
	platform string      // empty is lab
	routes   []object
	metadata []string // instead of what is right
	source   object   // of the registration, instead of what is right
	handle   func(k *kit, event, matched object)
}

// newKit opens a stream; register registers.
func newKit(t *testing.T, broker string, o kitOptions) *kit {
	t.Helper()
	k := &kit{t: t, dialect: or(o.dialect, "D4"), calls: map[string]chan object{}, ended: make(chan struct{})}
	k.types = kitTypes(t, k.dialect)
	k.id = object{"type": or(o.kind, "KubeFox"), "app": o.app, "name": o.name, "hash": o.hash, "id": or(o.id, strings.ToLower(rand.Text()[:10]))}
	if o.handle != nil {
		k.handle = func(e, m object) { o.handle(k, e, m) }
	}
	secure := insecure.NewCredentials()
	if o.tls != nil {
		secure = credentials.NewTLS(o.tls)
	}
	conn, err := grpc.NewClient("passthrough:///"+broker, grpc.WithTransportCredentials(secure), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20), grpc.MaxCallSendMsgSize(16<<20)))
	if err != nil {
		t.Fatal(err)
	}
	pairs := o.metadata
	if pairs == nil {
		pairs = []string{"app", o.app, "component", o.name, "hash", o.hash, "id", textAt(k.id, "id"), "platform", or(o.platform, "lab"), "pod", o.pod, "token", o.token, "type", textAt(k.id, "type")}
	}
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), pairs...))
	t.Cleanup(func() { cancel(); conn.Close() })
	k.stream, err = conn.NewStream(ctx, &grpc.StreamDesc{StreamName: "Subscribe", ServerStreams: true, ClientStreams: true}, "/kubefox.proto.v1.Broker/Subscribe")
	if err != nil {
		k.err = err
		close(k.ended)
	}
	return k
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// register registers, and has what comes handled until the stream ends.
func (k *kit) register(o kitOptions) error {
	if k.err != nil {
		return k.err
	}
	definition, _ := json.Marshal(object{"type": k.id["type"], "routes": o.routes, "hash": ""})
	source := o.source
	if source == nil {
		source = k.id
	}
	id := kitUUID()
	k.write(object{"id": id, "type": "io.kubefox.register", "category": "REQUEST", "ttl": int64(5e9), "context": object{"platform": or(o.platform, "lab")}, "source": source,
		"content_type": "application/json; charset=UTF-8", "content": definition})
	m, err := k.read()
	if err != nil {
		k.err = err
		close(k.ended)
		return err
	}
	e := m["event"].(object)
	if textAt(e, "parent_id") != id || textAt(e, "category") != "RESPONSE" || textAt(e, "source", "type") != "Broker" || textAt(e, "target", "id") != k.id["id"] {
		return fmt.Errorf("the answer to the registration is %v", m)
	}
	go k.loop()
	return nil
}

func kitUUID() string {
	text := fmt.Sprintf("%x", []byte(rand.Text()[:16]))
	return text[:8] + "-" + text[8:12] + "-4" + text[13:16] + "-a" + text[17:20] + "-" + text[20:32]
}

// connectKit connects and registers.
func connectKit(t *testing.T, broker string, o kitOptions) *kit {
	t.Helper()
	k := newKit(t, broker, o)
	if err := k.register(o); err != nil {
		t.Fatalf("%s: %v", o.name, err)
	}
	return k
}

// values are in a message as the dialect has them.
func (k *kit) values(of object) object {
	if k.dialect == "D3" {
		return of
	}
	texts := object{}
	for name, v := range of {
		text, _ := json.Marshal(v)
		texts[name] = string(text)
	}
	return texts
}

// value reads one.
func (k *kit) value(of object, kind, name string) any {
	all, _ := of[kind].(object)
	v := all[name]
	if text, ok := v.(string); ok && k.dialect == "D4" {
		var x any
		if json.Unmarshal([]byte(text), &x) != nil {
			k.t.Errorf("%s %s is no JSON text: %q", kind, name, text)
		}
		return x
	}
	return v
}

func (k *kit) write(event object) error {
	text, err := json.Marshal(event)
	m := dynamicpb.NewMessage(k.types["Event"])
	if err == nil {
		err = protojson.Unmarshal(text, m)
	}
	if err != nil {
		k.t.Errorf("an event: %v", err)
		return err
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	return k.stream.SendMsg(m)
}

func (k *kit) read() (object, error) {
	m := dynamicpb.NewMessage(k.types["MatchedEvent"])
	if err := k.stream.RecvMsg(m); err != nil {
		return nil, err
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var o object
	return o, json.Unmarshal(text, &o)
}

func (k *kit) loop() {
	defer close(k.ended)
	for {
		m, err := k.read()
		if err != nil {
			k.err = err
			return
		}
		e := m["event"].(object)
		k.mu.Lock()
		answer := k.calls[textAt(e, "parent_id")]
		delete(k.calls, textAt(e, "parent_id"))
		k.mu.Unlock()
		switch {
		case answer != nil && textAt(e, "category") == "RESPONSE":
			answer <- e
		case k.handle != nil:
			go k.handle(e, m)
		}
	}
}

// respond answers an event.
func (k *kit) respond(to object, status int, body string) {
	k.write(object{"id": kitUUID(), "parent_id": to["id"], "type": to["type"], "category": "RESPONSE", "ttl": to["ttl"], "context": to["context"], "source": k.id, "target": to["source"],
		"content_type": "text/plain", "content": []byte(body), "values": k.values(object{"statusCode": status, "header": object{"X-Kit": []string{k.dialect}}})})
}

// call sends a request to a component by its name, and waits for the answer: nil when it does not come.
func (k *kit) call(of object, name string) object {
	id := kitUUID()
	answer := make(chan object, 1)
	k.mu.Lock()
	k.calls[id] = answer
	k.mu.Unlock()
	k.write(object{"id": id, "parent_id": of["id"], "type": "io.kubefox.kubefox", "category": "REQUEST", "ttl": of["ttl"], "context": of["context"], "source": k.id,
		"target": object{"type": "KubeFox", "name": name}, "values": k.values(object{"from": textAt(k.id, "name")})})
	select {
	case e := <-answer:
		return e
	case <-k.ended:
	case <-time.After(patience):
	}
	return nil
}

// body is the content of an event.
func body(e object) string {
	var b []byte
	text, _ := json.Marshal(e["content"])
	json.Unmarshal(text, &b)
	return string(b)
}
