package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/fingerpost/fingerpost/internal/websocket"
)

// frame is what the Router says.
type frame struct {
	Op, Code, Message, Type, Direction, ID, Time, Check, Via string
	Ref                                                      string
	Replay                                                   bool
	Data, Context                                            json.RawMessage
	Response                                                 *Response
}

const dialTimeout = 10 * time.Second

// refTypes is the ref of the types that are shareable.
const refTypes = "types"

// errRefused marks what no retry mends.
var errRefused = errors.New("the router refuses")

// session is one connection, from hello to its end.
func (m *Manager) session(ctx context.Context) error {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := websocket.Dial(dialing, m.o.URL, websocket.DialOptions{
		Header: m.header(), Conn: websocket.Options{MaxMessage: 16 << 20, PingEvery: 20 * time.Second, PongWait: 20 * time.Second},
	})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { c.Close(websocket.Normal, "done") })
	defer stop()
	defer c.End(websocket.Normal, "")
	defer m.disconnected()
	if err := m.hello(c); err != nil {
		return err
	}
	return m.read(ctx, c)
}

func (m *Manager) hello(c *websocket.Conn) error {
	b, err := json.Marshal(map[string]any{"op": "hello", "name": m.o.Name, "protocol": 1, "restart": orSelf(m.o.Restart)})
	if err != nil {
		return err
	}
	write(c, b)
	f, err := next(c)
	switch {
	case err != nil:
		return err
	case f.Op == "error" && f.Code == "name_in_use":
		return errors.New(f.Message)
	case f.Op != "welcome":
		return fmt.Errorf("%w: %s: %s", errRefused, f.Code, f.Message)
	}
	if len(m.shareable) > 0 {
		say(c, map[string]any{"op": "types", "ref": refTypes, "shareable": m.shareable})
	}
	for _, h := range m.handlers {
		from := h.last
		if from == "" {
			from = "restart"
		}
		say(c, map[string]any{"op": "subscribe", "ref": h.direction + " " + h.typ, "type": h.typ, "direction": h.direction, "from_time": from})
	}
	m.mu.Lock()
	m.conn = c
	if len(m.handlers) == 0 {
		close(m.ready)
	}
	m.mu.Unlock()
	return nil
}

func orSelf(restart string) string {
	if restart == "" {
		return "self"
	}
	return restart
}

func say(c *websocket.Conn, v any) {
	if b, err := json.Marshal(v); err == nil {
		write(c, b)
	}
}

func next(c *websocket.Conn) (f frame, err error) {
	msg, _, err := c.Next()
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(msg.Data, &f); err != nil {
		return f, fmt.Errorf("the router says what is no frame: %w", err)
	}
	return f, nil
}

// read takes what the Router says. Events are handled here, one after another.
func (m *Manager) read(ctx context.Context, c *websocket.Conn) error {
	wanted := len(m.handlers)
	for {
		f, err := next(c)
		if err != nil {
			return err
		}
		switch f.Op {
		case "event":
			m.event(ctx, &f)
		case "subscribed":
			if wanted--; wanted == 0 {
				m.mu.Lock()
				close(m.ready)
				m.mu.Unlock()
			}
		case "accepted":
			at, _ := time.Parse(time.RFC3339Nano, f.Time)
			m.answer(f.Ref, accepted{at: at})
		case "health_check":
			m.health(c, f.Check)
		case "error":
			if err := m.refused(&f); err != nil {
				return err
			}
		}
	}
}

// refused takes what the Router refuses. Only what every session says first ends Run: an event or an answer that is refused is no reason to be away.
func (m *Manager) refused(f *frame) error {
	kind, _, ofHandler := strings.Cut(f.Ref, " ")
	switch {
	case m.answer(f.Ref, accepted{err: fmt.Errorf("%s: %s", f.Code, f.Message)}):
	case f.Ref == refTypes, ofHandler && (kind == "request" || kind == "response"):
		return fmt.Errorf("%w: %s: %s: %s", errRefused, f.Ref, f.Code, f.Message)
	case f.Ref == "": // of Send, which waits for nothing
		m.raise(&Event{Type: "router"}, fmt.Errorf("the router refuses what was sent: %s: %s", f.Code, f.Message))
	}
	return nil
}

// answer gives an answer to who waits for it.
func (m *Manager) answer(ref string, a accepted) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.waiting[ref]
	delete(m.waiting, ref)
	if w != nil {
		w <- a
	}
	return w != nil
}

// event has an event handled, unless it was.
func (m *Manager) event(ctx context.Context, f *frame) {
	for _, h := range m.handlers {
		if h.typ != f.Type || h.direction != f.Direction {
			continue
		}
		if f.Replay && h.finished[f.ID] && f.Time == h.last {
			return
		}
		e := &Event{ID: f.ID, Type: f.Type, Data: f.Data, Response: f.Response, Context: f.Context, Replay: f.Replay, Via: f.Via, stamp: f.Time}
		e.Time, _ = time.Parse(time.RFC3339Nano, f.Time)
		answer, err := call(ctx, h.handle, e)
		if err != nil {
			m.raise(e, err)
		}
		if answer != nil {
			if err := m.Send(&Event{ID: e.ID, Type: e.Type, Data: e.Data, Response: answer, Context: e.Context}); err != nil {
				m.raise(e, fmt.Errorf("the answer could not be sent: %w", err))
			}
		}
		if f.Time != h.last {
			h.last, h.finished = f.Time, map[string]bool{}
		}
		h.finished[f.ID] = true
		return
	}
}

// panicked is what a handler panicked with.
type panicked struct {
	value any
	stack string
}

func (p *panicked) Error() string { return fmt.Sprint("panic: ", p.value) }

func call(ctx context.Context, h Handler, e *Event) (answer *Response, err error) {
	defer func() {
		if v := recover(); v != nil {
			answer, err = nil, &panicked{v, string(debug.Stack())}
		}
	}()
	return h(ctx, e)
}

// health answers a health check.
func (m *Manager) health(c *websocket.Conn, check string) {
	status, vitals := OK, any(nil)
	if m.o.Health != nil {
		status, vitals = m.o.Health()
	}
	if status != OK && status != Warning && status != Error {
		m.raise(&Event{Type: "health"}, fmt.Errorf("%q is no status: OK, WARNING or ERROR is wanted", status))
		status = Error
	}
	told, err := json.Marshal(vitals)
	if err != nil {
		m.raise(&Event{Type: "health"}, fmt.Errorf("vitals: %w", err))
		told = []byte("null")
	}
	m.mu.Lock()
	raised := m.raised
	m.raised = nil
	m.mu.Unlock()
	if len(raised) > 0 && status == OK {
		status = Warning
	}
	if raised == nil {
		raised = []exception{}
	}
	say(c, map[string]any{"op": "health", "check": check, "status": status, "exceptions": raised, "vitals": json.RawMessage(told)})
}

// disconnected tells everybody who waits.
func (m *Manager) disconnected() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conn = nil
	select {
	case <-m.ready:
		m.ready = make(chan struct{})
	default:
	}
	for ref, w := range m.waiting {
		w <- accepted{err: ErrAway}
		delete(m.waiting, ref)
	}
}
