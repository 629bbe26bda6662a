package components

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// frame is a message of the stream, encoded.
type frame []byte

// frames is a codec that leaves messages as they are.
type frames struct{}

func (frames) Name() string { return "proto" }

func (frames) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(frame)
	if !ok {
		return nil, fmt.Errorf("a message of type %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(f)}, nil
}

func (frames) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("a message of type %T", v)
	}
	*f = data.Materialize()
	return nil
}

// service is kubefox.proto.v1.Broker; see broker.proto.
var service = grpc.ServiceDesc{
	ServiceName: "kubefox.proto.v1.Broker",
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{
		StreamName: "Subscribe", ServerStreams: true, ClientStreams: true,
		Handler: func(srv any, stream grpc.ServerStream) error { return srv.(*Broker).handleSubscribe(stream) },
	}},
	Metadata: "broker.proto",
}

// Server answers components.
type Server struct {
	grpc *grpc.Server
	ln   net.Listener
}

// Listen opens the port for components. Without TLS the connection is not protected: for tests, and behind what protects it.
func (b *Broker) Listen(address string, t *tls.Config) (*Server, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	most := b.o.MaxEvent + b.o.MaxEvent/2
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(frames{}), grpc.MaxRecvMsgSize(most), grpc.MaxSendMsgSize(most), grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(10 * time.Second), grpc.MaxConcurrentStreams(100), grpc.MaxHeaderListSize(64 << 10),
	}
	if t != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(t)))
	}
	s := &Server{grpc: grpc.NewServer(options...), ln: ln}
	s.grpc.RegisterService(&service, b)
	return s, nil
}

// Addr is the address that was bound.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Serve answers until Close.
func (s *Server) Serve() error { return s.grpc.Serve(s.ln) }

// Close ends it; streams that Broker.Close has ended have until ctx ends to tell it.
func (s *Server) Close(ctx context.Context) {
	stop := context.AfterFunc(ctx, s.grpc.Stop)
	defer stop()
	s.grpc.GracefulStop()
}

// errUnauthorized is all that a component learns that may not connect.
var errUnauthorized = status.Error(codes.PermissionDenied, "component unauthorized")

// handleSubscribe has a component's stream, from its metadata to its end.
func (b *Broker) handleSubscribe(g grpc.ServerStream) error {
	s := newStream(b, g)
	remote := ""
	if p, ok := peer.FromContext(g.Context()); ok {
		remote = p.Addr.String()
	}
	if err := b.admit(g, s); err != nil {
		b.log.Warn("component refused", "component", s.id.group(), "remote", remote, "error", err)
		return errUnauthorized
	}
	if old := b.streams.put(s); old != nil {
		old.end(errReplaced)
	}
	defer b.leave(s)
	if err := b.join(s); err != nil {
		b.log.Error("component could not be taken in", "component", s.key, "error", err)
		return status.Error(codes.Unavailable, "broker unavailable")
	}
	b.log.Info("component connected", "component", s.key, "remote", remote)
	// They end when this function returns, which ends the stream's context.
	if !b.start(s.write) || !b.start(s.read) {
		s.end(errShutdown)
	}
	select {
	case <-s.over:
	case <-g.Context().Done():
		s.end(g.Context().Err())
	case <-b.ctx.Done():
		s.end(errShutdown)
	}
	b.log.Info("component disconnected", "component", s.key, "reason", s.reason)
	return s.farewell()
}

// farewell is the status that the stream ends with.
func (s *stream) farewell() error {
	var refused *status.Status
	switch {
	case errors.Is(s.reason, errShutdown):
		return nil
	case errors.Is(s.reason, errReplaced):
		return status.Error(codes.Aborted, "another stream has the same id")
	case errors.Is(s.reason, errForged):
		return errUnauthorized
	default:
		refused, _ = status.FromError(s.reason)
	}
	if refused.Code() == codes.ResourceExhausted {
		return refused.Err()
	}
	return status.Error(codes.Unavailable, "broker unavailable")
}

// errForged ends the stream of a component that speaks for another, or not as it has to.
var errForged = errors.New("an event whose source or context is not the stream's own")

// admit checks who the component is, and takes its registration.
func (b *Broker) admit(g grpc.ServerStream, s *stream) error {
	c, err := b.credentials(g)
	if err != nil {
		return err
	}
	s.id, s.key = c.ID, c.ID.key()
	if err := b.authorize(g.Context(), c); err != nil {
		return err
	}
	if d := c.dialect; d != "" {
		s.fixed, s.learned = true, true
		if d == "D3" {
			s.dialect = dialect3
		}
	}
	var first frame
	if err := g.RecvMsg(&first); err != nil {
		return err
	}
	var e Event
	if _, err := e.parse(first); err != nil {
		return err
	}
	def, err := b.registration(&e, &c.ID)
	if err != nil {
		return err
	}
	if b.registry.note(&c.ID, def) && def.Routes != nil {
		if err := b.refresh(); err != nil {
			return err
		}
	}
	if b.others != nil {
		b.others.register(&c.ID, def)
	}
	e.ParentID, e.ID, e.Category, e.Content, e.ContentType = e.ID, newEventID(), categoryResponse, nil, ""
	e.Target, e.HasTarget = e.Source, true
	e.Source = b.id
	return s.put(outgoing{msg: appendMatched(nil, &e, 0, nil, dialect4), at: b.o.Now()})
}

// registration reads the first event of a stream.
func (b *Broker) registration(e *Event, who *ComponentID) (*Component, error) {
	switch {
	case e.Type != typeRegister || e.Category != categoryRequest:
		return nil, errors.New("the first event is no registration")
	case !e.HasContext || e.Context.Platform != b.now.Load().objects.Platform || !e.HasSource || e.Source != *who:
		return nil, errForged
	}
	if kind, _, err := mime.ParseMediaType(e.ContentType); err != nil || kind != "application/json" {
		return nil, fmt.Errorf("registration: content type %q", e.ContentType)
	}
	def := &Component{}
	if err := json.Unmarshal(e.Content, def); err != nil {
		return nil, fmt.Errorf("registration: %w", err)
	}
	def.Hash = who.Hash
	return def, nil
}

// join makes the rows of the stream: those of its group, and its own.
func (b *Broker) join(s *stream) error {
	origin, name := "grpc:"+s.key, "comp:"+s.id.address()
	command := admin.Renew{Withdraw: []string{origin}}
	for _, pattern := range []string{name, name + "/" + s.id.ID} {
		r := routetable.NewRoute(pattern, "grpc:"+s.key)
		r.Origin, r.Pick = origin, routetable.PickAny
		command.Rows = append(command.Rows, r)
	}
	_, err := b.core.Do(caller, command)
	if err == nil && b.others != nil {
		b.others.join(s.id)
		s.joined = true
	}
	return err
}

// leave takes them away, unless another stream has its place.
func (b *Broker) leave(s *stream) {
	if s.joined {
		b.others.leave(s.id)
	}
	if !b.streams.remove(s) {
		return
	}
	if _, err := b.core.Do(caller, admin.Withdraw{Origin: "grpc:" + s.key}); err != nil {
		b.log.Error("rows of a component could not be taken away", "component", s.key, "error", err)
	}
}

// read takes the component's events until the stream ends.
func (s *stream) read() {
	in := s.b.newInlet(s.b.o.Queue)
	f := NewFinder()
	for {
		var m frame
		err := s.grpc.RecvMsg(&m)
		if err == nil {
			err = s.handleEvent(in, f, m)
		}
		if err != nil {
			s.end(err)
			return
		}
	}
}

// handleEvent takes one event.
func (s *stream) handleEvent(in *inlet, f *Finder, m []byte) error {
	var e Event
	seen, err := e.parse(m)
	if err != nil {
		return errForged
	}
	s.heard(seen)
	if !e.HasContext || e.Context.Platform != s.b.now.Load().objects.Platform || !e.HasSource || e.Source != s.id {
		return errForged
	}
	e.Source.BrokerID = s.b.id.ID
	if e.Type == typeTelemetry && e.Category == categoryMessage && e.HasTarget && e.Target == s.b.id {
		return nil
	}
	if !s.hold() {
		return errShutdown
	}
	s.b.send(in, f, &e, viaStream, s)
	return nil
}

// answer takes what became of an event of the stream's own: nil where it is with its target.
func (s *stream) answer(e *Event, f *Failure) {
	s.release()
	if f == nil || e.Category != categoryRequest || f.Code == codeTimeout {
		return
	}
	s.put(outgoing{msg: appendMatched(nil, s.b.errorEvent(e, f), 0, nil, dialect4), at: s.b.o.Now()})
}

// credentials reads the stream's metadata.
func (b *Broker) credentials(g grpc.ServerStream) (*Credentials, error) {
	md, _ := metadata.FromIncomingContext(g.Context())
	c := &Credentials{}
	for _, k := range []struct {
		name   string
		to     *string
		needed bool
	}{
		{"id", &c.ID.ID, true}, {"hash", &c.ID.Hash, true}, {"component", &c.ID.Name, true}, {"type", &c.ID.Type, true}, {"platform", &c.Platform, true},
		{"token", &c.Token, false}, {"app", &c.ID.App, false}, {"pod", &c.Pod, false},
	} {
		values := md.Get(k.name)
		if len(values) > 1 {
			return c, fmt.Errorf("metadata %s: given twice", k.name)
		}
		if len(values) == 1 {
			*k.to = values[0]
		}
		if k.needed && *k.to == "" {
			return c, fmt.Errorf("metadata %s: missing", k.name)
		}
	}
	c.ID.Name, c.ID.App = cleanName(c.ID.Name), cleanName(c.ID.App)
	if p, ok := peer.FromContext(g.Context()); ok {
		if t, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(t.State.VerifiedChains) > 0 {
			c.Certificate = t.State.VerifiedChains[0][0]
		}
	}
	return c, nil
}
