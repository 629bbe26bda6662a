package proto

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	goproto "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// An event is read by what a tool knows from the file.
func TestTheFileIsWhatIsWritten(t *testing.T) {
	var f descriptorpb.FileDescriptorProto
	if err := goproto.Unmarshal(Broker.descriptor, &f); err != nil {
		t.Fatal(err)
	}
	d, err := protodesc.NewFile(&f, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := Event{ID: "i", ParentID: "p", Type: "t", Category: Response, CreateTime: 1, TTL: 2, HasContext: true, Context: Context{Deployment: "d"},
		HasSource: true, Source: Component{Name: "n"}, HasTarget: true, Target: Component{Name: "m"}, Params: []Entry{{Key: "k", Value: []byte("v")}},
		ContentType: "c", Content: []byte("x")}
	m := dynamicpb.NewMessage(d.Messages().ByName("MatchedEvent"))
	if err := goproto.Unmarshal(AppendMatched(nil, &e, 3, nil, D4), m); err != nil {
		t.Fatal(err)
	}
	var unknown func(m protoreflect.Message) int
	unknown = func(m protoreflect.Message) (n int) {
		n = len(m.GetUnknown())
		m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if fd.Message() != nil && !fd.IsMap() {
				n += unknown(v.Message())
			}
			return true
		})
		return n
	}
	if n := unknown(m); n > 0 {
		t.Errorf("%d bytes of an event are not in the file", n)
	}
	got := m.Get(m.Descriptor().Fields().ByName("event")).Message()
	for name, want := range map[protoreflect.Name]any{"id": "i", "parent_id": "p", "type": "t", "category": protoreflect.EnumNumber(3), "ttl": int64(2), "content_type": "c"} {
		if v := got.Get(got.Descriptor().Fields().ByName(name)).Interface(); v != want {
			t.Errorf("%s: got %v, want %v", name, v, want)
		}
	}
}

// FuzzQuestion: whatever is asked of a file has an answer that names it, or is told to be no question.
func FuzzQuestion(f *testing.F) {
	set := appendItem(nil, 1, appendItem(appendItem(nil, fileName, []byte("f")), fileService, appendItem(nil, 1, []byte("S"))))
	f.Add(set, appendItem(nil, askServices, nil))
	f.Add(set, appendItem(appendItem(nil, askHost, []byte("h")), askSymbol, []byte(".S")))
	f.Fuzz(func(t *testing.T, set, question []byte) {
		a, ok := readSet(set).Answer(question)
		asked := false
		if whole := eachField(a, func(n protowire.Number, v []byte) { asked = asked || n == answerQuestion && bytes.Equal(v, question) }); ok && !(whole && asked) {
			t.Errorf("the answer to %x is %x", question, a)
		}
	})
}
