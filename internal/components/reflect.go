package components

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/fingerpost/fingerpost/internal/components/proto"
	"github.com/fingerpost/fingerpost/internal/grpc"
)

// reflection are the methods by which tools ask for the services and message types of broker.proto (grpc.reflection.v1.ServerReflection, and v1alpha, which has
// the same messages). Who asks need not say who it is: it learns what is in the file, which everybody may know.
var reflection = []string{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}

// Bounds of a stream of questions.
const (
	maxQuestion = 4 << 10          // bytes
	maxAnswers  = 64               // that wait
	lastAnswers = 10 * time.Second // for a peer that has asked all to read what is left
)

// reflector answers the questions of one stream. It is the stream's Owner.
type reflector struct {
	s    *grpc.Stream
	idle chan struct{} // of room one: an answer is written

	mu      sync.Mutex // guards what follows; a leaf
	answers [][]byte
}

// handleReflection has a stream of questions until who asks has no more, or the broker closes.
func (b *Broker) handleReflection(s *grpc.Stream) {
	r := &reflector{s: s, idle: make(chan struct{}, 1)}
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
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
		case <-b.ctx.Done():
		}
	}
	switch status, ok := errors.AsType[*grpc.Status](err); {
	case ok:
		s.End(status.Code, status.Message)
	case err == io.EOF:
		s.End(grpc.OK, "")
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
		return &grpc.Status{Code: grpc.ResourceExhausted, Message: "a question is larger than 4 KiB"}
	}
	answer, ok := proto.Broker.Answer(m)
	if !ok {
		return &grpc.Status{Code: grpc.Internal, Message: "a question is not a ServerReflectionRequest"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.answers) == maxAnswers {
		return &grpc.Status{Code: grpc.ResourceExhausted, Message: "too many questions before their answers are read"}
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
