package proto

import (
	_ "embed"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

//go:generate protoc --descriptor_set_out=broker.descriptor broker.proto
//go:embed broker.descriptor
var descriptors []byte

// Broker is broker.proto.
var Broker = readSet(descriptors)

// readSet reads the file of what protoc --descriptor_set_out makes.
func readSet(set []byte) *File {
	f := &File{}
	eachField(set, func(_ protowire.Number, v []byte) { f.read(v) })
	return f
}

// Fields of ServerReflectionRequest, of the answer to each, and of ServerReflectionResponse (grpc/reflection/v1/reflection.proto).
const (
	askHost      = 1
	askFile      = 3
	askSymbol    = 4
	askExtension = 5
	askNumbers   = 6
	askServices  = 7

	answerHost     = 1
	answerQuestion = 2
	answerFile     = 4
	answerServices = 6
	answerError    = 7
)

const notFound = 5 // a code of Status

// Answer gives the ServerReflectionResponse to a ServerReflectionRequest; ok is false where it is none.
func (f *File) Answer(question []byte) (answer []byte, ok bool) {
	asked, what := protowire.Number(0), ""
	host := ""
	ok = eachField(question, func(n protowire.Number, v []byte) {
		switch n {
		case askHost:
			host = string(v)
		case askFile, askSymbol, askExtension, askNumbers, askServices:
			asked, what = n, string(v)
		}
	})
	if !ok {
		return nil, false
	}
	if host != "" {
		answer = appendItem(answer, answerHost, []byte(host))
	}
	answer = appendItem(answer, answerQuestion, question)
	switch {
	case asked == askServices:
		var list []byte
		for _, name := range f.services {
			list = appendItem(list, 1, appendItem(nil, 1, []byte(name)))
		}
		return appendItem(answer, answerServices, list), true
	case asked == askFile && what == f.name, asked == askSymbol && slices.Contains(f.names, what):
		return appendItem(answer, answerFile, appendItem(nil, 1, f.descriptor)), true
	}
	no := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), notFound)
	return appendItem(answer, answerError, appendItem(no, 2, []byte("not found: "+strings.ToValidUTF8(what, "?")))), true
}

// File is a file of message types and services, for tools that ask what there is.
type File struct {
	name       string   // broker.proto
	descriptor []byte   // a FileDescriptorProto
	scope      string   // its package
	services   []string // full names
	names      []string // of all that it has
}

// Fields of FileDescriptorProto, DescriptorProto and ServiceDescriptorProto (google/protobuf/descriptor.proto). A name is the first field of each.
const (
	fileName, filePackage, fileMessage, fileEnum, fileService = 1, 2, 4, 5, 6
	messageField, messageNested, messageEnum                  = 2, 3, 4
	serviceMethod                                             = 2
)

// read takes a FileDescriptorProto, in which the name of the package comes before what is in it.
func (f *File) read(descriptor []byte) {
	f.descriptor = descriptor
	eachField(descriptor, func(field protowire.Number, v []byte) {
		switch field {
		case fileName:
			f.name = string(v)
		case filePackage:
			f.scope = string(v)
		case fileMessage:
			f.message(f.scope, v)
		case fileEnum:
			f.add(f.scope, v)
		case fileService:
			name := f.add(f.scope, v)
			f.services = append(f.services, name)
			eachField(v, func(field protowire.Number, v []byte) {
				if field == serviceMethod {
					f.add(name, v)
				}
			})
		}
	})
}

func (f *File) message(scope string, item []byte) {
	name := f.add(scope, item)
	eachField(item, func(field protowire.Number, v []byte) {
		switch field {
		case messageNested:
			f.message(name, v)
		case messageField, messageEnum:
			f.add(name, v)
		}
	})
}

// add notes the full name of an item.
func (f *File) add(scope string, item []byte) (name string) {
	eachField(item, func(field protowire.Number, v []byte) {
		if field == 1 {
			name = scope + "." + string(v)
		}
	})
	f.names = append(f.names, name)
	return name
}

// eachField gives the fields of a message that have a length. It is false where the message is none.
func eachField(b []byte, f func(n protowire.Number, v []byte)) bool {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return false
		}
		b = b[size:]
		if kind == protowire.BytesType {
			v, size := protowire.ConsumeBytes(b)
			if size < 0 {
				return false
			}
			f(n, v)
			b = b[size:]
			continue
		}
		if size = protowire.ConsumeFieldValue(n, kind, b); size < 0 {
			return false
		}
		b = b[size:]
	}
	return true
}

func appendItem(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}
