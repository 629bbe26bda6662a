package grpc

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Reflection are the methods by which tools ask for the services and message types of a file (grpc.reflection.v1.ServerReflection, and v1alpha, which has the
// same messages); set is what protoc --descriptor_set_out makes of it. Who asks need not say who it is: it learns what is in the file, which everybody may know.
func Reflection(set []byte) map[string]func(*Stream) {
	var f file
	eachField(set, func(_ protowire.Number, v []byte) { f.read(v) })
	serve := func(s *Stream) {
		r := &reflector{s: s, file: &f, idle: make(chan struct{}, 1)}
		r.serve()
	}
	return map[string]func(*Stream){
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      serve,
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": serve,
	}
}

// Bounds of a stream of questions.
const (
	maxQuestion = 4 << 10          // bytes
	maxAnswers  = 64               // that wait
	lastAnswers = 10 * time.Second // for a peer that has asked all to read what is left
)

// reflector answers the questions of one stream. It is the stream's Owner.
type reflector struct {
	s    *Stream
	file *file
	idle chan struct{} // of room one: an answer is written

	mu      sync.Mutex // guards what follows; a leaf
	answers [][]byte
}

func (r *reflector) serve() {
	s := r.s
	closing := s.c.s.ctx
	ctx, cancel := context.WithTimeout(closing, time.Minute)
	m, err := s.First(ctx)
	cancel()
	if err == nil {
		err = r.Message(m)
	}
	if err == nil {
		s.Start(r)
		select {
		case <-s.Done():
			if err = s.Err(); err == io.EOF {
				r.finish()
			}
		case <-closing.Done():
		}
	}
	switch status, ok := errors.AsType[*Status](err); {
	case ok:
		s.End(status.Code, status.Message)
	case err == io.EOF:
		s.End(OK, "")
	}
}

// finish waits for what is left to be written.
func (r *reflector) finish() {
	timeout := time.NewTimer(lastAnswers)
	defer timeout.Stop()
	for {
		r.mu.Lock()
		n := len(r.answers)
		r.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-r.idle:
		case <-timeout.C:
			return
		}
	}
}

// Message answers a ServerReflectionRequest.
func (r *reflector) Message(m []byte) error {
	if len(m) > maxQuestion {
		return &Status{ResourceExhausted, "a question is larger than 4 KiB"}
	}
	answer, ok := r.answer(m)
	if !ok {
		return &Status{Internal, "a question is not a ServerReflectionRequest"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.answers) == maxAnswers {
		return &Status{ResourceExhausted, "too many questions before their answers are read"}
	}
	r.answers = append(r.answers, answer)
	return nil
}

func (r *reflector) Drained() { r.s.Flush() }

func (r *reflector) Next() ([]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.answers) == 0 {
		return nil, false
	}
	return r.answers[0], true
}

func (r *reflector) Sent() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = r.answers[1:]
}

func (r *reflector) Settle() {
	select {
	case r.idle <- struct{}{}:
	default:
	}
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

func (r *reflector) answer(question []byte) (answer []byte, ok bool) {
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
		for _, name := range r.file.services {
			list = appendItem(list, 1, appendItem(nil, 1, []byte(name)))
		}
		return appendItem(answer, answerServices, list), true
	case asked == askFile && what == r.file.name, asked == askSymbol && slices.Contains(r.file.names, what):
		return appendItem(answer, answerFile, appendItem(nil, 1, r.file.descriptor)), true
	}
	no := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), notFound)
	return appendItem(answer, answerError, appendItem(no, 2, []byte("not found: "+strings.ToValidUTF8(what, "?")))), true
}

// file is a file of message types and services.
type file struct {
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
func (f *file) read(descriptor []byte) {
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

func (f *file) message(scope string, item []byte) {
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
func (f *file) add(scope string, item []byte) (name string) {
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
