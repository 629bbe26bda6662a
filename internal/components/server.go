package components

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/components/proto"
	"github.com/fingerpost/fingerpost/internal/grpc"
	"github.com/fingerpost/fingerpost/routetable"
)

// Server answers components.
type Server struct{ *grpc.Server }

// Listen opens the port for components. Without TLS the connection is not protected: for tests, and behind what protects it.
func (b *Broker) Listen(address string, t *tls.Config) (*Server, error) {
	methods := map[string]func(*grpc.Stream){"/kubefox.proto.v1.Broker/Subscribe": b.handleSubscribe}
	for _, name := range reflection {
		methods[name] = b.handleReflection
	}
	s, err := grpc.Listen(address, grpc.Options{
		Methods: methods, MaxMessage: b.o.MaxEvent + b.o.MaxEvent/2, TLS: t, Log: b.log,
	})
	if err != nil {
		return nil, err
	}
	return &Server{s}, nil
}

// errUnauthorized is all that a component learns that may not connect.
var errUnauthorized = &grpc.Status{Code: grpc.PermissionDenied, Message: "component unauthorized"}

// handleSubscribe has a component's stream, from its metadata to its end.
func (b *Broker) handleSubscribe(g *grpc.Stream) {
	s := newStream(b, g)
	remote := g.RemoteAddr().String()
	if err := b.admit(g, s); err != nil {
		b.count.refused.Add(1)
		b.log.Warn("component refused", "component", s.id.Group(), "remote", remote, "error", err)
		g.End(errUnauthorized.Code, errUnauthorized.Message)
		return
	}
	b.count.connects.Add(1)
	if old := b.streams.put(s); old != nil {
		old.end(errReplaced)
	}
	defer b.leave(s)
	if err := b.join(s); err != nil {
		b.log.Error("component could not be taken in", "component", s.key, "error", err)
		return
	}
	b.log.Info("component connected", "component", s.key, "remote", remote)
	s.begin()
	select {
	case <-s.over:
	case <-g.Done():
		s.end(g.Err())
	case <-b.ctx.Done():
		s.end(errShutdown)
	}
	b.log.Info("component disconnected", "component", s.key, "reason", s.reason)
	status := s.farewell()
	b.failOwed(s) // before the component hears of its end: what has its place may answer at once
	g.End(status.Code, status.Message)
	s.giveBack()
	b.failOwed(s) // what was being written
}

// farewell is the status that the stream ends with.
func (s *stream) farewell() *grpc.Status {
	status, told := errors.AsType[*grpc.Status](s.reason)
	switch {
	case errors.Is(s.reason, errShutdown):
		return &grpc.Status{}
	case errors.Is(s.reason, errReplaced):
		return &grpc.Status{Code: grpc.Aborted, Message: "another stream has the same id"}
	case errors.Is(s.reason, errForged), errors.Is(s.reason, errNoEvent):
		return errUnauthorized
	case told:
		return status
	}
	return &grpc.Status{Code: grpc.Unavailable, Message: "broker unavailable"}
}

// What ends the stream of a component that speaks for another, or not as it has to.
var (
	errForged  = errors.New("an event whose source or context is not the stream's own")
	errNoEvent = errors.New("a message that is no event, or has texts that are not UTF-8")
)

// admission is how long it may take until a component has shown who it is and registered.
const admission = 15 * time.Second

// admit checks who the component is, and takes its registration.
func (b *Broker) admit(g *grpc.Stream, s *stream) error {
	ctx, cancel := context.WithTimeout(b.ctx, admission)
	defer cancel()
	c, err := b.credentials(g)
	if err != nil {
		return err
	}
	s.id, s.key = c.ID, c.ID.Key()
	if err := b.authorize(ctx, c); err != nil {
		return err
	}
	if d := c.dialect; d != "" {
		s.fixed, s.learned = true, true
		if d == "D3" {
			s.dialect = proto.D3
		}
	}
	first, err := g.First(ctx)
	if err != nil {
		return err
	}
	var e proto.Event
	if _, err := e.Parse(first); err != nil {
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
	s.def = def
	e.ParentID, e.ID, e.Category, e.Content, e.ContentType = e.ID, proto.NewID(), proto.Response, nil, ""
	e.Target, e.HasTarget = e.Source, true
	e.Source = b.id
	if e.TTL <= 0 { // the answer is not one that may come too late: the component waits for it
		e.TTL = int64(admission)
	}
	return s.put(outgoing{msg: proto.AppendMatched(nil, &e, 0, nil, proto.D4), at: b.o.Now()})
}

// registration reads the first event of a stream.
func (b *Broker) registration(e *proto.Event, who *proto.Component) (*Component, error) {
	switch {
	case e.Type != proto.TypeRegister || e.Category != proto.Request:
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
	origin, name := "grpc:"+s.key, "comp:"+s.id.Address()
	command := admin.Renew{Withdraw: []string{origin}}
	for _, pattern := range []string{name, name + "/" + s.id.ID} {
		r := routetable.NewRoute(pattern, "grpc:"+s.key)
		r.Origin, r.Pick = origin, routetable.PickAny
		command.Rows = append(command.Rows, r)
	}
	_, err := b.core.Do(caller, command)
	if err == nil && b.others != nil {
		b.others.join(s.id, s.def)
		s.joined = true
	}
	return err
}

// leave takes them away, unless another stream has its place.
func (b *Broker) leave(s *stream) {
	s.guess()
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

// begin has the stream take the component's events, and write.
func (s *stream) begin() {
	s.in, s.finder = s.b.newInlet(s.b.o.Queue), NewFinder()
	s.grpc.Start(s)
}

// Message takes an event. It is the stream's part of grpc.Owner.
func (s *stream) Message(m []byte) error { return s.handleEvent(s.in, s.finder, bytes.Clone(m)) }

// Drained writes what the last events led to.
func (s *stream) Drained() { s.in.flush() }

// handleEvent takes one event.
func (s *stream) handleEvent(in *inlet, f *Finder, m []byte) error {
	var e proto.Event
	seen, err := e.Parse(m)
	if err != nil {
		return errNoEvent
	}
	s.heard(seen)
	if !e.HasContext || e.Context.Platform != s.b.now.Load().objects.Platform || !e.HasSource || e.Source != s.id {
		return errForged
	}
	e.Source.BrokerID = s.b.id.ID
	if e.Type == proto.TypeTelemetry && e.Category == proto.Message && e.HasTarget && e.Target == s.b.id {
		return nil
	}
	s.hold(&e)
	s.b.send(in, f, &e, viaStream, s)
	return nil
}

// answer takes what became of an event of the stream's own: nil where it is with its target.
func (s *stream) answer(e *proto.Event, f *Failure) {
	s.release()
	if f == nil || e.Category != proto.Request || f.Code == codeTimeout {
		return
	}
	if s.put(outgoing{msg: proto.AppendMatched(nil, s.b.errorEvent(e, f), 0, nil, proto.D4), at: s.b.o.Now()}) == nil {
		s.b.later.add(s)
	}
}

// credentials reads the stream's metadata.
func (b *Broker) credentials(g *grpc.Stream) (*Credentials, error) {
	c := &Credentials{}
	for _, k := range []struct {
		name   string
		to     *string
		needed bool
	}{
		{"id", &c.ID.ID, true}, {"hash", &c.ID.Hash, true}, {"component", &c.ID.Name, true}, {"type", &c.ID.Type, true}, {"platform", &c.Platform, true},
		{"token", &c.Token, false}, {"app", &c.ID.App, false}, {"pod", &c.Pod, false},
	} {
		values := g.Values(k.name)
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
	if !proto.IsPlain(c.ID.ID) { // it is a part of rows
		return c, errors.New("metadata id: write letters, digits, \"-\", \"_\" and \".\", at most 128")
	}
	c.ID.Name, c.ID.App = cleanName(c.ID.Name), cleanName(c.ID.App)
	if t := g.TLS(); t != nil && len(t.VerifiedChains) > 0 {
		c.Certificate = t.VerifiedChains[0][0]
	}
	return c, nil
}
