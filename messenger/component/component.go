package component

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

// Options say who the component is, and where its broker. All but TLS, Routes and MaxEvent are needed.
type Options struct {
	Broker   string      // HOST:PORT
	TLS      *tls.Config // nil: without TLS
	Platform string
	App      string
	Name     string
	Hash     string // of the component's build, as the deployment has it
	Token    string
	Routes   []Route // what it registers: used where its deployment gives it none
	MaxEvent int     // bytes; 0 is 8 MiB

	// Handle answers a request. It is called in a goroutine of its own. What it returns is sent back; an error becomes an error event, status 500.
	Handle func(ctx context.Context, c *Component, r *Request) (*Response, error)
}

// Route is a route of the component.
type Route struct {
	ID   int    `json:"id"`
	Rule string `json:"rule"`
}

// Request is an event that wants an answer.
type Request struct {
	ID          string
	Type        string
	RouteID     int               // of the route that took it; -1: none, it was sent to the component by name
	Params      map[string]string // what the placeholders of the rule took
	Values      map[string]any    // method, path, header, …
	Env         map[string]any    // variables of the environment
	ContentType string
	Content     []byte

	event *event
}

// Text gives a value that is a text.
func (r *Request) Text(name string) string {
	s, _ := r.Values[name].(string)
	return s
}

// Response is the answer to a request.
type Response struct {
	Status      int // 0 is 200
	Header      map[string][]string
	ContentType string
	Content     []byte
}

// Error is an error event: the answer to a call that failed.
type Error struct {
	Code  int    `json:"code,omitempty"`
	GRPC  int    `json:"grpcCode,omitempty"`
	HTTP  int    `json:"httpCode,omitempty"`
	Msg   string `json:"msg,omitempty"`
	Cause string `json:"cause,omitempty"`
}

func (e *Error) Error() string {
	if e.Cause == "" {
		return e.Msg
	}
	return e.Msg + ": " + e.Cause
}

// Component is a connected component. Its methods are safe for concurrent use.
type Component struct {
	o      Options
	id     identity
	conn   *grpc.ClientConn
	stream grpc.ClientStream
	ctx    context.Context
	cancel context.CancelFunc

	handlers sync.WaitGroup
	ended    chan struct{} // closed with err
	err      error

	writing sync.Mutex // one SendMsg at a time

	mu    sync.Mutex // guards what follows; a leaf
	calls map[string]chan *event
}

// ErrEnded says that the stream has ended: connect again.
var ErrEnded = errors.New("the stream has ended")

// Connect connects, registers, and has requests handled until Close, or until the stream ends (Wait). ctx is for the connecting alone.
func Connect(ctx context.Context, o Options) (*Component, error) {
	if o.MaxEvent == 0 {
		o.MaxEvent = 8 << 20
	}
	c := &Component{o: o, ended: make(chan struct{}), calls: map[string]chan *event{}}
	c.id = identity{kind: "KubeFox", app: o.App, name: o.Name, hash: o.Hash, id: strings.ToLower(rand.Text()[:10])}
	secure := insecure.NewCredentials()
	if o.TLS != nil {
		secure = credentials.NewTLS(o.TLS)
	}
	var err error
	c.conn, err = grpc.NewClient(o.Broker, grpc.WithTransportCredentials(secure),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(frames{}), grpc.MaxCallRecvMsgSize(o.MaxEvent), grpc.MaxCallSendMsgSize(o.MaxEvent)))
	if err != nil {
		return nil, fmt.Errorf("component: %w", err)
	}
	c.ctx, c.cancel = context.WithCancel(metadata.AppendToOutgoingContext(context.Background(),
		"app", o.App, "component", o.Name, "hash", o.Hash, "id", c.id.id, "platform", o.Platform, "pod", "", "token", o.Token, "type", c.id.kind))
	stop := context.AfterFunc(ctx, c.cancel)
	err = c.register()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.cancel()
		c.conn.Close()
		return nil, fmt.Errorf("component %s: %w", o.Name, err)
	}
	go c.read()
	return c, nil
}

// register opens the stream and sends the registration.
func (c *Component) register() (err error) {
	desc := grpc.StreamDesc{StreamName: "Subscribe", ServerStreams: true, ClientStreams: true}
	if c.stream, err = c.conn.NewStream(c.ctx, &desc, "/kubefox.proto.v1.Broker/Subscribe"); err != nil {
		return err
	}
	definition, err := json.Marshal(map[string]any{"type": c.id.kind, "routes": c.o.Routes, "hash": ""})
	if err != nil {
		return err
	}
	e := &event{id: newID(), typ: "io.kubefox.register", category: request, ttl: int64(5 * time.Second), context: evContext{platform: c.o.Platform},
		source: c.id, contentType: "application/json; charset=UTF-8", content: definition}
	c.send(e) // why it failed, RecvMsg tells
	var f frame
	if err := c.stream.RecvMsg(&f); err != nil {
		return err
	}
	m, err := parseMatched(f)
	if err != nil || m.typ != e.typ || m.category != response || m.parent != e.id {
		return errors.New("the broker did not answer the registration")
	}
	return nil
}

// Wait returns when the stream has ended, with why.
func (c *Component) Wait() error {
	<-c.ended
	return c.err
}

// Close ends the stream and waits for the handlers.
func (c *Component) Close() {
	c.cancel()
	<-c.ended
	c.handlers.Wait()
	c.conn.Close()
}

func (c *Component) send(e *event) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.stream.SendMsg(frame(e.append(nil)))
}

// read takes events until the stream ends.
func (c *Component) read() {
	defer close(c.ended)
	defer c.cancel()
	for {
		var f frame
		if c.err = c.stream.RecvMsg(&f); c.err != nil {
			return
		}
		m, err := parseMatched(f)
		if err != nil {
			c.err = err
			return
		}
		start := time.Now()
		switch m.category {
		case response:
			c.mu.Lock()
			if answer := c.calls[m.parent]; answer != nil {
				answer <- &m.event // of room one, and used once
				delete(c.calls, m.parent)
			}
			c.mu.Unlock()
		case request, message:
			c.handlers.Go(func() { c.handle(m, start) })
		}
	}
}

// handle has a request answered.
func (c *Component) handle(m *matched, start time.Time) {
	ctx, cancel := context.WithDeadline(c.ctx, start.Add(time.Duration(m.ttl)))
	defer cancel()
	r := m.request()
	answer, err := c.o.Handle(ctx, c, r)
	if m.category != request {
		return
	}
	e := m.answer(c.id, int64(time.Until(start.Add(time.Duration(m.ttl)))))
	if e.ttl <= 0 {
		return
	}
	switch {
	case err != nil:
		f, ok := errors.AsType[*Error](err)
		if !ok {
			f = &Error{GRPC: 2, HTTP: 500, Msg: "unexpected error", Cause: err.Error()}
		}
		e.typ, e.contentType = "io.kubefox.error", "application/json; charset=UTF-8"
		e.content, _ = json.Marshal(f)
	case answer == nil:
		answer = &Response{}
		fallthrough
	default:
		e.setResponse(answer)
	}
	c.send(e)
}

// Call sends a request to a component of the context that r came with, by its name, and waits for the answer. A failure is an *Error.
func (c *Component) Call(ctx context.Context, r *Request, name string, call *Request) (*Response, error) {
	left := time.Duration(r.event.ttl)
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	e := &event{id: newID(), parent: r.ID, span: r.event.span, typ: call.Type, category: request, created: time.Now().UnixNano(), ttl: int64(left),
		context: r.event.context, source: c.id, target: identity{kind: "KubeFox", name: name}, contentType: call.ContentType, content: call.Content}
	if e.typ == "" {
		e.typ = "io.kubefox.kubefox"
	}
	for name, v := range call.Values {
		text, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		e.values = append(e.values, entry{name, text})
	}
	answer := make(chan *event, 1)
	c.mu.Lock()
	c.calls[e.id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.calls, e.id)
		c.mu.Unlock()
	}()
	if err := c.send(e); err != nil {
		return nil, ErrEnded
	}
	select {
	case x := <-answer:
		return x.response()
	case <-ctx.Done():
		return nil, &Error{Code: 11, GRPC: 4, HTTP: 504, Msg: "time out"}
	case <-c.ended:
		return nil, ErrEnded
	}
}
