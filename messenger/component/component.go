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

	"github.com/fingerpost/fingerpost/internal/components/proto"
)

const jsonType = "application/json; charset=UTF-8"

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

	event *proto.Event
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
	id     proto.Component
	conn   *grpc.ClientConn
	stream grpc.ClientStream
	ctx    context.Context
	cancel context.CancelFunc

	handlers sync.WaitGroup
	ended    chan struct{} // closed with err
	err      error

	writing sync.Mutex // one SendMsg at a time

	mu    sync.Mutex // guards what follows; a leaf
	calls map[string]chan *proto.Event
}

// ErrEnded says that the stream has ended: connect again.
var ErrEnded = errors.New("the stream has ended")

// Connect connects, registers, and has requests handled until Close, or until the stream ends (Wait). ctx is for the connecting alone.
func Connect(ctx context.Context, o Options) (*Component, error) {
	if o.MaxEvent == 0 {
		o.MaxEvent = 8 << 20
	}
	c := &Component{o: o, ended: make(chan struct{}), calls: map[string]chan *proto.Event{}}
	c.id = proto.Component{Type: "KubeFox", App: o.App, Name: o.Name, Hash: o.Hash, ID: strings.ToLower(rand.Text()[:10])}
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
		"app", o.App, "component", o.Name, "hash", o.Hash, "id", c.id.ID, "platform", o.Platform, "pod", "", "token", o.Token, "type", c.id.Type))
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
	definition, err := json.Marshal(map[string]any{"type": c.id.Type, "routes": c.o.Routes, "hash": ""})
	if err != nil {
		return err
	}
	e := &proto.Event{ID: proto.NewID(), Type: proto.TypeRegister, Category: proto.Request, TTL: int64(5 * time.Second),
		HasContext: true, Context: proto.Context{Platform: c.o.Platform}, HasSource: true, Source: c.id, ContentType: jsonType, Content: definition}
	c.send(e) // why it failed, RecvMsg tells
	var f frame
	if err := c.stream.RecvMsg(&f); err != nil {
		return err
	}
	m, err := parseMatched(f)
	if err != nil || m.Type != e.Type || m.Category != proto.Response || m.ParentID != e.ID {
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

func (c *Component) send(e *proto.Event) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.stream.SendMsg(frame(e.Append(nil, proto.D4)))
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
		switch m.Category {
		case proto.Response:
			c.mu.Lock()
			if answer := c.calls[m.ParentID]; answer != nil {
				answer <- &m.Event // of room one, and used once
				delete(c.calls, m.ParentID)
			}
			c.mu.Unlock()
		case proto.Request, proto.Message:
			c.handlers.Go(func() { c.handle(m, start) })
		}
	}
}

// handle has a request answered.
func (c *Component) handle(m *matched, start time.Time) {
	ctx, cancel := context.WithDeadline(c.ctx, start.Add(time.Duration(m.TTL)))
	defer cancel()
	r := m.request()
	answer, err := c.o.Handle(ctx, c, r)
	if m.Category != proto.Request {
		return
	}
	e := m.answer(c.id, int64(time.Until(start.Add(time.Duration(m.TTL)))))
	if e.TTL <= 0 {
		return
	}
	switch {
	case err != nil:
		f, ok := errors.AsType[*Error](err)
		if !ok {
			f = &Error{GRPC: 2, HTTP: 500, Msg: "unexpected error", Cause: err.Error()}
		}
		e.Type, e.ContentType = proto.TypeError, jsonType
		e.Content, _ = json.Marshal(f)
	case answer == nil:
		answer = &Response{}
		fallthrough
	default:
		setResponse(e, answer)
	}
	c.send(e)
}

// Call sends a request to a component of the context that r came with, by its name, and waits for the answer. A failure is an *Error.
func (c *Component) Call(ctx context.Context, r *Request, name string, call *Request) (*Response, error) {
	left := time.Duration(r.event.TTL)
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	e := &proto.Event{ID: proto.NewID(), ParentID: r.ID, Span: r.event.Span, Type: call.Type, Category: proto.Request, CreateTime: time.Now().UnixNano(), TTL: int64(left),
		HasContext: true, Context: r.event.Context, HasSource: true, Source: c.id, HasTarget: true, Target: proto.Component{Type: "KubeFox", Name: name},
		ContentType: call.ContentType, Content: call.Content}
	if e.Type == "" {
		e.Type = proto.TypeComponent
	}
	for name, v := range call.Values {
		text, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		e.Values = append(e.Values, proto.Entry{Key: name, Value: text})
	}
	answer := make(chan *proto.Event, 1)
	c.mu.Lock()
	c.calls[e.ID] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.calls, e.ID)
		c.mu.Unlock()
	}()
	if err := c.send(e); err != nil {
		return nil, ErrEnded
	}
	select {
	case x := <-answer:
		return responseOf(x)
	case <-ctx.Done():
		return nil, &Error{Code: 11, GRPC: 4, HTTP: 504, Msg: "time out"}
	case <-c.ended:
		return nil, ErrEnded
	}
}
