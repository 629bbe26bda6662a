package event

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// Event is a request, or with a Response an answer: the Router tells them apart by that alone.
type Event struct {
	ID       string          `json:"id"` // empty in one that is sent: a random UUID
	Type     string          `json:"type"`
	Data     json.RawMessage `json:"data,omitempty"` // nil is null
	Response *Response       `json:"response,omitempty"`
	Context  json.RawMessage `json:"context,omitempty"` // passed on as it is

	// Of one that came.
	Time   time.Time `json:"-"` // by the Router's clock
	Replay bool      `json:"-"`
	Via    string    `json:"-"` // the router that it came to first, where that is another

	stamp string // Time, as written
}

// Response is an answer.
type Response struct {
	Status string          `json:"status"` // OK or FAILED
	Data   json.RawMessage `json:"data,omitempty"`
}

// The statuses of a response, and of a component's health.
const (
	OK      = "OK"
	Failed  = "FAILED"
	Warning = "WARNING"
	Error   = "ERROR"
)

// Handler handles an event. A response that it gives is sent back as an answer to it; nil is none. An error, or a panic, is told with the next health.
// Handlers of one Manager run one after another, in the Router's order; what takes long is for a worker (Manager.Go).
type Handler func(ctx context.Context, e *Event) (*Response, error)

// Options of a Manager. URL and Name must be given.
type Options struct {
	URL     string // ws://HOST:PORT/router/manager
	Name    string // of the component: one connection at a time has it
	Token   string // where the router wants one
	Restart string // "router": the router's action for the name starts it again; empty is "self"

	Health func() (status string, vitals any) // the component's own check; nil: OK
	Redial time.Duration                      // up to which the pause between attempts to connect grows; 0 is 5 s
	Log    *slog.Logger                       // nil: no log
}

// Manager is a component. Its methods are safe for concurrent use.
type Manager struct {
	o   Options
	log *slog.Logger

	handlers  []*handler
	shareable []string
	workers   sync.WaitGroup

	mu      sync.Mutex // guards what follows; a leaf
	conn    *websocket.Conn
	ready   chan struct{} // closed when it is connected and has subscribed to everything
	raised  []exception
	waiting map[string]chan accepted // by ref
	refs    int
}

// handler is one subscription.
type handler struct {
	typ, direction string
	handle         Handler

	// Of the session's goroutine: where it goes on.
	last     string          // the time of the last event that was handled
	finished map[string]bool // the ids handled at that time: a replay from there has them again
}

type exception struct {
	Type  string          `json:"type"`
	Data  json.RawMessage `json:"data"`
	Error string          `json:"error"`
	Trace string          `json:"trace"`
}

type accepted struct {
	at  time.Time
	err error
}

// New makes a Manager. Handlers are added before Run.
func New(o Options) (*Manager, error) {
	if o.URL == "" || o.Name == "" {
		return nil, errors.New("a manager needs URL and Name")
	}
	if !utf8.ValidString(o.Name) {
		return nil, errors.New("the Name has to be UTF-8")
	}
	if u, err := url.Parse(o.URL); err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Hostname() == "" {
		return nil, errors.New("the URL has to be ws://HOST:PORT/router/manager, or wss://") // as it is no retry mends it
	}
	if o.Redial == 0 {
		o.Redial = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Manager{o: o, log: o.Log.With("component", o.Name), ready: make(chan struct{}), waiting: map[string]chan accepted{}}, nil
}

// Request has requests of a type handled. A type and direction has one handler.
func (m *Manager) Request(typ string, h Handler) { m.handle(typ, "request", h) }

// Response has answers of a type handled.
func (m *Manager) Response(typ string, h Handler) { m.handle(typ, "response", h) }

func (m *Manager) handle(typ, direction string, h Handler) {
	for _, x := range m.handlers {
		if x.typ == typ && x.direction == direction {
			panic(fmt.Sprintf("event: a second handler for %s %s", direction, typ))
		}
	}
	m.handlers = append(m.handlers, &handler{typ: typ, direction: direction, handle: h})
}

// Shareable has events of these types cross to other routers.
func (m *Manager) Shareable(types ...string) { m.shareable = append(m.shareable, types...) }

// Go runs a worker. Run waits for workers before it returns; ctx of the worker ends with that of Run.
func (m *Manager) Go(ctx context.Context, worker func(ctx context.Context) error) {
	m.workers.Go(func() {
		if err := worker(ctx); err != nil && ctx.Err() == nil {
			m.raise(&Event{Type: "worker"}, err)
		}
	})
}

// Ready waits until the Manager is connected and has subscribed to everything.
func (m *Manager) Ready(ctx context.Context) error {
	m.mu.Lock()
	ready := m.ready
	m.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run connects, handles events and connects again where the connection is lost, until ctx ends. What it had not handled is replayed then, as far as
// the Router's window goes. It returns an error where the Router refuses what no retry mends.
func (m *Manager) Run(ctx context.Context) error {
	defer m.workers.Wait()
	pause := 50 * time.Millisecond
	for {
		began := time.Now()
		err := m.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		var refused *websocket.RefusedError
		if errors.As(err, &refused) && refused.Status < 500 || errors.Is(err, errRefused) {
			return err
		}
		m.log.Warn("the connection to the router is lost", "error", err)
		if time.Since(began) > m.o.Redial {
			pause = 50 * time.Millisecond
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil
		}
		pause = min(2*pause, m.o.Redial)
	}
}

// ErrAway says that there is no connection: the event was not sent.
var ErrAway = errors.New("there is no connection to the router")

// Send sends an event, and waits for nothing: whether it arrived is not known.
func (m *Manager) Send(e *Event) error {
	_, err := m.send(e, nil)
	return err
}

// Put sends an event and waits until the Router has it, and gives its time there. It is not for handlers: while one runs, nothing that the Router
// says is read, its answer neither. They use Send, or a worker.
func (m *Manager) Put(ctx context.Context, e *Event) (time.Time, error) {
	answer := make(chan accepted, 1)
	ref, err := m.send(e, answer)
	if err != nil {
		return time.Time{}, err
	}
	select {
	case a := <-answer:
		return a.at, a.err
	case <-ctx.Done():
		m.mu.Lock()
		delete(m.waiting, ref)
		m.mu.Unlock()
		return time.Time{}, ctx.Err()
	}
}

func (m *Manager) send(e *Event, answer chan accepted) (ref string, err error) {
	if err := e.check(); err != nil {
		return "", err
	}
	if e.ID == "" {
		e.ID = newUUID()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn == nil {
		return "", ErrAway
	}
	if answer != nil {
		m.refs++
		ref = fmt.Sprint("e", m.refs)
	}
	b, err := json.Marshal(struct {
		Op  string `json:"op"`
		Ref string `json:"ref,omitempty"`
		*Event
	}{"event", ref, e})
	if err != nil {
		return "", err
	}
	if len(b) > maxFrame {
		return "", fmt.Errorf("the event has %d bytes, of at most %d", len(b), maxFrame)
	}
	if answer != nil {
		m.waiting[ref] = answer
	}
	write(m.conn, b)
	return ref, nil
}

// maxFrame is the most bytes of an event, all of it, that the Router takes.
const maxFrame = 4 << 20

// check says what no router takes: it would end the connection for some of it, and tell nobody of an event that was sent without waiting.
func (e *Event) check() error {
	r := e.Response
	switch {
	case e.Type == "" || len(e.Type) > 1024 || !utf8.ValidString(e.Type):
		return errors.New("type: a text of 1 to 1024 bytes is wanted")
	case len(e.ID) > 128 || !utf8.ValidString(e.ID):
		return errors.New("id: a text of at most 128 bytes is wanted")
	case r != nil && r.Status != OK && r.Status != Failed:
		return fmt.Errorf("response: the status is OK or FAILED, and not %q", r.Status)
	case !utf8.Valid(e.Data) || !utf8.Valid(e.Context) || r != nil && !utf8.Valid(r.Data):
		return errors.New("an event is UTF-8")
	}
	return nil
}

// write sends a frame.
func write(c *websocket.Conn, b []byte) {
	c.Lock()
	c.Append(true, b)
	c.Flush()
	c.Unlock()
}

func (m *Manager) header() http.Header {
	if m.o.Token == "" {
		return nil
	}
	return http.Header{"Authorization": {"Bearer " + m.o.Token}}
}

// raise notes what the next health is to tell.
func (m *Manager) raise(e *Event, err error) {
	m.log.Error("a handler has failed", "type", e.Type, "error", err)
	m.mu.Lock()
	defer m.mu.Unlock()
	x := exception{Type: e.Type, Data: e.Data, Error: err.Error()}
	if p := (*panicked)(nil); errors.As(err, &p) {
		x.Trace = p.stack
	}
	if m.raised = append(m.raised, x); len(m.raised) > 100 {
		m.raised = m.raised[1:]
	}
}

// newUUID makes a random UUID.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
