package components

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fingerpost/fingerpost/forwarder"
	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/components/proto"
	"github.com/fingerpost/fingerpost/routetable"
)

// bench is a router with a broker, whose components are stand-ins.
type testBroker struct {
	t    testing.TB
	b    *Broker
	core *admin.Core
	node *forwarder.Node
	grpc string // host:port
	http string // http://host:port
}

func startBroker(t testing.TB, o Options) *testBroker {
	t.Helper()
	return startBrokerOn(t, routetable.New(), o)
}

func startBrokerOn(t testing.TB, table *routetable.Table, o Options) *testBroker {
	t.Helper()
	if o.Objects == nil {
		o.Objects = objects(t, lab)
	}
	core := admin.New(table, admin.Options{})
	node := forwarder.New(core, forwarder.Options{})
	b, err := New(node, core, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.Listen("127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	g, err := b.ListenHTTP("127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { s.Serve() })
	serving.Go(func() { g.Serve() })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		g.Close(ctx)
		b.Close()
		s.Close(ctx)
		node.Stop(ctx)
		serving.Wait()
		if n := len(b.waiting.all) + len(b.tickets.kept) + len(b.streams.all); n > 0 {
			t.Errorf("left: %d requests, %d tickets, %d streams", len(b.waiting.all), len(b.tickets.kept), len(b.streams.all))
		}
	})
	return &testBroker{t, b, core, node, s.Addr().String(), "http://" + g.Addr().String()}
}

// frame is a message of a stream, encoded; frames is a codec that leaves messages as they are.
type (
	frame  []byte
	frames struct{}
)

func (frames) Name() string { return "proto" }

func (frames) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(frame))}, nil
}

func (frames) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*frame) = data.Materialize()
	return nil
}

// standin is a component, as an unmodified kit would speak.
type standin struct {
	t      testing.TB
	id     proto.Component
	d      proto.Dialect
	stream grpc.ClientStream
	broker proto.Component
	wmu    sync.Mutex

	mu      sync.Mutex
	pending map[string]chan *proto.Event
	got     []*received
	handler func(*received) // nil: events are kept in got
	ended   chan struct{}
	err     error
}

type received struct {
	proto.Event
	route int64
	env   map[string]string
	seen  proto.Dialects
}

type who struct {
	app, name, hash, kind, id, token, pod string
	d                                     proto.Dialect
	def                                   *Component
	platform                              string
	ttl                                   time.Duration // of the registration; 0 is 5 s, below that there is none
}

var (
	frontend = who{app: "hello", name: "frontend", hash: "aaaaaaaaaaaa", token: "frontend-token"}
	backend  = who{app: "hello", name: "backend", hash: "bbbbbbbbbbbb", token: "backend-token"}
	httpsrv  = who{name: "httpsrv", hash: "debug", kind: "HTTPAdapter", token: "adapter-token", pod: "pod-1"}
)

// dialStream opens a stream with metadata.
func dialStream(t testing.TB, address string, pairs ...string) (grpc.ClientStream, func()) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(frames{}), grpc.MaxCallRecvMsgSize(16<<20), grpc.MaxCallSendMsgSize(16<<20)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), pairs...))
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{StreamName: "Subscribe", ServerStreams: true, ClientStreams: true}, "/kubefox.proto.v1.Broker/Subscribe")
	if err != nil {
		t.Fatal(err)
	}
	return stream, func() { cancel(); conn.Close() }
}

// connect connects a component and waits for the answer to its registration.
func (x *testBroker) connect(w who) *standin {
	x.t.Helper()
	s := x.begin(w)
	x.must(s.register(w))
	return s
}

func (x *testBroker) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *testBroker) begin(w who) *standin {
	x.t.Helper()
	if w.kind == "" {
		w.kind = typeKubeFox
	}
	if w.id == "" {
		w.id = randomID()
	}
	if w.platform == "" {
		w.platform = "lab"
	}
	s := &standin{t: x.t, d: w.d, pending: map[string]chan *proto.Event{}, ended: make(chan struct{})}
	s.id = proto.Component{Type: w.kind, App: w.app, Name: w.name, Hash: w.hash, ID: w.id}
	var stop func()
	s.stream, stop = dialStream(x.t, x.grpc, "app", w.app, "component", w.name, "hash", w.hash, "id", w.id, "platform", w.platform, "pod", w.pod, "token", w.token, "type", w.kind)
	x.t.Cleanup(func() { stop(); <-s.ended })
	return s
}

// register registers, and starts reading.
func (s *standin) register(w who) error {
	def := w.def
	if def == nil {
		def = &Component{Type: s.id.Type}
	}
	content, err := json.Marshal(def)
	if err != nil {
		return err
	}
	platform := w.platform
	if platform == "" {
		platform = "lab"
	}
	s.write(&proto.Event{
		ID: proto.NewID(), Type: proto.TypeRegister, Category: proto.Request, TTL: int64(max(cmp.Or(w.ttl, 5*time.Second), 0)), HasContext: true, Context: proto.Context{Platform: platform},
		HasSource: true, Source: s.id, ContentType: "application/json; charset=UTF-8", Content: content,
	})
	first, err := s.recv()
	if err != nil {
		s.err = err
		close(s.ended)
		return err
	}
	if first.Type != proto.TypeRegister || first.Category != proto.Response || first.Source.Type != typeBroker || first.Target != s.id || len(first.Content) > 0 {
		s.t.Errorf("answer to the registration: %+v", first)
	}
	s.broker = first.Source
	go s.loop()
	return nil
}

func (s *standin) write(e *proto.Event) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	s.stream.SendMsg(frame(e.Append(nil, s.d)))
}

func (s *standin) recv() (*received, error) {
	var f frame
	if err := s.stream.RecvMsg(&f); err != nil {
		return nil, err
	}
	var m proto.Matched
	if err := m.Parse(f); err != nil {
		return nil, err
	}
	r := &received{route: m.RouteID, env: map[string]string{}}
	for _, x := range m.Env {
		r.env[x.Key] = string(x.Value)
	}
	var err error
	r.seen, err = r.Parse(m.Event)
	return r, err
}

func (s *standin) loop() {
	defer close(s.ended)
	for {
		r, err := s.recv()
		s.mu.Lock()
		if err != nil {
			s.err = err
			s.mu.Unlock()
			return
		}
		if r.seen.D3 && s.d != proto.D3 || r.seen.D4 && s.d != proto.D4 {
			s.t.Errorf("%s got values of the other dialect: %+v", s.id.Name, r)
		}
		c := s.pending[r.ParentID]
		handler := s.handler
		switch {
		case r.Category == proto.Response && c != nil:
			c <- &r.Event
		case handler == nil:
			s.got = append(s.got, r)
		}
		s.mu.Unlock()
		if handler != nil && !(r.Category == proto.Response && c != nil) {
			go handler(r)
		}
	}
}

// request sends a request to a component of the context that an event came with, and waits for the response.
func (s *standin) request(e *proto.Event) *proto.Event {
	s.t.Helper()
	c := make(chan *proto.Event, 1)
	s.mu.Lock()
	s.pending[e.ID] = c
	s.mu.Unlock()
	s.write(e)
	select {
	case r := <-c:
		return r
	case <-s.ended:
		s.t.Errorf("the stream ended: %v", s.err)
	case <-time.After(20 * time.Second):
		s.t.Errorf("no answer")
	}
	return &proto.Event{}
}

// child is a request that comes of an event.
func (s *standin) child(of *proto.Event, name string) *proto.Event {
	return &proto.Event{
		ID: proto.NewID(), ParentID: of.ID, Type: proto.TypeComponent, Category: proto.Request, TTL: of.TTL, HasContext: true, Context: of.Context,
		HasSource: true, Source: s.id, HasTarget: true, Target: proto.Component{Type: typeKubeFox, Name: name},
	}
}

// respond answers a request.
func (s *standin) respond(to *received, code int, body string, header map[string][]string) {
	s.write(&proto.Event{
		ID: proto.NewID(), ParentID: to.ID, Type: to.Type, Category: proto.Response, TTL: to.TTL, HasContext: true, Context: to.Context,
		HasSource: true, Source: s.id, HasTarget: true, Target: to.Source, ContentType: "text/plain", Content: []byte(body),
		Values: []proto.Entry{{Key: "statusCode", Value: fmt.Appendf(nil, "%d", code)}, {Key: "header", Value: jsonLists(header)}},
	})
}

// takes gives the nth event that the component got, from 0.
func (s *standin) takes(n int) *received {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		if len(s.got) > n {
			defer s.mu.Unlock()
			return s.got[n]
		}
		s.mu.Unlock()
	}
	s.t.Fatalf("%s did not get event %d", s.id.Name, n)
	return nil
}

// end waits for the end of the stream and gives its status.
func (s *standin) end() string {
	select {
	case <-s.ended:
	case <-time.After(20 * time.Second):
		s.t.Fatal("the stream does not end")
	}
	if s.err == io.EOF {
		return "OK"
	}
	return status.Code(s.err).String() + " " + status.Convert(s.err).Message()
}

// get makes a request and gives what came back: status, body.
func (x *testBroker) get(path string, headers ...string) string {
	x.t.Helper()
	code, body, _ := x.do("GET", path, "", headers...)
	return fmt.Sprintf("%d %s", code, body)
}

func (x *testBroker) do(method, path, body string, headers ...string) (int, string, http.Header) {
	x.t.Helper()
	r, err := http.NewRequest(method, x.http+path, strings.NewReader(body))
	x.must(err)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	x.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	x.must(err)
	return resp.StatusCode, string(text), resp.Header
}

// until waits for a state.
func (x *testBroker) until(what string, is func() bool) {
	x.t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			x.t.Fatalf("not within 20 s: %s", what)
		}
	}
}
