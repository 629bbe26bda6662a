package events

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/websocket"
)

// Codes of a close, beside those of package websocket.
const (
	closeGoingAway = websocket.GoingAway
	closeTryAgain  = 1013
)

const (
	maxFrameBytes = 4 << 20 // of a message from a component; over AMQP an event has at most 1 MiB
	helloWait     = 10 * time.Second
	probeWait     = 2 * time.Second // for a component whose name another wants
	pingEvery     = 10 * time.Second
	pongWait      = time.Minute // long: a component that is busy may leave its socket alone, and is not disconnected for that
)

// conn is the connection of a component.
type conn struct {
	// Set at construction, or by hello, and not changed then.
	r       *Router
	account *Account
	remote  string
	ws      *websocket.Conn
	log     *slog.Logger
	link    *linkPart // of another router; nil: a component
	name    string
	key     string // the name in addresses
	origin  string // event:KEY
	address string // event-conn:KEY
	caller  admin.Caller
	again   bool          // by the router's restart action
	left    chan struct{} // closed when it has left
	since   time.Time     // when it had its name

	received atomic.Uint64 // events that it sent

	// Owned by the reader.
	f     frame
	e     event
	dirty dirty
	asked []asked // subscriptions that follow each other, made together
	done  bool    // it has said unsubscribe_all

	// Guarded by Router.mu.
	subscriptions int
	record        *record

	mu     sync.Mutex // guards what follows, and the writing side of ws
	out    outbox
	listed bool // on somebody's list of what is to be flushed
	slow   bool // past the soft limit; it is over when half of that is gone
	over   bool // past the hard limit: it gets nothing more

	closing bool // it is closed when all is written
}

// dirty is a list of connections that have something to write.
type dirty struct{ conns []*conn }

// note puts a connection on the list. Called under its lock.
func (d *dirty) note(c *conn) {
	if !c.listed {
		c.listed = true
		d.conns = append(d.conns, c)
	}
}

// flush writes what there is.
func (d *dirty) flush() {
	for i, c := range d.conns {
		d.conns[i] = nil
		c.mu.Lock()
		c.listed = false
		over := c.over
		if !over {
			c.ws.Flush()
		}
		c.release()
		if over {
			c.ws.Abort(errBacklog)
		}
	}
	d.conns = d.conns[:0]
}

// Why a connection ends.
var (
	errBacklog  = &websocket.CloseError{Code: closeTryAgain, Text: `too many events wait: come back and subscribe with from_time "restart"`}
	errNoHello  = &websocket.CloseError{Code: websocket.BadPolicy, Text: "no hello came"}
	errReplace  = &websocket.CloseError{Code: websocket.BadPolicy, Text: "another component has this name now: this one did not answer"}
	errOperator = &websocket.CloseError{Code: closeGoingAway, Text: "closed by an operator"}
	errDone     = &websocket.CloseError{Code: websocket.Normal, Text: "done"}
)

// push queues an event. Called under Router.mu.
func (c *conn) push(frame []byte, at int64, d *dirty) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.out.push(frame, at)
	c.r.copies++
	d.note(c)
	c.bound()
}

// pushLink queues an event for another router: payload is its frame, without the frame of the WebSocket. Called under Router.mu.
func (c *conn) pushLink(payload []byte, at int64, d *dirty) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.out.say(func(b []byte) []byte { return append(b, payload...) }, c.ws.Client())
	c.out.count(at)
	c.r.copies++
	d.note(c)
	c.bound()
}

// bound holds the backlog to its limits. Called under the lock.
func (c *conn) bound() {
	o := &c.r.o
	if c.out.depth >= o.Soft && !c.slow { // one read of a sender may bring as many as that: the socket is asked first
		c.ws.Flush()
	}
	switch {
	case c.out.depth >= o.Hard || c.out.bytes >= o.HardBytes:
		c.over = true
		c.r.counters.disconnects.Add(1)
		c.log.Warn("a component is disconnected: too many events wait for it", "events", c.out.depth, "bytes", c.out.bytes)
	case c.out.depth >= o.Soft && !c.slow:
		c.slow = true
		c.r.counters.slow.Add(1)
		c.log.Warn("a component is slow", "events", c.out.depth)
	}
}

// release lets go of the lock, after something may have been written: a component may be slow no more, or done.
func (c *conn) release() {
	if c.slow && c.out.depth <= c.r.o.Soft/2 {
		c.slow = false
		c.log.Info("a component is slow no more", "events", c.out.depth)
	}
	done := c.closing && c.out.empty()
	if done {
		c.closing = false
	}
	c.mu.Unlock()
	if done {
		c.r.running.Go(func() { c.ws.Close(errDone.Code, errDone.Text) })
	}
}

// depth tells how many events wait.
func (c *conn) depth() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.depth
}

// say queues a message that is no event.
func (c *conn) say(d *dirty, write func([]byte) []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.out.say(write, c.ws.Client())
	d.note(c)
	c.bound()
}

// answer queues an answer: its op, the ref as it came, and more members.
func (c *conn) answer(d *dirty, op string, ref []byte, more string) {
	c.say(d, func(b []byte) []byte { return append(append(appendAnswer(b, op, ref), more...), '}') })
}

func appendAnswer(b []byte, op string, ref []byte) []byte {
	b = append(append(append(b, `{"op":"`...), op...), '"')
	if ref != nil {
		b = append(append(b, `,"ref":`...), ref...)
	}
	return b
}

// refuse queues an error.
func (c *conn) refuse(d *dirty, ref []byte, code, message string) {
	c.say(d, func(b []byte) []byte {
		b = append(append(appendAnswer(b, "error", ref), `,"code":"`...), code...)
		return append(appendText(append(b, `","message":`...), message), '}')
	})
}

// subscribed queues the answer to a subscribe, and the replay behind it.
func (c *conn) subscribed(ref []byte, v view, d *dirty) {
	c.say(d, func(b []byte) []byte {
		b = append(appendAnswer(b, "subscribed", ref), `,"replaying":`...)
		n, _ := json.Marshal(len(v.places))
		return append(append(b, n...), '}')
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.replay(v)
}

// Handler takes components at /router/manager.
func (r *Router) Handler() http.Handler {
	gate := websocket.Gate{Origins: r.o.Origins, Speaks: "edri.v1"}
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		account, err := r.authorize(q)
		if err != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		if nc, already := gate.Upgrade(w, q); nc != nil {
			r.Serve(nc, already, account)
		}
	})
}

var errStranger = errors.New("a token is wanted: Authorization: Bearer TOKEN, or ?token=TOKEN")

func (r *Router) authorize(q *http.Request) (*Account, error) {
	if r.o.Authorize != nil {
		return r.o.Authorize(q)
	}
	host, _, err := net.SplitHostPort(q.RemoteAddr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return nil, errStranger
	}
	return &Account{Link: true}, nil
}

// Serve speaks edri.v1 with a component, on a goroutine of its own, until it has gone. already is what was read from it.
func (r *Router) Serve(nc net.Conn, already []byte, account *Account) {
	c := r.newConn(account, nc.RemoteAddr())
	c.ws = websocket.New(nc, already, false, websocket.Options{
		MaxMessage: maxFrameBytes, PingEvery: pingEvery, PongWait: pongWait, Mutex: &c.mu, Line: &c.out, Release: c.release,
	})
	if !r.enter(c) {
		c.ws.End(closeGoingAway, "the router stops")
		return
	}
	go func() {
		defer r.exit(c)
		c.serve()
	}()
}

func (r *Router) newConn(account *Account, remote net.Addr) *conn {
	c := &conn{r: r, account: account, log: r.log, left: make(chan struct{})}
	if remote != nil {
		c.remote = remote.String()
	}
	return c
}

func (c *conn) serve() {
	err := c.greet()
	if err == nil {
		err = c.read()
	}
	if c.record != nil {
		c.leave(err)
	}
	close(c.left)
	code, text := websocket.BadPolicy, "it cannot go on"
	if ce, ok := errors.AsType[*websocket.CloseError](err); ok {
		code, text = ce.Code, ce.Text
	} else if errors.Is(err, io.EOF) || errors.Is(err, websocket.ErrSilent) {
		code, text = 0, ""
	}
	c.ws.End(code, text)
}

// greet waits for hello.
func (c *conn) greet() error {
	late := time.AfterFunc(helloWait, func() { c.ws.Abort(errNoHello) })
	defer late.Stop()
	for {
		m, _, err := c.ws.Next()
		if err != nil {
			return err
		}
		done := c.hello(m)
		c.dirty.flush()
		if done {
			return nil
		}
	}
}

// hello takes what must be a hello, and answers it.
func (c *conn) hello(m websocket.Message) (done bool) {
	f := &c.f
	if err := c.parse(m); err != nil {
		c.refuse(&c.dirty, f.ref, "bad_request", err.Error())
		return false
	}
	name := word(f.name)
	switch {
	case word(f.op) != "hello":
		c.refuse(&c.dirty, f.ref, "bad_request", "hello comes first")
	case string(f.protocol) != "1" && f.protocol != nil:
		c.refuse(&c.dirty, f.ref, "bad_request", "protocol: 1 is spoken here")
	case name == "" || len(name) > maxNameBytes || !utf8.ValidString(name):
		c.refuse(&c.dirty, f.ref, "bad_request", "name: a text of 1 to 128 bytes is wanted")
	case word(f.restart) != "" && word(f.restart) != "self" && word(f.restart) != "router" || f.restart != nil && word(f.restart) == "":
		c.refuse(&c.dirty, f.ref, "bad_request", `restart: "self" or "router" is wanted`)
	case !allowed(c.account.Names, name):
		c.refuse(&c.dirty, f.ref, "unauthorized", "this name is not for this account")
	case !c.join(name, word(f.restart) == "router"):
		c.refuse(&c.dirty, f.ref, "name_in_use", "a component of this name is connected, and alive")
	default:
		return true
	}
	return false
}

func allowed(g *admin.Grants, address string) bool { return g == nil || g.Allow(address) }

func (c *conn) parse(m websocket.Message) error {
	if !m.Text {
		return errors.New("a frame is text")
	}
	if err := c.f.parse(m.Data); err != nil {
		return err
	}
	if len(c.f.ref) > maxRefBytes {
		c.f.ref = nil
		return errors.New("ref: at most 256 bytes")
	}
	return nil
}

// join gives the component its name, unless another has it and answers. What is welcome goes first in its line.
func (c *conn) join(name string, again bool) bool {
	if !c.claim(name, keyOf(name), "component") {
		return false
	}
	c.again = again
	c.record = c.r.recordOf(c)
	c.welcome()
	c.r.mu.Unlock()
	c.log.Info("a component has come", "remote", c.remote)
	return true
}

// claim gives the connection a name and its key, unless another connection has the key and answers; kind is the name's in the log. Where it does, it returns with
// Router.mu locked.
func (c *conn) claim(name, key, kind string) bool {
	r := c.r
	for {
		r.mu.Lock()
		old := r.conns[key]
		if old == nil {
			break
		}
		r.mu.Unlock()
		if old.ws.Probe(probeWait) {
			return false
		}
		old.ws.Abort(errReplace)
		<-old.left
	}
	c.name, c.key = name, key
	c.origin, c.address = "event:"+key, "event-conn:"+key
	c.caller = admin.Caller{User: c.account.Name, Remote: c.remote, Via: c.origin}
	c.log = r.log.With(kind, name)
	r.keepEvents()
	r.conns[key], c.since = c, time.Now()
	r.counters.connects.Add(1)
	r.present.Store(key, true)
	r.joined++
	return true
}

// yield takes back what claim gave, and the connection's rows. Called under Router.mu.
func (c *conn) yield() {
	r := c.r
	r.withdraw(c)
	delete(r.conns, c.key)
	r.present.Delete(c.key)
	r.joined++
}

// welcome queues the answer to hello. Called under Router.mu.
func (c *conn) welcome() {
	r := c.r
	c.say(&c.dirty, func(b []byte) []byte {
		b = append(appendAnswer(b, "welcome", c.f.ref), `,"router":`...)
		b = appendTime(append(appendText(b, r.o.ID), `,"time":`...), max(r.now(), r.last))
		more, _ := json.Marshal(struct {
			Window float64 `json:"window"`
			Soft   int     `json:"soft"`
			Hard   int     `json:"hard"`
			Health float64 `json:"health_every"`
		}{r.o.Window.Seconds(), r.o.Soft, r.o.Hard, r.o.HealthEvery.Seconds()})
		return append(append(b, ','), more[1:]...)
	})
}

// read takes what the component sends, until it has gone.
func (c *conn) read() error {
	for {
		m, more, err := c.ws.Next()
		if err != nil {
			return err
		}
		err = c.parse(m)
		if err != nil || string(c.f.op) != `"subscribe"` || len(c.asked) == maxAsked {
			c.subscribeAsked()
		}
		if err != nil {
			c.log.Debug("a frame is not understood", "error", err)
			c.refuse(&c.dirty, c.f.ref, "bad_request", err.Error())
		} else {
			c.handle()
		}
		if !more {
			c.subscribeAsked()
			c.dirty.flush()
		}
	}
}

// asked is a subscription that is to be made.
type asked struct {
	ref      []byte
	typ      string
	response bool
	from     int64
}

// maxAsked is how many are made under one lock: they cost less together, and hold others up for longer.
const maxAsked = 64

// subscribeAsked makes the subscriptions that were asked for.
func (c *conn) subscribeAsked() {
	if len(c.asked) == 0 {
		return
	}
	c.r.subscribe(c, c.asked, &c.dirty)
	clear(c.asked)
	c.asked = c.asked[:0]
}

// handle does what a frame asks for.
func (c *conn) handle() {
	f := &c.f
	if c.done {
		return // what was said behind unsubscribe_all
	}
	op, _ := text(f.op)
	switch string(op) {
	case "event":
		c.handleEvent()
	case "subscribe":
		c.handleSubscribe()
	case "unsubscribe":
		c.handleUnsubscribe()
	case "unsubscribe_all":
		c.handleUnsubscribeAll()
	case "health":
		c.r.replied(c, f)
	case "types":
		c.handleTypes()
	case "hello":
		c.refuse(&c.dirty, f.ref, "bad_request", "hello was said")
	default:
		c.refuse(&c.dirty, f.ref, "unknown_op", "there is no such op")
	}
}

func (c *conn) handleEvent() {
	e := &c.e
	if err := c.f.event(e); err != nil {
		c.log.Debug("an event is not taken", "error", err)
		c.refuse(&c.dirty, c.f.ref, "bad_request", err.Error())
		return
	}
	if c.account.Send != nil && !c.account.Send.Allow(addressOf(string(e.typ), e.response)) {
		c.refuse(&c.dirty, c.f.ref, "unauthorized", "this type is not for this account to send")
		return
	}
	c.received.Add(1)
	at := c.r.publish(e, &c.dirty)
	if ref := c.f.ref; ref != nil {
		c.say(&c.dirty, func(b []byte) []byte {
			return append(appendTime(append(appendAnswer(b, "accepted", ref), `,"time":`...), at), '}')
		})
	}
}

func (c *conn) handleSubscribe() {
	f := &c.f
	typ, err := typeOf(f.kind)
	response, err2 := isResponse(f.direction)
	from, err3 := c.fromTime(f.fromTime)
	if err = errors.Join(err, err2, err3); err != nil {
		c.subscribeAsked() // its answer comes behind theirs
		c.refuse(&c.dirty, f.ref, "bad_request", firstLine(err))
		return
	}
	if !allowed(c.account.Subscribe, addressOf(string(typ), response)) {
		c.subscribeAsked()
		c.refuse(&c.dirty, f.ref, "unauthorized", "this type is not for this account to subscribe to")
		return
	}
	c.asked = append(c.asked, asked{slices.Clone(f.ref), string(typ), response, from})
}

// fromTime reads from when on a replay is asked for.
func (c *conn) fromTime(value []byte) (int64, error) {
	if isNull(value) {
		return 0, nil
	}
	switch s := word(value); s {
	case "restart":
		return c.r.restartPoint(c.key), nil
	case "now":
		return 1<<63 - 1, nil
	default:
		return parseTime(s)
	}
}

func (c *conn) handleUnsubscribe() {
	f := &c.f
	typ, err := typeOf(f.kind)
	response, err2 := isResponse(f.direction)
	if err = errors.Join(err, err2); err == nil {
		err = c.r.unsubscribe(c, f.ref, string(typ), response, &c.dirty)
	}
	if err != nil {
		c.refuse(&c.dirty, f.ref, "bad_request", firstLine(err))
	}
}

func (c *conn) handleUnsubscribeAll() {
	c.done = true
	c.r.mu.Lock()
	c.r.withdraw(c)
	c.answer(&c.dirty, "unsubscribed", c.f.ref, "")
	c.r.mu.Unlock()
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
}

// firstLine is the first line of what an error says.
func firstLine(err error) string {
	s := err.Error()
	for i := range len(s) {
		if s[i] == '\n' {
			return s[:i]
		}
	}
	return s
}
